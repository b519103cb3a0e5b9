//! What ring and epoll have in common, as the driver sees it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::Bytes;
use crossdock_disk::{Disk, DiskFile};
use crossdock_types::Time;

use crate::table::Table;
use crate::{DiskId, ListenerId, NetError, SendError, SocketId, WatchId};

/// How long a listener rests when the system has no descriptor or memory left
/// for a connection.
pub(crate) const STALL: Duration = Duration::from_millis(100);

/// One of the kernel's ways to wait for everything at once.
pub(crate) trait Kernel {
    /// Whether sockets must be in non-blocking mode.
    fn nonblocking(&self) -> bool;

    /// Carries out what was commanded, waits until something happens or
    /// `patience` is over, and puts what happened into the table's events.
    fn wait(&mut self, table: &mut Table, patience: Option<Duration>) -> Result<(), NetError>;

    fn add_listener(&mut self, socket: OwnedFd) -> Result<ListenerId, NetError>;
    fn remove_listener(&mut self, id: ListenerId);
    fn add_socket(&mut self, socket: OwnedFd) -> Result<SocketId, NetError>;
    fn remove_socket(&mut self, id: SocketId);

    fn add_watch(&mut self, descriptor: OwnedFd) -> Result<WatchId, NetError>;

    fn send_datagram(
        &mut self,
        id: SocketId,
        target: SocketAddr,
        pieces: Vec<Bytes>,
        datagrams_max: usize,
    ) -> Result<(), SendError>;

    fn add_disk(&mut self, file: DiskFile) -> Result<DiskId, NetError>;

    /// Lets go of a disk that nothing is asked of.
    fn remove_disk(&mut self, id: DiskId);

    /// A disk that was added here, and not removed.
    fn disk(&mut self, id: DiskId) -> &mut dyn Disk;

    /// System calls made to wait or to submit.
    fn enters(&self) -> u64;
}

/// Whether accepting must rest for a while: trying again at once would spin.
pub(crate) const fn is_exhausted(errno: i32) -> bool {
    matches!(
        errno,
        libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM
    )
}

/// The end of a rest, if it is not over.
pub(crate) fn rest_left(until: Option<Time>, now: Time) -> Option<Duration> {
    until.filter(|&until| until > now).map(|until| until - now)
}

/// The shorter of two waits, of which one or both may be endless.
pub(crate) fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
