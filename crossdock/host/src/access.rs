//! What other hosts may ask of the parts of this one, and what a gateway has to show
//! for it (docs/decisions/0024). Within a process nobody is checked: there is no
//! boundary between its parts.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_link::{Frame, Role};
use crossdock_members::HostRecord;
use crossdock_names::{FileCapability, HostId, MintingKey, NodeId, Rights, Scope};
use crossdock_peer::{
    AccessError, NodeRequest, OpenFor, Port, SiteAnswer, SiteError, SiteOperation, SiteReply,
    Transfer,
};
use crossdock_server::{CAPABILITY_SECONDS, Guard};
use crossdock_types::WallTime;

use crate::held::PIN_PATIENCE;
use crate::host::{Host, HostEffect};
use crate::mutation::Mutation;

/// Keys of this host and of others.
pub(crate) struct Access {
    /// What this host's capabilities are made with, if it has sites.
    own: MintingKey,
    /// What others make theirs with, if this one has nodes.
    guard: Guard,
    /// Which hosts know the own key.
    told: BTreeSet<HostId>,
    /// The time of this turn.
    pub(crate) wall: WallTime,
    /// Hosts of whose refusals the log tells already: once per connection.
    refused: BTreeSet<HostId>,
    /// Whether it is known that this host's gateway is revoked.
    is_revoked: bool,
}

impl Access {
    pub(crate) fn new(own: MintingKey) -> Self {
        Self {
            own,
            guard: Guard::default(),
            told: BTreeSet::new(),
            wall: WallTime(0),
            refused: BTreeSet::new(),
            is_revoked: false,
        }
    }

    /// What this host's capabilities are made with.
    pub(crate) const fn own(&self) -> &MintingKey {
        &self.own
    }

    /// What live managers make theirs with.
    pub(crate) const fn minters(&self) -> &BTreeMap<HostId, MintingKey> {
        self.guard.minters()
    }

    /// A connection is new: who is at its other end may be so, too.
    pub(crate) fn forget(&mut self, peer: HostId) {
        self.told.remove(&peer);
        self.refused.remove(&peer);
    }
}

impl Host {
    /// Whether an administrator has revoked this gateway: nodes and managers refuse it.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.registry.state().is_revoked(self.host_id())
    }

    /// What an administrator calls this gateway.
    #[must_use]
    pub fn gateway_name(&self) -> &str {
        &self.role.name
    }

    /// The table or the connections have changed: the hosts with nodes get the key of
    /// this manager, keys of those that are gone are forgotten, and a gateway learns
    /// that it is revoked.
    pub(crate) fn follow_access(&mut self) {
        if !self.registry.is_shared() {
            return;
        }
        if !self.has(Mutation::SkipFence) {
            self.access.guard.keep(&self.table.hosts.live);
        }
        self.tell_object_gate();
        let is_revoked = self.is_revoked();
        if is_revoked != std::mem::replace(&mut self.access.is_revoked, is_revoked) {
            let name = &self.role.name;
            self.effects.push_back(HostEffect::Warning(match is_revoked {
                true => format!(
                    "this gateway ({name}) has been revoked: nodes and managers refuse it; crossdock gateway restore {name} lets it in again"
                ),
                false => format!("this gateway ({name}) has been let in again"),
            }));
        }
        if !self.role.is_manager || !self.table.hosts.live.contains(&self.host_id()) {
            return;
        }
        let hosts: BTreeSet<HostId> = self.table.hosts.nodes.values().copied().collect();
        for host in hosts {
            // Whatever number a gateway gives itself: its certificate is no node's.
            let is_node = self.peers.role(host) == Some(Role::Node);
            if is_node && self.access.told.insert(host) {
                let key = self.access.own.clone();
                self.send_frame(host, Frame::Minting(key));
            }
        }
    }

    /// A manager tells its key.
    pub(crate) fn take_minting(&mut self, peer: HostId, key: MintingKey) {
        self.access.guard.learn(peer, key);
        self.tell_object_gate();
    }

    /// Whether `peer` may send that.
    ///
    /// # Errors
    /// [`AccessError`]: why not; it is to be answered so.
    pub(crate) fn check_access(&mut self, peer: HostId, frame: &Frame) -> Result<(), AccessError> {
        let checked = self.judge(peer, frame);
        if let Err(error) = checked {
            self.tell_refused(peer, error);
        }
        checked
    }

    /// That a manager is not known yet is nothing to tell: the next moment cures it.
    fn tell_refused(&mut self, peer: HostId, error: AccessError) {
        let is_worth = !matches!(error, AccessError::UnknownMinter { .. });
        if is_worth && self.peers.is_connected(peer) && self.access.refused.insert(peer) {
            let record = self.registry.state().hosts.get(&peer.0);
            let name = record.map_or("", |record| &record.name);
            let what = format!("host {peer} {name} was refused what it asked for: {error}");
            self.effects.push_back(HostEffect::Warning(what));
        }
    }

    fn judge(&self, peer: HostId, frame: &Frame) -> Result<(), AccessError> {
        let wrong = AccessError::Role { host: peer };
        let role = self.peers.role(peer).ok_or(wrong)?;
        let record = self.registry.state().hosts.get(&peer.0).ok_or(wrong)?;
        let certified = self.peers.certified_name(peer);
        if certified.is_some_and(|name| name != record.name) {
            return Err(AccessError::Name { host: peer });
        }
        let is_so = match frame {
            _ if !is_of_role(record, role) => false,
            Frame::NodeCall {
                from,
                call,
                capability,
                ..
            } => return self.judge_call(peer, role, *from, &call.request, capability.as_ref()),
            Frame::SiteCall { from, call, .. } => match from {
                Port::Router if role == Role::Gateway => {
                    self.check_revoked(peer)?;
                    !is_of_administrators(&call.request.operation)
                }
                Port::Router => true,
                Port::Site(_) => role == Role::Manager,
                Port::Node(_) | Port::Copy(_) | Port::Host | Port::Depot => false,
            },
            Frame::Lock(_)
            | Frame::Minting(_)
            | Frame::Proving(_)
            | Frame::Handling(_)
            | Frame::Recall(_) => role == Role::Manager,
            Frame::Space { node, .. }
            | Frame::DiskProfile { node, .. }
            | Frame::Defrag { node, .. } => record.nodes.contains(&node.0),
            Frame::Clients { .. } | Frame::Transfer(Transfer::End(_) | Transfer::Release(_)) => {
                role == Role::Gateway
            }
            Frame::Transfer(Transfer::Tunnel { .. } | Transfer::Unfilled(_)) => {
                role == Role::Node || self.is_peer_gateway(peer)
            }
            Frame::Transfer(Transfer::Keeps(_) | Transfer::Ask(_) | Transfer::Lent { .. }) => {
                self.is_peer_gateway(peer)
            }
            Frame::NodeReply { .. }
            | Frame::CancelNode { .. }
            | Frame::PostponeNode { .. }
            | Frame::ResumeNode { .. }
            | Frame::SiteReply { .. }
            | Frame::Renew { .. }
            | Frame::Granted { .. }
            | Frame::AskClock { .. }
            | Frame::Clock { .. } => true,
        };
        is_so.then_some(()).ok_or(wrong)
    }

    /// Managers and nodes act under fences and epochs; gateways show what a manager
    /// gave them.
    fn judge_call(
        &self,
        peer: HostId,
        role: Role,
        from: Port,
        request: &NodeRequest,
        shown: Option<&FileCapability>,
    ) -> Result<(), AccessError> {
        let is_its = |node: NodeId| self.table.hosts.nodes.get(&node) == Some(&peer);
        let is_so = match (role, from) {
            (Role::Manager, Port::Site(_) | Port::Host) | (Role::Node, Port::Host) => true,
            (Role::Node, Port::Node(node)) => is_its(node),
            (Role::Node, Port::Copy(node)) => {
                is_its(node) && matches!(request, NodeRequest::Read { .. })
            }
            (Role::Gateway, Port::Router) => {
                self.check_revoked(peer)?;
                let (guard, wall) = (&self.access.guard, self.access.wall);
                return guard.check(wall, peer, request, shown);
            }
            _ => false,
        };
        let wrong = AccessError::Role { host: peer };
        is_so.then_some(()).ok_or(wrong)
    }

    fn check_revoked(&self, host: HostId) -> Result<(), AccessError> {
        match self.registry.state().is_revoked(host) {
            true => Err(AccessError::Revoked { host }),
            false => Ok(()),
        }
    }

    /// The right of a gateway to bytes that a host of nodes has promised it, at any other node, as
    /// long as they may be held; made as the manager would, which has allowed that gateway to read
    /// them. It names the very bytes, and their version.
    pub(crate) fn promise_right(
        &self,
        holder: HostId,
        minter: HostId,
        scope: Scope,
    ) -> Option<FileCapability> {
        let key = self.access.guard.minters().get(&minter)?;
        let now = u64::try_from(self.access.wall.parts().0).unwrap_or(0);
        let right = FileCapability {
            rights: Rights::READ,
            minter,
            holder,
            scope,
            expiry_seconds: now + PIN_PATIENCE.as_secs(),
            mac: [0; 16],
        };
        Some(right.mint(key))
    }

    /// Puts the capability into an answer that leaves for the router of `holder`, which
    /// had asked for `rights`.
    pub(crate) fn mint(&self, holder: HostId, rights: Rights, reply: &mut SiteReply) {
        if rights == Rights::default() || self.has(Mutation::MintNothing) {
            return;
        }
        let now = u64::try_from(self.access.wall.parts().0).unwrap_or(0);
        let capability = |scope| {
            let capability = FileCapability {
                rights,
                minter: self.host_id(),
                holder,
                scope,
                expiry_seconds: now + CAPABILITY_SECONDS,
                mac: [0; 16],
            };
            Some(capability.mint(&self.access.own))
        };
        match &mut reply.outcome {
            Ok(SiteAnswer::Opened { layout, .. }) => {
                layout.capability = capability(Scope::Columns {
                    placement: layout.placement,
                    generation: layout.generation,
                });
            }
            Ok(SiteAnswer::Located { extents, .. }) => {
                for extent in extents {
                    extent.capability = capability(Scope::Range {
                        object: extent.object,
                        offset_bytes: extent.offset_bytes,
                        length_bytes: extent.length_bytes.into(),
                        version: extent.version,
                    });
                }
            }
            _ => {}
        }
    }
}

/// What an operation asks of nodes on behalf of a router.
pub(crate) const fn rights_of(operation: &SiteOperation) -> Rights {
    match operation {
        SiteOperation::Locate { .. }
        | SiteOperation::Open {
            purpose: OpenFor::Read { .. },
            ..
        } => Rights::READ,
        // Whoever has a lease to write reads under it, too.
        SiteOperation::Open {
            purpose: OpenFor::Write { .. } | OpenFor::Free { .. },
            holder: Some(_),
            ..
        } => Rights(Rights::READ.0 | Rights::WRITE.0),
        SiteOperation::Open {
            purpose: OpenFor::Write { .. } | OpenFor::Free { .. },
            ..
        } => Rights::WRITE,
        _ => Rights(0),
    }
}

/// What a site answers to a host that may not ask.
pub(crate) const fn site_error(error: AccessError) -> SiteError {
    match error {
        AccessError::Revoked { .. } | AccessError::Name { .. } => SiteError::Refused,
        // Who is not known yet, or has been replaced and will learn it, is no reason to
        // tell a client that its request was wrong.
        AccessError::Role { .. } => SiteError::Busy,
        _ => SiteError::Invalid,
    }
}

/// Whether the registry knows the process as what its connection says that it is,
/// over TLS by its certificate.
fn is_of_role(record: &HostRecord, role: Role) -> bool {
    match role {
        Role::Node => !record.nodes.is_empty(),
        Role::Manager => record.is_manager,
        Role::Gateway => record.is_gateway,
        Role::All => false,
    }
}

/// Of sites among themselves, and of administrators: no door asks that.
const fn is_of_administrators(operation: &SiteOperation) -> bool {
    matches!(
        operation,
        SiteOperation::Transaction { .. }
            | SiteOperation::SetQuota { .. }
            | SiteOperation::RemoveQuota { .. }
            | SiteOperation::Census { .. }
            | SiteOperation::Names { .. }
            | SiteOperation::Repair { .. }
    )
}
