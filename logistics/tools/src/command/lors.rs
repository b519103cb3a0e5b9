//! The tools under their historic names, with the options of LoRS 0.82: `lors_upload` and so on,
//! by the name of the program or as subcommands.
//!
//! Options that choose something which has no counterpart here (viewers, prebuffering, the
//! order in which redundancy is used) are taken and mean nothing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use crossdock_ibp::Reliability;

use super::args::How;
use super::carry::{download_with, name_for, refresh_with, upload_with};
use super::{block_on, output};
use crate::document::beside;
use crate::rc::Rc;
use crate::refresh::End;
use crate::stat::{date, lors_line};
use crate::upload::{Input, StepKind};
use crate::{
    Depots, Knowledge, Observer, Place, Tuning, augment, download, modify, quantity, read_exnode,
    stat, trim, upload, write_exnode,
};

/// The historic tools.
#[derive(Debug, Subcommand)]
pub enum Lors {
    /// upload, as LoRS has it.
    #[command(name = "lors_upload", hide = true, disable_help_flag = true)]
    Upload(Upload),
    /// download, as LoRS has it.
    #[command(name = "lors_download", hide = true)]
    Download(Download),
    /// stat, as LoRS has it.
    #[command(
        name = "lors_ls",
        alias = "lors_stat",
        hide = true,
        disable_help_flag = true
    )]
    Ls(Ls),
    /// refresh, as LoRS has it.
    #[command(name = "lors_refresh", hide = true)]
    Refresh(Refresh),
    /// augment, as LoRS has it.
    #[command(name = "lors_augment", hide = true, disable_help_flag = true)]
    Augment(Augment),
    /// trim, as LoRS has it.
    #[command(name = "lors_trim", hide = true)]
    Trim(Trim),
    /// modify, as LoRS has it.
    #[command(name = "lors_modify", hide = true)]
    Modify(Modify),
}

/// The program when it is called by a historic name.
#[derive(Parser)]
#[command(name = "lors", disable_version_flag = true)]
struct Program {
    #[command(subcommand)]
    tool: Lors,
}

impl Lors {
    /// The tool of a program's name and words, if that is one.
    ///
    /// # Errors
    /// If the words cannot be.
    pub fn of_words(words: Vec<OsString>) -> Option<Result<Self, clap::Error>> {
        let name = Path::new(words.first()?).file_name()?.to_str()?.to_owned();
        if !name.starts_with("lors_") {
            return None;
        }
        let rest = words.into_iter().skip(1);
        let all = [OsString::from("lors"), name.into()]
            .into_iter()
            .chain(rest);
        Some(Program::try_parse_from(historic_words(all)).map(|program| program.tool))
    }
}

/// The words of a program; behind the name of a historic tool, options of two letters and one
/// dash (`-bs`) are those of one letter.
pub fn historic_words(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut is_historic = false;
    let word = |word: OsString| {
        is_historic |= word.to_str().is_some_and(|word| word.starts_with("lors_"));
        match word.to_str() {
            Some("-bs") if is_historic => OsString::from("-b"),
            _ => word,
        }
    };
    words.into_iter().map(word).collect()
}

#[derive(Debug, Args)]
struct Common {
    /// How much is told.
    #[arg(short = 'V')]
    verbosity: Option<i32>,
    /// Connections at a time.
    #[arg(short = 't')]
    threads: Option<usize>,
    /// How long all may take.
    #[arg(short = 'T', value_parser = quantity::duration)]
    time: Option<Duration>,
    /// Messages for a viewer.
    #[arg(short = 'D')]
    demo: bool,
    /// The same name and .xnd, or overwrite the input.
    #[arg(short = 'f')]
    same_name: bool,
    /// Where the result goes.
    #[arg(short = 'o')]
    output: Option<PathBuf>,
    /// Another rc file.
    #[arg(short = 'x')]
    rc: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Choice {
    /// The L-Bone's host.
    #[arg(short = 'H')]
    host: Option<String>,
    /// Its port.
    #[arg(short = 'P')]
    port: Option<u16>,
    /// Near what.
    #[arg(short = 'l')]
    location: Option<String>,
    /// Largest number of depots.
    #[arg(short = 'm')]
    max_depots: Option<u32>,
    /// Duration of allocations.
    #[arg(short = 'd', value_parser = quantity::duration)]
    duration: Option<Duration>,
    /// Soft (volatile) allocations.
    #[arg(short = 's')]
    soft: bool,
    /// Hard (stable) allocations.
    #[arg(short = 'h')]
    hard: bool,
    /// Only the DEPOT lines of the rc file.
    #[arg(long = "depot-list")]
    depot_list: bool,
    /// Mapping size.
    #[arg(short = 'b', value_parser = quantity::bytes)]
    mapping: Option<u64>,
    /// Number of fragments instead.
    #[arg(short = 'F')]
    fragments: Option<u64>,
    /// Copies.
    #[arg(short = 'c')]
    copies: Option<usize>,
    /// Memory.
    #[arg(short = 'M', value_parser = quantity::bytes)]
    memory: Option<u64>,
    /// First byte.
    #[arg(short = 'O', value_parser = quantity::bytes)]
    offset: Option<u64>,
    /// Number of bytes.
    #[arg(short = 'L', value_parser = quantity::bytes)]
    length: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Upload {
    /// The file.
    file: Option<PathBuf>,
    /// Read standard input.
    #[arg(short = 'i')]
    stdin: bool,
    /// No conditioning.
    #[arg(short = 'n')]
    none: bool,
    /// Checksum.
    #[arg(short = 'k')]
    checksum: bool,
    /// DES.
    #[arg(short = 'e')]
    des: bool,
    /// AES.
    #[arg(short = 'a')]
    aes: bool,
    /// zlib.
    #[arg(short = 'z')]
    zlib: bool,
    /// XOR.
    #[arg(short = 'X')]
    xor: bool,
    /// Size of a conditioning block.
    #[arg(short = 'E', value_parser = quantity::bytes)]
    e2e: Option<u64>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Download {
    /// The exNode.
    exnode: PathBuf,
    /// Connections to one depot.
    #[arg(short = 'a')]
    connections: Option<usize>,
    /// Threads for one block.
    #[arg(short = 'r')]
    block_threads: Option<usize>,
    /// Resume.
    #[arg(short = 'R')]
    resume: bool,
    /// Progress-driven redundancy.
    #[arg(short = 'p')]
    progress: Option<usize>,
    /// Blocks to prebuffer.
    #[arg(short = 'q')]
    prebuffer: Option<usize>,
    /// Cache blocks.
    #[arg(short = 'C')]
    cache: Option<usize>,
    /// Block size.
    #[arg(short = 'b', value_parser = quantity::bytes)]
    block: Option<u64>,
    /// Memory.
    #[arg(short = 'M', value_parser = quantity::bytes)]
    memory: Option<u64>,
    /// First byte.
    #[arg(short = 'O', value_parser = quantity::bytes)]
    offset: Option<u64>,
    /// Number of bytes.
    #[arg(short = 'L', value_parser = quantity::bytes)]
    length: Option<u64>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Ls {
    /// The exNode.
    exnode: PathBuf,
    /// Logical.
    #[arg(short = 'l')]
    logical: bool,
    /// Physical.
    #[arg(short = 'p')]
    physical: bool,
    /// For people.
    #[arg(short = 'h')]
    human: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Refresh {
    /// The exNode.
    exnode: PathBuf,
    /// Add to the end.
    #[arg(short = 'd', value_parser = quantity::duration, group = "end")]
    later: Option<Duration>,
    /// Set from now.
    #[arg(short = 's', value_parser = quantity::duration, group = "end")]
    from_now: Option<Duration>,
    /// Absolute, in seconds since 1970.
    #[arg(short = 'a', group = "end")]
    absolute: Option<u64>,
    /// As long as depots let it.
    #[arg(short = 'm', group = "end")]
    longest: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Augment {
    /// The exNode.
    exnode: PathBuf,
    /// Only where fewer than -c live copies are.
    #[arg(short = 'B')]
    balance: bool,
    /// Write the new mappings only, to this file.
    #[arg(short = 'n')]
    new: Option<PathBuf>,
    /// Data movers.
    #[arg(long)]
    mcopy: bool,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Trim {
    /// The exNode.
    exnode: PathBuf,
    /// Mappings to act on, as lors_ls counts them.
    #[arg(short = 'm', value_delimiter = ',')]
    mappings: Vec<usize>,
    /// Decrement the read count first.
    #[arg(short = 'd')]
    decrement: bool,
    /// Only from the file.
    #[arg(short = 'n')]
    only_exnode: bool,
    /// The unreachable.
    #[arg(short = 'u')]
    unreachable: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Modify {
    /// The exNode.
    exnode: PathBuf,
    /// The read capabilities.
    #[arg(short = 'r')]
    read: bool,
    /// The write capabilities.
    #[arg(short = 'w')]
    write: bool,
    /// The manage capabilities.
    #[arg(short = 'm')]
    manage: bool,
    #[command(flatten)]
    common: Common,
}

impl Common {
    fn rc(&self) -> Result<Rc> {
        Rc::read(self.rc.as_deref())
    }

    fn how(&self, rc: &Rc, memory: Option<u64>) -> How {
        How {
            threads: self.threads.or(rc.threads).unwrap_or(8),
            connections: 16,
            memory: memory.or(rc.memory_bytes).unwrap_or(64 << 20),
            timeout: Duration::from_secs(10),
            forecasts: None,
            report: None,
            timeline: None,
            json: false,
        }
    }

    /// How long all may take.
    fn limit(&self, rc: &Rc) -> Option<Duration> {
        self.time
            .or_else(|| rc.timeout_seconds.map(Duration::from_secs))
    }

    /// Where the changed exNode goes.
    fn target(&self, exnode: &Path) -> Result<PathBuf> {
        match &self.output {
            Some(output) => Ok(output.clone()),
            None if self.same_name => Ok(exnode.to_owned()),
            None => bail!("where the exNode goes says -o, or -f to overwrite it"),
        }
    }
}

impl Choice {
    fn reliability(&self, rc: &Rc) -> Reliability {
        let is_soft = !self.hard && (self.soft || rc.is_volatile == Some(true));
        match is_soft {
            true => Reliability::Volatile,
            false => Reliability::Stable,
        }
    }

    fn duration(&self, rc: &Rc) -> Duration {
        let of_rc = rc.duration_seconds.map(Duration::from_secs);
        self.duration.or(of_rc).unwrap_or(Duration::from_secs(3600))
    }

    fn place(&self, rc: &Rc) -> Result<Place> {
        let port = self.port.unwrap_or(crossdock_lbone::PORT);
        let lbone = match &self.host {
            Some(host) => Some(format!("{host}:{port}").parse()?),
            None => rc.lbone.clone(),
        };
        let is_listed = self.depot_list || lbone.is_none();
        let location = self.location.clone().or_else(|| rc.location.clone());
        Ok(Place {
            depots: if is_listed {
                rc.depots.clone()
            } else {
                Vec::new()
            },
            lbone,
            location: location.unwrap_or_default(),
            depots_max: self.max_depots.or(rc.depots_max),
        })
    }

    fn range(&self, size: u64) -> Result<Option<std::ops::Range<u64>>> {
        range(self.offset, self.length, size)
    }
}

fn range(
    offset: Option<u64>,
    length: Option<u64>,
    size: u64,
) -> Result<Option<std::ops::Range<u64>>> {
    if offset.is_none() && length.is_none() {
        return Ok(None);
    }
    let start = offset.unwrap_or(0);
    ensure!(start <= size, "the file has {size} bytes");
    let end = length.map_or(size, |length| start.saturating_add(length).min(size));
    Ok(Some(start..end))
}

async fn within<T>(limit: Option<Duration>, work: impl Future<Output = Result<T>>) -> Result<T> {
    match limit {
        None => work.await,
        Some(limit) => match tokio::time::timeout(limit, work).await {
            Ok(result) => result,
            Err(_) => bail!("it took longer than {} s (-T)", limit.as_secs()),
        },
    }
}

impl Lors {
    /// Carries it out.
    ///
    /// # Errors
    /// What could not be done, and why.
    pub fn carry_out(self) -> Result<()> {
        match self {
            Self::Upload(args) => block_on(upload_file(&args)),
            Self::Download(args) => block_on(download_file(&args)),
            Self::Ls(args) => block_on(list(&args)),
            Self::Refresh(args) => block_on(refresh_file(&args)),
            Self::Augment(args) => block_on(augment_file(&args)),
            Self::Trim(args) => block_on(trim_file(&args)),
            Self::Modify(args) => modify_file(&args),
        }
    }
}

async fn upload_file(args: &Upload) -> Result<()> {
    let rc = args.common.rc()?;
    let choice = &args.choice;
    ensure!(
        !args.des && !args.xor,
        "des and xor protect nothing and are read only: -a is AES, -k a checksum"
    );
    let mut steps = Vec::new();
    if !args.none {
        steps.extend(args.zlib.then_some(StepKind::HistoricZlib));
        steps.extend(args.aes.then_some(StepKind::HistoricAes));
        steps.extend(args.checksum.then_some(StepKind::HistoricChecksum));
    }
    let input = match &args.file {
        Some(file) if !args.stdin => Input::open(file)?,
        named => {
            ensure!(args.stdin, "which file? (-i reads standard input)");
            let name = named
                .as_deref()
                .map_or_else(|| "stdin".into(), Path::to_string_lossy);
            Input::stdin(&name)
        }
    };
    let fragments = choice
        .fragments
        .or(rc.fragments)
        .filter(|&fragments| fragments > 0);
    let of_size = choice.mapping.or(rc.mapping_bytes).unwrap_or(5 << 20);
    let mapping_bytes = match (choice.mapping, fragments, input.bytes()) {
        (None, Some(fragments), Some(bytes)) => bytes.div_ceil(fragments).max(1),
        _ => of_size,
    };
    let (duration, reliability) = (choice.duration(&rc), choice.reliability(&rc));
    let how = args.common.how(&rc, choice.memory);
    let options = upload::Options {
        depots: choice
            .place(&rc)?
            .find(mapping_bytes, duration, reliability)
            .await?,
        mapping_bytes,
        copies: choice.copies.or(rc.copies).unwrap_or(1),
        duration,
        reliability,
        steps,
        block_bytes: args.e2e.or(rc.e2e_blocksize).unwrap_or(512 << 10),
        tuning: how.tuning(),
        ..upload::Options::default()
    };
    let to = match (&args.common.output, &args.file) {
        (Some(output), _) => output.clone(),
        (None, Some(file)) => beside(Path::new(file.file_name().unwrap_or_default()), ".xnd"),
        (None, None) => bail!("where the exNode goes says -o"),
    };
    let limit = args.common.limit(&rc);
    within(limit, upload_with(input, &options, &how, &to)).await
}

async fn download_file(args: &Download) -> Result<()> {
    let rc = args.common.rc()?;
    let exnode = read_exnode(&args.exnode)?;
    let mut how = args.common.how(&rc, args.memory);
    how.connections = args.connections.unwrap_or(how.connections);
    let options = download::Options {
        range: range(args.offset, args.length, exnode.size())?,
        piece_bytes: args.block,
        tuning: how.tuning(),
        ..download::Options::default()
    };
    let to = match &args.common.output {
        Some(output) => output.clone(),
        None if args.common.same_name => name_for(&exnode, &args.exnode)?,
        None => bail!("where the file goes says -o, or -f for the name in the exNode"),
    };
    let limit = args.common.limit(&rc);
    within(
        limit,
        download_with(&exnode, &options, &how, &to, args.resume),
    )
    .await
}

async fn list(args: &Ls) -> Result<()> {
    let exnode = read_exnode(&args.exnode)?;
    let depots = Depots::default();
    let threads = args.common.threads.unwrap_or(8);
    let statuses = stat::stat(&depots, &exnode, threads, &Knowledge::default()).await;
    let now = SystemTime::now();
    for (number, (mapping, status)) in exnode.mappings.iter().zip(&statuses).enumerate() {
        let ends = status.ends(now).map_or_else(|| "?".to_owned(), date);
        output::line(&lors_line(number, mapping, status, &ends));
    }
    Ok(())
}

async fn refresh_file(args: &Refresh) -> Result<()> {
    let rc = args.common.rc()?;
    let end = match (args.later, args.from_now, args.absolute, args.longest) {
        (Some(later), ..) => End::Later(later),
        (_, Some(from_now), ..) => End::In(from_now),
        (_, _, Some(absolute), _) => {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(absolute);
            End::In(at.duration_since(SystemTime::now())?)
        }
        (_, _, _, true) => End::Latest,
        _ => bail!("until when says -d, -s, -a or -m"),
    };
    refresh_with(&args.exnode, end, &args.common.how(&rc, None)).await
}

async fn augment_file(args: &Augment) -> Result<()> {
    let rc = args.common.rc()?;
    let choice = &args.choice;
    let mut exnode = read_exnode(&args.exnode)?;
    let to = match &args.new {
        Some(new) => new.clone(),
        None => args.common.target(&args.exnode)?,
    };
    let depots = Depots::default();
    let copies = choice.copies.or(rc.copies).unwrap_or(1);
    let how = args.common.how(&rc, choice.memory);
    let mut sources = exnode.clone();
    if args.balance {
        sources = lacking(&depots, exnode.clone(), copies, how.threads).await;
    }
    let stored = exnode
        .mappings
        .iter()
        .map(|mapping| mapping.alloc_length)
        .max();
    let (duration, reliability) = (choice.duration(&rc), choice.reliability(&rc));
    let place = choice.place(&rc)?;
    let options = augment::Options {
        depots: place
            .find(stored.unwrap_or(1), duration, reliability)
            .await?,
        copies: if args.balance { 1 } else { copies },
        range: choice.range(exnode.size())?,
        duration,
        reliability,
        tuning: Tuning { ..how.tuning() },
    };
    let (mut knowledge, mut observer) = (Knowledge::default(), Observer::silent());
    let made = augment::augment(&depots, &sources, &options, &mut knowledge, &mut observer);
    let made = within(args.common.limit(&rc), made).await?;
    match &args.new {
        Some(_) => exnode.mappings = made,
        None => exnode.mappings.extend(made),
    }
    write_exnode(&exnode, &to)
}

/// The mappings of which fewer than so many copies live.
async fn lacking(
    depots: &Depots,
    mut exnode: crossdock_exnode::ExNode,
    copies: usize,
    threads: usize,
) -> crossdock_exnode::ExNode {
    let statuses = stat::stat(depots, &exnode, threads, &Knowledge::default()).await;
    let lives: Vec<bool> = statuses.iter().map(|status| status.probe.is_ok()).collect();
    let mappings = std::mem::take(&mut exnode.mappings);
    let count = |of: &crossdock_exnode::Mapping| {
        let alike = mappings
            .iter()
            .zip(&lives)
            .filter(|(other, _)| other.range() == of.range());
        alike.filter(|(_, lives)| **lives).count()
    };
    let lacks: Vec<bool> = mappings
        .iter()
        .map(|mapping| count(mapping) < copies)
        .collect();
    let kept = mappings.into_iter().zip(lives).zip(lacks);
    let kept = kept.filter(|((_, lives), lacks)| *lives && *lacks);
    exnode.mappings = kept.map(|((mapping, _), _)| mapping).collect();
    exnode
}

async fn trim_file(args: &Trim) -> Result<()> {
    let rc = args.common.rc()?;
    let to = args.common.target(&args.exnode)?;
    let mut exnode = read_exnode(&args.exnode)?;
    let depots = Depots::default();
    let threads = args.common.how(&rc, None).threads;
    let mut chosen: BTreeSet<usize> = args.mappings.iter().copied().collect();
    if args.unreachable {
        let statuses = stat::stat(&depots, &exnode, threads, &Knowledge::default()).await;
        let lost = statuses
            .iter()
            .enumerate()
            .filter(|(_, status)| status.probe.is_err());
        chosen.extend(lost.map(|(number, _)| number));
    } else if args.mappings.is_empty() && args.decrement {
        chosen.extend(0..exnode.mappings.len());
    }
    ensure!(
        args.unreachable || !chosen.is_empty(),
        "which mappings says -m, or -u for the unreachable"
    );
    let only = args.only_exnode || !args.decrement;
    let trimmed = trim::trim(&depots, &mut exnode, &chosen, only, threads).await?;
    for (number, why) in &trimmed.kept_at_depots {
        output::line(&format!("mapping {number} stays at its depot: {why}"));
    }
    write_exnode(&exnode, &to)
}

fn modify_file(args: &Modify) -> Result<()> {
    let to = args.common.target(&args.exnode)?;
    let mut exnode = read_exnode(&args.exnode)?;
    modify::modify(&mut exnode, args.read, args.write, args.manage);
    write_exnode(&exnode, &to)
}
