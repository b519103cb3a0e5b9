//! Mode parameters: pages that say how a disk behaves, and what may be changed of it (SPC-4
//! section 7.5, SBC-3 section 6.5).

use thiserror::Error;

use crate::block::block_descriptor;
use crate::bytes::{short, tiny, u16_at};
use crate::cdb::{ModeForm, PageControl};
use crate::sense::{AdditionalSense, Sense};

const RECOVERY: u8 = 0x01;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
const ALL: u8 = 0x3f;

/// What can be different from one unit to the next, or be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModePages {
    /// WCE: a write may be answered before it is on the medium.
    pub is_write_cached: bool,
    /// Whether WCE may be changed.
    pub may_change_cache: bool,
    /// Whether D_SENSE and SWP may be changed.
    pub may_change_control: bool,
    /// D_SENSE: sense data has descriptor format.
    pub is_descriptor_sense: bool,
    /// SWP: nothing may be written.
    pub is_software_protected: bool,
}

/// What MODE SENSE tells beside the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeParameters {
    /// Blocks of the unit.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// WP: nothing can be written.
    pub is_protected: bool,
}

/// Why MODE SELECT changes nothing.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ModeError {
    /// The list is cut in a field, or says that it is longer than it is.
    #[error("the parameter list has another length than it says")]
    Length,
    /// A page or a field in it cannot be as it is asked for.
    #[error("byte {byte} of the parameter list is not valid")]
    Field {
        /// Its place in the list.
        byte: u16,
    },
}

impl From<ModeError> for Sense {
    fn from(error: ModeError) -> Self {
        match error {
            ModeError::Length => Self::illegal(AdditionalSense::LIST_LENGTH),
            ModeError::Field { byte } => Self::invalid_parameter(byte, None),
        }
    }
}

/// Which values a page is to have.
#[derive(Clone, Copy)]
enum Values {
    Of(ModePages),
    Changeable(ModePages),
}

impl ModePages {
    /// MODE SENSE: header, block descriptor and pages; `None` if there is no such page.
    #[must_use]
    pub fn sense(
        &self,
        default: &Self,
        parameters: &ModeParameters,
        (form, control): (ModeForm, PageControl),
        (page, subpage): (u8, u8),
        (is_bare, is_long): (bool, bool),
    ) -> Option<Vec<u8>> {
        let values = match control {
            PageControl::Current | PageControl::Saved => Values::Of(*self),
            PageControl::Default => Values::Of(*default),
            PageControl::Changeable => Values::Changeable(*self),
        };
        let pages = values.pages(page, subpage)?;
        let is_long = is_long && form == ModeForm::Ten;
        let descriptor = match is_bare {
            true => Vec::new(),
            false => block_descriptor(parameters.blocks, parameters.block_bytes, is_long),
        };
        // WP, and DPOFUA: both bits of commands are understood.
        let protected = parameters.is_protected || self.is_software_protected;
        let specific = 0x10 | if protected { 0x80 } else { 0 };
        let rest = descriptor.len() + pages.len();
        let mut data = match form {
            ModeForm::Six => vec![tiny(3 + rest), 0, specific, tiny(descriptor.len())],
            ModeForm::Ten => {
                let mut head = short(6 + rest).to_be_bytes().to_vec();
                head.extend([0, specific, u8::from(is_long), 0]);
                head.extend(short(descriptor.len()).to_be_bytes());
                head
            }
        };
        data.extend(descriptor);
        data.extend(pages);
        Some(data)
    }

    /// MODE SELECT: the pages as they are then.
    ///
    /// # Errors
    /// Nothing is changed: the list is none, or asks for what cannot be changed.
    pub fn select(
        &self,
        parameters: &ModeParameters,
        form: ModeForm,
        list: &[u8],
    ) -> Result<Self, ModeError> {
        if list.is_empty() {
            return Ok(*self);
        }
        let (head, descriptor) = match form {
            ModeForm::Six if list.len() >= 4 => (4, usize::from(list[3])),
            ModeForm::Ten if list.len() >= 8 => (8, usize::from(u16_at(list, 6))),
            _ => return Err(ModeError::Length),
        };
        let pages_at = head + descriptor;
        let described = list.get(head..pages_at).ok_or(ModeError::Length)?;
        check_descriptor(parameters, described, head)?;
        let mut selected = *self;
        let mut at = pages_at;
        while at < list.len() {
            at += selected.select_page(list, at)?;
        }
        Ok(selected)
    }

    /// Takes a page; the bytes that it has.
    fn select_page(&mut self, list: &[u8], at: usize) -> Result<usize, ModeError> {
        let place = |offset: usize| ModeError::Field {
            byte: short(at + offset),
        };
        let code = list[at] & 0x3f;
        if list[at] & 0x40 != 0 {
            return Err(place(0)); // There are no subpages.
        }
        let length = usize::from(*list.get(at + 1).ok_or(ModeError::Length)?);
        let page = list.get(at..at + 2 + length).ok_or(ModeError::Length)?;
        let current = Values::Of(*self).page(code).ok_or_else(|| place(0))?;
        let mask = Values::Changeable(*self).page(code).unwrap_or_default();
        if page.len() != current.len() {
            return Err(place(1));
        }
        // PS is reserved here; fields that cannot be changed have to be as they are.
        let differs = |offset: &usize| (page[*offset] ^ current[*offset]) & !mask[*offset] != 0;
        if let Some(offset) = (2..page.len()).find(differs) {
            return Err(place(offset));
        }
        match code {
            CACHING => self.is_write_cached = page[2] & 0x04 != 0,
            CONTROL => {
                self.is_descriptor_sense = page[2] & 0x04 != 0;
                self.is_software_protected = page[4] & 0x08 != 0;
            }
            _ => {}
        }
        Ok(page.len())
    }
}

/// A block descriptor has to describe the unit as it is; zero blocks: as many as there are.
fn check_descriptor(
    parameters: &ModeParameters,
    described: &[u8],
    at: usize,
) -> Result<(), ModeError> {
    let wrong = |offset: usize| ModeError::Field {
        byte: short(at + offset),
    };
    let is_long = described.len() == 16;
    if !matches!(described.len(), 0 | 8 | 16) {
        return Err(wrong(0));
    }
    if described.is_empty() {
        return Ok(());
    }
    let as_is = block_descriptor(parameters.blocks, parameters.block_bytes, is_long);
    let length_at = if is_long { 12 } else { 4 };
    let is_whole = described[..length_at] == as_is[..length_at]
        || described[..length_at].iter().all(|byte| *byte == 0);
    if !is_whole {
        return Err(wrong(0));
    }
    match described[length_at..] == as_is[length_at..] {
        true => Ok(()),
        false => Err(wrong(length_at)),
    }
}

impl Values {
    /// One page, or all.
    fn pages(self, page: u8, subpage: u8) -> Option<Vec<u8>> {
        match (page, subpage) {
            (ALL, 0 | 0xff) => {
                let codes = [RECOVERY, CACHING, CONTROL, EXCEPTIONS];
                let pages = codes.into_iter().filter_map(|code| self.page(code));
                Some(pages.flatten().collect())
            }
            (_, 0) => self.page(page),
            _ => None,
        }
    }

    fn page(self, code: u8) -> Option<Vec<u8>> {
        let mut page = match code {
            RECOVERY => vec![code, 10],
            CACHING => vec![code, 18],
            CONTROL => vec![code, 10],
            EXCEPTIONS => vec![code, 10],
            _ => return None,
        };
        page.resize(2 + usize::from(page[1]), 0);
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        match (self, code) {
            (Self::Of(_), RECOVERY) => page[2] = 0x80, // AWRE: bad blocks are replaced.
            (Self::Of(pages), CACHING) => page[2] = bit(pages.is_write_cached, 0x04),
            (Self::Changeable(pages), CACHING) => page[2] = bit(pages.may_change_cache, 0x04),
            (Self::Of(pages), CONTROL) => {
                page[2] = bit(pages.is_descriptor_sense, 0x04);
                page[3] = 0x10; // Commands may be reordered as long as nobody sees it.
                page[4] = bit(pages.is_software_protected, 0x08);
                (page[8], page[9]) = (0xff, 0xff); // Busy for how long: nobody knows.
            }
            (Self::Changeable(pages), CONTROL) => {
                page[2] = bit(pages.may_change_control, 0x04);
                page[4] = bit(pages.may_change_control, 0x08);
            }
            _ => {}
        }
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: ModePages = ModePages {
        is_write_cached: true,
        may_change_cache: true,
        may_change_control: true,
        is_descriptor_sense: false,
        is_software_protected: false,
    };
    const PARAMETERS: ModeParameters = ModeParameters {
        blocks: 1000,
        block_bytes: 512,
        is_protected: false,
    };

    fn sense(pages: &ModePages, control: PageControl, page: u8) -> Option<Vec<u8>> {
        let form = (ModeForm::Six, control);
        pages.sense(&PAGES, &PARAMETERS, form, (page, 0), (false, false))
    }

    /// Goal: what is told can be given back as it is, in both forms; and it says how long it
    /// is.
    #[test]
    fn what_is_told_can_be_selected() {
        for (form, head) in [(ModeForm::Six, 1), (ModeForm::Ten, 2)] {
            let all = (0x3f, 0);
            let flags = (false, form == ModeForm::Ten);
            let control = (form, PageControl::Current);
            let told = PAGES.sense(&PAGES, &PARAMETERS, control, all, flags);
            let mut data = told.expect("all pages");
            let length = match form {
                ModeForm::Six => usize::from(data[0]),
                ModeForm::Ten => usize::from(u16::from_be_bytes([data[0], data[1]])),
            };
            assert_eq!(length, data.len() - head);
            data[..head].fill(0);
            assert_eq!(PAGES.select(&PARAMETERS, form, &data), Ok(PAGES));
        }
    }

    /// Goal: what may be changed is, also in one list of several pages; anything else changes
    /// nothing.
    #[test]
    fn only_what_may_be_changed_is() {
        let mut pages = PAGES;
        let mut data = sense(&pages, PageControl::Current, 0x3f).expect("all pages");
        data[0] = 0;
        let caching = 4 + 8 + 12;
        let control = caching + 20;
        assert_eq!((data[caching], data[control]), (CACHING, CONTROL));
        data[caching + 2] = 0;
        data[control + 2] = 0x04;
        data[control + 4] = 0x08;
        pages = pages.select(&PARAMETERS, ModeForm::Six, &data).expect("ok");
        assert!(!pages.is_write_cached && pages.is_descriptor_sense);
        let changed = sense(&pages, PageControl::Current, CONTROL).expect("the page");
        assert_eq!(changed[2], 0x90, "write protected");
        let default = sense(&pages, PageControl::Default, CACHING).expect("the page");
        assert_eq!(default[4 + 8 + 2], 0x04);
        data[caching + 3] = 1;
        let wrong = pages.select(&PARAMETERS, ModeForm::Six, &data);
        let byte = short(caching + 3);
        assert_eq!(wrong, Err(ModeError::Field { byte }));
    }

    /// Goal: lists that are cut, and descriptors of another disk, are refused.
    #[test]
    fn wrong_lists_are_refused() {
        let mut data = sense(&PAGES, PageControl::Current, CACHING).expect("the page");
        data[0] = 0;
        let select = |list: &[u8]| PAGES.select(&PARAMETERS, ModeForm::Six, list);
        for length in [1, 3, 5, 13, data.len() - 1] {
            assert_eq!(select(&data[..length]), Err(ModeError::Length), "{length}");
        }
        assert_eq!(select(&data[..12]), Ok(PAGES), "no pages");
        let mut other = data.clone();
        other[4 + 6] = 8;
        assert_eq!(select(&other), Err(ModeError::Field { byte: 8 }));
        other = data.clone();
        other[12] = 0x3e;
        assert_eq!(select(&other), Err(ModeError::Field { byte: 12 }));
        data[4..8].fill(0);
        assert_eq!(select(&data), Ok(PAGES), "as many blocks as there are");
        assert_eq!(sense(&PAGES, PageControl::Current, 0x19), None);
    }
}
