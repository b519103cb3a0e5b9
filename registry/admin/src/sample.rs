//! A snapshot in which everything has a figure, for tests.

use std::collections::BTreeMap;

use crossdock_metrics::Histogram;

use crate::snapshot::{
    Client, DatagramFigures, DepotFigures, DiskClass, DiskFigures, DiskOperation, DiskSetFigures,
    DoorFigures, HttpFigures, IscsiFigures, LoopFigures, NodeFigures, NodeHttpFigures, Procedure,
    ProcessFigures, SiteFigures, SlowRequest, SlowWaits, Snapshot, Traffic, TransferFigures,
};
use crate::{DefragStatus, NodeStatus, ScrubStatus, Status};

pub(crate) fn snapshot() -> Snapshot {
    Snapshot {
        at: 1_800_000_000.5,
        uptime_seconds: 60.0,
        status: status(),
        procedures: vec![procedure("READ"), procedure("GETATTR")],
        clients: vec![Client {
            address: "fd00::1".to_owned(),
            connections: 2,
            idle_seconds: 0.1,
            traffic: traffic(),
        }],
        other_clients: traffic(),
        exports: BTreeMap::from([("/a \"b\"".to_owned(), traffic())]),
        door: DoorFigures {
            connections: 2,
            calls: 3,
            calls_max: 4096,
            held_bytes: 4,
            held_bytes_max: 512 << 20,
            ..DoorFigures::default()
        },
        http: HttpFigures {
            requests: BTreeMap::from([("get".to_owned(), 5)]),
            responses: BTreeMap::from([("2xx".to_owned(), 5)]),
            buffering_seconds: 0.5,
            residence: values(),
            residence_percent: values(),
            ..HttpFigures::default()
        },
        transfer: TransferFigures {
            is_gateway: true,
            relayed_bytes: [("loopback".to_owned(), 7)].into(),
            packets: [("caught".to_owned(), 3)].into(),
            refused: [("forged".to_owned(), 1)].into(),
            udp: DatagramFigures {
                relayed_bytes: [("here".to_owned(), 5)].into(),
                ..DatagramFigures::default()
            },
            ..TransferFigures::default()
        },
        iscsi: IscsiFigures {
            commands: BTreeMap::from([("read".to_owned(), 4)]),
            responses: BTreeMap::from([("good".to_owned(), 4)]),
            copied_bytes: BTreeMap::from([("nodes".to_owned(), 6)]),
            ..IscsiFigures::default()
        },
        node_http: NodeHttpFigures {
            responses: BTreeMap::from([("2xx".to_owned(), 5)]),
            ..NodeHttpFigures::default()
        },
        nodes: vec![node(0), node(1)],
        sites: vec![site()],
        scrub: ScrubStatus::default(),
        defrag: DefragStatus::default(),
        event_loop: LoopFigures {
            turns_total: 9,
            enters_total: 8,
            accepted_total: 2,
        },
        memory: BTreeMap::from([("cache".to_owned(), 1 << 20)]),
        slow: vec![SlowRequest {
            at: 1_800_000_000.0,
            seconds: 1.5,
            program: "nfs3".to_owned(),
            procedure: "WRITE".to_owned(),
            client: "10.0.0.1:700".to_owned(),
            export: Some("/".to_owned()),
            file: Some(17),
            status: "ok".to_owned(),
            io_bytes: 4096,
            waited: SlowWaits {
                queue: 0.0,
                site: 0.25,
                nodes: 1.0,
                other: 0.25,
            },
        }],
        process: ProcessFigures {
            started: 1_799_999_940.0,
            cpu_seconds: 2.0,
            threads: BTreeMap::from([("crossdock".to_owned(), 1.5)]),
            resident_bytes: 1 << 20,
            virtual_bytes: 1 << 30,
            open_fds: 10,
            max_fds: 1024,
        },
    }
}

fn traffic() -> Traffic {
    Traffic {
        requests: 12,
        failures: 2,
        read_bytes: 4096,
        written_bytes: 512,
    }
}

fn values() -> Histogram {
    let mut histogram = Histogram::default();
    [1, 20, 300]
        .into_iter()
        .for_each(|value| histogram.record(value));
    histogram
}

fn procedure(name: &str) -> Procedure {
    Procedure {
        program: "nfs3".to_owned(),
        name: name.to_owned(),
        statuses: BTreeMap::from([("ok".to_owned(), 2), ("noent".to_owned(), 1)]),
        latency: values(),
        in_bytes: 300,
        out_bytes: 400,
    }
}

fn disk(name: &str) -> DiskFigures {
    let operation = |name: &str| DiskOperation {
        name: name.to_owned(),
        latency: values(),
        bytes: 8192,
        failures: 0,
    };
    DiskFigures {
        name: name.to_owned(),
        operations: ["read", "write", "flush", "grow"].map(operation).into(),
        classes: vec![DiskClass {
            name: "foreground".to_owned(),
            wait: values(),
            waiting: 1,
            in_flight: 2,
        }],
        refused_total: 0,
        cancelled_total: 1,
        cancelled_bytes: 4096,
        postponed_total: 2,
        postponed: 1,
        positioning_seconds: 0.008,
        sequential_bytes_per_second: 60_000_000,
    }
}

fn node(number: u32) -> NodeFigures {
    NodeFigures {
        number,
        requests: BTreeMap::from([("read".to_owned(), 5)]),
        calls: 1,
        refused_total: 0,
        disks: vec![disk("journal"), disk("data")],
        sets: vec![DiskSetFigures {
            number: 0,
            kind: "mirror".to_owned(),
            lacking: 1,
            read_errors: 2,
            rebuild_bytes: 1 << 20,
            unreadable_stripes: 0,
            differing_blocks: 3,
            agreed_blocks: 2,
        }],
        frame_records: values(),
        journal_written_bytes: 1 << 20,
        journal_flushes: 7,
        journal_trims: 1,
        journal_bytes: 64 << 20,
        journal_used_bytes: 1 << 20,
        checkpoints: 1,
        capacity_bytes: 100 << 30,
        used_bytes: 1 << 30,
        free_bytes: 98 << 30,
        objects: 10,
        dirty_bytes: 4096,
        cache_hit_blocks: 5,
        cache_miss_blocks: 6,
        read_ahead_blocks: 40,
        cache_evicted_blocks: 0,
        cache_used_bytes: 1 << 20,
        cache_capacity_bytes: 1 << 28,
        media_errors: 0,
        has_failed: false,
        depot: Some(DepotFigures {
            commands: BTreeMap::from([("load".to_owned(), 3)]),
            gone: BTreeMap::from([("expired".to_owned(), 2)]),
            ..DepotFigures::default()
        }),
    }
}

fn site() -> SiteFigures {
    SiteFigures {
        number: 0,
        is_serving: true,
        frame_records: values(),
        log_bytes: 1000,
        log_bytes_since_checkpoint: 100,
        checkpoints: 1,
        checkpoint_seconds: 0.5,
        checkpoint_age_seconds: Some(10.0),
        checkpoint_bytes: 500,
        files: 20,
        names: 21,
        small_files: 5,
        duplicates: 6,
        intentions: 0,
        decisions: 3,
        waiting: 0,
        held: 0,
    }
}

fn status() -> Status {
    let node = |number: u32| NodeStatus {
        repaired_blocks: 0,
        bad_blocks: 0,
        number,
        id: format!("{number:016x}"),
        state: "running".to_owned(),
        http: String::new(),
        capacity_bytes: 100 << 30,
        used_bytes: 1 << 30,
        free_bytes: 98 << 30,
        objects: 10,
        journal_used_bytes: 1 << 20,
        flushes: 9,
        media_errors: 0,
    };
    Status {
        version: "0.1.0".to_owned(),
        ensemble: "00000000000000aa".to_owned(),
        volume: "00000000000000bb".to_owned(),
        uptime_seconds: 60,
        io: "io_uring".to_owned(),
        replicas: 1,
        site_replicas: 1,
        warnings: Vec::new(),
        doors: Vec::new(),
        nodes: vec![node(0), node(1)],
        table_epoch: 3,
        files: 20,
        connections: 2,
        requests: 24,
        role: "all".to_owned(),
        sets_short: 0,
        hosts: Vec::new(),
        sites: Vec::new(),
        certificate_ends: None,
        revoked: None,
    }
}
