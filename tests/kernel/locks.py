"""Takes orders of the suite kernel-locks, one a line, and answers each with a
line behind "@@ ". Locks belong to processes, so each process has a name:

    P ORDER…      the process P (begun when it is first named) does it
    begin P ORDER…  the same, but answer at once; what comes of it:
    end P SECONDS   the answer, or "waiting"
    die P         the process is killed
    umount        unmounts

Orders of processes, on a file below the mount:

    lock|lockw FILE ex|sh START LENGTH    fcntl F_SETLK, F_SETLKW
    unlock FILE START LENGTH
    test FILE ex|sh START LENGTH          fcntl F_GETLK
    flock FILE ex|sh|un                   flock, without waiting
    count FILE TIMES                      adds 1 under a lock, so many times
"""

import errno
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys

MOUNT = "/mnt/nfs/"
KINDS = {"ex": fcntl.F_WRLCK, "sh": fcntl.F_RDLCK, "un": fcntl.F_UNLCK}
LAYOUT = "hhqqi4x"  # struct flock of 64 bits: type, whence, start, length, process.
ANSWER_SECONDS = 30
NAMES = errno.errorcode | {errno.EDEADLK: "EDEADLK"}  # Which has a second name.


class Worker:
    """A process that has locks of its own."""

    def __init__(self):
        orders, self.orders = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            serve(os.fdopen(orders), answers)
        os.close(orders)
        os.close(answers)

    def send(self, words):
        os.write(self.orders, (" ".join(words) + "\n").encode())

    def answer(self, seconds):
        if not select.select([self.answers], [], [], seconds)[0]:
            return "waiting"
        return os.read(self.answers, 4096).decode().strip()

    def die(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.orders)
        os.close(self.answers)


def serve(orders, answers):
    files = {}
    for line in orders:
        try:
            answer = act(files, line.split())
        except OSError as error:
            answer = NAMES.get(error.errno, str(error.errno))
        os.write(answers, answer.encode() + b"\n")
    os._exit(0)


def act(files, words):
    what, name, *rest = words
    if name not in files:
        files[name] = os.open(MOUNT + name, os.O_RDWR | os.O_CREAT, 0o666)
    file = files[name]
    if what in ("lock", "lockw", "test"):
        kind, start, length = KINDS[rest[0]], int(rest[1]), int(rest[2])
        wanted = struct.pack(LAYOUT, kind, os.SEEK_SET, start, length, 0)
        calls = {"lock": fcntl.F_SETLK, "lockw": fcntl.F_SETLKW, "test": fcntl.F_GETLK}
        found = fcntl.fcntl(file, calls[what], wanted)
        if what == "test":
            kind, _, start, length, _ = struct.unpack(LAYOUT, found)
            if kind == fcntl.F_UNLCK:
                return "free"
            return f"{'ex' if kind == fcntl.F_WRLCK else 'sh'} {start} {length}"
    elif what == "unlock":
        free = struct.pack(LAYOUT, fcntl.F_UNLCK, os.SEEK_SET, int(rest[0]), int(rest[1]), 0)
        fcntl.fcntl(file, fcntl.F_SETLK, free)
    elif what == "flock":
        kinds = {"ex": fcntl.LOCK_EX, "sh": fcntl.LOCK_SH, "un": fcntl.LOCK_UN}
        fcntl.flock(file, kinds[rest[0]] | fcntl.LOCK_NB)
    elif what == "count":
        for _ in range(int(rest[0])):
            fcntl.lockf(file, fcntl.LOCK_EX)
            number = int(os.pread(file, 32, 0) or b"0")
            os.pwrite(file, b"%d\n" % (number + 1), 0)
            fcntl.lockf(file, fcntl.LOCK_UN)
        fcntl.lockf(file, fcntl.LOCK_SH)
        total = os.pread(file, 32, 0).decode().strip()
        fcntl.lockf(file, fcntl.LOCK_UN)
        return total
    else:
        return f"no such order: {what}"
    return "ok"


def main():
    workers = {}

    def worker(name):
        if name not in workers:
            workers[name] = Worker()
        return workers[name]

    print("@@ ready")
    for line in sys.stdin:
        match line.split():
            case ["begin", name, *words]:
                worker(name).send(words)
                answer = "begun"
            case ["end", name, seconds]:
                answer = worker(name).answer(float(seconds))
            case ["die", name]:
                workers.pop(name).die()
                answer = "ok"
            case ["umount"]:
                for name in list(workers):
                    workers.pop(name).die()
                answer = "ok" if subprocess.call(["umount", "/mnt/nfs"]) == 0 else "busy"
            case [name, *words]:
                worker(name).send(words)
                answer = worker(name).answer(ANSWER_SECONDS)
            case _:
                answer = "no order"
        print("@@ " + answer)


main()
