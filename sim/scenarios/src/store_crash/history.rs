//! What happened, in lines for people; kept only when somebody will read them.

use std::fmt::Write as _;

use crossdock_peer::{NodeAnswer, NodeError, NodeRequest};
use crossdock_types::Time;

/// Lines of a run.
#[derive(Debug, Default)]
pub(super) struct History {
    is_kept: bool,
    lines: Vec<String>,
}

impl History {
    pub(super) const fn new(is_kept: bool) -> Self {
        Self {
            is_kept,
            lines: Vec::new(),
        }
    }

    pub(super) fn note(&mut self, now: Time, line: impl FnOnce() -> String) {
        if self.is_kept {
            let microseconds = now.0 / 1000;
            self.lines.push(format!("{microseconds:>9} µs  {}", line()));
        }
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines
    }
}

/// A request in one line, without its bytes.
pub(super) fn brief(request: &NodeRequest) -> String {
    let mut line = match request {
        NodeRequest::Create {
            reservation_bytes, ..
        } => format!("create, reserving {reservation_bytes}"),
        NodeRequest::Read {
            offset_bytes,
            length_bytes,
            version,
            ..
        } => format!(
            "read {offset_bytes}..{} {version:?}",
            offset_bytes + length_bytes
        ),
        NodeRequest::Write {
            offset_bytes,
            payload,
            stability,
            context,
            order,
            ..
        } => format!(
            "write {offset_bytes}..{} {stability:?} g{} {order:?}",
            offset_bytes + payload.len() as u64,
            context.truncate_generation
        ),
        NodeRequest::Append {
            offset_bytes,
            payload,
            fence,
            ..
        } => format!(
            "append {offset_bytes}..{} fence {fence}",
            offset_bytes + payload.len() as u64
        ),
        NodeRequest::Truncate {
            size_bytes,
            context,
            ..
        } => format!("truncate {size_bytes} g{}", context.truncate_generation),
        NodeRequest::Zero {
            offset_bytes,
            length_bytes,
            ..
        } => format!("zero {offset_bytes}..{}", offset_bytes + length_bytes),
        NodeRequest::Remove { .. } => "remove".to_owned(),
        other => format!("{other:?}"),
    };
    if let Some(object) = request.object() {
        // Writing to a string cannot fail.
        let _ = write!(line, " of {object}");
    }
    line
}

/// An outcome in one line, without its bytes.
pub(super) fn brief_outcome(outcome: &Result<NodeAnswer, NodeError>) -> String {
    match outcome {
        Ok(NodeAnswer::Read { payload, version }) => {
            format!("{} bytes, version {version}", payload.len())
        }
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("error: {error}"),
    }
}
