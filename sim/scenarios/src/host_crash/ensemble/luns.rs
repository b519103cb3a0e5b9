//! Initiators that share blocks of a LUN through several gateways: they read and write them, have
//! others copied there (EXTENDED COPY), and exchange them if they are what they have seen (COMPARE
//! AND WRITE), while processes and connections fail. In the end there has to be one order of all that was done to a block that
//! explains every answer (docs/decisions/0049).
//!
//! In half of the runs they have reserved it for all who are registered, and push each other out
//! (PREEMPT AND ABORT): of who was pushed out nothing is written behind the answer.

mod fencing;
mod register;
mod stranding;

use std::time::Duration;

use bytes::Bytes;
use crossdock_host::{LunWish, Mutation};
use crossdock_iscsi::ConnId;
use crossdock_iscsi_pdu::{Done, Initiator, Response, Said};
use crossdock_peer::LunAccess;
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::super::shell::mix;
use super::network::Place;
use super::world::World;
use super::{Faults, Shape, world_of};
use crate::store_crash::Outcome;
use fencing::{Fencing, Order};
use register::{Answer, Content, Operation, Register, Verdict};
use stranding::Stranded;

const INITIATORS: usize = 4;

/// Blocks that they share: two that a site has, and two that lie in columns.
const BLOCKS: [u32; 4] = [3, 127, 200, 519];

/// How many of these a site has.
const OF_SITE: usize = 2;

const BLOCK_BYTES: u32 = 512;

const LUN_BYTES: u64 = 1 << 20;

/// Blocks that are copied to those, each of them once: nobody writes them again. They lie in columns,
/// in another one than some of those.
const SOURCES_AT: u32 = 1024;
const SOURCES: u32 = 64;

/// What the first of them has: more than anybody writes elsewhere.
const FIRST_SOURCE: Content = 1 << 40;

/// Of a run, at most: the search goes through their orders.
const OPERATIONS_OF_BLOCK_MAX: usize = 120;

const FAULTS_MAX: u64 = 14;

/// A command that has no answer for so long is given up with its connection …
const IMPATIENCE: Duration = Duration::from_secs(40);

/// … and where the gateway has been replaced, earlier.
const IMPATIENCE_WITH_REPLACED: Duration = Duration::from_millis(700);

const RECONNECT_AFTER: Duration = Duration::from_millis(50);

/// Nothing that goes wrong keeps initiators from their blocks for longer.
const PATIENCE: Duration = Duration::from_mins(10);

struct Client {
    initiator: Initiator,
    connection: Option<ConnId>,
    is_logged_in: bool,
    /// What it waits for.
    asked: Option<Asked>,
    fencing: Fencing,
    since: Time,
    /// When it does something next.
    next_at: Time,
    /// What it has seen last of each block.
    seen: [Content; BLOCKS.len()],
}

/// What an initiator waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// One of the operations of a block, by both numbers.
    Block(usize, usize, Operation),
    Fencing(Order),
    /// What is copied later is written.
    Sources,
}

struct Driver {
    shape: Shape,
    /// Whether the LUN is reserved.
    is_reserved: bool,
    world: World,
    random: Random,
    clients: Vec<Client>,
    registers: Vec<Register>,
    connections: u64,
    contents: Content,
    /// Sources that were copied, or were to be; before they are there, all.
    copied: u32,
    tick: u64,
    calls: u64,
    crashes: u64,
    is_mended: bool,
    /// The next change loses what its gateway is connected with, …
    is_lurking: bool,
    /// … then, and that gateway.
    strikes_at: Option<(Time, Place)>,
    /// The next copy of who can be pushed out strands, …
    is_stranding: bool,
    /// … and has.
    stranded: Option<Stranded>,
    /// Somebody has been told that he has reserved the LUN; from then on somebody has.
    is_held: bool,
    /// How often somebody was pushed out.
    fenced_total: u64,
    /// Blocks with too many orders to look at.
    undecided: u64,
    history: Option<Vec<String>>,
}

/// Runs one seed; `history` keeps its lines.
#[must_use]
pub fn run(seed: u64, shape: Shape, mutation: Option<Mutation>, history: bool) -> Outcome {
    let mut random = Random::new(seed);
    let world = world_of(shape, mutation, &mut random);
    let mut driver = Driver::new(shape, world, random, history);
    let violation = driver.run().err();
    Outcome {
        violation,
        trace_hash: mix(driver.world.trace_hash, driver.world.events),
        crashes: driver.crashes,
        calls: driver.calls,
        simulated: driver.world.now.since(Time(0)),
        history: driver.history.unwrap_or_default(),
        gone_blocks: 0,
    }
}

impl Driver {
    fn new(shape: Shape, world: World, mut random: Random, history: bool) -> Self {
        let client = |number: usize| Client {
            initiator: Initiator::new(
                u8::try_from(number).unwrap_or_default(),
                "iqn.2026-11.io.crossdock:disk".to_owned(),
            ),
            connection: None,
            is_logged_in: false,
            asked: None,
            fencing: Fencing::default(),
            since: Time(0),
            next_at: Time(0),
            seen: [0; BLOCKS.len()],
        };
        Self {
            shape,
            is_reserved: random.coin(),
            world,
            random,
            clients: (0..INITIATORS).map(client).collect(),
            registers: BLOCKS.iter().map(|_| Register::default()).collect(),
            connections: 0,
            contents: 0,
            copied: SOURCES,
            tick: 0,
            calls: 0,
            crashes: 0,
            is_mended: false,
            is_lurking: false,
            strikes_at: None,
            is_stranding: false,
            stranded: None,
            is_held: false,
            fenced_total: 0,
            undecided: 0,
            history: history.then(Vec::new),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.make_lun()?;
        self.fill_sources()?;
        for _ in 0..self.random.between(1, 3) {
            let operations = self.random.between(30, 160);
            self.work(operations, self.shape.faults)?;
        }
        self.note(|| "all is mended".to_owned());
        self.world.heal();
        self.is_mended = true;
        self.work(0, Faults::None)?;
        self.settle(Duration::from_secs(8))?;
        // All see the same in the end.
        for client in 0..INITIATORS {
            for block in 0..BLOCKS.len() {
                self.look(client, block)?;
            }
        }
        self.judge()
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(format!("{:>9} µs  {}", self.world.now.0 / 1000, line()));
        }
    }

    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    fn make_lun(&mut self) -> Result<(), String> {
        let deadline = self.world.now + PATIENCE;
        let id = self.random.next_u64();
        while self.world.now < deadline {
            let places = 0..self.world.places();
            let mut open = places.filter(|&place| self.world.is_open(place));
            if let Some(place) = open.next() {
                let wish = LunWish {
                    id,
                    name: "disk".to_owned(),
                    size_bytes: LUN_BYTES,
                    block_bytes: BLOCK_BYTES,
                    is_thin: true,
                    is_removable: false,
                    has_write_cache: false,
                    from: None,
                    access: LunAccess::local(),
                };
                // It is tried again until the volume is there.
                if self.world.create_lun(place, wish).is_ok() {
                    while self.world.targets.orders.is_empty() && self.world.now < deadline {
                        self.step(deadline)?;
                    }
                    match self.world.targets.orders.pop_front() {
                        Some(Ok(_)) => return Ok(()),
                        other => self.note(|| format!("no LUN: {other:?}")),
                    }
                }
            }
            self.settle(Duration::from_millis(200))?;
        }
        Err("the LUN is never made".to_owned())
    }

    /// Has an initiator write what is copied later.
    fn fill_sources(&mut self) -> Result<(), String> {
        let deadline = self.world.now + PATIENCE;
        let mut cdb = [0; 16];
        cdb[0] = 0x8a;
        cdb[6..10].copy_from_slice(&SOURCES_AT.to_be_bytes());
        cdb[10..14].copy_from_slice(&SOURCES.to_be_bytes());
        let contents = FIRST_SOURCE..FIRST_SOURCE + Content::from(SOURCES);
        let blocks: Vec<u8> = contents.flat_map(block_of).collect();
        while self.copied > 0 && self.world.now < deadline {
            if self.may_act(0) {
                let client = &mut self.clients[0];
                let bytes = client.initiator.command(&cdb, 0, blocks.clone().into());
                client.asked = Some(Asked::Sources);
                client.since = self.world.now;
                if let Some(name) = client.connection {
                    self.world.send_to_target(name, bytes);
                }
            }
            self.step(self.world.now + Duration::from_millis(20))?;
        }
        match self.copied {
            0 => Ok(()),
            _ => Err("what is to be copied is never written".to_owned()),
        }
    }

    fn step(&mut self, wake: Time) -> Result<(), String> {
        self.world.step(wake)?;
        self.take_news()
    }

    fn settle(&mut self, pause: Duration) -> Result<(), String> {
        let until = self.world.now + pause;
        while self.world.now < until {
            self.step(until)?;
        }
        Ok(())
    }

    /// Has initiators do so many things, and waits for all answers.
    fn work(&mut self, operations: u64, faults: Faults) -> Result<(), String> {
        let mut left = operations;
        let mut fault_at = self.world.now + self.pause_before_fault();
        let mut faults_left = match faults {
            Faults::None => 0,
            _ => self.random.between(1, FAULTS_MAX),
        };
        let may_strand = faults == Faults::All && self.is_reserved && self.shape.nodes > 1;
        self.is_stranding = may_strand && self.random.coin();
        let deadline = self.world.now + PATIENCE;
        loop {
            let is_idle = self.clients.iter().all(|client| client.asked.is_none());
            if left == 0 && is_idle && self.stranded.is_none() {
                self.world.slow_copies(None);
                return Ok(());
            }
            if self.world.now >= deadline {
                return Err("initiators do not get on".to_owned());
            }
            if faults_left > 0 && self.world.now >= fault_at {
                faults_left -= 1;
                self.go_wrong(faults);
                fault_at = self.world.now + self.pause_before_fault();
            }
            self.strike();
            self.pass_stranded();
            for number in 0..INITIATORS {
                if (left > 0 || self.sees_to_stranded(number)) && self.may_act(number) {
                    left = left.saturating_sub(1);
                    self.act(number);
                }
            }
            let next = self.clients.iter().map(|client| client.next_at);
            let next = next.filter(|at| *at > self.world.now).min();
            let limit = self.world.now + Duration::from_millis(100);
            let strikes = self.strikes_at.map(|(at, _)| at);
            let strikes = strikes.into_iter().chain(self.stranded_at());
            let wake = next.into_iter().chain(strikes).chain([limit]).min();
            self.step(wake.unwrap_or(limit))?;
        }
    }

    /// All connections of a gateway break while a change that it was asked for is on its way.
    fn strike(&mut self) {
        let is_due = |(at, _): &mut (Time, Place)| *at <= self.world.now;
        if let Some((_, place)) = self.strikes_at.take_if(is_due) {
            self.note(|| format!("all connections of {place} break"));
            for other in (0..self.world.places()).filter(|&other| other != place) {
                self.world.break_link(place, other);
            }
        }
    }

    fn pause_before_fault(&mut self) -> Duration {
        let millis = match self.random.below(4) {
            0 => self.random.below(4),
            1 => self.random.below(60),
            _ => self.random.below(1500),
        };
        Duration::from_millis(millis)
    }

    fn go_wrong(&mut self, faults: Faults) {
        let place = self.random.index(self.world.places());
        let other = self.random.index(self.world.places());
        let length = Duration::from_millis(match self.random.below(3) {
            0 => self.random.below(300),
            _ => self.random.below(5000),
        });
        match (faults, self.random.below(10)) {
            (Faults::All, 0) if place != other => {
                self.note(|| format!("nothing moves from {place} to {other} for {length:?}"));
                self.world.cut(place, other, length);
            }
            (Faults::All, 1 | 2) if place != other => {
                self.note(|| format!("the connection of {place} and {other} breaks"));
                self.world.break_link(place, other);
            }
            (Faults::All, 7..) => self.is_lurking = true,
            (Faults::All, 3) => {
                self.note(|| format!("process {place} does nothing for {length:?}"));
                self.world.pause(place, length);
            }
            (Faults::All, 4) => {
                self.note(|| format!("process {place} is cut from the registry for {length:?}"));
                self.world.cut_from_registry(place, length);
            }
            _ => self.kill(place),
        }
    }

    fn kill(&mut self, place: Place) {
        if self.world.is_running(place) {
            self.crashes += 1;
            let mut pause = Duration::from_millis(self.random.below(6000));
            if self.is_mended {
                pause = Duration::ZERO;
            }
            self.note(|| format!("process {place} is killed for {pause:?}"));
            self.world.kill(place, pause);
        }
    }

    /// What has happened, and what initiators do about it.
    fn take_news(&mut self) -> Result<(), String> {
        for line in std::mem::take(&mut self.world.notes) {
            self.note(|| line);
        }
        while let Some(place) = self.world.replaced.pop_front() {
            self.note(|| format!("process {place} has been replaced"));
            self.kill(place);
        }
        while let Some(place) = self.world.stopped.pop_front() {
            self.world.end(place, Duration::ZERO);
        }
        while let Some(name) = self.world.targets.ended.pop_front() {
            if let Some(number) = self.client_of(name) {
                self.lose(number);
            }
        }
        while let Some((name, bytes)) = self.world.targets.arrived.pop_front() {
            if let Some(number) = self.client_of(name) {
                let said = self.clients[number].initiator.take(bytes);
                for said in said.map_err(|error| error.to_string())? {
                    self.take_said(number, said)?;
                }
            }
        }
        for number in 0..INITIATORS {
            self.give_up_late(number);
            let client = &self.clients[number];
            if client.connection.is_none() && client.next_at <= self.world.now {
                self.connect(number);
            }
        }
        Ok(())
    }

    fn client_of(&self, name: ConnId) -> Option<usize> {
        let mut clients = self.clients.iter();
        clients.position(|client| client.connection == Some(name))
    }

    /// A connection is over: nobody knows what becomes of what was asked over it.
    fn lose(&mut self, number: usize) {
        self.note(|| format!("initiator {number} has no connection any more"));
        let client = &mut self.clients[number];
        client.connection = None;
        client.is_logged_in = false;
        if let Some(Asked::Fencing(order)) = client.asked.take() {
            self.lose_order(number, order);
        }
        let is_stranded = self.stranded.is_some_and(|it| it.victim == number);
        let pause = match is_stranded {
            true => stranding::SILENCE,
            false => RECONNECT_AFTER,
        };
        self.clients[number].next_at = self.world.now + pause;
    }

    fn give_up_late(&mut self, number: usize) {
        let client = &self.clients[number];
        let Some(name) = client.connection else {
            return;
        };
        let waits = client.asked.is_some() || !client.is_logged_in;
        let waited = self.world.now.since(client.since);
        let is_replaced = self.world.target_of(name).is_none_or(|place| {
            let host = self.world.host_at(place);
            host.is_none_or(|host| !self.world.service.state.hosts.contains_key(&host.0))
        });
        let patience = match is_replaced {
            true => IMPATIENCE_WITH_REPLACED,
            false => IMPATIENCE,
        };
        if waits && waited >= patience {
            self.world.unplug(name);
            self.lose(number);
        }
    }

    fn connect(&mut self, number: usize) {
        let places = 0..self.world.places();
        let open: Vec<Place> = places.filter(|&place| self.world.is_open(place)).collect();
        let now = self.world.now;
        let Some(&place) = self.random.pick(&open) else {
            self.clients[number].next_at = now + RECONNECT_AFTER;
            return;
        };
        self.connections += 1;
        let name = ConnId(self.connections);
        self.note(|| format!("initiator {number} connects to process {place}"));
        self.world.plug(name, place);
        let client = &mut self.clients[number];
        (client.connection, client.since) = (Some(name), now);
        let bytes = client.initiator.log_in();
        self.world.send_to_target(name, bytes);
    }

    fn may_act(&self, number: usize) -> bool {
        let client = &self.clients[number];
        let is_ready = client.is_logged_in && client.asked.is_none();
        is_ready && client.next_at <= self.world.now
    }

    fn act(&mut self, number: usize) {
        if let Some(block) = self.draw_look(number) {
            return self.ask(number, block, Operation::Read);
        }
        if self.is_reserved
            && let Some(order) = self.draw_order(number)
        {
            return self.order(number, order);
        }
        let block = self.random.index(BLOCKS.len());
        if self.registers[block].len() >= OPERATIONS_OF_BLOCK_MAX {
            return;
        }
        let seen = self.clients[number].seen[block];
        self.contents += 1;
        let operation = match self.random.below(20) {
            9..12 if self.copied < SOURCES => self.next_copy(),
            _ if self.copied < SOURCES && self.is_to_strand(number, block) => self.next_copy(),
            0..7 => Operation::Read,
            7..9 => Operation::Write(self.contents),
            _ => Operation::Exchange(seen, self.contents),
        };
        self.ask(number, block, operation);
    }

    fn next_copy(&mut self) -> Operation {
        self.copied += 1;
        Operation::Write(FIRST_SOURCE + Content::from(self.copied - 1))
    }

    fn ask(&mut self, number: usize, block: usize, operation: Operation) {
        let now = self.tick();
        let entry = self.registers[block].begin(operation, number, now);
        self.note(|| format!("initiator {number}, block {block}, #{entry}: {operation:?}"));
        self.calls += 1;
        let lba = BLOCKS[block].to_be_bytes();
        let client = &mut self.clients[number];
        client.asked = Some(Asked::Block(block, entry, operation));
        client.fencing.was_out = client.fencing.is_out();
        client.since = self.world.now;
        let gateway = client
            .connection
            .and_then(|name| self.world.target_of(name));
        let is_copy = matches!(operation, Operation::Write(new) if new >= FIRST_SOURCE);
        if let Some(place) = gateway
            && is_copy
            && self.is_to_strand(number, block)
        {
            self.strand(number, block, place);
        } else if let Some(place) = gateway
            && operation != Operation::Read
            && self.is_lurking
        {
            self.is_lurking = false;
            let after = Duration::from_micros(self.random.below(3000));
            self.strikes_at = Some((self.world.now + after, place));
        }
        let client = &mut self.clients[number];
        let mut cdb = [0; 16];
        let (code, length, reads, data) = match operation {
            Operation::Read => (0x88, 1, BLOCK_BYTES, Bytes::new()),
            Operation::Write(new) if new >= FIRST_SOURCE => {
                let list = copy_of(new, BLOCKS[block]);
                (EXTENDED_COPY, COPY_LIST_BYTES, 0, list.into())
            }
            Operation::Write(new) => (0x8a, 1, 0, block_of(new).into()),
            Operation::Exchange(expected, new) => {
                let both = [block_of(expected), block_of(new)].concat();
                (0x89, 1, 0, both.into())
            }
        };
        (cdb[0], cdb[13]) = (code, length);
        if code != EXTENDED_COPY {
            cdb[6..10].copy_from_slice(&lba);
        }
        let bytes = client.initiator.command(&cdb, reads, data);
        if let Some(name) = client.connection {
            self.world.send_to_target(name, bytes);
        }
    }

    fn take_said(&mut self, number: usize, said: Said) -> Result<(), String> {
        match said {
            Said::LoggedIn { class: 0, .. } => self.clients[number].is_logged_in = true,
            // It has not heard of the LUN yet.
            Said::LoggedIn { .. } => {
                if let Some(name) = self.clients[number].connection {
                    self.world.unplug(name);
                }
                self.lose(number);
            }
            Said::Done(done) => self.take_done(number, &done)?,
            Said::Other(Response::Reject(header)) => return Err(format!("a reject: {header:?}")),
            Said::Other(_) => {}
        }
        Ok(())
    }

    fn take_done(&mut self, number: usize, done: &Done) -> Result<(), String> {
        let Some(asked) = self.clients[number].asked.take() else {
            return Ok(());
        };
        let longest = match self.random.below(20) {
            0 => 1_000_000,
            1..4 => 50_000,
            _ => 1500,
        };
        let pause = self.random.below(longest);
        self.clients[number].next_at = self.world.now + Duration::from_micros(pause);
        let (block, entry, operation) = match asked {
            Asked::Block(block, entry, operation) => (block, entry, operation),
            Asked::Fencing(order) => return self.take_ordered(number, order, done),
            Asked::Sources => {
                if done.status == GOOD {
                    self.copied = 0;
                }
                return Ok(());
            }
        };
        let answer = answer_of(operation, done)?;
        self.note(|| format!("initiator {number}, block {block}, #{entry}: {answer:?}"));
        let seen = match (operation, answer) {
            (_, Answer::Is(seen)) => Some(seen),
            (Operation::Write(new) | Operation::Exchange(_, new), Answer::Done) => Some(new),
            _ => None,
        };
        if let Some(seen) = seen {
            self.clients[number].seen[block] = seen;
        }
        let now = self.tick();
        self.registers[block].end(entry, answer, now);
        self.judge_fenced(number, operation, answer, done.status)
    }

    /// An initiator reads a block until it is told what it is.
    fn look(&mut self, number: usize, block: usize) -> Result<(), String> {
        let deadline = self.world.now + PATIENCE;
        let seen = |driver: &Self| driver.clients[number].asked.is_none();
        while self.world.now < deadline {
            if self.may_act(number) {
                let before = self.registers[block].len();
                self.ask(number, block, Operation::Read);
                while !seen(self) && self.world.now < deadline {
                    self.step(deadline.min(self.world.now + Duration::from_millis(100)))?;
                }
                if self.registers[block].is_read(before) {
                    return Ok(());
                }
                self.registers[block].forget(before);
            }
            self.step(self.world.now + Duration::from_millis(20))?;
        }
        Err(format!("block {block} cannot be read"))
    }

    fn judge(&mut self) -> Result<(), String> {
        for (block, lba) in BLOCKS.into_iter().enumerate() {
            match self.registers[block].check() {
                Verdict::Linearizable => {}
                Verdict::Unknown => self.undecided += 1,
                Verdict::Violated => {
                    let lines: Vec<String> = self.registers[block].lines().collect();
                    for line in lines {
                        self.note(|| line);
                    }
                    return Err(format!("there is no order of what was done to block {lba}"));
                }
            }
        }
        Ok(())
    }
}

/// A block that somebody has written.
fn block_of(content: Content) -> Vec<u8> {
    content.to_be_bytes().repeat(BLOCK_BYTES as usize / 8)
}

const EXTENDED_COPY: u8 = 0x83;

/// Bytes of [`copy_of`].
const COPY_LIST_BYTES: u8 = 16 + 28;

/// The parameter list by which a source is copied to a block: one segment, within the unit.
fn copy_of(content: Content, lba: u32) -> Vec<u8> {
    let source = u64::from(SOURCES_AT) + content - FIRST_SOURCE;
    // It is told of no copy.
    let mut list = vec![0, 3 << 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    list.extend([0x02, 0, 0, 24, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1]);
    list.extend(source.to_be_bytes());
    list.extend(u64::from(lba).to_be_bytes());
    list
}

/// The same the other way round; a block is never half old and half new.
fn content_of(block: &[u8]) -> Result<Content, String> {
    let first = block.first_chunk::<8>().ok_or("a short block")?;
    let content = Content::from_be_bytes(*first);
    match block == block_of(content) {
        true => Ok(content),
        false => Err(format!("a block is a mixture of several: {block:02x?}")),
    }
}

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const BUSY: u8 = 8;
const TASK_SET_FULL: u8 = 0x28;
const CONFLICT: u8 = 0x18;
const UNIT_ATTENTION: u8 = 6;
const MISCOMPARE: u8 = 0xe;
const COPY_ABORTED: u8 = 0xa;

fn answer_of(operation: Operation, done: &Done) -> Result<Answer, String> {
    let is_read = operation == Operation::Read;
    Ok(match (done.status, done.sense_key()) {
        (GOOD, _) if is_read => Answer::Is(content_of(&done.data)?),
        (GOOD, _) => Answer::Done,
        (CHECK_CONDITION, Some(MISCOMPARE)) => Answer::Differs,
        (CHECK_CONDITION, Some(UNIT_ATTENTION)) | (TASK_SET_FULL | CONFLICT, _) => Answer::Refused,
        (BUSY, _) if is_read => Answer::Refused,
        (BUSY, _) | (CHECK_CONDITION, Some(COPY_ABORTED)) => Answer::Unclear,
        _ => return Err(format!("{operation:?} is answered {done:?}")),
    })
}

#[cfg(test)]
mod tests {
    use super::super::stage::SHAPE;
    use super::*;

    /// Goal: initiators get far, all kinds of answers are among theirs, and the search for an
    /// order comes to its end.
    #[test]
    fn initiators_are_judged() {
        let mut answers = Vec::new();
        let mut fenced_total = 0;
        for seed in 0..8 {
            let mut random = Random::new(seed);
            let world = world_of(SHAPE, None, &mut random);
            let mut driver = Driver::new(SHAPE, world, random, true);
            driver.run().expect("there is an order");
            assert_eq!(driver.undecided, 0);
            assert!(driver.calls > 60, "{}", driver.calls);
            fenced_total += driver.fenced_total;
            answers.extend(driver.history.unwrap_or_default());
        }
        assert!(fenced_total > 5, "{fenced_total}");
        let copied = format!("Write({}", FIRST_SOURCE / 1_000_000);
        for answer in ["Is(", "Done", "Differs", &copied] {
            let count = answers.iter().filter(|line| line.contains(answer)).count();
            assert!(count > 20, "{answer}: {count}");
        }
    }
}
