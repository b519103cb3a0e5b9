//! Copies by tokens: POPULATE TOKEN makes one of blocks of a unit, WRITE USING TOKEN writes what it
//! stands for, and RECEIVE ROD TOKEN INFORMATION gives it and tells of both (SBC-3, SPC-4).
//!
//! A token stands for blocks as they are when it is used (*access upon reference*), and names them
//! itself: a generic ROD token (SPC-4) whose extended data are
//!
//! | offset | bytes | name | meaning (big-endian) |
//! |---|---|---|---|
//! | 256 | 32 | secret | random |
//! | 288 | 8 | expiry | seconds since 1970 |
//! | 296 | 8 | unit | number of the LUN |
//! | 304 | 1 | ranges | how many |
//! | 305 | 7 | – | zero |
//! | 312 | 96 | ranges | first block (8) and blocks (4) of each |
//! | 408 | 88 | – | zero |
//! | 496 | 16 | MAC | of all before it |
//!
//! Who makes it fills in the MAC, and compares it before anything else is looked at.

use crate::bytes::{long, short, u16_at, u32_at, u64_at};
use crate::cdb::BlockRange;
use crate::copy::CopyState;
use crate::inquiry::unit_naa;
use crate::sense::{AdditionalSense, Sense, Status};

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 512;
/// Where its MAC is.
pub const TOKEN_MAC_AT: usize = 496;
/// Ranges of a token, and of what is written by one.
pub const TOKEN_RANGES_MAX: u16 = 8;
/// For how long a token is good, in seconds; no command makes it last longer.
pub const TOKEN_SECONDS: u32 = 3600;
/// Bytes that a token stands for, and that are written by one command.
pub const TOKEN_COPY_BYTES_MAX: u64 = 256 << 20;
/// Bytes of the longest parameter list.
pub const TOKEN_LIST_BYTES_MAX: u32 = 536 + 16 * TOKEN_RANGES_MAX as u32;

const ACCESS_UPON_REFERENCE: u32 = 0x0001_0000;
const ZEROS: u32 = 0xffff_0001;
const LENGTH: u16 = 0x01f8;
const IMMEDIATE: u8 = 0x01;
const DELETES: u8 = 0x02;
const RANGE_BYTES: usize = 16;
const KEPT_RANGE_BYTES: usize = 12;
const RANGES_AT: usize = 312;

/// A token, as initiators keep it.
pub type TokenBytes = [u8; TOKEN_BYTES];

/// What POPULATE TOKEN wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopulateToken {
    /// Blocks of the unit, none of them twice.
    pub ranges: Vec<BlockRange>,
}

/// What WRITE USING TOKEN wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteUsingToken {
    /// From which block of what the token stands for, in blocks of the unit that is written.
    pub offset_blocks: u64,
    /// The token.
    pub token: Box<TokenBytes>,
    /// Where it goes, in this order.
    pub ranges: Vec<BlockRange>,
    /// The command is answered before all is written.
    pub is_immediate: bool,
}

/// Reads the parameter list of POPULATE TOKEN. Whether it is to be answered before it is done (IMMED)
/// is all the same: it is done at once.
///
/// # Errors
/// It wants something that there is not, or says that it is longer than it is.
pub fn populate_token(list: &[u8]) -> Result<PopulateToken, Sense> {
    if list.len() < 16 || usize::from(u16_at(list, 0)) + 2 > list.len() {
        return Err(Sense::illegal(AdditionalSense::LIST_LENGTH));
    }
    if list[2] & !0x03 != 0 {
        return Err(Sense::invalid_parameter(2, None));
    }
    if u32_at(list, 4) > TOKEN_SECONDS {
        return Err(Sense::invalid_parameter(4, None));
    }
    // RTV: the type is asked for.
    if list[2] & 0x02 != 0 && u32_at(list, 8) != ACCESS_UPON_REFERENCE {
        return Err(Sense::invalid_parameter(8, None));
    }
    let ranges = ranges(list, 14)?;
    let mut sorted = ranges.clone();
    sorted.sort_by_key(|range| range.lba);
    let is_twice = sorted
        .windows(2)
        .any(|pair| pair[0].end().is_none_or(|end| end > pair[1].lba));
    match is_twice {
        true => Err(Sense::invalid_parameter(16, None)),
        false => Ok(PopulateToken { ranges }),
    }
}

/// Reads the parameter list of WRITE USING TOKEN. No token is taken back (DEL_TKN).
///
/// # Errors
/// See above.
pub fn write_using_token(list: &[u8]) -> Result<WriteUsingToken, Sense> {
    if list.len() < 536 || usize::from(u16_at(list, 0)) + 2 > list.len() {
        return Err(Sense::illegal(AdditionalSense::LIST_LENGTH));
    }
    if list[2] & DELETES != 0 {
        return Err(Sense::invalid_parameter(2, Some(1)));
    }
    if list[2] & !IMMEDIATE != 0 {
        return Err(Sense::invalid_parameter(2, None));
    }
    let mut token = Box::new([0; TOKEN_BYTES]);
    token.copy_from_slice(&list[16..16 + TOKEN_BYTES]);
    Ok(WriteUsingToken {
        offset_blocks: u64_at(list, 8),
        token,
        ranges: ranges(list, 534)?,
        is_immediate: list[2] & IMMEDIATE != 0,
    })
}

/// The block device range descriptors behind their length.
fn ranges(list: &[u8], length_at: usize) -> Result<Vec<BlockRange>, Sense> {
    let bytes = usize::from(u16_at(list, length_at));
    let place = length_at + 2;
    let told = u16::try_from(length_at).unwrap_or_default();
    if bytes < RANGE_BYTES || bytes % RANGE_BYTES != 0 {
        return Err(Sense::invalid_parameter(told, None));
    }
    if bytes / RANGE_BYTES > usize::from(TOKEN_RANGES_MAX) {
        return Err(Sense::illegal(AdditionalSense::TOO_MANY_SEGMENTS));
    }
    let Some(descriptors) = list.get(place..place + bytes) else {
        return Err(Sense::illegal(AdditionalSense::LIST_LENGTH));
    };
    let range = |descriptor: &[u8]| BlockRange {
        lba: u64_at(descriptor, 0),
        blocks: u32_at(descriptor, 8),
    };
    Ok(descriptors.chunks_exact(RANGE_BYTES).map(range).collect())
}

/// What a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Represented {
    /// Zeros, as many as one likes: every initiator knows that token.
    Zeros,
    /// Blocks of a unit.
    Blocks(RodToken),
}

/// Blocks that a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RodToken {
    /// Number of the LUN.
    pub unit: u64,
    /// Bytes of its blocks.
    pub block_bytes: u32,
    /// Which of them, in this order; at most [`TOKEN_RANGES_MAX`].
    pub ranges: Vec<BlockRange>,
    /// Until when it is good, in seconds since 1970.
    pub expiry_seconds: u64,
    /// Nobody can guess it.
    pub secret: [u8; 32],
}

impl RodToken {
    /// Bytes that it stands for.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let blocks = self.ranges.iter().map(|range| u64::from(range.blocks));
        blocks.sum::<u64>() * u64::from(self.block_bytes)
    }

    /// The token of a unit of that target, without its MAC.
    #[must_use]
    pub fn encode(&self, target: &str) -> Box<TokenBytes> {
        let mut token = Box::new([0; TOKEN_BYTES]);
        let mut put = |at: usize, bytes: &[u8]| token[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &ACCESS_UPON_REFERENCE.to_be_bytes());
        put(6, &LENGTH.to_be_bytes());
        put(8, &self.secret[24..]);
        // The unit as a place of a copy (E4h), by its name in NAA format.
        put(16, &[0xe4, 0, 0, 0, 0x01, 0x03, 0, 8]);
        put(24, &unit_naa(self.unit).to_be_bytes());
        put(44, &self.block_bytes.to_be_bytes());
        put(56, &self.bytes().to_be_bytes());
        put(96, &self.block_bytes.to_be_bytes());
        // The target by its name: a SCSI name string.
        let name = &target.as_bytes()[..target.len().min(120)];
        let length = (name.len() + 1).next_multiple_of(4);
        put(
            128,
            &[0x03, 0x28, 0, u8::try_from(length).unwrap_or(u8::MAX)],
        );
        put(132, name);
        put(256, &self.secret);
        put(288, &self.expiry_seconds.to_be_bytes());
        put(296, &self.unit.to_be_bytes());
        put(304, &[u8::try_from(self.ranges.len()).unwrap_or(u8::MAX)]);
        for (range, place) in self.ranges.iter().zip(0..usize::from(TOKEN_RANGES_MAX)) {
            let at = RANGES_AT + place * KEPT_RANGE_BYTES;
            put(at, &range.lba.to_be_bytes());
            put(at + 8, &range.blocks.to_be_bytes());
        }
        token
    }
}

/// What a token stands for whose MAC is right under `is_made_here`, which is asked for tokens that
/// have one.
///
/// # Errors
/// It is of another kind, or nobody here has made it.
pub fn read_token(
    token: &TokenBytes,
    is_made_here: impl FnOnce(&TokenBytes) -> bool,
) -> Result<Represented, Sense> {
    if u16_at(token, 6) != LENGTH {
        return Err(Sense::illegal(AdditionalSense::TOKEN_LENGTH));
    }
    match u32_at(token, 0) {
        ZEROS => return Ok(Represented::Zeros),
        ACCESS_UPON_REFERENCE => {}
        _ => return Err(Sense::illegal(AdditionalSense::TOKEN_TYPE)),
    }
    let count = usize::from(token[304]);
    if !is_made_here(token) || count > usize::from(TOKEN_RANGES_MAX) {
        return Err(Sense::illegal(AdditionalSense::TOKEN_CORRUPT));
    }
    let mut secret = [0; 32];
    secret.copy_from_slice(&token[256..288]);
    let range = |place: usize| {
        let at = RANGES_AT + place * KEPT_RANGE_BYTES;
        BlockRange {
            lba: u64_at(token, at),
            blocks: u32_at(token, at + 8),
        }
    };
    Ok(Represented::Blocks(RodToken {
        unit: u64_at(token, 296),
        block_bytes: u32_at(token, 96),
        ranges: (0..count).map(range).collect(),
        expiry_seconds: u64_at(token, 288),
        secret,
    }))
}

/// What RECEIVE ROD TOKEN INFORMATION tells of a command.
#[derive(Clone, Copy, Debug)]
pub struct TokenProgress<'a> {
    /// Whether it was POPULATE TOKEN, and not WRITE USING TOKEN.
    pub is_populate: bool,
    /// How far it is.
    pub state: CopyState,
    /// Whether it goes on behind the command's answer.
    pub is_background: bool,
    /// Blocks of its unit that are done.
    pub blocks: u64,
    /// Why it has failed.
    pub sense: Option<&'a [u8]>,
    /// What it has made.
    pub token: Option<&'a TokenBytes>,
}

/// Encodes it (SPC-4, RECEIVE ROD TOKEN INFORMATION parameter data).
#[must_use]
pub fn token_information(progress: &TokenProgress<'_>) -> Vec<u8> {
    let action = match progress.is_populate {
        true => 0x10,
        false => 0x11,
    };
    let (status, completion) = match progress.state {
        CopyState::InProgress if progress.is_background => (0x12, Status::Good),
        CopyState::InProgress => (0x11, Status::Good),
        CopyState::Done => (0x01, Status::Good),
        // It was aborted.
        CopyState::Failed if progress.sense.is_none() => (0x60, Status::TaskAborted),
        CopyState::Failed => (0x02, Status::CheckCondition),
    };
    let sense = progress.sense.unwrap_or_default();
    let sense = &sense[..sense.len().min(252)];
    let sense_bytes = u8::try_from(sense.len()).unwrap_or_default();
    let mut data = vec![0; 4];
    data.extend([action, status, 0, 1]);
    data.extend(UNKNOWN_DELAY.to_be_bytes());
    data.extend([completion as u8, sense_bytes, sense_bytes, LOGICAL_BLOCKS]);
    data.extend(progress.blocks.to_be_bytes());
    data.resize(32, 0); // No segments.
    data.extend(sense);
    match progress.token {
        Some(token) => {
            data.extend(long(2 + TOKEN_BYTES).to_be_bytes());
            data.extend([0, 0]);
            data.extend(token);
        }
        None => data.extend([0; 4]),
    }
    let length = long(data.len() - 4);
    data[..4].copy_from_slice(&length.to_be_bytes());
    data
}

/// When more can be told is not known.
const UNKNOWN_DELAY: u32 = 0xffff_fffe;
/// Counts are in blocks.
const LOGICAL_BLOCKS: u8 = 0xf1;

/// The descriptors of page 8Fh that are about tokens of a unit with such blocks, by their codes.
pub(crate) fn token_descriptors(block_bytes: u32) -> [(u16, Vec<u8>); 3] {
    let most = TOKEN_COPY_BYTES_MAX;
    let blocks = (most / u64::from(block_bytes.max(1))).to_be_bytes();
    let seconds = TOKEN_SECONDS.to_be_bytes();
    let mut limits = vec![0; 6];
    limits.extend(TOKEN_RANGES_MAX.to_be_bytes());
    limits.extend([seconds, seconds].concat()); // Inactive at most, and if nothing is said.
    limits.extend([blocks, blocks].concat()); // At most, and at best.
    let mut features = vec![0; 12]; // Tokens of other targets: none.
    features.extend([seconds, seconds, seconds].concat());
    features.resize(42, 0);
    features.extend(short(48).to_be_bytes());
    // Of block devices.
    features.extend([0, 0, 0, 44, 0, 0, 0, 0]);
    for bytes in [most; 4] {
        features.extend(bytes.to_be_bytes());
    }
    features.resize(features.len() + 8, 0);
    let mut kinds = vec![0, 0];
    kinds.extend(short(2 * 64).to_be_bytes());
    // In and out; in only, as every initiator has it.
    for (kind, ways, preference) in [(ACCESS_UPON_REFERENCE, 0x03, 1u16), (ZEROS, 0x02, 2)] {
        let end = kinds.len() + 64;
        kinds.extend(kind.to_be_bytes());
        kinds.extend([ways, 0]);
        kinds.extend(preference.to_be_bytes());
        kinds.resize(end, 0);
    }
    [(0x0000, limits), (0x0106, features), (0x0108, kinds)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(lba: u64, blocks: u32) -> BlockRange {
        BlockRange { lba, blocks }
    }

    fn with_ranges(mut head: Vec<u8>, ranges: &[BlockRange]) -> Vec<u8> {
        head.extend(short(ranges.len() * RANGE_BYTES).to_be_bytes());
        for range in ranges {
            head.extend(range.lba.to_be_bytes());
            head.extend(range.blocks.to_be_bytes());
            head.extend([0; 4]);
        }
        let length = short(head.len() - 2);
        head[..2].copy_from_slice(&length.to_be_bytes());
        head
    }

    fn code(sense: Sense) -> (u8, u8) {
        let AdditionalSense(code, qualifier) = sense.additional;
        (code, qualifier)
    }

    /// Goal: lists are read field by field; what there is not, blocks that come twice, and lists
    /// that end early, are refused.
    #[test]
    fn lists_are_read() {
        let both = [range(9, 3), range(1 << 40, 8)];
        let list = with_ranges(vec![0; 14], &both);
        assert_eq!(populate_token(&list).expect("a list").ranges, both);
        let refused = |list: &[u8]| code(populate_token(list).expect_err("refused"));
        let mut typed = list.clone();
        (typed[2], typed[9]) = (2, 1);
        assert!(populate_token(&typed).is_ok());
        typed[9] = 0x80; // A copy of a point in time.
        assert_eq!(refused(&typed), (0x26, 0));
        let mut patient = list.clone();
        patient[5] = 1;
        assert_eq!(refused(&patient), (0x26, 0));
        let twice = with_ranges(vec![0; 14], &[range(9, 3), range(11, 1)]);
        assert_eq!(refused(&twice), (0x26, 0));
        let many: Vec<BlockRange> = (0..9).map(|at| range(10 * at, 1)).collect();
        assert_eq!(refused(&with_ranges(vec![0; 14], &many)), (0x26, 8));
        assert_eq!(refused(&with_ranges(vec![0; 14], &[])), (0x26, 0));
        for end in [0, 15, list.len() - 1] {
            assert_eq!(refused(&list[..end]), (0x1a, 0), "{end}");
        }
        let mut head = vec![0; 534];
        head[15] = 7;
        head[16..528].fill(3);
        let list = with_ranges(head, &both);
        let read = write_using_token(&list).expect("a list");
        assert_eq!((read.offset_blocks, *read.token), (7, [3; TOKEN_BYTES]));
        assert_eq!(read.ranges, both);
        assert!(list.len() <= TOKEN_LIST_BYTES_MAX as usize);
        assert!(write_using_token(&list[..list.len() - 1]).is_err());
        let mut list = list;
        for (flags, is_immediate) in [
            (0, Ok(false)),
            (1, Ok(true)),
            (2, Err(Some(1))),
            (4, Err(None)),
        ] {
            list[2] = flags;
            let read = write_using_token(&list).map(|read| read.is_immediate);
            let expected = is_immediate.map_err(|bit| Sense::invalid_parameter(2, bit));
            assert_eq!(read, expected, "{flags}");
        }
    }

    /// Goal: a token says what it stands for to whoever has made it, and nothing before; others
    /// are told apart.
    #[test]
    fn tokens_are_read_by_who_has_made_them() {
        let made = RodToken {
            unit: 7,
            block_bytes: 512,
            ranges: vec![range(9, 3), range(1 << 40, 8)],
            expiry_seconds: 1_800_000_000,
            secret: [5; 32],
        };
        let token = made.encode("iqn.2026-11.io.crossdock:a");
        assert_eq!(token[..8], [0, 1, 0, 0, 0, 0, 1, 0xf8]);
        assert_eq!(token[56..64], (11u64 * 512).to_be_bytes());
        assert_eq!(token[TOKEN_MAC_AT..], [0; 16]);
        assert_eq!(read_token(&token, |_| true), Ok(Represented::Blocks(made)));
        let refused = |token: &TokenBytes| code(read_token(token, |_| false).expect_err("refused"));
        assert_eq!(refused(&token), (0x23, 5));
        let mut zeros = [0; TOKEN_BYTES];
        zeros[..8].copy_from_slice(&[0xff, 0xff, 0, 1, 0, 0, 1, 0xf8]);
        assert_eq!(read_token(&zeros, |_| false), Ok(Represented::Zeros));
        zeros[6] = 0;
        assert_eq!(refused(&zeros), (0x23, 0x0a));
        let mut other = *token;
        other[1] = 0x80;
        assert_eq!(refused(&other), (0x23, 1));
    }

    /// Goal: what is told says how long it is, with a token and without.
    #[test]
    fn progress_is_told() {
        let token = [9; TOKEN_BYTES];
        let mut progress = TokenProgress {
            is_populate: true,
            state: CopyState::Done,
            is_background: false,
            blocks: 11,
            sense: None,
            token: Some(&token),
        };
        let told = token_information(&progress);
        assert_eq!(told.len(), 32 + 4 + 2 + TOKEN_BYTES);
        assert_eq!(u32_at(&told, 0) as usize, told.len() - 4);
        assert_eq!(told[4..8], [0x10, 0x01, 0, 1]);
        assert_eq!((told[15], u64_at(&told, 16)), (0xf1, 11));
        assert_eq!((u32_at(&told, 32), &told[38..]), (514, &token[..]));
        (progress.is_populate, progress.state) = (false, CopyState::Failed);
        (progress.sense, progress.token) = (Some(&[0x70, 0][..]), None);
        let told = token_information(&progress);
        assert_eq!(told[4..6], [0x11, 0x02]);
        assert_eq!((told[12], told[13], told[32]), (2, 2, 0x70));
        assert_eq!(told[34..], [0; 4]);
        progress.sense = None;
        assert_eq!(token_information(&progress)[5], 0x60, "it was aborted");
        progress.state = CopyState::InProgress;
        for (is_background, status) in [(false, 0x11), (true, 0x12)] {
            progress.is_background = is_background;
            assert_eq!(token_information(&progress)[5], status);
        }
    }
}
