//! Orders of the admin API about nodes that come and go. They are answered when the
//! change is in the ensemble's state; copying goes on behind it.

use std::time::Duration;

use crossdock_admin::{Answer, PlaceStatus, Placing, Refusal};
use crossdock_host::NodePlace;
use crossdock_members::Placement;
use crossdock_net::now;
use crossdock_types::Time;
use tokio::sync::oneshot;
use tracing::info;

use super::Shell;
use crate::{data, report};

/// How long etcd may take to carry a change out.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who waits for a change.
pub(super) struct Waiting {
    placement: Placement,
    /// What is told of: as it was before, if it is gone then.
    number: u32,
    before: Option<PlaceStatus>,
    due: Time,
    reply: oneshot::Sender<Answer>,
}

impl Shell {
    pub(super) fn list_places(&self) -> Answer {
        let places: Vec<PlaceStatus> = self.host.places().iter().map(status).collect();
        report::json(&places)
    }

    /// Begins a change; whoever asked waits for the registry.
    pub(super) fn place(&mut self, placing: Placing, reply: oneshot::Sender<Answer>) {
        match self.begin_placing(placing) {
            Ok((number, placement)) => {
                let before = self.place_of(number);
                let due = now() + PATIENCE;
                self.place_replies.push(Waiting {
                    placement,
                    number,
                    before,
                    due,
                    reply,
                });
                self.carry_out_effects();
                self.answer_placed();
            }
            Err(refusal) => {
                let _ = reply.send(Err(refusal)); // The asker may have gone away meanwhile.
            }
        }
    }

    /// Tells those whose changes are carried out, and those who have waited too long.
    pub(super) fn answer_placed(&mut self) {
        let (host, time) = (&self.host, now());
        let is_over = |it: &mut Waiting| host.has_placed(&it.placement) || it.due <= time;
        let over: Vec<Waiting> = self.place_replies.extract_if(.., is_over).collect();
        for waiting in over {
            let answer = match self.host.has_placed(&waiting.placement) {
                true => {
                    info!(node = waiting.number, change = ?waiting.placement, "the ensemble has changed");
                    let place = self.place_of(waiting.number).or(waiting.before);
                    place.map_or_else(|| Err(unknown(waiting.number)), |it| report::json(&it))
                }
                false => Err(Refusal::Conflict(
                    "etcd has not carried it out yet; it may do so later: crossdock node list shows it".to_owned(),
                )),
            };
            let _ = waiting.reply.send(answer); // As above.
        }
    }

    /// When somebody has waited too long.
    pub(super) fn placing_due(&self) -> Option<Time> {
        self.place_replies.iter().map(|it| it.due).min()
    }

    fn begin_placing(&mut self, placing: Placing) -> Result<(u32, Placement), Refusal> {
        let random = || data::random_u64().map_err(|error| Refusal::Conflict(error.to_string()));
        let (number, placement) = match placing {
            Placing::Drain(number) => (number, Placement::Drain { number, drains: true }),
            Placing::Undrain(number) => (number, Placement::Drain { number, drains: false }),
            Placing::Remove(number) => (number, Placement::Remove { number }),
            Placing::Replace(number) => {
                let id = Some(random()?);
                (number, Placement::Replace { number, id })
            }
            Placing::Add => {
                let places = self.host.places();
                let number = places.last().map_or(0, |place| place.number + 1);
                (number, Placement::Add { number, id: random()? })
            }
        };
        if placing != Placing::Add && self.place_of(number).is_none() {
            return Err(unknown(number));
        }
        self.host.place(&placement).map_err(Refusal::Conflict)?;
        Ok((number, placement))
    }

    fn place_of(&self, number: u32) -> Option<PlaceStatus> {
        let places = self.host.places();
        let place = places.iter().find(|place| place.number == number);
        place.map(status)
    }
}

fn unknown(number: u32) -> Refusal {
    Refusal::Unknown(format!(
        "the ensemble has no node {number}; crossdock node list shows which it has"
    ))
}

fn status(place: &NodePlace) -> PlaceStatus {
    PlaceStatus {
        number: place.number,
        id: format!("{:016x}", place.id),
        is_running: place.is_running,
        is_draining: place.is_draining,
        sets: place.homes as u64,
        coming: place.coming as u64,
        leaving: place.leaving as u64,
    }
}
