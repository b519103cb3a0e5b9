//! The procedures of NFS version 3 (RFC 1813 section 3).

use crossdock_xdr::xdr_enum;

/// RPC program number of NFS.
pub const PROGRAM: u32 = 100_003;

/// Version of the program.
pub const VERSION: u32 = 3;

xdr_enum! {
    /// A procedure, by its number.
    pub enum Procedure as "NFS procedure" {
        /// Does nothing (section 3.3.0).
        Null = 0,
        /// Gets attributes (section 3.3.1).
        Getattr = 1,
        /// Sets attributes (section 3.3.2).
        Setattr = 2,
        /// Looks a name up (section 3.3.3).
        Lookup = 3,
        /// Checks access (section 3.3.4).
        Access = 4,
        /// Reads a symbolic link (section 3.3.5).
        Readlink = 5,
        /// Reads from a file (section 3.3.6).
        Read = 6,
        /// Writes to a file (section 3.3.7).
        Write = 7,
        /// Creates a file (section 3.3.8).
        Create = 8,
        /// Creates a directory (section 3.3.9).
        Mkdir = 9,
        /// Creates a symbolic link (section 3.3.10).
        Symlink = 10,
        /// Creates a special file (section 3.3.11).
        Mknod = 11,
        /// Removes a file (section 3.3.12).
        Remove = 12,
        /// Removes a directory (section 3.3.13).
        Rmdir = 13,
        /// Renames (section 3.3.14).
        Rename = 14,
        /// Creates a hard link (section 3.3.15).
        Link = 15,
        /// Reads a directory (section 3.3.16).
        Readdir = 16,
        /// Reads a directory with attributes and handles (section 3.3.17).
        Readdirplus = 17,
        /// Tells the room in the file system (section 3.3.18).
        Fsstat = 18,
        /// Tells what the server can do (section 3.3.19).
        Fsinfo = 19,
        /// Tells the limits of names and links (section 3.3.20).
        Pathconf = 20,
        /// Makes unstable writes durable (section 3.3.21).
        Commit = 21,
    }
}
