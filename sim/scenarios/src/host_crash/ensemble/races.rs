//! Clients that race for the same names, also with what nobody will hear of again: in the
//! end there has to be an order of all requests that explains every answer.
//!
//! The names of two directories of their own, which may lie at different sites, are made,
//! linked, renamed, removed, looked up and listed without regard to what else is under
//! way. Requests are sent again like all others, some as datagrams; a few clients give up
//! waiting.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use crossdock_nfs3::call::{self, CreateHow};
use crossdock_nfs3::{
    Call, CookieVerifier, CreateVerifier, HandleBuffer, Location, Name, Path, Procedure, Reply,
    SetAttributes, Status,
};
use crossdock_types::Time;

use super::super::wire;
use super::driver::{AGAIN_AFTER, Driver};
use super::linear::{Answer, History, Object, Op, Slot, Spans, Verdict};

/// Directories, and names of each that clients race for.
const DIRECTORIES: usize = 2;
const NAMES: usize = 3;
const SLOTS: usize = DIRECTORIES * NAMES;

/// Names of each directory that nobody changes: a listing has several pages.
const STANDING: usize = 6;

/// Bytes of a page.
const PAGE_BYTES: u32 = 320;

/// Requests under way at a time, at most: the search goes through all orders of them.
const UNDER_WAY_MAX: usize = 6;

/// Requests of a run that nobody waits for, at most, for the same reason.
const GIVEN_UP_MAX: usize = 3;

/// Requests of a run, at most.
const REQUESTS_MAX: usize = 400;

/// Handles that LINK is tried with.
const HANDLES_MAX: usize = 5;

/// Kinds of requests, by how often they come; the last one only looks.
const KINDS: u64 = 20;
const LOOKS: u64 = KINDS - 1;

/// What a client asks for.
#[derive(Clone, Debug)]
enum Ask {
    /// Something that the names have to explain, by its number in the history; `kind`
    /// tells apart the ways to make something.
    Op { op: Op, number: usize, kind: u64 },
    /// The next page of a listing.
    List(Listing),
}

#[derive(Clone, Debug)]
struct Listing {
    directory: usize,
    begun: u64,
    cookie: u64,
    verifier: CookieVerifier,
    seen: Vec<Vec<u8>>,
}

struct Racing {
    client: usize,
    ask: Ask,
    procedure: Procedure,
    record: Bytes,
    begun: u64,
    begun_at: Time,
    /// Whether it may arrive at the server more than once.
    is_repeated: bool,
}

/// The races of a run.
#[derive(Default)]
pub(super) struct Races {
    directories: Vec<HandleBuffer>,
    history: History,
    spans: Spans,
    /// Counts what happens, for [`Spans`].
    tick: u64,
    under_way: BTreeMap<u32, Racing>,
    again: Vec<(Time, Racing)>,
    /// By number.
    objects: Vec<HandleBuffer>,
    /// Some of them, the newest last.
    recent: VecDeque<HandleBuffer>,
    given_up: usize,
    listings: Vec<(Listing, u64)>,
    /// Listings that were compared with what clients had done.
    pub(super) listed: u64,
    /// Whether there were too many orders to look at.
    pub(super) is_undecided: bool,
}

impl Races {
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.again.is_empty()
    }

    /// When something is to be sent again.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.again.iter().map(|(due, _)| *due).min()
    }

    /// Requests of the races.
    pub(super) const fn requests(&self) -> usize {
        self.history.len()
    }

    pub(super) fn has_room(&self) -> bool {
        let count = self.under_way.len() + self.again.len();
        !self.directories.is_empty() && count < UNDER_WAY_MAX && self.history.len() < REQUESTS_MAX
    }

    /// What a client sends over a new connection: all that it waits for.
    pub(super) fn records_of(&mut self, client: usize) -> Vec<Bytes> {
        let mine = self.under_way.values_mut();
        let mine = mine.filter(|racing| racing.client == client);
        mine.map(|racing| {
            racing.is_repeated = true;
            racing.record.clone()
        })
        .collect()
    }

    /// The first request that nobody has answered for so long.
    pub(super) fn late(&self, now: Time, patience: Duration) -> Option<String> {
        let mut waiting = self.under_way.values();
        let late = waiting.find(|racing| now.since(racing.begun_at) >= patience)?;
        Some(format!("{:?} is not answered", late.ask))
    }

    /// Whether a client has waited for so long.
    pub(super) fn waits(&self, client: usize, now: Time, patience: Duration) -> bool {
        let mut waiting = self.under_way.values();
        waiting.any(|it| it.client == client && now.since(it.begun_at) >= patience)
    }

    /// What is to be sent over a connection, as datagrams had no answer.
    pub(super) fn unanswered(&self, xid: u32) -> Option<(usize, Bytes)> {
        let racing = self.under_way.get(&xid)?;
        Some((racing.client, racing.record.clone()))
    }

    fn object(&mut self, handle: HandleBuffer) -> Object {
        let known = self.objects.iter().position(|known| *known == handle);
        let number = known.unwrap_or_else(|| {
            self.objects.push(handle);
            self.objects.len() - 1
        });
        if !self.recent.contains(&handle) {
            self.recent.push_back(handle);
            if self.recent.len() > HANDLES_MAX {
                self.recent.pop_front();
            }
        }
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// A request has ended, or is as if it never had been answered.
    fn note_spans(&mut self, op: Op, begun: u64, ended: Option<u64>) {
        match op {
            Op::Make(at) | Op::Link(_, at) => self.spans.changed(at, begun, ended, Some(true)),
            Op::Remove(at) => self.spans.changed(at, begun, ended, Some(false)),
            Op::Move(from, to) => {
                // Two names of one object stay both.
                self.spans.changed(from, begun, ended, None);
                self.spans.changed(to, begun, ended, Some(true));
            }
            Op::Look(_) => {}
        }
    }

    /// A name that nobody changed is in a listing once, or not at all.
    fn check_listings(&mut self) -> Result<(), String> {
        for (listing, ended) in std::mem::take(&mut self.listings) {
            let count = |name: &[u8]| listing.seen.iter().filter(|seen| *seen == name).count();
            let directory = listing.directory;
            let mut expected: Vec<(Vec<u8>, usize)> = Vec::new();
            for number in 0..STANDING {
                expected.push((standing(number), 1));
            }
            for slot in (directory * NAMES)..(directory + 1) * NAMES {
                if let Some(is_there) = self.spans.during(slot, listing.begun, ended) {
                    expected.push((name_of(slot), usize::from(is_there)));
                }
            }
            for (name, times) in expected {
                self.listed += 1;
                if count(&name) != times {
                    let name = String::from_utf8_lossy(&name).into_owned();
                    let seen: Vec<_> = listing.seen.iter().map(|it| it.escape_ascii()).collect();
                    let seen: Vec<String> = seen.iter().map(ToString::to_string).collect();
                    return Err(format!(
                        "a listing of directory {directory} has {name} not {times} times: {seen:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn name_of(slot: Slot) -> Vec<u8> {
    format!("raced-{}", slot % NAMES).into_bytes()
}

fn standing(number: usize) -> Vec<u8> {
    format!("standing-{number}").into_bytes()
}

fn make(location: Location<'_>, number: usize, kind: u64) -> Call<'_> {
    let attributes = SetAttributes::default();
    let how = match kind {
        0 => {
            return Call::Symlink(call::Symlink {
                location,
                attributes,
                target: Path(b"anywhere"),
            });
        }
        1 => CreateHow::Exclusive(CreateVerifier((number as u64).to_be_bytes())),
        _ => CreateHow::Guarded(attributes),
    };
    Call::Create(call::Create { location, how })
}

impl Driver {
    /// The directories in which names are raced for.
    pub(super) fn begin_races(&mut self) -> Result<(), String> {
        let root = self.mount()?;
        for number in 0..DIRECTORIES {
            let name = format!("race-{number}").into_bytes();
            let location = Location {
                directory: root.as_handle(),
                name: Name(&name),
            };
            let attributes = SetAttributes::default();
            let made = self.call(&Call::Mkdir(call::Mkdir {
                location,
                attributes,
            }))?;
            let Reply::Mkdir(Ok(made)) = made else {
                return Err(format!("MKDIR fails: {made:?}"));
            };
            let directory = made.object.ok_or("MKDIR gives no handle")?;
            for number in 0..STANDING {
                let name = standing(number);
                let location = Location {
                    directory: directory.as_handle(),
                    name: Name(&name),
                };
                let made = self.call(&make(location, 0, 2))?;
                if !matches!(made, Reply::Create(Ok(_))) {
                    return Err(format!("CREATE fails: {made:?}"));
                }
            }
            self.races.directories.push(directory);
        }
        Ok(())
    }

    /// Some client asks for something about names that others ask for, too.
    pub(super) fn race(&mut self) {
        let client = self.random_client();
        let begun = self.races.tick();
        let kind = match self.is_reader(client) {
            true => LOOKS,
            false => self.random.below(KINDS),
        };
        let ask = match kind {
            0 => Ask::List(Listing {
                directory: self.random.index(DIRECTORIES),
                begun,
                cookie: 0,
                verifier: CookieVerifier([0; 8]),
                seen: Vec::new(),
            }),
            kind => {
                let op = self.draw_op(kind);
                let number = self.races.history.begun(op);
                let kind = self.random.below(5);
                Ask::Op { op, number, kind }
            }
        };
        self.send_race(Racing {
            client,
            ask,
            procedure: Procedure::Null, // Known when it is encoded.
            record: Bytes::new(),
            begun,
            begun_at: self.world.now,
            is_repeated: false,
        });
    }

    fn draw_op(&mut self, kind: u64) -> Op {
        let (at, other) = (self.random.index(SLOTS), self.random.index(SLOTS));
        let recent = self.races.recent.make_contiguous();
        let handle = self.random.pick(recent).copied();
        match (kind, handle) {
            (1..6, _) => Op::Make(at),
            (6..9, _) => Op::Remove(at),
            (9..12, _) if at != other => Op::Move(at, other),
            (12..14, Some(handle)) => Op::Link(self.races.object(handle), at),
            _ => Op::Look(at),
        }
    }

    fn encode_race(&self, xid: u32, ask: &Ask) -> (Procedure, Bytes) {
        let races = &self.races;
        let (op, number, kind) = match ask {
            Ask::Op { op, number, kind } => (*op, *number, *kind),
            Ask::List(listing) => {
                let call = Call::Readdir(call::Readdir {
                    directory: races.directories[listing.directory].as_handle(),
                    cookie: listing.cookie,
                    verifier: listing.verifier,
                    count_bytes: PAGE_BYTES,
                });
                return (call.procedure(), wire::encode(xid, &call));
            }
        };
        let (at, to) = match op {
            Op::Make(at) | Op::Remove(at) | Op::Link(_, at) | Op::Look(at) => (at, at),
            Op::Move(from, to) => (from, to),
        };
        let (name, target) = (name_of(at), name_of(to));
        let locate = |slot: Slot, name| Location {
            directory: races.directories[slot / NAMES].as_handle(),
            name: Name(name),
        };
        let location = locate(at, &name);
        let call = match op {
            Op::Make(_) => make(location, number, kind),
            Op::Remove(_) => Call::Remove(location),
            Op::Move(..) => Call::Rename(call::Rename {
                source: location,
                target: locate(to, &target),
            }),
            Op::Link(object, _) => Call::Link(call::Link {
                object: races.objects[object as usize].as_handle(),
                location,
            }),
            Op::Look(_) => Call::Lookup(location),
        };
        (call.procedure(), wire::encode(xid, &call))
    }

    fn send_race(&mut self, mut racing: Racing) {
        let xid = match racing.record.is_empty() {
            true => self.new_xid(),
            // What may be on its way still has to be the same request.
            false => wire::xid(&racing.record.slice(4..)).unwrap_or_default(),
        };
        if racing.record.is_empty() {
            (racing.procedure, racing.record) = self.encode_race(xid, &racing.ask);
        }
        let client = racing.client;
        self.note(|| format!("client {client}, #{xid}: {:?}", racing.ask));
        racing.is_repeated |= self.send_record(client, &racing.record);
        if self.random.one_in(40) && self.races.given_up < GIVEN_UP_MAX {
            if let Ask::Op { op, .. } = racing.ask {
                self.note(|| format!("#{xid}: nobody waits for it"));
                self.races.given_up += 1;
                self.races.note_spans(op, racing.begun, None);
            }
            return;
        }
        self.races.under_way.insert(xid, racing);
    }

    /// Sends what was to be tried again.
    pub(super) fn race_again(&mut self) {
        let now = self.world.now;
        let again = std::mem::take(&mut self.races.again);
        let (due, later) = again.into_iter().partition(|(due, _)| *due <= now);
        self.races.again = later;
        for (_, mut racing) in due {
            if !racing.is_repeated {
                racing.record = Bytes::new();
            }
            self.send_race(racing);
        }
    }

    /// A reply, if it is one of the races'.
    pub(super) fn take_race(&mut self, xid: u32, record: &Bytes) -> Result<bool, String> {
        let Some(mut racing) = self.races.under_way.remove(&xid) else {
            return Ok(false);
        };
        let reply = wire::decode(racing.procedure, record)?;
        let status = reply.status();
        self.note(|| format!("#{xid}: {status:?}"));
        if status == Some(Status::Jukebox) {
            let due = self.world.now + AGAIN_AFTER;
            self.races.again.push((due, racing));
            return Ok(true);
        }
        let wrong = format!("#{xid}: {:?} is answered {status:?}", racing.ask);
        let ended = self.races.tick();
        match racing.ask {
            Ask::Op { op, number, .. } => {
                let answer = self.answer_of(&reply).ok_or(wrong)?;
                self.races.history.ended(number, answer);
                if matches!(answer, Answer::Done(_)) {
                    self.races.note_spans(op, racing.begun, Some(ended));
                } else if racing.is_repeated && self.may_be_tried_again() {
                    // Refusals are kept in memory only: what is on its way still may be
                    // done by a successor who knows nothing of it.
                    self.races.history.begun(op);
                    self.races.note_spans(op, racing.begun, None);
                }
            }
            Ask::List(ref mut listing) => {
                let Reply::Readdir(Ok(page)) = &reply else {
                    return Err(wrong);
                };
                for entry in page.entries.iter() {
                    listing.seen.push(entry.name.0.to_vec());
                    listing.cookie = entry.cookie;
                }
                listing.verifier = page.verifier;
                if page.is_end {
                    self.races.listings.push((listing.clone(), ended));
                } else {
                    racing.record = Bytes::new();
                    racing.is_repeated = false;
                    self.send_race(racing);
                }
            }
        }
        Ok(true)
    }

    fn answer_of(&mut self, reply: &Reply) -> Option<Answer> {
        let object = match reply {
            Reply::Create(Ok(made)) | Reply::Symlink(Ok(made)) => Some(made.object?),
            Reply::Lookup(Ok(found)) => Some(found.object),
            _ => None,
        };
        let object = object.map(|handle| self.races.object(handle));
        match reply.status() {
            None => Some(Answer::Done(object)),
            Some(Status::Exist) => Some(Answer::Exists),
            Some(Status::NoEnt) => Some(Answer::Missing),
            Some(Status::Stale) => Some(Answer::Stale),
            Some(_) => None,
        }
    }

    /// Everything has ended: what the names are now, and whether all of it has an order.
    pub(super) fn judge_races(&mut self) -> Result<(), String> {
        for slot in 0..SLOTS {
            let Some(&directory) = self.races.directories.get(slot / NAMES) else {
                return Ok(()); // There were none.
            };
            let number = self.races.history.begun(Op::Look(slot));
            let name = name_of(slot);
            let found = self.call(&Call::Lookup(Location {
                directory: directory.as_handle(),
                name: Name(&name),
            }))?;
            let answer = self.answer_of(&found);
            let answer = answer.ok_or_else(|| format!("LOOKUP: {found:?}"))?;
            self.races.history.ended(number, answer);
        }
        let requests = self.races.requests();
        self.note(|| format!("{requests} requests raced"));
        match self.races.history.check(SLOTS) {
            Verdict::Linearizable => {}
            Verdict::Violated(what) => return Err(what),
            Verdict::Unknown => self.races.is_undecided = true,
        }
        self.races.check_listings()
    }
}

#[cfg(test)]
mod tests {
    use crossdock_sim::random::Random;

    use super::super::super::model::Model;
    use super::super::stage::SHAPE;
    use super::super::{Faults, RacesOf, Shape, world_of};
    use super::*;

    /// Goal: races are of many requests, names are compared with listings, and the search
    /// through their orders comes to its end.
    #[test]
    fn races_are_judged() {
        let shape = Shape {
            races: RacesOf::Only,
            sites: 3,
            ..SHAPE
        };
        for seed in 0..4 {
            let mut random = Random::new(seed);
            let world = world_of(shape, None, &mut random);
            let mut driver = Driver::new(shape, world, Model::default(), random, false);
            driver.make_directories(&[]).expect("the root is there");
            driver.begin_races().expect("directories are made");
            driver.work(200, Faults::None).expect("nothing fails");
            driver.judge_races().expect("there is an order");
            let races = &driver.races;
            assert!(!races.is_undecided, "seed {seed}");
            let (requests, listed) = (races.requests(), races.listed);
            assert!(requests > 60 && listed > 20, "{requests}, {listed}");
        }
    }
}
