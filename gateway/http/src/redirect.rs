//! Clients that are sent to the node that has what they ask for (RFC 9110 section 15.4.8).

use std::ops::Range;

use bytes::Bytes;
use crossdock_http1::{Content, RequestHead, ResponseHead, Status};
use crossdock_peer::{Attributes, CallId};
use crossdock_types::{Time, WallTime};

use crate::door::HttpDoor;
use crate::exchange::Stage;
use crate::message::{ConnId, HttpEffect};

/// A response that waits to hear whether one node has all of it.
#[derive(Debug)]
pub(crate) struct Locating {
    attributes: Attributes,
    name: Bytes,
    bytes: u64,
}

/// A range of a file, to be found at one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The names of its path.
    pub names: Vec<Bytes>,
    /// Which bytes.
    pub range: Range<u64>,
    /// As which user it is read.
    pub uid: u32,
    /// As which group.
    pub gid: u32,
}

/// Whether a request can be made again at a node: it knows neither the file's entity tag nor
/// its times.
pub(crate) fn is_repeatable(head: &RequestHead) -> bool {
    let conditions = ["if-match", "if-range", "if-unmodified-since"];
    conditions.iter().all(|name| head.header(name).is_none())
}

impl HttpDoor {
    /// The only range of a response, if its client can be sent elsewhere for it.
    pub(crate) fn redirectable(
        &mut self,
        id: ConnId,
        content: &Content<CallId>,
    ) -> Option<Range<u64>> {
        let exchange = self.exchange(id)?;
        let is_new = !exchange.is_located && is_repeatable(&exchange.head);
        content.only_range().filter(|_| is_new)
    }

    /// Asks whether one node has these bytes; the response waits.
    pub(crate) fn locate(
        &mut self,
        id: ConnId,
        attributes: &Attributes,
        name: &[u8],
        range: Range<u64>,
    ) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let wanted = Wanted {
            names: exchange.path().to_vec(),
            range: range.clone(),
            uid: exchange.caller.uid,
            gid: exchange.caller.gid,
        };
        exchange.stage = Stage::Locate(Box::new(Locating {
            attributes: attributes.clone(),
            name: Bytes::copy_from_slice(name),
            bytes: range.end - range.start,
        }));
        self.effects
            .push_back(HttpEffect::Locate(id, Box::new(wanted)));
    }

    /// Whether one has is known: the client is sent there, or served here.
    pub(crate) fn take_located(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        url: Option<&str>,
    ) {
        let connection = self.connections.get(&id);
        let is_secure = connection.is_some_and(|connection| connection.is_secure);
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let locating = match std::mem::replace(&mut exchange.stage, Stage::Ended) {
            Stage::Locate(locating) => locating,
            stage => {
                exchange.stage = stage;
                return;
            }
        };
        exchange.is_located = true;
        // Who has asked in secret is not sent where others read along.
        let url = url.filter(|url| !is_secure || url.starts_with("https:"));
        match url {
            Some(url) => {
                let head = ResponseHead::new(exchange.version(), Status::TemporaryRedirect)
                    .header("Location", url)
                    .header("Cache-Control", "no-store")
                    .content_length(0);
                self.figures.redirected_bytes += locating.bytes;
                self.answer(now, wall, id, head, Bytes::new());
            }
            None => self.begin_file(now, wall, id, &locating.attributes, &locating.name),
        }
        self.go_on(now, wall, id);
    }
}
