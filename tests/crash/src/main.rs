//! kill -9 in the middle of writing, round after round on the same data: what
//! the server acknowledged is there afterwards, to the byte.
//!
//! A [`Writer`](writer::Writer) keeps many NFS calls outstanding over one raw
//! connection; a [`Witness`](witness::Witness) outside of the server records
//! what was sent and what was acknowledged. At a random, seeded moment the
//! server gets SIGKILL. It is started again, and everything the witness knows
//! is compared with what the server now says (invariants 1 and 3 of the design,
//! for a restart).
//!
//! Prints the seed; `--seed` repeats the same calls (not the same timing: the
//! server is a real process).

mod random;
mod verify;
mod witness;
mod writer;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crossdock_tests_crash::client::Client;
use crossdock_tests_crash::exit_code;
use crossdock_tests_crash::server::Server;
use random::Random;
use witness::Witness;
use writer::Writer;

/// Replies that the writer waits for at least and at most before the kill.
const REPLIES_BEFORE_KILL: (u64, u64) = (30, 600);
/// The kill comes up to this much later, so that it hits any place in the code.
const KILL_DELAY_US_MAX: u64 = 20_000;

struct Options {
    server: PathBuf,
    folder: PathBuf,
    rounds: u32,
    seed: u64,
}

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    let options = parse(std::env::args().skip(1))?;
    println!("seed {}, {} rounds", options.seed, options.rounds);
    let mut random = Random::new(options.seed);
    let mut witness = Witness::create(&options.folder.join("witness.log"))?;
    let mut in_flight_min = usize::MAX;

    for round in 1..=options.rounds {
        let mut server = Server::start(&options.server, &options.folder)?;
        let mut client = Client::connect(server.address())?;
        witness.note(&format!("round {round}"))?;
        verify::all(&mut client, &mut witness, &mut random)
            .with_context(|| format!("round {round}, seed {}", options.seed))?;

        let writer = Writer::new(&mut client, &mut witness, &mut random);
        let in_flight = writer
            .write_until_killed(&mut server, REPLIES_BEFORE_KILL, KILL_DELAY_US_MAX)
            .with_context(|| format!("round {round}, seed {}", options.seed))?;
        in_flight_min = in_flight_min.min(in_flight);
    }

    let server = Server::start(&options.server, &options.folder)?;
    let mut client = Client::connect(server.address())?;
    verify::all(&mut client, &mut witness, &mut random).context("after the last round")?;
    server.stop()?;
    ensure!(
        in_flight_min >= writer::WRITES_OUTSTANDING_MIN,
        "only {in_flight_min} writes were outstanding at one of the kills"
    );
    println!(
        "{} kills, at least {in_flight_min} writes outstanding at each: {}",
        options.rounds,
        witness.summary()
    );
    Ok(())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options> {
    let (mut server, mut folder, mut rounds, mut seed) = (None, None, 50, None);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word}: value?"))?;
        match word.as_str() {
            "--server" => server = Some(PathBuf::from(value)),
            "--folder" => folder = Some(PathBuf::from(value)),
            "--rounds" => rounds = value.parse()?,
            "--seed" => seed = Some(value.parse()?),
            other => bail!("no such option: {other}"),
        }
    }
    Ok(Options {
        server: server.context("--server PATH is missing")?,
        folder: folder.context("--folder DIR is missing")?,
        rounds,
        seed: seed.map_or_else(seed_from_clock, Ok)?,
    })
}

fn seed_from_clock() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.as_secs() ^ (u64::from(now.subsec_nanos()) << 20))
}
