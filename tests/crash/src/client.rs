//! A raw NFSv3 client: calls over one TCP connection, many outstanding.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use crossdock_nfs3::{Call, HandleBuffer, Path, Procedure, Reply, mount};
use crossdock_nlm::lock as nlm;
pub use crossdock_nlm::lock::Status as LockStatus;
use crossdock_rpc::{AuthSys, CallHeader, Credential, Groups, RecordWriter, Verifier};
use crossdock_types::Payload;
use crossdock_xdr::{Decoder, Encode};

use crate::wire::{Wire, success};

/// A server that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// No datagram is larger.
const DATAGRAM_BYTES: usize = 64 * 1024;
/// Room for the headers of a call.
const HEADER_BYTES: usize = 512;

/// A call's number; it stays the same when the call is sent again.
pub type Xid = u32;

/// A connection to the server, with the root mounted.
pub struct Client {
    wire: Wire,
    xid: Xid,
    outstanding: BTreeMap<Xid, Procedure>,
    root: HandleBuffer,
}

/// A lock that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct LockWish<'a> {
    /// Name of the client's machine.
    pub client: &'a str,
    /// The process.
    pub process: u32,
    /// First byte.
    pub offset: u64,
    /// How many; 0 to the end of the file.
    pub length: u64,
    /// Whether to wait for it.
    pub may_block: bool,
}

/// What is asked for, by that owner within the client.
fn lock_of<'a>(file: &'a HandleBuffer, wish: &LockWish<'a>, owner: &'a [u8]) -> nlm::Lock<'a> {
    nlm::Lock {
        caller: wish.client.as_bytes(),
        file: file.as_handle().as_bytes(),
        owner,
        process: wish.process,
        offset: wish.offset,
        length: wish.length,
    }
}

impl Client {
    /// Connects and mounts `/`.
    ///
    /// # Errors
    /// The connection or the mount fails.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        Self::over(Wire::connect(address, PATIENCE)?, b"/")
    }

    /// Connects and mounts `path`.
    ///
    /// # Errors
    /// The connection or the mount fails.
    pub fn connect_to(address: SocketAddr, path: &str) -> Result<Self> {
        Self::over(Wire::connect(address, PATIENCE)?, path.as_bytes())
    }

    /// The same of `/`; a server that says nothing for `patience` hangs.
    ///
    /// # Errors
    /// The connection or the mount fails.
    pub fn connect_within(address: SocketAddr, patience: Duration) -> Result<Self> {
        Self::over(Wire::connect(address, patience)?, b"/")
    }

    /// Mounts `/` over a connection that there is.
    ///
    /// # Errors
    /// The mount fails.
    pub fn over_stream(stream: TcpStream) -> Result<Self> {
        Self::over(Wire::over(stream, PATIENCE)?, b"/")
    }

    fn over(wire: Wire, path: &[u8]) -> Result<Self> {
        let mut client = Self {
            wire,
            // From the pid on, so that two programs are two clients to a duplicate cache.
            xid: std::process::id() << 12,
            outstanding: BTreeMap::new(),
            root: HandleBuffer::new(&[]).context("an empty handle")?,
        };
        client.root = client.mount(path)?;
        Ok(client)
    }

    /// The root directory.
    #[must_use]
    pub const fn root(&self) -> HandleBuffer {
        self.root
    }

    /// Numbers the next calls from `xid` on: after a reconnect, the client goes
    /// on counting, or new calls would look like old ones sent again.
    pub const fn count_from(&mut self, xid: Xid) {
        self.xid = xid;
    }

    /// The number that the next call gets.
    #[must_use]
    pub const fn next_xid(&self) -> Xid {
        self.xid
    }

    /// Sends `call`; `None` if the connection is gone.
    ///
    /// # Errors
    /// The connection fails in another way than by its end.
    pub fn send(&mut self, call: &Call<'_>) -> Result<Option<Xid>> {
        let xid = self.xid;
        self.xid = self.xid.wrapping_add(1);
        Ok(self.send_again(xid, call)?.then_some(xid))
    }

    /// Sends a call under the number that it had before; `false` if the connection is gone.
    ///
    /// # Errors
    /// The connection fails in another way than by its end.
    pub fn send_again(&mut self, xid: Xid, call: &Call<'_>) -> Result<bool> {
        let procedure = call.procedure();
        self.outstanding.insert(xid, procedure);
        let number = procedure.number();
        let record = record(
            xid,
            (crossdock_nfs3::PROGRAM, crossdock_nfs3::VERSION, number),
            call,
        );
        self.write(&record)
    }

    /// The next reply, in whatever order the server answers; `None` once the
    /// connection is gone.
    ///
    /// # Errors
    /// The server is silent for too long, or what it says is no reply.
    pub fn receive(&mut self) -> Result<Option<(Xid, Reply)>> {
        let Some(record) = self.wire.receive()? else {
            return Ok(None);
        };
        let mut decoder = Decoder::of_record(&record);
        let xid = success(&mut decoder)?;
        let procedure = self.outstanding.remove(&xid);
        let procedure = procedure.with_context(|| format!("a reply to no call: {xid:#x}"))?;
        let reply = Reply::decode(procedure, &mut decoder)?;
        decoder.finish().context("bytes behind the results")?;
        Ok(Some((xid, reply)))
    }

    /// Sends `call` and waits for its reply; nothing else is outstanding.
    ///
    /// # Errors
    /// Those of sending and receiving, or the connection is gone.
    pub fn call(&mut self, call: &Call<'_>) -> Result<Reply> {
        let xid = self.send(call)?.context("the connection is gone")?;
        self.receive_only(xid)
    }

    /// Waits for the reply to `xid`, the only outstanding call.
    ///
    /// # Errors
    /// Those of [`receive`](Self::receive), the end of the connection, or another reply.
    pub fn receive_only(&mut self, xid: Xid) -> Result<Reply> {
        let (answered, reply) = self.receive()?.context("the connection is gone")?;
        ensure!(answered == xid, "a reply to another call");
        Ok(reply)
    }

    /// Tells the server that no more calls come; replies still do.
    ///
    /// # Errors
    /// The system's.
    pub fn finish_sending(&self) -> Result<()> {
        self.wire.finish_sending()
    }

    /// Sends a call of MOUNT and waits for its reply; nothing else is outstanding.
    ///
    /// # Errors
    /// Those of sending and receiving, or the connection is gone.
    pub fn call_mount(&mut self, call: &mount::Call<'_>) -> Result<mount::Reply> {
        let number = call.procedure().number();
        let sent = self.write(&record(0, (mount::PROGRAM, mount::VERSION, number), call))?;
        ensure!(sent, "the connection is gone");
        let record = self.wire.receive()?.context("the connection is gone")?;
        let mut decoder = Decoder::of_record(&record);
        success(&mut decoder)?;
        Ok(mount::Reply::decode(call.procedure(), &mut decoder)?)
    }

    /// Asks for an exclusive lock of a file by NLM 4, as the client of that name,
    /// and waits for the reply; nothing else is outstanding.
    ///
    /// # Errors
    /// As [`call_mount`](Self::call_mount).
    pub fn lock(&mut self, file: &HandleBuffer, wish: &LockWish<'_>) -> Result<LockStatus> {
        self.ask_for_lock(file, wish, false)
    }

    /// The same of one that the client had before the server restarted.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn reclaim(&mut self, file: &HandleBuffer, wish: &LockWish<'_>) -> Result<LockStatus> {
        self.ask_for_lock(file, wish, true)
    }

    /// Gives a range up.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn unlock(&mut self, file: &HandleBuffer, wish: &LockWish<'_>) -> Result<LockStatus> {
        let owner = wish.process.to_be_bytes();
        let arguments = nlm::Arguments::Unlock(nlm::UnlockArguments {
            cookie: b"lock",
            lock: lock_of(file, wish, &owner),
        });
        self.ask_lock(nlm::Procedure::Unlock, arguments)
    }

    fn ask_for_lock(
        &mut self,
        file: &HandleBuffer,
        wish: &LockWish<'_>,
        is_reclaim: bool,
    ) -> Result<LockStatus> {
        let owner = wish.process.to_be_bytes();
        let arguments = nlm::Arguments::Lock(nlm::LockArguments {
            cookie: b"lock",
            may_block: wish.may_block,
            is_exclusive: true,
            lock: lock_of(file, wish, &owner),
            is_reclaim,
            state: 1,
        });
        self.ask_lock(nlm::Procedure::Lock, arguments)
    }

    fn ask_lock(
        &mut self,
        procedure: nlm::Procedure,
        arguments: nlm::Arguments<'_>,
    ) -> Result<LockStatus> {
        let of = (nlm::PROGRAM, 4, procedure.number());
        let arguments = nlm::Versioned(nlm::Width::Wide, arguments);
        let sent = self.write(&record(self.xid, of, &arguments))?;
        self.xid = self.xid.wrapping_add(1);
        ensure!(sent, "the connection is gone");
        let record = self.wire.receive()?.context("the connection is gone")?;
        let mut decoder = Decoder::of_record(&record);
        success(&mut decoder)?;
        match nlm::Results::decode(procedure, nlm::Width::Wide, &mut decoder)? {
            nlm::Results::Done(outcome) => Ok(outcome.status),
            other => bail!("no answer to {procedure:?}: {other:?}"),
        }
    }

    fn mount(&mut self, path: &[u8]) -> Result<HandleBuffer> {
        match self.call_mount(&mount::Call::Mnt(Path(path)))? {
            mount::Reply::Mnt(Ok(mounted)) => Ok(mounted.root),
            other => bail!("cannot mount: {other:?}"),
        }
    }

    fn write(&mut self, record: &Payload) -> Result<bool> {
        for piece in record.pieces() {
            if !self.wire.send(piece)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Sends `call` in one datagram, and waits for the reply in another one.
///
/// # Errors
/// The system's, or what comes is no reply to it.
pub fn call_by_datagram(address: SocketAddr, call: &Call<'_>) -> Result<Reply> {
    let procedure = call.procedure();
    let number = procedure.number();
    let of = (crossdock_nfs3::PROGRAM, crossdock_nfs3::VERSION, number);
    let reply = exchange(address, of, call)?;
    let mut decoder = Decoder::of_record(&reply);
    success(&mut decoder)?;
    Ok(Reply::decode(procedure, &mut decoder)?)
}

/// The same with a call of MOUNT.
///
/// # Errors
/// As there.
pub fn mount_by_datagram(address: SocketAddr, call: &mount::Call<'_>) -> Result<mount::Reply> {
    let procedure = call.procedure();
    let of = (mount::PROGRAM, mount::VERSION, procedure.number());
    let reply = exchange(address, of, call)?;
    let mut decoder = Decoder::of_record(&reply);
    success(&mut decoder)?;
    Ok(mount::Reply::decode(procedure, &mut decoder)?)
}

/// A datagram to `address` and the one that comes back.
fn exchange(address: SocketAddr, of: (u32, u32, u32), arguments: &impl Encode) -> Result<Bytes> {
    let any: SocketAddr = if address.is_ipv6() {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let writer = RecordWriter::datagram(HEADER_BYTES);
    let xid = std::process::id();
    socket.send(&encode(writer, xid, of, arguments).to_bytes())?;
    let mut reply = BytesMut::zeroed(DATAGRAM_BYTES);
    let length = socket.recv(&mut reply).context("no reply")?;
    reply.truncate(length);
    Ok(reply.freeze())
}

/// One call as a datagram.
pub(crate) fn datagram(xid: Xid, call: &Call<'_>) -> Payload {
    let number = call.procedure().number();
    let of = (crossdock_nfs3::PROGRAM, crossdock_nfs3::VERSION, number);
    encode(RecordWriter::datagram(HEADER_BYTES), xid, of, call)
}

/// One call as a record.
fn record(xid: Xid, of: (u32, u32, u32), arguments: &impl Encode) -> Payload {
    encode(RecordWriter::stream(HEADER_BYTES), xid, of, arguments)
}

fn encode(
    mut writer: RecordWriter,
    xid: Xid,
    (program, version, procedure): (u32, u32, u32),
    arguments: &impl Encode,
) -> Payload {
    writer.encoder().put(&CallHeader {
        xid,
        program,
        version,
        procedure,
        credential: Credential::Sys(AuthSys {
            stamp: 0,
            machine_name: b"crash-test",
            uid: 0,
            gid: 0,
            groups: Groups::default(),
        }),
        verifier: Verifier::NONE,
    });
    writer.encoder().put(arguments);
    writer.finish()
}
