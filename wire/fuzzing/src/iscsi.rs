//! iSCSI: PDUs of a connection, and texts. Targets and seeds.

use bytes::Bytes;
use crossdock_iscsi_pdu::{
    DataOut, Digests, Head, LoginFlags, LoginRequest, Pdu, PduError, PduReader, Request, Response,
    ScsiCommand, encode, encode_text, opcode, parse_binary, parse_number, parse_text,
};
use crossdock_types::Payload;

/// Few enough that inputs of a fuzzer exceed them.
const DATA_BYTES_MAX: usize = 300;

/// Cuts a stream into PDUs, whatever the digests; the first byte says which there are.
///
/// # Panics
/// If a cut of the stream shows, or a PDU does not come back when it is written again.
pub fn iscsi_stream(input: &[u8]) {
    let Some((&first, stream)) = input.split_first() else {
        return;
    };
    let digests = Digests {
        header: first & 1 != 0,
        data: first & 2 != 0,
    };
    let whole = cut(stream, stream.len().max(1), digests);
    assert_eq!(whole, cut(stream, 1, digests));
    for pdu in whole.0.iter().filter(|pdu| pdu.additional.is_empty()) {
        let _ = Response::decode(&pdu.header);
        if let Some(Request::Data(header)) = Request::decode(&pdu.header) {
            let written = encode(&header, pdu.data.clone(), digests).to_bytes();
            let (again, error) = cut(&written, 7, digests);
            let mut expected = pdu.clone();
            expected.is_intact = true;
            assert_eq!((again, error), (vec![expected], None));
        }
    }
}

/// The PDUs of a stream that arrives in pieces, and how it ended.
fn cut(stream: &[u8], piece_bytes: usize, digests: Digests) -> (Vec<Pdu>, Option<PduError>) {
    let mut reader = PduReader::new(DATA_BYTES_MAX);
    reader.agree(digests, DATA_BYTES_MAX);
    let mut pdus = Vec::new();
    for piece in stream.chunks(piece_bytes) {
        reader.push(Bytes::copy_from_slice(piece));
        loop {
            match reader.take() {
                Ok(Some(pdu)) => pdus.push(pdu),
                Ok(None) => break,
                Err(error) => return (pdus, Some(error)),
            }
        }
    }
    (pdus, None)
}

/// Reads a text, and each value as what it might be.
///
/// # Panics
/// If a text does not come back when it is written again.
pub fn iscsi_text(input: &[u8]) {
    let Ok(pairs) = parse_text(input) else {
        return;
    };
    for (_, value) in &pairs {
        let _ = parse_number(value);
        let bytes = parse_binary(value, 64);
        assert!(bytes.is_none_or(|bytes| bytes.len() <= 64));
    }
    let text = encode_text(pairs.iter().map(|(key, value)| (&key[..], &value[..])));
    assert_eq!(parse_text(&text), Ok(pairs));
}

pub(crate) fn iscsi_stream_seeds() -> Vec<Vec<u8>> {
    let text = encode_text([
        ("InitiatorName", "iqn.2026-11.example:a"),
        ("SessionType", "Normal"),
    ]);
    let flags = LoginFlags::TO_FULL_FEATURE;
    let login = LoginRequest {
        head: Head::new(opcode::LOGIN | 0x40, flags.encode()),
        ..LoginRequest::default()
    };
    let mut command = ScsiCommand {
        head: Head::new(opcode::COMMAND, 0xa1),
        ..ScsiCommand::default()
    };
    command.cdb[0] = 0x2a;
    let data = DataOut {
        head: Head::new(opcode::DATA_OUT, 0x80),
        ..DataOut::default()
    };
    let mut seeds = Vec::new();
    for (first, digests) in [
        (0, Digests::default()),
        (
            3,
            Digests {
                header: true,
                data: true,
            },
        ),
    ] {
        let parts = [
            encode(&login, Payload::from(text.clone()), digests),
            encode(&command, Payload::new(), digests),
            encode(&data, Payload::from(Bytes::from_static(b"hello")), digests),
        ];
        let mut seed = vec![first];
        for part in parts {
            seed.extend_from_slice(&part.to_bytes());
        }
        seeds.push(seed);
    }
    seeds
}

pub(crate) fn iscsi_text_seeds() -> Vec<Vec<u8>> {
    let texts: [&[(&str, &str)]; 3] = [
        &[("CHAP_A", "5,7"), ("CHAP_N", "user"), ("CHAP_R", "0x00ff")],
        &[
            ("HeaderDigest", "CRC32C,None"),
            ("MaxBurstLength", "262144"),
        ],
        &[("CHAP_C", "0bAAECAw=="), ("SendTargets", "All")],
    ];
    let seed = |pairs: &&[(&str, &str)]| encode_text(pairs.iter().copied()).to_vec();
    texts.iter().map(seed).collect()
}
