# No room: the volume's bound reached, and the file system below full. What does
# not fit is refused with "no space", removing always works, and makes room.
source /run/repo/tests/kernel/disks.sh

# fill: until it is refused; the bytes that fit are kept.
fill() {
    local number=0
    while slice /tmp/random "$((number * 997))" 1500000 >/tmp/piece &&
        dd if=/tmp/piece of="/mnt/nfs/fill/$number" bs=64k conv=fsync status=none 2>/tmp/why; do
        cp /tmp/piece "/tmp/copy/$number"
        number=$((number + 1))
        ((number < 200)) || fail "it is never full"
    done
    grep -q "No space left on device" /tmp/why || fail "refused with: $(cat /tmp/why)"
    rm -f "/mnt/nfs/fill/$number"
    echo "$number files of 1.5 MB fit"
    ((number > 10)) || fail "it was full too early"
}

# full_and_not_full ARGUMENTS: fills, removes, goes on, and starts again.
full_and_not_full() {
    mkdir -p /tmp/copy /mnt/nfs/fill
    fill
    if echo more | dd of=/mnt/nfs/fill/more bs=64k conv=fsync status=none 2>/dev/null; then
        rm /mnt/nfs/fill/more # A small one may find room.
    fi
    for name in 0 1 2 3 4 5 6 7; do
        rm "/mnt/nfs/fill/$name" || fail "a full disk does not let remove"
        rm "/tmp/copy/$name"
    done
    mv /mnt/nfs/fill/8 /mnt/nfs/fill/renamed
    mv /tmp/copy/8 /tmp/copy/renamed
}

writes_go_on() {
    for number in 100 101 102; do
        slice /tmp/random "$((number * 997))" 1500000 >"/tmp/copy/$number"
        local tries=0
        # The room that was made is there when the removal has reached the nodes.
        until cp "/tmp/copy/$number" /mnt/nfs/fill/new && sync -f /mnt/nfs; do
            ((++tries < 30)) || fail "no room again"
            sleep 0.2
        done
        mv /mnt/nfs/fill/new "/mnt/nfs/fill/$number"
    done
}

verify() {
    remount /mnt/nfs >/dev/null
    diff -r /tmp/copy /mnt/nfs/fill || fail "$1: other bytes than were written"
    alive
}

head -c 4000000 /dev/urandom >/tmp/random

step "the volume's bound"
make_file_system /dev/ubda "$POOL"
start_server --nodes 2 --size 80M
mount_nfs /mnt/nfs
full_and_not_full
writes_go_on
verify "a full volume"
umount /mnt/nfs
stop_server
start_server
mount_nfs /mnt/nfs >/dev/null
verify "a full volume, started again"
umount /mnt/nfs
stop_server
for node in 0 1; do "$PROGRAM" fsck --full --node "$POOL/node-$node"; done
umount "$POOL"

step "the file system below"
rm -r /tmp/copy
make_file_system /dev/ubdc "$POOL"
start_server --nodes 1 --size 1G
mount_nfs /mnt/nfs >/dev/null
head -c 60M /dev/zero >"$POOL/other" || true
full_and_not_full
verify "a full file system"
step "room again, because others have gone"
rm "$POOL/other"
writes_go_on
verify "room again"
umount /mnt/nfs
stop_server
start_server
mount_nfs /mnt/nfs >/dev/null
verify "started again"
umount /mnt/nfs
stop_server
"$PROGRAM" fsck --full --node "$POOL/node-0"
umount "$POOL"
