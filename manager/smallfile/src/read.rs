//! Reads: unstable bytes above inlined ones above fragments above zeros.

use bytes::Bytes;
use crossdock_names::FileId;

use crate::machine::block_range;
use crate::map::{BLOCK_BYTES, Blocks};
use crate::overlay::{END, end_of};
use crate::{BackingRead, ReadPiece, ReadPlan, SmallFileError, SmallFiles};

impl SmallFiles {
    /// How to read `length_bytes` at `offset_bytes`, which end at or below the
    /// threshold. The site has cut the range to the file's size; what was
    /// never written is zeros.
    ///
    /// # Errors
    /// [`SmallFileError::BeyondThreshold`].
    pub fn plan_read(
        &mut self,
        file: FileId,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<ReadPlan, SmallFileError> {
        let serial = file.serial();
        let (start, end) = checked_range(offset_bytes, length_bytes)?;
        let mut reader = Reader {
            files: self,
            serial,
            blocks: self.maps.get(serial),
            in_flight: self.in_flight_of(serial),
            pieces: Vec::new(),
        };
        reader.unstable(start, end);
        let pieces = reader.pieces;
        let reads = pieces
            .iter()
            .any(|piece| matches!(piece, ReadPiece::Backing(_)));
        Ok(ReadPlan {
            pieces,
            after: self.unsettled(serial),
            ticket: reads.then(|| self.begin_read()),
        })
    }

    /// New content of blocks of the file that is not in its fragments yet.
    fn in_flight_of(&self, serial: u64) -> &[(usize, Bytes)] {
        let in_flight = self
            .busy
            .get(&serial)
            .and_then(|sequence| self.in_flight.get(sequence));
        let file = in_flight.and_then(|in_flight| in_flight.files.get(&serial));
        file.map_or(&[], |file| &file.contents)
    }
}

/// The range as offsets below the threshold.
pub(crate) fn checked_range(
    offset_bytes: u64,
    length_bytes: u64,
) -> Result<(u32, u32), SmallFileError> {
    let end = offset_bytes
        .checked_add(length_bytes)
        .filter(|&end| end <= u64::from(END));
    let end = end.ok_or(SmallFileError::BeyondThreshold)?;
    let narrow = |offset| u32::try_from(offset).map_err(|_| SmallFileError::BeyondThreshold);
    Ok((narrow(offset_bytes)?, narrow(end)?))
}

/// Collects the pieces of one read, layer by layer from the top.
struct Reader<'a> {
    files: &'a SmallFiles,
    serial: u64,
    blocks: Blocks,
    in_flight: &'a [(usize, Bytes)],
    pieces: Vec<ReadPiece>,
}

impl Reader<'_> {
    fn unstable(&mut self, start: u32, end: u32) {
        let mut next = start;
        for (at, bytes) in self.files.unstable.within(self.serial, start, end) {
            self.inlined(next, at);
            next = end_of(at, &bytes);
            self.pieces.push(ReadPiece::Memory(bytes));
        }
        self.inlined(next, end);
    }

    fn inlined(&mut self, start: u32, end: u32) {
        let mut next = start;
        for (at, bytes) in self.files.inlined.within(self.serial, start, end) {
            self.fragments(next, at);
            next = end_of(at, &bytes);
            self.pieces.push(ReadPiece::Memory(bytes));
        }
        self.fragments(next, end);
    }

    fn fragments(&mut self, start: u32, end: u32) {
        let mut next = start;
        while next < end {
            let index = (next / BLOCK_BYTES) as usize;
            let (block_start, block_end) = block_range(index);
            let to = end.min(block_end);
            self.fragment(index, next - block_start, to - block_start);
            next = to;
        }
    }

    /// The range `start..end` of one block.
    fn fragment(&mut self, index: usize, start: u32, end: u32) {
        let block = self.blocks.blocks[index];
        let stored = end.min(u32::from(block.valid)).max(start);
        if stored > start {
            match self.in_flight.iter().find(|(own, _)| *own == index) {
                Some((_, bytes)) => {
                    let bytes = bytes.slice(start as usize..stored as usize);
                    self.pieces.push(ReadPiece::Memory(bytes));
                }
                None => self.backing(index, start, stored),
            }
        }
        self.zeros(end - stored);
    }

    fn backing(&mut self, index: usize, start: u32, end: u32) {
        let block = &self.blocks.blocks[index];
        let mut reads: Vec<BackingRead> = Vec::new();
        match self.pieces.pop() {
            Some(ReadPiece::Backing(read)) => reads.push(read),
            other => self.pieces.extend(other),
        }
        self.files
            .backing
            .push_read(&mut reads, block, (start, end), self.blocks.version);
        self.pieces
            .extend(reads.into_iter().map(ReadPiece::Backing));
    }

    fn zeros(&mut self, length: u32) {
        if length == 0 {
            return;
        }
        if let Some(ReadPiece::Zeros(last)) = self.pieces.last_mut() {
            *last += length;
        } else {
            self.pieces.push(ReadPiece::Zeros(length));
        }
    }
}
