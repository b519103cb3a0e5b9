//! What INQUIRY returns: standard data (SPC-4 section 6.6.2) and pages of vital product data
//! (SPC-4 section 7.8, SBC-3 section 6.6).

use crate::bytes::{short, tiny};

/// A page of vital product data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum VpdPage {
    /// Which pages there are.
    SupportedPages = 0x00,
    /// Serial number.
    SerialNumber = 0x80,
    /// Names of unit, port and target.
    Identification = 0x83,
    /// What may be copied, and how.
    ThirdPartyCopy = 0x8f,
    /// Bounds of commands.
    BlockLimits = 0xb0,
    /// What kind of medium.
    BlockCharacteristics = 0xb1,
    /// What blocks without space are.
    Provisioning = 0xb2,
}

impl VpdPage {
    /// All pages, by their codes.
    pub const ALL: [Self; 7] = [
        Self::SupportedPages,
        Self::SerialNumber,
        Self::Identification,
        Self::ThirdPartyCopy,
        Self::BlockLimits,
        Self::BlockCharacteristics,
        Self::Provisioning,
    ];

    /// The page of that code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|page| *page as u8 == code)
    }
}

/// What a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// Number of the unit among all of the world, for its serial number and names.
    pub id: u64,
    /// Name of the target.
    pub target: &'a str,
    /// Revision of the product, four characters.
    pub revision: &'a str,
    /// Whether its medium can be taken out.
    pub is_removable: bool,
}

/// Through what a unit is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Number of the port, from 1 on: of iSCSI the target portal group tag.
    pub port: u16,
    /// Number of the group of ports that are equally good.
    pub group: u16,
}

const VENDOR: &str = "CROSSDCK";
const PRODUCT: &str = "Crossdock LUN";

/// Standard data of a disk; `is_present`: whether there is such a unit.
#[must_use]
pub fn standard_inquiry(identity: &Identity<'_>, is_present: bool) -> Vec<u8> {
    // Without a unit: peripheral qualifier 011b, device type 1Fh.
    let removable = if identity.is_removable { 0x80 } else { 0 };
    let mut data = vec![if is_present { 0x00 } else { 0x7f }, removable];
    data.push(0x06); // SPC-4.
    data.push(0x12); // HISUP, response data format 2.
    data.push(0); // Length, see below.
    // TPGS: implicit access states; 3PC: it copies by itself.
    data.push(if is_present { 0x10 | 0x08 } else { 0 });
    data.extend([0, 0x02]); // CMDQUE.
    padded(&mut data, VENDOR, 8);
    padded(&mut data, PRODUCT, 16);
    padded(&mut data, identity.revision, 4);
    data.resize(58, 0);
    for version in [0x00a0u16, 0x0960, 0x0460, 0x04c0] {
        data.extend(version.to_be_bytes()); // SAM-5, iSCSI, SPC-4, SBC-3.
    }
    data.resize(96, 0);
    data[4] = tiny(data.len() - 5);
    data
}

/// Page 00h.
#[must_use]
pub fn supported_pages() -> Vec<u8> {
    let codes = VpdPage::ALL.into_iter().map(|page| page as u8);
    page(VpdPage::SupportedPages, codes.collect())
}

/// Page 80h.
#[must_use]
pub fn unit_serial_number(identity: &Identity<'_>) -> Vec<u8> {
    let number = format!("{:016x}", identity.id);
    page(VpdPage::SerialNumber, number.into_bytes())
}

/// Name of the unit in NAA format, by which copies know it: NAA 3, of this place only, as there
/// is no company's number in it.
#[must_use]
pub const fn unit_naa(id: u64) -> u64 {
    0x3 << 60 | id & ((1 << 60) - 1)
}

/// Page 83h: NAA and T10 names of the unit, numbers of port and group, names of port and
/// target.
#[must_use]
pub fn device_identification(identity: &Identity<'_>, portal: Portal) -> Vec<u8> {
    const BINARY: u8 = 1;
    const ASCII: u8 = 2;
    const UTF8: u8 = 0x53; // Of iSCSI, with what is below.
    const UNIT: u8 = 0x00;
    const PORT: u8 = 0x90; // Protocol identifier valid, of the port.
    const TARGET: u8 = 0xa0;
    let mut body = Vec::new();
    let mut add = |code: u8, kind: u8, name: &[u8]| {
        body.extend([code, kind, 0, tiny(name.len())]);
        body.extend(name);
    };
    add(BINARY, UNIT | 3, &unit_naa(identity.id).to_be_bytes());
    let mut t10 = Vec::new();
    padded(&mut t10, VENDOR, 8);
    t10.extend(format!("{:016x}", identity.id).into_bytes());
    add(ASCII, UNIT | 1, &t10);
    add(0x50 | BINARY, PORT | 4, &numbered(portal.port));
    add(0x50 | BINARY, PORT | 5, &numbered(portal.group));
    let port = format!("{},t,0x{:04x}", identity.target, portal.port);
    add(UTF8, PORT | 8, &name_string(&port));
    add(UTF8, TARGET | 8, &name_string(identity.target));
    page(VpdPage::Identification, body)
}

/// Page 8Fh: which copies the unit, with such blocks, carries out.
#[must_use]
pub fn third_party_copy(block_bytes: u32) -> Vec<u8> {
    let body = crate::copy::third_party_copy(block_bytes);
    page(VpdPage::ThirdPartyCopy, body)
}

/// Bounds of what a command may ask for; 0: none is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Blocks of COMPARE AND WRITE.
    pub compare_blocks_max: u8,
    /// Blocks of which requests are best a multiple.
    pub granularity_blocks: u16,
    /// Blocks of any transfer.
    pub transfer_blocks_max: u32,
    /// Blocks of one that is worth it.
    pub transfer_blocks_best: u32,
    /// Blocks of UNMAP, and its descriptors.
    pub unmap_blocks_max: u32,
    /// See above.
    pub unmap_descriptors_max: u32,
    /// Blocks of which UNMAP frees space.
    pub unmap_granularity_blocks: u32,
    /// Blocks of WRITE SAME; 0 blocks are not all of them (WSNZ).
    pub same_blocks_max: u64,
}

/// Page B0h.
#[must_use]
pub fn block_limits(limits: &BlockLimits) -> Vec<u8> {
    let mut body = vec![0x01, limits.compare_blocks_max];
    body.extend(limits.granularity_blocks.to_be_bytes());
    body.extend(limits.transfer_blocks_max.to_be_bytes());
    body.extend(limits.transfer_blocks_best.to_be_bytes());
    body.extend([0; 4]); // Of PRE-FETCH: none.
    body.extend(limits.unmap_blocks_max.to_be_bytes());
    body.extend(limits.unmap_descriptors_max.to_be_bytes());
    body.extend(limits.unmap_granularity_blocks.to_be_bytes());
    // Aligned to the first block, if there is a granularity.
    let valid = u32::from(limits.unmap_granularity_blocks != 0) << 31;
    body.extend(valid.to_be_bytes());
    body.extend(limits.same_blocks_max.to_be_bytes());
    body.resize(60, 0);
    page(VpdPage::BlockLimits, body)
}

/// Page B1h: of a medium that does not turn; nothing is said of its form.
#[must_use]
pub fn block_characteristics() -> Vec<u8> {
    let mut body = vec![0, 1];
    body.resize(60, 0);
    page(VpdPage::BlockCharacteristics, body)
}

/// Page B2h: whether UNMAP, and WRITE SAME with it, free space; what is freed is zeros.
#[must_use]
pub fn logical_block_provisioning(is_thin: bool) -> Vec<u8> {
    let body = match is_thin {
        // LBPU, LBPWS, LBPWS10, LBPRZ; thin.
        true => vec![0, 0x80 | 0x40 | 0x20 | 0x04, 0x02, 0],
        false => vec![0; 4],
    };
    page(VpdPage::Provisioning, body)
}

fn page(page: VpdPage, body: Vec<u8>) -> Vec<u8> {
    let mut data = vec![0, page as u8];
    data.extend(short(body.len()).to_be_bytes());
    data.extend(body);
    data
}

fn numbered(number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [0, 0, high, low]
}

/// Text with a zero behind it, of a multiple of four bytes.
fn name_string(text: &str) -> Vec<u8> {
    let mut name = text.as_bytes().to_vec();
    name.resize((name.len() + 1).next_multiple_of(4), 0);
    name
}

fn padded(data: &mut Vec<u8>, text: &str, length: usize) {
    let bytes = text.bytes().filter(|byte| (0x20..0x7f).contains(byte));
    let spaces = std::iter::repeat(b' ');
    data.extend(bytes.chain(spaces).take(length));
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity<'_> = Identity {
        id: 0xfedc_ba98_7654_3210,
        target: "iqn.2026-11.io.crossdock:disk",
        revision: "0001",
        is_removable: false,
    };

    /// Goal: fields of standard data are where they belong, and it says how long it is.
    #[test]
    fn standard_data_is_laid_out() {
        let data = standard_inquiry(&IDENTITY, true);
        assert_eq!(data[..8], [0, 0, 6, 0x12, 91, 0x18, 0, 2]);
        assert_eq!(&data[8..36], b"CROSSDCKCrossdock LUN   0001");
        assert_eq!(data[58..66], [0, 0xa0, 9, 0x60, 4, 0x60, 4, 0xc0]);
        assert_eq!(data.len(), 96);
        assert_eq!(standard_inquiry(&IDENTITY, false)[0], 0x7f);
        let removable = Identity {
            is_removable: true,
            ..IDENTITY
        };
        assert_eq!(standard_inquiry(&removable, true)[1], 0x80);
    }

    /// Goal: each page has its code and says how long it is; the list has all, in order.
    #[test]
    fn pages_say_what_they_are() {
        let portal = Portal { port: 1, group: 1 };
        let limits = BlockLimits {
            compare_blocks_max: 255,
            granularity_blocks: 8,
            transfer_blocks_max: 1 << 15,
            transfer_blocks_best: 1 << 11,
            unmap_blocks_max: 1 << 20,
            unmap_descriptors_max: 256,
            unmap_granularity_blocks: 8,
            same_blocks_max: 1 << 16,
        };
        let pages = [
            supported_pages(),
            unit_serial_number(&IDENTITY),
            device_identification(&IDENTITY, portal),
            third_party_copy(512),
            block_limits(&limits),
            block_characteristics(),
            logical_block_provisioning(true),
        ];
        for (data, page) in pages.iter().zip(VpdPage::ALL) {
            assert_eq!(data[1], page as u8);
            let length = u16::from_be_bytes([data[2], data[3]]);
            assert_eq!(usize::from(length), data.len() - 4);
        }
        assert_eq!(pages[0][4..], [0, 0x80, 0x83, 0x8f, 0xb0, 0xb1, 0xb2]);
        assert_eq!(pages[4].len(), 64);
        assert_eq!(pages[4][4..8], [1, 255, 0, 8]);
        assert_eq!(pages[4][32..36], [0x80, 0, 0, 0]);
    }

    /// Goal: designators can be walked from one to the next, and names end with a zero.
    #[test]
    fn names_can_be_walked() {
        let data = device_identification(&IDENTITY, Portal { port: 2, group: 3 });
        let mut rest = &data[4..];
        let mut kinds = Vec::new();
        while let [code, kind, 0, length, more @ ..] = rest {
            let (name, more) = more.split_at(usize::from(*length));
            kinds.push((code & 0x0f, kind & 0x3f));
            assert!(code & 0x0f != 3 || name.ends_with(&[0]));
            rest = more;
        }
        assert!(rest.is_empty());
        assert_eq!(
            kinds,
            [(1, 3), (2, 1), (1, 0x14), (1, 0x15), (3, 0x18), (3, 0x28)]
        );
        assert_eq!(data[8], 0x3e, "NAA 3 in place of the number's highest bits");
    }
}
