//! The synchronous face of a simulated disk, for what runs on a thread that
//! may wait (the index).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossdock_disk::{BlockingDisk, DiskError};

use super::image::Image;
use super::{FaultCounts, SimDiskOptions, io_error};
use crate::random::Random;

/// A simulated disk with blocking calls. Clones are handles on the same disk,
/// so whoever runs the simulation can crash it while the index holds another.
///
/// Of [`SimDiskOptions`] it obeys the errors, the capacity, the flipped bits
/// and the lost writes; it has no delays and misdirects nothing.
#[derive(Clone, Debug)]
pub struct SimBlockingDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug)]
struct State {
    image: Image,
    options: SimDiskOptions,
    random: Random,
    faults: FaultCounts,
}

impl SimBlockingDisk {
    /// An empty disk of zeros.
    #[must_use]
    pub fn new(seed: u64, length_bytes: u64, options: SimDiskOptions) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                image: Image::new(length_bytes),
                options,
                random: Random::new(seed),
                faults: FaultCounts::default(),
            })),
        }
    }

    /// Loses power: what was not flushed is kept, lost or torn per sector. All
    /// handles see the disk as it is afterwards.
    pub fn crash(&self, random: &mut Random) {
        self.state().image.crash(random);
    }

    /// The same disk as it would be after a crash now, as a disk of its own.
    #[must_use]
    pub fn crashed(&self, random: &mut Random) -> Self {
        let mut state = self.state().clone();
        state.image.crash(random);
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The same disk as it is, as a disk of its own: whoever holds the old one
    /// changes nothing here any more.
    #[must_use]
    pub fn abandoned(&self) -> Self {
        let state = self.state().clone();
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Changes what can go wrong from now on.
    pub fn set_options(&self, options: SimDiskOptions) {
        self.state().options = options;
    }

    /// What has gone wrong so far.
    #[must_use]
    pub fn faults(&self) -> FaultCounts {
        self.state().faults
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panicking test thread must not hide the disk from the others.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check_range(&self, offset_bytes: u64, length: usize) -> Result<(), DiskError> {
        let end_bytes = offset_bytes.saturating_add(length as u64);
        let length_bytes = self.image.length_bytes();
        if end_bytes > length_bytes {
            return Err(DiskError::OutOfRange {
                end_bytes,
                length_bytes,
            });
        }
        Ok(())
    }
}

impl BlockingDisk for SimBlockingDisk {
    fn length_bytes(&self) -> Result<u64, DiskError> {
        Ok(self.state().image.length_bytes())
    }

    fn read_at(&self, target: &mut [u8], offset_bytes: u64) -> Result<(), DiskError> {
        let mut state = self.state();
        state.check_range(offset_bytes, target.len())?;
        let one_in = state.options.read_error_one_in;
        if state.random.one_in(one_in) {
            state.faults.read_errors += 1;
            return Err(io_error("read", offset_bytes));
        }
        state.image.read(offset_bytes, target);
        Ok(())
    }

    fn write_at(&self, source: &[u8], offset_bytes: u64) -> Result<(), DiskError> {
        let mut guard = self.state();
        let state = &mut *guard;
        state.check_range(offset_bytes, source.len())?;
        if state.random.one_in(state.options.write_error_one_in) {
            state.faults.write_errors += 1;
            return Err(io_error("write", offset_bytes));
        }
        if state.random.one_in(state.options.lost_write_one_in) {
            state.faults.lost_writes += 1;
            return Ok(());
        }
        state.image.write(offset_bytes, source);
        if state.random.one_in(state.options.bit_flip_one_in)
            && state.image.flip_bit(&mut state.random).is_some()
        {
            state.faults.bit_flips += 1;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DiskError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let sequence = state.image.landed();
        if state.random.one_in(state.options.flush_error_one_in) {
            state.faults.flush_errors += 1;
            state.image.forsake(sequence, &mut state.random);
            return Err(io_error("flush", 0));
        }
        state.image.sync(sequence);
        Ok(())
    }

    fn set_length(&self, length_bytes: u64) -> Result<(), DiskError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let grows = length_bytes > state.image.length_bytes();
        if grows
            && state
                .options
                .refuses_growth(length_bytes, &mut state.random)
        {
            state.faults.no_space += 1;
            return Err(DiskError::NoSpace);
        }
        state.image.set_length(length_bytes);
        Ok(())
    }
}
