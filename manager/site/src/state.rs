//! Everything that follows from the log.

use crossdock_directory::{Directory, Mutation};
use crossdock_locks::{Limits, Locks};
use crossdock_log::Position;
use crossdock_peer::{CallId, GrantId};
use crossdock_smallfile::SmallFiles;

use crate::config::SiteConfig;
use crate::duplicates::{Duplicates, Remembered};
use crate::intentions::Intentions;
use crate::keys::Keys;
use crate::open::OpenError;
use crate::promises::Promises;
use crate::record::{Change, Record};
use crate::replies::encode_reply;

/// The state of the roles.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) directory: Directory,
    pub(crate) small: SmallFiles,
    pub(crate) duplicates: Duplicates,
    pub(crate) intentions: Intentions,
    pub(crate) locks: Locks,
    pub(crate) promises: Promises,
    /// The root's site has some.
    pub(crate) keys: Keys,
}

impl State {
    pub(crate) fn new(config: &SiteConfig) -> Self {
        Self {
            directory: Directory::new(config.site, config.volume.0).with_spread(config.spread),
            small: SmallFiles::new(config.small_files),
            duplicates: Duplicates::new(config.limits.duplicates_max, config.limits.duplicate_age),
            intentions: Intentions::default(),
            locks: Locks::new(Limits::default()).with_grants_after(GrantId::new(config.site, 0)),
            promises: Promises::default(),
            keys: Keys::default(),
        }
    }

    /// Applies a record, live or on replay, except for its small-file part:
    /// live that is accepted, on replay it is replayed.
    pub(crate) fn apply(&mut self, record: &Record, position: Position) {
        for change in &record.changes {
            match change {
                Change::Directory(mutation) => {
                    if let Mutation::RemoveCell { serial, .. } = mutation {
                        self.locks.remove_file(*serial);
                    }
                    self.directory.apply(mutation);
                }
                Change::Lock(change) => self.locks.apply(change),
                Change::Promise(promise) => self.promises.apply(promise),
                Change::HandleKey(key) => self.keys.keep_handle_key(key, position),
                Change::ProofKey(key) => self.keys.keep_proof_key(key, position),
                Change::Declare(intention) => {
                    self.intentions.declare(intention.clone(), position);
                }
                Change::Done(id) => self.intentions.close(*id),
                Change::NextIntention(id) => self.intentions.reserve_ids(*id),
                Change::Remembered(key, remembered) => {
                    self.duplicates.load(*key, remembered.clone());
                }
                Change::Small(_) | Change::SmallChunk(_) | Change::Piece(_) => {}
            }
        }
        if let Some((key, shape)) = &record.duplicate {
            let reply = shape.reply(CallId(0), &self.directory, record.decision());
            if let Some(reply) = encode_reply(&reply) {
                let remembered = Remembered {
                    wall: record.wall,
                    intention: record.awaited_intention(),
                    reply,
                };
                self.duplicates.insert(*key, remembered);
            }
        }
    }

    /// Applies a record of the log or of a checkpoint.
    pub(crate) fn replay(&mut self, record: &Record) -> Result<(), OpenError> {
        for change in &record.changes {
            match change {
                Change::Small(small) => self.small.replay(small)?,
                Change::SmallChunk(chunk) => self.small.load(chunk)?,
                Change::Piece(piece) => self.directory.load(piece)?,
                _ => {}
            }
        }
        self.apply(record, Position(0));
        Ok(())
    }
}
