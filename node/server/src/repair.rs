//! Repair of blocks that the node's own disk cannot give back: one after the
//! other, each is read on another member of the set and put in its place.
//!
//! What a client's read met is repaired behind it (the client has its bytes from
//! the other member by then); what a scrub has found is repaired before the scrub
//! tells of it. Nobody asks for a repair by itself, so one at a time is enough,
//! and what does not fit into the queue is found again.

use std::collections::{BTreeSet, VecDeque};

use crossdock_names::{ObjectId, Version};
use crossdock_peer::{CallId, NodeAnswer, NodeError, NodeRequest, ReadVersion};
use crossdock_store::{ScrubFinding, ScrubReport};
use crossdock_types::{BLOCK_BYTES, Payload};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Reads of clients whose blocks wait to be repaired.
const JOBS_MAX: usize = 64;

/// Lost blocks of which it is remembered that they have been told.
const LOST_MAX: usize = 4096;

/// What the repair wants asked now.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Of the own store.
    Own(NodeRequest),
    /// Of another member of the object's set; of the next one each time.
    Other {
        request: NodeRequest,
        /// How many have been asked.
        asked: usize,
    },
}

/// What came of one block, or of a scrub.
#[derive(Debug)]
pub(crate) enum Told {
    Block {
        object: ObjectId,
        offset_bytes: u64,
        what: String,
        is_repaired: bool,
    },
    Scrub(ScrubReport),
}

/// The blocks that wait and the one that is at work.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    jobs: VecDeque<Job>,
    current: Option<Work>,
    /// The call that is to be answered, once it has been sent.
    sent: Option<CallId>,
    /// Blocks that nobody could help with, which is told once.
    lost: BTreeSet<(ObjectId, u64)>,
    told: VecDeque<Told>,
}

/// Blocks of an object, or those that a scrub has found.
#[derive(Debug)]
enum Job {
    Range {
        object: ObjectId,
        next: u64,
        end: u64,
    },
    Scrub {
        report: ScrubReport,
        next: usize,
    },
}

/// A block that is being repaired.
#[derive(Debug)]
struct Work {
    object: ObjectId,
    offset_bytes: u64,
    /// What the disk said.
    what: String,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Memory may still have it, or the disk may change its mind.
    Own,
    /// So many others have been asked.
    Other(usize),
    /// It is put in its place.
    Put,
}

impl Repairs {
    /// A read met something bad in these bytes.
    pub(crate) fn add_range(&mut self, object: ObjectId, offset: u64, length: u64) {
        let (first, last) = (
            offset / BLOCK * BLOCK,
            (offset + length).next_multiple_of(BLOCK),
        );
        let is_known = |job: &Job| matches!(job, Job::Range { object: other, next, end } if *other == object && *next <= first && last <= *end);
        if self.jobs.len() < JOBS_MAX && !self.jobs.iter().any(is_known) {
            self.jobs.push_back(Job::Range {
                object,
                next: first,
                end: last,
            });
        }
    }

    /// A scrub ended a step; it is told of when its findings have been looked after.
    pub(crate) fn add_scrub(&mut self, report: ScrubReport) {
        // Before all that has not begun: somebody waits for it.
        let at = usize::from(self.current.is_some());
        self.jobs.insert(at, Job::Scrub { report, next: 0 });
    }

    /// What there is to tell.
    pub(crate) fn poll_told(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    /// Whether `id` is the call that it waits for.
    pub(crate) fn awaits(&self, id: CallId) -> bool {
        self.sent == Some(id)
    }

    /// What is to be asked now, if nothing is under way; [`sent`](Self::sent)
    /// or [`step`](Self::step) must follow.
    pub(crate) fn poll_ask(&mut self) -> Option<Ask> {
        if self.sent.is_some() {
            return None;
        }
        if self.current.is_none() {
            self.current = self.next_work();
        }
        let work = self.current.as_ref()?;
        let request = NodeRequest::Read {
            object: work.object,
            offset_bytes: work.offset_bytes,
            length_bytes: BLOCK,
            version: ReadVersion::Current,
            patience_ms: 0,
        };
        match work.stage {
            Stage::Own => Some(Ask::Own(request)),
            Stage::Put => None, // It has been asked with the answer before.
            Stage::Other(asked) => Some(Ask::Other { request, asked }),
        }
    }

    /// The question has gone out under that number.
    pub(crate) const fn sent(&mut self, id: CallId) {
        self.sent = Some(id);
    }

    /// Takes the answer; gives what has to be put into the own store then.
    /// `None` as an answer: there is nobody left to ask.
    pub(crate) fn step(
        &mut self,
        answer: Option<Result<NodeAnswer, NodeError>>,
    ) -> Option<NodeRequest> {
        self.sent = None;
        let mut work = self.current.take()?;
        let is_scrub = matches!(self.jobs.front(), Some(Job::Scrub { .. }));
        match (&work.stage, answer) {
            // A scrub asks the disk: it is memory that has given it now.
            (Stage::Own, Some(Ok(NodeAnswer::Read { payload, version }))) if is_scrub => {
                return self.put(work, payload, version);
            }
            (Stage::Own, Some(Err(NodeError::Media { what, .. }))) => {
                if work.what.is_empty() {
                    work.what = what;
                }
                work.stage = Stage::Other(0);
                self.current = Some(work);
            }
            (Stage::Other(_), Some(Ok(NodeAnswer::Read { payload, version }))) => {
                return self.put(work, payload, version);
            }
            (&Stage::Other(asked), Some(_)) => {
                work.stage = Stage::Other(asked + 1);
                self.current = Some(work);
            }
            (Stage::Other(_), None) => self.tell(work, false),
            // It is about to become another block: whoever reads that finds out.
            (Stage::Put, Some(Err(NodeError::Busy { .. }))) if !is_scrub => {}
            (Stage::Put, answer) => self.tell(work, matches!(answer, Some(Ok(_)))),
            (Stage::Own, _) if is_scrub => self.tell(work, false),
            // Well again, gone or too busy: whoever reads it next finds it again.
            (Stage::Own, _) => {}
        }
        None
    }

    fn put(&mut self, mut work: Work, payload: Payload, version: Version) -> Option<NodeRequest> {
        let request = NodeRequest::Repair {
            object: work.object,
            offset_bytes: work.offset_bytes,
            payload,
            version,
        };
        work.stage = Stage::Put;
        self.current = Some(work);
        Some(request)
    }

    fn tell(&mut self, work: Work, is_repaired: bool) {
        if let Some(Job::Scrub { report, next }) = self.jobs.front_mut()
            && let Some(finding) = report.findings.get_mut(*next - 1)
        {
            finding.is_repaired = is_repaired;
        }
        let place = (work.object, work.offset_bytes);
        if is_repaired {
            self.lost.remove(&place);
        } else if self.lost.len() >= LOST_MAX || !self.lost.insert(place) {
            return; // Said before.
        }
        self.told.push_back(Told::Block {
            object: work.object,
            offset_bytes: work.offset_bytes,
            what: work.what,
            is_repaired,
        });
    }

    fn next_work(&mut self) -> Option<Work> {
        loop {
            match self.jobs.front_mut()? {
                Job::Range { object, next, end } if *next < *end => {
                    let offset_bytes = *next;
                    *next += BLOCK;
                    return Some(Work {
                        object: *object,
                        offset_bytes,
                        what: String::new(),
                        stage: Stage::Own,
                    });
                }
                Job::Range { .. } => {
                    self.jobs.pop_front();
                }
                Job::Scrub { report, next } => {
                    if let Some(finding) = report.findings.get(*next) {
                        *next += 1;
                        return Some(Work::of(finding));
                    }
                    if let Some(Job::Scrub { report, .. }) = self.jobs.pop_front() {
                        self.told.push_back(Told::Scrub(report));
                    }
                }
            }
        }
    }
}

impl Work {
    fn of(finding: &ScrubFinding) -> Self {
        Self {
            object: finding.object,
            offset_bytes: finding.offset_bytes,
            what: finding.what.clone(),
            stage: Stage::Own,
        }
    }
}
