//! A small seeded generator (splitmix64).

/// The only source of chance in this program.
pub(crate) struct Random(u64);

impl Random {
    /// Repeats itself for the same seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Below `bound`, which is not 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// From `low` to below `high`.
    pub(crate) const fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        low + self.below(high - low)
    }

    /// Whether a thing that happens in `percent` of cases happens.
    pub(crate) const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// An index below `length`, which is not 0.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }
}

/// Spreads one number over all bits.
pub(crate) const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
