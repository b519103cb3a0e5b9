//! One TCP connection: bytes that come in, the request that is served, bytes that
//! go out.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use crossdock_delivery::{Pace, StreamId};
use crossdock_http1::Inbox;
use crossdock_peer::Flow;
use crossdock_types::{Payload, Time, fill_patience};

use crate::exchange::Exchange;
use crate::message::HttpLimits;

/// State of a connection. One that is idle is small: there may be ten thousand.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    /// Arrived, and not served yet.
    pub(crate) inbox: Inbox,
    /// Content that comes in one piece: how much, and since when.
    pub(crate) filling: Option<(usize, Time)>,
    /// The request that is served; the next one waits in the inbox.
    pub(crate) exchange: Option<Box<Exchange>>,
    /// For the next send.
    pub(crate) outbox: Payload,
    /// Whether it is one over TLS.
    pub(crate) is_secure: bool,
    /// If nodes may send in it.
    pub(crate) flow: Option<Box<Flow>>,
    /// Bytes of responses that the kernel has not taken yet.
    pub(crate) unsent_bytes: usize,
    /// What is known of how fast it takes bytes, between its streams.
    pub(crate) pace: Option<Box<Pace>>,
    /// Whose they are, in order.
    runs: VecDeque<Run>,
    /// Its client sends no more.
    pub(crate) is_peer_done: bool,
    /// Nothing more is served: it ends behind what is to be sent.
    pub(crate) is_closing: bool,
    /// Requests that it has made.
    pub(crate) requests: u64,
    /// When something last came, or went, or a request ended.
    pub(crate) active: Time,
}

impl Connection {
    pub(crate) const fn new(now: Time, peer: SocketAddr) -> Self {
        Self {
            peer,
            inbox: Inbox::new(),
            filling: None,
            exchange: None,
            outbox: Payload::new(),
            is_secure: false,
            flow: None,
            unsent_bytes: 0,
            pace: None,
            runs: VecDeque::new(),
            is_peer_done: false,
            is_closing: false,
            requests: 0,
            active: now,
        }
    }

    /// Puts it behind what is to be sent.
    pub(crate) fn push(&mut self, payload: Payload) {
        self.unsent_bytes += payload.len();
        self.note(Run::Plain(payload.len()));
        self.outbox.append(payload);
    }

    /// The same with bytes of a stream among them.
    pub(crate) fn push_of(&mut self, stream: StreamId, payload: Payload, of_stream: usize) {
        let bytes = payload.len();
        self.unsent_bytes += bytes;
        self.outbox.append(payload);
        self.note(Run::Plain(bytes - of_stream));
        self.note(Run::Of(stream, of_stream));
    }

    /// All bytes of the stream are on their way.
    pub(crate) fn push_end(&mut self, stream: StreamId) {
        self.runs.push_back(Run::End(stream));
    }

    fn note(&mut self, run: Run) {
        match (self.runs.back_mut(), run) {
            (_, Run::Plain(0) | Run::Of(_, 0)) => {}
            (Some(Run::Plain(bytes)), Run::Plain(more)) => *bytes += more,
            (Some(Run::Of(stream, bytes)), Run::Of(same, more)) if *stream == same => {
                *bytes += more;
            }
            (_, run) => self.runs.push_back(run),
        }
    }

    /// The kernel has taken bytes. Returns what of them was of streams, and which streams
    /// have ended.
    pub(crate) fn sent(&mut self, bytes: usize) -> Vec<Gone> {
        let mut left = bytes.min(self.unsent_bytes);
        self.unsent_bytes -= left;
        let mut gone = Vec::new();
        while let Some(run) = self.runs.front_mut() {
            let (of, here) = match run {
                Run::End(stream) => {
                    gone.push(Gone::End(*stream));
                    self.runs.pop_front();
                    continue;
                }
                Run::Plain(bytes) => (None, bytes),
                Run::Of(stream, bytes) => (Some(*stream), bytes),
            };
            if left == 0 {
                break;
            }
            let step = left.min(*here);
            left -= step;
            *here -= step;
            if let Some(stream) = of {
                gone.push(Gone::Bytes(stream, step as u64));
            }
            if *here == 0 {
                self.runs.pop_front();
            }
        }
        gone
    }

    /// The streams of which bytes have not gone.
    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.runs.iter().filter_map(|run| match run {
            Run::End(stream) | Run::Of(stream, _) => Some(*stream),
            Run::Plain(_) => None,
        })
    }

    /// Whether a request waits, and none is served.
    pub(crate) fn is_free(&self) -> bool {
        self.exchange.is_none() && !self.inbox.is_empty()
    }

    /// Whether it has neither a request nor anything to send.
    pub(crate) fn is_idle(&self) -> bool {
        self.exchange.is_none() && self.unsent_bytes == 0 && self.inbox.is_empty()
    }

    /// When it has waited for its client for too long, and what for.
    pub(crate) fn deadline(&self, limits: &HttpLimits) -> Option<(Time, Late)> {
        let after = |patience: Duration, late| Some((self.active + patience, late));
        if self.unsent_bytes > 0 {
            return after(limits.send_patience, Late::Reader);
        }
        match &self.exchange {
            Some(exchange) if exchange.awaits_body() => {
                let filling_bytes = self.filling.map_or(0, |(bytes, _)| bytes);
                let patience = limits.body_patience + fill_patience(filling_bytes);
                after(patience, Late::Body)
            }
            Some(_) => None, // It is the door that has to do something.
            None => match self.inbox.head_since() {
                Some(since) => Some((since + limits.head_patience, Late::Head)),
                None => after(limits.idle_patience, Late::Idle),
            },
        }
    }
}

/// Bytes that lie one behind the other in what is to be sent.
#[derive(Clone, Copy, Debug)]
enum Run {
    Plain(usize),
    Of(StreamId, usize),
    End(StreamId),
}

/// What the kernel has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Bytes(StreamId, u64),
    End(StreamId),
}

/// What a client has not done in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// Completed a head.
    Head,
    /// Gone on with a body.
    Body,
    /// Taken anything of a response.
    Reader,
    /// Asked for anything.
    Idle,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Goal: of what the kernel takes, each stream hears of its own bytes, and of its end
    /// when the last of them is gone.
    #[test]
    fn streams_hear_of_their_bytes() {
        let peer = "198.18.0.1:1".parse().expect("an address");
        let mut connection = Connection::new(Time::default(), peer);
        let piece = |bytes: usize| Bytes::from(vec![0; bytes]);
        connection.push(piece(10).into());
        let mut payload = Payload::from(piece(5));
        payload.push(piece(100));
        connection.push_of(StreamId(1), payload, 100);
        connection.push_of(StreamId(1), piece(50).into(), 50);
        connection.push_end(StreamId(1));
        connection.push(piece(7).into());
        assert_eq!(connection.unsent_bytes, 172);
        assert_eq!(connection.sent(15), []);
        assert_eq!(connection.sent(149), [Gone::Bytes(StreamId(1), 149)]);
        assert_eq!(connection.streams().count(), 2);
        assert_eq!(
            connection.sent(3),
            [Gone::Bytes(StreamId(1), 1), Gone::End(StreamId(1))]
        );
        assert_eq!(connection.sent(100), []);
        assert_eq!(
            (connection.unsent_bytes, connection.streams().count()),
            (0, 0)
        );
    }
}
