//! The file, cut into extents at every segment boundary of all mappings (Network Storage
//! Stack 2.2, Download): within an extent, each source has all of it or nothing.

use std::collections::BTreeSet;
use std::ops::Range;

use crossdock_limits::EXNODE_SOURCES_MAX;

use crate::model::ExNode;

/// A piece of the file within which no mapping begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of the file.
    pub range: Range<u64>,
    /// Numbers of the mappings that have all of it, best first; none in a hole. At most
    /// [`EXNODE_SOURCES_MAX`].
    pub sources: Vec<usize>,
}

/// Extents of a range of the file, one after the other and without a gap.
///
/// Takes O(n log n) for n mappings, however much they overlap.
#[derive(Debug)]
pub struct Extents {
    /// Beginnings and ends, in order.
    boundaries: std::vec::IntoIter<Boundary>,
    next: Option<Boundary>,
    /// Those that have the current place, best first.
    active: BTreeSet<(u64, usize)>,
    place: u64,
    end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Boundary {
    offset: u64,
    begins: bool,
    rank: u64,
    mapping: usize,
}

impl Extents {
    /// Cuts `range` of the file. `rank` says of a mapping, by its number, how far behind
    /// others it stands as a source, or that it is none.
    pub fn new(
        exnode: &ExNode,
        range: Range<u64>,
        mut rank: impl FnMut(usize) -> Option<u64>,
    ) -> Self {
        let mut boundaries = Vec::new();
        for (mapping, part) in exnode.mappings.iter().enumerate() {
            let covered = part.range();
            let covered = covered.start.max(range.start)..covered.end.min(range.end);
            if covered.is_empty() {
                continue;
            }
            let rank = rank(mapping);
            // A boundary of what is no source is one all the same.
            let rank = rank.map_or(u64::MAX, |rank| rank.min(u64::MAX - 1));
            for (offset, begins) in [(covered.start, true), (covered.end, false)] {
                boundaries.push(Boundary {
                    offset,
                    begins,
                    rank,
                    mapping,
                });
            }
        }
        boundaries.sort_unstable();
        let mut boundaries = boundaries.into_iter();
        Self {
            next: boundaries.next(),
            boundaries,
            active: BTreeSet::new(),
            place: range.start,
            end: range.end,
        }
    }
}

impl Iterator for Extents {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        while let Some(boundary) = self.next.filter(|next| next.offset <= self.place) {
            let source = (boundary.rank, boundary.mapping);
            if boundary.rank == u64::MAX {
                // No source.
            } else if boundary.begins {
                self.active.insert(source);
            } else {
                self.active.remove(&source);
            }
            self.next = self.boundaries.next();
        }
        if self.place >= self.end {
            return None;
        }
        let end = self.next.map_or(self.end, |next| next.offset);
        let best = self.active.iter().take(EXNODE_SOURCES_MAX);
        let extent = Extent {
            range: self.place..end,
            sources: best.map(|&(_, mapping)| mapping).collect(),
        };
        self.place = end;
        Some(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Mapping;

    fn exnode(parts: &[Range<u64>]) -> ExNode {
        let mapping = |part: &Range<u64>| Mapping {
            exnode_offset: part.start,
            logical_length: part.end - part.start,
            ..Mapping::default()
        };
        ExNode {
            mappings: parts.iter().map(mapping).collect(),
            ..ExNode::default()
        }
    }

    fn cut(exnode: &ExNode) -> Vec<(Range<u64>, Vec<usize>)> {
        let extents = Extents::new(exnode, 0..exnode.size(), |_| Some(0));
        extents
            .map(|extent| (extent.range, extent.sources))
            .collect()
    }

    /// Goal: the three exNodes of the paper's figure 4 are cut as it says: whole on A; whole
    /// on B and on C; 200 + 400 bytes on A and D, and 300 + 100 + 200 on B, C and D.
    #[test]
    fn exnodes_of_figure_4_are_cut_at_every_boundary() {
        let left = exnode(&vec![0..600; 1]);
        assert_eq!(cut(&left), [(0..600, vec![0])]);
        assert_eq!(cut(&exnode(&[0..600, 0..600])), [(0..600, vec![0, 1])]);
        let right = exnode(&[0..200, 200..600, 0..300, 300..400, 400..600]);
        assert_eq!(
            cut(&right),
            [
                (0..200, vec![0, 2]),
                (200..300, vec![1, 2]),
                (300..400, vec![1, 3]),
                (400..600, vec![1, 4]),
            ]
        );
    }

    /// Goal: holes are extents without a source, and a range is cut where it begins and ends.
    #[test]
    fn holes_have_no_source() {
        let file = exnode(&[10..20, 30..40]);
        let extents = Extents::new(&file, 5..35, |_| Some(0));
        let found: Vec<_> = extents.map(|e| (e.range, e.sources)).collect();
        assert_eq!(
            found,
            [
                (5..10, vec![]),
                (10..20, vec![0]),
                (20..30, vec![]),
                (30..35, vec![1])
            ]
        );
    }

    /// Goal: sources come in the order of their ranks; what is none still cuts.
    #[test]
    fn sources_are_ranked() {
        let file = exnode(&[0..10, 0..10, 0..5]);
        let ranks = [Some(7), Some(3), None];
        let extents = Extents::new(&file, 0..10, |mapping| ranks[mapping]);
        let found: Vec<_> = extents.map(|e| (e.range, e.sources)).collect();
        assert_eq!(found, [(0..5, vec![1, 0]), (5..10, vec![1, 0])]);
    }

    /// Goal: a hundred thousand mappings that all overlap neither take all time nor all
    /// memory, and the best sources remain.
    #[test]
    fn overlapping_everywhere_is_bounded() {
        let parts: Vec<_> = (0..100_000u64).map(|n| n..1_000_000 - n).collect();
        let file = exnode(&parts);
        let mut count = 0;
        for extent in Extents::new(&file, 0..file.size(), |n| Some(u64::MAX - 5 - n as u64)) {
            assert!(!extent.sources.is_empty() && extent.sources.len() <= EXNODE_SOURCES_MAX);
            count += 1;
        }
        assert_eq!(count, 199_999);
    }
}
