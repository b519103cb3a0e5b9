//! Nodes send replies over UDP: a client of our own, as libnfs does not speak it.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::{Call, HandleBuffer, Location, Name, Path, Reply, mount};
use crossdock_sim::random::Random;
use crossdock_tests_crash::client::{call_by_datagram, mount_by_datagram};
use crossdock_tests_crash::datagrams::{DatagramReader, Reading};
use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto, recv, socket};
use serde_json::Value;

use super::doors::{Doors, FILE_BYTES, INJECTED_MIN, SITE_BYTES};
use crate::rig::cluster::{Role, in_network};

/// As much as a READ over UDP gives.
const READ_BYTES: usize = 32 << 10;
const WINDOW: usize = 8;
/// Of what is read, so much may leave the gateway by its link: calls to nodes, and what it
/// tells them.
const LINK_MAX: f64 = 0.10;
const TUNNEL_PORT: u16 = 7072;

/// A file over UDP.
pub(super) struct Served {
    door: SocketAddr,
    file: HandleBuffer,
}

/// What was sent over UDP in which way, of all hosts together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) injected: u64,
    relayed: u64,
    lost: u64,
    by_nodes: u64,
    /// Records and packets that nodes have not filled.
    refused: u64,
}

/// What the client's kernel has not put together, and what its sockets had no room for.
#[derive(Clone, Copy, Debug)]
struct Missed {
    fragments: u64,
    datagrams: u64,
}

impl Missed {
    /// Of this thread's network so far.
    fn now() -> Result<Self> {
        let table = fs::read_to_string("/proc/thread-self/net/snmp")?;
        let number = |protocol: &str, name: &str| {
            let mut lines = table.lines().filter(|line| line.starts_with(protocol));
            let (names, values) = (lines.next()?, lines.next()?);
            let mut both = names.split(' ').zip(values.split(' '));
            both.find(|(of, _)| *of == name)?.1.parse().ok()
        };
        Ok(Self {
            fragments: number("Ip:", "ReasmFails").context("no counter")?,
            datagrams: number("Udp:", "RcvbufErrors").context("no counter")?,
        })
    }
}

impl Served {
    /// The file that is read most, at a door.
    pub(super) fn at(door: SocketAddr) -> Result<Self> {
        Self::find(door, "big.bin")
    }

    /// A file at the top, at a door.
    pub(super) fn find(door: SocketAddr, name: &str) -> Result<Self> {
        let root = match mount_by_datagram(door, &mount::Call::Mnt(Path(b"/")))? {
            mount::Reply::Mnt(Ok(mounted)) => mounted.root,
            other => bail!("{other:?}"),
        };
        let location = Location {
            directory: root.as_handle(),
            name: Name(name.as_bytes()),
        };
        match call_by_datagram(door, &Call::Lookup(location))? {
            Reply::Lookup(Ok(found)) => Ok(Self {
                door,
                file: found.object,
            }),
            other => bail!("{other:?}"),
        }
    }

    /// Reads, and how many calls had to be sent again.
    pub(super) fn read(&self, what: Reading) -> Result<(Vec<u8>, u64)> {
        let mut reader = DatagramReader::connect(self.door)?;
        let read = reader.read(&self.file, what)?;
        Ok((read, reader.sent_again))
    }

    /// Reads all of it again and again, whatever happens meanwhile: what is lost is asked for
    /// once more, and comes.
    pub(super) fn read_until(&self, is_over: &AtomicBool, content: &[u8]) -> Result<()> {
        let (mut whole, mut sent_again) = (0, 0);
        while !is_over.load(Relaxed) {
            let (got, again) = self.read(reading(0, FILE_BYTES))?;
            ensure!(got == content, "wrong bytes over UDP");
            whole += 1;
            sent_again += again;
        }
        println!("over UDP meanwhile: {whole} times whole, {sent_again} calls sent again");
        ensure!(whole >= 2, "{whole} times whole over UDP");
        Ok(())
    }
}

pub(super) const fn reading(offset: u64, length: usize) -> Reading {
    Reading {
        offset,
        length,
        count_bytes: READ_BYTES,
        window: WINDOW,
    }
}

impl Doors<'_, '_> {
    pub(super) fn over_udp(&self) -> Result<()> {
        let own = Served::at(self.cluster.nfs_doors()[0])?;
        self.counted_udp("NFS over UDP", &own, reading(0, FILE_BYTES))?;
        let at_virtual = Served::at(*self.cluster.virtual_doors().first().context("none")?)?;
        let some = reading(8 << 20, 8 << 20);
        self.counted_udp("NFS over UDP at a virtual address", &at_virtual, some)?;
        let short = Reading {
            count_bytes: 4096,
            ..reading(1 << 20, 4 << 20)
        };
        self.counted_udp("NFS over UDP, 4 KiB", &own, short)?;
        self.any_ranges(&own).context("ranges over UDP")?;
        self.replayed(&own)
            .context("datagrams of the tunnel that come again")
    }

    /// Reads: right, and by nodes.
    fn counted_udp(&self, what: &str, served: &Served, part: Reading) -> Result<()> {
        let (before, link) = (self.sent_udp()?, self.sent()?.from_gateways);
        let missed = Missed::now()?;
        let began = Instant::now();
        let (got, sent_again) = served.read(part).with_context(|| what.to_owned())?;
        let took = began.elapsed();
        self.compare(usize::try_from(part.offset)?, &got)?;
        let after = self.sent_udp()?;
        let link = (self.sent()?.from_gateways - link) as f64 / got.len() as f64;
        let site_bytes = SITE_BYTES.saturating_sub(part.offset);
        let eligible = (got.len() as u64 - site_bytes) as f64;
        let injected = (after.injected - before.injected) as f64 / eligible;
        let by_nodes = (after.by_nodes - before.by_nodes) as f64 / eligible;
        let now_missed = Missed::now()?;
        println!(
            "{what}: {} bytes, {:.1} % of the eligible sent by nodes ({:.1} % with what was repeated), gateways' links {:.1} %, {:.0} MB/s, {sent_again} calls sent again ({} datagrams not put together, {} without room, {} records refused, {} replies lost)",
            got.len(),
            100.0 * injected,
            100.0 * by_nodes,
            100.0 * link,
            got.len() as f64 / took.as_secs_f64() / 1e6,
            now_missed.fragments - missed.fragments,
            now_missed.datagrams - missed.datagrams,
            after.refused - before.refused,
            after.lost - before.lost,
        );
        ensure!(injected >= INJECTED_MIN, "{before:?} {after:?}");
        ensure!(by_nodes >= INJECTED_MIN, "{before:?} {after:?}");
        let is_long = part.count_bytes == READ_BYTES;
        ensure!(!is_long || link < LINK_MAX, "{before:?} {after:?}");
        Ok(())
    }

    /// Short ones, and those that lie over stripes, are relayed: all are right.
    fn any_ranges(&self, served: &Served) -> Result<()> {
        let mut random = Random::new(10);
        let before = self.sent_udp()?;
        for _ in 0..200 {
            let length = 1 + random.index(3 * READ_BYTES);
            let offset = random.index(FILE_BYTES - length);
            let part = Reading {
                offset: offset as u64,
                length,
                count_bytes: 1 + random.index(READ_BYTES),
                window: 4,
            };
            // A call for each kilobyte is enough.
            let part = Reading {
                count_bytes: part.count_bytes.max(1024),
                ..part
            };
            let (got, _) = served.read(part)?;
            ensure!(got.len() == length, "{} of {length}", got.len());
            self.compare(offset, &got)?;
        }
        let after = self.sent_udp()?;
        ensure!(after.injected > before.injected, "{before:?} {after:?}");
        ensure!(after.relayed > before.relayed, "{before:?} {after:?}");
        Ok(())
    }

    /// What a gateway has told a node, sent once more by somebody who has seen it, does nothing, and
    /// is counted.
    fn replayed(&self, served: &Served) -> Result<()> {
        let node = self.cluster.of(Role::Node).next().context("a node")?;
        // It gets a copy of all that comes to the node over UDP.
        let all = in_network(&node.netns, || {
            let udp = Some(ipproto::UDP);
            Ok(socket(AddressFamily::INET, SocketType::RAW, udp)?)
        })?;
        served.read(reading(16 << 20, 4 << 20))?;
        let mut buffer = vec![0; 65_536];
        let mut seen = Vec::new();
        while let Ok((length, _)) = recv(&all, &mut buffer[..], RecvFlags::DONTWAIT) {
            // Behind headers of IP without options, and of UDP.
            let is_tunnel = buffer[22..24] == TUNNEL_PORT.to_be_bytes();
            if is_tunnel && length > 28 && buffer[28..].starts_with(b"XDTU") {
                seen.push(buffer[28..length].to_vec());
            }
        }
        ensure!(!seen.is_empty(), "the node was told nothing");
        let count = |told: &Value, why: &str| told["refused"][why].as_u64().unwrap_or(0);
        let sent = |told: &Value| told["udp"]["sent"].as_u64();
        let before = self.transfer(&node.name)?;
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for datagram in &seen {
            socket.send_to(datagram, (node.address, TUNNEL_PORT))?;
        }
        self.until("all are counted", || {
            let told = self.transfer(&node.name)?;
            Ok(count(&told, "stale") >= count(&before, "stale") + seen.len() as u64)
        })?;
        let after = self.transfer(&node.name)?;
        ensure!(sent(&after) == sent(&before), "{before} {after}");
        println!("{} datagrams of the tunnel came again: refused", seen.len());
        Ok(())
    }

    pub(super) fn sent_udp(&self) -> Result<Sent> {
        let mut sent = Sent::default();
        let number = |told: &Value, what: &str| told["udp"][what].as_u64().unwrap_or(0);
        for host in self.running(Role::Gateway) {
            let told = self.transfer(&host)?;
            sent.injected += number(&told, "injected_bytes");
            sent.relayed += number(&told, "relayed");
            sent.lost += number(&told, "lost");
        }
        for host in self.running(Role::Node) {
            let told = self.transfer(&host)?;
            sent.by_nodes += number(&told, "sent_bytes");
            let refused = told["refused"].as_object().into_iter().flatten();
            sent.refused += refused.filter_map(|(_, count)| count.as_u64()).sum::<u64>();
        }
        Ok(sent)
    }
}
