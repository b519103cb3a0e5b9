//! From a request's head to what is to be done, step by step.

use bytes::Bytes;
use crossdock_http1::{Method, RequestHead, ResponseHead, Status};
use crossdock_peer::{Attributes, FileKind, SiteError};
use crossdock_router::RoutedReply;
use crossdock_types::{Time, WallTime};

use crate::access::admit;
use crate::body::Body;
use crate::door::{HttpDoor, What};
use crate::exchange::{Exchange, Stage};
use crate::message::ConnId;
use crate::upload::is_upload;
use crate::walk::{Walk, WalkStep};

/// What may be asked of a path (RFC 9110 section 10.2.1).
const ALLOW: &str = "GET, HEAD, PUT, DELETE, OPTIONS";

impl HttpDoor {
    /// A request has arrived.
    pub(crate) fn begin(&mut self, now: Time, wall: WallTime, id: ConnId, head: RequestHead) {
        self.figures.request(head.method);
        let peer = self.connections.get(&id).map(|connection| connection.peer);
        let admitted = admit(&self.gate, &head, wall);
        let (caller, scope) = match &admitted {
            Ok((caller, scope)) => (caller.clone(), scope.clone()),
            Err(_) => (crossdock_web::Grant::ANONYMOUS.caller(), Default::default()),
        };
        let exchange = Exchange {
            body: Body::new(&head.framing),
            owes_continue: head.expects_continue,
            keep_alive: head.keep_alive,
            caller,
            scope,
            places: Vec::new(),
            stage: Stage::Ended,
            is_answered: false,
            dropped_bytes: 0,
            is_located: false,
            restarts: 0,
            head,
        };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.exchange = Some(Box::new(exchange));
        }
        let rate = self.config.limits.requests_per_second;
        if let (Some(rate), Some(peer)) = (rate, peer)
            && !self.pace.admits(now, peer.ip(), rate)
        {
            let hint = "this client asks too often; try again in a second";
            return self.answer_error(now, wall, id, Status::TooManyRequests, hint);
        }
        if let Err(denial) = admitted {
            return self.answer_denial(now, wall, id, denial);
        }
        if self.is_scoped() {
            let hint = "this gateway is scoped to exports and serves NFS only";
            return self.answer_error(now, wall, id, Status::Forbidden, hint);
        }
        self.begin_method(now, wall, id);
    }

    fn begin_method(&mut self, now: Time, wall: WallTime, id: ConnId) {
        let bytes_max = self.config.limits.body_bytes_max;
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let version = exchange.version();
        let is_root = exchange.path().is_empty();
        let names_upload = exchange.path().iter().any(|name| is_upload(name));
        let too_long = exchange.body.left().is_some_and(|left| left > bytes_max);
        match exchange.head.method {
            Method::Options => {
                let head = ResponseHead::new(version, Status::NoContent).header("Allow", ALLOW);
                self.answer(now, wall, id, head, Bytes::new());
            }
            // RFC 9110 section 9.1: what is not known is not the same as what may not be.
            Method::Unknown => {
                let hint = "the method is not known here";
                self.answer_error(now, wall, id, Status::NotImplemented, hint);
            }
            Method::Post | Method::Patch | Method::Trace => {
                let head = ResponseHead::new(version, Status::MethodNotAllowed)
                    .header("Allow", ALLOW)
                    .content_length(0);
                self.answer(now, wall, id, head, Bytes::new());
            }
            // Nobody but the door that makes them has to do with uploads.
            _ if names_upload => self.refuse(now, wall, id, SiteError::NotFound),
            Method::Get | Method::Head => self.begin_walk(now, wall, id),
            Method::Put if too_long => {
                let hint = "the content is longer than files may be";
                self.answer_error(now, wall, id, Status::ContentTooLarge, hint);
            }
            Method::Put if exchange.head.header("content-range").is_some() => {
                // RFC 9110 section 14.5: a part must not be taken for the whole.
                let hint = "only whole files can be put";
                self.answer_error(now, wall, id, Status::BadRequest, hint);
            }
            Method::Put | Method::Delete if is_root => {
                let hint = "that is the root of the volume";
                self.answer_error(now, wall, id, Status::Conflict, hint);
            }
            Method::Put | Method::Delete => self.begin_walk(now, wall, id),
        }
    }

    /// Begins to look the path up: all of it to read, all but the last name to change.
    pub(crate) fn begin_walk(&mut self, now: Time, wall: WallTime, id: ConnId) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let names = exchange.path();
        let mut walk = match exchange.head.method {
            Method::Put | Method::Delete => {
                Walk::new(&names[..names.len().saturating_sub(1)], true)
            }
            _ => Walk::new(names, true),
        };
        let step = walk.begin();
        exchange.stage = Stage::Walk(Box::new(walk));
        self.take_walk(now, wall, id, step);
    }

    /// The next step of a request has been answered.
    pub(crate) fn step(&mut self, now: Time, wall: WallTime, id: ConnId, routed: RoutedReply) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        if matches!(exchange.stage, Stage::Upload(_)) {
            let call = routed.reply.id;
            return self.step_upload(now, wall, id, call, routed);
        }
        let reply = routed.reply;
        match std::mem::replace(&mut exchange.stage, Stage::Ended) {
            Stage::Walk(mut walk) => {
                let step = walk.next(reply);
                exchange.stage = Stage::Walk(walk);
                self.take_walk(now, wall, id, step);
            }
            Stage::Index(page) => self.after_index(now, wall, id, *page, reply),
            Stage::Access(stream) => self.after_access(now, wall, id, *stream, &reply),
            Stage::List(list) => self.step_list(now, wall, id, list, reply),
            Stage::Change(change) => self.step_change(now, wall, id, change, reply),
            stage @ (Stage::Locate(_) | Stage::Stream(_) | Stage::Upload(_) | Stage::Ended) => {
                exchange.stage = stage;
            }
        }
        self.go_on(now, wall, id);
    }

    fn take_walk(&mut self, now: Time, wall: WallTime, id: ConnId, step: WalkStep) {
        match step {
            WalkStep::Ask(operation) => {
                self.ask(now, id, What::Step, operation);
            }
            WalkStep::Failed(error) => self.refuse_path(now, wall, id, error),
            WalkStep::Found(attributes) => self.found(now, wall, id, attributes),
        }
    }

    /// To change something below what is not there is a conflict (as RFC 4918 section
    /// 9.7.1 has it), to read it is none.
    fn refuse_path(&mut self, now: Time, wall: WallTime, id: ConnId, error: SiteError) {
        let is_put = self
            .exchange(id)
            .is_some_and(|exchange| exchange.head.method == Method::Put);
        match error {
            SiteError::NotFound | SiteError::NotDirectory if is_put => {
                let hint = "the directory is not there; PUT of its path with a slash makes it";
                self.answer_error(now, wall, id, Status::Conflict, hint);
            }
            error => self.refuse(now, wall, id, error),
        }
    }

    /// The path leads to this.
    fn found(&mut self, now: Time, wall: WallTime, id: ConnId, attributes: Attributes) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let Stage::Walk(walk) = std::mem::replace(&mut exchange.stage, Stage::Ended) else {
            return;
        };
        let changes = matches!(exchange.head.method, Method::Put | Method::Delete);
        if !changes {
            self.note_places(id, &walk, &attributes);
        }
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let last = exchange.path().last().cloned();
        let is_reached = match (changes, &last) {
            (true, Some(last)) => exchange.scope.reaches(walk.names().chain([last])),
            _ => exchange.scope.reaches(walk.names()),
        };
        if !is_reached {
            let hint = "a link leads out of what this token is for";
            return self.answer_error(now, wall, id, Status::Forbidden, hint);
        }
        let wants_directory = exchange.head.target.is_directory;
        let is_put = exchange.head.method == Method::Put;
        match (attributes.kind, last) {
            (FileKind::Directory, Some(name)) if changes => {
                let directory = attributes.file;
                match is_put && !wants_directory {
                    true => self.begin_upload(now, id, directory, name),
                    false => self.begin_change(now, id, directory, name, is_put),
                }
            }
            (FileKind::Directory, _) => self.begin_directory(now, wall, id, attributes),
            (_, _) if changes => self.refuse_path(now, wall, id, SiteError::NotDirectory),
            (FileKind::Regular, _) if wants_directory => {
                self.refuse(now, wall, id, SiteError::NotFound);
            }
            (FileKind::Regular, name) => {
                let name = name.unwrap_or_default();
                self.begin_file(now, wall, id, &attributes, &name);
            }
            // A device or a socket has no bytes here.
            _ => self.refuse(now, wall, id, SiteError::AccessDenied),
        }
    }
}
