//! Names of things: ids, extents, handles, capabilities.
