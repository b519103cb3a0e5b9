//! Many bytes: files are read again and again by NFS and HTTP, and each byte that nodes have sent is
//! compared with the model. What each run has checked is added to bench/results/spiral-volume.json, so
//! that it can be summed over the runs of one commit.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::doors::{Doors, with_doors};
use super::model::{Model, Version};
use super::readers::{Http, Nfs, joined};
use super::udp::{Served, reading};
use crate::bench::commit;
use crate::suite::Stage;

/// How many gigabytes each door is asked for.
const SIZE: &str = "CROSSDOCK_SPIRAL_GB";
const GIGABYTES: u64 = 10;
const NFS_PORT: u16 = 2049;
/// They fit into the memory of the nodes.
const FILES: u64 = 4;
const FILE_BYTES: u64 = 24 << 20;
/// Clients of a door.
const CLIENTS: u64 = 2;
/// Then the files get other bytes.
const GENERATION_BYTES: u64 = 5_000_000_000;

/// By what nodes send.
#[derive(Clone, Copy, Debug)]
enum Door {
    NfsTcp,
    NfsUdp,
    Http,
}

impl Door {
    const fn word(self) -> &'static str {
        match self {
            Self::NfsTcp => "nfs-tcp",
            Self::NfsUdp => "nfs-udp",
            Self::Http => "http",
        }
    }

    /// Bytes that nodes were to send so far.
    fn injected(self, doors: &Doors<'_, '_>) -> Result<u64> {
        match self {
            Self::NfsTcp | Self::Http => Ok(doors.sent()?.injected),
            Self::NfsUdp => Ok(doors.sent_udp()?.injected),
        }
    }
}

/// What came of a door.
#[derive(Clone, Copy, Debug, Default)]
struct Checked {
    bytes: u64,
    injected: u64,
    wrong: u64,
}

pub(in crate::suite) fn run_volume(stage: &Stage<'_>) -> Result<()> {
    let gigabytes = match std::env::var(SIZE) {
        Ok(text) => text.parse().with_context(|| format!("{SIZE}={text}"))?,
        Err(_) => GIGABYTES,
    };
    with_doors(stage, "suite-spiral-volume", |doors| {
        doors.have_all_injected()?;
        let results = stage.paths.root.join("bench/results/spiral-volume.json");
        let commit = commit(stage.paths)?;
        let model = Model::new(gigabytes);
        for door in [Door::NfsTcp, Door::NfsUdp, Door::Http] {
            let checked = read(doors, &model, door, gigabytes * 1_000_000_000)?;
            let row = json!({
                "commit": commit,
                "door": door.word(),
                "bytes_checked": checked.bytes,
                "bytes_injected": checked.injected,
                "wrong": checked.wrong,
            });
            add(&results, row)?;
            ensure!(checked.wrong == 0, "{checked:?}");
        }
        Ok(())
    })
}

/// Reads so many bytes by a door.
fn read(doors: &Doors<'_, '_>, model: &Model, door: Door, bytes: u64) -> Result<Checked> {
    let mut sum = Checked::default();
    let (mut generation, began) = (0, Instant::now());
    while sum.bytes < bytes {
        generation += 1;
        for file in 0..FILES {
            let version = Version { file, generation };
            let content = model.content(version, usize::try_from(FILE_BYTES)?);
            doors.put(&path(file), &content)?;
        }
        let before = door.injected(doors)?;
        let wanted = GENERATION_BYTES.min(bytes - sum.bytes);
        let (read, wrong) = (AtomicU64::new(0), AtomicU64::new(0));
        let (read_by, wrong_by) = (&read, &wrong);
        let client = |number: u64| {
            let mut client = Client::connect(doors, door, number)?;
            while read_by.load(Relaxed) < wanted {
                let version = Version {
                    file: client.file(),
                    generation,
                };
                client.read(|at, bytes| {
                    wrong_by.fetch_add(model.wrong(version, at, bytes)?, Relaxed);
                    Ok(())
                })?;
                read_by.fetch_add(FILE_BYTES, Relaxed);
            }
            Ok(())
        };
        let client = &client;
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| scope.spawn(move || client(number)))
                .collect();
            clients.into_iter().try_for_each(joined)
        })?;
        sum.bytes += read.into_inner();
        sum.wrong += wrong.into_inner();
        sum.injected += door.injected(doors)? - before;
    }
    println!(
        "{}: {} bytes checked, {} of them sent by nodes, {} wrong, {:.0} MB/s",
        door.word(),
        sum.bytes,
        sum.injected,
        sum.wrong,
        sum.bytes as f64 / began.elapsed().as_secs_f64() / 1e6,
    );
    Ok(sum)
}

/// A client, and the files that it reads in turn.
enum Client {
    Http { http: Http, next: u64 },
    Nfs { files: Vec<(Nfs, u64)>, next: usize },
    Datagrams { files: Vec<Served>, next: u64 },
}

impl Client {
    fn connect(doors: &Doors<'_, '_>, door: Door, number: u64) -> Result<Self> {
        match door {
            Door::Http => Ok(Self::Http {
                http: Http::connect(doors.http)?,
                next: number,
            }),
            Door::NfsTcp => {
                let at = SocketAddr::new(doors.http.ip(), NFS_PORT);
                let files = (0..FILES).map(|file| {
                    let name = path(file);
                    Ok((Nfs::open(at, &name[1..])?, file))
                });
                Ok(Self::Nfs {
                    files: files.collect::<Result<_>>()?,
                    next: usize::try_from(number)?,
                })
            }
            Door::NfsUdp => {
                let at = SocketAddr::new(doors.http.ip(), NFS_PORT);
                let files = (0..FILES).map(|file| Served::find(at, &path(file)[1..]));
                Ok(Self::Datagrams {
                    files: files.collect::<Result<_>>()?,
                    next: number,
                })
            }
        }
    }

    /// Which file is read next.
    fn file(&self) -> u64 {
        match self {
            Self::Http { next, .. } | Self::Datagrams { next, .. } => next % FILES,
            Self::Nfs { files, next } => files[next % files.len()].1,
        }
    }

    fn read(&mut self, mut judge: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let file = self.file();
        match self {
            Self::Http { http, next } => {
                *next += 1;
                http.get(&path(file), 0..FILE_BYTES, judge)
            }
            Self::Nfs { files, next } => {
                let place = *next % files.len();
                *next += 1;
                files[place].0.read(0..FILE_BYTES, judge)
            }
            Self::Datagrams { files, next } => {
                *next += 1;
                let served = &files[usize::try_from(file)?];
                let (got, _) = served.read(reading(0, usize::try_from(FILE_BYTES)?))?;
                judge(0, &got)
            }
        }
    }
}

fn path(file: u64) -> String {
    format!("/volume-{file}")
}

/// Adds a row to a file of results.
fn add(results: &std::path::Path, row: Value) -> Result<()> {
    let mut rows: Vec<Value> = match fs::read(results) {
        Ok(text) => serde_json::from_slice(&text)?,
        Err(_) => Vec::new(),
    };
    rows.push(row);
    let mut text = serde_json::to_string_pretty(&rows)?;
    text.push('\n');
    Ok(fs::write(results, text)?)
}
