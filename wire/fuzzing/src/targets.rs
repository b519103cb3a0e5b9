//! The targets: what must hold for any bytes at all.

use std::fmt::Debug;

use bytes::Bytes;
use crossdock_nfs3::{Call, Procedure, Reply, mount};
use crossdock_rpc::{CallHeader, RecordError, RecordReader, RecordWriter, ReplyHeader};
use crossdock_xdr::{Decode, Decoder, Encode, Encoder};

use crate::{Dice, exnode, http, ibp, iscsi, join, lbone, link, locking, samples, scsi, tunnel};

/// A decoder under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target and of its folder in the corpus.
    pub name: &'static str,
    /// Panics if the decoder has a fault that these bytes show.
    pub run: fn(&[u8]),
    /// Bytes to begin with; the same every time.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every decoder of the workspace.
pub const TARGETS: &[Target] = &[
    Target {
        name: "xdr",
        run: xdr,
        seeds: xdr_seeds,
    },
    Target {
        name: "exnode",
        run: exnode::exnode,
        seeds: exnode::exnode_seeds,
    },
    Target {
        name: "lbone",
        run: lbone::lbone,
        seeds: lbone::lbone_seeds,
    },
    Target {
        name: "rpc_call",
        run: rpc_call,
        seeds: || seeds(8, |dice| encoded(&samples::call_header(dice))),
    },
    Target {
        name: "rpc_reply",
        run: rpc_reply,
        seeds: || seeds(8, |dice| encoded(&samples::reply_header(dice))),
    },
    Target {
        name: "record_reader",
        run: record_reader,
        seeds: || seeds(8, record_stream),
    },
    Target {
        name: "nfs3_call",
        run: nfs3_call,
        seeds: || by_procedure(Procedure::ALL, |p| p.number(), samples::call),
    },
    Target {
        name: "nfs3_reply",
        run: nfs3_reply,
        seeds: || by_procedure(Procedure::ALL, |p| p.number(), samples::reply),
    },
    Target {
        name: "mount_call",
        run: mount_call,
        seeds: || by_procedure(mount::Procedure::ALL, |p| p.number(), samples::mount_call),
    },
    Target {
        name: "mount_reply",
        run: mount_reply,
        seeds: || by_procedure(mount::Procedure::ALL, |p| p.number(), samples::mount_reply),
    },
    Target {
        name: "nlm_call",
        run: locking::nlm_call,
        seeds: locking::nlm_call_seeds,
    },
    Target {
        name: "nlm_reply",
        run: locking::nlm_reply,
        seeds: locking::nlm_reply_seeds,
    },
    Target {
        name: "nsm",
        run: locking::nsm,
        seeds: locking::nsm_seeds,
    },
    Target {
        name: "portmap",
        run: locking::portmap,
        seeds: locking::portmap_seeds,
    },
    Target {
        name: "link_frame",
        run: link::link_frame,
        seeds: link::link_frame_seeds,
    },
    Target {
        name: "join",
        run: join::join,
        seeds: join::join_seeds,
    },
    Target {
        name: "http_request",
        run: http::http_request,
        seeds: http::http_request_seeds,
    },
    Target {
        name: "tunnel",
        run: tunnel::tunnel,
        seeds: tunnel::tunnel_seeds,
    },
    Target {
        name: "ibp",
        run: ibp::ibp,
        seeds: ibp::ibp_seeds,
    },
    Target {
        name: "iscsi_stream",
        run: iscsi::iscsi_stream,
        seeds: iscsi::iscsi_stream_seeds,
    },
    Target {
        name: "iscsi_text",
        run: iscsi::iscsi_text,
        seeds: iscsi::iscsi_text_seeds,
    },
    Target {
        name: "scsi_cdb",
        run: scsi::scsi_cdb,
        seeds: scsi::scsi_cdb_seeds,
    },
    Target {
        name: "scsi_lists",
        run: scsi::scsi_lists,
        seeds: scsi::scsi_lists_seeds,
    },
];

/// [`Decoder`]: the first 16 bytes say what to read from the rest, and the
/// position moves forward, never past the end.
pub fn xdr(input: &[u8]) {
    let (steps, record) = input.split_at(input.len().min(16));
    let shared = Bytes::copy_from_slice(record);
    let mut decoder = Decoder::of_record(&shared);
    for &step in steps {
        let before = decoder.position();
        let length_max = usize::from(step >> 3);
        let result = match step % 8 {
            0 => decoder.u32().map(drop),
            1 => decoder.u64().map(drop),
            2 => decoder.get::<Option<bool>>().map(drop),
            3 => decoder.array::<8>().map(drop),
            4 => decoder.opaque_located(length_max).map(|opaque| {
                assert!(opaque.bytes.len() <= length_max);
                assert_eq!(opaque.bytes, &record[opaque.range()]);
            }),
            5 => decoder
                .bytes(usize::MAX)
                .map(|bytes| assert!(bytes.len() <= record.len())),
            6 => decoder.payload(length_max).map(drop),
            _ => decoder
                .count(length_max)
                .map(|count| assert!(count <= length_max)),
        };
        if result.is_err() {
            return;
        }
        assert!(before <= decoder.position() && decoder.position() <= record.len());
        assert!(decoder.position().is_multiple_of(4));
        assert_eq!(decoder.since(before).len(), decoder.position() - before);
    }
}

/// [`CallHeader::decode`]; what it refuses gets a reply that can be read.
pub fn rpc_call(input: &[u8]) {
    match CallHeader::decode(&mut Decoder::new(input)) {
        Ok(header) => {
            let bytes = encoded(&header);
            assert_eq!(CallHeader::decode(&mut Decoder::new(&bytes)), Ok(header));
        }
        Err(error) => {
            if let Some(reply) = error.reply() {
                check_round_trip(&reply, |decoder| decoder.get() == Ok(reply));
            }
        }
    }
}

/// [`ReplyHeader`].
pub fn rpc_reply(input: &[u8]) {
    if let Ok(header) = ReplyHeader::decode(&mut Decoder::new(input)) {
        check_round_trip(&header, |decoder| decoder.get() == Ok(header));
    }
}

/// [`Call::decode`]; the first byte is the procedure.
pub fn nfs3_call(input: &[u8]) {
    let Some((procedure, arguments)) = choose(Procedure::ALL, input) else {
        return;
    };
    let arguments = Bytes::copy_from_slice(arguments);
    if let Ok(call) = Call::decode(procedure, &mut Decoder::of_record(&arguments)) {
        assert_eq!(call.procedure(), procedure);
        check_round_trip(&call, |decoder| {
            Call::decode(procedure, decoder).as_ref() == Ok(&call)
        });
    }
}

/// [`Reply::decode`]; the first byte is the procedure.
pub fn nfs3_reply(input: &[u8]) {
    let Some((procedure, results)) = choose(Procedure::ALL, input) else {
        return;
    };
    let results = Bytes::copy_from_slice(results);
    let Ok(reply) = Reply::decode(procedure, &mut Decoder::of_record(&results)) else {
        return;
    };
    assert_eq!(reply.procedure(), procedure);
    // Every entry of an accepted list can be walked over again.
    let (count, bytes) = match &reply {
        Reply::Readdir(Ok(reply)) => (
            reply.entries.iter().count(),
            reply.entries.iter().map(|e| e.encoded_bytes()).sum(),
        ),
        Reply::Readdirplus(Ok(reply)) => (
            reply.entries.iter().count(),
            reply.entries.iter().map(|e| e.encoded_bytes()).sum(),
        ),
        _ => (0, 0_usize),
    };
    assert!(count <= bytes && bytes <= results.len());
    check_round_trip(&reply, |decoder| {
        Reply::decode(procedure, decoder).as_ref() == Ok(&reply)
    });
}

/// [`mount::Call::decode`]; the first byte is the procedure.
pub fn mount_call(input: &[u8]) {
    let Some((procedure, arguments)) = choose(mount::Procedure::ALL, input) else {
        return;
    };
    if let Ok(call) = mount::Call::decode(procedure, &mut Decoder::new(arguments)) {
        assert_eq!(call.procedure(), procedure);
        check_round_trip(&call, |decoder| {
            mount::Call::decode(procedure, decoder) == Ok(call)
        });
    }
}

/// [`mount::Reply::decode`]; the first byte is the procedure.
pub fn mount_reply(input: &[u8]) {
    let Some((procedure, results)) = choose(mount::Procedure::ALL, input) else {
        return;
    };
    if let Ok(reply) = mount::Reply::decode(procedure, &mut Decoder::new(results)) {
        assert_eq!(reply.procedure(), procedure);
        check_round_trip(&reply, |decoder| {
            mount::Reply::decode(procedure, decoder).as_ref() == Ok(&reply)
        });
    }
}

/// [`RecordReader`]: however the stream is cut into chunks, and whether or not
/// the rest of a record is received elsewhere, the records are those that a reader of the
/// whole stream sees. The first byte seeds the cuts, the second is the limit.
pub fn record_reader(input: &[u8]) {
    let &[seed, limit, ref stream @ ..] = input else {
        return;
    };
    let limit = usize::from(limit) * 4;
    let (expected, error) = records(stream, limit);
    let mut dice = Dice::new(u64::from(seed));
    let mut reader = RecordReader::new(limit);
    let mut seen = Vec::new();
    let mut rest = Bytes::copy_from_slice(stream);
    while !rest.is_empty() {
        if dice.flag() {
            let missing_bytes = reader.missing_bytes();
            if missing_bytes <= rest.len()
                && let Some(head) = reader.lend()
            {
                let record = Bytes::from([head, rest.split_to(missing_bytes)].concat());
                reader.give_back(&record);
                seen.push(record);
                continue;
            }
        }
        let mut chunk = rest.split_to((1 + dice.below(40)).min(rest.len()));
        loop {
            match reader.next_record(&mut chunk) {
                Ok(Some(record)) => {
                    assert!(record.len() <= limit);
                    seen.push(record);
                }
                Ok(None) => break assert!(chunk.is_empty()),
                Err(found) => {
                    assert_eq!(Some(found), error);
                    assert_eq!(seen, expected);
                    return;
                }
            }
        }
    }
    assert_eq!(seen, expected);
    assert_eq!(error, None);
}

/// The records of a stream that is here as a whole, and why it ends early.
fn records(mut stream: &[u8], length_bytes_max: usize) -> (Vec<Bytes>, Option<RecordError>) {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut fragments_empty = 0;
    while let Some((mark, rest)) = stream.split_first_chunk::<4>() {
        let mark = u32::from_be_bytes(*mark);
        let fragment_bytes = usize::try_from(mark & 0x7fff_ffff).unwrap_or(usize::MAX);
        let length_bytes = record.len() + fragment_bytes;
        if length_bytes > length_bytes_max {
            let error = RecordError::TooLong {
                length_bytes,
                length_bytes_max,
            };
            return (records, Some(error));
        }
        if fragment_bytes == 0 {
            fragments_empty += 1;
            if fragments_empty > crossdock_limits::RPC_FRAGMENTS_EMPTY_MAX {
                return (records, Some(RecordError::EmptyFragments));
            }
        }
        let Some((fragment, rest)) = rest.split_at_checked(fragment_bytes) else {
            break;
        };
        record.extend_from_slice(fragment);
        stream = rest;
        if mark >> 31 == 1 {
            records.push(Bytes::from(std::mem::take(&mut record)));
            fragments_empty = 0;
        }
    }
    (records, None)
}

/// Whatever was decoded is encoded to bytes that mean the same.
pub(crate) fn check_round_trip<T: Encode + Debug>(
    value: &T,
    is_same: impl Fn(&mut Decoder<'_>) -> bool,
) {
    let bytes = encoded(value);
    assert!(bytes.len().is_multiple_of(4));
    let mut decoder = Decoder::new(&bytes);
    assert!(is_same(&mut decoder), "not the same again: {value:?}");
    assert_eq!(decoder.finish(), Ok(()));
}

pub(crate) fn choose<'a, T: Copy>(values: &[T], input: &'a [u8]) -> Option<(T, &'a [u8])> {
    let (first, rest) = input.split_first()?;
    Some((values[usize::from(*first) % values.len()], rest))
}

pub(crate) fn encoded<T: Encode>(value: &T) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.put(value);
    encoder.into_bytes().to_vec()
}

pub(crate) fn seeds(count: u64, mut seed: impl FnMut(&mut Dice) -> Vec<u8>) -> Vec<Vec<u8>> {
    (0..count).map(|at| seed(&mut Dice::new(at))).collect()
}

/// Two samples of each procedure, behind its number.
fn by_procedure<P: Copy, T: Encode>(
    procedures: &[P],
    number: impl Fn(P) -> u32,
    sample: impl Fn(P, &mut Dice) -> T,
) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for &procedure in procedures {
        for at in 0..2 {
            let number = number(procedure);
            let mut dice = Dice::new(u64::from(number) * 2 + at);
            let mut seed = vec![number.to_be_bytes()[3]];
            seed.extend(encoded(&sample(procedure, &mut dice)));
            seeds.push(seed);
        }
    }
    seeds
}

fn xdr_seeds() -> Vec<Vec<u8>> {
    seeds(4, |dice| {
        let mut seed = vec![4, 5, 6, 0, 1, 2, 3, 7, 0x84, 0x85, 0x86, 0, 0, 0, 0, 0];
        let mut encoder = Encoder::new();
        for _ in 0..3 {
            encoder.opaque(dice.bytes(0));
        }
        encoder.u32(dice.u32());
        encoder.u64(dice.u64());
        encoder.put(&dice.maybe(Dice::flag));
        encoder.array(&dice.eight());
        encoder.count(0);
        for _ in 0..3 {
            encoder.opaque(dice.bytes(16));
        }
        seed.extend(encoder.into_bytes());
        seed
    })
}

/// Some records, whole and in fragments.
fn record_stream(dice: &mut Dice) -> Vec<u8> {
    let mut stream = vec![dice.eight()[0], 64];
    for _ in 0..=dice.below(3) {
        for _ in 0..dice.below(4) {
            let fragment = dice.bytes(24);
            stream.extend(u32::try_from(fragment.len()).unwrap_or(0).to_be_bytes());
            stream.extend(fragment);
        }
        let mut writer = RecordWriter::stream(64);
        writer.encoder().put(&samples::reply_header(dice));
        stream.extend_from_slice(&writer.finish().to_bytes());
    }
    stream
}
