//! Commands that talk to a running system through its admin API.

use std::io::{IsTerminal, Write};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use crossdock_admin::{ScrubStatus, Status};
use serde_json::Value;

use crate::commands::Remote;
use crate::format;

/// `crossdock status`.
pub(crate) fn status(remote: &Remote) -> anyhow::Result<()> {
    let value = call(remote, "GET", "/v1/status")?;
    if remote.json {
        println!("{}", serde_json::to_string_pretty(&value)?);
        return Ok(());
    }
    let status: Status = serde_json::from_value(value).context("the answer is of another version")?;
    println!(
        "ensemble {}  volume {}  version {}  up {} s  I/O by {}",
        status.ensemble, status.volume, status.version, status.uptime_seconds, status.io
    );
    println!(
        "copies: data {}, site logs {}   files {}   connections {}   requests {}",
        status.replicas, status.site_replicas, status.files, status.connections, status.requests
    );
    for warning in &status.warnings {
        println!("warning: {warning}");
    }
    println!();
    let mut rows = vec![["node", "state", "used", "free", "capacity", "objects", "journal", "bad blocks"]
        .map(str::to_owned)
        .to_vec()];
    rows.extend(status.nodes.iter().map(|node| {
        vec![
            node.number.to_string(),
            node.state.clone(),
            format::bytes(node.used_bytes),
            format::bytes(node.free_bytes),
            format::bytes(node.capacity_bytes),
            node.objects.to_string(),
            format::bytes(node.journal_used_bytes),
            node.media_errors.to_string(),
        ]
    }));
    print!("{}", format::table(&rows));
    println!();
    let mut rows = vec![vec!["door".to_owned(), "address".to_owned()]];
    rows.extend(status.doors.iter().map(|door| vec![door.name.clone(), door.address.clone()]));
    print!("{}", format::table(&rows));
    Ok(())
}

/// `crossdock node stop|start N`.
pub(crate) fn node(remote: &Remote, number: u32, verb: &str) -> anyhow::Result<()> {
    let value = call(remote, "POST", &format!("/v1/nodes/{number}/{verb}"))?;
    if remote.json {
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        let done = if verb == "stop" { "stopped" } else { "started" };
        println!("node {number} {done}");
    }
    Ok(())
}

/// `crossdock scrub`: starts one and shows how it gets on.
pub(crate) fn scrub(remote: &Remote) -> anyhow::Result<()> {
    call(remote, "POST", "/v1/scrub")?;
    let terminal = std::io::stderr().is_terminal();
    let status = loop {
        let status: ScrubStatus = serde_json::from_value(call(remote, "GET", "/v1/scrub")?)?;
        if terminal {
            eprint!("\rchecked {} of {} blocks ", status.blocks_checked, status.blocks_total);
            std::io::stderr().flush()?;
        }
        if !status.running {
            break status;
        }
        thread::sleep(Duration::from_millis(200));
    };
    if terminal {
        eprintln!();
    }
    if remote.json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        println!("{} blocks checked, {} bad", status.blocks_checked, status.findings.len());
        status.findings.iter().for_each(|finding| println!("  {finding}"));
    }
    if !status.findings.is_empty() {
        bail!("{} bad blocks found", status.findings.len());
    }
    Ok(())
}

fn call(remote: &Remote, method: &str, path: &str) -> anyhow::Result<Value> {
    let url = format!("http://{}{path}", remote.admin);
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .into();
    let sent = if method == "GET" { agent.get(&url).call() } else { agent.post(&url).send_empty() };
    let mut response = sent.with_context(|| {
        format!(
            "no running system answers at {}; start one with `crossdock up`, or name its admin address with --admin",
            remote.admin
        )
    })?;
    let value: Value = response.body_mut().read_json().context("the answer is no JSON")?;
    if !response.status().is_success() {
        bail!("{}", value["error"].as_str().unwrap_or("refused"));
    }
    Ok(value)
}
