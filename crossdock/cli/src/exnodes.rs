//! `crossdock exnode`: files of the volume for IBP clients, and files of theirs into the volume
//! (docs/decisions/0046).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use crossdock_admin::{FileImport, FileSharing, ImportStatus, SharedFile};
use crossdock_host::SIGNED_PIECES_BYTES_MAX;
use crossdock_tools::command::{document_of, export_to};
use crossdock_tools::{Address, Observer, export};
use crossdock_web::UrlPath;
use serde_json::json;

use crate::client::{Method, call, parse};
use crate::commands::Remote;
use crate::config::Span;
use crate::format;
use crate::tokens::{Whom, volume_path};

/// How often a file is looked at again that changes while it is exported.
const ATTEMPTS_MAX: u32 = 8;

/// Copies of what no node gives: the head of the file, zeros.
const COPIES: usize = 2;

/// When is asked first how far an import is, and how often later.
const ASK_FIRST: Duration = Duration::from_millis(10);
const ASK_EVERY: Duration = Duration::from_millis(500);

#[derive(Subcommand)]
pub(crate) enum ExNodeCommand {
    /// Make an exNode of a file of the volume: IBP clients read its bytes at the nodes that have
    /// them, as they are now. What is overwritten or cut off meanwhile is refused from then on.
    #[command(
        after_help = "Examples:\n  crossdock exnode export /films/may.webm -o may.xnd --for 7d\n  \
        crossdock download may.xnd"
    )]
    Export(ExportArgs),
    /// Write the file of an exNode into the volume. The gateway that is asked fetches its bytes
    /// from depots itself, those of the volume and those that it may (--import-from); the file
    /// is there when all of it is, or not at all. Without this command, which asks how far it
    /// is, the gateway gives up.
    #[command(
        after_help = "Example:\n  crossdock exnode import photo.jpg.xnd /photos/photo.jpg --uid 1000 --gid 1000"
    )]
    Import(ImportArgs),
}

#[derive(Args)]
pub(crate) struct ExportArgs {
    /// The file, from the volume's root on.
    path: OsString,
    /// Where the exNode goes [default: NAME.xnd here]; a name in .json is written as JSON.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// How long it holds, like 12h or 7d; depots grant 30d at most unless they were told
    /// otherwise.
    #[arg(long = "for", value_name = "TIME", default_value = "1d")]
    span: Span,
    /// Depots for what no node gives (the first 64 KiB, holes) [default: those of the volume].
    #[arg(long = "depot", value_name = "HOST:PORT", value_delimiter = ',')]
    depots: Vec<Address>,
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct ImportArgs {
    /// The exNode.
    exnode: PathBuf,
    /// The file, from the volume's root on.
    path: OsString,
    /// Replace a file that is there.
    #[arg(long)]
    force: bool,
    /// File with the key of an encrypted file.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Connections to depots at a time.
    #[arg(long, default_value_t = 8)]
    threads: usize,
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    remote: Remote,
}

impl ExNodeCommand {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        match self {
            Self::Export(args) => args.remote.json,
            Self::Import(args) => args.remote.json,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        match self {
            Self::Export(args) => export(&args),
            Self::Import(args) => import(&args),
        }
    }
}

fn export(args: &ExportArgs) -> anyhow::Result<()> {
    let path = volume_path(&args.path)?;
    let name = Path::new(&args.path).file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let to = match &args.output {
        Some(to) => to.clone(),
        None => format!("{name}.xnd").into(),
    };
    let seconds = u32::try_from(args.span.0);
    let seconds = seconds.map_err(|_| anyhow!("{} s are too long", args.span.0))?;
    let mut attempts = 0;
    let shared = loop {
        attempts += 1;
        match share(args, &path, seconds)? {
            Some(shared) => break shared,
            None => ensure!(
                attempts < ATTEMPTS_MAX,
                "the file changes again and again while it is exported; try again when it is at rest"
            ),
        }
    };
    let known = shared.depots.iter().map(|depot| depot.parse());
    let known: Result<Vec<Address>, _> = known.collect();
    let options = export::Options {
        name,
        depots: match args.depots.is_empty() {
            true => known?,
            false => args.depots.clone(),
        },
        duration: Duration::from_secs(seconds.into()),
        copies: COPIES,
    };
    let parts = shared.pieces.into_iter().map(|piece| export::Part {
        offset_bytes: piece.offset_bytes,
        length_bytes: piece.length_bytes,
        reads: piece.capabilities,
    });
    let parts: Vec<export::Part> = parts.collect();
    let mappings = export_to(&to, bytes_of(&shared.head)?.into(), &parts, &options)?;
    let (shown, bytes) = (to.display(), shared.size_bytes);
    if args.remote.json {
        return format::print_json(&json!({
            "exnode": shown.to_string(), "bytes": bytes, "mappings": mappings,
        }));
    }
    Ok(format::print(&format!(
        "{shown} exported: {bytes} bytes in {mappings} mappings\n"
    ))?)
}

/// All of a file, part by part; `None` if it has changed between two of them.
fn share(args: &ExportArgs, path: &UrlPath, seconds: u32) -> anyhow::Result<Option<SharedFile>> {
    let mut whole: Option<SharedFile> = None;
    loop {
        let sharing = FileSharing {
            path: path.clone(),
            offset_bytes: whole.as_ref().map_or(0, end_of),
            length_bytes: Some(SIGNED_PIECES_BYTES_MAX),
            seconds,
            uid: args.whom.uid.unwrap_or(0),
            gid: args.whom.gid.unwrap_or(0),
        };
        let body = serde_json::to_value(sharing)?;
        let value = call(&args.remote, Method::Post(Some(body)), "/v1/exnode")?;
        let part: SharedFile = parse(value)?;
        let joined = match whole.take() {
            None => part,
            Some(before) => {
                let state = |of: &SharedFile| (of.size_bytes, of.changed_ns);
                if state(&before) != state(&part) {
                    return Ok(None);
                }
                ensure!(end_of(&part) > 0, "the system tells of no more of the file");
                let mut pieces = before.pieces;
                pieces.extend(part.pieces);
                SharedFile { pieces, ..before }
            }
        };
        if end_of(&joined) >= joined.size_bytes {
            return Ok(Some(joined));
        }
        whole = Some(joined);
    }
}

/// How much of the file is known.
fn end_of(shared: &SharedFile) -> u64 {
    let last = shared.pieces.last();
    let head = shared.head.len() as u64 / 2;
    last.map_or(head, |piece| piece.offset_bytes + piece.length_bytes)
}

fn bytes_of(digits: &str) -> anyhow::Result<Vec<u8>> {
    ensure!(digits.is_ascii(), "the answer is of another version");
    let pairs = (0..digits.len() / 2).map(|at| {
        let pair = digits.get(2 * at..2 * at + 2).unwrap_or_default();
        u8::from_str_radix(pair, 16).context("the answer is of another version")
    });
    pairs.collect()
}

fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let key = args.key.as_deref().map(std::fs::read_to_string);
    let key = key.transpose().context("cannot read the key")?;
    let order = FileImport {
        path: volume_path(&args.path)?,
        exnode: document_of(&args.exnode)?,
        key: key.map(|key| key.trim().to_owned()),
        replaces: args.force,
        threads: args.threads,
        uid: args.whom.uid.unwrap_or(0),
        gid: args.whom.gid.unwrap_or(0),
    };
    let body = serde_json::to_value(order)?;
    let value = call(&args.remote, Method::Post(Some(body)), "/v1/exnode/import")?;
    let mut status: ImportStatus = parse(value)?;
    let at = format!("/v1/exnode/import/{}", status.id);
    let (mut moved, mut pause) = (0, ASK_FIRST);
    let mut observer = match args.remote.json {
        true => Observer::silent(),
        false => Observer::visible("import"),
    };
    while !status.is_over {
        thread::park_timeout(pause);
        pause = (pause * 2).min(ASK_EVERY);
        status = parse(call(&args.remote, Method::Get, &at)?)?;
        observer.expect(status.size_bytes);
        observer.moved(status.moved_bytes - moved);
        moved = status.moved_bytes;
    }
    observer.finish();
    if let Some(error) = status.error {
        bail!("{error}");
    }
    let (shown, bytes) = (args.path.to_string_lossy(), status.size_bytes);
    if args.remote.json {
        return format::print_json(&json!({"path": shown, "bytes": bytes}));
    }
    Ok(format::print(&format!(
        "{shown} imported: {bytes} bytes\n"
    ))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what the system tells in digits are the bytes again.
    #[test]
    fn digits_are_bytes() {
        assert_eq!(bytes_of("00ff7a").ok(), Some(vec![0, 255, 0x7a]));
        assert!(bytes_of("0g").is_err() && bytes_of("ä0").is_err());
    }
}
