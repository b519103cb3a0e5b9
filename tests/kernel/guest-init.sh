#!/bin/sh
# First process of the guest. Runs on the small root that xtask/src/rig/guest.rs
# makes (busybox, the kernel's modules), then changes into the host's root over
# hostfs, read-only, where the host's own programs run the job.
#
# Kernel command line: crossdock.repo=, .target=, .job= (host paths),
# .address= (ours, with prefix), .gateway= (the host's), .exchange= (a host path
# that can be written, if any).
# Prints "@@exit N" as its last line.
export PATH=/bin
exchange=
mount -t proc proc /proc
for word in $(cat /proc/cmdline); do
    case $word in
    crossdock.*=*)
        pair=${word#crossdock.}
        eval "${pair%%=*}='${pair#*=}'"
        ;;
    esac
done
# The lines carry bytes, not a terminal's idea of them.
stty -F /dev/ttyS0 raw -echo
stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS0 >/dev/ttyS0 2>/dev/ttyS1

mount -t hostfs -o ro,/ host /host
mount -t proc proc /host/proc
mount -t sysfs sys /host/sys
mount -t devtmpfs dev /host/dev
mkdir -p /host/dev/shm
mount -t tmpfs tmpfs /host/dev/shm
for folder in tmp run mnt var/tmp root; do
    mount -t tmpfs tmpfs "/host/$folder"
done
# The checkout may lie under a folder that has just been covered.
mkdir -p /host/run/repo /host/run/target /host/mnt/nfs /host/mnt/other
mount -t hostfs -o "ro,$repo" repo /host/run/repo
mount -t hostfs -o "ro,$target" target /host/run/target
if [ -n "$exchange" ]; then
    mkdir -p /host/run/exchange
    mount -t hostfs -o "$exchange" exchange /host/run/exchange
fi

ip link set lo up
ip address add "$address" dev vec0
ip link set vec0 up
ip route add default via "$gateway"
chroot /host /bin/bash "/run/target/$job"
echo "@@exit $?"
sync
poweroff -f
