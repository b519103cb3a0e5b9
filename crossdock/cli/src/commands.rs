//! The command line: each command is described once, here.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage.

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use crossdock_tools::command::{Lors, Tool, historic_words};

use crate::addresses::AddressCommand;
use crate::cluster::ClusterCommand;
use crate::config::{GatewayFlags, ManagerFlags, NodeFlags, UpFlags, UsageError};
use crate::defrag::DefragArgs;
use crate::disks::DiskCommand;
use crate::exnodes::ExNodeCommand;
use crate::exports::ExportCommand;
use crate::locks::LockCommand;
use crate::luns::LunCommand;
use crate::places::PlaceCommand;
use crate::policy::PolicyCommand;
use crate::quotas::QuotaCommand;
use crate::reload::Origin;
use crate::sign::{self, SignArgs};
use crate::tokens::TokenCommand;
use crate::top::{self, TopArgs};
use crate::{checks, client, config, format, gateways, member, offline, places, spiral, up};

#[derive(Parser)]
#[command(
    name = "crossdock",
    version,
    about = "One pool of storage nodes, used as files by unmodified NFS clients",
    after_help = "Examples:\n  crossdock up --data /srv/pool --nodes 4\n  \
                  crossdock status --json\n  crossdock node stop 2\n  \
                  crossdock export add /home --allow 10.0.0.0/8\n  \
                  crossdock quota set /home/anna --bytes 20G"
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
struct StatusArgs {
    #[command(flatten)]
    remote: Remote,
    /// Show how names lie on sites and managers.
    #[arg(long)]
    sites: bool,
    /// Show what nodes send to clients themselves (third-party transfer), and what does not
    /// go that way.
    #[arg(long, conflicts_with = "sites")]
    spiral: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Start everything in one process: nodes, manager, registry and doors.
    #[command(after_help = "Examples:\n  crossdock up\n  \
        crossdock up --data /srv/pool --nodes 8 --size 200G\n  \
        crossdock up --nfs '10.0.0.1:2049,[fd00::1]:2049'    (for other machines: crossdock export add)\n  \
        crossdock up --nfs 127.0.0.1:0 --admin 127.0.0.1:0    (free ports, printed when ready)")]
    Up(Box<UpFlags>),
    /// Show nodes, doors and space of a running system.
    #[command(
        after_help = "Examples:\n  crossdock status\n  crossdock status --sites    (how names lie on sites and managers)\n  \
        crossdock status --spiral   (what nodes send themselves, and what not)"
    )]
    Status(StatusArgs),
    /// Show what a running system does now: procedures, clients, nodes, slow requests.
    #[command(
        after_help = "Examples:\n  crossdock top\n  crossdock top --once --json --interval 10"
    )]
    Top(TopArgs),
    /// Look at configuration files.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Read every block of a running system and compare it with its checksum.
    #[command(after_help = "Example:\n  crossdock scrub --json")]
    Scrub(Remote),
    /// Put together on the nodes' disks what lies apart, while clients go on.
    #[command(
        after_help = "Examples:\n  crossdock defrag --now\n  crossdock defrag --file /films/may.webm\n  \
        crossdock defrag --schedule 02:00-05:00    (UTC; off: not any more)\n  \
        crossdock defrag status"
    )]
    Defrag(DefragArgs),
    /// Check names, files and objects of a running volume, or a stopped node's files, and prove them consistent.
    #[command(
        after_help = "Examples:\n  crossdock fsck    (of a running volume; clients go on)\n  \
        crossdock fsck --repair\n  \
        crossdock fsck --node crossdock-data/node-0 --full"
    )]
    Fsck(FsckArgs),
    /// Make an ensemble of many hosts.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Take a node of an all-in-one down and bring it back; run, add, drain, remove one of an ensemble.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Run a manager of an ensemble, or have one end.
    #[command(subcommand)]
    Manager(ManagerCommand),
    /// Run a gateway of an ensemble, or say which ones are let in.
    #[command(subcommand)]
    Gateway(GatewayCommand),
    /// Say which clients may mount which directories of a running system.
    #[command(subcommand)]
    Export(ExportCommand),
    /// Say which addresses the gateways of an ensemble have in turn.
    #[command(subcommand)]
    Address(AddressCommand),
    /// Say which way the bytes of which files go to clients.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Let initiators of iSCSI have files of the volume as disks.
    #[command(subcommand)]
    Lun(LunCommand),
    /// See the disks of nodes that have sets of them; take some out, put others in.
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Limit what directories of a running system may hold.
    #[command(subcommand)]
    Quota(QuotaCommand),
    /// See which clients have locked which files of a running system.
    #[command(subcommand)]
    Lock(LockCommand),
    /// Let programs write, and read what is not for everybody, over HTTP.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Make a URL that lets anybody read or write one file for some time.
    #[command(
        after_help = "Examples:\n  crossdock sign /reports/may.pdf --for 1h\n  \
        crossdock sign /films/may.webm --nodes --for 5m\n  \
        crossdock sign /incoming/scan.tif --method PUT --uid 1000 --gid 1000 \
        --url https://files.example"
    )]
    Sign(SignArgs),
    /// Let IBP clients read files of the volume, and bring files of theirs into it.
    #[command(name = "exnode", subcommand)]
    ExNode(ExNodeCommand),
    #[command(flatten)]
    Logistic(Tool),
    #[command(flatten)]
    Lors(Lors),
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Explain what is wrong with a configuration file, or print what it means.
    #[command(after_help = "Example:\n  crossdock config check crossdock.toml")]
    Check {
        /// The TOML file.
        file: PathBuf,
        /// The command that it is for [default: the one that its keys fit].
        #[arg(long, value_name = "COMMAND")]
        of: Option<config::Of>,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand)]
enum NodeCommand {
    /// Take a node down; what it holds without a replica is unavailable meanwhile.
    Stop(NodeArgs),
    /// Bring a node back.
    Start(NodeArgs),
    #[command(flatten)]
    Place(PlaceCommand),
    /// Run a storage node of an ensemble.
    #[command(
        after_help = "Example:\n  crossdock node run --etcd http://10.0.0.1:2379 --name pool \
        --number 0 --data /srv/pool --listen 10.0.0.5:7071"
    )]
    Run(Box<NodeFlags>),
}

#[derive(Subcommand)]
enum ManagerCommand {
    /// Serve names and small files; all that it knows lies on the nodes.
    #[command(
        after_help = "Example:\n  crossdock manager run --etcd http://10.0.0.1:2379 --name pool \
        --listen 10.0.0.6:7071"
    )]
    Run(Box<ManagerFlags>),
    /// Have a manager give its sites to others and end; a stop by SIGTERM does the same.
    #[command(
        after_help = "Example:\n  crossdock manager remove 6b19cc3624b4ca60 --admin 10.0.0.6:7070"
    )]
    Remove {
        /// The process's number, as `crossdock status` shows it.
        host: String,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Subcommand)]
enum GatewayCommand {
    /// Serve NFS clients.
    #[command(
        after_help = "Example:\n  crossdock gateway run --etcd http://10.0.0.1:2379 --name pool \
        --listen 10.0.0.7:7071 --nfs 10.0.0.7:2049"
    )]
    Run(Box<GatewayFlags>),
    /// Show all gateways, and which are revoked.
    #[command(after_help = "Example:\n  crossdock gateway list --json")]
    List(Remote),
    /// Have nodes and managers refuse a gateway, from now on and after its restarts.
    #[command(after_help = "Example:\n  crossdock gateway revoke gw2")]
    Revoke(gateways::NameArgs),
    /// Have them let it in again.
    #[command(after_help = "Example:\n  crossdock gateway restore gw2")]
    Restore(gateways::NameArgs),
    /// Have a gateway reach what lies in some exports only, whatever it asks for; clients
    /// that have mounted through it have to mount again.
    #[command(after_help = "Example:\n  crossdock gateway scope gw2 --exports /home,/scratch")]
    Scope(gateways::ScopeArgs),
}

#[derive(Args)]
struct NodeArgs {
    /// The node's number, as `crossdock status` shows it.
    number: u32,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
struct FsckArgs {
    /// A stopped node's directory, instead of a running volume.
    #[arg(long, value_name = "DIR")]
    node: Option<PathBuf>,
    /// Mend what is found: files without a name get one in /lost+found, names of nothing go.
    #[arg(long, conflicts_with = "node")]
    repair: bool,
    /// Also read every block of the node and compare it with its checksum.
    #[arg(long, requires = "node")]
    full: bool,
    #[command(flatten)]
    remote: Remote,
}

/// How to reach a running system.
#[derive(Args)]
pub(crate) struct Remote {
    /// Address of the admin API, like 127.0.0.1:7070; an IPv6 address stands in brackets.
    #[arg(long, default_value = "127.0.0.1:7070", env = "CROSSDOCK_ADMIN")]
    pub(crate) admin: SocketAddr,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Carries out the command line.
pub(crate) fn run() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let command = match Lors::of_words(words.clone()) {
        Some(Ok(tool)) => Command::Lors(tool),
        Some(Err(error)) => error.exit(),
        None => CommandLine::parse_from(historic_words(words)).command,
    };
    let prints_json = command.prints_json();
    match command.carry_out() {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(1),
        Err(error) => {
            // Whoever read our output may be gone; the exit code still says it.
            let _ = writeln!(std::io::stderr(), "crossdock: {error:#}");
            let usage = error.downcast_ref::<UsageError>();
            if prints_json {
                let mut value = serde_json::json!({"error": format!("{error:#}")});
                if let Some((line, column)) = usage.and_then(|usage| usage.place) {
                    value["line"] = line.into();
                    value["column"] = column.into();
                }
                let _ = format::print_json(&value);
            }
            ExitCode::from(if usage.is_some() { 2 } else { 1 })
        }
    }
}

/// What a command that was carried out found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing to complain about: exit code 0.
    Good,
    /// Damage, which it has printed: exit code 1.
    Bad,
}

impl Command {
    /// Whether what it prints is for programs.
    fn prints_json(&self) -> bool {
        match self {
            Self::Up(_)
            | Self::Manager(ManagerCommand::Run(_))
            | Self::Gateway(GatewayCommand::Run(_)) => false,
            Self::Manager(ManagerCommand::Remove { remote, .. })
            | Self::Gateway(GatewayCommand::List(remote)) => remote.json,
            Self::Gateway(GatewayCommand::Revoke(args) | GatewayCommand::Restore(args)) => {
                args.remote.json
            }
            Self::Gateway(GatewayCommand::Scope(args)) => args.remote.json,
            Self::Node(NodeCommand::Run(_)) => false,
            Self::Node(NodeCommand::Place(command)) => command.prints_json(),
            Self::Cluster(command) => command.prints_json(),
            Self::Status(args) => args.remote.json,
            Self::Scrub(remote) => remote.json,
            Self::Defrag(args) => args.prints_json(),
            Self::Top(args) => args.remote.json,
            Self::Config(ConfigCommand::Check { json, .. }) => *json,
            Self::Fsck(args) => args.remote.json,
            Self::Node(NodeCommand::Stop(args) | NodeCommand::Start(args)) => args.remote.json,
            Self::Export(command) => command.prints_json(),
            Self::Policy(command) => command.prints_json(),
            Self::Lun(command) => command.prints_json(),
            Self::Disk(command) => command.prints_json(),
            Self::Address(command) => command.prints_json(),
            Self::Quota(command) => command.prints_json(),
            Self::Lock(command) => command.prints_json(),
            Self::Token(command) => command.prints_json(),
            Self::Sign(args) => args.remote.json,
            Self::ExNode(command) => command.prints_json(),
            Self::Logistic(tool) => tool.prints_json(),
            Self::Lors(_) => false,
        }
    }

    fn carry_out(self) -> anyhow::Result<Verdict> {
        match self {
            Self::Up(flags) => up::run(*flags)?,
            Self::Cluster(command) => command.carry_out()?,
            Self::Node(NodeCommand::Run(flags)) => {
                member::run(&NodeFlags::clone(&flags).settle()?, Origin::Node(flags))?;
            }
            Self::Node(NodeCommand::Place(command)) => command.carry_out()?,
            Self::Manager(ManagerCommand::Run(flags)) => {
                member::run(
                    &ManagerFlags::clone(&flags).settle()?,
                    Origin::Manager(flags),
                )?;
            }
            Self::Manager(ManagerCommand::Remove { host, remote }) => {
                places::remove_manager(&remote, &host)?;
            }
            Self::Gateway(GatewayCommand::Run(flags)) => {
                member::run(
                    &GatewayFlags::clone(&flags).settle()?,
                    Origin::Gateway(flags),
                )?;
            }
            Self::Gateway(GatewayCommand::List(remote)) => gateways::list(&remote)?,
            Self::Gateway(GatewayCommand::Revoke(args)) => gateways::revoke(&args)?,
            Self::Gateway(GatewayCommand::Restore(args)) => gateways::restore(&args)?,
            Self::Gateway(GatewayCommand::Scope(args)) => gateways::scope(&args)?,
            Self::Status(args) if args.spiral => spiral::run(&args.remote)?,
            Self::Status(args) => client::status(&args.remote, args.sites)?,
            Self::Top(args) => top::run(&args)?,
            Self::Config(ConfigCommand::Check { file, of, json }) => {
                config::check(&file, of, json)?;
            }
            Self::Scrub(remote) => return checks::scrub(&remote),
            Self::Defrag(args) => return args.carry_out(),
            Self::Fsck(FsckArgs {
                node,
                repair,
                full,
                remote,
            }) => {
                return match node {
                    Some(node) => offline::fsck(&node, full, remote.json),
                    None => checks::fsck(&remote, repair),
                };
            }
            Self::Node(NodeCommand::Stop(args)) => client::node(&args.remote, args.number, "stop")?,
            Self::Node(NodeCommand::Start(args)) => {
                client::node(&args.remote, args.number, "start")?
            }
            Self::Export(command) => command.carry_out()?,
            Self::Policy(command) => command.carry_out()?,
            Self::Lun(command) => command.carry_out()?,
            Self::Disk(command) => command.carry_out()?,
            Self::Address(command) => command.carry_out()?,
            Self::Quota(command) => command.carry_out()?,
            Self::Lock(command) => command.carry_out()?,
            Self::Token(command) => command.carry_out()?,
            Self::Sign(args) => sign::sign(&args)?,
            Self::ExNode(command) => command.carry_out()?,
            Self::Logistic(tool) => tool.carry_out()?,
            Self::Lors(tool) => tool.carry_out()?,
        }
        Ok(Verdict::Good)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Goal: the description of the command line is consistent.
    #[test]
    fn command_line_is_well_formed() {
        CommandLine::command().debug_assert();
    }
}
