//! What a user of the command line meets: errors with a next step, exit codes,
//! JSON, a graceful stop, flushes, nodes that go and come, damage that is found,
//! and a machine without io_uring.

mod damage;
pub(super) mod defrag;
mod deploy;
mod durability;
mod exports;
mod https;
pub(super) mod job;
mod locks;
mod policy;
mod privileges;
pub(super) mod program;
mod quotas;
mod refusals;
mod reload;
mod secrets;
mod service;
mod tokens;

use anyhow::{Context, Result};

use super::Stage;

/// One check, on data that those before it have left.
type Check = (&'static str, fn(&Stage<'_>) -> Result<()>);

/// In the order in which they run.
const CHECKS: [Check; 26] = [
    ("wrong usage", refusals::wrong_usage),
    ("configuration", refusals::configuration),
    ("no room", refusals::no_room),
    ("other user's data", refusals::other_user),
    ("service", service::serve),
    ("nodes", service::nodes),
    ("defragmentation", defrag::passes),
    ("flushes", durability::flushes),
    ("exports", exports::changes),
    ("quotas", quotas::changes),
    ("policy", policy::changes),
    ("tokens and signed URLs", tokens::changes),
    ("HTTPS", https::serve),
    ("locks", locks::orders),
    ("IPv6", exports::ipv6),
    ("privileges", privileges::dropped),
    ("another user", privileges::another_user),
    ("service unit", deploy::unit),
    ("configuration read again", reload::file),
    ("secrets", secrets::stay_secret),
    ("half-closed client", service::half_closed_client),
    ("taken ports and data", refusals::taken),
    ("other settings", refusals::other_settings),
    ("unknown format", refusals::unknown_format),
    ("without io_uring", service::without_io_uring),
    ("damage", damage::flipped_bit),
];

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    for (name, check) in CHECKS {
        check(stage).context(name)?;
    }
    Ok(())
}

/// The data directory that most checks share.
fn pool(stage: &Stage<'_>) -> std::path::PathBuf {
    stage.folder.join("pool")
}
