//! WRITEs beyond the largest one.

mod support;

use bytes::Bytes;
use crossdock_nfs3::call::{StableHow, Write};
use crossdock_nfs3::{Call, Reply};
use crossdock_peer::{SiteAnswer, SiteOperation};
use crossdock_types::Payload;
use support::*;

/// Goal: what is beyond the largest WRITE is not taken, and the reply says so:
/// the client sends the rest again (RFC 1813 section 3.3.7).
#[test]
fn a_write_beyond_the_largest_is_done_in_part() {
    const LARGEST: u32 = 1 << 20;
    let mut bench = bench();
    let handle = handle(FILE);
    let write = Call::Write(Write {
        file: handle.as_handle(),
        offset: 0,
        count_bytes: LARGEST + 8,
        stable: StableHow::Unstable,
        data: Payload::from(Bytes::from(vec![1; LARGEST as usize + 8])),
    });
    let incarnation = crossdock_names::Incarnation(1);
    let written = SiteAnswer::Written { incarnation };
    let (request, reply) = bench.round(&write, Ok(written), file_cache());
    let SiteOperation::Write { payload, .. } = request.operation else {
        panic!("no write");
    };
    assert_eq!(payload.len(), LARGEST as usize);
    let Reply::Write(Ok(done)) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(
        (done.count_bytes, done.committed),
        (LARGEST, StableHow::Unstable)
    );
}
