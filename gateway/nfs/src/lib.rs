//! The NFS door: connections, MOUNT and NFS version 3.
