//! The cases: what networks, clients and gateways do to third-party transfer.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use crossdock_bpf::Room;
use crossdock_tunnel::{Envelope, Seal, TunnelKey};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::AsFd;

use crate::Host;
use crate::client::{self, End, Manner};
use crate::gateway::{GATEWAY, Gateway, pause};
use crate::model::Shape;
use crate::node::{Nodes, host_of};

pub(crate) const DEVICE: &str = "eth0";
const TUNNEL_PORT: u16 = 7072;
const DOOR_PORT: u16 = 8000;
/// How long nothing may come to a client that is to come to its end.
const PATIENCE: Duration = Duration::from_secs(20);
/// After how long without a byte a client whose connection is dead is sure of it.
const SILENCE: Duration = Duration::from_secs(3);
/// When the gateway fails in the middle of what it sends.
const FAILS_AFTER: Duration = Duration::from_millis(100);
const MIB: u64 = 1 << 20;
/// Nodes that have extents.
pub(crate) const NODES: u64 = 3;

/// What happens to the gateway in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    None,
    /// The program is taken off the device.
    Detached,
    /// The process stands still for a while.
    Stopped,
    /// The process is gone; another one begins on the same device.
    Replaced,
    /// The program does not know the slots of its connections any more.
    Forgotten,
    /// Clocks of nodes go ahead by an hour, and back.
    Jumped,
}

/// For how much the program has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rooms {
    Usual,
    /// Few connections.
    Slots,
    /// Few packets that nobody has been told of.
    Events,
}

impl Rooms {
    fn room(self) -> Room {
        let mut room = Room::default();
        match self {
            Self::Usual => {}
            Self::Slots => room.connections = 16,
            Self::Events => room.event_bytes = 4096,
        }
        room
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    connections: u64,
    shape: Shape,
    manner: Manner,
    /// Of 1000 packets.
    lost: u64,
    swapped: u64,
    /// Settings of the client's TCP, and its MTU.
    has_sack: bool,
    has_timestamps: bool,
    mtu: u32,
    failure: Failure,
    rooms: Rooms,
}

const USUAL: Case = Case {
    name: "usual",
    connections: 1,
    shape: Shape {
        total: 256 * MIB,
        literal_max: 300,
        extent_max: MIB,
        nodes: NODES,
    },
    manner: Manner {
        receive_buffer: None,
        rest: Duration::ZERO,
        leaves_after: None,
    },
    lost: 0,
    swapped: 0,
    has_sack: true,
    has_timestamps: true,
    mtu: 1500,
    failure: Failure::None,
    rooms: Rooms::Usual,
};

const fn shape(total: u64, literal_max: u64, extent_max: u64) -> Shape {
    Shape {
        total,
        literal_max,
        extent_max,
        nodes: NODES,
    }
}

const CASES: [Case; 20] = [
    USUAL,
    Case {
        name: "all of one node",
        shape: Shape {
            nodes: 1,
            ..USUAL.shape
        },
        ..USUAL
    },
    Case {
        name: "extents of up to 20 bytes",
        shape: shape(MIB / 4, 40, 20),
        ..USUAL
    },
    Case {
        name: "long literals between extents",
        shape: shape(32 * MIB, 50_000, 100_000),
        ..USUAL
    },
    Case {
        name: "64 connections",
        connections: 64,
        shape: shape(4 * MIB, 300, 64 << 10),
        ..USUAL
    },
    Case {
        name: "64 connections, all of one node",
        connections: 64,
        shape: Shape {
            nodes: 1,
            ..shape(4 * MIB, 300, 64 << 10)
        },
        ..USUAL
    },
    Case {
        name: "1 % lost",
        connections: 4,
        shape: shape(16 * MIB, 300, 256 << 10),
        lost: 10,
        ..USUAL
    },
    Case {
        name: "5 % swapped",
        connections: 4,
        shape: shape(16 * MIB, 300, 256 << 10),
        swapped: 50,
        ..USUAL
    },
    Case {
        name: "1 % lost without SACK and timestamps",
        connections: 4,
        shape: shape(8 * MIB, 300, 256 << 10),
        lost: 10,
        has_sack: false,
        has_timestamps: false,
        ..USUAL
    },
    Case {
        name: "MTU of 576",
        shape: shape(16 * MIB, 300, 256 << 10),
        mtu: 576,
        ..USUAL
    },
    Case {
        name: "windows of 2 KiB",
        shape: shape(2 * MIB, 300, 64 << 10),
        manner: Manner {
            receive_buffer: Some(2048),
            ..USUAL.manner
        },
        ..USUAL
    },
    Case {
        name: "5 s without a window",
        shape: shape(32 * MIB, 300, MIB),
        manner: Manner {
            rest: Duration::from_secs(5),
            ..USUAL.manner
        },
        ..USUAL
    },
    Case {
        name: "clients that leave",
        connections: 16,
        shape: shape(64 * MIB, 300, MIB),
        manner: Manner {
            leaves_after: Some(3 * MIB),
            ..USUAL.manner
        },
        ..USUAL
    },
    Case {
        name: "a gateway that stands still",
        connections: 4,
        shape: shape(128 * MIB, 300, MIB),
        failure: Failure::Stopped,
        ..USUAL
    },
    Case {
        name: "the program detached",
        connections: 4,
        shape: shape(1024 * MIB, 300, MIB),
        failure: Failure::Detached,
        ..USUAL
    },
    Case {
        name: "no room for connections",
        connections: 64,
        shape: shape(8 * MIB, 300, MIB),
        rooms: Rooms::Slots,
        ..USUAL
    },
    Case {
        name: "no room for what is caught",
        connections: 64,
        shape: shape(8 * MIB, 300, MIB),
        failure: Failure::Stopped,
        rooms: Rooms::Events,
        ..USUAL
    },
    Case {
        name: "clocks that jump",
        connections: 4,
        shape: shape(256 * MIB, 300, MIB),
        failure: Failure::Jumped,
        ..USUAL
    },
    Case {
        name: "slots that nobody knows",
        connections: 4,
        shape: shape(1024 * MIB, 300, MIB),
        failure: Failure::Forgotten,
        ..USUAL
    },
    Case {
        name: "another gateway on the same device",
        connections: 4,
        shape: shape(1024 * MIB, 300, MIB),
        failure: Failure::Replaced,
        ..USUAL
    },
];

/// Runs all cases one after the other; prints a line for each.
pub(crate) fn run(client: &Host, gateway: &Host, hosts: &[Host]) -> Result<()> {
    let address = |host: &Host| SocketAddr::new(host.address, TUNNEL_PORT);
    let nodes = &Nodes::new(hosts.iter().map(address).collect());
    thread::scope(|scope| {
        let serve = |(number, host)| scope.spawn(move || within(host, || nodes.serve(number)));
        let served: Vec<_> = hosts.iter().enumerate().map(serve).collect();
        let all = all_cases(client, gateway, nodes);
        nodes.is_over.store(true, Relaxed);
        for node in served {
            joined(node)?;
        }
        all
    })
}

fn all_cases(client: &Host, gateway: &Host, nodes: &Nodes) -> Result<()> {
    for (number, case) in (1_u64..).zip(CASES) {
        let line = one(case, number, client, gateway, nodes);
        println!("{}", line.with_context(|| case.name)?);
    }
    forged(client, nodes)?;
    println!("forged datagrams: refused");
    Ok(())
}

/// Runs a case; says what it has moved.
fn one(case: Case, number: u64, client: &Host, host: &Host, nodes: &Nodes) -> Result<String> {
    prepare(client, case)?;
    nodes.mischief.lost.store(case.lost, Relaxed);
    nodes.mischief.swapped.store(case.swapped, Relaxed);
    let door = SocketAddr::new(host.address, DOOR_PORT);
    nodes.admit(number, door);
    let (gateway, listener, sent_before) = within(host, || {
        let gateway = Gateway::new(DEVICE, nodes, number, case.rooms.room())?;
        Ok((gateway, TcpListener::bind(door)?, sent_bytes()?))
    })?;
    let before = nodes.figures();
    let started = Instant::now();
    let ends = thread::scope(|scope| {
        let redirect = scope.spawn(|| within(host, || gateway.redirect()));
        let listen = scope.spawn(|| {
            within(host, || {
                thread::scope(|scope| gateway.listen(scope, &listener, case.shape))
            })
        });
        let fails = scope.spawn(|| fail(case.failure, host, &gateway, nodes));
        let ends = clients(case, number, client, door);
        let failed = joined(fails);
        if !is_fatal(case.failure) {
            // Connections that have ended leave nothing behind.
            let until = Instant::now() + PATIENCE;
            while gateway.connections() > 0 && Instant::now() < until {
                pause(Duration::from_millis(10));
            }
        }
        let left = gateway.connections();
        gateway.is_over.store(true, Relaxed);
        joined(redirect)?;
        joined(listen)?;
        failed?;
        ensure!(
            left == 0 || is_fatal(case.failure),
            "{left} connections are left"
        );
        ends
    })?;
    let run = Run {
        seconds: started.elapsed().as_secs_f64(),
        sent_bytes: within(host, sent_bytes)? - sent_before,
        eligible_bytes: gateway.eligible_bytes.load(Relaxed),
        relayed_bytes: gateway.relayed_bytes.load(Relaxed),
        nodes: (before, nodes.figures()),
        gateway: gateway.figures()?,
        ends,
    };
    run.judge(case)?;
    Ok(run.line(case))
}

/// What a case has done.
struct Run {
    seconds: f64,
    /// By the gateway's link.
    sent_bytes: u64,
    eligible_bytes: u64,
    relayed_bytes: u64,
    /// Before and after.
    nodes: (crossdock_inflator::Figures, crossdock_inflator::Figures),
    gateway: (crossdock_bpf::Figures, crossdock_redirector::Figures),
    ends: Vec<End>,
}

impl Run {
    fn injected_bytes(&self) -> u64 {
        self.nodes.1.injected_bytes - self.nodes.0.injected_bytes
    }

    /// Whether every client has come to the end that it should, by bytes that nodes sent.
    fn judge(&self, case: Case) -> Result<()> {
        for end in &self.ends {
            let is_right = match (case.failure, case.manner.leaves_after) {
                // Whoever takes the device over resets what passed there.
                (Failure::Replaced, _) | (_, Some(_)) => matches!(end, End::Reset(_)),
                (Failure::Detached | Failure::Forgotten, _) => matches!(end, End::Silence(_)),
                _ => matches!(end, End::Whole(_)),
            };
            ensure!(is_right, "a client's end was {end:?}; {:?}", self.gateway);
        }
        let is_whole = !is_fatal(case.failure) && case.manner.leaves_after.is_none();
        ensure!(
            !is_whole || self.injected_bytes() >= self.eligible_bytes,
            "{} of {} bytes were injected",
            self.injected_bytes(),
            self.eligible_bytes
        );
        // What the case is about has happened.
        let (kernel, _) = &self.gateway;
        let has_happened = match (case.rooms, case.failure) {
            (Rooms::Slots, _) => self.relayed_bytes > 0 && self.eligible_bytes > 0,
            (Rooms::Events, _) => kernel.full > 0,
            (_, Failure::Forgotten) => kernel.unknown > 0,
            _ => true,
        };
        ensure!(
            has_happened,
            "{} bytes relayed; {kernel:?}",
            self.relayed_bytes
        );
        Ok(())
    }

    fn line(&self, case: Case) -> String {
        let seen: u64 = self.ends.iter().map(|end| bytes_of(*end)).sum();
        let ((before, after), (kernel, ours)) = (&self.nodes, &self.gateway);
        format!(
            "{}: {:.1} MB right, {:.1} MB injected in {} packets ({} merged), {:.1} MB by the \
             gateway's link, {:.1} MB/s; {} caught, {} datagrams, {} turns ({} untold), \
             {} of nobody, {} too late, {} passed",
            case.name,
            mega(seen),
            mega(self.injected_bytes()),
            after.sent - before.sent,
            after.merged - before.merged,
            mega(self.sent_bytes),
            mega(seen) / self.seconds,
            kernel.caught,
            ours.datagrams,
            ours.turns,
            after.untold - before.untold,
            ours.unsent + ours.unreachable + kernel.unknown + kernel.full,
            kernel.late,
            kernel.passed,
        )
    }
}

const fn is_fatal(failure: Failure) -> bool {
    matches!(
        failure,
        Failure::Detached | Failure::Replaced | Failure::Forgotten
    )
}

const fn bytes_of(end: End) -> u64 {
    match end {
        End::Whole(bytes) | End::Silence(bytes) | End::Reset(bytes) => bytes,
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn clients(case: Case, number: u64, host: &Host, door: SocketAddr) -> Result<Vec<End>> {
    let patience = match is_fatal(case.failure) {
        true => SILENCE,
        false => PATIENCE,
    };
    thread::scope(|scope| {
        let read = |connection: u64| {
            let seed = number << 32 | connection;
            move || {
                within(host, || {
                    client::read(door, seed, case.shape, case.manner, patience)
                })
            }
        };
        let all: Vec<_> = (0..case.connections)
            .map(|connection| scope.spawn(read(connection)))
            .collect();
        all.into_iter().map(joined).collect()
    })
}

/// What happens to the gateway while it sends.
fn fail(failure: Failure, host: &Host, gateway: &Gateway<'_>, nodes: &Nodes) -> Result<()> {
    pause(FAILS_AFTER);
    match failure {
        Failure::None => Ok(()),
        Failure::Detached => within(host, || {
            command("tc", "filter del dev crossdock-out egress")
        }),
        Failure::Stopped => {
            gateway.is_deaf.store(true, Relaxed);
            pause(Duration::from_secs(2));
            gateway.is_deaf.store(false, Relaxed);
            Ok(())
        }
        Failure::Forgotten => {
            gateway.forget();
            Ok(())
        }
        Failure::Jumped => {
            for seconds in [3600, 0] {
                nodes.ahead.store(seconds, Relaxed);
                pause(FAILS_AFTER);
            }
            Ok(())
        }
        // What the old one has in the kernel's hands goes on until then; that the new program
        // knows none of it must not let anything out.
        Failure::Replaced => within(host, || {
            let _other = Gateway::new(DEVICE, nodes, 0, Room::default())?;
            pause(2 * SILENCE);
            Ok(())
        }),
    }
}

/// What nobody may do: a datagram of another key, one that was sent before, and noise.
fn forged(client: &Host, nodes: &Nodes) -> Result<()> {
    let before = nodes.figures();
    let other = TunnelKey {
        id: 1,
        key: [8; 32],
    };
    let envelope = Envelope {
        sender: GATEWAY,
        sender_boot: CASES.len() as u64,
        receiver_boot: host_of(0).0,
        sequence: u64::MAX,
    };
    let (sealed, again) = (
        Seal::new(&envelope, &other),
        Envelope {
            sequence: 1,
            ..envelope
        },
    );
    let all = [
        sealed.finish(),
        Seal::new(&again, &nodes.key).finish(),
        vec![0; 100],
    ];
    within(client, || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for datagram in &all {
            socket.send_to(datagram, nodes.addresses[0])?;
        }
        Ok(())
    })?;
    let until = Instant::now() + PATIENCE;
    let dropped = || nodes.figures().forged + nodes.figures().stale - before.forged - before.stale;
    while dropped() < 3 && Instant::now() < until {
        pause(Duration::from_millis(10));
    }
    ensure!(
        dropped() == 3,
        "{} of 3 forged datagrams were refused",
        dropped()
    );
    let is_same = nodes.figures().sent == before.sent;
    ensure!(is_same, "a forged datagram was served");
    Ok(())
}

/// The client's side of the network as the case wants it.
fn prepare(client: &Host, case: Case) -> Result<()> {
    within(client, || {
        for (name, is_on) in [
            ("tcp_sack", case.has_sack),
            ("tcp_timestamps", case.has_timestamps),
        ] {
            let path = format!("/proc/sys/net/ipv4/{name}");
            fs::write(path, u8::from(is_on).to_string())?;
        }
        command("ip", &format!("link set dev {DEVICE} mtu {}", case.mtu))
    })
}

/// Bytes that have left by this host's network so far (proc_net_dev(5)).
fn sent_bytes() -> Result<u64> {
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(&format!("{DEVICE}:")));
    let sent = line.and_then(|line| line.split_whitespace().nth(8));
    Ok(sent.context("no figures of the device")?.parse()?)
}

pub(crate) fn command(name: &str, words: &str) -> Result<()> {
    let status = Command::new(name).args(words.split(' ')).status()?;
    ensure!(status.success(), "{name} {words}: {status}");
    Ok(())
}

/// Does `work` on a thread that is in a host's network, as are those that it starts.
pub(crate) fn within<T: Send>(host: &Host, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let namespace = File::open(format!("/run/netns/{}", host.netns))?;
    thread::scope(|scope| {
        joined(scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        }))
    })
}

pub(crate) fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .map_err(|_| anyhow!("a thread has panicked"))?
}
