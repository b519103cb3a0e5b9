//! Streams: each reads its file at its own rate, over and over, as a player would;
//! without a rate, as fast as it comes.
//!
//! A stream that was not served in time catches up by at most [`CATCH_UP`]: what a
//! player has not shown in time is lost. At a given moment some may reset their
//! connections or stop reading.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use crossdock_slowdisk::content;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use serde_json::{Value, json};

use super::connection::{Connection, Step};
use super::group::Group;
use super::{Place, Version, file_number, monotonic, percentiles};
use crate::usage::Usage;

/// How often a stream reads.
const TURN: Duration = Duration::from_millis(100);
/// What it may be late at most.
const CATCH_UP: Duration = Duration::from_millis(250);
/// Bytes that one without a rate reads before it is another's turn.
const TURN_BYTES: usize = 1 << 20;
/// Bytes looked at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// How long it goes on waiting for connections that are refused.
const RETRY: Duration = Duration::from_millis(200);

#[derive(Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    place: Place,
    /// Streams of one kind: `name=`, `prefix=`, `count=`, `size=` (bytes of each file),
    /// `rate=` (bytes per second; 0: as fast as it comes), `shared=` (so many read the
    /// first file), `first=` (number of the first file), `server=` (where it is, if it is
    /// elsewhere for them), `start=` and `ramp=` (seconds until the first and from it to
    /// the last), `until=` (seconds until all of them go away), `reset=` and `stall=` (so
    /// many do at the moment).
    #[arg(long = "group", required = true)]
    groups: Vec<Group>,
    /// Seconds from the beginning to the end.
    #[arg(long)]
    seconds: f64,
    /// Seconds until rates are measured.
    #[arg(long)]
    from: f64,
    /// The moment, in seconds: what is measured before and after it is told apart.
    #[arg(long)]
    moment: Option<f64>,
    /// For SO_RCVBUF, in bytes.
    #[arg(long)]
    receive_buffer: Option<usize>,
    /// For TCP_MAXSEG, in bytes.
    #[arg(long)]
    segment: Option<u32>,
}

/// One stream.
struct Stream {
    group: usize,
    name: String,
    number: u32,
    rate: f64,
    size: u64,
    server: Option<SocketAddr>,
    start: Duration,
    until: Option<Duration>,
    at_moment: Fate,
    connection: Option<Connection>,
    /// Whether that is on its way: nothing was asked yet.
    is_connecting: bool,
    connected: Option<Duration>,
    /// Bytes that it may read, as of `reckoned`.
    credit: f64,
    reckoned: Duration,
    /// Where it is in its file.
    at: u64,
    asked: Duration,
    first_byte: Option<Duration>,
    /// Bytes before and behind the moment.
    before: u64,
    behind: u64,
    per_second: Vec<u64>,
    failures: u32,
    is_ended: bool,
}

/// What a stream does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    GoesOn,
    Resets,
    Stalls,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<Value> {
    ensure!(
        0.0 <= flags.from && flags.from < flags.seconds,
        "from must be before the end"
    );
    let mut crowd = Crowd::new(flags)?;
    crowd.drive()?;
    crowd.figures()
}

/// All streams.
struct Crowd<'flags> {
    flags: &'flags Flags,
    streams: Vec<Stream>,
    /// When a stream has its next turn.
    turns: BinaryHeap<Reverse<(Duration, usize)>>,
    epoll: rustix::fd::OwnedFd,
    begun: Duration,
    from: Duration,
    moment: Duration,
    end: Duration,
    usage: Vec<(Usage, Usage)>,
    /// How late turns were, of which there are some for each stream and second.
    late: Vec<Duration>,
    buffer: Vec<u8>,
}

impl<'flags> Crowd<'flags> {
    fn new(flags: &'flags Flags) -> anyhow::Result<Self> {
        let mut streams = Vec::new();
        for (place, group) in flags.groups.iter().enumerate() {
            for number in 0..group.count {
                let file = if number < group.shared { 0 } else { number };
                let name = format!("{}{:05}", group.prefix, group.first + file);
                let at_moment = match evenly(number, group.count, group.reset + group.stall) {
                    Some(nth) if nth < group.reset => Fate::Resets,
                    Some(_) => Fate::Stalls,
                    None => Fate::GoesOn,
                };
                let part = number as f64 / group.count as f64;
                streams.push(Stream::new(group, place, name, part, at_moment));
            }
        }
        let seconds = Duration::try_from_secs_f64;
        let end = seconds(flags.seconds)?;
        let turns = streams.iter().enumerate();
        let turns = turns.flat_map(|(number, stream)| {
            let times = std::iter::once(stream.start).chain(stream.until);
            times.map(move |time| Reverse((time, number)))
        });
        Ok(Self {
            flags,
            turns: turns.collect(),
            streams,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            begun: monotonic(),
            from: seconds(flags.from)?,
            moment: flags.moment.map_or(Ok(end), seconds)?,
            end,
            usage: Vec::new(),
            late: Vec::new(),
            buffer: vec![0; CHUNK_BYTES],
        })
    }

    fn now(&self) -> Duration {
        monotonic().saturating_sub(self.begun)
    }

    fn drive(&mut self) -> anyhow::Result<()> {
        let mut events = Vec::with_capacity(self.streams.len());
        let mut is_past_moment = false;
        loop {
            let now = self.now();
            if now >= self.from && self.usage.is_empty() {
                self.look()?;
            }
            if now >= self.moment && !is_past_moment {
                is_past_moment = true;
                self.pass_moment()?;
            }
            if now >= self.end {
                return self.look();
            }
            while let Some(&Reverse((due, number))) = self.turns.peek()
                && due <= now
            {
                self.turns.pop();
                self.late.push(now - due);
                self.turn(number)?;
            }
            let mut next = self.end;
            if self.usage.is_empty() {
                next = next.min(self.from);
            }
            if !is_past_moment {
                next = next.min(self.moment);
            }
            if let Some(&Reverse((due, _))) = self.turns.peek() {
                next = next.min(due);
            }
            let patience = Timespec::try_from(next.saturating_sub(self.now()))?;
            events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&patience))?;
            for event in &events {
                self.turn(usize::try_from(event.data.u64())?)?;
            }
        }
    }

    fn look(&mut self) -> anyhow::Result<()> {
        self.usage
            .push((self.flags.place.usage()?, Usage::of("self")?));
        Ok(())
    }

    /// Some reset their connections, some stop reading.
    fn pass_moment(&mut self) -> anyhow::Result<()> {
        for stream in &mut self.streams {
            match stream.at_moment {
                Fate::GoesOn => continue,
                Fate::Resets => {
                    if let Some(connection) = stream.connection.take() {
                        connection.reset()?;
                    }
                }
                // It stays open, and nobody reads.
                Fate::Stalls => {}
            }
            stream.is_ended = true;
        }
        Ok(())
    }

    /// Lets a stream read what it may.
    fn turn(&mut self, number: usize) -> anyhow::Result<()> {
        let now = self.now();
        let stream = &mut self.streams[number];
        if stream.is_ended {
            return Ok(());
        }
        if stream.until.is_some_and(|until| until <= now) {
            stream.connection = None;
            stream.is_ended = true;
            return Ok(());
        }
        if stream.connection.is_none() || stream.is_connecting {
            return self.connect(number, now);
        }
        let is_counted = now >= self.from;
        let is_behind = now >= self.moment;
        let rest = stream.read(self.flags, now, &mut self.buffer, |stream, count| {
            let second = usize::try_from(now.as_secs()).unwrap_or(0);
            if stream.per_second.len() <= second {
                stream.per_second.resize(second + 1, 0);
            }
            stream.per_second[second] += count;
            if is_counted && !is_behind {
                stream.before += count;
            } else if is_behind {
                stream.behind += count;
            }
        })?;
        match rest {
            Rest::UntilReadable => {
                let data = epoll::EventData::new_u64(number as u64);
                let connection = stream.connection.as_ref().context("no connection")?;
                epoll::modify(&self.epoll, connection, data, wanted())?;
            }
            Rest::Until(due) => self.turns.push(Reverse((due, number))),
        }
        Ok(())
    }

    /// Begins to connect, or asks if that has worked; later once more if it has not.
    fn connect(&mut self, number: usize, now: Duration) -> anyhow::Result<()> {
        let stream = &mut self.streams[number];
        let is_new = !stream.is_connecting;
        let step = match is_new {
            true => stream.open(self.flags, now),
            false => stream.ask_first(self.flags, now),
        };
        let data = epoll::EventData::new_u64(number as u64);
        let writable = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
        match (step, &stream.connection) {
            (Ok(()), Some(connection)) if is_new => {
                epoll::add(&self.epoll, connection, data, writable)?;
            }
            (Ok(()), Some(connection)) => {
                epoll::modify(&self.epoll, connection, data, wanted())?;
            }
            _ => {
                stream.connection = None;
                stream.is_connecting = false;
                stream.failures += 1;
                self.turns.push(Reverse((now + RETRY, number)));
            }
        }
        Ok(())
    }

    fn figures(&self) -> anyhow::Result<Value> {
        let [(server_from, own_from), (server_to, own_to)] = &self.usage[..] else {
            bail!("nothing was measured");
        };
        let (spent, own) = (server_to.since(server_from), own_to.since(own_from));
        let before_seconds = (self.moment.min(self.end) - self.from).as_secs_f64();
        let behind_seconds = (self.end - self.moment).as_secs_f64();
        let bytes: u64 = self.streams.iter().map(|it| it.before + it.behind).sum();
        let in_all = self.streams.iter().flat_map(|it| &it.per_second);
        let in_all: u64 = in_all.sum();
        let mut groups = Vec::new();
        for (place, group) in self.flags.groups.iter().enumerate() {
            let members: Vec<&Stream> =
                self.streams.iter().filter(|it| it.group == place).collect();
            let mut figures = group_figures(group, &members, before_seconds, behind_seconds);
            figures["from_second"] = json!(self.from.as_secs_f64());
            groups.push(figures);
        }
        let firsts = self.streams.iter().filter_map(|stream| stream.first_byte);
        let mut figures = percentiles(firsts.collect());
        let nanoseconds = |time: Duration| u64::try_from((self.begun + time).as_nanos()).ok();
        let gone = self.streams.iter();
        let gone = gone.filter(|it| it.is_ended && it.at_moment != Fate::GoesOn);
        for (key, value) in [
            ("groups", json!(groups)),
            ("bytes", json!(bytes)),
            ("bytes_in_all", json!(in_all)),
            ("seconds", json!((self.end - self.from).as_secs_f64())),
            ("from_ns", json!(nanoseconds(self.from))),
            ("moment_ns", json!(nanoseconds(self.moment))),
            ("end_ns", json!(nanoseconds(self.end))),
            ("gone", json!(gone.map(|it| &it.name).collect::<Vec<_>>())),
            // Where this is much, the load generator itself was not served in time.
            ("late", percentiles(self.late.clone())),
            ("load_cpu_seconds", json!(own.cpu_seconds)),
            ("server_cpu_seconds", json!(spent.cpu_seconds)),
            ("server_context_switches", json!(spent.context_switches)),
        ] {
            figures[key] = value;
        }
        Ok(figures)
    }
}

/// Where `count` of `all` are taken evenly: which of the taken this one is.
fn evenly(number: usize, all: usize, count: usize) -> Option<usize> {
    let nth = |number: usize| number * count / all.max(1);
    (nth(number + 1) > nth(number)).then(|| nth(number))
}

fn wanted() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::ONESHOT
}

/// When a stream goes on.
enum Rest {
    UntilReadable,
    Until(Duration),
}

impl Stream {
    fn new(group: &Group, place: usize, name: String, part: f64, at_moment: Fate) -> Self {
        Self {
            group: place,
            number: file_number(&name),
            name,
            rate: group.rate,
            size: group.size,
            server: group.server,
            start: group.start + group.ramp.mul_f64(part),
            until: group.until,
            at_moment,
            connection: None,
            is_connecting: false,
            connected: None,
            credit: 0.0,
            reckoned: Duration::ZERO,
            at: 0,
            asked: Duration::ZERO,
            first_byte: None,
            before: 0,
            behind: 0,
            per_second: Vec::new(),
            failures: 0,
            is_ended: false,
        }
    }

    /// Begins to open the connection.
    fn open(&mut self, flags: &Flags, now: Duration) -> anyhow::Result<()> {
        let server = self.server.unwrap_or(flags.place.server);
        let mut connection = Connection::begin(server, flags.receive_buffer, flags.segment)?;
        if flags.place.check {
            connection.check();
        }
        self.connection = Some(connection);
        self.is_connecting = true;
        self.asked = now;
        Ok(())
    }

    /// Asks for the file, as it is connected.
    fn ask_first(&mut self, flags: &Flags, now: Duration) -> anyhow::Result<()> {
        let request = self.request(flags);
        let connection = self.connection.as_mut().context("no connection")?;
        connection.connected()?;
        connection.ask(&request, 1)?;
        self.is_connecting = false;
        if self.connected.is_none() {
            self.connected = Some(now.saturating_sub(self.asked));
        }
        self.reckoned = now;
        Ok(())
    }

    fn request(&self, flags: &Flags) -> Vec<u8> {
        flags.place.request("GET", &self.name, Version::New, "")
    }

    /// Reads what it may; `count` is told of bytes of bodies.
    fn read(
        &mut self,
        flags: &Flags,
        now: Duration,
        buffer: &mut [u8],
        count: impl Fn(&mut Self, u64),
    ) -> anyhow::Result<Rest> {
        let mut allowed = self.allowed(now);
        loop {
            // An answer that is whole is followed by the next request: nothing else comes
            // that could be waited for.
            let is_whole = self.connection.as_ref().is_some_and(Connection::is_whole);
            if allowed == 0 && !is_whole {
                return Ok(match self.rate > 0.0 {
                    true => Rest::Until(now + TURN),
                    false => Rest::UntilReadable,
                });
            }
            let Some(connection) = &mut self.connection else {
                return Ok(Rest::Until(now + RETRY));
            };
            // A server may be killed: that is a result, and not the end of the load.
            match connection.advance(allowed, buffer).unwrap_or(Step::Closed) {
                Step::Blocked => return Ok(Rest::UntilReadable),
                Step::Closed => {
                    self.connection = None;
                    self.failures += 1;
                    return Ok(Rest::Until(now + RETRY));
                }
                Step::Head(answer) => {
                    let is_right = answer.status == 200 && answer.length == self.size;
                    ensure!(is_right, "{}: {answer:?}", self.name);
                    self.at = 0;
                }
                Step::Body(bytes) => {
                    if self.first_byte.is_none() {
                        self.first_byte = Some(now.saturating_sub(self.asked));
                    }
                    let is_right = !flags.place.check
                        || content::is_right(self.number, self.at, &buffer[..bytes]);
                    ensure!(is_right, "{}: wrong from {} on", self.name, self.at);
                    self.at += bytes as u64;
                    self.credit -= bytes as f64;
                    allowed -= bytes;
                    count(self, bytes as u64);
                }
                Step::End => {
                    let request = self.request(flags);
                    let connection = self.connection.as_mut().context("no connection")?;
                    if connection.ends() || connection.ask(&request, 1).is_err() {
                        self.connection = None;
                        return Ok(Rest::Until(now));
                    }
                }
            }
        }
    }

    /// Bytes that it may read now.
    fn allowed(&mut self, now: Duration) -> usize {
        if self.rate == 0.0 {
            return TURN_BYTES;
        }
        let since = now.saturating_sub(self.reckoned).as_secs_f64();
        let most = self.rate * CATCH_UP.as_secs_f64();
        self.credit = (self.credit + since * self.rate).min(most);
        self.reckoned = now;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between zero and some megabytes"
        )]
        let allowed = self.credit.max(0.0) as usize;
        allowed
    }
}

fn group_figures(group: &Group, members: &[&Stream], before: f64, behind: f64) -> Value {
    let going_on = || members.iter().filter(|it| it.at_moment == Fate::GoesOn);
    let rates = |bytes: fn(&Stream) -> u64, seconds: f64| -> Vec<f64> {
        match seconds > 0.0 {
            true => going_on().map(|it| bytes(it) as f64 / seconds).collect(),
            false => Vec::new(),
        }
    };
    let seconds = members.iter().map(|it| it.per_second.len()).max();
    let per_second = (0..seconds.unwrap_or(0)).map(|second| {
        let parts = members.iter().filter_map(|it| it.per_second.get(second));
        parts.sum::<u64>()
    });
    let firsts = members.iter().filter_map(|it| it.first_byte);
    let connects = members.iter().filter_map(|it| it.connected);
    let failures: u32 = members.iter().map(|it| it.failures).sum();
    json!({
        "name": group.name,
        "rate": group.rate,
        "count": members.len(),
        "staying": going_on().count(),
        "before": spread(rates(|it| it.before, before), group.rate),
        "behind": spread(rates(|it| it.behind, behind), group.rate),
        "first_byte": percentiles(firsts.collect()),
        // Where that was new, it is a round trip.
        "connect": percentiles(connects.collect()),
        "failures": failures,
        "per_second": per_second.collect::<Vec<u64>>(),
    })
}

/// How rates of streams lie, in bytes per second; how many reached 95 % of what they
/// should; and Jain's index of fairness.
fn spread(mut rates: Vec<f64>, wanted: f64) -> Value {
    if rates.is_empty() {
        return Value::Null;
    }
    rates.sort_by(f64::total_cmp);
    let count = rates.len() as f64;
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let reached = rates.iter().filter(|&&rate| rate >= 0.95 * wanted).count();
    json!({
        "mean": sum / count,
        "min": rates[0],
        "p10": rates[rates.len() / 10],
        "median": rates[rates.len() / 2],
        "max": rates[rates.len() - 1],
        "reached": reached as f64 / count,
        "fairness": if squares > 0.0 { sum * sum / (count * squares) } else { 0.0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: those that stop are as many as were asked for, and not all neighbours.
    #[test]
    fn those_that_stop_are_spread() {
        let taken: Vec<usize> = (0..100)
            .filter(|&it| evenly(it, 100, 15).is_some())
            .collect();
        assert_eq!(taken.len(), 15);
        assert!(
            taken.windows(2).all(|pair| pair[1] - pair[0] >= 6),
            "{taken:?}"
        );
        let nth: Vec<usize> = (0..100).filter_map(|it| evenly(it, 100, 15)).collect();
        assert_eq!(nth, (0..15).collect::<Vec<_>>());
    }

    /// Goal: equal rates are fair, one that has all is not.
    #[test]
    fn fairness_is_jains() {
        let even = spread(vec![5.0; 4], 5.0);
        assert_eq!(
            (&even["fairness"], &even["reached"]),
            (&json!(1.0), &json!(1.0))
        );
        let uneven = spread(vec![0.0, 0.0, 0.0, 8.0], 5.0);
        assert_eq!(
            (&uneven["fairness"], &uneven["reached"]),
            (&json!(0.25), &json!(0.25))
        );
    }

    /// Goal: a stream that was not served in time does not get more than its catch-up.
    #[test]
    fn credit_is_bounded() {
        let group: Group = "count=1,rate=1000".parse().unwrap();
        let mut stream = Stream::new(&group, 0, "f".to_owned(), 0.0, Fate::GoesOn);
        assert_eq!(stream.allowed(Duration::from_millis(100)), 100);
        assert_eq!(stream.allowed(Duration::from_secs(60)), 250);
    }
}
