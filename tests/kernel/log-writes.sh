# A known workload on a device whose writes and flushes are recorded, in order,
# with a mark after each step that was acknowledged. What the device held at each
# flush is judged afterwards, outside (tests/crash/src/bin). The steps are
# described there, too; both sides must agree. STEPS: how many; RANDOM_FILE: where
# the content of all files comes from.
source /run/repo/tests/kernel/disks.sh

mark() { dmsetup message recorded 0 mark "$1"; }

# piece NUMBER LENGTH: bytes of the random file, a different place for each number.
piece() { slice "$RANDOM_FILE" "$(($1 * 1009))" "$2"; }

make_mapped recorded "0 $(sectors /dev/ubda) log-writes /dev/ubda /dev/ubdb"
make_file_system /dev/mapper/recorded "$POOL"
start_server --nodes 1 --size 100M
mount_nfs /mnt/nfs
cd /mnt/nfs
sync
mark 0
for ((step = 1; step <= STEPS; step++)); do
    length=$((step * 7919 % 200000 + 6000))
    piece "$step" "$length" | dd of="f$step" bs=64k iflag=fullblock conv=fsync status=none
    if ((step % 3 == 0)); then
        piece "$((step + 500))" 5000 | dd of="f$((step - 1))" bs=64k iflag=fullblock conv=notrunc,fsync status=none
    fi
    # Step 25 removes f25 for good: step 26 does not write it again.
    if ((step % 4 == 0)) && [[ -e f$((step - 3)) ]]; then mv "f$((step - 3))" "g$((step - 3))"; fi
    if ((step % 5 == 0)); then rm "f$step"; fi
    mark "$step"
done
cd /
umount /mnt/nfs
stop_server
umount "$POOL"
dmsetup remove --noudevsync recorded
echo "$STEPS steps recorded"
