//! Types that every box shares: [`Time`], [`AlignedBuffer`], [`Scatter`], [`Payload`],
//! [`Extent`] and [`Fill`].
//!
//! Nothing here does I/O or reads a clock.

mod buffer;
mod extent;
mod fill;
mod payload;
mod scatter;
mod time;

pub use buffer::{AlignedBuffer, BLOCK_BYTES, is_aligned};
pub use extent::{Extent, Released};
pub use fill::{FILL_BYTES_MIN, Fill, Filler, beside_block, fill_patience};
pub use payload::{Part, Payload};
pub use scatter::Scatter;
pub use time::{Time, WallTime};
