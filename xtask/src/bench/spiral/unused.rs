//! What catching packets costs where nothing is caught: nodes take no packets of gateways,
//! one gateway has the kernel's program before its device, the other has not.

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

/// CPU seconds of gateways that relay.
pub(super) fn measure(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let mut field = Field::raise(paths, options, shape(NODES))?;
    field.keep_on_one()?;
    let (rounds, seconds) = if options.full { (15, 3.0) } else { (7, 0.7) };
    for door in [Door::Http, Door::Nfs] {
        for size in SIZES {
            let (mut with, mut without) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                with.push(field.cost(door, Way::Inject, size, seconds)?.gateway);
                without.push(field.cost(door, Way::Relay, size, seconds)?.gateway);
            }
            let row = Comparison {
                row: &format!("unused-{}", door.word()),
                variant: format!("all is relayed, READs of {} KiB, one processor", size >> 10),
                place: None,
                unit: "CPU s/GB",
                ours: &with,
                peer: (WITHOUT, &without),
                is_less_better: true,
                goal: Some(GOAL),
            };
            keep(vec![row.json()]);
        }
    }
    Ok(())
}

/// Nodes that take no packets.
pub(super) const fn shape(nodes: u8) -> Shape {
    Shape {
        is_deaf: true,
        ..Shape::of(nodes)
    }
}
