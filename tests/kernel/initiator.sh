# Sourced by the guest scripts with the kernel's own iSCSI initiator and Debian's
# open-iscsi, which the rig has unpacked. The rig sets: TARGET, ISCSI_PORT, and DONE (how the
# names of files begin that it makes when it has done what "@@do" says).
source /run/repo/tests/kernel/lib.sh

INITIATOR=/run/target/guest/initiator
LIBRARIES=$(echo "$INITIATOR"/usr/lib/*-linux-gnu)
for module in sd_mod iscsi_tcp dm-multipath dm-round-robin; do
    modprobe -d /run/target/guest/root "$module"
done

# The initiator keeps its records in /etc/iscsi, and the host's /etc is read-only.
mkdir /tmp/etc
for file in passwd group nsswitch.conf hosts services protocols netconfig mke2fs.conf mtab ld.so.cache; do
    if [ -e "/etc/$file" ]; then cp -a "/etc/$file" /tmp/etc/; fi
done
mkdir -p /tmp/etc/iscsi /run/lock/iscsi
echo "InitiatorName=iqn.2026-11.io.crossdock.test:guest" >/tmp/etc/iscsi/initiatorname.iscsi
echo "node.startup = manual" >/tmp/etc/iscsi/iscsid.conf
mount --bind /tmp/etc /etc

initiator() { LD_LIBRARY_PATH=$LIBRARIES "$INITIATOR/sbin/$@"; }

initiator iscsid -f >/tmp/iscsid.log 2>&1 &

# order WHAT: and waits until the rig has done it.
ORDERS=0
order() {
    ORDERS=$((ORDERS + 1))
    echo "@@do $1"
    for _ in $(seq 600); do
        if [ -e "$DONE$ORDERS" ]; then return; fi
        sleep 0.1
    done
    fail "the rig has not done: $1"
}

# discover ADDRESS: what that portal tells of the target's portals, as "ADDRESS:PORT,TAG" lines in
# /tmp/told; all of them are known then.
discover() {
    initiator iscsiadm -m discovery -t sendtargets -p "$1:$ISCSI_PORT" |
        sed -n "s/ $TARGET\$//p" | sort >/tmp/told
    cat /tmp/told
}

# log_in ADDRESS SECONDS: a session by that portal, of port 1 if nobody has told of it; a command waits for so long for a target
# that has gone. DISK is its block device then.
log_in() {
    local portal=$1:$ISCSI_PORT
    ls /sys/block >/tmp/disks
    if ! grep -qsF "$portal," /tmp/told; then
        initiator iscsiadm -m node -o new -T "$TARGET" -p "$portal,1" >/dev/null
    fi
    local setting
    for setting in "session.timeo.replacement_timeout=$2" conn[0].timeo.noop_out_interval=2 conn[0].timeo.noop_out_timeout=2; do
        initiator iscsiadm -m node -T "$TARGET" -p "$portal" -o update -n "node.${setting%%=*}" -v "${setting#*=}"
    done
    initiator iscsiadm -m node -T "$TARGET" -p "$portal" --login
    for _ in $(seq 100); do
        DISK=$(ls /sys/block | grep -vxFf /tmp/disks | grep '^sd' || true)
        if [ -n "$DISK" ] && [ -b "/dev/$DISK" ] && [ "$(cat "/sys/block/$DISK/size")" -gt 0 ]; then
            DISK=/dev/$DISK
            echo "$portal is $DISK: $(cat "/sys/block/${DISK#/dev/}/device/vendor") $(cat "/sys/block/${DISK#/dev/}/device/model")"
            return
        fi
        sleep 0.1
    done
    tail -20 /tmp/iscsid.log >&2
    fail "no disk from $portal"
}

# log_out ADDRESS
log_out() { initiator iscsiadm -m node -T "$TARGET" -p "$1:$ISCSI_PORT" --logout; }

# write_rounds FOLDER COPY FROM TO: files of some bytes to 1 MB, most of them synced when the
# next one begins, with the same below COPY; "@@kill" goes out as often as KILLS says.
write_rounds() {
    local round length sync every=$((($4 - $3 + 1) / (KILLS + 1)))
    for round in $(seq "$3" "$4"); do
        if (((round - $3 + 1) % every == 0 && (round - $3 + 1) / every <= KILLS)); then echo "@@kill"; fi
        length=$(((round * 104729) % 1000000 / (1 + round % 3 * 20) + 1))
        slice /tmp/random "$((round * 1000 % 3000000))" "$length" >"$2/$round"
        if ((round % 4 == 0)); then sync=notrunc; else sync=fsync; fi
        dd if="$2/$round" of="$1/new" bs=64k conv="$sync" status=none
        mv "$1/new" "$1/$round"
        if ((round % 5 == 0)); then rm "$1/$((round - 1))" "$2/$((round - 1))"; fi
    done
    sync -f "$1"
}

# check_file_system DEVICE: what is unmounted there is without fault.
check_file_system() {
    e2fsck -fn "$1" >/tmp/fsck.log 2>&1 || fail "e2fsck of $1: $(cat /tmp/fsck.log)"
    tail -1 /tmp/fsck.log
}
