//! `crossdock address`: the addresses that the gateways of an ensemble have in turn.

use std::net::IpAddr;

use clap::{Args, Subcommand};
use crossdock_admin::{AddressAddition, AddressStatus, GatewayStatus};
use crossdock_members::VirtualAddress;
use serde_json::Value;

use crate::client::{Method, call, parse};
use crate::commands::Remote;
use crate::format;

#[derive(Subcommand)]
pub(crate) enum AddressCommand {
    /// Have the gateways have one more address, on the interfaces of gateway run --virtual-interface.
    #[command(after_help = "Example:\n  crossdock address add 10.0.0.52/24")]
    Add(AddArgs),
    /// Show all virtual addresses, and which gateway has each.
    #[command(after_help = "Example:\n  crossdock address list --json")]
    List(Remote),
    /// Have no gateway have the address any more: who mounted it is cut off.
    #[command(after_help = "Example:\n  crossdock address remove 10.0.0.52")]
    Remove(RemoveArgs),
}

#[derive(Args)]
pub(crate) struct AddArgs {
    /// The address and the bits of its network, like 10.0.0.52/24.
    #[arg(value_parser = virtual_address)]
    address: VirtualAddress,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct RemoveArgs {
    /// The address, like 10.0.0.52.
    address: IpAddr,
    #[command(flatten)]
    remote: Remote,
}

/// How the command line says a virtual address.
pub(crate) fn virtual_address(text: &str) -> Result<VirtualAddress, String> {
    text.parse()
}

impl AddressCommand {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        match self {
            Self::Add(args) => args.remote.json,
            Self::List(remote) => remote.json,
            Self::Remove(args) => args.remote.json,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        match self {
            Self::Add(args) => add(&args),
            Self::List(remote) => list(&remote),
            Self::Remove(args) => remove(&args),
        }
    }
}

fn add(args: &AddArgs) -> anyhow::Result<()> {
    let address = args.address.to_string();
    let body = serde_json::to_value(AddressAddition { address })?;
    let value = call(&args.remote, Method::Post(Some(body)), "/v1/addresses")?;
    tell(&args.remote, value, "the gateways have")
}

fn remove(args: &RemoveArgs) -> anyhow::Result<()> {
    let path = format!("/v1/addresses/{}", args.address);
    let value = call(&args.remote, Method::Delete, &path)?;
    tell(&args.remote, value, "no gateway has")
}

fn tell(remote: &Remote, value: Value, done: &str) -> anyhow::Result<()> {
    if remote.json {
        return format::print_json(&value);
    }
    let AddressStatus { address, .. } = parse(value)?;
    Ok(format::print(&format!("{done} {address}\n"))?)
}

fn list(remote: &Remote) -> anyhow::Result<()> {
    let value = call(remote, Method::Get, "/v1/addresses")?;
    if remote.json {
        return format::print_json(&value);
    }
    let addresses: Vec<AddressStatus> = parse(value)?;
    let mut rows = vec![
        ["address", "gateway", "machine"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(addresses.into_iter().map(|it| {
        let gateway = it.gateway.unwrap_or_else(|| "nobody".to_owned());
        vec![it.address, gateway, it.machine.unwrap_or_default()]
    }));
    format::print(&format::table(&rows))?;
    let gateways: Vec<GatewayStatus> = parse(call(remote, Method::Get, "/v1/gateways")?)?;
    let mut scopes = gateways
        .iter()
        .filter(|it| !it.revoked)
        .map(|it| &it.exports);
    let first = scopes.next();
    if scopes.any(|scope| Some(scope) != first) {
        format::print(MIXED)?;
    }
    Ok(())
}

/// What is told where gateways differ.
const MIXED: &str = "gateways are scoped to different exports (crossdock gateway list): only those that reach all get addresses; crossdock gateway revoke the names that are not used any more\n";
