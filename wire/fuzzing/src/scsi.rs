//! SCSI: commands, and the lists that they bring. Targets and seeds.

use crossdock_scsi::{
    COPY_SEGMENTS_MAX, COPY_TARGETS_MAX, CdbError, LogicalUnit, ModeForm, ModePages,
    ModeParameters, OPCODES, PageControl, Represented, Sense, TOKEN_BYTES, TOKEN_RANGES_MAX,
    copy_list, parse_cdb, parse_reserve_out, populate_token, read_token, unit_naa, unmap_list,
    write_using_token,
};

/// Reads a command.
///
/// # Panics
/// If one is refused for a bit that the table allows, or taken with one that it does not.
pub fn scsi_cdb(input: &[u8]) {
    let mut cdb = [0; 16];
    let length = input.len().min(16);
    cdb[..length].copy_from_slice(&input[..length]);
    let is_known = OPCODES.iter().any(|opcode| opcode.code == cdb[0]);
    match parse_cdb(&cdb) {
        Ok(_) => {
            let is_clean = |usage: &[u8]| {
                let mut bytes = cdb.iter().zip(usage).skip(1);
                bytes.all(|(byte, usage)| byte & !usage == 0)
            };
            let mut opcodes = OPCODES.iter().filter(|opcode| opcode.code == cdb[0]);
            assert!(opcodes.any(|opcode| is_clean(opcode.usage)));
        }
        Err(error) => {
            assert_eq!(error == CdbError::Opcode(cdb[0]), !is_known);
            let sense = Sense::from(error);
            assert_eq!(sense.encode(false).len(), 18);
            let descriptor = sense.encode(true);
            assert_eq!(usize::from(descriptor[7]), descriptor.len() - 8);
        }
    }
}

const PARAMETERS: ModeParameters = ModeParameters {
    blocks: 1000,
    block_bytes: 512,
    is_protected: false,
};
const PAGES: ModePages = ModePages {
    is_write_cached: true,
    may_change_cache: true,
    may_change_control: true,
    is_descriptor_sense: false,
    is_software_protected: false,
};

/// Reads the lists of MODE SELECT, UNMAP, PERSISTENT RESERVE OUT, EXTENDED COPY and of tokens, and a
/// unit's number.
///
/// # Panics
/// If pages that were selected are not told as they were selected, or a list has more in it
/// than it may.
pub fn scsi_lists(input: &[u8]) {
    for form in [ModeForm::Six, ModeForm::Ten] {
        if let Ok(selected) = PAGES.select(&PARAMETERS, form, input) {
            let control = (form, PageControl::Current);
            let told = selected.sense(&PAGES, &PARAMETERS, control, (0x3f, 0), (true, false));
            let again = told.map(|mut list| {
                let header_bytes = if form == ModeForm::Six { 1 } else { 2 };
                list[..header_bytes].fill(0);
                PAGES.select(&PARAMETERS, form, &list)
            });
            assert_eq!(again, Some(Ok(selected)));
        }
    }
    if let Ok(descriptors) = unmap_list(input, 8) {
        assert!(descriptors.len() <= 8 && descriptors.len() * 16 <= input.len());
    }
    if parse_reserve_out(input).is_ok() {
        assert_eq!(input.len(), 24);
    }
    if let Ok(list) = copy_list(input) {
        assert!(list.targets.len() <= usize::from(COPY_TARGETS_MAX));
        assert!(list.segments.len() <= usize::from(COPY_SEGMENTS_MAX));
        assert!(16 + list.targets.len() * 32 + list.segments.len() * 28 <= input.len());
    }
    if let Ok(list) = populate_token(input) {
        assert!(16 + 16 * list.ranges.len() <= input.len());
    }
    if let Ok(list) = write_using_token(input) {
        assert!(24 + TOKEN_BYTES + 16 * list.ranges.len() <= input.len());
        if let Ok(Represented::Blocks(token)) = read_token(&list.token, |_| true) {
            assert!(token.ranges.len() <= usize::from(TOKEN_RANGES_MAX));
        }
    }
    if let Some(&bytes) = input.first_chunk() {
        let unit = LogicalUnit::decode(bytes);
        if let LogicalUnit::Number(_) = unit {
            assert_eq!(LogicalUnit::decode(unit.encode()), unit);
        }
    }
}

pub(crate) fn scsi_cdb_seeds() -> Vec<Vec<u8>> {
    let seed = |opcode: &crossdock_scsi::Opcode| {
        let mut cdb = opcode.usage.to_vec();
        if let Some(action) = opcode.action {
            cdb[1] = action.to_be_bytes()[1];
        }
        cdb
    };
    OPCODES.iter().map(seed).collect()
}

pub(crate) fn scsi_lists_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for form in [ModeForm::Six, ModeForm::Ten] {
        let control = (form, PageControl::Current);
        let told = PAGES.sense(&PAGES, &PARAMETERS, control, (0x3f, 0), (false, true));
        seeds.extend(told.map(|mut list| {
            list[0] = 0;
            if form == ModeForm::Ten {
                list[1] = 0;
            }
            list
        }));
    }
    let mut unmap = vec![0, 22, 0, 16, 0, 0, 0, 0];
    unmap.extend([0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0]);
    seeds.push(unmap);
    let mut copy = vec![1, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    copy.extend([0xe4, 0, 0, 0, 0x01, 0x03, 0, 8]);
    copy.extend(unit_naa(7).to_be_bytes());
    copy.extend([0; 14]);
    copy.extend([2, 0, 0x02, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 8]);
    copy.extend([0; 16]);
    seeds.push(copy);
    let mut range = vec![0; 16];
    (range[7], range[11]) = (9, 3);
    let populate = [
        &[0, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16][..],
        &range,
    ]
    .concat();
    seeds.push(populate);
    let mut write = vec![0; 536];
    (write[0], write[1], write[535]) = (2, 0x26, 16);
    write[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 0, 1, 0xf8]);
    seeds.push([write, range].concat());
    seeds.push(vec![1; 24]);
    seeds.push(vec![0x41, 2, 0, 0, 0, 0, 0, 0]);
    seeds
}
