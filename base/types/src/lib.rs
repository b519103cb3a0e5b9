//! Types that every box shares: [`Time`], [`AlignedBuffer`], [`Scatter`] and [`Payload`].
//!
//! Nothing here does I/O or reads a clock.

mod buffer;
mod payload;
mod scatter;
mod time;

pub use buffer::{AlignedBuffer, BLOCK_BYTES, is_aligned};
pub use payload::Payload;
pub use scatter::Scatter;
pub use time::{Time, WallTime};
