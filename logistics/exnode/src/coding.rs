//! What is done to the bytes of a mapping before they are stored, and undone after they are
//! loaded: the end-to-end services of the historic tools, and those of "Conclusions and
//! Future Work" of the paper.
//!
//! The clear part is cut into blocks of `e2e_blocksize` bytes, the last one shorter; on each
//! block the steps are done one after the other. In the exNode they are nested functions, the
//! first step innermost; `blocksize` of each is the size of one block after it. What
//! compresses makes blocks of any size, so a mapping with it is one block.
//!
//! | function | by whom | a block is then |
//! |---|---|---|
//! | `checksum` | historic | MD5 in 32 hexadecimal digits, `:`, block |
//! | `aes_encrypt` | historic; the key is in the exNode | IV (16 bytes), AES-128-CBC with ciphertext stealing |
//! | `des_encrypt` | historic, read only | number of `0`s added, `:`, DES-CBC of block and `0`s |
//! | `xor_encrypt` | historic, read only | block, each second byte of it XOR the key's last character |
//! | `zlib_compress` | historic | clear length in 12 decimal digits, `:`, zlib stream |
//! | `blake3_checksum` | Crossdock | BLAKE3 of place and block (32 bytes), block |
//! | `aes256_gcm_encrypt` | Crossdock; the key is elsewhere | nonce (12 bytes), AES-256-GCM of the block with its place, tag (16 bytes) |
//! | `zstd_compress` | Crossdock | zstd frame |
//!
//! LoRS does a step to all of a mapping before the next one: what it compresses may be many blocks
//! with a checksum each, and what AES encrypts it cuts into blocks of a multiple of 16 bytes, which
//! are others than those with a checksum. Such *layered* mappings are decoded as a whole; here
//! blocks are made so long that all steps have the same ones.
//!
//! The *place* of a block is the exNode's id, the shard (0, or 1 + number of a block that
//! restores others) and where the block begins in the file: a depot that gives another block
//! is found out.

mod historic;
mod layered;
mod modern;

use std::ops::Range;

use crossdock_limits::EXNODE_BLOCK_BYTES_MAX;
use thiserror::Error;

use crate::group::{Group, Shard};
use crate::model::{ExNodeId, Function, Mapping, Value, from_hex, hex};

pub use modern::{FileKey, FileKeyError};

/// Where random bytes come from: fills what it is given.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

/// One thing that is done to a block.
#[derive(Clone, PartialEq, Eq)]
pub enum Step {
    /// MD5 in front, as the historic tools have it.
    Checksum,
    /// AES-128-CBC under a key that is part of the exNode.
    AesCbc([u8; 16]),
    /// DES-CBC under a key made of text that is part of the exNode; read only.
    Des(String),
    /// XOR with text that is part of the exNode; read only.
    Xor(String),
    /// zlib.
    Zlib,
    /// BLAKE3 of place and block in front.
    Blake3,
    /// AES-256-GCM under a key that is not in the exNode, bound to the block's place; what it
    /// holds tells whether a key is the right one ([`FileKey::check`]).
    AesGcm([u8; 8]),
    /// zstd.
    Zstd,
}

/// The steps of a mapping, in the order in which they were done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coding {
    /// The first is innermost in the exNode.
    pub steps: Vec<Step>,
    /// Size of the one block after each step that compresses, in their order.
    compressed: Vec<u64>,
    /// Size of a block after the first step, as the exNode says it; 0 if it does not.
    first_stored: u64,
}

/// Which block of which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The exNode; zeros if it has no id.
    pub id: ExNodeId,
    /// 0 for the file itself, 1 + number of the shard for what restores others.
    pub shard: u32,
    /// Where the block begins in the file, or in the shard.
    pub offset: u64,
}

/// What a reader brings along.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader<'a> {
    /// The key of encrypted files.
    pub key: Option<&'a FileKey>,
    /// Pass over wrong MD5s: historic tools built for 64 bits computed others.
    pub skips_md5: bool,
}

/// Stored bytes that have to be loaded for some bytes of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covering {
    /// In the allocation.
    pub stored: Range<u64>,
    /// What they are when decoded: relative to the beginning of the mapping.
    pub clear: Range<u64>,
}

/// A mapping's bytes as they are stored, and what the exNode has to say about them.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// What is stored.
    pub bytes: Vec<u8>,
    /// What was done.
    pub function: Option<Function>,
    /// Bytes that were coded together; 0 if nothing was done.
    pub e2e_blocksize: u64,
}

/// Why bytes cannot be coded or decoded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CodingError {
    /// The exNode names a function that is not known.
    #[error("unknown function {0:?}")]
    Unknown(String),
    /// A function says something that cannot be.
    #[error("function {name:?}: {why}")]
    Function {
        /// Which.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// This version only reads it.
    #[error("{0:?} is only read, not written")]
    ReadOnly(&'static str),
    /// A block is longer than is accepted.
    #[error("blocks of more than {EXNODE_BLOCK_BYTES_MAX} bytes are not accepted")]
    Length,
    /// The file is encrypted and no key was given.
    #[error("it is encrypted: a key is needed")]
    KeyMissing,
    /// The key is that of another file or person.
    #[error("it is encrypted under another key")]
    KeyWrong,
    /// The stored bytes are not those that were written: which step noticed it.
    #[error("the block of the file at byte {offset} is damaged ({step})")]
    Damaged {
        /// Where the block begins in the file.
        offset: u64,
        /// Which step noticed it.
        step: &'static str,
    },
}

impl Step {
    /// Its name in exNodes.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::AesCbc(_) => "aes_encrypt",
            Self::Des(_) => "des_encrypt",
            Self::Xor(_) => "xor_encrypt",
            Self::Zlib => "zlib_compress",
            Self::Blake3 => "blake3_checksum",
            Self::AesGcm(_) => "aes256_gcm_encrypt",
            Self::Zstd => "zstd_compress",
        }
    }

    fn compresses(&self) -> bool {
        matches!(self, Self::Zlib | Self::Zstd)
    }

    /// Bytes of a block after it, of `clear` bytes before; what compresses says it itself.
    fn stored_bytes(&self, clear: u64) -> u64 {
        match self {
            Self::Checksum => clear + historic::CHECKSUM_BYTES as u64,
            Self::AesCbc(_) => clear + historic::AES_IV_BYTES,
            Self::Des(_) => historic::DES_HEAD_BYTES + clear.next_multiple_of(8),
            Self::Xor(_) | Self::Zlib | Self::Zstd => clear,
            Self::Blake3 => clear + modern::BLAKE3_BYTES as u64,
            Self::AesGcm(_) => clear + modern::GCM_BYTES,
        }
    }

    fn encode(
        &self,
        block: &[u8],
        place: &Place,
        key: Option<&FileKey>,
        random: Random<'_>,
    ) -> Result<Vec<u8>, CodingError> {
        match self {
            Self::Checksum => Ok(historic::add_md5(block)),
            Self::AesCbc(key) => Ok(historic::encrypt_aes(block, key, random)),
            Self::Des(_) | Self::Xor(_) => Err(CodingError::ReadOnly(self.name())),
            Self::Zlib => Ok(historic::deflate(block)),
            Self::Blake3 => Ok(modern::add_blake3(block, place)),
            Self::AesGcm(_) => {
                let key = key.ok_or(CodingError::KeyMissing)?;
                Ok(modern::encrypt(block, place, key, random))
            }
            Self::Zstd => Ok(modern::compress(block)),
        }
    }

    /// What a block was before it: `bytes` long.
    fn decode(
        &self,
        block: Vec<u8>,
        bytes: usize,
        place: &Place,
        reader: &Reader<'_>,
    ) -> Result<Vec<u8>, CodingError> {
        let clear = match self {
            Self::Checksum => historic::check_md5(block, reader.skips_md5),
            Self::AesCbc(key) => historic::decrypt_aes(&block, key),
            Self::Des(key) => historic::decrypt_des(&block, key),
            Self::Xor(key) => Some(historic::xor(block, key)),
            Self::Zlib => historic::inflate(&block, bytes),
            Self::Blake3 => modern::check_blake3(block, place),
            Self::AesGcm(check) => {
                let key = reader.key.ok_or(CodingError::KeyMissing)?;
                if key.check(place.id) != *check {
                    return Err(CodingError::KeyWrong);
                }
                modern::decrypt(block, place, key)
            }
            Self::Zstd => modern::decompress(&block, bytes),
        };
        match clear {
            Some(clear) if clear.len() == bytes => Ok(clear),
            _ => Err(CodingError::Damaged {
                offset: place.offset,
                step: self.name(),
            }),
        }
    }
}

impl std::fmt::Debug for Step {
    // Keys are not for logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Coding {
    /// One that does `steps`, the first one first.
    #[must_use]
    pub fn new(steps: Vec<Step>) -> Self {
        Self {
            steps,
            compressed: Vec::new(),
            first_stored: 0,
        }
    }

    /// What was done to the bytes of `mapping`.
    ///
    /// # Errors
    /// A function that is not known, or with arguments that cannot be.
    pub fn of(mapping: &Mapping) -> Result<Self, CodingError> {
        let mut coding = Self::default();
        let mut next = mapping.function.as_ref();
        while let Some(function) = next.filter(|function| !Group::is_name(&function.name)) {
            let step = step(function)?;
            if step.compresses() {
                coding.compressed.push(blocksize(function)?);
            }
            coding.first_stored = blocksize(function).unwrap_or(0);
            coding.steps.push(step);
            next = match &function.inner[..] {
                [] => None,
                [inner] => Some(inner),
                _ => return Err(wrong(function, "has more than one function within")),
            };
        }
        coding.steps.reverse();
        coding.compressed.reverse();
        Ok(coding)
    }

    /// Whether what is encrypted can be read with `key`.
    ///
    /// # Errors
    /// [`CodingError::KeyMissing`] and [`CodingError::KeyWrong`].
    pub fn check_key(&self, id: ExNodeId, key: Option<&FileKey>) -> Result<(), CodingError> {
        for step in &self.steps {
            if let Step::AesGcm(check) = step {
                let key = key.ok_or(CodingError::KeyMissing)?;
                if key.check(id) != *check {
                    return Err(CodingError::KeyWrong);
                }
            }
        }
        Ok(())
    }

    /// Whether a mapping is one block, whatever its `e2e_blocksize` says.
    #[must_use]
    pub fn is_one_block(&self) -> bool {
        self.steps.iter().any(Step::compresses)
    }

    /// Bytes of a block of `clear` bytes before each step, and after the last.
    fn sizes(&self, clear: u64) -> Result<Vec<u64>, CodingError> {
        let mut compressed = self.compressed.iter();
        let mut sizes = vec![clear];
        let mut size = clear;
        for step in &self.steps {
            size = match step.compresses() {
                true => *compressed.next().ok_or(CodingError::Length)?,
                false => step.stored_bytes(size),
            };
            sizes.push(size);
        }
        if sizes.iter().any(|&size| size > EXNODE_BLOCK_BYTES_MAX) {
            return Err(CodingError::Length);
        }
        Ok(sizes)
    }

    /// Codes what a mapping covers, in blocks of `block_bytes`; `place` is where it begins.
    /// `shard` is what the exNode says of its origin if it is no part of the file itself.
    ///
    /// # Errors
    /// If a key is missing, a step can only be read, or blocks are too long.
    pub fn encode(
        &self,
        clear: &[u8],
        block_bytes: u64,
        place: Place,
        shard: Option<&Shard>,
        key: Option<&FileKey>,
        random: Random<'_>,
    ) -> Result<Encoded, CodingError> {
        let origin = shard.map(Shard::function);
        if self.steps.is_empty() {
            return Ok(Encoded {
                bytes: clear.to_vec(),
                function: origin,
                e2e_blocksize: 0,
            });
        }
        let whole = clear.len() as u64;
        let block_bytes = match self.is_one_block() || block_bytes >= whole {
            true => whole,
            false => self.unshifted(block_bytes),
        };
        let block_bytes = if block_bytes == 0 { whole } else { block_bytes };
        if block_bytes > EXNODE_BLOCK_BYTES_MAX {
            return Err(CodingError::Length);
        }
        let step_bytes = usize::try_from(block_bytes.max(1)).map_err(|_| CodingError::Length)?;
        let mut bytes = Vec::with_capacity(clear.len() + clear.len() / 16);
        let mut sizes = Vec::new();
        let mut offset = place.offset;
        for block in clear.chunks(step_bytes) {
            let place = Place { offset, ..place };
            let mut coded = block.to_vec();
            for step in &self.steps {
                coded = step.encode(&coded, &place, key, random)?;
                if sizes.len() < self.steps.len() {
                    sizes.push(coded.len() as u64);
                }
            }
            bytes.extend_from_slice(&coded);
            offset += block.len() as u64;
        }
        Ok(Encoded {
            bytes,
            function: self.function(&sizes, origin),
            e2e_blocksize: block_bytes,
        })
    }

    /// The nested functions of the exNode, around `origin`.
    fn function(&self, sizes: &[u64], origin: Option<Function>) -> Option<Function> {
        let mut inner = origin;
        for (step, &size) in self.steps.iter().zip(sizes) {
            let mut function = Function {
                name: step.name().to_owned(),
                inner: inner.into_iter().collect(),
                ..Function::default()
            };
            let size = i64::try_from(size).unwrap_or(i64::MAX);
            let mut argument = |name: &str, value| {
                function.arguments.insert(name.to_owned(), value);
            };
            argument("blocksize", Value::Integer(size));
            match step {
                Step::AesCbc(key) => argument("KEY", Value::Text(hex(key))),
                Step::Des(key) | Step::Xor(key) => argument("KEY", Value::Text(key.clone())),
                Step::AesGcm(check) => argument("key_check", Value::Text(hex(check))),
                _ => {}
            }
            inner = Some(function);
        }
        inner
    }

    /// Which stored bytes have to be loaded for `wanted` bytes of a mapping (relative to its
    /// beginning): whole blocks.
    ///
    /// # Errors
    /// If blocks are too long, or the mapping is shorter than its blocks.
    pub fn covering(&self, mapping: &Mapping, wanted: Range<u64>) -> Result<Covering, CodingError> {
        let clear = clear_bytes(mapping);
        if self.steps.is_empty() {
            let start = mapping.alloc_offset.saturating_add(wanted.start);
            let stored = start..mapping.alloc_offset.saturating_add(wanted.end);
            return Ok(Covering {
                stored,
                clear: wanted,
            });
        }
        if self.is_layered(mapping) {
            let last = self.layers(mapping)?.pop().ok_or(CodingError::Length)?;
            let start = mapping.alloc_offset;
            let stored = start..start.saturating_add(last.stored.0 as u64);
            holds(mapping, stored.end)?;
            return Ok(Covering {
                stored,
                clear: 0..clear,
            });
        }
        let block = self.block_bytes(mapping);
        let first = wanted.start / block;
        let end = wanted.end.div_ceil(block);
        let covered = first * block..end.saturating_mul(block).min(clear);
        let size = *self
            .sizes(block.min(clear))?
            .last()
            .ok_or(CodingError::Length)?;
        let last = match covered.end % block {
            0 => size,
            rest => *self.sizes(rest)?.last().ok_or(CodingError::Length)?,
        };
        let start = mapping.alloc_offset + first * size;
        let length = (end - first).saturating_sub(1).saturating_mul(size) + last;
        holds(mapping, start + length)?;
        Ok(Covering {
            stored: start..start + length,
            clear: covered,
        })
    }

    /// Bytes of the file that are coded together.
    #[must_use]
    pub fn block_bytes(&self, mapping: &Mapping) -> u64 {
        let clear = clear_bytes(mapping).max(1);
        match self.is_one_block() || mapping.e2e_blocksize == 0 {
            true => clear,
            false => mapping.e2e_blocksize.min(clear),
        }
    }

    /// Decodes the stored bytes of `covering`.
    ///
    /// # Errors
    /// If a key is missing or wrong, or a block is damaged.
    pub fn decode(
        &self,
        mapping: &Mapping,
        covering: &Covering,
        stored: Vec<u8>,
        id: ExNodeId,
        reader: &Reader<'_>,
    ) -> Result<Vec<u8>, CodingError> {
        if self.steps.is_empty() {
            return Ok(stored);
        }
        let shard = Shard::of(mapping).ok().flatten();
        let lane = shard.as_ref().map_or(0, |shard| shard.index + 1);
        let origin = match shard {
            Some(_) => 0,
            None => mapping.exnode_offset,
        };
        if self.is_layered(mapping) {
            let place = Place {
                id,
                shard: lane,
                offset: origin,
            };
            return self.decode_layered(mapping, stored, &place, reader);
        }
        let block = self.block_bytes(mapping);
        let mut clear = Vec::with_capacity(stored.len());
        let mut rest = &stored[..];
        let mut at = covering.clear.start;
        while at < covering.clear.end {
            let length = block.min(covering.clear.end - at);
            let sizes = self.sizes(length)?;
            let place = Place {
                id,
                shard: lane,
                offset: origin.saturating_add(at),
            };
            let bytes = usize::try_from(*sizes.last().ok_or(CodingError::Length)?)
                .map_err(|_| CodingError::Length)?;
            let (coded, behind) = rest.split_at_checked(bytes).ok_or(CodingError::Damaged {
                offset: place.offset,
                step: "length",
            })?;
            rest = behind;
            let mut coded = coded.to_vec();
            for (step, &size) in self.steps.iter().zip(&sizes).rev() {
                let size = usize::try_from(size).map_err(|_| CodingError::Length)?;
                coded = step.decode(coded, size, &place, reader)?;
            }
            clear.extend_from_slice(&coded);
            at += length;
        }
        Ok(clear)
    }
}

/// Whether a mapping has the bytes up to this one of its allocation.
fn holds(mapping: &Mapping, end: u64) -> Result<(), CodingError> {
    match end > mapping.alloc_offset.saturating_add(mapping.alloc_length) {
        true => Err(CodingError::Function {
            name: "e2e_blocksize".to_owned(),
            why: "its blocks are more than the mapping holds",
        }),
        false => Ok(()),
    }
}

/// Bytes that a mapping has when decoded: what it covers of the file, or of a shard that
/// restores others.
#[must_use]
pub fn clear_bytes(mapping: &Mapping) -> u64 {
    match Shard::of(mapping) {
        Ok(Some(shard)) => shard.group.shard_bytes,
        _ => mapping.logical_length,
    }
}

fn step(function: &Function) -> Result<Step, CodingError> {
    Ok(match function.name.as_str() {
        "checksum" => Step::Checksum,
        "aes_encrypt" => {
            let key = from_hex(text(function, "KEY")?);
            Step::AesCbc(key.ok_or_else(|| wrong(function, "KEY is not 32 hexadecimal digits"))?)
        }
        "des_encrypt" => Step::Des(text(function, "KEY")?.to_owned()),
        "xor_encrypt" => Step::Xor(text(function, "KEY")?.to_owned()),
        "zlib_compress" => Step::Zlib,
        "blake3_checksum" => Step::Blake3,
        "aes256_gcm_encrypt" => {
            let check = from_hex(text(function, "key_check")?);
            let bad = || wrong(function, "key_check is not 16 hexadecimal digits");
            Step::AesGcm(check.ok_or_else(bad)?)
        }
        "zstd_compress" => Step::Zstd,
        other => return Err(CodingError::Unknown(other.to_owned())),
    })
}

fn text<'a>(function: &'a Function, name: &str) -> Result<&'a str, CodingError> {
    match function.arguments.get(name) {
        Some(Value::Text(text)) if !text.is_empty() => Ok(text),
        _ => Err(wrong(function, "lacks a text that it needs")),
    }
}

fn blocksize(function: &Function) -> Result<u64, CodingError> {
    match function.arguments.get("blocksize") {
        Some(Value::Integer(size)) => {
            u64::try_from(*size).map_err(|_| wrong(function, "blocksize is negative"))
        }
        _ => Err(wrong(function, "has no blocksize")),
    }
}

fn wrong(function: &Function, why: &'static str) -> CodingError {
    let name = function.name.clone();
    CodingError::Function { name, why }
}

#[cfg(test)]
mod tests;
