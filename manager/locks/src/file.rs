//! The locks of one file.

use std::collections::VecDeque;
use std::sync::Arc;

use crossdock_peer::{LockOwner, LockRange, LockWanted, ShareTerms};

use crate::waiting::Waiter;

/// Bytes that somebody has.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) owner: Arc<LockOwner>,
    pub(crate) range: LockRange,
    pub(crate) is_exclusive: bool,
    pub(crate) state: u32,
}

/// A share reservation.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) owner: Arc<LockOwner>,
    pub(crate) terms: ShareTerms,
    pub(crate) state: u32,
}

/// All of a file.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    /// In order of their first bytes; those of one owner overlap nowhere, and
    /// touch only where they differ.
    pub(crate) held: Vec<Held>,
    pub(crate) shares: Vec<Share>,
    /// First come, first served.
    pub(crate) waiting: VecDeque<Waiter>,
}

impl FileLocks {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.shares.is_empty() && self.waiting.is_empty()
    }

    /// Those of others that are in the way.
    pub(crate) fn conflicts<'a>(
        &'a self,
        wanted: &'a LockWanted,
    ) -> impl Iterator<Item = &'a Held> {
        self.held.iter().filter(|held| {
            held.range.overlaps(&wanted.range)
                && (held.is_exclusive || wanted.is_exclusive)
                && *held.owner != wanted.owner
        })
    }

    /// Whether the owner has all of these bytes so, or more strictly.
    pub(crate) fn has(&self, wanted: &LockWanted) -> bool {
        let mut next = wanted.range.first;
        for held in self.held.iter().filter(|held| *held.owner == wanted.owner) {
            let counts = held.is_exclusive || !wanted.is_exclusive;
            if counts && held.range.first <= next && held.range.last >= next {
                if held.range.last >= wanted.range.last {
                    return true;
                }
                next = held.range.last + 1;
            }
        }
        false
    }

    /// Whether the owner has exactly these bytes in one piece or within one,
    /// in the same way: nothing is to be changed.
    pub(crate) fn has_just_so(&self, wanted: &LockWanted, state: u32) -> bool {
        self.held.iter().any(|held| {
            held.range.first <= wanted.range.first
                && held.range.last >= wanted.range.last
                && held.is_exclusive == wanted.is_exclusive
                && held.state == state
                && *held.owner == wanted.owner
        })
    }

    /// Whether the owner has any of these bytes.
    pub(crate) fn has_some(&self, owner: &LockOwner, range: LockRange) -> bool {
        self.held
            .iter()
            .any(|held| held.range.overlaps(&range) && *held.owner == *owner)
    }

    /// Sets the owner's right to a range, POSIX style: what was there before is
    /// cut, and what is alike and touches becomes one. Returns how many pieces
    /// there are less and more.
    pub(crate) fn set(
        &mut self,
        owner: &Arc<LockOwner>,
        range: LockRange,
        mode: Option<bool>,
        state: u32,
    ) -> (usize, usize) {
        let before = range.first.saturating_sub(1);
        let behind = range.last.saturating_add(1);
        let reach = LockRange {
            first: before,
            last: behind,
        };
        let mut old = Vec::new();
        self.held.retain(|held| {
            let concerns = held.range.overlaps(&reach) && held.owner == *owner;
            if concerns {
                old.push(held.clone());
            }
            !concerns
        });
        let removed = old.len();
        let mut new = mode.map(|is_exclusive| Held {
            owner: Arc::clone(owner),
            range,
            is_exclusive,
            state,
        });
        let mut rest = Vec::new();
        for piece in old {
            let is_alike = new.as_ref().is_some_and(|new| {
                new.is_exclusive == piece.is_exclusive && new.state == piece.state
            });
            if is_alike && let Some(new) = &mut new {
                new.range.first = new.range.first.min(piece.range.first);
                new.range.last = new.range.last.max(piece.range.last);
                continue;
            }
            if piece.range.first < range.first {
                let mut left = piece.clone();
                left.range.last = left.range.last.min(range.first - 1);
                rest.push(left);
            }
            if piece.range.last > range.last {
                let mut right = piece;
                right.range.first = right.range.first.max(range.last + 1);
                rest.push(right);
            }
        }
        rest.extend(new);
        let added = rest.len();
        for piece in rest {
            let at = self
                .held
                .partition_point(|held| held.range.first <= piece.range.first);
            self.held.insert(at, piece);
        }
        (removed, added)
    }
}
