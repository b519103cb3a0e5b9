//! Whether there is one order of all that was done to a block that explains every answer
//! (linearizability): reads, writes, and compare-and-writes, each of content of its own, and each
//! carried out once, however often gateways send it.

use std::collections::HashSet;

/// What a block holds, by whoever wrote it; 0: nobody.
pub(super) type Content = u64;

/// Most operations of one block.
const OPERATIONS_MAX: usize = 256;

/// Orders that are looked at, at most.
const LOOKS_MAX: usize = 2_000_000;

/// What was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write(Content),
    Exchange(Content, Content),
}

/// What is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was read.
    Is(Content),
    /// It was written, or exchanged.
    Done,
    /// It was something else than was expected.
    Differs,
    /// It was done, or not.
    Unclear,
    /// It was not done.
    Refused,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    operation: Operation,
    /// Who has asked for it.
    by: usize,
    begun: u64,
    /// It has no effect any more after that; `None`: who knows.
    ended: Option<u64>,
    answer: Answer,
}

/// All that was done to a block.
#[derive(Debug, Default)]
pub(super) struct Register {
    entries: Vec<Entry>,
}

/// What came of the search.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Linearizable,
    Violated,
    /// There are too many orders.
    Unknown,
}

impl Register {
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Somebody begins it at that moment; its number.
    pub(super) fn begin(&mut self, operation: Operation, by: usize, now: u64) -> usize {
        self.entries.push(Entry {
            operation,
            by,
            begun: now,
            ended: None,
            answer: Answer::Unclear,
        });
        self.entries.len() - 1
    }

    /// It was answered then.
    pub(super) fn end(&mut self, number: usize, answer: Answer, now: u64) {
        if let Some(entry) = self.entries.get_mut(number) {
            entry.answer = answer;
            entry.ended = Some(entry.ended.map_or(now, |fenced| fenced.min(now)));
        }
    }

    /// Nothing that he has begun to change, and that is not over, has an effect behind that
    /// moment.
    pub(super) fn fence(&mut self, by: usize, now: u64) {
        let of_his = self.entries.iter_mut().filter(|entry| entry.by == by);
        let changes = of_his.filter(|entry| entry.operation != Operation::Read);
        for entry in changes.filter(|entry| entry.ended.is_none()) {
            entry.ended = Some(now);
        }
    }

    /// Whether it was read.
    pub(super) fn is_read(&self, number: usize) -> bool {
        let entry = self.entries.get(number);
        entry.is_some_and(|entry| matches!(entry.answer, Answer::Is(_)))
    }

    /// It is the last one, and was not done.
    pub(super) fn forget(&mut self, number: usize) {
        self.entries.truncate(number);
    }

    /// Looks for an order.
    pub(super) fn check(&self) -> Verdict {
        // What nobody has seen explains nothing, as a rule.
        match self.search(false) {
            Verdict::Violated => self.search(true),
            verdict => verdict,
        }
    }

    fn is_seen(&self, content: Content) -> bool {
        self.entries.iter().any(|entry| {
            matches!(
                (entry.operation, entry.answer),
                (Operation::Read, Answer::Is(seen)) if seen == content
            ) || matches!(
                (entry.operation, entry.answer),
                (Operation::Exchange(expected, _), Answer::Done | Answer::Unclear)
                    if expected == content
            )
        })
    }

    fn search(&self, with_all: bool) -> Verdict {
        let matters = |entry: &&Entry| match (entry.answer, entry.operation) {
            (Answer::Refused, _) | (Answer::Unclear, Operation::Read) => false,
            (Answer::Unclear, Operation::Write(new) | Operation::Exchange(_, new)) => {
                with_all || self.is_seen(new)
            }
            _ => true,
        };
        let entries: Vec<Entry> = self.entries.iter().filter(matters).copied().collect();
        if entries.len() > OPERATIONS_MAX {
            return Verdict::Unknown;
        }
        let mut visited: HashSet<(Set, Content)> = HashSet::new();
        let mut left: Vec<(Set, Content)> = vec![(Set::default(), 0)];
        while let Some((done, content)) = left.pop() {
            if !visited.insert((done, content)) {
                continue;
            }
            if visited.len() > LOOKS_MAX {
                return Verdict::Unknown;
            }
            let open = entries.iter().enumerate().filter(|(at, _)| !done.has(*at));
            // Whoever has ended was before all that began later.
            let ends = open.clone().filter_map(|(_, entry)| entry.ended);
            let Some(first_end) = ends.min() else {
                return Verdict::Linearizable;
            };
            for (at, entry) in open.filter(|(_, entry)| entry.begun < first_end) {
                let next = done.with(at);
                for content in entry.contents_after(content).into_iter().flatten() {
                    left.push((next, content));
                }
            }
        }
        Verdict::Violated
    }

    /// What was done, for people.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.entries.iter().map(|entry| {
            let Entry {
                operation,
                by,
                begun,
                ended,
                answer,
            } = entry;
            format!("{begun} to {ended:?}, initiator {by}: {operation:?}: {answer:?}")
        })
    }
}

/// Some of the operations, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Set([u128; OPERATIONS_MAX / 128]);

impl Set {
    const fn has(&self, at: usize) -> bool {
        self.0[at / 128] & (1 << (at % 128)) != 0
    }

    const fn with(mut self, at: usize) -> Self {
        self.0[at / 128] |= 1 << (at % 128);
        self
    }
}

impl Entry {
    /// What the block may hold behind it, if it may be carried out where it holds `content`.
    fn contents_after(&self, content: Content) -> [Option<Content>; 2] {
        match (self.operation, self.answer) {
            (Operation::Read, Answer::Is(seen)) => [(seen == content).then_some(content), None],
            (Operation::Write(new), Answer::Done) => [Some(new), None],
            (Operation::Write(new), Answer::Unclear) => [Some(new), self.never(content)],
            (Operation::Exchange(expected, new), Answer::Done) => {
                [(expected == content).then_some(new), None]
            }
            (Operation::Exchange(expected, _), Answer::Differs) => {
                [(expected != content).then_some(content), None]
            }
            (Operation::Exchange(expected, new), Answer::Unclear) => {
                [(expected == content).then_some(new), self.never(content)]
            }
            _ => [None, None],
        }
    }

    /// One that has ended may have done nothing; one that has not need not be looked at.
    fn never(&self, content: Content) -> Option<Content> {
        self.ended.map(|_| content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(entries: &[(Operation, u64, Option<u64>, Answer)]) -> Register {
        let mut register = Register::default();
        for &(operation, begun, ended, answer) in entries {
            let number = register.begin(operation, 0, begun);
            if let Some(ended) = ended {
                register.end(number, answer, ended);
            }
        }
        register
    }

    /// Goal: what one order explains is found, whatever was unclear; lost and doubled exchanges,
    /// old content, and what lands after it was said to be over, are not explained.
    #[test]
    fn orders_are_found_where_there_are_some() {
        use Answer::{Differs, Done, Is, Unclear};
        use Operation::{Exchange, Read, Write};
        let sound = register(&[
            (Exchange(0, 1), 1, Some(5), Done),
            (Exchange(0, 2), 2, Some(6), Differs),
            (Exchange(1, 3), 6, Some(8), Unclear),
            (Read, 9, Some(10), Is(3)),
            (Write(4), 11, None, Unclear),
            (Read, 12, Some(13), Is(3)),
            (Read, 14, Some(15), Is(4)),
        ]);
        assert_eq!(sound.check(), Verdict::Linearizable);
        let both = [
            (Exchange(0, 1), 1, Some(5), Done),
            (Exchange(0, 2), 2, Some(6), Done),
        ];
        let lost = [
            (Exchange(0, 1), 1, Some(5), Done),
            (Read, 6, Some(7), Is(0)),
        ];
        let told = [
            (Exchange(0, 1), 1, Some(5), Differs),
            (Read, 6, Some(7), Is(1)),
        ];
        let late = [
            (Exchange(0, 1), 1, Some(5), Unclear),
            (Read, 6, Some(7), Is(0)),
            (Read, 8, Some(9), Is(1)),
        ];
        for violated in [&both[..], &lost, &told, &late] {
            assert_eq!(
                register(violated).check(),
                Verdict::Violated,
                "{violated:?}"
            );
        }
        // A write is carried out once, also before it is answered.
        for answer in [Done, Unclear] {
            let again = register(&[
                (Write(1), 1, Some(8), answer),
                (Exchange(1, 2), 3, Some(4), Done),
                (Read, 6, Some(7), Is(1)),
            ]);
            assert_eq!(again.check(), Verdict::Violated);
        }
        let mut fenced = Register::default();
        fenced.begin(Write(1), 3, 1);
        fenced.fence(3, 2);
        for (begun, seen) in [(3, 0), (5, 1)] {
            let number = fenced.begin(Read, 0, begun);
            fenced.end(number, Is(seen), begun + 1);
        }
        assert_eq!(
            fenced.check(),
            Verdict::Violated,
            "it lands behind the fence"
        );
        // An unclear write that nobody has seen explains a difference.
        let hidden = register(&[
            (Write(7), 1, Some(4), Unclear),
            (Exchange(0, 2), 2, Some(5), Differs),
            (Write(9), 3, Some(6), Done),
        ]);
        assert_eq!(hidden.check(), Verdict::Linearizable);
    }
}
