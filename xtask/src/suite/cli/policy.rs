//! `crossdock policy` on a running server: rules that are set, shown, kept over a restart and
//! removed; an HTTP client that is sent to the node; what an administrator may get wrong.

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::call::{Call, Rename};
use crossdock_tests_crash::client::Client;

use super::exports::{create, location, make_directory};
use super::program::Finished;
use super::service;
use crate::suite::Stage;

/// What `crossdock policy` does lasts, and is of a file whatever that is called.
pub(super) fn changes(stage: &Stage<'_>) -> Result<()> {
    let up = service::start(stage)?;
    let mut client = Client::connect(up.nfs)?;
    let root = client.root();
    let films = make_directory(&mut client, &root, "films")?;
    create(&mut client, &films, "may").map_err(|status| anyhow::anyhow!("{status}"))?;

    let policy = |words: &[&str]| up.ask(stage, &[&["policy"], words].concat());
    ensure!(policy(&["show"])?.json(0)? == serde_json::json!([]));
    let whole = policy(&["set", "//films/", "relay"])?.json(0)?;
    ensure!(
        whole["path"] == "/films"
            && whole["mode"] == "relay"
            && whole["when"] == serde_json::json!({}),
        "{whole}"
    );
    let words = [
        "set",
        "/films/may",
        "inject",
        "--door",
        "http",
        "--from",
        "64K",
    ];
    let file = policy(&words)?.json(0)?;
    ensure!(file["when"]["from_bytes"] == 65_536, "{file}");
    // In place of the first.
    let other = policy(&["set", "/films", "redirect"])?.json(0)?;
    ensure!(other["id"] != whole["id"], "{other}");
    let shown = policy(&["show", "/films/may"])?.json(0)?;
    ensure!(shown == serde_json::json!([file, other]), "{shown}");
    ensure!(policy(&["show", "/music"])?.json(0)? == serde_json::json!([]));
    refusals(&policy)?;
    let call = Call::Rename(Rename {
        source: location(&root, "films"),
        target: location(&root, "cinema"),
    });
    ensure!(client.call(&call)?.status().is_none(), "cannot rename");
    up.stop()?;

    let up = service::start(stage)?;
    let policy = |words: &[&str]| up.ask(stage, &[&["policy"], words].concat());
    let shown = policy(&["show"])?.json(0)?;
    ensure!(shown == serde_json::json!([file, other]), "{shown}");
    let id = file["id"].as_str().context("no number")?;
    policy(&["remove", id])?.json(0)?;
    policy(&["remove", "/films"])?.json(0)?;
    ensure!(policy(&["show"])?.json(0)? == serde_json::json!([]));
    up.stop()?;
    Ok(())
}

/// What an administrator may get wrong is refused with a next step.
fn refusals(policy: &dyn Fn(&[&str]) -> Result<Finished>) -> Result<()> {
    let cases: [(&[&str], i32, &[&str]); 8] = [
        (&["set", "/films"], 2, &["MODE"]),
        (
            &["set", "/films", "push"],
            2,
            &["relay", "redirect", "inject"],
        ),
        (
            &["set", "/films", "relay", "--from", "much"],
            2,
            &["--from"],
        ),
        (
            &["set", "/films", "relay", "--hot", "--cold"],
            2,
            &["--cold"],
        ),
        (
            &["set", "/films", "relay", "--client", "10.0.0.0/40"],
            2,
            &["prefix"],
        ),
        (
            &["set", "/films", "relay", "--from", "8K", "--below", "8K"],
            1,
            &["--from", "--below"],
        ),
        (&["set", "/nowhere", "relay"], 1, &["/nowhere", "make it"]),
        (&["remove", "/films/june"], 1, &["no rule", "policy show"]),
    ];
    for (words, code, expected) in cases {
        policy(words)?
            .expect(code, expected)
            .with_context(|| format!("{words:?}"))?;
    }
    Ok(())
}
