//! How cost grows with the number of files and of clients; what a file costs in
//! memory and in what is written to the disk; how long a restart takes.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::contestant::{Contestant, number};
use super::remove;
use crate::bench::cpu;
use crate::bench::figures::Spread;
use crate::paths::Paths;
use crate::rig::network::Network;
use crate::rig::server::Kind;

/// Numbers of files.
const FILES: [u64; 3] = [10_000, 100_000, 1_000_000];
/// Peers are slow: they are not asked for more.
const PEER_FILES_MAX: u64 = 100_000;
/// Numbers of clients, each with one request outstanding.
const CLIENTS: [u64; 4] = [1, 8, 64, 512];
/// Clients that make and look up files, and requests of each.
const CROWD: u64 = 8;
/// What we want: so many files in a GiB of memory, and a restart with a million.
const FILES_PER_GIB: f64 = 4e6;
const RESTART_SECONDS: f64 = 2.0;
/// Worse than this part of what it was with few is worse than linear.
const LINEAR: f64 = 0.67;
const RESTARTS: usize = 3;
/// Times that names are looked up.
const LOOKS: usize = 3;
/// A server rests that spends less than this of a processor for so long; what it
/// has in arrears after the last file may take as long as the other.
const REST_SHARE: f64 = 0.03;
const REST: Duration = Duration::from_millis(500);
const REST_PATIENCE: Duration = Duration::from_secs(30);

/// What was seen of one server with so many files.
struct Grown {
    name: String,
    files: u64,
    create_rate: f64,
    /// With what is done after the last reply.
    create_cpu_us: f64,
    lookup_rate: f64,
    lookup_cpu_us: f64,
    /// Written to disks for a file.
    written_bytes: f64,
    /// Memory of the process for a file.
    memory_bytes: f64,
    restart_seconds: Vec<f64>,
}

/// Measures all, and prints the results of each step as one line.
pub(crate) fn run_as_root(paths: &Paths) -> Result<bool> {
    let folder = paths.test_data().join("bench-growth");
    remove(&folder)?;
    let mut few: Vec<Grown> = Vec::new();
    for files in FILES {
        let mut grown = Vec::new();
        for kind in ["ours", "plain", "durable"] {
            if kind != "ours" && files > PEER_FILES_MAX {
                continue;
            }
            let network = Network::new()?;
            let place = folder.join(format!("{kind}-{files}"));
            let mut server = start(kind, paths, &network, &place)?;
            grown.push(grow(&mut server, paths, files)?);
            if files == FILES[0] {
                println!("{}", Value::Array(crowds(&server, paths)?));
            }
            drop(server);
            remove(&place)?;
        }
        let base = few.first();
        println!("{}", Value::Array(rows(&grown, base)));
        if few.is_empty() {
            few = grown;
        }
    }
    remove(&folder)?;
    Ok(true)
}

fn start<'network>(
    kind: &str,
    paths: &Paths,
    network: &'network Network,
    folder: &Path,
) -> Result<Contestant<'network>> {
    match kind {
        "ours" => Contestant::server(Kind::Crossdock, paths, network, folder),
        kind => Contestant::ganesha(kind == "durable", paths, network, folder),
    }
}

/// Makes the files, looks them up, and starts the server again if it is ours.
fn grow(server: &mut Contestant<'_>, paths: &Paths, files: u64) -> Result<Grown> {
    eprintln!("{}: {files} files", server.name);
    let pid = server.pid()?;
    let each = files / CROWD;
    let flags = |work: &str, count: u64, seconds: &str| {
        vec![
            ("--work", work.to_owned()),
            ("--name", "growth".to_owned()),
            ("--clients", CROWD.to_string()),
            ("--outstanding", CROWD.to_string()),
            ("--count", count.to_string()),
            ("--seconds", seconds.to_owned()),
            ("--keep", String::new()),
        ]
    };
    let (memory, written) = (resident_bytes(pid)?, written_bytes(pid)?);
    let created = server.load(paths, &flags("create", each, "800"))?;
    let arrears = rest(pid)?;
    let (memory, written) = (resident_bytes(pid)? - memory, written_bytes(pid)? - written);
    let mut lookup = flags("random-lookup", 1 << 30, "1.5");
    lookup.push(("--again", String::new()));
    lookup.push(("--files", each.to_string()));
    let looked = (0..LOOKS)
        .map(|_| server.load(paths, &lookup))
        .collect::<Result<Vec<Value>>>()?;
    let looked = |of: fn(&Value) -> Result<f64>| -> Result<f64> {
        let each = looked.iter().map(of).collect::<Result<Vec<f64>>>()?;
        Ok(Spread::of(each.into_iter()).median)
    };
    let mut restart_seconds = Vec::new();
    if server.name == "crossdock" {
        for _ in 0..RESTARTS {
            restart_seconds.push(server.kill_and_start()?.as_secs_f64());
        }
    }
    Ok(Grown {
        name: server.name.clone(),
        files,
        create_rate: number(&created, "operations_per_second")?,
        create_cpu_us: cpu_us(&created)? + arrears * 1e6 / files as f64,
        lookup_rate: looked(|one| number(one, "operations_per_second"))?,
        lookup_cpu_us: looked(cpu_us)?,
        written_bytes: written / files as f64,
        memory_bytes: memory / files as f64,
        restart_seconds,
    })
}

/// What one kind of row shows.
struct Aspect {
    name: &'static str,
    unit: &'static str,
    of: fn(&Grown) -> f64,
    is_rate: bool,
}

const ASPECTS: [Aspect; 6] = [
    rate("create", |grown| grown.create_rate),
    cost("create-cpu", "CPU µs/op", |grown| grown.create_cpu_us),
    rate("lookup", |grown| grown.lookup_rate),
    cost("lookup-cpu", "CPU µs/op", |grown| grown.lookup_cpu_us),
    cost("written", "bytes to disk/create", |grown| {
        grown.written_bytes
    }),
    cost("memory", "bytes of memory/file", |grown| grown.memory_bytes),
];

/// More is better.
const fn rate(name: &'static str, of: fn(&Grown) -> f64) -> Aspect {
    Aspect {
        name,
        unit: "op/s",
        of,
        is_rate: true,
    }
}

/// Less is better.
const fn cost(name: &'static str, unit: &'static str, of: fn(&Grown) -> f64) -> Aspect {
    Aspect {
        name,
        unit,
        of,
        is_rate: false,
    }
}

/// Ours beside the peers with as many files, beside ourselves with few, and beside
/// what we want.
fn rows(grown: &[Grown], few: Option<&Grown>) -> Vec<Value> {
    let Some((ours, peers)) = grown.split_first() else {
        return Vec::new();
    };
    let variant = format!(
        "{} files: {CROWD} clients, {CROWD} outstanding each",
        ours.files
    );
    let mut rows = Vec::new();
    for aspect in &ASPECTS {
        let row = |peer_name: &str, theirs: f64, goal: Option<f64>| {
            let mine = (aspect.of)(ours);
            let ratio = match aspect.is_rate {
                true => mine / theirs,
                false => theirs / mine,
            };
            single(
                (aspect.name, &variant, aspect.unit),
                &[mine],
                (peer_name, theirs),
                ratio,
                goal,
            )
        };
        for peer in peers {
            rows.push(row(&peer.name, (aspect.of)(peer), None));
        }
        if let Some(few) = few.filter(|_| aspect.name != "memory") {
            let name = format!("crossdock with {} files", few.files);
            rows.push(row(&name, (aspect.of)(few), Some(LINEAR)));
        }
        if aspect.name == "memory" && few.is_some() {
            let wanted = (1u64 << 30) as f64 / FILES_PER_GIB;
            rows.push(row("4 M files per GiB", wanted, Some(1.0)));
        }
    }
    if let Some(seconds) = Some(&ours.restart_seconds).filter(|seconds| !seconds.is_empty()) {
        let spread = Spread::of(seconds.iter().copied());
        rows.push(single(
            ("restart", &variant, "s"),
            seconds,
            ("2 s", RESTART_SECONDS),
            RESTART_SECONDS / spread.median,
            Some(1.0),
        ));
    }
    rows
}

/// Rates with more and more clients, each with one request outstanding.
fn crowds(server: &Contestant<'_>, paths: &Paths) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for work in ["getattr", "create"] {
        let mut first = None;
        for clients in CLIENTS {
            let flags = [
                ("--work", work.to_owned()),
                ("--name", format!("crowd-{work}-{clients}")),
                ("--clients", clients.to_string()),
                ("--outstanding", "1".to_owned()),
                ("--count", (1u64 << 30).to_string()),
                ("--seconds", "1".to_owned()),
            ];
            let figures = server.load(paths, &flags)?;
            let (rate, cpu) = (
                number(&figures, "operations_per_second")?,
                cpu_us(&figures)?,
            );
            let few = *first.get_or_insert(cpu);
            let variant = format!(
                "{}: {work} with more clients, 1 outstanding each",
                server.name
            );
            rows.push(json!({
                "row": format!("{work}-{clients}"),
                "variant": variant,
                "unit": "CPU µs/op",
                "ours": Spread::of([cpu].into_iter()).json(),
                "rate": rate,
                "peer": {"name": "itself with 1 client", "median": few, "min": few, "max": few},
                "ratio": few / cpu,
                "goal": (server.name == "crossdock").then_some(LINEAR),
                "met": (server.name == "crossdock").then_some(few / cpu >= LINEAR),
            }));
        }
    }
    Ok(rows)
}

fn single(
    (name, variant, unit): (&str, &str, &str),
    ours: &[f64],
    (peer_name, peer): (&str, f64),
    ratio: f64,
    goal: Option<f64>,
) -> Value {
    let mut theirs = Spread::of([peer].into_iter()).json();
    theirs["name"] = json!(peer_name);
    eprintln!(
        "{name:<12} {unit:<22} {:>12.2} beside {peer:>12.2} {peer_name}",
        ours[0]
    );
    json!({
        "row": name,
        "variant": variant,
        "unit": unit,
        "ours": Spread::of(ours.iter().copied()).json(),
        "peer": theirs,
        "ratio": ratio.is_finite().then_some(ratio),
        "goal": goal,
        "met": goal.map(|goal| ratio >= goal),
    })
}

fn cpu_us(figures: &Value) -> Result<f64> {
    Ok(number(figures, "server_cpu_seconds")? / number(figures, "operations")? * 1e6)
}

/// Waits until a process rests; the CPU seconds that it needed for that.
#[expect(
    clippy::disallowed_methods,
    reason = "that nothing happens for a while is no event"
)]
fn rest(pid: u32) -> Result<f64> {
    let begun = cpu::seconds(pid)?;
    let patience = Instant::now() + REST_PATIENCE;
    let mut before = begun;
    loop {
        thread::sleep(REST);
        let now = cpu::seconds(pid)?;
        if now - before < REST_SHARE * REST.as_secs_f64() || Instant::now() > patience {
            return Ok(now - begun);
        }
        before = now;
    }
}

/// Memory of a process that is its own.
fn resident_bytes(pid: u32) -> Result<f64> {
    field(&format!("/proc/{pid}/status"), "RssAnon:").map(|kib| kib * 1024.0)
}

fn written_bytes(pid: u32) -> Result<f64> {
    field(&format!("/proc/{pid}/io"), "write_bytes:")
}

fn field(file: &str, name: &str) -> Result<f64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|line| line.split_whitespace().next());
    Ok(value.with_context(|| format!("no {name}"))?.parse()?)
}
