//! Clients that read files, over connections of some rates, and an engine.

use crossdock_delivery::{Delivery, DeliveryConfig};
use crossdock_names::FileId;

use super::*;

const READ: u64 = 64 << 10;
const SIZE: u64 = 1 << 30;
const EDRC: Switches = Switches {
    tdap: true,
    edrc: true,
    idsr: true,
    daemon: true,
};

fn file(number: u64) -> FileRef {
    FileRef {
        id: FileId(number),
        generation: 1,
    }
}

struct World {
    now: Time,
    readers: Readers,
    delivery: Delivery,
    /// What the router is told: of which file, from where to where, whether it is wanted.
    told: Vec<(FileRef, u64, u64, bool)>,
    /// Bytes that were sent over connections: all of them have arrived.
    sent: BTreeMap<ConnId, u64>,
    samples: usize,
    deliveries: usize,
}

impl World {
    fn new(config: DeliveryConfig) -> Self {
        Self {
            now: Time::from_secs(1),
            readers: Readers::default(),
            delivery: Delivery::new(config),
            told: Vec::new(),
            sent: BTreeMap::new(),
            samples: 0,
            deliveries: 0,
        }
    }

    fn carry(&mut self) {
        while let Some(effect) = self.readers.poll_effect() {
            match effect {
                NfsEffect::Deliver(guest) => {
                    self.deliveries += 1;
                    guest.tell(self.now, &mut self.delivery);
                    self.decide();
                }
                NfsEffect::Ahead(ahead) => self.told.push((
                    ahead.file,
                    ahead.offset_bytes,
                    ahead.end_bytes,
                    ahead.is_wanted,
                )),
                NfsEffect::Sample(id) => {
                    self.samples += 1;
                    let sent_bytes = self.sent.get(&id).copied().unwrap_or(0);
                    let sample = TcpSample {
                        acked_bytes: sent_bytes,
                        is_app_limited: true,
                        rtt: Duration::from_millis(1),
                        ..TcpSample::default()
                    };
                    let queued_bytes = 0;
                    let wire = Wire {
                        sent_bytes,
                        queued_bytes,
                        sample,
                    };
                    self.readers.sampled(id, wire);
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    fn decide(&mut self) {
        while let Some(decision) = self.delivery.poll_decision() {
            if let Some(advice) = Guest::advice(decision, &self.delivery) {
                self.readers.advised(advice);
            }
        }
    }

    fn ask(&mut self, id: u64, file: FileRef, from: u64, bytes: u64) -> Option<Mark> {
        let read = Read {
            caller: &Caller::root(),
            file,
            from,
            to: from + bytes,
        };
        let mark = self.readers.read(self.now, ConnId(id), read);
        self.carry();
        mark
    }

    fn answer(&mut self, id: u64, mark: Option<Mark>, bytes: u64) {
        let id = ConnId(id);
        let sent = self.sent.entry(id).or_default();
        *sent += bytes;
        if let Some(mark) = mark {
            self.readers.answered(id, mark, (bytes, *sent), Some(SIZE));
        }
        self.readers.sent(self.now, id);
        self.carry();
    }

    fn read(&mut self, id: u64, file: FileRef, from: u64) {
        let mark = self.ask(id, file, from, READ);
        self.answer(id, mark, READ);
    }

    fn pass(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some(due) = self.delivery.poll_timeout().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.delivery.timeout(self.now);
            self.decide();
            self.carry();
        }
        self.now = until;
        self.readers.timeout(until);
        self.carry();
    }

    /// One client that reads a file from its beginning for so long; where he is then.
    fn run(&mut self, id: u64, rate: u64, duration: Duration) -> u64 {
        let until = self.now + duration;
        let mut at = 0;
        while self.now < until {
            self.read(id, file(id), at);
            at += READ;
            self.pass(Duration::from_nanos(READ * 1_000_000_000 / rate));
        }
        at
    }

    /// Up to where nodes were told.
    fn end_of(&self, of: FileRef) -> u64 {
        let ends = self.told.iter().filter(|told| told.0 == of && told.3);
        ends.map(|told| told.2).max().unwrap_or(0)
    }
}

/// Goal: as much is ahead of a client as it takes in T_D, whatever its rate; ranges follow
/// each other.
#[test]
fn the_faster_a_client_the_more_is_ahead_of_it() {
    let mut ahead = Vec::new();
    for rate in [200_000, 2_000_000, 20_000_000] {
        let mut world = World::new(DeliveryConfig::default());
        let at = world.run(1, rate, Duration::from_secs(12));
        let figures = world.delivery.figures();
        let near = figures.rate_net.abs_diff(rate) < rate / 4;
        assert!(near, "{rate}: {}", figures.rate_net);
        let bytes = world.end_of(file(1)) - at;
        let target = figures.buffering_time.as_secs_f64() * figures.rate_net as f64;
        // Whole READs, and one at least.
        assert_eq!(bytes % READ, 0);
        assert!(bytes >= READ);
        assert!(
            bytes as f64 <= target + READ as f64,
            "{rate}: {bytes} of {target}"
        );
        assert!(
            (bytes + 2 * READ) as f64 >= target / 2.0,
            "{rate}: {bytes} of {target}"
        );
        assert_eq!(figures.memory_used, bytes, "{rate}");
        for (one, next) in world.told.iter().zip(&world.told[1..]) {
            assert!(one.2 <= next.1, "{one:?} {next:?}");
        }
        ahead.push(bytes);
    }
    assert!(ahead.is_sorted() && ahead[2] > 4 * ahead[0], "{ahead:?}");
}

/// Goal: all clients together have the engine's memory ahead and no more, beside what
/// other doors take of it.
#[test]
fn the_budget_is_shared() {
    let mut world = World::new(DeliveryConfig {
        memory_bytes: 4 << 20,
        ..DeliveryConfig::default()
    });
    let other = StreamId(1);
    let class = crossdock_delivery::StreamClass::Foreground;
    world.delivery.open(world.now, other, SIZE, class);
    world.decide();
    for round in 0..200 {
        for id in 1..=20 {
            world.read(id, file(id), round * READ);
        }
        world.pass(Duration::from_millis(20));
    }
    let figures = world.delivery.figures();
    assert!(figures.memory_used_max <= 4 << 20, "{figures:?}");
    assert!(figures.memory_used > 1 << 20, "{figures:?}");
    let ahead: u64 = (1..=20)
        .map(|id| world.end_of(file(id)).saturating_sub(200 * READ))
        .sum();
    assert!(ahead <= figures.memory_used, "{ahead} {figures:?}");
}

/// Goal: random READs, first ones, and those of clients that read ahead themselves, ask for
/// nothing.
#[test]
fn only_who_reads_on_is_read_ahead_of() {
    let mut world = World::new(DeliveryConfig::default());
    for place in [0, 40, 17, 60, 5, 33, 50, 12_u64] {
        world.read(1, file(1), place << 21);
        world.read(1, file(100 + place), 0);
    }
    assert_eq!((world.deliveries, world.samples), (0, 0));
    let large = READ_AHEAD_BYTES_MAX;
    let mut marks = VecDeque::new();
    for number in 0..40 {
        marks.push_back(world.ask(2, file(2), number * large, large));
        if marks.len() > 4 {
            let mark = marks.pop_front().flatten();
            world.answer(2, mark, large);
        }
    }
    assert_eq!((world.deliveries, world.told.len()), (0, 0));
    // One at a time they are no different from small ones.
    for number in 0..20 {
        let mark = world.ask(3, file(3), number * large, large);
        world.answer(3, mark, large);
        world.pass(Duration::from_millis(50));
    }
    assert!(world.end_of(file(3)) > 20 * large);
}

/// Goal: a connection that is lost gives all memory back, and what nodes are about to read
/// for it is withdrawn if EDRC is on; who was there before it is not read ahead of any more.
#[test]
fn a_lost_connection_gives_everything_back() {
    for edrc in [true, false] {
        let switches = Switches { edrc, ..EDRC };
        let mut world = World::new(DeliveryConfig {
            switches,
            ..DeliveryConfig::default()
        });
        let at = world.run(1, 2_000_000, Duration::from_secs(3));
        let end = world.end_of(file(1));
        assert!(end > at && world.delivery.figures().memory_used > 0);
        world.told.clear();
        world.readers.lost(ConnId(1), switches);
        world.carry();
        let figures = world.delivery.figures();
        assert_eq!((figures.memory_used, figures.streams), (0, 0));
        let withdrawn: &[_] = &[(file(1), at, end, false)];
        assert_eq!(world.told, if edrc { withdrawn } else { &[] });
        assert_eq!(figures.withdrawn_bytes, if edrc { end - at } else { 0 });
        assert!(world.readers.streams.is_empty() && world.readers.count == 0);
    }
}

/// Goal: who reads no more is forgotten, and the table has its bounds, for one connection
/// and for all.
#[test]
fn what_is_known_of_clients_is_bounded() {
    let mut world = World::new(DeliveryConfig::default());
    for number in 0..1000 {
        world.read(1, file(number), 0);
        world.read(1, file(number), READ);
    }
    assert_eq!(world.readers.count, NFS_READERS_PER_CONNECTION_MAX);
    assert_eq!(world.readers.streams.len(), NFS_READERS_PER_CONNECTION_MAX);
    assert_eq!(
        world.delivery.figures().streams,
        NFS_READERS_PER_CONNECTION_MAX
    );
    for id in 2..6000 {
        world.read(id, file(1), 0);
    }
    assert_eq!(world.readers.count, NFS_READERS_MAX);
    assert!(world.readers.connections.len() <= NFS_READERS_MAX);
    world.pass(2 * IDLE);
    assert_eq!(
        (world.readers.count, world.readers.poll_timeout()),
        (0, None)
    );
    assert!(world.readers.connections.is_empty());
    let figures = world.delivery.figures();
    assert_eq!((figures.memory_used, figures.streams), (0, 0));
}

/// Goal: over one connection each file has the rate of its own bytes.
#[test]
fn files_of_one_connection_share_its_rate() {
    let mut world = World::new(DeliveryConfig::default());
    for round in 0..200 {
        for number in 1..=4 {
            world.read(1, file(number), round * READ);
        }
        world.pass(Duration::from_millis(64));
    }
    let rate = world.delivery.figures().rate_net;
    assert!(rate.abs_diff(4 * 1_024_000) < 1_024_000, "{rate}");
}

/// Goal: READs that overtake each other are one client's, and ask for nothing twice.
#[test]
fn overtaking_reads_are_one_stream() {
    let mut world = World::new(DeliveryConfig::default());
    for at in [0, 2, 1, 4, 3, 6, 5, 8, 7] {
        world.read(1, file(1), at * READ);
        world.pass(Duration::from_millis(30));
    }
    assert_eq!(world.readers.count, 1);
    assert!(world.end_of(file(1)) > 9 * READ);
    for (one, next) in world.told.iter().zip(&world.told[1..]) {
        assert!(one.2 <= next.1, "{one:?} {next:?}");
    }
    assert_eq!(
        world.delivery.figures().memory_used,
        world.end_of(file(1)) - 9 * READ
    );
}
