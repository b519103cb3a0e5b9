//! What gateways keep of hot files, and send to each other's clients (docs/decisions/0052).
//!
//! A gateway tells the others when it keeps all of a file that lies in columns. One of them that
//! has a lease to read of the same state of that file asks for a piece of it, in the name of a
//! client's connection, as it would ask a node. The bytes stay where they are, in memory under a
//! pin, and leave by the gateway's own inflator.

use std::collections::BTreeMap;

use crossdock_limits::KEPT_FILES_TOLD_MAX;
use crossdock_link::{Frame, Role};
use crossdock_names::{FileRef, HostId, Version};
use crossdock_peer::{
    CallId, Flow, KeptAsk, KeptPin, NodeAnswer, NodeError, NodeReply, Promise, Transfer,
};
use crossdock_router::{KeptRead, RouterInput};
use crossdock_types::{Extent, Payload, WallTime};

use crate::host::Host;
use crate::message::Message;
use crate::refill::{Promised, Source};

/// Both sides of it.
#[derive(Default)]
pub(crate) struct Lending {
    /// What others are asked for.
    asked: BTreeMap<CallId, Asked>,
    /// Bytes that were promised to other gateways, and by them.
    lent_bytes: u64,
    borrowed_bytes: u64,
}

struct Asked {
    gateway: HostId,
    kept: Box<KeptRead>,
}

impl Host {
    /// Bytes of files that this gateway was to send to clients of others, and others to its own.
    #[must_use]
    pub const fn lending_figures(&self) -> (u64, u64) {
        (self.lending.lent_bytes, self.lending.borrowed_bytes)
    }

    /// Whether a gateway may read whatever it likes, by what its certificate calls it: bytes of
    /// files are given to no other one past their site, and taken of none.
    pub(crate) fn is_peer_gateway(&self, host: HostId) -> bool {
        let record = self.registry.state().hosts.get(&host.0);
        let is_it = |record| self.may_make_handles(host, record);
        host != self.host_id()
            && self.peers.role(host) == Some(Role::Gateway)
            && record.is_some_and(is_it)
    }

    /// This gateway keeps a file from now on: the others are told.
    pub(crate) fn tell_kept(&mut self, file: FileRef, changed: WallTime) {
        if !self.lends() {
            return;
        }
        for gateway in self.table.hosts.gateways.clone() {
            if self.is_peer_gateway(gateway) {
                let keeps = Transfer::Keeps(vec![(file, changed)]);
                self.send_frame(gateway, Frame::Transfer(keeps));
            }
        }
    }

    /// Another gateway has learnt where this one's inflator is: it hears what is kept already.
    pub(crate) fn tell_all_kept(&mut self, gateway: HostId) {
        let files: Vec<_> = self.router.kept_files().collect();
        for some in files.chunks(KEPT_FILES_TOLD_MAX) {
            let keeps = Transfer::Keeps(some.to_vec());
            self.send_frame(gateway, Frame::Transfer(keeps));
        }
    }

    /// Another gateway keeps files.
    pub(crate) fn take_keeps(&mut self, gateway: HostId, files: Vec<(FileRef, WallTime)>) {
        for (file, changed) in files {
            let input = RouterInput::KeptElsewhere(gateway, file, changed);
            self.queue.push_back(Message::Router(input));
        }
    }

    /// The router asks another gateway for what that keeps.
    pub(crate) fn ask_kept(
        &mut self,
        flow: Flow,
        gateway: HostId,
        id: CallId,
        kept: Box<KeptRead>,
    ) {
        if self.flow_for(flow).is_none() || !self.is_peer_gateway(gateway) {
            return self.answer_kept(id, Err(NodeError::VersionGone));
        }
        self.note_asked(flow, gateway);
        let ask = Transfer::Ask(Box::new(KeptAsk {
            id,
            flow,
            file: kept.file,
            changed: kept.changed,
            offset_bytes: kept.offset_bytes,
            length_bytes: kept.length_bytes,
        }));
        self.send_frame(gateway, Frame::Transfer(ask));
        self.lending.asked.insert(id, Asked { gateway, kept });
    }

    fn answer_kept(&mut self, id: CallId, outcome: Result<NodeAnswer, NodeError>) {
        let reply = NodeReply { id, outcome };
        let input = RouterInput::Kept(reply);
        self.queue.push_back(Message::Router(input));
    }

    /// A client of another gateway wants what this one may keep.
    pub(crate) fn take_ask(&mut self, gateway: HostId, ask: &KeptAsk) {
        let id = ask.id;
        let pin = self.lend(gateway, ask);
        self.send_frame(gateway, Frame::Transfer(Transfer::Lent { id, pin }));
    }

    fn lend(&mut self, gateway: HostId, ask: &KeptAsk) -> Option<KeptPin> {
        let end = ask.offset_bytes.checked_add(ask.length_bytes)?;
        let range = ask.offset_bytes..end;
        let (payload, version) = self.router.lend(ask.file, ask.changed, &range)?;
        let length_bytes = payload.len() as u64;
        let pin = self.hold_kept(gateway, ask.flow, payload, version)?;
        self.lending.lent_bytes += length_bytes;
        Some(KeptPin { pin, version })
    }

    /// Another gateway has said whether it sends what it was asked for.
    pub(crate) fn take_lent(&mut self, gateway: HostId, id: CallId, pin: Option<KeptPin>) {
        let asked = self.lending.asked.remove(&id);
        let asked = asked.filter(|asked| asked.gateway == gateway);
        let Some(Asked { kept, .. }) = asked else {
            // Nobody waits for it: it goes back.
            if let Some(KeptPin { pin, .. }) = pin {
                self.name_kept(gateway, pin, 0);
            }
            return;
        };
        let outcome = match pin {
            Some(KeptPin { pin, version }) => Ok(self.take_borrowed(gateway, &kept, pin, version)),
            None => Err(NodeError::VersionGone),
        };
        self.answer_kept(id, outcome);
    }

    /// What is to become of it if that gateway dies: members of its column have the same bytes.
    fn take_borrowed(
        &mut self,
        gateway: HostId,
        kept: &KeptRead,
        pin: u64,
        version: Version,
    ) -> NodeAnswer {
        let length_bytes = usize::try_from(kept.length_bytes).unwrap_or(usize::MAX);
        let promised = Promised {
            source: Source {
                object: kept.object,
                offset_bytes: kept.object_offset,
                capability: kept.capability,
            },
            length_bytes,
            version,
            promise: Promise {
                as_of: version,
                right: None,
            },
            members: self.members_up(&kept.object),
            kept: None,
        };
        self.refills.note(gateway, pin, promised);
        self.lending.borrowed_bytes += kept.length_bytes;
        let mut payload = Payload::new();
        payload.push_extent(self.name_kept(gateway, pin, length_bytes));
        NodeAnswer::Read { payload, version }
    }

    fn name_kept(&self, gateway: HostId, pin: u64, length_bytes: usize) -> Extent {
        Extent::new(gateway.0, pin, length_bytes, &self.transfers.released)
    }

    /// A gateway is gone, or its connection: what it was asked for others are.
    pub(crate) fn forget_asked(&mut self, gateway: HostId) {
        let asked = self.lending.asked.iter();
        let lost = asked.filter(|(_, asked)| asked.gateway == gateway);
        let lost: Vec<CallId> = lost.map(|(&id, _)| id).collect();
        for id in lost {
            self.lending.asked.remove(&id);
            self.answer_kept(id, Err(NodeError::VersionGone));
        }
    }
}
