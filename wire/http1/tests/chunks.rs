//! The chunked coding (RFC 9112 section 7.1).

use crossdock_http1::ChunkError::{Extension, LineEnding, Size, TooLong, Trailer};
use crossdock_http1::{ChunkError, ChunkedDecoder};
use crossdock_limits::{
    HTTP_CHUNK_EXTENSION_BYTES_MAX, HTTP_CHUNK_LINE_BYTES_MAX, HTTP_TRAILER_BYTES_MAX,
};

/// What was found: the content, and if it is complete how many bytes it took.
type Found = Result<(Vec<u8>, Option<usize>), ChunkError>;

/// Decodes a stream that arrives in pieces of `piece_bytes`.
fn decode(stream: &[u8], piece_bytes: usize) -> Found {
    let mut decoder = ChunkedDecoder::new();
    let (mut content, mut taken) = (Vec::new(), 0);
    for mut piece in stream.chunks(piece_bytes) {
        while !piece.is_empty() {
            let step = decoder.decode(piece)?;
            content.extend_from_slice(&piece[step.data]);
            taken += step.consumed;
            if step.is_finished {
                assert!(decoder.is_finished());
                return Ok((content, Some(taken)));
            }
            assert!(step.consumed > 0, "a step that does nothing");
            piece = &piece[step.consumed..];
        }
    }
    Ok((content, None))
}

/// Section, stream, its content or why it is none; how much of it is left over, if
/// it is complete.
type Row = (
    &'static str,
    &'static [u8],
    Result<&'static [u8], ChunkError>,
    Option<usize>,
);

#[rustfmt::skip] // One case a line.
const STREAMS: &[Row] = &[
    ("7.1", b"0\r\n\r\n", Ok(b""), Some(0)),
    ("7.1", b"5\r\nhello\r\n0\r\n\r\n", Ok(b"hello"), Some(0)),
    ("7.1", b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\nGET /", Ok(b"hello!"), Some(5)),
    ("7.1", b"a\r\n0123456789\r\nA\r\n0123456789\r\n000\r\n\r\n", Ok(b"01234567890123456789"), Some(0)),
    ("7.1", b"0005\r\n\r\n\r\n\r\r\n0\r\n\r\n", Ok(b"\r\n\r\n\r"), Some(0)),
    ("7.1", b"5\r\nhel", Ok(b"hel"), None),
    ("7.1", b"5\r\nhello\r\n0\r\n", Ok(b"hello"), None),
    ("7.1", b"ffffffffffffffff\r\nx", Ok(b"x"), None),
    ("7.1", b"10000000000000000\r\nx", Err(Size), None),
    ("7.1", b"\r\n", Err(Size), None),
    ("7.1", b"+5\r\nhello\r\n", Err(Size), None),
    ("7.1", b"-5\r\nhello\r\n", Err(Size), None),
    ("7.1", b"0x5\r\nhello\r\n", Err(Size), None),
    ("7.1", b" 5\r\nhello\r\n", Err(Size), None),
    ("7.1", b"5g\r\nhello\r\n", Err(Size), None),
    ("7.1", b"5_0\r\nhello\r\n", Err(Size), None),
    ("7.1", b";a=b\r\nhello\r\n", Err(Size), None),
    ("7.1", b"5,5\r\nhello\r\n", Err(Size), None),
    ("2.2", b"5\nhello\r\n", Err(LineEnding), None),
    ("2.2", b"5\rhello\r\n", Err(LineEnding), None),
    ("2.2", b"5\r\r\nhello\r\n", Err(LineEnding), None),
    ("7.1", b"5\r\nhello0\r\n\r\n", Err(LineEnding), None),
    ("7.1", b"5\r\nhello\n0\r\n\r\n", Err(LineEnding), None),
    ("7.1", b"5\r\nhello!\r\n0\r\n\r\n", Err(LineEnding), None),
    ("7.1", b"5\r\nhello\rX", Err(LineEnding), None),
    ("7.1", b"5\r\nhello\r\n\r\n", Err(Size), None),
    ("7.1", b"0\r\n\n", Err(LineEnding), None),
    ("7.1", b"0\r\n\rX", Err(LineEnding), None),
    ("7.1.1", b"1;a\r\nx\r\n0;b=c\r\n\r\n", Ok(b"x"), Some(0)),
    ("7.1.1", b"1 \t;a = \"b;\\\"c\"\r\nx\r\n0\r\n\r\n", Ok(b"x"), Some(0)),
    ("7.1.1", b"1 \r\nx\r\n0\r\n\r\n", Err(Extension), None),
    ("7.1.1", b"1 2\r\nx\r\n0\r\n\r\n", Err(Extension), None),
    ("7.1.1", b"1;a\0\r\nx\r\n0\r\n\r\n", Err(Extension), None),
    ("7.1.1", b"1;a\nx\r\n0\r\n\r\n", Err(LineEnding), None),
    ("7.1.1", b"1;a\rx\r\n0\r\n\r\n", Err(LineEnding), None),
    ("7.1.2", b"0\r\nDigest: abc\r\nX:\r\n\r\nY", Ok(b""), Some(1)),
    ("7.1.2", b"0\r\nContent-Length: 7\r\n\r\n", Ok(b""), Some(0)),
    ("7.1.2", b"0\r\nDigest : abc\r\n\r\n", Err(Trailer), None),
    ("7.1.2", b"0\r\nDigest\r\n\r\n", Err(Trailer), None),
    ("7.1.2", b"0\r\n: abc\r\n\r\n", Err(Trailer), None),
    ("7.1.2", b"0\r\nA: b\r\n c\r\n\r\n", Err(Trailer), None),
    ("7.1.2", b"0\r\nA: b\0\r\n\r\n", Err(Trailer), None),
    ("7.1.2", b"0\r\nGET / HTTP/1.1\r\n\r\n", Err(Trailer), None),
    ("7.1.2", b"0\r\nA: b\n\r\n", Err(LineEnding), None),
    ("7.1.2", b"0\r\nA: b\rX: c\r\n\r\n", Err(LineEnding), None),
];

/// Goal: however a stream is cut, its chunks give the same content, and what is no
/// chunk is refused.
#[test]
fn chunks_are_decoded_strictly() {
    for (section, stream, expected, left) in STREAMS {
        for piece_bytes in 1..=stream.len() {
            let taken = left.map(|left| stream.len() - left);
            let expected = expected.map(|content| (content.to_vec(), taken));
            let found = decode(stream, piece_bytes);
            let stream = stream.escape_ascii();
            assert_eq!(
                found, expected,
                "RFC 9112 {section}: {stream} by {piece_bytes}"
            );
        }
    }
}

/// Goal: size lines, extensions and trailers are taken up to their limits, to the
/// byte.
#[test]
fn what_nobody_reads_is_bounded() {
    let end = b"\r\n\r\n".to_vec();
    let line = |bytes: usize| [b"0".repeat(bytes - 1), end.clone()].concat();
    assert!(
        decode(&line(HTTP_CHUNK_LINE_BYTES_MAX), 1000)
            .unwrap()
            .1
            .is_some()
    );
    assert_eq!(
        decode(&line(HTTP_CHUNK_LINE_BYTES_MAX + 1), 1000),
        Err(TooLong)
    );

    // The name and its colon, then the CR of the last line, count too.
    let rest = HTTP_TRAILER_BYTES_MAX - 4;
    let trailer = |bytes: usize| [&b"0\r\nA:"[..], &b"x".repeat(bytes), &end].concat();
    assert!(decode(&trailer(rest), 1000).unwrap().1.is_some());
    assert_eq!(decode(&trailer(rest + 1), 1000), Err(TooLong));

    // 64 bytes of extension, with the CR behind it, in each chunk.
    let chunk = [&b"1;"[..], &b"x".repeat(63), b"\r\ny\r\n"].concat();
    let chunks_max = HTTP_CHUNK_EXTENSION_BYTES_MAX / 64;
    let stream = |chunks: usize| [chunk.repeat(chunks), b"0\r\n\r\n".to_vec()].concat();
    assert_eq!(
        decode(&stream(chunks_max), 1000).unwrap().0.len(),
        chunks_max
    );
    assert_eq!(decode(&stream(chunks_max + 1), 1000), Err(TooLong));
}

/// Goal: after its end and after an error a decoder takes nothing more.
#[test]
fn ends_and_errors_stay() {
    let mut decoder = ChunkedDecoder::new();
    let step = decoder.decode(b"0\r\n\r\nmore").unwrap();
    assert_eq!(
        (step.data.is_empty(), step.consumed, step.is_finished),
        (true, 5, true)
    );
    let step = decoder.decode(b"more").unwrap();
    assert_eq!((step.consumed, step.is_finished), (0, true));

    let mut decoder = ChunkedDecoder::new();
    assert_eq!(decoder.decode(b"x"), Err(Size));
    assert_eq!(decoder.decode(b"0\r\n\r\n"), Err(Size));
    assert!(!decoder.is_finished());
}
