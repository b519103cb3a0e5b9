//! Commands that talk to a running system through its admin API.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use crossdock_admin::{Condition, Health, Status};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::commands::Remote;
use crate::format;

/// `crossdock status`, or that of the sites.
pub(crate) fn status(remote: &Remote, of_sites: bool) -> anyhow::Result<()> {
    let mut value = call(remote, Method::Get, "/v1/status")?;
    let health = health(remote)?;
    if remote.json {
        value["health"] = serde_json::to_value(&health)?;
        return format::print_json(&value);
    }
    let status: Status = parse(value)?;
    let text = match of_sites {
        true => describe_sites(&status),
        false => describe(&status, &health),
    };
    Ok(format::print(&text)?)
}

/// What `/health` tells; that something has failed is an answer.
fn health(remote: &Remote) -> anyhow::Result<Health> {
    let (_, value) = answer(remote, Method::Get, "/health")?;
    parse(value)
}

/// What an answer of the admin API says.
pub(crate) fn parse<T: DeserializeOwned>(value: Value) -> anyhow::Result<T> {
    serde_json::from_value(value).context("the answer is of another version")
}

/// The one of what the admin API has listed that is at `path`.
pub(crate) fn at_path<T>(listed: Vec<T>, path: &str, path_of: fn(&T) -> &str) -> Option<T> {
    let trimmed = path.trim_end_matches('/');
    let is_it = |one: &T| path_of(one).trim_end_matches('/') == trimmed;
    listed.into_iter().find(is_it)
}

/// How many sites each manager has, and what lies at each site.
fn describe_sites(status: &Status) -> String {
    let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
    for site in &status.sites {
        *shares.entry(&site.manager).or_default() += 1;
    }
    let mut text = format!("sites {}\n", status.sites.len());
    for (manager, sites) in shares.iter().filter(|(manager, _)| !manager.is_empty()) {
        text += &format!("manager {manager}  sites {sites}\n");
    }
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let titles = ["site", "manager", "files", "unfinished"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(status.sites.iter().map(|site| {
        vec![
            site.site.to_string(),
            site.manager.clone(),
            number(site.files),
            number(site.intentions),
        ]
    }));
    text += &format::table(&rows);
    if status.sites.iter().any(|site| site.files.is_none()) {
        text += "- is what another manager knows: ask that one with --admin ADDR (crossdock status shows all)\n";
    }
    text
}

fn describe(status: &Status, health: &Health) -> String {
    let mut text = format!(
        "ensemble {}  volume {}  version {}  up {} s  I/O by {}\n",
        status.ensemble, status.volume, status.version, status.uptime_seconds, status.io
    );
    text += &format!(
        "copies: data {}, site logs {}   files {}   connections {}   requests {}\n",
        status.replicas, status.site_replicas, status.files, status.connections, status.requests
    );
    text += &format!("health: {}\n", health.status.word());
    let checks = health.checks.iter();
    for check in checks.filter(|check| check.status != Condition::Ok) {
        text += &format!("{} {}: {}\n", check.status.word(), check.name, check.detail);
    }
    let certificate = health.checks.iter().find(|it| it.name == "certificate");
    if let Some(check) = certificate.filter(|it| it.status == Condition::Ok) {
        text += &format!("talks over TLS: its certificate {}\n", check.detail);
    }
    for warning in &status.warnings {
        text += &format!("warning: {warning}\n");
    }
    if !status.hosts.is_empty() {
        text += &describe_hosts(status);
    }
    let mut rows = vec![
        [
            "node",
            "state",
            "used",
            "free",
            "capacity",
            "objects",
            "journal",
            "bad blocks",
            "repaired",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    rows.extend(status.nodes.iter().map(|node| {
        vec![
            node.number.to_string(),
            node.state.clone(),
            format::bytes(node.used_bytes),
            format::bytes(node.free_bytes),
            format::bytes(node.capacity_bytes),
            node.objects.to_string(),
            format::bytes(node.journal_used_bytes),
            node.bad_blocks.to_string(),
            node.repaired_blocks.to_string(),
        ]
    }));
    text += &format!("\n{}\n", format::table(&rows));
    let mut rows = vec![vec!["door".to_owned(), "address".to_owned()]];
    rows.extend(
        status
            .doors
            .iter()
            .map(|door| vec![door.name.clone(), door.address.clone()]),
    );
    text + &format::table(&rows)
}

/// The processes of an ensemble, as the one that was asked sees them.
fn describe_hosts(status: &Status) -> String {
    let head = [
        "host",
        "is",
        "machine",
        "link",
        "admin",
        "connected",
        "clock",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(status.hosts.iter().map(|host| {
        let connected = if host.is_connected { "yes" } else { "no" };
        vec![
            host.id.clone(),
            host.role.clone(),
            host.machine.clone(),
            host.link.clone(),
            host.admin.clone(),
            connected.to_owned(),
            host.clock_ahead_ms.map_or_else(String::new, clock),
        ]
    }));
    let short = status.sets_short;
    format!(
        "this is a {}; replica sets that miss a member: {short}\n\n{}",
        status.role,
        format::table(&rows)
    )
}

/// How far a clock is ahead or behind, in the unit that fits.
fn clock(ahead_ms: i64) -> String {
    match ahead_ms.unsigned_abs() {
        0..10_000 => format!("{ahead_ms:+} ms"),
        _ => format!("{:+} s", ahead_ms / 1000),
    }
}

/// `crossdock node stop|start N`.
pub(crate) fn node(remote: &Remote, number: u32, verb: &str) -> anyhow::Result<()> {
    let value = call(
        remote,
        Method::Post(None),
        &format!("/v1/nodes/{number}/{verb}"),
    )?;
    if remote.json {
        return format::print_json(&value);
    }
    let done = if verb == "stop" { "stopped" } else { "started" };
    Ok(format::print(&format!("node {number} {done}\n"))?)
}

/// What a request does.
pub(crate) enum Method {
    Get,
    /// With a body, if it has one.
    Post(Option<Value>),
    Patch(Value),
    Delete,
}

/// Asks the running system; what it refuses is an error.
pub(crate) fn call(remote: &Remote, method: Method, path: &str) -> anyhow::Result<Value> {
    let (is_success, value) = answer(remote, method, path)?;
    if !is_success {
        bail!("{}", value["error"].as_str().unwrap_or("refused"));
    }
    Ok(value)
}

/// Asks the running system: whether it succeeded, and what it says.
fn answer(remote: &Remote, method: Method, path: &str) -> anyhow::Result<(bool, Value)> {
    let url = format!("http://{}{path}", remote.admin);
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .into();
    let sent = match method {
        Method::Get => agent.get(&url).call(),
        Method::Post(None) => agent.post(&url).send_empty(),
        Method::Post(Some(body)) => agent.post(&url).send_json(body),
        Method::Patch(body) => agent.patch(&url).send_json(body),
        Method::Delete => agent.delete(&url).call(),
    };
    let mut response = sent.with_context(|| {
        format!(
            "no running system answers at {}; start one with `crossdock up`, or name its admin address with --admin",
            remote.admin
        )
    })?;
    let value: Value = response
        .body_mut()
        .read_json()
        .context("the answer is no JSON")?;
    Ok((response.status().is_success(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the balance of the sites is told per manager, and what only another one
    /// knows is said so.
    #[test]
    fn sites_are_shown_with_their_managers() {
        let site = |site: u16, manager: &str, files: Option<u64>| serde_json::json!({"site": site, "manager": manager, "files": files, "intentions": files});
        let status = serde_json::json!({
            "version": "1", "ensemble": "a", "volume": "b", "uptime_seconds": 1, "io": "threads",
            "replicas": 2, "site_replicas": 2, "warnings": [], "doors": [], "nodes": [],
            "table_epoch": 3, "files": 7, "connections": 0, "requests": 0,
            "sites": [site(0, "m1", Some(7)), site(4, "m2", None), site(9, "m1", Some(0))],
        });
        let shown = describe_sites(&parse(status).expect("a status"));
        assert!(shown.starts_with("sites 3\nmanager m1  sites 2\nmanager m2  sites 1\n"));
        let rows: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert!(rows.contains(&vec!["4", "m2", "-", "-"]), "{shown}");
        assert!(rows.contains(&vec!["0", "m1", "7", "7"]), "{shown}");
        assert!(shown.contains("another manager"), "{shown}");
    }
}
