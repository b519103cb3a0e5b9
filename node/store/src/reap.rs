//! Frees the runs of removed objects, in the background and in small steps.

use std::collections::{BTreeSet, VecDeque};

use crate::index::{IndexCall, Wanted};
use crate::record::Record;
use crate::runs::WINDOW_BLOCKS;
use crate::store::Store;

/// Windows whose runs are freed in one step.
const REAP_WINDOWS: usize = 16;

/// How far reaping has got.
#[derive(Debug, Default)]
pub(crate) struct Reaping {
    /// The serial whose runs are being freed, and the window to go on from.
    current: Option<(u64, u64)>,
    is_asked: bool,
    /// Windows to be freed next, as the index has found them.
    windows: VecDeque<u64>,
}

impl Store {
    /// Frees the runs of removed objects: windows in memory at once, the others
    /// as the index finds them.
    pub(crate) fn reap(&mut self) {
        loop {
            let Some((serial, from)) = self.reaping.current else {
                let Some(serial) = self.dead.first().copied() else {
                    return;
                };
                self.reaping.current = Some((serial, 0));
                continue;
            };
            if self.reaping.is_asked || !self.has_reap_room() {
                return;
            }
            let Some(number) = self.reaping.windows.pop_front() else {
                self.reaping.is_asked = true;
                self.ask_index(IndexCall::NextWindows {
                    serial,
                    window: from,
                    limit: REAP_WINDOWS,
                });
                return;
            };
            if !self.windows.contains_key(&(serial, number)) {
                self.reaping.windows.push_front(number);
                let windows = vec![(serial, number)];
                self.load(Wanted {
                    windows,
                    ..Wanted::default()
                });
                return;
            }
            self.reap_window(serial, number, false);
            self.reaping.current = Some((serial, number + 1));
        }
    }

    fn has_reap_room(&self) -> bool {
        let is_full = self.journal.used_bytes() > self.journal.ring_bytes() / 8 * 7;
        !is_full && self.journal.gathered_bytes() < self.journal.frame_bytes_max()
    }

    fn reap_window(&mut self, serial: u64, number: u64, is_last: bool) {
        self.record(Record::Reap {
            serial,
            first_block: number * WINDOW_BLOCKS,
            end_block: (number + 1) * WINDOW_BLOCKS,
            is_last,
        });
    }

    /// The index told which windows have runs. What is in memory may be newer.
    pub(crate) fn reap_found(&mut self, serial: u64, found: &[u64]) {
        self.reaping.is_asked = false;
        let Some((_, from)) = self.reaping.current.filter(|(s, _)| *s == serial) else {
            return;
        };
        let is_end = found.len() < REAP_WINDOWS;
        let last = if is_end {
            u64::MAX
        } else {
            found[found.len() - 1]
        };
        let cached = self.windows.range((serial, from)..=(serial, last));
        let with_runs = cached.filter(|(_, window)| window.runs().next().is_some());
        let mut windows: BTreeSet<u64> = with_runs.map(|((_, number), _)| *number).collect();
        // A window in memory without runs was reaped, and the index is behind.
        let unknown = found
            .iter()
            .filter(|n| !self.windows.contains_key(&(serial, **n)));
        windows.extend(unknown);
        self.reaping.windows = windows.into_iter().collect();
        if self.reaping.windows.is_empty() {
            if is_end {
                self.reap_window(serial, 0, true);
                self.reaping.current = None;
            } else {
                self.reaping.current = Some((serial, last + 1));
            }
        }
    }
}
