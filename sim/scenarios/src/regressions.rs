//! Seeds that have found something, and run first in every build. How one is added is in
//! `CONTRIBUTING.md`; what a seed does changes with the workload, so each finding also has
//! a test of its own where its story can be told move by move.

use crate::seeds::Report;

/// A seed that has failed.
pub(crate) struct Regression {
    scenario: &'static str,
    seed: u64,
    /// What was wrong, and what was done about it.
    story: &'static str,
}

const fn of(scenario: &'static str, seed: u64, story: &'static str) -> Regression {
    Regression {
        scenario,
        seed,
        story,
    }
}

/// All of them, by scenario and in the order in which they were found.
const REGRESSIONS: &[Regression] = &[
    of(
        "host",
        2839,
        "after crashes one of two nodes lacked what the other one had of a column, under the same version",
    ),
    of(
        "host",
        207,
        "a recall ended an older lease than the one that is recalled: a reader went on with what it knew",
    ),
    of(
        "host",
        2509,
        "two runs of the seed differed: where in memory a write lay decided in which pieces a disk got it",
    ),
    of(
        "host",
        395_991_904_109,
        "a copy that broke off had brought a part of a block, which then looked as new as the whole: blocks are copied whole",
    ),
    of(
        "store",
        97_741_136_891,
        "the mover read what lies beneath bytes of the journal, which a write in place may have torn, and told of bad blocks",
    ),
    of(
        "ensemble",
        59,
        "what a deposed manager takes until its leases end is lost with it: the model did not know",
    ),
    of(
        "ensemble",
        48,
        "what was copied over a gap that grew meanwhile kept what had been cut: the target is cut first",
    ),
    of(
        "ensemble",
        366,
        "a lease of a file that arrived late took the place of a newer one: they are numbered",
    ),
    of(
        "ensemble",
        191,
        "a set kept its primary at its second home after nodes came and went (known gaps)",
    ),
    of(
        "ensemble",
        50389,
        "two replaced a node at once: its machine was to be the one that the registry had given up, and never came (the model)",
    ),
    of(
        "ensemble",
        50550,
        "a rename was told that a handle is stale: its name had been given to another file while its site was asked for the old one",
    ),
    of(
        "races",
        12,
        "a rename between two names of one file was not remembered: sent late, it was done when they were of two",
    ),
    of(
        "races",
        60051,
        "a new home that was made equal was left out of its set, as another one could not be: nobody made it equal again",
    ),
    of(
        "races",
        927529275327,
        "the same of a member that could not be compared",
    ),
    of(
        "luns",
        2733,
        "a read showed bytes that only the primary had, and a take-over lost: reads wait for all members",
    ),
    of(
        "luns",
        392,
        "a write began anew as its site was taken over, under other numbers, and landed twice",
    ),
];

/// Runs those of a scenario; panics at the first that fails again, with its story.
pub(crate) fn expect_sound(scenario: &str, run: impl Fn(u64) -> Report) {
    let mut count = 0;
    for regression in REGRESSIONS.iter().filter(|it| it.scenario == scenario) {
        run(regression.seed).expect_nothing(regression.story);
        count += 1;
    }
    println!("{scenario}: {count} seeds that had failed before");
}
