//! Crossdock's one binary: command line, configuration, and the wiring of roles
//! to the machine that they run on. No logic.

mod addresses;
mod checks;
mod client;
mod cluster;
mod commands;
mod config;
mod data;
mod defrag;
mod disks;
mod exnodes;
mod exports;
mod format;
mod gateways;
mod identity;
mod joining;
mod leftover;
mod locks;
mod log;
mod luns;
mod member;
mod memory;
mod notify;
mod offline;
mod patience;
mod places;
mod policy;
mod privileges;
mod quotas;
mod reload;
mod report;
mod sets;
mod shell;
mod sign;
mod spiral;
mod start;
mod tokens;
mod top;
mod up;

use std::process::ExitCode;

/// A request is a few dozen small allocations, most of them freed in the same
/// turn of the loop: this one makes them for less than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    commands::run()
}
