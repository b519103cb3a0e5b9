//! Each command, described once.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::{Address, quantity};

/// The tools.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Store a file in the network; its exNode says where it is.
    #[command(
        after_help = "Examples:\n  crossdock upload photo.jpg --copies 2 --duration 7d\n  \
        crossdock upload film.webm --checksum --encrypt --key ~/film.key\n  \
        crossdock upload big.iso --depot 10.0.0.1:6714,10.0.0.2:6714,10.0.0.3:6714 --code 2+1\n  \
        tar c src | crossdock upload - --name src.tar -o src.xnd"
    )]
    Upload(Upload),
    /// Fetch a file, or a part of it, by its exNode.
    #[command(after_help = "Examples:\n  crossdock download photo.jpg.xnd\n  \
        crossdock download film.webm.xnd -o - | mpv -\n  \
        crossdock download big.iso.xnd --range 0-1M --resume")]
    Download(Download),
    /// Show where the parts of a file are, and until when.
    #[command(alias = "ls", after_help = "Example:\n  crossdock stat photo.jpg.xnd")]
    Stat(Stat),
    /// Have depots keep a file longer, or less long.
    #[command(
        after_help = "Examples:\n  crossdock refresh photo.jpg.xnd --extend 7d\n  \
        crossdock refresh photo.jpg.xnd --for 1h"
    )]
    Refresh(Refresh),
    /// Add copies of a file, or of a part of it; depots copy among themselves.
    #[command(
        after_help = "Example:\n  crossdock augment photo.jpg.xnd --copies 1 --location 'airport= TYS'"
    )]
    Augment(Augment),
    /// Take parts out of an exNode, and have depots drop them.
    #[command(after_help = "Examples:\n  crossdock trim photo.jpg.xnd --expired\n  \
        crossdock trim photo.jpg.xnd --mappings 0,2")]
    Trim(Trim),
    /// Take capabilities out of an exNode before it is given to others.
    #[command(
        after_help = "Example:\n  crossdock modify photo.jpg.xnd --remove write,manage -o public.xnd"
    )]
    Modify(Modify),
    /// Copy a file to other depots; the new exNode has the copies only.
    #[command(
        after_help = "Example:\n  crossdock copy photo.jpg.xnd -o there.xnd --depot 10.0.0.9:6714"
    )]
    Copy(Copy),
    /// Move a file to other depots: augment, then trim (the paper's routing).
    #[command(
        after_help = "Example:\n  crossdock move photo.jpg.xnd --to 'city= Knoxville st= TN'"
    )]
    Move(Move),
    /// Measure the way between two depots, or from here (`here`), and say what is to be expected.
    #[command(after_help = "Example:\n  crossdock forecast here 127.0.0.1:6714")]
    Forecast(Forecast),
}

/// Which depots.
#[derive(Clone, Debug, Args)]
pub(super) struct Where {
    /// Depots, as HOST:PORT, instead of asking an L-Bone.
    #[arg(long = "depot", value_name = "HOST:PORT", value_delimiter = ',')]
    pub(super) depots: Vec<Address>,
    /// The L-Bone that knows depots, or off.
    #[arg(long, default_value = "127.0.0.1:6767", env = "CROSSDOCK_LBONE")]
    pub(super) lbone: String,
    /// Near what: `zip= 37901`, `airport= TYS`, `city= Knoxville st= TN`, `hostname= a.example`.
    #[arg(long, default_value = "")]
    pub(super) location: String,
    /// Depots at most.
    #[arg(long)]
    pub(super) max_depots: Option<u32>,
}

/// How bytes are moved, and what is told of it.
#[derive(Clone, Debug, Args)]
pub(super) struct How {
    /// Connections at a time.
    #[arg(long, default_value_t = 8)]
    pub(super) threads: usize,
    /// Of them to one depot, at most; how many it serves is learned.
    #[arg(long, default_value_t = 16)]
    pub(super) connections: usize,
    /// Memory for blocks that are under way.
    #[arg(long, default_value = "64M", value_parser = quantity::bytes)]
    pub(super) memory: u64,
    /// How long a connection may be silent before another source is taken.
    #[arg(long, default_value = "10s", value_parser = quantity::duration)]
    pub(super) timeout: Duration,
    /// Where measurements of depots are kept, or off [default: of the user].
    #[arg(long, value_name = "FILE|off", env = "CROSSDOCK_FORECASTS")]
    pub(super) forecasts: Option<String>,
    /// Write what was moved from where and when, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Draw it: blocks by thread and depot, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(super) timeline: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// For how long, and how safely.
#[derive(Clone, Debug, Args)]
pub(super) struct Lease {
    /// For how long depots keep it.
    #[arg(long = "duration", default_value = "1d", value_parser = quantity::duration)]
    pub(super) duration: Duration,
    /// Depots may drop it earlier.
    #[arg(long)]
    pub(super) volatile: bool,
}

#[derive(Debug, Args)]
pub struct Upload {
    /// The file; `-` is standard input.
    pub(super) file: PathBuf,
    /// Where the exNode goes [default: FILE.xnd]; a name in .json is written as JSON.
    #[arg(short, long)]
    pub(super) output: Option<PathBuf>,
    /// Name for downloads [default: the file's].
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Copies of each part, on depots apart.
    #[arg(long, default_value_t = 1)]
    pub(super) copies: usize,
    /// Bytes of the file in one part.
    #[arg(long, default_value = "5M", value_parser = quantity::bytes)]
    pub(super) block_size: u64,
    /// Store all copies from here, instead of having depots copy.
    #[arg(long)]
    pub(super) direct: bool,
    /// Of each so many parts, so many more that restore lost ones.
    #[arg(long, value_name = "DATA+RECOVERY", value_parser = code)]
    pub(super) code: Option<(u32, u32)>,
    /// A checksum (BLAKE3) with each block.
    #[arg(long)]
    pub(super) checksum: bool,
    /// Encrypt (AES-256-GCM) with the key in --key.
    #[arg(long, requires = "key")]
    pub(super) encrypt: bool,
    /// Compress (zstd).
    #[arg(long)]
    pub(super) compress: bool,
    /// File with a key of 64 hexadecimal digits (openssl rand -hex 32).
    #[arg(long, value_name = "FILE")]
    pub(super) key: Option<PathBuf>,
    /// Bytes that are checked or encrypted together.
    #[arg(long, default_value = "512K", value_parser = quantity::bytes)]
    pub(super) coding_block: u64,
    #[command(flatten)]
    pub(super) lease: Lease,
    #[command(flatten)]
    pub(super) place: Where,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
pub struct Download {
    /// The exNode.
    pub(super) exnode: PathBuf,
    /// Where it goes [default: the name in the exNode]; `-` is standard output, in order.
    #[arg(short, long)]
    pub(super) output: Option<PathBuf>,
    /// Bytes of the file, as FIRST-END (END is not in it); either may be left out.
    #[arg(long, value_name = "FIRST-END")]
    pub(super) range: Option<String>,
    /// Go on with what an earlier download has left.
    #[arg(long)]
    pub(super) resume: bool,
    /// Replace a file that is there.
    #[arg(long)]
    pub(super) force: bool,
    /// File with the key of an encrypted file.
    #[arg(long, value_name = "FILE")]
    pub(super) key: Option<PathBuf>,
    /// Pass over wrong MD5s: historic tools built for 64 bits computed others.
    #[arg(long)]
    pub(super) skip_md5: bool,
    /// Largest pieces that are fetched at once.
    #[arg(long, value_parser = quantity::bytes)]
    pub(super) piece_size: Option<u64>,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
pub struct Stat {
    /// The exNode.
    pub(super) exnode: PathBuf,
    /// Write it as JSON, or as XML, by its name.
    #[arg(short, long)]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
pub struct Refresh {
    /// The exNode.
    pub(super) exnode: PathBuf,
    /// So much longer than now.
    #[arg(long, value_parser = quantity::duration, group = "end")]
    pub(super) extend: Option<Duration>,
    /// So much less long than now.
    #[arg(long, value_parser = quantity::duration, group = "end")]
    pub(super) reduce: Option<Duration>,
    /// So long from now on.
    #[arg(long = "for", value_parser = quantity::duration, group = "end")]
    pub(super) from_now: Option<Duration>,
    /// As long as each depot lets it.
    #[arg(long, group = "end")]
    pub(super) longest: bool,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
pub struct Augment {
    /// The exNode.
    pub(super) exnode: PathBuf,
    /// Where the new exNode goes [default: it replaces the old one].
    #[arg(short, long)]
    pub(super) output: Option<PathBuf>,
    /// Copies to add.
    #[arg(long, default_value_t = 1)]
    pub(super) copies: usize,
    /// Bytes of the file, as FIRST-END; whole blocks are copied.
    #[arg(long, value_name = "FIRST-END")]
    pub(super) range: Option<String>,
    #[command(flatten)]
    pub(super) lease: Lease,
    #[command(flatten)]
    pub(super) place: Where,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
pub struct Trim {
    /// The exNode.
    pub(super) exnode: PathBuf,
    /// Where the new exNode goes [default: it replaces the old one].
    #[arg(short, long)]
    pub(super) output: Option<PathBuf>,
    /// Numbers of mappings, as stat shows them.
    #[arg(long, value_delimiter = ',')]
    pub(super) mappings: Vec<usize>,
    /// Those that their depots do not have any more.
    #[arg(long)]
    pub(super) expired: bool,
    /// Those whose depots do not answer.
    #[arg(long)]
    pub(super) unreachable: bool,
    /// Only from the exNode; depots keep them.
    #[arg(long)]
    pub(super) only_exnode: bool,
    #[command(flatten)]
    pub(super) how: How,
}

/// A capability of each mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// To download.
    Read,
    /// To store.
    Write,
    /// To refresh and trim.
    Manage,
}

#[derive(Debug, Args)]
pub struct Modify {
    /// The exNode.
    pub(super) exnode: PathBuf,
    /// Where the new exNode goes.
    #[arg(short, long)]
    pub(super) output: PathBuf,
    /// Which capabilities are taken out.
    #[arg(long, value_delimiter = ',', required = true)]
    pub(super) remove: Vec<Kind>,
    /// Print as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub struct Copy {
    /// The exNode.
    pub(super) exnode: PathBuf,
    /// Where the new exNode goes.
    #[arg(short, long)]
    pub(super) output: PathBuf,
    /// Copies to make.
    #[arg(long, default_value_t = 1)]
    pub(super) copies: usize,
    #[command(flatten)]
    pub(super) lease: Lease,
    #[command(flatten)]
    pub(super) place: Where,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
pub struct Move {
    /// The exNode.
    pub(super) exnode: PathBuf,
    /// Where the new exNode goes [default: it replaces the old one].
    #[arg(short, long)]
    pub(super) output: Option<PathBuf>,
    /// Near what; the same as --location.
    #[arg(long, value_name = "LOCATION")]
    pub(super) to: Option<String>,
    #[command(flatten)]
    pub(super) lease: Lease,
    #[command(flatten)]
    pub(super) place: Where,
    #[command(flatten)]
    pub(super) how: How,
}

#[derive(Debug, Args)]
pub struct Forecast {
    /// A depot, or `here`.
    pub(super) from: String,
    /// A depot.
    pub(super) to: Address,
    /// How often it is measured now; 0 says what is known.
    #[arg(long, default_value_t = 3)]
    pub(super) probes: u32,
    /// Bytes of each measurement.
    #[arg(long, default_value = "256K", value_parser = quantity::bytes)]
    pub(super) size: u64,
    /// Where measurements of depots are kept, or off [default: of the user].
    #[arg(long, value_name = "FILE|off", env = "CROSSDOCK_FORECASTS")]
    pub(super) forecasts: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// `4+2`.
fn code(text: &str) -> Result<(u32, u32), String> {
    let numbers = text
        .split_once('+')
        .and_then(|(data, recovery)| Some((data.parse().ok()?, recovery.parse().ok()?)));
    match numbers {
        Some((data @ 1.., recovery @ 1..)) => Ok((data, recovery)),
        _ => Err(format!("{text:?} is not DATA+RECOVERY, like 4+2")),
    }
}

impl Tool {
    /// Whether what it prints is for programs.
    #[must_use]
    pub fn prints_json(&self) -> bool {
        match self {
            Self::Upload(args) => args.how.json,
            Self::Download(args) => args.how.json,
            Self::Stat(args) => args.how.json,
            Self::Refresh(args) => args.how.json,
            Self::Augment(args) => args.how.json,
            Self::Trim(args) => args.how.json,
            Self::Modify(args) => args.json,
            Self::Copy(args) => args.how.json,
            Self::Move(args) => args.how.json,
            Self::Forecast(args) => args.json,
        }
    }
}
