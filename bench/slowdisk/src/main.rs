//! Serves a slow disk until it is unmounted: `crossdock-slowdisk --mount DIR …`.
//! Prints `ready` once it can be used.

mod control;
mod disk;
mod fuse;

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use crossdock_slowdisk::model::Geometry;

use crate::disk::Disk;
use crate::fuse::Tree;

/// Serves a file that is as slow as a disk with one arm.
#[derive(Parser)]
struct Flags {
    /// Empty directory in which the file `disk` appears.
    #[arg(long)]
    mount: PathBuf,
    /// File with its content.
    #[arg(long)]
    backing: PathBuf,
    /// Size of the disk in bytes; the file becomes so long.
    #[arg(long)]
    size: u64,
    /// Rate in sequence, in bytes per second.
    #[arg(long, default_value_t = 60e6)]
    rate: f64,
    /// Mean time from one random place to another, in milliseconds.
    #[arg(long, default_value_t = 8.0)]
    positioning_ms: f64,
    /// File to which each request is logged.
    #[arg(long)]
    log: PathBuf,
    /// Socket that takes commands.
    #[arg(long)]
    control: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    let backing = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&flags.backing)
        .with_context(|| format!("cannot open {}", flags.backing.display()))?;
    backing.set_len(flags.size)?;
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&flags.log)?;
    let geometry = Geometry {
        rate: flags.rate,
        positioning: Duration::from_secs_f64(flags.positioning_ms / 1e3),
        ..Geometry::slow(flags.size)
    };
    // It answers in time also where others use all processors; without the right to that
    // it is less exact.
    let _ = rustix::process::nice(-20);
    let disk = Arc::new(Disk::new(geometry, backing, log));
    let arm = Arc::clone(&disk);
    thread::spawn(move || arm.turn());
    control::listen(&flags.control, &disk)?;
    let session = Tree::mount(disk, &flags.mount)?;
    println!("ready");
    session.run().context("the file system has ended")
}
