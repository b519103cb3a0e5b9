//! Refresh: "extends or reduces time limits of the IBP allocations that compose the exNode"
//! (Network Storage Stack 2.3).

use std::time::Duration;

use anyhow::{Result, anyhow};
use crossdock_exnode::{ExNode, Mapping};
use crossdock_ibp::Capability;

use crate::depot::Wanted;
use crate::parallel::each;
use crate::{Address, Depots};

/// When allocations are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// So long after they end now.
    Later(Duration),
    /// So long after they end now, the other way.
    Earlier(Duration),
    /// So long from now on.
    In(Duration),
    /// As late as their depots let them.
    Latest,
}

/// Changes the ends of all mappings, some at a time. Of each, how long it lives now; or why it
/// could not be changed.
pub async fn refresh(
    depots: &Depots,
    exnode: &ExNode,
    end: End,
    threads: usize,
) -> Vec<Result<Duration>> {
    let mappings = exnode.mappings.iter().cloned();
    let changed = each(mappings, threads, |mapping| {
        let depots = depots.clone();
        async move { one(&depots, &mapping, end).await }
    });
    let changed = changed.await.into_iter();
    changed
        .map(|it| it.unwrap_or_else(|| Err(anyhow!("it was not asked for"))))
        .collect()
}

async fn one(depots: &Depots, mapping: &Mapping, end: End) -> Result<Duration> {
    let manage = mapping.manage.as_deref();
    let manage = manage.ok_or_else(|| anyhow!("it has no manage capability"))?;
    let manage: Capability = manage.parse()?;
    let probe = depots.probe(&manage).await?;
    let left = Duration::from_secs(u64::try_from(probe.duration_seconds).unwrap_or(0));
    let duration = match end {
        End::Later(more) => left.saturating_add(more),
        End::Earlier(less) => left.saturating_sub(less),
        End::In(duration) => duration,
        End::Latest => {
            let totals = depots.status(&Address::from(&manage)).await?;
            let longest = totals.duration_seconds_max;
            longest.map_or(Duration::ZERO, Duration::from_secs)
        }
    };
    // 0 is for ever, which reducing does not mean.
    let duration = match end {
        End::Latest => duration,
        _ => duration.max(Duration::from_secs(1)),
    };
    let wanted = Wanted {
        bytes: probe.size_bytes_max,
        duration,
        reliability: probe.reliability,
    };
    depots.change(&manage, wanted).await?;
    Ok(duration)
}
