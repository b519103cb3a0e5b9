//! Mappings of which not all steps have the same blocks: LoRS does a step to all of a mapping before
//! the next one. What it compresses may be many blocks with a checksum each, and what AES encrypts
//! it cuts into blocks of a multiple of 16 bytes.

use crossdock_limits::EXNODE_BLOCK_BYTES_MAX;

use super::{Coding, CodingError, Place, Reader, Step, clear_bytes, historic};
use crate::model::Mapping;

/// Bytes before and after a step, each in all and of one block.
pub(super) struct Layer {
    clear: (usize, usize),
    pub(super) stored: (usize, usize),
}

impl Coding {
    /// Whether AES would have other blocks than the steps before it, for blocks of so many bytes.
    fn shifts(&self, block_bytes: u64) -> bool {
        let mut size = block_bytes;
        self.steps.iter().any(|step| {
            let before = size;
            size = step.stored_bytes(size);
            matches!(step, Step::AesCbc(_)) && !before.is_multiple_of(16)
        })
    }

    /// The longest block up to so many bytes of which all steps have the same blocks; 0 if there is none.
    pub(super) fn unshifted(&self, block_bytes: u64) -> u64 {
        let least = block_bytes.saturating_sub(15).max(1);
        let mut lengths = (least..=block_bytes).rev();
        lengths.find(|&length| !self.shifts(length)).unwrap_or(0)
    }

    /// Bytes of the file in the blocks that the first step had.
    fn first_block(&self, mapping: &Mapping) -> u64 {
        let clear = clear_bytes(mapping).max(1);
        if !self.is_one_block() {
            return self.block_bytes(mapping);
        }
        let added = match self.steps.first() {
            Some(Step::Checksum) => historic::CHECKSUM_BYTES as u64,
            Some(Step::AesCbc(_)) => historic::AES_IV_BYTES,
            Some(Step::Xor(_)) => 0,
            _ => return clear,
        };
        match self.first_stored.saturating_sub(added) {
            0 => clear,
            block => block.min(clear),
        }
    }

    /// Whether all of a mapping has to be decoded at once.
    pub(super) fn is_layered(&self, mapping: &Mapping) -> bool {
        let block = self.first_block(mapping);
        block < clear_bytes(mapping) && (self.is_one_block() || self.shifts(block))
    }

    /// Of a layered mapping: bytes before and after each step, in all and of a block.
    pub(super) fn layers(&self, mapping: &Mapping) -> Result<Vec<Layer>, CodingError> {
        let (mut all, mut block) = (clear_bytes(mapping), self.first_block(mapping));
        let mut compressed = self.compressed.iter();
        let mut layers = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            if matches!(step, Step::AesCbc(_)) {
                block = block.next_multiple_of(16);
            }
            let before;
            if step.compresses() {
                before = (all, all);
                all = *compressed.next().ok_or(CodingError::Length)?;
                block = all.max(1);
            } else {
                before = (all, block);
                let stored = step.stored_bytes(block);
                all = match all % block {
                    0 => all / block * stored,
                    rest => all / block * stored + step.stored_bytes(rest),
                };
                block = stored;
            }
            if all > EXNODE_BLOCK_BYTES_MAX {
                return Err(CodingError::Length);
            }
            let size = |(all, block)| -> Result<(usize, usize), CodingError> {
                let size = usize::try_from(all).ok().zip(usize::try_from(block).ok());
                size.ok_or(CodingError::Length)
            };
            layers.push(Layer {
                clear: size(before)?,
                stored: size((all, block))?,
            });
        }
        Ok(layers)
    }

    /// Decodes all of a layered mapping, one step after the other.
    pub(super) fn decode_layered(
        &self,
        mapping: &Mapping,
        stored: Vec<u8>,
        place: &Place,
        reader: &Reader<'_>,
    ) -> Result<Vec<u8>, CodingError> {
        let layers = self.layers(mapping)?;
        let mut bytes = stored;
        for (step, layer) in self.steps.iter().zip(&layers).rev() {
            let mut clear = Vec::with_capacity(layer.clear.0);
            for coded in bytes.chunks(layer.stored.1) {
                let length = layer.clear.1.min(layer.clear.0 - clear.len());
                clear.extend(step.decode(coded.to_vec(), length, place, reader)?);
            }
            bytes = clear;
        }
        Ok(bytes)
    }
}
