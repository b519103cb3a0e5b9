//! Reads: straight from a disk where that is possible, neighbours in one request; else
//! from what the other members have.

use crossdock_disk::{DiskError, DiskOperation, DiskToken};
use crossdock_types::{AlignedBuffer, Scatter};

use super::recover::Recover;
use super::work::{Job, Next, Owner, Work};
use super::{DiskSets, Piece, Purpose, RequestKind, SetsEvent};
use crate::assemble::DiskNumber;
use crate::geometry::Kind;

/// EIO.
const ERRNO_IO: i32 = 5;

/// Pieces that lie one after the other on a disk, read at once.
#[derive(Debug)]
pub(super) struct DirectRead {
    disk: DiskNumber,
    place: usize,
    offset_bytes: u64,
    pieces: Vec<Piece>,
    is_asked: bool,
    /// What came, a part for each piece.
    pub(super) parts: Vec<AlignedBuffer>,
}

/// A piece as one particular member has it, whatever the others have.
#[derive(Debug, Default)]
pub(super) struct Copied {
    source: Option<(DiskNumber, u64)>,
    index: usize,
    bytes: usize,
    is_asked: bool,
}

/// Why a request of a set fails that lacks too much.
pub(super) fn lacking(set: usize) -> DiskError {
    DiskError::Io {
        operation: "read",
        errno: ERRNO_IO,
        message: format!("set {set} lacks too many disks"),
    }
}

impl DiskSets {
    pub(super) fn begin_read(&mut self, token: DiskToken, offset_bytes: u64, bytes: usize) {
        let pieces = self.pieces(offset_bytes, bytes);
        let parts = pieces.iter().map(|_| None).collect();
        let request = self.open_request(token, RequestKind::Read(parts));
        let mut runs: Vec<(usize, DirectRead)> = Vec::new();
        let mut lost = Vec::new();
        let mut chosen = None;
        for piece in pieces {
            let Some((place, disk)) = self.source_of(&piece, &mut chosen) else {
                lost.push(piece);
                continue;
            };
            let at = self.disk_offset(piece.stripe) + piece.offset;
            let last = runs.iter_mut().rev().find(|(_, run)| run.disk == disk);
            match last {
                Some((_, run)) if run.end() == at => run.pieces.push(piece),
                _ => {
                    let run = DirectRead {
                        disk,
                        place,
                        offset_bytes: at,
                        pieces: vec![piece],
                        is_asked: false,
                        parts: Vec::new(),
                    };
                    runs.push((piece.set, run));
                }
            }
        }
        for (set, run) in runs {
            // It meets no stripe of others.
            self.add_work(Work::new(
                set,
                0..0,
                Owner::Request(request),
                Job::Read(run),
            ));
        }
        for piece in lost {
            self.recover_piece(request, piece, None);
        }
        self.part_ended(request, None);
    }

    pub(super) fn begin_read_other(
        &mut self,
        token: DiskToken,
        offset_bytes: u64,
        bytes: usize,
        attempt: u32,
    ) {
        let pieces = self.pieces(offset_bytes, bytes);
        let parts = pieces.iter().map(|_| None).collect();
        let request = self.open_request(token, RequestKind::Read(parts));
        let mut has_others = false;
        for piece in pieces {
            let set = &self.pool.sets[piece.set];
            let others = match set.kind {
                Kind::Stripe => 0,
                Kind::Mirror => set.members.len(),
                Kind::Parity => 1,
            };
            has_others |= others > 0;
            let place = (attempt as usize).wrapping_sub(1);
            if place >= others {
                self.fail_part(request, DiskError::NoOther);
            } else if set.kind == Kind::Parity {
                self.recover_piece(request, piece, None);
            } else {
                self.copy_piece(request, piece, place);
            }
        }
        if attempt == 1 && has_others {
            self.events.push_back(SetsEvent::Doubted { offset_bytes });
        }
        self.part_ended(request, None);
    }

    fn fail_part(&mut self, request: u64, error: DiskError) {
        if let Some(request) = self.requests.get_mut(&request) {
            request.error.get_or_insert(error);
        }
    }

    fn copy_piece(&mut self, request: u64, piece: Piece, place: usize) {
        let disk = self.present(piece.set, place, piece.stripe);
        let at = self.disk_offset(piece.stripe) + piece.offset;
        self.add_work(Work::new(
            piece.set,
            0..0,
            Owner::Request(request),
            Job::Copied(Copied {
                source: disk.map(|disk| (disk, at)),
                index: piece.index,
                bytes: piece.bytes,
                is_asked: false,
            }),
        ));
    }

    /// Makes a piece of what the other members have; `bad` is the one that could not read.
    fn recover_piece(&mut self, request: u64, piece: Piece, bad: Option<usize>) {
        self.add_work(Work::new(
            piece.set,
            piece.stripe..piece.stripe + 1,
            Owner::Request(request),
            Job::Recover(Recover::new(piece, bad)),
        ));
    }

    /// Who reads a piece. Of a mirror: one for all pieces of a request, so that neighbours
    /// stay together; the one that has least to do.
    fn source_of(
        &self,
        piece: &Piece,
        chosen: &mut Option<(usize, usize)>,
    ) -> Option<(usize, DiskNumber)> {
        let set = &self.pool.sets[piece.set];
        if set.kind != Kind::Mirror {
            let place = set
                .kind
                .member_of(set.members.len(), piece.stripe, piece.cell);
            let disk = self.present(piece.set, place, piece.stripe)?;
            return Some((place, disk));
        }
        if self.is_suspect(piece.set, piece.stripe) {
            // All are to see the same copy, until it is known to be right.
            let mut places = 0..set.members.len();
            return places.find_map(|place| {
                let disk = self.present(piece.set, place, piece.stripe)?;
                Some((place, disk))
            });
        }
        if let Some((of, place)) = *chosen
            && of == piece.set
            && let Some(disk) = self.present(piece.set, place, piece.stripe)
        {
            return Some((place, disk));
        }
        let places = 0..set.members.len();
        let present = places.filter_map(|place| {
            let disk = self.present(piece.set, place, piece.stripe)?;
            Some((place, disk))
        });
        let busy = |disk: DiskNumber| self.disks.get(&disk).map_or(0, |disk| disk.in_flight);
        let found = present.min_by_key(|&(_, disk)| busy(disk))?;
        *chosen = Some((piece.set, found.0));
        Some(found)
    }

    pub(super) fn advance_read(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut DirectRead,
    ) -> Next {
        if !job.is_asked {
            job.is_asked = true;
            let parts = job
                .pieces
                .iter()
                .map(|piece| AlignedBuffer::zeroed(piece.bytes));
            let read = DiskOperation::Read {
                offset_bytes: job.offset_bytes,
                buffer: Scatter::of(parts.collect()),
            };
            work.outstanding += 1;
            let purpose = Purpose::Work {
                work: number,
                slot: 0,
            };
            self.send(job.disk, purpose, read);
            return Next::Disks;
        }
        let Some(request) = work.owner.request() else {
            return Next::Done(None);
        };
        match work.replies.pop().map(|reply| reply.answer) {
            Some(Ok(_)) => {
                let parts = std::mem::take(&mut job.parts);
                for (piece, part) in job.pieces.iter().zip(parts) {
                    self.have_part(request, piece.index, part);
                }
            }
            _ => {
                // Each by itself: one bad block does not take the others along.
                for piece in std::mem::take(&mut job.pieces) {
                    self.recover_piece(request, piece, Some(job.place));
                }
            }
        }
        Next::Done(None)
    }

    pub(super) fn advance_copied(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut Copied,
    ) -> Next {
        let Some((disk, offset_bytes)) = job.source else {
            return Next::Done(Some(lacking(work.set)));
        };
        if !job.is_asked {
            job.is_asked = true;
            self.read_disk(number, work, 0, disk, (offset_bytes, job.bytes));
            return Next::Disks;
        }
        let answer = work.replies.pop().map(|reply| reply.answer);
        match (answer, work.owner.request()) {
            (Some(Ok(Some(part))), Some(request)) => {
                self.have_part(request, job.index, part);
                Next::Done(None)
            }
            (Some(Err(error)), _) => Next::Done(Some(error)),
            _ => Next::Done(Some(lacking(work.set))),
        }
    }

    pub(super) fn have_part(&mut self, request: u64, index: usize, part: AlignedBuffer) {
        if let Some(request) = self.requests.get_mut(&request)
            && let RequestKind::Read(parts) = &mut request.kind
            && let Some(slot) = parts.get_mut(index)
        {
            *slot = Some(part);
        }
    }
}

impl DirectRead {
    fn end(&self) -> u64 {
        let bytes: u64 = self.pieces.iter().map(|piece| piece.bytes as u64).sum();
        self.offset_bytes + bytes
    }
}
