//! The data thread's event loop: sockets, timers and disks on one ring.
