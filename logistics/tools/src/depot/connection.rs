//! A connection to a depot, in its two directions.

use std::io;

use crossdock_ibp::take_line;
use crossdock_limits::IBP_ANSWER_BYTES_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::{Address, DepotError, Depots, broken, timed_out};

/// What is done at once when much is loaded: more is not allocated before it has come.
const RESERVED_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) writer: OwnedWriteHalf,
    pub(super) reader: Reader,
}

#[derive(Debug)]
pub(super) struct Reader {
    stream: OwnedReadHalf,
    /// What has come and was not used yet.
    received: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        let (stream, writer) = stream.into_split();
        let received = Vec::new();
        let reader = Reader { stream, received };
        Self { writer, reader }
    }
}

impl Reader {
    /// Whether all that has come was used.
    pub(super) const fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// Up to so many bytes of what has come.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let count = self.received.len().min(bytes);
        self.received.drain(..count).collect()
    }
}

impl Depots {
    pub(super) async fn send(
        &self,
        depot: &Address,
        writer: &mut OwnedWriteHalf,
        request: &str,
    ) -> Result<(), DepotError> {
        let sent = timeout(self.patience, writer.write_all(request.as_bytes()));
        sent.await
            .map_err(|_| timed_out(depot))?
            .map_err(|error| broken(depot, error))
    }

    /// The line that answers a request.
    pub(super) async fn line(
        &self,
        depot: &Address,
        reader: &mut Reader,
    ) -> Result<Vec<u8>, DepotError> {
        loop {
            let malformed = |_| DepotError::Malformed {
                depot: depot.clone(),
            };
            let taken = take_line(&reader.received, IBP_ANSWER_BYTES_MAX).map_err(malformed)?;
            if let Some((line, length)) = taken {
                let line = line.to_vec();
                reader.received.drain(..length);
                return Ok(line);
            }
            let read = reader.stream.read_buf(&mut reader.received);
            let count = timeout(self.patience, read)
                .await
                .map_err(|_| timed_out(depot))?;
            match count {
                Ok(0) => {
                    let depot = depot.clone();
                    return Err(DepotError::Closed { depot });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    let depot = depot.clone();
                    return Err(DepotError::Closed { depot });
                }
                Err(error) => return Err(broken(depot, error)),
            }
        }
    }

    /// The bytes behind an answer; `moved` is told how many have come so far.
    pub(super) async fn body(
        &self,
        depot: &Address,
        reader: &mut Reader,
        bytes: u64,
        moved: &mut impl FnMut(u64),
    ) -> Result<Vec<u8>, DepotError> {
        let wanted = usize::try_from(bytes).map_err(|_| DepotError::TooLong)?;
        let mut body = reader.take(wanted);
        body.reserve_exact(wanted.min(RESERVED_BYTES_MAX).saturating_sub(body.len()));
        while body.len() < wanted {
            let mut rest = (&mut reader.stream).take((wanted - body.len()) as u64);
            let read = timeout(self.patience, rest.read_buf(&mut body)).await;
            let count = read
                .map_err(|_| timed_out(depot))?
                .map_err(|error| broken(depot, error))?;
            if count == 0 {
                return Err(broken(depot, io::ErrorKind::UnexpectedEof.into()));
            }
            moved(body.len() as u64);
        }
        Ok(body)
    }
}
