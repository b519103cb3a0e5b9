# Random reads, writes, mapped access and truncates of one file, each verified.
# OPERATIONS: how many per seed; SEEDS: which; LENGTH: of the file at most, in bytes.
source /run/repo/tests/kernel/lib.sh
mount_nfs /mnt/nfs
for seed in $SEEDS; do
    step "fsx seed $seed"
    run_fsx "/mnt/nfs/fsx-$seed" "$seed" "$OPERATIONS" "$LENGTH"
done
remount /mnt/nfs
ls -l /mnt/nfs
rm /mnt/nfs/fsx-*
umount /mnt/nfs
