//! What befalls packets on their way to a host of a rig: they are lost, come late, are as small or
//! as large as the links let them be, or go by way of another one.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::Result;

use super::{Cluster, switch};
use crate::process::run;
use crate::rig::network::Network;

/// Faster than anything here; and what has to overtake the packets of a class that is slow.
const FAST: &str = "htb rate 40gbit burst 1m cburst 1m";
const SLOW: &str = "htb rate 200mbit burst 2k cburst 2k";
/// What a link sends at once if nothing is said (netdevice.h).
const SEGMENTS_USUAL: u32 = 65_535;

impl Cluster<'_> {
    /// So many of 1000 packets of TCP do not come to a host.
    pub(crate) fn lose(&self, name: &str, permille: u32) -> Result<()> {
        let rules = [
            "add table inet weather",
            "add chain inet weather lost { type filter hook prerouting priority -300; }",
            &format!(
                "add rule inet weather lost iif != lo meta l4proto tcp numgen random mod 1000 < {permille} drop"
            ),
        ];
        self.filter(name, &rules.join("\n"))
    }

    /// So many of 1000 packets wait before they go to a host: those behind overtake them.
    pub(crate) fn make_late(&self, name: &str, permille: u32) -> Result<()> {
        let switch = switch::netns(&self.name, "switch");
        let tc = |words: &str| run(Command::new("tc").args(words.split(' ')));
        tc(&format!(
            "-n {switch} qdisc replace dev {name} root handle 1: htb default 1"
        ))?;
        for (class, kind) in [("1:1", FAST), ("1:2", SLOW)] {
            tc(&format!(
                "-n {switch} class add dev {name} parent 1: classid {class} {kind}"
            ))?;
        }
        let rules = [
            "add table netdev weather",
            &format!(
                "add chain netdev weather late {{ type filter hook egress device \"{name}\" priority 0; }}"
            ),
            &format!(
                "add rule netdev weather late numgen random mod 1000 < {permille} meta priority set 1:2"
            ),
        ];
        switch::filter(&switch, &rules.join("\n"))
    }

    /// The weather of a host's link is fair again.
    pub(crate) fn clear(&self, name: &str) -> Result<()> {
        let switch = switch::netns(&self.name, "switch");
        // What is not there cannot be removed, but made and removed.
        let nothing =
            |family: &str| format!("add table {family} weather\ndelete table {family} weather");
        self.filter(name, &nothing("inet"))?;
        switch::filter(&switch, &nothing("netdev"))?;
        let words = format!("-n {switch} qdisc replace dev {name} root pfifo");
        run(Command::new("tc").args(words.split(' ')))
    }

    /// Has the bridge cut what goes to a host into single segments: each is lost by itself then,
    /// and hosts send as they do without losses.
    pub(crate) fn cut_segments_to(&self, name: &str) -> Result<()> {
        let switch = switch::netns(&self.name, "switch");
        switch::ip(&format!("-n {switch} link set dev {name} gso_max_segs 1"))
    }

    /// Whether all hosts cut what they send into single segments before their links, as they
    /// do where a network's card cannot: each is lost or late by itself then.
    pub(crate) fn cut_segments(&self, is_so: bool) -> Result<()> {
        let most = if is_so { 1 } else { SEGMENTS_USUAL };
        self.hosts.iter().try_for_each(|host| {
            let netns = &host.netns;
            let device = switch::DEVICE;
            switch::ip(&format!(
                "-n {netns} link set dev {device} gso_max_segs {most}"
            ))
        })
    }

    /// Has a host route what the others send to an address behind it.
    pub(crate) fn route_by(&self, name: &str, behind: Ipv4Addr) -> Result<()> {
        let router = &self.hosts[self.index(name)?];
        self.sysctl(name, "net.ipv4.ip_forward=1")?;
        let others = self.hosts.iter().filter(|host| host.name != name);
        others.into_iter().try_for_each(|host| {
            let (netns, by) = (&host.netns, router.address);
            switch::ip(&format!("-n {netns} route add {behind}/32 via {by}"))
        })
    }

    /// Sets something of a host's network (sysctl(8)).
    pub(crate) fn sysctl(&self, name: &str, setting: &str) -> Result<()> {
        let netns = &self.hosts[self.index(name)?].netns;
        run(Network::of_host(netns)
            .program("sysctl")
            .args(["-qw", setting]))
    }

    /// The longest packet of all links. Gateways see it when they start.
    pub(crate) fn set_mtu(&self, bytes: u32) -> Result<()> {
        let switch = switch::netns(&self.name, "switch");
        self.hosts.iter().try_for_each(|host| {
            let (netns, name, device) = (&host.netns, &host.name, switch::DEVICE);
            switch::ip(&format!("-n {switch} link set dev {name} mtu {bytes}"))?;
            switch::ip(&format!("-n {netns} link set dev {device} mtu {bytes}"))
        })
    }
}
