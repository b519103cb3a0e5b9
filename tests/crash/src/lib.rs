//! What other test programs share with the kill -9 loop: its NFS client, and
//! the server as a process that can be killed.

use std::process::ExitCode;

pub mod client;
pub mod datagrams;
pub mod server;
pub mod wire;

/// How a test program ends: what went wrong goes to standard error.
#[must_use]
pub fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
