//! Download: "it downloads a specified region of the file into local storage" (Network Storage
//! Stack 2.3).
//!
//! The range is cut into extents at every segment boundary, those into pieces, the last ones
//! smaller so that all threads finish together. A piece comes from the source that is expected
//! to be fastest; from the next one if that fails, is silent or gives damaged bytes. What no
//! mapping gives is restored from the rest of its group, if it has one.

mod output;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use crossdock_exnode::{Coding, ExNode, ExNodeId, Extents, FileKey, Mapping, Reader};
use crossdock_forecast::{DepotId, Piece, PieceId};
use crossdock_ibp::Capability;

use crate::depot::{Turn, Turns, reads_ahead};
use crate::knowledge::Knowledge;
use crate::mover::{self, Progress, TaskError, Tuning, Work};
use crate::observer::Observer;
use crate::restore;
use crate::{Address, Depots};

pub use output::Output;

/// The smallest pieces, in bytes: of smaller ones the way there and back is most.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// The largest pieces, in bytes.
const PIECE_BYTES_MAX: u64 = 2 << 20;

/// The largest of the first pieces, one for each thread, in bytes: what connections carry is to
/// be known soon.
const FIRST_BYTES_MAX: u64 = 256 << 10;

/// Pieces of each thread that are still to come are at least so many.
const PIECES_PER_THREAD: u64 = 4;

/// What and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Bytes of the file; all of it unless said.
    pub range: Option<Range<u64>>,
    /// The key of an encrypted file.
    pub key: Option<FileKey>,
    /// Pass over wrong MD5s of historic tools.
    pub skips_md5: bool,
    /// Largest pieces, in bytes; as is best unless said.
    pub piece_bytes: Option<u64>,
    /// How to move them.
    pub tuning: Tuning,
}

/// Downloads a range of a file, or all of it.
///
/// # Errors
/// [`Lost`](crate::Lost): parts that no source has, after all others were fetched; or
/// if the output cannot be written.
pub async fn download(
    depots: &Depots,
    exnode: &ExNode,
    output: Output,
    options: &Options,
    observer: &mut Observer,
) -> Result<()> {
    let mut knowledge = Knowledge::default();
    download_knowing(depots, exnode, output, options, &mut knowledge, observer).await
}

/// As [`download`], with what is known of depots.
///
/// # Errors
/// As [`download`].
pub async fn download_knowing(
    depots: &Depots,
    exnode: &ExNode,
    mut output: Output,
    options: &Options,
    knowledge: &mut Knowledge,
    observer: &mut Observer,
) -> Result<()> {
    let size = exnode.size();
    let range = options.range.clone().unwrap_or(0..size);
    ensure!(
        range.start <= range.end && range.end <= size,
        "the file has {size} bytes; bytes {} to {} are not all in it",
        range.start,
        range.end
    );
    output.begin(exnode, &range)?;
    let sources = Arc::new(Sources::new(exnode, depots, options)?);
    observer.expect(range.end - range.start);
    let missing = missing(&range, &output.present);
    let left: u64 = missing.iter().map(|range| range.end - range.start).sum();
    observer.moved(range.end - range.start - left);
    let ranks = |knowledge: &Knowledge| -> Vec<Option<u64>> {
        let usable = sources.parts.iter().map(|part| {
            let part = part.as_ref().ok()?;
            let rate = knowledge.bandwidth(&sources.depots[part.depot.0]);
            // Those who are not known come behind those who are.
            Some(rate.map_or(u64::MAX / 2, slowness))
        });
        usable.collect()
    };
    let ranks = ranks(knowledge);
    let mut extents = Vec::new();
    for range in missing {
        let cut = Extents::new(exnode, range, |mapping| ranks[mapping]);
        extents.push(cut);
    }
    let addresses = sources.depots.clone();
    let mut work = Download {
        sources,
        extents: extents.into_iter(),
        extent: None,
        rest: None,
        left,
        next_piece: 0,
        pieces: BTreeMap::new(),
        piece_bytes_max: options.piece_bytes.unwrap_or(PIECE_BYTES_MAX).max(1),
        threads: options.tuning.threads.max(1) as u64,
        output: &mut output,
    };
    mover::run(&mut work, &addresses, &options.tuning, knowledge, observer).await?;
    output.end(range.end - range.start)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an order, and positive"
)]
fn slowness(rate: f64) -> u64 {
    (1e15 / rate.max(1.0)) as u64
}

/// The parts of `range` that are not `present`.
fn missing(range: &Range<u64>, present: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut missing = Vec::new();
    let mut place = range.start;
    for there in present {
        let start = there.start.clamp(place, range.end);
        if place < start {
            missing.push(place..start);
        }
        place = place.max(there.end.min(range.end));
    }
    if place < range.end {
        missing.push(place..range.end);
    }
    missing
}

/// The mappings of an exNode as sources.
pub(crate) struct Sources {
    pub(crate) id: ExNodeId,
    pub(crate) mappings: Vec<Mapping>,
    /// Of each, how to load it; or why it cannot be.
    pub(crate) parts: Vec<Result<Part, String>>,
    pub(crate) depots: Vec<Address>,
    depots_client: Depots,
    turns: Turns,
    key: Option<FileKey>,
    skips_md5: bool,
}

/// How to load a mapping.
pub(crate) struct Part {
    pub(crate) depot: DepotId,
    read: Capability,
    pub(crate) coding: Coding,
}

impl Sources {
    fn new(exnode: &ExNode, client: &Depots, options: &Options) -> Result<Self> {
        let id = exnode.id().unwrap_or(ExNodeId([0; 16]));
        let mut depots: Vec<Address> = Vec::new();
        let mut numbers: BTreeMap<Address, usize> = BTreeMap::new();
        let mut part = |mapping: &Mapping| -> Result<Part, String> {
            let read = mapping.read.as_deref().ok_or("it has no read capability")?;
            let read: Capability = read.parse().map_err(|error| format!("{error}"))?;
            let address = Address::from(&read);
            let depot = *numbers.entry(address.clone()).or_insert_with(|| {
                depots.push(address);
                depots.len() - 1
            });
            let coding = Coding::of(mapping).map_err(|error| error.to_string())?;
            // Before all of it is loaded for nothing.
            let openable = coding.check_key(id, options.key.as_ref());
            openable.map_err(|error| error.to_string())?;
            Ok(Part {
                depot: DepotId(depot),
                read,
                coding,
            })
        };
        let parts: Vec<_> = exnode.mappings.iter().map(&mut part).collect();
        if !parts.is_empty() && parts.iter().all(Result::is_err) {
            let reason = parts.into_iter().find_map(Result::err).unwrap_or_default();
            bail!("no mapping can be read: {reason}");
        }
        Ok(Self {
            id,
            mappings: exnode.mappings.clone(),
            parts,
            depots,
            depots_client: client.clone(),
            turns: Turns::default(),
            key: options.key.clone(),
            skips_md5: options.skips_md5,
        })
    }

    /// Loads `wanted` bytes of what a mapping holds, relative to its beginning.
    pub(crate) async fn load(
        &self,
        number: usize,
        wanted: Range<u64>,
        turn: Option<Turn>,
        moved: impl FnMut(u64),
    ) -> Result<Vec<u8>, TaskError> {
        let wrong = |error: String| TaskError::Wrong(error);
        let mapping = &self.mappings[number];
        let part = self.parts[number]
            .as_ref()
            .map_err(|error| wrong(error.clone()))?;
        let covering = part.coding.covering(mapping, wanted.clone());
        let covering = covering.map_err(|error| wrong(error.to_string()))?;
        let bytes = covering.stored.end - covering.stored.start;
        let (client, start) = (&self.depots_client, covering.stored.start);
        let stored = match turn.filter(|_| reads_ahead(&part.read.key)) {
            Some(turn) => {
                let turn = (&self.turns, turn);
                client
                    .load_in_turn(turn, &part.read, start, bytes, moved)
                    .await?
            }
            None => client.load(&part.read, start, bytes, moved).await?,
        };
        let reader = Reader {
            key: self.key.as_ref(),
            skips_md5: self.skips_md5,
        };
        // A piece is a few MiB at most: that is decoded in milliseconds.
        let decoded = part
            .coding
            .decode(mapping, &covering, stored, self.id, &reader);
        let mut clear = decoded.map_err(|error| wrong(error.to_string()))?;
        let before = usize::try_from(wanted.start - covering.clear.start);
        let length = usize::try_from(wanted.end - wanted.start);
        let (Ok(before), Ok(length)) = (before, length) else {
            return Err(wrong("too many bytes for this machine".to_owned()));
        };
        if clear.len() < before + length {
            return Err(wrong("a mapping has fewer bytes than it says".to_owned()));
        }
        clear.drain(..before);
        clear.truncate(length);
        Ok(clear)
    }

    /// Loads bytes of the file that lie in one mapping.
    async fn load_range(
        &self,
        number: usize,
        range: &Range<u64>,
        turn: Option<Turn>,
        moved: impl FnMut(u64),
    ) -> Result<Vec<u8>, TaskError> {
        let start = self.mappings[number].exnode_offset;
        let wanted = range.start - start..range.end - start;
        self.load(number, wanted, turn, moved).await
    }

    /// Bytes of the file, from any of its sources, one after the other.
    pub(crate) async fn load_any(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut place = range.start;
        while place < range.end {
            let has = |number: &usize| {
                let covered = self.mappings[*number].range();
                covered.contains(&place) && self.parts[*number].is_ok()
            };
            let mut found = None;
            for number in (0..self.mappings.len()).filter(has) {
                let end = range.end.min(self.mappings[number].range().end);
                if let Ok(more) = self.load_range(number, &(place..end), None, |_| {}).await {
                    found = Some((end, more));
                    break;
                }
            }
            let (end, more) = found?;
            bytes.extend(more);
            place = end;
        }
        Some(bytes)
    }
}

struct Download<'a> {
    sources: Arc<Sources>,
    extents: std::vec::IntoIter<Extents>,
    extent: Option<Extents>,
    /// What is left of the extent at hand, and who has it.
    rest: Option<(Range<u64>, Vec<usize>)>,
    /// Bytes that no piece has yet.
    left: u64,
    next_piece: u64,
    pieces: BTreeMap<PieceId, (Range<u64>, Vec<usize>)>,
    piece_bytes_max: u64,
    threads: u64,
    output: &'a mut Output,
}

impl Download<'_> {
    /// How much of the extent at hand is the next piece: less towards the end, and whole blocks
    /// of its first source.
    fn piece_bytes(&self, rest: &Range<u64>, sources: &[usize]) -> u64 {
        let share = self.left / (self.threads * PIECES_PER_THREAD);
        let most = match self.next_piece < self.threads {
            true => self.piece_bytes_max.min(FIRST_BYTES_MAX),
            false => self.piece_bytes_max,
        };
        let wanted = share.clamp(PIECE_BYTES_MIN.min(most), most);
        let whole = rest.end - rest.start;
        let Some(&first) = sources.first() else {
            return whole;
        };
        let mapping = &self.sources.mappings[first];
        let Ok(part) = &self.sources.parts[first] else {
            return wanted.min(whole);
        };
        let end = match part.coding.steps.is_empty() {
            true => rest.start + wanted,
            false => {
                let block = part.coding.block_bytes(mapping);
                let start = mapping.exnode_offset;
                let blocks = (rest.start + wanted - start).div_ceil(block).max(1);
                start.saturating_add(blocks.saturating_mul(block))
            }
        };
        (end.saturating_sub(rest.start)).clamp(1, whole)
    }
}

impl Work for Download<'_> {
    type Output = Vec<u8>;

    fn keeps_order(&self) -> bool {
        self.output.is_stream()
    }

    async fn next_piece(&mut self) -> Result<Option<(Piece, Range<u64>)>> {
        while self.rest.is_none() {
            match self.extent.as_mut().and_then(Iterator::next) {
                Some(extent) => self.rest = Some((extent.range, extent.sources)),
                None => match self.extents.next() {
                    Some(extents) => self.extent = Some(extents),
                    None => return Ok(None),
                },
            }
        }
        let Some((rest, sources)) = self.rest.take() else {
            return Ok(None);
        };
        let bytes = self.piece_bytes(&rest, &sources);
        let range = rest.start..rest.start + bytes;
        if range.end < rest.end {
            self.rest = Some((range.end..rest.end, sources.clone()));
        }
        self.left -= bytes;
        let id = PieceId(self.next_piece);
        self.next_piece += 1;
        let depot = |&number: &usize| self.sources.parts[number].as_ref().ok().map(|it| it.depot);
        let piece = Piece {
            id,
            bytes,
            sources: sources.iter().filter_map(depot).collect(),
            spread: None,
        };
        self.pieces.insert(id, (range.clone(), sources));
        Ok(Some((piece, range)))
    }

    fn reads_ahead(&self, depot: DepotId) -> bool {
        let parts = self.sources.parts.iter().filter_map(|it| it.as_ref().ok());
        let mut of_depot = parts.filter(|part| part.depot == depot);
        of_depot.all(|part| reads_ahead(&part.read.key))
    }

    fn start(
        &mut self,
        piece: PieceId,
        source: usize,
        turn: Turn,
        mut progress: Progress,
    ) -> impl Future<Output = Result<Vec<u8>, TaskError>> + Send + 'static {
        let sources = Arc::clone(&self.sources);
        let wanted = self.pieces.get(&piece);
        let wanted = wanted.map(|(range, numbers)| (range.clone(), numbers[source]));
        async move {
            let Some((range, number)) = wanted else {
                return Err(TaskError::Wrong("a piece that is not there".to_owned()));
            };
            let moved = |bytes| progress.tell(bytes);
            sources.load_range(number, &range, Some(turn), moved).await
        }
    }

    fn passes_here(&self, piece: PieceId) -> bool {
        self.pieces.contains_key(&piece)
    }

    async fn finished(
        &mut self,
        piece: PieceId,
        _depot: DepotId,
        bytes: Vec<u8>,
    ) -> Result<Vec<PieceId>> {
        let Some((range, _)) = self.pieces.remove(&piece) else {
            return Ok(vec![piece]);
        };
        self.output.write(piece, range.start, bytes).await
    }

    async fn lost(
        &mut self,
        piece: PieceId,
        _reason: &str,
    ) -> Result<Result<Vec<PieceId>, Range<u64>>> {
        let Some((range, _)) = self.pieces.remove(&piece) else {
            return Ok(Ok(vec![piece]));
        };
        match restore::restore(&self.sources, range.clone()).await {
            Some(bytes) => Ok(Ok(self.output.write(piece, range.start, bytes).await?)),
            None => Ok(Err(range)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what an earlier attempt has left is not fetched again, and nothing else is left
    /// out.
    #[test]
    fn what_is_missing_is_the_rest() {
        assert_eq!(missing(&(10..20), &[]), vec![10..20; 1]);
        assert_eq!(
            missing(&(10..20), &[0..12, 14..16, 18..30]),
            [12..14, 16..18]
        );
        assert_eq!(missing(&(10..20), &[0..30; 1]), []);
        assert_eq!(missing(&(10..20), &[0..5, 25..30]), vec![10..20; 1]);
    }
}
