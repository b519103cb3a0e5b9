//! What is left of the gateway's processor for somebody else's work while the same bytes are
//! delivered (SPIRAL 3.1.3): gateways have one processor, everything else has the other.

use anyhow::{Result, ensure};

use super::field::{Door, Field, Shape, Way};
use super::unused::{self, WITHOUT};
use super::{RELAY, plural};
use crate::bench::figures::Comparison;
use crate::bench::nfs::number;
use crate::bench::{Keep, Options};
use crate::paths::Paths;

/// Nodes of the paper.
const NODES_MAX: u8 = 5;
/// What is delivered, of what the slower of both can. The paper had all that its relay could.
const DELIVERED: f64 = 0.85;
/// What the paper had left, of what a relay leaves (its table 1).
const GOAL: f64 = 4.2;
/// It may cost so much of what a relay leaves.
const GOAL_UNUSED: f64 = 0.98;
/// Until loads run.
const BEGIN: f64 = 0.5;

/// With more and more nodes, and with a program that catches nothing.
pub(super) fn measure(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    for nodes in (1..=NODES_MAX).filter(|nodes| options.full || nodes % 2 == 1) {
        let mut field = Field::raise(paths, options, Shape::of(nodes))?;
        field.keep_apart()?;
        let run = Run {
            field: &field,
            options,
            nodes,
            row: "left",
            peer: RELAY,
            goal: (nodes == NODES_MAX).then_some(GOAL),
        };
        [Door::Http, Door::Nfs]
            .into_iter()
            .try_for_each(|door| run.measure(door, keep))?;
    }
    let mut field = Field::raise(paths, options, unused::shape(NODES_MAX))?;
    field.keep_apart()?;
    let run = Run {
        field: &field,
        options,
        nodes: NODES_MAX,
        row: "left-unused",
        peer: WITHOUT,
        goal: Some(GOAL_UNUSED),
    };
    [Door::Http, Door::Nfs]
        .into_iter()
        .try_for_each(|door| run.measure(door, keep))
}

/// One gateway beside the other.
struct Run<'run> {
    field: &'run Field<'run>,
    options: &'run Options,
    nodes: u8,
    row: &'run str,
    peer: &'run str,
    goal: Option<f64>,
}

impl Run<'_> {
    fn measure(&self, door: Door, keep: Keep<'_>) -> Result<()> {
        let [inject, relay] = [Way::Inject, Way::Relay].map(|way| self.most(door, way));
        let rate = inject?.min(relay?) * DELIVERED;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..if self.options.full { 5 } else { 2 } {
            ours.push(self.once(door, Way::Inject, rate)?);
            theirs.push(self.once(door, Way::Relay, rate)?);
        }
        let figure = |row: String, unit, goal, of: fn(&(f64, f64)) -> f64| {
            let [ours, theirs] = [&ours, &theirs].map(|it| it.iter().map(of).collect::<Vec<f64>>());
            Comparison {
                row: &row,
                variant: format!(
                    "beside {:.0} % of what both deliver, {}, {} node{}",
                    DELIVERED * 100.0,
                    door.word(),
                    self.nodes,
                    plural(self.nodes)
                ),
                place: Some((door.word().to_owned(), usize::from(self.nodes))),
                unit,
                ours: &ours,
                peer: (self.peer, &theirs),
                is_less_better: false,
                goal,
            }
            .json()
        };
        let row = format!("{}-{}", self.row, door.word());
        keep(vec![
            figure(row.clone(), "loops/s", self.goal, |one| one.0),
            figure(row + "-served", "MB/s", None, |one| one.1),
        ]);
        Ok(())
    }

    /// What a gateway delivers at most, in bytes per second.
    fn most(&self, door: Door, way: Way) -> Result<f64> {
        let words = self.words(door, way, None, 1.0)?;
        let figures = self.field.load(0, &words)?;
        let rate = number(&figures, "bytes")? / number(&figures, "seconds")?;
        ensure!(rate > 0.0, "nothing is delivered");
        Ok(rate)
    }

    /// How often the work was done in a second, and MB per second that were delivered.
    fn once(&self, door: Door, way: Way, rate: f64) -> Result<(f64, f64)> {
        let seconds = if self.options.full { 5.0 } else { 1.5 };
        let words = self.words(door, way, Some(rate), seconds + BEGIN)?;
        let load = self.field.start_load(0, &words)?;
        let done = self.field.compute(BEGIN, seconds)?;
        let figures = load.figures()?;
        let served = number(&figures, "bytes")? / number(&figures, "seconds")? / 1e6;
        Ok((done, served))
    }

    fn words(&self, door: Door, way: Way, rate: Option<f64>, seconds: f64) -> Result<String> {
        let address = self.field.address(door, way)?;
        let words = door.paced(rate, BEGIN, BEGIN + seconds);
        Ok(format!("{words} --server {address}"))
    }
}
