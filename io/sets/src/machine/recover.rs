//! Making what a member lacks, or cannot read, of what the others have.

use crossdock_types::AlignedBuffer;

use super::read::lacking;
use super::work::{Next, Work};
use super::{DiskSets, Piece, SetsEvent};
use crate::geometry::Kind;
use crate::parity::xor_into;

#[derive(Debug)]
pub(super) struct Recover {
    piece: Piece,
    /// Who could not read it, and gets it back.
    bad: Option<usize>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Begin,
    /// Of a mirror: members that have been asked.
    Reading {
        tried: usize,
    },
    Healing,
}

impl Recover {
    pub(super) const fn new(piece: Piece, bad: Option<usize>) -> Self {
        Self {
            piece,
            bad,
            phase: Phase::Begin,
        }
    }
}

impl DiskSets {
    pub(super) fn advance_recover(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut Recover,
    ) -> Next {
        let kind = self.pool.sets[work.set].kind;
        match (&job.phase, kind) {
            (_, Kind::Stripe) => Next::Done(Some(lacking(work.set))),
            (Phase::Begin, Kind::Mirror) => self.ask_copy(number, work, job, 0),
            (Phase::Begin, Kind::Parity) => self.ask_others(number, work, job),
            (Phase::Reading { tried }, Kind::Mirror) => {
                let tried = *tried;
                match work.replies.pop().map(|reply| reply.answer) {
                    Some(Ok(Some(content))) => self.have_recovered(number, work, job, content),
                    _ => self.ask_copy(number, work, job, tried),
                }
            }
            (Phase::Reading { .. }, Kind::Parity) => {
                let mut content: Option<AlignedBuffer> = None;
                for reply in std::mem::take(&mut work.replies) {
                    let Ok(Some(cell)) = reply.answer else {
                        return Next::Done(Some(lacking(work.set)));
                    };
                    match &mut content {
                        None => content = Some(cell),
                        Some(content) => xor_into(content, &cell),
                    }
                }
                match content {
                    Some(content) => self.have_recovered(number, work, job, content),
                    None => Next::Done(Some(lacking(work.set))),
                }
            }
            (Phase::Healing, _) => {
                if work.replies.pop().is_some_and(|reply| reply.answer.is_ok()) {
                    let name = job.bad.and_then(|bad| self.member_disk(work.set, bad));
                    let name = name.and_then(|number| self.disks.get(&number));
                    if let Some(name) = name.map(|disk| disk.name.clone()) {
                        let offset_bytes = self.place_of(&job.piece).0;
                        self.events
                            .push_back(SetsEvent::Healed { name, offset_bytes });
                    }
                }
                Next::Done(None)
            }
        }
    }

    fn place_of(&self, piece: &Piece) -> (u64, usize) {
        let at = self.disk_offset(piece.stripe) + piece.offset;
        (at, piece.bytes)
    }

    /// Asks the next member of a mirror from `from` on.
    fn ask_copy(&mut self, number: u64, work: &mut Work, job: &mut Recover, from: usize) -> Next {
        let members = self.pool.sets[work.set].members.len();
        for place in from..members {
            if job.bad == Some(place) {
                continue;
            }
            if let Some(disk) = self.present(work.set, place, job.piece.stripe) {
                job.phase = Phase::Reading { tried: place + 1 };
                let range = self.place_of(&job.piece);
                self.read_disk(number, work, place, disk, range);
                return Next::Disks;
            }
        }
        Next::Done(Some(lacking(work.set)))
    }

    /// Asks all other members of a parity set.
    fn ask_others(&mut self, number: u64, work: &mut Work, job: &mut Recover) -> Next {
        let set = &self.pool.sets[work.set];
        let members = set.members.len();
        let lost = set
            .kind
            .member_of(members, job.piece.stripe, job.piece.cell);
        let others = (0..members).filter(|&place| place != lost);
        let disks = others.map(|place| self.present(work.set, place, job.piece.stripe));
        let Some(disks) = disks.collect::<Option<Vec<_>>>() else {
            return Next::Done(Some(lacking(work.set)));
        };
        job.phase = Phase::Reading { tried: members };
        let range = self.place_of(&job.piece);
        for disk in disks {
            self.read_disk(number, work, 0, disk, range);
        }
        Next::Disks
    }

    fn have_recovered(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut Recover,
        content: AlignedBuffer,
    ) -> Next {
        let bad = job
            .bad
            .and_then(|bad| self.present(work.set, bad, job.piece.stripe));
        job.phase = Phase::Healing;
        if let Some(disk) = bad {
            let mut copy = AlignedBuffer::zeroed(content.len());
            copy.copy_from_slice(&content);
            let at = self.place_of(&job.piece).0;
            self.write_disk(number, work, 0, disk, (at, vec![copy.freeze()], false));
        }
        if let Some(request) = work.owner.request() {
            self.have_part(request, job.piece.index, content);
        }
        Next::Disks
    }
}
