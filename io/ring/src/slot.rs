//! Where an operation lives while the kernel works on it.
//!
//! Invariants, on which the `unsafe` here and in ring.rs rests:
//! - From submission to the final completion the operation stays in its slot
//!   and is not touched. Its buffers and pieces are heap memory that does not
//!   move when the slot does; `scratch` is boxed for the same reason.
//! - A buffer in an operation is owned (`AlignedBuffer`, `Scatter`), so the kernel is the
//!   only writer; pieces are `Bytes`, which nobody writes.
//! - The file descriptor is held open by the operation.
//! - A durable write is two entries, linked: the write, and a sync that the
//!   kernel begins when the write is whole. The slot is done with the last
//!   completion that the kernel gives of the two ([`Half`]).
//! - A slot's generation changes with each operation, so a late cancel cannot
//!   hit its successor.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use crossdock_types::Scatter;
use io_uring::opcode;
use io_uring::squeue::Entry;
use io_uring::types::{Fd, FsyncFlags};
use socket2::{SockAddr, SockAddrStorage};

use crate::dummy::region;
use crate::{Completion, Done, Errno, GATHER_PIECES_MAX, Gather, Operation, SendWait};

const COUNTER_BYTES: u32 = 8;

#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    flight: Option<Flight>,
    scratch: Box<Scratch>,
}

struct Flight {
    mailbox: usize,
    tag: u64,
    operation: Operation,
    /// What became of a write whose sync has not completed.
    written: Option<i32>,
}

/// What an operation is to the kernel.
pub(crate) struct Entries {
    pub(crate) only: Entry,
    /// To be submitted before the other, linked with it.
    pub(crate) first: Option<Entry>,
}

/// Which entry of an operation has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// The write of a durable write. Where the kernel can do so, it completes
    /// only if it fails or is short, and then the sync does not.
    First,
    /// The sync of a durable write, and whatever consists of one entry.
    Last,
}

/// Descriptions that the kernel reads or writes beside the payload.
struct Scratch {
    slices: Vec<libc::iovec>,
    header: libc::msghdr,
    address: SockAddrStorage,
    target: Option<SockAddr>,
    counter: [u8; COUNTER_BYTES as usize],
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            slices: Vec::new(),
            header: empty_header(),
            address: SockAddrStorage::zeroed(),
            target: None,
            counter: [0; COUNTER_BYTES as usize],
        }
    }
}

impl Slot {
    pub(crate) const fn is_flying(&self) -> bool {
        self.flight.is_some()
    }

    /// Takes the operation in and describes it to the kernel. The entries'
    /// pointers hold until [`Self::finish`]. `has_dummy`: dummy bytes are registered as the
    /// ring's first buffer.
    pub(crate) fn start(
        &mut self,
        mailbox: usize,
        tag: u64,
        operation: Operation,
        has_dummy: bool,
    ) -> Entries {
        assert!(self.flight.is_none(), "slot taken twice");
        self.generation = self.generation.wrapping_add(1);
        let flight = self.flight.insert(Flight {
            mailbox,
            tag,
            operation,
            written: None,
        });
        let entry = match &flight.operation {
            Operation::Send {
                socket,
                pieces,
                wait,
            } if has_dummy && pieces.is_dummy() => describe_dummy(socket, pieces, *wait),
            _ => describe(&mut flight.operation, &mut self.scratch),
        };
        match &flight.operation {
            Operation::Write {
                file,
                is_durable: true,
                ..
            } => Entries {
                only: describe_flush(file),
                first: Some(entry),
            },
            _ => Entries {
                only: entry,
                first: None,
            },
        }
    }

    /// The write of a durable write has completed; its sync will.
    pub(crate) const fn written(&mut self, result: i32) {
        if let Some(flight) = &mut self.flight {
            flight.written = Some(result);
        }
    }

    /// Gives the operation back after its final completion, with its mailbox.
    pub(crate) fn finish(&mut self, half: Half, result: i32) -> Option<(usize, Completion)> {
        let Flight {
            mailbox,
            tag,
            operation,
            written,
        } = self.flight.take()?;
        let result = match &operation {
            Operation::Write {
                is_durable: true,
                pieces,
                ..
            } if half == Half::Last => durable_result(pieces, written, result),
            _ => result,
        };
        let result = match u32::try_from(result) {
            Ok(value) => self.scratch.outcome(&operation, value),
            Err(_) => Err(Errno(-result)),
        };
        let completion = Completion {
            tag,
            operation,
            result,
        };
        Some((mailbox, completion))
    }
}

/// What a durable write has come to whose sync ended as `synced`: a write that
/// was not whole has cancelled it.
fn durable_result(pieces: &Gather, written: Option<i32>, synced: i32) -> i32 {
    let whole: usize = pieces.io_slices().map(|slice| slice.len()).sum();
    let whole = i32::try_from(whole).unwrap_or(i32::MAX);
    match written {
        Some(written) if written != whole => written,
        _ if synced < 0 => synced,
        _ => whole,
    }
}

fn describe(operation: &mut Operation, scratch: &mut Scratch) -> Entry {
    match operation {
        Operation::Read {
            file,
            offset_bytes,
            buffer,
            filled,
        } => {
            let offset = *offset_bytes + *filled as u64;
            scratch.set_targets(buffer, *filled);
            let slices = &scratch.slices;
            opcode::Readv::new(fd(&**file), slices.as_ptr(), length(slices.len()))
                .offset(offset)
                .build()
        }
        Operation::Write {
            file,
            offset_bytes,
            pieces,
            ..
        } => {
            scratch.set_slices(pieces);
            opcode::Writev::new(
                fd(&**file),
                scratch.slices.as_ptr(),
                length(scratch.slices.len()),
            )
            .offset(*offset_bytes)
            .build()
        }
        Operation::Flush { file } => describe_flush(file),
        Operation::Allocate {
            file,
            offset_bytes,
            length_bytes,
        } => opcode::Fallocate::new(fd(&**file), *length_bytes)
            .offset(*offset_bytes)
            .build(),
        Operation::Accept { listener } => {
            opcode::Accept::new(fd(&**listener), ptr::null_mut(), ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
        Operation::Receive {
            socket,
            buffer,
            filled,
            end,
            whole,
        } => {
            let target = &mut buffer[*filled..*end];
            opcode::Recv::new(fd(&**socket), target.as_mut_ptr(), length(target.len()))
                .flags(if *whole { libc::MSG_WAITALL } else { 0 })
                .build()
        }
        Operation::Send {
            socket,
            pieces,
            wait,
        } => {
            scratch.set_slices(pieces);
            opcode::SendMsg::new(fd(&**socket), scratch.header_of_slices())
                .flags(send_flags(*wait) as u32)
                .build()
        }
        Operation::ReceiveFrom { socket, buffer } => {
            scratch.set_target_slice(buffer);
            let name = ptr::from_mut(&mut scratch.address).cast();
            let name_bytes = scratch.address.size_of();
            let header = scratch.header_of_slices();
            header.msg_name = name;
            header.msg_namelen = name_bytes;
            opcode::RecvMsg::new(fd(&**socket), header).build()
        }
        Operation::SendTo {
            socket,
            target,
            pieces,
        } => {
            scratch.set_slices(pieces);
            let target = scratch.target.insert(SockAddr::from(*target));
            let (name, name_bytes) = (target.as_ptr(), target.len());
            let header = scratch.header_of_slices();
            header.msg_name = name.cast_mut().cast();
            header.msg_namelen = name_bytes;
            opcode::SendMsg::new(fd(&**socket), header)
                .flags(libc::MSG_NOSIGNAL as u32)
                .build()
        }
        Operation::Watch { descriptor } => {
            opcode::PollAdd::new(fd(&**descriptor), libc::POLLIN as u32).build()
        }
        Operation::Wake { counter } => {
            opcode::Read::new(fd(&**counter), scratch.counter.as_mut_ptr(), COUNTER_BYTES).build()
        }
    }
}

/// Dummy bytes are all alike: wherever these began, they are sent from the region's beginning.
fn describe_dummy(socket: &OwnedFd, pieces: &Gather, wait: SendWait) -> Entry {
    let region = region();
    let bytes = pieces.len().min(region.len());
    opcode::SendZc::new(fd(socket), region.as_ptr(), length(bytes))
        .buf_index(Some(0))
        .flags(send_flags(wait))
        .build()
}

const fn send_flags(wait: SendWait) -> i32 {
    let wait = match wait {
        SendWait::Nothing => libc::MSG_DONTWAIT,
        SendWait::Room => 0,
        SendWait::All => libc::MSG_WAITALL,
    };
    libc::MSG_NOSIGNAL | wait
}

fn describe_flush(file: &OwnedFd) -> Entry {
    opcode::Fsync::new(fd(file))
        .flags(FsyncFlags::DATASYNC)
        .build()
}

impl Scratch {
    fn set_targets(&mut self, buffer: &mut Scatter, filled: usize) {
        self.slices.clear();
        let targets = buffer.unfilled(filled).take(GATHER_PIECES_MAX);
        self.slices.extend(targets.map(|target| libc::iovec {
            iov_base: target.as_mut_ptr().cast(),
            iov_len: target.len(),
        }));
    }

    fn set_slices(&mut self, pieces: &Gather) {
        self.slices.clear();
        self.slices
            .extend(pieces.io_slices().map(|slice| libc::iovec {
                iov_base: slice.as_ptr().cast_mut().cast(),
                iov_len: slice.len(),
            }));
    }

    fn set_target_slice(&mut self, target: &mut [u8]) {
        self.slices.clear();
        self.slices.push(libc::iovec {
            iov_base: target.as_mut_ptr().cast(),
            iov_len: target.len(),
        });
    }

    fn header_of_slices(&mut self) -> &mut libc::msghdr {
        self.header = empty_header();
        self.header.msg_iov = self.slices.as_mut_ptr();
        self.header.msg_iovlen = self.slices.len() as _;
        &mut self.header
    }

    fn outcome(&self, operation: &Operation, value: u32) -> Result<Done, Errno> {
        match operation {
            Operation::Accept { .. } => {
                let raw = RawFd::try_from(value).map_err(|_| Errno(libc::EBADF))?;
                // SAFETY: the kernel made this descriptor for this accept, and
                // this is the only place that learns of it.
                Ok(Done::Accepted(unsafe { OwnedFd::from_raw_fd(raw) }))
            }
            Operation::ReceiveFrom { .. } => Ok(Done::Datagram {
                from: self.sender().ok_or(Errno(libc::EAFNOSUPPORT))?,
                bytes: value as usize,
                truncated: self.header.msg_flags & libc::MSG_TRUNC != 0,
            }),
            _ => Ok(Done::Bytes(value as usize)),
        }
    }

    fn sender(&self) -> Option<SocketAddr> {
        let bytes = self.header.msg_namelen.min(self.address.size_of());
        let mut address = SockAddrStorage::zeroed();
        // SAFETY: both are plain old data of the same type, and every bit
        // pattern is valid for it.
        unsafe { ptr::copy_nonoverlapping(&raw const self.address, &raw mut address, 1) };
        // SAFETY: the kernel has written an address of this length there.
        unsafe { SockAddr::new(address, bytes) }.as_socket()
    }
}

fn empty_header() -> libc::msghdr {
    // SAFETY: a message header is plain integers and pointers, for which zero
    // means absent.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn fd(file: &impl AsRawFd) -> Fd {
    Fd(file.as_raw_fd())
}

/// The kernel counts in 32 bits; a longer buffer is served in steps, as any
/// short read or write is.
fn length(bytes: usize) -> u32 {
    const STEP_MAX: u32 = 1 << 30;
    u32::try_from(bytes).unwrap_or(STEP_MAX).min(STEP_MAX)
}
