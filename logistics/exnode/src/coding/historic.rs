//! The end-to-end services of the historic tools (LoRS 0.82), byte for byte.

use std::io::{Read, Write};

use aes::cipher::block_padding::NoPadding;
use aes::cipher::{BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, KeyInit, KeyIvInit};
use md5::{Digest, Md5};

use super::Random;

/// MD5 in digits, and `:`.
pub(super) const CHECKSUM_BYTES: usize = 33;

/// A block of AES; the IV has as much.
pub(super) const AES_BLOCK_BYTES: u64 = 16;

/// A digit, and `:`.
pub(super) const DES_HEAD_BYTES: u64 = 2;

/// Digits of the clear length, and `:`.
const ZLIB_HEAD_BYTES: usize = 13;

pub(super) fn add_md5(block: &[u8]) -> Vec<u8> {
    let mut bytes = crate::model::hex(&Md5::digest(block)).into_bytes();
    bytes.push(b':');
    bytes.extend_from_slice(block);
    bytes
}

pub(super) fn check_md5(mut block: Vec<u8>, skips: bool) -> Option<Vec<u8>> {
    let clear = block.split_off_checked(CHECKSUM_BYTES)?;
    let digits = block.strip_suffix(b":")?;
    let made = crate::model::hex(&Md5::digest(&clear));
    (skips || digits.eq_ignore_ascii_case(made.as_bytes())).then_some(clear)
}

/// `Vec::split_off` for lengths that were not checked before.
trait SplitOffChecked: Sized {
    fn split_off_checked(&mut self, at: usize) -> Option<Self>;
}

impl SplitOffChecked for Vec<u8> {
    fn split_off_checked(&mut self, at: usize) -> Option<Self> {
        (at <= self.len()).then(|| self.split_off(at))
    }
}

pub(super) fn encrypt_aes(block: &[u8], key: &[u8; 16], random: Random<'_>) -> Vec<u8> {
    let mut iv = [0; 16];
    random(&mut iv);
    let mut padded = block.to_vec();
    padded.resize(block.len().next_multiple_of(16), 0);
    let cipher = cbc::Encryptor::<aes::Aes128>::new(key.into(), &iv.into());
    let mut bytes = iv.to_vec();
    bytes.extend(cipher.encrypt_padded_vec::<NoPadding>(&padded));
    bytes
}

pub(super) fn decrypt_aes(block: &[u8], key: &[u8; 16]) -> Option<Vec<u8>> {
    let (iv, coded) = block.split_first_chunk::<16>()?;
    let cipher = cbc::Decryptor::<aes::Aes128>::new(key.into(), iv.into());
    cipher.decrypt_padded_vec::<NoPadding>(coded).ok()
}

pub(super) fn decrypt_des(block: &[u8], key: &str) -> Option<Vec<u8>> {
    let (head, coded) = block.split_first_chunk::<2>()?;
    let added = char::from(head[0]).to_digit(10)? as usize;
    if head[1] != b':' || added >= 8 {
        return None;
    }
    let key = des_key(key.as_bytes());
    let cipher = cbc::Decryptor::<des::Des>::new(&key.into(), &[0; 8].into());
    let mut clear = cipher.decrypt_padded_vec::<NoPadding>(coded).ok()?;
    clear.truncate(clear.len().checked_sub(added)?);
    Some(clear)
}

/// The key that MIT's `string_to_key` makes of a text (RFC 3961 section 6.2, without its
/// correction of weak keys, which came later): the text is folded like a fan, and what that
/// gives is the key of a CBC checksum of the text, which is the key.
fn des_key(text: &[u8]) -> [u8; 8] {
    let mut folded = [0u8; 8];
    for (number, group) in text.chunks(8).enumerate() {
        let mut bytes = [0; 8];
        bytes[..group.len()].copy_from_slice(group);
        // Seven bits of each byte count; every second group runs backwards.
        for (at, &byte) in bytes.iter().enumerate() {
            match number % 2 {
                0 => folded[at] ^= byte << 1,
                _ => folded[7 - at] ^= byte.reverse_bits() & 0xfe,
            }
        }
    }
    let key = with_odd_parity(folded);
    let cipher = des::Des::new(&key.into());
    let mut sum = key;
    for group in text.chunks(8) {
        for (sum, byte) in sum.iter_mut().zip(group) {
            *sum ^= byte;
        }
        let mut block = sum.into();
        cipher.encrypt_block(&mut block);
        sum = block.into();
    }
    with_odd_parity(sum)
}

fn with_odd_parity(bytes: [u8; 8]) -> [u8; 8] {
    bytes.map(|byte| (byte & 0xfe) | u8::from((byte & 0xfe).count_ones() % 2 == 0))
}

pub(super) fn xor(mut block: Vec<u8>, key: &str) -> Vec<u8> {
    for (byte, key) in block.iter_mut().zip(key.as_bytes().iter().cycle()) {
        *byte ^= key;
    }
    block
}

pub(super) fn deflate(block: &[u8]) -> Vec<u8> {
    let head = format!("{:012}:", block.len());
    let mut encoder =
        flate2::write::ZlibEncoder::new(head.into_bytes(), flate2::Compression::default());
    let written = encoder.write_all(block).and_then(|()| encoder.finish());
    written.expect("writing to memory cannot fail")
}

/// At most one byte more than `bytes`, whatever the stream would give.
pub(super) fn inflate(block: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let (head, stream) = block.split_at_checked(ZLIB_HEAD_BYTES)?;
    let digits = std::str::from_utf8(head.strip_suffix(b":")?).ok()?;
    if digits.parse::<usize>().ok()? != bytes {
        return None;
    }
    let mut clear = Vec::with_capacity(bytes);
    let mut decoder = flate2::read::ZlibDecoder::new(stream).take(bytes as u64 + 1);
    decoder.read_to_end(&mut clear).ok()?;
    Some(clear)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: keys of texts are those of RFC 3961 appendix A.2, whose texts are password and
    /// salt in one.
    #[test]
    fn keys_of_texts_are_those_of_the_rfc() {
        let key = |text: &str| crate::model::hex(&des_key(text.as_bytes()));
        assert_eq!(key("passwordATHENA.MIT.EDUraeburn"), "cbc22fae235298e3");
        assert_eq!(key("potatoeWHITEHOUSE.GOVdanny"), "df3d32a74fd92a01");
    }

    /// Goal: what openssl encrypts with the same key and IV (des-cbc, zero IV, of `12345670`)
    /// is read, and what is added is taken off.
    #[test]
    fn des_is_read() {
        let key = des_key(b"secret!");
        let cipher = cbc::Encryptor::<des::Des>::new(&key.into(), &[0; 8].into());
        let mut block = b"1:".to_vec();
        block.extend(cipher.encrypt_padded_vec::<NoPadding>(b"12345670"));
        assert_eq!(decrypt_des(&block, "secret!").unwrap(), b"1234567");
        assert!(decrypt_des(&block[..9], "secret!").is_none());
        assert!(decrypt_des(b"9:", "secret!").is_none());
    }

    /// Goal: a stream that gives more than was said is not inflated to its end.
    #[test]
    fn inflating_is_bounded() {
        let bomb = deflate(&vec![0; 1 << 20]);
        assert!(inflate(&bomb, 100).is_none());
        let mut lies = bomb.clone();
        lies[..13].copy_from_slice(b"000000000100:");
        assert_eq!(inflate(&lies, 100).unwrap().len(), 101);
    }
}
