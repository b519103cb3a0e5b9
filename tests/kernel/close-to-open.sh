# Two mounts that share no cache are two clients: whoever opens after the other
# has closed sees what it wrote, its size and its times, each time.
# ROUNDS: how many.
source /run/repo/tests/kernel/lib.sh
mount_nfs /mnt/nfs nosharecache
mount_nfs /mnt/other nosharecache

numbers=/tmp/numbers
seq 200000 >"$numbers"
step "writer and reader take turns, $ROUNDS rounds"
for round in $(seq "$ROUNDS"); do
    if ((round % 2)); then writer=/mnt/nfs reader=/mnt/other; else writer=/mnt/other reader=/mnt/nfs; fi
    # Sizes on both sides of the small-file threshold and of a stripe unit, growing and shrinking.
    size=$(((round * 7919 % 41) * 12345 + round))
    slice "$numbers" "$((round * 1000))" "$size" >/tmp/expected
    cat /tmp/expected >"$writer/shared"
    cmp /tmp/expected "$reader/shared" || fail "round $round: content of $size bytes"
    # Without an open the client may believe its cache, so ask through a fresh open.
    same "$(exec 8<"$reader/shared" && stat -L -c %s /proc/self/fd/8)" "$size" "round $round: size"
    echo "$round" >>"$reader/journal"
    same "$(tail -n 1 "$writer/journal")" "$round" "round $round: appended line"
done
same "$(wc -l </mnt/other/journal)" "$ROUNDS" "lines in the journal"

step "names: what one makes, renames and removes, the other finds"
for round in $(seq "$ROUNDS"); do
    mkdir -p /mnt/nfs/names
    echo "$round" >"/mnt/nfs/names/new-$round"
    mv "/mnt/nfs/names/new-$round" "/mnt/nfs/names/kept"
    same "$(cat /mnt/other/names/kept)" "$round" "round $round: renamed over, read by the other"
done
umount /mnt/other
umount /mnt/nfs
