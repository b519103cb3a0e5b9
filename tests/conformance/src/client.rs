//! A client of NFS and MOUNT that sends what it is told, once.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::{Call, HandleBuffer, Path, Procedure, Reply, Status, mount};
use crossdock_rpc::{AuthSys, CallHeader, Credential, Groups, RecordWriter, Verifier};
use crossdock_tests_crash::wire::success;
use crossdock_xdr::{Decoder, Encode};

use crate::coverage;
use crate::wire::Wire;

/// A call's number.
pub(crate) type Xid = u32;

/// Room for the headers of a call.
const HEADER_BYTES: usize = 512;

/// The numbers of all calls of this program: two clients must never make the
/// same record, or the second would be the first one sent again.
static NEXT_XID: AtomicU32 = AtomicU32::new(1);

/// A new number.
pub(crate) fn next_xid() -> Xid {
    NEXT_XID.fetch_add(1, Ordering::Relaxed)
}

/// A connection, and who calls over it.
pub(crate) struct Client {
    pub(crate) wire: Wire,
    pub(crate) credential: Credential<'static>,
}

impl Client {
    /// Connects as root.
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            wire: Wire::connect(address)?,
            credential: user(0, 0, &[]),
        })
    }

    /// The same connection for another user.
    pub(crate) fn of(mut self, uid: u32, gid: u32, groups: &[u32]) -> Self {
        self.credential = user(uid, gid, groups);
        self
    }

    /// Sends `call` and waits for its reply.
    pub(crate) fn call(&mut self, call: &Call<'_>) -> Result<Reply> {
        let xid = next_xid();
        let record = self.record(xid, call);
        let reply = self.wire.exchange(&record)?;
        decode_of(xid, call.procedure(), &reply)
    }

    /// Sends `call` without waiting.
    pub(crate) fn send(&mut self, call: &Call<'_>) -> Result<Xid> {
        let xid = next_xid();
        let record = self.record(xid, call);
        self.wire.send_record(&record)?;
        Ok(xid)
    }

    /// The next reply; all outstanding calls are of `procedure`.
    pub(crate) fn receive(&mut self, procedure: Procedure) -> Result<(Xid, Reply)> {
        let record = self.wire.expect()?;
        decode(procedure, &record)
    }

    /// The server answers `call` with `status`.
    pub(crate) fn refuses(&mut self, status: Status, call: &Call<'_>) -> Result<()> {
        let found = self.status(call)?;
        ensure!(
            found == Some(status),
            "{:?}: {found:?}, not {status:?}",
            call.procedure()
        );
        Ok(())
    }

    /// The server carries `call` out.
    pub(crate) fn accepts(&mut self, call: &Call<'_>) -> Result<()> {
        let found = self.status(call)?;
        ensure!(found.is_none(), "{:?}: {found:?}", call.procedure());
        Ok(())
    }

    /// Why the server refuses `call`; `None` if it does not.
    pub(crate) fn status(&mut self, call: &Call<'_>) -> Result<Option<Status>> {
        Ok(self.call(call)?.status())
    }

    /// The bytes of a call, without a mark.
    pub(crate) fn record(&self, xid: Xid, call: &Call<'_>) -> Bytes {
        let number = call.procedure().number();
        let to = (crossdock_nfs3::PROGRAM, crossdock_nfs3::VERSION, number);
        encode(xid, to, self.credential, call)
    }

    /// A call of MOUNT.
    pub(crate) fn call_mount(&mut self, call: &mount::Call<'_>) -> Result<mount::Reply> {
        let xid = next_xid();
        let procedure = call.procedure();
        let to = (mount::PROGRAM, mount::VERSION, procedure.number());
        let reply = self
            .wire
            .exchange(&encode(xid, to, self.credential, call))?;
        let mut decoder = Decoder::of_record(&reply);
        ensure!(success(&mut decoder)? == xid, "a reply to another call");
        let reply = mount::Reply::decode(procedure, &mut decoder)?;
        decoder.finish().context("bytes behind the results")?;
        if let mount::Reply::Mnt(outcome) = &reply {
            coverage::note_mount(outcome.as_ref().err().copied());
        }
        Ok(reply)
    }

    /// The handle of a path's directory.
    pub(crate) fn mount(&mut self, path: &str) -> Result<HandleBuffer> {
        match self.call_mount(&mount::Call::Mnt(Path(path.as_bytes())))? {
            mount::Reply::Mnt(Ok(mounted)) => Ok(mounted.root),
            other => bail!("cannot mount {path}: {other:?}"),
        }
    }
}

/// AUTH_SYS of a user; `groups` are at most 16.
pub(crate) fn user(uid: u32, gid: u32, groups: &[u32]) -> Credential<'static> {
    Credential::Sys(AuthSys {
        stamp: 0,
        machine_name: b"conformance",
        uid,
        gid,
        groups: Groups::new(groups).unwrap_or_default(),
    })
}

/// The bytes of a call of any program, without a mark.
pub(crate) fn encode(
    xid: Xid,
    (program, version, procedure): (u32, u32, u32),
    credential: Credential<'_>,
    arguments: &impl Encode,
) -> Bytes {
    let mut writer = RecordWriter::datagram(HEADER_BYTES);
    writer.encoder().put(&CallHeader {
        xid,
        program,
        version,
        procedure,
        credential,
        verifier: Verifier::NONE,
    });
    writer.encoder().put(arguments);
    writer.finish().to_bytes()
}

/// Reads the reply to the call `xid` of NFS.
pub(crate) fn decode_of(xid: Xid, procedure: Procedure, record: &Bytes) -> Result<Reply> {
    let (answered, reply) = decode(procedure, record)?;
    ensure!(answered == xid, "a reply to another call");
    Ok(reply)
}

/// Reads a reply of NFS.
pub(crate) fn decode(procedure: Procedure, record: &Bytes) -> Result<(Xid, Reply)> {
    let mut decoder = Decoder::of_record(record);
    let xid = success(&mut decoder)?;
    let reply = Reply::decode(procedure, &mut decoder)?;
    decoder.finish().context("bytes behind the results")?;
    coverage::note(procedure, reply.status());
    Ok((xid, reply))
}
