//! A relay that copies nothing: what one end of a connection sends passes through a pipe to
//! the other end, by splice(2). No relay that leaves TCP to the kernel costs less, so it is
//! what a gateway that has its nodes send is measured beside.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;

use anyhow::Context;
use clap::Args;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// What a pipe holds: as much as an unprivileged process may have.
const PIPE_BYTES: usize = 1 << 20;

#[derive(Args)]
pub(crate) struct Relay {
    /// Where clients connect.
    #[arg(long)]
    listen: SocketAddr,
    /// Where they get to.
    #[arg(long)]
    to: SocketAddr,
}

/// Says where it listens, and relays until killed.
pub(crate) fn serve(flags: &Relay) -> anyhow::Result<()> {
    let listener = TcpListener::bind(flags.listen)
        .with_context(|| format!("cannot listen at {}", flags.listen))?;
    println!("{}", listener.local_addr()?);
    let to = flags.to;
    for client in listener.incoming() {
        let client = client?;
        // A connection that ends, ends its threads; nobody waits for the outcome.
        thread::spawn(move || relay(client, to));
    }
    Ok(())
}

fn relay(client: TcpStream, to: SocketAddr) -> anyhow::Result<()> {
    let server = TcpStream::connect(to)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || pass(&from_client, &to_server));
    pass(&server, &client)
}

/// All that `from` sends goes to `to`, and then that it has ended.
fn pass(from: &TcpStream, to: &TcpStream) -> anyhow::Result<()> {
    let passed = pass_bytes(from, to);
    // The other way may have ended both already.
    let _ = to.shutdown(Shutdown::Write);
    passed
}

fn pass_bytes(from: &TcpStream, to: &TcpStream) -> anyhow::Result<()> {
    let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setpipe_size(&into, PIPE_BYTES)?;
    let flags = SpliceFlags::MOVE;
    loop {
        let mut there = splice(from.as_fd(), None, &into, None, PIPE_BYTES, flags)?;
        if there == 0 {
            return Ok(());
        }
        while there > 0 {
            there -= splice(&out, None, to.as_fd(), None, there, flags)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// Goal: what both ends send arrives whole at the other end, and so does its end.
    #[test]
    fn all_bytes_pass_and_their_end() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let accepted = door.accept().unwrap().0;
        thread::spawn(move || relay(accepted, to));
        let mut served = server.accept().unwrap().0;
        let sent = bytes.clone();
        let serving = thread::spawn(move || {
            let mut asked = [0; 4];
            served.read_exact(&mut asked).unwrap();
            served.write_all(&sent).unwrap();
            asked
        });
        client.write_all(b"give").unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(serving.join().unwrap(), *b"give");
        assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
    }
}
