//! A small generator of test values: the same seed, the same values, everywhere.

/// Bytes that stand for names, handles and data: samples borrow from here.
static POOL: [u8; POOL_BYTES] = pool();
const POOL_BYTES: usize = 32 << 10;

const fn pool() -> [u8; POOL_BYTES] {
    let mut pool = [0; POOL_BYTES];
    let mut at = 0;
    let mut state: u32 = 1;
    while at < POOL_BYTES {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        pool[at] = state.to_be_bytes()[0];
        at += 1;
    }
    pool
}

/// A source of values that follow from its seed alone (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The source with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub const fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Any number, the smallest and the largest more often.
    pub const fn u32(&mut self) -> u32 {
        let [a, b, c, d, kind, ..] = self.u64().to_be_bytes();
        match kind % 8 {
            0 => 0,
            1 => u32::MAX,
            2 => u32::from_be_bytes([0, 0, 0, d]),
            _ => u32::from_be_bytes([a, b, c, d]),
        }
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.u64() % bound).unwrap_or(0)
    }

    /// Heads or tails.
    pub const fn flag(&mut self) -> bool {
        self.u64().is_multiple_of(2)
    }

    /// One of `values`.
    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// A value or none.
    pub fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| value(self))
    }

    /// Some bytes: at most `length_max`, mostly few.
    pub fn bytes(&mut self, length_max: usize) -> &'static [u8] {
        let length_max = match self.below(8) {
            0 => length_max,
            _ => length_max.min(24),
        };
        let length = self.below(length_max + 1);
        let start = self.below(POOL_BYTES - length);
        &POOL[start..start + length]
    }

    /// Eight bytes.
    pub const fn eight(&mut self) -> [u8; 8] {
        self.u64().to_be_bytes()
    }
}
