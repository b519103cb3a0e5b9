#!/usr/bin/env python3
"""The Internet Backplane Protocol by hand: stores bytes at one depot, has it copy them to
another one, loads them from there, and gives both byte arrays back.

    ibp.py 127.0.0.1:6714 127.0.0.1:6715
"""

import socket
import sys


class Depot:
    """One connection to a depot; it serves many requests, one after the other."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=30)
        self.stream = self.socket.makefile("rb")

    def ask(self, *fields):
        """Sends a request line; the fields of the answer behind the 1 that means success."""
        line = " ".join(str(field) for field in fields) + "\n"
        self.socket.sendall(line.encode("ascii"))
        return self.answer()

    def answer(self):
        answer = self.stream.readline().decode("ascii").split()
        if not answer or answer[0] != "1":
            raise RuntimeError(f"the depot refused: {' '.join(answer)}")
        return answer[1:]

    def allocate(self, size, seconds):
        """A stable byte array: its capabilities to read, write and manage."""
        return self.ask(0, 1, 2, 1, seconds, size, 10)

    def store(self, write, data):
        key, attribute_key = keys(write)
        self.ask(0, 2, key, attribute_key, len(data), 10)
        self.socket.sendall(data)
        (stored,) = self.answer()
        assert int(stored) == len(data)

    def load(self, read, offset, size):
        key, attribute_key = keys(read)
        (length,) = self.ask(0, 8, key, attribute_key, offset, size, 10)
        return self.stream.read(int(length))

    def copy(self, read, write, size):
        """Has this depot append bytes to a byte array of another one."""
        key, attribute_key = keys(read)
        (copied,) = self.ask(0, 5, key, write, attribute_key, 0, size, 10, 10, 10)
        assert int(copied) == size

    def release(self, manage):
        """One reader less: the byte array goes."""
        key, attribute_key = keys(manage)
        self.ask(0, 9, key, attribute_key, 42, 1, 10)


def keys(capability):
    """ibp://HOST:PORT/KEY/ATTRIBUTE_KEY/KIND"""
    _scheme, _, _depot, key, attribute_key, _kind = capability.split("/")
    return key, attribute_key


def main(first, second):
    data = bytes(range(256)) * 1000
    here, there = Depot(first), Depot(second)
    read, write, manage = here.allocate(len(data), 60)
    here.store(write, data)
    far_read, far_write, far_manage = there.allocate(len(data), 60)
    here.copy(read, far_write, len(data))
    assert there.load(far_read, 1000, 500) == data[1000:1500]
    assert there.load(far_read, 0, len(data)) == data
    here.release(manage)
    there.release(far_manage)
    print(f"{len(data)} bytes stored at {first}, copied to {second}, loaded and released")


if __name__ == "__main__":
    main(*sys.argv[1:])
