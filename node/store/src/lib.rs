//! The object store of a storage node.
