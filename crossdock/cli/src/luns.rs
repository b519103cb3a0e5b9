//! `crossdock lun`: files of the volume as disks, for initiators of iSCSI.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use crossdock_admin::{LunChange, LunCreation, LunStatus};
use crossdock_peer::{ChapSecret, ChapUser, InitiatorRule, LunAccess, Network};
use serde_json::Value;

use crate::client::{Method, call, parse};
use crate::commands::Remote;
use crate::config::Size;
use crate::format;

#[derive(Subcommand)]
pub(crate) enum LunCommand {
    /// Make a LUN, for initiators of this machine unless --client names others.
    ///
    /// Its target is iqn.2026-11.io.crossdock:NAME, where it has number 0.
    #[command(after_help = "Examples:\n  crossdock lun create disk1 20G\n  \
        crossdock lun create db 1T --block-size 4096 --client 10.0.0.0/8 --initiator iqn.1993-08.org.debian:01:a\n  \
        crossdock lun create copy 8G --from /images/debian.raw")]
    Create(CreateArgs),
    /// Show all LUNs.
    #[command(after_help = "Example:\n  crossdock lun list --json")]
    List(Remote),
    /// Make a LUN longer; initiators see it at once.
    #[command(after_help = "Example:\n  crossdock lun resize disk1 40G")]
    Resize(ResizeArgs),
    /// Remove a LUN with all its bytes, whoever uses it.
    #[command(after_help = "Example:\n  crossdock lun remove disk1")]
    Remove(NameArgs),
    /// Let networks and initiators use a LUN, or say anew how.
    ///
    /// As long as a LUN names no initiator, all may use it that come from its networks.
    #[command(
        after_help = "Examples:\n  crossdock lun allow disk1 --client 10.0.0.0/8\n  \
        crossdock lun allow disk1 --initiator iqn.1993-08.org.debian:01:a --chap alice --secret-file a.secret"
    )]
    Allow(AllowArgs),
    /// Let networks and initiators not use a LUN any more: their sessions end at once.
    #[command(
        after_help = "Example:\n  crossdock lun deny disk1 --initiator iqn.1993-08.org.debian:01:a"
    )]
    Deny(DenyArgs),
}

#[derive(Args)]
pub(crate) struct CreateArgs {
    /// What it is to be called: small letters, digits, `.` and `-`.
    name: String,
    /// How long it is, like 20G.
    size: Size,
    /// Bytes of a block: 512 or 4096.
    #[arg(long, value_name = "BYTES", default_value = "512")]
    block_size: u32,
    /// Blocks get space when they are written, and UNMAP makes them zeros; this is the default.
    #[arg(long, conflicts_with = "thick")]
    thin: bool,
    /// All blocks are written now; this takes as long as that takes.
    #[arg(long)]
    thick: bool,
    /// Its medium can be taken out: initiators eject it, and load it again.
    #[arg(long)]
    removable: bool,
    /// Writes are answered before they are durable; what was not synchronised is lost without a
    /// word to initiators that go on when this machine or its process dies.
    #[arg(long)]
    write_cache: bool,
    /// Begin with the bytes of a file of the volume, like /images/disk.raw.
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// Networks from which initiators may come [default: 127.0.0.0/8,::1].
    #[arg(long, value_name = "NETWORK,…", value_delimiter = ',')]
    client: Option<Vec<Network>>,
    /// Initiators that may use it [default: all].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    initiator: Vec<String>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct ResizeArgs {
    /// Which LUN.
    name: String,
    /// How long it is to be, like 40G.
    size: Size,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct NameArgs {
    /// Which LUN.
    name: String,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct AllowArgs {
    /// Which LUN.
    name: String,
    /// Networks, like 10.0.0.0/8, or `everybody`.
    #[arg(
        long,
        value_name = "NETWORK,…",
        value_delimiter = ',',
        required_unless_present = "initiator"
    )]
    client: Vec<Network>,
    /// An initiator.
    #[arg(long, value_name = "NAME")]
    initiator: Option<String>,
    /// It may only read.
    #[arg(long, requires = "initiator")]
    read_only: bool,
    /// It proves by CHAP that it is this user.
    #[arg(
        long,
        value_name = "USER",
        requires = "initiator",
        requires = "secret_file"
    )]
    chap: Option<String>,
    /// File with the secret of that user, of 12 to 255 bytes.
    #[arg(long, value_name = "FILE", requires = "chap")]
    secret_file: Option<PathBuf>,
    /// The target proves by CHAP to it that it is this user.
    #[arg(
        long,
        value_name = "USER",
        requires = "chap",
        requires = "mutual_secret_file"
    )]
    mutual: Option<String>,
    /// File with the secret of that user.
    #[arg(long, value_name = "FILE", requires = "mutual")]
    mutual_secret_file: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct DenyArgs {
    /// Which LUN.
    name: String,
    /// Networks.
    #[arg(
        long,
        value_name = "NETWORK,…",
        value_delimiter = ',',
        required_unless_present = "initiator"
    )]
    client: Vec<Network>,
    /// Initiators.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    initiator: Vec<String>,
    #[command(flatten)]
    remote: Remote,
}

impl LunCommand {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        match self {
            Self::Create(args) => args.remote.json,
            Self::List(remote) => remote.json,
            Self::Resize(args) => args.remote.json,
            Self::Remove(args) => args.remote.json,
            Self::Allow(args) => args.remote.json,
            Self::Deny(args) => args.remote.json,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        match self {
            Self::Create(args) => create(args),
            Self::List(remote) => list(&remote),
            Self::Resize(args) => resize(&args),
            Self::Remove(args) => remove(&args),
            Self::Allow(args) => allow(args),
            Self::Deny(args) => deny(args),
        }
    }
}

fn create(args: CreateArgs) -> anyhow::Result<()> {
    let initiators = args.initiator.iter();
    let creation = LunCreation {
        name: args.name,
        size_bytes: args.size.0,
        block_bytes: args.block_size,
        thin: !args.thick,
        removable: args.removable,
        write_cache: args.write_cache,
        from: args.from,
        access: LunAccess {
            networks: args.client.unwrap_or_else(Network::loopback),
            initiators: initiators.map(|name| InitiatorRule::open(name)).collect(),
        },
    };
    let body = serde_json::to_value(creation)?;
    let value = call(&args.remote, Method::Post(Some(body)), "/v1/luns")?;
    tell(&args.remote, value, "created")
}

fn list(remote: &Remote) -> anyhow::Result<()> {
    let value = call(remote, Method::Get, "/v1/luns")?;
    if remote.json {
        return format::print_json(&value);
    }
    let luns: Vec<LunStatus> = parse(value)?;
    let head = [
        "name",
        "size",
        "block",
        "space",
        "clients",
        "initiators",
        "reserved by",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(luns.iter().map(|lun| {
        let clients: Vec<String> = lun.clients.iter().map(ToString::to_string).collect();
        vec![
            lun.name.clone(),
            lun.size_bytes.to_string(),
            lun.block_bytes.to_string(),
            if lun.thin { "thin" } else { "thick" }.to_owned(),
            clients.join(","),
            said(lun),
            lun.reservation
                .as_ref()
                .map_or_else(|| "-".to_owned(), |(holder, _)| holder.clone()),
        ]
    }));
    Ok(format::print(&format::table(&rows))?)
}

/// Which initiators may use it, and how.
fn said(lun: &LunStatus) -> String {
    if lun.initiators.is_empty() {
        return "all".to_owned();
    }
    let one = |initiator: &crossdock_admin::InitiatorStatus| {
        let read_only = if initiator.read_only { " (ro)" } else { "" };
        let chap = match (&initiator.chap, &initiator.mutual) {
            (Some(_), Some(_)) => " (chap both ways)",
            (Some(_), None) => " (chap)",
            (None, _) => "",
        };
        format!("{}{read_only}{chap}", initiator.name)
    };
    let all: Vec<String> = lun.initiators.iter().map(one).collect();
    all.join(",")
}

fn resize(args: &ResizeArgs) -> anyhow::Result<()> {
    let change = LunChange {
        size_bytes: Some(args.size.0),
        ..LunChange::default()
    };
    set(&args.remote, &args.name, &change)
}

fn remove(args: &NameArgs) -> anyhow::Result<()> {
    let value = call(&args.remote, Method::Delete, &path(&args.name)?)?;
    tell(&args.remote, value, "removed")
}

fn allow(args: AllowArgs) -> anyhow::Result<()> {
    let rule = match args.initiator {
        Some(name) => Some(InitiatorRule {
            is_read_only: args.read_only,
            chap: user(args.chap, args.secret_file.as_deref())?,
            mutual: user(args.mutual, args.mutual_secret_file.as_deref())?,
            ..InitiatorRule::open(&name)
        }),
        None => None,
    };
    let change = LunChange {
        allow_clients: args.client,
        allow: rule.into_iter().collect(),
        ..LunChange::default()
    };
    set(&args.remote, &args.name, &change)
}

fn deny(args: DenyArgs) -> anyhow::Result<()> {
    let change = LunChange {
        deny_clients: args.client,
        deny: args.initiator,
        ..LunChange::default()
    };
    set(&args.remote, &args.name, &change)
}

fn set(remote: &Remote, name: &str, change: &LunChange) -> anyhow::Result<()> {
    let body = serde_json::to_value(change)?;
    let value = call(remote, Method::Patch(body), &path(name)?)?;
    tell(remote, value, "changed")
}

fn user(name: Option<String>, file: Option<&Path>) -> anyhow::Result<Option<ChapUser>> {
    let (Some(user), Some(file)) = (name, file) else {
        return Ok(None);
    };
    let read = std::fs::read_to_string(file);
    let secret = read.with_context(|| format!("cannot read the secret in {}", file.display()))?;
    let secret = ChapSecret(secret.trim_end_matches(['\r', '\n']).to_owned());
    Ok(Some(ChapUser { user, secret }))
}

/// A name that is none would be another path of the API.
fn path(name: &str) -> anyhow::Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    if name.is_empty() || !name.bytes().all(is_plain) {
        bail!("there is no LUN {name:?}; crossdock lun list shows all");
    }
    Ok(format!("/v1/luns/{name}"))
}

fn tell(remote: &Remote, value: Value, done: &str) -> anyhow::Result<()> {
    if remote.json {
        return format::print_json(&value);
    }
    let LunStatus {
        target, size_bytes, ..
    } = parse(value)?;
    Ok(format::print(&format!(
        "{done} {target}, {size_bytes} bytes\n"
    ))?)
}
