//! The HTTP door as its clients see it, over a volume in memory.

mod filling;
mod policy;
mod reading;
mod rig;
mod writing;
