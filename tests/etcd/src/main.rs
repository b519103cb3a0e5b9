//! `crossdock-tests-etcd create|read|follow ETCD PREFIX HOST`: one host at the
//! registry, without all else that a host is.
//!
//! The suite `etcd` starts several of them, kills some, and reads from their output
//! what they have learned: lines `state REVISION JSON`, `expired HOST`, `away REASON`,
//! `back`. `follow` takes orders on standard input, one a line: `export PATH`,
//! `replace HOST`, and ends gracefully with the input.

use std::io::{Write, stdin, stdout};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use crossdock_etcd::{Config, Notice};
use crossdock_members::{Change, DirectoryRecord, HostRecord, State};
use crossdock_names::HostId;
use crossdock_peer::ExportRules;

/// The least that etcd grants by default.
const TTL: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [command, etcd, prefix, host] = words.as_slice() else {
        bail!("usage: crossdock-tests-etcd create|read|follow ETCD[,ETCD…] PREFIX HOST");
    };
    let config = Config {
        endpoints: etcd.split(',').map(str::to_owned).collect(),
        prefix: prefix.clone(),
        tls: None,
        host: HostId(host.parse().context("HOST is a number")?),
        ttl: TTL,
    };
    match command.as_str() {
        "create" => {
            let state = State::fresh(1, 2, &[11, 12, 13], 2, 2);
            crossdock_etcd::create(&config, &state)?;
            say("created");
        }
        "read" => {
            let (revision, state) = crossdock_etcd::read(&config)?;
            say_state(revision, &state);
        }
        "follow" => follow(config)?,
        other => bail!("no such command: {other}"),
    }
    Ok(())
}

/// Joins as a manager, and carries orders out until there are no more.
fn follow(config: Config) -> Result<()> {
    let host = config.host.0;
    let (revision, state) = crossdock_etcd::read(&config)?;
    say_state(revision, &state);
    let handle = crossdock_etcd::start(config, revision, state, |notice| match notice {
        Notice::State { revision, state } => say_state(revision, &state),
        Notice::Expired(host) => say(&format!("expired {}", host.0)),
        Notice::Away(reason) => say(&format!("away {reason}")),
        Notice::Back => say("back"),
        // Said all the time.
        Notice::Heard(_) => {}
    })?;
    let record = HostRecord {
        is_manager: true,
        ..HostRecord::default()
    };
    handle.propose(Change::Join { host, record });
    for line in stdin().lines() {
        let line = line?;
        handle.propose(match line.split_once(' ') {
            Some(("export", path)) => Change::AddExport {
                path: path.to_owned(),
                root: DirectoryRecord::default(),
                rules: ExportRules::local(),
            },
            Some(("replace", host)) => Change::Leave {
                host: host.parse()?,
            },
            _ => bail!("an unknown order: {line}"),
        });
    }
    handle.leave();
    Ok(())
}

/// What the suite wants to know of a state: who is a member, what is exported.
fn say_state(revision: u64, state: &State) {
    let hosts: Vec<u64> = state.hosts.keys().copied().collect();
    let exports = state.exports.iter();
    let exports: Vec<&str> = exports.map(|export| export.path.as_str()).collect();
    let summary = serde_json::json!({ "hosts": hosts, "exports": exports });
    say(&format!("state {revision} {summary}"));
}

fn say(line: &str) {
    let mut output = stdout().lock();
    // The suite has gone, and kills this process next.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}
