//! Streams in both directions under random pauses, expectations and packet
//! sizes: whatever happens, each side sees the other's bytes in order, all of
//! them and once.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Range;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use crossdock_disk::{DiskFile, DiskOperation, DiskRequest, DiskToken, OpenOptions};
use crossdock_net::{CloseReason, ConnectionId, Driver, Event, KernelChoice, Options, now};
use crossdock_sim::random::Random;
use crossdock_types::{AlignedBuffer, Fill};

const PATIENCE: Duration = Duration::from_secs(30);
const SEEDS: u64 = 25;

struct Run {
    driver: Driver,
    random: Random,
    connection: ConnectionId,
    /// What the client sends.
    incoming: Vec<u8>,
    /// How much of it events have told of.
    told: usize,
    /// Ours.
    outgoing: Bytes,
    sent: usize,
    /// Where the next bytes must come to lie, and nowhere else.
    expecting: Option<Range<usize>>,
    paused: bool,
    ended: bool,
}

impl Run {
    /// Until the connection is gone.
    fn finish(mut self, seed: u64) {
        let limit = now() + PATIENCE;
        let why = loop {
            self.command();
            // A paused loop is left to itself for a moment.
            let until = if self.paused {
                now() + Duration::from_micros(300)
            } else {
                limit
            };
            self.driver.wait(Some(until)).expect("to wait");
            if let Some(why) = self.take_events() {
                break why;
            }
            assert!(now() < limit, "seed {seed}: stuck at {} bytes", self.told);
        };
        assert_eq!(why, CloseReason::Local, "seed {seed}");
        assert_eq!(self.told, self.incoming.len(), "seed {seed}");
    }

    fn command(&mut self) {
        if self.paused && self.random.coin() {
            self.paused = false;
            self.driver.resume_receive(self.connection);
        } else if self.random.one_in(6) {
            self.paused = true;
            self.driver.pause_receive(self.connection);
        }
        let left = self.incoming.len() - self.told;
        // Also for what was held back, of which an event lies ready now.
        if left > 0 && self.expecting.is_none() && self.random.one_in(3) {
            let bytes = 1 + self.random.index(left);
            let head = vec![9; self.random.index(3000)];
            let lead_bytes = self.random.index(5000);
            self.expecting = Some(head.len()..head.len() + bytes);
            let fill = Fill {
                head: head.into(),
                lead_bytes,
                missing_bytes: bytes,
            };
            self.driver.fill(self.connection, &fill);
        }
        let left = self.outgoing.len() - self.sent;
        if left > 0 && self.random.one_in(3) {
            let bytes = 1 + self.random.index(left.min(300_000));
            let cut = self.random.index(bytes);
            let whole = self.outgoing.slice(self.sent..self.sent + bytes);
            let pieces = vec![whole.slice(..cut), whole.slice(cut..)];
            if self.driver.send(self.connection, pieces).is_ok() {
                self.sent += bytes;
            }
        }
        if self.ended {
            if self.sent < self.outgoing.len() {
                let rest = self.outgoing.slice(self.sent..);
                if self.driver.send(self.connection, vec![rest]).is_err() {
                    return;
                }
                self.sent = self.outgoing.len();
            }
            self.driver.close(self.connection);
        }
    }

    fn take_events(&mut self) -> Option<CloseReason> {
        while let Some(event) = self.driver.next_event() {
            match event {
                Event::Received { bytes, .. } => {
                    assert_eq!(self.expecting, None);
                    self.compare(&bytes);
                }
                Event::Filled { bytes, .. } => {
                    let range = self.expecting.take().expect("an expectation");
                    assert_eq!(range.end, bytes.len());
                    assert!(bytes[..range.start].iter().all(|byte| *byte == 9));
                    self.compare(&bytes[range]);
                }
                Event::PeerDone { .. } => self.ended = true,
                Event::Closed { why, .. } => return Some(why),
                Event::Writable { .. } | Event::Timeout | Event::Woken => {}
                event => panic!("{event:?}"),
            }
        }
        None
    }

    fn compare(&mut self, bytes: &[u8]) {
        let range = self.told..self.told + bytes.len();
        assert!(self.incoming[range] == *bytes, "at byte {}", self.told);
        self.told += bytes.len();
    }
}

fn stream(random: &mut Random, bytes: usize) -> Vec<u8> {
    let mut stream = vec![0; bytes];
    random.fill(&mut stream);
    stream
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn start(kernel: KernelChoice) -> (Driver, SocketAddr) {
    let options = Options {
        kernel,
        send_queue_bytes_max: 500_000,
        ..Options::default()
    };
    let mut driver = Driver::start(options).expect("a loop").driver;
    let (_, address) = driver.listen(loopback()).expect("to listen");
    (driver, address)
}

fn accept(driver: &mut Driver) -> ConnectionId {
    loop {
        driver.wait(Some(now() + PATIENCE)).expect("to wait");
        while let Some(event) = driver.next_event() {
            if let Event::Accepted { connection, .. } = event {
                return connection;
            }
        }
    }
}

fn run(kernel: KernelChoice, seed: u64) {
    let mut random = Random::new(seed);
    let bytes = 1 + random.index(3_000_000);
    let incoming = stream(&mut random, bytes);
    let bytes = random.index(3_000_000);
    let outgoing = stream(&mut random, bytes);
    let (mut driver, address) = start(kernel);
    let mut client = TcpStream::connect(address).expect("to connect");
    let connection = accept(&mut driver);

    let mut writer = client.try_clone().expect("a clone");
    let (to_write, mut cuts) = (incoming.clone(), random.fork());
    let writing = thread::spawn(move || {
        let mut left = &to_write[..];
        while !left.is_empty() {
            let step = 1 + cuts.index(left.len().min(100_000));
            writer.write_all(&left[..step]).expect("to write");
            left = &left[step..];
        }
        writer.shutdown(Shutdown::Write).expect("to end");
    });
    let to_read = outgoing.clone();
    let reading = thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).expect("to read");
        assert!(all == to_read, "the client saw other bytes");
    });
    let run = Run {
        driver,
        random,
        connection,
        incoming,
        told: 0,
        outgoing: outgoing.into(),
        sent: 0,
        expecting: None,
        paused: false,
        ended: false,
    };
    run.finish(seed);
    writing.join().expect("all was written");
    reading.join().expect("all was read");
}

/// Goal: the stream is whole over the ring.
#[test]
fn streams_are_whole_over_the_ring() {
    (0..SEEDS).for_each(|seed| run(KernelChoice::Ring, seed));
}

/// Goal: the stream is whole over epoll.
#[test]
fn streams_are_whole_over_epoll() {
    (0..SEEDS).for_each(|seed| run(KernelChoice::Epoll, seed));
}

/// Goal: a loop that is dropped with everything in flight ends its
/// connections, gives its port and its disk back, and does not hang.
#[test]
fn a_dropped_loop_gives_everything_back() {
    for kernel in [KernelChoice::Ring, KernelChoice::Epoll] {
        let (mut driver, address) = start(kernel);
        let mut client = TcpStream::connect(address).expect("to connect");
        client.set_read_timeout(Some(PATIENCE)).expect("an option");
        let connection = accept(&mut driver);
        let fill = Fill {
            head: Bytes::new(),
            lead_bytes: 0,
            missing_bytes: 1000,
        };
        driver.fill(connection, &fill);
        let bytes = Bytes::from(vec![1; 30_000_000]);
        driver.send(connection, vec![bytes]).expect("room");
        driver.bind_datagram(loopback()).expect("to bind");
        let path = std::env::temp_dir().join(format!("crossdock-drop-{}", std::process::id()));
        let options = OpenOptions {
            length_bytes: 8 << 20,
            prewrite: false,
        };
        let file = DiskFile::open_or_create(&path, options).expect("a disk");
        let disk = driver.add_disk(file).expect("room");
        for index in 0..64 {
            let operation = DiskOperation::Write {
                offset_bytes: index * 65_536,
                pieces: vec![AlignedBuffer::zeroed(65_536).freeze()],
                is_durable: false,
            };
            let token = DiskToken(index);
            driver.submit_disk(disk, DiskRequest { token, operation });
        }
        driver.wait(Some(now())).expect("to wait");
        drop(driver);
        // The end, or a reset; but not silence.
        let _ = client.read_to_end(&mut Vec::new());
        assert!(TcpStream::connect(address).is_err());
        DiskFile::open_or_create(&path, options).expect("the disk is free");
        std::fs::remove_file(&path).expect("to remove");
    }
}
