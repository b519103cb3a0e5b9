//! Limits that an administrator sets, and the time that clients have.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::web::Web;
use super::wire::Wire;
use crate::suite::Stage;

/// `--http-body`.
const BODY_BYTES: usize = 1 << 20;

/// `--http-rate`; ten times as many may come at once.
const RATE: u32 = 40;
const BURST: u32 = 10 * RATE;

/// In how much time a head has to be complete.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// How much later it may be told.
const SLACK: Duration = Duration::from_secs(5);

pub(super) fn check(stage: &Stage<'_>) -> Result<()> {
    let rate = RATE.to_string();
    let words = ["--nodes", "2", "--size", "400M", "--http-body", "1M"];
    let more = ["--http-rate", &rate, "--http-read", "token"];
    let web = Web::start(stage, "limits", &[&words[..], &more].concat())?;
    let began = Instant::now();
    // A byte now and then does not help: the head has its time.
    let mut slow = Wire::connect(web.address)?;
    slow.send(b"GET /file HTTP/1.1\r\nHo")?;
    reading(&web).context("reading takes a token")?;
    contents(&web).context("contents")?;
    rates(&web).context("rates")?;
    late(&mut slow, began).context("a slow head")?;
    web.stop()
}

fn reading(web: &Web<'_>) -> Result<()> {
    web.put("/file", b"file")?;
    let answer = web.get("/file")?;
    ensure!(answer.status == 401, "{}", answer.text());
    let shown = web.authorization();
    let answer = web.ask(format!("GET /file HTTP/1.1\r\nHost: x\r\n{shown}\r\n\r\n"))?;
    ensure!(answer.content == b"file", "{}", answer.text());
    Ok(())
}

/// A content that is too long is refused: by its length before it is sent, or when too
/// much has come. Nothing is left of it.
fn contents(web: &Web<'_>) -> Result<()> {
    web.put("/most", &vec![1; BODY_BYTES])?;
    let mut wire = Wire::connect(web.address)?;
    wire.send(web.put_head("/more", BODY_BYTES + 1).as_bytes())?;
    let answer = wire.answer()?.context("no answer")?;
    ensure!(answer.status == 413, "{}", answer.text());
    ensure!(wire.is_over()?, "its content is still waited for");

    let mut wire = Wire::connect(web.address)?;
    let shown = web.authorization();
    let head =
        format!("PUT /more HTTP/1.1\r\nHost: x\r\n{shown}\r\nTransfer-Encoding: chunked\r\n\r\n");
    wire.send(head.as_bytes())?;
    let chunk = [&b"10000\r\n"[..], &[1; 1 << 16], b"\r\n"].concat();
    for _ in 0..=BODY_BYTES >> 16 {
        wire.send_what_is_taken(&chunk)?;
    }
    let answer = wire.answer()?.context("no answer")?;
    ensure!(answer.status == 413, "{}", answer.text());

    let list = format!("GET / HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n{shown}\r\n\r\n");
    let list = String::from_utf8(web.ask(list)?.content)?;
    ensure!(
        list.contains("\"most\"") && !list.contains("more"),
        "{list}"
    );
    Ok(())
}

/// Whoever asks too often is told, and is served again a second later.
fn rates(web: &Web<'_>) -> Result<()> {
    let mut wire = Wire::connect(web.address)?;
    let request = "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n";
    let began = Instant::now();
    wire.send(request.repeat(2 * BURST as usize).as_bytes())?;
    let (mut served, mut refused) = (0, 0);
    for _ in 0..2 * BURST {
        let answer = wire.answer()?.context("the connection ended")?;
        match answer.status {
            204 => served += 1,
            429 => {
                ensure!(answer.field("retry-after") == Some("1"), "{answer:?}");
                refused += 1;
            }
            _ => anyhow::bail!("{}", answer.text()),
        }
    }
    let gained = u32::try_from(began.elapsed().as_secs())? + 1;
    ensure!(
        served <= BURST + RATE * gained && served + 20 >= BURST && refused > 0,
        "{served} served, {refused} refused"
    );
    let again = Instant::now() + Duration::from_secs(2);
    loop {
        wire.send(request.as_bytes())?;
        match wire.answer()?.context("the connection ended")?.status {
            204 => return Ok(()),
            status => ensure!(status == 429 && Instant::now() < again, "{status}"),
        }
    }
}

fn late(slow: &mut Wire, began: Instant) -> Result<()> {
    slow.send(b"st: x")?;
    let answer = slow.answer()?.context("no answer")?;
    let after = began.elapsed();
    ensure!(answer.status == 408, "{}", answer.text());
    ensure!(
        after >= HEAD_TIME - Duration::from_secs(1) && after < HEAD_TIME + SLACK,
        "after {after:?}"
    );
    ensure!(slow.is_over()?, "the connection goes on");
    Ok(())
}
