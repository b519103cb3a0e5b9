//! Who reads an object from its beginning to its end finds the next blocks in
//! the cache: they are fetched before he asks (Slice 4.2, "storage nodes
//! prefetch sequential files"; the paper's window is 256 KiB).
//!
//! A reader is known by where he reads on: each object has a few *streams*, each
//! of which is continued by a read near to its end (clients send several reads
//! at once, and they overtake each other). The window doubles from read to read,
//! so a file of which only the beginning is looked at costs little.
//!
//! Reads that are as large as half of the largest window get nothing: their
//! clients have several outstanding, and bytes that are sent as they come from
//! the disk are still in the processor's caches (docs/performance.md).
//!
//! A gateway may say how far is read ahead of a reader, by what his connection takes
//! (docs/decisions/0030-delivery-engine.md): then the node does as it is told, and gives
//! that stream no windows of its own until it has not been told anything for a while.
//!
//! What is fetched ahead must still be there when it is asked for, but new
//! blocks have a tenth of the cache ([`crate::cache`]): the windows of all
//! streams together take half of that, and what gateways want the other half.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_limits::{READ_AHEAD_BYTES_MAX, READ_AHEAD_TOLD_BYTES_MAX, READ_STREAMS_MAX};
use crossdock_names::ObjectId;
use crossdock_types::Time;

/// The first window; then each is twice the one before.
const FIRST_WINDOW_BYTES: u64 = 128 << 10;

/// A read that begins this near to the end of a stream continues it …
const NEAR_BYTES: u64 = 1 << 20;

/// … and not so many times its own length away: who reads here and there in short pieces
/// comes near to a place by chance, and often.
const NEAR_READS: u64 = 32;

/// So much has to have been read of a stream before anything is fetched ahead.
const PROOF_BYTES: u64 = 64 << 10;

/// Readers of one object at different places.
const STREAMS_PER_OBJECT: usize = 4;

/// A stream that was not continued for so long has ended.
const IDLE: Duration = Duration::from_secs(10);

/// For so long a gateway's word on a stream counts: longer than the engine's longest term.
const TOLD: Duration = Duration::from_secs(30);

/// One part in this many of the cache is for all windows together, and another one for
/// what gateways want.
const CACHE_SHARE: u64 = 20;

/// The sequential readers of a store.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    cache_bytes: u64,
    streams: BTreeMap<ObjectId, Vec<Stream>>,
    count: usize,
    /// Of streams that there have been.
    streams_total: u64,
    /// Those that have a window.
    sequential: u64,
    /// What is ahead of the readers that gateways speak for, in bytes.
    told_bytes: u64,
    swept: Time,
    /// What is being fetched, in bytes.
    pub(crate) in_flight_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    number: u64,
    /// Where the next read is expected.
    next: u64,
    /// Up to here it has been fetched, or was asked for.
    fetched: u64,
    /// 0 until the stream has been continued, and is known to be one.
    window: u64,
    /// What was read of it.
    read_bytes: u64,
    used: Time,
    /// When a gateway has said last how far is read ahead, and up to where.
    told: Option<(Time, u64)>,
}

impl Stream {
    /// Whether a gateway says how far is read ahead.
    fn is_told(&self, now: Time) -> bool {
        self.told.is_some_and(|(told, _)| now < told + TOLD)
    }

    /// What is ahead of the reader for a gateway's word.
    const fn told_bytes(&self) -> u64 {
        match self.told {
            Some(_) => self.fetched.saturating_sub(self.next),
            None => 0,
        }
    }
}

/// What is known of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Number of the stream that it is of; none if there is no room for it.
    pub(crate) stream: Option<u64>,
    /// Which bytes should be fetched for the next ones.
    pub(crate) window: Option<(u64, u64)>,
}

impl Ahead {
    pub(crate) fn new(cache_bytes: usize) -> Self {
        Self {
            cache_bytes: cache_bytes as u64,
            ..Self::default()
        }
    }

    /// The cache has another size.
    pub(crate) fn set_cache_bytes(&mut self, cache_bytes: usize) {
        self.cache_bytes = cache_bytes as u64;
    }

    /// Somebody reads bytes `from..to` of an object of `size` bytes. Returns whose read
    /// that is, and which bytes should be fetched for his next ones;
    /// [`begun`](Self::begun) tells that they are.
    pub(crate) fn note(
        &mut self,
        now: Time,
        object: ObjectId,
        (from, to): (u64, u64),
        size: u64,
    ) -> Noted {
        self.forget_idle(now);
        let bound = self.window_bound();
        let streams = self.streams.entry(object).or_default();
        let near = NEAR_BYTES.min((to - from).saturating_mul(NEAR_READS));
        let is_near = |stream: &Stream| stream.next.abs_diff(from) <= near;
        let Some(stream) = streams.iter_mut().find(|stream| is_near(stream)) else {
            let stream = self.begin(now, object, (from, to));
            let window = None;
            return Noted { stream, window };
        };
        stream.used = now;
        stream.read_bytes = stream.read_bytes.saturating_add(to - from);
        let number = Some(stream.number);
        if to <= stream.next {
            let (stream, window) = (number, None);
            return Noted { stream, window }; // One that was overtaken, or a second reader behind.
        }
        self.told_bytes -= stream.told_bytes();
        stream.next = to;
        stream.fetched = stream.fetched.max(to);
        if stream.is_told(now) {
            self.told_bytes += stream.told_bytes();
            let (stream, window) = (number, None);
            return Noted { stream, window };
        }
        stream.told = None;
        if stream.read_bytes < PROOF_BYTES {
            let (stream, window) = (number, None);
            return Noted { stream, window };
        }
        if stream.window == 0 {
            stream.window = FIRST_WINDOW_BYTES;
            self.sequential += 1;
        }
        let window = stream.window.min(bound);
        let is_large = to - from >= READ_AHEAD_BYTES_MAX / 2;
        let has_enough = stream.fetched - stream.next > window / 2;
        let end = size.min(stream.next + window);
        let is_full = self.in_flight_bytes + window > self.cache_bytes / CACHE_SHARE;
        let wants_more = !is_large && !has_enough && !is_full && stream.fetched < end;
        Noted {
            stream: number,
            window: wants_more.then_some((stream.fetched, end)),
        }
    }

    /// A gateway wants bytes `from..to` of an object of `size` bytes for who reads on
    /// towards them; none of them, if it asks for all that it wants by itself. Returns whose
    /// read that is, and which bytes should be fetched now: those from where the last ones
    /// ended, if there is room for them.
    pub(crate) fn towards(
        &mut self,
        now: Time,
        object: ObjectId,
        (from, to): (u64, u64),
        size: u64,
    ) -> Noted {
        self.forget_idle(now);
        let is_his = |stream: &&mut Stream| {
            let end = stream.told.map_or(0, |(_, end)| end).max(stream.fetched);
            let near = stream.next.saturating_sub(NEAR_BYTES)..=end.saturating_add(NEAR_BYTES);
            near.contains(&from)
        };
        let known = self.streams.get_mut(&object).into_iter().flatten();
        let known = known.filter(is_his).map(|stream| stream.number).next();
        let Some(number) = known.or_else(|| self.begin(now, object, (from, from))) else {
            return Noted::default();
        };
        let streams = self.streams.get_mut(&object).into_iter().flatten();
        let mut streams = streams.filter(|stream| stream.number == number);
        let Some(stream) = streams.next() else {
            return Noted::default();
        };
        if stream.told.is_none() {
            self.sequential -= u64::from(stream.window > 0);
            stream.window = 0;
            self.told_bytes += stream.fetched - stream.next;
        }
        let farthest = stream.told.map_or(to, |(_, end)| end.max(to));
        (stream.used, stream.told) = (now, Some((now, farthest)));
        let room = (self.cache_bytes / CACHE_SHARE).saturating_sub(self.told_bytes);
        let most = (stream.fetched + room.min(READ_AHEAD_BYTES_MAX))
            .min(stream.next + READ_AHEAD_TOLD_BYTES_MAX);
        let end = size.min(to).min(most);
        Noted {
            stream: Some(number),
            window: (from < to && stream.fetched < end).then_some((stream.fetched, end)),
        }
    }

    /// The readers of an object for whom a gateway has wanted some of bytes `from..to`.
    pub(crate) fn told_at(&self, object: &ObjectId, (from, to): (u64, u64)) -> Vec<u64> {
        let streams = self.streams.get(object).into_iter().flatten();
        let is_there =
            |stream: &&Stream| stream.told.is_some() && stream.next < to && from < stream.fetched;
        let there = streams.filter(is_there);
        there.map(|stream| stream.number).collect()
    }

    /// The stream has ended: nobody reads on there.
    pub(crate) fn end(&mut self, number: u64) {
        let (count, sequential) = (&mut self.count, &mut self.sequential);
        let told_bytes = &mut self.told_bytes;
        self.streams.retain(|_, streams| {
            streams.retain(|stream| {
                let is_it = stream.number == number;
                *count -= usize::from(is_it);
                *sequential -= u64::from(is_it && stream.window > 0);
                *told_bytes -= if is_it { stream.told_bytes() } else { 0 };
                !is_it
            });
            !streams.is_empty()
        });
    }

    /// The bytes up to `end` that [`note`](Self::note) or [`towards`](Self::towards)
    /// proposed are being fetched.
    pub(crate) fn begun(&mut self, object: &ObjectId, from: u64, end: u64) {
        let streams = self.streams.get_mut(object);
        let stream = streams.and_then(|all| all.iter_mut().find(|one| one.fetched == from));
        if let Some(stream) = stream {
            self.told_bytes -= stream.told_bytes();
            stream.fetched = end;
            self.told_bytes += stream.told_bytes();
            stream.window = (stream.window * 2).min(READ_AHEAD_BYTES_MAX);
        }
    }

    /// What one stream may have fetched ahead.
    fn window_bound(&self) -> u64 {
        self.cache_bytes / CACHE_SHARE / self.sequential.max(1)
    }

    /// A reader at a place where none was. Returns his number if there is room.
    fn begin(&mut self, now: Time, object: ObjectId, (from, next): (u64, u64)) -> Option<u64> {
        self.streams_total += 1;
        let number = self.streams_total;
        let stream = Stream {
            number,
            next,
            fetched: next,
            window: 0,
            read_bytes: next - from,
            used: now,
            told: None,
        };
        let streams = self.streams.entry(object).or_default();
        if streams.len() < STREAMS_PER_OBJECT && self.count < READ_STREAMS_MAX {
            streams.push(stream);
            self.count += 1;
        } else if let Some(oldest) = streams.iter_mut().min_by_key(|stream| stream.used) {
            self.sequential -= u64::from(oldest.window > 0);
            self.told_bytes -= oldest.told_bytes();
            *oldest = stream;
        } else {
            self.streams.remove(&object); // No room: read as it comes.
            return None;
        }
        Some(number)
    }

    fn forget_idle(&mut self, now: Time) {
        if now < self.swept + IDLE {
            return;
        }
        self.swept = now;
        self.streams.retain(|_, streams| {
            streams.retain(|stream| now < stream.used + IDLE);
            !streams.is_empty()
        });
        let all = || self.streams.values().flatten();
        self.count = all().count();
        self.sequential = all().filter(|stream| stream.window > 0).count() as u64;
        self.told_bytes = all().map(Stream::told_bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use crossdock_names::FileId;

    use super::*;

    const SIZE: u64 = 64 << 20;
    const READ: u64 = 64 << 10;

    fn object(number: u64) -> ObjectId {
        ObjectId::column(FileId(number), 1, 0, 0)
    }

    /// A read of 64 KiB, whose proposal is taken up. Returns what is fetched.
    fn read(ahead: &mut Ahead, now: Time, number: u64, from: u64) -> Option<(u64, u64)> {
        let noted = ahead.note(now, object(number), (from, from + READ), SIZE);
        take_up(ahead, number, noted)
    }

    fn take_up(ahead: &mut Ahead, number: u64, noted: Noted) -> Option<(u64, u64)> {
        let proposed = noted.window?;
        ahead.begun(&object(number), proposed.0, proposed.1);
        Some(proposed)
    }

    /// Goal: short reads here and there, which come near to others by chance, fetch nothing
    /// ahead; short ones that follow each other do, once they are known to.
    #[test]
    fn nothing_is_fetched_for_who_reads_here_and_there() {
        let mut ahead = Ahead::new(256 << 20);
        let mut now = Time::from_secs(1);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut near = 0;
        let mut last = 0_u64;
        for _ in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let from = random % (SIZE / 4096) * 4096;
            near += u32::from(last.abs_diff(from) <= NEAR_BYTES);
            last = from;
            now = now + Duration::from_micros(20);
            let noted = ahead.note(now, object(1), (from, from + 4096), SIZE);
            assert_eq!(noted.window, None);
        }
        assert!(near > 200, "they come near to each other: {near}");
        let reads = (0..64).map(|read| read * 4096);
        let mut windows = reads.map(|from| {
            let noted = ahead.note(now, object(2), (from, from + 4096), SIZE);
            take_up(&mut ahead, 2, noted)
        });
        let first = windows.position(|window| window.is_some());
        assert_eq!(first, Some(15), "behind 64 KiB");
    }

    /// Goal: for who reads on, all that he will read is fetched once, before he
    /// asks, in windows that grow.
    #[test]
    fn windows_of_a_sequential_reader_follow_each_other() {
        let mut ahead = Ahead::new(256 << 20);
        let now = Time::from_secs(1);
        let mut fetched = READ * 2;
        let mut longest = 0;
        for at in (0..SIZE / READ).map(|read| read * READ) {
            let Some((from, to)) = read(&mut ahead, now, 1, at) else {
                assert!(at < READ || at + READ < fetched || fetched == SIZE, "{at}");
                continue;
            };
            assert_eq!(from, fetched, "neither twice nor left out");
            assert!(to <= at + READ + READ_AHEAD_BYTES_MAX);
            longest = longest.max(to - from);
            fetched = to;
        }
        assert_eq!(fetched, SIZE, "to the end and no farther");
        assert!(longest > FIRST_WINDOW_BYTES);
    }

    /// Goal: reads at random places cost nothing; reads that overtake each other
    /// are still one reader.
    #[test]
    fn only_sequential_readers_have_windows() {
        let mut ahead = Ahead::new(256 << 20);
        let now = Time::from_secs(1);
        let places = [0, 40, 17, 60, 5, 33, 50, 12].map(|place: u64| place << 20);
        assert!(
            places
                .iter()
                .all(|&at| read(&mut ahead, now, 1, at).is_none())
        );
        for at in [0, 2, 1, 4, 3, 6, 5, 7].map(|place| place * READ) {
            read(&mut ahead, now, 2, at);
        }
        let streams = &ahead.streams[&object(2)];
        assert_eq!(streams.len(), 1);
        assert!(streams[0].fetched > 8 * READ);
        assert_eq!(ahead.sequential, 1);
    }

    /// Goal: a reader who has gone has no stream any more, whose share the others have;
    /// what he would have read next begins a new one.
    #[test]
    fn a_stream_that_has_ended_takes_nothing() {
        let mut ahead = Ahead::new(256 << 20);
        let now = Time::from_secs(1);
        for at in (0..8).map(|place| place * READ) {
            read(&mut ahead, now, 1, at);
            read(&mut ahead, now, 2, at);
        }
        let next = (8 * READ, 9 * READ);
        let stream = ahead.note(now, object(1), next, SIZE).stream;
        assert_eq!((ahead.count, ahead.sequential), (2, 2));
        ahead.end(stream.expect("there is room"));
        assert_eq!((ahead.count, ahead.sequential), (1, 1));
        let again = ahead.note(now, object(1), next, SIZE);
        assert!(again.stream > stream && again.window.is_none());
    }

    /// Goal: many readers share what the cache has for new blocks, and those
    /// who have stopped count no more; the table keeps its bound.
    #[test]
    fn windows_are_bounded_together() {
        let mut ahead = Ahead::new(256 << 20);
        let share = (256 << 20) / CACHE_SHARE;
        let mut now = Time::from_secs(1);
        for at in (0..32).map(|place| place * READ) {
            for number in 0..100 {
                read(&mut ahead, now, number, at);
            }
        }
        let beyond = |stream: &Stream| stream.fetched - stream.next.min(stream.fetched);
        let total: u64 = ahead.streams.values().flatten().map(beyond).sum();
        // The first streams had all of the share before the others came.
        assert!(total <= 2 * share, "{total}");
        now = now + IDLE;
        read(&mut ahead, now, 1000, 0);
        assert_eq!((ahead.sequential, ahead.count), (0, 1));
        for number in 0..2 * READ_STREAMS_MAX as u64 {
            read(&mut ahead, now, number, 0);
        }
        assert!(ahead.count <= READ_STREAMS_MAX);
        assert!(ahead.streams.len() <= READ_STREAMS_MAX);
    }

    /// What a gateway wants, which is taken up.
    fn towards(ahead: &mut Ahead, now: Time, number: u64, range: (u64, u64)) -> Option<(u64, u64)> {
        let noted = ahead.towards(now, object(number), range, SIZE);
        take_up(ahead, number, noted)
    }

    /// Goal: for who a gateway speaks for as much is fetched as it says, no more and nothing
    /// twice; when it has said nothing for long, the node has its own windows again.
    #[test]
    fn a_gateways_word_takes_the_place_of_windows() {
        let mut ahead = Ahead::new(256 << 20);
        let now = Time::from_secs(1);
        assert_eq!(read(&mut ahead, now, 1, 0), None);
        let wanted = (READ, 5 * READ);
        assert_eq!(towards(&mut ahead, now, 1, wanted), Some(wanted));
        assert_eq!(towards(&mut ahead, now, 1, wanted), None);
        assert_eq!(ahead.told_bytes, 4 * READ);
        for at in 1..7 {
            assert_eq!(read(&mut ahead, now, 1, at * READ), None, "{at}");
        }
        assert_eq!((ahead.told_bytes, ahead.sequential), (0, 0));
        // What lay between was read by the client himself.
        let more = (6 * READ, 9 * READ);
        assert_eq!(
            towards(&mut ahead, now, 1, more),
            Some((7 * READ, 9 * READ))
        );
        // Beyond the end there is nothing.
        let last = (SIZE - READ, SIZE + READ);
        assert_eq!(towards(&mut ahead, now, 2, last), Some((SIZE - READ, SIZE)));
        let mut later = now;
        let is_own = (7..20).any(|at| {
            later = later + Duration::from_secs(5);
            read(&mut ahead, later, 1, at * READ).is_some()
        });
        assert!(is_own && later >= now + TOLD);
        assert_eq!((ahead.told_bytes, ahead.sequential), (0, 1));
    }

    /// Goal: what gateways want has a bound for each reader and one for all, and an end
    /// gives all of it back.
    #[test]
    fn what_gateways_want_is_bounded() {
        let mut ahead = Ahead::new(1 << 30);
        let now = Time::from_secs(1);
        for from in (0..SIZE).step_by(1 << 20) {
            towards(&mut ahead, now, 1, (from, from + (1 << 20)));
        }
        assert_eq!(ahead.told_bytes, READ_AHEAD_TOLD_BYTES_MAX);
        for number in 2..10 {
            for from in (0..SIZE).step_by(1 << 20) {
                towards(&mut ahead, now, number, (from, from + (1 << 20)));
            }
        }
        assert_eq!(ahead.told_bytes, (1 << 30) / CACHE_SHARE);
        for number in 1..10 {
            assert_eq!(
                ahead.told_at(&object(number), (SIZE, SIZE + 1)),
                Vec::<u64>::new()
            );
            for stream in ahead.told_at(&object(number), (0, SIZE)) {
                ahead.end(stream);
            }
        }
        assert_eq!((ahead.told_bytes, ahead.sequential), (0, 0));
    }
}
