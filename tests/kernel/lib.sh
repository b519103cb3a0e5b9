# Sourced by every guest script. The rig sets: SERVER, PORT, MOUNT_PORT, EXPORT,
# MOUNT_OPTIONS (what this server needs beside the usual ones).
set -euo pipefail
shopt -s lastpipe
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LC_ALL=C

# mount_nfs FOLDER [OPTION,…]: mounts the server's export, and shows the mount line.
mount_nfs() {
    local folder=$1 options=vers=3,proto=tcp,port=$PORT,mountport=$MOUNT_PORT,mountproto=tcp,nolock
    mkdir -p "$folder"
    mount -t nfs -o "$options${MOUNT_OPTIONS:+,$MOUNT_OPTIONS}${2:+,$2}" "$SERVER:$EXPORT" "$folder"
    grep " $folder nfs " /proc/mounts
}

# remount FOLDER: the same mount again, with nothing cached by the client.
remount() {
    umount "$1"
    mount_nfs "$1"
}

# slice FILE OFFSET LENGTH: those bytes.
slice() {
    dd if="$1" bs=64k iflag=skip_bytes,count_bytes skip="$2" count="$3" status=none
}

# run_fsx FILE SEED OPERATIONS LENGTH: random reads, writes, mapped access and truncates of a
# file of at most so many bytes, each verified.
run_fsx() {
    cat >/tmp/fsx.toml <<CONFIG
flen = $4
[opsize]
max = 131072
[weights]
close_open = 1.0
invalidate = 1.0
CONFIG
    /run/target/tools/bin/fsx -q -f /tmp/fsx.toml -P /tmp -S "$2" -N "$3" "$1"
}

fail() {
    echo "FAILED: $*" >&2
    # Of a server in the guest (disks.sh).
    if [ -e /tmp/server.log ]; then tail -20 /tmp/server.log >&2; fi
    exit 1
}

step() { echo "== $*"; }

# same A B WHAT
same() { [ "$1" = "$2" ] || fail "$3: expected '$2', got '$1'"; }

echo "guest kernel $(uname -r)"
modprobe -d /run/target/guest/root nfsv3
