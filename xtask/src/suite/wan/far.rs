//! Depots of one process that take from 30 to 55 ms there and back, each another time.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{expect_success, while_running};
use crate::process::run;
use crate::rig::depots;
use crate::rig::network::Network;
use crate::suite::Stage;
use crate::suite::cli::job;

const DEPOTS: usize = depots::ROUND_TRIPS.len();
const FILM_BYTES: usize = 24 << 20;
/// A moment at which the download is under way: all of it takes a second and more.
const MIDDLE: Duration = Duration::from_millis(400);
/// The node that is stopped then.
const STOPPED: u8 = 1;

/// The node of a depot is stopped in the middle of a download: all bytes come, those that it had from
/// others.
pub(super) fn stopped_while_downloading(stage: &Stage<'_>) -> Result<()> {
    let folder = stage.folder.join("far");
    fs::create_dir_all(&folder)?;
    let network = Network::new()?;
    let _line = depots::long_ways(stage.paths, &network, 0, &folder.join("line.log"))?;
    let binary = stage.paths.release_binary();
    let program = network.program(&binary);
    let listen = format!("0.0.0.0:{}", depots::PORT);
    let pool = depots::start(program, DEPOTS, &listen, &folder)?;
    let film = job::content("film", FILM_BYTES);
    fs::write(folder.join("film"), &film)?;
    let crossdock = |words: &[&str]| {
        let mut command = network.program(&binary);
        command
            .args(words)
            .current_dir(&folder)
            .stdin(Stdio::null());
        command
    };
    let near: Vec<String> = (0..DEPOTS).map(depots::near).collect();
    let words = [
        "upload",
        "film",
        "--direct",
        "--copies",
        "2",
        "--block-size",
        "1M",
    ];
    let more = ["--depot", &near.join(","), "--forecasts", "off"];
    run(&mut crossdock(&[&words[..], &more].concat()))?;
    depots::move_away(&folder.join("film.xnd"), DEPOTS)?;

    let download = ["download", "film.xnd", "-o", "back", "--forecasts", "off"];
    let more = ["--report", "report.json", "--timeout", "3s", "--json"];
    let download = crossdock(&[&download[..], &more].concat());
    let downloaded = while_running(download, MIDDLE, || {
        let words = ["node", "stop", &STOPPED.to_string(), "--admin", &pool.admin];
        run(&mut crossdock(&words))
    })?;
    expect_success(&downloaded)?;
    ensure!(fs::read(folder.join("back"))? == film, "other bytes");
    many_have_helped(&folder.join("report.json"))
}

/// Several depots have brought something, and the one that was stopped was asked.
fn many_have_helped(report: &Path) -> Result<()> {
    let report: Value = serde_json::from_slice(&fs::read(report)?)?;
    let all = report["depots"].as_array().context("no depots")?;
    let count = |depot: &Value, what: &str| depot[what].as_u64().unwrap_or(0);
    let brought = all.iter().filter(|depot| count(depot, "blocks") > 0);
    // With two copies of each part three have all of it at least.
    ensure!(brought.count() >= DEPOTS / 2, "{all:?}");
    let stopped = depots::far(usize::from(STOPPED))?;
    let asked = all.iter().find(|depot| depot["depot"] == stopped.as_str());
    let asked = asked.map(|it| ["blocks", "failed", "cancelled"].map(|what| count(it, what)));
    ensure!(
        asked.is_some_and(|counts| counts.iter().any(|&it| it > 0)),
        "{all:?}"
    );
    Ok(())
}
