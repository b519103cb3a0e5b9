//! Trim: "takes an exNode, deletes specified fragments, and returns a new exNode" (Network
//! Storage Stack 2.3).

use std::collections::BTreeSet;

use anyhow::{Result, anyhow, ensure};
use crossdock_exnode::{ExNode, Mapping};
use crossdock_ibp::{Capability, ErrorCode};

use crate::parallel::each;
use crate::{DepotError, Depots};

/// What was taken out of an exNode.
#[derive(Debug, Default)]
pub struct Trimmed {
    /// Numbers of the mappings, as they were.
    pub removed: Vec<usize>,
    /// Those of them whose depots did not let them go, and why: they end with their time.
    pub kept_at_depots: Vec<(usize, String)>,
}

/// Takes the mappings of these numbers out of `exnode`, and has their depots drop them unless
/// `only_exnode`.
///
/// # Errors
/// If there is no mapping of one of the numbers; nothing is changed then.
pub async fn trim(
    depots: &Depots,
    exnode: &mut ExNode,
    numbers: &BTreeSet<usize>,
    only_exnode: bool,
    threads: usize,
) -> Result<Trimmed> {
    let count = exnode.mappings.len();
    if let Some(&last) = numbers.last() {
        ensure!(
            last < count,
            "there is no mapping {last}: there are {count}"
        );
    }
    let mut trimmed = Trimmed::default();
    if !only_exnode {
        let chosen = numbers
            .iter()
            .map(|&number| exnode.mappings[number].clone());
        let released = each(chosen, threads, |mapping| {
            let depots = depots.clone();
            async move { release(&depots, &mapping).await }
        });
        for (&number, result) in numbers.iter().zip(released.await) {
            let result = result.unwrap_or_else(|| Err(anyhow!("it was not asked for")));
            if let Err(error) = result {
                trimmed.kept_at_depots.push((number, error.to_string()));
            }
        }
    }
    trimmed.removed = numbers.iter().copied().collect();
    let mappings = std::mem::take(&mut exnode.mappings).into_iter().enumerate();
    let rest = mappings.filter(|(number, _)| !numbers.contains(number));
    exnode.mappings = rest.map(|(_, mapping)| mapping).collect();
    Ok(trimmed)
}

async fn release(depots: &Depots, mapping: &Mapping) -> Result<()> {
    let manage = mapping.manage.as_deref();
    let manage = manage.ok_or_else(|| anyhow!("it has no manage capability"))?;
    let manage: Capability = manage.parse()?;
    match depots.release(&manage).await {
        // It has gone before.
        Err(DepotError::Refused { code, .. }) if code == ErrorCode::CAP_NOT_FOUND => Ok(()),
        other => Ok(other?),
    }
}
