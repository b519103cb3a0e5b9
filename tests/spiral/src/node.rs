//! Nodes: what comes through the tunnel goes out as the gateway's packets.

use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use crossdock_bpf::SendDevice;
use crossdock_inflator::finish;
use crossdock_tunnel::{Packet, Part, ReplayWindow, TunnelKey, open};

use crate::model::{Random, held};

/// What a node does to packets, in thousandths.
#[derive(Debug, Default)]
pub(crate) struct Mischief {
    pub(crate) lost: AtomicU64,
    /// Go out behind the next one.
    pub(crate) swapped: AtomicU64,
}

/// What a node has done.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) injected_bytes: AtomicU64,
    pub(crate) packets: AtomicU64,
    /// Datagrams that were of nobody that is known.
    pub(crate) refused: AtomicU64,
}

/// Serves until told to stop.
pub(crate) fn serve(
    address: SocketAddr,
    key: &TunnelKey,
    mischief: &Mischief,
    done: &Done,
    is_over: &AtomicBool,
) -> Result<()> {
    let socket = UdpSocket::bind(address)?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let device = SendDevice::make()?;
    let mut windows: HashMap<u64, ReplayWindow> = HashMap::new();
    let mut random = Random::new(u64::from(address.port()));
    let mut buffer = vec![0; 2048];
    let mut behind: Option<Vec<u8>> = None;
    while !is_over.load(Relaxed) {
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if is_idle(error.kind()) => {
                if let Some(packet) = behind.take() {
                    device.send(&[IoSlice::new(&packet)])?;
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let opened = open(&buffer[..length], |_, _| Some(key));
        let opened = opened.ok().filter(|opened| {
            let window = windows.entry(opened.envelope.sender_boot).or_default();
            window.admit(opened.envelope.sequence)
        });
        let Some(opened) = opened else {
            done.refused.fetch_add(1, Relaxed);
            continue;
        };
        for packet in opened.records() {
            let filled = filled(&packet?, done)?;
            if random.below(1000) < mischief.lost.load(Relaxed) {
                continue;
            }
            if behind.is_none() && random.below(1000) < mischief.swapped.load(Relaxed) {
                behind = Some(filled);
                continue;
            }
            // A device whose queue is full loses it, as a network would.
            let _ = device.send(&[IoSlice::new(&filled)]);
            if let Some(packet) = behind.take() {
                let _ = device.send(&[IoSlice::new(&packet)]);
            }
        }
    }
    Ok(())
}

fn is_idle(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// The packet with the bytes of its extents.
fn filled(packet: &Packet<'_>, done: &Done) -> Result<Vec<u8>> {
    let length = packet.parts.payload_bytes();
    let frame = finish(packet.headers, packet.segment_bytes, length)?;
    let mut bytes = Vec::with_capacity(frame.headers.len() + length + frame.offload.len());
    bytes.extend(frame.offload);
    bytes.extend(&frame.headers);
    for part in packet.parts.iter() {
        match part {
            Part::Literal(literal) => bytes.extend(literal),
            Part::Extent {
                pin,
                offset_bytes,
                length_bytes,
            } => {
                let range = offset_bytes..offset_bytes + u64::from(length_bytes);
                held(pin, range, &mut bytes);
                done.injected_bytes
                    .fetch_add(u64::from(length_bytes), Relaxed);
            }
        }
    }
    done.packets.fetch_add(1, Relaxed);
    Ok(bytes)
}
