//! A client reads the list of a directory whose names are hashed, and the manager that has
//! the part at which it is dies: the cookie is of the logical site, and goes on at whoever
//! has that.

use std::time::Duration;

use crossdock_names::HostId;
use crossdock_nfs3::call;
use crossdock_nfs3::{Call, CookieVerifier, HandleBuffer, Reply};
use crossdock_peer::COOKIE_COUNTER_BITS;

use super::damaged_directories::HASHED;
use super::network::Place;
use super::stage::{CUT, LONG, Stage, WELL};

/// Names in the directory, and what one answer has room for: some ten of them.
const NAMES: usize = 60;
const COUNT_BYTES: u32 = 512;

/// How long the dead manager's machine starts no other one.
const AWAY: Duration = Duration::from_secs(10);

/// Until it is there again, and has its share of the sites.
const REST: Duration = Duration::from_secs(30);

/// What a client has of a list.
#[derive(Default)]
struct Listing {
    names: Vec<Vec<u8>>,
    cookie: u64,
    verifier: CookieVerifier,
    is_end: bool,
}

impl Listing {
    /// Asks for what is behind the cookie.
    fn go_on(&mut self, stage: &mut Stage, via: Place, directory: &HandleBuffer) {
        let call = Call::Readdir(call::Readdir {
            directory: directory.as_handle(),
            cookie: self.cookie,
            verifier: self.verifier,
            count_bytes: COUNT_BYTES,
        });
        let reply = stage.ask(via, &call, LONG).expect("an answer");
        let Reply::Readdir(Ok(part)) = reply else {
            panic!("behind {:#x}: {reply:?}", self.cookie);
        };
        for entry in part.entries.iter() {
            self.cookie = entry.cookie;
            self.names.push(entry.name.0.to_vec());
        }
        (self.verifier, self.is_end) = (part.verifier, part.is_end);
    }

    /// Who serves the site at which it is.
    fn manager(&self, stage: &Stage) -> Place {
        let site = u16::try_from(self.cookie >> COOKIE_COUNTER_BITS).expect("a site");
        let owner = stage.world.service.state.owners[&site];
        stage.world.place_of(HostId(owner)).expect("it runs")
    }
}

/// Goal (issue 4, section 4): a list is read on behind a cookie after the site that the
/// cookie names is served elsewhere, through either gateway: every name once, wherever in
/// the list that happens.
#[test]
fn a_list_goes_on_behind_a_cookie_whose_site_has_moved() {
    let mut stage = Stage::new(HASHED, None);
    let directory = stage.new_directory(b"d").handle;
    let mut expected: Vec<Vec<u8>> = vec![b".".to_vec(), b"..".to_vec()];
    for number in 0..NAMES {
        let name = format!("name-{number:02}").into_bytes();
        stage.create_in(&directory, &name);
        expected.push(name);
    }
    expected.sort();
    let mut killed = Vec::new();
    for answers in 1.. {
        let mut listing = Listing::default();
        for _ in 0..answers {
            listing.go_on(&mut stage, WELL, &directory);
        }
        if listing.is_end {
            break;
        }
        let site = listing.cookie >> COOKIE_COUNTER_BITS;
        let victim = listing.manager(&stage);
        killed.push((site, victim));
        stage.world.kill(victim, AWAY);
        let mut via = CUT;
        while !listing.is_end {
            listing.go_on(&mut stage, via, &directory);
            via = CUT + WELL - via;
        }
        listing.names.sort();
        assert_eq!(listing.names, expected, "killed after {answers} answers");
        stage.pass(REST);
    }
    // In every part of the directory, and each manager.
    let mut sites: Vec<u64> = killed.iter().map(|(site, _)| *site).collect();
    let mut victims: Vec<Place> = killed.into_iter().map(|(_, place)| place).collect();
    victims.sort_unstable();
    victims.dedup();
    assert_eq!(victims.len(), 2, "{victims:?}");
    sites.dedup();
    assert_eq!(sites.len(), usize::from(HASHED.sites), "{sites:?}");
}
