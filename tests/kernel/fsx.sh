# Random reads, writes, mapped access and truncates of one file, each verified.
# OPERATIONS: how many per seed; SEEDS: which; LENGTH: of the file at most, in bytes.
source /run/repo/tests/kernel/lib.sh
mount_nfs /mnt/nfs
cat >/tmp/fsx.toml <<CONFIG
flen = $LENGTH
[opsize]
max = 131072
[weights]
close_open = 1.0
invalidate = 1.0
CONFIG
for seed in $SEEDS; do
    step "fsx seed $seed"
    /run/target/tools/bin/fsx -q -f /tmp/fsx.toml -P /tmp -S "$seed" -N "$OPERATIONS" "/mnt/nfs/fsx-$seed"
done
remount /mnt/nfs
ls -l /mnt/nfs
rm /mnt/nfs/fsx-*
umount /mnt/nfs
