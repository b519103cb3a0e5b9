//! Numbers of datagrams, by which their fragments find each other.
//!
//! Those of IPv4 have 16 bits. Two datagrams of one pair of addresses that have the same number
//! while fragments of both may be on their way, or wait at the client, become one there that
//! is neither; only UDP's checksum notices (RFC 4963). So no number is given again before what
//! is left of the datagram that had it has been thrown away (RFC 6864 section 4.3).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crossdock_checksum::mac;
use crossdock_types::Time;

/// How long a client waits for fragments that are missing: Linux, BSD and macOS 30 s.
pub(crate) const REASSEMBLY: Duration = Duration::from_secs(30);
/// Numbers that are remembered together.
const BLOCK: u32 = 1024;
/// Of IPv4, in a round.
const BLOCKS: usize = 64;
/// Whether there are numbers is asked before a read; so many may be under way.
const UNDER_WAY: u32 = 256;
/// Pairs of addresses.
const PAIRS_MAX: usize = 4096;

/// The numbers of a gateway's datagrams.
#[derive(Debug)]
pub(crate) struct Idents {
    /// Where numbers begin nobody else can tell (RFC 7739).
    key: [u8; 32],
    pairs: BTreeMap<(IpAddr, IpAddr), Pair>,
    begun: u64,
}

#[derive(Debug)]
struct Pair {
    next: u32,
    last: Time,
    /// When the last number of each block was given.
    given: Box<[Option<Time>; BLOCKS]>,
}

impl Pair {
    /// Whether a number of a block that was not begun yet may be given.
    fn may_begin(&self, now: Time, number: u32, is_ipv4: bool) -> bool {
        let given = self.given[block(number)];
        !is_ipv4 || given.is_none_or(|given| given + REASSEMBLY <= now)
    }
}

const fn block(number: u32) -> usize {
    (number / BLOCK) as usize % BLOCKS
}

impl Idents {
    pub(crate) const fn new(key: [u8; 32]) -> Self {
        Self {
            key,
            pairs: BTreeMap::new(),
            begun: 0,
        }
    }

    /// Whether datagrams from one address to the other have numbers, now and in a moment.
    pub(crate) fn has_some(&mut self, now: Time, source: IpAddr, destination: IpAddr) -> bool {
        let Some(pair) = self.pair(now, source, destination) else {
            return false;
        };
        let soon = pair.next.wrapping_add(UNDER_WAY);
        block(soon) == block(pair.next.wrapping_sub(1))
            || pair.may_begin(now, soon, source.is_ipv4())
    }

    /// The next number; none if all are in use.
    pub(crate) fn take(&mut self, now: Time, source: IpAddr, destination: IpAddr) -> Option<u32> {
        let pair = self.pair(now, source, destination)?;
        let number = pair.next;
        if number.is_multiple_of(BLOCK) && !pair.may_begin(now, number, source.is_ipv4()) {
            return None;
        }
        pair.next = number.wrapping_add(1);
        pair.last = now;
        pair.given[block(number)] = Some(now);
        Some(number)
    }

    fn pair(&mut self, now: Time, source: IpAddr, destination: IpAddr) -> Option<&mut Pair> {
        let key = (source, destination);
        if !self.pairs.contains_key(&key) {
            if self.pairs.len() >= PAIRS_MAX {
                self.pairs.retain(|_, pair| pair.last + REASSEMBLY > now);
            }
            if self.pairs.len() >= PAIRS_MAX {
                return None;
            }
            self.begun += 1;
            let [a, b, c, d, ..] = mac(&self.key, &self.begun.to_be_bytes());
            let pair = Pair {
                // At a block's beginning.
                next: u32::from_be_bytes([a, b, c, d]) & !(BLOCK - 1),
                last: now,
                given: Box::new([None; BLOCKS]),
            };
            self.pairs.insert(key, pair);
        }
        self.pairs.get_mut(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [3; 32];

    fn address(last: u8) -> IpAddr {
        IpAddr::from([198, 18, 0, last])
    }

    fn at(seconds: u64) -> Time {
        Time(1_000_000_000) + Duration::from_secs(seconds)
    }

    /// Goal: a number comes again only when what had it last is forgotten at the client; until
    /// then there is none, which is told before all are given. Other pairs have their own.
    #[test]
    fn no_number_comes_again_too_soon() {
        let mut idents = Idents::new(KEY);
        let (one, other) = (address(1), address(2));
        let mut seen = BTreeMap::new();
        for number in 0..65_536_u64 {
            assert!(number > 65_000 || idents.has_some(at(0), one, other));
            let now = at(number / 10_000);
            let ident = idents.take(now, one, other).expect("unused");
            assert_eq!(seen.insert(ident & 0xffff, now), None);
        }
        assert!(!idents.has_some(at(29), one, other));
        assert_eq!(idents.take(at(29), one, other), None);
        assert!(idents.take(at(29), one, address(3)).is_some());
        assert!(idents.take(at(29), other, one).is_some());
        // Those of the first second are forgotten one by one, in blocks.
        let again = std::iter::from_fn(|| idents.take(at(31), one, other));
        let again: Vec<u32> = again.collect();
        assert_eq!(again.len(), 19 * 1024, "up to 19,999 were given by then");
        assert!(again.iter().all(|ident| seen[&(ident & 0xffff)] <= at(1)));
        assert!(!idents.has_some(at(31), one, other));
        assert!(idents.has_some(at(40), one, other));
    }

    /// Goal: IPv6 has so many that nothing is to be waited for.
    #[test]
    fn ipv6_has_enough() {
        let mut idents = Idents::new(KEY);
        let one: IpAddr = "fd00::1".parse().expect("an address");
        let first = idents.take(at(0), one, one).expect("one");
        let last = (0..100_000)
            .map_while(|_| idents.take(at(0), one, one))
            .last();
        assert_eq!(last, Some(first.wrapping_add(100_000)));
        assert!(idents.has_some(at(0), one, one));
    }

    /// Goal: pairs are bounded; those that are over make room.
    #[test]
    fn pairs_are_bounded() {
        let mut idents = Idents::new(KEY);
        let pair = |number: u32| (IpAddr::from(number.to_be_bytes()), address(1));
        for number in 0..PAIRS_MAX {
            let (one, other) = pair(u32::try_from(number).expect("few"));
            assert!(idents.take(at(0), one, other).is_some());
        }
        let (one, other) = pair(1 << 20);
        assert!(!idents.has_some(at(29), one, other));
        assert_eq!(idents.take(at(29), one, other), None);
        assert!(idents.take(at(30), one, other).is_some());
        assert_eq!(idents.pairs.len(), 1);
    }
}
