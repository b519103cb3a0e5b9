//! Large WRITEs: the rest of a record is received right behind its beginning,
//! so that the data lies in memory where a disk takes it, and is never copied.

use crossdock_nfs3::{self as nfs3, Procedure};
use crossdock_rpc::CallHeader;
use crossdock_types::BLOCK_BYTES;
use crossdock_xdr::{DecodeError, Decoder};

/// How far behind a block boundary a record has to begin in memory; `None` if
/// it is no WRITE, or too little of it is here to say.
pub(crate) fn lead_bytes(beginning: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::new(beginning);
    let header = CallHeader::decode(&mut decoder).ok()?;
    let is_write = header.program == nfs3::PROGRAM
        && header.version == nfs3::VERSION
        && header.procedure == Procedure::Write.number();
    if !is_write {
        return None;
    }
    let (offset, data) = place(&mut decoder).ok()?;
    let block = BLOCK_BYTES as u64;
    let lead = (offset % block + block - data as u64 % block) % block;
    usize::try_from(lead).ok()
}

/// Where in the file the data goes, and where in the record it begins
/// (RFC 1813 section 3.3.7).
fn place(decoder: &mut Decoder<'_>) -> Result<(u64, usize), DecodeError> {
    decoder.opaque(nfs3::HANDLE_BYTES_MAX)?;
    let offset = decoder.u64()?;
    for _count_stable_length in 0..3 {
        decoder.u32()?;
    }
    Ok((offset, decoder.position()))
}
