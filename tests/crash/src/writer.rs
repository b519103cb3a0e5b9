//! Keeps calls outstanding until the server is gone: mostly writes of all
//! sizes and kinds of stability, with commits and changes of names between.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use crossdock_nfs3::call::{self, Call, CreateHow, StableHow};
use crossdock_nfs3::{HandleBuffer, Location, Name, SetAttributes};
use crossdock_types::Payload;

use crate::random::Random;
use crate::witness::{CELL_BYTES, FileNumber, Operation, Place, Witness, fill};
use crossdock_tests_crash::client::Client;
use crossdock_tests_crash::server::Server;

/// Calls that are kept outstanding.
const OUTSTANDING: usize = 24;
/// Of these, at most so many are not writes.
const OTHERS_MAX: usize = 8;
/// Writes that must be outstanding at each kill.
pub(crate) const WRITES_OUTSTANDING_MIN: usize = 8;
/// Files that there are at least, once they could be made, and at most.
const FILES: (usize, usize) = (10, 32);
/// Longest file: past a stripe edge (256 KiB) and the small-file threshold.
const FILE_CELLS_MAX: usize = 1200;
/// How often a free place for a write is looked for before another call is made.
const TRIES: usize = 20;

/// Makes calls at random and tells the witness.
pub(crate) struct Writer<'round> {
    client: &'round mut Client,
    witness: &'round mut Witness,
    random: &'round mut Random,
}

impl<'round> Writer<'round> {
    /// A writer for one life of the server.
    pub(crate) const fn new(
        client: &'round mut Client,
        witness: &'round mut Witness,
        random: &'round mut Random,
    ) -> Self {
        Self {
            client,
            witness,
            random,
        }
    }

    /// Writes until the server has been killed, and returns how many writes
    /// were outstanding before the connection broke.
    pub(crate) fn write_until_killed(
        mut self,
        server: &mut Server,
        replies_before_kill: (u64, u64),
        delay_us_max: u64,
    ) -> Result<usize> {
        let replies_wanted = self.random.between(replies_before_kill);
        let mut replies = 0;
        let mut killer = None;
        let mut in_flight = 0;
        loop {
            if !self.fill_window()? {
                break;
            }
            in_flight = self.witness.writes_pending();
            if replies >= replies_wanted && killer.is_none() {
                let delay = Duration::from_micros(self.random.below(delay_us_max));
                killer = Some(server.kill_after(delay)?);
            }
            let Some((xid, reply)) = self.client.receive()? else {
                break;
            };
            replies += 1;
            self.witness.acknowledged(xid, &reply)?;
        }
        // What the server had answered before it died counts.
        while let Some((xid, reply)) = self.client.receive()? {
            self.witness.acknowledged(xid, &reply)?;
        }
        killer
            .context("the server died by itself: see server.log")?
            .finish()?;
        server.wait()?;
        self.witness.server_died(self.client.next_xid())?;
        Ok(in_flight)
    }

    /// Sends until the window is full; `false` if the connection is gone.
    fn fill_window(&mut self) -> Result<bool> {
        while self.witness.pending.len() < OUTSTANDING {
            let others = self.witness.pending.len() - self.witness.writes_pending();
            let choice = match others {
                OTHERS_MAX.. => 0,
                _ => self.random.below(100),
            };
            let is_alive = match choice {
                0..70 => self.write()?,
                70..80 => self.commit()?,
                80..88 => self.create()?,
                88..95 => self.rename()?,
                _ => self.remove()?,
            };
            if !is_alive {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn send(&mut self, operation: Operation) -> Result<bool> {
        // Noted first: a call may have an effect although sending it failed.
        self.witness
            .sent(self.client.next_xid(), operation.clone())?;
        let sent = send(self.client, self.witness, &operation, None)?;
        Ok(sent)
    }

    fn write(&mut self) -> Result<bool> {
        for _ in 0..TRIES {
            let Some(file) = self.any_file() else { break };
            let state = self.witness.file(file)?;
            let length = state.cells.len();
            let count = 1 + match self.random.below(10) {
                0..5 => self.random.index(16),
                5..9 => self.random.index(128),
                _ => self.random.index(256),
            };
            // Anywhere in the file, or a little behind its end.
            let first = self.random.index(length + 40).min(FILE_CELLS_MAX - count);
            let state = self.witness.file(file)?;
            let end = (first + count).min(length);
            let taken = first < end && state.cells[first..end].iter().any(|cell| cell.busy);
            if taken || state.busy {
                continue;
            }
            let version = self.witness.new_version();
            let stable = match self.random.below(10) {
                0..4 => StableHow::FileSync,
                4 => StableHow::DataSync,
                _ => StableHow::Unstable,
            };
            return self.send(Operation::Write {
                file,
                first,
                count,
                version,
                stable,
            });
        }
        self.create()
    }

    fn commit(&mut self) -> Result<bool> {
        let Some(file) = self.any_file() else {
            return Ok(true);
        };
        let cells = self.witness.file(file)?.cells.iter().enumerate();
        let covered = cells
            .filter_map(|(index, cell)| Some((index, cell.committable()?)))
            .collect();
        self.send(Operation::Commit { file, covered })
    }

    fn create(&mut self) -> Result<bool> {
        if self.witness.files.len() >= FILES.1 {
            return Ok(true);
        }
        let file = self.witness.new_file();
        let place = self.new_place(file);
        self.send(Operation::Create { place, file })
    }

    fn rename(&mut self) -> Result<bool> {
        let Some(from) = self.idle_place() else {
            return Ok(true);
        };
        // Now and then over a file that is there.
        let over = self.random.chance(30).then(|| self.idle_place()).flatten();
        let to = match over {
            Some(to) if to != from && self.witness.files.len() > FILES.0 => to,
            _ => {
                let number = self.witness.new_file();
                self.new_place(number)
            }
        };
        self.send(Operation::Rename { from, to })
    }

    fn remove(&mut self) -> Result<bool> {
        if self.witness.files.len() <= FILES.0 {
            return Ok(true);
        }
        match self.idle_place() {
            Some(place) => self.send(Operation::Remove { place }),
            None => Ok(true),
        }
    }

    fn any_file(&mut self) -> Option<FileNumber> {
        let count = self.witness.files.len();
        if count == 0 {
            return None;
        }
        let index = self.random.index(count);
        let (file, state) = self.witness.files.iter().nth(index)?;
        (!state.busy).then_some(*file)
    }

    /// A name whose file no outstanding call concerns.
    fn idle_place(&mut self) -> Option<Place> {
        let count = self.witness.names.len();
        if count == 0 {
            return None;
        }
        let index = self.random.index(count);
        let (place, file) = self.witness.names.iter().nth(index)?;
        let state = self.witness.files.get(file)?;
        let has_commit = self.witness.pending.values().any(
            |operation| matches!(operation, Operation::Commit { file: other, .. } if other == file),
        );
        (!state.busy && state.writes == 0 && !has_commit).then(|| place.clone())
    }

    fn new_place(&mut self, number: FileNumber) -> Place {
        let directory = self.random.index(self.witness.directories.len());
        (directory, format!("file-{number}"))
    }
}

/// Sends the call of `operation`: under a new number, or again under an old one.
pub(crate) fn send(
    client: &mut Client,
    witness: &Witness,
    operation: &Operation,
    again: Option<u32>,
) -> Result<bool> {
    let handle = |file: &FileNumber| -> Result<HandleBuffer> {
        Ok(witness.files.get(file).context("no such file")?.handle)
    };
    let directory = |place: &Place| witness.directories[place.0];
    let mut post = |call: &Call<'_>| match again {
        None => client.send(call).map(|sent| sent.is_some()),
        Some(xid) => client.send_again(xid, call),
    };
    match operation {
        Operation::Write {
            file,
            first,
            count,
            version,
            stable,
        } => {
            let mut data = BytesMut::zeroed(count * CELL_BYTES);
            for (index, bytes) in data.chunks_exact_mut(CELL_BYTES).enumerate() {
                fill(*file, first + index, *version, bytes);
            }
            ensure!(!data.is_empty(), "an empty write");
            let handle = handle(file)?;
            let mut payload = Payload::new();
            payload.push(data.freeze());
            post(&Call::Write(call::Write {
                file: handle.as_handle(),
                offset: u64::try_from(first * CELL_BYTES)?,
                count_bytes: u32::try_from(count * CELL_BYTES)?,
                stable: *stable,
                data: payload,
            }))
        }
        Operation::Commit { file, .. } => post(&Call::Commit(call::Commit {
            file: handle(file)?.as_handle(),
            offset: 0,
            count_bytes: 0,
        })),
        Operation::Create { place, .. } => post(&Call::Create(call::Create {
            location: location(&directory(place), place),
            how: CreateHow::Guarded(SetAttributes {
                mode: Some(0o644),
                ..SetAttributes::default()
            }),
        })),
        Operation::Rename { from, to } => post(&Call::Rename(call::Rename {
            source: location(&directory(from), from),
            target: location(&directory(to), to),
        })),
        Operation::Remove { place } => post(&Call::Remove(location(&directory(place), place))),
    }
}

/// `place` as a call names it.
pub(crate) fn location<'a>(directory: &'a HandleBuffer, place: &'a Place) -> Location<'a> {
    Location {
        directory: directory.as_handle(),
        name: Name(place.1.as_bytes()),
    }
}
