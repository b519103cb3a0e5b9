//! A site: one log that carries four roles, so that an operation is one
//! atomic record whatever it touches.
//!
//! - **directory** (`manager/directory`): names and attributes;
//! - **small files** (`manager/smallfile`): bytes below the threshold;
//! - **locks** (`manager/locks`): byte ranges, share reservations, who waits;
//! - **coordinator**: intentions to remove, truncate and make the columns of
//!   larger files, re-driven until every node has answered (Slice 3.3.2).
//!
//! [`Site`] is a sans-io machine. The log, the checkpoints and the small
//! files' backing objects lie in objects on every node of the site's replica
//! set; the memory here follows from them (CONSISTENCY 2). A reply leaves only
//! when the log is durable up to everything that it shows.
//!
//! | file | what |
//! |---|---|
//! | `site.rs` | the machine: inputs, effects, order of work |
//! | `requests.rs` | which are carried out at once, and what others wait for |
//! | `leases.rs`, `lease_conflicts.rs`, `ends.rs` | leases of files that routers have, and have lost |
//! | `names.rs`, `content.rs`, `small.rs` | operations on names, on bulk content, on small files |
//! | `exchange.rs` | compares and writes small files' bytes in one step |
//! | `placement.rs` | where new blocks of files with block maps go |
//! | `locks.rs` | operations on locks, grants to those who waited |
//! | `small_space.rs` | moves inlined bytes, lets freed space be reused |
//! | `commit.rs` | one operation becomes one record; replies wait for it |
//! | `record.rs`, `replies.rs` | layout of records and of remembered replies |
//! | `log.rs`, `calls.rs` | appends to the log objects; node calls with retries |
//! | `open.rs`, `replay.rs` | opening: seal, make equal, load, replay |
//! | `checkpoint.rs`, `chunks.rs` | checkpoints without stopping |
//! | `duplicates.rs`, `refusals.rs`, `intentions.rs` | what must happen once; what must be finished |

mod calls;
mod census;
mod checkpoint;
mod chunks;
mod commit;
mod config;
mod content;
mod coordinator;
mod duplicates;
mod ends;
mod exchange;
mod figures;
mod intentions;
mod keys;
mod lease_conflicts;
mod leases;
mod locks;
mod log;
mod names;
mod open;
mod participant;
mod placement;
mod promises;
mod quotas;
mod read_only;
mod record;
mod refusals;
mod replay;
mod replies;
mod requests;
mod site;
mod site_calls;
mod small;
mod small_space;
mod state;

pub use config::{Fault, SiteConfig, SiteLimits};
pub use figures::{FrameFigures, SiteFigures};
pub use open::{OpenError, OpenReport};
pub use placement::{NodeRoom, Rooms};
pub use site::{Site, SiteEffect, SiteInput};
