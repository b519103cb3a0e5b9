//! The same calls over UDP: a datagram is a record.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::StableHow;
use crossdock_nfs3::{Call, Reply, Status, mount};

use crate::client::{decode_of, encode, next_xid, user};
use crate::hand::{Eye, Hand, MOUNT, NFS, anonymous, call};
use crate::operations::{at, commit, fsinfo, getattr, guarded, read, readdir, write};
use crate::runner::{Check, Stage, check};
use crate::wire::PATIENCE;

pub(crate) const CHECKS: &[Check] = &[
    check("NULL and MNT are answered over UDP", basics),
    check("files are made, written, read and listed over UDP", files),
    check(
        "FSINFO over UDP tells 32 KiB, and so much can be read and written",
        sizes,
    ),
    check("errors of RPC are told over UDP", rpc_errors),
    check(
        "a call sent again over UDP gets the reply of the first",
        sent_again,
    ),
    check("datagrams that are no calls are not answered", no_calls),
];

/// A socket that talks to the server.
pub(crate) struct Datagrams(UdpSocket);

impl Datagrams {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(socket))
    }

    /// Sends a record, and waits for the datagram that comes back.
    pub(crate) fn exchange(&self, record: &[u8]) -> Result<Bytes> {
        self.0.send(record)?;
        let mut buffer = vec![0; 65_536];
        let length = self.0.recv(&mut buffer).context("no reply")?;
        buffer.truncate(length);
        Ok(buffer.into())
    }

    fn call(&self, call: &Call<'_>) -> Result<Reply> {
        let xid = next_xid();
        let to = (NFS, 3, call.procedure().number());
        let record = encode(xid, to, user(0, 0, &[]), call);
        decode_of(xid, call.procedure(), &self.exchange(&record)?)
    }
}

fn basics(stage: &Stage<'_>) -> Result<()> {
    let socket = Datagrams::connect(stage.address)?;
    for program in [NFS, MOUNT] {
        let reply = socket.exchange(&anonymous(1, program, 3, 0).0)?;
        let mut eye = Eye(&reply);
        eye.success(1)?;
        eye.end()?;
    }
    let mnt = mount::Call::Mnt(crossdock_nfs3::Path(b"/"));
    let record = encode(2, (MOUNT, 3, 1), user(0, 0, &[]), &mnt);
    let reply = socket.exchange(&record)?;
    let mut eye = Eye(&reply);
    eye.success(2)?;
    eye.is(0, "MNT3_OK")?;
    ensure!(eye.opaque()? == stage.root.as_bytes(), "another handle");
    Ok(())
}

fn files(stage: &Stage<'_>) -> Result<()> {
    let socket = Datagrams::connect(stage.address)?;
    let directory = &stage.directory;
    let Reply::Create(Ok(made)) = socket.call(&guarded(at(directory, "file"), 0o644))? else {
        anyhow::bail!("not made");
    };
    let file = made.object.context("no handle")?;
    for call in [
        write(&file, 0, b"over UDP", StableHow::Unstable),
        commit(&file),
        getattr(&file),
        readdir(directory, 0, 4096),
    ] {
        let reply = socket.call(&call)?;
        ensure!(reply.status().is_none(), "{reply:?}");
    }
    let Reply::Read(Ok(done)) = socket.call(&read(&file, 5, 100))? else {
        anyhow::bail!("not read");
    };
    ensure!(
        done.data.to_bytes()[..] == b"UDP"[..] && done.is_end,
        "{done:?}"
    );
    let again = socket.call(&guarded(at(directory, "file"), 0o644))?;
    ensure!(again.status() == Some(Status::Exist), "{again:?}");
    Ok(())
}

fn sizes(stage: &Stage<'_>) -> Result<()> {
    const MAXIMUM: usize = 32 << 10;
    let socket = Datagrams::connect(stage.address)?;
    let Reply::Fsinfo(Ok(info)) = socket.call(&fsinfo(&stage.root))? else {
        anyhow::bail!("no FSINFO");
    };
    let (rtmax, wtmax) = (info.read_bytes_max, info.write_bytes_max);
    ensure!((rtmax, wtmax) == (32 << 10, 32 << 10), "{rtmax}, {wtmax}");
    let file = stage.client()?.create(&stage.directory, "file", 0o644)?;
    let data: Vec<u8> = (0..=250).cycle().take(MAXIMUM).collect();
    for offset in [0, 50_000, 100_000] {
        let written = socket.call(&write(&file, offset, &data, StableHow::FileSync))?;
        let Reply::Write(Ok(written)) = written else {
            anyhow::bail!("{written:?}");
        };
        ensure!(written.count_bytes == wtmax, "{}", written.count_bytes);
        // More is asked for than a datagram holds.
        for count in [rtmax, 1 << 20] {
            let Reply::Read(Ok(done)) = socket.call(&read(&file, offset, count))? else {
                anyhow::bail!("not read");
            };
            ensure!(done.data.to_bytes()[..] == data[..], "at {offset}");
        }
    }
    Ok(())
}

fn rpc_errors(stage: &Stage<'_>) -> Result<()> {
    let socket = Datagrams::connect(stage.address)?;
    for (record, status) in [
        (call(1, 400_122, 3, 0), 1),
        (call(1, NFS, 2, 0), 2),
        (call(1, NFS, 3, 22), 3),
        (call(1, NFS, 3, 1), 4),
    ] {
        let reply = socket.exchange(&record.0)?;
        let mut eye = Eye(&reply);
        eye.accepted(1)?;
        eye.is(status, "accept_stat")?;
    }
    let record = Hand::default().u32(9).u32(0).u32(3).raw(&[0; 28]);
    let reply = socket.exchange(&record.0)?;
    ensure!(reply[..4] == [0, 0, 0, 9] && reply[11] == 1, "{reply:02x?}");
    Ok(())
}

fn sent_again(stage: &Stage<'_>) -> Result<()> {
    let socket = Datagrams::connect(stage.address)?;
    let other = Datagrams::connect(stage.address)?;
    let xid = next_xid();
    let call = guarded(at(&stage.directory, "file"), 0o644);
    let record = encode(xid, (NFS, 3, 8), user(0, 0, &[]), &call);
    let first = socket.exchange(&record)?;
    decode_of(xid, call.procedure(), &first)?;
    for socket in [&socket, &other, &socket] {
        ensure!(socket.exchange(&record)? == first, "another reply");
    }
    Ok(())
}

fn no_calls(stage: &Stage<'_>) -> Result<()> {
    let socket = Datagrams::connect(stage.address)?;
    for record in [
        &b""[..],
        b"abc",
        &[0; 7],
        &[0xff; 1400],
        b"\0\0\0\x05\0\0\0\x01",
    ] {
        // The datagram behind it is the first that is answered.
        socket.0.send(record)?;
        let reply = socket.exchange(&anonymous(77, NFS, 3, 0).0)?;
        Eye(&reply).success(77)?;
    }
    Ok(())
}
