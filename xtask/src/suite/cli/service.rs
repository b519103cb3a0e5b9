//! A server that runs: clean restart, status, nodes, logs, io_uring denied.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::call::{Call, Getattr};
use crossdock_nfs3::{Reply, Status};
use crossdock_tests_crash::client::Client;
use serde_json::Value;

use super::job::{self, BIG_BYTES};
use super::pool;
use super::program::{Up, crossdock, finish, finish_command, text};
use crate::process::program;
use crate::suite::Stage;

/// Nodes of the shared data; number 2 is the last.
pub(super) const NODES: &str = "3";

/// Data survives a graceful stop; `status` tells what it promises; every line
/// of the log is JSON; a stopped node's files are proved consistent.
pub(super) fn serve(stage: &Stage<'_>) -> Result<()> {
    let up = start(stage)?;
    job::write(&up, "first")?;
    job::verify(&up, "first")?;
    check_status(&up.ask(stage, &["status"])?.json(0)?)?;
    let log = up.stop()?;
    for key in ["timestamp", "level", "fields"] {
        ensure!(log.iter().all(|line| !line[key].is_null()), "no {key}");
    }
    for number in 0..3 {
        let node = pool(stage).join(format!("node-{number}"));
        let arguments = ["fsck", "--full", "--json", "--node", text(&node)?];
        let report = finish(stage, &arguments)?.json(0)?;
        ensure!(report["consistent"] == true, "{report}");
        ensure!(report["verified_blocks"].as_u64() > Some(0), "{report}");
    }
    let up = start(stage)?;
    let fsck = up.ask(stage, &["fsck"])?.json(0)?;
    ensure!(
        fsck["findings_total"] == 0
            && fsck["files"].as_u64() > Some(1)
            && fsck["objects"].as_u64() > Some(0),
        "{fsck}"
    );
    let mended = up.ask(stage, &["fsck", "--repair"])?.json(0)?;
    ensure!(mended["repaired"] == serde_json::json!([]), "{mended}");
    let scrub = up.ask(stage, &["scrub"])?.json(0)?;
    ensure!(
        scrub["findings"] == serde_json::json!([])
            && scrub["blocks_checked"].as_u64() >= Some(BIG_BYTES as u64 / 4096),
        "{scrub}"
    );
    job::verify(&up, "first")?;
    up.stop()?;
    Ok(())
}

/// While a node is down clients are asked to try again; then all is there.
pub(super) fn nodes(stage: &Stage<'_>) -> Result<()> {
    let up = start(stage)?;
    let mut client = Client::connect(up.nfs)?;
    let name = format!("first-{BIG_BYTES}");
    // Looked up before: the directory's log may be on the node as well.
    let file = job::lookup(&mut client, &name)?;
    up.ask(stage, &["node", "stop", "2"])?.json(0)?;
    let content = job::content(&name, BIG_BYTES);
    let statuses = job::read_handle(&mut client, &file, &content)?;
    ensure!(
        statuses.contains(&Some(Status::Jukebox))
            && statuses
                .iter()
                .all(|status| matches!(status, None | Some(Status::Jukebox))),
        "{statuses:?}"
    );
    let status = up.ask(stage, &["status"])?.json(0)?;
    ensure!(state_of_node_2(&status) == "stopped", "{status}");
    up.ask(stage, &["node", "stop", "2"])?
        .expect(1, &["node 2 is not running"])?;
    up.ask(stage, &["node", "stop", "7"])?
        .expect(1, &["there is no node 7", "crossdock status"])?;
    up.ask(stage, &["node", "start", "2"])?.json(0)?;
    while state_of_node_2(&up.ask(stage, &["status"])?.json(0)?) == "opening" {
        ensure!(Instant::now() < stage.deadline, "node 2 does not open");
    }
    job::verify(&up, "first")?;
    up.stop()?;
    Ok(())
}

/// A client that has sent its last call gets its replies, and then the end.
pub(super) fn half_closed_client(stage: &Stage<'_>) -> Result<()> {
    const CALLS: usize = 20;
    let up = start(stage)?;
    let mut client = Client::connect(up.nfs)?;
    let root = client.root();
    let object = root.as_handle();
    for _ in 0..CALLS {
        client.send(&Call::Getattr(Getattr { object }))?;
    }
    client.finish_sending()?;
    for _ in 0..CALLS {
        let (_, reply) = client.receive()?.context("closed before the replies")?;
        ensure!(matches!(reply, Reply::Getattr(Ok(_))), "{reply:?}");
    }
    ensure!(client.receive()?.is_none(), "more than was asked for");
    up.stop()?;
    Ok(())
}

/// Where a policy denies io_uring the same job is done by threads, with a
/// warning; who demands the ring gets an error.
pub(super) fn without_io_uring(stage: &Stage<'_>) -> Result<()> {
    let data = pool(stage);
    let denied = |arguments: &[&str]| -> Result<Command> {
        let mut command = program(std::env::current_exe()?);
        command
            .arg("without-io-uring")
            .arg(stage.paths.release_binary())
            .args([
                "up",
                "--data",
                text(&data)?,
                "--http",
                "off",
                "--iscsi",
                "off",
                "--ibp",
                "off",
                "--lbone",
                "off",
            ])
            .args(arguments);
        Ok(command)
    };
    let up = Up::start(stage, denied(&[])?)?;
    let status = up.ask(stage, &["status"])?.json(0)?;
    ensure!(status["io"] == "threads", "{status}");
    job::verify(&up, "first")?;
    job::write(&up, "second")?;
    job::verify(&up, "second")?;
    up.ask(stage, &["scrub"])?.json(0)?;
    let log = up.stop()?;
    let is_warning = |line: &Value| {
        line["level"] == "WARN"
            && line["fields"]
                .to_string()
                .contains("io_uring is not available")
    };
    ensure!(log.iter().any(is_warning), "no warning in {log:?}");
    finish_command(stage, denied(&["--io", "uring"])?)?.expect(1, &["--io auto"])?;
    let up = start(stage)?;
    job::verify(&up, "second")?;
    up.stop()?;
    Ok(())
}

/// Starts a server on the shared data.
pub(super) fn start(stage: &Stage<'_>) -> Result<Up> {
    let data = pool(stage);
    let arguments = ["up", "--nodes", NODES, "--data", text(&data)?];
    Up::start(stage, crossdock(stage, &arguments))
}

fn check_status(status: &Value) -> Result<()> {
    let nodes = status["nodes"].as_array().context("nodes")?;
    ensure!(nodes.len() == 3, "{status}");
    for node in nodes {
        let number = |key: &str| node[key].as_u64();
        ensure!(
            node["state"] == "running"
                && number("capacity_bytes") > number("used_bytes")
                && number("used_bytes") > Some(0)
                && number("free_bytes") > Some(0)
                && number("objects") > Some(0)
                && number("flushes") > Some(0)
                && number("media_errors") == Some(0),
            "{node}"
        );
    }
    let doors = status["doors"].as_array().context("doors")?;
    ensure!(
        doors[0]["name"] == "nfs"
            && doors[1]["name"] == "http"
            && doors[2]["name"] == "iscsi"
            && doors[3]["name"] == "admin"
            && status["warnings"] == serde_json::json!(["not redundant: all nodes on one device"])
            // The root and the files.
            && status["files"].as_u64() == Some(1 + job::LENGTHS_BYTES.len() as u64)
            && status["requests"].as_u64() > Some(0)
            && status["replicas"] == 1
            && status["ensemble"].as_str().is_some_and(|id| id.len() == 16),
        "{status}"
    );
    Ok(())
}

fn state_of_node_2(status: &Value) -> &str {
    status["nodes"][2]["state"].as_str().unwrap_or_default()
}
