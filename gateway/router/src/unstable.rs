//! Which holders took unstable bytes of which file, and the write verifier
//! (CONSISTENCY 6).
//!
//! A holder is the file's site or a column object; it is remembered with the
//! incarnation that took the bytes. When another incarnation shows up, the
//! bytes may be lost, and the loss counter, hence the verifier, changes before
//! any reply that comes of it is released.

use std::collections::BTreeMap;

use crossdock_names::{FileCapability, FileRef, Incarnation, ObjectId};
use crossdock_peer::WriterId;

use crate::message::WriteVerifier;

/// Who holds bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// Bytes beyond the threshold.
    Column(ObjectId),
    /// Bytes below the threshold, and pushed attributes.
    Site,
}

/// What a holder took last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) incarnation: Incarnation,
    write: u64, // Number of the newest write that it took.
}

#[derive(Debug, Default)]
struct UnstableFile {
    since: u64, // Number of the first write.
    holders: BTreeMap<Holder, Taken>,
    /// By what right the columns were written last.
    capability: Option<FileCapability>,
}

/// The soft state of all files with unstable bytes.
#[derive(Debug)]
pub(crate) struct Unstable {
    files: BTreeMap<FileRef, UnstableFile>,
    by_age: BTreeMap<u64, FileRef>,
    holders: usize,
    writes_total: u64,
    instance: WriterId,
    losses_total: u64,
}

impl Unstable {
    pub(crate) const fn new(instance: WriterId) -> Self {
        Self {
            files: BTreeMap::new(),
            by_age: BTreeMap::new(),
            holders: 0,
            writes_total: 0,
            instance,
            losses_total: 0,
        }
    }

    /// hash(instance, loss counter); no two counts of one instance share it.
    pub(crate) const fn verifier(&self) -> WriteVerifier {
        mix(mix(self.instance.0) ^ self.losses_total).to_be_bytes()
    }

    /// How many holders are remembered.
    pub(crate) const fn len(&self) -> usize {
        self.holders
    }

    /// Unstable bytes may have been lost. All that is remembered was answered
    /// with an older verifier than the one from now on, so its writers resend
    /// it in any case: it is forgotten, and one restart of a node does not
    /// change the verifier once per file.
    pub(crate) fn lose(&mut self) {
        self.losses_total += 1;
        self.files.clear();
        self.by_age.clear();
        self.holders = 0;
    }

    /// `holder` took unstable bytes.
    pub(crate) fn took(&mut self, file: FileRef, holder: Holder, incarnation: Incarnation) {
        self.saw(file, holder, incarnation);
        self.writes_total += 1;
        let write = self.writes_total;
        let state = self.files.entry(file).or_default();
        if state.holders.is_empty() {
            state.since = write;
            self.by_age.insert(write, file);
        }
        let taken = Taken { incarnation, write };
        if state.holders.insert(holder, taken).is_none() {
            self.holders += 1;
        }
    }

    /// The columns of `file` are to be committed by this right, if there is anything
    /// to commit.
    pub(crate) fn keep_right(&mut self, file: FileRef, capability: Option<FileCapability>) {
        if let Some(state) = self.files.get_mut(&file) {
            state.capability = capability;
        }
    }

    /// By what right the columns of `file` were written.
    pub(crate) fn right(&self, file: FileRef) -> Option<FileCapability> {
        self.files.get(&file).and_then(|state| state.capability)
    }

    /// `holder` answered under `incarnation`.
    pub(crate) fn saw(&mut self, file: FileRef, holder: Holder, incarnation: Incarnation) {
        let known = self.files.get(&file);
        let known = known.and_then(|state| state.holders.get(&holder));
        if known.is_some_and(|taken| taken.incarnation != incarnation) {
            self.lose();
        }
    }

    /// All that has to be committed for `file` now.
    pub(crate) fn snapshot(&self, file: FileRef) -> Vec<(Holder, Taken)> {
        let state = self.files.get(&file);
        state.map_or_else(Vec::new, |state| {
            state.holders.iter().map(|(h, t)| (*h, *t)).collect()
        })
    }

    /// The file whose bytes have been unstable for longest.
    pub(crate) fn oldest(&self) -> Option<FileRef> {
        self.by_age.first_key_value().map(|(_, file)| *file)
    }

    /// What `holder` took up to the snapshot is durable, or gone for good.
    pub(crate) fn settled(&mut self, file: FileRef, holder: Holder, snapshot: Taken) {
        let Some(state) = self.files.get_mut(&file) else {
            return;
        };
        // It may have taken more meanwhile: then it stays.
        if state.holders.get(&holder) == Some(&snapshot) {
            state.holders.remove(&holder);
            self.holders -= 1;
        }
        if state.holders.is_empty() {
            self.by_age.remove(&state.since);
            self.files.remove(&file);
        }
    }
}

/// SplitMix64's finaliser: a bijection.
const fn mix(number: u64) -> u64 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

#[cfg(test)]
mod tests {
    use crossdock_names::FileId;

    use super::*;

    const FILE: FileRef = FileRef {
        id: FileId(1),
        generation: 1,
    };
    const OTHER: FileRef = FileRef {
        id: FileId(2),
        generation: 1,
    };

    /// Goal: a commit forgets what it covered, and not what came after it began.
    #[test]
    fn commit_settles_only_what_it_covered() {
        let mut unstable = Unstable::new(WriterId(1));
        unstable.took(FILE, Holder::Site, Incarnation(1));
        unstable.took(OTHER, Holder::Site, Incarnation(1));
        let early = unstable.snapshot(FILE);
        unstable.took(FILE, Holder::Site, Incarnation(1));
        unstable.settled(FILE, early[0].0, early[0].1);
        assert_eq!((unstable.len(), unstable.oldest()), (2, Some(FILE)));
        let late = unstable.snapshot(FILE);
        unstable.settled(FILE, late[0].0, late[0].1);
        assert_eq!((unstable.len(), unstable.oldest()), (1, Some(OTHER)));
    }

    /// Goal: another incarnation changes the verifier once, not once per file.
    #[test]
    fn one_restart_is_one_loss() {
        let mut unstable = Unstable::new(WriterId(1));
        let before = unstable.verifier();
        unstable.took(FILE, Holder::Site, Incarnation(1));
        unstable.took(OTHER, Holder::Site, Incarnation(1));
        assert_eq!(unstable.verifier(), before);
        unstable.took(FILE, Holder::Site, Incarnation(2));
        let after = unstable.verifier();
        assert_ne!(after, before);
        unstable.took(OTHER, Holder::Site, Incarnation(2));
        assert_eq!(unstable.verifier(), after);
        assert_eq!(unstable.len(), 2);
    }
}
