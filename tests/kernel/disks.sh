# Sourced by the guest scripts that put Crossdock's nodes on devices that fail:
# the server runs in the guest, on the device mapper of its kernel, and the
# guest's own NFS client mounts it over loopback. The rig sets PROGRAM.
source /run/repo/tests/kernel/lib.sh

SERVER=127.0.0.1 PORT=2049 MOUNT_PORT=2049 EXPORT=/ MOUNT_OPTIONS=
POOL=/srv
for module in dm-mod dm-flakey dm-dust dm-log-writes; do
    modprobe -d /run/target/guest/root "$module"
done

# make_file_system DEVICE FOLDER: small metadata, and nothing written later on its own.
make_file_system() {
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 -J size=4 "$1"
    mkdir -p "$2"
    mount "$1" "$2"
    rmdir "$2/lost+found"
}

# make_mapped NAME TABLE: a device /dev/mapper/NAME.
make_mapped() {
    dmsetup create "$1" --noudevsync --table "$2"
    dmsetup mknodes "$1"
}

# set_table NAME TABLE: from now on the device does that.
set_table() {
    dmsetup reload "$1" --table "$2"
    # The file system above is not asked: it may be unable to write.
    dmsetup suspend --nolockfs --noflush --noudevsync "$1"
    dmsetup resume --noudevsync "$1"
}

sectors() { blockdev --getsz "$1"; }

# data_ranges FILE: its places on the device, as "first-sector sectors" lines in order.
data_ranges() {
    filefrag -b512 -v "$1" | awk -F'[:. ]+' '/^ +[0-9]+:/ { print $5, $7 }' | sort -n
}

# only_below FILE DEVICE TARGET FEATURES: a table that does that to the file's
# places and is a plain device elsewhere.
only_below() {
    local at=0 end
    end=$(sectors "$2")
    data_ranges "$1" | while read -r first length; do
        if ((at < first)); then echo "$at $((first - at)) linear $2 $at"; fi
        echo "$first $length $3 $2 $first $4"
        at=$((first + length))
    done
    if ((at < end)); then echo "$at $((end - at)) linear $2 $at"; fi
}

# flip_bits FILE DEVICE STEP: a bit of every so many blocks of the file that are
# not empty, on the device, past all caches. (Flakey's own corruption does nothing
# to reads in this kernel, and to writes it does it in the writer's memory.) One
# process for all: a guest of this kind takes long to start one.
flip_bits() {
    local flipped range
    range=$(data_ranges "$1" | head -1) # The rest is not written yet.
    blockdev --flushbufs "$2"
    # shellcheck disable=SC2086 # Two numbers.
    flipped=$(perl -MIO::Handle -e '
        my ($device, $first, $length, $step) = @ARGV;
        open(my $disk, "+<:unix", $device) or die "$device: $!";
        my $flipped = 0;
        for (my $at = int($first / 8); $at < ($first + $length) / 8; $at += $step) {
            sysseek($disk, $at * 4096 + 77, 0) and sysread($disk, my $byte, 1) or die "read: $!";
            next if ord($byte) == 0;
            sysseek($disk, $at * 4096 + 77, 0);
            syswrite($disk, chr(ord($byte) ^ 16), 1) or die "write: $!";
            $flipped++;
        }
        $disk->sync or die "sync: $!";
        print $flipped;
    ' "$2" $range "$3") || fail "cannot flip bits"
    blockdev --flushbufs "$2"
    echo "$flipped bits have flipped"
    ((flipped > 5)) || fail "nothing was damaged"
}

# start_server ARGUMENTS: and waits until it serves.
start_server() {
    "$PROGRAM" up --data "$POOL" --log-format json "$@" >/tmp/ready 2>>/tmp/server.log &
    SERVER_PID=$!
    for _ in $(seq 300); do
        if grep -q "^admin " /tmp/ready; then return; fi
        kill -0 "$SERVER_PID" || fail "the server ended"
        sleep 0.1
    done
    fail "the server is not ready"
}

stop_server() {
    kill -TERM "$SERVER_PID"
    wait "$SERVER_PID" || fail "the server stopped with $?"
}

alive() { kill -0 "$SERVER_PID" || fail "the server died"; }

# figure NODE NAME: of crossdock status.
figure() {
    "$PROGRAM" status --json | tr -d ' \n' | grep -o "{[^{}]*\"number\":$1[,}][^{}]*" |
        grep -o "\"$2\":[0-9]*" | cut -d: -f2
}

# warned WORDS: crossdock status has a warning with them.
warned() { "$PROGRAM" status | grep -q "warning: .*$1" || fail "no warning of: $1"; }

# logged WORDS: the server's log has a line with them.
logged() { grep -q "$1" /tmp/server.log || fail "not in the log: $1"; }

# write_files FOLDER FROM TO: big and small files, with a copy to compare with.
write_files() {
    for number in $(seq "$2" "$3"); do
        local length=$((number % 3 == 0 ? 9000 : 700000))
        slice /tmp/random "$((number * 4099))" "$length" >"/tmp/copy/$number"
        dd if="/tmp/copy/$number" of="$1/$number" bs=64k conv=fsync status=none
    done
}

compare() { # WHAT
    remount /mnt/nfs >/dev/null
    diff -r /tmp/copy /mnt/nfs || fail "$1: other bytes than were written"
    alive
}
