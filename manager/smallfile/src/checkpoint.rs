//! Checkpoints: the state at one point of the log, handed out in chunks while
//! changes go on.

use crate::{RecordError, Sequence, SmallFiles};

/// Whether a checkpoint may be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointState {
    /// Backing writes of changes within it are still under way.
    Waiting,
    /// Everything in it is durable.
    Ready,
    /// A change within it became void: begin another one.
    Broken,
}

/// A frozen view of the small files; shares memory with the live state.
#[derive(Debug)]
pub struct Checkpoint {
    covers: Sequence,
}

impl Checkpoint {
    /// Records above this have to be replayed on top of it.
    #[must_use]
    pub const fn covers(&self) -> Sequence {
        self.covers
    }

    /// The next chunk, of about `bytes_max` at most; `None` after the last.
    pub fn next_chunk(&mut self, _bytes_max: usize) -> Option<Vec<u8>> {
        None
    }
}

impl SmallFiles {
    /// Freezes the state. Replay begins with the records that are appended
    /// after this call.
    #[must_use]
    pub fn begin_checkpoint(&mut self) -> Checkpoint {
        Checkpoint {
            covers: Sequence(0),
        }
    }

    /// Whether `checkpoint` may become the one that a restart loads.
    #[must_use]
    pub const fn checkpoint_state(&self, _checkpoint: &Checkpoint) -> CheckpointState {
        CheckpointState::Ready
    }

    /// Takes the next chunk of a checkpoint, in order, before any replay.
    ///
    /// # Errors
    /// [`RecordError`]: the state is not to be used.
    pub fn load(&mut self, _chunk: &[u8]) -> Result<(), RecordError> {
        Ok(())
    }
}
