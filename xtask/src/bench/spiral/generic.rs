//! A file server's usual requests (SPIRAL 3.2): one READ among five, the others LOOKUPs.

use anyhow::Result;

use super::RELAY;
use super::field::{Door, FILE_BYTES, Field, Shape, Way};
use crate::bench::figures::{Comparison, Spread};
use crate::bench::nfs::number;
use crate::bench::{Keep, Options};
use crate::paths::Paths;

const NODES: u8 = 5;
/// Bytes of each READ: what clients asked for in the paper's days, and later on.
const SIZES: [usize; 4] = [8 << 10, 32 << 10, 64 << 10, 256 << 10];
/// The paper's estimate.
const GOAL: f64 = 1.15;
/// What a READ cost in it, in LOOKUPs.
const READ_COSTS: f64 = 2.25;

/// Operations per second of a gateway that has one processor with everything else.
pub(super) fn measure(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let mut field = Field::raise(paths, options, Shape::of(NODES))?;
    field.keep_apart()?;
    let lookup = costs(&field, Way::Relay, "lookup", 0, options)?.1;
    for size in SIZES {
        let (mut ours, mut theirs, mut of_read) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..if options.full { 7 } else { 3 } {
            ours.push(costs(&field, Way::Inject, "generic", size, options)?.0);
            let (rate, cost) = costs(&field, Way::Relay, "generic", size, options)?;
            theirs.push(rate);
            // Four of five are LOOKUPs.
            of_read.push((5.0 * cost - 4.0 * lookup) / lookup);
        }
        let variant = format!("one READ of {} KiB and four LOOKUPs", size >> 10);
        let figure = |row, unit, ours: &[f64], peer, goal| {
            Comparison {
                row,
                variant: variant.clone(),
                place: None,
                unit,
                ours,
                peer,
                is_less_better: false,
                goal,
            }
            .json()
        };
        let of_read = [Spread::of(of_read.into_iter()).median];
        keep(vec![
            figure("generic", "op/s", &ours, (RELAY, &theirs), Some(GOAL)),
            figure(
                "generic-read",
                "LOOKUPs",
                &of_read,
                ("a READ's cost in the paper", &[READ_COSTS]),
                None,
            ),
        ]);
    }
    Ok(())
}

/// Operations in a second, and the gateway's CPU seconds for one.
fn costs(
    field: &Field<'_>,
    way: Way,
    work: &str,
    size: usize,
    options: &Options,
) -> Result<(f64, f64)> {
    let seconds = if options.full { 3.0 } else { 1.0 };
    let words = format!(
        "run --work {work} --again --keep --name read --count 100000000 --outstanding 8 --size {} --span {FILE_BYTES} --seconds {seconds} --server {} --server-pid {}",
        size.max(1),
        field.address(Door::Nfs, way)?,
        field.pid(way)?
    );
    let figures = field.load(0, &words)?;
    let operations = number(&figures, "operations")?;
    Ok((
        operations / number(&figures, "seconds")?,
        number(&figures, "server_cpu_seconds")? / operations,
    ))
}
