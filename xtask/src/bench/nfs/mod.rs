//! `bench nfs`: beside nfs-ganesha, and beside what disk and loopback can do.
//!
//! All servers stand from the first row to the last, each in a network of its own;
//! for each row the load visits them in turn, several rounds. Servers have one
//! processor for themselves, the load generator the other; all servers are in one
//! memory cgroup.

mod contestant;
mod ground;
mod growth;
mod rows;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::thread::sched_getaffinity;
use serde_json::{Value, json};

use super::figures::{Figure, Sample, row as result_row};
use super::{Options, Subject, parse};
use crate::paths::Paths;
use crate::process::{program, run as run_program};
use crate::rig::memory::MemoryGroup;
use crate::rig::network::Network;
use crate::rig::server::Kind;
use contestant::{Contestant, Visit, limit};
pub(super) use contestant::{LOAD_CPU, SERVER_CPU, load_figures, number, on_cpu, sample};
use ground::{MEMORY_BYTES, SLOW_CREATE};
pub(super) use ground::{counted_calls, counting_calls, drop_page_cache, fio_cold};
pub(crate) use growth::run_as_root as run_growth_as_root;
pub(super) use rows::names as row_names;
use rows::{Peer, Row};

/// Measures, and prints the results of each row as one line; what people want
/// to see goes to standard error.
pub(crate) fn run_as_root(paths: &Paths, words: &[&str]) -> Result<bool> {
    let options = parse(words, &row_names())?;
    let cpus = sched_getaffinity(None)?;
    ensure!(
        cpus.is_set(SERVER_CPU) && cpus.is_set(LOAD_CPU),
        "processors {SERVER_CPU} and {LOAD_CPU} are needed"
    );
    let is_wanted =
        |row: &Row| options.rows.is_empty() || options.rows.iter().any(|it| it == row.name);
    let wanted: Vec<Row> = rows::all().into_iter().filter(is_wanted).collect();
    let folder = paths.test_data().join("bench-nfs");
    remove(&folder)?;
    let networks: Vec<Network> = (0..4).map(|_| Network::new()).collect::<Result<_>>()?;
    let mut field = Field::start(paths, &options, &networks, &folder)?;
    let mut all_measured = true;
    for (number, row) in wanted.iter().enumerate() {
        eprintln!("[{}/{}] {}", number + 1, wanted.len(), row.variant());
        match field.measure(row, options.full) {
            Ok(results) => println!("{}", Value::Array(results)),
            Err(error) => {
                eprintln!("{}: FAILED: {error:#}", row.label());
                all_measured = false;
            }
        }
    }
    drop(field);
    remove(&folder)?;
    Ok(all_measured)
}

/// Everybody who takes part.
struct Field<'run> {
    paths: &'run Paths,
    /// Where limits are measured: on the disk of the others.
    folder: PathBuf,
    ours: Contestant<'run>,
    plain: Contestant<'run>,
    durable: Contestant<'run>,
    floor: Contestant<'run>,
    memory: Option<MemoryGroup>,
}

impl<'run> Field<'run> {
    fn start(
        paths: &'run Paths,
        options: &Options,
        networks: &'run [Network],
        folder: &Path,
    ) -> Result<Self> {
        let [first, second, third, fourth] = networks else {
            anyhow::bail!("four networks are needed");
        };
        let place = folder.join("limits");
        fs::create_dir_all(&place)?;
        let kind = match options.server {
            Subject::Crossdock => Kind::Crossdock,
            Subject::Ganesha => Kind::Ganesha,
            Subject::Nginx => anyhow::bail!("nginx does not speak NFS"),
        };
        let ours = Contestant::server(kind, paths, first, &folder.join("ours"))?;
        let plain = Contestant::ganesha(false, paths, second, &folder.join("plain"))?;
        let durable = Contestant::ganesha(true, paths, third, &folder.join("durable"))?;
        let floor = Contestant::floor(paths, fourth, &folder.join("floor"))?;
        let memory = MemoryGroup::new("bench-nfs", MEMORY_BYTES)?;
        match &memory {
            Some(group) => {
                for server in [&ours, &plain, &durable] {
                    server.limit_memory(group)?;
                }
            }
            None => eprintln!("no memory cgroup of version 1 here: the servers have all memory"),
        }
        Ok(Self {
            paths,
            folder: place,
            ours,
            plain,
            durable,
            floor,
            memory,
        })
    }

    /// All rounds of one row; a result for each peer and figure.
    fn measure(&mut self, row: &Row, full: bool) -> Result<Vec<Value>> {
        let (rounds, seconds) = match full {
            true => (9, 10.0),
            false => (5, 0.5),
        };
        let peers = row.all_peers();
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); peers.len() + 1];
        let mut slowest_create = None;
        for round in 0..=rounds {
            let is_counted = round == rounds;
            if row.makes_files() && !is_counted {
                let took = ground::local_create(&self.plain.folder)?;
                slowest_create = slowest_create.max(Some(took));
            }
            let visit = Visit {
                row,
                seconds,
                // New for each visit, so that the directories are elsewhere.
                name: format!(
                    "{}-{}-{round}",
                    row.label().replace(' ', "-"),
                    std::process::id()
                ),
                folder: &self.folder.clone(),
            };
            let takes_part = [None].into_iter().chain(peers.iter().copied().map(Some));
            for (peer, samples) in takes_part.zip(&mut samples) {
                if is_counted {
                    self.count_calls(peer, &visit, samples)?;
                } else {
                    samples.push(self.visit(peer, &visit)?);
                }
            }
        }
        let mut results = Vec::new();
        for figure in Figure::ALL {
            for (peer, theirs) in peers.iter().zip(&samples[1..]) {
                let name = self.name_of(*peer);
                let label = (row.label(), row.variant());
                let goal = row.goal(*peer, figure);
                let result = result_row(
                    label,
                    figure,
                    row.is_bulk(),
                    &samples[0],
                    (&name, theirs),
                    goal,
                );
                let Some(mut result) = result else { continue };
                result["worth"] = json!(row.worth(*peer));
                if let Some(took) = slowest_create {
                    result["local_create_us"] = json!(took.as_secs_f64() * 1e6);
                    result["local_create_slow"] = json!(took > SLOW_CREATE);
                }
                eprintln!("{}", summary(&result));
                results.push(result);
            }
        }
        Ok(results)
    }

    /// `None` is us.
    fn visit(&mut self, peer: Option<Peer>, visit: &Visit<'_>) -> Result<Sample> {
        let name = peer.map_or_else(|| "crossdock".to_owned(), |peer| self.name_of(peer));
        let sample = match peer {
            Some(peer @ (Peer::DurableFloor | Peer::Fio)) => {
                limit(peer, self.paths, visit, &mut self.floor)
            }
            peer => {
                let (paths, memory) = (self.paths, self.memory.take());
                let sample = self.standing(peer).visit(paths, visit, memory.as_ref());
                self.memory = memory;
                sample
            }
        };
        sample.context(name)
    }

    fn count_calls(
        &mut self,
        peer: Option<Peer>,
        visit: &Visit<'_>,
        samples: &mut [Sample],
    ) -> Result<()> {
        let is_limit = matches!(peer, Some(Peer::DurableFloor | Peer::Fio));
        if is_limit || visit.row.is_cold {
            return Ok(());
        }
        let paths = self.paths;
        let calls = self.standing(peer).count_calls(paths, visit)?;
        for sample in samples {
            sample.calls = Some(calls);
        }
        Ok(())
    }

    fn standing(&mut self, peer: Option<Peer>) -> &mut Contestant<'run> {
        match peer {
            None => &mut self.ours,
            Some(Peer::Plain) => &mut self.plain,
            Some(Peer::Durable) => &mut self.durable,
            Some(Peer::Floor | Peer::DurableFloor | Peer::Fio) => &mut self.floor,
        }
    }

    fn name_of(&self, peer: Peer) -> String {
        match peer {
            Peer::Plain => self.plain.name.clone(),
            Peer::Durable => self.durable.name.clone(),
            Peer::Floor => self.floor.name.clone(),
            Peer::DurableFloor => "floor: echo + 4 KiB write + fdatasync".to_owned(),
            Peer::Fio => "fio on the disk".to_owned(),
        }
    }
}

pub(super) fn summary(result: &Value) -> String {
    let number = |value: &Value| {
        value
            .as_f64()
            .map_or_else(|| "?".to_owned(), |it| format!("{it:.2}"))
    };
    format!(
        "{:<18} {:>12} {:<12} {:>12} {:<44} ratio {}",
        result["row"].as_str().unwrap_or("?"),
        number(&result["ours"]["median"]),
        result["unit"].as_str().unwrap_or("?"),
        number(&result["peer"]["median"]),
        result["peer"]["name"].as_str().unwrap_or("?"),
        number(&result["ratio"]),
    )
}

/// Removes a folder that may have been written through, which would be slow.
fn remove(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    run_program(program("chattr").args(["-R", "-f", "-S", "-D"]).arg(folder))?;
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}
