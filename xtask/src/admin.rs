//! Questions to the admin port of a process of ours.

use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::Result;

/// Where a process answers its administrator, in a network of its own.
pub(crate) const ADMIN: &str = "127.0.0.1:7070";

/// What `path` is answered with at an admin port, with the head of the answer; each part
/// of it has to come within `patience`.
pub(crate) fn get(
    admin: impl ToSocketAddrs + Display,
    path: &str,
    patience: Duration,
) -> Result<String> {
    let mut stream = TcpStream::connect(&admin)?;
    stream.set_read_timeout(Some(patience))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
