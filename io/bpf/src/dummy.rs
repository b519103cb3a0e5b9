//! Bytes that stand in a socket for those that a node will send.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::BpfError;

/// Of one call at most.
const LENGTH: usize = 1 << 20;

/// Zeros that the kernel puts into sockets by reference: nobody copies them, and as the
/// packets do not leave the device nobody makes a checksum of them.
#[derive(Debug)]
pub struct Dummy {
    zeros: File,
}

impl Dummy {
    /// # Errors
    /// [`BpfError`]: there is no memory for them.
    pub fn new() -> Result<Self, BpfError> {
        let memory = memfd_create("crossdock-dummy", MemfdFlags::CLOEXEC);
        let zeros = File::from(memory.map_err(BpfError::system("memory for dummy bytes"))?);
        let sized = zeros.set_len(LENGTH as u64);
        sized.map_err(|error| BpfError::System {
            what: "memory for dummy bytes",
            error,
        })?;
        Ok(Self { zeros })
    }

    /// Puts up to `length` dummy bytes into a socket whose packets are caught from there on;
    /// returns how many it has taken.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send(&self, socket: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
        let mut offset = 0;
        let length = length.min(LENGTH);
        Ok(rustix::fs::sendfile(
            socket,
            &self.zeros,
            Some(&mut offset),
            length,
        )?)
    }
}
