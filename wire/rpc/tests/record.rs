//! Records on a byte stream.

use bytes::Bytes;
use crossdock_fuzzing::record_reader;
use crossdock_limits::RPC_FRAGMENTS_EMPTY_MAX;
use crossdock_rpc::{RecordError, RecordReader, RecordWriter};
use crossdock_types::Payload;
use proptest::prelude::*;

fn fragment(is_last: bool, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap();
    let mark = length | u32::from(is_last) << 31;
    [&mark.to_be_bytes()[..], content].concat()
}

/// All records of a stream that arrives in chunks of `chunk_bytes`.
fn read(stream: &[u8], chunk_bytes: usize, limit: usize) -> Result<Vec<Bytes>, RecordError> {
    let mut reader = RecordReader::new(limit);
    let mut records = Vec::new();
    for chunk in stream.chunks(chunk_bytes) {
        let mut chunk = Bytes::copy_from_slice(chunk);
        while let Some(record) = reader.next_record(&mut chunk)? {
            records.push(record);
        }
    }
    Ok(records)
}

proptest! {
    /// Goal: however records are cut into fragments and fragments into chunks,
    /// the same records come out.
    #[test]
    fn cuts_do_not_show(
        records in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..6), 0..6),
        chunk_bytes in 1..100_usize,
    ) {
        let mut stream = Vec::new();
        for record in &records {
            for (at, content) in record.iter().enumerate() {
                stream.extend(fragment(at + 1 == record.len(), content));
            }
        }
        let whole: Vec<Bytes> = records.iter().map(|record| record.concat().into()).collect();
        prop_assert_eq!(read(&stream, chunk_bytes, 300), Ok(whole));
    }

    /// Goal: any stream is read as a reader of all of it at once would, and never
    /// panics.
    #[test]
    fn any_stream_is_survived(stream in prop::collection::vec(any::<u8>(), 0..300)) {
        record_reader(&stream);
    }

    /// Goal: the same for streams of small, likely fragments.
    #[test]
    fn likely_streams_are_survived(
        start: [u8; 2],
        fragments in prop::collection::vec((any::<bool>(), 0..40_usize), 0..60),
    ) {
        let mut stream = start.to_vec();
        for (is_last, length) in fragments {
            stream.extend(fragment(is_last, &vec![7; length]));
        }
        record_reader(&stream);
    }
}

/// Goal: records that lie in one chunk share its memory.
#[test]
fn contiguous_record_is_not_copied() {
    let stream = [fragment(true, b"first"), fragment(true, b"second")].concat();
    let chunk = Bytes::from(stream);
    let mut rest = chunk.clone();
    let mut reader = RecordReader::default();
    let first = reader.next_record(&mut rest).unwrap().unwrap();
    let second = reader.next_record(&mut rest).unwrap().unwrap();
    assert_eq!(reader.next_record(&mut rest), Ok(None));
    assert_eq!((&first[..], &second[..]), (&b"first"[..], &b"second"[..]));
    assert_eq!(first.as_ptr(), chunk[4..].as_ptr());
    assert_eq!(second.as_ptr(), chunk[13..].as_ptr());
}

/// Goal: the rest of a big record is received elsewhere, behind its beginning.
#[test]
fn big_record_is_completed_elsewhere() {
    let content: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let stream = [fragment(true, &content), fragment(true, b"next")].concat();
    let mut reader = RecordReader::default();
    assert!(reader.beginning().is_none());
    assert!(reader.lend().is_none());
    let mut chunk = Bytes::copy_from_slice(&stream[..1000]);
    assert_eq!(reader.next_record(&mut chunk), Ok(None));
    assert_eq!(reader.missing_bytes(), 100_000 - 996);
    assert_eq!(reader.beginning(), Some(&content[..996]));

    let head = reader.lend().expect("a record has begun");
    assert_eq!(head, content[..996]);
    assert!(reader.beginning().is_none());
    assert!(!reader.is_between_records());
    reader.give_back(&Bytes::from(content));
    assert_eq!(reader.missing_bytes(), 0);
    assert!(reader.is_between_records());
    let mut chunk = Bytes::copy_from_slice(&stream[100_004..]);
    let next = reader.next_record(&mut chunk);
    assert_eq!(next, Ok(Some(Bytes::from_static(b"next"))));
}

/// Goal: a record of which more fragments follow is not lent: nobody knows how
/// long it is.
#[test]
fn record_with_more_fragments_is_not_lent() {
    let mut reader = RecordReader::default();
    let mut chunk = Bytes::from(fragment(false, &[7; 1000])).slice(..500);
    assert_eq!(reader.next_record(&mut chunk), Ok(None));
    assert!(reader.lend().is_none());
}

/// Goal: a mark that goes over the limit is refused when it is seen, also if
/// earlier fragments have used the limit up.
#[test]
fn record_limit_holds_before_any_byte_of_the_fragment() {
    let too_long = |length_bytes| {
        Err(RecordError::TooLong {
            length_bytes,
            length_bytes_max: 100,
        })
    };
    assert_eq!(read(&[0xff; 4], 4, 100), too_long(0x7fff_ffff));
    assert_eq!(
        read(&fragment(true, &[0; 100])[..4], 4, 100),
        Ok(Vec::new())
    );
    let stream = [
        fragment(false, &[0; 60]),
        fragment(true, &[0; 41])[..4].to_vec(),
    ];
    assert_eq!(read(&stream.concat(), 7, 100), too_long(101));
}

/// Goal: fragments with nothing in them end the connection, not the server.
#[test]
fn empty_fragments_are_counted() {
    let empty = usize::try_from(RPC_FRAGMENTS_EMPTY_MAX).unwrap();
    let mut stream = fragment(false, b"").repeat(empty);
    let whole = [&stream[..], &fragment(true, b"end")].concat();
    assert_eq!(read(&whole, 5, 100), Ok(vec![Bytes::from_static(b"end")]));
    stream.extend(fragment(true, b""));
    assert_eq!(read(&stream, 5, 100), Err(RecordError::EmptyFragments));
}

/// Goal: a reply is one fragment on a stream and bare in a datagram, and its bulk
/// data is not copied.
#[test]
fn reply_is_framed_for_its_transport() {
    let data = Bytes::from_static(b"data");
    let finish = |mut writer: RecordWriter| {
        writer.encoder().u32(5);
        writer.encoder().put(&Payload::from(data.clone()));
        writer.finish()
    };
    let record = finish(RecordWriter::stream(64));
    assert_eq!(
        &record.to_bytes()[..],
        b"\x80\0\0\x0c\0\0\0\x05\0\0\0\x04data"
    );
    assert_eq!(record.pieces()[1].as_ptr(), data.as_ptr());
    let datagram = finish(RecordWriter::datagram(64));
    assert_eq!(&datagram.to_bytes()[..], b"\0\0\0\x05\0\0\0\x04data");
}
