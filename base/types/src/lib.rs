//! Types that every box shares: [`Time`], [`AlignedBuffer`], [`Scatter`], [`Payload`] and
//! [`Extent`].
//!
//! Nothing here does I/O or reads a clock.

mod buffer;
mod extent;
mod payload;
mod scatter;
mod time;

pub use buffer::{AlignedBuffer, BLOCK_BYTES, is_aligned};
pub use extent::{Extent, Released};
pub use payload::{Part, Payload};
pub use scatter::Scatter;
pub use time::{Time, WallTime};
