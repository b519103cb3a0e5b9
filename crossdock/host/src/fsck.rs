//! `crossdock fsck` of a running volume: proves that every name leads to a file, every
//! file has as many names as it says, and nodes hold what belongs to files and no more.
//!
//! A look asks all nodes and then all sites for what they have, piece by piece, while
//! clients go on; what changed in between looks wrong. So whatever a look finds is
//! looked for again, and is a finding only if a later look finds the very same: ctimes
//! and cookies would have changed with it ([`Finding`]), and what is decided and not
//! done everywhere is told by its coordinator ([`CensusRow::Unsettled`]).
//!
//! [`CensusRow::Unsettled`]: crossdock_peer::CensusRow::Unsettled

mod finding;
mod look;
mod mend;
mod paths;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
#[cfg(feature = "mutations")]
use crossdock_directory::{Directory, Mutation as DirectoryMutation};
use crossdock_names::{FileRef, Incarnation, NodeId, ObjectClass, ObjectId, SiteId};
#[cfg(feature = "mutations")]
use crossdock_peer::Repair;
use crossdock_peer::{
    Call, CallId, CensusClass, CensusPage, CensusPlace, NodeAnswer, NodeError, NodeReply,
    NodeRequest, Port, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest, WriterId,
};
use crossdock_router::RouterInput;
use crossdock_types::Time;
#[cfg(feature = "mutations")]
use crossdock_types::WallTime;

pub use finding::{Finding, NamedFinding};
pub use look::Counts;
use look::Look;
use mend::Mend;
use paths::{Paths, Way};

use crate::equalize::LIST_LIMIT;
use crate::host::Host;
use crate::message::{FSCK_NODE_BIT, Message};
use crate::sites::PATIENCE;
use crate::walks::volume_root;

/// Calls of checks to sites have this bit, those of the door and of walks never.
const FSCK_BIT: u64 = 1 << 62;

/// Between two pieces clients have their turn.
const PIECE_PAUSE: Duration = Duration::from_millis(1);

/// An answer that has not come by then was lost.
const SILENCE: Duration = Duration::from_secs(30);

/// After a site or node did not answer.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// How often one is asked before it is given up.
const TRIES_MAX: u32 = 60;

/// Between two looks: what was under way is done, mostly.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// What is found by one look and not by the next is looked for again, up to so often.
const LOOKS_MAX: u32 = 8;

/// Files, names and objects that are held at a time, about 100 bytes each; more are
/// looked at class by class.
const HELD_MAX: usize = 4_000_000;

/// The same of a repair; what stays is found again by the next look.
const REPAIR_TRIES_MAX: u32 = 10;

/// How often what was found is mended: one thing shows when another one is.
const REPAIRS_MAX: u32 = 3;

/// Findings that are told, and have paths.
const FINDINGS_MAX: usize = 1000;

/// How far a check is, and what it has found.
#[derive(Clone, Debug, Default)]
pub struct FsckProgress {
    /// Whether it is under way.
    pub running: bool,
    /// Which look, from 1 on.
    pub looks: u32,
    /// What the look has seen so far.
    pub seen: Counts,
    /// What is wrong: found by two looks.
    pub findings: Vec<NamedFinding>,
    /// How much that is in all.
    pub findings_total: usize,
    /// What was wrong and has been mended.
    pub repaired: Vec<NamedFinding>,
    /// What looked wrong in every look, each time in another way: clients change it.
    pub unsettled: usize,
    /// Nodes that are not there: what they hold was not looked at.
    pub nodes_away: Vec<NodeId>,
    /// Why it has ended without a result.
    pub error: Option<String>,
}

/// The check of this host.
#[derive(Default)]
pub(crate) struct Fsck {
    progress: FsckProgress,
    work: Option<Work>,
    calls: u64,
}

struct Work {
    look: Look,
    step: Step,
    /// When something is to be asked: again, if it has not been answered by then.
    due: Option<Time>,
    tries: u32,
    /// What the look before found.
    before: BTreeSet<Finding>,
    /// What two looks found, and the names that lead there.
    confirmed: Confirmed,
    /// Classes of the next look.
    classes: u32,
    /// How often what is found may still be mended.
    repairs: u32,
    /// Where each site was when the look began with it.
    incarnations: Vec<(SiteId, Incarnation)>,
}

type Confirmed = BTreeMap<Finding, Option<Way>>;

enum Step {
    Nodes {
        left: VecDeque<NodeId>,
        after: Option<ObjectId>,
    },
    Sites {
        left: VecDeque<SiteId>,
        place: CensusPlace,
    },
    Naming(Paths),
    Mending(Mend),
}

impl Fsck {
    /// What is being mended, and when it goes on.
    const fn mending(&mut self) -> Option<(&mut Option<Time>, &mut Mend)> {
        match &mut self.work {
            Some(Work {
                step: Step::Mending(mend),
                due,
                ..
            }) => Some((due, mend)),
            _ => None,
        }
    }

    pub(crate) fn due(&self) -> Option<Time> {
        self.work.as_ref()?.due
    }
}

impl Host {
    /// Begins to check the volume, and to mend what is found if that is wanted; nothing
    /// if a check is under way.
    pub fn begin_fsck(&mut self, now: Time, repairs: bool) {
        if self.fsck.work.is_some() {
            return;
        }
        self.fsck.progress = FsckProgress {
            running: true,
            ..FsckProgress::default()
        };
        let repairs = if repairs { REPAIRS_MAX } else { 0 };
        self.begin_looks(now, 1, repairs);
    }

    /// The first look of a check, or of what is left after mending.
    fn begin_looks(&mut self, due: Time, classes: u32, repairs: u32) {
        self.fsck.progress.looks = 0;
        self.begin_look(due, (classes, repairs), BTreeSet::new(), Confirmed::new());
    }

    /// Damages the volume, for tests: what a check would do if it had found otherwise.
    #[cfg(feature = "mutations")]
    pub fn plant(&mut self, now: Time, wall: WallTime, file: FileRef, damage: Repair) {
        let repair = damage;
        self.ask_site_for_fsck(now, SiteOperation::Repair { file, repair });
        self.pump(now, wall);
    }

    /// Makes changes to a site of this host that no operation makes, for tests.
    #[cfg(feature = "mutations")]
    pub fn damage(
        &mut self,
        now: Time,
        wall: WallTime,
        site: SiteId,
        changes: impl FnOnce(&Directory) -> Vec<DirectoryMutation>,
    ) {
        if let Some(site) = self.sites.get_mut(&site) {
            site.damage(now, wall, changes);
        }
        self.drain_site(site);
        self.pump(now, wall);
    }

    /// The check that is under way, or the last one.
    #[must_use]
    pub const fn fsck_progress(&self) -> &FsckProgress {
        &self.fsck.progress
    }

    /// Whether the answer to `id` is for a check.
    pub(crate) const fn is_of_fsck(id: CallId) -> bool {
        id.0 & (FSCK_BIT | crate::walks::WALK_BIT) == FSCK_BIT
    }

    fn begin_look(
        &mut self,
        due: Time,
        (classes, repairs): (u32, u32),
        before: BTreeSet<Finding>,
        confirmed: Confirmed,
    ) {
        let class = CensusClass {
            number: 0,
            of: classes,
        };
        let state = self.registry.state();
        self.fsck.progress.looks += 1;
        self.fsck.progress.seen = Counts::default();
        self.fsck.progress.nodes_away.clear();
        self.fsck.work = Some(Work {
            look: Look::new(state.spread, class),
            step: self.first_step(),
            due: Some(due),
            tries: 0,
            before,
            confirmed,
            classes,
            repairs,
            incarnations: Vec::new(),
        });
    }

    /// Nodes first, see [`Look::take_objects`].
    fn first_step(&self) -> Step {
        let nodes = self.registry.state().nodes.iter();
        Step::Nodes {
            left: nodes.map(|node| NodeId(node.id)).collect(),
            after: None,
        }
    }

    /// Asks for the next piece.
    pub(crate) fn step_fsck(&mut self, now: Time) {
        let sites = self.registry.state().opened_sites.iter();
        let sites: VecDeque<SiteId> = sites.map(|&site| SiteId(site)).collect();
        let Some(work) = &mut self.fsck.work else {
            return;
        };
        work.due = Some(now + SILENCE);
        if let Step::Nodes { left, .. } = &work.step
            && left.is_empty()
        {
            work.step = Step::Sites {
                left: sites,
                place: CensusPlace::default(),
            };
        }
        match &mut work.step {
            Step::Nodes { left, after } => {
                let Some(&node) = left.front() else { return };
                let list = NodeRequest::List {
                    class: ObjectClass::Column,
                    placement: None,
                    after: *after,
                    limit: LIST_LIMIT,
                };
                self.ask_node_for_fsck(now, node, list);
            }
            Step::Sites { left, place } => match left.front() {
                Some(&site) => {
                    let census = SiteOperation::Census {
                        file: FileRef::root_of(site),
                        class: work.look.class(),
                        from: *place,
                    };
                    self.ask_site_for_fsck(now, census);
                }
                None => self.end_class(now),
            },
            Step::Naming(paths) => match paths.step() {
                Some(names) => self.ask_site_for_fsck(now, names),
                None => self.end_naming(now),
            },
            Step::Mending(mend) => match mend.step(volume_root(), &self.table) {
                Some(mend::Step::Site(operation)) => {
                    let operation = operation.clone();
                    self.ask_site_for_fsck(now, operation);
                }
                Some(mend::Step::Node(node, request)) => {
                    let (node, request) = (*node, request.clone());
                    self.ask_node_for_fsck(now, node, request);
                }
                None => {
                    let (classes, repairs) = (work.classes, work.repairs);
                    self.begin_looks(now, classes, repairs);
                }
            },
        }
    }

    fn ask_node_for_fsck(&mut self, now: Time, node: NodeId, request: NodeRequest) {
        self.fsck.calls += 1;
        let call = Call {
            id: CallId(self.fsck.calls | FSCK_NODE_BIT),
            deadline: now + PATIENCE,
            request,
        };
        let message = Message::call(node, Port::Host, call);
        self.queue.push_back(message);
    }

    fn ask_site_for_fsck(&mut self, now: Time, operation: SiteOperation) {
        self.fsck.calls += 1;
        let call = Call {
            id: CallId(self.fsck.calls | FSCK_BIT),
            deadline: now + PATIENCE,
            request: SiteRequest::as_root(operation),
        };
        let input = RouterInput::Request(Box::new(call));
        self.queue.push_back(Message::Router(input));
    }

    /// A node tells what it holds, or that an object is gone.
    pub(crate) fn take_listed(&mut self, now: Time, reply: NodeReply) {
        let Some(work) = &mut self.fsck.work else {
            return;
        };
        if reply.id.0 & !FSCK_NODE_BIT != self.fsck.calls {
            return;
        }
        let answer = reply.outcome;
        if let Step::Mending(_) = work.step {
            return match answer {
                Ok(_) | Err(NodeError::NoObject) => self.mended(now),
                Err(error) => self.try_again(now, format!("an object stays: {error}")),
            };
        }
        let Step::Nodes { left, after } = &mut work.step else {
            return;
        };
        let Some(&node) = left.front() else { return };
        match answer {
            Ok(NodeAnswer::List { objects, more }) => {
                work.tries = 0;
                *after = objects.last().copied().filter(|_| more);
                if after.is_none() {
                    left.pop_front();
                }
                // What a node has to be made equal in counts when it is.
                let is_member = |object: &ObjectId| {
                    let set = self.table.members_of(object);
                    set.is_some_and(|set| set.members.contains(&node))
                };
                let objects: Vec<ObjectId> = objects.into_iter().filter(is_member).collect();
                work.look.take_objects(node, &objects);
                work.due = Some(now + PIECE_PAUSE);
            }
            Err(NodeError::Unavailable { .. }) => {
                left.pop_front();
                *after = None;
                work.tries = 0;
                let away = &mut self.fsck.progress.nodes_away;
                if !away.contains(&node) {
                    away.push(node);
                }
                work.due = Some(now + PIECE_PAUSE);
            }
            Ok(_) => self.try_again(now, format!("node {node} gives another answer")),
            Err(error) => self.try_again(now, format!("node {node} does not answer: {error}")),
        }
        self.show_progress();
    }

    /// A site tells what it has, or what came of mending.
    pub(crate) fn take_census(&mut self, now: Time, reply: SiteReply) {
        let Some(work) = &self.fsck.work else {
            return;
        };
        if reply.id.0 & !FSCK_BIT != self.fsck.calls {
            return;
        }
        match (&work.step, reply.outcome) {
            (Step::Mending(_), outcome) => self.take_mended(now, outcome),
            (Step::Sites { .. }, Ok(SiteAnswer::Census(page))) => self.take_page(now, page),
            (Step::Sites { left, .. }, outcome) => {
                let site = left.front().copied().unwrap_or_default();
                let why = outcome.map_or_else(|error| error.to_string(), |_| "no list".to_owned());
                self.try_again(now, format!("site {site} does not tell what it has: {why}"));
            }
            (Step::Naming(_), Ok(SiteAnswer::Names(names))) => self.take_names(now, &names),
            (Step::Naming(_), _) => self.try_again(now, "names are not told".to_owned()),
            (Step::Nodes { .. }, _) => {}
        }
    }

    /// A site tells names; what it does not tell has none.
    fn take_names(&mut self, now: Time, names: &[Option<Bytes>]) {
        if let Some(work) = &mut self.fsck.work
            && let Step::Naming(paths) = &mut work.step
        {
            paths.take(names);
            work.tries = 0;
            work.due = Some(now + PIECE_PAUSE);
        }
    }

    /// One thing is mended, or not so any more, or cannot be mended.
    fn take_mended(&mut self, now: Time, outcome: Result<SiteAnswer, SiteError>) {
        let Some((due, mend)) = self.fsck.mending() else {
            return;
        };
        *due = Some(now + PIECE_PAUSE);
        match outcome {
            Ok(SiteAnswer::Found { attributes, .. }) if mend.prepares() => {
                mend.found_directory(attributes.file);
            }
            Err(SiteError::NotFound) if mend.prepares() => mend.make_directory(volume_root()),
            Ok(_) if mend.prepares() => mend.give_up(),
            Ok(_) => self.mended(now),
            Err(
                error @ (SiteError::Busy
                | SiteError::Moved
                | SiteError::Unanswered
                | SiteError::Lost { .. }),
            ) => self.try_again(now, format!("nothing can be mended: {error}")),
            Err(_) => mend.give_up(),
        }
    }

    fn mended(&mut self, now: Time) {
        let Some((due, mend)) = self.fsck.mending() else {
            return;
        };
        *due = Some(now + PIECE_PAUSE);
        let mended = mend.done();
        let repaired = &mut self.fsck.progress.repaired;
        repaired.extend(mended.filter(|_| repaired.len() < FINDINGS_MAX));
        if let Some(work) = &mut self.fsck.work {
            work.tries = 0;
        }
    }

    fn take_page(&mut self, now: Time, page: CensusPage) {
        let Some(work) = &mut self.fsck.work else {
            return;
        };
        let Step::Sites { left, place } = &mut work.step else {
            return;
        };
        let Some(&site) = left.front() else { return };
        work.tries = 0;
        let known = work.incarnations.iter().find(|known| known.0 == site);
        if known.is_some_and(|known| known.1 != page.incarnation) {
            return self.look_anew(now);
        }
        if known.is_none() {
            work.incarnations.push((site, page.incarnation));
        }
        work.look.take_rows(&page.rows);
        match page.next {
            Some(next) => *place = next,
            None => {
                left.pop_front();
                *place = CensusPlace::default();
            }
        }
        if work.look.held() > HELD_MAX {
            work.classes *= 4;
            return self.look_anew(now);
        }
        work.due = Some(now + PIECE_PAUSE);
        self.show_progress();
    }

    fn show_progress(&mut self) {
        if let Some(work) = &self.fsck.work {
            self.fsck.progress.seen = work.look.counts;
        }
    }

    /// Something did not answer: it is asked again, or given up.
    fn try_again(&mut self, now: Time, why: String) {
        let Some(work) = &mut self.fsck.work else {
            return;
        };
        work.tries += 1;
        work.due = Some(now + AGAIN_AFTER);
        let is_given_up = work.tries >= REPAIR_TRIES_MAX;
        match &mut work.step {
            Step::Mending(mend) if is_given_up => {
                work.tries = 0;
                return mend.give_up();
            }
            Step::Mending(mend) => return mend.begin_again(),
            Step::Naming(_) if is_given_up => return self.take_names(now, &[]),
            _ => {}
        }
        if work.tries >= TRIES_MAX {
            self.fsck.work = None;
            self.fsck.progress.error = Some(why);
            self.fsck.progress.running = false;
        }
    }

    /// What was seen of this look is of no use.
    fn look_anew(&mut self, now: Time) {
        if let Some(work) = self.fsck.work.take() {
            self.fsck.progress.looks -= 1;
            let due = now + AGAIN_AFTER;
            let shape = (work.classes, work.repairs);
            self.begin_look(due, shape, work.before, work.confirmed);
        }
    }

    fn end_class(&mut self, now: Time) {
        self.show_progress();
        let step = self.first_step();
        let has_all_nodes = self.fsck.progress.nodes_away.is_empty();
        let Some(mut work) = self.fsck.work.take() else {
            return;
        };
        if work.look.end_class(has_all_nodes) {
            work.step = step;
            work.due = Some(now + PIECE_PAUSE);
            self.fsck.work = Some(work);
            return;
        }
        let found = std::mem::take(&mut work.look.findings);
        for finding in found.intersection(&work.before) {
            let is_told = work.confirmed.len() < FINDINGS_MAX;
            let way = is_told.then(|| work.look.way_to(finding)).flatten();
            work.confirmed.entry(*finding).or_insert(way);
        }
        let is_confirmed = |finding: &&Finding| work.confirmed.contains_key(finding);
        let open = found.len() - found.iter().filter(is_confirmed).count();
        if open > 0 && self.fsck.progress.looks < LOOKS_MAX {
            let shape = (work.classes, work.repairs);
            return self.begin_look(now + LOOK_PAUSE, shape, found, work.confirmed);
        }
        self.fsck.progress.unsettled = open;
        let ways = work.confirmed.iter();
        let ways = ways.filter_map(|(finding, way)| Some((*finding, way.clone()?)));
        work.step = Step::Naming(Paths::new(ways.collect()));
        work.due = Some(now);
        self.fsck.work = Some(work);
    }

    /// What is wrong has names by now: it is mended, or told.
    fn end_naming(&mut self, now: Time) {
        let Some(mut work) = self.fsck.work.take() else {
            return;
        };
        let Step::Naming(paths) = &work.step else {
            return;
        };
        let findings = work.confirmed.keys().map(|finding| NamedFinding {
            finding: *finding,
            path: paths.path_of(finding),
        });
        if work.repairs > 0 && !work.confirmed.is_empty() {
            let spread = self.registry.state().spread;
            let writer = WriterId(self.instance());
            let mend = Mend::new(findings, spread, writer);
            work.repairs -= 1;
            work.step = Step::Mending(mend);
            work.confirmed = Confirmed::new();
            work.due = Some(now);
            self.fsck.work = Some(work);
            return;
        }
        let progress = &mut self.fsck.progress;
        progress.running = false;
        progress.findings_total = work.confirmed.len();
        progress.findings = findings.take(FINDINGS_MAX).collect();
    }
}
