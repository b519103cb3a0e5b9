//! How fast nodes give again what they have in memory, and which member of a set is asked for a
//! piece that any of them can give.
//!
//! Only what a node has given before is timed: its disk says nothing of the way to it, nor of how
//! busy it is. A member is asked instead of the one that gave a piece if that one takes several
//! times as long, for most of its pieces and never for all: so it is seen when it is fast again.
//! What a node will take is forecast by whichever of several predictors was least off lately
//! ([`Forecaster`]). Where a piece goes follows from the piece, so that it goes there again.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_forecast::Forecaster;
use crossdock_names::NodeId;

use crate::warm::Piece;

/// What is short takes as long as this: the way there and back is most of it.
const BYTES_MIN: u64 = 64 << 10;

/// So many times of a node make one measurement, their mean: predictors cost more than a
/// piece's time is worth, and fewer times are not believed.
const TIMES: u32 = 8;

/// A node is slow if another member takes less than this part of its time: what that one has to
/// read from its disk, once, has to be worth it.
const SLOW: f64 = 1.0 / 3.0;

/// Of a slow node's pieces so many in [`SHARES`] are still asked of it.
const KEPT: u64 = 32;
const SHARES: u64 = 256;

/// How long nodes take, in seconds per byte.
#[derive(Debug, Default)]
pub(crate) struct Speeds {
    nodes: BTreeMap<NodeId, Speed>,
}

#[derive(Debug, Default)]
struct Speed {
    /// Times that are no measurement yet: how many, and their sum.
    times: u32,
    sum: f64,
    forecaster: Forecaster,
}

impl Speeds {
    /// A node has given so many bytes again, after that time.
    pub(crate) fn note(&mut self, node: NodeId, bytes: u64, took: Duration) {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let cost = took.as_secs_f64() / bytes.max(BYTES_MIN) as f64;
        self.nodes.entry(node).or_default().note(cost);
    }

    /// A node does not have what it was asked for instead of another one, or cannot be asked:
    /// it is not, until it has shown again how fast it is.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// Who is to be asked for a piece that `given` gave: that one, or another one of the
    /// members.
    pub(crate) fn choose(
        &self,
        piece: &Piece,
        given: NodeId,
        members: impl Iterator<Item = NodeId>,
    ) -> NodeId {
        let Some(own) = self.cost(given) else {
            return given;
        };
        let is_faster = |node: &NodeId| self.cost(*node).is_some_and(|cost| cost < own * SLOW);
        let faster: Vec<NodeId> = members.filter(is_faster).collect();
        let Ok(count) = u64::try_from(faster.len()) else {
            return given;
        };
        let mixed = mix(piece);
        if count == 0 || mixed % SHARES < KEPT {
            return given;
        }
        let index = usize::try_from(mixed / SHARES % count);
        index.map_or(given, |index| faster[index])
    }

    fn cost(&self, node: NodeId) -> Option<f64> {
        let expected = self.nodes.get(&node)?.forecaster.forecast();
        expected.map(|it| it.value)
    }
}

impl Speed {
    fn note(&mut self, cost: f64) {
        self.times += 1;
        self.sum += cost;
        if self.times < TIMES {
            return;
        }
        self.forecaster.observe(self.sum / f64::from(TIMES));
        (self.times, self.sum) = (0, 0.0);
    }
}

/// A number that follows from a piece, and differs much between pieces that differ little.
const fn mix(piece: &Piece) -> u64 {
    let column = (piece.object.column as u64) << 48 | (piece.object.segment as u64) << 32;
    let place = piece.object.placement ^ column ^ piece.offset_bytes.rotate_left(17);
    // Fibonacci hashing, twice: the upper bits depend on all.
    let once = place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (once ^ (once >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

#[cfg(test)]
mod tests {
    use crossdock_names::{FileId, ObjectId};

    use super::*;

    const MEMBERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
    const PIECES: u64 = 1000;

    fn piece(number: u64) -> Piece {
        Piece {
            object: ObjectId::column(FileId(7), 1, 0, 0),
            offset_bytes: number << 18,
            length_bytes: 1 << 18,
        }
    }

    fn note(speeds: &mut Speeds, node: u64, took_ms: u64, times: u32) {
        for _ in 0..times {
            speeds.note(NodeId(node), 1 << 18, Duration::from_millis(took_ms));
        }
    }

    /// How many of node 1's pieces each member is asked for.
    fn shares(speeds: &Speeds) -> [usize; 3] {
        let chosen =
            (0..PIECES).map(|it| speeds.choose(&piece(it), NodeId(1), MEMBERS.into_iter()));
        let chosen: Vec<NodeId> = chosen.collect();
        MEMBERS.map(|node| chosen.iter().filter(|it| **it == node).count())
    }

    /// Goal: who gave a piece is asked again as long as nobody is much faster, whatever is not
    /// known yet.
    #[test]
    fn who_gave_a_piece_is_asked_again() {
        let mut speeds = Speeds::default();
        assert_eq!(shares(&speeds), [1000, 0, 0]);
        note(&mut speeds, 1, 30, 20);
        assert_eq!(shares(&speeds), [1000, 0, 0]);
        note(&mut speeds, 2, 1, TIMES - 1);
        assert_eq!(shares(&speeds), [1000, 0, 0], "it is hardly known");
        note(&mut speeds, 3, 15, 20);
        assert_eq!(shares(&speeds), [1000, 0, 0], "it is not worth a disk");
    }

    /// Goal: what a slow node gave is asked of faster members, of all of these, and the same
    /// piece of the same one; never all; and of the node again when it is fast.
    #[test]
    fn a_slow_node_keeps_a_part() {
        let mut speeds = Speeds::default();
        note(&mut speeds, 1, 100, 20);
        note(&mut speeds, 2, 5, 20);
        let [slow, fast, none] = shares(&speeds);
        assert!(
            (60..250).contains(&slow) && none == 0,
            "{slow} {fast} {none}"
        );
        note(&mut speeds, 3, 4, 20);
        let [slow, second, third] = shares(&speeds);
        assert!((60..250).contains(&slow), "{slow}");
        assert!(second.abs_diff(third) < 150, "{second} {third}");
        assert_eq!(shares(&speeds), [slow, second, third], "the same again");
        note(&mut speeds, 1, 5, 60);
        assert_eq!(shares(&speeds), [1000, 0, 0]);
    }

    /// Goal: the predictor that fits answers: neither what happens now and then changes who is
    /// asked, nor is it long before a node that has become slow is left.
    #[test]
    fn what_happens_now_and_then_is_no_forecast() {
        let mut speeds = Speeds::default();
        note(&mut speeds, 2, 5, 200);
        for round in 0..10 {
            note(&mut speeds, 1, 5, 9 * TIMES);
            note(&mut speeds, 1, 200, TIMES);
            // The first time nobody knows yet that it does not last.
            assert!(round == 0 || shares(&speeds) == [1000, 0, 0], "{round}");
        }
        note(&mut speeds, 1, 5, 40 * TIMES);
        note(&mut speeds, 1, 200, 8 * TIMES);
        assert!(shares(&speeds)[0] < 250);
    }

    /// Goal: a member that could not give a piece is not asked in another one's place.
    #[test]
    fn who_has_failed_is_left() {
        let mut speeds = Speeds::default();
        note(&mut speeds, 1, 100, 20);
        note(&mut speeds, 2, 5, 20);
        speeds.forget(NodeId(2));
        assert_eq!(shares(&speeds), [1000, 0, 0]);
    }
}
