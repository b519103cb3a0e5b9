//! Makes a member of a replica set equal to its primary: after a crash, and when
//! a node comes back (CONSISTENCY 1: when the set changes, members compare
//! (version, range) logs).
//!
//! What was acknowledged is on all members. What was not may be on some: both
//! members list what was changed since the epoch from which they may differ,
//! and every range that is not the same on both is copied from the primary, with
//! the primary's version. Then objects that only one of them has, and ends of
//! objects, are made equal.
//!
//! A node that is no member yet is nobody's to read: while clients change the set,
//! it is copied round after round, each with what has changed since the one before
//! began, and only for the last one, which has little left, the changes wait.
//!
//! The steps are an `async fn` that the host polls by hand, one question at a
//! time: no executor, no waker, and the same order in every run.

mod object;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crossdock_names::{Incarnation, NodeId, ObjectClass, ObjectId, SetId, Version};
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, ObjectStat, WriteContext};

use crate::ranges::{Ranges, in_blocks, is_small, is_told, recut};

/// A version that none is newer than.
const NOW: Version = Version(u64::MAX);

/// Objects listed per call.
pub(crate) const LIST_LIMIT: usize = 1024;

/// A round that had no more than this to copy is the last one before changes wait …
const LAST_ROUND_BYTES: u64 = 4 << 20;

/// … and no more ranges, each of which is a question and an answer of two nodes …
const LAST_ROUND_RANGES: usize = 64;

/// … and so is this one, however fast clients write.
const ROUNDS_MAX: u32 = 6;

/// Which members of which set are to be made equal.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) set: SetId,
    pub(crate) source: NodeId,
    pub(crate) target: NodeId,
    /// The set's epoch by which this was planned, and the homes that it had.
    pub(crate) epoch: u64,
    pub(crate) moves: u64,
    /// Members besides the source: what is unstable on them is made durable, too.
    pub(crate) others: Vec<NodeId>,
    /// Versions from here on may differ.
    pub(crate) since: Version,
    /// Whether the source has been serving, hence may hold unstable bytes.
    pub(crate) is_serving: bool,
    /// What is to come of it.
    pub(crate) goal: Goal,
    /// In what pieces logs are compared.
    pub(crate) log_piece_bytes: u64,
    /// The objects of the set are those of these classes …
    pub(crate) classes: &'static [ObjectClass],
    /// … for which this says yes.
    pub(crate) table: std::sync::Arc<crossdock_names::RoutingTable>,
}

/// What making a target equal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The set takes no changes meanwhile.
    Equal,
    /// The set takes changes until little is left.
    Join,
    /// There is less to do when somebody makes it equal later: the same without the end,
    /// for which changes would have to wait.
    Copy,
}

/// What a task asks.
pub(crate) enum Question {
    /// Of a node.
    Node(NodeId, NodeRequest),
    /// Of the host: the version from which on changes of the set are under way, or to come.
    Mark,
    /// Of the host: that changes of the set wait from now on, and none is under way.
    Hold,
}

/// What it is answered.
pub(crate) type Answer = Result<NodeAnswer, NodeError>;

/// A pair being made equal.
pub(crate) struct Equalize {
    pub(crate) pair: Pair,
    exchange: Rc<RefCell<Exchange>>,
    steps: Pin<Box<dyn Future<Output = Result<(), String>>>>,
}

#[derive(Default)]
struct Exchange {
    question: Option<Question>,
    answer: Option<Answer>,
}

impl Equalize {
    pub(crate) fn new(pair: Pair) -> Self {
        let exchange = Rc::new(RefCell::new(Exchange::default()));
        let asker = Asker {
            exchange: Rc::clone(&exchange),
            pair: pair.clone(),
            newest: Cell::new(NOW),
            left: RefCell::default(),
            is_cleared: Cell::new(false),
        };
        Self {
            pair,
            exchange,
            steps: Box::pin(asker.run()),
        }
    }

    /// Goes on with the answer to the last question; the next question, or the
    /// end.
    pub(crate) fn step(&mut self, answer: Option<Answer>) -> Poll<Result<(), String>> {
        self.exchange.borrow_mut().answer = answer;
        self.steps
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    }

    /// What is to be asked now.
    pub(crate) fn question(&mut self) -> Option<Question> {
        self.exchange.borrow_mut().question.take()
    }
}

/// What a round had to copy.
#[derive(Clone, Copy, Default)]
struct Copied {
    bytes: u64,
    ranges: usize,
}

impl Copied {
    const fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.ranges += 1;
    }

    /// Whether the next round is the last one.
    fn is_little(self, goal: Goal) -> bool {
        let is_short = goal != Goal::Copy || self.ranges <= LAST_ROUND_RANGES;
        self.bytes <= LAST_ROUND_BYTES && is_short
    }
}

/// The steps' end of the exchange.
struct Asker {
    exchange: Rc<RefCell<Exchange>>,
    pair: Pair,
    /// Nothing newer than this is copied while the source takes changes: a node tells one
    /// version for neighbouring bytes, so others of them would look as if they had it, and
    /// the source may lose it in a crash.
    newest: Cell<Version>,
    /// Object, offset and length of what was newer, for the next round.
    left: RefCell<Vec<(ObjectId, u64, u64)>>,
    /// What only the target has was removed before its time: it had no room.
    is_cleared: Cell<bool>,
}

struct Ask<'a> {
    exchange: &'a RefCell<Exchange>,
    question: Option<Question>,
}

impl Future for Ask<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Answer> {
        let question = self.question.take();
        let mut exchange = self.exchange.borrow_mut();
        if question.is_some() {
            exchange.question = question;
        }
        exchange.answer.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Asker {
    async fn run(self) -> Result<(), String> {
        let pair = &self.pair;
        if pair.goal == Goal::Equal {
            return self.round(pair.since, None).await.map(|_| ());
        }
        let mut since = pair.since;
        let mut doubtful = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let next = self.mark().await?;
            if next > Version::NONE {
                self.newest.set(Version(next.0 - 1));
            }
            let copied = self.round(since, Some(&mut doubtful)).await?;
            // What a site has is compared from the very beginning.
            if pair.goal == Goal::Join {
                since = next;
            }
            if copied.is_little(pair.goal) {
                break;
            }
        }
        if pair.goal == Goal::Copy {
            return Ok(()); // What is left is copied when nothing changes.
        }
        let held = self.ask(Question::Hold).await;
        held.map_err(|error| format!("the set's changes do not wait: {error}"))?;
        self.newest.set(NOW);
        self.last_round(since, doubtful).await
    }

    /// From where on the next round has to look.
    async fn mark(&self) -> Result<Version, String> {
        match self.ask(Question::Mark).await {
            Ok(NodeAnswer::Done { version }) => Ok(version),
            other => Err(format!("no version to go on from: {other:?}")),
        }
    }

    /// Copies what differs and was changed since then; how much. With a list of
    /// doubtful objects, the source takes changes meanwhile: what cannot be made equal
    /// without changing it is left for the last round.
    async fn round(
        &self,
        since: Version,
        mut doubtful: Option<&mut BTreeSet<ObjectId>>,
    ) -> Result<Copied, String> {
        let (_, copied) = self.copy_changed(since, &mut doubtful).await?;
        for node in [self.pair.target, self.pair.source] {
            for object in self.objects(node).await? {
                if self.is_to_be_mended(object, &mut doubtful).await? {
                    self.mend(object).await?;
                }
            }
        }
        Ok(copied)
    }

    /// The same while changes wait: of objects that nobody has touched since, nothing
    /// is asked.
    async fn last_round(
        &self,
        since: Version,
        mut touched: BTreeSet<ObjectId>,
    ) -> Result<(), String> {
        let (changed, _) = self.copy_changed(since, &mut None).await?;
        // Of these nothing was copied in the rounds before.
        for &object in &touched {
            if let Some((source, _)) = self.stats(object).await? {
                self.copy(object, 0, source.size_bytes).await?;
            }
        }
        touched.extend(changed);
        let source: BTreeSet<ObjectId> =
            self.objects(self.pair.source).await?.into_iter().collect();
        let target: BTreeSet<ObjectId> =
            self.objects(self.pair.target).await?.into_iter().collect();
        touched.extend(source.symmetric_difference(&target));
        for object in touched {
            self.mend(object).await?;
        }
        Ok(())
    }

    /// Copies what differs of what was changed since then, and what was too new in the
    /// round before; the changed objects, and how much was copied.
    async fn copy_changed(
        &self,
        since: Version,
        doubtful: &mut Option<&mut BTreeSet<ObjectId>>,
    ) -> Result<(BTreeSet<ObjectId>, Copied), String> {
        let left = self.left.take();
        let (on_source, on_target) = self.differing(since).await?;
        let mut copied = self
            .copy_differing(&on_source, &on_target, doubtful)
            .await?;
        self.copy_left(left, doubtful, &mut copied).await?;
        let changed = on_source.union(&on_target).map(|range| range.0);
        Ok((changed.collect(), copied))
    }

    /// What both have changed since then, after what the members have of it in memory
    /// only has become durable.
    async fn differing(&self, since: Version) -> Result<(Ranges, Ranges), String> {
        let on_source = self.changes(self.pair.source, since).await?;
        let on_target = self.changes(self.pair.target, since).await?;
        if self.pair.is_serving {
            self.commit(&on_source).await?;
        }
        Ok((on_source, on_target))
    }

    /// Copies what is not the same on both, each byte once; how much.
    async fn copy_differing(
        &self,
        on_source: &Ranges,
        on_target: &Ranges,
        doubtful: &mut Option<&mut BTreeSet<ObjectId>>,
    ) -> Result<Copied, String> {
        let mut copied = Copied::default();
        let mut begun: Option<(ObjectId, Option<ObjectStat>)> = None;
        let mut done = 0; // Where the object's ranges so far end.
        for &(object, offset, length, _) in on_source.symmetric_difference(on_target) {
            if begun.as_ref().is_none_or(|(last, _)| *last != object) {
                begun = Some((object, self.begin_object(object, doubtful).await?));
                done = 0;
            }
            let (from, end) = in_blocks(&object, offset, offset + length);
            let from = from.max(done);
            if let Some((_, Some(stat))) = &begun
                && from < end
            {
                let is_hole = is_small(&object) && !is_told(on_source, &object, from, end);
                let bytes = match is_hole {
                    true => self.make_hole(object, stat, from, end).await?,
                    false => self.copy_range(object, stat, from, end).await?,
                };
                copied.add(bytes);
                done = end;
            }
        }
        Ok(copied)
    }

    /// Copies what was too new in the round before.
    async fn copy_left(
        &self,
        left: Vec<(ObjectId, u64, u64)>,
        doubtful: &mut Option<&mut BTreeSet<ObjectId>>,
        copied: &mut Copied,
    ) -> Result<(), String> {
        for (object, offset, length) in left {
            if self.is_to_be_mended(object, doubtful).await? {
                copied.add(self.copy(object, offset, length).await?);
            }
        }
        Ok(())
    }

    /// What the source knows of an object that is there on the target now, too; nothing
    /// if all of it was copied, or it is left for later.
    async fn begin_object(
        &self,
        object: ObjectId,
        doubtful: &mut Option<&mut BTreeSet<ObjectId>>,
    ) -> Result<Option<ObjectStat>, String> {
        if !self.is_to_be_mended(object, doubtful).await? {
            return Ok(None);
        }
        let Some((stat, is_truncated)) = self.prepare(object).await? else {
            return Ok(None); // Removed meanwhile; the target's goes later.
        };
        if is_truncated {
            self.copy_range(object, &stat, 0, stat.size_bytes).await?;
        }
        Ok((!is_truncated).then_some(stat))
    }

    /// Whether an object can be made equal now. The target may have seen a truncate
    /// that the source has not: the source is changed then, in the last round.
    async fn is_to_be_mended(
        &self,
        object: ObjectId,
        doubtful: &mut Option<&mut BTreeSet<ObjectId>>,
    ) -> Result<bool, String> {
        let Some(doubtful) = doubtful else {
            return Ok(true);
        };
        let generation = |stat: Option<ObjectStat>| stat.map_or(0, |stat| stat.truncate_generation);
        let target = generation(self.stat(self.pair.target, object).await?);
        let is_cut = target > 0 && target > generation(self.stat(self.pair.source, object).await?);
        if is_cut {
            doubtful.insert(object);
        }
        Ok(!is_cut)
    }

    /// Makes the members' unstable bytes durable: once the set counts as equal,
    /// a crash that took them from one of them alone would not be noticed.
    async fn commit(&self, ranges: &Ranges) -> Result<(), String> {
        let objects: BTreeSet<ObjectId> = ranges.iter().map(|range| range.0).collect();
        let members = std::iter::once(&self.pair.source).chain(&self.pair.others);
        for (&node, &object) in members.flat_map(|node| objects.iter().map(move |id| (node, id))) {
            let request = NodeRequest::Commit {
                object,
                incarnation: Incarnation::default(), // The node puts its own.
            };
            match self.ask(Question::Node(node, request)).await {
                Ok(_) | Err(NodeError::NoObject) => {}
                other => return Err(format!("object {object} is not committed: {other:?}")),
            }
        }
        Ok(())
    }

    /// All ranges of the set's objects that a node has changed; those of logs and
    /// checkpoints in the cut that both members share.
    async fn changes(&self, node: NodeId, since: Version) -> Result<Ranges, String> {
        let mut ranges = Ranges::new();
        let mut after = None;
        loop {
            let changes = NodeRequest::Changes { since, after };
            let NodeAnswer::Changes(page) = self.call(node, changes).await? else {
                return Err(format!("node {node} does not tell its changes"));
            };
            // What was never cut nor zeroed has nothing to copy between its runs.
            for range in page
                .changes
                .into_iter()
                .filter(|range| range.version > Version::NONE && self.is_ours(&range.object))
            {
                ranges.insert((
                    range.object,
                    range.offset_bytes,
                    range.length_bytes,
                    range.version,
                ));
            }
            after = page.more_after;
            if after.is_none() {
                return Ok(recut(ranges, self.pair.log_piece_bytes));
            }
        }
    }

    /// Ids of the set's objects on a node.
    async fn objects(&self, node: NodeId) -> Result<Vec<ObjectId>, String> {
        let mut found = Vec::new();
        for &class in self.pair.classes {
            let mut after = None;
            loop {
                let list = NodeRequest::List {
                    class,
                    placement: None,
                    after,
                    limit: LIST_LIMIT,
                };
                let NodeAnswer::List { objects, more } = self.call(node, list).await? else {
                    return Err(format!("node {node} does not list its objects"));
                };
                after = objects.last().copied();
                found.extend(objects.into_iter().filter(|object| self.is_ours(object)));
                if !more || after.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }

    async fn stat(&self, node: NodeId, object: ObjectId) -> Result<Option<ObjectStat>, String> {
        match self
            .ask(Question::Node(node, NodeRequest::Stat { object }))
            .await
        {
            Ok(NodeAnswer::Stat(stat)) => Ok(Some(stat)),
            Err(NodeError::NoObject) => Ok(None),
            other => Err(format!(
                "node {node} does not tell of object {object}: {other:?}"
            )),
        }
    }

    async fn call(&self, node: NodeId, request: NodeRequest) -> Result<NodeAnswer, String> {
        let answer = self.ask(Question::Node(node, request)).await;
        answer.map_err(|error| format!("node {node}: {error}"))
    }

    /// Has the target take bytes. A node that was full when it left the set may be full of
    /// what was removed since: that goes first then.
    async fn write(&self, request: NodeRequest) -> Result<(), String> {
        let target = self.pair.target;
        let mut answer = self.ask(Question::Node(target, request.clone())).await;
        if answer == Err(NodeError::NoSpace) && !self.is_cleared.replace(true) {
            self.clear_target().await?;
            answer = self.ask(Question::Node(target, request)).await;
        }
        answer
            .map(|_| ())
            .map_err(|error| format!("node {target}: {error}"))
    }

    /// Removes from the target what the source does not have.
    async fn clear_target(&self) -> Result<(), String> {
        let on_target = self.objects(self.pair.target).await?;
        let on_source: BTreeSet<ObjectId> =
            self.objects(self.pair.source).await?.into_iter().collect();
        for object in on_target {
            if !on_source.contains(&object) && self.stat(self.pair.source, object).await?.is_none()
            {
                self.remove(object).await?;
            }
        }
        Ok(())
    }

    fn ask(&self, question: Question) -> Ask<'_> {
        Ask {
            exchange: &self.exchange,
            question: Some(question),
        }
    }

    /// As the primary has it; the target may have seen an older generation.
    fn context(&self, object: &ObjectId, stat: &ObjectStat) -> WriteContext {
        self.fences(object)
            .with_truncate_generation(stat.truncate_generation)
    }

    /// A site's objects refuse whoever does not know the site's epoch.
    fn fences(&self, object: &ObjectId) -> WriteContext {
        let site = usize::try_from(object.placement).unwrap_or(usize::MAX);
        let site_epoch = match object.class {
            ObjectClass::Column => None,
            _ => self.pair.table.sites.get(site).map(|site| site.epoch),
        };
        WriteContext {
            site_epoch: site_epoch.unwrap_or_default(),
            ..WriteContext::default()
        }
    }

    /// The newest version of an object that may be copied now. Logs and checkpoints are
    /// written once, from their beginning to their end: whatever is there stays.
    const fn newest_of(&self, object: &ObjectId) -> Version {
        match object.class {
            ObjectClass::SiteLog | ObjectClass::Checkpoint => NOW,
            // An allocation has one node, and is not copied.
            ObjectClass::Column | ObjectClass::SmallFiles | ObjectClass::Allocation => {
                self.newest.get()
            }
        }
    }

    fn is_ours(&self, object: &ObjectId) -> bool {
        self.pair.classes.contains(&object.class) && self.pair.table.set_of(object) == self.pair.set
    }
}
