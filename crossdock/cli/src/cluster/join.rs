//! `crossdock cluster join`: gets a certificate, also in the place of one that ends soon.

use std::path::PathBuf;

use clap::Args;
use crossdock_names::HostId;
use crossdock_secure::Token;

use super::tokens::RoleWord;
use crate::config::{EnsembleFlags, Secret};
use crate::identity::Identity;
use crate::{data, format, joining, member};

#[derive(Args)]
pub(crate) struct JoinArgs {
    #[command(flatten)]
    ensemble: EnsembleFlags,
    /// What the process is to be.
    #[arg(long, value_name = "ROLE")]
    role: RoleWord,
    /// Directory of its key and certificate; a process that uses it takes the new ones
    /// without a restart.
    #[arg(long, value_name = "DIR", env = "CROSSDOCK_IDENTITY")]
    identity: PathBuf,
    /// What `crossdock cluster token create` has printed.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "CROSSDOCK_TOKEN",
        hide_env_values = true
    )]
    token: Secret,
}

pub(super) fn carry_out(args: JoinArgs) -> anyhow::Result<()> {
    let ensemble = args.ensemble.settle()?;
    let token: Token = args.token.0.parse()?;
    let registry = member::registry(&ensemble, HostId(data::random_u64()?))?;
    let role = args.role.role();
    joining::join(&registry, &token, role, &Identity::at(&args.identity))?;
    Ok(format::print(&format!(
        "{} has a certificate for a {} of the ensemble {}\n",
        args.identity.display(),
        role.word(),
        ensemble.name
    ))?)
}
