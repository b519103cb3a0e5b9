//! What is measured, beside whom, and what we want to reach.

use super::super::figures::Figure;

/// One kind of load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// What the load generator calls it.
    pub(super) work: &'static str,
    pub(super) clients: u32,
    pub(super) outstanding: u32,
    pub(super) size_bytes: u64,
    /// Bytes of all bulk files together.
    pub(super) span_bytes: u64,
    /// Requests of each client at most, so that disks do not fill.
    pub(super) count: u64,
    pub(super) peers: &'static [Peer],
    class: Class,
    /// Whether the servers have nothing in memory at the start of a visit.
    pub(super) is_cold: bool,
}

/// What Crossdock is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// nfs-ganesha on ext4 as it is.
    Plain,
    /// nfs-ganesha on ext4 that writes each change through.
    Durable,
    /// Answers without looking.
    Floor,
    /// What a durable change costs at least: an echo, a write of 4 KiB, fdatasync.
    DurableFloor,
    /// Reads of the disk without a server.
    Fio,
}

/// What kind of work it is: goals, and what a reply is worth, depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The ground beneath.
    Null,
    /// Nothing changes.
    Look,
    /// A change that we have on disk before the reply.
    Change,
    /// SETATTR: the peer keeps it in memory also where it writes the rest through.
    Attributes,
    /// Bytes that are on disk with the reply.
    Stable,
    /// Bytes that are on disk with the COMMIT at the end.
    Committed,
    /// The same in one sequence.
    Sequence,
    /// Bytes that are read from memory, in one sequence.
    Cached,
    /// The same here and there.
    Random,
    /// Bytes that are read from the disk.
    Cold,
    /// Many kinds.
    Mix,
}

const MIB: u64 = 1 << 20;
const NO_LIMIT: u64 = 10_000_000;
/// Beyond this many, requests are said to be many.
const MANY: u32 = 8;

const BASE: Row = Row {
    name: "",
    title: "",
    work: "",
    clients: 1,
    outstanding: 1,
    size_bytes: 1,
    span_bytes: 64 * MIB,
    count: NO_LIMIT,
    peers: &[],
    class: Class::Null,
    is_cold: false,
};

/// Clients, and requests that each has outstanding.
const CROWDS: [(u32, u32); 4] = [(1, 1), (1, 8), (1, 64), (8, 8)];

/// Kinds that are measured with each of [`CROWDS`].
const SMALL: [Row; 13] = [
    small("create", "CREATE", "create", Class::Change),
    small("remove", "REMOVE", "remove", Class::Change),
    small("rename", "RENAME", "rename", Class::Change),
    small(
        "setattr",
        "SETATTR of the mode",
        "setattr",
        Class::Attributes,
    ),
    small("getattr", "GETATTR", "getattr", Class::Look),
    small("lookup", "LOOKUP", "lookup", Class::Look),
    small(
        "readdirplus",
        "READDIRPLUS of 100 files",
        "readdirplus",
        Class::Look,
    ),
    block(
        "read-4k",
        "READ of 4 KiB, random",
        "random-read",
        4096,
        Class::Random,
    ),
    block(
        "read-32k",
        "READ of 32 KiB, random",
        "random-read",
        32 << 10,
        Class::Random,
    ),
    block(
        "write-4k",
        "WRITE of 4 KiB, random, UNSTABLE",
        "random-write",
        4096,
        Class::Committed,
    ),
    block(
        "write-32k",
        "WRITE of 32 KiB, random, UNSTABLE",
        "random-write",
        32 << 10,
        Class::Committed,
    ),
    block(
        "sync-4k",
        "WRITE of 4 KiB, random, FILE_SYNC",
        "random-sync",
        4096,
        Class::Stable,
    ),
    block(
        "sync-32k",
        "WRITE of 32 KiB, random, FILE_SYNC",
        "random-sync",
        32 << 10,
        Class::Stable,
    ),
];

/// The others.
const SINGLE: [Row; 6] = [
    Row {
        name: "null",
        title: "NULL",
        work: "null",
        outstanding: 64,
        peers: &[Peer::Floor, Peer::Plain],
        ..BASE
    },
    Row {
        name: "write",
        title: "WRITE of 1 MiB in sequence, UNSTABLE, and COMMIT",
        work: "write",
        outstanding: 8,
        size_bytes: MIB,
        span_bytes: 256 * MIB,
        count: 1024,
        peers: &[Peer::Plain, Peer::Durable],
        class: Class::Sequence,
        ..BASE
    },
    Row {
        name: "read",
        title: "READ of 1 MiB in sequence, from 256 MiB just written",
        work: "read",
        outstanding: 8,
        size_bytes: MIB,
        span_bytes: 256 * MIB,
        peers: &[Peer::Plain],
        class: Class::Cached,
        ..BASE
    },
    Row {
        name: "cold-read",
        title: "READ of 1 MiB in sequence, from the disk",
        work: "read",
        outstanding: 8,
        size_bytes: MIB,
        span_bytes: 512 * MIB,
        count: 512,
        peers: &[Peer::Fio, Peer::Plain],
        class: Class::Cold,
        is_cold: true,
        ..BASE
    },
    Row {
        name: "sync-small",
        title: "WRITE of 4 KiB into the first 64 KiB of a file, FILE_SYNC",
        work: "sync",
        clients: 8,
        size_bytes: 4096,
        peers: &[Peer::Durable, Peer::Plain],
        class: Class::Stable,
        ..BASE
    },
    Row {
        name: "untar",
        title: "Unpacking small files: LOOKUP, CREATE, WRITE, COMMIT, SETATTR, MKDIR",
        work: "untar",
        outstanding: 8,
        peers: &[Peer::Durable, Peer::Plain],
        class: Class::Mix,
        ..BASE
    },
];

const fn small(name: &'static str, title: &'static str, work: &'static str, class: Class) -> Row {
    Row {
        name,
        title,
        work,
        peers: match class {
            Class::Look => &[Peer::Plain],
            _ => &[Peer::Durable, Peer::Plain],
        },
        class,
        ..BASE
    }
}

const fn block(
    name: &'static str,
    title: &'static str,
    work: &'static str,
    size_bytes: u64,
    class: Class,
) -> Row {
    Row {
        size_bytes,
        peers: match class {
            Class::Stable => &[Peer::Durable, Peer::Plain],
            _ => &[Peer::Plain],
        },
        ..small(name, title, work, class)
    }
}

/// All rows, in the order in which they are measured.
pub(super) fn all() -> Vec<Row> {
    let mut rows = SINGLE.to_vec();
    for row in SMALL {
        for (clients, outstanding) in CROWDS {
            rows.push(Row {
                clients,
                outstanding,
                ..row
            });
        }
    }
    rows
}

/// The names that can be asked for.
pub(in crate::bench) fn names() -> Vec<&'static str> {
    let rows = SINGLE.iter().chain(&SMALL);
    rows.map(|row| row.name).collect()
}

impl Row {
    /// What the result calls it.
    pub(super) fn label(&self) -> String {
        let (clients, outstanding) = (self.clients, self.outstanding);
        format!("{} {clients}x{outstanding}", self.name)
    }

    /// The same with other requests.
    pub(super) const fn as_work(&self, work: &'static str) -> Self {
        let mut row = *self;
        row.work = work;
        row
    }

    /// For people.
    pub(super) fn variant(&self) -> String {
        let plural = if self.clients == 1 { "" } else { "s" };
        format!(
            "{}: {} client{plural}, {} outstanding",
            self.title, self.clients, self.outstanding
        )
    }

    /// Whether bytes are counted, not operations.
    pub(super) const fn is_bulk(&self) -> bool {
        self.size_bytes == MIB
    }

    /// Whether it makes files: then ext4's own cost of that matters.
    pub(super) fn makes_files(&self) -> bool {
        self.work == "create" || self.work == "untar"
    }

    /// With whom it is compared.
    pub(super) fn all_peers(&self) -> Vec<Peer> {
        let mut peers = self.peers.to_vec();
        let is_small_change = match self.class {
            Class::Change | Class::Attributes => true,
            Class::Stable => self.size_bytes == 4096,
            _ => false,
        };
        if is_small_change && self.clients * self.outstanding == 1 {
            peers.push(Peer::DurableFloor);
        }
        peers
    }

    /// What replies are worth: ours, and the peer's.
    pub(super) const fn worth(&self, peer: Peer) -> &'static str {
        match (peer, self.class) {
            (Peer::Floor | Peer::DurableFloor | Peer::Fio, _) => "a limit",
            (_, Class::Null | Class::Look | Class::Cached | Class::Random | Class::Cold) => {
                "nothing changes"
            }
            (_, Class::Attributes) => "only ours is on disk",
            (_, Class::Stable | Class::Committed | Class::Sequence) | (Peer::Durable, _) => {
                "both are on disk"
            }
            (Peer::Plain, Class::Change | Class::Mix) => "only ours is on disk",
        }
    }

    /// The ratio that we want.
    pub(super) fn goal(&self, peer: Peer, figure: Figure) -> Option<f64> {
        let is_many = self.clients * self.outstanding >= MANY;
        match (figure, peer, self.class) {
            (Figure::Rate, Peer::DurableFloor, _) => Some(1.0 / 1.3),
            (Figure::Rate, Peer::Fio, _) => Some(0.9),
            (_, Peer::Fio | Peer::Floor | Peer::DurableFloor, _) => None,
            (Figure::Rate, Peer::Durable, Class::Change) if is_many || self.work == "create" => {
                Some(3.0)
            }
            (Figure::Rate, Peer::Plain, Class::Look) if is_many => Some(3.0),
            (Figure::Rate, _, Class::Change | Class::Attributes) if is_many => Some(1.5),
            (Figure::Cpu, _, Class::Look | Class::Change | Class::Attributes) if is_many => {
                Some(2.0)
            }
            (Figure::Rate, _, Class::Sequence) => Some(1.5),
            (Figure::Cpu, _, Class::Sequence) => Some(2.0),
            (Figure::Rate, _, Class::Cached) => Some(1.3),
            (Figure::Cpu, _, Class::Cached) => Some(1.0 / 0.6),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Goal: no two rows have one label, and each has somebody to be compared with.
    #[test]
    fn rows_are_told_apart() {
        let rows = all();
        let labels: BTreeSet<String> = rows.iter().map(Row::label).collect();
        assert_eq!(labels.len(), rows.len());
        assert!(rows.iter().all(|row| !row.all_peers().is_empty()));
    }

    /// Goal: the goals are those that were set: three times where both are durable.
    #[test]
    fn goals_depend_on_what_a_reply_is_worth() {
        let goal = |name: &str, label: &str, peer| {
            let rows = all();
            let row = rows
                .iter()
                .find(|row| row.name == name && row.label().ends_with(label));
            row.expect("a row").goal(peer, Figure::Rate)
        };
        assert_eq!(goal("create", "8x8", Peer::Durable), Some(3.0));
        assert_eq!(goal("create", "8x8", Peer::Plain), Some(1.5));
        assert_eq!(goal("create", "1x1", Peer::Durable), Some(3.0));
        assert_eq!(goal("remove", "1x1", Peer::Durable), None);
        assert_eq!(goal("lookup", "1x64", Peer::Plain), Some(3.0));
        assert_eq!(goal("cold-read", "1x8", Peer::Fio), Some(0.9));
    }
}
