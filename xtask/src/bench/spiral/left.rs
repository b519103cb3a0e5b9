//! What is left of the gateway's processor for somebody else's work while the same bytes are
//! delivered (SPIRAL 3.1.3): gateways have one processor, everything else has the other.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::field::{Door, Field, Shape, Way};
use super::unused::{self, Both, WITHOUT};
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
        let row = Row {
            nodes,
            name: "left",
            peer: RELAY,
            goal: (nodes == NODES_MAX).then_some(GOAL),
        };
        row.measure(paths, options, &[Shape::of(nodes)], keep)?;
    }
    let row = Row {
        nodes: NODES_MAX,
        name: "left-unused",
        peer: WITHOUT,
        goal: Some(GOAL_UNUSED),
    };
    let shapes = [false, true].map(|is_relay_first| unused::shape(NODES_MAX, is_relay_first));
    row.measure(paths, options, &shapes, keep)
}

/// What one gateway leaves beside what the other does.
struct Row<'row> {
    nodes: u8,
    name: &'row str,
    peer: &'row str,
    goal: Option<f64>,
}

impl Row<'_> {
    /// In each of these ensembles in turn.
    fn measure(
        &self,
        paths: &Paths,
        options: &Options,
        shapes: &[Shape],
        keep: Keep<'_>,
    ) -> Result<()> {
        let mut all = [Door::Http, Door::Nfs].map(|door| (door, Both::new()));
        for &shape in shapes {
            let mut field = Field::raise(paths, options, shape)?;
            field.keep_apart()?;
            let run = Run {
                field: &field,
                options,
            };
            for (door, both) in &mut all {
                run.ask(*door, both)?;
            }
        }
        for (door, both) in &all {
            keep(self.rows(*door, both));
        }
        Ok(())
    }

    fn rows(&self, door: Door, both: &Both<(f64, f64)>) -> Vec<Value> {
        let figure = |row: String, unit, goal, of: fn(&(f64, f64)) -> f64| {
            let [ours, theirs] =
                [&both.with, &both.without].map(|it| it.iter().map(of).collect::<Vec<f64>>());
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
        let row = format!("{}-{}", self.name, door.word());
        vec![
            figure(row.clone(), "loops/s", self.goal, |one| one.0),
            figure(row + "-served", "MB/s", None, |one| one.1),
        ]
    }
}

/// One gateway beside the other.
struct Run<'run> {
    field: &'run Field<'run>,
    options: &'run Options,
}

impl Run<'_> {
    /// Adds what both leave.
    fn ask(&self, door: Door, both: &mut Both<(f64, f64)>) -> Result<()> {
        let [inject, relay] = [Way::Inject, Way::Relay].map(|way| self.most(door, way));
        let rate = inject?.min(relay?) * DELIVERED;
        let rounds = if self.options.full { 5 } else { 2 };
        both.ask(rounds, |way| self.once(door, way, rate))
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
