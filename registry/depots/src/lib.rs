//! The L-Bone (Network Storage Stack 2.2): "allows clients to perform IBP depot discovery" by
//! number, capacity, duration and proximity.
//!
//! [`Directory`] is a sans-io machine: it knows depots, has them asked for their room now and
//! then, and answers requests. Depots of the volume's nodes are known from the registry, others by
//! [configuration](parse_depots); one that does not answer [`MISSED_MAX`] times in a row is told
//! to nobody until it does. [`serve`] is the shell around it.
//!
//! Places are latitudes and longitudes; [`Location`] finds those of airports, ZIP codes and
//! cities in a small table of our own.

mod directory;
mod location;
mod places;
mod serve;

pub use directory::{Directory, Effect, Input, MISSED_MAX, Record};
pub use location::{Location, Point, Requirement, parse_depots};
pub use serve::{Handle, serve};
