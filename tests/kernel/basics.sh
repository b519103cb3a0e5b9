# Every kind of object and name operation that a Linux client knows, once.
source /run/repo/tests/kernel/lib.sh
mount_nfs /mnt/nfs
cd /mnt/nfs

step "files: create, append, truncate, sparse"
echo one >file
echo two >>file
same "$(cat file)" $'one\ntwo' "appended file"
truncate -s 2 file
same "$(cat file)" on "truncated file"
truncate -s 3000000 sparse
printf end | dd of=sparse bs=1 seek=3000000 conv=notrunc status=none
same "$(stat -c %s sparse)" 3000003 "sparse size"
same "$(head -c 3000000 sparse | tr -d '\0' | wc -c)" 0 "bytes in the hole"
same "$(tail -c 3 sparse)" end "bytes behind the hole"

step "attributes: mode, owner, times"
chmod 4751 file
chown 1234:2345 file
same "$(stat -c %a:%u:%g file)" 751:1234:2345 "owner change clears set-user-id"
touch -d '2001-02-03 04:05:06.789 UTC' file
same "$(TZ=UTC stat -c %y file)" '2001-02-03 04:05:06.789000000 +0000' "set time"

step "links, special files"
ln file hard
same "$(stat -c %h file)" 2 "link count"
same "$(stat -c %i file)" "$(stat -c %i hard)" "inode of a hard link"
ln -s ../somewhere/else symlink
same "$(readlink symlink)" ../somewhere/else "symlink"
mkfifo fifo
mknod device c 1 3
same "$(stat -c %F:%t:%T device)" 'character special file:1:3' "device"
same "$(stat -c %F fifo)" fifo "fifo"
rm file
same "$(stat -c %h hard)" 1 "link count after remove"

step "names: long, strange, too long, forbidden"
long=$(printf 'n%.0s' $(seq 255))
touch "$long" $'new\nline' $'\xff\xfe' 'a space'
[ -e "$long" ] && [ -e $'new\nline' ] && [ -e $'\xff\xfe' ] || fail "a strange name was lost"
touch "${long}n" 2>/dev/null && fail "a name of 256 bytes was taken"
mkdir empty
mkdir -p full/inner
rmdir full 2>/dev/null && fail "a full directory was removed"
mkdir empty 2>/dev/null && fail "a directory was made twice"

step "rename: over a file, over an empty directory, not over a full one"
echo new >new
mv -f new hard
same "$(cat hard)" new "renamed over"
mv -T empty full 2>/dev/null && fail "renamed over a full directory"
mkdir other
mv -T empty other
[ -d other ] && [ ! -e empty ] || fail "rename over an empty directory"
mv full/inner other/inner
same "$(stat -c %h other)" 3 "link count of a directory that got a child"
same "$(ls -a other/inner/.. | tr '\n' ' ')" ". .. inner " "listing through .."

step "an open file survives its removal"
exec 7<>hard
rm hard
same "$(cat <&7)" new "content of a removed, open file"
exec 7>&-

step "a directory of 2,000 names lists each once, also while half are removed"
mkdir many
(cd many && seq -f 'entry-%05.0f' 2000 | xargs touch)
same "$(ls many | sort -u | wc -l)" 2000 "names listed"
find many -name '*[02468]' -delete
same "$(ls many | wc -l)" 1000 "names left"

step "permissions hold for others"
install -d -m 700 -o 1000 -g 1000 private
echo secret >private/file
setpriv --reuid 1001 --regid 1001 --clear-groups cat private/file 2>/dev/null &&
    fail "another user read a private file"
setpriv --reuid 1000 --regid 1000 --clear-groups cat private/file
chmod 770 private
chgrp 3000 private
setpriv --reuid 1001 --regid 1001 --groups 3000 ls private >/dev/null ||
    fail "a supplementary group was not looked at"

# quota_is BLOCKS: waits until statfs of the tree shows that many blocks.
quota_is() {
    for _ in $(seq 300); do
        [ "$(stat -f -c '%b*%S' /mnt/nfs/quota)" = "$1" ] && return
        sleep 0.1
    done
    fail "statfs never showed $1, but $(stat -f -c '%b*%S' /mnt/nfs/quota)"
}

# exceeds COMMAND…: it fails because of the quota.
exceeds() {
    "$@" 2>/tmp/said && fail "$*: beyond the quota"
    grep -q "Disk quota exceeded" /tmp/said || fail "$*: $(cat /tmp/said)"
}

if [ "$QUOTAS" = yes ]; then
    step "a quota: df shows it, nothing grows beyond it, removing makes room"
    mkdir /mnt/nfs/quota
    block=$(stat -f -c %S /mnt/nfs)
    echo "@@quota set /quota --bytes 8M --files 10"
    quota_is "$((8 * 1048576 / block))*$block"
    EXPORT=/quota mount_nfs /mnt/quota
    same "$(df -P --block-size=1 /mnt/quota | awk 'NR == 2 {print $2}')" 8388608 "size in df"
    same "$(df -Pi /mnt/quota | awk 'NR == 2 {print $2}')" 10 "files in df"
    exceeds dd if=/dev/zero of=/mnt/quota/large bs=1M count=9 conv=fsync
    # The client goes by what it wanted to write until it asks again.
    EXPORT=/quota remount /mnt/quota
    echo 3 >/proc/sys/vm/drop_caches
    size=$(stat -c %s /mnt/quota/large)
    [ "$size" -le 8388608 ] || fail "larger than the quota: $size bytes"
    rm /mnt/quota/large
    dd if=/dev/zero of=/mnt/quota/large bs=1M count=7 conv=fsync status=none
    # The client rounds what is free up to its blocks.
    shown=$(df -P --block-size=1 /mnt/quota | awk 'NR == 2 {print $3}')
    used=$(du -s --block-size=1 /mnt/quota | cut -f 1)
    [ "$shown" -le "$used" ] && [ "$((shown + block))" -gt "$used" ] ||
        fail "df shows $shown bytes used, du $used"
    exceeds truncate -s 9M /mnt/quota/large
    (cd /mnt/quota && touch 3 4 5 6 7 8 9 10)
    exceeds touch /mnt/quota/11
    exceeds mkdir /mnt/quota/11
    exceeds ln -s there /mnt/quota/11
    exceeds mkfifo /mnt/quota/11
    echo outside >/mnt/nfs/outside
    mv /mnt/nfs/outside /mnt/quota/10 # Not by RENAME: it copies.
    same "$(cat /mnt/quota/10)" outside "moved into the tree"
    echo "@@quota remove /quota"
    quota_is "$(stat -f -c '%b*%S' /mnt/nfs)"
    touch /mnt/quota/11
    umount /mnt/quota
fi

step "file system figures"
df -P /mnt/nfs | tail -1
df -Pi /mnt/nfs | tail -1
cd /
find /mnt/nfs -mindepth 1 -delete
remount /mnt/nfs
same "$(ls -A /mnt/nfs)" "" "what is left"
umount /mnt/nfs
