//! What a site keeps is copied to a node that comes back with nothing while the site
//! serves: when it is opened anew for that node, its clients wait for what has changed
//! since, and not for all that there is.

use std::time::Duration;

use bytes::Bytes;
use crossdock_members::{Change, Placement};
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Reply};
use crossdock_types::{Payload, Time};

use super::network::Place;
use super::stage::{LONG, SHAPE, Stage};

/// Files of the root's site, and the bytes of each: more than a log record has room for.
const FILES: usize = 3000;
const BYTES: u32 = 10_000;

/// Clients ask so often.
const EVERY: Duration = Duration::from_millis(5);

/// What clients wait for at most when the site is opened anew.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// How long it takes at most until the node has its part of the site again.
const AFTERWARDS: Duration = Duration::from_secs(25);

fn write(file: &HandleBuffer, byte: u8) -> Call<'_> {
    Call::Write(call::Write {
        file: file.as_handle(),
        offset: 0,
        count_bytes: BYTES,
        stable: StableHow::FileSync,
        data: Payload::from(Bytes::from(vec![byte; BYTES as usize])),
    })
}

fn read(file: &HandleBuffer) -> Call<'_> {
    Call::Read(call::Read {
        file: file.as_handle(),
        offset: 0,
        count_bytes: BYTES,
    })
}

impl Stage {
    fn write_file(&mut self, file: &HandleBuffer, byte: u8) {
        let written = self.do_it(&write(file, byte));
        assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    }

    /// Makes all files: each with the byte that it is full of.
    fn files(&mut self) -> Vec<(HandleBuffer, u8)> {
        let made = (0..FILES).map(|number| {
            let file = self.create(format!("file-{number}").as_bytes());
            self.write_file(&file, 1);
            (file, 1)
        });
        made.collect()
    }

    /// The members of the root's set, by their places.
    fn members(&self) -> Vec<Place> {
        let state = &self.world.service.state;
        let members = state.sets[&state.sites[0].1].members.iter();
        let places = members.map(|&node| self.world.place_of_node(node));
        places.map(|place| place.expect("it has one")).collect()
    }

    /// A node is killed, and starts again under a new id with nothing.
    fn empty(&mut self, place: Place) {
        let state = &self.world.service.state;
        let is_there = |node: &&crossdock_members::NodeRecord| {
            self.world.place_of_node(node.id) == Some(place)
        };
        let number = state.nodes.iter().find(is_there).expect("it runs").number;
        self.world.kill(place, Duration::from_secs(8));
        while self.members().contains(&place) {
            self.pass(Duration::from_millis(10));
        }
        let id = 0x1234_5678;
        self.world.loses_files(place, id);
        let id = Some(id);
        self.propose(Change::Place(Placement::Replace { number, id }));
    }

    /// Writes files anew until a time, and until the root's set has two members; what the
    /// client has waited for at most.
    fn work(&mut self, files: &mut [(HandleBuffer, u8)], until: Time) -> Duration {
        let mut longest = Duration::ZERO;
        for number in (0..FILES).cycle() {
            if self.world.now >= until && self.members().len() == 2 {
                break;
            }
            assert!(self.world.now < until + LONG, "the set is not made whole");
            let (file, byte) = &mut files[number];
            *byte += 1;
            let begun = self.world.now;
            self.write_file(file, *byte);
            longest = longest.max(self.world.now.since(begun));
            self.pass(EVERY);
        }
        longest
    }
}

/// Goal: a node that comes back with nothing gets a site's small files while the site
/// serves and they are written on; clients are held up for less than it takes to copy
/// them, and what it has then is what they have written.
#[test]
fn small_files_are_copied_before_their_site_is_opened_anew() {
    let mut stage = Stage::new(SHAPE, None);
    let mut files = stage.files();
    let place = stage.members()[1];
    stage.empty(place);
    let until = stage.world.now + AFTERWARDS;
    let longest = stage.work(&mut files, until);
    assert!(longest < PAUSE_MAX, "{longest:?}");
    let other = stage.members().into_iter().find(|&other| other != place);
    stage.world.kill(other.expect("there are two"), LONG);
    for (file, byte) in &files {
        let Reply::Read(Ok(found)) = stage.do_it(&read(file)) else {
            panic!("a file cannot be read");
        };
        assert_eq!(found.data.to_bytes(), vec![*byte; BYTES as usize]);
    }
}
