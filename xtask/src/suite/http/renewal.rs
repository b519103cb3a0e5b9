//! A certificate that changes under downloads: those that run go on with theirs.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::web::Web;
use super::wire::Wire;
use crate::suite::certificate::Site;
use crate::suite::cli::job;

/// Of the file that is on its way: far more than lies in sockets.
const BIG_BYTES: usize = 32 << 20;

/// What the client's kernel keeps of it.
const WINDOW_BYTES: usize = 16 << 10;

/// Who has begun a download gets all of it, and another file over the same connection, though
/// new connections have the new certificate by then.
pub(super) fn check(web: &Web<'_>) -> Result<()> {
    let tls = web.tls.as_ref().context("no HTTPS")?;
    let content = job::content("renewed", BIG_BYTES);
    web.put("/renewed", &content)?;
    web.put("/behind", b"behind")?;
    let mut download = web.secured(Wire::connect_narrow(web.address, WINDOW_BYTES)?)?;
    download.get("/renewed", false)?;
    download.get("/behind", true)?;

    let folder = tls.site.key.parent().context("no folder")?;
    let second = Site::make(folder, "second")?;
    second.install(&tls.live)?;
    let client = second.client()?;
    // The server looks once a second.
    let mut new = loop {
        match Wire::connect(web.address)?.secure(&client) {
            Ok(wire) => break wire,
            Err(error) => ensure!(Instant::now() < web.stage.deadline, "{error:#}"),
        }
    };
    new.get("/behind", true)?;
    let answer = new.answer()?.context("the connection ended")?;
    ensure!(answer.content == b"behind", "{}", answer.text());
    let old = web.connect();
    ensure!(old.is_err(), "the first certificate is shown still");

    let answer = download.answer()?.context("the download was broken off")?;
    ensure!(answer.content == content, "other bytes");
    let answer = download.answer()?.context("the connection ended")?;
    ensure!(answer.content == b"behind", "{}", answer.text());
    ensure!(download.is_over()?, "the connection goes on");

    // As it was, for whoever comes next.
    tls.site.install(&tls.live)?;
    while let Err(error) = web.connect() {
        ensure!(Instant::now() < web.stage.deadline, "{error:#}");
    }
    Ok(())
}
