//! What gateways tell initiators of each other: all portals, each with the number of its port; of
//! one that has gone no more, and of one that comes back the same as before. What would hold at one
//! of them only they refuse.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{initiator, pass};
use crate::suite::Stage;
use crate::suite::ensemble::Processes;
use crate::suite::iscsi::initiator::Said;

/// How long the others may take to notice that a gateway has gone, or is back.
const PATIENCE: Duration = Duration::from_secs(30);

/// By portal the number of its port.
type Portals = BTreeMap<String, u16>;

pub(super) fn check(stage: &Stage<'_>, processes: &mut Processes<'_>) -> Result<()> {
    let addresses = processes.gateways.iter().map(|it| it.door("iscsi"));
    let addresses: Vec<String> = addresses
        .map(|address| Ok(address?.to_string()))
        .collect::<Result<_>>()?;
    let [first, second] = &addresses[..] else {
        anyhow::bail!("{addresses:?} are not two gateways");
    };
    let told = discover(first)?;
    let known: Vec<&String> = told.keys().collect();
    let mut expected = vec![first, second];
    expected.sort();
    ensure!(known == expected, "{first} tells {told:?}");
    ensure!(
        told[first] != told[second],
        "one port of two gateways: {told:?}"
    );
    ensure!(discover(second)? == told, "{second} tells something else");
    ports(processes, &told)?;
    refused(processes)?;

    processes.gateways[0].kill();
    let only = [(second.clone(), told[second])].into();
    await_told(second, &only)?;
    processes.gateways[0].restart(stage)?;
    processes.await_whole(stage)?;
    await_told(second, &told)?;
    ensure!(
        discover(first)? == told,
        "{first} tells something else when it is back"
    );
    println!("two gateways told {told:?}, and one only while the other was gone");
    Ok(())
}

/// What libiscsi's `iscsi-ls` is told of the LUN's target: `Target:NAME Portal:ADDRESS,TAG`.
fn discover(portal: &str) -> Result<Portals> {
    let url = format!("iscsi://{portal}");
    let output = Command::new("timeout")
        .args(["60", "iscsi-ls", &url])
        .output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "iscsi-ls {url}: {}\n{told}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let target = "iqn.2026-11.io.crossdock:shared";
    let portals = told.lines().filter(|line| line.contains(target));
    portals
        .map(|line| {
            let (_, portal) = line.split_once("Portal:").context("no portal")?;
            let (address, tag) = portal.split_once(',').context("no tag")?;
            Ok((address.to_owned(), tag.trim().parse()?))
        })
        .collect::<Result<_>>()
        .with_context(|| told.into_owned())
}

fn await_told(portal: &str, expected: &Portals) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let told = discover(portal)?;
        if told == *expected {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{portal} tells {told:?} for {PATIENCE:?}, not {expected:?}"
        );
        pass(Duration::from_millis(200));
    }
}

/// REPORT TARGET PORT GROUPS tells of the same ports: one group, active and optimised.
fn ports(processes: &Processes<'_>, told: &Portals) -> Result<()> {
    for number in [70, 71] {
        let mut initiator = initiator(processes, number)?;
        let said = initiator.settled(|it| it.port_groups())?;
        let Said::Good(data) = &said else {
            anyhow::bail!("REPORT TARGET PORT GROUPS: {said:?}");
        };
        let mut ports: Vec<u16> = told.values().copied().collect();
        ports.sort_unstable();
        let mut expected = vec![0, 0, 0, 16, 0, 1, 0, 1, 0, 0, 0, 2];
        for port in ports {
            expected.extend([0, 0]);
            expected.extend(port.to_be_bytes());
        }
        ensure!(*data == expected, "the ports are {data:02x?}");
    }
    Ok(())
}

fn refused(processes: &Processes<'_>) -> Result<()> {
    let mut initiator = initiator(processes, 72)?;
    for (what, said, code) in [
        (
            "RESERVE (6)",
            initiator.settled(|it| it.reserve_six())?,
            0x20,
        ),
        (
            "START STOP UNIT",
            initiator.settled(|it| it.stop_unit())?,
            0x24,
        ),
    ] {
        let is_refused = match &said {
            // Two bytes of length, then sense data: key and code.
            Said::Other(2, sense) => sense.get(4) == Some(&5) && sense.get(14) == Some(&code),
            _ => false,
        };
        ensure!(is_refused, "{what} is answered {said:?}");
    }
    Ok(())
}
