//! The Internet Backplane Protocol (Network Storage Stack 2.1) as bytes and types, for both
//! ends: depots read [`Request`]s and write answers, clients the other way round.
//!
//! A request is one line of ASCII, of at most 511 bytes and LF; so is an answer. Behind some
//! of them follow raw bytes, as many as the line says. [`take_line`] cuts a line off what has
//! arrived, [`Request::parse`] reads it, [`Request`]'s `Display` writes it. What a depot
//! answers is in [`answer`]: one function writes each kind of line, another reads it.
//!
//! Both versions are known: 0 (ibp 1.0 to 1.3) and 1 (ibp 1.4). They differ in the fields of
//! ALLOCATE and STATUS alone. Lines are written as the programs of that time write them, blanks
//! included; read is whatever has the right fields.
//!
//! Nothing here does I/O or reads a clock.

pub mod answer;

mod capability;
mod code;
mod fields;
mod line;
mod request;
mod status;

pub use capability::{Access, Capabilities, Capability, CapabilityError, Key, Word};
pub use code::ErrorCode;
pub use line::{LineTooLong, take_line};
pub use request::{
    Command, Manage, Probe, Reliability, Request, StatusQuery, StorageType, Version,
};
pub use status::{Limits, Resource, Space, Status, StatusError, Totals};

/// The port of a depot, unless configured.
pub const PORT: u16 = 6714;

/// Bytes of a mebibyte: what version 0 counts space in.
pub const MEBIBYTE: u64 = 1 << 20;
