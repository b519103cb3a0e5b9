//! Loads, one after the other or in turns: a turn's request goes out on a connection on which
//! bytes of the turn before still come, so that no round trip is idle.
//!
//! A turn offers the connection's sending side to the next one as soon as its own request is
//! out, and the receiving side when all its bytes have come. Whatever goes wrong on the way, the
//! next one asks again over a connection of its own.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock_forecast::TaskId;
use crossdock_ibp::answer;
use crossdock_ibp::{Capability, Command, Key};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::oneshot::{self, Receiver, Sender};

use super::connection::{Connection, Reader};
use super::{Address, DepotError, Depots, request, understood};

/// Lengths of keys of this family's depots: of allocations, and of files of the volume.
const KEY_DIGITS: [usize; 2] = [80, 132];

/// Whether the depot that has made this key takes a request while it still sends what was asked
/// for before (docs/ibp.md). Nothing says so of other families: what is sent ahead might be lost.
pub(crate) fn reads_ahead(key: &Key) -> bool {
    let name = key.as_str().strip_prefix("0#");
    name.is_some_and(|name| {
        KEY_DIGITS.contains(&name.len()) && name.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Which task a load is of, and behind which other one of the same depot it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) task: TaskId,
    pub(crate) behind: Option<TaskId>,
}

/// What the turns of one transfer offer each other.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<BTreeMap<TaskId, Receiver<Lane>>>);

/// The sending side of a connection, and where the receiving side will come from.
#[derive(Debug)]
struct Lane {
    writer: OwnedWriteHalf,
    reader: Receiver<Reader>,
}

/// A turn's own place among others; what it offers goes with it, unless it was taken.
struct Offer<'a> {
    turns: &'a Turns,
    task: TaskId,
    lane: Option<Sender<Lane>>,
}

/// What a load asks for.
struct Asked {
    depot: Address,
    command: Command,
    bytes: u64,
}

impl Turns {
    /// Begins a turn: what it offers, and what the one before it does.
    fn begin(&self, turn: Turn) -> (Offer<'_>, Option<Receiver<Lane>>) {
        let mut all = self.all();
        let before = turn.behind.and_then(|before| all.remove(&before));
        let (lane, offered) = oneshot::channel();
        all.insert(turn.task, offered);
        let offer = Offer {
            turns: self,
            task: turn.task,
            lane: Some(lane),
        };
        (offer, before)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<TaskId, Receiver<Lane>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Offer<'_> {
    /// The request is out: the next one may follow. By what is returned it gets its answers.
    fn writer(&mut self, writer: OwnedWriteHalf) -> Sender<Reader> {
        let (next, reader) = oneshot::channel();
        let lane = self.lane.take().unwrap_or_else(|| {
            // What was offered first has come to nothing.
            let (lane, offered) = oneshot::channel();
            self.turns.all().insert(self.task, offered);
            lane
        });
        // Who has taken the offer may have ended: then nobody follows.
        let _ = lane.send(Lane { writer, reader });
        next
    }

    /// All bytes have come: the connection is the next one's, or nobody's, to be kept.
    fn end(self, reader: Reader, next: Sender<Reader>) -> Option<Connection> {
        let offered = self.turns.all().remove(&self.task);
        match offered {
            Some(mut offered) => {
                let Lane { writer, .. } = offered.try_recv().ok()?;
                Some(Connection { writer, reader })
            }
            None => {
                // If it has ended meanwhile, its request is on the way for nobody.
                let _ = next.send(reader);
                None
            }
        }
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        self.turns.all().remove(&self.task);
    }
}

impl Depots {
    /// Loads `bytes` bytes from `offset` on; `moved` is told how many have come so far.
    ///
    /// # Errors
    /// [`DepotError`].
    pub async fn load(
        &self,
        read: &Capability,
        offset: u64,
        bytes: u64,
        mut moved: impl FnMut(u64),
    ) -> Result<Vec<u8>, DepotError> {
        let Some(asked) = self.asked(read, offset, bytes) else {
            return Ok(Vec::new());
        };
        let (mut connection, length) = self
            .ask(&asked.depot, asked.command, false, answer::read_bytes)
            .await?;
        check(&asked.depot, asked.bytes, length)?;
        let loading = self.body(&asked.depot, &mut connection.reader, bytes, &mut moved);
        let loaded = loading.await?;
        self.keep(asked.depot, connection);
        Ok(loaded)
    }

    /// As [`load`](Self::load), as one of several turns.
    pub(crate) async fn load_in_turn(
        &self,
        (turns, turn): (&Turns, Turn),
        read: &Capability,
        offset: u64,
        bytes: u64,
        mut moved: impl FnMut(u64),
    ) -> Result<Vec<u8>, DepotError> {
        let Some(asked) = self.asked(read, offset, bytes) else {
            return Ok(Vec::new());
        };
        let (mut offer, before) = turns.begin(turn);
        if let Some(before) = before
            && let Some((answered, next)) = self.ask_behind(&asked, before, &mut offer).await
        {
            let (mut reader, length) = answered?;
            check(&asked.depot, bytes, length)?;
            let loading = self.body(&asked.depot, &mut reader, bytes, &mut moved);
            let loaded = loading.await?;
            self.end_turn(asked.depot, offer.end(reader, next));
            return Ok(loaded);
        }
        let (connection, length) = self
            .ask(&asked.depot, asked.command, false, answer::read_bytes)
            .await?;
        check(&asked.depot, bytes, length)?;
        let Connection { writer, mut reader } = connection;
        let next = offer.writer(writer);
        let loading = self.body(&asked.depot, &mut reader, bytes, &mut moved);
        let loaded = loading.await?;
        self.end_turn(asked.depot, offer.end(reader, next));
        Ok(loaded)
    }

    /// Asks on a connection on which bytes still come, and waits for the answer behind them.
    /// None: it has not come so far, and nothing of it will.
    async fn ask_behind(
        &self,
        asked: &Asked,
        before: Receiver<Lane>,
        offer: &mut Offer<'_>,
    ) -> Option<(Result<(Reader, u64), DepotError>, Sender<Reader>)> {
        let Lane { mut writer, reader } = before.await.ok()?;
        let request = request(asked.command.clone()).ok()?;
        self.send(&asked.depot, &mut writer, &request).await.ok()?;
        let next = offer.writer(writer);
        let mut reader = reader.await.ok()?;
        let line = match self.line(&asked.depot, &mut reader).await {
            Ok(line) => line,
            Err(DepotError::Closed { .. } | DepotError::Broken { .. }) => return None,
            Err(error) => return Some((Err(error), next)),
        };
        let length = understood(&asked.depot, answer::read_bytes(&line));
        Some((length.map(|length| (reader, length)), next))
    }

    fn end_turn(&self, depot: Address, connection: Option<Connection>) {
        if let Some(connection) = connection {
            self.keep(depot, connection);
        }
    }

    /// None of nothing.
    fn asked(&self, read: &Capability, offset: u64, bytes: u64) -> Option<Asked> {
        let command = Command::Load {
            key: read.key.clone(),
            attribute_key: read.attribute_key.clone(),
            offset_bytes: offset,
            size_bytes: Some(NonZeroU64::new(bytes)?),
            time_limit: self.time_limit(),
        };
        Some(Asked {
            depot: Address::from(read),
            command,
            bytes,
        })
    }
}

fn check(depot: &Address, wanted: u64, moved: u64) -> Result<(), DepotError> {
    match moved == wanted {
        true => Ok(()),
        false => Err(DepotError::Short {
            depot: depot.clone(),
            wanted,
            moved,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: keys of this family are told from others'.
    #[test]
    fn keys_are_told_apart() {
        let read = |key: String| reads_ahead(&Key::new(&key).expect("a key"));
        assert!(read(format!("0#{}", "0f".repeat(40))));
        assert!(read(format!("0#{}", "0f".repeat(66))));
        for other in [
            format!("0#IBP-{}", "f".repeat(90)),
            format!("7#{}", "0f".repeat(40)),
            format!("0#{}", "0f".repeat(16)),
            format!("0#{}", "0x".repeat(40)),
            "0f".repeat(41),
        ] {
            assert!(!read(other));
        }
    }
}
