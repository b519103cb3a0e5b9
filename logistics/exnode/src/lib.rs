//! The exNode: "analogous to the Unix inode" (Network Storage Stack 2.2), it makes a file of
//! byte arrays in the network, which may be of any size, overlap and be replicated.
//!
//! - [`ExNode`], [`Mapping`], [`Function`]: what it says; [`read_xml`], [`write_xml`] are the
//!   form that the historic tools read and write, [`read_json`], [`write_json`] another one.
//! - [`Extents`]: the file, cut at every segment boundary, each piece with its sources.
//! - [`Coding`]: what is done to bytes before they are stored (checksums, encryption,
//!   compression), recorded in the exNode as nested functions, and undone.
//! - [`Group`]: blocks that restore lost ones (parity, Reed–Solomon).
//!
//! Nothing here does I/O: random numbers and keys come as arguments.

mod coding;
mod extents;
mod group;
mod json;
mod model;
mod xml;

pub use coding::{
    Coding, CodingError, Covering, Encoded, FileKey, FileKeyError, Place, Random, Reader, Step,
    clear_bytes,
};
pub use extents::{Extent, Extents};
pub use group::{Code, Group, GroupError, SHARD_UNIT_BYTES, Shard};
pub use json::{JsonError, read_json, write_json};
pub use model::{ExNode, ExNodeId, Function, Invalid, Items, Mapping, Value};
pub use xml::{XmlError, read_xml, write_xml};
