//! A node's side of third-party transfer: what comes through the tunnels leaves as packets of
//! gateways. A gateway has the same for itself, for what no node sends.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use crossdock_bpf::{SendDevice, Speaker};
use crossdock_host::{Host, TunnelEnd};
use crossdock_net::{Driver, Event, SocketId, now};
use tracing::warn;

use super::Shell;
use crate::data;

/// Where datagrams come in and packets go out.
pub(crate) struct Inflating {
    socket: SocketId,
    device: SendDevice,
    speaker: Speaker,
    /// A gateway's: also for clients of others.
    lends: bool,
    address: SocketAddr,
    /// Something has come that is not filled yet.
    has_some: bool,
}

impl Inflating {
    /// A node's: takes datagrams of gateways at `address`.
    ///
    /// # Errors
    /// There is no such address, or no device of the kernel to send by.
    pub(crate) fn open(driver: &mut Driver, address: SocketAddr) -> anyhow::Result<Self> {
        let opened = Self::begin(driver, Speaker::Node, address, false);
        opened.with_context(|| format!("--spiral-listen {address}"))
    }

    /// A gateway's own, at any port of `address`; it may send to clients of other gateways, too.
    /// Without it nothing is lost but connections whose nodes have died, if those that are left do
    /// not send.
    pub(crate) fn own(driver: &mut Driver, address: IpAddr, lends: bool) -> Option<Self> {
        let opened = Self::begin(driver, Speaker::Gateway, (address, 0).into(), lends);
        let warned = opened.inspect_err(|error| {
            warn!("connections are reset where no node can send any more: {error:#}");
        });
        warned.ok()
    }

    fn begin(
        driver: &mut Driver,
        speaker: Speaker,
        address: SocketAddr,
        lends: bool,
    ) -> anyhow::Result<Self> {
        let device = SendDevice::make(speaker)?;
        let (socket, address) = driver.bind_datagram(address)?;
        Ok(Self {
            socket,
            device,
            speaker,
            lends,
            address,
            has_some: false,
        })
    }

    /// Tells the host of it.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn show(&self, host: &mut Host) -> anyhow::Result<()> {
        let end = TunnelEnd {
            address: self.address,
            has_ipv6: self.device.has_ipv6(),
            secret: data::random_bytes()?,
        };
        match self.speaker {
            Speaker::Node => host.open_tunnel(end),
            Speaker::Gateway => host.open_filler(end, self.lends),
        }
        Ok(())
    }
}

impl Shell {
    /// What has come through a tunnel; the event again if it is somebody else's.
    pub(super) fn take_tunnel_event(&mut self, event: Event) -> Option<Event> {
        let Some(inflating) = &mut self.inflating else {
            return Some(event);
        };
        match event {
            Event::Datagram { socket, bytes, .. } if socket == inflating.socket => {
                inflating.has_some = true;
                self.host.take_datagram(now(), &bytes);
                None
            }
            event => Some(event),
        }
    }

    /// Sends the packets of all that came together.
    pub(super) fn send_filled(&mut self) {
        let Some(inflating) = &mut self.inflating else {
            return;
        };
        let time = now();
        let is_due = self.host.tunnel_due().is_some_and(|due| due <= time);
        if !std::mem::take(&mut inflating.has_some) && !is_due {
            return;
        }
        let (filled, turns) = self.host.fill_packets(time);
        for packet in &filled {
            let front = [&packet.frame.offload[..], &packet.frame.headers];
            let payload = packet.payload.iter().map(|bytes| &bytes[..]);
            let pieces: Vec<_> = front.into_iter().chain(payload).map(IoSlice::new).collect();
            // A device whose queue is full loses it, as a network would.
            let _ = inflating.device.send(&pieces);
        }
        for (to, turn) in turns {
            // One that is lost costs a moment.
            let _ = self
                .driver
                .send_datagram(inflating.socket, to, vec![turn.into()]);
        }
    }
}
