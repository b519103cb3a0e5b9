//! What catching packets costs where nothing is caught: nodes take no packets of gateways,
//! one gateway has the kernel's program before its device, the other has not.
//!
//! Two gateways of one ensemble differ by up to 4 % whatever they do, as one has a lower
//! number, as somebody is asked first, and as each process lies elsewhere in memory: so each
//! is the one with the program in half of the runs, each is asked first in half of them, and
//! they are started anew between.

use anyhow::Result;

use super::field::{Door, Field, Shape, Way};
use crate::bench::figures::Comparison;
use crate::bench::{Keep, Options};
use crate::paths::Paths;

const NODES: u8 = 3;
const SIZES: [usize; 2] = [64 << 10, 1 << 20];
/// It may cost so much more.
const GOAL: f64 = 1.0 / 1.02;
/// What it is compared with.
pub(super) const WITHOUT: &str = "a gateway without --spiral-device";

/// What both gave, run by run.
pub(super) struct Both<T> {
    pub(super) with: Vec<T>,
    pub(super) without: Vec<T>,
}

impl<T> Both<T> {
    pub(super) const fn new() -> Self {
        Self {
            with: Vec::new(),
            without: Vec::new(),
        }
    }

    /// Asks each `rounds` times, and each first in half of them.
    pub(super) fn ask(
        &mut self,
        rounds: usize,
        mut run: impl FnMut(Way) -> Result<T>,
    ) -> Result<()> {
        for round in 0..rounds {
            let mut ways = [Way::Inject, Way::Relay];
            if round % 2 == 1 {
                ways.reverse();
            }
            for way in ways {
                let given = run(way)?;
                match way {
                    Way::Inject => self.with.push(given),
                    Way::Relay | Way::Splice => self.without.push(given),
                }
            }
        }
        Ok(())
    }
}

/// CPU seconds of gateways that relay.
pub(super) fn measure(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let (starts, seconds) = if options.full { (8, 1.5) } else { (5, 0.5) };
    let kinds = [Door::Http, Door::Nfs].map(|door| SIZES.map(|size| (door, size)));
    let all = kinds.as_flattened().iter();
    let mut all: Vec<_> = all.map(|&kind| (kind, Both::new())).collect();
    for is_relay_first in [false, true] {
        let mut field = Field::raise(paths, options, shape(NODES, is_relay_first))?;
        for _ in 0..starts {
            field.start_gateways_anew()?;
            field.keep_on_one()?;
            for ((door, size), both) in &mut all {
                both.ask(2, |way| Ok(field.cost(*door, way, *size, seconds)?.gateway))?;
            }
        }
    }
    for ((door, size), both) in all {
        let row = Comparison {
            row: &format!("unused-{}", door.word()),
            variant: format!("all is relayed, READs of {} KiB, one processor", size >> 10),
            place: None,
            unit: "CPU s/GB",
            ours: &both.with,
            peer: (WITHOUT, &both.without),
            is_less_better: true,
            goal: Some(GOAL),
        };
        keep(vec![row.json()]);
    }
    Ok(())
}

/// Nodes that take no packets.
pub(super) const fn shape(nodes: u8, is_relay_first: bool) -> Shape {
    Shape {
        is_deaf: true,
        is_relay_first,
        ..Shape::of(nodes)
    }
}
