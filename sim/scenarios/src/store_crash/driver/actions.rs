//! What the workload asks of the store.

use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{Epoch, ObjectId, Version};
use crossdock_peer::{CallId, NodeRequest, Order, ReadVersion, Stability, WriteContext};
use crossdock_types::{AlignedBuffer, Payload};

use super::super::model::{Certainty, Change, Object, Op, Presence};
use super::super::plan::{Kind, OBJECT_BYTES_MAX};
use super::super::rig::Step;
use super::{BLOCK, Driver, Outcome, PendingKind};

impl Driver<'_> {
    /// Does one thing of that kind, if there is an object for it.
    pub(super) fn act(&mut self, kind: Kind) -> Outcome<()> {
        match kind {
            Kind::Pause => return self.pause(Duration::from_millis(40)),
            Kind::FlipBit => self.flip_bit(),
            Kind::FillDisk => self.fill_disk(),
            Kind::Scrub => self.scrub(),
            Kind::Defrag => self.defrag(),
            Kind::ListChanges => self.list_changes()?,
            _ => {
                let objects = &self.plan.objects;
                if let Some(&object) = self.memory.random.pick(objects) {
                    self.act_on(kind, object);
                }
            }
        }
        // Half of the requests come in one breath with the next.
        if self.memory.random.coin() {
            self.pause(Duration::from_micros(300))?;
        }
        Ok(())
    }

    fn act_on(&mut self, kind: Kind, id: ObjectId) {
        let object = &self.memory.model[&id];
        let is_alone = !self.pending.values().any(|pending| pending.object == id);
        let is_present = object.presence == Presence::Present;
        let is_absent = object.presence == Presence::Absent;
        let is_sound = is_present && !object.is_damaged;
        let is_writable = is_sound && !self.is_locked(id) && !object.is_log;
        match kind {
            Kind::Create if is_alone && !object.is_log => self.create(id),
            Kind::Write | Kind::StableWrite if is_absent && is_alone && !object.is_log => {
                self.create(id);
            }
            Kind::Write | Kind::SmallWrite if is_writable => {
                self.write(id, kind == Kind::SmallWrite, Stability::Unstable);
            }
            Kind::StableWrite | Kind::StableSmallWrite if is_writable => {
                self.write(id, kind == Kind::StableSmallWrite, Stability::Stable);
            }
            Kind::LateWrite if is_alone && is_sound => self.late(id),
            Kind::Commit if is_present && !self.is_locked(id) => self.commit(id),
            Kind::Read | Kind::CancelledRead if is_present && !self.is_locked(id) => {
                self.read(id, kind == Kind::CancelledRead);
            }
            Kind::Append if object.is_log && !object.is_damaged => self.append(id, is_alone),
            Kind::Seal if object.is_log && is_alone && !object.is_damaged => self.seal(id),
            Kind::Truncate if is_writable => self.truncate(id),
            Kind::Zero if is_writable => self.zero(id),
            Kind::Remove if is_alone && is_present => self.remove(id),
            Kind::Stat if is_present && !self.is_locked(id) => {
                let certain = self.object(id).certain_calls();
                self.send(
                    id,
                    PendingKind::Stat { certain },
                    NodeRequest::Stat { object: id },
                );
            }
            Kind::Pin if is_alone && is_sound => self.pin(id),
            Kind::PinnedRead => self.read_pin(),
            Kind::Unpin => self.unpin(),
            _ => {}
        }
    }

    /// Whether something is under way that nothing may accompany.
    fn is_locked(&self, id: ObjectId) -> bool {
        let locks = |kind: &PendingKind| {
            matches!(
                kind,
                PendingKind::Create { .. }
                    | PendingKind::Remove
                    | PendingKind::Pin { .. }
                    | PendingKind::Seal { .. }
                    | PendingKind::FirstAppend
            )
        };
        let mut pending = self.pending.values();
        pending.any(|pending| pending.object == id && locks(&pending.kind))
    }

    fn pause(&mut self, longest: Duration) -> Outcome<()> {
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        let pause = Duration::from_nanos(self.memory.random.below(nanos));
        let wake = self.rig.now + pause;
        while self.step(Some(wake))? != Step::Woken {}
        Ok(())
    }

    fn flip_bit(&mut self) {
        if let Some(block) = self.rig.disks().data.flip_bit() {
            let line = || format!("a bit flips in block {block} of the data disk");
            self.memory.history.note(self.rig.now, line);
        }
    }

    fn fill_disk(&mut self) {
        let data = &mut self.rig.disks().data;
        let mut options = data.options();
        options.no_space_one_in = 1 - options.no_space_one_in.min(1);
        data.set_options(options);
        let line = || format!("file system full: {}", options.no_space_one_in);
        self.memory.history.note(self.rig.now, line);
    }

    fn create(&mut self, id: ObjectId) {
        let is_fresh = self.memory.model[&id].presence == Presence::Absent;
        let length = self.memory.random.index(40);
        let mut attributes = vec![0; length];
        self.memory.random.fill(&mut attributes);
        let attributes = Bytes::from(attributes);
        let reservation_bytes = match self.memory.random.below(6) {
            0 => self.memory.random.below(OBJECT_BYTES_MAX),
            _ => 0,
        };
        if is_fresh {
            let object = self.object(id);
            object.reset(Presence::Unsure);
            object.attributes = attributes.clone();
        }
        let request = NodeRequest::Create {
            object: id,
            reservation_bytes,
            attributes,
            context: self.context(id),
            order: self.order(),
        };
        self.send(id, PendingKind::Create { is_fresh }, request);
    }

    fn write(&mut self, id: ObjectId, is_small: bool, stability: Stability) {
        let (offset, length) = self.draw_range(is_small);
        let bytes = self.content(offset, length);
        // Some writers have not heard of a truncate that is on its way.
        let mut context = self.context(id);
        if self.memory.random.one_in(4) {
            let known = self.object(id).generation;
            context = context.with_truncate_generation(known);
        }
        let order = self.order();
        let request = NodeRequest::Write {
            object: id,
            offset_bytes: offset,
            payload: self.cut(bytes.clone()),
            stability,
            context,
            order,
        };
        let kind = PendingKind::Change {
            stable: stability == Stability::Stable,
            generation: context.truncate_generation,
        };
        let call = self.send(id, kind, request);
        self.record(id, call, Change::Write { offset, bytes });
    }

    /// What a writer sends that has been asleep.
    fn late(&mut self, id: ObjectId) {
        let Object {
            generation,
            generation_sent,
            fence,
            is_log,
            ..
        } = self.memory.model[&id];
        let payload = Payload::from(self.content(0, 100));
        let request = if is_log && fence > Epoch(0) {
            NodeRequest::Append {
                object: id,
                offset_bytes: self.object(id).newest().len() as u64,
                payload,
                fence: Epoch(fence.0 - 1),
            }
        } else if !is_log && generation > 0 && generation == generation_sent {
            let context = self.context(id);
            NodeRequest::Write {
                object: id,
                offset_bytes: 0,
                payload,
                stability: Stability::Unstable,
                context: context.with_truncate_generation(generation - 1),
                order: self.order(),
            }
        } else {
            return;
        };
        self.send(id, PendingKind::Late, request);
    }

    fn commit(&mut self, id: ObjectId) {
        let seen = |op: &&Op| op.certainty == Certainty::Seen;
        let ops = &self.memory.model[&id].ops;
        let covers = ops.iter().filter(seen).map(|op| op.call).collect();
        let request = NodeRequest::Commit {
            object: id,
            incarnation: self.boot,
        };
        self.send(id, PendingKind::Commit { covers }, request);
    }

    fn read(&mut self, id: ObjectId, is_cancelled: bool) {
        let is_small = self.memory.random.coin();
        let (offset, length) = self.draw_range(is_small);
        let not_after = match self.memory.random.below(6) {
            0 => Some(self.version),
            1 => Some(Version::first_of(self.version.epoch())),
            _ => None,
        };
        let newest = self.version;
        let object = self.object(id);
        let kind = PendingKind::Read {
            offset,
            length,
            certain: object.certain_calls(),
            must_be_gone: not_after.is_some_and(|version| object.is_newer(offset, length, version)),
            // The store gives versions to appends, of the fence's epoch.
            may_be_gone: not_after.is_some_and(|version| object.is_log || version < newest),
        };
        let request = NodeRequest::Read {
            object: id,
            offset_bytes: offset,
            length_bytes: length,
            version: not_after.map_or(ReadVersion::Current, ReadVersion::NotAfter),
            patience_ms: 0,
        };
        let call = self.send(id, kind, request);
        if is_cancelled {
            self.pending.remove(&call);
            self.cancelled.insert(call);
            self.rig.cancel(call);
        }
    }

    fn append(&mut self, id: ObjectId, is_alone: bool) {
        let object = &self.memory.model[&id];
        let offset = object.newest().len() as u64;
        let is_fresh = object.presence == Presence::Absent;
        let may = match object.presence {
            Presence::Absent => is_alone,
            Presence::Present => !self.is_locked(id),
            Presence::Unsure => false,
        };
        let length = match self.memory.random.below(8) {
            0 => self.memory.random.between(1, 5 * BLOCK),
            _ => self.memory.random.between(1, 600),
        };
        if !may || offset + length > OBJECT_BYTES_MAX {
            return;
        }
        if is_fresh {
            let object = self.object(id);
            object.reset(Presence::Unsure);
            object.attributes = Bytes::new();
        }
        let bytes = self.content(offset, length);
        let request = NodeRequest::Append {
            object: id,
            offset_bytes: offset,
            payload: self.cut(bytes.clone()),
            fence: self.object(id).fence_possible,
        };
        let kind = match is_fresh {
            true => PendingKind::FirstAppend,
            false => PendingKind::Change {
                stable: true,
                generation: 0,
            },
        };
        let call = self.send(id, kind, request);
        self.record(id, call, Change::Append { offset, bytes });
    }

    fn seal(&mut self, id: ObjectId) {
        let object = self.object(id);
        let is_fresh = object.presence == Presence::Absent;
        if is_fresh {
            object.reset(Presence::Unsure);
            object.attributes = Bytes::new();
        }
        let fence = Epoch(object.fence_possible.0 + 1);
        object.fence_possible = fence;
        let request = NodeRequest::Seal { object: id, fence };
        self.send(id, PendingKind::Seal { fence, is_fresh }, request);
    }

    fn truncate(&mut self, id: ObjectId) {
        let (offset, length) = self.draw_range(true);
        let size = offset + length;
        let object = self.object(id);
        object.generation_sent += 1;
        let generation = object.generation_sent;
        let request = NodeRequest::Truncate {
            object: id,
            size_bytes: size,
            context: self.context(id),
            order: self.order(),
        };
        let call = self.send(id, stable_change(generation), request);
        self.record(id, call, Change::Truncate { size, generation });
    }

    fn zero(&mut self, id: ObjectId) {
        let is_small = self.memory.random.coin();
        let (offset, length) = self.draw_range(is_small);
        let context = self.context(id);
        let request = NodeRequest::Zero {
            object: id,
            offset_bytes: offset,
            length_bytes: length,
            context,
            order: self.order(),
        };
        let kind = stable_change(context.truncate_generation);
        let call = self.send(id, kind, request);
        self.record(id, call, Change::Zero { offset, length });
    }

    fn remove(&mut self, id: ObjectId) {
        self.object(id).presence = Presence::Unsure;
        let request = self.removal_of(id);
        self.send(id, PendingKind::Remove, request);
    }

    pub(super) fn removal_of(&mut self, id: ObjectId) -> NodeRequest {
        NodeRequest::Remove {
            object: id,
            context: self.context(id),
            order: self.order(),
        }
    }

    fn pin(&mut self, id: ObjectId) {
        let is_small = self.memory.random.coin();
        let (offset, length) = self.draw_range(is_small);
        let lease_ms = [5, 1000][self.memory.random.index(2)];
        let request = NodeRequest::Pin {
            object: id,
            offset_bytes: offset,
            length_bytes: length,
            version: None,
            lease_ms,
        };
        let kind = PendingKind::Pin {
            offset,
            length,
            lease: Duration::from_millis(u64::from(lease_ms)),
        };
        self.send(id, kind, request);
    }

    fn read_pin(&mut self) {
        let Some(pin) = self.memory.random.pick(&self.pins) else {
            return;
        };
        let (id, object, offset_bytes) = (pin.id, pin.object, pin.offset);
        let length_bytes = pin.expected.len() as u64;
        if length_bytes > 0 {
            let request = NodeRequest::Read {
                object,
                offset_bytes,
                length_bytes,
                version: ReadVersion::Pinned(id),
                patience_ms: 0,
            };
            self.send(object, PendingKind::PinnedRead(id), request);
        }
    }

    fn unpin(&mut self) {
        if !self.pins.is_empty() {
            let at = self.memory.random.index(self.pins.len());
            let pin = self.pins.remove(at);
            let request = NodeRequest::Unpin { pin: pin.id };
            self.send(pin.object, PendingKind::Unpin, request);
        }
    }

    fn record(&mut self, id: ObjectId, call: CallId, change: Change) {
        let op = Op {
            call,
            change,
            certainty: Certainty::Possible,
            version: self.version,
        };
        self.object(id).ops.push(op);
    }

    fn order(&mut self) -> Order {
        self.version = self.version.next();
        Order::Given(self.version)
    }

    fn context(&self, id: ObjectId) -> WriteContext {
        let object = &self.memory.model[&id];
        let context = WriteContext {
            site_epoch: object.fence_possible,
            ..WriteContext::default()
        };
        context.with_truncate_generation(object.generation_sent)
    }

    /// A range within the objects' bounds; half of them near the beginning, so
    /// that they meet.
    fn draw_range(&mut self, is_small: bool) -> (u64, u64) {
        let random = &mut self.memory.random;
        if is_small && self.plan.is_dense && !random.one_in(4) {
            return (random.below(24) * BLOCK, BLOCK);
        }
        let reach = match random.coin() {
            true => OBJECT_BYTES_MAX,
            false => 6 * BLOCK,
        };
        let (offset, length) = match (is_small, random.below(4)) {
            (true, 0) => (random.below(reach / 512) * 512, 512),
            (true, _) => (random.below(reach), random.between(1, 3000)),
            (false, 0) => (random.below(reach), random.between(1, 16 * BLOCK)),
            (false, _) => (
                random.below(reach / BLOCK) * BLOCK,
                random.between(1, 16) * BLOCK,
            ),
        };
        (offset, length.min(OBJECT_BYTES_MAX - offset).max(1))
    }

    /// Bytes that no other write has, at their places; none is zero.
    fn content(&self, offset: u64, length: u64) -> Bytes {
        let write = (self.memory.calls + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let byte = |at: u64| {
            let mixed = (write ^ (at / 8)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let word = (mixed ^ (mixed >> 29)) | 0x0101_0101_0101_0101;
            word.to_le_bytes()[usize::try_from(at % 8).unwrap_or(0)]
        };
        (offset..offset + length).map(byte).collect()
    }

    /// As a client's bytes come: aligned or not, whole or in pieces.
    fn cut(&mut self, bytes: Bytes) -> Payload {
        match self.memory.random.below(3) {
            0 if (bytes.len() as u64).is_multiple_of(BLOCK) => {
                Payload::from(AlignedBuffer::padded_from(&bytes).freeze())
            }
            1 => {
                let at = self.memory.random.index(bytes.len());
                let mut payload = Payload::from(bytes.slice(..at));
                payload.push(bytes.slice(at..));
                payload
            }
            _ => Payload::from(bytes),
        }
    }
}

const fn stable_change(generation: u64) -> PendingKind {
    PendingKind::Change {
        stable: true,
        generation,
    }
}
