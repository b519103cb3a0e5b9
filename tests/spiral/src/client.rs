//! Clients: plain connections of the kernel's TCP that compare every byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use socket2::{Domain, Socket, Type};

use crate::gateway::pause;
use crate::model::{Shape, pieces};

/// How a client reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Of the socket, in bytes; the window is smaller than that.
    pub(crate) receive_buffer: Option<usize>,
    /// In the middle it reads nothing for so long.
    pub(crate) rest: Duration,
    /// It goes after so many bytes, with a reset.
    pub(crate) leaves_after: Option<u64>,
}

/// What a client has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All of it.
    Whole(u64),
    /// Nothing came any more.
    Silence(u64),
    /// The connection was reset, or this client has left.
    Reset(u64),
}

/// Reads what `seed` stands for until its end, or until nothing comes for `patience`.
///
/// # Errors
/// Any byte that is not what it should be.
pub(crate) fn read(
    server: SocketAddr,
    seed: u64,
    shape: Shape,
    manner: Manner,
    patience: Duration,
) -> Result<End> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    if let Some(bytes) = manner.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.connect(&server.into())?;
    socket.set_read_timeout(Some(patience))?;
    let mut socket = TcpStream::from(socket);
    socket.write_all(&seed.to_le_bytes())?;
    let (mut seen, mut buffer) = (0_u64, vec![0; 256 << 10]);
    let mut has_rested = manner.rest.is_zero();
    let mut expected = Vec::new();
    for (number, piece) in pieces(seed, shape).enumerate() {
        expected.clear();
        piece.expanded(&mut expected);
        let mut at = 0;
        while at < expected.len() {
            let room = (expected.len() - at).min(buffer.len());
            let length = match socket.read(&mut buffer[..room]) {
                Ok(0) => bail!("the stream ends after {seen} bytes"),
                Ok(length) => length,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(End::Silence(seen)),
                    ErrorKind::ConnectionReset => return Ok(End::Reset(seen)),
                    ErrorKind::Interrupted => continue,
                    _ => return Err(error.into()),
                },
            };
            let (came, wanted) = (&buffer[..length], &expected[at..at + length]);
            if came != wanted {
                let first = came.iter().zip(wanted).take_while(|(a, b)| a == b).count();
                let place = seen + first as u64;
                bail!(
                    "seed {seed}: byte {place} of the stream, byte {} of piece {number}, is {:#x} and not {:#x}",
                    at + first,
                    came[first],
                    wanted[first]
                );
            }
            at += length;
            seen += length as u64;
            if !has_rested && seen > shape.total / 2 {
                has_rested = true;
                pause(manner.rest);
            }
            if manner.leaves_after.is_some_and(|bytes| seen > bytes) {
                socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
                return Ok(End::Reset(seen));
            }
        }
    }
    ensure!(
        socket.read(&mut buffer)? == 0,
        "there is more behind the end at {seen}"
    );
    Ok(End::Whole(seen))
}
