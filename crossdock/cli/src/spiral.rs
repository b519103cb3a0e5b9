//! `crossdock status --spiral`: what nodes send to clients themselves, and what does not go
//! that way.

use crossdock_admin::Snapshot;
use crossdock_admin::snapshot::{DatagramFigures, TransferFigures};

use crate::client::{self, Method};
use crate::commands::Remote;
use crate::format;

/// Prints what the process that answers knows.
pub(crate) fn run(remote: &Remote) -> anyhow::Result<()> {
    let value = client::call(remote, Method::Get, "/v1/figures")?;
    if remote.json {
        return format::print_json(&value["transfer"]);
    }
    let all: Snapshot = client::parse(value)?;
    Ok(format::print(&describe(&all.transfer))?)
}

fn describe(all: &TransferFigures) -> String {
    let mut text = String::new();
    if !(all.is_gateway || all.is_node) {
        text += "third-party transfer is off here: a gateway has it with --spiral-device IFACE, a node with --spiral-listen ADDR\n";
    }
    if all.is_gateway {
        text += &of_gateway(all);
    }
    if all.is_node {
        text += &of_node(all);
    }
    text
}

fn of_gateway(all: &TransferFigures) -> String {
    let relayed: u64 = all.relayed_bytes.values().sum();
    let percent = |bytes: u64| {
        100.0 * bytes as f64 / (relayed + all.injected_bytes + all.redirected_bytes).max(1) as f64
    };
    let row = |way: &str, bytes: u64| {
        vec![
            way.to_owned(),
            format::bytes(bytes),
            format!("{:.1} %", percent(bytes)),
        ]
    };
    let mut rows = vec![
        ["clients were sent", "bytes", "of all"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.push(row("by nodes", all.injected_bytes));
    rows.push(row("to nodes, to ask there", all.redirected_bytes));
    let by_why = all.relayed_bytes.iter();
    rows.extend(
        by_why.map(|(why, &bytes)| row(&format!("by this gateway: {}", reason(why)), bytes)),
    );
    let mut text = format!(
        "tunnels to hosts with nodes {}   connections in which they may send {}\nsent by others when a node was gone {}   by this gateway, as no node could {}   connections reset {}\nof that by nodes, by other gateways that keep it {}   by this gateway to clients of others {}\n",
        all.tunnels,
        all.connections,
        format::bytes(all.refilled_bytes),
        format::bytes(all.sent_bytes),
        all.reset_total,
        format::bytes(all.borrowed_bytes),
        format::bytes(all.lent_bytes)
    );
    text += &format::table(&rows);
    text += &over_udp(&all.udp);
    text + &counts("packets", &all.packets)
}

/// Nothing where nobody has asked over UDP.
fn over_udp(udp: &DatagramFigures) -> String {
    let relayed: u64 = udp.relayed_bytes.values().sum();
    if udp.injected + udp.relayed + udp.lost == 0 {
        return String::new();
    }
    let by_why = udp.relayed_bytes.iter();
    let by_why: Vec<String> = by_why
        .map(|(why, &bytes)| format!("{} {}", reason(why), format::bytes(bytes)))
        .collect();
    format!(
        "over UDP: by nodes {} in {} replies   by this gateway {} in {} ({})   lost {}\n",
        format::bytes(udp.injected_bytes),
        udp.injected,
        format::bytes(relayed),
        udp.relayed,
        by_why.join(", "),
        udp.lost
    )
}

fn of_node(all: &TransferFigures) -> String {
    let text = format!(
        "sent for gateways {} in {} packets, over UDP {} in {} replies of {} fragments   held for them {} in {} reads\n",
        format::bytes(all.sent_bytes),
        all.sent_packets,
        format::bytes(all.udp.sent_bytes),
        all.udp.sent,
        all.udp.sent_fragments,
        format::bytes(all.held_bytes),
        all.pins
    );
    text + &counts("not sent", &all.refused)
}

fn counts(title: &str, counts: &std::collections::BTreeMap<String, u64>) -> String {
    let some = counts.iter().filter(|(_, count)| **count > 0);
    let words: Vec<String> = some
        .map(|(what, count)| format!("{what} {count}"))
        .collect();
    match words.is_empty() {
        true => String::new(),
        false => format!("{title}: {}\n", words.join(", ")),
    }
}

/// What a word of the figures means.
fn reason(why: &str) -> &str {
    match why {
        "here" => "heads, small files, and what nodes do not hold",
        "short" => "replies too short to be worth a node's message",
        "hot" => "of files that are read again and again, which it keeps",
        "policy" => "as the policy has it",
        "tls" => "over TLS",
        "loopback" => "clients on this machine",
        "no_tunnel" => "no node takes packets",
        "address" => "nodes may not speak as that address",
        "window" => "congestion windows are small after losses",
        "program" => "too many connections for the kernel's program",
        "datagrams" => "too many clients over UDP, or datagrams to one",
        why => why,
    }
}
