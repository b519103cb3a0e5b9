//! Requests: which are carried out at once, and what others wait for first.

use crossdock_names::{FileId, SMALL_FILE_THRESHOLD_BYTES};
use crossdock_peer::{Call, SiteError, SiteOperation, SiteRequest, Stability};
use crossdock_smallfile::Sequence;
use crossdock_types::{Payload, Time, WallTime};

use crate::site::{Phase, Site};

impl Site {
    /// Has a request wait until its file may be touched.
    pub(crate) fn block(&mut self, file: FileId, call: Call<SiteRequest>) {
        if self.queued() >= self.config.limits.waiting_max {
            self.refuse(call.id, SiteError::Busy);
        } else {
            self.blocked.entry(file).or_default().push(call);
        }
    }

    /// Has a request wait until a change of small files has settled.
    pub(crate) fn park(&mut self, sequence: Sequence, call: Call<SiteRequest>) {
        if self.queued() >= self.config.limits.waiting_max {
            self.refuse(call.id, SiteError::Busy);
        } else {
            self.parked.entry(sequence).or_default().push(call);
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.waiting.len()
            + self.redo.len()
            + self.crossings.len()
            + self.later.len()
            + self.blocked.values().map(Vec::len).sum::<usize>()
            + self.parked.values().map(Vec::len).sum::<usize>()
    }

    pub(crate) fn request(&mut self, now: Time, wall: WallTime, call: Call<SiteRequest>) {
        match self.phase {
            Phase::Serving => self.serve(now, wall, call),
            Phase::Opening(_) | Phase::Settling(_) => self.wait(call),
            Phase::ReadOnly => self.serve_read_only(now, wall, call),
            Phase::Failed => self.refuse(call.id, SiteError::Io),
            Phase::Replaced => self.refuse(call.id, SiteError::Moved),
        }
    }

    fn wait(&mut self, call: Call<SiteRequest>) {
        if self.queued() >= self.config.limits.waiting_max {
            self.refuse(call.id, SiteError::Busy);
        } else {
            self.waiting.push_back(call);
        }
    }

    pub(crate) fn serve(&mut self, now: Time, wall: WallTime, call: Call<SiteRequest>) {
        // First: what was done must not be answered as what was not.
        if self.answer_duplicate(wall, &call) {
            return;
        }
        if call.deadline < now || self.waits.held() >= self.config.limits.held_max {
            return self.refuse(call.id, SiteError::Busy);
        }
        if !self.log_mut().has_room() {
            return self.wait(call);
        }
        let operation = &call.request.operation;
        let file = operation.subject().id;
        let is_asked = self.asking.contains_key(&file.serial());
        if touches_content(operation) && (self.state.intentions.is_busy(file) || is_asked) {
            return self.block(file, call);
        }
        if may_meet_others(operation)
            && let Some(file) = self.keeper_of(operation, None)
        {
            return self.block(file, call);
        }
        if let Some(file) = self.leased_before(now, operation) {
            return self.block(file, call);
        }
        match *operation {
            SiteOperation::Transaction { .. } => self.transaction(now, wall, call),
            SiteOperation::Space { file } => self.tell_space(&call, file),
            SiteOperation::Census { class, from, .. } => self.tell_census(&call, class, from),
            SiteOperation::Names { .. } => self.tell_names(&call),
            SiteOperation::Repair { .. } => self.repair(now, wall, &call),
            // A host that has a key answers it itself: within a process there are none.
            SiteOperation::Prove { .. } => self.refuse(call.id, SiteError::NotProven),
            SiteOperation::Read { .. } | SiteOperation::Locate { .. } => {
                self.read_small(now, wall, call);
            }
            SiteOperation::Write { .. }
            | SiteOperation::Exchange { .. }
            | SiteOperation::Commit { .. } => {
                self.change_small(now, wall, call, &crossdock_smallfile::Fetched::new());
            }
            SiteOperation::Zero { .. } => self.zero_small(now, wall, call),
            SiteOperation::Open {
                file,
                purpose,
                holder,
            } => self.open_content(now, wall, &call, (file, purpose, holder)),
            SiteOperation::PushAttributes { .. } => self.push_attributes(now, wall, &call),
            SiteOperation::Locks { .. } => self.locks(now, wall, &call),
            SiteOperation::SetQuota { directory, change } => {
                self.set_quota(now, wall, call, directory, change);
            }
            SiteOperation::RemoveQuota { directory } => {
                self.remove_quota(now, wall, &call, directory);
            }
            _ => self.names(now, wall, call),
        }
    }

    /// Bytes below the threshold become zeros up to the file's end: they are written as such,
    /// as 64 KiB are not worth a hole. What lies beyond is for routers.
    fn zero_small(&mut self, now: Time, wall: WallTime, mut call: Call<SiteRequest>) {
        let SiteOperation::Zero {
            file,
            offset_bytes,
            length_bytes,
        } = call.request.operation
        else {
            return;
        };
        let end = offset_bytes.saturating_add(length_bytes);
        let cell = self.state.directory.cell(file);
        let size = cell.map_or(0, |cell| cell.size_bytes);
        if end > SMALL_FILE_THRESHOLD_BYTES {
            return self.refuse(call.id, SiteError::Invalid);
        }
        let length = end.min(size).saturating_sub(offset_bytes);
        let mut payload = Payload::new();
        payload.push_zeros(usize::try_from(length).unwrap_or_default());
        call.request.operation = SiteOperation::Write {
            file,
            offset_bytes,
            payload,
            stability: Stability::Stable,
        };
        self.change_small(now, wall, call, &crossdock_smallfile::Fetched::new());
    }

    /// Lets requests in that waited, as far as there is room.
    pub(crate) fn admit(&mut self, now: Time, wall: WallTime) {
        let mut redo = std::mem::take(&mut self.redo);
        while let Some(call) = redo.pop_front() {
            self.serve(now, wall, call);
        }
        let mut left = self.waiting.len();
        while left > 0 && self.log_mut().has_room() {
            if let Some(call) = self.waiting.pop_front() {
                self.serve(now, wall, call);
            }
            left -= 1;
        }
    }
}

/// Whether an operation has to wait while the file is truncated, or while its
/// columns are made.
const fn touches_content(operation: &SiteOperation) -> bool {
    match operation {
        SiteOperation::Read { .. }
        | SiteOperation::Locate { .. }
        | SiteOperation::Write { .. }
        | SiteOperation::Exchange { .. }
        | SiteOperation::Zero { .. }
        | SiteOperation::Commit { .. }
        | SiteOperation::Open { .. } => true,
        SiteOperation::SetAttributes { changes, .. } => changes.size_bytes.is_some(),
        _ => false,
    }
}

/// Whether an operation waits for what is kept for others: not if it ends that,
/// or has nothing to do with what files are.
const fn may_meet_others(operation: &SiteOperation) -> bool {
    !matches!(
        operation,
        SiteOperation::Transaction { .. }
            | SiteOperation::Within { .. }
            | SiteOperation::Space { .. }
            | SiteOperation::Locks { .. }
            | SiteOperation::Census { .. }
            | SiteOperation::Names { .. }
    )
}
