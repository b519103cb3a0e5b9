//! The host's figures as the admin API tells them.

use std::net::SocketAddr;
use std::time::Duration;

use crossdock_admin::{
    Answer, DefragStatus, DoorStatus, FreeSpaceStatus, FsckFinding, FsckStatus, HostStatus,
    LayoutStatus, NodePassStatus, NodeStatus, PassState, Refusal, ScrubStatus, SiteStatus, Status,
};
use crossdock_host::{Host, NamedFinding, NodeFigures, NodePass, NodeState, PassStage, PlacedSite};
use crossdock_members::{ExportRecord, HostRecord, NodeDoor};
use crossdock_names::NodeId;
use crossdock_peer::Network;
use crossdock_store::Layout;

/// What the host itself does not know about where it runs.
pub(crate) struct Surroundings {
    /// How disks and sockets are driven.
    pub(crate) io: &'static str,
    /// The doors that answer.
    pub(crate) doors: Vec<DoorStatus>,
    /// Whether the nodes lie on more than one device.
    pub(crate) has_several_devices: bool,
    /// What this process is for.
    pub(crate) role: &'static str,
}

/// Clocks that differ by more are told of.
const CLOCK_NANOSECONDS_MAX: u64 = 1_000_000_000;

/// The disk with one arm by which layouts are judged, that of bench/slowdisk: from one
/// place to another, and in sequence.
const MODEL_POSITIONING: Duration = Duration::from_millis(8);
const MODEL_RATE: u64 = 60_000_000;

/// The processes of the ensemble, as an administrator wants them.
fn hosts(host: &Host) -> Vec<HostStatus> {
    let of = |record: &HostRecord| match record.nodes.first() {
        Some(&node) => match host.node_number(node) {
            Some(number) => format!("node {number}"),
            None => "node".to_owned(),
        },
        None if record.is_manager => "manager".to_owned(),
        None => "gateway".to_owned(),
    };
    let text = |address: Option<SocketAddr>| address.map(|it| it.to_string()).unwrap_or_default();
    let hosts = host.hosts().map(|(id, record, is_connected)| HostStatus {
        id: id.to_string(),
        role: of(record),
        machine: record.machine.clone(),
        link: text(record.link),
        admin: text(record.admin),
        node_http: door_text(record.node_door()),
        is_connected,
        clock_ahead_ms: host.clock_ahead(id).map(|ahead| ahead / 1_000_000),
    });
    hosts.collect()
}

/// What `GET /v1/status` answers.
pub(crate) fn status(
    host: &Host,
    surroundings: &Surroundings,
    uptime: Duration,
    connections: usize,
    certificate_ends: Option<u64>,
) -> Answer {
    let figures = host.status();
    let mut warnings = warnings(surroundings, figures.site_replicas, &figures.nodes);
    warnings.extend(export_warnings(host, surroundings));
    warnings.extend(clock_warnings(host));
    json(&Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ensemble: format!("{:016x}", figures.ensemble),
        volume: format!("{:016x}", figures.volume),
        uptime_seconds: uptime.as_secs(),
        io: surroundings.io.to_owned(),
        replicas: figures.replicas,
        site_replicas: figures.site_replicas,
        warnings,
        doors: surroundings.doors.clone(),
        nodes: figures.nodes.iter().map(|it| node(host, it)).collect(),
        table_epoch: figures.table_epoch,
        files: figures.files,
        connections: connections as u64,
        requests: figures.requests,
        role: surroundings.role.to_owned(),
        sets_short: figures.sets_short as u64,
        hosts: hosts(host),
        sites: host.placed_sites().iter().map(site).collect(),
        certificate_ends,
        revoked: host.is_revoked().then(|| host.gateway_name().to_owned()),
    })
}

/// What `GET /v1/scrub` answers.
pub(crate) fn scrub(host: &Host) -> Answer {
    let progress = host.scrub_progress();
    let allocated: u64 = host
        .status()
        .nodes
        .iter()
        .map(|node| node.store.allocated_bytes)
        .sum();
    json(&ScrubStatus {
        running: progress.running,
        blocks_checked: progress.blocks_checked,
        blocks_total: allocated / 4096,
        findings: progress.findings.clone(),
        repaired: progress.repaired.clone(),
        differing_blocks: progress.differing_blocks,
        agreed_blocks: progress.agreed_blocks,
    })
}

/// What `GET /v1/defrag` answers.
pub(crate) fn defrag(host: &Host) -> Answer {
    let progress = host.defrag_told();
    let free = &progress.free;
    json(&DefragStatus {
        running: progress.running,
        scheduled: progress.is_scheduled,
        yielding: progress.is_yielding,
        stopped: progress.is_stopped,
        path: progress.path.clone(),
        schedule: host.defrag_schedule().map(|window| window.to_string()),
        found: layout(&progress.found),
        left: layout(&progress.left),
        free: FreeSpaceStatus {
            blocks: free.blocks,
            runs: free.runs,
            longest_blocks: free.longest_blocks,
            unseen_blocks: free.unseen_blocks,
        },
        moved_blocks: progress.moves.moved_blocks,
        pinned_blocks: progress.moves.pinned_blocks,
        busy_blocks: progress.moves.busy_blocks,
        unreadable_blocks: progress.moves.unreadable_blocks,
        homeless_blocks: progress.moves.homeless_blocks,
        errors: progress.errors.clone(),
        nodes: progress.nodes.iter().map(node_pass).collect(),
    })
}

fn node_pass(pass: &NodePass) -> NodePassStatus {
    NodePassStatus {
        node: pass.node,
        state: match pass.stage {
            PassStage::Waiting => PassState::Waiting,
            PassStage::Moving => PassState::Moving,
            PassStage::Looking => PassState::Looking,
            PassStage::Done => PassState::Done,
            PassStage::Stopped => PassState::Stopped,
            PassStage::Away => PassState::Away,
        },
        yielding: pass.is_yielding,
        found: layout(&pass.found),
        left: layout(&pass.left),
        moved_blocks: pass.moves.moved_blocks,
    }
}

fn layout(layout: &Layout) -> LayoutStatus {
    LayoutStatus {
        objects: layout.objects,
        blocks: layout.blocks,
        runs: layout.runs,
        seek_blocks: layout.seek_blocks,
        sequential_percent: layout.sequential_percent(MODEL_POSITIONING, MODEL_RATE),
    }
}

/// What `GET /v1/fsck` answers.
pub(crate) fn fsck(host: &Host) -> Answer {
    let progress = host.fsck_progress();
    let nodes_away = progress.nodes_away.iter();
    json(&FsckStatus {
        running: progress.running,
        looks: progress.looks,
        files: progress.seen.files,
        names: progress.seen.names,
        objects: progress.seen.objects,
        findings: progress.findings.iter().map(finding).collect(),
        repaired: progress.repaired.iter().map(finding).collect(),
        findings_total: progress.findings_total as u64,
        unsettled: progress.unsettled as u64,
        nodes_away: nodes_away
            .filter_map(|node| host.node_number(node.0))
            .collect(),
        error: progress.error.clone(),
    })
}

fn finding(found: &NamedFinding) -> FsckFinding {
    FsckFinding {
        text: found.to_string(),
        path: found.path.clone(),
    }
}

fn warnings(surroundings: &Surroundings, site_replicas: u32, nodes: &[NodeFigures]) -> Vec<String> {
    let mut warnings = Vec::new();
    // Nodes of an ensemble are where its administrators have put them.
    if surroundings.role == "all" && !surroundings.has_several_devices {
        warnings.push("not redundant: all nodes on one device".to_owned());
    } else if site_replicas < 2 {
        warnings.push("not redundant: one copy of the site logs".to_owned());
    }
    for node in nodes {
        match &node.state {
            NodeState::Stopped => warnings.push(format!(
                "node {0} is stopped: what only it holds is unavailable; crossdock node start {0}",
                node.number
            )),
            NodeState::Failed(reason) => warnings.push(format!("node {} failed: {reason}", node.number)),
            NodeState::Running if node.store.has_failed => warnings.push(format!(
                "node {}: its disk failed and takes no writes; check the disk, then stop and start the node",
                node.number
            )),
            NodeState::Running | NodeState::Opening => {}
        }
    }
    warnings
}

/// Files get their times from whoever serves them.
fn clock_warnings(host: &Host) -> impl Iterator<Item = String> {
    let ahead = host
        .hosts()
        .filter_map(|(id, record, _)| Some((id, record, host.clock_ahead(id)?)));
    let wrong = ahead.filter(|(.., ahead)| ahead.unsigned_abs() > CLOCK_NANOSECONDS_MAX);
    wrong.map(|(id, record, ahead)| {
        let seconds = ahead.unsigned_abs() as f64 / 1e9;
        let way = if ahead > 0 { "ahead of" } else { "behind" };
        let machine = &record.machine;
        format!(
            "the clock of host {id} ({machine}) is {seconds:.1} s {way} this one's, and times of files may be wrong by that: have both set by NTP"
        )
    })
}

/// Whether clients of other machines reach the NFS door.
fn is_open(surroundings: &Surroundings) -> bool {
    let nfs = surroundings.doors.iter().filter(|door| door.name == "nfs");
    let mut addresses = nfs.filter_map(|door| door.address.parse::<SocketAddr>().ok());
    addresses.any(|address| !address.ip().to_canonical().is_loopback())
}

/// What is risky about the exports as they are.
pub(crate) fn export_warnings(host: &Host, surroundings: &Surroundings) -> Vec<String> {
    let exports = host.exports().iter();
    exports
        .filter(|export| is_open(surroundings) && lets_everybody_in(export))
        .map(everybody)
        .collect()
}

/// What whoever makes or changes `export` should know.
pub(crate) fn export_notes(
    export: &ExportRecord,
    all: &[ExportRecord],
    surroundings: &Surroundings,
) -> Vec<String> {
    let mut notes = Vec::new();
    let networks = &export.rules.networks;
    if !is_open(surroundings) && networks.iter().any(Network::is_beyond_loopback) {
        notes.push("no other machine reaches the NFS door: start crossdock up with --nfs and an address of this machine's network".to_owned());
    }
    if is_open(surroundings) && lets_everybody_in(export) {
        notes.push(everybody(export));
    }
    let is_below = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer.trim_end_matches('/'));
        inner != outer && rest.is_some_and(|rest| rest.starts_with('/'))
    };
    for other in all {
        if is_below(&export.path, &other.path) {
            notes.push(format!(
                "it lies inside the export {}, whose clients reach it through that one as well",
                other.path
            ));
        } else if is_below(&other.path, &export.path) {
            notes.push(format!(
                "the export {} lies inside it: its clients reach that one's files as well",
                other.path
            ));
        }
    }
    notes
}

fn lets_everybody_in(export: &ExportRecord) -> bool {
    export.rules.networks.contains(&Network::EVERYBODY)
}

fn everybody(export: &ExportRecord) -> String {
    format!(
        "everybody who reaches the NFS door may use the export {0}; crossdock export set {0} --allow NETWORK narrows it",
        export.path
    )
}

fn site(placed: &PlacedSite) -> SiteStatus {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    SiteStatus {
        site: placed.site.0,
        manager: placed.manager.map(|it| it.to_string()).unwrap_or_default(),
        files: placed.held.map(|(files, _)| count(files)),
        intentions: placed.held.map(|(_, intentions)| count(intentions)),
    }
}

/// An address, or a URL where clients have to talk over TLS.
fn door_text(door: Option<NodeDoor>) -> String {
    match door {
        Some(door) if door.is_secure => door.to_string(),
        Some(door) => door.address.to_string(),
        None => String::new(),
    }
}

fn node(host: &Host, figures: &NodeFigures) -> NodeStatus {
    NodeStatus {
        number: figures.number,
        id: format!("{:016x}", figures.id),
        state: figures.state.word().to_owned(),
        http: door_text(host.node_door(NodeId(figures.id))),
        capacity_bytes: figures.store.capacity_bytes,
        used_bytes: figures.store.allocated_bytes,
        free_bytes: figures.store.free_bytes,
        objects: figures.store.objects,
        journal_used_bytes: figures.store.journal_used_bytes,
        flushes: figures.store.journal_flushes + figures.store.data_flushes,
        media_errors: figures.store.media_errors,
        repaired_blocks: figures.store.repaired_blocks,
        bad_blocks: figures.store.bad_blocks,
    }
}

pub(crate) fn json(value: &impl serde::Serialize) -> Answer {
    serde_json::to_value(value).map_err(|error| Refusal::Conflict(error.to_string()))
}
