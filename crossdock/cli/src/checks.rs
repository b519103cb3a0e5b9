//! Checks of a running system: `crossdock scrub` of the blocks, `crossdock fsck` of
//! names, files and objects.

use std::io::{IsTerminal, Write};
use std::thread;
use std::time::Duration;

use crossdock_admin::{FsckFinding, FsckStatus, ScrubStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::{Method, call, parse};
use crate::commands::{Remote, Verdict};
use crate::format;

/// How often what is at work is asked how far it is.
const INTERVAL: Duration = Duration::from_millis(200);

/// `crossdock scrub`: starts one and shows how it gets on.
pub(crate) fn scrub(remote: &Remote) -> anyhow::Result<Verdict> {
    let progress = |status: &ScrubStatus| {
        let line = format!(
            "checked {} of {} blocks",
            status.blocks_checked, status.blocks_total
        );
        (status.running, line)
    };
    call(remote, Method::Post(None), "/v1/scrub")?;
    let status = follow(remote, "/v1/scrub", progress)?;
    let (checked, bad) = (status.blocks_checked, status.findings.len());
    let repaired = status.repaired.len();
    let sets = match status.differing_blocks {
        0 => String::new(),
        differing => format!(
            "the disks of sets differed in {differing} blocks; {} were written anew\n",
            status.agreed_blocks
        ),
    };
    let text = format!(
        "{checked} blocks checked, {repaired} repaired from another node, {bad} bad\n{sets}{}",
        lines(status.findings.iter())
    );
    show(remote, &status, &text)?;
    Ok(verdict(status.findings.is_empty()))
}

/// `crossdock fsck` of a running volume; the same.
pub(crate) fn fsck(remote: &Remote, repairs: bool) -> anyhow::Result<Verdict> {
    let progress = |status: &FsckStatus| {
        let line = format!(
            "look {}: {} files, {} names, {} objects of nodes",
            status.looks, status.files, status.names, status.objects
        );
        (status.running, line)
    };
    let order = if repairs { "/repair" } else { "" };
    call(remote, Method::Post(None), &format!("/v1/fsck{order}"))?;
    let status = follow(remote, "/v1/fsck", progress)?;
    let mut text = format!(
        "{} files, {} names, {} objects of nodes\n",
        status.files, status.names, status.objects
    );
    for number in &status.nodes_away {
        text += &format!("node {number} is not there: what it holds was not looked at\n");
    }
    if status.unsettled > 0 {
        text += &format!(
            "{} things were being changed in every look: check again when there is less load\n",
            status.unsettled
        );
    }
    if !status.repaired.is_empty() {
        text += &format!("mended:\n{}", lines(texts(&status.repaired)));
    }
    text += &match (&status.error, status.findings_total) {
        (Some(error), _) => format!("not checked: {error}; crossdock status may show why\n"),
        (None, 0) => "consistent\n".to_owned(),
        (None, total) => {
            let more = total - status.findings.len() as u64;
            let more = if more > 0 { "  ...\n" } else { "" };
            format!(
                "{total} findings:\n{}{more}",
                lines(texts(&status.findings))
            )
        }
    };
    show(remote, &status, &text)?;
    Ok(verdict(
        status.error.is_none() && status.findings_total == 0,
    ))
}

/// Waits for the end of what was started; people see how far it is.
#[expect(
    clippy::disallowed_methods,
    reason = "another process is asked: there is no event here to wait for"
)]
pub(crate) fn follow<T: DeserializeOwned>(
    remote: &Remote,
    path: &str,
    progress: impl Fn(&T) -> (bool, String),
) -> anyhow::Result<T> {
    let mut terminal = Some(std::io::stderr()).filter(IsTerminal::is_terminal);
    let status = loop {
        let status = parse(call(remote, Method::Get, path)?)?;
        let (is_running, line) = progress(&status);
        if let Some(terminal) = &mut terminal {
            write!(terminal, "\r{line} ")?;
        }
        if !is_running {
            break status;
        }
        thread::sleep(INTERVAL);
    };
    if let Some(terminal) = &mut terminal {
        writeln!(terminal)?;
    }
    Ok(status)
}

fn show(remote: &Remote, status: &impl Serialize, text: &str) -> anyhow::Result<()> {
    match remote.json {
        true => format::print_json(status),
        false => Ok(format::print(text)?),
    }
}

fn texts(findings: &[FsckFinding]) -> impl Iterator<Item = &String> {
    findings.iter().map(|finding| &finding.text)
}

fn lines<'a>(findings: impl Iterator<Item = &'a String>) -> String {
    let lines = findings.map(|finding| format!("  {finding}\n"));
    lines.collect()
}

const fn verdict(is_good: bool) -> Verdict {
    match is_good {
        true => Verdict::Good,
        false => Verdict::Bad,
    }
}
