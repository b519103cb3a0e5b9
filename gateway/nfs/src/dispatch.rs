//! What is to be done with a call: which program, which procedure, for whom.

use std::cell::RefCell;
use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_locking::Encoded;
use crossdock_names::{ExportId, Proof};
use crossdock_nfs3::{self as nfs3, Procedure, Reply, mount};
use crossdock_nlm::{lock, status};
use crossdock_peer::{DuplicateKey, SiteRequest};
use crossdock_rpc::{AcceptStatus, AuthStatus, CallHeader, Rejection, ReplyHeader};
use crossdock_xdr::Decoder;

use crate::door::{HEAD_BYTES, NfsDoor, Origin, Then};
use crate::identity::Identity;
use crate::mount::Start;
use crate::request::{Reader, Request, is_once};

/// A call that was read, as far as it can be answered without the router.
pub(crate) enum Served {
    Header(ReplyHeader<'static>),
    Nfs(Reply),
    Mount(mount::Reply),
    Lock(Encoded, lock::Status),
    Ask {
        request: SiteRequest,
        export: ExportId,
        then: Then,
        reply_bytes_max: usize,
        /// Handles of format 2 that were shown.
        shown: Vec<Proof>,
    },
}

impl NfsDoor {
    /// What to do with a call.
    pub(crate) fn dispatch(
        &mut self,
        origin: &Origin,
        header: &CallHeader<'_>,
        decoder: Decoder<'_>,
        record: &Bytes,
    ) -> Served {
        let accepted = |status| Served::Header(ReplyHeader::accepted(header.xid, status));
        let (is_nfs, version) = match header.program {
            nfs3::PROGRAM => (true, nfs3::VERSION),
            mount::PROGRAM => (false, mount::VERSION),
            lock::PROGRAM => return self.dispatch_lock(origin, header, decoder, record),
            status::PROGRAM => return self.dispatch_status(origin, header, decoder),
            _ => return accepted(AcceptStatus::ProgramUnavailable),
        };
        if header.version != version {
            return accepted(AcceptStatus::ProgramMismatch {
                low: version,
                high: version,
            });
        }
        // NULL is for anybody: clients find out with it who is there.
        if header.procedure == Procedure::Null.number() {
            return Served::Nfs(Reply::Null);
        }
        // What is said about a handle depends on the handle: a client that is let
        // in no more must see its mounts fail as files do.
        let client = origin.client();
        if !is_nfs && !self.config.exports.iter().any(|e| e.rules.admits(client)) {
            return denied(header.xid, AuthStatus::TooWeak);
        }
        let identity = match Identity::of(&header.credential) {
            Ok(identity) => identity,
            Err(status) => return denied(header.xid, status),
        };
        if is_nfs {
            self.dispatch_nfs(origin, header, &identity, decoder, record)
        } else {
            self.dispatch_mount(origin, header, decoder)
        }
    }

    fn dispatch_nfs(
        &mut self,
        origin: &Origin,
        header: &CallHeader<'_>,
        identity: &Identity,
        mut decoder: Decoder<'_>,
        record: &Bytes,
    ) -> Served {
        let accepted = |status| Served::Header(ReplyHeader::accepted(header.xid, status));
        let Some(procedure) = Procedure::from_number(header.procedure) else {
            return accepted(AcceptStatus::ProcedureUnavailable);
        };
        let Ok(call) = nfs3::Call::decode(procedure, &mut decoder) else {
            return accepted(AcceptStatus::GarbageArguments);
        };
        let reader = Reader {
            volume: self.config.volume,
            keys: self.config.keys.as_ref(),
            exports: &self.config.exports,
            client: origin.client(),
            io_bytes_max: origin.io_bytes_max(),
            is_scoped: self.is_scoped,
            shown: RefCell::default(),
        };
        let Request {
            export,
            operation,
            expected,
            reply_bytes_max,
        } = match reader.read(call) {
            Ok(request) => request,
            Err(status) => return Served::Nfs(Reply::failure(procedure, status)),
        };
        let callers = match origin {
            Origin::Stream(id, _) => self.connections.get_mut(id).map(|c| &mut c.callers),
            Origin::Datagram(..) => None,
        };
        let callers = callers.unwrap_or(&mut self.datagram_callers);
        Served::Ask {
            request: SiteRequest {
                caller: callers.caller(&export.rules.squash, identity),
                duplicate: is_once(procedure).then(|| duplicate_key(origin.client(), record)),
                operation,
            },
            export: export.id,
            then: Then::Nfs(expected),
            reply_bytes_max,
            shown: reader.shown.into_inner(),
        }
    }

    fn dispatch_mount(
        &mut self,
        origin: &Origin,
        header: &CallHeader<'_>,
        mut decoder: Decoder<'_>,
    ) -> Served {
        let accepted = |status| Served::Header(ReplyHeader::accepted(header.xid, status));
        let Some(procedure) = mount::Procedure::from_number(header.procedure) else {
            return accepted(AcceptStatus::ProcedureUnavailable);
        };
        let Ok(call) = mount::Call::decode(procedure, &mut decoder) else {
            return accepted(AcceptStatus::GarbageArguments);
        };
        let (exports, mounts) = (&self.config.exports, &mut self.mounts);
        let room_bytes = origin.list_bytes_max();
        match crate::mount::begin(exports, mounts, origin.client(), &call, room_bytes) {
            Start::Reply(reply) => Served::Mount(reply),
            Start::Walk(walk, operation) => Served::Ask {
                export: walk.export,
                request: SiteRequest::as_root(operation),
                then: Then::Mount(walk),
                reply_bytes_max: HEAD_BYTES,
                shown: Vec::new(),
            },
        }
    }
}

pub(crate) fn denied(xid: u32, status: AuthStatus) -> Served {
    Served::Header(ReplyHeader::denied(xid, Rejection::Auth(status)))
}

/// Names a call by client address without port, and by all bytes of its record:
/// xid, program, version, procedure, credential with machine name, arguments
/// (CONSISTENCY 8). A retransmission has the same ones.
pub(crate) fn duplicate_key(client: SocketAddr, record: &[u8]) -> DuplicateKey {
    let mut hasher = blake3::Hasher::new();
    match client.ip().to_canonical() {
        std::net::IpAddr::V4(address) => hasher.update(&address.octets()),
        std::net::IpAddr::V6(address) => hasher.update(&address.octets()),
    };
    hasher.update(record);
    let mut key = [0; 16];
    key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    DuplicateKey(key)
}
