//! The clock, the CPUs, and sockets as the loop wants them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crossdock_types::Time;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::NetError;

const LISTEN_BACKLOG: i32 = 1024;
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 4;
/// What the kernel takes for a peer whose window is full.
const UNSENT_BYTES_MAX: u32 = 512 << 10;
/// Room for a burst of the largest NFS datagrams.
const DATAGRAM_BUFFER_BYTES: usize = 4 << 20;

/// The time on the machine's monotonic clock.
#[must_use]
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Time(seconds * 1_000_000_000 + nanos)
}

/// The CPUs on which the calling thread may run, in ascending order.
///
/// # Errors
/// [`NetError::System`].
pub fn allowed_cpus() -> Result<Vec<usize>, NetError> {
    let set = sched_getaffinity(None)
        .map_err(io::Error::from)
        .map_err(NetError::system("learn which CPUs may be used"))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

/// Whether the calling thread lets others finish their turns at the processor when it has
/// something to do (SCHED_BATCH, sched(7)), or takes it from them as usual.
///
/// # Errors
/// [`NetError::System`].
#[expect(unsafe_code, reason = "no library of ours has this call")]
pub fn give_way(is_batch: bool) -> Result<(), NetError> {
    let policy = match is_batch {
        true => libc::SCHED_BATCH,
        false => libc::SCHED_OTHER,
    };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters, which live until it has; 0 is this thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    match result {
        0 => Ok(()),
        _ => Err(NetError::system("change how a thread is scheduled")(
            io::Error::last_os_error(),
        )),
    }
}

/// Keeps the calling thread, and the threads that it will start, on one CPU.
///
/// # Errors
/// [`NetError::System`], also if the CPU is not among the [`allowed_cpus`].
pub fn pin_thread(cpu: usize) -> Result<(), NetError> {
    allow_cpus(&[cpu])
}

/// Lets the calling thread, and the threads that it will start, run on `cpus`:
/// how a thread gets away from the CPU to which the one that started it is pinned.
///
/// # Errors
/// [`NetError::System`], also if none of them may be used.
pub fn allow_cpus(cpus: &[usize]) -> Result<(), NetError> {
    if cpus.iter().any(|&cpu| cpu >= CpuSet::MAX_CPU) {
        let source = io::ErrorKind::InvalidInput.into();
        return Err(NetError::system("pin a thread to that CPU")(source));
    }
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set)
        .map_err(io::Error::from)
        .map_err(NetError::system("pin a thread"))
}

/// A listening socket and the address that it got.
pub(crate) fn listen(
    address: SocketAddr,
    nonblocking: bool,
) -> Result<(OwnedFd, SocketAddr), NetError> {
    let bound = || -> io::Result<_> {
        let socket = open(address, Type::STREAM, Protocol::TCP)?;
        // A restart must not wait for connections of its predecessor.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        // What is accepted inherits them.
        set_options(&SockRef::from(&socket))?;
        socket.listen(LISTEN_BACKLOG)?;
        finish(socket, nonblocking)
    };
    bound().map_err(|source| NetError::Listen { address, source })
}

/// A listening socket for another thread, which blocks there, and the address
/// that it got; port 0 picks a free one.
///
/// # Errors
/// [`NetError::Listen`].
pub fn listener(address: SocketAddr) -> Result<(TcpListener, SocketAddr), NetError> {
    let (socket, address) = listen(address, false)?;
    Ok((TcpListener::from(socket), address))
}

/// A datagram socket and the address that it got.
pub(crate) fn bind_datagram(
    address: SocketAddr,
    nonblocking: bool,
) -> Result<(OwnedFd, SocketAddr), NetError> {
    let bound = || -> io::Result<_> {
        let socket = open(address, Type::DGRAM, Protocol::UDP)?;
        // The system may give less; a lost datagram is sent again.
        let _ = socket.set_recv_buffer_size(DATAGRAM_BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(DATAGRAM_BUFFER_BYTES);
        socket.bind(&address.into())?;
        finish(socket, nonblocking)
    };
    bound().map_err(|source| NetError::Listen { address, source })
}

/// Readies a socket that was not accepted but connected elsewhere.
pub(crate) fn ready_connection(socket: &OwnedFd, nonblocking: bool) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_nonblocking(nonblocking)?;
    set_options(&socket)
}

/// Bytes that a socket holds for its peer: those that it has not sent, and those that the
/// peer has not acknowledged (SIOCOUTQ, tcp(7)); 0 if it does not tell.
#[expect(unsafe_code, reason = "no library of ours has this request")]
pub(crate) fn held_by(socket: &OwnedFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one integer there, and keeps no reference to it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match result {
        0 => u64::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}

/// Who is at the other end.
pub(crate) fn peer_of(socket: &OwnedFd) -> io::Result<SocketAddr> {
    let peer = SockRef::from(socket).peer_addr()?;
    peer.as_socket()
        .ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// What all connections have.
fn set_options(socket: &SockRef<'_>) -> io::Result<()> {
    // Replies are gathered here; the kernel must not wait for more.
    socket.set_tcp_nodelay(true)?;
    // A host that vanished says nothing; its connection must not stay for ever.
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    // Replies wait here, where they are counted, not in the kernel.
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

fn open(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // One address, one door: 0.0.0.0 is asked for by itself.
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

fn finish(socket: Socket, nonblocking: bool) -> io::Result<(OwnedFd, SocketAddr)> {
    socket.set_nonblocking(nonblocking)?;
    let address = socket.local_addr()?;
    let address = address
        .as_socket()
        .ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    Ok((socket.into(), address))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the clock goes forward.
    #[test]
    fn the_clock_is_monotonic() {
        let first = now();
        assert!(first > Time(0));
        assert!(now() >= first);
    }

    /// Goal: a pinned thread may run on its CPU only, and wrong ones are refused.
    #[test]
    fn a_thread_can_be_pinned() {
        let cpus = allowed_cpus().expect("a list");
        let last = *cpus.last().expect("at least one CPU");
        std::thread::spawn(move || {
            pin_thread(last).expect("to pin");
            assert_eq!(allowed_cpus().expect("a list"), [last]);
            assert!(pin_thread(usize::MAX).is_err());
            let free = std::thread::spawn(move || {
                allow_cpus(&cpus).expect("to be free again");
                assert_eq!(allowed_cpus().expect("a list"), cpus);
            });
            free.join().expect("no panic");
        })
        .join()
        .expect("no panic");
    }
}
