//! Locks of a running server: listed, kept over a restart, and given up for a
//! client that does not come back; what an administrator may get wrong.

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::HandleBuffer;
use crossdock_tests_crash::client::{Client, LockStatus, LockWish};

use super::exports::{create, make_directory};
use super::program::Finished;
use super::service;
use crate::suite::Stage;

const ALPHA: LockWish<'static> = LockWish {
    client: "alpha",
    process: 11,
    offset: 0,
    length: 10,
    may_block: false,
};
const BETA: LockWish<'static> = LockWish {
    client: "beta",
    process: 22,
    offset: 5,
    length: 0,
    may_block: true,
};

/// What `crossdock lock` shows is so, and what it gives up is free at once.
pub(super) fn orders(stage: &Stage<'_>) -> Result<()> {
    let up = service::start(stage)?;
    let mut client = Client::connect(up.nfs)?;
    let root = client.root();
    let folder = make_directory(&mut client, &root, "locked")?;
    let file =
        create(&mut client, &folder, "file").map_err(|status| anyhow::anyhow!("{status}"))?;
    let lock = |words: &[&str]| up.ask(stage, &[&["lock"], words].concat());
    let none = lock(&["list"])?.json(0)?;
    ensure!(
        none == serde_json::json!({"locks": [], "count": 0, "grace_period": false}),
        "{none}"
    );
    refusals(&lock)?;
    expect(&mut client, &file, &ALPHA, LockStatus::Granted)?;
    expect(&mut client, &file, &BETA, LockStatus::Blocked)?;
    let list = lock(&["list"])?.json(0)?;
    let (held, waiting) = (&list["locks"][0], &list["locks"][1]);
    ensure!(
        list["count"] == 2
            && held["path"] == "/locked/file"
            && held["client"] == "alpha"
            && held["process"] == 11
            && held["kind"] == "exclusive"
            && (held["first"] == 0 && held["last"] == 9)
            && held["is_waiting"] == false
            && waiting["client"] == "beta"
            && waiting["is_waiting"] == true
            && (waiting["first"] == 5 && waiting["last"].is_null()),
        "{list}"
    );
    let of_beta = lock(&["list", "--client", "beta"])?.json(0)?;
    ensure!(
        of_beta["locks"].as_array().map(Vec::len) == Some(1),
        "{of_beta}"
    );
    up.stop()?;

    // Who had locks is told at a restart, which these clients never answer: the
    // one that died is given up before the grace period has passed.
    let up = service::start(stage)?;
    let mut client = Client::connect(up.nfs)?;
    let lock = |words: &[&str]| up.ask(stage, &[&["lock"], words].concat());
    let list = lock(&["list"])?.json(0)?;
    ensure!(
        list["count"] == 1 && list["grace_period"] == true,
        "one lock was held, and nobody was told: {list}"
    );
    let refused = BETA;
    expect(&mut client, &file, &refused, LockStatus::GracePeriod)?;
    let released = lock(&["release", "alpha"])?.json(0)?;
    ensure!(
        released["released"] == 1 && released["cancelled"] == 0 && released["clients"] == 1,
        "{released}"
    );
    expect(&mut client, &file, &BETA, LockStatus::Granted)?;
    let list = lock(&["list"])?.json(0)?;
    ensure!(
        list["locks"][0]["client"] == "beta" && list["grace_period"] == false,
        "{list}"
    );
    let address = list["locks"][0]["address"].as_str().context("no address")?;
    let released = lock(&["release", address])?.json(0)?;
    ensure!(released["released"] == 1, "{released}");
    lock(&["release", "beta"])?.expect(1, &["beta", "lock list"])?;
    up.stop()?;
    Ok(())
}

fn expect(
    client: &mut Client,
    file: &HandleBuffer,
    wish: &LockWish<'_>,
    expected: LockStatus,
) -> Result<()> {
    let status = client.lock(file, wish)?;
    ensure!(
        status == expected,
        "{wish:?}: {status:?} instead of {expected:?}"
    );
    Ok(())
}

/// What an administrator may get wrong is refused with a next step.
fn refusals(lock: &dyn Fn(&[&str]) -> Result<Finished>) -> Result<()> {
    let cases: [(&[&str], i32, &[&str]); 4] = [
        (&["release"], 2, &["<CLIENT>", "--help"]),
        (&["release", "nobody"], 1, &["nobody", "lock list"]),
        (&["release", "192.0.2.1"], 1, &["192.0.2.1", "lock list"]),
        (&["list", "--client", "nobody"], 1, &["nobody", "lock list"]),
    ];
    for (words, code, expected) in cases {
        lock(words)?
            .expect(code, expected)
            .with_context(|| format!("{words:?}"))?;
    }
    Ok(())
}
