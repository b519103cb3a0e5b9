//! Real HTTP clients at the door of the released program: curl, wrk, aria2, a
//! browser, raw bytes, and clients that are slow, idle or many.

mod browser;
mod cases;
mod crowd;
mod curl;
mod limits;
mod overwrite;
mod pipeline;
mod rights;
mod tools;
pub(super) mod web;
pub(super) mod wire;

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::Stage;
use crate::install;
use crate::rig::server::Kind;
use web::Web;

/// One check at a server that all of them share.
type Check = (&'static str, fn(&Web<'_>) -> Result<()>);

/// In the order in which they run.
const CHECKS: [Check; 11] = [
    ("curl reads", curl::reads),
    ("curl writes", curl::writes),
    ("conditions and lists", curl::conditions_and_lists),
    ("names of any bytes", curl::names),
    ("rights", rights::check),
    ("cases of RFC 9110 and 9112", cases::check),
    ("pipelining", pipeline::check),
    ("wrk and aria2", tools::check),
    ("browser", browser::check),
    ("overwritten by PUT", overwrite::by_put),
    ("overwritten over NFS", overwrite::over_nfs),
];

/// Checks that start a server of their own, whose memory or limits they know.
const ALONE: [(&str, fn(&Stage<'_>) -> Result<()>); 3] = [
    ("limits and time-outs", limits::check),
    ("slow readers", crowd::slow_readers),
    ("idle connections", crowd::idle),
];

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    ensure!(
        stage.server == Kind::Crossdock,
        "this suite tests Crossdock's HTTP door"
    );
    install::http_clients()?;
    let web = Web::start(stage, "shared", &["--nodes", "2", "--size", "800M"])?;
    for (name, check) in CHECKS {
        let began = Instant::now();
        check(&web).context(name)?;
        println!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    }
    web.stop()?;
    for (name, check) in ALONE {
        let began = Instant::now();
        check(stage).context(name)?;
        println!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    }
    Ok(())
}
