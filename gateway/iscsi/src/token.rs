//! POPULATE TOKEN and WRITE USING TOKEN: a token names the blocks that it stands for itself, and is
//! proved by a MAC that every gateway of the ensemble can make. So the gateway that takes it need
//! not be the one that gave it, and nothing is kept for it. What is written is a copy like any other
//! ([`crate::copying`]); whoever has the token may read those blocks by it.

use crossdock_checksum::{equal_in_constant_time, keyed_hash, mac};
use crossdock_scsi::{
    AdditionalSense, BlockRange, CopyList, CopySegment, CopyState, CopyTarget, Represented,
    RodToken, Sense, Status, TOKEN_COPY_BYTES_MAX, TOKEN_MAC_AT, TOKEN_SECONDS, TokenBytes,
    TokenProgress, populate_token, read_token, token_information, write_using_token,
};
use crossdock_types::{Time, WallTime};

use crate::copying::{CopyProgress, Copying, Told};
use crate::door::IscsiDoor;
use crate::plan::in_range;
use crate::respond::Outcome;
use crate::session::SessionId;
use crate::task::TaskId;
use crate::unit::Unit;

/// Operations of a session of which is told; the oldest numbers that are over are forgotten first.
const OPERATIONS_MAX: usize = 64;

/// A token operation of a session: for RECEIVE ROD TOKEN INFORMATION.
#[derive(Debug, Default)]
pub(crate) struct TokenOperation {
    is_populate: bool,
    /// Of the unit that is read, or written.
    block_bytes: u32,
    pub(crate) progress: CopyProgress,
    /// Its command is answered, and it goes on.
    pub(crate) is_background: bool,
    token: Option<Box<TokenBytes>>,
}

/// What tokens are made with.
#[derive(Clone, Default)]
pub(crate) struct Tokens {
    /// Unknown until the volume is open.
    key: Option<[u8; 32]>,
    now_seconds: u64,
    made_total: u64,
}

impl Tokens {
    fn mac(&self, token: &TokenBytes) -> Option<[u8; 16]> {
        Some(mac(self.key.as_ref()?, &token[..TOKEN_MAC_AT]))
    }

    fn is_made_here(&self, token: &TokenBytes) -> bool {
        let right = self.mac(token);
        right.is_some_and(|right| equal_in_constant_time(&right, &token[TOKEN_MAC_AT..]))
    }
}

impl IscsiDoor {
    /// What gateways of this ensemble make tokens with, made of a key that they share; without one
    /// no tokens are made or taken.
    pub fn learn_token_key(&mut self, shared: &[u8; 32]) {
        self.tokens.key = Some(keyed_hash(shared, b"crossdock iSCSI ROD tokens"));
    }

    /// The time of day by which tokens end.
    pub fn set_wall(&mut self, wall: WallTime) {
        self.tokens.now_seconds = u64::try_from(wall.parts().0).unwrap_or(0);
    }

    /// POPULATE TOKEN.
    pub(crate) fn populate(&mut self, now: Time, id: TaskId, list_id: u32, list: &[u8]) {
        if self.tokens.key.is_none() {
            let busy = Outcome::Status(Status::Busy); // The volume is not open yet.
            return self.complete(now, id, busy);
        }
        if let Err(sense) = self.begin_token_operation(id, list_id, true) {
            return self.complete(now, id, sense.into());
        }
        let made = self.make_token(id, list);
        if let Some(operation) = self.token_operation(id, list_id) {
            match &made {
                Ok((token, bytes)) => {
                    operation.progress.end(*bytes);
                    operation.token = Some(token.clone());
                }
                Err(sense) => operation.progress.fail(*sense),
            }
        }
        let outcome = made.map_or_else(Outcome::Sense, |_| Outcome::Good);
        self.complete(now, id, outcome);
    }

    /// The token, and how many bytes it stands for.
    fn make_token(&mut self, id: TaskId, list: &[u8]) -> Result<(Box<TokenBytes>, u64), Sense> {
        let no_unit = || Sense::illegal(AdditionalSense::NO_UNIT);
        let task = self.tasks.get(&id).ok_or_else(no_unit)?;
        let unit = self.units.get(&task.unit).ok_or_else(no_unit)?;
        let ranges = checked(unit, populate_token(list)?.ranges)?;
        self.tokens.made_total += 1;
        let number = self.tokens.made_total.to_be_bytes();
        let token = RodToken {
            unit: unit.lun.id,
            block_bytes: unit.lun.block_bytes,
            ranges,
            expiry_seconds: self.tokens.now_seconds + u64::from(TOKEN_SECONDS),
            secret: keyed_hash(&self.config.seed, &[&b"token"[..], &number].concat()),
        };
        let bytes = token.bytes();
        let mut token = token.encode(&unit.lun.target());
        let right = self.tokens.mac(&token).unwrap_or_default();
        token[TOKEN_MAC_AT..].copy_from_slice(&right);
        Ok((token, bytes))
    }

    fn token_operation(&mut self, id: TaskId, list_id: u32) -> Option<&mut TokenOperation> {
        let task = self.tasks.get(&id)?;
        let session = self.sessions.get_mut(&task.asked.session)?;
        session.tokens.get_mut(&list_id)
    }

    /// WRITE USING TOKEN: the copy waits for its turn.
    pub(crate) fn write_by_token(&mut self, now: Time, id: TaskId, list_id: u32, list: &[u8]) {
        if let Err(sense) = self.begin_token_operation(id, list_id, false) {
            return self.complete(now, id, sense.into());
        }
        match self.copy_of_token(id, list_id, list) {
            Ok((_, true)) if !self.has_room_behind(id) => {
                self.forget_token_operation(id, list_id);
                self.complete(now, id, Outcome::Status(Status::TaskSetFull));
            }
            Ok((copying, is_immediate)) => {
                let copying = copying.answered_early(is_immediate);
                self.begin_copy(now, id, copying);
            }
            Err(sense) => {
                if let Some(operation) = self.token_operation(id, list_id) {
                    operation.progress.fail(sense);
                }
                self.complete(now, id, sense.into());
            }
        }
    }

    fn forget_token_operation(&mut self, id: TaskId, list_id: u32) {
        if let Some(task) = self.tasks.get(&id)
            && let Some(session) = self.sessions.get_mut(&task.asked.session)
        {
            session.tokens.remove(&list_id);
        }
    }

    /// The copy that it is, and whether it is answered before it is done.
    fn copy_of_token(
        &self,
        id: TaskId,
        list_id: u32,
        list: &[u8],
    ) -> Result<(Copying, bool), Sense> {
        let no_unit = || Sense::illegal(AdditionalSense::NO_UNIT);
        let task = self.tasks.get(&id).ok_or_else(no_unit)?;
        let unit = self.units.get(&task.unit).ok_or_else(no_unit)?;
        let wanted = write_using_token(list)?;
        let represented = read_token(&wanted.token, |token| self.tokens.is_made_here(token))?;
        let ranges = checked(unit, wanted.ranges)?;
        let block_bytes = u64::from(unit.lun.block_bytes);
        let (targets, segments) = match represented {
            Represented::Zeros => (Vec::new(), zeros(&ranges)),
            Represented::Blocks(token) => {
                if self.tokens.now_seconds > token.expiry_seconds {
                    return Err(Sense::illegal(AdditionalSense::TOKEN_EXPIRED));
                }
                // Blocks that are not there any more, or others than they were.
                let revoked = || Sense::illegal(AdditionalSense::TOKEN_REVOKED);
                let source = self.units.get(&token.unit).ok_or_else(revoked)?;
                if source.lun.block_bytes != token.block_bytes {
                    return Err(revoked());
                }
                for range in token.ranges.iter().filter(|range| range.blocks > 0) {
                    in_range(&source.lun, *range).map_err(|_| revoked())?;
                }
                let target = CopyTarget::of_unit(token.unit, token.block_bytes);
                let from = wanted.offset_blocks.checked_mul(block_bytes);
                let segments = from.and_then(|from| segments(&token, from, &ranges, block_bytes));
                let beyond = Sense::invalid_parameter(8, None);
                (vec![target], segments.ok_or(beyond)?)
            }
        };
        let list = CopyList {
            list_id: None,
            targets,
            segments,
        };
        let copying = Copying::new(list, unit.lun.file, Told::Token(list_id));
        Ok((copying, wanted.is_immediate))
    }

    fn begin_token_operation(
        &mut self,
        id: TaskId,
        list_id: u32,
        is_populate: bool,
    ) -> Result<(), Sense> {
        let Some(task) = self.tasks.get(&id) else {
            return Ok(());
        };
        let unit = self.units.get(&task.unit);
        let block_bytes = unit.map_or(512, |unit| unit.lun.block_bytes);
        let Some(session) = self.sessions.get_mut(&task.asked.session) else {
            return Ok(());
        };
        let known = session.tokens.get(&list_id);
        if known.is_some_and(|known| known.progress.is_in_progress()) {
            return Err(Sense::illegal(AdditionalSense::IN_PROGRESS));
        }
        if known.is_none() && session.tokens.len() >= OPERATIONS_MAX {
            let mut over = session.tokens.iter();
            let over = over.find(|(_, known)| !known.progress.is_in_progress());
            let over = over.map(|(&number, _)| number);
            let Some(over) = over else {
                return Err(Sense::illegal(AdditionalSense::IN_PROGRESS));
            };
            session.tokens.remove(&over);
        }
        let operation = TokenOperation {
            is_populate,
            block_bytes,
            ..TokenOperation::default()
        };
        session.tokens.insert(list_id, operation);
        Ok(())
    }

    /// RECEIVE ROD TOKEN INFORMATION.
    pub(crate) fn token_results(
        &self,
        session: SessionId,
        (list_id, allocation): (u32, u32),
    ) -> Outcome {
        let unit = self.unit_of(session);
        let is_descriptor = unit.is_some_and(|unit| unit.pages.is_descriptor_sense);
        let session = self.sessions.get(&session);
        let Some(known) = session.and_then(|session| session.tokens.get(&list_id)) else {
            return Sense::invalid_field(2, None).into();
        };
        let (state, bytes, failure) = known.progress.told();
        let sense = failure.map(|sense| sense.encode(is_descriptor));
        let data = token_information(&TokenProgress {
            is_populate: known.is_populate,
            state,
            is_background: known.is_background,
            blocks: bytes / u64::from(known.block_bytes),
            sense: sense.as_deref(),
            token: known.token.as_deref().filter(|_| state == CopyState::Done),
        });
        Outcome::parameters(data, allocation)
    }
}

/// Ranges of a unit that has them, and that are not too many blocks.
fn checked(unit: &Unit, ranges: Vec<BlockRange>) -> Result<Vec<BlockRange>, Sense> {
    let mut bytes = 0;
    for range in ranges.iter().filter(|range| range.blocks > 0) {
        let found = in_range(&unit.lun, *range)?;
        bytes += found.end - found.start;
    }
    match bytes <= TOKEN_COPY_BYTES_MAX {
        true => Ok(ranges),
        false => Err(Sense::invalid_parameter(16, None)),
    }
}

fn zeros(ranges: &[BlockRange]) -> Vec<CopySegment> {
    let segment = |range: &BlockRange| CopySegment {
        source: CopySegment::ZEROS,
        destination: crossdock_scsi::COPY_MANAGER_UNIT,
        blocks: range.blocks,
        counts_destination: true,
        source_lba: 0,
        destination_lba: range.lba,
    };
    ranges.iter().map(segment).collect()
}

/// What goes where of the bytes that a token stands for, from `from` on; `None`: there are not so
/// many, or they do not come out even in blocks of both units.
fn segments(
    token: &RodToken,
    from: u64,
    ranges: &[BlockRange],
    block_bytes: u64,
) -> Option<Vec<CopySegment>> {
    let source_block = u64::from(token.block_bytes);
    let mut sources = token.ranges.iter().map(|range| {
        let start = range.lba * source_block;
        start..start + u64::from(range.blocks) * source_block
    });
    let mut source = 0..0;
    let mut skip = from;
    let mut found = Vec::new();
    for range in ranges {
        let mut at = range.lba * block_bytes;
        let end = at + u64::from(range.blocks) * block_bytes;
        while at < end {
            let length = source.end - source.start;
            if length <= skip {
                skip -= length;
                source = sources.next()?;
                continue;
            }
            source.start += std::mem::take(&mut skip);
            let bytes = (end - at).min(source.end - source.start);
            let is_even = source.start.is_multiple_of(source_block)
                && bytes.is_multiple_of(source_block)
                && bytes.is_multiple_of(block_bytes);
            let blocks = u32::try_from(bytes / block_bytes).ok();
            found.push(CopySegment {
                source: 0,
                destination: crossdock_scsi::COPY_MANAGER_UNIT,
                blocks: blocks.filter(|_| is_even)?,
                counts_destination: true,
                source_lba: source.start / source_block,
                destination_lba: at / block_bytes,
            });
            source.start += bytes;
            at += bytes;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(lba: u64, blocks: u32) -> BlockRange {
        BlockRange { lba, blocks }
    }

    /// Goal: what a token stands for is laid out behind each other, from an offset on, over the
    /// ranges that are written; what is not there is not written, nor what ends within a block.
    #[test]
    fn tokens_are_laid_out() {
        let token = RodToken {
            unit: 7,
            block_bytes: 512,
            ranges: vec![range(100, 8), range(0, 0), range(200, 16)],
            expiry_seconds: 0,
            secret: [0; 32],
        };
        let laid = |from: u64, ranges: &[BlockRange], block_bytes| {
            let found = segments(&token, from, ranges, block_bytes)?;
            let found = found.into_iter();
            let seen = found.map(|it| (it.source_lba, it.destination_lba, it.blocks));
            Some(seen.collect::<Vec<_>>())
        };
        let ranges = [range(5, 4), range(50, 10)];
        assert_eq!(
            laid(6 * 512, &ranges, 512),
            Some(vec![(106, 5, 2), (200, 7, 2), (202, 50, 10)])
        );
        assert_eq!(laid(11 * 512, &ranges, 512), None, "one block too many");
        let large = [range(1, 2), range(9, 1)];
        let expected = vec![(100, 1, 1), (200, 2, 1), (208, 9, 1)];
        assert_eq!(laid(0, &large, 4096), Some(expected));
        assert_eq!(laid(512, &large[..1], 4096), None, "not in whole blocks");
        assert_eq!(laid(0, &[], 512), Some(Vec::new()));
    }
}
