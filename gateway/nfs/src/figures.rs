//! What the door counts: calls by procedure, client and export, and the slow
//! ones. All of it is bounded, whoever calls.
//!
//! A call is noted when its reply is made, and counted when the reply has been
//! handed to the socket ([`NfsDoor::replies_sent`]): only then its time is known.

mod clients;
mod kind;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crossdock_metrics::Histogram;
use crossdock_names::ExportId;
use crossdock_peer::RelayedBytes;
use crossdock_router::Waited;
use crossdock_rpc::ReplyHeader;
use crossdock_types::Time;

use crate::door::{NfsDoor, Origin};
use clients::Clients;

pub(crate) use clients::ClientPlace;
pub(crate) use kind::{Answered, Kind};

/// Clients that have figures of their own; all others share one sum.
pub const CLIENTS_MAX: usize = 256;

/// Slow calls that are kept to look at.
pub const SLOW_CALLS_MAX: usize = 256;

/// Calls that are noted before they are counted without their reply's time.
const NOTED_MAX: usize = 4096;

/// A call that takes longer is slow, unless the door is told otherwise.
const SLOW_AFTER: Duration = Duration::from_secs(1);

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
    /// What nodes could have sent and were not asked to.
    pub relayed: RelayedBytes,
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
    /// `nfs3`, `mount3`, `nlm` or `nsm`.
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
    /// `nfs3`, `mount3`, `nlm` or `nsm`.
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
    /// Before that, how long its connection stood in line for room or its turn.
    pub queued: Duration,
    /// How much of its time went where.
    pub waited: Waited,
}

/// What is remembered of a call until it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    pub(crate) kind: Kind,
    pub(crate) arrived: Time,
    pub(crate) in_bytes: usize,
    pub(crate) file: Option<u64>,
    /// How long its connection had stood in line.
    pub(crate) queued: Duration,
    pub(crate) waited: Waited,
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
    pub(crate) relayed: RelayedBytes,
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
            procedures: vec![Counted::default(); Kind::COUNT],
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
            relayed: RelayedBytes::default(),
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
        queued: meter.queued,
        waited: meter.waited,
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
            Origin::Datagram(..) => None,
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

    /// How many bytes of calls and replies the door holds at most from now on; what it
    /// holds already stays.
    pub const fn set_bytes_max(&mut self, bytes_max: usize) {
        self.config.limits.bytes_max = bytes_max;
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
            relayed: figures.relayed,
            connections: self.connections.len(),
            paused: paused.filter(|connection| connection.is_paused).count(),
            calls: self.calls.len(),
            calls_max: self.config.limits.calls_max,
            held_bytes: self.bytes,
            held_bytes_max: self.config.limits.bytes_max,
        }
    }
}
