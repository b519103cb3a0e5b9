//! The network of a rig: a namespace with a bridge, and one per host that hangs on it
//! by a pair of virtual cables. This machine's own network is not touched.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::{output, run};

/// All of 198.18.0.0/15.
pub(super) const PREFIX_BITS: u8 = 15;
/// Of IPv6.
pub(super) const PREFIX_BITS_IPV6: u8 = 64;
/// What each host calls its end of the cable.
pub(super) const DEVICE: &str = "eth0";
/// What a link that is not fast holds back at most.
const QUEUE: &str = "50ms";
/// Sent at once at least: one gathered send, or a tick's worth of the rate.
const BURST_BYTES_MIN: u32 = 128 << 10;
const TICKS_PER_SECOND: u32 = 100;
/// Connections of a host that have a rate of their own.
const FLOWS: u32 = 64;
/// What one of them sends before the next has its turn: a gathered send.
const FLOW_QUANTUM_BYTES: u32 = 64 << 10;

/// A host's namespace, as `ip netns` knows it.
pub(crate) fn netns(rig: &str, host: &str) -> String {
    format!("crossdock-{rig}-{host}")
}

/// Makes the namespace with the bridge.
pub(in crate::rig) fn make(rig: &str) -> Result<()> {
    let switch = netns(rig, "switch");
    ip(&format!("netns add {switch}"))?;
    ip(&format!("-n {switch} link add name bridge type bridge"))?;
    ip(&format!("-n {switch} link set dev bridge up"))
}

/// Makes a host's namespace and joins it to the bridge; `rate_mbit` holds both ways.
pub(in crate::rig) fn add(
    rig: &str,
    host: &str,
    address: Ipv4Addr,
    rate_mbit: Option<u32>,
) -> Result<()> {
    let (switch, own) = (netns(rig, "switch"), netns(rig, host));
    ip(&format!("netns add {own}"))?;
    ip(&format!(
        "-n {switch} link add name {host} type veth peer name {DEVICE} netns {own}"
    ))?;
    ip(&format!("-n {switch} link set dev {host} master bridge up"))?;
    ip(&format!(
        "-n {own} address add {address}/{PREFIX_BITS} dev {DEVICE}"
    ))?;
    ip(&format!("-n {own} link set dev {DEVICE} up"))?;
    ip(&format!("-n {own} link set dev lo up"))?;
    match rate_mbit {
        Some(mbit) => set_rate(rig, host, mbit),
        None => Ok(()),
    }
}

/// From now on a host's link carries so much, either way.
pub(in crate::rig) fn set_rate(rig: &str, host: &str, mbit: u32) -> Result<()> {
    let (switch, own) = (netns(rig, "switch"), netns(rig, host));
    let burst = BURST_BYTES_MIN.max(mbit * (1_000_000 / 8) / TICKS_PER_SECOND);
    for (namespace, device) in [(&own, DEVICE), (&switch, host)] {
        let words = format!(
            "-n {namespace} qdisc replace dev {device} root tbf rate {mbit}mbit burst {burst} latency {QUEUE}"
        );
        run(Command::new("tc").args(words.split(' ')))?;
    }
    Ok(())
}

/// From now on each connection has its own rate on the way out of a host, and all of them the
/// link's. Connections are told apart by counting: the first [`FLOWS`] have a class of their own,
/// later ones share them in turn.
pub(in crate::rig) fn limit_flows(
    rig: &str,
    host: &str,
    link_mbit: u32,
    flow_mbit: u32,
) -> Result<()> {
    let own = netns(rig, host);
    let tc = |words: String| run(Command::new("tc").args(words.split(' ')));
    let burst = BURST_BYTES_MIN;
    let class = |parent: &str, name: &str, kind: &str| {
        tc(format!(
            "-n {own} class add dev {DEVICE} parent {parent} classid {name} htb {kind} \
             burst {burst} cburst {burst} quantum {FLOW_QUANTUM_BYTES}"
        ))
    };
    // Replacing takes the classes of an earlier rate off.
    tc(format!("-n {own} qdisc replace dev {DEVICE} root pfifo"))?;
    tc(format!(
        "-n {own} qdisc replace dev {DEVICE} root handle 1: htb default 1"
    ))?;
    class("1:", "1:ffff", &format!("rate {link_mbit}mbit"))?;
    // What a class may send without asking the link is little: they borrow the rest of it.
    let least_kbit = (link_mbit * 1000 / FLOWS).max(8);
    for flow in 1..=FLOWS {
        let rate = format!("rate {least_kbit}kbit ceil {flow_mbit}mbit");
        class("1:ffff", &format!("1:{flow:x}"), &rate)?;
    }
    let classes = (1..=FLOWS).map(|flow| format!("{flow} : 1:{flow:x}"));
    let classes = classes.collect::<Vec<_>>().join(", ");
    let rules = format!(
        "table ip flows\ndelete table ip flows\ntable ip flows {{\n chain leaving {{\n \
         type filter hook postrouting priority 0\n \
         ct mark 0 ct mark set numgen inc mod {FLOWS} offset 1\n \
         meta priority set ct mark map {{ {classes} }}\n}}\n}}"
    );
    filter(&own, &rules)
}

/// Gives a host another address.
pub(super) fn add_ipv6(rig: &str, host: &str, address: Ipv6Addr) -> Result<()> {
    let own = netns(rig, host);
    ip(&format!(
        "-n {own} address add {address}/{PREFIX_BITS_IPV6} dev {DEVICE} nodad"
    ))
}

/// Whether a host has an address.
pub(super) fn has(netns: &str, address: IpAddr) -> Result<bool> {
    let words = format!("-n {netns} -o address show dev {DEVICE}");
    let shown = output(Command::new("ip").args(words.split(' ')))?;
    let wanted = format!(" {address}/");
    Ok(shown.lines().any(|line| line.contains(&wanted)))
}

/// Bytes that the bridge has received from a host (`rx`) or sent to it (`tx`).
pub(super) fn bytes(rig: &str, host: &str, way: &str) -> Result<u64> {
    let words = format!("-n {} -s -j link show dev {host}", netns(rig, "switch"));
    let shown = output(Command::new("ip").args(words.split(' ')))?;
    let shown: serde_json::Value = serde_json::from_str(&shown)?;
    let bytes = shown[0]["stats64"][way]["bytes"].as_u64();
    bytes.context("no counters")
}

/// Removes the namespaces of a rig, as far as they are there.
pub(in crate::rig) fn remove(rig: &str, namespaces: &[&str]) -> Result<()> {
    let there = output(Command::new("ip").args(["netns", "list"]))?;
    let switch = netns(rig, "switch");
    for namespace in namespaces.iter().copied().chain([switch.as_str()]) {
        let is_it = |line: &str| line.split(' ').next() == Some(namespace);
        if there.lines().any(is_it) {
            ip(&format!("netns delete {namespace}"))?;
        }
    }
    Ok(())
}

/// Gives the packet filter of a namespace `rules`.
pub(super) fn filter(netns: &str, rules: &str) -> Result<()> {
    let mut nft = Command::new("nsenter");
    nft.arg(format!("--net=/run/netns/{netns}"));
    nft.args(["--", "nft", "--file", "-"]).stdin(Stdio::piped());
    let mut child = nft.spawn()?;
    let mut input = child.stdin.take().context("no input pipe")?;
    input.write_all(rules.as_bytes())?;
    input.write_all(b"\n")?;
    drop(input);
    let status = child.wait()?;
    ensure!(status.success(), "nft of {netns}: {status}");
    Ok(())
}

/// Runs `ip` with these words.
pub(super) fn ip(words: &str) -> Result<()> {
    run(Command::new("ip").args(words.split(' ')))
}
