//! One object made equal: its existence, its bytes, its end.

use crossdock_names::{ObjectClass, ObjectId, Version};
use crossdock_peer::{
    NodeAnswer, NodeError, NodeRequest, ObjectStat, Order, ReadVersion, Stability,
};

use super::{Asker, Question};
use crate::ranges::in_blocks;

/// Bytes copied per call.
const COPY_BYTES: u64 = crossdock_limits::OBJECT_IO_BYTES_MAX as u64;

impl Asker {
    /// Has an object on the target as the source has it, but for its bytes: what the
    /// source knows of it, and whether the source had truncated it and the target had
    /// not. Then all of it is to be copied: what was cut is told as a range up to the end
    /// that was written back last; unstable bytes may lie far behind it, and between them
    /// what the target still has.
    ///
    /// Whatever is copied goes under the generation that is told here: if the source is
    /// cut again, the target's is older, and that is seen.
    pub(super) async fn prepare(
        &self,
        object: ObjectId,
    ) -> Result<Option<(ObjectStat, bool)>, String> {
        let Some((source, target)) = self.stats(object).await? else {
            return Ok(None);
        };
        let older = target.filter(|target| is_cut_since(target, &source));
        let is_truncated = older.is_some();
        match older {
            // First: the source may grow while it is copied, over a gap that is in no
            // list of changes, where the target still has what was cut. What is left of the
            // target is as old as it was, until all of it is copied.
            Some(older) => self.cut(object, &source, &older, Version::NONE).await?,
            None => self.make(object, &source).await?,
        }
        Ok(Some((source, is_truncated)))
    }

    /// Copies a range with its version, or all of what was truncated; how many bytes. What
    /// the source does not have stays for [`mend`](Self::mend).
    pub(super) async fn copy(
        &self,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<u64, String> {
        let Some((stat, is_truncated)) = self.prepare(object).await? else {
            return Ok(0);
        };
        let (from, to) = match is_truncated {
            true => (0, stat.size_bytes),
            false => in_blocks(&object, offset, offset + length),
        };
        self.copy_range(object, &stat, from, to).await
    }

    /// The same of bytes `from..to` of an object that is there on the target.
    pub(super) async fn copy_range(
        &self,
        object: ObjectId,
        stat: &ObjectStat,
        from: u64,
        to: u64,
    ) -> Result<u64, String> {
        let mut at = from;
        while at < to {
            let read = NodeRequest::Read {
                object,
                offset_bytes: at,
                length_bytes: (to - at).min(COPY_BYTES),
                version: ReadVersion::Current,
                patience_ms: 0,
            };
            let (payload, version) = match self.ask(Question::Node(self.pair.source, read)).await {
                Ok(NodeAnswer::Read { payload, version }) => (payload, version),
                Err(NodeError::NoObject) => break, // Removed meanwhile.
                other => return Err(format!("object {object} cannot be read: {other:?}")),
            };
            if payload.is_empty() {
                break; // Beyond the source's end: the target is cut there.
            }
            let length_read = payload.len() as u64;
            if version > self.newest_of(&object) {
                self.left.borrow_mut().push((object, at, length_read));
                at += length_read;
                continue;
            }
            let write = NodeRequest::Write {
                object,
                offset_bytes: at,
                payload,
                stability: Stability::Stable,
                context: self.context(&object, stat),
                order: Order::Given(version),
            };
            self.write(write).await?;
            at += length_read;
        }
        Ok(at - from)
    }

    /// Frees bytes `from..to` of the target that the source does not have; none are
    /// copied.
    pub(super) async fn make_hole(
        &self,
        object: ObjectId,
        stat: &ObjectStat,
        from: u64,
        to: u64,
    ) -> Result<u64, String> {
        let zero = NodeRequest::Zero {
            object,
            offset_bytes: from,
            length_bytes: to - from,
            context: self.context(&object, stat),
            order: Order::Given(Version::NONE),
        };
        self.call(self.pair.target, zero).await.map(|_| 0)
    }

    /// Makes an object's existence and end on the target those on the source.
    pub(super) async fn mend(&self, object: ObjectId) -> Result<(), String> {
        let Some((source, target)) = self.stats(object).await? else {
            return self.remove(object).await;
        };
        let known_bytes = match &target {
            Some(target) if !is_cut_since(target, &source) => Some(target.size_bytes),
            // What was cut and has grown again since the changes were listed may have the
            // same end, and other bytes before it.
            _ => None,
        };
        if known_bytes.is_some_and(|known| known >= source.size_bytes) {
            return self.finish(object, &source, target).await;
        }
        let from = known_bytes.unwrap_or_default();
        self.copy(object, from, source.size_bytes - from).await?;
        // The source may have grown meanwhile: what lies behind the end that it had is
        // in the next list of changes.
        let target = self.stat(self.pair.target, object).await?;
        self.finish(object, &source, target).await
    }

    /// Removes from the target what the source does not have.
    pub(super) async fn remove(&self, object: ObjectId) -> Result<(), String> {
        let remove = NodeRequest::Remove {
            object,
            context: self.fences(&object),
            order: Order::Given(self.pair.since),
        };
        self.call(self.pair.target, remove).await.map(|_| ())
    }

    /// Cuts from an object on the target what it does not have on the source. A column gets
    /// the source's version, too: its holes are told to be as new as that from now on. While
    /// something of it is still to be copied they keep theirs, or nobody would see after a
    /// crash that it was not. (A log has no holes, and is compared by what is told.)
    async fn finish(
        &self,
        object: ObjectId,
        source: &ObjectStat,
        target: Option<ObjectStat>,
    ) -> Result<(), String> {
        let is_as_old =
            |target: &ObjectStat| target.truncate_generation == source.truncate_generation;
        // Else it was removed, or cut, just now: the next list of changes has it.
        let Some(target) = target.filter(is_as_old) else {
            return Ok(());
        };
        let is_whole = self.left.borrow().iter().all(|left| left.0 != object);
        let version = match object.class {
            ObjectClass::Column if is_whole => source.version.min(self.newest.get()),
            _ => Version::NONE,
        };
        if target.size_bytes > source.size_bytes || target.version < version {
            self.cut(object, source, &target, version).await?;
        }
        Ok(())
    }

    /// Has an object end on the target no later than on the source. It grows only by what
    /// is copied: a node must not tell of bytes that it never got.
    async fn cut(
        &self,
        object: ObjectId,
        source: &ObjectStat,
        target: &ObjectStat,
        version: Version,
    ) -> Result<(), String> {
        let truncate = NodeRequest::Truncate {
            object,
            size_bytes: source.size_bytes.min(target.size_bytes),
            context: self.context(&object, source),
            order: Order::Given(version),
        };
        self.call(self.pair.target, truncate).await.map(|_| ())
    }

    /// What source and target know of an object; nothing if the source has none.
    /// A truncate that came to the target only has its generation raised on the
    /// source too, as the target will take nothing older. (Its intention has it
    /// done again everywhere.)
    pub(super) async fn stats(
        &self,
        object: ObjectId,
    ) -> Result<Option<(ObjectStat, Option<ObjectStat>)>, String> {
        let Some(mut source) = self.stat(self.pair.source, object).await? else {
            return Ok(None);
        };
        let target = self.stat(self.pair.target, object).await?;
        let seen = target.as_ref().map_or(0, |stat| stat.truncate_generation);
        if seen > source.truncate_generation {
            source.truncate_generation = seen;
            let raise = NodeRequest::Truncate {
                object,
                size_bytes: source.size_bytes,
                context: self.context(&object, &source),
                order: Order::Given(source.version),
            };
            self.call(self.pair.source, raise).await?;
        }
        Ok(Some((source, target)))
    }

    async fn make(&self, object: ObjectId, stat: &ObjectStat) -> Result<(), String> {
        let create = NodeRequest::Create {
            object,
            reservation_bytes: 0,
            attributes: stat.attributes.clone(),
            context: self.context(&object, stat),
            order: Order::Given(stat.version.min(self.newest_of(&object))),
        };
        self.call(self.pair.target, create).await.map(|_| ())
    }
}

/// Whether the source was cut, and the target not yet.
const fn is_cut_since(target: &ObjectStat, source: &ObjectStat) -> bool {
    target.truncate_generation < source.truncate_generation
}
