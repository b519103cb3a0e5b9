//! What a site counts, for reports.

use std::time::Duration;

use crossdock_metrics::Histogram;
use crossdock_smallfile::MemoryFigures;
use crossdock_types::Time;

use crate::log::SiteLog;
use crate::site::Site;

/// Everything that a site has counted since it was opened, and what it holds.
#[derive(Clone, Debug, Default)]
pub struct SiteFigures {
    /// Whether it answers.
    pub is_serving: bool,
    /// The frames of its log.
    pub frames: FrameFigures,
    /// Bytes of the log since the newest checkpoint began.
    pub log_bytes_since_checkpoint: u64,
    /// Checkpoints that became valid.
    pub checkpoints: u64,
    /// How long the last one took, and how long ago it was; `None` before the
    /// first.
    pub last_checkpoint: Option<(Duration, Duration)>,
    /// Length of the last one.
    pub checkpoint_bytes: u64,
    /// Files and directories.
    pub cells: usize,
    /// Names.
    pub entries: usize,
    /// Bytes of memory that both take.
    pub directory_bytes: usize,
    /// Small files.
    pub small: MemoryFigures,
    /// Replies that are remembered for retransmissions.
    pub duplicates: usize,
    /// Operations over several objects that are not finished.
    pub intentions: usize,
    /// Operations over several sites that this one decided.
    pub decisions: u64,
    /// Requests that wait to be carried out.
    pub waiting: usize,
    /// Replies that wait for the log.
    pub held: usize,
}

/// The frames of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameFigures {
    /// How many records each has: what shares one append.
    pub records: Histogram,
    /// Their bytes.
    pub bytes: u64,
}

/// What a site counts as it goes.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    checkpoints: u64,
    last_checkpoint: Option<(Duration, Time)>,
    decisions: u64,
}

impl Counted {
    pub(crate) fn checkpoint(&mut self, now: Time, begun: Time) {
        self.checkpoints += 1;
        self.last_checkpoint = Some((now.since(begun), now));
    }

    pub(crate) const fn decision(&mut self) {
        self.decisions += 1;
    }
}

impl Site {
    /// Everything that was counted.
    #[must_use]
    pub fn figures(&self, now: Time) -> SiteFigures {
        let directory = self.directory().memory_use();
        let log = self.log.as_ref();
        let last = self.counted.last_checkpoint;
        SiteFigures {
            is_serving: self.is_serving(),
            frames: log.map(SiteLog::figures).unwrap_or_default(),
            log_bytes_since_checkpoint: log.map_or(0, |log| log.bytes_since_checkpoint),
            checkpoints: self.counted.checkpoints,
            last_checkpoint: last.map(|(took, at)| (took, now.since(at))),
            checkpoint_bytes: self.checkpoint_bytes,
            cells: directory.cells,
            entries: directory.entries,
            directory_bytes: directory.bytes,
            small: self.small_files().memory(),
            duplicates: self.state.duplicates.len(),
            intentions: self.open_intentions(),
            decisions: self.counted.decisions,
            waiting: self.queued(),
            held: self.waits.held(),
        }
    }
}
