# A LUN as a disk of the Linux kernel, with ext4 on it, while the same guest has the
# pool's files over NFS: both are written while the server is killed and started
# again, a disk below it is taken out, and its disks are defragmented.
# ROUNDS: files of each; KILLS: how many; OPERATIONS: of fsx.
# The rig kills at each "@@kill" line.
source /run/repo/tests/kernel/initiator.sh
mount_nfs /mnt/nfs hard
head -c 4000000 /dev/urandom >/tmp/random
mkdir /tmp/copy /tmp/other /mnt/nfs/work

step "a file system"
log_in "$SERVER" 120
mkfs.ext4 -q -F "$DISK"
mkdir -p /mnt/other
mount "$DISK" /mnt/other
grep " /mnt/other ext4 " /proc/mounts
mkdir /mnt/other/work

step "fsx on it"
run_fsx /mnt/other/fsx 5 "$OPERATIONS" 1048576
rm /mnt/other/fsx

# compare WHAT: with nothing cached by the guest.
compare() {
    umount /mnt/other
    check_file_system "$DISK"
    mount "$DISK" /mnt/other
    remount /mnt/nfs >/dev/null
    diff -r /tmp/copy /mnt/other/work || fail "$1: the LUN has other bytes"
    diff -r /tmp/other /mnt/nfs/work || fail "$1: files have other bytes"
    echo "$(ls /mnt/other/work | wc -l) files of the LUN and $(ls /mnt/nfs/work | wc -l) over NFS agree"
}

step "both are written; $KILLS kills on the way"
(KILLS=0 write_rounds /mnt/nfs/work /tmp/other 1 "$ROUNDS") &
write_rounds /mnt/other/work /tmp/copy 1 "$ROUNDS"
wait %2 || fail "the files over NFS were not written"
compare "after kills"

step "a disk hangs while both are written"
order hang
(KILLS=0 write_rounds /mnt/nfs/work /tmp/other "$((ROUNDS + 1))" "$((ROUNDS + 10))") &
(KILLS=0 write_rounds /mnt/other/work /tmp/copy "$((ROUNDS + 1))" "$((ROUNDS + 10))") &
sleep 2
order answer
wait %2 %3 || fail "what waited for the disk was not written"
ROUNDS=$((ROUNDS + 10))
compare "after a disk hung"

step "a disk is taken out while both are read and written"
order pull
(KILLS=0 write_rounds /mnt/nfs/work /tmp/other "$((ROUNDS + 1))" "$((ROUNDS + 40))") &
KILLS=0 write_rounds /mnt/other/work /tmp/copy "$((ROUNDS + 1))" "$((ROUNDS + 40))"
wait %2 || fail "the files over NFS were not written"
compare "without a disk"
order pulled

step "the defragmenter moves what lies below both"
order defrag
compare "defragmented"

umount /mnt/other
check_file_system "$DISK"
log_out "$SERVER"
rm -r /mnt/nfs/work
umount /mnt/nfs
