//! `crossdock export`: which directories of a running system clients may mount.

use clap::{Args, Subcommand, ValueEnum};
use crossdock_admin::{ExportAddition, ExportAnswer, ExportChange, ExportStatus};
use crossdock_peer::{ExportRules, NOBODY, Network, Squash};
use serde_json::Value;

use anyhow::bail;

use crate::client::{Method, at_path, call, parse};
use crate::commands::Remote;
use crate::{config, format};

#[derive(Subcommand)]
pub(crate) enum ExportCommand {
    /// Export a directory of the volume, to this machine only unless --allow names others.
    #[command(after_help = "Examples:\n  \
        crossdock export add /home --allow 10.0.0.0/8,fd00::/8 --squash root\n  \
        crossdock export add /public --allow everybody --access ro --squash all")]
    Add(AddArgs),
    /// Show all exports.
    #[command(after_help = "Example:\n  crossdock export list --json")]
    List(Remote),
    /// Export a directory no more: its mounts get stale handles at once.
    #[command(after_help = "Example:\n  crossdock export remove /home")]
    Remove(RemoveArgs),
    /// Change an export; what is not named stays, and mounts see it at once.
    #[command(after_help = "Examples:\n  crossdock export set / --access ro\n  \
        crossdock export set /home --allow 10.1.0.0/16 --secure-port on")]
    Set(AddArgs),
}

#[derive(Args)]
pub(crate) struct AddArgs {
    /// The directory, from the volume's root on, like /home.
    path: String,
    #[command(flatten)]
    rules: RuleFlags,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct RemoveArgs {
    /// The export's path, as `crossdock export list` shows it.
    path: String,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
struct RuleFlags {
    /// Clients that are let in: networks like 10.0.0.0/8 or fd00::/8, addresses, or `everybody`
    /// [default of `add`: 127.0.0.0/8,::1].
    #[arg(long, value_name = "NETWORK,…", value_delimiter = ',')]
    allow: Option<Vec<Network>>,
    /// Reading and writing, or reading only [default of `add`: rw].
    #[arg(long, value_name = "HOW")]
    access: Option<Access>,
    /// Who becomes the anonymous user [default of `add`: none].
    #[arg(long, value_name = "WHO")]
    squash: Option<Who>,
    /// User id of the anonymous user [default: 65534].
    #[arg(long, value_name = "UID")]
    anonymous_uid: Option<u32>,
    /// Group id of the anonymous user [default: 65534].
    #[arg(long, value_name = "GID")]
    anonymous_gid: Option<u32>,
    /// Whether clients must call from a port below 1024 [default of `add`: off].
    #[arg(long, value_name = "WHETHER")]
    secure_port: Option<Switch>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Access {
    /// Reading and writing.
    Rw,
    /// Reading only.
    Ro,
}

#[derive(Clone, Copy, ValueEnum)]
enum Who {
    /// Nobody.
    None,
    /// The super user of clients.
    Root,
    /// Everybody.
    All,
}

#[derive(Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl ExportCommand {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        match self {
            Self::Add(args) | Self::Set(args) => args.remote.json,
            Self::List(remote) => remote.json,
            Self::Remove(args) => args.remote.json,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        match self {
            Self::Add(args) => add(args),
            Self::List(remote) => list(&remote),
            Self::Remove(args) => remove(&args),
            Self::Set(args) => set(args),
        }
    }
}

fn add(args: AddArgs) -> anyhow::Result<()> {
    let addition = ExportAddition {
        rules: args.rules.change(Squash::None)?,
        path: args.path,
    };
    let body = serde_json::to_value(addition)?;
    let value = call(&args.remote, Method::Post(Some(body)), "/v1/exports")?;
    tell(&args.remote, value, "exported")
}

fn list(remote: &Remote) -> anyhow::Result<()> {
    let value = call(remote, Method::Get, "/v1/exports")?;
    if remote.json {
        return format::print_json(&value);
    }
    let exports: Vec<ExportStatus> = parse(value)?;
    let head = ["path", "clients", "access", "squash", "ports"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(exports.iter().map(|export| {
        let rules = &export.rules;
        vec![
            export.path.clone(),
            networks(rules),
            access(rules).to_owned(),
            squash(rules),
            ports(rules).to_owned(),
        ]
    }));
    Ok(format::print(&format::table(&rows))?)
}

fn remove(args: &RemoveArgs) -> anyhow::Result<()> {
    let export = find(&args.remote, &args.path)?;
    let path = format!("/v1/exports/{}", export.id);
    let value = call(&args.remote, Method::Delete, &path)?;
    tell(&args.remote, value, "exported no more:")
}

fn set(args: AddArgs) -> anyhow::Result<()> {
    if args.rules.is_empty() {
        return Err(config::usage(
            "say what to change: --allow, --access, --squash or --secure-port".to_owned(),
        ));
    }
    let export = find(&args.remote, &args.path)?;
    let change = args.rules.change(export.rules.squash)?;
    let path = format!("/v1/exports/{}", export.id);
    let body = serde_json::to_value(change)?;
    let value = call(&args.remote, Method::Patch(body), &path)?;
    tell(&args.remote, value, "changed")
}

/// The export of `path`. Its number is never given to another one, so what is
/// done with it then meets this one or none.
fn find(remote: &Remote, path: &str) -> anyhow::Result<ExportStatus> {
    let exports: Vec<ExportStatus> = parse(call(remote, Method::Get, "/v1/exports")?)?;
    match at_path(exports, path, |export| &export.path) {
        Some(export) => Ok(export),
        None => bail!("{path} is not exported; crossdock export list shows what is"),
    }
}

fn tell(remote: &Remote, value: Value, done: &str) -> anyhow::Result<()> {
    if remote.json {
        return format::print_json(&value);
    }
    let ExportAnswer { export, notes } = parse(value)?;
    let rules = &export.rules;
    let mut text = format!(
        "{done} {} to {}: {}, squash {}, ports {}\n",
        export.path,
        networks(rules),
        access(rules),
        squash(rules),
        ports(rules)
    );
    for note in notes {
        text += &format!("note: {note}\n");
    }
    Ok(format::print(&text)?)
}

fn networks(rules: &ExportRules) -> String {
    let texts: Vec<String> = rules.networks.iter().map(ToString::to_string).collect();
    texts.join(",")
}

const fn access(rules: &ExportRules) -> &'static str {
    if rules.read_only { "ro" } else { "rw" }
}

fn squash(rules: &ExportRules) -> String {
    match rules.squash {
        Squash::None => "none".to_owned(),
        Squash::Root { uid, gid } => format!("root to {uid}:{gid}"),
        Squash::All { uid, gid } => format!("all to {uid}:{gid}"),
    }
}

const fn ports(rules: &ExportRules) -> &'static str {
    if rules.privileged_ports_only {
        "below 1024"
    } else {
        "all"
    }
}

impl RuleFlags {
    const fn is_empty(&self) -> bool {
        self.allow.is_none()
            && self.access.is_none()
            && self.squash.is_none()
            && self.anonymous_uid.is_none()
            && self.anonymous_gid.is_none()
            && self.secure_port.is_none()
    }

    /// What is to be different from rules whose squash is `before`.
    fn change(self, before: Squash) -> anyhow::Result<ExportChange> {
        let squash = self.squash(before)?;
        let switched = |switch| matches!(switch, Switch::On);
        Ok(ExportChange {
            networks: self.allow,
            read_only: self.access.map(|access| matches!(access, Access::Ro)),
            squash,
            privileged_ports_only: self.secure_port.map(switched),
        })
    }

    fn squash(&self, before: Squash) -> anyhow::Result<Option<Squash>> {
        let names_ids = self.anonymous_uid.is_some() || self.anonymous_gid.is_some();
        if self.squash.is_none() && !names_ids {
            return Ok(None);
        }
        let (who, uid, gid) = match before {
            Squash::None => (Who::None, NOBODY, NOBODY),
            Squash::Root { uid, gid } => (Who::Root, uid, gid),
            Squash::All { uid, gid } => (Who::All, uid, gid),
        };
        let uid = self.anonymous_uid.unwrap_or(uid);
        let gid = self.anonymous_gid.unwrap_or(gid);
        Ok(Some(match self.squash.unwrap_or(who) {
            Who::None if names_ids => {
                return Err(config::usage(
                    "nobody becomes the anonymous user without --squash root or --squash all"
                        .to_owned(),
                ));
            }
            Who::None => Squash::None,
            Who::Root => Squash::Root { uid, gid },
            Who::All => Squash::All { uid, gid },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: RuleFlags = RuleFlags {
        allow: None,
        access: None,
        squash: None,
        anonymous_uid: None,
        anonymous_gid: None,
        secure_port: None,
    };

    /// Goal: ids of the anonymous user stay unless they are named, and make no
    /// sense where nobody becomes it.
    #[test]
    fn anonymous_ids_belong_to_a_squash() {
        let before = Squash::Root { uid: 7, gid: 8 };
        let squash = |flags: RuleFlags, before| flags.change(before).map(|change| change.squash);
        let all = RuleFlags {
            squash: Some(Who::All),
            ..NOTHING
        };
        let uid = || RuleFlags {
            anonymous_uid: Some(1),
            ..NOTHING
        };
        assert_eq!(squash(NOTHING, before).expect("nothing"), None);
        assert_eq!(
            squash(all, before).expect("all"),
            Some(Squash::All { uid: 7, gid: 8 })
        );
        assert_eq!(
            squash(uid(), before).expect("uid"),
            Some(Squash::Root { uid: 1, gid: 8 })
        );
        assert!(squash(uid(), Squash::None).is_err());
    }
}
