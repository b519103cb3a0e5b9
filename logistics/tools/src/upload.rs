//! Upload: "takes local storage, uploads it into the network and returns an exNode" (Network
//! Storage Stack 2.3).
//!
//! The file is cut into mappings; each goes to as many depots as there are to be copies, apart
//! from each other. Either the client stores all copies, or only the first one, and depots
//! make the others (the two strategies of the paper's test 4). With a code, so many mappings
//! in a row are a group with mappings that restore others.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_exnode::{
    Code, Coding, Encoded, ExNode, ExNodeId, FileKey, Group, Mapping, Place, SHARD_UNIT_BYTES,
    Shard, Step,
};
use crossdock_forecast::{DepotId, Piece, PieceId};
use crossdock_ibp::{Capabilities, Reliability};
use crossdock_limits::EXNODE_BLOCK_BYTES_MAX;

use crate::depot::{Turn, Wanted};
use crate::knowledge::Knowledge;
use crate::mover::{self, Progress, TaskError, Tuning, Work};
use crate::observer::Observer;
use crate::{Address, Depots, random};

/// How much and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to, the best first.
    pub depots: Vec<Address>,
    /// Bytes of the file in one mapping.
    pub mapping_bytes: u64,
    /// Copies of each mapping.
    pub copies: usize,
    /// Whether the client stores all copies; else depots copy from the first.
    pub is_direct: bool,
    /// For how long.
    pub duration: Duration,
    /// Whether depots may drop it early.
    pub reliability: Reliability,
    /// Mappings that restore others: of how many, and how many.
    pub code: Option<(u32, u32)>,
    /// What is done to the bytes.
    pub steps: Vec<StepKind>,
    /// Bytes that are coded together.
    pub block_bytes: u64,
    /// For encryption; its owner keeps it.
    pub key: Option<FileKey>,
    /// How to move them.
    pub tuning: Tuning,
}

/// What can be done to the bytes of an upload; see [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// BLAKE3.
    Checksum,
    /// AES-256-GCM.
    Encrypt,
    /// zstd.
    Compress,
    /// MD5, as the historic tools.
    HistoricChecksum,
    /// AES-128-CBC with a key in the exNode, as the historic tools.
    HistoricAes,
    /// zlib, as the historic tools.
    HistoricZlib,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            depots: Vec::new(),
            mapping_bytes: 5 << 20,
            copies: 1,
            is_direct: false,
            duration: Duration::from_secs(24 * 3600),
            reliability: Reliability::Stable,
            code: None,
            steps: Vec::new(),
            block_bytes: 512 << 10,
            key: None,
            tuning: Tuning::default(),
        }
    }
}

/// What is uploaded.
pub struct Input {
    name: String,
    /// None if it is not known before.
    bytes: Option<u64>,
    reader: Box<dyn Read + Send>,
}

impl Input {
    /// A file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
        let metadata = file.metadata()?;
        ensure!(!metadata.is_dir(), "{shown} is a directory");
        let name = path.file_name().unwrap_or_default();
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            bytes: metadata.is_file().then_some(metadata.len()),
            reader: Box::new(file),
        })
    }

    /// Standard input, under a name for downloads.
    #[must_use]
    pub fn stdin(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            bytes: None,
            reader: Box::new(io::stdin()),
        }
    }

    /// How many bytes it has, if that is known before.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// The same under another name for downloads.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }
}

/// Uploads `input`.
///
/// # Errors
/// If it cannot be read, depots are too few, or parts could not be stored; what was stored
/// then ends with its time.
pub async fn upload(
    depots: &Depots,
    input: Input,
    options: &Options,
    observer: &mut Observer,
) -> Result<ExNode> {
    let mut knowledge = Knowledge::default();
    upload_knowing(depots, input, options, &mut knowledge, observer).await
}

/// As [`upload`], with what is known of depots.
///
/// # Errors
/// As [`upload`].
pub async fn upload_knowing(
    depots: &Depots,
    input: Input,
    options: &Options,
    knowledge: &mut Knowledge,
    observer: &mut Observer,
) -> Result<ExNode> {
    let shards = options
        .code
        .map_or(1, |(data, recovery)| data as usize + recovery as usize);
    let needed = options.copies * shards;
    let count = options.depots.len();
    ensure!(count > 0, "no depot to upload to");
    ensure!(options.copies > 0, "no copies are no upload");
    ensure!(
        count >= needed,
        "{needed} depots are needed for copies apart from each other, and {count} are there"
    );
    ensure!(
        options.code.is_none() || options.mapping_bytes <= EXNODE_BLOCK_BYTES_MAX,
        "mappings that are coded together have at most {EXNODE_BLOCK_BYTES_MAX} bytes"
    );
    let id = random::exnode_id()?;
    let steps = steps(options, id)?;
    if let Some(bytes) = input.bytes {
        let copies = options.copies as u64;
        let recovery = options.code.map_or(0, |(data, recovery)| {
            bytes.div_ceil(u64::from(data)) * u64::from(recovery)
        });
        observer.expect((bytes + recovery) * copies);
    }
    let mapping_bytes = match options.code {
        Some(_) => options.mapping_bytes.next_multiple_of(SHARD_UNIT_BYTES),
        None => options.mapping_bytes,
    };
    let mut exnode = ExNode::new(id, &input.name);
    let mut upload = Upload {
        depots: depots.clone(),
        options,
        id,
        coding: Coding::new(steps),
        mapping_bytes: mapping_bytes.max(1),
        reader: Some(input.reader),
        offset: 0,
        next_piece: 0,
        next_spread: 0,
        ready: VecDeque::new(),
        group: Vec::new(),
        parts: BTreeMap::new(),
        stored: Vec::new(),
    };
    let moved = mover::run(
        &mut upload,
        &options.depots,
        &options.tuning,
        knowledge,
        observer,
    );
    moved.await?;
    upload.stored.sort_by_key(|(order, _)| *order);
    exnode.mappings = upload
        .stored
        .into_iter()
        .map(|(_, mapping)| mapping)
        .collect();
    Ok(exnode)
}

fn steps(options: &Options, id: ExNodeId) -> Result<Vec<Step>> {
    let step = |kind: &StepKind| {
        Ok(match kind {
            StepKind::Checksum => Step::Blake3,
            StepKind::Compress => Step::Zstd,
            StepKind::Encrypt => match &options.key {
                Some(key) => Step::AesGcm(key.check(id)),
                None => bail!("encryption needs a key"),
            },
            StepKind::HistoricChecksum => Step::Checksum,
            StepKind::HistoricZlib => Step::Zlib,
            StepKind::HistoricAes => {
                let mut key = [0; 16];
                random::fill(&mut key);
                Step::AesCbc(key)
            }
        })
    };
    options.steps.iter().map(step).collect()
}

/// One copy of a mapping, on its way.
struct Part {
    /// Order of the mapping in the exNode, and of the copy.
    order: (u64, usize),
    /// What the exNode will say, but for capabilities.
    mapping: Mapping,
    from: From,
    spread: u64,
    /// Bytes of the file that progress counts.
    range: Range<u64>,
}

#[derive(Clone)]
enum From {
    /// The client.
    Here(Bytes),
    /// A depot that has it.
    There(Arc<Capabilities>),
}

struct Upload<'a> {
    depots: Depots,
    options: &'a Options,
    id: ExNodeId,
    coding: Coding,
    mapping_bytes: u64,
    /// None at the end.
    reader: Option<Box<dyn Read + Send>>,
    offset: u64,
    next_piece: u64,
    next_spread: u64,
    /// Parts that wait to be asked for.
    ready: VecDeque<Part>,
    /// Clear bytes of the group that is being filled.
    group: Vec<Vec<u8>>,
    parts: BTreeMap<PieceId, Part>,
    stored: Vec<((u64, usize), Mapping)>,
}

impl Upload<'_> {
    /// Reads the next mapping; fewer bytes, or none, at the end.
    async fn read(&mut self) -> Result<Vec<u8>> {
        let Some(mut reader) = self.reader.take() else {
            return Ok(Vec::new());
        };
        let wanted = self.mapping_bytes;
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            let read = reader.by_ref().take(wanted).read_to_end(&mut bytes);
            read.map(|_| (reader, bytes))
        });
        let (reader, bytes) = read.await?.context("cannot read what is to be uploaded")?;
        if bytes.len() as u64 == wanted {
            self.reader = Some(reader);
        }
        Ok(bytes)
    }

    /// Makes the parts of the next mapping, and of what restores others when a group is full.
    async fn fill(&mut self) -> Result<bool> {
        let clear = self.read().await?;
        let is_end = clear.is_empty();
        if !is_end {
            let range = self.offset..self.offset + clear.len() as u64;
            let spread = self.next_spread;
            self.push(clear.clone(), range.clone(), None, spread)
                .await?;
            self.offset = range.end;
            match self.options.code {
                Some(_) => self.group.push(clear),
                None => self.next_spread += 1,
            }
        }
        if let Some((data, recovery)) = self.options.code {
            let is_full = self.group.len() == data as usize;
            if is_full || is_end && !self.group.is_empty() {
                self.push_recovery(data, recovery).await?;
                self.next_spread += 1;
            }
        }
        Ok(!is_end)
    }

    async fn push_recovery(&mut self, data: u32, recovery: u32) -> Result<()> {
        let mut shards = std::mem::take(&mut self.group);
        let bytes: u64 = shards.iter().map(|shard| shard.len() as u64).sum();
        let range = self.offset - bytes..self.offset;
        let code = match recovery {
            1 => Code::Parity,
            _ => Code::ReedSolomon,
        };
        // The last group may have fewer bytes than others; its shards are as long as mappings
        // all the same, so that each mapping is one shard.
        let mut group = Group::new(code, range.clone(), data, recovery)?;
        group.shard_bytes = self
            .mapping_bytes
            .min(bytes.next_multiple_of(SHARD_UNIT_BYTES));
        let length = usize::try_from(group.shard_bytes)?;
        shards.resize(data as usize, Vec::new());
        for shard in &mut shards {
            shard.resize(length, 0);
        }
        let coded = group.clone();
        let made = tokio::task::spawn_blocking(move || coded.encode(&shards)).await??;
        for (index, clear) in (0..).zip(made) {
            let group = group.clone();
            let shard = Shard { group, index };
            let spread = self.next_spread;
            self.push(clear, range.start..range.start, Some(shard), spread)
                .await?;
        }
        Ok(())
    }

    /// Codes what a mapping covers, and makes its parts ready.
    async fn push(
        &mut self,
        clear: Vec<u8>,
        range: Range<u64>,
        shard: Option<Shard>,
        spread: u64,
    ) -> Result<()> {
        let place = Place {
            id: self.id,
            shard: shard.as_ref().map_or(0, |shard| shard.index + 1),
            offset: if shard.is_some() { 0 } else { range.start },
        };
        let (coding, key) = (self.coding.clone(), self.options.key.clone());
        let block_bytes = self.options.block_bytes;
        let length = clear.len() as u64;
        let encoding = tokio::task::spawn_blocking(move || {
            let (shard, key) = (shard.as_ref(), key.as_ref());
            coding.encode(&clear, block_bytes, place, shard, key, &mut random::fill)
        });
        let Encoded {
            bytes,
            function,
            e2e_blocksize,
        } = encoding.await??;
        let mapping = Mapping {
            exnode_offset: range.start,
            logical_length: range.end - range.start,
            alloc_length: bytes.len() as u64,
            e2e_blocksize,
            function,
            ..Mapping::default()
        };
        let bytes = Bytes::from(bytes);
        let order = self.next_piece;
        let first = if self.options.is_direct {
            self.options.copies
        } else {
            1
        };
        for copy in 0..first {
            self.ready.push_back(Part {
                order: (order, copy),
                mapping: mapping.clone(),
                from: From::Here(bytes.clone()),
                spread,
                range: range.start..range.start + length,
            });
        }
        self.next_piece += self.options.copies as u64;
        Ok(())
    }

    /// How long the part may live, and how large it is.
    fn wanted(&self, part: &Part) -> Wanted {
        Wanted {
            bytes: part.mapping.alloc_length.max(1),
            duration: self.options.duration,
            reliability: self.options.reliability,
        }
    }
}

impl Work for Upload<'_> {
    type Output = Capabilities;

    fn keeps_order(&self) -> bool {
        true
    }

    async fn next_piece(&mut self) -> Result<Option<(Piece, Range<u64>)>> {
        while self.ready.is_empty() {
            if !self.fill().await? && self.ready.is_empty() {
                return Ok(None);
            }
        }
        let Some(part) = self.ready.pop_front() else {
            return Ok(None);
        };
        let id = PieceId(part.order.0 + part.order.1 as u64);
        let piece = Piece {
            id,
            bytes: part.mapping.alloc_length,
            sources: (0..self.options.depots.len()).map(DepotId).collect(),
            spread: Some(part.spread),
        };
        let range = part.range.clone();
        self.parts.insert(id, part);
        Ok(Some((piece, range)))
    }

    fn start(
        &mut self,
        piece: PieceId,
        source: usize,
        _turn: Turn,
        mut progress: Progress,
    ) -> impl Future<Output = Result<Capabilities, TaskError>> + Send + 'static {
        let depots = self.depots.clone();
        let depot = self.options.depots[source].clone();
        let part = self.parts.get(&piece);
        let job = part.map(|part| (self.wanted(part), part.from.clone()));
        async move {
            let Some((wanted, from)) = job else {
                return Err(TaskError::Wrong("a piece that is not there".to_owned()));
            };
            let made = depots.allocate(&depot, wanted).await?;
            let stored = match from {
                From::Here(bytes) => {
                    depots
                        .store(&made.write, bytes, |moved| progress.tell(moved))
                        .await
                }
                From::There(source) => {
                    let copying = depots.copy(&source.read, 0, wanted.bytes, &made.write);
                    mover::silently(copying, progress).await
                }
            };
            match stored {
                Ok(()) => Ok(made),
                Err(error) => {
                    // What is half stored is of no use; if it cannot be removed, it ends by itself.
                    let _ = depots.release(&made.manage).await;
                    Err(error.into())
                }
            }
        }
    }

    fn passes_here(&self, piece: PieceId) -> bool {
        let part = self.parts.get(&piece);
        part.is_some_and(|part| matches!(part.from, From::Here(_)))
    }

    async fn finished(
        &mut self,
        piece: PieceId,
        _depot: DepotId,
        made: Capabilities,
    ) -> Result<Vec<PieceId>> {
        let Some(part) = self.parts.remove(&piece) else {
            return Ok(vec![piece]);
        };
        let mut mapping = part.mapping.clone();
        mapping.read = Some(made.read.to_string());
        mapping.write = Some(made.write.to_string());
        mapping.manage = Some(made.manage.to_string());
        self.stored.push((part.order, mapping));
        if !self.options.is_direct && part.order.1 == 0 {
            let source = Arc::new(made);
            for copy in 1..self.options.copies {
                self.ready.push_front(Part {
                    order: (part.order.0, copy),
                    mapping: part.mapping.clone(),
                    from: From::There(Arc::clone(&source)),
                    spread: part.spread,
                    range: part.range.clone(),
                });
            }
        }
        Ok(vec![piece])
    }

    async fn lost(
        &mut self,
        piece: PieceId,
        _reason: &str,
    ) -> Result<Result<Vec<PieceId>, Range<u64>>> {
        let part = self.parts.remove(&piece);
        Ok(Err(part.map_or(0..0, |part| part.range)))
    }
}
