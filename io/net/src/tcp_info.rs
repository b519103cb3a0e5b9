//! How a connection is doing, as the kernel sees it (`TCP_INFO`, tcp(7)).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Bytes of `struct tcp_info` (linux/tcp.h) that are looked at.
const INFO_BYTES: usize = 240;

/// A look at a TCP connection. What an older kernel does not tell is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// State of congestion control: 0 open, 1 disorder, 2 window reduced (by ECN or a
    /// local queue), 3 recovery, 4 loss (tcpi_ca_state).
    pub congestion_state: u8,
    /// Whether the delivery rate was bounded by what was given to the socket
    /// (tcpi_delivery_rate_app_limited).
    pub is_app_limited: bool,
    /// Bytes in a full segment (tcpi_snd_mss).
    pub segment_bytes: u32,
    /// Full segments that may be on their way at once (tcpi_snd_cwnd).
    pub congestion_window: u32,
    /// Smoothed round trip time (tcpi_rtt).
    pub rtt: Duration,
    /// Segments that were sent again so far (tcpi_total_retrans).
    pub resent_segments: u32,
    /// Those that came to the peer twice, as far as it says so (tcpi_dsack_dups; RFC 2883).
    pub doubled_segments: u32,
    /// Segments with data that were sent so far, those that were sent again too
    /// (tcpi_data_segs_out).
    pub sent_segments: u32,
    /// Bytes that the peer has acknowledged so far (tcpi_bytes_acked).
    pub acked_bytes: u64,
    /// Bytes that were given to the socket and never sent (tcpi_notsent_bytes).
    pub unsent_bytes: u32,
    /// Bytes per second that have arrived lately (tcpi_delivery_rate); 0 = none measured.
    pub delivery_rate: u64,
    /// For how long so far there was something to send or unacknowledged
    /// (tcpi_busy_time).
    pub busy: Duration,
    /// Packets that arrived with a mark of congestion (tcpi_delivered_ce; RFC 3168).
    pub delivered_ce: u32,
    /// The peer's window, in bytes (tcpi_snd_wnd; since Linux 6.2).
    pub window_bytes: Option<u32>,
}

impl TcpInfo {
    /// Of a socket; None if it is none of TCP.
    #[expect(unsafe_code, reason = "no library of ours has this option")]
    #[must_use]
    pub fn of(socket: BorrowedFd<'_>) -> Option<Self> {
        let mut bytes = [0u8; INFO_BYTES];
        let mut length = libc::socklen_t::try_from(bytes.len()).ok()?;
        // SAFETY: the buffer is valid for the length that is given, the kernel writes no
        // more, and tells how much.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let length = usize::try_from(length).ok()?;
        (result == 0).then(|| Self::decode(bytes.get(..length).unwrap_or_default()))
    }

    /// By the offsets of `struct tcp_info`, which only grows.
    fn decode(bytes: &[u8]) -> Self {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let word = |at: usize| {
            let field = bytes
                .get(at..at + 4)
                .and_then(|field| field.try_into().ok());
            field.map(u32::from_ne_bytes)
        };
        let long = |at: usize| {
            let field = bytes
                .get(at..at + 8)
                .and_then(|field| field.try_into().ok());
            field.map_or(0, u64::from_ne_bytes)
        };
        Self {
            congestion_state: byte(1),
            is_app_limited: byte(7) & 1 != 0,
            segment_bytes: word(16).unwrap_or(0),
            rtt: Duration::from_micros(u64::from(word(68).unwrap_or(0))),
            congestion_window: word(80).unwrap_or(0),
            resent_segments: word(100).unwrap_or(0),
            doubled_segments: word(216).unwrap_or(0),
            sent_segments: word(156).unwrap_or(0),
            acked_bytes: long(120),
            unsent_bytes: word(144).unwrap_or(0),
            delivery_rate: long(160),
            busy: Duration::from_micros(long(168)),
            delivered_ce: word(196).unwrap_or(0),
            window_bytes: word(228),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    /// Goal: what the kernel tells of a living connection is what happened on it, so the
    /// offsets are right: bytes that were acknowledged, the round trip, a window.
    #[test]
    fn a_connection_is_seen_as_it_is() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).expect("a connection");
        let (mut server, _) = listener.accept().expect("a connection");
        let sent = vec![7; 300_000];
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; 300_000];
            client.read_exact(&mut got).expect("bytes");
            client.write_all(b"x").expect("an answer");
            client
        });
        server.write_all(&sent).expect("sent");
        let mut answer = [0];
        server.read_exact(&mut answer).expect("an answer");
        let info = TcpInfo::of(server.as_fd()).expect("an answer of the kernel");
        assert!(
            info.acked_bytes >= 300_000 && info.acked_bytes < 300_010,
            "{info:?}"
        );
        assert!(
            info.segment_bytes >= 500 && info.segment_bytes <= 65_536,
            "{info:?}"
        );
        assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(1));
        assert_eq!((info.unsent_bytes, info.congestion_state), (0, 0));
        let sent = info.sent_segments - info.resent_segments;
        let least = 300_000 / info.segment_bytes;
        assert!(sent >= least && sent <= 3 * least + 100, "{info:?}");
        assert_eq!(info.doubled_segments, 0);
        assert!(info.congestion_window > 0 && info.congestion_window < 100_000);
        assert!(info.window_bytes.is_none_or(|bytes| bytes > 0), "{info:?}");
        drop(reader.join());
    }

    /// Goal: a kernel that tells less is no trouble.
    #[test]
    fn short_answers_are_taken() {
        let info = TcpInfo::decode(&[0; 104]);
        assert_eq!(info, TcpInfo::default());
    }
}
