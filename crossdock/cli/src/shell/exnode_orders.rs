//! Orders of the admin API about files for IBP clients.

use std::fmt::Write;

use crossdock_admin::{Answer, FileSharing, SharedFile, SharedPiece};
use crossdock_host::{ColumnsTicket, Share, ShareOrder};
use crossdock_net::now;
use tokio::sync::oneshot;
use tracing::info;

use super::token_orders::columns_refusal;
use super::{Shell, wall_time};
use crate::report;

impl Shell {
    /// Begins to make capabilities of a file; whoever asked waits for its site and for the
    /// depots.
    pub(super) fn share_file(&mut self, sharing: FileSharing, reply: oneshot::Sender<Answer>) {
        let path = sharing.path.clone();
        let order = ShareOrder {
            path: sharing.path,
            offset_bytes: sharing.offset_bytes,
            length_bytes: sharing.length_bytes,
            seconds: sharing.seconds,
            uid: sharing.uid,
            gid: sharing.gid,
        };
        let begun = self.host.share_file(now(), wall_time(), order);
        let begun = begun.map_err(|error| columns_refusal(&error));
        self.column_replies.keep(begun, path, reply);
    }

    pub(super) fn take_file_shared(
        &mut self,
        ticket: ColumnsTicket,
        file: crossdock_host::SharedFile,
    ) {
        let depots = self.host.depot_doors();
        let depots = depots.map(|door| format!("{}:{}", door.host, door.port));
        let depots = depots.collect();
        self.column_replies.end(&ticket, |path| {
            let pieces = file.pieces.len();
            info!(path = %path.encode(), pieces, "file shared with IBP clients");
            let mut head = String::with_capacity(2 * file.head.len());
            for byte in file.head.to_bytes() {
                // Writing to a string cannot fail.
                let _ = write!(head, "{byte:02x}");
            }
            report::json(&SharedFile {
                size_bytes: file.size_bytes,
                changed_ns: file.changed.0,
                head,
                pieces: file.pieces.iter().map(piece).collect(),
                depots,
            })
        });
    }
}

fn piece(shared: &crossdock_host::SharedPiece) -> SharedPiece {
    SharedPiece {
        offset_bytes: shared.offset_bytes,
        length_bytes: shared.length_bytes,
        capabilities: shared.shares.iter().map(capability).collect(),
    }
}

fn capability(share: &Share) -> String {
    let Share {
        depot,
        key,
        attribute_key,
    } = share;
    format!(
        "ibp://{}:{}/{key}/{attribute_key}/READ",
        depot.host, depot.port
    )
}
