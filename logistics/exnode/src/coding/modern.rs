//! What the paper calls future work: checksums, encryption under a key that depots never
//! see, compression; each with libraries of today.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use thiserror::Error;

use super::{Place, Random};
use crate::model::{ExNodeId, from_hex};

pub(super) const BLAKE3_BYTES: usize = 32;

const NONCE_BYTES: usize = 12;

/// Nonce and tag.
pub(super) const GCM_BYTES: u64 = 12 + 16;

/// Level of zstd: fast enough for any network that this will see.
const ZSTD_LEVEL: i32 = 3;

/// A key of 256 bits for the files of one owner. Each file has one of its own that is made of
/// it and of the exNode's id, so nonces need to differ within a file only.
#[derive(Clone)]
pub struct FileKey([u8; 32]);

/// Why text is no key.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a key is 64 hexadecimal digits")]
pub struct FileKeyError;

impl FileKey {
    /// From 64 hexadecimal digits; blanks around them do not count.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn parse(text: &str) -> Result<Self, FileKeyError> {
        from_hex(text.trim()).map(Self).ok_or(FileKeyError)
    }

    /// What the exNode says so that a wrong key is told from damage; tells nothing of the key.
    #[must_use]
    pub fn check(&self, id: ExNodeId) -> [u8; 8] {
        let hash = self.derived(b"check", id);
        let mut check = [0; 8];
        check.copy_from_slice(&hash[..8]);
        check
    }

    fn derived(&self, purpose: &[u8], id: ExNodeId) -> [u8; 32] {
        crossdock_checksum::keyed_hash(&self.0, &[b"crossdock exnode ", purpose, &id.0].concat())
    }

    fn of_file(&self, id: ExNodeId) -> LessSafeKey {
        let key = UnboundKey::new(&AES_256_GCM, &self.derived(b"encryption", id));
        LessSafeKey::new(key.expect("32 bytes are a key of AES-256"))
    }
}

impl std::fmt::Debug for FileKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileKey(..)")
    }
}

/// What a block is bound to: 16 bytes of exNode, 4 of shard, 8 of offset, big-endian.
fn bound(place: &Place) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..16].copy_from_slice(&place.id.0);
    bytes[16..20].copy_from_slice(&place.shard.to_be_bytes());
    bytes[20..].copy_from_slice(&place.offset.to_be_bytes());
    bytes
}

pub(super) fn add_blake3(block: &[u8], place: &Place) -> Vec<u8> {
    let mut bytes = blake3_of(block, place).to_vec();
    bytes.extend_from_slice(block);
    bytes
}

pub(super) fn check_blake3(mut block: Vec<u8>, place: &Place) -> Option<Vec<u8>> {
    if block.len() < BLAKE3_BYTES {
        return None;
    }
    let clear = block.split_off(BLAKE3_BYTES);
    (block == blake3_of(&clear, place)).then_some(clear)
}

fn blake3_of(block: &[u8], place: &Place) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bound(place));
    hasher.update(block);
    *hasher.finalize().as_bytes()
}

pub(super) fn encrypt(block: &[u8], place: &Place, key: &FileKey, random: Random<'_>) -> Vec<u8> {
    let mut nonce = [0; NONCE_BYTES];
    random(&mut nonce);
    let mut bytes = nonce.to_vec();
    bytes.extend_from_slice(block);
    let tag = key.of_file(place.id).seal_in_place_separate_tag(
        Nonce::assume_unique_for_key(nonce),
        Aad::from(bound(place)),
        &mut bytes[NONCE_BYTES..],
    );
    bytes.extend_from_slice(tag.expect("a block is short enough for AES-GCM").as_ref());
    bytes
}

pub(super) fn decrypt(mut block: Vec<u8>, place: &Place, key: &FileKey) -> Option<Vec<u8>> {
    let nonce = *block.first_chunk::<NONCE_BYTES>()?;
    let clear = key.of_file(place.id).open_within(
        Nonce::assume_unique_for_key(nonce),
        Aad::from(bound(place)),
        &mut block,
        NONCE_BYTES..,
    );
    let length = clear.ok()?.len();
    block.truncate(length);
    Some(block)
}

pub(super) fn compress(block: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(block, ZSTD_LEVEL).expect("compressing in memory cannot fail")
}

pub(super) fn decompress(block: &[u8], bytes: usize) -> Option<Vec<u8>> {
    zstd::bulk::decompress(block, bytes).ok()
}
