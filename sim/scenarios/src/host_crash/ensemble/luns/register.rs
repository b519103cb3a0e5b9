//! Whether there is one order of all that was done to a block that explains every answer
//! (linearizability): reads, writes, and compare-and-writes, each of content of its own.

use std::collections::HashSet;

/// What a block holds, by whoever wrote it; 0: nobody.
pub(super) type Content = u64;

/// Most operations of one block: a set of them is one number.
pub(super) const OPERATIONS_MAX: usize = 128;

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

    /// It is begun at that moment; its number.
    pub(super) fn begin(&mut self, operation: Operation, now: u64) -> usize {
        self.entries.push(Entry {
            operation,
            begun: now,
            ended: None,
            answer: Answer::Unclear,
        });
        self.entries.len() - 1
    }

    pub(super) fn end(&mut self, number: usize, answer: Answer, now: Option<u64>) {
        if let Some(entry) = self.entries.get_mut(number) {
            (entry.answer, entry.ended) = (answer, now);
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
        // Unclear ones that nobody has seen explain nothing, as a rule.
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
        let mut visited: HashSet<(u128, Content)> = HashSet::new();
        let mut left: Vec<(u128, Content)> = vec![(0, 0)];
        while let Some((done, content)) = left.pop() {
            if !visited.insert((done, content)) {
                continue;
            }
            if visited.len() > LOOKS_MAX {
                return Verdict::Unknown;
            }
            let open = entries
                .iter()
                .enumerate()
                .filter(|(at, _)| done & (1 << at) == 0);
            // Whoever has ended was before all that began later.
            let ends = open.clone().filter_map(|(_, entry)| entry.ended);
            let Some(first_end) = ends.min() else {
                return Verdict::Linearizable;
            };
            for (at, entry) in open.filter(|(_, entry)| entry.begun < first_end) {
                let next = done | 1 << at;
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
                begun,
                ended,
                answer,
            } = entry;
            format!("{begun} to {ended:?}: {operation:?}: {answer:?}")
        })
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
            let number = register.begin(operation, begun);
            register.end(number, answer, ended);
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
        // An unclear write that nobody has seen explains a difference.
        let hidden = register(&[
            (Write(7), 1, Some(4), Unclear),
            (Exchange(0, 2), 2, Some(5), Differs),
            (Write(9), 3, Some(6), Done),
        ]);
        assert_eq!(hidden.check(), Verdict::Linearizable);
    }
}
