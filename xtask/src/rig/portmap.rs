//! A stand-in for a portmapper: says yes to every registration.
//!
//! nfs-ganesha does not start without one, and Debian's rpcbind does not run
//! on a loopback address alone. Runs as a process of its own inside the peer's
//! network namespace (`xtask portmap-stub`); Crossdock itself never needs it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;

use anyhow::{Result, anyhow, ensure};

use super::network::READY;

/// Largest call that is looked at; registrations are a few hundred bytes.
const CALL_BYTES_MAX: usize = 8192;
/// The top bit of a record mark: last fragment (RFC 5531 section 11).
const LAST_FRAGMENT: u32 = 1 << 31;
/// RPCBPROC_GETADDR (RFC 1833 section 2.2.1): answered by an empty string.
const PROCEDURE_GETADDR: u32 = 3;

/// Serves both loopback addresses over TCP and UDP until killed.
pub(crate) fn serve() -> Result<()> {
    let mut threads = Vec::new();
    for address in ["127.0.0.1:111", "[::1]:111"] {
        let tcp = TcpListener::bind(address)?;
        let udp = UdpSocket::bind(address)?;
        threads.push(thread::spawn(move || serve_connections(&tcp)));
        threads.push(thread::spawn(move || serve_datagrams(&udp)));
    }
    println!("{READY}");
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a thread panicked"))??;
    }
    Ok(())
}

fn serve_datagrams(socket: &UdpSocket) -> Result<()> {
    let mut call = [0; CALL_BYTES_MAX];
    loop {
        let (length, peer) = socket.recv_from(&mut call)?;
        if let Some(reply) = answer(&call[..length]) {
            socket.send_to(&reply, peer)?;
        }
    }
}

fn serve_connections(listener: &TcpListener) -> Result<()> {
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || serve_stream(stream));
    }
    Ok(())
}

fn serve_stream(mut stream: TcpStream) -> Result<()> {
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let length = usize::try_from(u32::from_be_bytes(mark) & !LAST_FRAGMENT)?;
        ensure!(length <= CALL_BYTES_MAX, "call too long");
        let mut call = vec![0; length];
        stream.read_exact(&mut call)?;
        if let Some(reply) = answer(&call) {
            let mark = LAST_FRAGMENT | u32::try_from(reply.len())?;
            stream.write_all(&mark.to_be_bytes())?;
            stream.write_all(&reply)?;
        }
    }
}

/// The reply to `call`: accepted, success, and one word that is "true".
fn answer(call: &[u8]) -> Option<Vec<u8>> {
    // xid, message type, RPC version, program, version, procedure.
    let xid = call.get(..4)?;
    let procedure = u32::from_be_bytes(call.get(20..24)?.try_into().ok()?);
    let result = u32::from(procedure != PROCEDURE_GETADDR);
    let mut reply = xid.to_vec();
    // Message type reply, accepted, verifier AUTH_NONE of length 0, success.
    for word in [1, 0, 0, 0, 0, result] {
        reply.extend_from_slice(&u32::to_be_bytes(word));
    }
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a registration is confirmed under its own xid; half a call is ignored.
    #[test]
    fn every_registration_is_confirmed() {
        let mut call = vec![9, 8, 7, 6];
        for word in [0_u32, 2, 100_000, 2, 1] {
            call.extend_from_slice(&word.to_be_bytes());
        }
        let reply = answer(&call).unwrap();
        assert_eq!(reply[..4], [9, 8, 7, 6]);
        assert_eq!(reply[4..8], [0, 0, 0, 1]);
        assert_eq!(reply[24..], [0, 0, 0, 1]);
        assert_eq!(answer(&call[..23]), None);
    }
}
