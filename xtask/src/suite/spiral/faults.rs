//! Nodes send while the network, the clients and the gateways are at their worst: over HTTP and
//! NFS at a time. Each byte is compared, and in each case nodes have sent what they could.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crossdock_sim::random::Random;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::doors::{Doors, FILE_BYTES, SITE_BYTES, wait, with_doors};
use super::readers::{Http, Nfs, joined};
use crate::process::run as run_program;
use crate::rig::cluster::{Cluster, Role};
use crate::suite::Stage;

/// Of the rule by which a gateway's sockets are routed to the program's device.
const RULE: &str = "3280";
/// The program on the way out.
const GUARD: &str = "redirector_guard";
const WAY_OUT: &str = "eth0";
const PATH: &str = "/big.bin";
const NAME: &str = "big.bin";
/// Both doors of a gateway.
const NFS_PORT: u16 = 2049;
/// HTTP clients beside the one of NFS.
const CLIENTS: u64 = 4;
const MIB: u64 = 1 << 20;
/// How long a client's window stays shut; in the long run, a minute.
const SHUT: Duration = Duration::from_secs(5);
const SHUT_LONG: Duration = Duration::from_secs(60);
/// Shorter than what has a gateway replaced (docs/operations.md).
const STOPPED: Duration = Duration::from_millis(1200);
/// What is lost where windows become small, and what HTTP clients read then.
const NARROW_PERMILLE: u32 = 200;
const NARROW_BYTES: u64 = 4 * MIB;
/// What is lost where no rule says that nodes send all the same.
const UNRULED_PERMILLE: u32 = 10;
/// How often they read, until windows have been small where more was to be read.
const NARROW_TRIES: u32 = 10;
/// Clients that come at once, and what each of them reads.
const CROWD: usize = 2000;
const CROWD_BYTES: u64 = 128 << 10;
/// Threads that read for them.
const CROWD_THREADS: usize = 8;

/// What is the matter with a client's network, and how much each door is asked for then.
struct Weather {
    name: &'static str,
    lost_permille: u32,
    late_permille: u32,
    has_sack: bool,
    has_timestamps: bool,
    /// Least, usual and most bytes of a receive buffer (tcp(7)).
    receive_buffer: &'static str,
    http_bytes: u64,
    nfs_bytes: u64,
}

const FAIR: Weather = Weather {
    name: "fair weather",
    lost_permille: 0,
    late_permille: 0,
    has_sack: true,
    has_timestamps: true,
    receive_buffer: "4096 131072 6291456",
    http_bytes: 32 * MIB,
    nfs_bytes: 32 * MIB,
};

const WEATHER: [Weather; 6] = [
    FAIR,
    Weather {
        name: "1 % lost",
        lost_permille: 10,
        ..FAIR
    },
    Weather {
        name: "5 % late",
        late_permille: 50,
        ..FAIR
    },
    Weather {
        name: "1 % lost and 5 % late without SACK",
        lost_permille: 10,
        late_permille: 50,
        has_sack: false,
        http_bytes: 8 * MIB,
        nfs_bytes: 8 * MIB,
        ..FAIR
    },
    Weather {
        name: "1 % lost without timestamps",
        lost_permille: 10,
        has_timestamps: false,
        ..FAIR
    },
    Weather {
        name: "receive buffers of 8 KiB",
        receive_buffer: "4096 8192 8192",
        http_bytes: 8 * MIB,
        nfs_bytes: 4 * MIB,
        ..FAIR
    },
];

pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    with_doors(stage, "suite-spiral-faults", |doors| all(doors, SHUT))
}

pub(in crate::suite) fn run_long(stage: &Stage<'_>) -> Result<()> {
    with_doors(stage, "suite-spiral-faults", |doors| all(doors, SHUT_LONG))
}

fn all(doors: &mut Doors<'_, '_>, shut: Duration) -> Result<()> {
    doors.have_all_injected()?;
    doors.over_ipv6()?;
    doors.weather()?;
    doors.long_packets().context("packets of 9000 bytes")?;
    let what = format!("{} s without a window", shut.as_secs());
    doors.counted(&what, 0, |doors| doors.without_window(shut))?;
    doors.counted("2,000 connections at once", 0, Doors::crowd)?;
    doors.counted("ranges of one byte among others", 0, Doors::single_bytes)?;
    doors.counted("clients that leave at any moment", 0, Doors::leave)?;
    doors.until("the pins are back", || Ok(doors.sent()?.pins == 0))?;
    doors.detached()?;
    doors.guarded()?;
    doors.promises().context("what was promised")
}

impl Doors<'_, '_> {
    pub(super) fn nfs_door(&self) -> SocketAddr {
        SocketAddr::new(self.http.ip(), NFS_PORT)
    }

    /// Both doors at a virtual address of IPv6.
    fn over_ipv6(&mut self) -> Result<()> {
        let address = self.cluster.virtual_ipv6().first().copied();
        let address = IpAddr::from(address.context("no address of IPv6")?);
        self.until("a gateway has it", || {
            Ok(!self.cluster.holders(address)?.is_empty())
        })?;
        self.counted("over IPv6", 0, |doors| {
            let door = SocketAddr::new(address, doors.http.port());
            doors.read_both(door, FAIR.http_bytes, FAIR.nfs_bytes)
        })
    }

    /// Every kind of weather over both doors, of packets as they come by a wire.
    fn weather(&mut self) -> Result<()> {
        self.cluster.cut_segments(true)?;
        for weather in &WEATHER {
            self.counted(weather.name, 0, |doors| {
                let client = &doors.client()?.name;
                set_tcp(weather)?;
                if weather.late_permille > 0 {
                    doors.cluster.make_late(client, weather.late_permille)?;
                }
                if weather.lost_permille > 0 {
                    doors.cluster.lose(client, weather.lost_permille)?;
                }
                let read = doors.read_both(doors.http, weather.http_bytes, weather.nfs_bytes);
                doors.cluster.clear(client)?;
                set_tcp(&FAIR)?;
                read
            })?;
        }
        self.narrow().context("20 % lost")?;
        self.unruled().context("1 % lost, without a rule")?;
        self.cluster.cut_segments(false)
    }

    /// Without a rule the gateway sends where much is lost, however wide windows are: not what
    /// each connection begins with.
    fn unruled(&mut self) -> Result<()> {
        self.have_none_ruled()?;
        let client = &self.client()?.name;
        self.cluster.lose(client, UNRULED_PERMILLE)?;
        let before = self.relayed_by_window()?;
        let read = self.read_both(self.http, FAIR.http_bytes, FAIR.nfs_bytes);
        let by_window = self.relayed_by_window()? - before;
        self.cluster.clear(client)?;
        let read = read?;
        println!("1 % lost, without a rule: {by_window} of {read} bytes relayed");
        ensure!(by_window > read / 4);
        self.have_all_injected()
    }

    /// Where so much is lost that windows stay small, the gateway sends itself.
    fn narrow(&self) -> Result<()> {
        let client = &self.client()?.name;
        let before = self.relayed_by_window()?;
        self.cluster.lose(client, NARROW_PERMILLE)?;
        // What is lost is chance, and what nodes have promised before that they send.
        let mut by_window = 0;
        let mut read = Ok(0);
        for _ in 0..NARROW_TRIES {
            read = self.read_both(self.http, NARROW_BYTES, NARROW_BYTES / CLIENTS);
            by_window = self.relayed_by_window()? - before;
            if read.is_err() || by_window > 0 {
                break;
            }
        }
        self.cluster.clear(client)?;
        read?;
        println!("20 % lost: {by_window} bytes relayed as windows were small");
        ensure!(by_window > 0);
        Ok(())
    }

    /// Bytes that the gateway has sent as windows were small.
    fn relayed_by_window(&self) -> Result<u64> {
        let told = self.transfer("gateway-0")?;
        Ok(told["relayed_bytes"]["window"].as_u64().unwrap_or(0))
    }

    /// Links that take them, at a gateway that has begun with them.
    fn long_packets(&mut self) -> Result<()> {
        self.cluster.kill_keeping_files("gateway-1")?;
        self.cluster.set_mtu(9000)?;
        self.cluster.restart("gateway-1")?;
        self.await_tunnels("gateway-1")?;
        self.cluster.cut_segments(true)?;
        self.counted("packets of 9000 bytes", 0, |doors| {
            doors.read_both(doors.other, FAIR.http_bytes, FAIR.nfs_bytes)
        })?;
        self.cluster.cut_segments(false)?;
        self.cluster.set_mtu(1500)
    }

    /// Several HTTP clients and one of NFS, all at once; the bytes that they have read.
    fn read_both(&self, door: SocketAddr, http_bytes: u64, nfs_bytes: u64) -> Result<u64> {
        let each = http_bytes / CLIENTS;
        let from = |number: u64| SITE_BYTES + number * each;
        let over_http = |number: u64| {
            let range = from(number)..from(number) + each;
            Http::connect(door)?.get(PATH, range, |at, bytes| self.judge(at, bytes))
        };
        let over_nfs = || {
            let door = SocketAddr::new(door.ip(), NFS_PORT);
            let range = SITE_BYTES..SITE_BYTES + nfs_bytes;
            Nfs::open(door, NAME)?.read(range, |at, bytes| self.judge(at, bytes))
        };
        let over_http = &over_http;
        thread::scope(|scope| {
            let nfs = scope.spawn(over_nfs);
            let http: Vec<_> = (0..CLIENTS)
                .map(|number| scope.spawn(move || over_http(number)))
                .collect();
            http.into_iter().chain([nfs]).try_for_each(joined)
        })?;
        Ok(http_bytes + nfs_bytes)
    }

    /// Clients of both doors that take nothing for a while, in the middle of what they have
    /// asked for.
    fn without_window(&self, shut: Duration) -> Result<u64> {
        let bytes = 48 * MIB;
        let range = SITE_BYTES..SITE_BYTES + bytes;
        let judge = |at: u64, got: &[u8]| self.judge(at, got);
        let over_http = || {
            let mut http = Http::connect(self.http)?;
            http.ask(PATH, &range)?;
            http.head()?;
            let middle = range.start + MIB;
            http.body(range.start..middle, judge)?;
            wait(shut);
            http.body(middle..range.end, judge)
        };
        let over_nfs = || {
            let mut nfs = Nfs::open(self.nfs_door(), NAME)?;
            let pieces: Vec<Range<u64>> = (0..16)
                .map(|number| range.start + number * MIB)
                .map(|from| from..from + MIB)
                .collect();
            pieces.iter().try_for_each(|piece| nfs.ask(piece.clone()))?;
            wait(shut);
            pieces.iter().try_for_each(|_| nfs.take(&mut { judge }))
        };
        thread::scope(|scope| {
            let both = [scope.spawn(over_http), scope.spawn(over_nfs)];
            both.into_iter().try_for_each(joined)
        })?;
        Ok(bytes + 16 * MIB)
    }

    /// All connect and ask before one of them reads.
    fn crowd(&self) -> Result<u64> {
        raise_descriptors()?;
        let mut random = Random::new(11);
        let mut clients = Vec::new();
        for _ in 0..CROWD {
            let room = FILE_BYTES as u64 - SITE_BYTES - CROWD_BYTES;
            let from = SITE_BYTES + random.below(room);
            let mut http = Http::connect(self.http)?;
            http.ask(PATH, &(from..from + CROWD_BYTES))?;
            clients.push((http, from));
        }
        let read = |some: &mut [(Http, u64)]| {
            some.iter_mut().try_for_each(|(http, from)| {
                http.head()?;
                let range = *from..*from + CROWD_BYTES;
                http.body(range, |at, bytes| self.judge(at, bytes))
            })
        };
        let read = &read;
        thread::scope(|scope| {
            let all: Vec<_> = clients
                .chunks_mut(CROWD / CROWD_THREADS)
                .map(|some| scope.spawn(move || read(some)))
                .collect();
            all.into_iter().try_for_each(joined)
        })?;
        Ok(CROWD as u64 * CROWD_BYTES)
    }

    /// What is too short for nodes is sent by the gateway, in order with what they send.
    fn single_bytes(&self) -> Result<u64> {
        let mut random = Random::new(12);
        let mut http = Http::connect(self.http)?;
        let mut sum = 0;
        for _ in 0..20 {
            let mut ranges = Vec::new();
            for length in [1, 200_000, 1, 1, 300_000] {
                let from = SITE_BYTES + random.below(FILE_BYTES as u64 - SITE_BYTES - length);
                http.ask(PATH, &(from..from + length))?;
                ranges.push(from..from + length);
            }
            for range in ranges {
                sum += range.end - range.start;
                http.head()?;
                http.body(range, |at, bytes| self.judge(at, bytes))?;
            }
        }
        Ok(sum)
    }

    /// Clients of both doors that go after any number of bytes, some with a reset; the bytes that
    /// have come to them.
    fn leave(&self) -> Result<u64> {
        let sum = AtomicU64::new(0);
        let judge = |at: u64, bytes: &[u8]| {
            sum.fetch_add(bytes.len() as u64, Relaxed);
            self.judge(at, bytes)
        };
        let clients = |seed: u64| {
            let mut random = Random::new(seed);
            for _ in 0..20 {
                let end = SITE_BYTES + 1 + random.below(6 * MIB);
                if random.one_in(3) {
                    let mut nfs = Nfs::open(self.nfs_door(), NAME)?;
                    (0..8).try_for_each(|number| {
                        let from = SITE_BYTES + number * MIB;
                        nfs.ask(from..from + MIB)
                    })?;
                    (0..random.below(8)).try_for_each(|_| nfs.take(&mut { judge }))?;
                    continue;
                }
                let mut http = Http::connect(self.http)?;
                http.ask(PATH, &(SITE_BYTES..FILE_BYTES as u64))?;
                http.head()?;
                http.body(SITE_BYTES..end, judge)?;
                if random.one_in(2) {
                    set_socket_linger(&http.socket, Some(Duration::ZERO))?;
                }
            }
            Ok(())
        };
        let clients = &clients;
        thread::scope(|scope| {
            let all: Vec<_> = (0..6)
                .map(|seed| scope.spawn(move || clients(20 + seed)))
                .collect();
            all.into_iter().try_for_each(joined)
        })?;
        Ok(sum.into_inner())
    }

    /// The program is taken off its device while clients read: nothing of a connection gets out
    /// until the gateway has put it back, and then all goes on.
    fn detached(&mut self) -> Result<()> {
        let netns = self.cluster.of(Role::Gateway).next().context("a gateway")?;
        let netns = netns.netns.clone();
        let tc = |words: &str| {
            let mut tc = Command::new("tc");
            run_program(tc.args(["-n", &netns]).args(words.split(' ')))
        };
        self.disturbed("the program taken off", |_| {
            tc("filter del dev crossdock-out egress")
        })?;
        self.disturbed("its queue taken away", |_| {
            tc("qdisc del dev crossdock-out clsact")
        })?;
        self.disturbed("taken off while the gateway stands still", |cluster| {
            cluster.signal("gateway-0", Signal::STOP)?;
            tc("filter del dev crossdock-out egress")?;
            wait(STOPPED);
            cluster.signal("gateway-0", Signal::CONT)
        })?;
        self.disturbed("the rule taken away that leads to it", |_| {
            let mut ip = Command::new("ip");
            run_program(ip.args(["-n", &netns, "rule", "del", "priority", RULE]))
        })
    }

    /// A program on the way out itself holds up what a missing rule leads there. It stands there
    /// as long as nodes send, and all else passes without it.
    fn guarded(&mut self) -> Result<()> {
        let netns = self.cluster.of(Role::Gateway).next().context("a gateway")?;
        let netns = netns.netns.clone();
        let is_guarded = || -> Result<bool> {
            let mut tc = Command::new("tc");
            tc.args(["-n", &netns, "filter", "show", "dev", WAY_OUT, "egress"]);
            let shown = tc.output()?;
            ensure!(shown.status.success(), "tc: {shown:?}");
            Ok(String::from_utf8_lossy(&shown.stdout).contains(GUARD))
        };
        let looked_at = |doors: &mut Self| {
            doors.disturbed("the guard looked at", |_| {
                ensure!(is_guarded()?, "no guard is on the way out");
                Ok(())
            })
        };
        looked_at(self)?;
        self.until("the guard is gone", || Ok(!is_guarded()?))?;
        looked_at(self)
    }

    /// Something happens while clients of both doors read: every read comes to its end.
    fn disturbed(
        &mut self,
        what: &str,
        act: impl FnOnce(&Cluster<'_>) -> Result<()> + Send,
    ) -> Result<()> {
        self.counted(what, 0, |doors| {
            let (is_over, sum) = (AtomicBool::new(false), AtomicU64::new(0));
            let by_window = doors.relayed_by_window()?;
            let range = SITE_BYTES..SITE_BYTES + 16 * MIB;
            let until_over = |read: &dyn Fn() -> Result<()>| {
                while !is_over.load(Relaxed) {
                    read()?;
                    sum.fetch_add(range.end - range.start, Relaxed);
                }
                Ok(())
            };
            let over_http = || {
                Http::connect(doors.http)?
                    .get(PATH, range.clone(), |at, bytes| doors.judge(at, bytes))
            };
            let over_nfs = || {
                Nfs::open(doors.nfs_door(), NAME)?
                    .read(range.clone(), |at, bytes| doors.judge(at, bytes))
            };
            let cluster = &*doors.cluster;
            thread::scope(|scope| {
                let readers = [
                    scope.spawn(|| until_over(&over_http)),
                    scope.spawn(|| until_over(&over_http)),
                    scope.spawn(|| until_over(&over_nfs)),
                ];
                wait(Duration::from_millis(500));
                let acted = act(cluster);
                wait(Duration::from_secs(2));
                is_over.store(true, Relaxed);
                let read = readers.into_iter().try_for_each(joined);
                acted.and(read)
            })?;
            // What nodes may not send while nothing gets through.
            let by_window = doors.relayed_by_window()? - by_window;
            Ok(sum.into_inner().saturating_sub(by_window))
        })
    }
}

/// The client's own TCP; called in its network.
fn set_tcp(weather: &Weather) -> Result<()> {
    let is = |is_so: bool| u8::from(is_so).to_string();
    for (name, value) in [
        ("tcp_sack", is(weather.has_sack)),
        ("tcp_timestamps", is(weather.has_timestamps)),
        ("tcp_rmem", weather.receive_buffer.to_owned()),
    ] {
        fs::write(format!("/proc/sys/net/ipv4/{name}"), value).context(name)?;
    }
    Ok(())
}

/// As many as there are clients at once, and some.
fn raise_descriptors() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = 2 * CROWD as u64;
    if limit.current.is_some_and(|current| current < wanted) {
        let (current, maximum) = (Some(wanted), limit.maximum);
        setrlimit(Resource::Nofile, Rlimit { current, maximum })?;
    }
    Ok(())
}
