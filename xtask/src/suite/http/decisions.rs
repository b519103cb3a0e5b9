//! What the delivery engine of a running gateway has decided, decided again.

use anyhow::{Context, Result, ensure};
use crossdock_delivery::{Record, replay};

use super::web::Web;
use super::wire::Wire;

/// The files that were read before have led to some.
pub(super) fn check(web: &Web<'_>) -> Result<()> {
    let mut wire = Wire::connect(web.up.admin.parse()?)?;
    wire.get("/v1/delivery/decisions", true)?;
    let answer = wire.answer()?.context("no answer")?;
    let records: Vec<Record> = serde_json::from_slice(&answer.content)?;
    ensure!(records.len() > 10, "{} decisions were kept", records.len());
    let count = replay(&records)?;
    ensure!(count == records.len(), "{count} were made again");
    println!("{count} decisions are the same");
    Ok(())
}
