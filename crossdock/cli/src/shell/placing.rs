//! Orders of the admin API about nodes and managers that come and go. They are answered when the
//! change is in the ensemble's state; copying goes on behind it.

use std::time::Duration;

use crossdock_admin::{Answer, PlaceStatus, Placing, Refusal, RetiringStatus};
use crossdock_host::{Host, NodePlace};
use crossdock_members::Placement;
use crossdock_names::HostId;
use crossdock_net::now;
use crossdock_types::Time;
use tokio::sync::oneshot;
use tracing::info;

use super::Shell;
use super::waiting::tell;
use crate::{data, report};

/// How long etcd may take to carry a change out.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who waits for a change.
pub(super) struct Pending {
    change: Awaited,
    due: Time,
    reply: oneshot::Sender<Answer>,
}

/// For what.
#[derive(Debug)]
enum Awaited {
    Node {
        placement: Placement,
        /// What is told of: as it was before, if it is gone then.
        number: u32,
        before: Option<PlaceStatus>,
    },
    Manager(HostId),
}

impl Shell {
    pub(super) fn list_places(&self) -> Answer {
        let places: Vec<PlaceStatus> = self.host.places().iter().map(status).collect();
        report::json(&places)
    }

    /// Begins a change; whoever asked waits for the registry.
    pub(super) fn place(&mut self, placing: Placing, reply: oneshot::Sender<Answer>) {
        match self.begin_placing(placing) {
            Ok(change) => {
                let due = now() + PATIENCE;
                self.place_replies.push(Pending { change, due, reply });
                self.carry_out_effects();
                self.answer_placed();
            }
            Err(refusal) => tell(reply, Err(refusal)),
        }
    }

    /// Tells those whose changes are carried out, and those who have waited too long.
    pub(super) fn answer_placed(&mut self) {
        let (host, time) = (&self.host, now());
        let is_over = |it: &mut Pending| it.change.is_done(host) || it.due <= time;
        let over: Vec<Pending> = self.place_replies.extract_if(.., is_over).collect();
        for pending in over {
            let answer = match pending.change.is_done(&self.host) {
                true => {
                    info!(change = ?pending.change, "the ensemble has changed");
                    self.tell_placed(pending.change)
                }
                false => Err(Refusal::Conflict(
                    "etcd has not carried it out yet; it may do so later: crossdock node list and crossdock status show it".to_owned(),
                )),
            };
            tell(pending.reply, answer);
        }
    }

    fn tell_placed(&self, change: Awaited) -> Answer {
        match change {
            Awaited::Node { number, before, .. } => {
                let place = self.place_of(number).or(before);
                place.map_or_else(|| Err(unknown(number)), |place| report::json(&place))
            }
            Awaited::Manager(host) => report::json(&RetiringStatus {
                host: host.to_string(),
                sites: self.host.retiring(host).1 as u64,
            }),
        }
    }

    /// When somebody has waited too long.
    pub(super) fn placing_due(&self) -> Option<Time> {
        self.place_replies.iter().map(|it| it.due).min()
    }

    fn begin_placing(&mut self, placing: Placing) -> Result<Awaited, Refusal> {
        let random = || data::random_u64().map_err(|error| Refusal::Conflict(error.to_string()));
        let (number, placement) = match placing {
            Placing::Drain(number) => (
                number,
                Placement::Drain {
                    number,
                    drains: true,
                },
            ),
            Placing::Undrain(number) => (
                number,
                Placement::Drain {
                    number,
                    drains: false,
                },
            ),
            Placing::Remove(number) => (number, Placement::Remove { number }),
            Placing::Replace(number) => {
                let id = Some(random()?);
                (number, Placement::Replace { number, id })
            }
            Placing::Add => {
                let places = self.host.places();
                let number = places.last().map_or(0, |place| place.number + 1);
                (
                    number,
                    Placement::Add {
                        number,
                        id: random()?,
                    },
                )
            }
            Placing::Retire(host) => {
                let host = HostId(host);
                self.host.retire(host).map_err(Refusal::Conflict)?;
                return Ok(Awaited::Manager(host));
            }
        };
        let before = self.place_of(number);
        if placing != Placing::Add && before.is_none() {
            return Err(unknown(number));
        }
        self.host.place(&placement).map_err(Refusal::Conflict)?;
        Ok(Awaited::Node {
            placement,
            number,
            before,
        })
    }

    fn place_of(&self, number: u32) -> Option<PlaceStatus> {
        let places = self.host.places();
        let place = places.iter().find(|place| place.number == number);
        place.map(status)
    }
}

impl Awaited {
    fn is_done(&self, host: &Host) -> bool {
        match self {
            Self::Node { placement, .. } => host.has_placed(placement),
            Self::Manager(manager) => host.retiring(*manager).0,
        }
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
