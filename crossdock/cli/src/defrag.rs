//! `crossdock defrag`: puts together on the nodes' disks what lies apart.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::{ArgGroup, Args, Subcommand};
use crossdock_admin::{
    DefragOrder, DefragStatus, FreeSpaceStatus, LayoutStatus, NodePassStatus, PassState,
};
use crossdock_members::DailyWindow;
use crossdock_types::BLOCK_BYTES;

use crate::checks::follow;
use crate::client::{Method, call, parse};
use crate::commands::{Remote, Verdict};
use crate::format;

const PATH: &str = "/v1/defrag";

/// How long the registry may take for an order, and how often it is looked.
const KEPT_WITHIN: Duration = Duration::from_secs(10);
const KEPT_ASKED_AFTER: Duration = Duration::from_millis(50);

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    group(ArgGroup::new("order").required(true))
)]
pub(crate) struct DefragArgs {
    /// Go through everything that the nodes have, now, and wait for the end.
    #[arg(long, group = "order")]
    now: bool,
    /// Go through what they have of one file, now, and wait for the end.
    #[arg(long, value_name = "PATH", group = "order")]
    file: Option<String>,
    /// Do it every day from one time to another one (UTC), or not any more.
    #[arg(long, value_name = "HH:MM-HH:MM|off", group = "order")]
    schedule: Option<String>,
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: Option<DefragCommand>,
}

#[derive(Subcommand)]
enum DefragCommand {
    /// End the pass that is at work; what it has moved stays so.
    #[command(after_help = "Example:\n  crossdock defrag stop")]
    Stop(Remote),
    /// Show how far the last pass has come, and when the next one is due.
    #[command(after_help = "Example:\n  crossdock defrag status --json")]
    Status(Remote),
}

impl DefragArgs {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        match &self.command {
            Some(DefragCommand::Status(remote) | DefragCommand::Stop(remote)) => remote.json,
            None => self.remote.json,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<Verdict> {
        let Self {
            now,
            file,
            schedule,
            remote,
            command,
        } = self;
        match command {
            Some(DefragCommand::Status(remote)) => {
                return show(&remote, &parse(call(&remote, Method::Get, PATH)?)?);
            }
            Some(DefragCommand::Stop(remote)) => {
                let body = Some(serde_json::to_value(DefragOrder::Stop)?);
                call(&remote, Method::Post(body), PATH)?;
                return show(&remote, &await_kept(&remote, |it| !it.running)?);
            }
            None => {}
        }
        let order = match (now, file, schedule) {
            (true, ..) => DefragOrder::Now,
            (_, Some(path), _) => DefragOrder::File { path },
            (.., Some(window)) => DefragOrder::Schedule {
                window: (window != "off").then_some(window),
            },
            (false, None, None) => bail!("say --now, --file, --schedule, stop or status"),
        };
        let body = Some(serde_json::to_value(&order)?);
        if let DefragOrder::Schedule { window } = order {
            call(&remote, Method::Post(body), PATH)?;
            let wanted = window.map(|text| text.parse::<DailyWindow>().map(|it| it.to_string()));
            let wanted = wanted.transpose()?;
            return show(&remote, &await_kept(&remote, |it| it.schedule == wanted)?);
        }
        let progress = |status: &DefragStatus| {
            let waits = if status.yielding {
                ", waits for clients"
            } else {
                ""
            };
            let line = format!(
                "{} moved, {} objects looked at{waits}",
                bytes(status.moved_blocks),
                status.found.objects
            );
            (status.running, line)
        };
        call(&remote, Method::Post(body), PATH)?;
        let status = follow(&remote, PATH, progress)?;
        if status.found.objects == 0 && !status.errors.is_empty() {
            bail!("{}", status.errors.join("; ")); // Nothing was gone through.
        }
        show(&remote, &status)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a command that waits has nothing else to do"
)]
/// How it is when the registry of an ensemble has taken an order: at once, where all is one process.
fn await_kept(
    remote: &Remote,
    is_kept: impl Fn(&DefragStatus) -> bool,
) -> anyhow::Result<DefragStatus> {
    let deadline = Instant::now() + KEPT_WITHIN;
    loop {
        let status = parse(call(remote, Method::Get, PATH)?)?;
        if is_kept(&status) {
            return Ok(status);
        }
        if Instant::now() > deadline {
            bail!(
                "the registry has not taken it within {KEPT_WITHIN:?}; crossdock status may show why; try again"
            );
        }
        thread::sleep(KEPT_ASKED_AFTER);
    }
}

fn show(remote: &Remote, status: &DefragStatus) -> anyhow::Result<Verdict> {
    match remote.json {
        true => format::print_json(status)?,
        false => format::print(&describe(status))?,
    }
    Ok(match status.errors.is_empty() {
        true => Verdict::Good,
        false => Verdict::Bad,
    })
}

fn describe(status: &DefragStatus) -> String {
    let mut text = match (&status.schedule, status.running) {
        (Some(window), _) => format!("every day {window} UTC\n"),
        (None, _) => "no time of the day is set\n".to_owned(),
    };
    let of = match &status.path {
        Some(path) => format!(" of {path}"),
        None => String::new(),
    };
    text += &match (status.running, status.yielding) {
        (true, true) => format!("a pass{of} is at work, and waits for clients\n"),
        (true, false) => format!("a pass{of} is at work\n"),
        (false, _)
            if status.found.objects == 0 && status.errors.is_empty() && status.nodes.is_empty() =>
        {
            return text + "nothing has been gone through since the start\n";
        }
        (false, _) if status.stopped => format!("the last pass{of}, which was stopped:\n"),
        (false, _) => format!("the last pass{of}:\n"),
    };
    text += &format!("found  {}\n", layout(&status.found));
    if status.left.objects > 0 {
        text += &format!("left   {}\n", layout(&status.left));
    }
    text += &format!("moved  {}\n", bytes(status.moved_blocks));
    let reasons = [
        (status.pinned_blocks, "pinned"),
        (status.busy_blocks, "being changed"),
        (
            status.unreadable_blocks,
            "beside or among blocks that cannot be read",
        ),
        (status.homeless_blocks, "without room"),
    ];
    for (blocks, why) in reasons.into_iter().filter(|(blocks, _)| *blocks > 0) {
        text += &format!("left where it was  {}: {why}\n", bytes(blocks));
    }
    if status.free != FreeSpaceStatus::default() {
        text += &format!(
            "free   {} in {} runs, the longest {}\n",
            bytes(status.free.blocks),
            status.free.runs,
            bytes(status.free.longest_blocks)
        );
    }
    for error in &status.errors {
        text += &format!("  {error}\n");
    }
    for node in &status.nodes {
        text += &node_pass(node);
    }
    text
}

/// A line.
fn node_pass(pass: &NodePassStatus) -> String {
    let state = match pass.state {
        PassState::Waiting => "has not begun",
        PassState::Moving if pass.yielding => "moves, and waits for clients",
        PassState::Moving => "moves",
        PassState::Looking if pass.yielding => "looks, and waits for clients",
        PassState::Looking => "looks at what has come of it",
        PassState::Done => "done",
        PassState::Stopped => "called off",
        PassState::Away => "not there",
    };
    let (moved, found) = (bytes(pass.moved_blocks), &pass.found);
    let told = match (pass.state, pass.left.objects) {
        _ if found.objects == 0 => String::new(),
        (PassState::Looking, left) => {
            format!(
                ": {moved} moved, {left} of {} objects looked at",
                found.objects
            )
        }
        _ => format!(
            ": {moved} moved, {} of {} objects gone through",
            bytes(found.blocks),
            found.objects
        ),
    };
    format!("node {}  {state}{told}\n", pass.node)
}

fn layout(layout: &LayoutStatus) -> String {
    let LayoutStatus {
        objects,
        blocks,
        runs,
        seek_blocks,
        sequential_percent,
    } = layout;
    let jumps = runs.saturating_sub(*objects);
    let far = match seek_blocks.checked_div(jumps) {
        Some(mean) => format!(", on average {} apart", bytes(mean)),
        None => String::new(),
    };
    format!(
        "{} of {objects} objects in {runs} runs{far}; modelled sequential rate {sequential_percent} %",
        bytes(*blocks)
    )
}

fn bytes(blocks: u64) -> String {
    format::bytes(blocks * BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of nodes that are at work it is said what they are at, and how far they are; of those
    /// that have nothing to tell, why.
    #[test]
    fn nodes_are_told_one_by_one() {
        let pass = |node, state| NodePassStatus {
            node,
            state,
            yielding: false,
            found: LayoutStatus {
                objects: 3,
                blocks: 512,
                ..LayoutStatus::default()
            },
            left: LayoutStatus {
                objects: 2,
                ..LayoutStatus::default()
            },
            moved_blocks: 256,
        };
        let nothing = |node, state| NodePassStatus {
            found: LayoutStatus::default(),
            moved_blocks: 0,
            ..pass(node, state)
        };
        let status = DefragStatus {
            running: true,
            moved_blocks: 768,
            nodes: vec![
                pass(0, PassState::Done),
                NodePassStatus {
                    yielding: true,
                    ..pass(1, PassState::Moving)
                },
                pass(2, PassState::Looking),
                nothing(3, PassState::Waiting),
                nothing(4, PassState::Away),
            ],
            ..DefragStatus::default()
        };
        let told = describe(&status);
        for line in [
            "a pass is at work",
            "moved  3.0 MiB",
            "node 0  done: 1.0 MiB moved, 2.0 MiB of 3 objects gone through",
            "node 1  moves, and waits for clients: 1.0 MiB moved, 2.0 MiB of 3 objects gone through",
            "node 2  looks at what has come of it: 1.0 MiB moved, 2 of 3 objects looked at",
            "node 3  has not begun",
            "node 4  not there",
        ] {
            assert!(told.lines().any(|it| it == line), "{line}: {told}");
        }
    }
}
