//! The catalogue of metrics. docs/metrics.md lists the same; a test compares the
//! two.

mod depot;
mod door;
mod http;
mod iscsi;
mod node;
mod process;
mod site;
mod transfer;

use super::{Family, Samples};
use crate::snapshot::Snapshot;
use crate::text::{Metric, MetricKind};

/// All there are, in their order.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    let all = [
        door::FAMILIES,
        http::FAMILIES,
        iscsi::FAMILIES,
        transfer::FAMILIES,
        node::FAMILIES,
        depot::FAMILIES,
        site::FAMILIES,
        process::FAMILIES,
    ];
    all.into_iter().flatten()
}

const fn family(
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    write: fn(&Snapshot, &mut Samples<'_>),
) -> Family {
    Family {
        metric: Metric { name, kind, help },
        write,
    }
}
