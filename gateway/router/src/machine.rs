//! The machine: requests in progress, their parts, retries and deadlines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crossdock_names::{FileRef, HostId, NodeId, RoutingTable, Version};
use crossdock_peer::{
    Call, CallId, Flow, NodeAnswer, NodeReply, NodeRequest, ReadVersion, SiteError, SiteReply,
    SiteRequest, WriterId,
};
use crossdock_types::{Payload, Time, WallTime};

use crate::ahead;
use crate::elsewhere::Elsewhere;
use crate::hot::Hot;
use crate::leases::Leases;
use crate::maps::Maps;
use crate::message::{
    KeptRead, ReadAhead, RoutedReply, RouterConfig, RouterEffect, RouterInput, Waited,
    WriteVerifier,
};
use crate::part::{Asked, Outcome, Part, PartRequest, PartState, Sent, Verdict};
use crate::read::Bulk;
use crate::return_lease::ReturnWork;
use crate::soft::{Numbers, Soft};
use crate::unstable::Unstable;
use crate::warm::Warm;
use crate::work::{Answer, Step, Work};

/// Sends requests of doors to sites and nodes, and puts the answers together.
///
/// [`handle`](Self::handle) takes what happened; then
/// [`poll_effect`](Self::poll_effect) until it is empty, in order; then wait no
/// longer than [`poll_timeout`](Self::poll_timeout). Every request is answered
/// exactly once. At its deadline a read is answered "busy"; a write is not
/// sent again after it, but what is under way is waited for, so that a client
/// is never told that a write failed which still lands later. What has to be done once
/// is asked for until a site answers.
pub struct Router {
    config: RouterConfig,
    table: Arc<RoutingTable>,
    requests: BTreeMap<u64, Request>,
    wakes: BTreeSet<(Time, u64)>, // When which request wants to be looked at.
    requests_total: u64,
    soft: Soft,
    effects: VecDeque<RouterEffect>,
}

struct Request {
    door_id: Option<CallId>, // A lease on its way back has none.
    deadline: Time,
    verifier: WriteVerifier, // As of its arrival.
    work: Work,
    parts: Vec<Part>,
    calls_total: u64,
    wake: Option<Time>,
    /// Until when nobody needs it.
    postponed: Option<Time>,
    /// When it began, or something that it waited for came.
    since: Time,
    waited: Waited,
}

/// A call id is the request's number and, below, the number of the call within
/// it: an answer finds its request without a map of calls.
const CALL_BITS: u32 = 20;

/// What is to be read ahead is of no use later than this.
const AHEAD_PATIENCE: Duration = Duration::from_secs(5);

impl Router {
    /// A router without any state; `table` is the newest that is known.
    #[must_use]
    pub fn new(config: RouterConfig, table: Arc<RoutingTable>) -> Self {
        let soft = Soft {
            now: Time(0),
            host: HostId(config.writer.0),
            unstable: Unstable::new(config.writer),
            leases: Leases::new(config.leases_max),
            maps: Maps::new(config.map_windows_max),
            hot: Hot::new(config.hot_bytes_max),
            elsewhere: Elsewhere::default(),
            warm: Warm::default(),
            lock_sites: BTreeSet::new(),
            unstable_holders_max: config.unstable_holders_max,
            numbers: Numbers::default(),
        };
        Self {
            config,
            table,
            requests: BTreeMap::new(),
            wakes: BTreeSet::new(),
            requests_total: 0,
            soft,
            effects: VecDeque::new(),
        }
    }

    /// Takes what happened.
    pub fn handle(&mut self, now: Time, input: RouterInput) {
        self.soft.now = now;
        self.soft.leases.expire(now);
        match input {
            RouterInput::Request(call) => self.begin(now, *call, Bulk::Relayed),
            RouterInput::ReadFor(flow, call) => self.begin(now, *call, Bulk::For(flow)),
            RouterInput::ReadHot(call) => self.begin(now, *call, Bulk::Kept),
            RouterInput::Withdraw(door_id) => self.withdraw(door_id),
            RouterInput::Postpone(door_id, by) => self.postpone(door_id, Some((now + by, by))),
            RouterInput::Resume(door_id) => self.postpone(door_id, None),
            RouterInput::Ahead(ahead) => self.tell_ahead(now, &ahead),
            RouterInput::Site(reply) => {
                self.answered(now, reply.id, |part| part.judge_site(reply));
            }
            RouterInput::Node(_, NodeReply { id, outcome }) => {
                let epoch = self.table.epoch;
                self.answered(now, id, |part| part.judge_node(outcome, epoch));
            }
            RouterInput::Kept(NodeReply { id, outcome }) => {
                let epoch = self.table.epoch;
                self.answered(now, id, |part| part.judge_node(outcome, epoch));
            }
            RouterInput::KeptElsewhere(gateway, file, changed) => {
                self.soft.elsewhere.note(gateway, file, changed);
            }
            RouterInput::Recall(recall) => self.soft.leases.recall(recall),
            RouterInput::Table(table) => self.take_table(now, table),
            RouterInput::Timeout => self.handle_timeout(now),
        }
        for (file, changed) in self.soft.hot.take_whole() {
            let keeps = RouterEffect::Keeps(file, changed);
            self.effects.push_back(keeps);
        }
        while let Some(back) = self.soft.leases.next_return() {
            let (work, step) = ReturnWork::begin(back);
            let work = Work::Return(Box::new(work));
            self.begin_work(now, None, Time(u64::MAX), work, step);
        }
    }

    /// What is to be done next.
    pub fn poll_effect(&mut self) -> Option<RouterEffect> {
        self.effects.pop_front()
    }

    /// When [`RouterInput::Timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let requests = self.wakes.first().map(|(time, _)| *time);
        requests
            .into_iter()
            .chain(self.soft.leases.next_wake())
            .min()
    }

    /// The write verifier as of now: hash(instance, loss counter).
    #[must_use]
    pub const fn verifier(&self) -> WriteVerifier {
        self.soft.unstable.verifier()
    }

    /// Requests in progress.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Leases of files that are held.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.soft.leases.len()
    }

    /// Windows of files' block maps that are held.
    #[must_use]
    pub fn map_windows(&self) -> usize {
        self.soft.maps.len()
    }

    /// Bytes of files that are kept, and those that were given out of it so far.
    #[must_use]
    pub const fn hot_bytes(&self) -> (usize, u64) {
        (self.soft.hot.bytes(), self.soft.hot.served_bytes)
    }

    /// Files of which all is kept that their columns have, each as it is since that time.
    pub fn kept_files(&self) -> impl Iterator<Item = (FileRef, WallTime)> {
        self.soft.hot.whole()
    }

    /// A range of a file as it is since `changed`, for a client of another gateway, and the newest
    /// version in it; none if not all of it is kept.
    #[must_use]
    pub fn lend(
        &self,
        file: FileRef,
        changed: WallTime,
        range: &Range<u64>,
    ) -> Option<(Payload, Version)> {
        self.soft.hot.lend(file, changed, range)
    }

    fn begin(&mut self, now: Time, call: Call<SiteRequest>, bulk: Bulk) {
        let verifier = self.soft.unstable.verifier();
        if self.requests.len() >= self.config.requests_max {
            let answer = Answer::failure(SiteError::Busy);
            self.reply(call.id, answer, verifier, Waited::default());
            return;
        }
        let (work, step) = Work::begin(call.request, bulk, &self.table, &mut self.soft);
        self.begin_work(now, Some(call.id), call.deadline, work, step);
    }

    fn begin_work(
        &mut self,
        now: Time,
        door_id: Option<CallId>,
        deadline: Time,
        work: Work,
        step: Step,
    ) {
        self.requests_total += 1;
        let number = self.requests_total;
        let request = Request {
            door_id,
            deadline,
            verifier: self.soft.unstable.verifier(),
            work,
            parts: Vec::new(),
            calls_total: 0,
            wake: None,
            postponed: None,
            since: now,
            waited: Waited::default(),
        };
        self.requests.insert(number, request);
        self.take_step(now, number, step);
    }

    /// Carries out steps until parts are under way or the reply is given.
    fn take_step(&mut self, now: Time, number: u64, mut step: Step) {
        loop {
            let Some(request) = self.requests.get_mut(&number) else {
                return;
            };
            let parts = match step {
                Step::Parts(parts) => parts,
                Step::Reply(answer) => return self.finish(number, answer),
            };
            request.parts = parts.into_iter().map(Part::new).collect();
            let mut sender = Sender {
                now,
                number,
                table: &self.table,
                warm: &self.soft.warm,
                writer: self.config.writer,
                answered_below: self.soft.numbers.answered_below(),
                effects: &mut self.effects,
            };
            for index in 0..request.parts.len() {
                sender.send(request, index);
            }
            match self.next_step(number) {
                Some(next) => step = next,
                None => return self.arm(number),
            }
        }
    }

    /// The step after the current one, if all its parts are done.
    fn next_step(&mut self, number: u64) -> Option<Step> {
        let request = self.requests.get_mut(&number)?;
        let is_done = |part: &Part| matches!(part.state, PartState::Done(_));
        if !request.parts.iter().all(is_done) {
            return None;
        }
        if matches!(request.work, Work::Forward)
            && let Some(part) = request.parts.pop()
            && let (PartRequest::Site(asked), PartState::Done(Outcome::Site(reply))) =
                (part.request, part.state)
        {
            return Some(request.work.after_forward(&asked, self.table.spread, reply));
        }
        let outcomes = request.parts.drain(..).filter_map(|part| match part.state {
            PartState::Done(outcome) => Some(outcome),
            _ => None,
        });
        let outcomes = outcomes.collect();
        Some(request.work.next(outcomes, &mut self.soft))
    }

    /// Goes on after parts of a request have changed.
    fn go_on(&mut self, now: Time, number: u64) {
        match self.next_step(number) {
            Some(step) => self.take_step(now, number, step),
            None => self.arm(number),
        }
    }

    /// The answer to call `id` has come; one to an unknown call is late: its
    /// read was withdrawn.
    fn answered(&mut self, now: Time, id: CallId, judge: impl FnOnce(&mut Part) -> Verdict) {
        let number = id.0 >> CALL_BITS;
        let Some(request) = self.requests.get_mut(&number) else {
            return;
        };
        let is_it = |part: &Part| matches!(part.state, PartState::Sent(sent, _) if sent == id);
        let Some(index) = request.parts.iter().position(is_it) else {
            return;
        };
        let deadline = request.deadline;
        request.waited_for(now, index);
        let part = &mut request.parts[index];
        let verdict = judge(part);
        if let (Asked::Warm, PartState::Sent(_, Some(node))) = (part.asked, &part.state)
            && !matches!(verdict, Verdict::Done(_))
        {
            self.soft.warm.forget(*node);
        }
        if part.asked == Asked::Keeper
            && let Some((.., kept)) = part.request.kept()
        {
            let has_given = matches!(verdict, Verdict::Done(_));
            self.soft.elsewhere.answered(kept.file, has_given);
        }
        match verdict {
            Verdict::Done(outcome) => {
                note_warm(&mut self.soft.warm, now, &self.table, part, &outcome);
                request
                    .work
                    .observe(&part.request, &outcome, &mut self.soft.unstable);
                part.state = PartState::Done(outcome);
            }
            Verdict::After(pause) => part.wait_until(now + pause, deadline),
            Verdict::Table(_) if now >= deadline => part.give_up(),
            Verdict::Table(epoch) => part.state = PartState::NeedsTable(epoch),
        }
        self.go_on(now, number);
    }

    fn take_table(&mut self, now: Time, table: Arc<RoutingTable>) {
        if table.epoch <= self.table.epoch {
            return;
        }
        self.soft.leases.follow(&table);
        self.table = table;
        let epoch = self.table.epoch;
        self.resend(
            now,
            |state| matches!(state, PartState::NeedsTable(needed) if *needed <= epoch),
        );
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(&(time, number)) = self.wakes.first()
            && time <= now
        {
            self.wakes.pop_first();
            let Some(request) = self.requests.get_mut(&number) else {
                continue;
            };
            request.wake = None;
            if request.work.is_read() && now >= request.deadline {
                let is_open = |part: &Part| !matches!(part.state, PartState::Done(_));
                let open = request.parts.iter().position(is_open);
                request.waited_for(now, open.unwrap_or_default());
                self.end_read(number);
                continue;
            }
            if now >= request.deadline {
                for part in &mut request.parts {
                    if matches!(part.state, PartState::NeedsTable(_)) {
                        part.give_up();
                    }
                }
            }
            self.resend_of(
                now,
                number,
                |state| matches!(state, PartState::Later(time) if *time <= now),
            );
            self.go_on(now, number);
        }
    }

    fn resend(&mut self, now: Time, is_due: impl Fn(&PartState) -> bool) {
        let numbers: Vec<u64> = self.requests.keys().copied().collect();
        for number in numbers {
            if self.resend_of(now, number, &is_due) {
                self.go_on(now, number);
            }
        }
    }

    /// Sends the due parts of a request again; whether there were any.
    fn resend_of(&mut self, now: Time, number: u64, is_due: impl Fn(&PartState) -> bool) -> bool {
        let Some(request) = self.requests.get_mut(&number) else {
            return false;
        };
        let mut any = false;
        for index in 0..request.parts.len() {
            if is_due(&request.parts[index].state) {
                any = true;
                let mut sender = Sender {
                    now,
                    number,
                    table: &self.table,
                    warm: &self.soft.warm,
                    writer: self.config.writer,
                    answered_below: self.soft.numbers.answered_below(),
                    effects: &mut self.effects,
                };
                sender.send(request, index);
            }
        }
        any
    }

    fn withdraw(&mut self, door_id: CallId) {
        if let Some((number, _)) = self.read_of(door_id) {
            self.end_read(number);
        }
    }

    /// Moves a read behind until a time, in so long; or back.
    fn postpone(&mut self, door_id: CallId, until: Option<(Time, Duration)>) {
        let Some((number, nodes)) = self.read_of(door_id) else {
            return;
        };
        if let Some(request) = self.requests.get_mut(&number) {
            request.postponed = until.map(|(time, _)| time);
        }
        let tell = |(node, id)| match until {
            Some((_, by)) => RouterEffect::PostponeNode(node, id, by),
            None => RouterEffect::ResumeNode(node, id),
        };
        self.effects.extend(nodes.into_iter().map(tell));
    }

    /// A read of a door, and what it waits for of nodes.
    fn read_of(&self, door_id: CallId) -> Option<(u64, Vec<(NodeId, CallId)>)> {
        // Connections end and stand still rarely: looking at all requests beats a
        // second map.
        let is_it = |(_, request): &(&u64, &Request)| {
            request.door_id == Some(door_id) && request.work.is_read()
        };
        let (&number, request) = self.requests.iter().find(is_it)?;
        Some((number, request.asked().collect()))
    }

    /// Tells nodes what is read ahead. Their answers are to calls that nobody knows.
    fn tell_ahead(&mut self, now: Time, ahead: &ReadAhead) {
        let Some((layout, told)) = ahead::cut(ahead, &mut self.soft) else {
            return;
        };
        self.requests_total += 1;
        let number = self.requests_total << CALL_BITS;
        for (request, sub) in told.into_iter().zip(0..1 << CALL_BITS) {
            let set = request
                .object()
                .and_then(|object| self.table.members_of(object));
            let Some(&node) = set.and_then(|set| set.members.first()) else {
                continue;
            };
            let call = Call {
                id: CallId(number | sub),
                deadline: now + AHEAD_PATIENCE,
                request,
            };
            self.effects
                .push_back(RouterEffect::Node(node, call, layout.capability));
        }
    }

    /// Ends a read before its time.
    fn end_read(&mut self, number: u64) {
        if let Some(request) = self.requests.get(&number) {
            for (node, id) in request.asked() {
                self.effects.push_back(RouterEffect::CancelNode(node, id));
            }
        }
        self.finish(number, Answer::failure(SiteError::Busy));
    }

    fn finish(&mut self, number: u64, answer: Answer) {
        let Some(request) = self.requests.remove(&number) else {
            return;
        };
        if let Some(wake) = request.wake {
            self.wakes.remove(&(wake, number));
        }
        if let Work::Write(work) = &request.work {
            work.close(&mut self.soft.numbers);
        }
        let verifier = if request.work.is_write() {
            request.verifier
        } else {
            self.soft.unstable.verifier()
        };
        if let Some(door_id) = request.door_id {
            self.reply(door_id, answer, verifier, request.waited);
        }
    }

    fn reply(&mut self, id: CallId, answer: Answer, verifier: WriteVerifier, waited: Waited) {
        let reply = SiteReply {
            id,
            outcome: answer.outcome,
            subject: answer.subject,
            second: answer.second,
        };
        let routed = RoutedReply {
            reply,
            verifier,
            waited,
        };
        self.effects
            .push_back(RouterEffect::Reply(Box::new(routed)));
    }

    /// Sets the time at which the request wants to be looked at.
    fn arm(&mut self, number: u64) {
        let Some(request) = self.requests.get_mut(&number) else {
            return;
        };
        let of_part = |part: &Part| match part.state {
            PartState::Later(time) => Some(time),
            PartState::NeedsTable(_) => Some(request.deadline),
            PartState::Sent(..) | PartState::Done(_) => None,
        };
        let parts = request.parts.iter().filter_map(of_part).min();
        let deadline = request.work.is_read().then_some(request.deadline);
        let wake = parts.into_iter().chain(deadline).min();
        if wake != request.wake {
            if let Some(old) = request.wake {
                self.wakes.remove(&(old, number));
            }
            if let Some(new) = wake {
                self.wakes.insert((new, number));
            }
            request.wake = wake;
        }
    }
}

impl Request {
    /// What it waits for of nodes.
    fn asked(&self) -> impl Iterator<Item = (NodeId, CallId)> {
        self.parts.iter().filter_map(|part| match part.state {
            PartState::Sent(id, Some(node)) => Some((node, id)),
            _ => None,
        })
    }

    /// All the time until now went to whoever is asked by that part.
    fn waited_for(&mut self, now: Time, index: usize) {
        let sum = match self.parts.get(index).map(|part| &part.request) {
            Some(PartRequest::Site(_)) | None => &mut self.waited.site,
            Some(_) => &mut self.waited.nodes,
        };
        *sum += now.since(self.since);
        self.since = now;
    }
}

impl Part {
    fn wait_until(&mut self, time: Time, deadline: Time) {
        if time >= deadline && !self.must_be_told() {
            self.give_up();
        } else {
            self.state = PartState::Later(time);
        }
    }

    fn give_up(&mut self) {
        self.state = PartState::Done(self.too_late());
    }
}

/// Remembers who has given a piece of a file that nobody changes.
fn note_warm(warm: &mut Warm, now: Time, table: &RoutingTable, part: &Part, outcome: &Outcome) {
    if let Some((piece, changed)) = part.request.piece()
        && let PartState::Sent(_, Some(node)) = part.state
        && let Outcome::Node(Ok(NodeAnswer::Read { payload, version })) = outcome
        && payload.len() as u64 == piece.length_bytes
    {
        let took = now.since(part.asked_at);
        warm.note(table, piece, changed, (node, *version), took);
    }
}

/// How long a site may take to say what became of a change that is made once:
/// from each time that it is asked, as the client waits for the answer anyway.
const DOUBT_PATIENCE: Duration = Duration::from_secs(20);

/// Sends parts; borrows of the router what that takes.
struct Sender<'a> {
    now: Time,
    number: u64,
    table: &'a RoutingTable,
    warm: &'a Warm,
    writer: WriterId,
    answered_below: u64,
    effects: &'a mut VecDeque<RouterEffect>,
}

impl Sender<'_> {
    fn send(&mut self, request: &mut Request, index: usize) {
        let mut deadline = request.deadline;
        if request.parts[index].must_be_told() {
            deadline = deadline.max(self.now + DOUBT_PATIENCE);
        }
        let sub = request.calls_total & ((1 << CALL_BITS) - 1);
        let id = CallId(self.number << CALL_BITS | sub);
        let postponed = request.postponed.filter(|&until| until > self.now);
        let part = &mut request.parts[index];
        if let Some((flow, gateway, kept)) = self.keeper(part) {
            part.asked = Asked::Keeper;
            part.asked_at = self.now;
            part.state = PartState::Sent(id, None);
            request.calls_total += 1;
            let asked = RouterEffect::ReadKept(flow, gateway, id, Box::new(kept));
            return self.effects.push_back(asked);
        }
        let warm = self.warm_holder(part);
        let node = warm.map(|(node, _)| node).or_else(|| self.node_of(part));
        part.asked = match warm {
            Some(_) => Asked::Warm,
            None => Asked::Owner,
        };
        part.asked_at = self.now;
        if !part.is_in_doubt {
            part.sent_by = self.table.epoch;
        }
        let sent = Sent {
            table_epoch: self.table.epoch,
            writer: self.writer,
            in_doubt_since: part.is_in_doubt.then_some(part.sent_by),
            answered_below: self.answered_below,
        };
        match (&part.request, node) {
            (PartRequest::Site(site_request), _) => {
                let site = site_request.operation.site();
                let request = site_request.clone();
                let call = Call {
                    id,
                    deadline,
                    request,
                };
                self.effects
                    .push_back(RouterEffect::Site(site, Box::new(call)));
                part.state = PartState::Sent(id, None);
            }
            (column, Some(node)) => {
                let Some(mut request) = column.node_request(&sent) else {
                    return;
                };
                if let (NodeRequest::Read { version, .. }, Some((_, given))) = (&mut request, warm)
                {
                    *version = ReadVersion::Exactly(given);
                }
                let call = Call {
                    id,
                    deadline,
                    request,
                };
                let shown = column.capability();
                self.effects.push_back(match column.flow() {
                    Some(flow) => RouterEffect::ReadFor(flow, node, call, shown),
                    None => RouterEffect::Node(node, call, shown),
                });
                part.state = PartState::Sent(id, Some(node));
                if let Some(until) = postponed {
                    let by = until - self.now;
                    self.effects
                        .push_back(RouterEffect::PostponeNode(node, id, by));
                }
            }
            // No member is left: until the set has one again.
            (_, None) => {
                let pause = part.next_pause();
                part.wait_until(self.now + pause, deadline);
            }
        }
        request.calls_total += 1;
    }

    /// Another gateway that keeps a piece, unless a node is known to have it in memory.
    fn keeper(&self, part: &Part) -> Option<(Flow, HostId, KeptRead)> {
        let kept = part.request.kept()?;
        let (piece, changed) = part.request.piece()?;
        let is_first = part.asked == Asked::Nobody;
        (is_first && !self.warm.is_warm(self.table, &piece, changed)).then_some(kept)
    }

    /// Who has a piece in memory, and in which version, if that is not the primary.
    fn warm_holder(&self, part: &Part) -> Option<(NodeId, Version)> {
        let (piece, changed) = part
            .request
            .piece()
            .filter(|_| part.asked == Asked::Nobody)?;
        self.warm.holder(self.table, &piece, changed)
    }

    fn node_of(&self, part: &Part) -> Option<NodeId> {
        let set = self.table.members_of(part.request.object()?)?;
        set.members.first().copied()
    }
}
