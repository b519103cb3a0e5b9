//! How connections end in which nodes send: at their own time, or with their process.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crossdock_types::Time;
use rustix::net::{Shutdown, shutdown, sockopt};

/// How long a client may take nothing of what is on its way when its connection is to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection ends when its client has everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    is_shut: bool,
    acknowledged: u64,
    /// When it has taken nothing for too long.
    until: Time,
}

impl Ending {
    pub(super) fn new(now: Time) -> Self {
        Self {
            is_shut: false,
            acknowledged: 0,
            until: now + PATIENCE,
        }
    }

    /// What the client has acknowledged so far; whether it goes on taking.
    pub(super) fn goes_on(&mut self, now: Time, acknowledged: u64) -> bool {
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged;
            self.until = now + PATIENCE;
        }
        now < self.until
    }

    /// All is in the socket: the client is to see the end of the stream behind it.
    pub(super) fn shut(&mut self, socket: BorrowedFd<'_>) {
        if !std::mem::replace(&mut self.is_shut, true) {
            // One that is over already has ended, too.
            let _ = shutdown(socket, Shutdown::Write);
        }
    }
}

/// Has the kernel reset the connection when its socket is closed, by whomever: by us, or by
/// the end of the process (SO_LINGER of zero, socket(7)). Without that a kernel would go on
/// repeating dummy bytes that nobody can exchange for others, and the client would wait.
pub(super) fn reset_when_closed(socket: BorrowedFd<'_>, is_so: bool) {
    // A socket that does not take it is broken, and ends by that.
    let _ = sockopt::set_socket_linger(socket, is_so.then_some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    /// Goal: a client is given up when it takes nothing for a minute, counted from what it took
    /// last.
    #[test]
    fn who_takes_nothing_is_given_up() {
        let second = Duration::from_secs(1);
        let mut ending = Ending::new(Time(0));
        assert!(ending.goes_on(Time(0) + (PATIENCE - second), 0));
        let took = Time(0) + (PATIENCE - second);
        assert!(ending.goes_on(took, 5));
        assert!(ending.goes_on(took + (PATIENCE - second), 5));
        assert!(!ending.goes_on(took + PATIENCE, 5));
    }

    /// Goal: a connection that may have dummy bytes ends with a reset however it is closed, and one
    /// that has none any more as any other.
    #[test]
    fn what_has_dummy_bytes_is_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        for (settings, is_reset) in [(&[true][..], true), (&[true, false], false)] {
            let mut client = TcpStream::connect(address).expect("a connection");
            let (mut server, _) = listener.accept().expect("a client");
            server.write_all(b"some").expect("room");
            for &is_so in settings {
                reset_when_closed(server.as_fd(), is_so);
            }
            drop(server);
            let ended = client.read_to_end(&mut Vec::new());
            assert_eq!(ended.is_err(), is_reset, "{ended:?}");
        }
    }
}
