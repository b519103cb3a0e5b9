//! What is sent, and what has to come: both follow from a seed.

use std::ops::Range;

use crossdock_sim::random::Random;

/// A piece of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes that the gateway has.
    Literal(Vec<u8>),
    /// Bytes that a node has under a pin.
    Extent {
        node: u64,
        pin: u64,
        range: Range<u64>,
    },
}

/// What nodes hold at a place under a pin: eight bytes of a place are a number of their own,
/// so that nothing that is shifted or of another pin looks right.
pub(crate) fn held(pin: u64, range: Range<u64>, out: &mut Vec<u8>) {
    let words = range.start / 8..range.end.div_ceil(8);
    let first = range.start - words.start * 8;
    let from = out.len();
    for word in words {
        let number = (word ^ pin.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        out.extend((number ^ number >> 29).to_le_bytes());
    }
    let place = |bytes: u64| usize::try_from(bytes).expect("as long as a packet");
    out.drain(from..from + place(first));
    out.truncate(from + place(range.end - range.start));
}

/// Lengths of the pieces of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// How many bytes in extents.
    pub(crate) total: u64,
    /// The longest literal.
    pub(crate) literal_max: u64,
    /// The longest extent.
    pub(crate) extent_max: u64,
    /// Over how many nodes.
    pub(crate) nodes: u64,
}

/// The pieces of a connection.
pub(crate) fn pieces(seed: u64, shape: Shape) -> impl Iterator<Item = Piece> {
    let mut random = Random::new(seed);
    let (mut sent, mut is_literal) = (0, false);
    std::iter::from_fn(move || {
        is_literal = !is_literal;
        if is_literal {
            let length = random.below(shape.literal_max + 1);
            let bytes = (0..length).map(|_| random.next_u64().to_le_bytes()[7]);
            return Some(Piece::Literal(bytes.collect()));
        }
        if sent >= shape.total {
            return None;
        }
        let length = 1 + random.below(shape.extent_max);
        let from = random.below(1 << 40);
        sent += length;
        Some(Piece::Extent {
            node: random.below(shape.nodes),
            pin: random.next_u64(),
            range: from..from + length,
        })
    })
}

impl Piece {
    /// What the client has to see.
    pub(crate) fn expanded(&self, out: &mut Vec<u8>) {
        match self {
            Self::Literal(bytes) => out.extend(bytes),
            Self::Extent { pin, range, .. } => held(*pin, range.clone(), out),
        }
    }
}
