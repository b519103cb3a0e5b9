//! Decisions that are kept, and decided again.

use std::collections::VecDeque;

use crossdock_limits::DELIVERY_RECORDS_MAX;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::connection::StreamId;
use crate::decide::decide;
use crate::snapshot::{Snapshot, Verdict};

/// One decision: what it saw, and what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// About which stream.
    pub stream: StreamId,
    /// What it saw.
    pub snapshot: Snapshot,
    /// What it was.
    pub verdict: Verdict,
}

/// The last decisions, as many as wanted; none unless somebody asks.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    records: VecDeque<Record>,
    records_max: usize,
}

impl Recorder {
    /// Keeps the last `records_max` from now on.
    pub(crate) fn keep(&mut self, records_max: usize) {
        self.records_max = records_max.min(DELIVERY_RECORDS_MAX);
        let excess = self.records.len().saturating_sub(self.records_max);
        self.records.drain(..excess);
    }

    pub(crate) fn push(&mut self, record: Record) {
        if self.records_max == 0 {
            return;
        }
        if self.records.len() == self.records_max {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }
}

/// A snapshot on which the decision is another one than was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("record {index}: {recorded:?} was decided, and is {decided:?} now")]
pub struct Differs {
    /// Which record.
    pub index: usize,
    /// What it says.
    pub recorded: Verdict,
    /// What is decided on its snapshot here.
    pub decided: Verdict,
}

/// Decides every record's snapshot again; how many there were.
///
/// # Errors
/// The first one whose verdict is another.
pub fn replay<'a>(records: impl IntoIterator<Item = &'a Record>) -> Result<usize, Differs> {
    let mut count = 0;
    for (index, record) in records.into_iter().enumerate() {
        let decided = decide(&record.snapshot);
        if decided != record.verdict {
            return Err(Differs {
                index,
                recorded: record.verdict,
                decided,
            });
        }
        count += 1;
    }
    Ok(count)
}
