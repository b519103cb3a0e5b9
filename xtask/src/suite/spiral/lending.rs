//! What one gateway keeps of a hot file it sends to clients of another one: the same bytes, by the
//! counters of all, as long as the file is as it was.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::doors::{Doors, SITE_BYTES};
use super::readers::{Http, Nfs};
use crate::rig::cluster::Role;

/// Of a file that is kept: longer than what HTTP replies have to be for nodes to send them.
const HOT_BYTES: u64 = 4 << 20;
/// What of it lies in columns.
const LENT_BYTES: u64 = HOT_BYTES - SITE_BYTES;
const NFS_PORT: u16 = 2049;
/// What a client's system takes that does not read.
const TAKEN_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
struct Lent {
    /// By the first gateway, and what its inflator has sent.
    lent: u64,
    sent: u64,
    /// To the other one, and what it has got elsewhere when the first one was gone.
    borrowed: u64,
    refilled: u64,
    reset: u64,
    by_nodes: u64,
}

impl Doors<'_, '_> {
    pub(super) fn lending(&mut self) -> Result<()> {
        self.keep("/hot.bin")?;
        self.lent("/hot.bin")?;
        self.written_over("hot.bin")?;
        self.keep("/hotter.bin")?;
        self.keeper_killed("/hotter.bin")
    }

    fn figures(&self) -> Result<Lent> {
        let running = self.running(Role::Gateway);
        let of = |gateway: &str, what: &str| match running.iter().any(|name| name == gateway) {
            true => Ok::<_, anyhow::Error>(self.transfer(gateway)?[what].as_u64().unwrap_or(0)),
            false => Ok(0),
        };
        Ok(Lent {
            lent: of("gateway-0", "lent_bytes")?,
            sent: of("gateway-0", "sent_bytes")?,
            borrowed: of("gateway-1", "borrowed_bytes")?,
            refilled: of("gateway-1", "refilled_bytes")?,
            reset: of("gateway-1", "reset_total")?,
            by_nodes: self.sent()?.by_nodes,
        })
    }

    /// A file is read through the first gateway until that keeps it.
    fn keep(&self, path: &str) -> Result<()> {
        self.put(path, &self.content()[..usize::try_from(HOT_BYTES)?])?;
        let kept = || -> Result<u64> {
            Ok(self.transfer("gateway-0")?["hot_bytes"]
                .as_u64()
                .unwrap_or(0))
        };
        let before = kept()?;
        // A file that was written a moment ago is given out by no lease yet.
        self.until("the first gateway keeps it", || {
            let got = self.curl(&[&self.url(path)], "hot")?;
            ensure!(got.len() as u64 == HOT_BYTES, "{} bytes", got.len());
            self.compare(0, &got)?;
            Ok(kept()? >= before + LENT_BYTES)
        })
    }

    /// A client of the other gateway gets it from the first one, and no more from nodes than the
    /// beginning.
    fn lent(&self, path: &str) -> Result<()> {
        let before = self.figures()?;
        let judge = |at: u64, bytes: &[u8]| self.judge(at, bytes);
        Http::connect(self.other)?.get(path, 0..HOT_BYTES, judge)?;
        let after = self.figures()?;
        println!(
            "kept by one gateway, read through the other: {} of {LENT_BYTES} bytes lent, {} sent, {} by nodes",
            after.lent - before.lent,
            after.sent - before.sent,
            after.by_nodes - before.by_nodes
        );
        let is_lent = after.lent - before.lent == LENT_BYTES
            && after.borrowed - before.borrowed == LENT_BYTES
            && after.sent - before.sent >= LENT_BYTES
            && after.by_nodes - before.by_nodes <= SITE_BYTES;
        ensure!(is_lent, "{before:?} {after:?}");
        self.until("its pins are back", || {
            Ok(self.transfer("gateway-0")?["pins"].as_u64() == Some(0))
        })
    }

    /// It is written to through the other gateway: what the first one keeps is of no use.
    fn written_over(&self, name: &str) -> Result<()> {
        let before = self.figures()?;
        let mut nfs = Nfs::open(SocketAddr::new(self.other.ip(), NFS_PORT), name)?;
        let length = 1 << 20;
        nfs.write(SITE_BYTES, vec![0xee; length])?;
        let end = SITE_BYTES + length as u64;
        let mut http = Http::connect(self.other)?;
        http.get(&format!("/{name}"), 0..HOT_BYTES, |from, bytes| {
            for (at, &byte) in (from..).zip(bytes) {
                let is_new = (SITE_BYTES..end).contains(&at);
                let expected = match is_new {
                    true => 0xee,
                    false => self.content()[usize::try_from(at)?],
                };
                ensure!(byte == expected, "byte {at} is {byte}, not {expected}");
            }
            Ok(())
        })?;
        let after = self.figures()?;
        println!(
            "written over since: {} bytes lent",
            after.lent - before.lent
        );
        ensure!(after.lent == before.lent, "{before:?} {after:?}");
        Ok(())
    }

    /// The first gateway dies with what it has promised: nodes have the same bytes.
    fn keeper_killed(&mut self, path: &str) -> Result<()> {
        let before = self.figures()?;
        let mut http = Http::connect(self.other)?;
        set_socket_recv_buffer_size(&http.socket, TAKEN_BYTES)?;
        http.ask(path, &(SITE_BYTES..HOT_BYTES))?;
        http.head()?;
        self.until("the first gateway holds some of what was asked for", || {
            let held = self.transfer("gateway-0")?["held_bytes"].as_u64();
            Ok(held > Some(TAKEN_BYTES as u64))
        })
        .with_context(|| format!("{:?}", self.figures()))?;
        let lent = self.figures()?.lent - before.lent;
        self.cluster.kill_keeping_files("gateway-0")?;
        http.body(SITE_BYTES..HOT_BYTES, |at, bytes| self.judge(at, bytes))?;
        let after = self.figures()?;
        let refilled = after.refilled - before.refilled;
        println!("its keeper killed: {lent} bytes lent, {refilled} of them found elsewhere");
        ensure!(lent > 0 && refilled > 0, "{before:?} {after:?}");
        ensure!(after.reset == before.reset, "{before:?} {after:?}");
        Ok(())
    }
}
