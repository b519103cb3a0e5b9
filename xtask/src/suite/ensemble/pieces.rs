//! Pieces of a file from nodes that are processes of their own: the gateway signs by what a
//! manager gave it, and what it signed is worth nothing while it is revoked.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::members::{Ensemble, Member};
use crate::suite::http::nodes::ask;

/// In how much time every node has heard of a revocation, or of its end.
const HEARD_PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked whether it has.
const PAUSE: Duration = Duration::from_millis(50);

/// `content` is what the file of that name in the root has; `gateway` is called so in
/// the registry, too.
pub(super) fn check(
    ensemble: &Ensemble<'_>,
    gateway: &Member<'_>,
    manager: &Member<'_>,
    (name, content): (&str, &[u8]),
) -> Result<()> {
    let [asked, orders] = [gateway, manager].map(|member| member.door("admin"));
    let (asked, orders) = (asked?.to_string(), orders?.to_string());
    let hosts = &ensemble.finish(&["status", "--json", "--admin", &asked])?;
    let hosts = hosts.json(0)?["hosts"].clone();
    let hosts = hosts.as_array().context("no hosts")?;
    let with_doors = hosts.iter().filter(|host| host["node_http"] != "");
    let with_doors: Vec<&str> = with_doors
        .filter_map(|host| host["role"].as_str())
        .collect();
    let is_node = |role: &&str| role.starts_with("node ");
    ensure!(
        with_doors.len() == 3 && with_doors.iter().all(is_node),
        "{with_doors:?} have doors"
    );
    let sign = ["sign", &format!("/{name}"), "--nodes", "--json", "--admin"];
    let sign = || ensemble.finish(&[&sign[..], &[&asked]].concat());
    let signed = sign()?.json(0)?;
    let pieces = signed["pieces"].as_array().context("no pieces")?;
    let text = |piece: &Value, key: &str| piece[key].as_str().map(str::to_owned);
    let (mut got, mut nodes, mut one) = (Vec::new(), Vec::new(), None);
    for piece in pieces {
        let url = text(piece, "url").context("no URL")?;
        let range = text(piece, "range").map(|range| format!("Range: {range}\r\n"));
        let answer = ask("GET", &url, &range.unwrap_or_default())?;
        let expected = if piece["node"].is_null() { 206 } else { 200 };
        ensure!(answer.status == expected, "{url}: {}", answer.text());
        got.extend(answer.content);
        if let Some(node) = piece["node"].as_u64() {
            nodes.push(node);
            one = Some(url);
        }
    }
    ensure!(got == content, "other bytes");
    nodes.sort_unstable();
    nodes.dedup();
    ensure!(nodes == [0, 1, 2], "only {nodes:?} have sent something");
    let one = one.context("no piece at a node")?;
    for (verb, status) in [("revoke", 403), ("restore", 200)] {
        let words = ["gateway", verb, gateway.name(), "--admin", &orders];
        ensemble.finish(&words)?.expect(0, &[])?;
        let told = Instant::now();
        while ask("GET", &one, "")?.status != status {
            ensure!(told.elapsed() < HEARD_PATIENCE, "not {status} after {verb}");
            thread::park_timeout(PAUSE);
        }
        if verb == "revoke" {
            sign()?.expect(1, &["revoked"])?;
        }
    }
    Ok(())
}
