//! What a request has to wait for because of leases, and what a site asks their holders
//! (docs/decisions/0027).

use crossdock_directory::{Answer, Cell, Mutation, Plan};
use crossdock_limits::FILE_BYTES_MAX;
use crossdock_names::{FileId, FileRef, HostId, SEGMENT_BYTES};
use crossdock_peer::{DirectoryEntry, FileLease, LeaseUse, OpenFor, Part, Recall, SiteOperation};
use crossdock_types::{Time, WallTime};

use crate::leases::{Touch, Why};
use crate::site::{Site, SiteEffect};

impl Site {
    /// A lease for the router of `holder`, which has opened the file.
    pub(crate) fn give_lease(
        &mut self,
        now: Time,
        wall: WallTime,
        cell: &Cell,
        purpose: OpenFor,
        holder: HostId,
    ) -> Option<FileLease> {
        let is_exclusive = purpose.is_write();
        // A write that takes bits from the mode, or may go beyond a quota, is told at once.
        let is_plain = cell.mode() & SET_IDS == 0;
        let is_bounded = self
            .state
            .directory
            .check_growth(cell, FILE_BYTES_MAX)
            .is_err();
        if is_exclusive && (!is_plain || is_bounded) {
            return None;
        }
        let file = cell.file(self.config.site);
        let epoch = self.config.epoch.0;
        let id = self.leases.give(now, epoch, file, holder, is_exclusive)?;
        Some(FileLease {
            id,
            is_exclusive,
            lasts_ms: u32::try_from(FileLease::LASTS.as_millis()).unwrap_or(0),
            wall,
            writable_bytes: u64::from(cell.rare().segments) * SEGMENT_BYTES,
        })
    }

    /// A file for whose leases the request has to wait; they are recalled.
    pub(crate) fn leased_before(&mut self, now: Time, operation: &SiteOperation) -> Option<FileId> {
        let (file, touch) = self.touched_by(operation)?;
        self.recall_in_the_way(now, file.id, touch)
    }

    /// Likewise, for what is planned.
    pub(crate) fn leased_by_plan(&mut self, now: Time, plan: &Plan) -> Option<FileId> {
        if let Answer::Found(file) = plan.answer
            && let Some(file) = self.recall_in_the_way(now, file.id, Touch::Shows)
        {
            return Some(file);
        }
        self.leased_by_changes(now, &plan.mutations)
    }

    /// Likewise, for changes.
    pub(crate) fn leased_by_changes(&mut self, now: Time, changes: &[Mutation]) -> Option<FileId> {
        let site = self.config.site;
        let serials = changes.iter().filter_map(|change| match change {
            Mutation::PutCell(cell) => Some(cell.serial),
            Mutation::RemoveCell { serial } => Some(*serial),
            _ => None,
        });
        let leased = serials
            .map(|serial| FileId::new(site, serial))
            .filter_map(|file| self.recall_in_the_way(now, file, Touch::Changes));
        // All at once: one after the other they would take as long as all together.
        leased.last()
    }

    /// Likewise, for what is to be told to a coordinator.
    pub(crate) fn leased_by_parts(&mut self, now: Time, parts: &[Part]) -> bool {
        let named = |part: &Part| match part {
            Part::File(file) => Some(file.id),
            Part::Place { directory, name } => self.state.directory.named(*directory, name),
            Part::Moves | Part::Ancestors(_) => None,
        };
        let files: Vec<FileId> = parts.iter().filter_map(named).collect();
        let in_the_way = files
            .into_iter()
            .filter_map(|file| self.recall_in_the_way(now, file, Touch::Shows));
        in_the_way.last().is_some()
    }

    /// What others write is not known here: entries of such files go without attributes.
    pub(crate) fn leave_out_leased(&self, entries: &mut [DirectoryEntry]) {
        for entry in entries {
            if self.leases.is_in_the_way(entry.file.serial(), Touch::Shows) {
                entry.attributes = None;
            }
        }
    }

    /// What was asked of a lease, once what came with it has been done.
    pub(crate) fn use_lease(&mut self, file: FileRef, lease: Option<LeaseUse>) {
        if let Some(LeaseUse::GiveBack(id)) = lease
            && self.leases.give_back(file.id.serial(), id)
        {
            self.unblock(&[file.id]);
        }
    }

    /// Ends leases whose time has come, and asks again for those that were not given back.
    pub(crate) fn expire_leases(&mut self, now: Time) {
        let (freed, again) = self.leases.expire(now);
        self.unblock(&freed);
        self.send_recalls(again);
    }

    /// Wants all leases back: the site is to be closed.
    pub(crate) fn recall_leases(&mut self, now: Time) {
        let leased: Vec<u64> = self.leases.files().collect();
        for serial in leased {
            let recalls = self.leases.recall(now, serial, Why::Wanted);
            self.send_recalls(recalls);
        }
    }

    fn recall_in_the_way(&mut self, now: Time, file: FileId, touch: Touch) -> Option<FileId> {
        let serial = file.serial();
        if file.site() != self.config.site {
            return None;
        }
        if self.leases.is_abandoned(serial) {
            return self.ask_ends(now, file).then_some(file);
        }
        if !self.leases.is_in_the_way(serial, touch) {
            return None;
        }
        let recalls = self.leases.recall(now, serial, Why::Wanted);
        self.send_recalls(recalls);
        Some(file)
    }

    fn send_recalls(&mut self, recalls: Vec<(HostId, Recall)>) {
        let recalls = recalls.into_iter();
        let recalls = recalls.map(|(holder, recall)| SiteEffect::Recall(holder, recall));
        self.effects.extend(recalls);
    }

    /// What an operation does to which regular file, as far as it is plain before it is
    /// planned.
    fn touched_by(&self, operation: &SiteOperation) -> Option<(FileRef, Touch)> {
        match *operation {
            SiteOperation::GetAttributes { file }
            | SiteOperation::SetAttributes { file, .. }
            | SiteOperation::Access { file, .. }
            | SiteOperation::Read { file, .. }
            | SiteOperation::Locate { file, .. }
            | SiteOperation::Commit { file, .. }
            | SiteOperation::Link { file, .. } => Some((file, Touch::Shows)),
            SiteOperation::Write { file, .. }
            | SiteOperation::Zero { file, .. }
            | SiteOperation::Exchange { file, .. }
            | SiteOperation::Repair { file, .. } => Some((file, Touch::Changes)),
            SiteOperation::Open {
                file,
                purpose,
                holder,
            } => {
                let serial = file.id.serial();
                let is_own = holder.is_some_and(|holder| self.leases.is_written_by(serial, holder));
                (!purpose.is_write() || !is_own).then_some((file, Touch::Shows))
            }
            SiteOperation::PushAttributes {
                file, wrote, lease, ..
            } => {
                let is_writers = lease.is_some_and(|lease| {
                    let (LeaseUse::Keep(id) | LeaseUse::GiveBack(id)) = lease;
                    self.leases.is_writer(file.id.serial(), id)
                });
                match (is_writers, wrote) {
                    (true, _) => None,
                    // Nothing is told but that the lease is not there.
                    (false, false) if lease.is_some() => None,
                    (false, false) => Some((file, Touch::Shows)),
                    (false, true) => Some((file, Touch::Changes)),
                }
            }
            _ => None,
        }
    }
}

/// Set-user and set-group bits: a write by another user takes them away.
const SET_IDS: u32 = 0o6000;
