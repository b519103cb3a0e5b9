//! The protocol of the L-Bone (Network Storage Stack 2.2) as bytes and types, for both ends.
//!
//! One request and one answer per connection, then the server closes it. All numbers are
//! decimal text in fields of fixed width, filled up with blanks or NULs on either side:
//!
//! | request | bytes | fields |
//! |---|---|---|
//! | 1, depot list | 512 | version 10, type 10, depots 10, stable MB 10, volatile MB 10, seconds 10, location 452 |
//! | 3, depot count | 46 | version 10, type 10, padding |
//! | 4, proximity | 512 | version 10, type 10, location 492 |
//! | 5, resolution | 50 and records | version 10, type 10, kind 10, sources 10, targets 10, then 266 for each depot |
//!
//! | answer | fields |
//! |---|---|
//! | failure | `2` 10, error number 10 |
//! | depot list | `1` 10, count 10, for each: host 256, port 10 |
//! | depot count | `1` 10, total 16, live 16, 4 NULs |
//! | proximity | `1` 10, count 10, for each: host 256, distance 10 |
//! | resolution | `1` 10, sources 10, targets 10, then a decimal fraction of 10 for each pair |
//!
//! Nothing here does I/O or reads a clock.

mod answer;
mod fields;
mod request;

pub use answer::{Answer, AnswerError};
pub use request::{Depot, DepotQuery, Request, RequestError, Resolution, take_request};

/// The port of an L-Bone, unless configured.
pub const PORT: u16 = 6767;

/// What clients say that they are.
pub const VERSION: &str = "0.0.1";

/// Error number: the parameters of a request cannot be.
pub const ERROR_PARAMETER: i32 = -1112;

/// Error number: a request of an unknown type.
pub const ERROR_TYPE: i32 = -1111;

/// Error number: what is asked for cannot be measured.
pub const ERROR_PARAMETERS: i32 = -1114;
