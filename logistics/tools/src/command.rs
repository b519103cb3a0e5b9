//! The command line of the tools.

mod args;
mod bring;
mod carry;
mod forecast;
mod lors;
mod output;

pub use args::Tool;
pub use bring::{Wanted, document_of, export_to};
pub use lors::{Lors, historic_words};

use anyhow::Result;

/// Runs a command's work to its end, on this thread.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    runtime.block_on(work)
}
