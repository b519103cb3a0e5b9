//! Copies that a target carries out by itself: EXTENDED COPY and RECEIVE COPY RESULTS with list
//! identifiers of one byte (LID1), and what is told of them (SPC-4, third-party copies).
//!
//! One kind of place is understood – a unit that is known by a name of its page 83h (E4h) – and
//! one kind of segment, from blocks to blocks (02h).

use crate::bytes::{long, short, tiny, u16_at, u32_at, u64_at};
use crate::inquiry::unit_naa;
use crate::sense::{AdditionalSense, FieldPointer, Sense, Status};
use crate::token::token_descriptors;

/// Places that a list may name.
pub const COPY_TARGETS_MAX: u16 = 16;
/// Segments of a list.
pub const COPY_SEGMENTS_MAX: u16 = 64;

const HEADER_BYTES: usize = 16;
const TARGET_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 28;
/// Bytes of all descriptors of a list.
const DESCRIPTORS_BYTES_MAX: usize =
    COPY_TARGETS_MAX as usize * TARGET_BYTES + COPY_SEGMENTS_MAX as usize * SEGMENT_BYTES;

/// Bytes of a parameter list.
#[allow(clippy::cast_possible_truncation)] // A few thousand.
pub const COPY_LIST_BYTES_MAX: u32 = (HEADER_BYTES + DESCRIPTORS_BYTES_MAX) as u32;

/// Bytes of a segment: its number of blocks has 16 bits, and no unit's blocks are larger.
const SEGMENT_LENGTH_MAX: u32 = 0xffff * 4096;

/// Copies at a time, of which each has a list identifier; of all initiators together.
const COPIES_MAX: u8 = 128;

/// Type of a target descriptor: by a designator of page 83h.
const BY_DESIGNATOR: u8 = 0xe4;
/// Type of a segment descriptor: from blocks to blocks.
const BLOCKS_TO_BLOCKS: u8 = 0x02;

/// What RECEIVE COPY RESULTS asks for, by its service action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CopyResults {
    /// How far the copy is.
    Status = 0x00,
    /// What may be in a list.
    OperatingParameters = 0x03,
    /// Why the copy failed.
    FailedSegmentDetails = 0x04,
}

impl CopyResults {
    pub(crate) fn from_action(action: u8) -> Option<Self> {
        let all = [
            Self::Status,
            Self::OperatingParameters,
            Self::FailedSegmentDetails,
        ];
        all.into_iter().find(|known| *known as u8 == action)
    }
}

/// What EXTENDED COPY is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyList {
    /// By which its initiator asks for it; `None`: it will not ask.
    pub list_id: Option<u8>,
    /// Places.
    pub targets: Vec<CopyTarget>,
    /// What goes from where to where, in this order.
    pub segments: Vec<CopySegment>,
}

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyTarget {
    /// Code set, then association and kind, as page 83h has them.
    designator_kind: [u8; 2],
    designator: [u8; 20],
    designator_bytes: u8,
    /// Bytes of a block.
    pub block_bytes: u32,
}

impl CopySegment {
    /// In place of a source's index: there is none, zeros are written. No list has so many places.
    pub const ZEROS: u16 = 0xfffe;
}

impl CopyTarget {
    /// A unit with such blocks, by its name in NAA format.
    #[must_use]
    pub fn of_unit(id: u64, block_bytes: u32) -> Self {
        let mut designator = [0; 20];
        designator[..8].copy_from_slice(&unit_naa(id).to_be_bytes());
        Self {
            designator_kind: [0x01, 0x03],
            designator,
            designator_bytes: 8,
            block_bytes,
        }
    }

    /// The unit's name in NAA format, if that is what it is known by.
    #[must_use]
    pub fn naa(&self) -> Option<u64> {
        // Binary, of the unit, NAA.
        let is_naa = self.designator_kind == [0x01, 0x03] && self.designator_bytes == 8;
        is_naa.then(|| u64_at(&self.designator, 0))
    }
}

/// By which index a segment means the unit to which the command went.
pub const COPY_MANAGER_UNIT: u16 = 0xffff;

/// Blocks that go from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySegment {
    /// Which place has them: an index, or [`COPY_MANAGER_UNIT`].
    pub source: u16,
    /// Which gets them.
    pub destination: u16,
    /// How many; of a list no more than 16 bits tell.
    pub blocks: u32,
    /// DC: of the destination's blocks; else of the source's.
    pub counts_destination: bool,
    /// The first one at the source …
    pub source_lba: u64,
    /// … and at the destination.
    pub destination_lba: u64,
}

/// Reads the parameter list of EXTENDED COPY (LID1).
///
/// # Errors
/// It has something in it that is not understood, or too much, or says that it is longer than
/// it is: the copy does not begin.
pub fn copy_list(list: &[u8]) -> Result<CopyList, Sense> {
    let targets_bytes = usize::from(u16_at(list, 2));
    let segments_bytes = usize::try_from(u32_at(list, 8)).unwrap_or(usize::MAX);
    let descriptors_bytes = targets_bytes.saturating_add(segments_bytes);
    if list.len() < HEADER_BYTES
        || descriptors_bytes > DESCRIPTORS_BYTES_MAX
        || descriptors_bytes > list.len() - HEADER_BYTES
    {
        return Err(Sense::illegal(AdditionalSense::LIST_LENGTH));
    }
    let list_id = match list[1] >> 3 & 3 {
        0 | 2 => Some(list[0]),
        3 if list[0] == 0 => None,
        3 => return Err(Sense::invalid_parameter(0, None)),
        _ => return Err(Sense::invalid_parameter(1, Some(4))),
    };
    if u32_at(list, 12) != 0 {
        return Err(at(AdditionalSense::INLINE_LENGTH, 12));
    }
    if targets_bytes % TARGET_BYTES != 0 {
        return Err(unfit(HEADER_BYTES, targets_bytes, list));
    }
    if targets_bytes / TARGET_BYTES > usize::from(COPY_TARGETS_MAX) {
        return Err(at(AdditionalSense::TOO_MANY_TARGETS, 2));
    }
    let places = (HEADER_BYTES..HEADER_BYTES + targets_bytes).step_by(TARGET_BYTES);
    let targets = places.map(|place| target(list, place));
    let targets = targets.collect::<Result<_, _>>()?;
    let segments_start = HEADER_BYTES + targets_bytes;
    let segments_end = segments_start + segments_bytes;
    let mut segments = Vec::new();
    let mut place = segments_start;
    while place < segments_end {
        if segments.len() == usize::from(COPY_SEGMENTS_MAX) {
            return Err(at(AdditionalSense::TOO_MANY_SEGMENTS, 8));
        }
        segments.push(segment(&list[..segments_end], place)?);
        place += SEGMENT_BYTES;
    }
    Ok(CopyList {
        list_id,
        targets,
        segments,
    })
}

/// Where the target descriptors do not end with one: the first one that is another's is told.
fn unfit(start: usize, bytes: usize, list: &[u8]) -> Sense {
    let mut places = (start..start + bytes).step_by(TARGET_BYTES);
    match places.find(|place| list.get(*place) != Some(&BY_DESIGNATOR)) {
        Some(place) => at(AdditionalSense::UNSUPPORTED_TARGET, place),
        None => Sense::invalid_parameter(2, None),
    }
}

fn target(list: &[u8], place: usize) -> Result<CopyTarget, Sense> {
    let bytes = &list[place..place + TARGET_BYTES];
    // LU ID TYPE and NUL are obsolete, the port of the initiator is ours.
    if bytes[0] != BY_DESIGNATOR {
        return Err(at(AdditionalSense::UNSUPPORTED_TARGET, place));
    }
    if bytes[1] & 0x1f != 0 {
        return Err(Sense::invalid_parameter(pointer(place + 1), Some(4)));
    }
    let mut designator = [0; 20];
    designator.copy_from_slice(&bytes[8..28]);
    if usize::from(bytes[7]) > designator.len() {
        return Err(Sense::invalid_parameter(pointer(place + 7), None));
    }
    Ok(CopyTarget {
        designator_kind: [bytes[4] & 0x0f, bytes[5] & 0x3f],
        designator,
        designator_bytes: bytes[7],
        block_bytes: u32_at(bytes, 28) & 0xff_ffff,
    })
}

fn segment(list: &[u8], place: usize) -> Result<CopySegment, Sense> {
    let bytes = &list[place..];
    if bytes[0] != BLOCKS_TO_BLOCKS {
        return Err(at(AdditionalSense::UNSUPPORTED_SEGMENT, place));
    }
    if bytes.len() < SEGMENT_BYTES {
        return Err(Sense::illegal(AdditionalSense::LIST_LENGTH));
    }
    if usize::from(u16_at(bytes, 2)) != SEGMENT_BYTES - 4 {
        return Err(Sense::invalid_parameter(pointer(place + 2), None));
    }
    Ok(CopySegment {
        counts_destination: bytes[1] & 0x02 != 0,
        source: u16_at(bytes, 4),
        destination: u16_at(bytes, 6),
        blocks: u16_at(bytes, 10).into(),
        source_lba: u64_at(bytes, 12),
        destination_lba: u64_at(bytes, 20),
    })
}

fn pointer(place: usize) -> u16 {
    short(place)
}

/// ILLEGAL REQUEST for a field of the list.
fn at(additional: AdditionalSense, place: usize) -> Sense {
    let field = FieldPointer {
        is_cdb: false,
        bit: None,
        byte: pointer(place),
    };
    Sense {
        field: Some(field),
        ..Sense::illegal(additional)
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyState {
    /// It goes on.
    #[default]
    InProgress,
    /// All was copied.
    Done,
    /// It has ended before that.
    Failed,
}

/// COPY STATUS: how far a copy is, with so many segments done and bytes written.
#[must_use]
pub fn copy_status(state: CopyState, segments: u16, bytes: u64) -> Vec<u8> {
    let state = match state {
        CopyState::InProgress => 0x00,
        CopyState::Done => 0x01,
        CopyState::Failed => 0x02,
    };
    // In bytes, as long as they can be told in 32 bits; else in KiB.
    let (unit, count) = match u32::try_from(bytes) {
        Ok(bytes) => (0, bytes),
        Err(_) => (1, u32::try_from(bytes >> 10).unwrap_or(u32::MAX)),
    };
    let mut data = vec![0, 0, 0, 8, state];
    data.extend(segments.to_be_bytes());
    data.push(unit);
    data.extend(count.to_be_bytes());
    data
}

/// FAILED SEGMENT DETAILS: how a copy has failed; without one that has, that there is nothing.
#[must_use]
pub fn failed_segment_details(failure: Option<(Status, &[u8])>) -> Vec<u8> {
    let Some((status, sense)) = failure else {
        return vec![0; 4];
    };
    let mut data = vec![0; 60];
    data[56] = status as u8;
    data[58..60].copy_from_slice(&short(sense.len()).to_be_bytes());
    data.extend(sense);
    let length = long(data.len() - 4);
    data[..4].copy_from_slice(&length.to_be_bytes());
    data
}

/// OPERATING PARAMETERS: what may be in a list.
#[must_use]
pub fn copy_parameters() -> Vec<u8> {
    let mut data = vec![0; 4];
    data.extend([1, 0, 0, 0]); // SNLID: lists need no identifier.
    data.extend(COPY_TARGETS_MAX.to_be_bytes());
    data.extend(COPY_SEGMENTS_MAX.to_be_bytes());
    data.extend(long(DESCRIPTORS_BYTES_MAX).to_be_bytes());
    data.extend(SEGMENT_LENGTH_MAX.to_be_bytes());
    data.extend([0; 12]); // Inline, held and stream data: none.
    data.extend([0, 0]);
    data.extend([0, COPIES_MAX]); // All copies …
    data.push(COPIES_MAX); // … and those with an identifier.
    data.extend([9, 0, 0]); // Granularity of data: 2^9 bytes.
    data.extend([0; 3]);
    let types = [BLOCKS_TO_BLOCKS, BY_DESIGNATOR];
    data.push(tiny(types.len()));
    data.extend(types);
    let length = long(data.len() - 4);
    data[..4].copy_from_slice(&length.to_be_bytes());
    data
}

/// The body of page 8Fh of a unit with such blocks: tokens, commands, bounds of lists, descriptors,
/// how much at a time.
pub(crate) fn third_party_copy(block_bytes: u32) -> Vec<u8> {
    let mut body = Vec::new();
    let mut add = |code: u16, mut part: Vec<u8>| {
        part.resize(part.len().next_multiple_of(4), 0);
        body.extend(code.to_be_bytes());
        body.extend(short(part.len()).to_be_bytes());
        body.extend(part);
    };
    let results = [
        CopyResults::Status,
        CopyResults::OperatingParameters,
        CopyResults::FailedSegmentDetails,
    ];
    let [limits, features, kinds] = token_descriptors(block_bytes);
    add(limits.0, limits.1);
    let mut commands = vec![
        0x83,
        4,
        0x00,
        0x10,
        0x11,
        0x1c,
        0x84,
        tiny(results.len() + 1),
    ];
    commands.extend(results.map(|action| action as u8));
    commands.push(0x07);
    add(0x0001, [vec![tiny(commands.len())], commands].concat());
    let mut bounds = vec![0; 4];
    bounds.extend(COPY_TARGETS_MAX.to_be_bytes());
    bounds.extend(COPY_SEGMENTS_MAX.to_be_bytes());
    bounds.extend(long(DESCRIPTORS_BYTES_MAX).to_be_bytes());
    bounds.resize(28, 0); // No inline data.
    add(0x0004, bounds);
    add(0x0008, vec![2, BLOCKS_TO_BLOCKS, BY_DESIGNATOR]);
    let [high, low] = COPY_MANAGER_UNIT.to_be_bytes();
    add(0x000c, vec![0, 2, high, low]);
    add(features.0, features.1);
    add(kinds.0, kinds.1);
    let copies = u32::from(COPIES_MAX).to_be_bytes();
    let mut general = [copies, copies, SEGMENT_LENGTH_MAX.to_be_bytes()].concat();
    general.push(9);
    general.resize(32, 0);
    add(0x8001, general);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(usage: u8, targets: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
        let (targets, segments) = (targets.concat(), segments.concat());
        let mut list = vec![7, usage << 3];
        list.extend(short(targets.len()).to_be_bytes());
        list.extend([0; 4]);
        list.extend(long(segments.len()).to_be_bytes());
        list.extend([0; 4]);
        list.extend(targets);
        list.extend(segments);
        list
    }

    fn target() -> Vec<u8> {
        let mut target = vec![0xe4, 0xe0, 0, 0, 0x01, 0x03, 0, 8];
        target.extend([0x31, 2, 3, 4, 5, 6, 7, 8]);
        target.resize(28, 0);
        target.extend([0, 0, 2, 0]);
        target
    }

    fn segment() -> Vec<u8> {
        let mut segment = vec![0x02, 0x02, 0, 24, 0, 0, 0, 1, 0, 0, 1, 2];
        segment.extend(9u64.to_be_bytes());
        segment.extend((1u64 << 40).to_be_bytes());
        segment
    }

    /// Goal: every field lands where it belongs, and names are told apart.
    #[test]
    fn lists_are_read() {
        let bytes = list(0, &[target(), target()], &[segment()]);
        let read = copy_list(&bytes).expect("a list");
        assert_eq!((read.list_id, read.targets.len()), (Some(7), 2));
        let known = read.targets[0];
        assert_eq!(
            (known.naa(), known.block_bytes),
            (Some(0x3102_0304_0506_0708), 512)
        );
        let mut by_port = target();
        by_port[5] |= 0x10;
        let other = copy_list(&list(0, &[by_port], &[])).expect("a list");
        assert_eq!(other.targets[0].naa(), None);
        let expected = CopySegment {
            source: 0,
            destination: 1,
            blocks: 258,
            counts_destination: true,
            source_lba: 9,
            destination_lba: 1 << 40,
        };
        assert_eq!(read.segments, [expected]);
        let mut unnamed = list(3, &[], &[]);
        assert!(copy_list(&unnamed).is_err(), "an identifier that is none");
        unnamed[0] = 0;
        assert_eq!(copy_list(&unnamed).expect("a list").list_id, None);
    }

    /// Goal: what is not understood, is too much, or ends early, is told by its own code and
    /// place.
    #[test]
    fn wrong_lists_are_refused() {
        let sense = |bytes: &[u8]| {
            let sense = copy_list(bytes).expect_err("refused");
            let AdditionalSense(code, qualifier) = sense.additional;
            (code, qualifier, sense.field.map(|field| field.byte))
        };
        let many =
            |targets, segments| list(0, &vec![target(); targets], &vec![segment(); segments]);
        assert_eq!(sense(&many(17, 1)), (0x26, 0x06, Some(2)));
        assert_eq!(sense(&many(1, 65)), (0x26, 0x08, Some(8)));
        assert_eq!(sense(&many(17, 65)), (0x1a, 0, None));
        let whole = many(1, 1);
        for end in [0, 15, 16, 47, 75] {
            assert_eq!(sense(&whole[..end]), (0x1a, 0, None), "{end}");
        }
        let mut strange = target();
        strange[0] = 0xe0;
        let bytes = list(0, &[target(), strange.clone()], &[segment()]);
        assert_eq!(sense(&bytes), (0x26, 0x07, Some(48)));
        let long = [strange, vec![0; 16]].concat();
        assert_eq!(sense(&list(0, &[long], &[])), (0x26, 0x07, Some(16)));
        let mut tape = segment();
        tape[0] = 0x03;
        let bytes = list(0, &[target()], &[segment(), tape]);
        assert_eq!(sense(&bytes), (0x26, 0x09, Some(76)));
        let mut inline = whole.clone();
        inline[15] = 1;
        assert_eq!(sense(&inline), (0x26, 0x0b, Some(12)));
        let cut = list(0, &[target()], &[segment()[..20].to_vec()]);
        assert_eq!(sense(&cut), (0x1a, 0, None));
        assert_eq!(sense(&list(1, &[target()], &[])), (0x26, 0, Some(1)));
    }

    /// Goal: what is told says how long it is, and large counts change their unit.
    #[test]
    fn results_are_told() {
        let parameters = copy_parameters();
        assert_eq!(parameters.len(), 46);
        assert_eq!(parameters[..12], [0, 0, 0, 42, 1, 0, 0, 0, 0, 16, 0, 64]);
        assert_eq!(parameters[43..], [2, 0x02, 0xe4]);
        let status = copy_status(CopyState::Done, 3, 5);
        assert_eq!(status, [0, 0, 0, 8, 1, 0, 3, 0, 0, 0, 0, 5]);
        let status = copy_status(CopyState::Failed, 0, 6 << 32);
        assert_eq!(status[4..], [2, 0, 0, 1, 0x01, 0x80, 0, 0]);
        let details = failed_segment_details(Some((Status::CheckCondition, &[0x70, 0])));
        assert_eq!((details[3], details.len()), (58, 62));
        assert_eq!(details[56..], [2, 0, 0, 2, 0x70, 0]);
        assert_eq!(failed_segment_details(None), [0; 4]);
    }

    /// Goal: page 8Fh is made of descriptors of whole words, one behind the other.
    #[test]
    fn the_page_is_well_formed() {
        let body = third_party_copy(512);
        let (mut place, mut codes) = (0, Vec::new());
        while place < body.len() {
            let length = usize::from(u16_at(&body, place + 2));
            assert_eq!(length % 4, 0);
            codes.push((u16_at(&body, place), length));
            place += 4 + length;
        }
        assert_eq!(place, body.len());
        let expected = [
            (0, 32),
            (1, 16),
            (4, 28),
            (8, 4),
            (0x0c, 4),
            (0x0106, 92),
            (0x0108, 132),
            (0x8001, 32),
        ];
        assert_eq!(codes, expected);
        let commands = [12, 0x83, 4, 0, 0x10, 0x11, 0x1c, 0x84, 4, 0, 3, 4, 7];
        assert_eq!(body[40..53], commands);
        assert_eq!(u64_at(&body, 20), (256 << 20) / 512);
    }
}
