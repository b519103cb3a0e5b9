//! Commands that read a stopped node's files.

use std::path::Path;

use anyhow::{Context, bail};
use crossdock_disk::{FileBlockingDisk, OpenError};
use crossdock_store::FsckReport;

use crate::commands::Verdict;
use crate::format;

/// `crossdock fsck --node DIR`: proves a store consistent, or lists what is wrong.
pub(crate) fn fsck(directory: &Path, full: bool, json: bool) -> anyhow::Result<Verdict> {
    let [journal, data, index] = ["journal", "data", "index"].map(|name| open(directory, name));
    let report = crossdock_store::fsck(&journal?, &data?, Box::new(index?), full)
        .with_context(|| format!("the files in {} cannot be read", directory.display()))?;
    let is_consistent = report.findings_total == 0;
    if json {
        format::print_json(&serde_json::json!({
            "consistent": is_consistent,
            "objects": report.objects,
            "runs": report.runs,
            "blocks": report.blocks,
            "verified_blocks": report.verified_blocks,
            "journal_frames": report.frames,
            "journal_records": report.records,
            "findings_total": report.findings_total,
            "findings": report.findings,
        }))?;
    } else {
        format::print(&describe(&report, full))?;
    }
    Ok(if is_consistent {
        Verdict::Good
    } else {
        Verdict::Bad
    })
}

fn describe(report: &FsckReport, full: bool) -> String {
    let mut text = format!(
        "{} objects, {} runs, {} blocks; {} journal records wait for the next start\n",
        report.objects, report.runs, report.blocks, report.records
    );
    if full {
        text += &format!(
            "{} blocks compared with their checksums\n",
            report.verified_blocks
        );
    }
    if report.findings_total == 0 {
        return text + "consistent\n";
    }
    text += &format!("{} findings:\n", report.findings_total);
    for finding in &report.findings {
        text += &format!("  {finding}\n");
    }
    if report.findings_total > report.findings.len() as u64 {
        text += "  ...\n";
    }
    text
}

/// Opens a file that must be there: a check makes nothing.
fn open(directory: &Path, name: &str) -> anyhow::Result<FileBlockingDisk> {
    let path = directory.join(name);
    if name == "data" && directory.join("disks").is_file() {
        bail!(
            "the node in {} has its data on disk sets; crossdock fsck without --node checks the running volume",
            directory.display()
        );
    }
    if !path.is_file() {
        bail!(
            "{} holds no {name} of a node; name a node's directory, like crossdock-data/node-0",
            directory.display()
        );
    }
    FileBlockingDisk::open_or_create(&path).map_err(|error| match error {
        OpenError::InUse(_) => anyhow::anyhow!(
            "a running crossdock has {} open; stop it first (SIGTERM), or use crossdock scrub",
            path.display()
        ),
        error => anyhow::anyhow!("{error}"),
    })
}
