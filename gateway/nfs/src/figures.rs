//! What the door counts: calls by procedure, client and export, and the slow
//! ones. All of it is bounded, whoever calls.
//!
//! A call is noted when its reply is made, and counted when the reply has been
//! handed to the socket ([`NfsDoor::replies_sent`]): only then its time is known.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crossdock_metrics::Histogram;
use crossdock_names::ExportId;
use crossdock_nfs3::{self as nfs3, Reply, mount};
use crossdock_rpc::{CallHeader, ReplyHeader};
use crossdock_types::Time;

use crate::door::{NfsDoor, Origin};

/// Clients that have figures of their own; all others share one sum.
pub const CLIENTS_MAX: usize = 256;

/// A client that has called within this time keeps its place among them.
const CLIENT_PATIENCE: Duration = Duration::from_secs(60);

/// Slow calls that are kept to look at.
pub const SLOW_CALLS_MAX: usize = 256;

/// Calls that are noted before they are counted without their reply's time.
const NOTED_MAX: usize = 4096;

/// A call that takes longer is slow, unless the door is told otherwise.
const SLOW_AFTER: Duration = Duration::from_secs(1);

const NFS: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];
const MOUNT: [&str; 6] = ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"];

/// Everything that a door has counted, and what it holds now.
#[derive(Clone, Debug, Default)]
pub struct DoorFigures {
    /// Procedures that were called.
    pub procedures: Vec<ProcedureFigures>,
    /// The clients that called last, at most [`CLIENTS_MAX`].
    pub clients: Vec<ClientFigures>,
    /// What all others have asked for.
    pub other_clients: Traffic,
    /// By export; what no export was asked for is in none.
    pub exports: Vec<(ExportId, Traffic)>,
    /// The newest slow calls, oldest first, at most [`SLOW_CALLS_MAX`].
    pub slow: Vec<SlowCall>,
    /// Slow calls since the start.
    pub slow_total: u64,
    /// Calls that the RPC layer refused: unknown programs, versions and
    /// procedures, arguments and credentials that make no sense.
    pub rejected_total: u64,
    /// WRITEs that came again while the first was in progress.
    pub retransmitted_total: u64,
    /// How often a connection was not read from any more for want of room.
    pub pauses_total: u64,
    /// Connections.
    pub connections: usize,
    /// Connections that are not read from at this moment.
    pub paused: usize,
    /// Calls in progress.
    pub calls: usize,
    /// How many there may be.
    pub calls_max: usize,
    /// Bytes of calls in progress, and of replies that are not gone yet.
    pub held_bytes: usize,
    /// How many there may be.
    pub held_bytes_max: usize,
}

/// A procedure.
#[derive(Clone, Debug)]
pub struct ProcedureFigures {
    /// `nfs3` or `mount3`.
    pub program: &'static str,
    /// Its name in the RFC.
    pub name: &'static str,
    /// From a call that is there completely to its reply at the socket, in
    /// microseconds.
    pub latency: Histogram,
    /// How many succeeded.
    pub succeeded: u64,
    /// How many failed with which status.
    pub failed: Vec<(String, u64)>,
    /// Bytes of calls.
    pub in_bytes: u64,
    /// Bytes of replies.
    pub out_bytes: u64,
}

/// A client.
#[derive(Clone, Debug)]
pub struct ClientFigures {
    /// Its address.
    pub address: IpAddr,
    /// How many connections it has.
    pub connections: usize,
    /// How long ago its last call was answered.
    pub idle: Duration,
    /// What it has asked for.
    pub traffic: Traffic,
}

/// What somebody has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Calls that were answered.
    pub requests: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Bytes read from files.
    pub read_bytes: u64,
    /// Bytes written to files.
    pub written_bytes: u64,
}

/// A call that took long.
#[derive(Clone, Debug)]
pub struct SlowCall {
    /// When its reply was sent.
    pub at: Time,
    /// How long it took.
    pub took: Duration,
    /// `nfs3` or `mount3`.
    pub program: &'static str,
    /// Its procedure's name.
    pub procedure: &'static str,
    /// Who called.
    pub client: SocketAddr,
    /// Through which export.
    pub export: Option<ExportId>,
    /// The file or directory that it was about, by its number.
    pub file: Option<u64>,
    /// `ok` or what it failed with.
    pub status: String,
    /// Bytes read or written.
    pub io_bytes: u64,
}

/// What is remembered of a call until it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    pub(crate) kind: Kind,
    pub(crate) arrived: Time,
    pub(crate) in_bytes: usize,
    pub(crate) file: Option<u64>,
}

/// A procedure, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(usize);

/// A reply, as far as it is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered {
    /// 0 or the number of the status.
    status: u32,
    read_bytes: u64,
    written_bytes: u64,
}

/// A call that has its reply, but no time yet.
#[derive(Debug)]
struct Noted {
    meter: Meter,
    answered: Answered,
    export: Option<ExportId>,
    client: SocketAddr,
    slot: usize,
    out_bytes: usize,
}

/// The figures of a door.
#[derive(Debug)]
pub(crate) struct Figures {
    procedures: Vec<Counted>,
    clients: Clients,
    exports: BTreeMap<ExportId, Traffic>,
    noted: Vec<Noted>,
    slow_after: Duration,
    slow: VecDeque<SlowCall>,
    /// The newest of them that [`NfsDoor::next_slow`] has not told yet.
    slow_untold: usize,
    slow_total: u64,
    pub(crate) rejected_total: u64,
    pub(crate) retransmitted_total: u64,
    pub(crate) pauses_total: u64,
}

#[derive(Clone, Debug, Default)]
struct Counted {
    latency: Histogram,
    succeeded: u64,
    /// By number of the status: as many as there are, at most.
    failed: Vec<(u32, u64)>,
    in_bytes: u64,
    out_bytes: u64,
}

impl Kind {
    /// The procedure of a call. One that there is not is rejected, and counts
    /// nowhere: it may pass for NULL.
    pub(crate) fn of(header: &CallHeader<'_>) -> Self {
        let procedure = usize::try_from(header.procedure).unwrap_or(usize::MAX);
        match header.program {
            nfs3::PROGRAM if procedure < NFS.len() => Self(procedure),
            mount::PROGRAM if procedure < MOUNT.len() => Self(NFS.len() + procedure),
            _ => Self(0),
        }
    }

    fn names(self) -> (&'static str, &'static str) {
        let nfs = NFS.get(self.0).map(|name| ("nfs3", *name));
        nfs.unwrap_or_else(|| ("mount3", MOUNT[self.0 - NFS.len()]))
    }

    fn status(self, number: u32) -> String {
        let name = if self.0 < NFS.len() {
            nfs3::Status::from_number(number).map(|status| format!("{status:?}"))
        } else {
            mount::Status::from_number(number).map(|status| format!("{status:?}"))
        };
        match number {
            0 => "ok".to_owned(),
            _ => name.unwrap_or_default().to_lowercase(),
        }
    }
}

impl Answered {
    pub(crate) fn nfs(reply: &Reply) -> Self {
        let (read, written) = match reply {
            Reply::Read(Ok(read)) => (read.data.len() as u64, 0),
            Reply::Write(Ok(written)) => (0, u64::from(written.count_bytes)),
            _ => (0, 0),
        };
        Self {
            status: reply.status().map_or(0, nfs3::Status::number),
            read_bytes: read,
            written_bytes: written,
        }
    }

    pub(crate) fn mount(reply: &mount::Reply) -> Self {
        let status = match reply {
            mount::Reply::Mnt(Err(status)) => status.number(),
            _ => 0,
        };
        Self {
            status,
            ..Self::default()
        }
    }
}

impl Traffic {
    const fn count(&mut self, answered: &Answered) {
        self.requests += 1;
        self.failures += (answered.status != 0) as u64;
        self.read_bytes += answered.read_bytes;
        self.written_bytes += answered.written_bytes;
    }

    const fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failures += other.failures;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            procedures: vec![Counted::default(); NFS.len() + MOUNT.len()],
            clients: Clients::default(),
            exports: BTreeMap::new(),
            noted: Vec::new(),
            slow_after: SLOW_AFTER,
            slow: VecDeque::new(),
            slow_untold: 0,
            slow_total: 0,
            rejected_total: 0,
            retransmitted_total: 0,
            pauses_total: 0,
        }
    }
}

impl Figures {
    /// The place of a client; `known` is what its connection remembers of it.
    pub(crate) fn place(
        &mut self,
        now: Time,
        client: SocketAddr,
        known: &mut ClientPlace,
    ) -> usize {
        self.clients.place(now, client.ip().to_canonical(), known)
    }

    /// A reply was made.
    pub(crate) fn note(
        &mut self,
        now: Time,
        (meter, export): (Meter, Option<ExportId>),
        (client, slot): (SocketAddr, usize),
        (answered, out_bytes): (Answered, usize),
    ) {
        if self.noted.len() >= NOTED_MAX {
            self.count(now);
        }
        self.noted.push(Noted {
            meter,
            answered,
            export,
            client,
            slot,
            out_bytes,
        });
    }

    /// What was noted has been sent by now.
    fn count(&mut self, now: Time) {
        for noted in self.noted.drain(..) {
            let Noted {
                meter, answered, ..
            } = noted;
            let took = now.since(meter.arrived);
            let procedure = &mut self.procedures[meter.kind.0];
            procedure.latency.record_time(took);
            procedure.in_bytes += meter.in_bytes as u64;
            procedure.out_bytes += noted.out_bytes as u64;
            if answered.status == 0 {
                procedure.succeeded += 1;
            } else {
                procedure.count_failure(answered.status);
            }
            self.clients.count(now, noted.slot, &answered);
            if let Some(export) = noted.export {
                self.exports.entry(export).or_default().count(&answered);
            }
            if took >= self.slow_after {
                self.slow_total += 1;
                if self.slow.len() == SLOW_CALLS_MAX {
                    self.slow.pop_front();
                }
                self.slow.push_back(slow_call(now, took, &noted));
                self.slow_untold = (self.slow_untold + 1).min(SLOW_CALLS_MAX);
            }
        }
    }

    /// Exports that are gone have no figures any more.
    pub(crate) fn keep_exports(&mut self, exports: &[crate::Export]) {
        let is_there = |id: &ExportId| exports.iter().any(|export| export.id == *id);
        self.exports.retain(|id, _| is_there(id));
    }
}

fn slow_call(at: Time, took: Duration, noted: &Noted) -> SlowCall {
    let Noted {
        meter, answered, ..
    } = noted;
    let (program, procedure) = meter.kind.names();
    SlowCall {
        at,
        took,
        program,
        procedure,
        client: noted.client,
        export: noted.export,
        file: meter.file,
        status: meter.kind.status(answered.status),
        io_bytes: answered.read_bytes + answered.written_bytes,
    }
}

impl Counted {
    fn count_failure(&mut self, status: u32) {
        let known = self.failed.iter_mut().find(|(other, _)| *other == status);
        match known {
            Some((_, count)) => *count += 1,
            None => self.failed.push((status, 1)),
        }
    }

    fn figures(&self, kind: Kind) -> Option<ProcedureFigures> {
        let failed: u64 = self.failed.iter().map(|(_, count)| count).sum();
        if self.succeeded + failed == 0 {
            return None;
        }
        let (program, name) = kind.names();
        let failed = self.failed.iter();
        Some(ProcedureFigures {
            program,
            name,
            latency: self.latency.clone(),
            succeeded: self.succeeded,
            failed: failed
                .map(|&(status, count)| (kind.status(status), count))
                .collect(),
            in_bytes: self.in_bytes,
            out_bytes: self.out_bytes,
        })
    }
}

impl NfsDoor {
    /// Answers a call that the RPC layer refuses.
    pub(crate) fn reject(&mut self, origin: &Origin, reply: &ReplyHeader<'_>) {
        self.figures.rejected_total += 1;
        self.send(origin, reply, &());
    }

    /// A reply of `out_bytes` was made.
    pub(crate) fn note(
        &mut self,
        now: Time,
        origin: &Origin,
        metered: (Meter, Option<ExportId>),
        answered: Answered,
        out_bytes: usize,
    ) {
        let client = origin.client();
        let connection = match origin {
            Origin::Stream(id, _) => self.connections.get_mut(id),
            Origin::Datagram(_) => None,
        };
        let mut unknown = ClientPlace::default();
        let place = connection.map_or(&mut unknown, |connection| &mut connection.place);
        let slot = self.figures.place(now, client, place);
        let reply = (answered, out_bytes);
        self.figures.note(now, metered, (client, slot), reply);
    }

    /// The replies that were made are at the socket now: their calls are counted.
    pub fn replies_sent(&mut self, now: Time) {
        if !self.figures.noted.is_empty() {
            self.figures.count(now);
        }
    }

    /// Whether replies were made that [`replies_sent`](Self::replies_sent) has
    /// not counted.
    #[must_use]
    pub const fn has_noted(&self) -> bool {
        !self.figures.noted.is_empty()
    }

    /// From which time on a call is slow.
    pub const fn set_slow_after(&mut self, slow_after: Duration) {
        self.figures.slow_after = slow_after;
    }

    /// The next slow call that was not told yet; of too many at once, the
    /// newest.
    pub fn next_slow(&mut self) -> Option<SlowCall> {
        let figures = &mut self.figures;
        let next = figures.slow.len().checked_sub(figures.slow_untold)?;
        let next = figures.slow.get(next)?;
        figures.slow_untold -= 1;
        Some(next.clone())
    }

    /// Everything that was counted.
    #[must_use]
    pub fn figures(&self, now: Time) -> DoorFigures {
        let figures = &self.figures;
        let procedures = figures.procedures.iter().enumerate();
        let places = self.connections.values();
        let places = places.map(|connection| (connection.peer, connection.place));
        let paused = self.connections.values();
        DoorFigures {
            procedures: procedures
                .filter_map(|(kind, counted)| counted.figures(Kind(kind)))
                .collect(),
            clients: figures.clients.figures(now, places),
            other_clients: figures.clients.others(),
            exports: figures
                .exports
                .iter()
                .map(|(&id, &sum)| (id, sum))
                .collect(),
            slow: figures.slow.iter().cloned().collect(),
            slow_total: figures.slow_total,
            rejected_total: figures.rejected_total,
            retransmitted_total: figures.retransmitted_total,
            pauses_total: figures.pauses_total,
            connections: self.connections.len(),
            paused: paused.filter(|connection| connection.is_paused).count(),
            calls: self.calls.len(),
            calls_max: self.config.limits.calls_max,
            held_bytes: self.bytes,
            held_bytes_max: self.config.limits.bytes_max,
        }
    }
}

/// Where a client is counted, as its connection remembers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientPlace {
    slot: usize,
    /// Of the slot; 0 was never given.
    generation: u32,
}

/// The clients that have figures of their own. The one that called least
/// recently makes room, once it is idle; its sums go to the others'.
#[derive(Debug)]
struct Clients {
    /// The first stands for all others.
    slots: Vec<Slot>,
    by_address: BTreeMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Slot {
    address: IpAddr,
    generation: u32,
    seen: Time,
    traffic: Traffic,
}

const OTHERS: ClientPlace = ClientPlace {
    slot: 0,
    generation: 1,
};

impl Default for Clients {
    fn default() -> Self {
        let others = Slot {
            address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            generation: OTHERS.generation,
            seen: Time::default(),
            traffic: Traffic::default(),
        };
        Self {
            slots: vec![others],
            by_address: BTreeMap::new(),
        }
    }
}

impl Clients {
    fn place(&mut self, now: Time, address: IpAddr, known: &mut ClientPlace) -> usize {
        if self.slots[known.slot].generation != known.generation {
            *known = self.find(now, address);
        }
        known.slot
    }

    fn find(&mut self, now: Time, address: IpAddr) -> ClientPlace {
        let slot = match self.by_address.get(&address) {
            Some(&slot) => slot,
            None => {
                let Some(slot) = self.make_room(now) else {
                    return OTHERS;
                };
                let place = &mut self.slots[slot];
                (place.address, place.seen) = (address, now);
                self.by_address.insert(address, slot);
                slot
            }
        };
        ClientPlace {
            slot,
            generation: self.slots[slot].generation,
        }
    }

    /// A slot without a client, if there is one or somebody has been idle.
    fn make_room(&mut self, now: Time) -> Option<usize> {
        if self.slots.len() <= CLIENTS_MAX {
            self.slots.push(Slot {
                address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                generation: 1,
                seen: now,
                traffic: Traffic::default(),
            });
            return Some(self.slots.len() - 1);
        }
        let slots = self.slots.iter().enumerate().skip(OTHERS.slot + 1);
        let (oldest, slot) = slots.min_by_key(|(_, slot)| slot.seen)?;
        if now.since(slot.seen) < CLIENT_PATIENCE {
            return None;
        }
        let (address, traffic) = (slot.address, slot.traffic);
        self.by_address.remove(&address);
        self.slots[OTHERS.slot].traffic.add(&traffic);
        let slot = &mut self.slots[oldest];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.traffic = Traffic::default();
        Some(oldest)
    }

    fn count(&mut self, now: Time, slot: usize, answered: &Answered) {
        let slot = &mut self.slots[slot];
        slot.seen = now;
        slot.traffic.count(answered);
    }

    fn others(&self) -> Traffic {
        self.slots[OTHERS.slot].traffic
    }

    fn figures(
        &self,
        now: Time,
        places: impl Iterator<Item = (SocketAddr, ClientPlace)>,
    ) -> Vec<ClientFigures> {
        let mut connections = vec![0; self.slots.len()];
        for (client, place) in places {
            let is_its = self.slots[place.slot].generation == place.generation;
            let slot = is_its.then_some(place.slot);
            // One that has not called yet may still have figures.
            let slot = slot.or_else(|| self.by_address.get(&client.ip().to_canonical()).copied());
            connections[slot.unwrap_or(OTHERS.slot)] += 1;
        }
        let slots = self.slots.iter().zip(connections).skip(OTHERS.slot + 1);
        slots
            .map(|(slot, connections)| ClientFigures {
                address: slot.address,
                connections,
                idle: now.since(slot.seen),
                traffic: slot.traffic,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    fn call(clients: &mut Clients, now: Time, number: u32, known: &mut ClientPlace) -> usize {
        let slot = clients.place(now, address(number), known);
        let answered = Answered {
            read_bytes: 10,
            ..Answered::default()
        };
        clients.count(now, slot, &answered);
        slot
    }

    /// Goal: however many clients call, the number of figures is bounded, an
    /// active client keeps its own, and not one call is lost from the sums.
    #[test]
    fn clients_are_bounded_and_sums_are_complete() {
        let mut clients = Clients::default();
        let many = u32::try_from(CLIENTS_MAX).expect("small") + 50;
        let mut known = vec![ClientPlace::default(); many as usize];
        let start = Time::from_secs(100);
        for (number, known) in (0..).zip(&mut known) {
            call(&mut clients, start, number, known);
        }
        let figures = clients.figures(start, std::iter::empty());
        assert_eq!(figures.len(), CLIENTS_MAX);
        assert_eq!(clients.others().requests, 50);
        // All but the first have been idle: new ones take their places.
        let later = start + CLIENT_PATIENCE;
        let slot = call(&mut clients, later, 0, &mut known[0]);
        let mut newcomer = ClientPlace::default();
        assert_ne!(call(&mut clients, later, 9999, &mut newcomer), slot);
        let figures = clients.figures(later, std::iter::empty());
        assert_eq!(figures.len(), CLIENTS_MAX);
        assert!(figures.iter().any(|client| client.address == address(9999)));
        let of_first = figures.iter().find(|client| client.address == address(0));
        assert_eq!(of_first.expect("it was active").traffic.requests, 2);
        let sum: u64 = figures.iter().map(|client| client.traffic.requests).sum();
        assert_eq!(sum + clients.others().requests, u64::from(many) + 2);
        // Who lost his place is counted with the others, or found a new one.
        let lost = known.iter_mut().zip(0..).skip(1);
        for (known, number) in lost {
            call(&mut clients, later, number, known);
        }
        let figures = clients.figures(later, std::iter::empty());
        let sum: u64 = figures.iter().map(|client| client.traffic.read_bytes).sum();
        let all = (u64::from(many) * 2 + 1) * 10;
        assert_eq!(sum + clients.others().read_bytes, all);
    }
}
