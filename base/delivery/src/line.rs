//! Who waits for memory, in the order of their coming.

use std::collections::BTreeSet;

use crossdock_types::Time;

use crate::connection::StreamId;

/// Streams that wait, the longest first.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: BTreeSet<(Time, StreamId)>,
}

impl Line {
    pub(crate) fn insert(&mut self, since: Time, stream: StreamId) {
        self.waiting.insert((since, stream));
    }

    pub(crate) fn remove(&mut self, since: Time, stream: StreamId) {
        self.waiting.remove(&(since, stream));
    }

    pub(crate) fn first(&self) -> Option<StreamId> {
        self.waiting.first().map(|&(_, stream)| stream)
    }

    pub(crate) fn last(&self) -> Option<StreamId> {
        self.waiting.last().map(|&(_, stream)| stream)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
