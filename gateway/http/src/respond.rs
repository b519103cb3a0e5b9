//! Responses that are complete when they begin.

use bytes::Bytes;
use crossdock_http1::{HttpVersion, ResponseHead, Status};
use crossdock_types::{Time, WallTime};
use crossdock_web::Denial;

use crate::door::HttpDoor;
use crate::exchange::Stage;
use crate::message::ConnId;
use crate::page;

/// Content of an answered request that is still to come, and is worth being read so that the
/// connection can serve another one.
const REST_BYTES_MAX: u64 = 256 << 10;

impl HttpDoor {
    /// Sends a response; then the request is done but for its content.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        head: ResponseHead,
        content: Bytes,
    ) {
        self.end_stage(id);
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let rest = exchange.body.left();
        let is_short = rest.is_some_and(|left| left <= REST_BYTES_MAX);
        // Who waits for being told to send its content does not send it now (RFC 9110
        // section 10.1.1), or does: that cannot be told.
        let is_clear = rest == Some(0) || (is_short && !exchange.owes_continue);
        let head = head.keep_alive(exchange.keep_alive && is_clear);
        exchange.keep_alive = head.keeps_alive();
        let content = if exchange.is_head() {
            Bytes::new()
        } else {
            content
        };
        self.push(id, [head.encode(wall), content]);
        self.figures.response(head.status());
        self.finish(now, id);
    }

    /// A response without content.
    pub(crate) fn answer_status(&mut self, now: Time, wall: WallTime, id: ConnId, status: Status) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let head = ResponseHead::new(exchange.version(), status).content_length(0);
        self.answer(now, wall, id, head, Bytes::new());
    }

    /// An error, and what can be done about it.
    pub(crate) fn answer_error(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        status: Status,
        hint: &str,
    ) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let mut head = ResponseHead::new(exchange.version(), status);
        if matches!(status, Status::ServiceUnavailable | Status::TooManyRequests) {
            head = head.header("Retry-After", "1");
        }
        if status == Status::Unauthorized {
            head = head.header("WWW-Authenticate", "Bearer realm=\"crossdock\"");
        }
        self.answer_page(now, wall, id, head, page::error(status, hint));
    }

    /// What the request shows does not do.
    pub(crate) fn answer_denial(&mut self, now: Time, wall: WallTime, id: ConnId, denial: Denial) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let status = match denial.status() {
            400 => Status::BadRequest,
            401 => Status::Unauthorized,
            503 => Status::ServiceUnavailable,
            _ => Status::Forbidden,
        };
        let mut head = ResponseHead::new(exchange.version(), status);
        if let Some(challenge) = denial.challenge() {
            head = head.header("WWW-Authenticate", challenge);
        }
        self.answer_page(
            now,
            wall,
            id,
            head,
            page::error(status, &denial.to_string()),
        );
    }

    fn answer_page(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        head: ResponseHead,
        page: Bytes,
    ) {
        let head = head
            .header("Content-Type", page::HTML)
            .content_length(page.len() as u64);
        self.answer(now, wall, id, head, page);
    }

    /// Where the next request begins cannot be told: answers, and ends the connection.
    pub(crate) fn answer_unread(&mut self, wall: WallTime, id: ConnId, status: Status, hint: &str) {
        let page = page::error(status, hint);
        let head = ResponseHead::new(HttpVersion::Http11, status)
            .keep_alive(false)
            .header("Content-Type", page::HTML)
            .content_length(page.len() as u64);
        self.figures.response(head.status());
        self.push(id, [head.encode(wall), page]);
        self.shut(id);
    }

    /// The response is on its way, all of it.
    pub(crate) fn finish(&mut self, now: Time, id: ConnId) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        exchange.stage = Stage::Ended;
        exchange.is_answered = true;
        if exchange.owes_continue && !exchange.body.is_done() {
            return self.shut(id);
        }
        self.end_if_done(now, id);
    }

    fn end_stage(&mut self, id: ConnId) {
        if let Some(exchange) = self.exchange(id) {
            exchange.stage = Stage::Ended;
        }
    }
}
