# Reads files that nodes of an ensemble send themselves (docs/spiral.md), once and again with
# nothing cached: each byte, by its sums.
# FILES: their names; SUMS: what sha256sum says of them, a line each.
source /run/repo/tests/kernel/lib.sh
mount_nfs /mnt/nfs
echo "$SUMS" >/tmp/expected

for round in 1 2; do
    step "round $round"
    for file in $FILES; do
        dd if="/mnt/nfs/$file" of=/dev/null bs=1M status=none &
    done
    wait
    # What was read just now is in the guest's memory: that is what is compared.
    (cd /mnt/nfs && sha256sum $FILES) >/tmp/sums
    diff /tmp/expected /tmp/sums || fail "round $round: sums"
    remount /mnt/nfs
done
umount /mnt/nfs
