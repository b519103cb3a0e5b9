//! The machine: what comes in, what goes out, in which order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crossdock_names::{
    Epoch, FileId, HandleKey, HostId, NodeId, ObjectClass, ObjectId, ProofKey, RoutingTable,
    SiteId, Version,
};
use crossdock_peer::{
    Call, CallId, LockNotice, NodeAnswer, NodeError, NodeReply, NodeRequest, Recall, SiteError,
    SiteOperation, SiteReply, SiteRequest, SpaceUsage, TransactionId, WriteContext,
};
use crossdock_smallfile::Sequence;
use crossdock_types::{Time, WallTime};

use crate::calls::{Answered, Calls, Target};
use crate::checkpoint::{CheckpointRun, CheckpointStep};
use crate::commit::Waits;
use crate::config::SiteConfig;
use crate::coordinator::Crossing;
use crate::ends::Asking;
use crate::figures::Counted;
use crate::leases::FileLeases;
use crate::log::{Append, SiteLog};
use crate::open::{OpenError, OpenReport, OpenStep, Opening};
use crate::placement::{Rooms, Turns};
use crate::quotas::QuotaWork;
use crate::refusals::Refusals;
use crate::site_calls::SiteCalls;
use crate::small::SmallWork;
use crate::state::State;

/// What a site is told.
#[derive(Debug)]
pub enum SiteInput {
    /// A request of a gateway.
    Request(Box<Call<SiteRequest>>),
    /// A node's answer.
    Node(NodeId, NodeReply),
    /// Another site's answer.
    Site(Box<SiteReply>),
    /// The routing table has changed.
    Table(Arc<RoutingTable>),
    /// The space of the volume has changed.
    Space(SpaceUsage),
    /// What the nodes have to give has changed.
    Rooms(Arc<Rooms>),
    /// The root's site keeps this to make handles with, unless it has another one; see
    /// [`Site::handle_key`].
    HandleKey(HandleKey),
    /// Proofs are wanted: the root's site keeps this to make them with, unless it has
    /// another one; see [`Site::proof_key`].
    ProofKey(ProofKey),
    /// The time that [`Site::poll_timeout`] named has come (or not yet).
    Timeout,
}

/// What a site wants done.
#[derive(Debug)]
pub enum SiteEffect {
    /// Send this to that node.
    Node(NodeId, Call<NodeRequest>),
    /// Send this to that site.
    Site(SiteId, Box<Call<SiteRequest>>),
    /// Answer a request. (Boxed: it is moved often, and large.)
    Reply(Box<SiteReply>),
    /// Opening has ended; once. Requests that came before are answered now.
    Opened(Result<OpenReport, OpenError>),
    /// Want a lease back from that host's router.
    Recall(HostId, Recall),
    /// Have a door tell clients something about their locks.
    Lock(LockNotice),
    /// The log takes nothing any more, for this reason: only reads are answered
    /// until the site is opened anew.
    ReadOnly(String),
}

/// One logical site. See the crate's page.
///
/// Give it inputs with [`handle`](Self::handle), then take all effects with
/// [`poll_effect`](Self::poll_effect) and carry them out in order; call it
/// again at [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct Site {
    pub(crate) config: SiteConfig,
    pub(crate) table: Arc<RoutingTable>,
    /// The nodes that hold the site's objects.
    pub(crate) members: Vec<NodeId>,
    pub(crate) phase: Phase,
    pub(crate) state: State,
    pub(crate) log: Option<SiteLog>,
    pub(crate) calls: Calls<Purpose>,
    pub(crate) site_calls: SiteCalls,
    pub(crate) effects: VecDeque<SiteEffect>,
    pub(crate) waits: Waits,
    /// Serials of cells that are newer in memory than in the log.
    pub(crate) volatile: BTreeSet<u64>,
    pub(crate) volatile_since: Option<Time>,
    pub(crate) small: SmallWork,
    pub(crate) quota_work: Option<QuotaWork>,
    pub(crate) leases: FileLeases,
    /// Files whose columns are asked for their ends.
    pub(crate) asking: Asking,
    pub(crate) refusals: Refusals,
    /// Requests that wait for opening or for room in the log.
    pub(crate) waiting: VecDeque<Call<SiteRequest>>,
    /// Requests that wait for an intention of their file.
    pub(crate) blocked: BTreeMap<FileId, Vec<Call<SiteRequest>>>,
    /// Requests that wait for backing writes.
    pub(crate) parked: BTreeMap<Sequence, Vec<Call<SiteRequest>>>,
    /// Operations over several sites that are not decided, by number.
    pub(crate) crossings: BTreeMap<u64, Crossing>,
    /// Those that begin again, when and how often they were begun before.
    pub(crate) later: BTreeMap<(Time, u64), (Call<SiteRequest>, u32)>,
    /// Operations over several sites that were begun.
    pub(crate) transactions: u64,
    /// Which of this site's own has the right to move directories.
    pub(crate) moving: Option<TransactionId>,
    /// When others are asked what has become of theirs.
    pub(crate) inquiries: BTreeSet<(Time, TransactionId)>,
    /// Requests that need wait no longer.
    pub(crate) redo: VecDeque<Call<SiteRequest>>,
    /// Intentions to make columns for which there was no space.
    pub(crate) failed_makes: BTreeSet<u64>,
    /// What doors are told once the log is durable up to there.
    pub(crate) lock_notices: VecDeque<(crossdock_log::Position, LockNotice)>,
    pub(crate) checkpoint: Option<CheckpointRun>,
    pub(crate) first_segment: u32,
    /// Length of the last valid checkpoint of this start.
    pub(crate) checkpoint_bytes: u64,
    pub(crate) next_checkpoint: u32,
    pub(crate) checkpoints: Vec<u32>,
    pub(crate) counted: Counted,
    /// Of the volume, once somebody has told it.
    pub(crate) space: Option<SpaceUsage>,
    /// Whose turn it is to take blocks of files with maps.
    pub(crate) turns: Turns,
    version: Version,
}

/// Where the site is in its life.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Reading what there is.
    Opening(Box<Opening>),
    /// What opening itself logged is on its way.
    Settling(Box<OpenReport>),
    Serving,
    /// The log takes nothing any more.
    ReadOnly,
    /// Opening failed.
    Failed,
    /// Somebody with a higher epoch has taken over: nothing is answered any
    /// more but "moved".
    Replaced,
}

/// The site's own requests; nobody waits for their answers.
const OWN_CALL: CallId = CallId(u64::MAX);

/// What a node call was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Opening(u32, OpenStep),
    Frame,
    Part {
        intention: u64,
        part: u64,
    },
    BackingRead {
        task: u64,
        index: usize,
    },
    BackingMade(ObjectId),
    BackingWritten(Sequence),
    /// Free backing space went back to the node.
    HoleMade,
    Checkpoint(CheckpointStep),
    /// Where a column ends.
    End {
        file: FileId,
        segment: u32,
        column: u16,
    },
    /// Something that is not needed any more was removed.
    Removed,
}

impl Site {
    /// Begins to open a site: the effects ask the members of its set.
    #[must_use]
    pub fn open(now: Time, config: SiteConfig, table: Arc<RoutingTable>) -> Self {
        let mut site = Self {
            members: members_of(&config, &table),
            phase: Phase::Opening(Box::new(Opening::new(0))),
            state: State::new(&config),
            log: None,
            calls: Calls::of_epoch(config.epoch),
            site_calls: SiteCalls::of_epoch(config.epoch),
            effects: VecDeque::new(),
            waits: Waits::default(),
            volatile: BTreeSet::new(),
            volatile_since: None,
            small: SmallWork::default(),
            quota_work: None,
            leases: FileLeases::default(),
            asking: Asking::new(),
            refusals: Refusals::new(config.limits.duplicate_age),
            waiting: VecDeque::new(),
            blocked: BTreeMap::new(),
            parked: BTreeMap::new(),
            crossings: BTreeMap::new(),
            later: BTreeMap::new(),
            transactions: 0,
            moving: None,
            inquiries: BTreeSet::new(),
            redo: VecDeque::new(),
            failed_makes: BTreeSet::new(),
            lock_notices: VecDeque::new(),
            checkpoint: None,
            first_segment: 0,
            checkpoint_bytes: 0,
            next_checkpoint: 0,
            checkpoints: Vec::new(),
            counted: Counted::default(),
            space: None,
            turns: Turns::default(),
            version: Version::first_of(config.epoch),
            config,
            table,
        };
        site.begin_opening(now, 0);
        site
    }

    /// Takes one input. `now` and `wall` are the two clocks' times.
    pub fn handle(&mut self, now: Time, wall: WallTime, input: SiteInput) {
        self.gather(now, wall, input);
        self.end_turn(now);
    }

    /// The same; what it has for the log waits until the turn ends. So requests
    /// that came together share a frame.
    pub fn gather(&mut self, now: Time, wall: WallTime, input: SiteInput) {
        match input {
            SiteInput::Request(call) => self.request(now, wall, *call),
            SiteInput::Node(_, reply) => {
                if let Some(answered) = self.calls.answered(now, reply) {
                    self.answered(now, wall, answered);
                }
            }
            SiteInput::Site(reply) => {
                if let Some(answered) = self.site_calls.answered(now, *reply) {
                    self.site_answered(now, wall, answered);
                }
            }
            SiteInput::Table(table) => self.table_changed(now, wall, table),
            SiteInput::Space(space) => self.space = Some(space),
            SiteInput::Rooms(rooms) => self.turns.rooms = rooms,
            SiteInput::HandleKey(key) => self.keep_handle_key(now, wall, key),
            SiteInput::ProofKey(key) => self.keep_proof_key(now, wall, key),
            SiteInput::Timeout => {
                self.settle_in(now);
                self.expire_leases(now);
                let table = Arc::clone(&self.table);
                for answered in self.calls.timeout(now, &table) {
                    self.answered(now, wall, answered);
                }
                for answered in self.site_calls.timeout(now) {
                    self.site_answered(now, wall, answered);
                }
            }
        }
        self.pump(now, wall);
    }

    /// No more inputs come at the moment: the log goes on, once the frame before
    /// is durable.
    pub fn end_turn(&mut self, now: Time) {
        let members = std::mem::take(&mut self.members);
        let append = self.log.as_mut().and_then(|log| log.next_append(&members));
        if let Some(append) = append {
            for &member in &members {
                self.send_frame(now, member, &append);
            }
        }
        self.members = members;
    }

    /// The next thing to do, in order.
    pub fn poll_effect(&mut self) -> Option<SiteEffect> {
        if let Some((node, call)) = self.calls.effects.pop_front() {
            return Some(SiteEffect::Node(node, call));
        }
        if let Some((site, call)) = self.site_calls.effects.pop_front() {
            return Some(SiteEffect::Site(site, Box::new(call)));
        }
        loop {
            match self.effects.pop_front()? {
                SiteEffect::Reply(reply) if reply.id == OWN_CALL => {}
                effect => return Some(effect),
            }
        }
    }

    /// When to call [`handle`](Self::handle) with [`SiteInput::Timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let patience = self.config.limits.volatile_patience;
        let waits = self.volatile_since.into_iter();
        let waits = waits.chain(self.small.mark_since);
        let idle = self.small.returning.is_none();
        let waits = waits.chain(self.small.return_since.filter(|_| idle));
        // One that does not serve (any more) would never act on them.
        let due = waits
            .filter(|_| self.is_serving())
            .map(|since| since + patience);
        let grace = self.state.locks.grace_end();
        let grace = grace.filter(|_| self.is_serving());
        let again = self.later.keys().next().map(|&(due, _)| due);
        let inquiry = self.inquiries.first().map(|&(due, _)| due);
        let begins = self.serves_from();
        let leases = self.leases.next_wake();
        let others = [
            again,
            inquiry,
            self.site_calls.next_wake(),
            grace,
            begins,
            leases,
        ];
        due.chain(self.calls.next_wake())
            .chain(others.into_iter().flatten())
            .min()
    }

    /// Whether requests are being answered.
    #[must_use]
    pub const fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Under which epoch the site was opened.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.config.epoch
    }

    /// Whether everything is durable and nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_serving() && self.is_settled() && self.state.intentions.len() == 0
    }

    /// Whether everything is durable: a graceful stop waits for it, after
    /// [`settle`](Self::settle). Open intentions do not count: they are in the
    /// log, the next opening drives them on, and a node that one of them needs
    /// may be away for long. A site that does not serve has nothing to settle.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !self.is_serving()
            || self.log.as_ref().is_some_and(SiteLog::is_idle)
                && self.volatile.is_empty()
                && self.waits.held() == 0
                && !self.small.is_writing()
                && self.checkpoint.is_none()
                && self.quota_work.is_none()
    }

    /// The names and attributes, for reports and tests.
    #[must_use]
    pub const fn directory(&self) -> &crossdock_directory::Directory {
        &self.state.directory
    }

    /// The small files, for reports and tests.
    #[must_use]
    pub const fn small_files(&self) -> &crossdock_smallfile::SmallFiles {
        &self.state.small
    }

    /// How many intentions are open.
    #[must_use]
    pub fn open_intentions(&self) -> usize {
        self.state.intentions.len()
    }

    /// Logs what is in memory only; a graceful stop begins with it.
    pub fn settle(&mut self, now: Time, wall: WallTime) {
        if self.is_serving() {
            self.log_volatile(now, wall);
            self.pump(now, wall);
            self.end_turn(now);
        }
    }

    /// Likewise, and makes durable what clients have not committed yet, and has all leases
    /// given back: a site moves only after that (CONSISTENCY 6). Requests must not come
    /// any more but pushes of those who have leases;
    /// [`is_committed`](Self::is_committed) tells when it is done.
    pub fn commit_all(&mut self, now: Time, wall: WallTime) {
        self.recall_leases(now);
        let serials: Vec<u64> = self.state.small.unstable_files().collect();
        for serial in serials {
            let Some(cell) = self.state.directory.cell_of(serial) else {
                continue;
            };
            let operation = SiteOperation::Commit {
                file: cell.file(self.config.site),
                incarnation: self.incarnation(),
            };
            let call = Call {
                id: OWN_CALL,
                deadline: Time(u64::MAX),
                request: SiteRequest::as_root(operation),
            };
            self.request(now, wall, call);
        }
        self.settle(now, wall);
    }

    /// Whether nothing of what clients were told would be lost by an end.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.is_settled()
            && self.leases.are_back()
            && self.state.small.unstable_files().next().is_none()
    }

    /// Changes of small files that have not been made everywhere yet, or are to come, have
    /// this version or a later one. What is older stays as it is, also after a crash.
    #[must_use]
    pub fn first_to_come(&self) -> Version {
        let under_way = self.calls.first_given();
        let waiting = self.small.first_waiting();
        let first = [Some(self.version.next()), under_way, waiting];
        first.into_iter().flatten().min().unwrap_or_default()
    }

    /// When all leases that routers have of this opening have ended, on this machine's
    /// clock: [`SiteConfig::serves_from`] of one that is opened here instead.
    #[must_use]
    pub fn leases_end(&self) -> Time {
        self.leases.last_end().max(self.config.serves_from)
    }

    pub(crate) fn log_mut(&mut self) -> &mut SiteLog {
        self.log
            .as_mut()
            .expect("the log is there once the site serves")
    }

    /// A version for a write of one of the site's own objects.
    pub(crate) const fn next_version(&mut self) -> Version {
        self.version = self.version.next();
        self.version
    }

    pub(crate) fn context(&self) -> WriteContext {
        WriteContext {
            table_epoch: self.table.epoch,
            writer: self.config.writer,
            site_epoch: self.config.epoch,
            ..WriteContext::default()
        }
    }

    pub(crate) fn send(
        &mut self,
        now: Time,
        target: Target,
        request: NodeRequest,
        purpose: Purpose,
    ) {
        self.calls.send(now, &self.table, target, request, purpose);
    }

    fn answered(&mut self, now: Time, wall: WallTime, answered: Answered<Purpose>) {
        if let Err(NodeError::Fenced { .. }) = answered.outcome {
            return self.replaced();
        }
        match answered.purpose {
            Purpose::Opening(attempt, step) => {
                self.opening_answered(now, wall, attempt, step, answered)
            }
            Purpose::Frame => self.frame_answered(now, wall, answered),
            Purpose::Part { intention, .. } => {
                self.part_answered(now, wall, intention, answered);
            }
            Purpose::BackingRead { task, index } => {
                self.backing_read(now, wall, task, index, answered);
            }
            Purpose::BackingMade(object) => self.backing_made(now, wall, object, answered),
            Purpose::BackingWritten(sequence) => {
                self.backing_written(now, wall, sequence, answered.outcome.err());
            }
            Purpose::HoleMade => self.hole_made(now, &answered.outcome),
            Purpose::Checkpoint(step) => self.checkpoint_answered(now, step, answered),
            Purpose::End {
                file,
                segment,
                column,
            } => self.end_answered(now, wall, (file, segment, column), answered),
            Purpose::Removed => {}
        }
    }

    /// A member has answered an append, or the question whether it has one.
    fn frame_answered(&mut self, now: Time, wall: WallTime, answered: Answered<Purpose>) {
        let node = answered.node;
        let append = self.log.as_ref().and_then(|log| log.awaited_of(node));
        let Some(append) = append.cloned() else {
            return;
        };
        let end = append.offset_bytes + append.payload.len() as u64;
        let fence = self.config.epoch;
        match answered.outcome {
            Ok(NodeAnswer::End { size_bytes }) if size_bytes == end => {
                let durable = self.log.as_mut().and_then(|log| log.acknowledged(node));
                if let Some(durable) = durable {
                    self.log_is_durable(now, wall, durable);
                }
            }
            // An earlier sending has arrived after all; nobody else can append.
            // It may not be durable yet: sealing again is answered when it is.
            Err(NodeError::WrongEnd { size_bytes }) if size_bytes == end => {
                let object = append.object;
                let request = NodeRequest::Seal { object, fence };
                self.send(now, Target::Node(node), request, Purpose::Frame);
            }
            // The node has lost what it had not made durable.
            Ok(_) => self.send_frame(now, node, &append),
            // A node whose disk failed takes no change before it is opened anew.
            Err(NodeError::Media { what, .. }) if self.is_serving() && self.members == [node] => {
                self.log_failed(&what);
            }
            Err(_) => self.calls.send_again(now, Target::Node(node), answered),
        }
    }

    fn send_frame(&mut self, now: Time, member: NodeId, append: &Append) {
        let request = NodeRequest::Append {
            object: append.object,
            offset_bytes: append.offset_bytes,
            payload: append.payload.clone(),
            fence: self.config.epoch,
        };
        self.send(now, Target::Node(member), request, Purpose::Frame);
    }

    fn log_is_durable(&mut self, now: Time, wall: WallTime, durable: crossdock_log::Position) {
        self.release(durable);
        self.settle_in(now);
        for id in self.state.intentions.begin(durable) {
            self.drive(now, wall, id);
        }
    }

    /// Serves, once what opening itself logged is durable, and leases of the opening
    /// before have ended.
    pub(crate) fn settle_in(&mut self, now: Time) {
        if let Phase::Settling(report) = &self.phase
            && self.log.as_ref().is_some_and(SiteLog::is_idle)
            && now >= self.config.serves_from
        {
            let report = report.as_ref().clone();
            self.serve_from_now(now, report);
        }
    }

    /// When [`settle_in`](Self::settle_in) is due by the clock alone.
    fn serves_from(&self) -> Option<Time> {
        let is_waiting = matches!(self.phase, Phase::Settling(_))
            && self.log.as_ref().is_some_and(SiteLog::is_idle);
        is_waiting.then_some(self.config.serves_from)
    }

    fn serve_from_now(&mut self, now: Time, report: OpenReport) {
        self.phase = Phase::Serving;
        self.effects.push_back(SiteEffect::Opened(Ok(report)));
        self.tell_restart(now);
        self.inquire_all(now);
        self.take_up_moving();
    }

    /// Everything that can go on without an input.
    fn pump(&mut self, now: Time, wall: WallTime) {
        if self.is_serving() {
            self.admit(now, wall);
            self.begin_again(now, wall);
            self.inquire(now);
            self.keep_house(now, wall);
            self.tell_notices(now);
        }
    }

    fn keep_house(&mut self, now: Time, wall: WallTime) {
        let limits = self.config.limits;
        let old = |since: Time| now.since(since) >= limits.volatile_patience;
        if self.volatile.len() > limits.volatile_max || self.volatile_since.is_some_and(old) {
            self.log_volatile(now, wall);
        }
        self.advance_quota(now, wall);
        self.flush_small(now, wall);
        self.mark_small_when_idle(now, wall);
        self.return_space_when_idle(now);
        self.advance_checkpoint(now, wall);
    }

    fn table_changed(&mut self, now: Time, wall: WallTime, table: Arc<RoutingTable>) {
        if table.epoch < self.table.epoch {
            return;
        }
        self.table = table;
        let record = self.table.site(self.config.site);
        if record.is_some_and(|record| record.epoch > self.config.epoch) {
            return self.replaced();
        }
        let members = members_of(&self.config, &self.table);
        let changed = members != self.members;
        self.members = members;
        if changed && let Phase::Opening(opening) = &self.phase {
            let attempt = opening.attempt() + 1;
            self.begin_opening(now, attempt);
        } else if changed && !self.is_read_only() {
            let members = self.members.clone();
            let log = self.log.as_mut();
            let durable = log.and_then(|log| log.retain_members(&members));
            for answered in self.calls.withdraw(|node| members.contains(&node)) {
                self.answered(now, wall, answered);
            }
            if let Some(durable) = durable {
                self.log_is_durable(now, wall, durable);
            }
        }
        self.calls.retry_now(now, &self.table);
        self.site_calls.retry_now(now);
        self.inquire_of_reopened(now);
    }

    /// Another manager has the site now: nothing more is answered.
    fn replaced(&mut self) {
        if matches!(self.phase, Phase::Opening(_) | Phase::Settling(_)) {
            let opened = SiteEffect::Opened(Err(OpenError::Replaced));
            self.effects.push_back(opened);
        }
        self.phase = Phase::Replaced;
        self.calls = Calls::of_epoch(self.config.epoch);
        self.end_crossings();
        // Whether they were carried out the successor knows: sent to it again,
        // they get their reply.
        let mut unanswered = self.take_unanswered();
        unanswered.extend(self.small.take_readers());
        for id in unanswered {
            self.refuse(id, SiteError::Moved);
        }
    }

    pub(crate) fn opening_failed(&mut self, error: OpenError) {
        self.phase = Phase::Failed;
        self.effects.push_back(SiteEffect::Opened(Err(error)));
        for call in std::mem::take(&mut self.waiting) {
            self.refuse(call.id, SiteError::Io);
        }
    }
}

fn members_of(config: &SiteConfig, table: &RoutingTable) -> Vec<NodeId> {
    let log = ObjectId::of_site(ObjectClass::SiteLog, config.site, 0);
    let set = table.members_of(&log);
    set.map(|set| set.members.clone()).unwrap_or_default()
}
