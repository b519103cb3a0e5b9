//! Content of uploads that is received where a disk takes it: blocks of the file are blocks in
//! memory, and nothing is copied. A long piece is told of only when all of it is there, so it
//! has to suit the client: one that is slow sends as it did without.

use std::time::Duration;

use bytes::Bytes;
use crossdock_types::{FILL_BYTES_MIN, Fill, Time, beside_block};

use crate::door::HttpDoor;
use crate::exchange::Stage;
use crate::message::{ConnId, HttpEffect};

/// A client of which so much comes at a time is not slow, as far as is known then.
const FAST_BYTES: usize = 4 << 10;

/// The first piece of an upload, which is the least, and the most.
const FIRST_BYTES: usize = 64 << 10;
const MOST_BYTES: usize = 1 << 20;

/// A client that sends a piece in this time sends twice as much, too …
const SOON: Duration = Duration::from_millis(100);

/// … and half as much if it needs this time, or no pieces any more.
const LATE: Duration = Duration::from_secs(1);

/// Pieces of an upload.
#[derive(Debug, Default)]
pub(crate) struct Fills {
    /// What the client sends in time, once it is known; 0 if it is slow.
    piece_bytes: Option<usize>,
    /// Bytes of the piece that is coming.
    pub(crate) coming_bytes: usize,
}

impl Fills {
    /// So many bytes have come at a time.
    pub(crate) fn arrived(&mut self, bytes: usize) {
        if bytes >= FAST_BYTES {
            self.piece_bytes.get_or_insert(FIRST_BYTES);
        }
    }

    /// A piece has come, in that time.
    fn filled(&mut self, time: Duration) {
        self.coming_bytes = 0;
        let before = self.piece_bytes.unwrap_or(0);
        self.piece_bytes = Some(match time {
            time if time <= SOON => (before * 2).min(MOST_BYTES),
            time if time <= LATE => before,
            _ if before > FIRST_BYTES => before / 2,
            _ => 0,
        });
    }
}

impl HttpDoor {
    /// Something has arrived on a connection: if it waits for a piece, that is it.
    pub(crate) fn end_fill(&mut self, now: Time, id: ConnId) {
        let connection = self.connections.get_mut(&id);
        let filling = connection.and_then(|connection| connection.filling.take());
        // If the upload has ended meanwhile, its bytes do not count any more.
        if let Some((_, since)) = filling
            && let Some(upload) = self.upload(id)
        {
            let coming_bytes = upload.fills.coming_bytes;
            upload.fills.filled(now - since);
            self.upload_bytes -= coming_bytes;
        }
    }

    /// All that has arrived is served: what an upload writes next may come in one piece, as far
    /// as there is nothing else in between.
    pub(crate) fn begin_fill(&mut self, now: Time, id: ConnId) {
        let is_crowded = self.upload_bytes >= self.config.limits.upload_bytes_max;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let is_ready = connection.inbox.is_empty() && connection.filling.is_none();
        let is_plain = !connection.is_secure && !connection.is_closing && !connection.is_peer_done;
        let Some(exchange) = connection.exchange.as_deref_mut() else {
            return;
        };
        let Stage::Upload(upload) = &mut exchange.stage else {
            return;
        };
        let Some((wanted_bytes, place)) = upload.wanted().filter(|_| is_ready && is_plain) else {
            return;
        };
        let run_bytes = usize::try_from(exchange.body.run()).unwrap_or(usize::MAX);
        let piece_bytes = upload.fills.piece_bytes.unwrap_or(0);
        // Whole blocks, such that the next piece begins with one.
        let cut_bytes = piece_bytes.saturating_sub(beside_block(place + piece_bytes as u64));
        let bytes = wanted_bytes.min(run_bytes).min(cut_bytes);
        // Where many bytes wait, as few more as possible are taken.
        if bytes < FILL_BYTES_MIN || is_crowded {
            return;
        }
        upload.fills.coming_bytes = bytes;
        self.upload_bytes += bytes;
        connection.filling = Some((bytes, now));
        let fill = Fill {
            head: Bytes::new(),
            lead_bytes: beside_block(place),
            missing_bytes: bytes,
        };
        self.effects.push_back(HttpEffect::Fill(id, fill));
    }
}
