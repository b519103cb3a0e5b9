//! Metrics of third-party transfer, at gateways and at nodes.

use super::family;
use crate::families::Family;
use crate::text::MetricKind::{Counter, Gauge};

pub(super) const FAMILIES: &[Family] = &[
    family(
        "crossdock_transfer_injected_bytes_total",
        Counter,
        "Bytes that nodes were to send to clients of this gateway.",
        |all, out| out.count(&[], all.transfer.injected_bytes),
    ),
    family(
        "crossdock_transfer_redirected_bytes_total",
        Counter,
        "Bytes for which this gateway has sent HTTP clients to nodes.",
        |all, out| out.count(&[], all.transfer.redirected_bytes),
    ),
    family(
        "crossdock_transfer_hot_bytes",
        Gauge,
        "Bytes that this gateway keeps of files that are read again and again.",
        |all, out| out.count(&[], all.transfer.hot_bytes),
    ),
    family(
        "crossdock_transfer_hot_served_bytes_total",
        Counter,
        "Bytes that it has given out of these.",
        |all, out| out.count(&[], all.transfer.hot_served_bytes),
    ),
    family(
        "crossdock_transfer_lent_bytes_total",
        Counter,
        "Bytes of these that this gateway was to send to clients of other gateways.",
        |all, out| out.count(&[], all.transfer.lent_bytes),
    ),
    family(
        "crossdock_transfer_borrowed_bytes_total",
        Counter,
        "Bytes that other gateways were to send to clients of this one, as they keep them; they are among the injected ones.",
        |all, out| out.count(&[], all.transfer.borrowed_bytes),
    ),
    family(
        "crossdock_transfer_relayed_bytes_total",
        Counter,
        "Bytes that this gateway has sent to clients itself while it has --spiral-device, by why.",
        |all, out| {
            for (why, &bytes) in &all.transfer.relayed_bytes {
                out.count(&[("why", why)], bytes);
            }
        },
    ),
    family(
        "crossdock_transfer_tunnels",
        Gauge,
        "Hosts that fill packets of this gateway.",
        |all, out| out.count(&[], all.transfer.tunnels),
    ),
    family(
        "crossdock_transfer_connections",
        Gauge,
        "Connections of this gateway in which nodes may send.",
        |all, out| out.count(&[], all.transfer.connections),
    ),
    family(
        "crossdock_transfer_refilled_bytes_total",
        Counter,
        "Bytes whose holder was gone before it had sent them, and that another host sends, or this gateway itself.",
        |all, out| out.count(&[], all.transfer.refilled_bytes),
    ),
    family(
        "crossdock_transfer_reset_total",
        Counter,
        "Connections of this gateway that were reset as nobody had their bytes any more.",
        |all, out| out.count(&[], all.transfer.reset_total),
    ),
    family(
        "crossdock_transfer_packets_total",
        Counter,
        "Packets of those connections, before the kernel cuts them, by what became of them.",
        |all, out| {
            for (fate, &packets) in &all.transfer.packets {
                out.count(&[("fate", fate)], packets);
            }
        },
    ),
    family(
        "crossdock_transfer_udp_replies_total",
        Counter,
        "Replies over UDP of this gateway, by way: injected (a node was to send it), relayed, or lost (its node was gone by then).",
        |all, out| {
            let udp = &all.transfer.udp;
            let ways = [
                ("injected", udp.injected),
                ("relayed", udp.relayed),
                ("lost", udp.lost),
            ];
            for (way, replies) in ways {
                out.count(&[("way", way)], replies);
            }
        },
    ),
    family(
        "crossdock_transfer_udp_injected_bytes_total",
        Counter,
        "Bytes of files in replies over UDP that nodes were to send.",
        |all, out| out.count(&[], all.transfer.udp.injected_bytes),
    ),
    family(
        "crossdock_transfer_udp_relayed_bytes_total",
        Counter,
        "Bytes of replies over UDP that this gateway has sent itself while it has --spiral-device, by why.",
        |all, out| {
            for (why, &bytes) in &all.transfer.udp.relayed_bytes {
                out.count(&[("why", why)], bytes);
            }
        },
    ),
    family(
        "crossdock_transfer_udp_sent_replies_total",
        Counter,
        "Replies over UDP that the nodes of this host have sent.",
        |all, out| out.count(&[], all.transfer.udp.sent),
    ),
    family(
        "crossdock_transfer_udp_sent_fragments_total",
        Counter,
        "Packets of IP that those replies were.",
        |all, out| out.count(&[], all.transfer.udp.sent_fragments),
    ),
    family(
        "crossdock_transfer_udp_sent_bytes_total",
        Counter,
        "Bytes of files in those replies.",
        |all, out| out.count(&[], all.transfer.udp.sent_bytes),
    ),
    family(
        "crossdock_transfer_sent_bytes_total",
        Counter,
        "Bytes that the nodes of this host have put into packets of gateways, or this gateway into its own where no node could; repeated ones too.",
        |all, out| out.count(&[], all.transfer.sent_bytes),
    ),
    family(
        "crossdock_transfer_held_bytes",
        Gauge,
        "Bytes that this host holds in memory for gateways, or for its own clients where no node can.",
        |all, out| out.count(&[], all.transfer.held_bytes),
    ),
    family(
        "crossdock_transfer_pins",
        Gauge,
        "Reads of gateways whose bytes those are.",
        |all, out| out.count(&[], all.transfer.pins),
    ),
    family(
        "crossdock_transfer_refused_total",
        Counter,
        "Datagrams and packets that this host has not filled, by why; and reads that it had no room to hold.",
        |all, out| {
            for (why, &count) in &all.transfer.refused {
                out.count(&[("why", why)], count);
            }
        },
    ),
];
