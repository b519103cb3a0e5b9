//! What a network will do next, from what it did; and which bytes to fetch from where.
//!
//! - [`Forecaster`]: several ways to forecast a series of measurements; the one with the least
//!   recent error answers, as in the Network Weather Service.
//! - [`Measurements`]: a forecaster for each pair of ends and each quantity.
//! - [`Transfer`]: the scheduler of uploads and downloads, a sans-io machine that follows such
//!   forecasts and corrects them by what it sees (Network Storage Stack 3.3 and 4).

mod forecaster;
mod measurements;
mod transfer;

pub use forecaster::{Forecast, Forecaster, Method};
pub use measurements::{Measurements, Pair, Quantity};
pub use transfer::{
    Depot, DepotId, Effect, Failure, Input, Piece, PieceId, Settings, TaskId, Transfer,
};
