//! What real-client tests stand on: a private network, the server under test
//! in it, and a guest with a real Linux kernel.

mod cgroup;
pub(crate) mod cluster;
pub(crate) mod copies;
pub(crate) mod depots;
pub(crate) mod device;
pub(crate) mod etcd;
mod etcd_tls;
pub(crate) mod ganesha;
pub(crate) mod guest;
pub(crate) mod line;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod nginx;
pub(crate) mod portmap;
pub(crate) mod reads;
pub(crate) mod seccomp;
pub(crate) mod server;
pub(crate) mod slowdisk;
pub(crate) mod tree;
pub(crate) mod wan;

/// How long a rig lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Until `cargo xtask rig … down`.
    Standing,
    /// Until xtask ends.
    OfXtask,
}
