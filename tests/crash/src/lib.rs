//! What other test programs share with the kill -9 loop: its NFS client.

pub mod client;
