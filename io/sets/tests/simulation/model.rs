//! What the space should hold, block by block.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_types::{AlignedBuffer, BLOCK_BYTES};

/// Power may tear a block between these.
const SECTOR_BYTES: usize = 512;

/// Content of a block that was never written.
pub(crate) const ZEROS: u64 = 0;

/// The space.
#[derive(Debug, Default)]
pub(crate) struct Model {
    blocks: Vec<Block>,
    /// Completions so far.
    order: u64,
    next_tag: u64,
}

/// What may be found in one block.
#[derive(Debug)]
struct Block {
    /// What was stable at last, then what was written since.
    history: Vec<Written>,
    /// A request is under way there.
    pub(crate) is_busy: bool,
    /// Nothing is promised of it.
    is_undefined: bool,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    tag: u64,
    /// When it was acknowledged.
    done: Option<u64>,
}

impl Model {
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub(crate) fn grow(&mut self, blocks: u64) {
        while self.blocks() < blocks {
            let zeros = Written {
                tag: ZEROS,
                done: Some(0),
            };
            self.blocks.push(Block {
                history: vec![zeros],
                is_busy: false,
                is_undefined: false,
            });
        }
    }

    fn range(&mut self, first: u64, blocks: u64) -> &mut [Block] {
        let (first, blocks) = (
            usize::try_from(first).unwrap(),
            usize::try_from(blocks).unwrap(),
        );
        &mut self.blocks[first..first + blocks]
    }

    /// Takes blocks for a request, if nobody has them.
    pub(crate) fn take(&mut self, first: u64, blocks: u64) -> bool {
        let range = self.range(first, blocks);
        if range.iter().any(|block| block.is_busy) {
            return false;
        }
        for block in range {
            block.is_busy = true;
        }
        true
    }

    pub(crate) fn give_back(&mut self, first: u64, blocks: u64) {
        for block in self.range(first, blocks) {
            block.is_busy = false;
        }
    }

    /// New content for blocks.
    pub(crate) fn write(&mut self, first: u64, blocks: u64) -> Vec<Bytes> {
        self.next_tag += 1;
        let tag = self.next_tag;
        for block in self.range(first, blocks) {
            block.history.push(Written { tag, done: None });
        }
        (first..first + blocks)
            .map(|block| content(block, tag))
            .collect()
    }

    pub(crate) fn written(&mut self, first: u64, blocks: u64, is_durable: bool) {
        self.order += 1;
        let order = self.order;
        for block in self.range(first, blocks) {
            let last = block.history.last_mut().unwrap();
            last.done = Some(order);
            block.is_undefined = false;
            if is_durable {
                block.history.drain(..block.history.len() - 1);
            }
        }
    }

    /// What a flush that is begun now covers.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    pub(crate) fn flushed(&mut self, order: u64) {
        for block in &mut self.blocks {
            let is_covered = |one: &Written| one.done.is_some_and(|done| done <= order);
            if let Some(last) = block.history.iter().rposition(is_covered) {
                block.history.drain(..last);
            }
        }
    }

    /// Power has failed. `has_lost`: a disk is gone with it, or was before.
    pub(crate) fn crashed(&mut self, has_lost: bool) {
        for block in &mut self.blocks {
            block.is_busy = false;
            block.is_undefined |= has_lost && block.history.len() > 1;
        }
    }

    /// Blocks of which several contents, or none, may be found.
    pub(crate) fn uncertain(&self) -> Vec<u64> {
        let blocks = (0..).zip(&self.blocks);
        blocks
            .filter(|(_, block)| block.history.len() > 1 || block.is_undefined)
            .map(|(number, _)| number)
            .collect()
    }

    /// What is wrong with what was read, after a loss of power or (`is_exact`) without one.
    pub(crate) fn check(&mut self, first: u64, read: &[u8], is_exact: bool) -> Result<(), String> {
        let blocks = read.chunks_exact(BLOCK_BYTES);
        for (number, found) in (first..).zip(blocks) {
            let block = &self.range(number, 1)[0];
            if block.is_undefined {
                continue;
            }
            let allowed = match is_exact {
                true => &block.history[block.history.len() - 1..],
                false => &block.history[..],
            };
            for (sector, bytes) in found.chunks_exact(SECTOR_BYTES).enumerate() {
                let is_right = |written: &Written| {
                    let right = content(number, written.tag);
                    right[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES] == *bytes
                };
                if !allowed.iter().any(is_right) {
                    let tag = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    return Err(format!(
                        "block {number}, sector {sector}: {tag} found, {:?} allowed",
                        block.history
                    ));
                }
            }
        }
        Ok(())
    }
}

/// What a block holds that was written with a tag: made once for each.
pub(crate) fn content(block: u64, tag: u64) -> Bytes {
    thread_local! {
        static MADE: std::cell::RefCell<BTreeMap<(u64, u64), Bytes>> = const {
            std::cell::RefCell::new(BTreeMap::new())
        };
    }
    MADE.with_borrow_mut(|made| {
        if made.len() > 4000 {
            made.clear();
        }
        let made = made.entry((block, tag)).or_insert_with(|| {
            let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
            if tag != ZEROS {
                for (at, word) in buffer.chunks_exact_mut(16).enumerate() {
                    word[..8].copy_from_slice(&tag.to_le_bytes());
                    word[8..].copy_from_slice(&(block << 16 | at as u64).to_le_bytes());
                }
            }
            buffer.freeze()
        });
        made.clone()
    })
}
