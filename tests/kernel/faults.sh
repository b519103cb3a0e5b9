# Writes without a pause while the rig has hosts fail: a hard mount goes on by itself,
# no call fails but for lack of space, and what was written is there. The rig begins a
# fault at each "@@fault" line, and judges the "@@pause" lines: the longest time between
# two files, in milliseconds, since the last one. FAULTS: how many; INTERVAL: seconds from one to the
# next, and behind the last.
source /run/repo/tests/kernel/lib.sh
mount_nfs /mnt/nfs hard
mkdir /tmp/copy /mnt/nfs/work
head -c 4000000 /dev/urandom >/tmp/random

# put FROM TO SYNC: copies a file; waits for space where there is none.
put() {
    local said
    until said=$(dd if="$1" of="$2" bs=64k conv="$3" status=none 2>&1); do
        [[ $said == *"No space left on device"* ]] || fail "$said"
        full=$((full + 1))
        sleep 0.5
    done
}

# clock: milliseconds since some time.
clock() { echo $((${EPOCHREALTIME/./} / 1000)); }

step "write, through $FAULTS faults"
round=0 full=0 faults=0 SECONDS=0 longest=0
last=$(clock)
while ((SECONDS < INTERVAL * (FAULTS + 1))); do
    if ((faults < FAULTS && SECONDS >= INTERVAL * faults)); then
        ((faults == 0)) || echo "@@pause $longest"
        echo "@@fault"
        faults=$((faults + 1)) longest=0 last=$(clock)
    fi
    round=$((round + 1))
    # Lengths from a few bytes to 1 MB, some synced, some left to the client's cache.
    length=$(((round * 104729) % 1000000 / (1 + round % 3 * 20) + 1))
    slice /tmp/random "$((round * 1000 % 3000000))" "$length" >"/tmp/copy/$round"
    if ((round % 4 == 0)); then sync=fsync; else sync=notrunc; fi
    was_full=$full
    put "/tmp/copy/$round" /mnt/nfs/work/new "$sync"
    mv /mnt/nfs/work/new "/mnt/nfs/work/$round"
    now=$(clock)
    # Waiting for space is no pause.
    if ((full == was_full && now - last > longest)); then longest=$((now - last)); fi
    last=$now
    # So many are there at a time; each is read back before it goes.
    old=$((round - 150))
    if ((old > 0)); then
        cmp "/tmp/copy/$old" "/mnt/nfs/work/$old" || fail "file $old is not what was written"
        rm "/mnt/nfs/work/$old" "/tmp/copy/$old"
    fi
done
echo "@@pause $longest"
# What a file's writer was told is told once more of the file system.
sync -f /mnt/nfs || ((full > 0)) || fail "the client could not write what it had taken"
sync -f /mnt/nfs
echo "$round files were written; $full times there was no space"

step "compare"
remount /mnt/nfs
diff -r /tmp/copy /mnt/nfs/work || fail "what was written is not what is there"
echo "$(ls /mnt/nfs/work | wc -l) files agree"
rm -r /mnt/nfs/work
umount /mnt/nfs
