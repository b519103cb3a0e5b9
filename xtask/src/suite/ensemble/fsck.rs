//! `crossdock fsck` of the running ensemble finds what there is, and nothing wrong.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Processes;
use crate::suite::Stage;
use crate::suite::cli::program::finish;

/// While clients work.
pub(super) fn under_load(stage: &Stage<'_>, processes: &Processes<'_>) -> Result<()> {
    let gateway = processes.gateways[0].door("admin")?.to_string();
    let refused = finish(stage, &["fsck", "--admin", &gateway])?;
    refused.expect(1, &["managers check the volume", "crossdock status"])?;
    let report = check(stage, processes)?;
    println!(
        "fsck under load: {} files in {} looks, {} were being changed",
        report["files"], report["looks"], report["unsettled"]
    );
    Ok(())
}

/// When nothing is changed any more: nothing stays open, and there is what was made.
pub(super) fn at_rest(stage: &Stage<'_>, processes: &Processes<'_>, made: u64) -> Result<()> {
    let report = check(stage, processes)?;
    let count = |key: &str| report[key].as_u64().context(key.to_owned());
    let (files, names) = (count("files")?, count("names")?);
    // One in seven was removed; directories and the root come to it.
    ensure!(
        count("unsettled")? == 0 && files > made / 2 && names > made / 2,
        "{made} files were made: {report}"
    );
    ensure!(count("objects")? > 0, "no object was looked at: {report}");
    println!("fsck: {files} files, {names} names and what nodes hold of them agree");
    Ok(())
}

fn check(stage: &Stage<'_>, processes: &Processes<'_>) -> Result<Value> {
    let manager = processes.managers[0].door("admin")?.to_string();
    let report = finish(stage, &["fsck", "--json", "--admin", &manager])?.json(0)?;
    ensure!(
        report["running"] == false
            && report["findings_total"] == 0
            && report["error"].is_null()
            && report["nodes_away"] == serde_json::json!([]),
        "{report}"
    );
    Ok(report)
}
