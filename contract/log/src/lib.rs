//! The log library: records in frames, group commit, replay.
//!
//! It serves the node's journal (frames at positions of a ring on a disk), the
//! site's log (frames appended to log objects) and the embedded registry (frames
//! in a file). It knows no medium: who uses it writes the frames that
//! [`LogWriter`] builds and says when they are durable; replay gives bytes to
//! [`FrameReader`].
//!
//! Everything that was told durable is in an unbroken chain of frames: each
//! carries its sequence, its epoch and the checksum of the one before, so a torn
//! tail, an old lap of a ring, and a tail that another owner wrote are told from
//! the log's own (CONSISTENCY 2).

mod frame;
mod varint;
mod writer;

pub use frame::{
    ChainPosition, FRAME_HEADER_BYTES, FRAME_PAYLOAD_BYTES_MAX, Frame, FrameError, FrameReader,
    LogId,
};
pub use varint::{get_byte, get_varint, put_varint};
pub use writer::{LogWriter, PendingFrame, Position};
