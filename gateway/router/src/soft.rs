//! What a router keeps between requests: nothing of it outlives the process.

use std::collections::BTreeSet;

use crossdock_names::{FileRef, HostId, Incarnation, SiteId};
use crossdock_peer::{Attributes, FileLayout, FileLease, SiteAnswer, SiteReply};
use crossdock_types::Time;

use crate::elsewhere::Elsewhere;
use crate::hot::Hot;
use crate::leases::{Known, Leases, Opening};
use crate::maps::Maps;
use crate::unstable::Unstable;
use crate::warm::Warm;

/// The soft state, and the time.
#[derive(Debug)]
pub(crate) struct Soft {
    /// Of this turn.
    pub(crate) now: Time,
    /// This process, as a holder of leases.
    pub(crate) host: HostId,
    pub(crate) unstable: Unstable,
    pub(crate) leases: Leases,
    pub(crate) maps: Maps,
    pub(crate) hot: Hot,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) warm: Warm,
    /// Sites that were asked about locks: one may have been opened a moment ago, and not
    /// be in this router's table yet.
    pub(crate) lock_sites: BTreeSet<SiteId>,
    /// Beyond so many holders of unstable bytes the oldest file is committed.
    pub(crate) unstable_holders_max: usize,
    pub(crate) numbers: Numbers,
}

/// Numbers of changes, by which sites and nodes know one that is sent again.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    given_total: u64,
    /// The first one of each write that is not answered.
    open: BTreeSet<u64>,
}

impl Numbers {
    /// A new one; `first` is the first one of the same write, and is set if that is it.
    pub(crate) fn give(&mut self, first: &mut Option<u64>) -> u64 {
        self.given_total += 1;
        if first.is_none() {
            *first = Some(self.given_total);
            self.open.insert(self.given_total);
        }
        self.given_total
    }

    /// The write with that first number is answered.
    pub(crate) fn close(&mut self, first: u64) {
        self.open.remove(&first);
    }

    /// Nothing with a lower number is asked for any more.
    pub(crate) fn answered_below(&self) -> u64 {
        let open = self.open.first().copied();
        open.unwrap_or(self.given_total + 1)
    }
}

impl Soft {
    /// Whom the site may give a lease.
    pub(crate) fn holder(&self) -> Option<HostId> {
        self.leases.are_wanted().then_some(self.host)
    }

    /// Takes what an open has told: its lease, of which is returned what it has become, and the
    /// file's block map.
    pub(crate) fn take_opened(
        &mut self,
        opening: &Opening<'_>,
        told: (&FileLayout, Incarnation, Option<FileLease>),
        attributes: Option<&Attributes>,
    ) -> Option<Known> {
        let (layout, _, lease) = told;
        let known = self.leases.take(self.now, opening, told, attributes);
        self.take_map(opening.file, layout, known.as_ref(), lease);
        known
    }

    /// The same of who wants to read; `None` if the site has not opened the file, or does not say
    /// how it is.
    pub(crate) fn take_opened_to_read<'reply>(
        &mut self,
        opening: &Opening<'_>,
        reply: &'reply SiteReply,
    ) -> Option<(&'reply FileLayout, &'reply Attributes, Option<Known>)> {
        let Ok(SiteAnswer::Opened {
            layout,
            incarnation,
            lease,
        }) = &reply.outcome
        else {
            return None;
        };
        let attributes = reply.subject.after.as_ref()?;
        let told = (layout, *incarnation, *lease);
        let known = self.take_opened(opening, told, Some(attributes));
        Some((layout, attributes, known))
    }

    /// Takes what an open has told of a file's block map, if it has one; `known` is what
    /// became of the lease that came with it.
    fn take_map(
        &mut self,
        file: FileRef,
        layout: &FileLayout,
        known: Option<&Known>,
        lease: Option<FileLease>,
    ) {
        if layout.class.map_block_bytes().is_some() {
            let held = known.map(|known| known.lease);
            let lease = lease.map(|lease| lease.id);
            self.maps.take(file, layout, held.filter(|_| held == lease));
        }
    }
}
