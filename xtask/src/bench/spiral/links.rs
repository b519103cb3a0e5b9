//! What one download gets where every link but the client's is slow.

use anyhow::Result;

use super::field::{Door, FILE_BYTES, Field, Shape, Way};
use super::{RELAY, plural};
use crate::bench::figures::{Comparison, Spread};
use crate::bench::nfs::number;
use crate::bench::{Keep, Options};
use crate::paths::Paths;

/// Each link but the client's.
const LINK_MBIT: u32 = 200;

/// MB per second with more and more nodes.
pub(super) fn measure(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let rounds = if options.full { 5 } else { 2 };
    let mut one_node = None;
    for nodes in 1..=4 {
        let shape = Shape {
            link_mbit: Some(LINK_MBIT),
            ..Shape::of(nodes)
        };
        let field = Field::raise(paths, options, shape)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(download(&field, Way::Inject)?);
            theirs.push(download(&field, Way::Relay)?);
        }
        let figure = |row: &str, peer: (&str, &[f64]), goal| {
            Comparison {
                row,
                variant: format!(
                    "one download, links of {LINK_MBIT} Mbit/s, {nodes} node{}",
                    plural(nodes)
                ),
                place: Some(("one download".to_owned(), usize::from(nodes))),
                unit: "MB/s",
                ours: &ours,
                peer,
                is_less_better: false,
                goal,
            }
            .json()
        };
        let median = Spread::of(ours.iter().copied()).median;
        let linear = *one_node.get_or_insert(median) * f64::from(nodes);
        keep(vec![
            figure("links", (RELAY, &theirs), None),
            figure(
                "links-linear",
                ("so many times one node", &[linear]),
                Some(0.95),
            ),
        ]);
    }
    Ok(())
}

/// Downloads the large file over and over for a while; in MB per second.
fn download(field: &Field<'_>, way: Way) -> Result<f64> {
    let words = format!(
        "http requests --class prefix=big,size={FILE_BYTES} --connections 1 --seconds 0.1 --server {}",
        field.address(Door::Http, way)?
    );
    let figures = field.load(0, &words)?;
    Ok(number(&figures, "bytes")? / 1e6 / number(&figures, "seconds")?)
}
