//! Locks: calls of NLM and NSM on the door's port, calls to clients, and the
//! portmapper on its own.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_locking::{
    ClientAnswer, ClientCall, ClientCalls, Encoded, Opened, ROOT, Services, Start, answer_portmap,
    begin_lock, begin_status,
};
use crossdock_names::{ExportId, FileRef, Proof};
use crossdock_nfs3::{Handle, Status as NfsStatus};
use crossdock_nlm::lock::Status;
use crossdock_peer::{Call, CallId, LockNotice, LockOperation, SiteOperation, SiteRequest};
use crossdock_rpc::{CallHeader, RecordWriter, ReplyHeader};
use crossdock_types::Time;
use crossdock_xdr::Decoder;

use crate::dispatch::{Served, denied, duplicate_key};
use crate::door::{HEAD_BYTES, NfsDoor, Origin, Then, Unserved, record};
use crate::export::Export;
use crate::identity::Identity;
use crate::message::NfsEffect;
use crate::request::Reader;

/// What the door keeps for locks.
#[derive(Debug, Default)]
pub(crate) struct Locking {
    pub(crate) calls: ClientCalls,
    pub(crate) services: Services,
    /// Our own state number.
    state: u32,
}

/// Bytes that are counted for a reply.
const REPLY_BYTES: usize = 2048;

impl NfsDoor {
    /// A call of NLM.
    pub(crate) fn dispatch_lock(
        &mut self,
        origin: &Origin,
        header: &CallHeader<'_>,
        mut decoder: Decoder<'_>,
        whole: &Bytes,
    ) -> Served {
        let client = origin.client();
        let reader = Reader {
            volume: self.config.volume,
            keys: self.config.keys.as_ref(),
            exports: &self.config.exports,
            client,
            io_bytes_max: origin.io_bytes_max(),
            is_scoped: self.is_scoped,
            shown: RefCell::default(),
        };
        let opened: Cell<Option<&Export>> = Cell::new(None);
        let open = |handle: &[u8]| {
            let handle = Handle::new(handle).ok_or(Status::Stale)?;
            let (handle, export) = reader.open(handle).map_err(|status| match status {
                NfsStatus::BadHandle | NfsStatus::Stale => Status::Stale,
                _ => Status::Failed,
            })?;
            opened.set(Some(export));
            Ok(Opened {
                file: handle.file,
                is_read_only: export.rules.read_only,
            })
        };
        let called = (header.version, header.procedure);
        let address = client.ip().to_canonical();
        let start = begin_lock(called, address, &mut decoder, &open);
        let (operation, then) = match start {
            Start::Reply(results, status) => return Served::Lock(results, status),
            Start::Refuse(status) => {
                return Served::Header(ReplyHeader::accepted(header.xid, status));
            }
            Start::Ask(operation, then) => (*operation, then),
        };
        let Some(export) = opened.get() else {
            // It is about the client, not about a file.
            return ask(
                SiteRequest::as_root(operation),
                ExportId::default(),
                Then::Lock(then),
                Vec::new(),
            );
        };
        let identity = match Identity::of(&header.credential) {
            Ok(identity) => identity,
            Err(status) => return denied(header.xid, status),
        };
        let callers = match origin {
            Origin::Stream(id, _) => self.connections.get_mut(id).map(|c| &mut c.callers),
            Origin::Datagram(..) => None,
        };
        let callers = callers.unwrap_or(&mut self.datagram_callers);
        let request = SiteRequest {
            caller: callers.caller(&export.rules.squash, &identity),
            duplicate: then.is_once().then(|| duplicate_key(client, whole)),
            operation,
        };
        let shown = reader.shown.into_inner();
        ask(request, export.id, Then::Lock(then), shown)
    }

    /// A call of NSM.
    pub(crate) fn dispatch_status(
        &self,
        origin: &Origin,
        header: &CallHeader<'_>,
        mut decoder: Decoder<'_>,
    ) -> Served {
        let called = (header.version, header.procedure);
        let client = origin.client().ip().to_canonical();
        match begin_status(called, client, self.locking.state, &mut decoder) {
            Start::Reply(results, status) => Served::Lock(results, status),
            Start::Refuse(status) => Served::Header(ReplyHeader::accepted(header.xid, status)),
            Start::Ask(operation, then) => {
                let request = SiteRequest::as_root(*operation);
                ask(request, ExportId::default(), Then::Lock(then), Vec::new())
            }
        }
    }

    /// A call that came to the portmapper by TCP.
    pub(crate) fn map_record(&mut self, origin: Origin, record: &Bytes) -> Result<(), Unserved> {
        let (header, results) = self.map(record).ok_or(Unserved::NotACall)?;
        self.send(&origin, &header, &results);
        Ok(())
    }

    /// One that came by UDP.
    pub(crate) fn map_datagram(&mut self, client: SocketAddr, datagram: &[u8]) {
        if let Some((header, results)) = self.map(datagram) {
            let reply = record(RecordWriter::datagram(HEAD_BYTES), &header, &results);
            let pieces = reply.into_pieces();
            let effect = NfsEffect::SendPortmapDatagram(client, pieces);
            self.effects.push_back(effect);
        }
    }

    /// The answer to a call of the portmapper, unless it deserves none.
    fn map(&self, record: &[u8]) -> Option<(ReplyHeader<'static>, Encoded)> {
        let mut decoder = Decoder::new(record);
        let header = match CallHeader::decode(&mut decoder) {
            Ok(header) => header,
            Err(error) => return Some((error.reply()?, Encoded::default())),
        };
        let called = (header.program, header.version, header.procedure);
        let answered = answer_portmap(&self.locking.services, called, &mut decoder);
        Some(match answered {
            Ok(results) => (ReplyHeader::success(header.xid), results),
            Err(status) => (
                ReplyHeader::accepted(header.xid, status),
                Encoded::default(),
            ),
        })
    }

    /// A site has something to say to clients.
    pub(crate) fn take_notice(&mut self, now: Time, notice: LockNotice) {
        match notice {
            LockNotice::Restarted { state, clients } => {
                self.locking.state = state;
                let host = Bytes::copy_from_slice(&self.locking.services.host);
                for client in clients {
                    let host = host.clone();
                    let call = ClientCall::Restarted {
                        client,
                        state,
                        host,
                    };
                    self.locking.calls.begin(now, call);
                }
            }
            LockNotice::Granted(granted) => {
                self.locking.calls.begin(now, ClientCall::Granted(granted));
            }
            LockNotice::GrantSettled(id) => self.locking.calls.settle(id),
        }
        self.run_calls(now);
    }

    /// Sends what calls to clients have to send, and passes on their answers.
    pub(crate) fn run_calls(&mut self, now: Time) {
        while let Some((client, pieces)) = self.locking.calls.poll_datagram() {
            let effect = NfsEffect::SendDatagram(client, pieces);
            self.effects.push_back(effect);
        }
        while let Some(answer) = self.locking.calls.poll_answer() {
            let operation = match answer {
                ClientAnswer::Granted(id, is_wanted) => LockOperation::GrantAnswered(id, is_wanted),
                ClientAnswer::Told(client) => LockOperation::Told(client),
            };
            self.tell_site(now, operation);
        }
    }

    /// Tells a grant's site, or all of them, something; nobody waits for the answer.
    fn tell_site(&mut self, now: Time, operation: LockOperation) {
        self.calls_total += 1;
        let file = match operation {
            LockOperation::GrantAnswered(id, _) => FileRef::root_of(id.site()),
            _ => ROOT, // About clients: the router asks all sites.
        };
        self.effects.push_back(NfsEffect::Router(Box::new(Call {
            id: CallId(self.calls_total),
            deadline: now + self.config.patience,
            request: SiteRequest::as_root(SiteOperation::Locks { file, operation }),
        })));
    }
}

const fn ask(request: SiteRequest, export: ExportId, then: Then, shown: Vec<Proof>) -> Served {
    Served::Ask {
        request,
        export,
        then,
        reply_bytes_max: REPLY_BYTES,
        shown,
    }
}
