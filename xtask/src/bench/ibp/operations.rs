//! What a depot does with a processor: requests, and bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crossdock_ibp::{Capabilities, answer};

use super::{Field, content};
use crate::bench::figures::Comparison;
use crate::bench::{Keep, cpu};
use crate::process::program;
use crate::rig::depots;

/// Connections at a time.
const CONNECTIONS: usize = 16;
/// Requests that are sent ahead on each.
const AHEAD: usize = 32;
const SMALL_BYTES: usize = 4096;
const LARGE_BYTES: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Probe,
    LoadSmall,
    StoreSmall,
    Allocate,
    LoadLarge,
}

impl What {
    const ALL: [Self; 5] = [
        Self::Probe,
        Self::LoadSmall,
        Self::StoreSmall,
        Self::Allocate,
        Self::LoadLarge,
    ];

    const fn row(self) -> &'static str {
        match self {
            Self::Probe => "operations-probe",
            Self::LoadSmall => "operations-load-4k",
            Self::StoreSmall => "operations-store-4k",
            Self::Allocate => "operations-allocate",
            Self::LoadLarge => "operations-load-8M",
        }
    }

    /// Sent ahead at a time on a connection, and how often.
    const fn amount(self) -> (usize, usize) {
        match self {
            Self::Probe | Self::LoadSmall => (AHEAD, 100),
            Self::Allocate => (AHEAD, 10),
            Self::StoreSmall => (1, 100),
            Self::LoadLarge => (1, 8),
        }
    }
}

pub(super) fn operations(field: &Field<'_>, keep: Keep<'_>) -> Result<()> {
    let folder = field.folder("operations")?;
    let program = program(field.paths.release_binary());
    let pool = depots::start(program, 1, "127.0.0.1:0", &folder)?;
    let depot: SocketAddr = pool.addresses.first().context("no depot")?.parse()?;
    let mut all: Vec<(What, Vec<f64>, Vec<f64>)> = What::ALL
        .iter()
        .map(|&it| (it, Vec::new(), Vec::new()))
        .collect();
    for _ in 0..field.rounds() {
        for (what, per_second, per_core) in &mut all {
            let before = cpu::seconds(pool.running.pid())?;
            let began = Instant::now();
            let done = load(*what, depot)?;
            per_second.push(done / began.elapsed().as_secs_f64());
            // In steps of 10 ms.
            per_core.push(done / (cpu::seconds(pool.running.pid())? - before).max(0.01));
        }
    }
    let of = |wanted: What| {
        let found = all.iter().find(|(what, ..)| *what == wanted);
        found.map(|(_, _, per_core)| per_core.clone())
    };
    let probes = of(What::Probe).context("probes are measured")?;
    let small = of(What::LoadSmall).context("small loads are measured")?;
    let small: Vec<f64> = small
        .iter()
        .map(|loads| loads * SMALL_BYTES as f64 / 1e6)
        .collect();
    for (what, per_second, per_core) in &all {
        let (unit, peer) = match what {
            What::LoadLarge => ("MB per CPU second", ("4 KiB at a time", &small[..])),
            _ => (
                "op per CPU second",
                ("a probe, which memory answers", &probes[..]),
            ),
        };
        eprintln!("{}: {per_second:.0?} per second", what.row());
        keep(vec![
            Comparison {
                row: what.row(),
                variant: format!("{CONNECTIONS} connections over loopback"),
                place: None,
                unit,
                ours: per_core,
                peer,
                is_less_better: false,
                goal: None,
            }
            .json(),
        ]);
    }
    Ok(())
}

/// So many operations, or megabytes, are done.
fn load(what: What, depot: SocketAddr) -> Result<f64> {
    let (ahead, times) = what.amount();
    let clients: Vec<Result<()>> = thread::scope(|scope| {
        let client = || scope.spawn(move || client(what, depot, ahead, times));
        let clients: Vec<_> = (0..CONNECTIONS).map(|_| client()).collect();
        let end = |client: thread::ScopedJoinHandle<'_, Result<()>>| {
            client.join().unwrap_or_else(|_| bail!("it has panicked"))
        };
        clients.into_iter().map(end).collect()
    });
    clients.into_iter().collect::<Result<()>>()?;
    let done = (CONNECTIONS * ahead * times) as f64;
    Ok(match what {
        What::LoadLarge => done * LARGE_BYTES as f64 / 1e6,
        _ => done,
    })
}

fn client(what: What, depot: SocketAddr, ahead: usize, times: usize) -> Result<()> {
    let mut depot = Client::connect(depot)?;
    let bytes = if what == What::LoadLarge {
        LARGE_BYTES
    } else {
        SMALL_BYTES
    };
    let room = if what == What::StoreSmall {
        bytes * (times + 1)
    } else {
        bytes
    };
    let array = depot.allocate(room)?;
    depot.store(&array, &content(bytes))?;
    let read = format!("{} {}", array.read.key, array.read.attribute_key);
    let line = match what {
        What::Probe => format!("0 9 {read} 40 0 0\n"),
        What::LoadSmall | What::LoadLarge => format!("0 8 {read} 0 {bytes} 10\n"),
        What::Allocate => "0 1 1 1 60 1000 0\n".to_owned(),
        What::StoreSmall => String::new(),
    };
    let mut taken = vec![0; bytes];
    for _ in 0..times {
        if what == What::StoreSmall {
            depot.store(&array, &taken)?;
            continue;
        }
        depot
            .stream
            .get_mut()
            .write_all(line.repeat(ahead).as_bytes())?;
        for _ in 0..ahead {
            let answer = depot.line()?;
            ensure!(answer.starts_with("1 "), "{what:?}: {answer}");
            if matches!(what, What::LoadSmall | What::LoadLarge) {
                depot.stream.read_exact(&mut taken)?;
            }
        }
    }
    Ok(())
}

struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(depot: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(depot)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::with_capacity(256 << 10, stream),
        })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line)
    }

    fn allocate(&mut self, bytes: usize) -> Result<Capabilities> {
        let line = format!("0 1 2 1 600 {bytes} 0\n");
        self.stream.get_mut().write_all(line.as_bytes())?;
        let answer = self.line()?;
        let read = answer::read_capabilities(answer.trim_end().as_bytes());
        read.ok()
            .with_context(|| format!("no allocation: {answer}"))
    }

    fn store(&mut self, array: &Capabilities, bytes: &[u8]) -> Result<()> {
        let (key, attribute) = (&array.write.key, &array.write.attribute_key);
        let line = format!("0 2 {key} {attribute} {} 0\n", bytes.len());
        self.stream.get_mut().write_all(line.as_bytes())?;
        let go = self.line()?;
        ensure!(go.starts_with("1 "), "store: {go}");
        self.stream.get_mut().write_all(bytes)?;
        let stored = self.line()?;
        ensure!(stored.starts_with("1 "), "store: {stored}");
        Ok(())
    }
}
