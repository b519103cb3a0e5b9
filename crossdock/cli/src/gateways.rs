//! `crossdock gateway list`, `revoke` and `restore`: which gateways the nodes and
//! managers of an ensemble let in.

use clap::Args;
use crossdock_admin::GatewayStatus;

use crate::client::{Method, call, parse};
use crate::commands::Remote;
use crate::format;

#[derive(Args)]
pub(crate) struct NameArgs {
    /// The gateway's name, as crossdock gateway list shows it.
    name: String,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

pub(crate) fn list(remote: &Remote) -> anyhow::Result<()> {
    let value = call(remote, Method::Get, "/v1/gateways")?;
    if remote.json {
        return format::print_json(&value);
    }
    let gateways: Vec<GatewayStatus> = parse(value)?;
    let header = ["gateway", "state", "process", "machine"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(gateways.into_iter().map(|it| {
        let state = match (it.revoked, it.hosts.is_empty()) {
            (true, _) => "revoked",
            (false, true) => "stopped",
            (false, false) => "running",
        };
        let state = state.to_owned();
        vec![it.name, state, it.hosts.join(","), it.machines.join(",")]
    }));
    Ok(format::print(&format::table(&rows))?)
}

pub(crate) fn revoke(args: &NameArgs) -> anyhow::Result<()> {
    order(args, "revoke", "nodes and managers refuse")
}

pub(crate) fn restore(args: &NameArgs) -> anyhow::Result<()> {
    order(args, "restore", "nodes and managers let in")
}

fn order(args: &NameArgs, what: &str, done: &str) -> anyhow::Result<()> {
    let path = format!("/v1/gateways/{}/{what}", args.name);
    let value = call(&args.remote, Method::Post(None), &path)?;
    if args.remote.json {
        return format::print_json(&value);
    }
    let gateway: GatewayStatus = parse(value)?;
    Ok(format::print(&format!("{done} {}\n", gateway.name))?)
}
