//! The nodes' IBP depots: what programs of that family say and hear, byte for byte; what of it
//! survives; what it does not let anybody do.

mod bounds;
mod conversations;
mod policy;
mod survival;
mod talk;
mod withdrawals;

use anyhow::{Context, Result};

use super::Stage;
use talk::Depots;

/// As much as LoCI's depot had when its conversations were taken.
const GRANTED: [&str; 6] = [
    "--ibp-space",
    "800M",
    "--ibp-stable",
    "500M",
    "--ibp-duration",
    "10d",
];

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    let depots = Depots::start(stage, &GRANTED)?;
    conversations::upload(&depots).context("upload")?;
    conversations::copy(&depots).context("copy")?;
    conversations::small_ones(&depots).context("small ones")?;
    conversations::types(&depots).context("storage types")?;
    conversations::versions(&depots).context("versions")?;
    bounds::garbage(&depots).context("garbage")?;
    bounds::keys_are_checked(&depots).context("keys")?;
    bounds::half_sent(&depots).context("half-sent data")?;
    bounds::revoked_for_stable(&depots).context("volatile space")?;
    bounds::status_is_changed(&depots).context("status change")?;
    bounds::figures(&depots).context("figures")?;
    let left = survival::leave(&depots)?;
    depots.kill();
    let depots = Depots::start(stage, &GRANTED)?;
    survival::check(&depots, left).context("after kill -9")?;
    depots.stop()?;
    let limits = ["--ibp-connections", "3", "--ibp-size", "1M"];
    let more = ["--ibp-rate", "20", "--ibp-password", "other"];
    let depots = Depots::start(stage, &[&limits[..], &more].concat())?;
    bounds::limits(&depots).context("limits")?;
    depots.stop()?;
    policy::read_again(stage).context("a policy that is read again")?;
    withdrawals::run(stage).context("withdrawn reads")
}
