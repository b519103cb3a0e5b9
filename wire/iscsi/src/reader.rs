//! Cuts the bytes of a connection into PDUs, and checks their digests (RFC 7143 section 11.1).

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use crossdock_checksum::{crc32c, crc32c_append};
use crossdock_types::Payload;
use thiserror::Error;

use crate::header::{BHS_BYTES, Head};
use crate::writer::Digests;

/// A PDU as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// Its header.
    pub header: [u8; BHS_BYTES],
    /// Additional headers.
    pub additional: Bytes,
    /// Its data, without padding.
    pub data: Payload,
    /// Whether the data is what was sent, as far as its digest says.
    pub is_intact: bool,
}

/// Why the next PDU cannot be found: the connection is of no use any more.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PduError {
    /// The header was damaged on the way.
    #[error("the header's digest does not match")]
    HeaderDigest,
    /// The data is longer than was agreed on.
    #[error("{length_bytes} bytes of data are more than {bytes_max}")]
    TooLong {
        /// What the header says.
        length_bytes: usize,
        /// What may be.
        bytes_max: usize,
    },
}

/// Bytes of a connection that are no whole PDU yet.
#[derive(Debug)]
pub struct PduReader {
    chunks: VecDeque<Bytes>,
    length_bytes: usize,
    digests: Digests,
    data_bytes_max: usize,
    /// Of the PDU whose data is not all there.
    head: Option<Headers>,
}

/// A header that was taken, and checked.
#[derive(Debug)]
struct Headers {
    header: [u8; BHS_BYTES],
    additional: Bytes,
    data_bytes: usize,
}

impl PduReader {
    /// A reader of PDUs with at most so much data.
    #[must_use]
    pub const fn new(data_bytes_max: usize) -> Self {
        Self {
            chunks: VecDeque::new(),
            length_bytes: 0,
            digests: Digests {
                header: false,
                data: false,
            },
            data_bytes_max,
            head: None,
        }
    }

    /// From the next PDU on these digests are there, and so much data may be.
    pub const fn agree(&mut self, digests: Digests, data_bytes_max: usize) {
        self.digests = digests;
        self.data_bytes_max = data_bytes_max;
    }

    /// Bytes have arrived.
    pub fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.length_bytes += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// Bytes that wait.
    #[must_use]
    pub const fn waiting_bytes(&self) -> usize {
        self.length_bytes
    }

    /// How many bytes complete the PDU whose header is there; 0 if there is none.
    #[must_use]
    pub fn missing_bytes(&self) -> usize {
        let tail_bytes = self.head.as_ref().map_or(0, |head| self.tail_bytes(head));
        tail_bytes.saturating_sub(self.length_bytes)
    }

    /// Gives away what is there of that PDU's data: it is to come back by
    /// [`push`](Self::push), with the missing bytes behind it, before anything else comes.
    pub fn lend(&mut self) -> Bytes {
        self.take_bytes(self.length_bytes).to_bytes()
    }

    /// The header of the PDU whose data is not all there.
    #[must_use]
    pub fn begun(&self) -> Option<&[u8; BHS_BYTES]> {
        self.head.as_ref().map(|head| &head.header)
    }

    /// Forgets all that has come: nothing of it is served any more.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.length_bytes = 0;
        self.head = None;
    }

    /// Takes the next PDU; `None` if less than one has arrived.
    ///
    /// # Errors
    /// Where the next one begins cannot be told.
    pub fn take(&mut self) -> Result<Option<Pdu>, PduError> {
        if self.head.is_none() {
            self.head = self.take_head()?;
        }
        let Some(head) = self.head.take() else {
            return Ok(None);
        };
        if self.length_bytes < self.tail_bytes(&head) {
            self.head = Some(head);
            return Ok(None);
        }
        let mut data = self.take_bytes(head.data_bytes.next_multiple_of(4));
        let is_intact = !self.has_digest(&head) || {
            let pieces = data.pieces().iter();
            let found = pieces.fold(0, |digest, piece| crc32c_append(digest, piece));
            found == self.take_digest()
        };
        data.truncate(head.data_bytes);
        Ok(Some(Pdu {
            header: head.header,
            additional: head.additional,
            data,
            is_intact,
        }))
    }

    /// Bytes behind a header: data, padding, digest.
    fn tail_bytes(&self, head: &Headers) -> usize {
        let digest_bytes = if self.has_digest(head) { 4 } else { 0 };
        head.data_bytes.next_multiple_of(4) + digest_bytes
    }

    const fn has_digest(&self, head: &Headers) -> bool {
        self.digests.data && head.data_bytes > 0
    }

    /// Headers, once all of them are there.
    fn take_head(&mut self) -> Result<Option<Headers>, PduError> {
        if self.length_bytes < BHS_BYTES {
            return Ok(None);
        }
        let additional_bytes = usize::from(self.byte_at(4)) * 4;
        let digest_bytes = if self.digests.header { 4 } else { 0 };
        if self.length_bytes < BHS_BYTES + additional_bytes + digest_bytes {
            return Ok(None);
        }
        let bytes = self.take_bytes(BHS_BYTES + additional_bytes).to_bytes();
        if self.digests.header && crc32c(&bytes) != self.take_digest() {
            return Err(PduError::HeaderDigest);
        }
        let mut header = [0; BHS_BYTES];
        header.copy_from_slice(&bytes[..BHS_BYTES]);
        let [_, _, _, _, _, a, b, c, ..] = header;
        let head = Head {
            data_bytes: [a, b, c],
            ..Head::default()
        };
        let length_bytes = head.data_length();
        if length_bytes > self.data_bytes_max {
            return Err(PduError::TooLong {
                length_bytes,
                bytes_max: self.data_bytes_max,
            });
        }
        Ok(Some(Headers {
            header,
            additional: bytes.slice(BHS_BYTES..),
            data_bytes: length_bytes,
        }))
    }

    /// A byte that has arrived.
    fn byte_at(&self, mut at: usize) -> u8 {
        for chunk in &self.chunks {
            if let Some(&byte) = chunk.get(at) {
                return byte;
            }
            at -= chunk.len();
        }
        0
    }

    /// The first bytes, which have arrived.
    fn take_bytes(&mut self, mut wanted: usize) -> Payload {
        let mut taken = Payload::new();
        self.length_bytes -= wanted;
        while wanted > 0
            && let Some(chunk) = self.chunks.front_mut()
        {
            if chunk.len() > wanted {
                taken.push(chunk.slice(..wanted));
                chunk.advance(wanted);
                break;
            }
            wanted -= chunk.len();
            taken.push(std::mem::take(chunk));
            self.chunks.pop_front();
        }
        taken
    }

    /// Digests are sent with the least significant byte first (RFC 7143 section 13.1).
    fn take_digest(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.take_bytes(4).copy_to_slice(&mut bytes);
        u32::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::header::{DataOut, opcode};
    use crate::writer::encode;

    const ALL: Digests = Digests {
        header: true,
        data: true,
    };

    fn pdu(data: &'static [u8], digests: Digests) -> Vec<u8> {
        let header = DataOut {
            head: Head::new(opcode::DATA_OUT, 0x80),
            ..DataOut::default()
        };
        let payload = Payload::from(Bytes::from_static(data));
        encode(&header, payload, digests).to_bytes().to_vec()
    }

    /// Goal: PDUs come out as they went in, however they arrive.
    #[test]
    fn pdus_are_cut() {
        for digests in [Digests::default(), ALL] {
            let mut stream = pdu(b"hello", digests);
            stream.extend(pdu(b"", digests));
            stream.extend(pdu(b"12345678", digests));
            for step in [1, 7, stream.len()] {
                let mut reader = PduReader::new(100);
                reader.agree(digests, 100);
                let mut found = Vec::new();
                for chunk in stream.chunks(step) {
                    reader.push(Bytes::copy_from_slice(chunk));
                    while let Some(pdu) = reader.take().expect("nothing is wrong") {
                        assert!(pdu.is_intact);
                        found.push(pdu.data.to_bytes());
                    }
                }
                assert_eq!(found, [&b"hello"[..], b"", b"12345678"]);
                assert_eq!(reader.waiting_bytes(), 0);
            }
        }
    }

    /// Goal: data whose rest is received elsewhere comes out as it went in, wherever the first
    /// bytes of it ended, and so do the PDUs behind it.
    #[test]
    fn data_is_lent_and_given_back() {
        for digests in [Digests::default(), ALL] {
            let mut stream = pdu(b"hello, world", digests);
            let first_bytes = stream.len();
            stream.extend(pdu(b"12345678", digests));
            let head_bytes = if digests.header { 52 } else { 48 };
            for cut in 0..first_bytes {
                let mut reader = PduReader::new(100);
                reader.agree(digests, 100);
                reader.push(Bytes::copy_from_slice(&stream[..cut]));
                assert_eq!(reader.take(), Ok(None));
                if cut < head_bytes {
                    assert_eq!(reader.missing_bytes(), 0);
                    continue;
                }
                assert_eq!(reader.missing_bytes(), first_bytes - cut);
                let mut whole = reader.lend().to_vec();
                assert_eq!((whole.len(), reader.waiting_bytes()), (cut - head_bytes, 0));
                whole.extend_from_slice(&stream[cut..first_bytes]);
                reader.push(whole.into());
                reader.push(Bytes::copy_from_slice(&stream[first_bytes..]));
                for data in [&b"hello, world"[..], b"12345678"] {
                    let pdu = reader.take().expect("nothing is wrong").expect("a PDU");
                    assert!(pdu.is_intact);
                    assert_eq!(pdu.data.to_bytes(), data);
                }
                assert_eq!(reader.missing_bytes(), 0);
            }
        }
    }

    /// Goal: a bit that is turned over in the data is noticed, one in the header ends it.
    #[test]
    fn damage_is_noticed() {
        let whole = pdu(b"hello", ALL);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            let mut reader = PduReader::new(100);
            reader.agree(ALL, 100);
            reader.push(Bytes::from(damaged));
            match reader.take() {
                Ok(Some(pdu)) => assert!(at >= 52 && !pdu.is_intact, "{at}"),
                // A longer header, of which not all has come.
                Ok(None) => assert_eq!(at, 4),
                Err(error) => assert!(at < 52 && error == PduError::HeaderDigest, "{at}"),
            }
        }
    }

    /// Goal: more data than may be is refused before it comes.
    #[test]
    fn too_much_data_is_refused() {
        let mut reader = PduReader::new(4);
        reader.push(Bytes::from(
            pdu(b"hello", Digests::default())[..48].to_vec(),
        ));
        let refused = PduError::TooLong {
            length_bytes: 5,
            bytes_max: 4,
        };
        assert_eq!(reader.take(), Err(refused));
        assert_eq!(DataOut::default().as_bytes().len(), BHS_BYTES);
    }
}
