# Prepares a guest for locks over NFS version 3, then takes orders (locks.py).
# NAME: what the guest is called. The state of the status monitor lies in
# /run/exchange and survives the guest.
source /run/repo/tests/kernel/lib.sh

hostname "$NAME"
# Nobody answers name servers here.
sed 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf >/tmp/nsswitch.conf
printf '127.0.0.1 localhost\n%s server\n%s %s\n' "$SERVER" "$ADDRESS" "$NAME" >/tmp/hosts
mount --bind /tmp/nsswitch.conf /etc/nsswitch.conf
mount --bind /tmp/hosts /etc/hosts
mkdir -p /run/exchange/sm /run/exchange/sm.bak /run/rpcbind
mount --bind /run/exchange /var/lib/nfs

rpcbind
# It also tells the server that this guest has restarted, if it had locks before.
rpc.statd
mkdir -p /mnt/nfs
# No port is given: the portmapper's door names them all.
mount -t nfs -o "vers=3${MOUNT_OPTIONS:+,$MOUNT_OPTIONS}" "$SERVER:$EXPORT" /mnt/nfs
grep ' /mnt/nfs nfs ' /proc/mounts
grep -q nolock /proc/mounts && fail "mounted without locks"
exec /usr/bin/python3 -u /run/repo/tests/kernel/locks.py
