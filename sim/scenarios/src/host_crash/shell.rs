//! What a simulated host has around it, alone or in an ensemble: the disks of its
//! nodes, the wires to its clients, the clock on its wall.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::TcpSample;
use crossdock_disk::{Disk, DiskRequest};
use crossdock_host::NodeSettings;
use crossdock_nfs::{ConnId, NfsEffect, NfsInput};
use crossdock_rpc::RecordReader;
use crossdock_sim::disk::{SimBlockingDisk, SimDisk, SimDiskOptions};
use crossdock_sim::random::Random;
use crossdock_store::StoreDisk;
use crossdock_types::{Filler, Time, WallTime};

/// The index thread takes up to this for a request.
pub(super) const INDEX_DELAY_MAX: Duration = Duration::from_micros(500);

/// Bytes take up to this from one end of a wire to the other.
pub(super) const WIRE_DELAY_MAX: Duration = Duration::from_micros(300);

/// What the clocks on walls show when simulated time begins, in seconds.
const WALL_START_SECONDS: i64 = 1_800_000_000;

pub(super) const SETTINGS: NodeSettings = NodeSettings {
    capacity_bytes: 256 << 20,
    journal_bytes: 2 << 20,
    cache_bytes: 1 << 20,
    // Little, so that requests wait in the queues.
    disk_depth: 3,
    rebuild_bytes_per_second: 8 << 20,
    // Small, as logs are.
    log_piece_bytes: 4 << 10,
    growth_bytes: 1 << 20,
};

/// What of a node outlives a start.
pub(super) struct NodeDisks {
    pub(super) journal: SimDisk,
    pub(super) data: SimDisk,
    pub(super) index: SimBlockingDisk,
}

impl NodeDisks {
    pub(super) fn fresh(random: &mut Random) -> Self {
        let options = SimDiskOptions::default();
        Self {
            journal: SimDisk::new(random.next_u64(), 0, options),
            data: SimDisk::new(random.next_u64(), 0, options),
            index: SimBlockingDisk::new(random.next_u64(), 0, options),
        }
    }

    /// What a loss of power leaves.
    pub(super) fn crashed(&self, random: &mut Random) -> Self {
        Self {
            journal: self.journal.crashed(random),
            data: self.data.crashed(random),
            index: self.index.crashed(random),
        }
    }

    pub(super) fn advance(&mut self, now: Time) {
        self.journal.advance(now);
        self.data.advance(now);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.journal.in_flight() + self.data.in_flight()
    }

    pub(super) const fn device(&mut self, disk: StoreDisk) -> &mut SimDisk {
        match disk {
            StoreDisk::Journal => &mut self.journal,
            StoreDisk::Data => &mut self.data,
        }
    }

    pub(super) fn submit(&mut self, disk: StoreDisk, request: DiskRequest) {
        self.device(disk).submit(request);
    }
}

/// One connection of a client. What is on its way arrives in order.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) to_server: VecDeque<(Time, Bytes)>,
    pub(super) to_client: VecDeque<(Time, Bytes)>,
    reader: RecordReader,
    filling: Option<Filler>,
    /// Bytes of replies that the client has.
    arrived_bytes: u64,
}

impl Wire {
    /// The client's bytes are on their way until `due` or later.
    pub(super) fn send(&mut self, due: Time, bytes: Bytes) {
        put(&mut self.to_server, due, bytes);
    }

    /// What arriving `bytes` are to the door.
    pub(super) fn arrived(&mut self, name: ConnId, mut bytes: Bytes) -> Vec<NfsInput> {
        let mut inputs = Vec::new();
        if let Some(filler) = self.filling.take() {
            match filler.take(&mut bytes) {
                Ok(record) => inputs.push(NfsInput::Filled(name, record)),
                Err(filler) => self.filling = Some(filler),
            }
        }
        if !bytes.is_empty() {
            inputs.push(NfsInput::Received(name, bytes));
        }
        inputs
    }

    /// What the kernel would tell of the connection.
    pub(super) fn sample(&self) -> TcpSample {
        TcpSample {
            acked_bytes: self.arrived_bytes,
            is_app_limited: self.to_client.is_empty(),
            rtt: WIRE_DELAY_MAX,
            ..TcpSample::default()
        }
    }

    /// The records that are whole once `bytes` have arrived at the client.
    pub(super) fn records(&mut self, mut bytes: Bytes) -> Result<Vec<Bytes>, String> {
        let mut records = Vec::new();
        self.arrived_bytes += bytes.len() as u64;
        while let Some(record) = self
            .reader
            .next_record(&mut bytes)
            .map_err(|error| format!("a client cannot read its replies: {error}"))?
        {
            records.push(record);
        }
        Ok(records)
    }
}

fn put(queue: &mut VecDeque<(Time, Bytes)>, due: Time, bytes: Bytes) {
    let due = queue.back().map_or(due, |last| last.0.max(due));
    queue.push_back((due, bytes));
}

/// Carries out what a door wants of one of its wires; `arrival` draws when bytes
/// that leave now arrive.
pub(super) fn carry_out<'a>(
    effect: NfsEffect,
    wire: impl FnOnce(ConnId) -> Option<&'a mut Wire>,
    arrival: impl FnOnce() -> Time,
) -> Result<(), String> {
    match effect {
        NfsEffect::Send(name, payload) => {
            let due = arrival();
            if let Some(wire) = wire(name) {
                put(&mut wire.to_client, due, payload.to_bytes());
            }
        }
        NfsEffect::Fill(name, fill) => {
            if let Some(wire) = wire(name) {
                wire.filling = Some(fill.into());
            }
        }
        NfsEffect::Close(name) | NfsEffect::Abort(name) => {
            return Err(format!("a door closes connection {}", name.0));
        }
        // Clients here have few calls in flight, and no datagrams.
        NfsEffect::SendDatagram(..)
        | NfsEffect::SendIn(..)
        | NfsEffect::SendPortmapDatagram(..)
        | NfsEffect::Pause(_)
        | NfsEffect::Resume(_)
        | NfsEffect::Router(_)
        | NfsEffect::ReadFor(..)
        | NfsEffect::ReadHot(_)
        | NfsEffect::Withdraw(_)
        | NfsEffect::Ahead(_)
        | NfsEffect::Deliver(_)
        | NfsEffect::Sample(_) => {}
    }
    Ok(())
}

/// A delay of up to `delay_max`.
pub(super) fn delay(random: &mut Random, delay_max: Duration) -> Duration {
    Duration::from_nanos(random.between(0, nanos(delay_max)))
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What the clock on the wall shows.
pub(super) fn wall(now: Time) -> WallTime {
    let nanos = i64::try_from(now.0).unwrap_or(i64::MAX);
    WallTime(WALL_START_SECONDS * 1_000_000_000 + nanos)
}

/// One step of FNV-1a over a whole word.
pub(super) const fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3)
}
