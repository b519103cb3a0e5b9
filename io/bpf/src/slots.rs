//! Memory that the program reads and the gateway writes: the slots of connections, and whether the
//! gateway is awake.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_tunnel::ConnectionId;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::BpfError;

/// As many connections as redirector.bpf.c has slots for.
pub(crate) const SLOTS: usize = 65_536;
/// Nothing is caught.
const NEVER: u64 = u64::MAX;

/// `struct slot` of redirector.bpf.c.
#[repr(C)]
struct Slot {
    connection: AtomicU64,
    caught_from: AtomicU64,
}

/// All slots, and which of them are free.
pub(crate) struct Slots {
    memory: Shared<Slot>,
    free: Vec<u16>,
    /// How many there may be at once.
    most: usize,
    /// How many connections there have been.
    given: u64,
}

/// Of a connection's slot.
const fn number(id: ConnectionId) -> u16 {
    let [low, next, ..] = id.0.to_le_bytes();
    u16::from_le_bytes([low, next])
}

impl Slots {
    /// Of the program's map; so many of them are used at most.
    pub(crate) fn map(map: BorrowedFd<'_>, most: usize) -> Result<Self, BpfError> {
        Ok(Self {
            memory: Shared::map(map, SLOTS)?,
            free: (0..=u16::MAX).take(most).rev().collect(),
            most,
            given: 0,
        })
    }

    fn of(&self, id: ConnectionId) -> &Slot {
        &self.memory.all()[usize::from(number(id))]
    }

    /// A slot for a connection, of which nothing is caught yet.
    pub(crate) fn take(&mut self) -> Result<ConnectionId, BpfError> {
        let number = self.free.pop().ok_or(BpfError::Full(self.most))?;
        self.given += 1;
        let id = ConnectionId(self.given << u16::BITS | u64::from(number));
        let slot = self.of(id);
        slot.caught_from.store(NEVER, Ordering::Release);
        slot.connection.store(id.0, Ordering::Release);
        Ok(id)
    }

    /// Catches what ends behind an offset of the stream, or nothing.
    pub(crate) fn catch_from(&self, id: ConnectionId, offset: Option<u64>) {
        let slot = self.of(id);
        debug_assert_eq!(slot.connection.load(Ordering::Relaxed), id.0);
        slot.caught_from
            .store(offset.unwrap_or(NEVER), Ordering::Release);
    }

    /// The connection is gone; a packet of it that comes nevertheless does not go out.
    pub(crate) fn give_back(&mut self, id: ConnectionId) {
        let slot = self.of(id);
        if slot.connection.load(Ordering::Relaxed) == id.0 {
            slot.connection.store(0, Ordering::Release);
            self.free.push(number(id));
        }
    }
}

/// Whether the gateway looks after caught packets by itself.
pub(crate) struct Awake(Shared<AtomicU64>);

impl Awake {
    /// Of the program's map.
    pub(crate) fn map(map: BorrowedFd<'_>) -> Result<Self, BpfError> {
        Ok(Self(Shared::map(map, 1)?))
    }

    /// What is caught from now on wakes the gateway, or does not.
    pub(crate) fn set(&self, is_awake: bool) {
        self.0.all()[0].store(is_awake.into(), Ordering::SeqCst);
    }
}

/// The values of a map.
struct Shared<T> {
    memory: NonNull<T>,
    count: usize,
}

// SAFETY: the memory is this value's own, and what lies in it are atomic numbers.
#[expect(unsafe_code, reason = "memory that the kernel shares")]
unsafe impl<T: Sync> Send for Shared<T> {}

impl<T: Sync> Shared<T> {
    /// The map has `count` values of that size, and any bits are one.
    #[expect(unsafe_code, reason = "memory that the kernel shares")]
    fn map(map: BorrowedFd<'_>, count: usize) -> Result<Self, BpfError> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let length = count * size_of::<T>();
        // SAFETY: a new mapping of the kernel's choice aliases nothing of ours; the map lives
        // as long as it is mapped.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                rights,
                MapFlags::SHARED,
                map,
                0,
            )
        };
        let memory = memory.map_err(BpfError::system("memory of the program"))?;
        let memory = NonNull::new(memory.cast()).ok_or(BpfError::Full(0))?;
        Ok(Self { memory, count })
    }

    #[expect(unsafe_code, reason = "memory that the kernel shares")]
    fn all(&self) -> &[T] {
        // SAFETY: so many of them are mapped until the value is dropped, any bits are valid,
        // and the kernel changes none.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.count) }
    }
}

impl<T> Drop for Shared<T> {
    #[expect(unsafe_code, reason = "memory that the kernel shares")]
    fn drop(&mut self) {
        let length = self.count * size_of::<T>();
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), length) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
