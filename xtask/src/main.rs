//! The one entry for people and CI: `cargo xtask COMMAND`.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage.

mod admin;
mod bench;
mod bpf;
mod console;
mod fresh;
mod fuzz;
mod install;
mod package;
mod paths;
mod policy;
mod process;
mod report;
mod rig;
mod semantics;
mod suite;
mod test;

use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::Result;

use paths::Paths;
use process::run;

const USAGE: &str = "\
cargo xtask up [ARGUMENT…]      builds Crossdock and starts it: crossdock up ARGUMENT…
cargo xtask test [SUITE…]       installs what the tests need and runs them; with names, those suites only
    --full                      with the slow suites; writes bench/results/full-test.txt
    --fresh                     runs the README's two commands in a bare Debian tree instead
    --server crossdock|ganesha  which server the suites test (a peer shows faults of the rigs)
    --init WORDS                further words of cluster init, for the suites that make an ensemble
cargo xtask package             makes a Debian package and a tarball in target/package
cargo xtask policy              checks licences and sources of dependencies, and that promises have tests
cargo xtask bench NAME [ROW…]   measures beside peers, in alternation (NAME: nfs, growth,
                                http, ibp, ensemble, iscsi, spiral, store, restart);
                                writes bench/results/NAME.json and docs/benchmarks.md
    --full                      long runs
    --init WORDS                ensemble: further words of cluster init
    --server ganesha|nginx      nfs|http: a peer in our place, to see the noise; writes nothing
cargo xtask gen [WHAT]          makes what is checked in: benchmarks (docs/benchmarks.md from bench/results),
                                console (its bundle, by npm), bpf (the kernel's program, by clang);
                                console-picture: docs/console.png
    --check                     proves that bundle and program are fresh, and changes nothing
cargo xtask rig cluster up      builds an ensemble of many hosts (network namespaces) and prints it as JSON
    --nodes N --managers N --gateways N --clients N --replicas N --size BYTES (of each node)
    --client-gateways N         so many of the clients have a gateway of their own, on loopback
    --init WORDS                further words of cluster init
    --rate MEGABITS, --rate ROLE=MEGABITS   of the hosts' links
cargo xtask rig cluster down    ends its processes and removes its namespaces
cargo xtask rig spiral up       the same with one manager and five nodes, which send long replies themselves
cargo xtask rig spiral down     (third-party transfer); HTTP at port 8080 of the gateways
cargo xtask rig slowdisk up     makes a disk with one arm (60 MB/s, 8 ms) with ext4, says where, and what it does
    --size BYTES
cargo xtask rig slowdisk down   takes it off
cargo xtask rig wan up          makes depots behind links of their own, and a client's host; prints them as JSON
    --depots MEGABITS,…         of each depot's link (100,50,50,20,10,5 unless said), --client MEGABITS of the client's
    --flow MEGABITS             of each connection, as over long lines
cargo xtask rig wan down        ends its processes and removes its namespaces
cargo xtask fuzz [TARGET…]      10^6 executions of each fuzz target (installs a nightly compiler), and the
                                running program's sockets for ten minutes (target: sockets)
cargo xtask sim [NAME] [--seeds N] [--seed S]   runs a simulated scenario on many seeds (NAME: store, closing,
                                host, ensemble, races, luns, delivery; without one: all of them)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

/// Runs one command; `false` says that it ran and found failures.
fn dispatch(words: &[&str]) -> Result<bool> {
    let paths = Paths::find()?;
    match words {
        ["up", ..] => build_and_become(&paths, "crossdock", words),
        ["test", arguments @ ..] => test::run(&paths, arguments),
        ["package"] => package::run_command(&paths),
        ["policy"] => policy::check(&paths).map(|()| true),
        ["bench", arguments @ ..] => bench::run(&paths, arguments),
        ["gen", "benchmarks"] => bench::generate(&paths).map(|()| true),
        ["gen", "console"] => console::generate(&paths).map(|()| true),
        ["gen", "console-picture"] => suite::console::take_picture(&paths).map(|()| true),
        ["gen", "bpf"] => bpf::generate(&paths).map(|()| true),
        ["gen", "--check"] => console::check(&paths)
            .and_then(|()| bpf::check(&paths))
            .map(|()| true),
        ["gen"] => bench::generate(&paths)
            .and_then(|()| console::generate(&paths))
            .and_then(|()| bpf::generate(&paths))
            .map(|()| true),
        ["fuzz", targets @ ..] => fuzz::run(&paths, targets),
        // What test and bench call through sudo, and what rigs call inside a namespace.
        ["suites", server, init, names @ ..] => test::run_suites(&paths, server, init, names),
        ["bench-nfs", arguments @ ..] => bench::run_nfs_as_root(&paths, arguments),
        ["bench-http", arguments @ ..] => bench::run_http_as_root(&paths, arguments),
        ["bench-ibp", arguments @ ..] => bench::run_ibp_as_root(&paths, arguments),
        ["bench-ensemble", arguments @ ..] => bench::run_ensemble_as_root(&paths, arguments),
        ["bench-iscsi", arguments @ ..] => bench::run_iscsi_as_root(&paths, arguments),
        ["bench-spiral", arguments @ ..] => bench::run_spiral_as_root(&paths, arguments),
        ["bench-growth", ..] => bench::run_growth_as_root(&paths),
        ["rig", "slowdisk", words @ ..] => rig::slowdisk::command(&paths, words),
        ["rig", "wan", words @ ..] => rig::wan::command(&paths, words),
        ["rig", name @ ("cluster" | "spiral"), words @ ..] => {
            rig::cluster::command(&paths, name, words)
        }
        ["forward", from, to] => rig::network::serve_forward(from, to).map(|()| true),
        ["without-io-uring", program, arguments @ ..] => {
            rig::seccomp::become_without_io_uring(program, arguments)
        }
        ["portmap-stub"] => rig::portmap::serve().map(|()| true),
        ["sim", arguments @ ..] => build_and_become(&paths, "crossdock-sim", arguments),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(true)
        }
        [] => Err(Usage(format!("no command\n{USAGE}")).into()),
        [other, ..] => Err(Usage(format!("no such command: {other}\n{USAGE}")).into()),
    }
}

/// Builds one of our programs and becomes it.
fn build_and_become(paths: &Paths, name: &str, arguments: &[&str]) -> Result<bool> {
    let mut cargo = crate::process::cargo();
    cargo.args(["build", "--release", "--bin", name]);
    run(cargo.current_dir(&paths.root))?;
    let program = paths.target.join("release").join(name);
    Err(Command::new(program).args(arguments).exec().into())
}

/// The command line was wrong; nothing was done.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
