//! Sets over simulated disks, in simulated time.

use std::time::Duration;

use bytes::Bytes;
use crossdock_disk::{
    Disk, DiskCompletion, DiskError, DiskOperation, DiskOutput, DiskRequest, DiskToken,
};
use crossdock_sets::{
    AssembleError, Assembled, DiskNumber, DiskSets, Found, Geometry, Kind, Options, SetWish,
    SetsEvent, Wish, assemble,
};
use crossdock_sim::disk::{SimDisk, SimDiskOptions};
use crossdock_sim::random::Random;
use crossdock_types::{BLOCK_BYTES, Scatter, Time};

pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// Small, so that logs and lists are full often.
pub(crate) const GEOMETRY: Geometry = Geometry {
    chunk_bytes: 8192,
    log_slots: 6,
    region_stripes: 4,
};

/// The disks of a node, and what they are for.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) sets: Vec<(Kind, usize)>,
    pub(crate) spares: usize,
    /// Stripes of each member.
    pub(crate) stripes: u64,
}

impl Shape {
    pub(crate) fn disks(&self) -> usize {
        self.sets.iter().map(|(_, count)| count).sum::<usize>() + self.spares
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        GEOMETRY.data_offset() + self.stripes * u64::from(GEOMETRY.chunk_bytes)
    }
}

/// A disk, or where one was.
#[derive(Debug)]
pub(crate) enum Slot {
    Good(SimDisk),
    /// All requests fail. What it held comes back, or not.
    Dead(SimDisk, Vec<DiskToken>),
    Gone,
}

pub(crate) struct Rig {
    pub(crate) shape: Shape,
    pub(crate) slots: Vec<Slot>,
    pub(crate) machine: DiskSets,
    pub(crate) now: Time,
    pub(crate) events: Vec<SetsEvent>,
    next: u64,
}

fn wish(shape: &Shape, slots: &[Slot]) -> Wish {
    let head_bytes = usize::try_from(GEOMETRY.data_offset()).unwrap();
    let found = |(number, slot): (usize, &Slot)| Found {
        name: format!("disk{number}"),
        length_bytes: shape.disk_bytes(),
        head: match slot {
            Slot::Good(disk) | Slot::Dead(disk, _) => {
                let mut head = vec![0; head_bytes];
                disk.peek(0, &mut head);
                Ok(head)
            }
            Slot::Gone => Err("no such disk".to_owned()),
        },
    };
    let mut next = 0;
    let sets = shape.sets.iter().map(|&(kind, count)| {
        let disks = (next..next + count).collect();
        next += count;
        SetWish {
            kind,
            disks,
            speed: None,
        }
    });
    let sets = sets.collect();
    Wish {
        disks: slots.iter().enumerate().map(found).collect(),
        sets,
        spares: (next..next + shape.spares).collect(),
        geometry: GEOMETRY,
    }
}

pub(crate) fn try_assemble(
    shape: &Shape,
    slots: &[Slot],
    random: &mut Random,
) -> Result<Assembled, AssembleError> {
    assemble(&wish(shape, slots), || random.next_u64())
}

pub(crate) fn fresh_slots(shape: &Shape, random: &mut Random) -> Vec<Slot> {
    let new = |_| {
        let options = SimDiskOptions {
            delay_max: Duration::from_micros(300),
            ..SimDiskOptions::default()
        };
        Slot::Good(SimDisk::new(random.next_u64(), shape.disk_bytes(), options))
    };
    (0..shape.disks()).map(new).collect()
}

impl Rig {
    pub(crate) fn start(
        shape: Shape,
        slots: Vec<Slot>,
        now: Time,
        random: &mut Random,
    ) -> Result<Self, String> {
        let assembled = try_assemble(&shape, &slots, random).map_err(|error| error.to_string())?;
        let options = Options {
            rebuild_bytes_per_second: 50 << 20,
        };
        let machine = DiskSets::new(now, assembled, options);
        let mut rig = Self {
            shape,
            slots,
            machine,
            now,
            events: Vec::new(),
            next: 0,
        };
        rig.carry();
        Ok(rig)
    }

    pub(crate) fn submit(&mut self, operation: DiskOperation) -> DiskToken {
        self.next += 1;
        let token = DiskToken(self.next);
        let request = DiskRequest { token, operation };
        self.machine.submit(self.now, request);
        self.carry();
        token
    }

    pub(crate) fn carry(&mut self) {
        while let Some((number, request)) = self.machine.poll_request() {
            match &mut self.slots[usize::from(number.0)] {
                Slot::Good(disk) => {
                    disk.advance(self.now);
                    disk.submit(request);
                }
                Slot::Dead(_, failing) => failing.push(request.token),
                Slot::Gone => panic!("a request for a disk that is not there"),
            }
        }
        while let Some(event) = self.machine.poll_event() {
            self.events.push(event);
        }
    }

    /// Lets the next thing happen. False if nothing ever will.
    pub(crate) fn step(&mut self) -> bool {
        let mut next: Option<(Time, usize)> = None;
        for (number, slot) in self.slots.iter().enumerate() {
            let due = match slot {
                Slot::Good(disk) => disk.next_completion_at(),
                Slot::Dead(_, failing) => (!failing.is_empty()).then_some(self.now),
                Slot::Gone => None,
            };
            if let Some(due) = due
                && next.is_none_or(|(before, _)| due < before)
            {
                next = Some((due, number));
            }
        }
        let timer = self.machine.poll_timeout();
        match (next, timer) {
            (None, None) => return false,
            (next, Some(timer)) if next.is_none_or(|(due, _)| timer < due) => {
                self.now = self.now.max(timer);
                self.machine.handle_timeout(self.now);
            }
            (Some((due, number)), _) => {
                self.now = self.now.max(due);
                let completion = match &mut self.slots[number] {
                    Slot::Good(disk) => {
                        disk.advance(self.now);
                        disk.poll()
                    }
                    Slot::Dead(_, failing) => failing.pop().map(|token| DiskCompletion {
                        token,
                        result: Err(dead()),
                    }),
                    Slot::Gone => None,
                };
                if let Some(completion) = completion {
                    let number = DiskNumber(u16::try_from(number).unwrap());
                    self.machine.disk_completed(self.now, number, completion);
                }
            }
            (None, Some(_)) => return false,
        }
        self.carry();
        true
    }

    /// Waits for one request; others complete meanwhile, and are lost.
    pub(crate) fn finish(&mut self, operation: DiskOperation) -> Result<DiskOutput, DiskError> {
        let token = self.submit(operation);
        loop {
            while let Some(completion) = self.machine.poll() {
                if completion.token == token {
                    return completion.result;
                }
            }
            assert!(self.step(), "a request never ends");
        }
    }

    pub(crate) fn read(&mut self, first: u64, blocks: u64) -> Result<Vec<u8>, String> {
        let buffer = Scatter::zeroed(usize::try_from(blocks * BLOCK).unwrap());
        let offset_bytes = first * BLOCK;
        let read = DiskOperation::Read {
            offset_bytes,
            buffer,
        };
        bytes_of(self.finish(read)).map_err(|error| format!("read of block {first}: {error}"))
    }

    pub(crate) fn read_other(&mut self, block: u64, attempt: u32) -> Result<Vec<u8>, DiskError> {
        let buffer = Scatter::zeroed(BLOCK_BYTES);
        let read = DiskOperation::ReadOther {
            offset_bytes: block * BLOCK,
            buffer,
            attempt,
        };
        bytes_of(self.finish(read))
    }

    pub(crate) fn write(&mut self, first: u64, pieces: Vec<Bytes>) -> Result<(), String> {
        let write = DiskOperation::Write {
            offset_bytes: first * BLOCK,
            pieces,
            is_durable: false,
        };
        let done = self.finish(write);
        done.map(|_| ())
            .map_err(|error| format!("write of block {first}: {error}"))
    }

    /// Lets everything happen that is under way, rebuilds included.
    pub(crate) fn settle(&mut self) {
        while self.step() {}
    }

    /// A disk answers nothing but errors from now on.
    pub(crate) fn kill(&mut self, number: usize) {
        let slot = std::mem::replace(&mut self.slots[number], Slot::Gone);
        self.slots[number] = match slot {
            Slot::Good(mut disk) => {
                let mut failing = Vec::new();
                while let Some(completion) = disk.step() {
                    failing.push(completion.token);
                }
                Slot::Dead(disk, failing)
            }
            other => other,
        };
    }

    /// Power fails: the disks as they are then.
    pub(crate) fn crash(self, random: &mut Random) -> Vec<Slot> {
        let slots = self.slots.into_iter().map(|slot| match slot {
            Slot::Good(disk) => Slot::Good(disk.crashed(random)),
            Slot::Dead(disk, _) => Slot::Dead(disk, Vec::new()),
            Slot::Gone => Slot::Gone,
        });
        slots.collect()
    }

    /// Whether the members of all whole sets agree, looked at from outside.
    pub(crate) fn check_members(&self) -> Result<(), String> {
        let status = self.machine.status();
        for (number, set) in status.sets.iter().enumerate() {
            if set.lacking > 0 || set.kind == "stripe" {
                continue;
            }
            let disks = set.members.iter().map(|member| {
                let name = member.name.as_deref().unwrap_or("");
                let place: usize = name.trim_start_matches("disk").parse().unwrap();
                match &self.slots[place] {
                    Slot::Good(disk) => Ok(disk),
                    _ => Err(format!("{name} is dead, and active")),
                }
            });
            let disks = disks.collect::<Result<Vec<&SimDisk>, String>>()?;
            let bytes = usize::try_from(GEOMETRY.chunk_bytes).unwrap();
            for stripe in 0..self.shape.stripes {
                let at = GEOMETRY.data_offset() + stripe * u64::from(GEOMETRY.chunk_bytes);
                let cells: Vec<Vec<u8>> = disks
                    .iter()
                    .map(|disk| {
                        let mut cell = vec![0; bytes];
                        disk.peek(at, &mut cell);
                        cell
                    })
                    .collect();
                let agrees = match set.kind.as_str() {
                    "mirror" => cells.iter().all(|cell| *cell == cells[0]),
                    _ => (0..bytes).all(|byte| {
                        let cells = cells.iter().map(|cell| cell[byte]);
                        cells.fold(0, |sum, byte| sum ^ byte) == 0
                    }),
                };
                if !agrees {
                    return Err(format!("set {number}, stripe {stripe}: members differ"));
                }
            }
        }
        Ok(())
    }
}

fn bytes_of(result: Result<DiskOutput, DiskError>) -> Result<Vec<u8>, DiskError> {
    match result? {
        DiskOutput::Read(buffer) => Ok(buffer.into_bytes().to_vec()),
        DiskOutput::Done => panic!("a read gives bytes"),
    }
}

fn dead() -> DiskError {
    DiskError::Io {
        operation: "request",
        errno: 5,
        message: "the disk is dead".to_owned(),
    }
}

/// A disk to put in the place of one that is taken away.
pub(crate) fn no_disk() -> SimDisk {
    SimDisk::new(0, 0, SimDiskOptions::default())
}
