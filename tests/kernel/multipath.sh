# A LUN by two gateways, as two disks that the kernel's device mapper makes one of:
# one gateway is killed while a file system on it is written, and everything goes
# on by the other one.
# FIRST: that gateway's address, SERVER: the other one's; ROUNDS: files; KILLS: 1.
# The rig kills the first gateway at the "@@kill" line.
source /run/repo/tests/kernel/initiator.sh
mount_nfs /mnt/nfs hard
head -c 4000000 /dev/urandom >/tmp/random
mkdir -p /tmp/copy /mnt/other

step "either gateway tells of both, which are ports of their own"
discover "$FIRST"
cp /tmp/told /tmp/told-first
discover "$SERVER"
same "$(cat /tmp/told)" "$(cat /tmp/told-first)" "what the other gateway tells"
same "$(cut -d, -f1 /tmp/told | sort)" "$(printf '%s\n' "$FIRST:$ISCSI_PORT" "$SERVER:$ISCSI_PORT" | sort)" "the portals"
same "$(cut -d, -f2 /tmp/told | sort -u | wc -l)" 2 "how many ports there are"

step "two paths to one disk"
log_in "$FIRST" 3
first=$DISK
log_in "$SERVER" 3
second=$DISK
same "$(cat "/sys/block/${second#/dev/}/device/wwid")" "$(cat "/sys/block/${first#/dev/}/device/wwid")" "the name of the unit"
# Each path in a group of its own: the second one is used when the first one has failed.
number() { cat "/sys/block/${1#/dev/}/dev"; }
size=$(blockdev --getsz "$first")
dmsetup create both --noudevsync --table "0 $size multipath 1 queue_if_no_path 0 2 1 round-robin 0 1 1 $(number "$first") 1 round-robin 0 1 1 $(number "$second") 1"
dmsetup mknodes both
mkfs.ext4 -q -F /dev/mapper/both
mount /dev/mapper/both /mnt/other
mkdir /mnt/other/work

step "the gateway of the first path is killed under a writer"
write_rounds /mnt/other/work /tmp/copy 1 "$ROUNDS"
dmsetup status both
dmsetup status both | grep -q " F " || fail "no path has failed"
umount /mnt/other
check_file_system /dev/mapper/both
mount /dev/mapper/both /mnt/other
diff -r /tmp/copy /mnt/other/work || fail "other bytes than were written"

step "it comes back, and the second path is taken away"
order start
for _ in $(seq 300); do
    if [ "$(cat "/sys/block/${first#/dev/}/device/state")" = running ]; then break; fi
    sleep 0.1
done
same "$(cat "/sys/block/${first#/dev/}/device/state")" running "the first path"
dmsetup message both 0 reinstate_path "$(number "$first")"
dmsetup message both 0 fail_path "$(number "$second")"
KILLS=0 write_rounds /mnt/other/work /tmp/copy "$((ROUNDS + 1))" "$((ROUNDS + 20))"
umount /mnt/other
check_file_system /dev/mapper/both
mount -o ro /dev/mapper/both /mnt/other
diff -r /tmp/copy /mnt/other/work || fail "other bytes than were written by the first path"
echo "$(ls /mnt/other/work | wc -l) files agree"
umount /mnt/other
dmsetup remove --noudevsync both
log_out "$FIRST"
log_out "$SERVER"
umount /mnt/nfs
