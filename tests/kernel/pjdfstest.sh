# POSIX's name and attribute calls, one by one. pjdfstest says what each of its
# tests did; xtask judges it by pjdfstest.table, so a failed test is no failure here.
source /run/repo/tests/kernel/lib.sh
mount_nfs /mnt/nfs

# It acts as two more users, whom the host's files need not know.
for file in passwd group; do
    cp "/etc/$file" "/tmp/$file"
done
printf 'pjdfstest-%s:x:%s:%s::/:/bin/false\n' a 31001 31001 b 31002 31002 >>/tmp/passwd
printf 'pjdfstest-%s:x:%s:\n' a 31001 b 31002 >>/tmp/group
for file in passwd group; do
    mount --bind "/tmp/$file" "/etc/$file"
done

# Everything that Linux has is switched on; what is skipped then is in the table.
mkdir /tmp/elsewhere
configure() {
    cat >/tmp/pjdfstest.toml <<CONFIG
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
secondary_fs = "/tmp/elsewhere"
[settings]
naptime = 0.01
allow_remount = $1
[dummy_auth]
entries = [["pjdfstest-a", "pjdfstest-a"], ["pjdfstest-b", "pjdfstest-b"]]
CONFIG
}
pjdfstest() {
    NO_COLOR=1 /run/target/tools/bin/pjdfstest -c /tmp/pjdfstest.toml -p /mnt/nfs "$@" >/tmp/said 2>&1 || true
}

step "what needs a read-only mount"
# A run of its own: some of the others leave files open, and a mount on which
# something is open for writing cannot be made read-only.
configure true
pjdfstest erofs
cat /tmp/said

step "everything else"
configure false
pjdfstest
grep -Ev '::erofs_.* skipped$|^\sRemounts ' /tmp/said

for file in passwd group; do
    umount "/etc/$file"
done
remount /mnt/nfs
# It cannot remove folders while it holds open what it has removed from them.
same "$(find /mnt/nfs -mindepth 1 ! -type d)" "" "what is left"
find /mnt/nfs -mindepth 1 -delete
umount /mnt/nfs
