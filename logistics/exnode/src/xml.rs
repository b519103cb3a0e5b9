//! The form that the historic tools read and write: elements of the namespace
//! `http://loci.cs.utk.edu/exnode`, as libexnode of LoRS 0.82 has them.
//!
//! Reading is bounded whatever the document says: no document type, no entities but the five
//! of XML, limits of length, depth and number ([`crossdock_limits`]). Elements that are not
//! known are passed over, as the historic reader does; metadata of any name is kept.

mod read;
mod write;

use std::io;

use thiserror::Error;

use crate::model::Invalid;

pub use read::read_xml;
pub use write::write_xml;

/// The namespace of all elements but the root.
const NAMESPACE: &str = "http://loci.cs.utk.edu/exnode";

/// Mapping metadata that is part of [`crate::Mapping`] itself.
const FIELDS: [&str; 5] = [
    "exnode_offset",
    "logical_length",
    "alloc_offset",
    "alloc_length",
    "e2e_blocksize",
];

/// Why a document is no exNode.
#[derive(Debug, Error)]
pub enum XmlError {
    /// It cannot be read at all.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// It is not well-formed XML.
    #[error("not well-formed at byte {at}: {why}")]
    Syntax {
        /// Where.
        at: u64,
        /// Why.
        why: String,
    },
    /// It is XML, but not an exNode.
    #[error("not an exNode at byte {at}: {why}")]
    Meaning {
        /// Where.
        at: u64,
        /// Why.
        why: String,
    },
    /// It is longer, deeper or has more of something than is accepted.
    #[error("beyond the limits at byte {at}: {why}")]
    Limit {
        /// Where.
        at: u64,
        /// Which limit.
        why: String,
    },
    /// Its parts cannot be.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

#[cfg(test)]
mod tests;
