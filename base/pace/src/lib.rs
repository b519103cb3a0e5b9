//! How many requests a client may make: a bucket of tokens for each.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crossdock_limits::PACED_CLIENTS_MAX;
use crossdock_types::Time;

/// How many seconds' worth may come at once.
const BURST_SECONDS: u64 = 10;

/// Buckets of the clients that have asked lately: each may ask so often on average, and
/// some seconds' worth at once.
#[derive(Debug, Default)]
pub struct Pace {
    buckets: BTreeMap<IpAddr, Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// In thousandths of a request.
    left: u64,
    filled: Time,
}

impl Pace {
    /// Whether the client may make another request, of `rate` a second.
    pub fn admits(&mut self, now: Time, client: IpAddr, rate: u32) -> bool {
        let full = u64::from(rate) * BURST_SECONDS * 1000;
        let client = of(client);
        if !self.buckets.contains_key(&client) && self.buckets.len() >= PACED_CLIENTS_MAX {
            self.forget(now);
        }
        if !self.buckets.contains_key(&client) && self.buckets.len() >= PACED_CLIENTS_MAX {
            return false; // So many have asked in the last seconds that none can be told apart.
        }
        let bucket = self.buckets.entry(client).or_insert(Bucket {
            left: full,
            filled: now,
        });
        let elapsed = now.since(bucket.filled).as_millis();
        let gained = u64::try_from(elapsed)
            .unwrap_or(u64::MAX)
            .saturating_mul(u64::from(rate));
        if gained > 0 {
            bucket.left = bucket.left.saturating_add(gained).min(full);
            bucket.filled = now;
        }
        match bucket.left.checked_sub(1000) {
            Some(left) => {
                bucket.left = left;
                true
            }
            None => false,
        }
    }

    /// Those whose buckets are full by now.
    fn forget(&mut self, now: Time) {
        let patience = Duration::from_secs(BURST_SECONDS);
        self.buckets
            .retain(|_, bucket| now < bucket.filled + patience);
    }
}

/// A client has a whole /64 of IPv6 addresses.
fn of(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a client has its burst and then its rate; others have theirs.
    #[test]
    fn clients_are_paced_each() {
        let mut pace = Pace::default();
        let start = Time::from_secs(1);
        let one: IpAddr = "198.18.0.1".parse().expect("an address");
        let two: IpAddr = "198.18.0.2".parse().expect("an address");
        assert!((0..20).all(|_| pace.admits(start, one, 2)));
        assert!(!pace.admits(start, one, 2));
        assert!(pace.admits(start, two, 2));
        let later = start + Duration::from_millis(500);
        assert!(pace.admits(later, one, 2));
        assert!(!pace.admits(later, one, 2));
    }

    /// Goal: the addresses of one /64 are one client.
    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let address = |text: &str| of(text.parse().expect("an address"));
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:1"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
    }

    /// Goal: however many clients come, the table keeps its bound and takes new ones
    /// when others have been quiet.
    #[test]
    fn the_table_is_bounded() {
        let mut pace = Pace::default();
        let start = Time::from_secs(1);
        for number in 0..u32::try_from(PACED_CLIENTS_MAX).expect("small") + 10 {
            pace.admits(start, IpAddr::V4(number.into()), 1);
        }
        assert_eq!(pace.buckets.len(), PACED_CLIENTS_MAX);
        let late = start + Duration::from_secs(BURST_SECONDS);
        assert!(pace.admits(late, IpAddr::V4(u32::MAX.into()), 1));
    }
}
