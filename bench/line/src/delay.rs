//! What is on its way: packets wait in the order in which they came, each path's for its
//! own time.

use std::collections::VecDeque;
use std::time::Duration;

/// The most bytes that are on their way on all paths: more than streams of a benchmark
/// ever have there. What comes beyond is lost, as on any line.
pub const BYTES_MAX: usize = 64 << 20;

/// Packets on their way.
pub struct Delay {
    paths: Vec<Path>,
    bytes: usize,
    lost: u64,
}

struct Path {
    delay: Duration,
    /// With the time at which each arrives.
    packets: VecDeque<(Duration, Vec<u8>)>,
}

impl Delay {
    /// Paths on which packets are on their way for so long, in either direction.
    #[must_use]
    pub fn new(delays: &[Duration]) -> Self {
        let paths = delays.iter().map(|&delay| Path {
            delay,
            packets: VecDeque::new(),
        });
        Self {
            paths: paths.collect(),
            bytes: 0,
            lost: 0,
        }
    }

    /// Takes a packet; one of a path that is not there is lost.
    pub fn handle(&mut self, now: Duration, path: usize, packet: &[u8]) {
        match self.paths.get_mut(path) {
            Some(path) if self.bytes + packet.len() <= BYTES_MAX => {
                self.bytes += packet.len();
                path.packets.push_back((now + path.delay, packet.to_vec()));
            }
            _ => self.lost += 1,
        }
    }

    /// A packet that has arrived, the earliest first.
    pub fn poll_packet(&mut self, now: Duration) -> Option<Vec<u8>> {
        let arrived = |path: &&mut Path| path.packets.front().is_some_and(|it| it.0 <= now);
        let paths = self.paths.iter_mut().filter(arrived);
        let path = paths.min_by_key(|path| path.packets.front().map(|it| it.0))?;
        let (_, packet) = path.packets.pop_front()?;
        self.bytes -= packet.len();
        Some(packet)
    }

    /// When the next packet arrives.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let fronts = self.paths.iter().filter_map(|path| path.packets.front());
        fronts.map(|it| it.0).min()
    }

    /// Packets that were lost.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Goal: packets arrive after the time of their path, in order, and never earlier.
    #[test]
    fn packets_wait_for_the_time_of_their_path() {
        let mut delay = Delay::new(&[ms(5), ms(100)]);
        delay.handle(ms(0), 1, b"far");
        delay.handle(ms(1), 0, b"near");
        delay.handle(ms(2), 0, b"next");
        assert_eq!(delay.poll_timeout(), Some(ms(6)));
        assert_eq!(delay.poll_packet(ms(5)), None);
        assert_eq!(delay.poll_packet(ms(7)).as_deref(), Some(&b"near"[..]));
        assert_eq!(delay.poll_packet(ms(7)).as_deref(), Some(&b"next"[..]));
        assert_eq!(delay.poll_packet(ms(99)), None);
        assert_eq!(delay.poll_packet(ms(100)).as_deref(), Some(&b"far"[..]));
        assert_eq!((delay.poll_timeout(), delay.lost()), (None, 0));
    }

    /// Goal: a line that nobody empties does not take all memory; what arrives makes room.
    #[test]
    fn what_does_not_fit_is_lost() {
        let mut delay = Delay::new(&[ms(1)]);
        let packet = vec![0; BYTES_MAX / 2];
        for _ in 0..3 {
            delay.handle(ms(0), 0, &packet);
        }
        assert_eq!(delay.lost(), 1);
        assert!(delay.poll_packet(ms(1)).is_some());
        delay.handle(ms(1), 0, &packet);
        delay.handle(ms(1), 7, b"no such path");
        assert_eq!(delay.lost(), 2);
    }
}
