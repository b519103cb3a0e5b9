//! The ensemble's keys for handles and for proofs (docs/decisions/0028): the root's site has
//! them in its log, and the manager that serves it tells them to whoever may know them.
//! They are not in the registry, which everybody reads.

use std::collections::BTreeSet;

use crossdock_link::{Frame, Role};
use crossdock_members::HostRecord;
use crossdock_names::{HandleKey, HostId, ProofKey};
use crossdock_nfs::NfsInput;
use crossdock_site::SiteInput;

use crate::host::Host;
use crate::message::Message;
use crate::sites::ROOT_SITE;

/// What a host knows of them.
pub(crate) struct Keys {
    /// What the root's site is offered if it has none.
    offered: (HandleKey, ProofKey),
    /// What handles are made with by gateways that are not scoped.
    handles: Option<HandleKey>,
    /// What managers make proofs with.
    pub(crate) proofs: Option<ProofKey>,
    /// Whether the root's site has been offered one, and may not have it for good yet.
    is_offered: bool,
    /// Which hosts have been told theirs: managers what proofs are made with, gateways
    /// what handles are.
    told: BTreeSet<HostId>,
}

impl Keys {
    /// `handling` and `proving` are random.
    pub(crate) fn new(handling: [u8; 32], proving: [u8; 32]) -> Self {
        let handles = HandleKey {
            id: 1,
            key: handling,
        };
        let proofs = ProofKey {
            id: 1,
            key: proving,
        };
        Self {
            offered: (handles, proofs),
            handles: None,
            proofs: None,
            is_offered: false,
            told: BTreeSet::new(),
        }
    }

    /// A connection is new: who is at its other end may be so, too.
    pub(crate) fn forget(&mut self, peer: HostId) {
        self.told.remove(&peer);
    }
}

impl Host {
    /// Whether the door can tell true handles from others, or has nothing to do with
    /// those that take a key: until then its clients wait. A gateway that is revoked
    /// is told nothing, and serves nothing.
    #[must_use]
    pub fn knows_handles(&self) -> bool {
        self.keys.handles.is_some() || self.own_scope().is_some() || self.is_revoked()
    }

    /// The root's site makes a key for handles when the volume is new, and one for proofs
    /// when a gateway is scoped for the first time.
    pub(crate) fn want_keys(&mut self) {
        let site = self.sites.get(&ROOT_SITE);
        let Some(site) = site.filter(|site| site.is_serving()) else {
            return;
        };
        let (handles, proofs) = &self.keys.offered;
        let handles = || SiteInput::HandleKey(handles.clone());
        let handles = (!site.has_handle_key()).then(handles);
        let wants_proofs = self.registry.is_shared() && self.has_scopes();
        let proofs = || SiteInput::ProofKey(proofs.clone());
        let proofs = (wants_proofs && !site.has_proof_key()).then(proofs);
        for input in [handles, proofs].into_iter().flatten() {
            self.keys.is_offered = true;
            self.queue.push_back(Message::Site(ROOT_SITE, input));
        }
    }

    /// The root's site is open: it has keys, or is to make some.
    pub(crate) fn take_root_opened(&mut self) {
        self.look_for_keys();
        self.want_keys();
    }

    /// The root's site has done something: what it was offered may be in its log now.
    pub(crate) fn take_root_drained(&mut self) {
        if self.keys.is_offered {
            self.look_for_keys();
        }
    }

    fn look_for_keys(&mut self) {
        let Some(site) = self.sites.get(&ROOT_SITE) else {
            return;
        };
        let (handles, proofs) = (site.handle_key().cloned(), site.proof_key().cloned());
        let is_complete = handles.is_some() && (proofs.is_some() || !self.has_scopes());
        self.keys.is_offered &= !is_complete;
        if let Some(key) = handles {
            self.learn_handle_key(key);
        }
        if let Some(key) = proofs {
            self.keys.proofs = Some(key);
        }
        self.tell_keys();
    }

    /// Who has the root tells the others: managers, which answer for files, too, what
    /// proofs are made with, and gateways without a scope what handles are.
    pub(crate) fn tell_keys(&mut self) {
        if !self.registry.is_shared() || !self.serves(ROOT_SITE) {
            return;
        }
        let hosts = self.registry.state().hosts.iter();
        let owed = hosts.filter_map(|(&host, record)| {
            let host = HostId(host);
            Some((host, self.key_for(host, record)?))
        });
        for (host, frame) in owed.collect::<Vec<_>>() {
            if self.keys.told.insert(host) {
                self.send_frame(host, frame);
            }
        }
    }

    /// As with keys for nodes: what a process says that it is does not count, but what its
    /// certificate says.
    fn key_for(&self, host: HostId, record: &HostRecord) -> Option<Frame> {
        match self.peers.role(host)? {
            Role::Manager if record.is_manager => self.keys.proofs.clone().map(Frame::Proving),
            Role::Gateway if self.may_make_handles(host, record) => {
                self.keys.handles.clone().map(Frame::Handling)
            }
            _ => None,
        }
    }

    /// Whether that gateway makes handles by itself: nobody has revoked or scoped what
    /// its certificate calls it.
    pub(crate) fn may_make_handles(&self, host: HostId, record: &HostRecord) -> bool {
        let state = self.registry.state();
        let certified = self.peers.certified_name(host);
        record.is_gateway
            && certified.is_none_or(|name| name == record.name)
            && !state.is_revoked(host)
            && state.scope(&record.name).is_none()
    }

    /// The manager of the root's site tells what proofs are made with.
    pub(crate) fn take_proof_key(&mut self, key: ProofKey) {
        if self.role.is_manager {
            self.keys.proofs = Some(key);
        }
    }

    /// It tells what handles are made with.
    pub(crate) fn take_handle_key(&mut self, key: HandleKey) {
        if self.role.is_gateway {
            self.learn_handle_key(key);
        }
    }

    fn learn_handle_key(&mut self, key: HandleKey) {
        if self.keys.handles.as_ref() == Some(&key) {
            return;
        }
        self.keys.handles = Some(key.clone());
        self.learn_signing_key(&key);
        self.iscsi.learn_token_key(&key.key);
        let input = NfsInput::HandleKey(key);
        self.queue.push_back(Message::Door(input));
    }
}
