//! As many whole files as are answered: connections that stay, with several requests
//! on their way, or one connection for each request.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use crossdock_slowdisk::content;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use serde_json::{Value, json};

use super::connection::{Answer, Connection, Step};
use super::{Class, Place, Version, file_number, percentiles};
use crate::usage::Usage;

/// Bytes looked at a time.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    place: Place,
    /// Files: `prefix=P,count=N,size=BYTES,weight=W`.
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
    /// Seconds until no more is asked.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

/// A file that can be asked for.
struct Wanted {
    request: Vec<u8>,
    number: u32,
    size: u64,
}

/// One of the clients.
struct Client {
    connection: Connection,
    /// What was asked, and when.
    asked: VecDeque<(usize, Instant)>,
    /// Requests since it was opened.
    count: usize,
    /// Bytes of the answer that have come.
    at: u64,
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
    files: Vec<Wanted>,
    /// The weights of files, each added to those before it.
    weights: Vec<f64>,
    clients: Vec<Option<Client>>,
    epoll: rustix::fd::OwnedFd,
    random: u64,
    buffer: Vec<u8>,
    got: Got,
}

impl<'flags> Crowd<'flags> {
    fn new(flags: &'flags Flags) -> anyhow::Result<Self> {
        let version = if flags.old {
            Version::Old
        } else {
            Version::New
        };
        let (mut files, mut weights, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for class in &flags.classes {
            for name in (0..class.count).map(|number| class.name(number)) {
                sum += class.weight / count_as_f64(class.count);
                weights.push(sum);
                files.push(Wanted {
                    request: flags.place.request("GET", &name, version, ""),
                    number: file_number(&name),
                    size: class.size,
                });
            }
        }
        Ok(Self {
            flags,
            files,
            weights,
            clients: Vec::new(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            random: 0x9e37_79b9_7f4a_7c15,
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
        let patience = Timespec::try_from(Duration::from_millis(100))?;
        let mut idle = Instant::now();
        while self.clients.iter().any(Option::is_some) {
            events.clear();
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
            asked: VecDeque::new(),
            count: 0,
            at: 0,
        });
        let flags = self.flags;
        let (files, weights) = (&self.files, &self.weights);
        client.ask(flags, files, weights, &mut self.random)
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
                Step::Head(answer) => client.begin(answer, &self.files)?,
                Step::Body(count) => {
                    if self.flags.place.check {
                        client.check(&buffer[..count], &self.files)?;
                    }
                    client.at += count as u64;
                    self.got.bytes += count as u64;
                }
                Step::End => {
                    let (_, asked) = client.asked.pop_front().context("asked for nothing")?;
                    self.got.times.push(asked.elapsed());
                    is_over = client.connection.ends() || self.flags.old;
                    if is_over {
                        break;
                    }
                    if is_going_on {
                        let flags = self.flags;
                        client.ask(flags, &self.files, &self.weights, &mut self.random)?;
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
    fn ask(
        &mut self,
        flags: &Flags,
        files: &[Wanted],
        weights: &[f64],
        random: &mut u64,
    ) -> anyhow::Result<()> {
        let most = match (flags.old, flags.per_connection) {
            (true, _) => 1,
            (false, Some(most)) => most,
            (false, None) => usize::MAX,
        };
        // Half of them at a time, so that several leave in one segment.
        if self.asked.len() > flags.pipeline / 2 {
            return Ok(());
        }
        let (mut requests, mut count) = (Vec::new(), 0);
        while self.asked.len() < flags.pipeline && self.count < most {
            let part = random_part(random) * weights.last().copied().unwrap_or(1.0);
            let which = weights.partition_point(|&weight| weight <= part);
            let which = which.min(files.len() - 1);
            requests.extend_from_slice(&files[which].request);
            self.asked.push_back((which, Instant::now()));
            self.count += 1;
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        self.connection.ask(&requests, count)
    }

    fn begin(&mut self, answer: Answer, files: &[Wanted]) -> anyhow::Result<()> {
        let (which, _) = self.asked.front().context("asked for nothing")?;
        let size = files[*which].size;
        let Answer { status, length } = answer;
        ensure!(
            status == 200 && length == size,
            "status {status}, {length} bytes of {size}"
        );
        self.at = 0;
        Ok(())
    }

    fn check(&self, bytes: &[u8], files: &[Wanted]) -> anyhow::Result<()> {
        let (which, _) = self.asked.front().context("asked for nothing")?;
        let is_right = content::is_right(files[*which].number, self.at, bytes);
        ensure!(is_right, "wrong content from {} on", self.at);
        Ok(())
    }
}

/// Evenly from 0 to 1 (xorshift).
#[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
pub(super) fn random_part(random: &mut u64) -> f64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 11) as f64 / (1_u64 << 53) as f64
}

#[expect(clippy::cast_precision_loss, reason = "some thousand files")]
fn count_as_f64(count: usize) -> f64 {
    count as f64
}
