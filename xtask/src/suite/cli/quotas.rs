//! Quotas of a running server: set on a filled directory, changed, listed, kept
//! over a restart and removed; what an administrator may get wrong.

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::Status;
use crossdock_nfs3::call::{Call, Rename};
use crossdock_tests_crash::client::Client;

use super::exports::{create, location, make_directory};
use super::program::Finished;
use super::service;
use crate::suite::Stage;

/// What `crossdock quota` does counts at once, and lasts.
pub(super) fn changes(stage: &Stage<'_>) -> Result<()> {
    let up = service::start(stage)?;
    let mut client = Client::connect(up.nfs)?;
    let root = client.root();
    let team = make_directory(&mut client, &root, "team")?;
    let inner = make_directory(&mut client, &team, "inner")?;
    create(&mut client, &inner, "first").map_err(|status| anyhow::anyhow!("{status}"))?;

    let quota = |words: &[&str]| up.ask(stage, &[&["quota"], words].concat());
    let list = quota(&["list"])?.json(0)?;
    ensure!(list == serde_json::json!([]), "{list}");
    let set = quota(&["set", "//team/", "--files", "4", "--bytes", "20M"])?.json(0)?;
    let of = &set["quota"];
    ensure!(
        of["path"] == "/team"
            && of["bytes"] == 20 << 20
            && of["used_bytes"] == 2 * 4096
            && of["files"] == 4
            && of["used_files"] == 3
            && of["percent_files"] == 75
            && of["percent_bytes"] == 0
            && set["notes"] == serde_json::json!([]),
        "{set}"
    );
    refusals(&quota)?;
    create(&mut client, &team, "last").map_err(|status| anyhow::anyhow!("{status}"))?;
    ensure!(
        create(&mut client, &inner, "beyond") == Err(Status::DQuot),
        "five of four files"
    );
    let lowered = quota(&["set", "/team", "--files", "2"])?.json(0)?;
    ensure!(
        lowered["quota"]["bytes"] == 20 << 20 && lowered["notes"].to_string().contains("removed"),
        "{lowered}"
    );
    let call = Call::Rename(Rename {
        source: location(&root, "team"),
        target: location(&root, "crew"),
    });
    ensure!(client.call(&call)?.status().is_none(), "cannot rename");
    up.stop()?;

    let up = service::start(stage)?;
    let mut client = Client::connect(up.nfs)?;
    let quota = |words: &[&str]| up.ask(stage, &[&["quota"], words].concat());
    let list = quota(&["list"])?.json(0)?;
    ensure!(
        list[0]["path"] == "/crew" && list[0]["used_files"] == 4 && list[0]["percent_files"] == 200,
        "{list}"
    );
    ensure!(
        create(&mut client, &inner, "beyond") == Err(Status::DQuot),
        "a restart has lifted the limit"
    );
    quota(&["set", "/crew", "--files", "none"])?.json(0)?;
    create(&mut client, &inner, "beyond").map_err(|status| anyhow::anyhow!("{status}"))?;
    let removed = quota(&["remove", "/crew/"])?.json(0)?;
    ensure!(removed["quota"]["used_files"] == 5, "{removed}");
    let list = quota(&["list"])?.json(0)?;
    ensure!(list == serde_json::json!([]), "{list}");
    up.stop()?;
    Ok(())
}

/// What an administrator may get wrong is refused with a next step.
fn refusals(quota: &dyn Fn(&[&str]) -> Result<Finished>) -> Result<()> {
    let cases: [(&[&str], i32, &[&str]); 10] = [
        (&["set", "/team"], 2, &["--bytes", "--files"]),
        (&["set", "/team", "--bytes", "much"], 2, &["500M"]),
        (&["set", "/team", "--files", "few"], 2, &["--files"]),
        (
            &["set", "/nowhere", "--files", "1"],
            1,
            &["/nowhere", "make it"],
        ),
        (
            &["set", "/team/inner/first", "--files", "1"],
            1,
            &["no directory"],
        ),
        (&["set", "team", "--files", "1"], 1, &["begin with /"]),
        (
            &["set", "/team/inner", "--files", "1"],
            1,
            &["inside each other", "quota remove /team"],
        ),
        (&["set", "/", "--bytes", "1G"], 1, &["quota set /team"]),
        (
            &["set", "/team", "--files", "none", "--bytes", "none"],
            1,
            &["quota remove /team"],
        ),
        (&["remove", "/team/inner"], 1, &["no quota", "quota list"]),
    ];
    for (words, code, expected) in cases {
        quota(words)?
            .expect(code, expected)
            .with_context(|| format!("{words:?}"))?;
    }
    Ok(())
}
