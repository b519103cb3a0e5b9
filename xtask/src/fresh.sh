# Runs the README's two commands inside a bare Debian tree.
# Arguments: the tree, the Rust toolchain, cargo's home (for registry settings only).
# Called by fresh.rs in a mount and process namespace of its own.
set -euo pipefail
tree=$1 toolchain=$2 cargo_home=$3

mount --make-rprivate /
mount --bind "$tree" "$tree"
for folder in dev sys; do mount --rbind "/$folder" "$tree/$folder"; done
mount -t proc proc "$tree/proc"
mount -t tmpfs tmpfs "$tree/dev/shm"
mkdir -p "$tree/opt/rust" "$tree/root/.cargo"
mount --bind -o ro "$toolchain" "$tree/opt/rust"
# How this machine reaches its registries: names, certificates, settings.
# (Links in the tree point into this machine from here: never write through them.)
put() { cp -rL --remove-destination "$@"; }
put /etc/resolv.conf /etc/hosts "$tree/etc/"
rm -f "$tree/etc/apt/sources.list"
put /etc/apt/. "$tree/etc/apt/"
put /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/"
for file in config.toml config; do
    if [ -f "$cargo_home/$file" ]; then put "$cargo_home/$file" "$tree/root/.cargo/"; fi
done

inside() {
    chroot "$tree" /usr/bin/env -i HOME=/root CI="${CI:-}" LC_ALL=C.UTF-8 \
        PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        bash -euo pipefail -c "cd /crossdock && $1"
}

echo "== cargo xtask up"
inside '
    coproc up { exec cargo xtask up; }
    while read -r line <&"${up[0]}"; do
        echo "$line"
        case $line in nfs\ *) break ;; esac
    done
    kill -TERM "$up_PID"
    wait "$up_PID"
'
echo "== cargo xtask test"
inside 'cargo xtask test'
