//! A gateway that dies while nodes send to its clients.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::doors::{Doors, FILE_BYTES, connect};
use super::readers::read_head;

/// How long after its gateway's death a client may wait for the reset.
const RESET_MAX: Duration = Duration::from_secs(1);
/// Clients that are in the middle of a file then.
const CLIENTS: usize = 16;

impl Doors<'_, '_> {
    /// A gateway that dies in the middle: clients see a reset at once, and go on at another one
    /// from where they are. No dummy byte has come.
    pub(super) fn gateway_killed(&mut self) -> Result<()> {
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let mut socket = self.connect()?;
            socket.write_all(b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n")?;
            read_head(&mut socket)?;
            let mut got = vec![0; (1 << 20) + number * 99_991];
            socket.read_exact(&mut got)?;
            clients.push((socket, got));
        }
        let killed = Instant::now();
        self.cluster.kill_keeping_files("gateway-0")?;
        for (socket, got) in &mut clients {
            read_to_reset(socket, got, killed + RESET_MAX)?;
            self.compare(0, got)?;
        }
        let took = killed.elapsed();
        let bytes: usize = clients.iter().map(|(_, got)| got.len()).sum();
        println!(
            "a gateway killed: {bytes} bytes had come to {CLIENTS} clients, all right; resets within {:.0} ms",
            took.as_secs_f64() * 1e3
        );
        self.counted("clients go on at another gateway", 0, |doors| {
            let mut sum = 0;
            for (_, got) in &clients[..4] {
                sum += doors.rest_of(got.len())?;
            }
            Ok(sum)
        })?;
        self.cluster.restart("gateway-0")?;
        self.await_tunnels("gateway-0")?;
        self.counted("through the next one", 2, Self::whole_files)
    }

    /// Reads a file from `from` on through the other gateway.
    fn rest_of(&self, from: usize) -> Result<u64> {
        let mut socket = connect(self.other)?;
        let request = format!("GET /big.bin HTTP/1.1\r\nHost: x\r\nRange: bytes={from}-\r\n\r\n");
        socket.write_all(request.as_bytes())?;
        let head = read_head(&mut socket)?;
        ensure!(head.starts_with("HTTP/1.1 206 "), "{head}");
        let mut rest = vec![0; FILE_BYTES - from];
        socket.read_exact(&mut rest)?;
        self.compare(from, &rest)?;
        Ok(rest.len() as u64)
    }
}

/// Reads what still comes, until the connection is reset.
fn read_to_reset(socket: &mut TcpStream, got: &mut Vec<u8>, until: Instant) -> Result<()> {
    let mut some = vec![0; 65_536];
    loop {
        let patience = until.saturating_duration_since(Instant::now());
        ensure!(!patience.is_zero(), "no reset");
        socket.set_read_timeout(Some(patience))?;
        match socket.read(&mut some) {
            Ok(0) => anyhow::bail!("an end like any other"),
            Ok(bytes) => got.extend_from_slice(&some[..bytes]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error).context("no reset"),
        }
    }
}
