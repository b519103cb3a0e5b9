//! Requests in whose content another request is hidden, for readers that disagree about
//! where content ends: all are refused, and nothing behind them is read.

use super::Case;
use super::End::{Closed, Kept};

#[rustfmt::skip]
pub(super) const ROWS: &[Case] = &[
    // Content-Length beside Transfer-Encoding, in both orders (section 6.3, rule 3).
    ("9112 6.3", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /case/file HTTP/1.1\r\nHost: x\r\n\r\n", &[400], Closed),
    ("9112 6.3", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /case/file HTTP/1.1\r\nHost: x\r\n\r\n", &[400], Closed),
    ("9112 6.3", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 5\r\ntransfer-encoding:\tchunked\r\n\r\n0\r\n\r\nGET /case/file HTTP/1.1\r\nHost: x\r\n\r\n", &[400], Closed),
    // Several lengths.
    ("9112 6.3", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 0\r\nContent-Length: 38\r\n\r\nGET /case/file HTTP/1.1\r\nHost: x\r\n\r\n", &[400], Closed),
    ("9112 6.3", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", &[400], Closed),
    ("9110 8.6", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 5, 5\r\n\r\nhello", &[400], Closed),
    ("9110 8.6", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: +5\r\n\r\nhello", &[400], Closed),
    ("9110 8.6", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: -5\r\n\r\nhello", &[400], Closed),
    ("9110 8.6", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 0x5\r\n\r\nhello", &[400], Closed),
    ("9110 8.6", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 5 5\r\n\r\nhello", &[400], Closed),
    ("9110 8.6", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length:\r\n\r\nhello", &[400], Closed),
    ("9110 8.6", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 18446744073709551621\r\n\r\nhello", &[400], Closed),
    ("9112 5.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length : 5\r\n\r\nhello", &[400], Closed),
    // Codings that only some take for chunked.
    ("9112 6.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", &[400], Closed),
    ("9112 6.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", &[400], Closed),
    ("9112 6.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", &[400], Closed),
    ("9112 6.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n", &[400], Closed),
    ("9112 6.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", &[400], Closed),
    ("9112 6.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n", &[400], Closed),
    ("9112 6.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding:\r\n\r\n0\r\n\r\n", &[400], Closed),
    ("9112 5.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", &[400], Closed),
    ("9112 5.2", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", &[400], Closed),
    ("9112 6.1", "PUT /case/n HTTP/1.0\r\n{AUTH}Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n", &[400], Closed),
    // Chunks whose end only some see.
    ("9112 7.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", &[400], Closed),
    ("9112 7.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n", &[400], Closed),
    ("9112 7.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", &[400], Closed),
    ("9112 7.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n", &[400], Closed),
    ("9112 7.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n -5\r\nhello\r\n0\r\n\r\n", &[400], Closed),
    ("9112 7.1.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n5;\nhello\r\n0\r\n\r\n", &[400], Closed),
    ("9112 7.1.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n5 x\r\nhello\r\n0\r\n\r\n", &[400], Closed),
    ("9112 7.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\nGET /case/file HTTP/1.1\r\nHost: x\r\n\r\n", &[400], Closed),
    // A request in the content of one that is refused is content.
    ("9112 9.3", "PUT /case/n HTTP/1.1\r\nHost: x\r\nContent-Length: 36\r\n\r\nGET /case/file HTTP/1.1\r\nHost: x\r\n\r\n", &[401], Kept),
    ("9112 9.3", "POST /case/n HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n24\r\nGET /case/file HTTP/1.1\r\nHost: x\r\n\r\n\r\n0\r\n\r\n", &[405], Closed),
    ("9110 10.1.1", "PUT /case/n HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 36\r\n\r\nGET /case/file HTTP/1.1\r\nHost: x\r\n\r\n", &[401], Closed),
    ("9112 6.3", "GET /case/file HTTP/1.1\r\nHost: x\r\nContent-Length: 36\r\n\r\nGET /case/none HTTP/1.1\r\nHost: x\r\n\r\n", &[200], Kept),
];
