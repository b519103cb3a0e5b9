//! The logistic tools: files in the network as exNodes over IBP depots (Network Storage
//! Stack 2.3), as an async library over tokio, and their command lines.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use crossdock_tools::{Depots, download, upload};
//!
//! let depots = Depots::default();
//! let options = upload::Options {
//!     depots: vec!["depot-1.example:6714".parse()?, "depot-2.example:6714".parse()?],
//!     copies: 2,
//!     ..upload::Options::default()
//! };
//! let mut observer = crossdock_tools::Observer::silent();
//! let input = upload::Input::open("notes.txt".as_ref())?;
//! let exnode = upload::upload(&depots, input, &options, &mut observer).await?;
//! let output = download::Output::file("copy.txt".as_ref(), false)?;
//! let options = download::Options::default();
//! download::download(&depots, &exnode, output, &options, &mut observer).await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Depots`] speaks to depots: allocate, store, load, copy, manage, status.
//! - [`upload`], [`download`], [`stat`], [`refresh`], [`augment`], [`trim`], [`modify`], [`export`] are the
//!   tools; each is a function of an exNode.
//! - [`command`] is their command line, in today's words and in those of LoRS.

pub mod augment;
pub mod command;
pub mod download;
pub mod export;
pub mod modify;
pub mod refresh;
pub mod stat;
pub mod trim;
pub mod upload;

mod depot;
mod document;
mod knowledge;
mod mover;
mod observer;
mod parallel;
mod place;
mod quantity;
mod random;
mod rc;
mod restore;
mod timeline;

pub use depot::{Address, AddressError, DepotError, Depots};
pub use document::{read_exnode, write_exnode};
pub use knowledge::Knowledge;
pub use mover::{Lost, Tuning};
pub use observer::Observer;
pub use place::{Place, PlaceError};
pub use timeline::{Span, Timeline};
