//! READs by datagrams, as a client without a kernel would send them: what is not answered in
//! time is sent again, with the same xid.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::Read;
use crossdock_nfs3::{Attributes, Call, PROGRAM, Procedure, VERSION};
use crossdock_rpc::{CallHeader, Credential, RecordWriter, Verifier};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{RecvFlags, recv};

use crate::Run;
use crate::client::{first_xid, results};
use crate::workload::Workload;

/// How long an answer may take: nothing is lost on a network without losses.
const PATIENCE: Duration = Duration::from_millis(500);
/// So often a call is sent before the server counts as gone.
const TIMES_SENT_MAX: u32 = 20;
/// Room for answers on their way, twice what the kernel lets a process have by itself.
const ROOM_BYTES: usize = 4 << 20;
/// The beginning of an answer; nobody looks at its data.
const HEAD_BYTES: usize = 512;

/// A client's calls.
struct Caller<'run> {
    socket: UdpSocket,
    workload: &'run mut Workload,
    asked: BTreeMap<u32, Asked>,
    next_xid: u32,
    issued: usize,
    repeated: usize,
}

struct Asked {
    datagram: Bytes,
    first: Instant,
    last: Instant,
    times: u32,
}

/// Has all clients read until they are done, or nothing more is sent after `limit`; how often
/// a call was repeated.
pub(crate) fn drive(
    clients: &mut [Workload],
    flags: &Run,
    limit: Duration,
    latencies_us: &mut Vec<u64>,
) -> anyhow::Result<usize> {
    let until = Instant::now() + limit;
    let callers = clients
        .iter_mut()
        .map(|client| Caller::open(client, flags.server));
    let mut callers: Vec<Caller<'_>> = callers.collect::<anyhow::Result<_>>()?;
    loop {
        let now = Instant::now();
        for caller in &mut callers {
            caller.send(flags, now < until)?;
        }
        if callers.iter().all(|caller| caller.asked.is_empty()) {
            return Ok(callers.iter().map(|caller| caller.repeated).sum());
        }
        let sockets = callers
            .iter()
            .map(|it| PollFd::new(&it.socket, PollFlags::IN));
        let mut sockets: Vec<PollFd<'_>> = sockets.collect();
        poll(&mut sockets, Some(&Timespec::try_from(PATIENCE / 5)?))?;
        drop(sockets);
        for caller in &mut callers {
            caller.receive(flags.size, latencies_us)?;
            caller.repeat()?;
        }
    }
}

impl<'run> Caller<'run> {
    fn open(workload: &'run mut Workload, server: SocketAddr) -> anyhow::Result<Self> {
        let socket = match server {
            SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
        }?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        set_socket_recv_buffer_size(&socket, ROOM_BYTES)?;
        Ok(Self {
            socket,
            workload,
            asked: BTreeMap::new(),
            next_xid: first_xid(),
            issued: 0,
            repeated: 0,
        })
    }

    /// Keeps as many calls on their way as there should be.
    fn send(&mut self, flags: &Run, is_going_on: bool) -> anyhow::Result<()> {
        while is_going_on && self.issued < flags.count && self.asked.len() < flags.outstanding {
            let (file, offset) = self.workload.next_random_read();
            let call = Call::Read(Read {
                file: file.as_handle(),
                offset,
                count_bytes: u32::try_from(flags.size)?,
            });
            let datagram = datagram(self.next_xid, &call);
            self.socket.send(&datagram).context("cannot ask")?;
            let now = Instant::now();
            let asked = Asked {
                datagram,
                first: now,
                last: now,
                times: 1,
            };
            self.asked.insert(self.next_xid, asked);
            self.next_xid = self.next_xid.wrapping_add(1);
            self.issued += 1;
        }
        Ok(())
    }

    /// Takes what has arrived.
    fn receive(&mut self, size: usize, latencies_us: &mut Vec<u64>) -> anyhow::Result<()> {
        let mut room = [MaybeUninit::<u8>::uninit(); HEAD_BYTES];
        loop {
            // The rest of a datagram is thrown away, and its length told.
            let (head, length) = match recv(&self.socket, &mut room, RecvFlags::TRUNC) {
                Ok(((head, _), length)) => (Bytes::copy_from_slice(head), length),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error).context("no server"),
            };
            ensure!(head.len() >= 4, "a datagram of {length} bytes");
            let xid = u32::from_be_bytes(head[..4].try_into()?);
            // Who was asked twice may answer twice.
            let Some(asked) = self.asked.remove(&xid) else {
                continue;
            };
            check(&head, length, size)?;
            let took = asked.first.elapsed().as_micros();
            latencies_us.push(u64::try_from(took).unwrap_or(u64::MAX));
        }
    }

    /// Sends again what was not answered in time.
    fn repeat(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let late = self.asked.values_mut();
        for asked in late.filter(|asked| now - asked.last >= PATIENCE) {
            if asked.times == TIMES_SENT_MAX {
                bail!("no answer");
            }
            self.socket.send(&asked.datagram)?;
            (asked.last, asked.times) = (now, asked.times + 1);
            self.repeated += 1;
        }
        Ok(())
    }
}

fn datagram(xid: u32, call: &Call<'_>) -> Bytes {
    let mut writer = RecordWriter::datagram(HEAD_BYTES);
    let encoder = writer.encoder();
    encoder.put(&CallHeader {
        xid,
        program: PROGRAM,
        version: VERSION,
        procedure: Procedure::Read as u32,
        credential: Credential::Sys(crate::client::credential()),
        verifier: Verifier::NONE,
    });
    encoder.put(call);
    let pieces = writer.finish().into_pieces();
    pieces.into_iter().flatten().collect()
}

/// Whether it is all of a READ that was carried out (RFC 1813 section 3.3.6).
fn check(head: &Bytes, length: usize, size: usize) -> anyhow::Result<()> {
    let mut decoder = results(head)?;
    let status = decoder.u32()?;
    ensure!(status == 0, "READ: status {status}");
    let _attributes: Option<Attributes> = decoder.get()?;
    let (count, _is_end, data) = (decoder.u32()?, decoder.bool()?, decoder.u32()?);
    let before = head.len() - decoder.remaining_bytes();
    ensure!(
        count as usize == size && data == count && length == before + size.next_multiple_of(4),
        "READ: {count} bytes in an answer of {length}"
    );
    Ok(())
}
