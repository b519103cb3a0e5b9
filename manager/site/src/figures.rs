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

/// What a site counts of its checkpoints.
#[derive(Debug, Default)]
pub(crate) struct CheckpointFigures {
    count: u64,
    last: Option<(Duration, Time)>,
}

impl CheckpointFigures {
    pub(crate) fn completed(&mut self, now: Time, begun: Time) {
        self.count += 1;
        self.last = Some((now.since(begun), now));
    }
}

impl Site {
    /// Everything that was counted.
    #[must_use]
    pub fn figures(&self, now: Time) -> SiteFigures {
        let directory = self.directory().memory_use();
        let log = self.log.as_ref();
        let last = self.counted.last;
        SiteFigures {
            is_serving: self.is_serving(),
            frames: log.map(SiteLog::figures).unwrap_or_default(),
            log_bytes_since_checkpoint: log.map_or(0, |log| log.bytes_since_checkpoint),
            checkpoints: self.counted.count,
            last_checkpoint: last.map(|(took, at)| (took, now.since(at))),
            checkpoint_bytes: self.checkpoint_bytes,
            cells: directory.cells,
            entries: directory.entries,
            directory_bytes: directory.bytes,
            small: self.small_files().memory(),
            duplicates: self.state.duplicates.len(),
            intentions: self.open_intentions(),
            waiting: self.queued(),
            held: self.waits.held(),
        }
    }
}
