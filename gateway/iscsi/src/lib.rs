//! The iSCSI door: files of the volume as disks, for initiators of iSCSI (RFC 7143).
//!
//! [`IscsiDoor`] takes the bytes of connections. A connection begins with a login
//! (`login`), which makes or joins a session; from then on its PDUs are served
//! (`serve`): commands become tasks (`task`), which gather their data, wait for their turn
//! at the unit (`unit`), and read and write the LUN's file through the router (`transfer`), or
//! several of them (`copying`).
//!
//! A target has one logical unit, number 0. What it says of itself is in `parameter`, who
//! has reserved it in `reserve`. Error recovery level 0: what goes wrong in a connection
//! ends it, with its session when it was the last one.
//!
//! No I/O and no clock here: the shell feeds [`IscsiInput`]s and carries out
//! [`IscsiEffect`]s in order.

mod chap;
mod connection;
mod copying;
mod door;
mod exchange;
mod fence;
mod figures;
mod fill;
mod login;
mod manage;
mod medium;
mod message;
mod negotiate;
mod parameter;
mod plan;
mod pump;
mod refuse;
mod reserve;
mod reset;
mod respond;
mod serve;
mod session;
mod status;
mod targets;
mod task;
mod token;
mod transfer;
mod unit;

pub use door::IscsiDoor;
pub use figures::IscsiFigures;
pub use message::{
    ConnId, IscsiConfig, IscsiEffect, IscsiInput, IscsiLimits, LunTable, Portals, ReserveOrder,
};
