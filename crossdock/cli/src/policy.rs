//! `crossdock policy`: which way the bytes of long replies go to clients.

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use crossdock_admin::{PolicySetting, PolicyStatus};
use crossdock_peer::{BulkDoor, BulkRequest, Network, PolicyConditions, TransferMode};
use serde_json::Value;

use crate::client::{Method, call, parse};
use crate::commands::Remote;
use crate::config::Size;
use crate::format;

#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// Say which way the bytes of a file, or of everything below a directory, go to clients.
    ///
    /// Of the rules that count for a reply those of the nearest path decide: the one with the
    /// most conditions, then the newest. Without one, nodes send what is long enough. Clients
    /// get the same bytes every way, and the gateway sends where another way is not there.
    #[command(after_help = "Examples:\n  \
        crossdock policy set / relay\n  \
        crossdock policy set /videos inject --from 64K\n  \
        crossdock policy set /mirror redirect --door http --client 10.0.0.0/8\n  \
        crossdock policy set /home relay --door nfs --below 32K")]
    Set(SetArgs),
    /// Show all rules, or those that count for a path.
    #[command(after_help = "Examples:\n  crossdock policy show --json\n  \
        crossdock policy show /videos/a.mp4")]
    Show(ShowArgs),
    /// Have a rule no more, or all those of a path.
    #[command(after_help = "Examples:\n  crossdock policy remove 1a2b3c4d\n  \
        crossdock policy remove /videos")]
    Remove(RemoveArgs),
}

#[derive(Args)]
pub(crate) struct SetArgs {
    /// The file or directory, from the volume's root on, like /videos; it has to be there.
    path: String,
    /// Which way.
    mode: Mode,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
struct When {
    /// Only for clients of this protocol.
    #[arg(long, value_name = "DOOR")]
    door: Option<Door>,
    /// Only for this kind of request.
    #[arg(long, value_name = "KIND")]
    request: Option<Request>,
    /// Only for replies of at least so many bytes, like 32K.
    #[arg(long, value_name = "SIZE")]
    from: Option<Size>,
    /// Only for replies of fewer bytes.
    #[arg(long, value_name = "SIZE")]
    below: Option<Size>,
    /// Only for clients of this network, like 10.0.0.0/8.
    #[arg(long, value_name = "NETWORK")]
    client: Option<Network>,
    /// Only for files that are read again and again.
    #[arg(long, conflicts_with = "cold")]
    hot: bool,
    /// Only for files that are not.
    #[arg(long)]
    cold: bool,
}

#[derive(Args)]
pub(crate) struct ShowArgs {
    /// A path of the volume.
    path: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct RemoveArgs {
    /// The rule's number or path, as `crossdock policy show` shows them.
    rule: String,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// The gateway gets the bytes and sends them.
    Relay,
    /// HTTP clients are sent to the node that has them (307), where one has all of them.
    Redirect,
    /// The node sends them inside the client's connection.
    Inject,
}

#[derive(Clone, Copy, ValueEnum)]
enum Door {
    Nfs,
    Http,
}

#[derive(Clone, Copy, ValueEnum)]
enum Request {
    /// READ of NFS.
    Read,
    /// GET of a whole file.
    Get,
    /// GET of ranges.
    Range,
}

impl PolicyCommand {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        match self {
            Self::Set(args) => args.remote.json,
            Self::Show(args) => args.remote.json,
            Self::Remove(args) => args.remote.json,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        match self {
            Self::Set(args) => set(args),
            Self::Show(args) => show(&args),
            Self::Remove(args) => remove(&args),
        }
    }
}

fn set(args: SetArgs) -> anyhow::Result<()> {
    let setting = PolicySetting {
        path: args.path,
        mode: args.mode.into(),
        when: args.when.conditions(),
    };
    let body = serde_json::to_value(setting)?;
    let value = call(&args.remote, Method::Post(Some(body)), "/v1/policy")?;
    if args.remote.json {
        return format::print_json(&value);
    }
    tell(value, "set")
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let mut rules = rules(&args.remote)?;
    if let Some(path) = &args.path {
        rules.retain(|rule| lies_in(path, &rule.path));
        // The nearest first, as they count.
        rules.sort_by_key(|rule| std::cmp::Reverse(names(&rule.path).count()));
    }
    if args.remote.json {
        return format::print_json(&serde_json::to_value(rules)?);
    }
    let head = ["rule", "path", "mode", "when"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(rules.iter().map(|status| {
        let rule = &status.rule;
        let mode = rule.mode.to_string();
        vec![
            status.id.clone(),
            status.path.clone(),
            mode,
            said(&rule.when),
        ]
    }));
    Ok(format::print(&format::table(&rows))?)
}

fn remove(args: &RemoveArgs) -> anyhow::Result<()> {
    let known = rules(&args.remote)?.into_iter();
    let is_path = args.rule.starts_with('/');
    let is_it = |rule: &PolicyStatus| match is_path {
        true => names(&rule.path).eq(names(&args.rule)),
        false => rule.id == args.rule,
    };
    let found: Vec<PolicyStatus> = known.filter(is_it).collect();
    if found.is_empty() {
        bail!(
            "there is no rule {}; crossdock policy show lists all",
            args.rule
        );
    }
    let mut removed = Vec::new();
    for rule in found {
        let path = format!("/v1/policy/{}", rule.id);
        removed.push(call(&args.remote, Method::Delete, &path)?);
    }
    if args.remote.json {
        return format::print_json(&Value::Array(removed));
    }
    removed
        .into_iter()
        .try_for_each(|value| tell(value, "removed"))
}

fn rules(remote: &Remote) -> anyhow::Result<Vec<PolicyStatus>> {
    parse(call(remote, Method::Get, "/v1/policy")?)
}

fn tell(value: Value, done: &str) -> anyhow::Result<()> {
    let PolicyStatus { id, path, rule } = parse(value)?;
    let (mode, when) = (rule.mode, said(&rule.when));
    Ok(format::print(&format!(
        "{done} {id}: {path} {mode}, {when}\n"
    ))?)
}

/// The conditions as the command line has them.
fn said(when: &PolicyConditions) -> String {
    let door = when.door.map(|door| match door {
        BulkDoor::Nfs => "nfs",
        BulkDoor::Http => "http",
    });
    let request = when.request.map(|request| match request {
        BulkRequest::Read => "read",
        BulkRequest::Get => "get",
        BulkRequest::Range => "range",
    });
    let hot = when.hot.map(|hot| if hot { "hot" } else { "cold" });
    let words = [
        door.map(str::to_owned),
        request.map(str::to_owned),
        when.from_bytes.map(|bytes| format!("from {bytes} B")),
        when.below_bytes.map(|bytes| format!("below {bytes} B")),
        when.clients.map(|clients| format!("client {clients}")),
        hot.map(str::to_owned),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() {
        return "always".to_owned();
    }
    words.join(", ")
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// Whether `path` is `above`, or lies below it.
fn lies_in(path: &str, above: &str) -> bool {
    let mut path = names(path);
    names(above).all(|name| path.next() == Some(name))
}

impl When {
    fn conditions(self) -> PolicyConditions {
        PolicyConditions {
            door: self.door.map(Into::into),
            request: self.request.map(Into::into),
            from_bytes: self.from.map(|size| size.0),
            below_bytes: self.below.map(|size| size.0),
            clients: self.client,
            hot: (self.hot || self.cold).then_some(self.hot),
        }
    }
}

impl From<Mode> for TransferMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Relay => Self::Relay,
            Mode::Redirect => Self::Redirect,
            Mode::Inject => Self::Inject,
        }
    }
}

impl From<Door> for BulkDoor {
    fn from(door: Door) -> Self {
        match door {
            Door::Nfs => Self::Nfs,
            Door::Http => Self::Http,
        }
    }
}

impl From<Request> for BulkRequest {
    fn from(request: Request) -> Self {
        match request {
            Request::Read => Self::Read,
            Request::Get => Self::Get,
            Request::Range => Self::Range,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was said is shown as it was said, and nothing as always.
    #[test]
    fn conditions_are_told() {
        let when = When {
            door: Some(Door::Nfs),
            request: Some(Request::Read),
            from: Some(Size(4096)),
            below: None,
            client: Some("10.0.0.0/8".parse().expect("a network")),
            hot: false,
            cold: true,
        };
        let conditions = when.conditions();
        assert_eq!(conditions.count(), 5);
        assert_eq!(
            said(&conditions),
            "nfs, read, from 4096 B, client 10.0.0.0/8, cold"
        );
        assert_eq!(said(&PolicyConditions::default()), "always");
    }

    /// Goal: rules of a path count for what lies below it, by whole names.
    #[test]
    fn paths_lie_in_paths() {
        assert!(lies_in("/a/b", "/a") && lies_in("/a", "/a/") && lies_in("/a", "/"));
        assert!(!lies_in("/ab", "/a") && !lies_in("/a", "/a/b"));
    }
}
