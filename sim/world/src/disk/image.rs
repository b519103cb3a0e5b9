//! The content of a simulated disk: what is stable, what is only visible, and
//! what a crash makes of the difference. Both faces of the disk use it.
//!
//! Sparse: a 4 KiB block that was never written takes no memory. Blocks are
//! shared between the two maps and the list of changes, so a flush copies
//! nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crossdock_types::BLOCK_BYTES;

use crate::random::Random;

/// What a device writes all or nothing.
pub(super) const SECTOR_BYTES: usize = 512;
const SECTORS_PER_BLOCK: usize = BLOCK_BYTES / SECTOR_BYTES;
const ALL_SECTORS: u8 = u8::MAX;
const BLOCK: u64 = BLOCK_BYTES as u64;

type Block = Arc<[u8; BLOCK_BYTES]>;

/// The content of one disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// What reads see.
    visible: Layer,
    /// What a crash cannot take.
    durable: Layer,
    /// In the order in which they landed; together they lead from `durable` to
    /// `visible`.
    unsynced: VecDeque<Change>,
    /// Changes that ever landed: the sequence of the newest.
    landed: u64,
}

#[derive(Clone, Debug, Default)]
struct Layer {
    blocks: BTreeMap<u64, Block>,
    length_bytes: u64,
}

#[derive(Clone, Debug)]
struct Change {
    sequence: u64,
    /// A flush that covered it failed: no later flush makes it stable.
    forsaken: bool,
    kind: ChangeKind,
}

#[derive(Clone, Debug)]
enum ChangeKind {
    Write(Vec<Piece>),
    Length(u64),
}

/// One block of a write: its content afterwards, and which sectors are new.
#[derive(Clone, Debug)]
struct Piece {
    block: u64,
    content: Block,
    sectors: u8,
}

/// How much of one write a crash leaves.
enum Fate {
    Kept,
    Lost,
    Torn,
}

impl Image {
    pub(super) fn new(length_bytes: u64) -> Self {
        let layer = Layer {
            blocks: BTreeMap::new(),
            length_bytes,
        };
        Self {
            visible: layer.clone(),
            durable: layer,
            unsynced: VecDeque::new(),
            landed: 0,
        }
    }

    pub(super) const fn length_bytes(&self) -> u64 {
        self.visible.length_bytes
    }

    /// The sequence of the newest change: what a flush begun now will cover.
    pub(super) const fn landed(&self) -> u64 {
        self.landed
    }

    pub(super) fn read(&self, offset_bytes: u64, target: &mut [u8]) {
        for_each_block(
            offset_bytes,
            target.len(),
            |block, within, range| match self.visible.blocks.get(&block) {
                Some(content) => target[range].copy_from_slice(&content[within]),
                None => target[range].fill(0),
            },
        );
    }

    /// Lands a write; it is visible from now on and can be lost by a crash.
    pub(super) fn write(&mut self, offset_bytes: u64, source: &[u8]) {
        let mut pieces = Vec::with_capacity(source.len() / BLOCK_BYTES + 1);
        for_each_block(offset_bytes, source.len(), |block, within, range| {
            let content = self.visible.blocks.entry(block).or_insert_with(zeros);
            Arc::make_mut(content)[within.clone()].copy_from_slice(&source[range]);
            pieces.push(Piece {
                block,
                content: Arc::clone(content),
                sectors: sectors_of(&within),
            });
        });
        self.land(ChangeKind::Write(pieces));
    }

    /// Lands part of a write, each sector by a coin: what a failed one leaves.
    pub(super) fn write_torn(&mut self, offset_bytes: u64, source: &[u8], random: &mut Random) {
        for (index, sector) in source.chunks(SECTOR_BYTES).enumerate() {
            if random.coin() {
                self.write(offset_bytes + (index * SECTOR_BYTES) as u64, sector);
            }
        }
    }

    pub(super) fn set_length(&mut self, length_bytes: u64) {
        self.visible.set_length(length_bytes);
        self.land(ChangeKind::Length(length_bytes));
    }

    fn land(&mut self, kind: ChangeKind) {
        self.landed += 1;
        self.unsynced.push_back(Change {
            sequence: self.landed,
            forsaken: false,
            kind,
        });
    }

    /// Makes everything up to `sequence` stable, but what an earlier failed
    /// flush had forsaken.
    pub(super) fn sync(&mut self, sequence: u64) {
        while let Some(change) = self
            .unsynced
            .pop_front_if(|change| change.sequence <= sequence)
        {
            if !change.forsaken {
                self.durable.apply(change.kind);
            }
        }
    }

    /// Makes what landed after `sequence` stable, and nothing before it; but
    /// what lay beneath it will not come back over it.
    pub(super) fn sync_after(&mut self, sequence: u64) {
        let at = self.first_after(sequence);
        for newer in self.unsynced.split_off(at) {
            if let ChangeKind::Write(pieces) = &newer.kind {
                for older in &mut self.unsynced {
                    older.kind.give_way_to(pieces);
                }
                // With the bytes, the device has what is needed to find them.
                let end = pieces.iter().map(|piece| (piece.block + 1) * BLOCK).max();
                let length_bytes = self.durable.length_bytes.max(end.unwrap_or(0));
                self.durable.set_length(length_bytes);
            }
            self.durable.apply(newer.kind);
        }
    }

    /// The same failed: some of it will never be stable.
    pub(super) fn forsake_after(&mut self, sequence: u64, random: &mut Random) {
        let at = self.first_after(sequence);
        for change in self.unsynced.range_mut(at..) {
            change.forsaken |= random.coin();
        }
    }

    fn first_after(&self, sequence: u64) -> usize {
        self.unsynced
            .partition_point(|change| change.sequence <= sequence)
    }

    /// A flush failed: some of what it covered will never be stable, though
    /// reads still show it. Not so a length: a file system that cannot keep that
    /// does nothing more at all.
    pub(super) fn forsake(&mut self, sequence: u64, random: &mut Random) {
        for change in &mut self.unsynced {
            let is_write = matches!(change.kind, ChangeKind::Write(_));
            if change.sequence <= sequence && is_write && random.coin() {
                change.forsaken = true;
            }
        }
    }

    /// Loses power: each change that was not synced is kept, lost, or torn
    /// between sectors.
    pub(super) fn crash(&mut self, random: &mut Random) {
        for change in std::mem::take(&mut self.unsynced) {
            match (change.kind, Fate::draw(random)) {
                (_, Fate::Lost) | (ChangeKind::Length(_), Fate::Torn) => {}
                (kind, Fate::Kept) => self.durable.apply(kind),
                (ChangeKind::Write(pieces), Fate::Torn) => {
                    let torn = pieces.into_iter().map(|piece| piece.torn(random));
                    self.durable.apply(ChangeKind::Write(torn.collect()));
                }
            }
        }
        self.visible = self.durable.clone();
    }

    /// Flips one bit of a stable block; says which block, if there is one.
    pub(super) fn flip_bit(&mut self, random: &mut Random) -> Option<u64> {
        let block = self.any_durable_block(random)?;
        let stored = self.durable.blocks.get_mut(&block)?;
        let shown = self.visible.blocks.get_mut(&block);
        let also_shown = shown.filter(|shown| Arc::ptr_eq(shown, stored));
        let content = Arc::make_mut(stored);
        content[random.index(BLOCK_BYTES)] ^= 1 << random.below(8);
        if let Some(shown) = also_shown {
            *shown = Arc::clone(stored);
        }
        Some(block)
    }

    /// Puts other bytes into a block.
    pub(super) fn scribble(&mut self, block: u64, random: &mut Random) {
        let mut content = [0; BLOCK_BYTES];
        random.fill(&mut content);
        let content = Arc::new(content);
        for layer in [&mut self.durable, &mut self.visible] {
            layer.blocks.insert(block, Arc::clone(&content));
        }
    }

    /// A block that holds something stable.
    pub(super) fn any_durable_block(&self, random: &mut Random) -> Option<u64> {
        let blocks = &self.durable.blocks;
        let (&last, _) = blocks.last_key_value()?;
        let from = random.between(0, last);
        blocks.range(from..).next().map(|(&block, _)| block)
    }
}

impl Layer {
    fn apply(&mut self, kind: ChangeKind) {
        match kind {
            ChangeKind::Length(length_bytes) => self.set_length(length_bytes),
            ChangeKind::Write(pieces) => {
                for piece in pieces {
                    // The growth that made room for it was lost.
                    if piece.block * BLOCK < self.length_bytes {
                        self.apply_piece(piece);
                    }
                }
            }
        }
    }

    fn apply_piece(&mut self, piece: Piece) {
        if piece.sectors == ALL_SECTORS {
            self.blocks.insert(piece.block, piece.content);
            return;
        }
        let target = self.blocks.entry(piece.block).or_insert_with(zeros);
        let target = Arc::make_mut(target);
        for sector in 0..SECTORS_PER_BLOCK {
            if piece.sectors & (1 << sector) != 0 {
                let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                target[range.clone()].copy_from_slice(&piece.content[range]);
            }
        }
    }

    fn set_length(&mut self, length_bytes: u64) {
        if length_bytes < self.length_bytes {
            drop(self.blocks.split_off(&length_bytes.div_ceil(BLOCK)));
            let cut = usize::try_from(length_bytes % BLOCK).expect("below a block");
            if cut > 0
                && let Some(last) = self.blocks.get_mut(&(length_bytes / BLOCK))
            {
                Arc::make_mut(last)[cut..].fill(0);
            }
        }
        self.length_bytes = length_bytes;
    }
}

impl ChangeKind {
    /// Drops the sectors that `newer` has.
    fn give_way_to(&mut self, newer: &[Piece]) {
        let Self::Write(pieces) = self else { return };
        for piece in pieces {
            for other in newer.iter().filter(|other| other.block == piece.block) {
                piece.sectors &= !other.sectors;
            }
        }
    }
}

impl Piece {
    fn torn(mut self, random: &mut Random) -> Self {
        for sector in 0..SECTORS_PER_BLOCK {
            if random.coin() {
                self.sectors &= !(1 << sector);
            }
        }
        self
    }
}

impl Fate {
    fn draw(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Self::Kept,
            1 => Self::Lost,
            _ => Self::Torn,
        }
    }
}

fn zeros() -> Block {
    Arc::new([0; BLOCK_BYTES])
}

/// The sectors that `within` (a range of a block) touches, as bits.
fn sectors_of(within: &std::ops::Range<usize>) -> u8 {
    (0..SECTORS_PER_BLOCK)
        .filter(|sector| {
            within.start < (sector + 1) * SECTOR_BYTES && within.end > sector * SECTOR_BYTES
        })
        .fold(0, |bits, sector| bits | 1 << sector)
}

/// Cuts a range of the disk at block edges and calls `visit` with the block,
/// the range within it, and the range within the caller's bytes.
fn for_each_block(
    offset_bytes: u64,
    length: usize,
    mut visit: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < length {
        let at = offset_bytes + done as u64;
        let start = usize::try_from(at % BLOCK).expect("below a block");
        let step = (BLOCK_BYTES - start).min(length - done);
        visit(at / BLOCK, start..start + step, done..done + step);
        done += step;
    }
}
