//! `crossdock lock`: who has locked what on a running system.

use anyhow::bail;
use clap::{Args, Subcommand};
use crossdock_admin::{LockList, LockRelease, LockReleased, LockStatus};

use crate::client::{Method, call, parse};
use crate::commands::Remote;
use crate::format;

#[derive(Subcommand)]
pub(crate) enum LockCommand {
    /// Show all file locks, and the requests that wait for one.
    #[command(after_help = "Examples:\n  \
        crossdock lock list\n  \
        crossdock lock list --client 10.0.0.7 --json")]
    List(ListArgs),
    /// Give up all locks of a client that will not come back.
    #[command(after_help = "Examples:\n  \
        crossdock lock release 10.0.0.7\n  \
        crossdock lock release oldhost.example.org\n\n\
        A client that is alive still believes that it has them: be sure that it is gone, or end\n\
        the programs that hold them.")]
    Release(ReleaseArgs),
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// Those of this client only, by name or address.
    #[arg(long, value_name = "CLIENT")]
    client: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct ReleaseArgs {
    /// Its name or address, as `crossdock lock list` shows them.
    client: String,
    #[command(flatten)]
    remote: Remote,
}

impl LockCommand {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        match self {
            Self::List(args) => args.remote.json,
            Self::Release(args) => args.remote.json,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        match self {
            Self::List(args) => list(&args),
            Self::Release(args) => release(args),
        }
    }
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let mut list: LockList = parse(call(&args.remote, Method::Get, "/v1/locks")?)?;
    if let Some(client) = &args.client {
        let is_it = |lock: &LockStatus| lock.client == *client || lock.address == *client;
        list.locks.retain(is_it);
        if list.locks.is_empty() {
            bail!("no client {client} has locks; crossdock lock list shows who does");
        }
    }
    if args.remote.json {
        return format::print_json(&list);
    }
    Ok(format::print(&describe(&list))?)
}

fn describe(list: &LockList) -> String {
    let head = [
        "path", "bytes", "kind", "state", "client", "address", "process",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(list.locks.iter().map(|lock| {
        let path = lock.path.clone();
        vec![
            path.unwrap_or_else(|| format!("file {:016x}", lock.file)),
            range(lock),
            lock.kind.word().to_owned(),
            if lock.is_waiting { "waits" } else { "held" }.to_owned(),
            lock.client.clone(),
            lock.address.clone(),
            lock.process.to_string(),
        ]
    }));
    let mut text = format::table(&rows);
    let (shown, count) = (list.locks.len(), list.count);
    if count > shown as u64 {
        text += &format!("{shown} of {count} are shown\n");
    }
    if list.grace_period {
        text += "grace period: only clients that had locks before the start get them again\n";
    }
    text
}

/// `0-99`, or `100-end`.
fn range(lock: &LockStatus) -> String {
    match lock.last {
        Some(last) => format!("{}-{last}", lock.first),
        None => format!("{}-end", lock.first),
    }
}

fn release(args: ReleaseArgs) -> anyhow::Result<()> {
    let client = args.client;
    let body = serde_json::to_value(LockRelease { client })?;
    let method = Method::Post(Some(body));
    let value = call(&args.remote, method, "/v1/locks/release")?;
    if args.remote.json {
        return format::print_json(&value);
    }
    let LockReleased {
        client,
        released,
        cancelled,
        notes,
        ..
    } = parse(value)?;
    let mut text =
        format!("{client}: {released} locks released, {cancelled} waiting requests cancelled\n");
    for note in notes {
        text += &format!("note: {note}\n");
    }
    Ok(format::print(&text)?)
}

#[cfg(test)]
mod tests {
    use crossdock_admin::LockKind;

    use super::*;

    /// Goal: what has no end is shown so, what has no name by its number, and a
    /// list that is cut and the grace period are told.
    #[test]
    fn locks_are_shown() {
        let lock = LockStatus {
            path: Some("/a".to_owned()),
            file: 3,
            kind: LockKind::Exclusive,
            first: 10,
            last: None,
            is_waiting: true,
            client: "host".to_owned(),
            address: "192.0.2.1".to_owned(),
            process: 7,
        };
        let nameless = LockStatus {
            path: None,
            last: Some(12),
            ..lock.clone()
        };
        let text = describe(&LockList {
            locks: vec![lock, nameless],
            count: 3,
            grace_period: true,
        });
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("/a") && lines[1].contains("10-end"),
            "{text}"
        );
        assert!(lines[1].contains("waits"), "{text}");
        assert!(lines[2].starts_with("file 0000000000000003") && lines[2].contains("10-12"));
        assert_eq!(lines[3], "2 of 3 are shown");
        assert!(lines[4].starts_with("grace period"), "{text}");
    }
}
