//! NFS version 3 and MOUNT version 3 (RFC 1813).
