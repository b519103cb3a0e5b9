# One copy on a disk that fails below a running server, with the device mapper of
# a real kernel: clients get errors, and never other bytes than they wrote; the
# process goes on and says which disk it is.
source /run/repo/tests/kernel/disks.sh

# Each file is read as it was written, or with an error.
right_or_refused() {
    local file refused=0
    for file in /tmp/copy/*; do
        if cat "/mnt/nfs/${file##*/}" >/tmp/read 2>/tmp/why; then
            cmp /tmp/read "$file" || fail "other bytes than were written"
        else
            grep -q "Input/output error" /tmp/why || fail "$(cat /tmp/why)"
            refused=$((refused + 1))
        fi
    done
    echo "$refused of $(ls /tmp/copy | wc -l) files are refused"
    ((refused > 5)) || fail "nothing was corrupted"
}

step "bits flip: errors, and never other bytes"
size=$(sectors /dev/ubdb)
plain="0 $size linear /dev/ubdb 0"
make_mapped bad "$plain"
make_file_system /dev/mapper/bad "$POOL"
mkdir /tmp/copy
head -c 3000000 /dev/urandom >/tmp/random
start_server --nodes 1 --size 300M --cache 1M
mount_nfs /mnt/nfs soft,timeo=50,retrans=1 >/dev/null
write_files /mnt/nfs 1 24
remount /mnt/nfs >/dev/null
data=$POOL/node-0/data
flip_bits "$data" /dev/mapper/bad 20
right_or_refused
logged "a block is lost on this node"

step "a device that takes no writes"
set_table bad "0 $size flakey /dev/ubdb 0 0 1 1 error_writes"
if timeout -s KILL 20 dd if=/tmp/random of=/mnt/nfs/1 bs=64k seek=3 count=4 conv=notrunc,fsync status=none 2>/tmp/why; then
    fail "a write that cannot be kept succeeded"
fi
grep -q "Input/output error" /tmp/why || fail "no error: $(cat /tmp/why)"
# Names and small files: an error at once, where the client once tried for ever.
for change in "mkdir /mnt/nfs/refused" "ln -s target /mnt/nfs/refused" "cp /tmp/copy/3 /mnt/nfs/refused" "chmod 600 /mnt/nfs/2"; do
    if timeout -s KILL 20 $change 2>/tmp/why; then
        fail "$change: succeeded on a disk that takes no writes"
    fi
    grep -q "Input/output error" /tmp/why || fail "$change: $(cat /tmp/why)"
done
logged "takes no changes any more"
alive
warned "node 0: its disk failed"
set_table bad "$plain"
kill -KILL "$SERVER_PID"
wait "$SERVER_PID" || true
umount -f /mnt/nfs || umount -l /mnt/nfs
umount "$POOL"
e2fsck -fp /dev/mapper/bad >/dev/null || [ $? = 1 ] || fail "the file system below is broken"
mount /dev/mapper/bad "$POOL"
start_server --nodes 1 --size 300M --cache 1M
mount_nfs /mnt/nfs >/dev/null
# The refused write may be there in part, nothing else may have changed.
rm /mnt/nfs/1 /tmp/copy/1
right_or_refused
umount /mnt/nfs
stop_server
umount "$POOL"
dmsetup remove --noudevsync bad
