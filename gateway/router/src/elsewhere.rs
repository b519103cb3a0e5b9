//! What other gateways keep of files that are read again and again: they have told so, and send
//! it to clients of this one (docs/decisions/0052).
//!
//! All of it is a hint. What counts is the state of a file, by its time of change, which no two
//! states share: a lease of this gateway says that it is the current one, and the other gateway
//! has the bytes of that state or says no.

use std::collections::{BTreeMap, VecDeque};

use crossdock_names::{FileRef, HostId};
use crossdock_types::WallTime;

/// Files of which it is remembered.
const FILES_MAX: usize = 4096;
/// A gateway that has said no so often in a row does not keep the file any more.
const REFUSALS_MAX: u8 = 2;

/// Who keeps which files: the last of those that have told.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    files: BTreeMap<FileRef, Keeper>,
    /// The one told of first is the first.
    order: VecDeque<FileRef>,
}

#[derive(Clone, Copy, Debug)]
struct Keeper {
    gateway: HostId,
    /// In which state.
    changed: WallTime,
    refusals: u8,
}

impl Elsewhere {
    /// A gateway has told that it keeps a file as it is since `changed`.
    pub(crate) fn note(&mut self, gateway: HostId, file: FileRef, changed: WallTime) {
        let keeper = Keeper {
            gateway,
            changed,
            refusals: 0,
        };
        let before = self.files.insert(file, keeper);
        if before.is_none() {
            self.order.push_back(file);
        }
        if self.order.len() > FILES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.files.remove(&oldest);
        }
    }

    /// Who keeps a file as it is since `changed`.
    pub(crate) fn keeper(&self, file: FileRef, changed: WallTime) -> Option<HostId> {
        let keeper = self.files.get(&file)?;
        let may_have = keeper.changed == changed && keeper.refusals < REFUSALS_MAX;
        may_have.then_some(keeper.gateway)
    }

    /// It was asked, and has given what was asked for or not.
    pub(crate) fn answered(&mut self, file: FileRef, has_given: bool) {
        if let Some(keeper) = self.files.get_mut(&file) {
            keeper.refusals = match has_given {
                true => 0,
                false => keeper.refusals.saturating_add(1),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use crossdock_names::FileId;

    use super::*;

    const NOW: WallTime = WallTime(7);
    const GATEWAY: HostId = HostId(3);

    fn file(number: u64) -> FileRef {
        FileRef {
            id: FileId(number),
            generation: 1,
        }
    }

    /// Goal: a gateway is asked for a file in the state that it keeps only, and no more when it
    /// has said no again and again; what it tells anew counts.
    #[test]
    fn who_keeps_a_file_is_asked_for_that_state() {
        let mut elsewhere = Elsewhere::default();
        elsewhere.note(GATEWAY, file(1), NOW);
        assert_eq!(elsewhere.keeper(file(1), NOW), Some(GATEWAY));
        assert_eq!(elsewhere.keeper(file(1), WallTime(8)), None);
        assert_eq!(elsewhere.keeper(file(2), NOW), None);
        for has_given in [false, true, false] {
            elsewhere.answered(file(1), has_given);
            assert_eq!(elsewhere.keeper(file(1), NOW), Some(GATEWAY));
        }
        elsewhere.answered(file(1), false);
        assert_eq!(elsewhere.keeper(file(1), NOW), None);
        let other = HostId(4);
        elsewhere.note(other, file(1), WallTime(8));
        assert_eq!(elsewhere.keeper(file(1), NOW), None);
        assert_eq!(elsewhere.keeper(file(1), WallTime(8)), Some(other));
    }

    /// Goal: there is a bound, and what was told of first goes first.
    #[test]
    fn few_files_are_remembered() {
        let mut elsewhere = Elsewhere::default();
        for number in 0..=FILES_MAX as u64 {
            elsewhere.note(GATEWAY, file(number), NOW);
        }
        assert_eq!(
            (elsewhere.files.len(), elsewhere.order.len()),
            (FILES_MAX, FILES_MAX)
        );
        assert_eq!(elsewhere.keeper(file(0), NOW), None);
        assert_eq!(elsewhere.keeper(file(1), NOW), Some(GATEWAY));
    }
}
