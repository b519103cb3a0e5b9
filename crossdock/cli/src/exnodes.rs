//! `crossdock exnode`: files of the volume for IBP clients, and files of theirs into the volume
//! (docs/decisions/0046).

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use crossdock_admin::{FileSharing, SharedFile, Signed, Signing, SigningMethod};
use crossdock_host::SIGNED_PIECES_BYTES_MAX;
use crossdock_tools::command::{bring, export_to};
use crossdock_tools::{Address, export};
use crossdock_web::UrlPath;
use serde_json::json;

use crate::client::{Method, call, parse};
use crate::commands::Remote;
use crate::config::Span;
use crate::format;
use crate::sign::gateway_base;
use crate::tokens::{Whom, volume_path};

/// How often a file is looked at again that changes while it is exported.
const ATTEMPTS_MAX: u32 = 8;

/// Copies of what no node gives: the head of the file, zeros.
const COPIES: usize = 2;

/// Pieces of a download that wait for the gateway to take them.
const PIECES_WAITING_MAX: usize = 4;

/// For how long the URL holds under which a file is written: it has to begin within it.
const PUT_SECONDS: u64 = 300;

#[derive(Subcommand)]
pub(crate) enum ExNodeCommand {
    /// Make an exNode of a file of the volume: IBP clients read its bytes at the nodes that have
    /// them, as they are now. What is overwritten or cut off meanwhile is refused from then on.
    #[command(
        after_help = "Examples:\n  crossdock exnode export /films/may.webm -o may.xnd --for 7d\n  \
        crossdock download may.xnd"
    )]
    Export(ExportArgs),
    /// Write the file of an exNode into the volume. Its bytes come from depots through this
    /// command to a gateway; the file is there when all of it is, or not at all.
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
    /// How a gateway is reached, like `http://10.0.0.7:8080` [default: the HTTP door of the
    /// process that is asked].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
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
    let signing = Signing {
        method: SigningMethod::Put,
        path: volume_path(&args.path)?,
        seconds: PUT_SECONDS,
        uid: args.whom.uid.unwrap_or(0),
        gid: args.whom.gid.unwrap_or(0),
    };
    let base = gateway_base(args.url.as_deref(), &args.remote)?;
    let body = serde_json::to_value(signing)?;
    let value = call(&args.remote, Method::Post(Some(body)), "/v1/sign")?;
    let Signed { target, .. } = parse(value)?;
    let (sender, receiver) = sync_channel(PIECES_WAITING_MAX);
    let (exnode, key, threads) = (args.exnode.clone(), args.key.clone(), args.threads);
    let download = thread::Builder::new().name("download".to_owned());
    let download = download.spawn(move || {
        let out = Box::new(Pipe(sender.clone()));
        let brought = bring(&exnode, key.as_deref(), threads, out);
        let end = match &brought {
            Ok(_) => Ok(Vec::new()),
            Err(error) => Err(io::Error::other(format!("{error:#}"))),
        };
        // The gateway may have refused the file meanwhile, and nobody listens.
        let _ = sender.send(end);
        brought
    })?;
    let put = put(&format!("{base}{target}"), args.force, receiver);
    let brought = download
        .join()
        .map_err(|_| anyhow!("the download has failed"))?;
    // A gateway that refuses ends the download; a download that fails, what goes to the gateway.
    let bytes = match (put, brought) {
        (Ok(()), brought) => brought?,
        (Err(Refused::Said(what)), _) => bail!("{what}"),
        (Err(Refused::Broken(_)), Err(error)) => return Err(error),
        (Err(Refused::Broken(error)), Ok(_)) => {
            return Err(error).context("the gateway has not taken the file");
        }
    };
    let shown = args.path.to_string_lossy();
    if args.remote.json {
        return format::print_json(&json!({"path": shown, "bytes": bytes}));
    }
    Ok(format::print(&format!(
        "{shown} imported: {bytes} bytes\n"
    ))?)
}

/// Why a gateway has not taken a file.
enum Refused {
    Said(String),
    Broken(anyhow::Error),
}

fn put(url: &str, replaces: bool, receiver: Receiver<io::Result<Vec<u8>>>) -> Result<(), Refused> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .into();
    let mut request = agent.put(url);
    if !replaces {
        request = request.header("If-None-Match", "*");
    }
    let mut body = Body {
        receiver,
        piece: Vec::new(),
        taken: 0,
        is_done: false,
    };
    let sent = request.send(ureq::SendBody::from_reader(&mut body));
    let response = sent.map_err(|error| Refused::Broken(error.into()))?;
    match response.status().as_u16() {
        200..300 => Ok(()),
        412 => Err(Refused::Said(
            "the file is there already; --force replaces it".to_owned(),
        )),
        status => Err(Refused::Said(format!(
            "the gateway has refused the file: HTTP {status}"
        ))),
    }
}

/// Where the download writes.
struct Pipe(SyncSender<io::Result<Vec<u8>>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() {
            let sent = self.0.send(Ok(bytes.to_vec()));
            sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the gateway is sent: an empty piece is the end, anything else that ends it an error, so
/// that half a file is not taken for one.
struct Body {
    receiver: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    taken: usize,
    is_done: bool,
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() && !self.is_done {
            let next = self.receiver.recv();
            self.piece = next.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))??;
            self.taken = 0;
            self.is_done = self.piece.is_empty();
        }
        let bytes = into.len().min(self.piece.len() - self.taken);
        into[..bytes].copy_from_slice(&self.piece[self.taken..self.taken + bytes]);
        self.taken += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a download that breaks off is no end of the file; one that is complete is.
    #[test]
    fn half_a_file_is_no_file() {
        let body = |pieces: Vec<io::Result<Vec<u8>>>| {
            let (sender, receiver) = sync_channel(9);
            for piece in pieces {
                sender.send(piece).expect("room");
            }
            drop(sender);
            let mut all = Vec::new();
            let mut body = Body {
                receiver,
                piece: Vec::new(),
                taken: 0,
                is_done: false,
            };
            body.read_to_end(&mut all).map(|_| all)
        };
        let piece = || Ok(b"abc".to_vec());
        assert_eq!(
            body(vec![piece(), piece(), Ok(Vec::new())]).ok(),
            Some(b"abcabc".to_vec())
        );
        assert!(body(vec![piece()]).is_err());
        let failed = Err(io::Error::other("lost"));
        assert!(body(vec![piece(), failed]).is_err());
    }

    /// Goal: what the system tells in digits are the bytes again.
    #[test]
    fn digits_are_bytes() {
        assert_eq!(bytes_of("00ff7a").ok(), Some(vec![0, 255, 0x7a]));
        assert!(bytes_of("0g").is_err() && bytes_of("ä0").is_err());
    }
}
