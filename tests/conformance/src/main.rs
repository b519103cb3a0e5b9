//! Conformance of the NFSv3 and MOUNT door, checked on raw bytes: no kernel's
//! client in between that would repair, retry or never send what is sent here.
//!
//! The program starts the real `crossdock` on data of its own, runs every
//! [`Check`](runner::Check) in a fresh directory, and prints how many passed
//! by subject. A subject is a file; the name of a check is a sentence about the
//! server. The specifications are RFC 1813 (NFS, MOUNT), RFC 5531 (RPC), Open Group C702 (NLM,
//! NSM) and RFC 1833 (portmapper);
//! where these are silent, a check says what Linux's server and Ganesha do.
//!
//! At the end [`coverage`] compares which status every procedure has answered
//! with what RFC 1813 lists for it, and knows the reason for each that this
//! volume cannot produce.
//!
//! `--server PATH --folder DIR [--json] [SUBJECT…]`; `--at ADDRESS` instead of the two
//! checks a gateway that stands already, with all but the checks that start servers of
//! their own and without the comparison, which needs those.

mod client;
mod coverage;
mod hand;
mod operations;
mod runner;
mod wire;

mod attributes;
mod auth;
mod creation;
mod data;
mod datagrams;
mod exports;
mod framing;
mod fullness;
mod golden;
mod handles;
mod limits;
mod locks;
mod mounts;
mod names;
mod overload;
mod permissions;
mod portmap;
mod quotas;
mod races;
mod readdir;
mod removal;
mod retransmission;
mod rpc_errors;
mod unstable;
mod volume;
mod weak_cache;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

use runner::{Report, Run, Subject, Target};

/// Everything that is checked, in the order in which it runs.
const SUBJECTS: &[Subject] = &[
    Subject::new("golden", golden::CHECKS),
    Subject::new("rpc_errors", rpc_errors::CHECKS),
    Subject::new("framing", framing::CHECKS),
    Subject::new("auth", auth::CHECKS),
    Subject::new("mounts", mounts::CHECKS),
    Subject::new("names", names::CHECKS),
    Subject::new("creation", creation::CHECKS),
    Subject::new("removal", removal::CHECKS),
    Subject::new("attributes", attributes::CHECKS),
    Subject::new("weak_cache", weak_cache::CHECKS),
    Subject::new("permissions", permissions::CHECKS),
    Subject::new("data", data::CHECKS),
    Subject::new("unstable", unstable::CHECKS),
    Subject::new("handles", handles::CHECKS),
    Subject::new("readdir", readdir::CHECKS),
    Subject::new("volume", volume::CHECKS),
    Subject::new("exports", exports::CHECKS),
    Subject::new("quotas", quotas::CHECKS),
    Subject::new("datagrams", datagrams::CHECKS),
    Subject::new("retransmission", retransmission::CHECKS),
    Subject::new("locks", locks::CHECKS),
    Subject::new("portmap", portmap::CHECKS),
    Subject::new("races", races::CHECKS),
    Subject::new("limits", limits::CHECKS),
    Subject::new("overload", overload::CHECKS),
    Subject::new("fullness", fullness::CHECKS),
];

struct Options {
    server: Option<PathBuf>,
    folder: Option<PathBuf>,
    at: Option<SocketAddr>,
    json: bool,
    subjects: Vec<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// `false`: something failed.
fn run() -> Result<bool> {
    let options = parse(std::env::args().skip(1))?;
    limits::raise_descriptor_limit()?;
    let is_chosen = |subject: &&Subject| {
        options.subjects.is_empty() || options.subjects.iter().any(|name| name == subject.name)
    };
    let chosen: Vec<&Subject> = SUBJECTS.iter().filter(is_chosen).collect();
    let mut report = Report::default();
    let target = options.target()?;
    let mut run = Run::start(&target, !options.json)?;
    for subject in &chosen {
        run.subject(subject, &mut report)?;
    }
    if options.subjects.is_empty() && options.at.is_none() {
        run.single("coverage", coverage::CHECK, &mut report)?;
    }
    run.stop(&mut report)?;
    if options.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.table());
    }
    Ok(report.is_passed())
}

impl Options {
    fn target(&self) -> Result<Target<'_>> {
        match (&self.server, &self.folder, self.at) {
            (Some(server), Some(folder), None) => Ok(Target::Fresh(server, folder)),
            (None, None, Some(at)) => Ok(Target::Standing(at)),
            _ => bail!("--server PATH and --folder DIR, or --at ADDRESS"),
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options> {
    let (mut server, mut folder, mut at) = (None, None, None);
    let (mut json, mut subjects) = (false, Vec::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--server" => server = words.next().map(PathBuf::from),
            "--folder" => folder = words.next().map(PathBuf::from),
            "--at" => at = words.next().map(|at| at.parse()).transpose()?,
            "--json" => json = true,
            name if SUBJECTS.iter().any(|subject| subject.name == name) => subjects.push(word),
            other => bail!("no such option or subject: {other}"),
        }
    }
    Ok(Options {
        server,
        folder,
        at,
        json,
        subjects,
    })
}
