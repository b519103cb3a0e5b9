//! Doors that have no engine of their own: what they tell the one of another door, as
//! messages. All doors of a gateway read from the same disks, so one engine has the memory
//! and counts the streams of all.

use crossdock_types::Time;

use crate::connection::{Decision, End, StreamClass, StreamId, TcpSample};
use crate::delivery::Delivery;

/// What a door of requests tells the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest {
    /// [`Delivery::open`], of the foreground.
    Open {
        /// A number of [`Guest::stream`].
        stream: StreamId,
        /// What the client may still ask for, in bytes.
        total_bytes: u64,
        /// How much it asks for at a time, in bytes: [`Delivery::set_unit`].
        unit_bytes: u64,
        /// Where in the file that begins, in bytes: [`Delivery::set_place`].
        place_bytes: u64,
    },
    /// [`Delivery::asked`].
    Asked {
        /// Of which.
        stream: StreamId,
        /// How much.
        bytes: u64,
    },
    /// [`Delivery::answered`].
    Answered {
        /// Of which.
        stream: StreamId,
        /// How much.
        bytes: u64,
    },
    /// [`Delivery::sample`].
    Sample {
        /// Of which.
        stream: StreamId,
        /// How its connection is, as far as it is about the stream.
        sample: TcpSample,
    },
    /// [`Delivery::leave`].
    Leave {
        /// Which.
        stream: StreamId,
    },
    /// [`Delivery::close`] after a loss of the connection.
    Lost {
        /// Which.
        stream: StreamId,
    },
}

/// What the engine tells a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// More of the stream is to be read ahead: all but its last `remaining_bytes`, with what
    /// was asked for and requested before. (An amount would count from where the client was
    /// when it was decided.)
    Request {
        /// Of which.
        stream: StreamId,
        /// What is left for later.
        remaining_bytes: u64,
    },
    /// [`Decision::Look`]: a sample is wanted.
    Look {
        /// Of which.
        stream: StreamId,
    },
}

/// Set in the numbers of streams of doors that are guests.
const OF_GUEST: u64 = 1 << 63;

impl Guest {
    /// The guest's stream of this number, which is below 2^63.
    #[must_use]
    pub const fn stream(number: u64) -> StreamId {
        StreamId(number | OF_GUEST)
    }

    /// Whether decisions about the stream are a guest's business.
    #[must_use]
    pub const fn owns(stream: StreamId) -> bool {
        stream.0 & OF_GUEST != 0
    }

    /// What a guest is told of a decision about its stream. Nothing of it is postponed: who
    /// stands still asks for no more. What is withdrawn the guest knows by itself.
    #[must_use]
    pub fn advice(decision: Decision, delivery: &Delivery) -> Option<Advice> {
        match decision {
            Decision::Request { stream, .. } => Some(Advice::Request {
                stream,
                remaining_bytes: delivery.remaining_bytes(stream)?,
            }),
            Decision::Look { stream } => Some(Advice::Look { stream }),
            Decision::Postpone { .. } | Decision::Resume { .. } | Decision::Withdraw { .. } => None,
        }
    }

    /// Tells it.
    pub fn tell(self, now: Time, delivery: &mut Delivery) {
        match self {
            Self::Open {
                stream,
                total_bytes,
                unit_bytes,
                place_bytes,
            } => {
                delivery.open(now, stream, total_bytes, StreamClass::Foreground);
                delivery.set_unit(now, stream, unit_bytes);
                delivery.set_place(now, stream, place_bytes);
            }
            Self::Asked { stream, bytes } => delivery.asked(now, stream, bytes),
            Self::Answered { stream, bytes } => delivery.answered(now, stream, bytes),
            Self::Sample { stream, sample } => delivery.sample(now, stream, sample),
            Self::Leave { stream } => delivery.leave(now, stream),
            // Without EDRC nothing is withdrawn, and nobody says when it has come.
            Self::Lost { stream } if !delivery.config().switches.edrc => {
                delivery.leave(now, stream);
            }
            Self::Lost { stream } => {
                delivery.close(now, stream, End::Reset);
            }
        }
    }
}
