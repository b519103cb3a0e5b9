# Writes without a pause while the rig kills the server with SIGKILL and starts
# it again: a hard mount goes on by itself, no call fails, and what was written
# is there. The rig kills at each "@@kill" line. ROUNDS: files; KILLS: how many.
source /run/repo/tests/kernel/lib.sh
mount_nfs /mnt/nfs hard
mkdir /tmp/copy /mnt/nfs/work
head -c 4000000 /dev/urandom >/tmp/random

step "write $ROUNDS files, $KILLS kills on the way"
for round in $(seq "$ROUNDS"); do
    if ((round % (ROUNDS / (KILLS + 1)) == 0)); then echo "@@kill"; fi
    # Lengths from a few bytes to 1 MB, some synced, some left to the client's cache.
    length=$(((round * 104729) % 1000000 / (1 + round % 3 * 20) + 1))
    slice /tmp/random "$((round * 1000 % 3000000))" "$length" >"/tmp/copy/$round"
    if ((round % 4 == 0)); then sync=fsync; else sync=notrunc; fi
    dd if="/tmp/copy/$round" of="/mnt/nfs/work/new" bs=64k conv="$sync" status=none
    mv "/mnt/nfs/work/new" "/mnt/nfs/work/$round"
    if ((round % 5 == 0)); then
        rm "/mnt/nfs/work/$((round - 1))" "/tmp/copy/$((round - 1))"
    fi
done
sync -f /mnt/nfs

step "compare"
remount /mnt/nfs
diff -r /tmp/copy /mnt/nfs/work || fail "what was written is not what is there"
echo "$(ls /mnt/nfs/work | wc -l) files agree"
rm -r /mnt/nfs/work
umount /mnt/nfs
