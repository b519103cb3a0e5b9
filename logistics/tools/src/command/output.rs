//! What commands print.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use crossdock_exnode::ExNode;
use serde_json::{Value, json};

use crate::Observer;
use crate::stat::{MappingStatus, date};

/// Prints one line; who reads it may be gone.
pub(super) fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints JSON.
pub(super) fn json(value: &Value) {
    line(&value.to_string());
}

/// What of a transfer is told: by a line, or as JSON with `more` in it.
pub(super) fn transfer(what: &str, bytes: u64, observer: &Observer, as_json: bool, more: Value) {
    let seconds = observer.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = bytes as f64 / seconds.max(1e-9);
    if as_json {
        let mut value = json!({"bytes": bytes, "seconds": seconds, "bytes_per_second": rate});
        if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
            value.extend(more);
        }
        json(&value);
    } else {
        let rate = rate / 1e6;
        line(&format!(
            "{what}: {bytes} bytes in {seconds:.2} s, {rate:.2} MB/s"
        ));
    }
}

/// Writes report and picture, if they are wanted.
pub(super) fn reports(
    observer: &Observer,
    report: Option<&Path>,
    svg: Option<&Path>,
) -> Result<()> {
    let write = |path: &Path, text: String| {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = report {
        write(path, format!("{:#}\n", observer.timeline.report()))?;
    }
    if let Some(path) = svg {
        write(path, observer.timeline.svg())?;
    }
    Ok(())
}

/// What `stat` shows.
pub(super) fn stat(exnode: &ExNode, statuses: &[MappingStatus], as_json: bool) {
    let now = SystemTime::now();
    let rows = exnode.mappings.iter().zip(statuses).enumerate();
    if as_json {
        let row =
            |(number, (mapping, status)): (usize, (&crossdock_exnode::Mapping, &MappingStatus))| {
                json!({
                    "mapping": number,
                    "offset": mapping.exnode_offset,
                    "length": mapping.logical_length,
                    "stored": mapping.alloc_length,
                    "depot": status.depot.as_ref().map(ToString::to_string),
                    "coding": status.coding,
                    "ends": status.ends(now).map(date),
                    "seconds_left": status.probe.as_ref().ok().map(|probe| probe.duration_seconds),
                    "readers": status.probe.as_ref().ok().map(|probe| probe.read_count),
                    "forecast_bytes_per_second": status.bandwidth,
                    "error": status.probe.as_ref().err(),
                    "gone": status.is_gone,
                })
            };
        json(&json!({
            "filename": exnode.filename(),
            "size": exnode.size(),
            "mappings": rows.map(row).collect::<Vec<_>>(),
        }));
        return;
    }
    let name = exnode.filename().unwrap_or("(no name)");
    line(&format!("{name}: {} bytes", exnode.size()));
    for (number, (mapping, status)) in rows {
        let depot = status
            .depot
            .as_ref()
            .map_or_else(|| "?".to_owned(), ToString::to_string);
        let end = match (&status.probe, status.ends(now)) {
            (Err(error), _) => error.clone(),
            (Ok(_), Some(end)) => format!("until {}", date(end)),
            (Ok(_), None) => "for ever".to_owned(),
        };
        let rate = match status.bandwidth {
            Some(rate) => format!("{:7.2} MB/s", rate / 1e6),
            None => "          -".to_owned(),
        };
        let (offset, length) = (mapping.exnode_offset, mapping.logical_length);
        let coding = &status.coding;
        line(&format!(
            "{number:4} {offset:12} {length:10}  {depot:<24} {rate}  {end}  {coding}"
        ));
    }
}
