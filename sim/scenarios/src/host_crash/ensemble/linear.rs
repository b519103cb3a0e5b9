//! Whether requests on names that raced have an order that explains all their answers
//! (Herlihy and Wing, "Linearizability", 1990): one in which each has its effect between
//! when it was sent and when it was answered, as if there were one server and one request
//! at a time.
//!
//! The search goes through the history once and keeps every state that the names may be
//! in by then, with the requests under way that have had their effect in it (the
//! just-in-time linearization of Lowe, "Testing for linearizability", 2016). A request
//! that nobody has heard of again may have its effect at any later time, or never.

use std::collections::{BTreeMap, BTreeSet};

/// A name, by its place in a [`State`].
pub(super) type Slot = usize;

/// What a name names: numbers that the caller gives to handles.
pub(super) type Object = u32;

/// States kept at a time, at most: beyond that the search gives up.
const STATES_MAX: usize = 200_000;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// CREATE, guarded or exclusive, or SYMLINK.
    Make(Slot),
    /// REMOVE.
    Remove(Slot),
    /// RENAME.
    Move(Slot, Slot),
    /// LINK of what need not have a name any more.
    Link(Object, Slot),
    /// LOOKUP.
    Look(Slot),
}

/// What it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Done: to make and to look give an object.
    Done(Option<Object>),
    /// NFS3ERR_EXIST.
    Exists,
    /// NFS3ERR_NOENT.
    Missing,
    /// NFS3ERR_STALE.
    Stale,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Begun(usize),
    Ended(usize),
}

/// What happened to some names, in the order in which clients saw it.
#[derive(Default)]
pub(super) struct History {
    ops: Vec<(Op, Option<Answer>)>,
    events: Vec<Event>,
}

/// What each name names; objects that nobody was told of are negative.
type State = Vec<Option<i64>>;

/// A state, and which requests under way have had their effect in it.
type Configuration = (State, BTreeSet<usize>);

/// What the search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is such an order.
    Linearizable,
    /// There is none: why.
    Violated(String),
    /// There were too many to look at.
    Unknown,
}

impl History {
    /// A request is sent; its number is for [`ended`](Self::ended).
    pub(super) fn begun(&mut self, op: Op) -> usize {
        self.ops.push((op, None));
        self.events.push(Event::Begun(self.ops.len() - 1));
        self.ops.len() - 1
    }

    /// It is answered.
    pub(super) fn ended(&mut self, number: usize, answer: Answer) {
        self.ops[number].1 = Some(answer);
        self.events.push(Event::Ended(number));
    }

    pub(super) const fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether all answers can be explained, `slots` names being free in the beginning.
    pub(super) fn check(&self, slots: usize) -> Verdict {
        let mut reached = BTreeSet::from([(vec![None; slots], BTreeSet::new())]);
        let mut open = BTreeSet::new();
        for &event in &self.events {
            match event {
                Event::Begun(number) => {
                    open.insert(number);
                }
                Event::Ended(number) => {
                    let before = reached.clone();
                    let Some(next) = self.explain(number, &open, reached) else {
                        return Verdict::Unknown;
                    };
                    if next.is_empty() {
                        return Verdict::Violated(self.describe(number, &open, &before));
                    }
                    open.remove(&number);
                    reached = next;
                }
            }
        }
        Verdict::Linearizable
    }

    /// The configurations in which `number` has had its effect; nothing if they are too
    /// many.
    fn explain(
        &self,
        number: usize,
        open: &BTreeSet<usize>,
        reached: BTreeSet<Configuration>,
    ) -> Option<BTreeSet<Configuration>> {
        let mut seen = reached.clone();
        let mut left: Vec<Configuration> = reached.into_iter().collect();
        let mut explained = BTreeSet::new();
        while let Some((state, mut done)) = left.pop() {
            if done.remove(&number) {
                explained.insert((state, done));
                continue;
            }
            for &next in open.iter().filter(|next| !done.contains(next)) {
                let Some(state) = self.apply(next, &state) else {
                    continue;
                };
                let mut done = done.clone();
                done.insert(next);
                let configuration = (state, done);
                if seen.insert(configuration.clone()) {
                    left.push(configuration);
                }
                if seen.len() > STATES_MAX {
                    return None;
                }
            }
        }
        Some(explained)
    }

    /// The state after a request that was, or will be, answered as it is known; nothing if
    /// it cannot have had its effect here.
    fn apply(&self, number: usize, state: &State) -> Option<State> {
        let (op, answer) = self.ops[number];
        let Some(answer) = answer else {
            return self.apply_unheard(number, op, state);
        };
        let mut after = state.clone();
        let is_right = match (op, answer) {
            (Op::Make(at), Answer::Done(Some(object))) => {
                let was_free = after[at].is_none();
                after[at] = Some(i64::from(object));
                was_free
            }
            (Op::Look(at), Answer::Done(Some(object))) => {
                let shown = Some(i64::from(object));
                let is_unknown = !self.is_made(object) && !state.contains(&shown);
                let unheard = state[at].filter(|it| *it < 0 && is_unknown);
                if unheard.is_some() {
                    // From now on somebody knows it.
                    let names = after.iter_mut().filter(|name| **name == unheard);
                    names.for_each(|name| *name = shown);
                }
                after[at] == shown
            }
            (Op::Make(at) | Op::Link(_, at), Answer::Exists) => state[at].is_some(),
            (Op::Look(at) | Op::Remove(at) | Op::Move(at, _), Answer::Missing) => {
                state[at].is_none()
            }
            (Op::Link(object, _), Answer::Stale) => !state.contains(&Some(i64::from(object))),
            (Op::Remove(_) | Op::Move(..) | Op::Link(..), Answer::Done(None)) => {
                return change(op, state);
            }
            _ => false,
        };
        is_right.then_some(after)
    }

    /// Nobody knows what was answered: if it can be done, it was.
    fn apply_unheard(&self, number: usize, op: Op, state: &State) -> Option<State> {
        match op {
            Op::Make(at) if state[at].is_none() => {
                let mut after = state.clone();
                after[at] = Some(-1 - i64::try_from(number).ok()?);
                Some(after)
            }
            Op::Make(_) | Op::Look(_) => None,
            op => change(op, state),
        }
    }

    /// Whether somebody was told that he made it.
    fn is_made(&self, object: Object) -> bool {
        let is_it = |(op, answer): &(Op, Option<Answer>)| {
            matches!(op, Op::Make(_)) && *answer == Some(Answer::Done(Some(object)))
        };
        self.ops.iter().any(is_it)
    }

    fn describe(
        &self,
        number: usize,
        open: &BTreeSet<usize>,
        before: &BTreeSet<Configuration>,
    ) -> String {
        let (op, answer) = self.ops[number];
        let others: Vec<_> = open
            .iter()
            .filter(|other| **other != number)
            .map(|&other| self.ops[other])
            .collect();
        let states: BTreeSet<&State> = before.iter().map(|(state, _)| state).take(8).collect();
        format!(
            "names are not linearizable: no order explains that {op:?} is answered {answer:?} \
             (request {number}); the names were one of {states:?}, under way were {others:?}"
        )
    }
}

/// The state after a change that is done, if it can be.
fn change(op: Op, state: &State) -> Option<State> {
    let mut after = state.clone();
    match op {
        Op::Remove(at) => {
            after[at].take()?;
        }
        Op::Move(from, to) => {
            let moved = state[from]?;
            // Two names of one object stay as they are (RFC 1813, 3.3.14).
            if state[to] != Some(moved) {
                after[from] = None;
                after[to] = Some(moved);
            }
        }
        Op::Link(object, at) => {
            let object = Some(i64::from(object));
            if state[at].is_some() || !state.contains(&object) {
                return None;
            }
            after[at] = object;
        }
        Op::Make(_) | Op::Look(_) => return None,
    }
    Some(after)
}

/// When names were changed by whom, as far as listings have to show it.
#[derive(Default)]
pub(super) struct Spans {
    /// By slot: each change from when it was sent until it was answered, and whether the
    /// name is there afterwards. Only those that were done, or of which nobody knows.
    changes: BTreeMap<Slot, Vec<Span>>,
}

#[derive(Clone, Copy)]
struct Span {
    begun: u64,
    ended: Option<u64>,
    is_there: Option<bool>,
}

impl Spans {
    /// A change of a name that was, or may have been, done between these times; whether the
    /// name is there then, if that is certain.
    pub(super) fn changed(
        &mut self,
        slot: Slot,
        begun: u64,
        ended: Option<u64>,
        is_there: Option<bool>,
    ) {
        self.changes.entry(slot).or_default().push(Span {
            begun,
            ended,
            is_there,
        });
    }

    /// Whether a name was there, or was not, during all of a listing; nothing if that is
    /// not certain.
    pub(super) fn during(&self, slot: Slot, begun: u64, ended: u64) -> Option<bool> {
        let none = Vec::new();
        let changes = self.changes.get(&slot).unwrap_or(&none);
        let before = changes
            .iter()
            .filter(|change| change.ended.is_some_and(|end| end < begun));
        let Some(last) = before.max_by_key(|change| change.ended) else {
            let is_touched = changes.iter().any(|change| change.begun <= ended);
            return (!is_touched).then_some(false);
        };
        // Those that may have come behind the last one, or with it.
        let others = changes.iter().filter(|change| {
            change.begun <= ended && change.ended.is_none_or(|end| end > last.begun)
        });
        let is_sole = others.count() == 1;
        last.is_there.filter(|_| is_sole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Object = 7;
    const B: Object = 8;

    /// Requests, each answered before the next is sent.
    fn one_by_one(ops: &[(Op, Answer)]) -> Verdict {
        let mut history = History::default();
        for &(op, answer) in ops {
            let number = history.begun(op);
            history.ended(number, answer);
        }
        history.check(3)
    }

    fn is_violated(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Violated(_))
    }

    /// Goal: what one client does after the other is judged as NFS has it.
    #[test]
    fn requests_one_by_one_are_judged() {
        let made = (Op::Make(0), Answer::Done(Some(A)));
        let moved = (Op::Move(0, 1), Answer::Done(None));
        let good = [
            made,
            (Op::Make(0), Answer::Exists),
            (Op::Link(A, 2), Answer::Done(None)),
            moved,
            (Op::Look(0), Answer::Missing),
            (Op::Look(1), Answer::Done(Some(A))),
            (Op::Move(1, 2), Answer::Done(None)),
            (Op::Look(1), Answer::Done(Some(A))),
            (Op::Remove(1), Answer::Done(None)),
            (Op::Remove(2), Answer::Done(None)),
            (Op::Link(A, 0), Answer::Stale),
            (Op::Remove(2), Answer::Missing),
        ];
        assert_eq!(one_by_one(&good), Verdict::Linearizable);
        for wrong in [
            [made, (Op::Make(0), Answer::Done(Some(B)))],
            [made, (Op::Look(0), Answer::Missing)],
            [made, (Op::Look(0), Answer::Done(Some(B)))],
            [made, (Op::Remove(1), Answer::Done(None))],
            [made, (Op::Link(A, 1), Answer::Stale)],
            [made, (Op::Link(B, 1), Answer::Done(None))],
        ] {
            assert!(is_violated(&one_by_one(&wrong)), "{wrong:?}");
        }
        let seen = [made, moved, (Op::Look(0), Answer::Done(Some(A)))];
        assert!(is_violated(&one_by_one(&seen)));
    }

    /// Goal: of two requests at a time either may be first, but all who look later, or
    /// were answered earlier, have to agree.
    #[test]
    fn requests_at_a_time_may_be_in_any_order() {
        let race = |looks: &[Answer]| {
            let mut history = History::default();
            let make = history.begun(Op::Make(0));
            let remove = history.begun(Op::Remove(0));
            for &answer in looks {
                let look = history.begun(Op::Look(0));
                history.ended(look, answer);
            }
            history.ended(make, Answer::Done(Some(A)));
            history.ended(remove, Answer::Done(None));
            history.check(1)
        };
        let (there, away) = (Answer::Done(Some(A)), Answer::Missing);
        for looks in [&[away, there, away][..], &[there], &[away, away]] {
            assert_eq!(race(looks), Verdict::Linearizable);
        }
        assert!(is_violated(&race(&[there, away, there])));
    }

    /// Goal: a request that nobody heard of may have been done, once, at any time.
    #[test]
    fn what_nobody_heard_of_may_have_been_done_once() {
        let unheard = |then: &[(Op, Answer)]| {
            let mut history = History::default();
            history.begun(Op::Make(0));
            for &(op, answer) in then {
                let number = history.begun(op);
                history.ended(number, answer);
            }
            history.check(1)
        };
        let (missing, found) = (Answer::Missing, Answer::Done(Some(A)));
        let removed = (Op::Remove(0), Answer::Done(None));
        let good = [(Op::Look(0), missing), (Op::Look(0), found), removed];
        assert_eq!(unheard(&good), Verdict::Linearizable);
        assert_eq!(unheard(&[]), Verdict::Linearizable);
        assert!(is_violated(&unheard(&[removed, removed])));
    }

    /// Goal: only what nobody touched is certain to be in a listing, or not to be.
    #[test]
    fn only_untouched_names_are_certain() {
        let mut spans = Spans::default();
        assert_eq!(spans.during(0, 5, 9), Some(false));
        spans.changed(0, 1, Some(3), Some(true));
        assert_eq!(spans.during(0, 5, 9), Some(true));
        assert_eq!(spans.during(0, 2, 9), None);
        assert_eq!(spans.during(1, 5, 9), Some(false));
        spans.changed(0, 2, Some(4), Some(false));
        assert_eq!(spans.during(0, 5, 9), None, "who was first?");
        spans.changed(0, 10, Some(11), Some(true));
        assert_eq!(spans.during(0, 12, 13), Some(true));
        spans.changed(0, 12, None, Some(false));
        assert_eq!(spans.during(0, 20, 30), None);
    }
}
