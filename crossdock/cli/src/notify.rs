//! Tells the service manager how far the process is (`Type=notify` of systemd).

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::warn;

/// The doors answer.
pub(crate) const READY: &str = "READY=1";

/// A stop was asked for, and what is in progress is being finished.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// A start that waits is not to be taken for one that hangs: half a minute more, from now.
pub(crate) const WAITING_FOR_ETCD: &str =
    "STATUS=waiting for etcd, which does not answer\nEXTEND_TIMEOUT_USEC=30000000";

/// It goes on after that.
pub(crate) const STARTING: &str = "STATUS=starting";

/// Says it, if somebody wants to know. Nobody who does is waited for.
pub(crate) fn tell(state: &str) {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(hidden) => SocketAddr::from_abstract_name(hidden),
        None => SocketAddr::from_pathname(&name),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        warn!(%error, state, "the service manager was not told");
    }
}
