//! `crossdock node list`, `drain`, `undrain`, `add`, `remove` and `replace`: nodes of
//! an ensemble come and go; `crossdock manager remove`.

use clap::{Args, Subcommand};
use crossdock_admin::{PlaceStatus, RetiringStatus};

use crate::client::{Method, call, parse};
use crate::commands::Remote;
use crate::format;

#[derive(Subcommand)]
pub(crate) enum PlaceCommand {
    /// Show the nodes of an ensemble, what belongs to each, and what is on its way.
    #[command(after_help = "Example:\n  crossdock node list --admin 10.0.0.6:7070 --json")]
    List(Remote),
    /// Give all that a node holds to others; say it again to see how far that is.
    #[command(
        after_help = "Example:\n  crossdock node drain 2 --admin 10.0.0.6:7070 --json\n\
        When nothing is leaving it any more: crossdock node remove 2"
    )]
    Drain(PlaceArgs),
    /// Let a drained node hold its share again.
    #[command(after_help = "Example:\n  crossdock node undrain 2 --admin 10.0.0.6:7070")]
    Undrain(PlaceArgs),
    /// Make a place for one more node; its share moves to it when it runs.
    #[command(after_help = "Example:\n  crossdock node add --admin 10.0.0.6:7070\n\
        Then start it: crossdock node run --number K, with the number that was printed")]
    Add(Remote),
    /// End the place of a drained node; its process ends.
    #[command(after_help = "Example:\n  crossdock node remove 2 --admin 10.0.0.6:7070")]
    Remove(PlaceArgs),
    /// Give up the files of a node that does not run: others rebuild what belonged to
    /// it at once, and its number may start again with an empty directory.
    #[command(after_help = "Example:\n  crossdock node replace 2 --admin 10.0.0.6:7070")]
    Replace(PlaceArgs),
}

#[derive(Args)]
pub(crate) struct PlaceArgs {
    /// The node's number, as `crossdock node list` shows it.
    number: u32,
    #[command(flatten)]
    remote: Remote,
}

impl PlaceCommand {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        match self {
            Self::List(remote) | Self::Add(remote) => remote.json,
            Self::Drain(args) | Self::Undrain(args) | Self::Remove(args) | Self::Replace(args) => {
                args.remote.json
            }
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        let post = Method::Post(None);
        match self {
            Self::List(remote) => list(&remote),
            Self::Add(remote) => {
                let path = "/v1/nodes";
                change(&remote, post, path, |place| {
                    format!(
                        "there is a place for node {0}: start it with crossdock node run --number {0}\n",
                        place.number
                    )
                })
            }
            Self::Drain(args) => args.change(post, "/drain", |place| match place.leaving {
                0 => format!(
                    "node {0} is empty: crossdock node remove {0} ends its place\n",
                    place.number
                ),
                leaving => format!(
                    "node {} is being drained: {leaving} sets have not moved to other nodes yet\n",
                    place.number
                ),
            }),
            Self::Undrain(args) => args.change(post, "/undrain", |place| {
                format!("{} sets belong to node {}\n", place.sets, place.number)
            }),
            Self::Remove(args) => args.change(Method::Delete, "", |place| {
                format!("the ensemble has no node {} any more\n", place.number)
            }),
            Self::Replace(args) => args.change(post, "/replace", |place| {
                format!(
                    "node {0} has nothing any more: crossdock node run --number {0} starts with an empty directory\n",
                    place.number
                )
            }),
        }
    }
}

impl PlaceArgs {
    fn change(
        &self,
        method: Method,
        verb: &str,
        say: impl Fn(&PlaceStatus) -> String,
    ) -> anyhow::Result<()> {
        let path = format!("/v1/nodes/{}{verb}", self.number);
        change(&self.remote, method, &path, say)
    }
}

/// `crossdock manager remove HOST`.
pub(crate) fn remove_manager(remote: &Remote, host: &str) -> anyhow::Result<()> {
    let value = call(remote, Method::Delete, &format!("/v1/managers/{host}"))?;
    if remote.json {
        return format::print_json(&value);
    }
    let status: RetiringStatus = parse(value)?;
    let (host, sites) = (status.host, status.sites);
    Ok(format::print(&format!(
        "manager {host} gives {sites} sites to others and ends\n"
    ))?)
}

fn change(
    remote: &Remote,
    method: Method,
    path: &str,
    say: impl Fn(&PlaceStatus) -> String,
) -> anyhow::Result<()> {
    let value = call(remote, method, path)?;
    if remote.json {
        return format::print_json(&value);
    }
    Ok(format::print(&say(&parse(value)?))?)
}

fn list(remote: &Remote) -> anyhow::Result<()> {
    let value = call(remote, Method::Get, "/v1/nodes")?;
    if remote.json {
        return format::print_json(&value);
    }
    let places: Vec<PlaceStatus> = parse(value)?;
    let head = ["node", "runs", "drained", "sets", "coming", "leaving"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let word = |is: bool| if is { "yes" } else { "no" }.to_owned();
    rows.extend(places.iter().map(|place| {
        vec![
            place.number.to_string(),
            word(place.is_running),
            word(place.is_draining),
            place.sets.to_string(),
            place.coming.to_string(),
            place.leaving.to_string(),
        ]
    }));
    Ok(format::print(&format::table(&rows))?)
}
