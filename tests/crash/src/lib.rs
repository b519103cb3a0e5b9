//! What other test programs share with the kill -9 loop: its NFS client, and
//! the server as a process that can be killed.

pub mod client;
pub mod server;
pub mod wire;
