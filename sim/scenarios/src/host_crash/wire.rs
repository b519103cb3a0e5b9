//! A client's end of the wire: calls as records, replies as results.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use crossdock_nfs3::{Call, HandleBuffer, PROGRAM, Path, Procedure, Reply, VERSION, mount};
use crossdock_rpc::{AuthSys, CallHeader, Credential, Groups, RecordWriter, ReplyHeader, Verifier};
use crossdock_xdr::Decoder;

/// A call as bytes on a stream. Sent again, they are a retransmission.
pub(super) fn encode(xid: u32, call: &Call<'_>) -> Bytes {
    let called = (PROGRAM, VERSION, call.procedure().number());
    let mut writer = RecordWriter::stream(256);
    writer.encoder().put(&header(xid, called));
    writer.encoder().put(call);
    writer.finish().to_bytes()
}

fn header(xid: u32, (program, version, procedure): (u32, u32, u32)) -> CallHeader<'static> {
    CallHeader {
        xid,
        program,
        version,
        procedure,
        credential: Credential::Sys(AuthSys {
            stamp: 1,
            machine_name: b"simulated",
            uid: 0,
            gid: 0,
            groups: Groups::default(),
        }),
        verifier: Verifier::NONE,
    }
}

/// A call for the handle of the root.
pub(super) fn encode_mount(xid: u32) -> Bytes {
    let call = mount::Call::Mnt(Path(b"/"));
    let mut writer = RecordWriter::stream(256);
    let called = (mount::PROGRAM, mount::VERSION, call.procedure().number());
    writer.encoder().put(&header(xid, called));
    writer.encoder().put(&call);
    writer.finish().to_bytes()
}

/// What it gives, if it is not to be tried again.
pub(super) fn decode_mount(record: &Bytes) -> Result<Option<HandleBuffer>, String> {
    let mut decoder = results(record, format_args!("MOUNT"))?;
    match mount::Reply::decode(mount::Procedure::Mnt, &mut decoder) {
        Ok(mount::Reply::Mnt(Ok(mounted))) => Ok(Some(mounted.root)),
        Ok(mount::Reply::Mnt(Err(mount::Status::ServerFault))) => Ok(None),
        other => Err(format!("MOUNT gives {other:?}")),
    }
}

/// The xid of a reply.
pub(super) fn xid(record: &Bytes) -> Result<u32, String> {
    let mut decoder = Decoder::of_record(record);
    decoder
        .u32()
        .map_err(|error| format!("a reply without xid: {error}"))
}

/// The results of a reply to a call of `procedure`.
pub(super) fn decode(procedure: Procedure, record: &Bytes) -> Result<Reply, String> {
    let mut decoder = results(record, procedure)?;
    Reply::decode(procedure, &mut decoder).map_err(|error| format!("no results: {error}"))
}

/// What follows the header of a reply to `called`, if that was carried out.
fn results(record: &Bytes, called: impl Debug) -> Result<Decoder<'_>, String> {
    let mut decoder = Decoder::of_record(record);
    let header: ReplyHeader<'_> = decoder
        .get()
        .map_err(|error| format!("no reply header: {error}"))?;
    match header == ReplyHeader::success(header.xid) {
        true => Ok(decoder),
        false => Err(format!("{called:?} is refused: {header:?}")),
    }
}

/// Where client `number` calls from; each of its connections has a new port.
pub(super) fn address(number: usize, connection: u64) -> SocketAddr {
    let host = u8::try_from(number + 1).unwrap_or(u8::MAX);
    let port = 600 + u16::try_from(connection % 400).unwrap_or(0);
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), port)
}
