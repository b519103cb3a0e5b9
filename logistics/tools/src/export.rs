//! Export: bytes that depots give already – those of files of a volume
//! (docs/decisions/0046) – become an exNode. What no depot gives, the file's first bytes and its
//! holes, is stored at depots.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use crossdock_exnode::{ExNode, Mapping};
use crossdock_ibp::{Capability, Reliability};
use crossdock_limits::EXNODE_MAPPINGS_MAX;

use crate::depot::Wanted;
use crate::{Address, Depots, random};

/// Zeros that are stored for all holes of a file, in bytes; larger holes have them several times.
const ZEROS_BYTES_MAX: u64 = 4 << 20;

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins, in bytes.
    pub offset_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
    /// Read capabilities of exactly these; none where they are zeros.
    pub reads: Vec<String>,
}

/// How it is exported.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name for downloads.
    pub name: String,
    /// Where what no depot gives is stored, the best first.
    pub depots: Vec<Address>,
    /// For how long.
    pub duration: Duration,
    /// At so many of them, if there are so many.
    pub copies: usize,
}

/// An exNode of `head`, the file's first bytes, and `parts`, all that is behind them.
///
/// # Errors
/// If parts are too many, a capability is none, or no depot takes what has to be stored.
pub async fn export(
    depots: &Depots,
    head: Bytes,
    parts: &[Part],
    options: &Options,
) -> Result<ExNode> {
    let mut exnode = ExNode::new(random::exnode_id()?, &options.name);
    if !head.is_empty() {
        let length = head.len() as u64;
        for read in store(depots, head, options).await? {
            exnode.mappings.push(mapping(0, length, read.to_string()));
        }
    }
    let holes = parts.iter().filter(|part| part.reads.is_empty());
    let longest = holes.map(|part| part.length_bytes).max();
    let zeros_bytes = longest.unwrap_or(0).min(ZEROS_BYTES_MAX);
    let zeros = match usize::try_from(zeros_bytes)? {
        0 => Vec::new(),
        bytes => store(depots, vec![0; bytes].into(), options).await?,
    };
    for part in parts {
        for read in &part.reads {
            let capability: Result<Capability, _> = read.parse();
            capability.with_context(|| format!("{read:?} is no capability"))?;
            let mapped = mapping(part.offset_bytes, part.length_bytes, read.clone());
            exnode.mappings.push(mapped);
        }
        if part.reads.is_empty() {
            fill(&mut exnode, part, zeros_bytes, &zeros);
        }
        ensure!(
            exnode.mappings.len() <= EXNODE_MAPPINGS_MAX,
            "the file would have more than {EXNODE_MAPPINGS_MAX} mappings"
        );
    }
    Ok(exnode)
}

fn mapping(offset_bytes: u64, length_bytes: u64, read: String) -> Mapping {
    Mapping {
        exnode_offset: offset_bytes,
        logical_length: length_bytes,
        alloc_offset: 0,
        alloc_length: length_bytes,
        read: Some(read),
        ..Mapping::default()
    }
}

/// A hole, by the same zeros as often as it takes.
fn fill(exnode: &mut ExNode, hole: &Part, zeros_bytes: u64, zeros: &[Capability]) {
    let mut done = 0;
    while done < hole.length_bytes && exnode.mappings.len() <= EXNODE_MAPPINGS_MAX {
        let length = zeros_bytes.min(hole.length_bytes - done);
        for read in zeros {
            let mapped = mapping(hole.offset_bytes + done, length, read.to_string());
            exnode.mappings.push(mapped);
        }
        done += length;
    }
}

/// Stores bytes at as many depots as there are to be copies; at one, or it is an error.
async fn store(depots: &Depots, bytes: Bytes, options: &Options) -> Result<Vec<Capability>> {
    let wanted = Wanted {
        bytes: bytes.len() as u64,
        duration: options.duration,
        reliability: Reliability::Stable,
    };
    let (mut stored, mut refused) = (Vec::new(), None);
    for depot in &options.depots {
        if stored.len() >= options.copies.max(1) {
            break;
        }
        let made = async {
            let made = depots.allocate(depot, wanted).await?;
            depots.store(&made.write, bytes.clone(), |_| {}).await?;
            Ok::<_, crate::DepotError>(made.read)
        };
        match made.await {
            Ok(read) => stored.push(read),
            Err(error) => refused = Some(error),
        }
    }
    match (stored.is_empty(), refused) {
        (false, _) => Ok(stored),
        (true, Some(error)) => Err(error).context("no depot takes the file's first bytes or zeros"),
        (true, None) => anyhow::bail!(
            "no depot is known for what no node gives: the file's first bytes, and holes; name one with --depot"
        ),
    }
}
