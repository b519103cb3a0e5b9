//! Extents: the one idea that holds the system together (DESIGN).

use crate::{NodeId, ObjectId, Version};

/// Bytes somewhere in the ensemble. With a [`crate::Capability`] it is what a
/// storage node needs to send, copy or change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The node that holds them.
    pub node: NodeId,
    /// The object on that node.
    pub object: ObjectId,
    /// The newest version within the range when the extent was made.
    pub version: Version,
    /// First byte in the object.
    pub offset_bytes: u64,
    /// Number of bytes.
    pub length_bytes: u64,
}
