//! `crossdock cluster join`: gets a certificate, also in the place of one that ends soon.

use std::path::PathBuf;

use clap::Args;
use crossdock_link::Role;
use crossdock_names::HostId;
use crossdock_secure::Token;

use super::tokens::RoleWord;
use crate::config::{EnsembleFlags, Secret, check_gateway_name, usage};
use crate::identity::{Holder, Identity};
use crate::member::default_gateway_name;
use crate::{data, format, joining, member};

#[derive(Args)]
pub(crate) struct JoinArgs {
    #[command(flatten)]
    ensemble: EnsembleFlags,
    /// What the process is to be.
    #[arg(long, value_name = "ROLE")]
    role: RoleWord,
    /// What a gateway is called, by its administrators and in its certificate [default: the
    /// machine's name].
    #[arg(long, value_name = "NAME", env = "CROSSDOCK_GATEWAY_NAME")]
    gateway_name: Option<String>,
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
    let is_gateway = role == Role::Gateway;
    if args.gateway_name.is_some() && !is_gateway {
        return Err(usage("--gateway-name is for gateways".to_owned()));
    }
    check_gateway_name(args.gateway_name.as_deref())?;
    let named = args.gateway_name.unwrap_or_else(default_gateway_name);
    let holder = Holder {
        role,
        gateway: is_gateway.then_some(named),
    };
    joining::join(&registry, &token, &holder, &Identity::at(&args.identity))?;
    let name = holder.gateway.map(|name| format!(" {name}"));
    Ok(format::print(&format!(
        "{} has a certificate for a {}{} of the ensemble {}\n",
        args.identity.display(),
        role.word(),
        name.unwrap_or_default(),
        ensemble.name
    ))?)
}
