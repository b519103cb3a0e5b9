//! What may be found in a store: for each object, bytes that are known, and the
//! changes since then, each certain or possible.
//!
//! A change counts per 4 KiB block: all its bytes in a block are there, or none
//! is. Which of the possible ones happened is read off the observed bytes: every
//! write has bytes of its own, none of them zero.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crossdock_names::{Epoch, ObjectId, Version};
use crossdock_peer::{CallId, ObjectStat};
use crossdock_types::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What a request changes in an object.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: u64, bytes: Bytes },
    Append { offset: u64, bytes: Bytes },
    Zero { offset: u64, length: u64 },
    Truncate { size: u64, generation: u64 },
}

/// How sure a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// Not answered, or not before a crash.
    Possible,
    /// Answered, and lost by a crash if it wants to.
    Seen,
    /// Answered, and never lost.
    Durable,
}

/// A change and what has become of it.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) call: CallId,
    pub(super) change: Change,
    pub(super) certainty: Certainty,
    pub(super) version: Version,
}

/// Whether an object is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Absent,
    Present,
    /// A create or a remove was not answered.
    Unsure,
}

/// What is known of one object.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) is_log: bool,
    pub(super) presence: Presence,
    pub(super) attributes: Bytes,
    /// Content that is known, up to the known size.
    base: Vec<u8>,
    base_version: Version,
    pub(super) generation: u64,
    /// The highest that was ever sent.
    pub(super) generation_sent: u64,
    pub(super) fence: Epoch,
    pub(super) fence_possible: Epoch,
    /// In order of issue.
    pub(super) ops: Vec<Op>,
    /// Ranges that durable changes touched, each with its version; that of
    /// appends is the store's and not known.
    touched: Vec<(u64, u64, Version)>,
    /// Appends behind one that was refused: they do not fit any more.
    orphans: BTreeSet<CallId>,
    /// A block of it was found to be bad: contents are not checked any more,
    /// except that what is shown must not be foreign.
    pub(super) is_damaged: bool,
}

pub(super) type Model = BTreeMap<ObjectId, Object>;

impl Object {
    pub(super) fn new(is_log: bool) -> Self {
        Self {
            is_log,
            presence: Presence::Absent,
            attributes: Bytes::new(),
            base: Vec::new(),
            base_version: Version::NONE,
            generation: 0,
            generation_sent: 0,
            fence: Epoch(0),
            fence_possible: Epoch(0),
            ops: Vec::new(),
            touched: Vec::new(),
            orphans: BTreeSet::new(),
            is_damaged: false,
        }
    }

    /// As after a create that was answered, or a remove.
    pub(super) fn reset(&mut self, presence: Presence) {
        *self = Self {
            presence,
            attributes: self.attributes.clone(),
            ..Self::new(self.is_log)
        };
    }

    /// What was not durable may be lost from now on.
    pub(super) fn crash(&mut self) {
        for op in &mut self.ops {
            if op.certainty == Certainty::Seen {
                op.certainty = Certainty::Possible;
            }
        }
    }

    pub(super) fn set_certainty(&mut self, call: CallId, certainty: Certainty) {
        if let Some(op) = self.ops.iter_mut().find(|op| op.call == call) {
            op.certainty = certainty;
        }
    }

    /// Nothing was changed by that call.
    pub(super) fn forget(&mut self, call: CallId) {
        let is_append = |op: &&Op| matches!(op.change, Change::Append { .. });
        let behind = self.ops.iter().skip_while(|op| op.call != call).skip(1);
        let behind: Vec<CallId> = behind.filter(is_append).map(|op| op.call).collect();
        self.orphans.extend(behind);
        self.orphans.remove(&call);
        self.ops.retain(|op| op.call != call);
    }

    /// Whether an append was to go behind one that was refused.
    pub(super) fn is_orphan(&self, call: CallId) -> bool {
        self.orphans.contains(&call)
    }

    /// Merges certain changes into the known content. Not while a read is on
    /// its way that may have been answered before they came.
    pub(super) fn fold(&mut self) {
        let count = self.ops.iter().take_while(|op| op.is_durable()).count();
        for op in self.ops.drain(..count).collect::<Vec<_>>() {
            self.touched.push(op.touched());
            op.change.apply(&mut self.base);
            self.base_version = self.base_version.max(op.version);
            if let Change::Truncate { generation, .. } = op.change {
                self.generation = self.generation.max(generation);
            }
        }
    }

    /// The content with all changes, also those that are only possible.
    pub(super) fn newest(&self) -> Vec<u8> {
        let mut content = self.base.clone();
        for op in &self.ops {
            op.change.apply(&mut content);
        }
        content
    }

    pub(super) fn certain_calls(&self) -> BTreeSet<CallId> {
        let certain = |op: &&Op| op.certainty != Certainty::Possible;
        self.ops.iter().filter(certain).map(|op| op.call).collect()
    }

    /// Whether a certain write in the range is newer than `version`, and shows.
    pub(super) fn is_newer(&self, offset: u64, length: u64, version: Version) -> bool {
        let is_cut = |op: &Op| matches!(op.change, Change::Truncate { .. });
        let is_newer = |op: &Op| {
            let (from, to) = op.change.range();
            let is_write = matches!(op.change, Change::Write { .. });
            let meets = from < offset + length && offset < to;
            is_write && meets && op.version > version && op.certainty != Certainty::Possible
        };
        !self.ops.iter().any(is_cut) && self.ops.iter().any(is_newer)
    }

    /// Checks the answer to a read; `certain` are changes that it must show.
    pub(super) fn check_read(
        &self,
        offset: u64,
        length: u64,
        observed: &[u8],
        certain: &BTreeSet<CallId>,
    ) -> Result<(), String> {
        let sizes = self.sizes(certain);
        let expected = |size: &u64| size.saturating_sub(offset).min(length);
        let observed_bytes = observed.len() as u64;
        if !sizes.iter().any(|size| expected(size) == observed_bytes) {
            return Err(format!(
                "a read of {length} at {offset} gave {observed_bytes} bytes, the object may end at {sizes:?}"
            ));
        }
        self.check_bytes(offset, observed, certain)
    }

    /// Checks stat and content together.
    pub(super) fn check_all(&self, stat: &ObjectStat, observed: &[u8]) -> Result<(), String> {
        let certain = self.certain_calls();
        self.check_stat(stat, &certain)?;
        if observed.len() as u64 != stat.size_bytes {
            return Err(format!(
                "stat says {} bytes, a read of all gave {}",
                stat.size_bytes,
                observed.len()
            ));
        }
        self.check_bytes(0, observed, &certain)
    }

    /// Takes what was found after opening for known.
    pub(super) fn settle(&mut self, stat: &ObjectStat, observed: &[u8]) {
        let durable = self.ops.iter().filter(|op| op.is_durable());
        self.touched.extend(durable.map(Op::touched));
        self.presence = Presence::Present;
        self.base = observed.to_vec();
        self.base_version = stat.version;
        self.generation = stat.truncate_generation;
        self.generation_sent = stat.truncate_generation;
        self.fence = stat.fence;
        self.fence_possible = stat.fence;
        self.ops.clear();
        self.orphans.clear();
    }

    /// Ranges that a list of the changes since a version must have.
    pub(super) fn changes(&self, since: Version) -> Vec<(u64, u64)> {
        let durable = self.ops.iter().filter(|op| op.is_durable());
        let sizes = self.sizes(&durable.clone().map(|op| op.call).collect());
        let size = sizes.first().copied().unwrap_or(0);
        let touched = self.touched.iter().copied().chain(durable.map(Op::touched));
        touched
            .filter(|(_, _, version)| *version >= since)
            .map(|(from, to, _)| (from, to.min(size)))
            .filter(|(from, to)| from < to)
            .collect()
    }

    /// An orderly end keeps everything that was answered.
    pub(super) fn make_durable(&mut self) {
        for op in &mut self.ops {
            if op.certainty == Certainty::Seen {
                op.certainty = Certainty::Durable;
            }
        }
    }

    /// Checks the answer to a stat.
    pub(super) fn check_stat(
        &self,
        stat: &ObjectStat,
        certain: &BTreeSet<CallId>,
    ) -> Result<(), String> {
        let sizes = self.sizes(certain);
        if !sizes.contains(&stat.size_bytes) {
            return Err(format!(
                "it ends at {}, should at one of {sizes:?}",
                stat.size_bytes
            ));
        }
        let certain_ops = self.ops.iter().filter(|op| certain.contains(&op.call));
        let oldest = certain_ops.map(|op| op.version).max();
        // The store itself gives versions to what is appended.
        if !self.is_log && stat.version < oldest.unwrap_or(self.base_version) {
            return Err(format!("version {} is older than {oldest:?}", stat.version));
        }
        let generations = (self.generation, self.generation_sent);
        if !(generations.0..=generations.1).contains(&stat.truncate_generation) {
            return Err(format!(
                "truncate generation {} is not within {generations:?}",
                stat.truncate_generation
            ));
        }
        if !(self.fence..=self.fence_possible).contains(&stat.fence) {
            return Err(format!(
                "fence {} is not within {} and {}",
                stat.fence, self.fence, self.fence_possible
            ));
        }
        if stat.attributes != self.attributes {
            return Err(format!("attributes {:?} are not its own", stat.attributes));
        }
        Ok(())
    }

    /// Where the object may end.
    fn sizes(&self, certain: &BTreeSet<CallId>) -> BTreeSet<u64> {
        let mut sizes = BTreeSet::from([self.base.len() as u64]);
        for op in &self.ops {
            let after: BTreeSet<u64> = sizes
                .iter()
                .flat_map(|&size| op.change.sizes_after(size, certain.contains(&op.call)))
                .collect();
            if certain.contains(&op.call) {
                sizes = after;
            } else {
                sizes.extend(after);
            }
        }
        sizes
    }

    fn check_bytes(
        &self,
        offset: u64,
        observed: &[u8],
        certain: &BTreeSet<CallId>,
    ) -> Result<(), String> {
        let end = offset + observed.len() as u64;
        let mut at = offset;
        while at < end {
            let block_end = ((at / BLOCK + 1) * BLOCK).min(end);
            let bytes = &observed[index(at - offset)..index(block_end - offset)];
            self.check_block(at, bytes, certain)
                .map_err(|what| format!("block {}: {what}", at / BLOCK))?;
            at = block_end;
        }
        Ok(())
    }

    /// Explains the bytes of one block from the newest change to the oldest.
    fn check_block(
        &self,
        start: u64,
        observed: &[u8],
        certain: &BTreeSet<CallId>,
    ) -> Result<(), String> {
        // What no newer change explains.
        let mut open = vec![(start, start + observed.len() as u64)];
        for op in self.ops.iter().rev() {
            let (from, to) = op.change.range();
            let meets = |&(a, b): &(u64, u64)| (a.max(from), b.min(to));
            let parts: Vec<_> = open.iter().map(meets).filter(|(a, b)| a < b).collect();
            let shown = parts.iter().all(|&(a, b)| {
                let bytes = &observed[index(a - start)..index(b - start)];
                op.change.is_at(a, bytes)
            });
            if shown {
                open = open
                    .iter()
                    .flat_map(|&part| without(part, from, to))
                    .collect();
            } else if certain.contains(&op.call) {
                return Err(format!(
                    "{:?} ({:?}) is not there; found {}",
                    op.change.brief(),
                    op.certainty,
                    excerpt(observed)
                ));
            }
        }
        for (a, b) in open {
            let bytes = &observed[index(a - start)..index(b - start)];
            let known = |at: u64| self.base.get(index(at)).copied().unwrap_or(0);
            let differs = bytes
                .iter()
                .zip(a..)
                .find(|(byte, at)| **byte != known(*at));
            if let Some((byte, at)) = differs {
                return Err(format!(
                    "byte {at} is {byte:#x}, was {:#x}, and no change explains it; bytes {a}..{b} are open of {}..; possible: {:?}",
                    known(at),
                    start,
                    self.ops
                        .iter()
                        .map(|op| op.change.brief())
                        .collect::<Vec<_>>(),
                ));
            }
        }
        Ok(())
    }
}

impl Op {
    pub(super) fn is_durable(&self) -> bool {
        self.certainty == Certainty::Durable
    }

    fn touched(&self) -> (u64, u64, Version) {
        let (from, to) = self.change.range();
        let version = match self.change {
            Change::Append { .. } => Version::NONE,
            _ => self.version,
        };
        (from, to, version)
    }
}

impl Change {
    /// The bytes that it touches.
    pub(super) fn range(&self) -> (u64, u64) {
        match self {
            Self::Write { offset, bytes } | Self::Append { offset, bytes } => {
                (*offset, offset + bytes.len() as u64)
            }
            Self::Zero { offset, length } => (*offset, offset.saturating_add(*length)),
            Self::Truncate { size, .. } => (*size, u64::MAX),
        }
    }

    /// One line for the history.
    pub(super) fn brief(&self) -> String {
        let (from, to) = self.range();
        match self {
            Self::Write { .. } => format!("write {from}..{to}"),
            Self::Append { .. } => format!("append {from}..{to}"),
            Self::Zero { .. } => format!("zero {from}..{to}"),
            Self::Truncate { generation, .. } => format!("truncate {from} g{generation}"),
        }
    }

    fn is_at(&self, at: u64, observed: &[u8]) -> bool {
        match self {
            Self::Write { offset, bytes } | Self::Append { offset, bytes } => {
                let from = index(at - offset);
                bytes[from..from + observed.len()] == *observed
            }
            Self::Zero { .. } | Self::Truncate { .. } => observed.iter().all(|&byte| byte == 0),
        }
    }

    fn apply(&self, content: &mut Vec<u8>) {
        let (from, to) = self.range();
        match self {
            Self::Write { bytes, .. } | Self::Append { bytes, .. } => {
                if content.len() < index(to) {
                    content.resize(index(to), 0);
                }
                content[index(from)..index(to)].copy_from_slice(bytes);
            }
            Self::Zero { .. } => {
                let end = to.min(content.len() as u64);
                if from < end {
                    content[index(from)..index(end)].fill(0);
                }
            }
            Self::Truncate { size, .. } => content.resize(index(*size), 0),
        }
    }

    /// Where an object that ended at `size` may end after this.
    fn sizes_after(&self, size: u64, whole: bool) -> Vec<u64> {
        let (from, to) = self.range();
        match self {
            Self::Write { .. } if whole => vec![size.max(to)],
            // Per block.
            Self::Write { .. } => (from / BLOCK..to.div_ceil(BLOCK))
                .map(|block| size.max(((block + 1) * BLOCK).min(to)))
                .collect(),
            // Never behind a gap, never in part.
            Self::Append { .. } if size == from => vec![to],
            Self::Append { .. } => Vec::new(),
            Self::Zero { .. } => vec![size],
            Self::Truncate { size, .. } => vec![*size],
        }
    }
}

/// `part` without `from..to`.
pub(super) fn without(part: (u64, u64), from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let before = (part.0, part.1.min(from));
    let after = (part.0.max(to), part.1);
    [before, after].into_iter().filter(|(a, b)| a < b)
}

fn excerpt(bytes: &[u8]) -> String {
    if bytes.iter().all(|&byte| byte == 0) {
        return format!("{} zeros", bytes.len());
    }
    format!("{:02x?}…", &bytes[..bytes.len().min(12)])
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("simulated objects are small")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(call: u64, offset: u64, length: usize, certainty: Certainty) -> Op {
        Op {
            call: CallId(call),
            change: Change::Write {
                offset,
                bytes: Bytes::from(vec![u8::try_from(call).expect("small"); length]),
            },
            certainty,
            version: Version(call),
        }
    }

    fn object(ops: Vec<Op>) -> Object {
        Object {
            ops,
            base: vec![0xb0; 10_000],
            ..Object::new(false)
        }
    }

    fn check(object: &Object, observed: &[u8]) -> Result<(), String> {
        object.check_read(0, 1 << 20, observed, &object.certain_calls())
    }

    /// Goal: each block is old or new; half a block, another's bytes and a lost
    /// certain change are found.
    #[test]
    fn a_block_is_old_or_new_and_never_mixed() {
        let object = object(vec![
            write(1, 4000, 200, Certainty::Possible),
            write(2, 100, 10, Certainty::Durable),
        ]);
        let mut bytes = vec![0xb0; 10_000];
        assert!(check(&object, &bytes).is_err(), "write 2 is lost");
        bytes[100..110].fill(2);
        assert_eq!(check(&object, &bytes), Ok(()));
        bytes[4096..4200].fill(1);
        assert_eq!(
            check(&object, &bytes),
            Ok(()),
            "new in its second block only"
        );
        bytes[4000..4050].fill(1);
        assert!(check(&object, &bytes).is_err(), "mixed");
        bytes[4000..4096].fill(1);
        assert_eq!(check(&object, &bytes), Ok(()));
        bytes[9000] = 7;
        assert!(check(&object, &bytes).is_err(), "foreign");
        assert!(check(&object, &bytes[..9999]).is_err(), "too short");
    }

    /// Goal: a change that lies under a newer one is not missed when the newer
    /// one was lost, and not asked for when it was not.
    #[test]
    fn newer_changes_hide_older_ones() {
        let object = object(vec![
            write(1, 0, 4096, Certainty::Durable),
            write(2, 0, 4096, Certainty::Possible),
        ]);
        let mut bytes = vec![0xb0; 10_000];
        assert!(check(&object, &bytes).is_err());
        bytes[..4096].fill(2);
        assert_eq!(check(&object, &bytes), Ok(()));
        bytes[..4096].fill(1);
        assert_eq!(check(&object, &bytes), Ok(()));
    }
}
