//! Datagrams of UDP that a node sends under another address, in fragments: a real kernel of a
//! client puts them together, of both versions of IP.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use crossdock_bpf::{SendDevice, Speaker};
use crossdock_inflator::{Head, packets};
use crossdock_sim::random::Random;
use crossdock_types::Payload;

use crate::Host;
use crate::cases::{DEVICE, command, joined, within};

/// In a network of their own: the client, the node, and as whom the node speaks.
const CLIENT: &str = "fd00:cd::9";
const NODE: &str = "fd00:cd::2";
const GATEWAY: &str = "fd00:cd::1";
const GATEWAY_PORT: u16 = 2049;
const PATIENCE: Duration = Duration::from_secs(5);
/// Beside those whose length is at a bound.
const RANDOM_LENGTHS: usize = 150;
const BYTES_MAX: usize = 65_507;

/// Sends datagrams of all lengths over both versions; each must come as it was sent.
pub(crate) fn run(client: &Host, gateway: &Host, node: &Host) -> Result<()> {
    for (host, address) in [(client, CLIENT), (node, NODE)] {
        let words = format!("-6 address replace {address}/64 dev {DEVICE} nodad");
        within(host, || command("ip", &words))?;
    }
    let device = within(node, || Ok(SendDevice::make(Speaker::Node)?))?;
    let of_ipv4 = (gateway.address, client.address);
    let of_ipv6 = (GATEWAY.parse()?, CLIENT.parse()?);
    for ((source, destination), mtus) in [(of_ipv4, [1500, 576]), (of_ipv6, [1500, 1280])] {
        for mtu in mtus {
            let count = send(client, node, &device, (source, destination), mtu)
                .with_context(|| format!("{source} to {destination}, MTU {mtu}"))?;
            println!("{count} datagrams from {source} to {destination}, MTU {mtu}: right");
        }
    }
    Ok(())
}

fn send(
    client: &Host,
    node: &Host,
    device: &SendDevice,
    (source, destination): (IpAddr, IpAddr),
    mtu: u16,
) -> Result<usize> {
    let socket = within(client, || {
        let socket = UdpSocket::bind((destination, 0))?;
        socket.connect((source, GATEWAY_PORT))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    })?;
    let destination = socket.local_addr()?;
    let mut random = Random::new(u64::from(mtu));
    let contents = contents(mtu, &mut random);
    let all = &contents;
    let (arrived, arrivals) = mpsc::channel();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&socket, all, &arrived));
        let sender = scope.spawn(move || {
            within(node, move || {
                for (number, content) in (7..).zip(all) {
                    let head = Head {
                        source: SocketAddr::new(source, GATEWAY_PORT),
                        destination,
                        identification: number,
                        mtu,
                    };
                    pass(device, &head, content, &mut random)?;
                    arrivals
                        .recv_timeout(PATIENCE)
                        .with_context(|| format!("{} bytes did not arrive", content.len()))?;
                }
                Ok(())
            })
        });
        let (sent, received) = (joined(sender), joined(receiver));
        sent.and(received)
    })?;
    Ok(all.len())
}

/// Lengths around what fits into one packet and into few, and any.
fn contents(mtu: u16, random: &mut Random) -> Vec<Vec<u8>> {
    let mtu = usize::from(mtu);
    let near = [1, 2, 3, 22].map(|count| (count * mtu).saturating_sub(80)..count * mtu);
    let near = near.into_iter().flatten();
    let mut lengths: Vec<usize> = near.chain([1, 32_768 + 128, BYTES_MAX]).collect();
    lengths.extend((0..RANDOM_LENGTHS).map(|_| 1 + random.index(BYTES_MAX)));
    let content = |length: usize| {
        let mut bytes = vec![0; length];
        random.fill(&mut bytes);
        bytes
    };
    lengths.into_iter().map(content).collect()
}

/// Sends the packets of a datagram, whose payload lies in pieces, in any order where they are
/// several: the kernel cuts those of IPv4.
fn pass(device: &SendDevice, head: &Head, content: &[u8], random: &mut Random) -> Result<()> {
    let mut payload = Payload::new();
    let mut rest = content;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(1 + random.index(rest.len()));
        payload.push(Bytes::copy_from_slice(piece));
        rest = behind;
    }
    let mut packets = packets(head, &payload).context("no datagram")?.filled;
    let first = random.index(packets.len());
    packets.rotate_left(first);
    for packet in &packets {
        let front = [&packet.frame.offload[..], &packet.frame.headers];
        let payload = packet.payload.iter().map(|bytes| &bytes[..]);
        let pieces: Vec<_> = front.into_iter().chain(payload).map(IoSlice::new).collect();
        device.send(&pieces)?;
    }
    Ok(())
}

fn receive(socket: &UdpSocket, all: &[Vec<u8>], arrived: &mpsc::Sender<()>) -> Result<()> {
    let mut buffer = vec![0; BYTES_MAX + 1];
    for content in all {
        let length = socket.recv(&mut buffer).context("nothing came")?;
        ensure!(
            buffer[..length] == content[..],
            "{length} bytes of {} are not what was sent",
            content.len()
        );
        arrived.send(())?;
    }
    Ok(())
}
