//! The checksum of IP, TCP and UDP (RFC 1071).

/// The sum of 16-bit words, of bytes that come in pieces of any length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    /// Of words as this machine has them: which byte is first does not matter to the sum.
    sum: u64,
    is_odd: bool,
}

impl Sum {
    /// Of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::default().and(bytes)
    }

    /// Of these, too, behind those before.
    #[must_use]
    pub(crate) fn and(mut self, bytes: &[u8]) -> Self {
        let words = bytes.chunks_exact(4);
        let mut last = [0; 4];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        let words = words.map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        let sum: u64 = words.map(u64::from).sum();
        let sum = folded(sum + u64::from(u32::from_ne_bytes(last)));
        // Behind an odd number of bytes each is the other one of its word.
        self.sum += u64::from(match self.is_odd {
            true => sum.swap_bytes(),
            false => sum,
        });
        self.is_odd ^= bytes.len() % 2 == 1;
        self
    }

    /// The sum in 16 bits; its complement is the checksum.
    pub(crate) fn fold(self) -> u16 {
        u16::from_be(folded(self.sum))
    }
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Goal: however bytes are cut, their sum is that of RFC 1071's own words.
        #[test]
        fn pieces_do_not_show(bytes in prop::collection::vec(any::<u8>(), 0..300), cuts in prop::collection::vec(1usize..40, 0..20)) {
            let words = bytes.chunks(2).map(|word| {
                (u32::from(word[0]) << 8) | u32::from(word.get(1).copied().unwrap_or(0))
            });
            let mut expected: u32 = words.sum();
            while expected > 0xffff {
                expected = (expected & 0xffff) + (expected >> 16);
            }
            let (mut sum, mut rest) = (Sum::default(), &bytes[..]);
            for cut in cuts {
                let (piece, behind) = rest.split_at(cut.min(rest.len()));
                sum = sum.and(piece);
                rest = behind;
            }
            prop_assert_eq!(u32::from(sum.and(rest).fold()), expected);
        }
    }
}
