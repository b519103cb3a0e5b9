//! Where bytes lie: on which disk of a set, and in which set of a node.
//!
//! **First stage.** A set is a sequence of *stripes*. Stripe s has one *cell* of
//! `chunk_bytes` on each member, at the same place of all of them. In a mirror all cells
//! hold the same; in a parity set one of them, another one in each stripe ("left
//! symmetric"), is the exclusive or of the others.
//!
//! **Second stage.** The sets of a node are striped into one space. A *segment* is a
//! sequence of rows; a row has, of each set that shares in it, as many whole stripes as
//! the set's weight says. Weights follow how fast the sets are, the number of rows
//! follows the set that is full first; the next segment has the others.

use std::fmt;

use crossdock_types::BLOCK_BYTES;

use crate::spec::SpecError;

pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// Most stripes of one set in a row of a segment.
const WEIGHT_MAX: u64 = 16;

/// Stripes that a member has at least.
const STRIPES_MIN: u64 = 16;

/// Bytes of a label.
pub(crate) const LABEL_BYTES: usize = 16 << 10;

/// Where the intents of a mirror lie: two slots of a block, written in turn.
pub(crate) const INTENT_OFFSET: u64 = 2 * LABEL_BYTES as u64;

/// Where the partial-parity log begins.
pub(crate) const LOG_OFFSET: u64 = 64 << 10;

/// What a set does with its disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All disks hold different bytes: lost with any of them (RAID 0).
    Stripe,
    /// All disks hold the same bytes (RAID 1).
    Mirror,
    /// One disk's worth of parity, distributed (RAID 5).
    Parity,
}

impl Kind {
    /// Cells of a stripe that hold data of their own.
    pub(crate) const fn data_cells(self, members: usize) -> usize {
        match self {
            Self::Stripe => members,
            Self::Mirror => 1,
            Self::Parity => members - 1,
        }
    }

    /// How many members may be missing.
    pub(crate) const fn redundancy(self, members: usize) -> usize {
        match self {
            Self::Stripe => 0,
            Self::Mirror => members - 1,
            Self::Parity => 1,
        }
    }

    pub(crate) const fn check_members(self, found: usize) -> Result<(), SpecError> {
        let (least, most) = match self {
            Self::Stripe => (1, 32),
            Self::Mirror => (2, 8),
            Self::Parity => (3, 32),
        };
        if found >= least && found <= most {
            return Ok(());
        }
        Err(SpecError::Count {
            kind: self,
            least,
            most,
            found,
        })
    }

    /// The member with the parity of a stripe.
    pub(crate) fn parity_member(self, members: usize, stripe: u64) -> Option<usize> {
        let members_wide = members as u64;
        (self == Self::Parity).then(|| to_usize(members_wide - 1 - stripe % members_wide))
    }

    /// The member with a data cell of a stripe; of a mirror, the first.
    pub(crate) fn member_of(self, members: usize, stripe: u64, cell: usize) -> usize {
        match self.parity_member(members, stripe) {
            Some(parity) => (parity + 1 + cell) % members,
            None => cell,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Stripe => "stripe",
            Self::Mirror => "mirror",
            Self::Parity => "parity",
        })
    }
}

/// Sizes that are fixed when the sets are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a cell: up to 64 blocks.
    pub chunk_bytes: u32,
    /// Records that the partial-parity log of a disk holds.
    pub log_slots: u16,
    /// Stripes whose intent to be written is one, and which are rebuilt in one step.
    pub region_stripes: u16,
}

impl Default for Geometry {
    fn default() -> Self {
        Self {
            chunk_bytes: 64 << 10,
            log_slots: 128,
            region_stripes: 64,
        }
    }
}

impl Geometry {
    pub(crate) fn chunk(&self) -> u64 {
        u64::from(self.chunk_bytes)
    }

    /// Blocks of a cell.
    pub(crate) fn rows(&self) -> usize {
        to_usize(self.chunk() / BLOCK)
    }

    pub(crate) fn slot_bytes(&self) -> u64 {
        BLOCK + self.chunk()
    }

    /// Where the first stripe lies on every disk.
    #[must_use]
    pub fn data_offset(&self) -> u64 {
        let log_bytes = u64::from(self.log_slots) * self.slot_bytes();
        (LOG_OFFSET + log_bytes).next_multiple_of(LOG_OFFSET)
    }

    /// Stripes that a disk of that length has.
    ///
    /// # Errors
    /// It is too short; how long it would have to be.
    pub(crate) fn stripes_of(&self, length_bytes: u64) -> Result<u64, u64> {
        let stripes = length_bytes.saturating_sub(self.data_offset()) / self.chunk();
        match stripes >= STRIPES_MIN {
            true => Ok(stripes),
            false => Err(self.data_offset() + STRIPES_MIN * self.chunk()),
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        let chunk = self.chunk();
        chunk.is_multiple_of(BLOCK)
            && (1..=64).contains(&(chunk / BLOCK))
            && self.log_slots > 0
            && self.region_stripes > 0
    }
}

/// Where a set's bytes lie in the space: at the beginning of each of `rows` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Where the first row begins.
    pub offset_bytes: u64,
    /// Bytes of the set in each row.
    pub bytes: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// How many rows there are.
    pub rows: u64,
}

/// A part of the node's space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) rows: u64,
    pub(crate) shares: Vec<Share>,
}

/// What one set has of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) set: u16,
    /// Stripes in a row.
    pub(crate) weight: u16,
    /// Where its stripes of this segment begin.
    pub(crate) first_stripe: u64,
}

/// A set, as the second stage sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) set: u16,
    pub(crate) first_stripe: u64,
    pub(crate) stripes: u64,
    /// Bytes of data in a stripe.
    pub(crate) stripe_bytes: u64,
    /// How fast it is, in whatever unit all sets have.
    pub(crate) speed: u64,
}

/// Distributes sets over segments.
pub(crate) fn segments(mut extents: Vec<Extent>) -> Vec<Segment> {
    let mut segments = Vec::new();
    loop {
        extents.retain(|extent| extent.stripes > 0);
        if extents.is_empty() {
            return segments;
        }
        // Stripes per second, the slowest set has at least one in a row.
        let rate = |extent: &Extent| (extent.speed.max(1) << 16) / extent.stripe_bytes.max(1);
        let slowest = extents.iter().map(rate).min().unwrap_or(1).max(1);
        let weights: Vec<u64> = extents
            .iter()
            .map(|extent| ((rate(extent) + slowest / 2) / slowest).clamp(1, WEIGHT_MAX))
            .map(|weight| weight.max(1))
            .collect();
        let each = extents.iter().zip(&weights);
        let rows = each.map(|(extent, weight)| extent.stripes / weight).min();
        // What is left of a set may be less than its weight.
        let (rows, weights) = match rows {
            Some(0) | None => (
                extents
                    .iter()
                    .map(|extent| extent.stripes)
                    .min()
                    .unwrap_or(0),
                vec![1; extents.len()],
            ),
            Some(rows) => (rows, weights),
        };
        let mut shares = Vec::new();
        for (extent, weight) in extents.iter_mut().zip(&weights) {
            shares.push(Share {
                set: extent.set,
                weight: u16::try_from(*weight).unwrap_or(1),
                first_stripe: extent.first_stripe,
            });
            extent.first_stripe += rows * weight;
            extent.stripes -= rows * weight;
        }
        segments.push(Segment { rows, shares });
    }
}

/// A length in memory.
pub(crate) fn to_usize(bytes: u64) -> usize {
    // Nothing that is counted here is longer than memory; the machines are of 64 bits.
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each member has the parity of every n-th stripe, and one cell of each.
    #[test]
    fn parity_rotates() {
        for members in 3..7 {
            let mut parities = vec![0; members];
            for stripe in 0..members as u64 {
                let parity = Kind::Parity.parity_member(members, stripe);
                parities[parity.expect("a parity set has one")] += 1;
                let cells = 0..members - 1;
                let of_cells = cells.map(|cell| Kind::Parity.member_of(members, stripe, cell));
                let mut all: Vec<usize> = of_cells.chain(parity).collect();
                all.sort_unstable();
                assert_eq!(all, (0..members).collect::<Vec<_>>());
            }
            assert_eq!(parities, vec![1; members]);
        }
    }

    /// Goal: the space has every stripe of every set once; a set that is twice as fast
    /// has twice as much of the rows that it shares.
    #[test]
    fn segments_have_every_stripe_once() {
        let extent = |set, stripes, speed| Extent {
            set,
            first_stripe: 0,
            stripes,
            stripe_bytes: 65536,
            speed,
        };
        let made = segments(vec![
            extent(0, 100, 10),
            extent(1, 90, 21),
            extent(2, 7, 10),
        ]);
        assert_eq!(made[0].shares[1].weight, 2);
        let mut seen = [[0_u32; 100]; 3];
        for segment in &made {
            for row in 0..segment.rows {
                for share in &segment.shares {
                    let weight = u64::from(share.weight);
                    let first = share.first_stripe + row * weight;
                    for stripe in first..first + weight {
                        seen[usize::from(share.set)][to_usize(stripe)] += 1;
                    }
                }
            }
        }
        for (set, stripes) in [(0, 100), (1, 90), (2, 7)] {
            assert!(seen[set][..stripes].iter().all(|&count| count == 1));
            assert!(seen[set][stripes..].iter().all(|&count| count == 0));
        }
    }
}
