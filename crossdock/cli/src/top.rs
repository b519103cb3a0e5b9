//! `crossdock top`: what a running system does now, again and again.

use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use clap::Args;
use crossdock_admin::{Health, SlowRequest, Snapshot, Top};

use crate::client::{self, Method};
use crate::commands::Remote;
use crate::config::usage;
use crate::format;

/// Rows of procedures and of clients that fit a terminal.
const ROWS_MAX: usize = 12;

/// Clears the terminal and goes to its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

#[derive(Args)]
pub(crate) struct TopArgs {
    /// Show it once and end; so does an output that is no terminal.
    #[arg(long)]
    once: bool,
    /// Seconds over which rates are taken, and after which they are shown anew.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    interval: f64,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// Shows rates until somebody ends it.
#[expect(
    clippy::disallowed_methods,
    reason = "another process is asked at intervals: there is no event here to wait for"
)]
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    let interval = Duration::try_from_secs_f64(args.interval)
        .ok()
        .filter(|interval| (0.1..=3600.0).contains(&interval.as_secs_f64()))
        .ok_or_else(|| usage("--interval must be 0.1 to 3600 seconds".to_owned()))?;
    let is_once = args.once || !std::io::stdout().is_terminal();
    let mut earlier = snapshot(&args.remote)?;
    loop {
        thread::sleep(interval);
        let later = snapshot(&args.remote)?;
        let top = Top::between(&earlier, &later);
        if args.remote.json {
            format::print(&format!("{}\n", serde_json::to_string(&top)?))?;
        } else {
            let clear = if is_once { "" } else { CLEAR };
            let health = Health::judge(&later);
            format::print(&format!("{clear}{}", describe(&top, &health)))?;
        }
        if is_once {
            return Ok(());
        }
        earlier = later;
    }
}

fn snapshot(remote: &Remote) -> anyhow::Result<Snapshot> {
    client::parse(client::call(remote, Method::Get, "/v1/figures")?)
}

fn describe(top: &Top, health: &Health) -> String {
    let mut text = format!(
        "up {:.0} s   health {}   {:.0} requests/s   read {}/s   written {}/s\n",
        top.uptime_seconds,
        health.status.word(),
        top.requests,
        size(top.read_bytes),
        size(top.written_bytes),
    );
    text += &format!(
        "connections: nfs {} ({} paused), http {}, iscsi {}, ibp {}   requests in progress {}   CPU {:.0} %   memory {}\n",
        top.connections,
        top.connections_paused,
        top.http_connections,
        top.iscsi_connections,
        top.ibp_connections,
        top.calls,
        top.cpu * 100.0,
        format::bytes(top.resident_bytes),
    );
    if top.injected_bytes + top.relayed_bytes + top.sent_for_gateways_bytes > 0.0 {
        text += &format!(
            "third-party transfer: nodes send {}/s, relayed {}/s   sent for gateways {}/s\n",
            size(top.injected_bytes),
            size(top.relayed_bytes),
            size(top.sent_for_gateways_bytes),
        );
    }
    if top.udp_injected_bytes + top.udp_relayed_bytes > 0.0 {
        text += &format!(
            "over UDP: nodes send {}/s, relayed {}/s\n",
            size(top.udp_injected_bytes),
            size(top.udp_relayed_bytes),
        );
    }
    text + &procedures(top) + &clients(top) + &nodes(top) + &slow(top)
}

fn procedures(top: &Top) -> String {
    let rows = top.procedures.iter().take(ROWS_MAX).map(|one| {
        vec![
            named(&one.program, &one.name),
            format!("{:.1}", one.requests),
            format!("{:.1}", one.failures),
            time(one.p50),
            time(one.p99),
        ]
    });
    table(&["procedure", "per s", "failed", "p50", "p99"], rows)
}

/// A procedure: of another program than NFS, with that.
fn named(program: &str, procedure: &str) -> String {
    match program {
        "nfs3" => procedure.to_owned(),
        program => format!("{program} {procedure}"),
    }
}

fn clients(top: &Top) -> String {
    let rows = top.clients.iter().take(ROWS_MAX).map(|one| {
        vec![
            one.address.clone(),
            one.connections.to_string(),
            format!("{:.1}", one.requests),
            format!("{}/s", size(one.read_bytes)),
            format!("{}/s", size(one.written_bytes)),
        ]
    });
    table(&["client", "connections", "per s", "read", "written"], rows)
}

fn nodes(top: &Top) -> String {
    let rows = top.nodes.iter().map(|one| {
        vec![
            one.number.to_string(),
            one.state.clone(),
            format::bytes(one.used_bytes),
            format::bytes(one.free_bytes),
            format!("{:.0} %", one.journal_used * 100.0),
            format!("{:.1}", one.journal_flushes),
            time(one.journal_p99),
            format!("{}/s", size(one.disk_read_bytes)),
            format!("{}/s", size(one.disk_written_bytes)),
            one.waiting.to_string(),
            one.cache_hits
                .map_or_else(|| "-".to_owned(), |part| format!("{:.0} %", part * 100.0)),
        ]
    });
    let heads = [
        "node",
        "state",
        "used",
        "free",
        "journal",
        "flushes/s",
        "p99",
        "disk read",
        "disk write",
        "waiting",
        "cache hits",
    ];
    table(&heads, rows)
}

fn slow(top: &Top) -> String {
    let rows = top.slow.iter().map(|one| {
        vec![
            named(&one.program, &one.procedure),
            time(Some(one.seconds)),
            waited(one),
            format!("{:.0} s ago", (top.at - one.at).max(0.0)),
            one.client.clone(),
            one.export.clone().unwrap_or_default(),
            one.file
                .map_or_else(String::new, |file| format!("{file:016x}")),
            one.status.clone(),
        ]
    });
    table(
        &[
            "slow", "took", "mostly", "when", "client", "export", "file", "status",
        ],
        rows,
    )
}

/// What a slow request waited for longest.
fn waited(slow: &SlowRequest) -> String {
    let (what, seconds) = slow.waited.longest();
    format!("{what} {}", time(Some(seconds)))
}

/// A table behind an empty line, or nothing if it has no rows.
fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    if rows.len() == 1 {
        return String::new();
    }
    format!("\n{}", format::table(&rows))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate of bytes, for people"
)]
fn size(bytes: f64) -> String {
    format::bytes(bytes.max(0.0) as u64)
}

/// A time with three digits, for people.
fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 1e-3 => format!("{:.0} µs", seconds * 1e6),
        Some(seconds) if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: times are told in the unit that people read them in.
    #[test]
    fn times_have_units() {
        let times = [None, Some(2.5e-5), Some(0.0123), Some(2.0)].map(time);
        assert_eq!(times, ["-", "25 µs", "12.3 ms", "2.00 s"]);
    }

    /// Goal: a table without rows takes no room.
    #[test]
    fn empty_tables_are_left_out() {
        assert_eq!(table(&["a"], std::iter::empty()), "");
        assert_eq!(
            table(&["a"], [vec!["b".to_owned()]].into_iter()),
            "\na\nb\n"
        );
    }
}
