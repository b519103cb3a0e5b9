//! Crossdock's one binary: command line, configuration, and the wiring of roles
//! to the machine that they run on. No logic.

mod client;
mod commands;
mod config;
mod data;
mod exports;
mod format;
mod leftover;
mod offline;
mod report;
mod shell;
mod up;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run()
}
