//! Whether all is well: the verdict of `/health`, from a snapshot.

use serde::{Deserialize, Serialize};

use crate::NodeStatus;
use crate::snapshot::{NodeFigures, Snapshot};

/// From this part of a journal in use on, the node is short of journal.
const JOURNAL_FULL: f64 = 0.95;

/// Below this part of free bytes a node is nearly full.
const SPACE_LOW: f64 = 0.05;

/// So many days before its end a certificate has to be renewed.
const CERTIFICATE_DAYS: u64 = 30;

/// How well something is; the worst of all checks is the whole's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// As it should be.
    Ok,
    /// It serves, but somebody should look.
    Degraded,
    /// Something is not served.
    Failed,
}

/// What `/health` tells: 200, or 503 if something has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The worst of the checks.
    pub status: Condition,
    /// What was looked at.
    pub checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// `data_thread`, `node-0`, `space`, …
    pub name: String,
    /// How well it is.
    pub status: Condition,
    /// What is wrong and what to do, or a few words if nothing is.
    pub detail: String,
}

impl Condition {
    /// One word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

impl Health {
    fn of(checks: Vec<Check>) -> Self {
        let status = checks.iter().map(|check| check.status).max();
        Self {
            status: status.unwrap_or(Condition::Ok),
            checks,
        }
    }

    /// What to say while the data thread does not answer.
    pub(crate) fn unanswered(why: &str) -> Self {
        Self::of(vec![check("data_thread", Condition::Failed, why)])
    }

    /// What follows from a snapshot.
    #[must_use]
    pub fn judge(snapshot: &Snapshot) -> Self {
        let mut checks = vec![check("data_thread", Condition::Ok, "answers")];
        checks.extend(snapshot.status.nodes.iter().map(|node| {
            let name = format!("node-{}", node.number);
            let figures = snapshot
                .nodes
                .iter()
                .find(|figures| figures.number == node.number);
            let (status, detail) = judge_node(node, figures);
            check(&name, status, &detail)
        }));
        // Managers and gateways of an ensemble have no nodes.
        if ["all", "node"].contains(&snapshot.status.role.as_str()) {
            checks.push(space(snapshot));
        }
        if snapshot.status.role != "all" {
            checks.push(copies(snapshot.status.sets_short));
        }
        if let Some(ends) = snapshot.status.certificate_ends {
            checks.push(certificate(ends, snapshot.at));
        }
        if let Some(name) = &snapshot.status.revoked {
            let detail = format!(
                "this gateway has been revoked, nodes and managers refuse it; crossdock gateway restore {name} lets it in again"
            );
            checks.push(check("gateway", Condition::Failed, &detail));
        }
        checks.push(sites(snapshot));
        checks.push(door(snapshot));
        if !snapshot.scrub.findings.is_empty() {
            let found = snapshot.scrub.findings.len();
            let detail =
                format!("the last scrub found {found} bad places; GET /v1/scrub lists them");
            checks.push(check("scrub", Condition::Degraded, &detail));
        }
        Self::of(checks)
    }
}

fn check(name: &str, status: Condition, detail: &str) -> Check {
    Check {
        name: name.to_owned(),
        status,
        detail: detail.to_owned(),
    }
}

/// Whether everything is there as often as it should be.
fn copies(sets_short: u64) -> Check {
    match sets_short {
        0 => check("copies", Condition::Ok, "all are there"),
        short => {
            let detail = format!(
                "{short} replica sets miss a member: a node is away, or is being made equal; crossdock status shows which are connected"
            );
            check("copies", Condition::Degraded, &detail)
        }
    }
}

/// Whether other hosts take this one's certificate, and for how long.
fn certificate(ends: u64, at: f64) -> Check {
    let seconds = ends as f64 - at;
    let days = seconds / (24.0 * 3600.0);
    let renew = "get another one with crossdock cluster join; it is taken without a restart";
    if seconds <= 0.0 {
        let detail = format!("has ended: no other host lets this one in; {renew}");
        return check("certificate", Condition::Failed, &detail);
    }
    if days < CERTIFICATE_DAYS as f64 {
        let detail = format!("ends in {days:.0} days; {renew}");
        return check("certificate", Condition::Degraded, &detail);
    }
    check(
        "certificate",
        Condition::Ok,
        &format!("ends in {days:.0} days"),
    )
}

fn judge_node(status: &NodeStatus, figures: Option<&NodeFigures>) -> (Condition, String) {
    match (status.state.as_str(), figures) {
        ("running", Some(node)) if node.has_failed => {
            let what =
                "its disk failed and takes no writes; check the disk, then stop and start the node";
            (Condition::Failed, what.to_owned())
        }
        ("running", Some(_)) if status.bad_blocks > 0 => {
            let what = format!(
                "{} blocks are bad, and not repaired; crossdock scrub finds them all, and repairs what another node has",
                status.bad_blocks
            );
            (Condition::Degraded, what)
        }
        ("running", Some(node)) => {
            let part = node.journal_used_bytes as f64 / node.journal_bytes.max(1) as f64;
            if part > JOURNAL_FULL {
                let what = format!(
                    "its journal is {:.0} % full: changes wait for room",
                    part * 100.0
                );
                return (Condition::Degraded, what);
            }
            (Condition::Ok, "running".to_owned())
        }
        ("failed", _) => (
            Condition::Failed,
            "failed; crossdock status says why".to_owned(),
        ),
        (state, _) => {
            let what = format!("{state}: what only it holds is unavailable");
            (Condition::Degraded, what)
        }
    }
}

fn space(snapshot: &Snapshot) -> Check {
    let sum = |part: fn(&NodeFigures) -> u64| snapshot.nodes.iter().map(part).sum::<u64>();
    let (free, capacity) = (sum(|node| node.free_bytes), sum(|node| node.capacity_bytes));
    if capacity == 0 {
        return check("space", Condition::Failed, "no node runs");
    }
    let part = free as f64 / capacity as f64;
    let detail = format!("{:.0} % free", part * 100.0);
    if part < SPACE_LOW {
        let detail = format!("{detail}: remove files, or add space");
        return check("space", Condition::Degraded, &detail);
    }
    check("space", Condition::Ok, &detail)
}

fn sites(snapshot: &Snapshot) -> Check {
    let mut silent = snapshot.sites.iter().filter(|site| !site.is_serving);
    match silent.next() {
        Some(site) => {
            let detail = format!("site {} does not answer", site.number);
            check("sites", Condition::Failed, &detail)
        }
        None => check("sites", Condition::Ok, "serving"),
    }
}

fn door(snapshot: &Snapshot) -> Check {
    let door = &snapshot.door;
    let is_full = door.calls >= door.calls_max || door.held_bytes >= door.held_bytes_max;
    if is_full {
        let detail = format!(
            "the NFS door is full: {} requests, {} bytes; {} connections wait",
            door.calls, door.held_bytes, door.connections_paused
        );
        return check("nfs", Condition::Degraded, &detail);
    }
    check("nfs", Condition::Ok, "has room")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn worst(change: impl FnOnce(&mut Snapshot)) -> (Condition, String) {
        let mut snapshot = sample::snapshot();
        change(&mut snapshot);
        let health = Health::judge(&snapshot);
        let worst = health.checks.into_iter().max_by_key(|check| check.status);
        let worst = worst.expect("there are checks");
        assert_eq!(worst.status, health.status);
        (worst.status, worst.name)
    }

    /// Goal: each thing that can go wrong is seen, at its place, and weighs what
    /// it should.
    #[test]
    fn what_is_wrong_is_found() {
        assert_eq!(worst(|_| {}).0, Condition::Ok);
        let stopped = worst(|all| {
            all.status.nodes[1].state = "stopped".to_owned();
            all.nodes.remove(1);
        });
        assert_eq!(stopped, (Condition::Degraded, "node-1".to_owned()));
        let failed = worst(|all| all.nodes[0].has_failed = true);
        assert_eq!(failed, (Condition::Failed, "node-0".to_owned()));
        let failed = worst(|all| all.status.nodes[0].state = "failed".to_owned());
        assert_eq!(failed, (Condition::Failed, "node-0".to_owned()));
        let bad = worst(|all| all.status.nodes[0].bad_blocks = 1);
        assert_eq!(bad, (Condition::Degraded, "node-0".to_owned()));
        // What was met and repaired, or written anew, is history.
        let repaired = worst(|all| {
            all.nodes[0].media_errors = 3;
            all.status.nodes[0].repaired_blocks = 3;
        });
        assert_eq!(repaired.0, Condition::Ok);
        let full = worst(|all| all.nodes[0].journal_used_bytes = all.nodes[0].journal_bytes);
        assert_eq!(full, (Condition::Degraded, "node-0".to_owned()));
        let full = worst(|all| all.nodes.iter_mut().for_each(|node| node.free_bytes = 0));
        assert_eq!(full, (Condition::Degraded, "space".to_owned()));
        let day = 24 * 3600;
        for (ends, condition) in [
            (1031 * day, Condition::Ok),
            (1029 * day, Condition::Degraded),
            (999 * day, Condition::Failed),
        ] {
            let certificate = worst(|all| {
                all.at = 86_400_000.0; // Day 1,000.
                all.status.certificate_ends = Some(ends);
            });
            assert_eq!(certificate.0, condition);
            assert!(condition == Condition::Ok || certificate.1 == "certificate");
        }
        let short = worst(|all| {
            all.status.role = "gateway".to_owned();
            all.status.sets_short = 1;
        });
        assert_eq!(short, (Condition::Degraded, "copies".to_owned()));
        let revoked = worst(|all| all.status.revoked = Some("one".to_owned()));
        assert_eq!(revoked, (Condition::Failed, "gateway".to_owned()));
        let none = worst(|all| all.nodes.clear());
        assert_eq!(none, (Condition::Failed, "space".to_owned()));
        let silent = worst(|all| all.sites[0].is_serving = false);
        assert_eq!(silent, (Condition::Failed, "sites".to_owned()));
        let full = worst(|all| all.door.calls = all.door.calls_max);
        assert_eq!(full, (Condition::Degraded, "nfs".to_owned()));
        let found = worst(|all| all.scrub.findings.push("node 0 …".to_owned()));
        assert_eq!(found, (Condition::Degraded, "scrub".to_owned()));
    }
}
