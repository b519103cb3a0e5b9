//! Which depots there are, and what is answered.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crossdock_forecast::Forecaster;
use crossdock_ibp::Totals;
use crossdock_lbone::{Answer, Depot, DepotQuery, ERROR_PARAMETERS, Request, Resolution};
use crossdock_limits::LBONE_DEPOTS_MAX;
use crossdock_types::Time;

use crate::location::{Location, Point, miles};

/// Polls that a depot may leave unanswered before it is told to nobody.
pub const MISSED_MAX: u32 = 3;

/// What is known of a depot before it is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Host and port.
    pub depot: Depot,
    /// Where it is, and what it has.
    pub location: Location,
    /// How often it is asked for its room.
    pub poll_every: Duration,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A depot has answered a poll, or not.
    Polled {
        /// Which.
        depot: Depot,
        /// What it said.
        totals: Option<Totals>,
        /// How long that took.
        elapsed: Duration,
    },
    /// Time has passed.
    Timeout,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask a depot for its room (IBP STATUS), and tell what it said.
    Poll(Depot),
}

/// The machine; see the crate's page.
#[derive(Debug)]
pub struct Directory {
    depots: BTreeMap<Depot, Known>,
    effects: VecDeque<Effect>,
}

#[derive(Debug)]
struct Known {
    record: Record,
    /// What it said last.
    totals: Option<Totals>,
    missed: u32,
    /// Of how long it takes to answer, in seconds: the polls are light probes.
    latency: Forecaster,
    next_poll: Time,
    is_asked: bool,
}

impl Known {
    fn new(now: Time, record: Record) -> Self {
        Self {
            totals: None,
            missed: 0,
            latency: Forecaster::default(),
            next_poll: now,
            is_asked: false,
            record,
        }
    }

    /// How long its next answer is expected to take, in steps of twice as long; a millisecond
    /// and less is one: those in one step share the load.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small positive number"
    )]
    fn slowness(&self) -> u32 {
        let forecast = self.latency.forecast();
        let millis = forecast.map_or(f64::MAX, |forecast| forecast.value * 1e3);
        millis.max(1.0).log2() as u32
    }

    fn is_live(&self) -> bool {
        self.totals.is_some() && self.missed < MISSED_MAX
    }

    fn fits(&self, query: &DepotQuery) -> bool {
        let Some(totals) = self.totals else {
            return false;
        };
        let free = |all: u64, used: u64| all.saturating_sub(used);
        let longest = totals.duration_seconds_max;
        free(totals.stable_mib, totals.stable_used_mib) >= query.stable_mb
            && free(totals.volatile_mib, totals.volatile_used_mib) >= query.volatile_mb
            && longest.is_none_or(|longest| longest >= query.duration_seconds)
    }
}

impl Directory {
    /// One that knows of these depots, and has all of them asked at once. More than
    /// [`LBONE_DEPOTS_MAX`] are left out.
    #[must_use]
    pub fn new(now: Time, records: impl IntoIterator<Item = Record>) -> Self {
        let mut directory = Self {
            depots: BTreeMap::new(),
            effects: VecDeque::new(),
        };
        directory.update(now, records);
        directory
    }

    /// These are all depots that there are from now on. What is known of one stays; new ones are
    /// asked at once. More than [`LBONE_DEPOTS_MAX`] are left out.
    pub fn update(&mut self, now: Time, records: impl IntoIterator<Item = Record>) {
        let mut before = std::mem::take(&mut self.depots);
        for record in records.into_iter().take(LBONE_DEPOTS_MAX as usize) {
            let known = match before.remove(&record.depot) {
                Some(known) => Known { record, ..known },
                None => Known::new(now, record),
            };
            self.depots.insert(known.record.depot.clone(), known);
        }
        self.poll(now);
    }

    /// Takes what has happened.
    pub fn handle(&mut self, now: Time, input: Input) {
        if let Input::Polled {
            depot,
            totals,
            elapsed,
        } = input
            && let Some(known) = self.depots.get_mut(&depot)
        {
            known.is_asked = false;
            known.next_poll = now + known.record.poll_every;
            known.missed = match totals {
                Some(_) => 0,
                None => known.missed.saturating_add(1),
            };
            if totals.is_some() {
                known.latency.observe(elapsed.as_secs_f64());
            }
            known.totals = totals.or(known.totals);
        }
        self.poll(now);
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to tell that time has passed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let idle = self.depots.values().filter(|known| !known.is_asked);
        idle.map(|known| known.next_poll).min()
    }

    fn poll(&mut self, now: Time) {
        for (depot, known) in &mut self.depots {
            if !known.is_asked && known.next_poll <= now {
                known.is_asked = true;
                self.effects.push_back(Effect::Poll(depot.clone()));
            }
        }
    }

    /// Answers a request; `random` decides where no place does.
    #[must_use]
    pub fn answer(&self, request: &Request, random: u64) -> Answer {
        match request {
            Request::Depots(query) => Answer::Depots(self.find(query, random)),
            Request::Count => {
                let live = self.depots.values().filter(|known| known.is_live()).count();
                let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
                Answer::Count {
                    total: number(self.depots.len()),
                    live: number(live),
                }
            }
            Request::Proximity { location } => self.proximity(location),
            Request::Resolution {
                kind: Resolution::Geographic,
                sources,
                targets,
            } => self.resolution(sources, targets),
            // Nobody measures between depots here.
            Request::Resolution { .. } => Answer::Failure(ERROR_PARAMETERS),
        }
    }

    fn find(&self, query: &DepotQuery, random: u64) -> Vec<Depot> {
        let wanted = Location::parse(&query.location);
        let place = self.place_of(&wanted);
        let live = self.depots.values().filter(|known| known.is_live());
        let good = live.filter(|known| known.fits(query) && known.record.location.has_all(&wanted));
        let mut found: Vec<(u64, u32, u64, &Depot)> = good
            .map(|known| {
                let distance = distance(place, known.record.location.point);
                let depot = &known.record.depot;
                let slowness = known.slowness();
                (distance, slowness, shuffled(depot, random), depot)
            })
            .collect();
        found.sort();
        let most = query.depots_max.unwrap_or(LBONE_DEPOTS_MAX) as usize;
        let nearest = found.into_iter().take(most);
        nearest.map(|(.., depot)| depot.clone()).collect()
    }

    /// Where that is: by its own words, or where the depot of that host is.
    fn place_of(&self, wanted: &Location) -> Option<Point> {
        let of_host = || {
            let host = wanted.host.as_deref()?;
            let mut depots = self.depots.values();
            depots
                .find(|known| known.record.depot.host == host)?
                .record
                .location
                .point
        };
        wanted.point.or_else(of_host)
    }

    fn proximity(&self, location: &str) -> Answer {
        let Some(place) = self.place_of(&Location::parse(location)) else {
            return Answer::Failure(ERROR_PARAMETERS);
        };
        let live = self.depots.values().filter(|known| known.is_live());
        let mut near: Vec<(String, f64)> = live
            .filter_map(|known| {
                let point = known.record.location.point?;
                Some((known.record.depot.host.clone(), miles(place, point)))
            })
            .collect();
        near.sort_by(|a, b| a.1.total_cmp(&b.1));
        Answer::Proximity(near)
    }

    fn resolution(&self, sources: &[Depot], targets: &[Depot]) -> Answer {
        let point = |depot: &Depot| self.depots.get(depot)?.record.location.point;
        let pairs = sources
            .iter()
            .flat_map(|from| targets.iter().map(move |to| (from, to)));
        let values = pairs.map(|(from, to)| Some(miles(point(from)?, point(to)?)));
        let count = |depots: &[Depot]| u32::try_from(depots.len()).unwrap_or(u32::MAX);
        match values.collect() {
            Some(values) => Answer::Resolution {
                sources: count(sources),
                targets: count(targets),
                values,
            },
            None => Answer::Failure(ERROR_PARAMETERS),
        }
    }
}

/// Whole miles; all are as far from nowhere, and those that are nowhere are farthest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most half way round the earth"
)]
fn distance(from: Option<Point>, to: Option<Point>) -> u64 {
    match (from, to) {
        (None, _) => 0,
        (Some(_), None) => u64::MAX,
        (Some(from), Some(to)) => miles(from, to) as u64,
    }
}

/// An order that is another one for each request.
fn shuffled(depot: &Depot, random: u64) -> u64 {
    let text = depot.host.bytes().chain(depot.port.to_be_bytes());
    // FNV-1a, begun with what is random.
    text.fold(random ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte))
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(23)
    })
}
