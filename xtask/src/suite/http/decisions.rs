//! What the delivery engine of a running gateway has decided, decided again.

use anyhow::{Context, Result, ensure};
use crossdock_delivery::{Record, replay};

use super::web::Web;
use super::wire::Wire;

/// The files that were read before have led to some.
pub(super) fn check(web: &Web<'_>) -> Result<()> {
    let admin = &web.up.admin;
    let mut wire = Wire::connect(admin.parse()?)?;
    // An admin port answers to its own names only.
    let request = format!("GET /v1/delivery/decisions HTTP/1.1\r\nHost: {admin}\r\n\r\n");
    wire.send(request.as_bytes())?;
    let answer = wire.answer()?.context("no answer")?;
    ensure!(
        answer.status == 200,
        "{}",
        String::from_utf8_lossy(&answer.content)
    );
    let records: Vec<Record> = serde_json::from_slice(&answer.content)?;
    ensure!(records.len() > 10, "{} decisions were kept", records.len());
    let count = replay(&records)?;
    ensure!(count == records.len(), "{count} were made again");
    println!("{count} decisions are the same");
    Ok(())
}
