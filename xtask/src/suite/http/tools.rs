//! wrk and aria2 (Debian's packages): many small requests, and one file in parts over
//! several connections.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::web::{Web, expect_same};
use crate::process::program;
use crate::suite::cli::job;
use crate::suite::cli::program::text;

/// Of the file that is loaded in parts.
const BIG_BYTES: usize = 64 << 20;

/// Connections that load it.
const PARTS: usize = 4;

pub(super) fn check(web: &Web<'_>) -> Result<()> {
    web.put("/small", &[b'x'; 1000])?;
    web.put("/medium", &job::content("medium", 200_000))?;
    for path in ["/small", "/medium"] {
        wrk(web, path).context(path)?;
    }
    aria2(web)
}

fn wrk(web: &Web<'_>, path: &str) -> Result<()> {
    let mut wrk = program("wrk");
    wrk.args(["--threads", "2", "--connections", "32", "--duration", "3s"]);
    wrk.arg(web.url(path));
    let told = String::from_utf8(web.run(wrk)?)?;
    // Both lines are there only if there is something to tell.
    ensure!(
        !told.contains("Non-2xx") && !told.contains("Socket errors"),
        "{told}"
    );
    let requests = told
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))
        .with_context(|| told.clone())?;
    let requests: u64 = requests.0.parse()?;
    ensure!(requests >= 100, "{told}");
    println!("wrk: {requests} requests of {path} in 3 s");
    Ok(())
}

fn aria2(web: &Web<'_>) -> Result<()> {
    let content = job::content("parts", BIG_BYTES);
    web.put("/parts", &content)?;
    let log = web.local("aria2.txt");
    let mut aria2 = program("aria2c");
    aria2.args([
        "--no-conf",
        "--quiet",
        "--min-split-size=1M",
        "--log-level=info",
    ]);
    aria2.args([
        format!("--split={PARTS}"),
        format!("--max-connection-per-server={PARTS}"),
    ]);
    aria2.args(["--log", text(&log)?, "--dir", text(&web.stage.folder)?]);
    if let Some(tls) = &web.tls {
        aria2.arg(format!("--ca-certificate={}", text(&tls.site.authority)?));
    }
    aria2.args(["--out", "loaded", &web.url("/parts")]);
    web.run(aria2)?;
    expect_same(&web.local("loaded"), &content)?;
    let log = fs::read_to_string(log)?;
    let parts = log.matches("HTTP/1.1 206 ").count();
    ensure!(parts >= PARTS - 1, "{parts} parts");
    fs::remove_file(web.local("loaded"))?;
    Ok(())
}
