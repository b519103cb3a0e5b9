//! Lists of objects and of changes: from the index, with what it does not have yet.

use std::collections::BTreeSet;

use crossdock_names::{ObjectClass, ObjectId, Version};
use crossdock_peer::{CallId, ChangedRange, ChangesPage, NodeAnswer, NodeError};

use crate::index::IndexCall;
use crate::store::{BLOCK, Store, busy};

/// Ids in one answer.
const LIST_MAX: usize = 4096;

/// Lists at a time.
const LISTS_MAX: usize = 256;

/// A list that the index is asked for.
#[derive(Debug)]
pub(crate) struct ListWait {
    call: CallId,
    class: ObjectClass,
    placement: Option<u64>,
    after: Option<ObjectId>,
    limit: usize,
    asked: usize,
}

/// A list of changes that the index is asked for.
#[derive(Debug)]
pub(crate) struct ChangesWait {
    call: CallId,
    since: Version,
}

impl ListWait {
    fn wants(&self, id: &ObjectId) -> bool {
        id.class == self.class
            && self
                .placement
                .is_none_or(|placement| placement == id.placement)
            && self.after.is_none_or(|after| *id > after)
    }
}

impl Store {
    pub(crate) fn begin_list(
        &mut self,
        call: CallId,
        class: ObjectClass,
        placement: Option<u64>,
        after: Option<ObjectId>,
        limit: usize,
    ) {
        if let Some(error) = self.index_error() {
            self.refuse(call, error);
            return;
        }
        if self.lists.len() >= LISTS_MAX {
            self.refuse(call, busy());
            return;
        }
        let limit = limit.clamp(1, LIST_MAX);
        let wait = ListWait {
            call,
            class,
            placement,
            after,
            limit,
            asked: limit + 1,
        };
        self.ask_list(&wait);
        self.lists.push_back(wait);
    }

    fn ask_list(&mut self, wait: &ListWait) {
        self.ask_index(IndexCall::List {
            class: wait.class,
            placement: wait.placement,
            after: wait.after,
            limit: wait.asked,
        });
    }

    /// What memory knows of an id is as new as the index or newer.
    pub(crate) fn list_answered(&mut self, found: Vec<ObjectId>) {
        let Some(mut wait) = self.lists.pop_front() else {
            return;
        };
        let is_cut = found.len() == wait.asked;
        let last = found.last().copied();
        let mut ids: BTreeSet<ObjectId> = found.into_iter().collect();
        for (id, entry) in &self.objects {
            if entry.object.is_none() {
                ids.remove(id);
            } else if wait.wants(id) && (!is_cut || last.is_some_and(|last| *id <= last)) {
                ids.insert(*id);
            }
        }
        if is_cut && ids.len() <= wait.limit {
            // Many of them are removed and the index does not know yet.
            wait.asked *= 2;
            self.ask_list(&wait);
            self.lists.push_back(wait);
            return;
        }
        let more = ids.len() > wait.limit;
        let objects = ids.into_iter().take(wait.limit).collect();
        self.reply(wait.call, NodeAnswer::List { objects, more });
    }

    /// Changes are read from the index; what it does not have yet is added.
    pub(crate) fn begin_changes(&mut self, call: CallId, since: Version, after: Option<ObjectId>) {
        if let Some(error) = self.index_error() {
            self.refuse(call, error);
            return;
        }
        if self.changes.len() >= LISTS_MAX {
            self.refuse(call, busy());
            return;
        }
        self.changes.push_back(ChangesWait { call, since });
        self.ask_index(IndexCall::Changes { since, after });
    }

    pub(crate) fn changes_answered(
        &mut self,
        indexed: Vec<(u64, ChangedRange)>,
        more_after: Option<ObjectId>,
    ) {
        let Some(ChangesWait { call, since }) = self.changes.pop_front() else {
            return;
        };
        // What was removed, or cut to nothing, since the index was told has none of these
        // runs any more, and one that was made anew never had them.
        let is_there = |(serial, range): &(u64, ChangedRange)| {
            let entry = self.objects.get(&range.object);
            entry.is_none_or(|entry| {
                let object = entry.object.as_deref();
                object.is_some_and(|object| object.head.serial == *serial)
            })
        };
        let indexed = indexed.into_iter().filter(is_there);
        let mut changes = indexed.map(|(_, range)| range).collect();
        // With every page: what leaves memory between two pages is in the index
        // by then, maybe before the place where the pages are.
        self.push_memory_changes(since, &mut changes);
        let page = ChangesPage {
            changes,
            more_after,
        };
        self.reply(call, NodeAnswer::Changes(page));
    }

    /// The index has failed: whoever waits for its lists is told.
    pub(crate) fn fail_lists(&mut self, error: &NodeError) {
        for wait in std::mem::take(&mut self.lists) {
            self.refuse(wait.call, error.clone());
        }
        for wait in std::mem::take(&mut self.changes) {
            self.refuse(wait.call, error.clone());
        }
    }

    /// What is in memory may be told twice; nothing is left out.
    fn push_memory_changes(&self, since: Version, changes: &mut Vec<ChangedRange>) {
        for (id, entry) in &self.objects {
            let Some(object) = entry.object.as_deref() else {
                continue;
            };
            let mut push = |offset_bytes, length_bytes, version| {
                if version >= since {
                    changes.push(ChangedRange {
                        object: *id,
                        offset_bytes,
                        length_bytes,
                        version,
                    });
                }
            };
            // Columns have holes, also before unstable bytes behind their end.
            let has_grown = object.visible_size > object.head.size;
            let has_holes = id.class == ObjectClass::Column && has_grown;
            if entry.is_dirty || entry.batch > self.checkpoint.applied() || has_holes {
                // Of what was cut to nothing, too: others may not have been.
                push(0, object.visible_size, object.head.hole_version);
            }
            // Behind the end of an object that was cut there are zeros, up to a block's.
            for (offset, piece) in object.overlay.iter() {
                let length = object.visible_size.saturating_sub(offset).min(piece.length);
                if length > 0 {
                    push(offset, length, piece.version);
                }
            }
            let serial = object.head.serial;
            for (_, window) in self.windows.range((serial, 0)..=(serial, u64::MAX)) {
                if window.is_dirty() || window.batch > 0 {
                    for (first, run) in window.runs() {
                        let length = object.head.bytes_in(first, run.blocks());
                        if length > 0 {
                            push(first * BLOCK, length, run.version);
                        }
                    }
                }
            }
        }
    }
}
