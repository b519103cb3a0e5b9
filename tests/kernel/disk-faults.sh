# Disks that fail below a running server, with the device mapper of a real
# kernel: bytes that come back changed, reads and writes that fail, writes that
# never land. There are two copies, so clients notice nothing.
source /run/repo/tests/kernel/disks.sh

restart() { # ARGUMENTS
    umount /mnt/nfs
    stop_server
    start_server "$@"
    mount_nfs /mnt/nfs >/dev/null
}

step "two nodes, two copies; the second node's device can fail"
make_file_system /dev/ubda "$POOL"
size=$(sectors /dev/ubdb)
plain="0 $size linear /dev/ubdb 0"
make_mapped bad "$plain"
make_file_system /dev/mapper/bad "$POOL/node-1"
options=(--nodes 2 --replicas 2 --size 400M --cache 8M)
start_server "${options[@]}"
mount_nfs /mnt/nfs
mkdir /tmp/copy
head -c 3000000 /dev/urandom >/tmp/random
write_files /mnt/nfs 1 24
restart "${options[@]}"
data=$POOL/node-1/data

step "silent corruption: bits of the second node's blocks flip below the server"
flip_bits "$data" /dev/mapper/bad 40
compare "flipped bits"
[ "$(figure 1 media_errors)" -gt 0 ] || fail "no bad block was met"
[ "$(figure 1 repaired_blocks)" -gt 0 ] || fail "no block was repaired behind a read"
logged "a bad block was repaired"
"$PROGRAM" scrub 2>/dev/null || fail "bad blocks are left"
[ "$(figure 1 bad_blocks)" = 0 ] || fail "repaired blocks are called bad"
"$PROGRAM" status | grep -q "health: ok" || fail "not well again: $("$PROGRAM" status)"

step "bits that nobody reads are found and healed by a scrub, and the next is clean"
flip_bits "$data" /dev/mapper/bad 37
"$PROGRAM" scrub --json 2>/dev/null >/tmp/scrub || fail "not all was repaired: $(cat /tmp/scrub)"
tr -d ' \n' </tmp/scrub | grep -q '"repaired":\["' || fail "nothing was repaired: $(cat /tmp/scrub)"
"$PROGRAM" scrub 2>/dev/null | grep " 0 repaired from another node, 0 bad" || fail "the second scrub is not clean"
restart "${options[@]}"
compare "after the scrub"

step "unreadable sectors: reads fail until they are written anew"
restart "${options[@]}"
set_table bad "0 $size dust /dev/ubdb 0 512"
data_ranges "$data" | while read -r first length; do
    for ((sector = first; sector < first + length; sector += length / 200 * 8)); do
        dmsetup message bad 0 addbadblock "$sector" >/dev/null
    done
    break # The rest is not written yet.
done
dmsetup message bad 0 enable
before=$(figure 1 repaired_blocks)
compare "unreadable sectors"
"$PROGRAM" scrub 2>/dev/null >/tmp/scrub || fail "unreadable sectors are left: $(tail -3 /tmp/scrub)"
[ "$(figure 1 repaired_blocks)" -gt "$before" ] || fail "nothing was repaired"
set_table bad "$plain"

step "writes that never land are found by their checksums"
set_table bad "$(only_below "$data" /dev/ubdb flakey "0 1 1 drop_writes")"
write_files /mnt/nfs 25 36
set_table bad "$plain"
compare "dropped writes"
"$PROGRAM" scrub 2>/dev/null >/dev/null || fail "dropped writes are not repaired"
restart "${options[@]}"
compare "after dropped writes"

step "a device that takes no writes: the other node goes on, and it says so"
set_table bad "0 $size flakey /dev/ubdb 0 0 1 1 error_writes"
write_files /mnt/nfs 37 48
rm /mnt/nfs/3 /tmp/copy/3
compare "no writes"
warned "node 1: its disk failed"
logged "a disk takes no writes any more"
umount /mnt/nfs
kill -KILL "$SERVER_PID"
wait "$SERVER_PID" || true
umount "$POOL/node-1"
set_table bad "$plain"
e2fsck -fp /dev/mapper/bad >/dev/null || [ $? = 1 ] || fail "the file system below is broken"
mount /dev/mapper/bad "$POOL/node-1"

step "the node comes back, is made equal, and serves alone"
start_server "${options[@]}"
mount_nfs /mnt/nfs >/dev/null
compare "made equal"
"$PROGRAM" node stop 0
compare "the second node alone"
umount /mnt/nfs
stop_server
umount "$POOL/node-1"
dmsetup remove --noudevsync bad
