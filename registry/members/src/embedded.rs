//! The registry of one process: a log in a local file.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 4 MiB | half 0 |
//! | 4 MiB | 4 MiB | half 1 |
//!
//! A half is a chain of frames (contract/log) whose log id is the generation of
//! the half; its first record is a snapshot of everything, each further one a
//! [`Change`], all as JSON. The half with the higher generation is the current
//! one. When it is full the other one begins anew with a snapshot, so a torn
//! write never costs more than the change it carried.

use bytes::Bytes;
use crossdock_disk::{BlockingDisk, DiskError};
use crossdock_log::{ChainPosition, FRAME_HEADER_BYTES, FrameReader, LogId, LogWriter};
use thiserror::Error;

use crate::state::{Change, Conflict, State};

/// Length of the registry's file, in bytes.
pub const REGISTRY_FILE_BYTES: u64 = 2 * HALF_BYTES;

const HALF_BYTES: u64 = 4 << 20;

/// Why the registry cannot be opened or changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file cannot be read or written.
    #[error("registry file: {0}")]
    Disk(#[from] DiskError),
    /// The file holds no registry; a new one has to be made.
    #[error("the file holds no registry")]
    Empty,
    /// A record of ours does not parse: written by another version.
    #[error("registry record of an unknown format: {0}")]
    Format(String),
    /// The change came too late.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

/// The registry in a local file.
pub struct Embedded {
    disk: Box<dyn BlockingDisk>,
    state: State,
    generation: u64,
    end_bytes: u64,
    writer: LogWriter,
}

impl Embedded {
    /// Makes a new registry with `state`, over whatever the file held.
    ///
    /// # Errors
    /// [`OpenError::Disk`].
    pub fn create(disk: Box<dyn BlockingDisk>, state: State) -> Result<Self, OpenError> {
        disk.set_length(REGISTRY_FILE_BYTES)?;
        let mut registry = Self {
            disk,
            state: state.clone(),
            generation: 0,
            end_bytes: 0,
            writer: LogWriter::new(LogId(0), 0, ChainPosition::start()),
        };
        registry.start_half(state)?;
        Ok(registry)
    }

    /// Opens the registry that the file holds.
    ///
    /// # Errors
    /// [`OpenError::Empty`] if there is none.
    pub fn open(disk: Box<dyn BlockingDisk>) -> Result<Self, OpenError> {
        let mut newest: Option<(u64, Replay)> = None;
        if disk.length_bytes()? >= REGISTRY_FILE_BYTES {
            for half in 0..2 {
                let mut bytes = vec![0; usize::try_from(HALF_BYTES).unwrap_or(usize::MAX)];
                disk.read_at(&mut bytes, half * HALF_BYTES)?;
                let Some(generation) = generation_of(&bytes) else {
                    continue;
                };
                if generation % 2 != half
                    || newest
                        .as_ref()
                        .is_some_and(|(other, _)| *other > generation)
                {
                    continue;
                }
                if let Some(replay) = replay(generation, &Bytes::from(bytes))? {
                    newest = Some((generation, replay));
                }
            }
        }
        let (generation, replay) = newest.ok_or(OpenError::Empty)?;
        Ok(Self {
            disk,
            state: replay.state,
            generation,
            end_bytes: replay.end_bytes,
            writer: LogWriter::new(LogId(generation), 0, replay.position),
        })
    }

    /// What the registry holds now.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Makes a change durable, then visible.
    ///
    /// # Errors
    /// [`OpenError::Conflict`] and [`OpenError::Disk`]; nothing was changed.
    pub fn change(&mut self, change: Change) -> Result<(), OpenError> {
        let record = encode(&change)?;
        let mut state = self.state.clone();
        state.apply(change)?;
        if self.end_bytes + (FRAME_HEADER_BYTES + record.len() + 16) as u64 > HALF_BYTES {
            return self.start_half(state);
        }
        self.append(&record)?;
        self.state = state;
        Ok(())
    }

    fn start_half(&mut self, state: State) -> Result<(), OpenError> {
        let snapshot = encode(&Change::Snapshot(Box::new(state.clone())))?;
        self.generation += 1;
        self.end_bytes = 0;
        self.writer = LogWriter::new(LogId(self.generation), 0, ChainPosition::start());
        self.append(&snapshot)?;
        self.state = state;
        Ok(())
    }

    fn append(&mut self, record: &[u8]) -> Result<(), OpenError> {
        self.writer.append(record);
        if let Some(frame) = self.writer.next_frame() {
            let start = self.generation % 2 * HALF_BYTES + self.end_bytes;
            self.disk.write_at(&frame.bytes(), start)?;
            self.disk.flush()?;
            self.writer.frame_durable();
            self.end_bytes += frame.length as u64;
        }
        Ok(())
    }
}

struct Replay {
    state: State,
    position: ChainPosition,
    end_bytes: u64,
}

/// The log id in the first frame's header; checked by the replay.
fn generation_of(half: &[u8]) -> Option<u64> {
    let id = half.get(8..16)?.try_into().ok()?;
    Some(u64::from_le_bytes(id)).filter(|&generation| generation > 0)
}

fn replay(generation: u64, half: &Bytes) -> Result<Option<Replay>, OpenError> {
    let mut reader = FrameReader::new(LogId(generation), ChainPosition::start());
    let mut state: Option<State> = None;
    let mut at = 0;
    while let Ok(frame) = reader.read(&half.slice(at..)) {
        at += frame.length_bytes;
        for record in frame.records() {
            let change: Change = serde_json::from_slice(&record)
                .map_err(|error| OpenError::Format(error.to_string()))?;
            match (&mut state, change) {
                (None, Change::Snapshot(snapshot)) => state = Some(*snapshot),
                (None, _) => return Ok(None),
                (Some(state), change) => state.apply(change)?,
            }
        }
    }
    Ok(state.map(|state| Replay {
        state,
        position: reader.position(),
        end_bytes: at as u64,
    }))
}

fn encode(change: &Change) -> Result<Vec<u8>, OpenError> {
    serde_json::to_vec(change).map_err(|error| OpenError::Format(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Memory {
        fn with<R>(&self, act: impl FnOnce(&mut Vec<u8>) -> R) -> R {
            act(&mut self
                .0
                .lock()
                .expect("no test panics while it holds the lock"))
        }
    }

    impl BlockingDisk for Memory {
        fn length_bytes(&self) -> Result<u64, DiskError> {
            Ok(self.with(|bytes| bytes.len() as u64))
        }

        fn read_at(&self, target: &mut [u8], offset_bytes: u64) -> Result<(), DiskError> {
            let start = usize::try_from(offset_bytes).unwrap_or(usize::MAX);
            self.with(|bytes| target.copy_from_slice(&bytes[start..start + target.len()]));
            Ok(())
        }

        fn write_at(&self, source: &[u8], offset_bytes: u64) -> Result<(), DiskError> {
            let start = usize::try_from(offset_bytes).unwrap_or(usize::MAX);
            self.with(|bytes| bytes[start..start + source.len()].copy_from_slice(source));
            Ok(())
        }

        fn flush(&self) -> Result<(), DiskError> {
            Ok(())
        }

        fn set_length(&self, length_bytes: u64) -> Result<(), DiskError> {
            self.with(|bytes| bytes.resize(usize::try_from(length_bytes).unwrap_or(usize::MAX), 0));
            Ok(())
        }
    }

    fn state() -> State {
        State::fresh(1, 2, &[10, 11], 2, 2)
    }

    /// Goal: an empty file is told from a damaged one, and changes survive reopening.
    #[test]
    fn changes_survive_reopening() {
        let memory = Memory::default();
        assert!(matches!(
            Embedded::open(Box::new(memory.clone())),
            Err(OpenError::Empty)
        ));
        let mut registry = Embedded::create(Box::new(memory.clone()), state()).expect("created");
        registry.change(Change::RaiseAll).expect("raised");
        let expected = registry.state().clone();
        drop(registry);
        let reopened = Embedded::open(Box::new(memory)).expect("opened");
        assert_eq!(reopened.state(), &expected);
    }

    /// Goal: a torn last change leaves the one before it, also when it is the
    /// snapshot that begins the other half.
    #[test]
    fn torn_change_leaves_the_one_before() {
        let memory = Memory::default();
        let mut registry = Embedded::create(Box::new(memory.clone()), state()).expect("created");
        let half = usize::try_from(HALF_BYTES).expect("fits");
        let mut before;
        loop {
            before = registry.state().clone();
            registry.change(Change::RaiseAll).expect("raised");
            if registry.generation == 2 {
                break;
            }
            // As if many changes had filled the half.
            registry.end_bytes = registry.end_bytes.max(HALF_BYTES - 64);
        }
        memory.with(|bytes| bytes[100] ^= 1); // Half 0 holds generation 2.
        let reopened = Embedded::open(Box::new(memory.clone())).expect("opened");
        assert_eq!(reopened.state(), &before);
        memory.with(|bytes| bytes[half + 100] ^= 1);
        assert!(matches!(
            Embedded::open(Box::new(memory)),
            Err(OpenError::Empty)
        ));
    }
}
