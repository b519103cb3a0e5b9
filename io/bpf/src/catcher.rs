//! The program that catches packets, and what it tells.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use aya::maps::{Array, Map, MapData, MapError, PerCpuArray, RingBuf, SkStorage};
use aya::programs::tc::{self, NlOptions, TcAttachOptions, TcError, TcHandle};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use crossdock_tunnel::{Caught, ConnectionId};

use crate::slots::{Awake, SLOTS, Slots};
use crate::{BpfError, CatchDevice};

/// Compiled from redirector.bpf.c by `cargo xtask gen bpf`.
const OBJECT: &[u8] = include_bytes_aligned!("redirector.bpf.o");
/// Its programs: on the device, and on the way out behind it.
const PROGRAM: &str = "redirector";
const GUARD: &str = "redirector_guard";
/// Where they stand among the programs of a device: before others, and those of each gateway at the
/// same place, so that there cannot be two.
const PLACE: NlOptions = NlOptions {
    priority: 1,
    handle: TcHandle::new(0, 0xcd06),
    classid: None,
};

/// After so many looks without a connection that is led the guard goes.
const IDLE_LOOKS_MAX: u32 = 5;

/// For how much the program has room.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Connections at once, at most 65,536.
    pub connections: usize,
    /// Bytes of what nobody has been told yet, 168 for each caught packet: pages, a power of two of
    /// them.
    pub event_bytes: u32,
}

impl Default for Room {
    /// As much as there is any use for.
    fn default() -> Self {
        Self {
            connections: SLOTS,
            event_bytes: 4 << 20,
        }
    }
}

/// What became of the packets of marked sockets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Went as they were.
    pub passed: u64,
    /// Were caught; somebody has been told.
    pub caught: u64,
    /// Had nothing that was not acknowledged.
    pub late: u64,
    /// Were of nobody that is known, or none of TCP: lost.
    pub unknown: u64,
    /// Were caught, but there was no room to tell: lost, and TCP repeats them.
    pub full: u64,
    /// Were on the way out without having come by here: lost.
    pub stray: u64,
}

/// The program on a [`CatchDevice`]. Without it nothing leaves the device.
pub struct Catcher {
    device: CatchDevice,
    slots: Slots,
    awake: Awake,
    connections: SkStorage<MapData, u64>,
    events: RingBuf<MapData>,
    figures: PerCpuArray<MapData, u64>,
    program: Ebpf,
    /// Connections whose packets come here.
    led: BTreeSet<ConnectionId>,
    /// The program on the way out is there: as long as connections are led, and a little longer, as
    /// each packet of the gateway passes it.
    is_guarded: bool,
    idle_looks: u32,
}

impl Catcher {
    /// Puts the program on the device, in place of one that a process before has left.
    ///
    /// It stands at a clsact queue: those that attach elsewhere (tcx) let packets out that the
    /// program has taken. It stays there when the value and its process are gone. Connections
    /// whose packets pass there already are another process's, and are reset: nobody knows any
    /// more what their bytes are.
    ///
    /// # Errors
    /// [`BpfError`]: the kernel does not take it, or the rights are missing.
    pub fn attach(device: CatchDevice, room: Room) -> Result<Self, BpfError> {
        let mut loader = EbpfLoader::new();
        loader.map_max_entries("events", room.event_bytes);
        let mut program = loader.load(OBJECT).map_err(refused)?;
        let map = |program: &mut Ebpf, name: &str| {
            let map = program.take_map(name);
            map.ok_or_else(|| BpfError::Program(format!("no map {name}")))
        };
        let array = |program: &mut Ebpf, name: &str| match map(program, name)? {
            Map::Array(array) => Ok(array),
            _ => Err(BpfError::Program(format!("{name} is no array"))),
        };
        // They have to be there until the program is loaded.
        let slots_map = array(&mut program, "slots")?;
        let awake_map = array(&mut program, "awake")?;
        let slots = Slots::map(slots_map.fd().as_fd(), room.connections)?;
        let awake = Awake::map(awake_map.fd().as_fd())?;
        let mut way_out: Array<MapData, u32> =
            Array::try_from(map(&mut program, "way_out")?).map_err(refused)?;
        way_out.set(0, device.way_out(), 0).map_err(refused)?;
        let connections = SkStorage::try_from(map(&mut program, "connections")?);
        let events = RingBuf::try_from(map(&mut program, "events")?);
        let figures = PerCpuArray::try_from(map(&mut program, "figures")?);

        // Whatever is there already goes on catching until here.
        for name in [GUARD, PROGRAM] {
            classifier(&mut program, name)?.load().map_err(refused)?;
        }
        take_off(PROGRAM, device.name());
        put(&mut program, PROGRAM, device.name())?;
        device.reset_all()?;
        take_off(GUARD, device.way_out_name());
        // Whether sockets may be marked is better known before one has to be.
        let tried =
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|error| BpfError::System {
                what: "a socket",
                error,
            })?;
        device.mark(tried.as_fd(), true)?;
        Ok(Self {
            device,
            slots,
            awake,
            connections: connections.map_err(refused)?,
            events: events.map_err(refused)?,
            figures: figures.map_err(refused)?,
            program,
            led: BTreeSet::new(),
            is_guarded: false,
            idle_looks: 0,
        })
    }

    /// Puts back what somebody has taken away: the program, the one behind it, the rule that has
    /// packets come here. Until then nothing of any connection gets out. Whether that was so.
    ///
    /// # Errors
    /// Something cannot be put back, as the device is gone, for one.
    pub fn keep(&mut self) -> Result<bool, BpfError> {
        let was_unguarded = self.is_guarded && self.keep_guard()?;
        let caught = put(&mut self.program, PROGRAM, self.device.name())?;
        Ok(self.device.keep()? || was_unguarded || caught)
    }

    /// Whether [`keep`](Self::keep) has something to do though there may be no connections.
    #[must_use]
    pub const fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// Puts the guard back, or takes it off when nothing has needed it for a while. Whether it was
    /// missing.
    fn keep_guard(&mut self) -> Result<bool, BpfError> {
        self.idle_looks = match self.led.is_empty() {
            true => self.idle_looks + 1,
            false => 0,
        };
        if self.idle_looks < IDLE_LOOKS_MAX {
            return put(&mut self.program, GUARD, self.device.way_out_name());
        }
        take_off(GUARD, self.device.way_out_name());
        self.is_guarded = false;
        Ok(false)
    }

    /// A number for a connection whose packets may have to be caught: until they are
    /// [led](Self::lead) here the kernel knows nothing of it.
    ///
    /// # Errors
    /// [`BpfError::Full`].
    pub fn open(&mut self) -> Result<ConnectionId, BpfError> {
        self.slots.take()
    }

    /// Whether packets of a connection's socket pass here, or leave as any other's: each that passes
    /// costs the way by one more device. It must be so before a byte enters the socket that is to be
    /// caught, and until all of those are acknowledged. Offsets of its stream count from the first
    /// byte that the connection has ever sent.
    ///
    /// # Errors
    /// The system's word; it stays as it was.
    pub fn lead(
        &mut self,
        id: ConnectionId,
        socket: BorrowedFd<'_>,
        passes_here: bool,
    ) -> Result<(), BpfError> {
        if passes_here {
            if !self.is_guarded {
                put(&mut self.program, GUARD, self.device.way_out_name())?;
                (self.is_guarded, self.idle_looks) = (true, 0);
            }
            let known = self.connections.insert(&socket.as_raw_fd(), id.0, 0);
            known.map_err(refused)?;
        }
        self.device.mark(socket, passes_here)?;
        match passes_here {
            true => self.led.insert(id),
            false => self.led.remove(&id),
        };
        Ok(())
    }

    /// Has packets caught that end behind this offset of the stream; none: all may go. To be
    /// called before the bytes enter the socket.
    pub fn catch_from(&self, id: ConnectionId, offset: Option<u64>) {
        self.slots.catch_from(id, offset);
    }

    /// The connection has ended. What it still sends with a payload is lost.
    pub fn remove(&mut self, id: ConnectionId) {
        self.slots.give_back(id);
        self.led.remove(&id);
    }

    /// Whether the caller looks for caught packets by itself, before it sleeps. It does not wake
    /// then: only what is caught while nobody is awake makes this readable.
    ///
    /// A packet that another processor catches in the very moment in which this is said may go
    /// unnoticed until the next look: whoever has connections looks from time to time.
    pub fn set_awake(&self, is_awake: bool) {
        self.awake.set(is_awake);
    }

    /// The next caught packet, if there is one.
    pub fn next_caught(&mut self) -> Option<Caught> {
        Caught::decode(&self.events.next()?)
    }

    /// What became of packets so far.
    ///
    /// # Errors
    /// The system's word.
    pub fn figures(&self) -> Result<Figures, BpfError> {
        let of = |number: u32| -> Result<u64, MapError> {
            Ok(self.figures.get(&number, 0)?.iter().sum())
        };
        let all = || {
            Ok(Figures {
                passed: of(0)?,
                caught: of(1)?,
                late: of(2)?,
                unknown: of(3)?,
                full: of(4)?,
                stray: of(5)?,
            })
        };
        all().map_err(|error: MapError| refused(error))
    }
}

/// Readable when packets have been caught.
impl AsFd for Catcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

fn classifier<'all>(
    program: &'all mut Ebpf,
    name: &str,
) -> Result<&'all mut SchedClassifier, BpfError> {
    let classifier = program.program_mut(name);
    let classifier = classifier.ok_or_else(|| BpfError::Program(format!("no program {name}")))?;
    classifier.try_into().map_err(refused)
}

/// Takes a program off a device, if it is there.
fn take_off(name: &str, device: &str) {
    let _ = tc::qdisc_detach_program(device, TcAttachType::Egress, name);
}

/// Puts a program on a device, unless one is at its place. Whether it was not.
fn put(program: &mut Ebpf, name: &str, device: &str) -> Result<bool, BpfError> {
    // A queue that is there already is as good.
    let _ = tc::qdisc_add_clsact(device);
    let classifier = classifier(program, name)?;
    let options = TcAttachOptions::Netlink(PLACE);
    match classifier.attach_with_options(device, TcAttachType::Egress, options) {
        Ok(link) => {
            // What goes with its owner would take the program along.
            std::mem::forget(classifier.take_link(link).map_err(refused)?);
            Ok(true)
        }
        Err(ProgramError::TcError(TcError::NetlinkError(error)))
            if error.raw_os_error() == Some(libc::EEXIST) =>
        {
            Ok(false)
        }
        Err(error) => Err(refused(error)),
    }
}

/// With what lies under an error: the kernel's complaint is there.
fn refused(error: impl std::error::Error) -> BpfError {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        said = format!("{said}: {inner}");
        source = inner.source();
    }
    BpfError::Program(said)
}
