//! `crossdock disk`: the disks of nodes that have their data on sets.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use crossdock_admin::DiskOrder;
use crossdock_sets::spec;
use crossdock_sets::{DiskState, DiskStatus};
use serde_json::Value;

use crate::client::{Method, call, parse};
use crate::commands::Remote;
use crate::format;
use crate::shell::{NodeDisks, Retiring};

#[derive(Subcommand)]
pub(crate) enum DiskCommand {
    /// Show all sets, their disks, and how far rebuilds are.
    #[command(after_help = "Example:\n  crossdock disk list --json")]
    List(Remote),
    /// Take a disk out of its set, which goes on without it; a spare takes its place.
    #[command(after_help = "Example:\n  crossdock disk fail /dev/sdc")]
    Fail(FailArgs),
    /// Put a blank disk in the place of one that has failed, or is to go.
    #[command(after_help = "Example:\n  crossdock disk replace /dev/sdc /dev/sdf")]
    Replace(ReplaceArgs),
    /// Add sets of blank disks, or spares, to a node that serves.
    #[command(
        after_help = "Example:\n  crossdock disk add 0 'mirror:/dev/sdf,/dev/sdg;spare:/dev/sdh'"
    )]
    Add(AddArgs),
    /// Move what is on a set to the others of its node, after which its disks may be taken
    /// away; disk list shows how far it is.
    #[command(after_help = "Example:\n  crossdock disk retire 0 1")]
    Retire(RetireArgs),
    /// Hold rebuilds, or let them go on.
    #[command(subcommand)]
    Rebuild(RebuildCommand),
}

#[derive(Args)]
pub(crate) struct FailArgs {
    /// Which disk, as crossdock disk list shows it.
    disk: String,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct ReplaceArgs {
    /// Which disk, as crossdock disk list shows it.
    disk: String,
    /// The blank disk: its path where the nodes run.
    with: PathBuf,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct AddArgs {
    /// Which node, by number.
    node: u32,
    /// What, as for --disks: `stripe|mirror|parity|spare:PATH,PATH…`, several separated by `;`.
    spec: String,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct RetireArgs {
    /// Which node, by number.
    node: u32,
    /// Which set, as crossdock disk list shows it.
    set: usize,
    /// The set stays, with what is on it by now.
    #[arg(long)]
    cancel: bool,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Subcommand)]
pub(crate) enum RebuildCommand {
    /// Copy no further until they are resumed, or the process is started again.
    Pause(Remote),
    /// Go on copying.
    Resume(Remote),
}

impl DiskCommand {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        self.remote().json
    }

    const fn remote(&self) -> &Remote {
        match self {
            Self::List(remote) => remote,
            Self::Fail(args) => &args.remote,
            Self::Replace(args) => &args.remote,
            Self::Add(args) => &args.remote,
            Self::Retire(args) => &args.remote,
            Self::Rebuild(RebuildCommand::Pause(remote) | RebuildCommand::Resume(remote)) => remote,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        let order = match &self {
            Self::List(_) => None,
            Self::Fail(args) => Some(DiskOrder::Fail {
                disk: args.disk.clone(),
            }),
            Self::Replace(args) => Some(DiskOrder::Replace {
                disk: args.disk.clone(),
                // Where this command runs is not where the nodes run.
                with: std::path::absolute(&args.with)?,
            }),
            Self::Add(args) => {
                let spec = spec::parse_node(&args.spec)?;
                Some(DiskOrder::Add {
                    node: args.node,
                    spec: spec
                        .with_paths(|path| std::path::absolute(path))?
                        .to_string(),
                })
            }
            &Self::Retire(RetireArgs {
                node, set, cancel, ..
            }) => Some(match cancel {
                true => DiskOrder::Keep { node, set },
                false => DiskOrder::Retire { node, set },
            }),
            Self::Rebuild(RebuildCommand::Pause(_)) => Some(DiskOrder::Pause),
            Self::Rebuild(RebuildCommand::Resume(_)) => Some(DiskOrder::Resume),
        };
        let method = match order {
            Some(order) => Method::Post(Some(serde_json::to_value(order)?)),
            None => Method::Get,
        };
        let value = call(self.remote(), method, "/v1/disks")?;
        show(self.remote(), value)
    }
}

fn show(remote: &Remote, value: Value) -> anyhow::Result<()> {
    if remote.json {
        return format::print_json(&value);
    }
    let nodes: Vec<NodeDisks> = parse(value)?;
    let head = ["node", "set", "kind", "disk", "state", "done"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut notes = String::new();
    for NodeDisks {
        node,
        status,
        retiring,
    } in &nodes
    {
        notes.extend(retiring.as_ref().map(|retiring| describe(*node, retiring)));
        for set in &status.sets {
            for disk in &set.members {
                let done = match (&set.rebuild, disk.state) {
                    (Some(rebuild), DiskState::Rebuilding) => {
                        let held = if status.is_paused { ", held" } else { "" };
                        let percent = rebuild.done_bytes * 100 / rebuild.total_bytes.max(1);
                        format!("{percent} %{held}")
                    }
                    _ => "-".to_owned(),
                };
                let place = (set.number.to_string(), set.kind.clone(), done);
                rows.push(row(*node, place, disk));
            }
        }
        for disk in status.spares.iter().chain(&status.failed) {
            let place = ("-".to_owned(), "-".to_owned(), "-".to_owned());
            rows.push(row(*node, place, disk));
        }
    }
    Ok(format::print(&(format::table(&rows) + &notes))?)
}

/// How far a set is that is being retired.
fn describe(node: u32, retiring: &Retiring) -> String {
    let mut text = format!(
        "node {node}: set {} is being retired: {} moved",
        retiring.set,
        format::bytes(retiring.moved_bytes)
    );
    if let Some(left) = retiring.left_bytes {
        text += &format!(", {} left after the last pass", format::bytes(left));
    }
    let reasons = [
        (retiring.pinned_bytes, "pinned"),
        (
            retiring.unreadable_bytes,
            "beside or among blocks that cannot be read",
        ),
        (retiring.homeless_bytes, "without room elsewhere"),
    ];
    for (bytes, why) in reasons.into_iter().filter(|(bytes, _)| *bytes > 0) {
        text += &format!("; {} {why}", format::bytes(bytes));
    }
    if let Some(error) = &retiring.error {
        text += &format!("; it does not go on: {error}");
    }
    text + "\n"
}

fn row(node: u32, (set, kind, done): (String, String, String), disk: &DiskStatus) -> Vec<String> {
    let state = match disk.state {
        DiskState::Active => "active",
        DiskState::Rebuilding => "rebuilding",
        DiskState::Spare => "spare",
        DiskState::Failed => "failed",
    };
    let name = disk.name.clone().unwrap_or_else(|| "missing".to_owned());
    vec![node.to_string(), set, kind, name, state.to_owned(), done]
}
