//! Leases of files that routers have (CONSISTENCY 4, docs/decisions/0027): who has one,
//! and what has to be done before somebody is shown, or changes, what its holder
//! knows.
//!
//! A lease to read says that nothing of the file changes; any number of routers may have
//! one. One to write says that nobody else is shown anything: size and times may be
//! newer at its holder. Whatever stands in a request's way is recalled, and the request
//! waits until it was given back, or has ended by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crossdock_names::{FileId, FileRef, HostId};
use crossdock_peer::{FileLease, LeaseId, Recall};
use crossdock_types::Time;

/// Files with leases, or that had some just now; beyond it none are given.
const FILES_MAX: usize = 65_536;

/// Routers that have one of the same file; beyond it none are given.
const READERS_MAX: usize = 64;

/// A recall that was not answered is repeated after this.
const RECALLED_AGAIN: Duration = Duration::from_millis(200);

/// A file of which leases were recalled is shared: none are given for so long.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// The leases that a site has given.
#[derive(Debug, Default)]
pub(crate) struct FileLeases {
    files: BTreeMap<u64, OfFile>, // By serial.
    wakes: BTreeSet<(Time, u64)>,
    given_total: u64,
    /// Files whose writer has not told what it wrote, and by which lease (CONSISTENCY 5).
    abandoned: BTreeMap<u64, LeaseId>,
}

#[derive(Debug)]
struct OfFile {
    file: FileRef,
    /// One, if it is to write.
    leases: Vec<Lease>,
    is_exclusive: bool,
    recalled_at: Option<Time>,
    shared_until: Time,
    wake: Time,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    id: LeaseId,
    holder: HostId,
    end: Time,
}

/// Why leases are recalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody waits.
    Wanted,
    /// They were before, and nobody has answered.
    Unanswered,
}

/// What a request does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// Shows it: nobody else may know something newer.
    Shows,
    /// Changes what is known of it.
    Changes,
}

impl FileLeases {
    /// Gives `holder` a lease of the file, if that does not take another one away.
    pub(crate) fn give(
        &mut self,
        now: Time,
        epoch: u64,
        file: FileRef,
        holder: HostId,
        is_exclusive: bool,
    ) -> Option<LeaseId> {
        let serial = file.id.serial();
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&serial) {
            return None;
        }
        let of_file = self.files.entry(serial).or_insert_with(|| OfFile {
            file,
            leases: Vec::new(),
            is_exclusive,
            recalled_at: None,
            shared_until: Time(0),
            wake: Time(u64::MAX),
        });
        let others = of_file.leases.iter().any(|lease| lease.holder != holder);
        let is_free = match of_file.leases.is_empty() {
            true => now >= of_file.shared_until,
            // Its own to read becomes one to write; one to write stays what it is.
            false => !(of_file.is_exclusive || is_exclusive && others),
        };
        if !is_free || of_file.leases.len() >= READERS_MAX || of_file.recalled_at.is_some() {
            return None;
        }
        self.given_total += 1;
        let id = LeaseId(epoch << 32 | self.given_total & 0xffff_ffff);
        of_file.is_exclusive = is_exclusive;
        of_file.leases.retain(|lease| lease.holder != holder);
        let end = now + FileLease::KEPT;
        of_file.leases.push(Lease { id, holder, end });
        self.wake(serial);
        Some(id)
    }

    /// Whether leases keep a request from being carried out that does that to the file.
    pub(crate) fn is_in_the_way(&self, serial: u64, touch: Touch) -> bool {
        self.files.get(&serial).is_some_and(|of_file| {
            !of_file.leases.is_empty() && (of_file.is_exclusive || touch == Touch::Changes)
        })
    }

    /// Whether that lease is the one to write of the file, or was the last one, so that what
    /// its holder tells is all that there is to know.
    pub(crate) fn is_writer(&self, serial: u64, id: LeaseId) -> bool {
        if self.abandoned.get(&serial) == Some(&id) {
            return true;
        }
        let of_file = self.files.get(&serial);
        of_file.is_some_and(|of_file| {
            of_file.is_exclusive && of_file.leases.iter().any(|lease| lease.id == id)
        })
    }

    /// Whether `holder` has the lease to write.
    pub(crate) fn is_written_by(&self, serial: u64, holder: HostId) -> bool {
        let of_file = self.files.get(&serial);
        of_file.is_some_and(|of_file| {
            of_file.is_exclusive && of_file.leases.iter().any(|lease| lease.holder == holder)
        })
    }

    /// Whom to ask for their leases of the file, if they have not been asked just now.
    pub(crate) fn recall(&mut self, now: Time, serial: u64, why: Why) -> Vec<(HostId, Recall)> {
        let Some(of_file) = self.files.get_mut(&serial) else {
            return Vec::new();
        };
        let is_due = match of_file.recalled_at {
            Some(asked) => now >= asked + RECALLED_AGAIN,
            None => why == Why::Wanted,
        };
        if !is_due || of_file.leases.is_empty() {
            return Vec::new();
        }
        of_file.recalled_at = Some(now);
        of_file.shared_until = now + SHARED_FOR;
        let file = of_file.file;
        let recalls = of_file.leases.iter().map(|lease| {
            let recall = Recall {
                file,
                lease: lease.id,
            };
            (lease.holder, recall)
        });
        let recalls = recalls.collect();
        self.wake(serial);
        recalls
    }

    /// The lease has been given back; whether none is left.
    pub(crate) fn give_back(&mut self, serial: u64, id: LeaseId) -> bool {
        if self.abandoned.get(&serial) == Some(&id) {
            self.abandoned.remove(&serial);
        }
        let Some(of_file) = self.files.get_mut(&serial) else {
            return false;
        };
        of_file.leases.retain(|lease| lease.id != id);
        self.wake(serial)
    }

    /// Ends what has to end by now: the files that have no leases any more, and what is to
    /// be asked for again.
    pub(crate) fn expire(&mut self, now: Time) -> (Vec<FileId>, Vec<(HostId, Recall)>) {
        let (mut freed, mut again) = (Vec::new(), Vec::new());
        while let Some(&(wake, serial)) = self.wakes.first()
            && wake <= now
        {
            let Some(of_file) = self.files.get_mut(&serial) else {
                self.wakes.pop_first();
                continue;
            };
            let had = of_file.leases.len();
            let ended = of_file.leases.extract_if(.., |lease| now >= lease.end);
            let ended = ended.map(|lease| lease.id).last();
            if let Some(id) = ended.filter(|_| of_file.is_exclusive) {
                self.abandoned.insert(serial, id);
            }
            if had > 0 && of_file.leases.is_empty() {
                freed.push(of_file.file.id);
            }
            if of_file.leases.is_empty() && of_file.shared_until <= now {
                self.files.remove(&serial);
                self.wakes.remove(&(wake, serial));
                continue;
            }
            again.extend(self.recall(now, serial, Why::Unanswered));
            self.wake(serial);
        }
        (freed, again)
    }

    /// Sets when the file is looked at again; whether it has no leases any more.
    fn wake(&mut self, serial: u64) -> bool {
        let Some(of_file) = self.files.get_mut(&serial) else {
            return true;
        };
        let is_free = of_file.leases.is_empty();
        if is_free {
            of_file.recalled_at = None;
        }
        let ends = of_file.leases.iter().map(|lease| lease.end).min();
        let again = of_file.recalled_at.map(|asked| asked + RECALLED_AGAIN);
        let wake = match ends {
            Some(end) => again.map_or(end, |again| again.min(end)),
            None => of_file.shared_until,
        };
        let old = std::mem::replace(&mut of_file.wake, wake);
        self.wakes.remove(&(old, serial));
        self.wakes.insert((wake, serial));
        is_free
    }

    /// Whether the writer of the file is gone, and what it wrote is not known.
    pub(crate) fn is_abandoned(&self, serial: u64) -> bool {
        self.abandoned.contains_key(&serial)
    }

    /// It has been found out, or the file is gone.
    pub(crate) fn settled(&mut self, serial: u64) {
        self.abandoned.remove(&serial);
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        self.wakes.first().map(|&(wake, _)| wake)
    }

    /// Files of which leases are out, or were just now, by serial.
    pub(crate) fn files(&self) -> impl Iterator<Item = u64> {
        self.files.keys().copied()
    }

    /// Whether no lease is out.
    pub(crate) fn are_back(&self) -> bool {
        self.files.values().all(|of_file| of_file.leases.is_empty())
    }

    /// When the last lease that is out has ended by itself.
    pub(crate) fn last_end(&self) -> Time {
        let leases = self.files.values().flat_map(|of_file| &of_file.leases);
        leases.map(|lease| lease.end).max().unwrap_or_default()
    }
}
