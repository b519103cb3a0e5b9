//! Real HTTP clients at the door of the released program: curl, wrk, aria2, a
//! browser, raw bytes, and clients that are slow, idle or many; with and without TLS.

mod browser;
mod cases;
mod crowd;
mod curl;
mod decisions;
mod limits;
pub(super) mod nodes;
mod overwrite;
mod pipeline;
mod renewal;
mod rights;
mod tools;
pub(super) mod web;
pub(super) mod wire;

use std::time::Instant;

use anyhow::{Result, ensure};

use super::Stage;
use crate::install;
use web::Web;

/// One check at a server that all of them share.
type Check = (&'static str, fn(&Web<'_>) -> Result<()>);

/// In the order in which they run.
const CHECKS: [Check; 14] = [
    ("curl reads", curl::reads),
    ("curl writes", curl::writes),
    ("conditions and lists", curl::conditions_and_lists),
    ("names of any bytes", curl::names),
    ("rights", rights::check),
    ("cases of RFC 9110 and 9112", cases::check),
    ("pipelining", pipeline::check),
    ("pipelining without reading", pipeline::flood),
    ("wrk and aria2", tools::check),
    ("browser", browser::check),
    ("overwritten by PUT", overwrite::by_put),
    ("overwritten over NFS", overwrite::over_nfs),
    ("pieces from nodes", nodes::check),
    ("decisions of delivery", decisions::check),
];

/// Those that are made over HTTPS, too: what differs is who carries the bytes.
const SECURE_CHECKS: [Check; 9] = [
    ("curl reads", curl::reads),
    ("curl writes", curl::writes),
    ("cases of RFC 9110 and 9112", cases::check),
    ("pipelining", pipeline::check),
    ("wrk and aria2", tools::check),
    ("browser", browser::check),
    ("overwritten by PUT", overwrite::by_put),
    ("pieces from nodes", nodes::check),
    ("a new certificate", renewal::check),
];

/// One that starts a server of its own, whose memory or limits it knows.
type AloneCheck = (&'static str, fn(&Stage<'_>) -> Result<()>);

const ALONE: [AloneCheck; 4] = [
    ("limits and time-outs", limits::check),
    ("slow readers", crowd::slow_readers),
    ("idle connections", crowd::idle),
    ("idle connections over TLS", crowd::idle_over_tls),
];

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    install::http_clients()?;
    let mut failures = Vec::new();
    let words = ["--nodes", "2", "--size", "800M"];
    let web = Web::start(stage, "shared", &words)?;
    for (name, check) in CHECKS {
        failures.extend(judge(name, || check(&web)));
    }
    failures.extend(judge("stop", || web.stop()));
    let web = Web::start_https(stage, "secure", &words)?;
    for (name, check) in SECURE_CHECKS {
        failures.extend(judge(&format!("HTTPS: {name}"), || check(&web)));
    }
    failures.extend(judge("HTTPS: stop", || web.stop()));
    for (name, check) in ALONE {
        failures.extend(judge(name, || check(stage)));
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// What is wrong, if something is: one check does not keep the others from being made.
fn judge(name: &str, check: impl FnOnce() -> Result<()>) -> Option<String> {
    let began = Instant::now();
    let failure = check().err().map(|error| format!("{name}: {error:#}"));
    println!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    failure
}
