//! Third-party transfer between real kernels' TCP (SPIRAL sections 2 and 3): a client, a
//! gateway and nodes, each in a network namespace of its own. What nodes hold follows from
//! a pin and a place, so that each byte that a client sees can be compared. And datagrams that
//! nodes send.
//!
//! Arguments: namespace and address of the client, of the gateway, and of each node; the suite
//! `spiral` of xtask makes them.

mod cases;
mod client;
mod datagrams;
mod gateway;
mod model;
mod node;

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};

/// A host of the rig.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) netns: String,
    pub(crate) address: IpAddr,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let hosts = words.chunks_exact(2).map(|pair| {
        Ok(Host {
            netns: pair[0].clone(),
            address: pair[1].parse().context("an address of a host")?,
        })
    });
    let hosts = hosts.collect::<Result<Vec<Host>>>()?;
    ensure!(
        hosts.len() as u64 == 2 + cases::NODES && words.len().is_multiple_of(2),
        "namespace and address of a client, a gateway and three nodes are needed"
    );
    datagrams::run(&hosts[0], &hosts[1], &hosts[2])?;
    cases::run(&hosts[0], &hosts[1], &hosts[2..])
}
