//! A gateway and those that it asks are cut off the registry at once: they still
//! reach each other and the nodes, others take their places, and none of them
//! knows. A client that stays with that gateway, and only looks, must not be
//! shown what is older than what the others were told meanwhile.

use std::time::Duration;

use crossdock_types::Time;

use super::driver::{CLIENTS, Driver};
use super::network::Place;

/// Those who are cut off are so within this.
const SPREAD_MILLIS: u64 = 2000;

/// For how long: somewhat longer than the registry's lease, at least.
const LENGTH_MILLIS: std::ops::Range<u64> = 2500..7000;

/// Requests in the meantime.
const REQUESTS: u64 = 90;

/// Requests of the client that stays, which may wait all the time.
const ROOM: u64 = 6;

/// Processes that nobody tells that they have been replaced.
pub(super) struct Apart {
    /// Who is cut off when.
    cuts: Vec<(Time, Place)>,
    /// The client that stays.
    reader: usize,
    until: Time,
}

impl Driver {
    /// Draws who falls apart from the rest; how many requests that is worth.
    pub(super) fn fall_apart(&mut self) -> u64 {
        let reader = self.random.index(CLIENTS);
        let connection = self.clients[reader].connection;
        let gateway = connection.and_then(|name| self.world.gateway_of(name));
        let (Some(gateway), None) = (gateway, &self.apart) else {
            return 0;
        };
        if self.shape.gateways < 2 {
            return 0;
        }
        let nodes = self.shape.nodes as usize;
        let managers = self.shape.managers as usize;
        let owner = self.world.owner_of_root();
        let mut places = vec![gateway];
        match (self.random.below(6), owner) {
            (0, _) => {}
            (1, _) | (_, None) => places.push(nodes + self.random.index(managers)),
            (_, Some(owner)) => places.push(owner),
        }
        if self.random.coin() || places.len() == 1 {
            places.push(self.random.index(nodes));
        }
        let now = self.world.now;
        let mut cuts = Vec::new();
        let spread = match self.random.coin() {
            true => 1,
            false => SPREAD_MILLIS,
        };
        for place in places {
            let delay = Duration::from_millis(self.random.below(spread));
            cuts.push((now + delay, place));
        }
        let length = self.random.between(LENGTH_MILLIS.start, LENGTH_MILLIS.end);
        let until = now + Duration::from_millis(length);
        let who: Vec<Place> = cuts.iter().map(|(_, place)| *place).collect();
        self.note(|| {
            format!("client {reader} stays with {who:?}, which are cut from the registry")
        });
        self.apart = Some(Apart {
            cuts,
            reader,
            until,
        });
        REQUESTS
    }

    /// Cuts off who is to be by now; afterwards all is as ever.
    pub(super) fn cut_apart(&mut self) {
        let now = self.world.now;
        let Some(apart) = &mut self.apart else {
            return;
        };
        let until = apart.until;
        for (_, place) in apart.cuts.extract_if(.., |(due, _)| *due <= now) {
            self.world.cut_from_registry(place, until.since(now));
        }
        if until <= now {
            self.apart = None;
        }
    }

    /// When something of it is due.
    pub(super) fn next_cut(&self) -> Option<Time> {
        let apart = self.apart.as_ref()?;
        let cuts = apart.cuts.iter().map(|(due, _)| *due);
        cuts.chain([apart.until]).min()
    }

    /// Whether the client stays and looks.
    pub(super) fn is_reader(&self, client: usize) -> bool {
        let apart = self.apart.as_ref();
        apart.is_some_and(|apart| apart.reader == client)
    }

    /// Requests that may be on their way beyond the usual.
    pub(super) fn extra_room(&self) -> u64 {
        self.apart.as_ref().map_or(0, |_| ROOM)
    }

    /// Who asks next.
    pub(super) fn random_client(&mut self) -> usize {
        match &self.apart {
            Some(apart) if self.random.coin() => apart.reader,
            _ => self.random.index(CLIENTS),
        }
    }
}
