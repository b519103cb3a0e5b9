//! An NFSv3 client over UDP that reads: several calls at a time, each sent again until it is
//! answered.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::call::Read;
use crossdock_nfs3::{Call, HandleBuffer, Procedure, Reply};
use crossdock_types::Payload;
use crossdock_xdr::Decoder;
use rustix::net::sockopt;

use crate::client::{Xid, datagram};
use crate::wire::success;

/// What is not answered by then is sent again.
const AGAIN_AFTER: Duration = Duration::from_millis(400);
/// A server that answers nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Replies that come together have room in the socket, in fragments.
const RECEIVE_BYTES: usize = 8 << 20;
/// No datagram is larger.
const DATAGRAM_BYTES: usize = 64 * 1024;

/// A socket that asks one server.
pub struct DatagramReader {
    socket: UdpSocket,
    xid: Xid,
    buffer: Vec<u8>,
    /// Calls that were sent more than once.
    pub sent_again: u64,
}

/// What is read of a file.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// From where.
    pub offset: u64,
    /// How much.
    pub length: usize,
    /// By each call.
    pub count_bytes: usize,
    /// Calls at a time.
    pub window: usize,
}

struct Asked {
    at: usize,
    count: usize,
    sent: Instant,
}

impl DatagramReader {
    /// Asks `address` from a port of its own.
    ///
    /// # Errors
    /// The system's.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(AGAIN_AFTER / 4))?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BYTES)?;
        }
        Ok(Self {
            socket,
            xid: std::process::id() << 12,
            buffer: vec![0; DATAGRAM_BYTES],
            sent_again: 0,
        })
    }

    /// All bytes that were asked for; short replies are asked on.
    ///
    /// # Errors
    /// The system's, a READ that fails, or no answer for a minute.
    pub fn read(&mut self, file: &HandleBuffer, what: Reading) -> Result<Vec<u8>> {
        let mut all = vec![0; what.length];
        let steps = (0..what.length).step_by(what.count_bytes);
        let mut wanted: VecDeque<(usize, usize)> = steps
            .map(|at| (at, what.count_bytes.min(what.length - at)))
            .collect();
        let mut asked: BTreeMap<Xid, Asked> = BTreeMap::new();
        let mut heard = Instant::now();
        while !(wanted.is_empty() && asked.is_empty()) {
            while asked.len() < what.window
                && let Some((at, count)) = wanted.pop_front()
            {
                self.xid = self.xid.wrapping_add(1);
                let sent = Instant::now();
                asked.insert(self.xid, Asked { at, count, sent });
                self.send(self.xid, file, what.offset, at, count)?;
            }
            for (&xid, one) in &mut asked {
                if one.sent.elapsed() >= AGAIN_AFTER {
                    one.sent = Instant::now();
                    self.sent_again += 1;
                    self.send(xid, file, what.offset, one.at, one.count)?;
                }
            }
            let Some((xid, data)) = self.receive()? else {
                ensure!(heard.elapsed() < PATIENCE, "no answer");
                continue;
            };
            // To one that was sent twice two answers come.
            let Some(one) = asked.remove(&xid) else {
                continue;
            };
            heard = Instant::now();
            let got = data.len();
            ensure!((1..=one.count).contains(&got), "{got} of {}", one.count);
            data.copy_to_slice(&mut all[one.at..one.at + got]);
            if got < one.count {
                wanted.push_front((one.at + got, one.count - got));
            }
        }
        Ok(all)
    }

    /// Whether anything comes that nobody has asked for, within `patience`.
    ///
    /// # Errors
    /// The system's.
    pub fn hears_something(&mut self, patience: Duration) -> Result<bool> {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if self.receive()?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn send(
        &self,
        xid: Xid,
        file: &HandleBuffer,
        from: u64,
        at: usize,
        count: usize,
    ) -> Result<()> {
        let call = Call::Read(Read {
            file: file.as_handle(),
            offset: from + at as u64,
            count_bytes: u32::try_from(count)?,
        });
        match self.socket.send(&datagram(xid, &call).to_bytes()) {
            // The server is not there at the moment.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            sent => Ok(sent.map(drop)?),
        }
    }

    fn receive(&mut self) -> Result<Option<(Xid, Payload)>> {
        let length = match self.socket.recv(&mut self.buffer) {
            Ok(length) => length,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::ConnectionRefused => {
                    return Ok(None);
                }
                _ => return Err(error).context("receiving"),
            },
        };
        let mut decoder = Decoder::new(&self.buffer[..length]);
        let xid = success(&mut decoder)?;
        match Reply::decode(Procedure::Read, &mut decoder)? {
            Reply::Read(Ok(read)) => Ok(Some((xid, read.data))),
            other => bail!("{other:?}"),
        }
    }
}
