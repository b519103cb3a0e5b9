# Copies whole trees in, mounts anew, and compares everything that was copied.
# TREES: folders of the host, as the guest sees them.
source /run/repo/tests/kernel/lib.sh

# describe FOLDER: one line per entry, with all that a copy must keep. (The
# times of symbolic links are not among it: hostfs does not tell them.)
describe() {
    (cd "$1"
        find . -type f -printf '%p %m %U:%G %n %T@\n' | sort
        find . -type l -printf '%p %m %U:%G %n %l\n' | sort
        find . -type d -printf '%p %m %U:%G\n' | sort
        find . -type f -print0 | sort -z | xargs -0 sha256sum)
}

mount_nfs /mnt/nfs
number=0
for tree in $TREES; do
    number=$((number + 1))
    files=$(find "$tree" -type f | wc -l)
    step "$tree: $files files, $(du -sm "$tree" | cut -f1) MB"
    started=$(date +%s%N)
    cp -a "$tree" "/mnt/nfs/tree-$number"
    sync -f /mnt/nfs
    echo "copied in $((($(date +%s%N) - started) / 1000000)) ms"
    describe "$tree" >"/tmp/expected-$number"
done

step "what another mount reads"
remount /mnt/nfs
for number in $(seq "$number"); do
    describe "/mnt/nfs/tree-$number" >"/tmp/actual-$number"
    cmp "/tmp/expected-$number" "/tmp/actual-$number" || {
        diff "/tmp/expected-$number" "/tmp/actual-$number" | sed -n 1,20p
        fail "tree $number differs"
    }
    echo "tree $number: $(wc -l <"/tmp/actual-$number") lines agree"
done

step "copy inside the mount, then remove everything"
cp -a /mnt/nfs/tree-1 /mnt/nfs/again
describe /mnt/nfs/again | cmp - /tmp/expected-1 || fail "the copy of the copy differs"
rm -rf /mnt/nfs/again /mnt/nfs/tree-*
remount /mnt/nfs
same "$(ls -A /mnt/nfs)" "" "what is left"
umount /mnt/nfs
