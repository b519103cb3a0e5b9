//! The clients of an ensemble, and what goes wrong around them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use crossdock_nfs::ConnId;
use crossdock_nfs3::{
    Call, HandleBuffer, Location, Name, Procedure, Reply, SetAttributes, Status, call,
};
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::super::acts::{Act, Circumstances, Next};
use super::super::draw::{draw, draw_look};
use super::super::flushes::Watch;
use super::super::model::{CELL_BYTES, CELLS_MAX, Model, NameKey, name_of};
use super::super::shell::mix;
use super::super::wire;
use super::apart::Apart;
use super::network::Place;
use super::races::Races;
use super::times::Times;
use super::world::World;
use super::{Faults, RacesOf, Shape};
use crate::store_crash::Outcome;

pub(super) const CLIENTS: usize = 3;

/// Requests on their way at a time, at most.
const PIPELINE_MAX: u64 = 10;

/// What goes wrong in one round of work, at most.
const FAULTS_MAX: u64 = 16;

/// Nothing that goes wrong keeps a request longer than this.
const PATIENCE: Duration = Duration::from_mins(10);

/// A client that is told to try again waits so long.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A client whose connection has ended looks for another gateway after this.
const RECONNECT_AFTER: Duration = Duration::from_millis(50);

/// A client that has no answer for so long tries another connection.
const IMPATIENCE: Duration = Duration::from_millis(700);

/// Acknowledged requests that a client may send again as if the reply were lost.
const REMEMBERED_MAX: usize = 4;

/// A client whose datagrams have had no answer for so long sends over its connection.
const FALL_BACK_AFTER: Duration = Duration::from_millis(1200);

struct Pending {
    client: usize,
    act: Act,
    procedure: Procedure,
    record: Bytes,
    sent_at: Time,
    /// When it was sent for the first time, however often it was told to try again.
    begun_at: Time,
    is_disturbed: bool,
    /// Whether it may arrive at the server more than once, over several gateways.
    is_repeated: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Client {
    pub(super) connection: Option<ConnId>,
    connects_at: Time,
}

pub(super) struct Driver {
    pub(super) shape: Shape,
    pub(super) world: World,
    model: Model,
    pub(super) random: Random,
    pub(super) clients: Vec<Client>,
    pub(super) apart: Option<Apart>,
    connections: u64,
    next_xid: u32,
    /// By xid: in the order in which they were sent first.
    pending: BTreeMap<u32, Pending>,
    again: Vec<(Time, Pending)>,
    answered: VecDeque<(usize, Bytes, Bytes)>,
    pub(super) races: Races,
    /// Whether clients send requests again that are under way, over any gateway.
    retransmits: bool,
    /// Nothing goes wrong any more: who finds out only now that it was replaced starts at once.
    pub(super) is_mended: bool,
    /// Requests of which only datagrams were sent, by xid, and until when these are waited for.
    posted: Vec<(Time, u32)>,
    /// For [`exchange`](Self::exchange): the reply to a request outside the work.
    awaited: Option<(u32, Option<Bytes>)>,
    /// How often somebody was replaced, as far as was looked.
    replaced_total: u64,
    pub(super) times: Times,
    calls: u64,
    pub(super) crashes: u64,
    /// How long a client has waited for an answer, at most.
    pub(super) longest: Duration,
    history: Option<Vec<String>>,
}

impl Driver {
    pub(super) fn new(
        shape: Shape,
        world: World,
        model: Model,
        random: Random,
        history: bool,
    ) -> Self {
        let client = Client {
            connection: None,
            connects_at: Time(0),
        };
        Self {
            shape,
            world,
            model,
            random,
            clients: vec![client; CLIENTS],
            apart: None,
            connections: 0,
            next_xid: 1000,
            pending: BTreeMap::new(),
            again: Vec::new(),
            answered: VecDeque::new(),
            races: Races::default(),
            retransmits: false,
            is_mended: false,
            posted: Vec::new(),
            awaited: None,
            replaced_total: 0,
            times: Times::default(),
            calls: 0,
            crashes: 0,
            longest: Duration::ZERO,
            history: history.then(Vec::new),
        }
    }

    pub(super) fn outcome(self, violation: Option<String>) -> Outcome {
        Outcome {
            violation,
            trace_hash: mix(self.world.trace_hash, self.world.events),
            crashes: self.crashes,
            gone_blocks: 0,
            calls: self.calls,
            simulated: self.world.now.since(Time(0)),
            history: self.history.unwrap_or_default(),
        }
    }

    pub(super) fn run(&mut self) -> Result<(), String> {
        self.retransmits = true;
        self.make_directories(&[b"one", b"two"])?;
        if self.shape.races != RacesOf::None {
            self.begin_races()?;
        }
        for _ in 0..self.random.between(1, 4) {
            if self.shape.faults == Faults::All && self.random.coin() {
                self.slow_links();
            }
            let actions = self.random.between(20, 150);
            self.work(actions, self.shape.faults)?;
        }
        self.finish()
    }

    /// How many directories clients work in.
    pub(super) fn directories(&self) -> usize {
        self.model.directories.len()
    }

    /// Directories, in which clients work from then on as in the root.
    pub(super) fn make_directories(&mut self, names: &[&[u8]]) -> Result<(), String> {
        let root = self.mount()?;
        self.model.directories.push(root);
        for name in names {
            let made = self.call(&Call::Mkdir(call::Mkdir {
                location: Location {
                    directory: root.as_handle(),
                    name: Name(name),
                },
                attributes: SetAttributes::default(),
            }))?;
            let Reply::Mkdir(Ok(made)) = made else {
                return Err(format!("MKDIR fails: {made:?}"));
            };
            let handle = made.object.ok_or("MKDIR gives no handle")?;
            self.model.directories.push(handle);
        }
        Ok(())
    }

    /// Everything is mended, and as it should be.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        self.note(|| "all is mended".to_owned());
        self.world.heal();
        self.is_mended = true;
        self.apart = None;
        self.work(0, Faults::None)?;
        self.settle(Duration::from_secs(8))?;
        self.work(10, Faults::None)?;
        self.wait_until_whole()?;
        self.verify_all()?;
        self.judge_races()?;
        self.world.check_all_addresses()?;
        for (client, record, reply) in std::mem::take(&mut self.answered) {
            let again = self.exchange(client, record)?;
            if again != reply {
                return Err(format!(
                    "a retransmission is answered {again:02x?}, not {reply:02x?}"
                ));
            }
        }
        self.settle(Duration::from_secs(1))?;
        self.prove()?;
        self.compare_replicas()
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(format!("{:>9} µs  {}", self.world.now.0 / 1000, line()));
        }
    }

    /// Sends up to `actions` requests and waits for all replies.
    pub(super) fn work(&mut self, actions: u64, faults: Faults) -> Result<(), String> {
        let pipeline = self.random.between(1, PIPELINE_MAX);
        let mut left = actions;
        let mut next_at = self.world.now;
        let mut fault_at = self.next_fault();
        if actions > 0 && self.random.coin() {
            self.begin_fsck();
        }
        let mut faults_left = match faults {
            Faults::None => 0,
            _ => self.random.between(1, FAULTS_MAX),
        };
        loop {
            self.take_news()?;
            let is_idle = self.pending.is_empty() && self.again.is_empty();
            if left == 0 && is_idle && self.races.is_idle() {
                return Ok(());
            }
            if faults_left > 0 && self.world.now >= fault_at {
                faults_left -= 1;
                left += self.go_wrong(faults);
                fault_at = self.next_fault();
            }
            self.cut_apart();
            let has_room = left > 0 && (self.pending.len() as u64) < pipeline + self.extra_room();
            if has_room && self.world.now >= next_at {
                left -= 1;
                self.act();
                let pause_micros_max = match self.random.below(40) {
                    _ if self.apart.is_some() => 100_000,
                    0 => 3_000_000,
                    1..4 => 50_000,
                    _ => 2_000,
                };
                let pause = self.random.below(pause_micros_max);
                next_at = self.world.now + Duration::from_micros(pause);
            }
            self.send_again();
            self.race_again();
            self.fall_back();
            let again = self.again.iter().map(|(due, _)| *due);
            let connects = self
                .clients
                .iter()
                .filter(|client| client.connection.is_none());
            let connects = connects.map(|client| client.connects_at);
            let limit = self.world.now + Duration::from_secs(1);
            let wake = again
                .chain(connects)
                .chain(has_room.then_some(next_at))
                .chain((faults_left > 0).then_some(fault_at))
                .chain(self.next_cut())
                .chain(self.races.next_at())
                .chain(self.posted.iter().map(|(due, _)| *due))
                .chain([limit])
                .min();
            self.world.step(wake.unwrap_or(limit).max(self.world.now))?;
            self.check_patience()?;
            if faults == Faults::All {
                self.move_on();
            }
        }
    }

    pub(super) fn settle(&mut self, pause: Duration) -> Result<(), String> {
        let until = self.world.now + pause;
        while self.world.now < until {
            self.world.step(until)?;
            self.take_news()?;
        }
        Ok(())
    }

    /// What is unstable may be gone.
    pub(super) fn disturb(&mut self) {
        self.model.loses();
        for pending in self.pending.values_mut() {
            pending.is_disturbed = true;
            if let Act::Read { file, size_low, .. } | Act::Stat { file, size_low } =
                &mut pending.act
                && let Some(file) = self.model.files.get(file)
            {
                *size_low = file.sizes().0.min(*size_low);
            }
        }
    }

    /// Replies, connections that ended, processes that gave up; then those
    /// without a connection look for one.
    fn take_news(&mut self) -> Result<(), String> {
        let notes = std::mem::take(&mut self.world.notes);
        for line in notes {
            self.note(|| line);
        }
        let replaced_total = self.world.service.replaced_total;
        if std::mem::replace(&mut self.replaced_total, replaced_total) != replaced_total {
            self.disturb();
        }
        self.look_at_checks()?;
        while let Some(place) = self.world.replaced.pop_front() {
            self.note(|| format!("process {place} has been replaced"));
            self.kill(place);
        }
        while let Some(place) = self.world.stopped.pop_front() {
            let pause = Duration::from_millis(self.random.below(3000));
            self.note(|| format!("process {place} has stopped for {pause:?}"));
            self.world.end(place, pause);
        }
        while let Some(name) = self.world.ended.pop_front() {
            let lost = self
                .clients
                .iter_mut()
                .find(|client| client.connection == Some(name));
            if let Some(client) = lost {
                client.connection = None;
                client.connects_at = self.world.now + RECONNECT_AFTER;
            }
        }
        while let Some((name, record)) = self.world.replies.pop_front() {
            self.take_record(Some(name), record)?;
        }
        while let Some(record) = self.world.posted.pop_front() {
            self.take_record(None, record)?;
        }
        for number in 0..CLIENTS {
            let client = self.clients[number];
            if client.connection.is_none() && client.connects_at <= self.world.now {
                self.connect(number);
            }
        }
        Ok(())
    }

    /// Connects to any gateway that is open, and sends what is not answered
    /// again, byte for byte.
    fn connect(&mut self, number: usize) {
        let places = 0..self.world.places();
        let open: Vec<Place> = places.filter(|&place| self.world.is_open(place)).collect();
        let Some(&place) = self.random.pick(&open) else {
            self.clients[number].connects_at = self.world.now + RECONNECT_AFTER;
            return;
        };
        self.connections += 1;
        let name = ConnId(self.connections);
        self.note(|| format!("client {number} connects to process {place}"));
        self.world.connect(name, number, place);
        self.clients[number].connection = Some(name);
        self.clients[number].connects_at = self.world.now;
        let records = self
            .pending
            .values()
            .filter(|pending| pending.client == number);
        let mut records: Vec<Bytes> = records.map(|pending| pending.record.clone()).collect();
        records.extend(self.races.records_of(number));
        for record in records {
            self.world.send(name, record);
        }
    }

    /// Clients that have waited long give their connection up if their gateway's
    /// address has moved. (From one that still counts they would get the answer:
    /// over two of them at a time one request might be done twice.)
    fn move_on(&mut self) {
        for number in 0..CLIENTS {
            let Some(name) = self.clients[number].connection else {
                continue;
            };
            if self.is_reader(number) {
                continue; // It stays where it is.
            }
            let now = self.world.now;
            let waits = |pending: &Pending| {
                let since = pending.sent_at.max(self.clients[number].connects_at);
                pending.client == number && now.since(since) >= IMPATIENCE
            };
            let is_old = now.since(self.clients[number].connects_at) >= IMPATIENCE;
            let races = is_old && self.races.waits(number, now, IMPATIENCE);
            if self.world.has_moved(name) && (races || self.pending.values().any(waits)) {
                self.note(|| format!("client {number} gives its connection up"));
                self.world.leave(name);
                self.clients[number].connection = None;
                self.clients[number].connects_at = now;
            }
        }
    }

    fn check_patience(&self) -> Result<(), String> {
        let late = |pending: &&Pending| self.world.now.since(pending.sent_at) >= PATIENCE;
        match self.pending.values().find(late) {
            None => self
                .races
                .late(self.world.now, PATIENCE)
                .map_or(Ok(()), Err),
            Some(pending) => Err(format!(
                "{:?} is not answered within {} s",
                pending.act,
                PATIENCE.as_secs()
            )),
        }
    }

    fn act(&mut self) {
        let races = match self.shape.races {
            RacesOf::None => false,
            RacesOf::Some => self.random.one_in(5),
            RacesOf::Only => true,
        };
        if races && self.races.has_room() {
            return self.race();
        }
        if self.shape.races == RacesOf::Only {
            return;
        }
        for _ in 0..8 {
            let client = self.random_client();
            let act = match self.is_reader(client) || self.random.one_in(12) {
                true => draw_look(&self.model, &mut self.random),
                false => draw(&mut self.model, &mut self.random),
            };
            if let Some(act) = act {
                let xid = self.new_xid();
                let pending = Pending {
                    client,
                    record: act.encode(xid, &self.model),
                    procedure: act.procedure(&self.model),
                    act,
                    sent_at: self.world.now,
                    begun_at: self.world.now,
                    is_disturbed: false,
                    is_repeated: false,
                };
                pending.act.lock(&mut self.model);
                return self.send(xid, pending);
            }
        }
    }

    pub(super) const fn new_xid(&mut self) -> u32 {
        self.next_xid += 1;
        self.next_xid
    }

    fn send(&mut self, xid: u32, mut pending: Pending) {
        let client = pending.client;
        self.note(|| format!("client {client}, #{xid}: {}", brief(&pending.act)));
        if pending.act.can_be_posted() {
            pending.is_repeated |= self.send_record(client, &pending.record);
        } else {
            self.send_over_connection(client, &pending.record);
        }
        self.pending.insert(xid, pending);
    }

    fn send_over_connection(&mut self, client: usize, record: &Bytes) {
        self.calls += 1;
        if let Some(connection) = self.clients[client].connection {
            self.world.send(connection, record.clone());
        }
    }

    /// Sends a request over the client's connection, as datagrams to any gateways, or
    /// both; whether it may arrive more than once.
    pub(super) fn send_record(&mut self, client: usize, record: &Bytes) -> bool {
        let drawn = match self.retransmits {
            true => self.random.below(16),
            false => 15,
        };
        let is_posted_only = drawn < 2;
        if !is_posted_only {
            self.send_over_connection(client, record);
        }
        if drawn >= 5 {
            return false;
        }
        let places = 0..self.world.places();
        let open: Vec<Place> = places.filter(|&place| self.world.is_open(place)).collect();
        for _ in 0..self.random.between(1, 4) {
            if let Some(&place) = self.random.pick(&open) {
                self.world.post(client, place, record);
            }
        }
        if is_posted_only && let Ok(xid) = wire::xid(&record.slice(4..)) {
            self.posted.push((self.world.now + FALL_BACK_AFTER, xid));
        }
        true
    }

    /// Who has had no answer to datagrams sends over its connection.
    fn fall_back(&mut self) {
        let now = self.world.now;
        let due: Vec<(Time, u32)> = self.posted.extract_if(.., |(due, _)| *due <= now).collect();
        for (_, xid) in due {
            let of_race = self.races.unanswered(xid);
            let pending = self.pending.get(&xid);
            let pending = pending.map(|pending| (pending.client, pending.record.clone()));
            if let Some((client, record)) = pending.or(of_race) {
                self.send_over_connection(client, &record);
            }
        }
    }

    fn send_again(&mut self) {
        let now = self.world.now;
        let (due, later) = std::mem::take(&mut self.again)
            .into_iter()
            .partition(|(due, _)| *due <= now);
        self.again = later;
        for (_, mut pending) in due {
            let known = wire::xid(&pending.record.slice(4..));
            // What may be on its way still has to be the same request.
            let xid = match known.ok().filter(|_| pending.is_repeated) {
                Some(xid) => xid,
                None => {
                    let xid = self.new_xid();
                    pending.record = pending.act.encode(xid, &self.model);
                    xid
                }
            };
            self.send(xid, pending);
        }
    }

    /// A reply, over a connection or as a datagram.
    fn take_record(&mut self, name: Option<ConnId>, record: Bytes) -> Result<(), String> {
        let xid = wire::xid(&record)?;
        if let Some((awaited, reply)) = &mut self.awaited
            && *awaited == xid
        {
            *reply = Some(record);
            return Ok(());
        }
        if self.take_race(xid, &record)? {
            return Ok(());
        }
        // Of an earlier connection, or answered over two.
        let Some(pending) = self.pending.get(&xid) else {
            return Ok(());
        };
        if name.is_some() && self.clients[pending.client].connection != name {
            return Ok(());
        }
        let reply = wire::decode(pending.procedure, &record)?;
        let Some(pending) = self.pending.remove(&xid) else {
            return Ok(());
        };
        let status = reply.status();
        let waited = self.world.now.since(pending.begun_at);
        self.note(|| match status {
            None => format!("#{xid} is done after {waited:?}"),
            Some(status) => format!("#{xid}: {status} after {waited:?}"),
        });
        pending.act.unlock(&mut self.model);
        let times = &mut self.times;
        times
            .take(&reply, pending.sent_at, self.world.now)
            .map_err(|what| format!("#{xid} {:?}: {what}", pending.act))?;
        let circumstances = Circumstances {
            watch: &Watch::default(),
            sent: None,
            is_disturbed: pending.is_disturbed || self.world.has_deposed_manager(),
            copies: 0,
        };
        let next = pending
            .act
            .replied(&mut self.model, &reply, &circumstances)
            .map_err(|what| format!("#{xid} {:?}: {what}", pending.act))?;
        match next {
            Next::Again => {
                pending.act.lock(&mut self.model);
                self.again.push((self.world.now + AGAIN_AFTER, pending));
            }
            Next::Done => {
                self.longest = self.longest.max(waited);
                if pending.act.is_once() {
                    self.answered
                        .push_back((pending.client, pending.record, record));
                    if self.answered.len() > REMEMBERED_MAX {
                        self.answered.pop_front();
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends a record until it is answered.
    fn exchange(&mut self, client: usize, record: Bytes) -> Result<Bytes, String> {
        let xid = wire::xid(&record.slice(4..))?;
        self.calls += 1;
        self.awaited = Some((xid, None));
        let deadline = self.world.now + PATIENCE;
        let mut sent_over = None;
        while self.world.now < deadline {
            self.take_news()?;
            if let Some((_, Some(_))) = &self.awaited {
                let reply = self.awaited.take().and_then(|(_, reply)| reply);
                return reply.ok_or_else(|| "no reply".to_owned());
            }
            let connection = self.clients[client].connection;
            if let Some(name) = connection
                && sent_over != connection
            {
                sent_over = connection;
                self.world.send(name, record.clone());
            }
            let soon = self.world.now + RECONNECT_AFTER;
            self.world.step(soon.min(deadline))?;
        }
        Err(format!("#{xid} is not answered"))
    }

    /// Whether a successor may do what was refused by who is no more.
    pub(super) fn may_be_tried_again(&self) -> bool {
        self.shape.faults != Faults::None
    }

    /// The handle of the root, which has to be good for ever.
    pub(super) fn mount(&mut self) -> Result<HandleBuffer, String> {
        for _ in 0..500 {
            self.next_xid += 1;
            let record = wire::encode_mount(self.next_xid);
            let reply = self.exchange(0, record)?;
            if let Some(root) = wire::decode_mount(&reply)? {
                return Ok(root);
            }
            self.settle(AGAIN_AFTER)?;
        }
        Err("the root is never mounted".to_owned())
    }

    /// Calls, and calls again for as long as it is told to try later.
    pub(super) fn call(&mut self, call: &Call<'_>) -> Result<Reply, String> {
        for _ in 0..500 {
            self.next_xid += 1;
            let record = wire::encode(self.next_xid, call);
            let record = self.exchange(0, record)?;
            let reply = wire::decode(call.procedure(), &record)?;
            if reply.status() != Some(Status::Jukebox) {
                return Ok(reply);
            }
            self.settle(AGAIN_AFTER)?;
        }
        let procedure = call.procedure();
        Err(format!("{procedure:?} is told to try later for ever"))
    }

    /// Compares all names and all content with the model.
    pub(super) fn verify_all(&mut self) -> Result<(), String> {
        for directory in 0..self.model.directories.len() {
            for number in 0..5 {
                let key: NameKey = (directory, number);
                let known = self.model.names.get(&key).copied();
                let handle = self.model.directories[directory];
                let name = name_of(key);
                let found = match self.call(&Call::Lookup(Location {
                    directory: handle.as_handle(),
                    name: Name(&name),
                }))? {
                    Reply::Lookup(Ok(found)) => Some(found.object),
                    Reply::Lookup(Err(failed)) if failed.status == Status::NoEnt => None,
                    other => return Err(format!("LOOKUP of {key:?}: {other:?}")),
                };
                let expected = known.map(|file| self.model.files[&file].handle);
                if found != expected {
                    return Err(format!("name {key:?} is {found:?}, should be {expected:?}"));
                }
                if let Some(file) = known {
                    self.verify_file(file)?;
                }
            }
        }
        Ok(())
    }

    fn verify_file(&mut self, number: usize) -> Result<(), String> {
        let file = &self.model.files[&number];
        if file.is_directory {
            return Ok(());
        }
        let handle = file.handle;
        let (low, high) = file.sizes();
        let mut data = Vec::new();
        let most = CELLS_MAX as u64 * CELL_BYTES;
        while (data.len() as u64) < most {
            let reply = self.call(&Call::Read(call::Read {
                file: handle.as_handle(),
                offset: data.len() as u64,
                count_bytes: 256 << 10,
            }))?;
            let Reply::Read(Ok(read)) = reply else {
                return Err(format!("READ of file {number}: {reply:?}"));
            };
            data.extend_from_slice(&read.data.to_bytes());
            if read.is_end {
                break;
            }
        }
        let size = data.len() as u64;
        if size < low || size > high {
            return Err(format!(
                "file {number} has {size} bytes, should have {low} to {high}"
            ));
        }
        let file = self.model.files.get_mut(&number).ok_or("no such file")?;
        file.check(0, &data, false)
            .map_err(|what| format!("file {number}: {what}"))
    }
}

/// A line for the history: what a COMMIT is to make durable would fill a page.
fn brief(act: &Act) -> String {
    match act {
        Act::Commit { file, unstable } => {
            format!("Commit {{ file: {file}, {} cells }}", unstable.len())
        }
        act => format!("{act:?}"),
    }
}
