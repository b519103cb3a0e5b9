//! Writes of stripes and mirrors; those of parity sets begin here.

use bytes::Bytes;
use crossdock_disk::{DiskError, DiskToken};

use super::parity_write::{CellWrite, ParityWrite};
use super::read::lacking;
use super::work::{Job, Next, Owner, Work};
use super::{DiskSets, Piece, RequestKind};
use crate::geometry::{BLOCK, Kind, to_usize};

/// A write of contiguous bytes to one member of a stripe, or to all of a mirror.
#[derive(Debug)]
pub(super) struct PlainWrite {
    offset_bytes: u64,
    pieces: Vec<Bytes>,
    is_durable: bool,
    /// Of a stripe: where it goes.
    place: usize,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Of a mirror: it is not noted yet.
    Noting,
    Writing,
}

/// Shared bytes, cut from the front.
struct Cutter {
    pieces: std::collections::VecDeque<Bytes>,
}

impl Cutter {
    fn take(&mut self, mut bytes: usize) -> Vec<Bytes> {
        let mut taken = Vec::new();
        while bytes > 0 {
            let Some(mut piece) = self.pieces.pop_front() else {
                break;
            };
            if piece.len() > bytes {
                self.pieces.push_front(piece.split_off(bytes));
            }
            bytes -= piece.len();
            if !piece.is_empty() {
                taken.push(piece);
            }
        }
        taken
    }
}

/// A run that grows while neighbours come.
struct Run {
    set: usize,
    place: usize,
    stripes: std::ops::Range<u64>,
    offset_bytes: u64,
    bytes: u64,
    pieces: Vec<Bytes>,
}

impl DiskSets {
    pub(super) fn begin_write(
        &mut self,
        token: DiskToken,
        offset_bytes: u64,
        pieces: Vec<Bytes>,
        is_durable: bool,
    ) {
        let bytes = pieces.iter().map(Bytes::len).sum();
        let mut cutter = Cutter {
            pieces: pieces.into(),
        };
        let request = self.open_request(token, RequestKind::Change);
        let mut runs: Vec<Run> = Vec::new();
        let mut stripes: Vec<(usize, u64, Vec<CellWrite>)> = Vec::new();
        for piece in self.pieces(offset_bytes, bytes) {
            let content = cutter.take(piece.bytes);
            match self.pool.sets[piece.set].kind {
                Kind::Parity => add_cell(&mut stripes, &piece, content),
                Kind::Stripe | Kind::Mirror => self.add_run(&mut runs, &piece, content),
            }
        }
        for run in runs {
            self.add_work(Work::new(
                run.set,
                run.stripes,
                Owner::Request(request),
                Job::Write(PlainWrite {
                    offset_bytes: run.offset_bytes,
                    pieces: run.pieces,
                    is_durable,
                    place: run.place,
                    phase: Phase::Noting,
                }),
            ));
        }
        for (set, stripe, cells) in stripes {
            self.add_work(Work::new(
                set,
                stripe..stripe + 1,
                Owner::Request(request),
                Job::Parity(ParityWrite::new(cells, is_durable)),
            ));
        }
        self.part_ended(request, None);
    }

    fn add_run(&self, runs: &mut Vec<Run>, piece: &Piece, content: Vec<Bytes>) {
        let set = &self.pool.sets[piece.set];
        let members = set.members.len();
        let place = set.kind.member_of(members, piece.stripe, piece.cell);
        let at = self.disk_offset(piece.stripe) + piece.offset;
        let mut last = runs.iter_mut().rev();
        let last = last.find(|run| run.set == piece.set && run.place == place);
        // Bounded, so that a mirror can note all regions of a run at once.
        let stripes_max = 4 * u64::from(self.pool.geometry.region_stripes);
        if let Some(run) = last
            && run.offset_bytes + run.bytes == at
            && piece.stripe < run.stripes.start + stripes_max
        {
            run.stripes.end = piece.stripe + 1;
            run.bytes += piece.bytes as u64;
            run.pieces.extend(content);
            return;
        }
        runs.push(Run {
            set: piece.set,
            place,
            stripes: piece.stripe..piece.stripe + 1,
            offset_bytes: at,
            bytes: piece.bytes as u64,
            pieces: content,
        });
    }

    pub(super) fn advance_write(
        &mut self,
        number: u64,
        work: &mut Work,
        job: &mut PlainWrite,
    ) -> Next {
        let is_mirror = self.pool.sets[work.set].kind == Kind::Mirror;
        match job.phase {
            Phase::Noting => {
                if is_mirror && !self.note_regions(number, work.set, &work.stripes) {
                    return Next::Parked;
                }
                job.phase = Phase::Writing;
                self.send_copies(number, work, job, is_mirror);
                Next::Disks
            }
            Phase::Writing => {
                if is_mirror {
                    self.regions_written(work.set, &work.stripes);
                }
                Next::Done(self.verdict(work))
            }
        }
    }

    fn send_copies(&mut self, number: u64, work: &mut Work, job: &mut PlainWrite, is_mirror: bool) {
        let members = self.pool.sets[work.set].members.len();
        let places = match is_mirror {
            true => 0..members,
            false => job.place..job.place + 1,
        };
        let pieces = std::mem::take(&mut job.pieces);
        for place in places {
            // What lies behind what is rebuilt by now is rebuilt later.
            if let Some(disk) = self.present(work.set, place, work.stripes.start) {
                let write = (job.offset_bytes, pieces.clone(), job.is_durable);
                self.write_disk(number, work, place, disk, write);
            }
        }
    }

    /// How a change has ended that went to several members: those that have failed it are
    /// out, or it has failed.
    pub(super) fn verdict(&self, work: &mut Work) -> Option<DiskError> {
        let mut is_somewhere = false;
        let mut error = None;
        for reply in work.replies.drain(..) {
            match reply.answer {
                _ if self.is_out(reply.disk) => {}
                Ok(_) => is_somewhere = true,
                Err(failed) => error = Some(failed),
            }
        }
        match is_somewhere {
            true => error,
            false => Some(error.unwrap_or_else(|| lacking(work.set))),
        }
    }
}

fn add_cell(stripes: &mut Vec<(usize, u64, Vec<CellWrite>)>, piece: &Piece, content: Vec<Bytes>) {
    let first = to_usize(piece.offset / BLOCK);
    let cell = CellWrite {
        cell: piece.cell,
        rows: first..first + piece.bytes / to_usize(BLOCK),
        pieces: content,
    };
    match stripes.last_mut() {
        Some((set, stripe, cells)) if *set == piece.set && *stripe == piece.stripe => {
            cells.push(cell);
        }
        _ => stripes.push((piece.set, piece.stripe, vec![cell])),
    }
}
