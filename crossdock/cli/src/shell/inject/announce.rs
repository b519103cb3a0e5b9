//! What the redirector is told before bytes enter a socket.

use crossdock_redirector::{AnnounceError, Redirector};
use crossdock_tunnel::ConnectionId;
use crossdock_types::Part;

/// Tells the redirector of what enters the socket next. From where on packets are caught then.
pub(super) fn announce(
    redirector: &mut Redirector,
    caught: ConnectionId,
    part: &Part,
) -> Result<Option<u64>, AnnounceError> {
    match part {
        Part::Bytes(bytes) => {
            match redirector.announce_literal(caught, bytes.clone()) {
                // More than is remembered goes by itself, if it overtakes nobody.
                Err(AnnounceError::Full(_)) => {
                    redirector.pass(caught, bytes.len() as u64)?;
                    Ok(None)
                }
                announced => announced,
            }
        }
        Part::Extent(extent) => redirector.announce_extent(caught, extent.clone()),
    }
}
