//! A client's end of the wire: calls as records, replies as results.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use crossdock_nfs3::{Call, PROGRAM, Procedure, Reply, VERSION};
use crossdock_rpc::{AuthSys, CallHeader, Credential, Groups, RecordWriter, ReplyHeader, Verifier};
use crossdock_xdr::Decoder;

/// A call as bytes on a stream. Sent again, they are a retransmission.
pub(super) fn encode(xid: u32, call: &Call<'_>) -> Bytes {
    let header = CallHeader {
        xid,
        program: PROGRAM,
        version: VERSION,
        procedure: call.procedure().number(),
        credential: Credential::Sys(AuthSys {
            stamp: 1,
            machine_name: b"simulated",
            uid: 0,
            gid: 0,
            groups: Groups::default(),
        }),
        verifier: Verifier::NONE,
    };
    let mut writer = RecordWriter::stream(256);
    writer.encoder().put(&header);
    writer.encoder().put(call);
    writer.finish().to_bytes()
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
    let mut decoder = Decoder::of_record(record);
    let header: ReplyHeader<'_> = decoder
        .get()
        .map_err(|error| format!("no reply header: {error}"))?;
    if header != ReplyHeader::success(header.xid) {
        return Err(format!("{procedure:?} is refused: {header:?}"));
    }
    Reply::decode(procedure, &mut decoder).map_err(|error| format!("no results: {error}"))
}

/// Where client `number` calls from; each of its connections has a new port.
pub(super) fn address(number: usize, connection: u64) -> SocketAddr {
    let host = u8::try_from(number + 1).unwrap_or(u8::MAX);
    let port = 600 + u16::try_from(connection % 400).unwrap_or(0);
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), port)
}
