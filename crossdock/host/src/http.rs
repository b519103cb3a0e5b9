//! The HTTP door within the host: its messages, and what it is told.

use std::sync::Arc;

use crossdock_delivery::Record;
use crossdock_http::{HttpEffect, HttpFigures, HttpInput};
use crossdock_nfs::NfsInput;
use crossdock_objects::ObjectDoorInput;
use crossdock_peer::RelayedBytes;
use crossdock_router::RouterInput;
use crossdock_types::{Time, WallTime};
use crossdock_web::Gate;

use crate::host::{Host, HostEffect};
use crate::message::Message;

impl Host {
    /// Gives the HTTP door what has happened, and takes what it wants done.
    pub(crate) fn run_http(&mut self, now: Time, wall: WallTime, input: HttpInput) {
        self.http.handle(now, wall, input);
        while let Some(effect) = self.http.poll_effect() {
            match effect {
                HttpEffect::Router(call) => self.ask_router(RouterInput::Request(call)),
                HttpEffect::ReadFor(flow, choice, call) => self.read_for(flow, choice, call),
                HttpEffect::ReadHot(call) => self.ask_router(RouterInput::ReadHot(call)),
                HttpEffect::Locate(id, wanted) => self.locate(now, wall, id, *wanted),
                HttpEffect::Withdraw(id) => {
                    self.queue
                        .push_back(Message::Router(RouterInput::Withdraw(id)));
                }
                HttpEffect::Postpone(id, by) => {
                    self.queue
                        .push_back(Message::Router(RouterInput::Postpone(id, by)));
                }
                HttpEffect::Ahead(ahead) => {
                    self.queue
                        .push_back(Message::Router(RouterInput::Ahead(ahead)));
                }
                HttpEffect::Hurry(id) => {
                    self.queue
                        .push_back(Message::Router(RouterInput::Resume(id)));
                }
                HttpEffect::Advise(advice) => {
                    let input = NfsInput::Advice(advice);
                    self.queue.push_back(Message::Door(input));
                }
                effect => self.effects.push_back(HostEffect::Http(effect)),
            }
        }
    }

    /// A door asks the router for something.
    pub(crate) fn ask_router(&mut self, request: RouterInput) {
        self.requests += 1;
        if let RouterInput::Request(call) = &request
            && self.guards(&call.request.operation)
        {
            return self.refuse_guarded(call.id);
        }
        self.queue.push_back(Message::Router(request));
    }

    /// Tells the HTTP door what requests are judged by.
    pub(crate) fn tell_gate(&mut self) {
        let gate = Gate {
            tokens: Arc::clone(self.web_tokens()),
            keys: self.signing_keys().ok().cloned(),
            ..Gate::default()
        };
        self.queue.push_back(Message::Http(HttpInput::Gate(gate)));
    }

    /// Tells the HTTP door what the disks of all nodes are like, and that of the nodes what
    /// theirs are.
    pub(crate) fn tell_disks(&mut self) {
        let profiles: Vec<_> = self.disk_profiles().collect();
        for (node, profile) in profiles {
            let profile = crossdock_delivery::DiskProfile {
                positioning: profile.positioning,
                sequential_bytes_per_second: profile.sequential_bytes_per_second,
                load_percent: profile.load_percent,
            };
            let input = HttpInput::Disk(node.0, profile);
            self.queue.push_back(Message::Http(input));
            if self.nodes.contains_key(&node) {
                self.tell_depot_disk(node, profile);
                let input = ObjectDoorInput::Disk(node, profile);
                self.queue.push_back(Message::Objects(input));
            }
        }
    }

    /// The last decisions of the delivery engine of this process, oldest first.
    pub fn delivery_decisions(&self) -> impl Iterator<Item = &Record> {
        self.http.decisions()
    }

    /// What nodes could have sent to clients of each door, NFS and HTTP, and were not asked to.
    #[must_use]
    pub fn relayed_bytes(&self) -> (RelayedBytes, RelayedBytes) {
        (self.door.relayed_bytes(), self.http.figures().relayed)
    }

    /// Bytes of files that are read again and again: those that are kept, and those that were
    /// given out of it so far.
    #[must_use]
    pub fn hot_bytes(&self) -> (u64, u64) {
        let (kept, served) = self.router.hot_bytes();
        (kept as u64, served)
    }

    /// What the HTTP door has counted.
    #[must_use]
    pub fn http_figures(&self) -> HttpFigures {
        self.http.figures()
    }
}
