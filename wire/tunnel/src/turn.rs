//! What one node tells the next: it is your turn.

const MAGIC: [u8; 4] = *b"XDTT";
/// Of the datagram: the magic and the turn.
const BYTES: usize = 12;

/// The datagram by which a node passes a turn on.
///
/// | bytes | meaning (big-endian) |
/// |---|---|
/// | 4 | "XDTT" |
/// | 8 | the turn |
///
/// It has no MAC: who knows a turn, which nobody can guess, has it from a gateway's datagram; and all that it
/// does is to let packets go that would go a moment later.
#[must_use]
pub fn encode_turn(turn: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..].copy_from_slice(&turn.to_be_bytes());
    bytes
}

/// The turn, if that is what the datagram is.
#[must_use]
pub fn decode_turn(bytes: &[u8]) -> Option<u64> {
    let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
    let (magic, turn) = bytes.split_first_chunk()?;
    let turn = turn.first_chunk().copied().map(u64::from_be_bytes);
    turn.filter(|_| *magic == MAGIC)
}
