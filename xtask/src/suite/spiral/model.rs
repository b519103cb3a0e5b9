//! What files of the volume check hold: each byte follows from the file, its generation and the
//! place, and is compared at the speed of memory.

use anyhow::Result;
use crossdock_sim::random::Random;

/// A block says whose it is, in its first bytes.
const BLOCK_BYTES: usize = 4096;
const STAMP_BYTES: usize = 32;
/// The rest is random, and the same after so many blocks: 1 MiB.
const BLOCKS: usize = 256;

/// Which content of which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) file: u64,
    pub(super) generation: u64,
}

/// All contents of all files.
pub(super) struct Model {
    pattern: Vec<u8>,
}

impl Model {
    pub(super) fn new(seed: u64) -> Self {
        let mut pattern = vec![0; BLOCKS * BLOCK_BYTES];
        Random::new(seed).fill(&mut pattern);
        Self { pattern }
    }

    /// A whole file.
    pub(super) fn content(&self, version: Version, length: usize) -> Vec<u8> {
        let blocks = length.div_ceil(BLOCK_BYTES);
        let mut content = Vec::with_capacity(blocks * BLOCK_BYTES);
        for block in 0..blocks {
            content.extend(stamp(version, block as u64));
            content.extend(&self.block(block)[STAMP_BYTES..]);
        }
        content.truncate(length);
        content
    }

    /// How many of the bytes that were read from `at` on are not the file's.
    pub(super) fn wrong(&self, version: Version, at: u64, mut bytes: &[u8]) -> Result<u64> {
        let mut at = usize::try_from(at)?;
        let mut wrong = 0;
        while !bytes.is_empty() {
            let (block, inside) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
            let (is_stamp, end) = match inside < STAMP_BYTES {
                true => (true, STAMP_BYTES),
                false => (false, BLOCK_BYTES),
            };
            let length = bytes.len().min(end - inside);
            let (got, rest) = bytes.split_at(length);
            let stamp = stamp(version, block as u64);
            let expected = match is_stamp {
                true => &stamp[inside..inside + length],
                false => &self.block(block)[inside..inside + length],
            };
            if got != expected {
                let differ = got.iter().zip(expected).filter(|(a, b)| a != b);
                wrong += differ.count() as u64;
            }
            bytes = rest;
            at += length;
        }
        Ok(wrong)
    }

    fn block(&self, number: usize) -> &[u8] {
        let from = number % BLOCKS * BLOCK_BYTES;
        &self.pattern[from..from + BLOCK_BYTES]
    }
}

/// File, generation, place, and a number that follows from them: no other block begins so, and
/// not with zeros either.
fn stamp(version: Version, block: u64) -> [u8; STAMP_BYTES] {
    let Version { file, generation } = version;
    let mix = (file ^ generation.rotate_left(20) ^ block.rotate_left(40))
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut stamp = [0; STAMP_BYTES];
    let words = [file, generation, block, mix];
    for (to, word) in stamp.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Version = Version {
        file: 1,
        generation: 1,
    };

    /// Goal: a file is right wherever it is cut; one byte that is another is found in each place,
    /// as is what lies elsewhere in the file, in another file, or was there before.
    #[test]
    fn every_byte_counts() {
        let model = Model::new(1);
        let length = 3 * BLOCKS * BLOCK_BYTES + 77;
        let content = model.content(FIRST, length);
        let wrong = |version, at: usize, bytes: &[u8]| {
            let wrong = model.wrong(version, at as u64, bytes);
            wrong.expect("places within a file")
        };
        for (from, to) in [
            (0, length),
            (5, 40),
            (31, 33),
            (4095, 4097),
            (70_000, length),
        ] {
            assert_eq!(wrong(FIRST, from, &content[from..to]), 0, "{from} to {to}");
        }
        for at in [0, 31, 32, 4095, 4096, length - 1] {
            let mut changed = content.clone();
            changed[at] ^= 4;
            assert_eq!(wrong(FIRST, 0, &changed), 1, "{at}");
        }
        // The random bytes are the same there: the stamps are not.
        let period = BLOCKS * BLOCK_BYTES;
        assert!(wrong(FIRST, 0, &content[period..2 * period]) > 0);
        let other = |file, generation| Version { file, generation };
        assert!(wrong(other(2, 1), 0, &content[..BLOCK_BYTES]) > 0);
        assert!(wrong(other(1, 2), 0, &content[..BLOCK_BYTES]) > 0);
        assert!(wrong(FIRST, 0, &[0; BLOCK_BYTES]) > BLOCK_BYTES as u64 / 2);
    }
}
