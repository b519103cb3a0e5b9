//! What lies in a socket when the caller asks for it is received at once: a turn of the loop
//! costs more than the call, and data of 64 KiB would have one each.

use std::collections::VecDeque;

use rustix::net::{RecvFlags, recv};

use crate::Event;
use crate::buffers::BufferPool;
use crate::connection::Connection;

/// A connection gets no more than this between two turns: the others shall have theirs.
const TURN_BYTES_MAX: usize = 1 << 20;

/// Longer ones are mostly still on their way: the kernel completes them.
const AT_ONCE_BYTES_MAX: usize = 300 << 10;

/// Fills what is expected, and begins to read what follows it. Whatever else the socket has to
/// say, an end or an error, it says to the receive that the loop has in flight later.
pub(crate) fn receive_at_hand(
    connection: &mut Connection,
    (turn, pool): (u64, &BufferPool),
    events: &mut VecDeque<Event>,
) {
    if connection.kernel.at_hand.0 != turn {
        connection.kernel.at_hand = (turn, 0);
    }
    let has_room = connection.kernel.at_hand.1 < TURN_BYTES_MAX;
    if !has_room || connection.kernel.receiving || !connection.wants_bytes() {
        return;
    }
    let Some(mut expected) = connection.take_expected() else {
        return;
    };
    let target = &mut expected.buffer[expected.filled..expected.end];
    let wanted = target.len();
    let bytes = match wanted {
        0..=AT_ONCE_BYTES_MAX => recv(&*connection.socket, target, RecvFlags::DONTWAIT),
        _ => Ok((0, 0)),
    };
    let bytes = bytes.map_or(0, |(bytes, _)| bytes);
    connection.kernel.at_hand.1 += bytes;
    connection.received_expected(expected, bytes, events);
    if bytes < wanted {
        return;
    }
    let (size, room) = connection.room(false);
    let mut buffer = pool.take(size);
    match recv(
        &*connection.socket,
        &mut buffer[..room],
        RecvFlags::DONTWAIT,
    ) {
        Ok((bytes, _)) if bytes > 0 => {
            connection.received(pool.share_received(buffer, bytes), room, events);
        }
        _ => pool.give_back(buffer),
    }
}
