//! Faults that can be built in, to show that the simulation finds them.

use crossdock_names::{NodeId, ObjectClass, SiteId, Version};
use crossdock_peer::{
    Call, CallId, LeaseUse, NodeAnswer, NodeReply, NodeRequest, Port, Recall, Sending,
    SiteOperation, SiteRequest, Stability,
};
use crossdock_server::NodeInput;
#[cfg(feature = "mutations")]
use crossdock_site::Fault;
use crossdock_types::Time;

use crate::host::Host;
use crate::message::Message;

/// What a host gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Messages that were sent by a newer table are taken at once.
    IgnoreEpoch,
    /// Messages of hosts that have been replaced are taken, capabilities that they made,
    /// and changes of what a site had under an older epoch.
    SkipFence,
    /// A node that comes back is made a member without what it has missed.
    JoinUnequal,
    /// A site is opened anew without what its clients have not committed yet.
    ReopenUncommitted,
    /// The other members of a set are said to have a change that they never got.
    MirrorNothing,
    /// A site's log is said to be durable while it is on its way.
    ReplyBeforeLog,
    /// Requests that must not happen twice are not remembered.
    ForgetDuplicates,
    /// Columns are said to be cut that are not.
    LoseTruncates,
    /// A request that may have been done is refused as one that was not.
    ForgetDoubt,
    /// An exchange that is sent again is taken for another one.
    CompareAgain,
    /// So is a write, a hole or a copy.
    WriteAgain,
    /// Members of a set do not tell the others by which number a change is known.
    TellNoNumbers,
    /// Copies are made whose gateways were gone before their bytes had come.
    CopyForGone,
    /// A reservation is answered before other gateways have heard of it.
    ReserveAtOnce,
    /// What needs a lease is answered without one.
    IgnoreLease,
    /// A lease that was given keeps nobody from taking the holder's place.
    GrantAtOnce,
    /// Answers leave for gateways without what their nodes want to see.
    MintNothing,
    /// Leases of files are said to have been given back that nobody was asked for.
    RecallNothing,
    /// Leases of files are given for a minute.
    LeaseForLong,
    /// Sizes are pushed as if the file had not been cut meanwhile.
    PushAnyGeneration,
    /// What a site has prepared is not in its log: who opens it anew knows nothing.
    PrepareUnlogged,
    /// A site does not keep what it has told another one as it is.
    FreezeNothing,
    /// A site forgets what it has decided when it has told the others once.
    ForgetDecision,
    /// Old tables are good enough: messages by newer ones are taken at once, and nodes show
    /// what they have of sets that they have left, or do not lead.
    TrustTables,
    /// A node that starts again is a member of its sets at once. (Built into the
    /// simulated registry.)
    KeepRestarted,
    /// Who takes a site over does so with the members of its set that it remembers.
    /// (Likewise.)
    CachedSet,
    /// A new home of a set is a member at once, and the old one is none. (Likewise.)
    DropBeforeEqual,
}

impl Host {
    /// Builds a fault in.
    #[cfg(feature = "mutations")]
    pub const fn build_in(&mut self, mutation: Option<Mutation>) {
        self.mutation = mutation;
    }

    /// What the sites of this host get wrong.
    #[cfg(feature = "mutations")]
    pub(crate) fn fault_of_sites(&self) -> Option<Fault> {
        match self.mutation? {
            Mutation::PrepareUnlogged => Some(Fault::PrepareUnlogged),
            Mutation::FreezeNothing => Some(Fault::FreezeNothing),
            Mutation::ForgetDecision => Some(Fault::ForgetDecision),
            _ => None,
        }
    }

    #[cfg(feature = "mutations")]
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    #[cfg(not(feature = "mutations"))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) const fn has(&self, _: Mutation) -> bool {
        false
    }

    /// Has a change of a site's objects come by the site's present epoch, and of others by
    /// the present table, if a fault says so.
    pub(crate) fn skips_epoch(&self, request: &mut NodeRequest) {
        if !self.has(Mutation::SkipFence) {
            return;
        }
        let object = request.object();
        if object.is_some_and(|object| object.class == ObjectClass::Column)
            && let NodeRequest::Write { context, .. } = request
        {
            context.table_epoch = self.table.epoch;
            return;
        }
        let site = object.and_then(|object| u16::try_from(object.placement).ok());
        let Some(site) = site.and_then(|site| self.table.site(SiteId(site))) else {
            return;
        };
        match request {
            NodeRequest::Append { fence, .. } | NodeRequest::Seal { fence, .. } => {
                *fence = site.epoch;
            }
            NodeRequest::Create { context, .. }
            | NodeRequest::Write { context, .. }
            | NodeRequest::Truncate { context, .. }
            | NodeRequest::Zero { context, .. }
            | NodeRequest::Remove { context, .. } => context.site_epoch = site.epoch,
            _ => {}
        }
    }

    /// Has a node take a change for one that it does not know, if a fault says so.
    pub(crate) fn mistakes(&self, from: Port, call: &mut Call<NodeRequest>) {
        let is_exchange = matches!(call.request, NodeRequest::Exchange { .. });
        let is_mistaken = match from {
            Port::Router if is_exchange => self.has(Mutation::CompareAgain),
            Port::Router => self.has(Mutation::WriteAgain),
            Port::Node(_) => self.has(Mutation::TellNoNumbers),
            _ => false,
        };
        if let NodeRequest::Write { context, .. }
        | NodeRequest::Zero { context, .. }
        | NodeRequest::Copy { context, .. }
        | NodeRequest::Exchange { context, .. } = &mut call.request
            && is_mistaken
        {
            context.sending = Sending::default();
        }
    }

    /// For whom a node takes a call, so that it is judged by that.
    pub(crate) fn asker(&self, node: NodeId, from: Port, request: &NodeRequest) -> Port {
        match request {
            NodeRequest::Read { .. } if self.has(Mutation::TrustTables) => Port::Node(node),
            _ => from,
        }
    }

    /// Answers a call to another host in its place, if a fault says so; whether
    /// the call is to be dropped then.
    pub(crate) fn fakes(&mut self, node: NodeId, input: &NodeInput) -> bool {
        let NodeInput::Call { from, call } = input else {
            return false;
        };
        let version = Version::NONE;
        let answer = match (from, &call.request) {
            (Port::Node(_), NodeRequest::Write { .. }) if self.has(Mutation::MirrorNothing) => {
                NodeAnswer::Done { version }
            }
            (
                Port::Site(_),
                NodeRequest::Append {
                    offset_bytes,
                    payload,
                    ..
                },
            ) if self.has(Mutation::ReplyBeforeLog) => NodeAnswer::End {
                size_bytes: offset_bytes + payload.len() as u64,
            },
            (Port::Site(_), NodeRequest::Truncate { .. }) if self.has(Mutation::LoseTruncates) => {
                NodeAnswer::Done { version }
            }
            _ => return false,
        };
        let reply = NodeReply {
            id: call.id,
            outcome: Ok(answer),
        };
        self.queue.push_back(Message::reply(node, *from, reply));
        !matches!(call.request, NodeRequest::Append { .. })
    }
}

impl Message {
    /// What gives a lease back that nobody was asked for.
    pub(crate) fn faked_return(site: SiteId, recall: Recall) -> Self {
        let operation = SiteOperation::PushAttributes {
            file: recall.file,
            size_at_least_bytes: 0,
            wrote: false,
            read: false,
            truncate_generation: 0,
            stability: Stability::Unstable,
            written: None,
            lease: Some(LeaseUse::GiveBack(recall.lease)),
        };
        let call = Call {
            id: CallId(u64::MAX),
            deadline: Time(u64::MAX),
            request: SiteRequest::as_root(operation),
        };
        Self::request(site, Box::new(call))
    }
}
