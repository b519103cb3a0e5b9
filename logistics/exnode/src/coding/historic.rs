//! The end-to-end services of the historic tools (LoRS 0.82), byte for byte.

use std::io::{Read, Write};

use aes::cipher::block_padding::NoPadding;
use aes::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, KeyInit, KeyIvInit,
};
use md5::{Digest, Md5};

use super::Random;

/// MD5 in digits, and `:`.
pub(super) const CHECKSUM_BYTES: usize = 33;

/// The IV of AES.
pub(super) const AES_IV_BYTES: u64 = 16;

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

/// IV and AES-128-CBC. What is behind the last whole block of the cipher, with zeros, is
/// encrypted in the place of the block before it, of which so many bytes follow: nothing is
/// added (ciphertext stealing, CS3 of the addendum to NIST SP 800-38A without its swap of whole
/// blocks). A short one takes them of the IV.
pub(super) fn encrypt_aes(clear: &[u8], key: &[u8; 16], random: Random<'_>) -> Vec<u8> {
    let mut iv = [0; 16];
    random(&mut iv);
    let (whole, rest) = clear.split_at(clear.len() / 16 * 16);
    let cipher = cbc::Encryptor::<aes::Aes128>::new(key.into(), &iv.into());
    let mut bytes = iv.to_vec();
    bytes.extend(cipher.encrypt_padded_vec::<NoPadding>(whole));
    if !rest.is_empty() {
        let before = bytes.split_off(bytes.len() - 16);
        let mut last = [0; 16];
        last.copy_from_slice(&before);
        last.iter_mut()
            .zip(rest)
            .for_each(|(byte, rest)| *byte ^= rest);
        let mut last = last.into();
        aes::Aes128::new(key.into()).encrypt_block(&mut last);
        let last: [u8; 16] = last.into();
        let stolen = &before[..rest.len()];
        let (first, second) = match whole.is_empty() {
            true => (stolen, &last[..]),
            false => (&last[..], stolen),
        };
        bytes.extend_from_slice(first);
        bytes.extend_from_slice(second);
    }
    bytes
}

pub(super) fn decrypt_aes(coded: &[u8], key: &[u8; 16]) -> Option<Vec<u8>> {
    let length = coded.len().checked_sub(16)?;
    let rest = length % 16;
    // The last two, of which one is short, are put as they were.
    let mut blocks = coded.to_vec();
    let mut end = Vec::new();
    if rest > 0 {
        let (last, stolen) = match length < 16 {
            true => (rest..rest + 16, 0..rest),
            false => (
                length - rest..length - rest + 16,
                length - rest + 16..length + 16,
            ),
        };
        let stolen = coded[stolen].to_vec();
        let last: [u8; 16] = coded.get(last)?.try_into().ok()?;
        let mut last = last.into();
        aes::Aes128::new(key.into()).decrypt_block(&mut last);
        let last: [u8; 16] = last.into();
        end = last
            .iter()
            .zip(&stolen)
            .map(|(byte, before)| byte ^ before)
            .collect();
        blocks.truncate(length - rest);
        blocks.extend(stolen);
        blocks.extend_from_slice(&last[rest..]);
    }
    let (iv, whole) = blocks.split_first_chunk::<16>()?;
    let cipher = cbc::Decryptor::<aes::Aes128>::new(key.into(), iv.into());
    let mut clear = cipher.decrypt_padded_vec::<NoPadding>(whole).ok()?;
    clear.extend(end);
    Some(clear)
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

/// Of each two bytes the first one, and of the key the last character: LoRS has done so since a
/// mistake that it keeps for old files.
pub(super) fn xor(mut block: Vec<u8>, key: &str) -> Vec<u8> {
    let last = key.as_bytes().last().copied().unwrap_or_default();
    block.iter_mut().step_by(2).for_each(|byte| *byte ^= last);
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

    /// Goal: bytes of any number come back, and are as many and 16 more; what is too short is
    /// none. (What LoRS itself has encrypted is among the tests of `coding`.)
    #[test]
    fn aes_takes_any_number_of_bytes() {
        let key = [7; 16];
        let mut random = |bytes: &mut [u8]| bytes.fill(0xa5);
        for length in 0..70u8 {
            let clear: Vec<u8> = (0..length).collect();
            let coded = encrypt_aes(&clear, &key, &mut random);
            assert_eq!(coded.len(), clear.len() + 16);
            assert_eq!(decrypt_aes(&coded, &key), Some(clear), "{length}");
        }
        assert_eq!(decrypt_aes(&[0; 15], &key), None);
    }

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
