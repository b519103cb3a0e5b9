//! Augment: "adds more replica(s) to it (or to parts of it), and returns an updated exNode"
//! (Network Storage Stack 2.3). Depots copy among themselves; the client moves nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use crossdock_exnode::{Coding, ExNode, Mapping, clear_bytes};
use crossdock_forecast::{DepotId, Piece, PieceId};
use crossdock_ibp::{Capabilities, Capability, Reliability};

use crate::depot::{Turn, Wanted};
use crate::knowledge::Knowledge;
use crate::mover::{self, Progress, TaskError, Tuning, Work};
use crate::observer::Observer;
use crate::{Address, Depots};

/// What and where to.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to, the best first.
    pub depots: Vec<Address>,
    /// Copies to add of each part.
    pub copies: usize,
    /// Bytes of the file; all of it unless said.
    pub range: Option<Range<u64>>,
    /// For how long.
    pub duration: Duration,
    /// Whether depots may drop it early.
    pub reliability: Reliability,
    /// How to move them.
    pub tuning: Tuning,
}

/// Copies parts of `exnode` to more depots; the new mappings.
///
/// Mappings that have the same bytes of the file in the same coding are sources of each
/// other's copies, and copies go to depots apart from them as far as there are others.
///
/// # Errors
/// [`Lost`](crate::Lost): parts that could not be copied; what was copied then ends with its
/// time.
pub async fn augment(
    depots: &Depots,
    exnode: &ExNode,
    options: &Options,
    knowledge: &mut Knowledge,
    observer: &mut Observer,
) -> Result<Vec<Mapping>> {
    ensure!(!options.depots.is_empty(), "no depot to copy to");
    let range = options.range.clone().unwrap_or_else(|| 0..exnode.size());
    let parts = parts(exnode, &range, options)?;
    let bytes: u64 = parts.iter().map(|part| part.bytes()).sum();
    observer.expect(bytes);
    let mut work = Copy {
        depots: depots.clone(),
        options,
        parts,
        next: 0,
        made: BTreeMap::new(),
    };
    let moved = mover::run(
        &mut work,
        &options.depots,
        &options.tuning,
        knowledge,
        observer,
    );
    moved.await?;
    Ok(work.made.into_values().collect())
}

/// One copy to be made.
struct Part {
    /// What the exNode will say of it, but for capabilities.
    mapping: Mapping,
    /// Where it may be copied from, and from which byte on.
    sources: Vec<(Capability, u64)>,
    /// Number of the depots that it may go to.
    targets: Vec<usize>,
    spread: u64,
}

impl Part {
    fn bytes(&self) -> u64 {
        self.mapping.alloc_length
    }
}

/// What is copied together: mappings with the same bytes and coding.
fn parts(exnode: &ExNode, range: &Range<u64>, options: &Options) -> Result<Vec<Part>> {
    let mut alike: BTreeMap<(u64, u64, u64, String), Vec<&Mapping>> = BTreeMap::new();
    for mapping in &exnode.mappings {
        let covered = mapping.range();
        let overlaps = covered.start < range.end && range.start < covered.end;
        // What restores others counts for the whole file only.
        let restores = mapping.logical_length == 0 && clear_bytes(mapping) > 0;
        let is_whole = options.range.is_none();
        if mapping.read.is_some() && (overlaps || restores && is_whole) {
            let coding = format!("{:?}", mapping.function);
            let key = (
                mapping.exnode_offset,
                mapping.logical_length,
                mapping.alloc_length,
                coding,
            );
            alike.entry(key).or_default().push(mapping);
        }
    }
    let mut parts = Vec::new();
    for (spread, mappings) in alike.into_values().enumerate() {
        let first = mappings[0];
        let coding = Coding::of(first)?;
        let clear = match first.logical_length {
            0 => 0..clear_bytes(first),
            _ => {
                let start = range.start.max(first.exnode_offset) - first.exnode_offset;
                start..range.end.min(first.range().end) - first.exnode_offset
            }
        };
        let covering = coding.covering(first, clear)?;
        let length = covering.clear.end - covering.clear.start;
        let mut mapping = first.clone();
        if mapping.logical_length > 0 {
            mapping.exnode_offset += covering.clear.start;
            mapping.logical_length = length;
        }
        let skipped = covering.stored.start - first.alloc_offset;
        mapping.alloc_length = covering.stored.end - covering.stored.start;
        mapping.alloc_offset = 0;
        (mapping.read, mapping.write, mapping.manage) = (None, None, None);
        let mut sources = Vec::new();
        for mapping in &mappings {
            if let Some(Ok(read)) = mapping.read.as_deref().map(str::parse::<Capability>) {
                sources.push((read, mapping.alloc_offset + skipped));
            }
        }
        let has = |depot: &Address| {
            sources
                .iter()
                .any(|(read, _)| Address::from(read) == *depot)
        };
        let all = 0..options.depots.len();
        let apart: Vec<usize> = all.filter(|&it| !has(&options.depots[it])).collect();
        for _ in 0..options.copies {
            parts.push(Part {
                mapping: mapping.clone(),
                sources: sources.clone(),
                targets: apart.clone(),
                spread: spread as u64,
            });
        }
    }
    Ok(parts)
}

struct Copy<'a> {
    depots: Depots,
    options: &'a Options,
    parts: Vec<Part>,
    next: usize,
    made: BTreeMap<usize, Mapping>,
}

impl Copy<'_> {
    fn part(&self, piece: PieceId) -> Option<(usize, &Part)> {
        let number = usize::try_from(piece.0).ok()?;
        Some((number, self.parts.get(number)?))
    }
}

impl Work for Copy<'_> {
    type Output = Capabilities;

    fn keeps_order(&self) -> bool {
        false
    }

    async fn next_piece(&mut self) -> Result<Option<(Piece, Range<u64>)>> {
        let Some(part) = self.parts.get(self.next) else {
            return Ok(None);
        };
        let piece = Piece {
            id: PieceId(self.next as u64),
            bytes: 0, // Nothing of it is in this machine's memory.
            sources: part.targets.iter().map(|&depot| DepotId(depot)).collect(),
            spread: Some(part.spread),
        };
        self.next += 1;
        let start = part.mapping.exnode_offset;
        Ok(Some((piece, start..start + part.bytes())))
    }

    fn start(
        &mut self,
        piece: PieceId,
        source: usize,
        _turn: Turn,
        progress: Progress,
    ) -> impl Future<Output = Result<Capabilities, TaskError>> + Send + 'static {
        let depots = self.depots.clone();
        let job = self.part(piece).map(|(_, part)| {
            let wanted = Wanted {
                bytes: part.bytes().max(1),
                duration: self.options.duration,
                reliability: self.options.reliability,
            };
            let target = self.options.depots[part.targets[source]].clone();
            (target, wanted, part.sources.clone(), part.bytes())
        });
        async move {
            let Some((target, wanted, sources, bytes)) = job else {
                return Err(TaskError::Wrong("a piece that is not there".to_owned()));
            };
            let mut last = TaskError::Wrong("nothing has it".to_owned());
            for (read, offset) in sources {
                // A new one for each attempt: what has failed may have left something.
                let made = depots.allocate(&target, wanted).await?;
                let copying = depots.copy(&read, offset, bytes, &made.write);
                match mover::silently(copying, progress.clone()).await {
                    Ok(()) => return Ok(made),
                    Err(error) => last = error.into(),
                }
                let _ = depots.release(&made.manage).await;
            }
            Err(last)
        }
    }

    fn passes_here(&self, piece: PieceId) -> bool {
        let _ = piece; // Depots copy among themselves.
        false
    }

    async fn finished(
        &mut self,
        piece: PieceId,
        _depot: DepotId,
        made: Capabilities,
    ) -> Result<Vec<PieceId>> {
        if let Some((number, part)) = self.part(piece) {
            let mut mapping = part.mapping.clone();
            mapping.read = Some(made.read.to_string());
            mapping.write = Some(made.write.to_string());
            mapping.manage = Some(made.manage.to_string());
            self.made.insert(number, mapping);
        }
        Ok(vec![piece])
    }

    async fn lost(
        &mut self,
        piece: PieceId,
        _reason: &str,
    ) -> Result<Result<Vec<PieceId>, Range<u64>>> {
        let range = self.part(piece).map(|(_, part)| part.mapping.range());
        Ok(Err(range.unwrap_or_default()))
    }
}
