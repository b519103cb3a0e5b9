//! What the delivery engine of a running gateway has decided, decided again.

use anyhow::{Result, ensure};
use crossdock_delivery::{Record, replay};

use super::nodes;
use super::web::Web;

/// The files that were read before have led to some.
pub(super) fn check(web: &Web<'_>) -> Result<()> {
    let url = format!("http://{}/v1/delivery/decisions", web.up.admin);
    let answer = nodes::ask("GET", &url, "")?;
    ensure!(answer.status == 200, "{}", answer.text());
    let records: Vec<Record> = serde_json::from_slice(&answer.content)?;
    ensure!(records.len() > 10, "{} decisions were kept", records.len());
    let count = replay(&records)?;
    ensure!(count == records.len(), "{count} were made again");
    println!("{count} decisions are the same");
    Ok(())
}
