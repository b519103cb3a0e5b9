//! Which datagrams have come already.

/// Datagrams may come out of order by so many.
const WINDOW: u64 = 1024;
const WORDS: usize = (WINDOW / 64) as usize;

/// The sequence numbers that were seen: each is taken once, and none that is older than the
/// newest by 1024 or more (the window of RFC 4303, section 3.4.3).
#[derive(Clone, Debug, Default)]
pub struct ReplayWindow {
    newest: u64,
    /// A bit for each number that is not older than the window; number n is bit n mod 1024.
    seen: [u64; WORDS],
}

impl ReplayWindow {
    /// Takes note of a number that has come with a good MAC; false if its datagram has come
    /// before, or may have.
    pub fn admit(&mut self, sequence: u64) -> bool {
        if sequence == 0 || self.newest.saturating_sub(sequence) >= WINDOW {
            return false;
        }
        if sequence > self.newest {
            self.advance(sequence);
        }
        let (word, bit) = place(sequence);
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }

    fn advance(&mut self, newest: u64) {
        if newest - self.newest >= WINDOW {
            self.seen = [0; WORDS];
        } else {
            for number in self.newest + 1..=newest {
                let (word, bit) = place(number);
                self.seen[word] &= !bit;
            }
        }
        self.newest = newest;
    }
}

const fn place(sequence: u64) -> (usize, u64) {
    let at = sequence % WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}
