//! What locking needs beside NFS version 3 (Open Group C702, RFC 1833):
//!
//! - [`lock`]: the network lock manager, versions 1 and 3 (offsets of 32 bits)
//!   and 4 (64 bits);
//! - [`status`]: the network status monitor, version 1;
//! - [`portmap`]: the portmapper, version 2, and rpcbind, versions 3 and 4.
//!
//! Each has an enumeration of procedures, `Arguments` and `Results` that borrow
//! from their record. Nothing here does I/O or decides anything.

pub mod lock;
pub mod portmap;
pub mod status;

/// Longest string of these protocols, in bytes (LM_MAXSTRLEN, SM_MAXSTRLEN).
pub const STRING_BYTES_MAX: usize = 1024;

/// Longest handle, owner or cookie, in bytes (MAXNETOBJ_SZ).
pub const OBJECT_BYTES_MAX: usize = 1024;
