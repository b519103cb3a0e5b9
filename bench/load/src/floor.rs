//! The other end of the floor: answers every call with the same few bytes and
//! looks at nothing, so that what is measured is the load generator, the RPC
//! framing and the kernel's loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use bytes::Bytes;
use crossdock_rpc::RecordReader;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Words of a reply behind its xid: a reply, accepted, verifier AUTH_NONE of
/// length 0, success (RFC 5531 section 9).
const ACCEPTED: [u32; 5] = [1, 0, 0, 0, 0];
/// Record mark of such a reply: 24 bytes, the last fragment.
const MARK: u32 = 1 << 31 | 24;

/// Listens on a free port of loopback, says which, and serves until killed.
pub(crate) fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        // A connection that ends, ends its thread; nobody waits for the outcome.
        thread::spawn(move || answer(stream));
    }
    Ok(())
}

fn answer(mut stream: TcpStream) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = RecordReader::new(crossdock_limits::RPC_RECORD_BYTES_MAX);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut replies = Vec::new();
    loop {
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        let mut bytes = Bytes::copy_from_slice(&chunk[..count]);
        while let Some(call) = reader.next_record(&mut bytes)? {
            replies.extend_from_slice(&MARK.to_be_bytes());
            replies.extend_from_slice(call.get(..4).unwrap_or(&[0; 4]));
            for word in ACCEPTED {
                replies.extend_from_slice(&word.to_be_bytes());
            }
        }
        stream.write_all(&replies)?;
        replies.clear();
    }
}
