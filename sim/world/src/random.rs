//! The one source of chance in a simulation: small, seeded, the same on every
//! machine and in every build.
//!
//! The generator is xoshiro256** (Blackman and Vigna), its state filled from
//! the seed by SplitMix64, so neighbouring seeds give unrelated streams. Not
//! for secrets.

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The generator of `seed`; equal seeds give equal streams.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut mixer = seed;
        Self {
            state: std::array::from_fn(|_| split_mix(&mut mixer)),
        }
    }

    /// A generator of its own for one part of the simulation, so that how
    /// often one part draws does not change what another part sees.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// Any 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `bound`, all equally likely.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a number below 0");
        // Multiply and shift; redraw in the sliver that would favour small numbers.
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
            let low = wide as u64;
            if low >= bound.wrapping_neg() % bound {
                return (wide >> 64) as u64;
            }
        }
    }

    /// An index into something of `length` elements.
    ///
    /// # Panics
    /// If `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a usize")
    }

    /// A number from `low` to `high`, both possible.
    ///
    /// # Panics
    /// If `low` is above `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "between {low} and {high}");
        match (high - low).checked_add(1) {
            Some(width) => low + self.below(width),
            None => self.next_u64(),
        }
    }

    /// True once in `n` times on average; never if `n` is 0.
    pub fn one_in(&mut self, n: u32) -> bool {
        n != 0 && self.below(u64::from(n)) == 0
    }

    /// A fair coin.
    pub const fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }

    /// One of `choices`, or nothing if there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        if choices.is_empty() {
            return None;
        }
        choices.get(self.index(choices.len()))
    }

    /// Puts `items` into any order, all equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    /// Fills `target` with any bytes.
    pub fn fill(&mut self, target: &mut [u8]) {
        for part in target.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }
}

const fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: seeds mean the same for ever; a seed in a bug report stays good.
    #[test]
    fn a_seed_gives_one_stream() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.next_u64(), random.next_u64()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut zero = 0;
        assert_eq!(split_mix(&mut zero), 0xe220_a839_7b1d_cdaf);
    }

    /// Goal: bounded draws stay in bounds and reach every value.
    #[test]
    fn bounded_draws_cover_their_range() {
        let mut random = Random::new(7);
        let mut seen = [0_u32; 5];
        for _ in 0..1000 {
            seen[random.index(5)] += 1;
            assert!((3..=4).contains(&random.between(3, 4)));
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
        assert!(!random.one_in(0));
        assert!(random.one_in(1));
        assert_eq!(random.between(9, 9), 9);
        random.between(0, u64::MAX);
        assert_eq!(random.pick::<u8>(&[]), None);
    }

    /// Goal: a shuffle keeps every element.
    #[test]
    fn a_shuffle_loses_nothing() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(3).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
