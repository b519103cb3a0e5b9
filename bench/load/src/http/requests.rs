//! As many whole files as are answered, or at a rate: connections that stay, with several
//! requests on their way, or one connection for each request.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use crossdock_slowdisk::content;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use serde_json::{Value, json};

use super::connection::{Answer, Connection, Step};
use super::wanted::{Choice, Wanted};
use super::{Class, Place, Version, percentiles};
use crate::pace::Pace;
use crate::usage::Usage;

/// Bytes looked at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Most requests of a connection of `mixed` that stays (SPIRAL 3.3).
const MIXED_MAX: usize = 10;
/// Of its connections so many stay: they have 5.5 requests on average, so that one half of
/// all requests is theirs.
const MIXED_STAY: f64 = 1.0 / 6.5;

#[derive(Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    place: Place,
    /// Files: `prefix=P,count=N,size=BYTES,weight=W,range=BYTES`.
    #[arg(long = "class", required = true)]
    classes: Vec<Class>,
    /// Connections.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Requests on their way on each.
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Requests of each connection, after which it is opened anew; none: it stays.
    #[arg(long)]
    per_connection: Option<usize>,
    /// HTTP/1.0: a connection for each request.
    #[arg(long)]
    old: bool,
    /// One half of the requests HTTP/1.0, the other on connections of 1 to 10 requests, 1 to
    /// 10 of them on their way.
    #[arg(long, conflicts_with_all = ["old", "per_connection", "pipeline"])]
    mixed: bool,
    /// Requests in a second, of all connections; none: as many as are answered. Times count
    /// from when a request was due.
    #[arg(long, conflicts_with_all = ["old", "mixed", "per_connection", "pipeline"])]
    rate: Option<f64>,
    /// Seconds until no more is asked.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

/// One of the clients.
struct Client {
    connection: Connection,
    habit: Habit,
    /// What was asked, and when.
    asked: VecDeque<(usize, Instant)>,
    /// Requests since it was opened.
    count: usize,
    /// Bytes of the answer that have come.
    at: u64,
}

/// How a connection is used.
#[derive(Clone, Copy)]
struct Habit {
    version: Version,
    /// Requests on their way.
    pipeline: usize,
    /// Requests in all.
    most: usize,
}

impl Habit {
    fn of(flags: &Flags, choice: &mut Choice) -> Self {
        let is_old = match flags.mixed {
            true => !choice.happens(MIXED_STAY),
            false => flags.old,
        };
        if is_old {
            return Self {
                version: Version::Old,
                pipeline: 1,
                most: 1,
            };
        }
        let (pipeline, most) = match flags.mixed {
            true => (choice.up_to(MIXED_MAX), choice.up_to(MIXED_MAX)),
            false => (flags.pipeline, flags.per_connection.unwrap_or(usize::MAX)),
        };
        Self {
            version: Version::New,
            pipeline,
            most,
        }
    }
}

/// What all of them have got.
#[derive(Default)]
struct Got {
    times: Vec<Duration>,
    bytes: u64,
    opened: u64,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<Value> {
    ensure!(
        flags.connections > 0 && flags.pipeline > 0,
        "connections and pipeline must be at least 1"
    );
    let mut crowd = Crowd::new(flags)?;
    let (before, own_before) = (flags.place.usage()?, Usage::of("self")?);
    let begun = Instant::now();
    crowd.drive(begun + Duration::from_secs_f64(flags.seconds))?;
    let seconds = begun.elapsed().as_secs_f64();
    let spent = flags.place.usage()?.since(&before);
    let own = Usage::of("self")?.since(&own_before);
    let Got {
        times,
        bytes,
        opened,
    } = crowd.got;
    ensure!(!times.is_empty(), "no request was answered");
    let operations = times.len();
    let mut figures = percentiles(times);
    for (key, value) in [
        ("operations", json!(operations)),
        ("bytes", json!(bytes)),
        ("seconds", json!(seconds)),
        ("connections_opened", json!(opened)),
        ("load_cpu_seconds", json!(own.cpu_seconds)),
        ("server_cpu_seconds", json!(spent.cpu_seconds)),
        ("server_context_switches", json!(spent.context_switches)),
    ] {
        figures[key] = value;
    }
    Ok(figures)
}

/// All clients.
struct Crowd<'flags> {
    flags: &'flags Flags,
    choice: Choice,
    clients: Vec<Option<Client>>,
    pace: Option<Pace>,
    epoll: rustix::fd::OwnedFd,
    buffer: Vec<u8>,
    got: Got,
}

impl<'flags> Crowd<'flags> {
    fn new(flags: &'flags Flags) -> anyhow::Result<Self> {
        let pace = flags.rate.map(|rate| Pace::new(rate, Instant::now()));
        Ok(Self {
            flags,
            choice: Choice::new(&flags.place, &flags.classes),
            clients: Vec::new(),
            pace: pace.transpose()?,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            buffer: vec![0; CHUNK_BYTES],
            got: Got::default(),
        })
    }

    fn drive(&mut self, until: Instant) -> anyhow::Result<()> {
        for number in 0..self.flags.connections {
            self.clients.push(None);
            self.open(number)?;
        }
        let mut events = Vec::with_capacity(self.flags.connections);
        let patience = Duration::from_millis(100);
        let mut idle = Instant::now();
        while self.clients.iter().any(Option::is_some) {
            events.clear();
            let now = Instant::now();
            let due = self.ask_due(now, now < until)?;
            let patience = due.map_or(patience, |due| patience.min(due - now));
            let patience = Timespec::try_from(patience)?;
            epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&patience))?;
            ensure!(
                idle.elapsed() < Duration::from_secs(30),
                "no answer for 30 seconds"
            );
            for event in &events {
                idle = Instant::now();
                let number = usize::try_from(event.data.u64())?;
                self.turn(number, idle < until)?;
            }
        }
        Ok(())
    }

    /// Has those that rest ask for what is due, or go; when something is due next for one that
    /// rests.
    fn ask_due(&mut self, now: Instant, is_going_on: bool) -> anyhow::Result<Option<Instant>> {
        let Some(pace) = &mut self.pace else {
            return Ok(None);
        };
        for place in &mut self.clients {
            let Some(client) = place.as_mut().filter(|it| it.asked.is_empty()) else {
                continue;
            };
            if !is_going_on {
                *place = None;
                continue;
            }
            let Some(due) = pace.take(now) else {
                return Ok(Some(pace.due()));
            };
            let which = self.choice.next();
            let request = self.choice.get(which).request(Version::New);
            client.asked.push_back((which, due));
            client.connection.ask(request, 1)?;
        }
        Ok(None)
    }

    /// Opens a connection and asks.
    fn open(&mut self, number: usize) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.flags.place.server, None, None)?;
        if self.flags.place.check {
            connection.check();
        }
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&self.epoll, &connection, data, epoll::EventFlags::IN)?;
        self.got.opened += 1;
        let client = self.clients[number].insert(Client {
            connection,
            habit: Habit::of(self.flags, &mut self.choice),
            asked: VecDeque::new(),
            count: 0,
            at: 0,
        });
        match self.pace {
            Some(_) => Ok(()),
            None => client.ask(&mut self.choice),
        }
    }

    fn turn(&mut self, number: usize, is_going_on: bool) -> anyhow::Result<()> {
        let Some(client) = &mut self.clients[number] else {
            return Ok(());
        };
        let buffer = &mut self.buffer;
        let mut is_over = false;
        loop {
            match client.connection.advance(usize::MAX, buffer)? {
                Step::Blocked => break,
                Step::Closed => {
                    is_over = true;
                    break;
                }
                Step::Head(answer) => client.begin(answer, &self.choice)?,
                Step::Body(count) => {
                    if self.flags.place.check {
                        client.check(&buffer[..count], &self.choice)?;
                    }
                    client.at += count as u64;
                    self.got.bytes += count as u64;
                }
                Step::End => {
                    let (_, asked) = client.asked.pop_front().context("asked for nothing")?;
                    self.got.times.push(asked.elapsed());
                    is_over = client.connection.ends() || client.habit.version == Version::Old;
                    if is_over {
                        break;
                    }
                    if self.pace.is_some() {
                        return Ok(());
                    }
                    if is_going_on {
                        client.ask(&mut self.choice)?;
                    }
                    is_over = client.connection.outstanding() == 0;
                    if is_over {
                        break;
                    }
                }
            }
        }
        if is_over {
            // What was asked behind an answer that ended the connection is asked anew.
            if let Some(client) = self.clients[number].take() {
                client.connection.reset()?;
            }
            if is_going_on {
                self.open(number)?;
            }
        }
        Ok(())
    }
}

impl Client {
    /// Asks for as many files as may be on their way.
    fn ask(&mut self, choice: &mut Choice) -> anyhow::Result<()> {
        let Habit {
            version,
            pipeline,
            most,
        } = self.habit;
        // Half of them at a time, so that several leave in one segment.
        if self.asked.len() > pipeline / 2 {
            return Ok(());
        }
        let (mut requests, mut count) = (Vec::new(), 0);
        while self.asked.len() < pipeline && self.count < most {
            let which = choice.next();
            requests.extend_from_slice(choice.get(which).request(version));
            self.asked.push_back((which, Instant::now()));
            self.count += 1;
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        self.connection.ask(&requests, count)
    }

    fn wanted<'choice>(&self, choice: &'choice Choice) -> anyhow::Result<&'choice Wanted> {
        let (which, _) = self.asked.front().context("asked for nothing")?;
        Ok(choice.get(*which))
    }

    fn begin(&mut self, answer: Answer, choice: &Choice) -> anyhow::Result<()> {
        let wanted = self.wanted(choice)?;
        let Answer { status, length } = answer;
        ensure!(
            status == wanted.status && length == wanted.size,
            "status {status}, {length} bytes of {}",
            wanted.size
        );
        self.at = 0;
        Ok(())
    }

    fn check(&self, bytes: &[u8], choice: &Choice) -> anyhow::Result<()> {
        let wanted = self.wanted(choice)?;
        let from = wanted.from + self.at;
        let is_right = content::is_right(wanted.number, from, bytes);
        ensure!(is_right, "wrong content from {from} on");
        Ok(())
    }
}
