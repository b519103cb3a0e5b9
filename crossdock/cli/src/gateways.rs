//! `crossdock gateway list`, `revoke`, `restore` and `scope`: which gateways the nodes and
//! managers of an ensemble let in, and to what.

use clap::Args;
use crossdock_admin::{GatewayScope, GatewayStatus};

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

#[derive(Args)]
pub(crate) struct ScopeArgs {
    /// The gateway's name, as crossdock gateway list shows it.
    name: String,
    /// The exports that it is to reach, by path.
    #[arg(
        long,
        value_name = "PATHS",
        value_delimiter = ',',
        required_unless_present = "all"
    )]
    exports: Vec<String>,
    /// Let it reach everything.
    #[arg(long, conflicts_with = "exports")]
    all: bool,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

pub(crate) fn list(remote: &Remote) -> anyhow::Result<()> {
    let value = call(remote, Method::Get, "/v1/gateways")?;
    if remote.json {
        return format::print_json(&value);
    }
    let gateways: Vec<GatewayStatus> = parse(value)?;
    let header = ["gateway", "state", "exports", "process", "machine"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(gateways.into_iter().map(|it| {
        let state = match (it.revoked, it.hosts.is_empty()) {
            (true, _) => "revoked",
            (false, true) => "stopped",
            (false, false) => "running",
        };
        let state = state.to_owned();
        let exports = it
            .exports
            .map_or_else(|| "all".to_owned(), |them| them.join(","));
        vec![
            it.name,
            state,
            exports,
            it.hosts.join(","),
            it.machines.join(","),
        ]
    }));
    Ok(format::print(&format::table(&rows))?)
}

pub(crate) fn revoke(args: &NameArgs) -> anyhow::Result<()> {
    order(args, "revoke", "nodes and managers refuse")
}

pub(crate) fn restore(args: &NameArgs) -> anyhow::Result<()> {
    order(args, "restore", "nodes and managers let in")
}

pub(crate) fn scope(args: &ScopeArgs) -> anyhow::Result<()> {
    let exports = (!args.all).then(|| args.exports.clone());
    let body = serde_json::to_value(GatewayScope { exports })?;
    let path = format!("/v1/gateways/{}/scope", args.name);
    let value = call(&args.remote, Method::Post(Some(body)), &path)?;
    if args.remote.json {
        return format::print_json(&value);
    }
    let GatewayStatus { name, exports, .. } = parse(value)?;
    let exports = exports.map_or_else(|| "everything".to_owned(), |them| them.join(", "));
    Ok(format::print(&format!("{name} reaches {exports}\n"))?)
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
