//! What every disk of a node says of itself and of all the others.
//!
//! A disk has two label slots of 16 KiB at its beginning; generation g is written to
//! slot g mod 2, so a torn label leaves the one before. Numbers are little-endian:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `XDSETLBL` |
//! | 8 | 2 | version | 1 |
//! | 10 | 2 | reserved | 0 |
//! | 12 | 4 | length | bytes of the body |
//! | 16 | 4 | checksum | CRC32C of the body |
//! | 20 | | body | |
//!
//! Body: disk (8), pool (8), generation (8), length of the space in bytes (8), bytes of a
//! cell (4), slots of the log (2), stripes of a region (2); number of sets (2), each with
//! kind (1: 1 stripe, 2 mirror, 3 parity; and 16 while it is retired, 32 when it was), stripes (8), stripes that are formatted (8),
//! number of members (2), each with disk (8), state (1: 1 active, 2 failed, 3 rebuilding),
//! stripes rebuilt (8); number of segments (2), each with rows (8), number of shares (2),
//! each with set (2), weight (2), first stripe (8); number of spares (2), their disks (8).
//!
//! A disk that comes to a pool, or back to it, gets a new disk number: what was written
//! under the old one counts no more. Its first label it gets when all others tell of it.

use crossdock_checksum::crc32c;

use crate::codec::{Reader, Writer};
use crate::geometry::{Extent, Geometry, Kind, LABEL_BYTES, Places, Segment, Share, to_usize};

const MAGIC: [u8; 8] = *b"XDSETLBL";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 20;

/// What power can tear a write between, at least.
const SECTOR_BYTES: usize = 512;

/// What is added to the kind of a set.
const RETIRING: u8 = 16;
const RETIRED: u8 = 32;

/// The name of a disk in one pool, for one stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DiskId(pub(crate) u64);

/// All sets of a node, as its labels tell of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) id: u64,
    pub(crate) generation: u64,
    /// How far the space has grown.
    pub(crate) length_bytes: u64,
    pub(crate) geometry: Geometry,
    pub(crate) sets: Vec<SetRecord>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) spares: Vec<DiskId>,
}

/// One set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetRecord {
    pub(crate) kind: Kind,
    pub(crate) service: Service,
    pub(crate) stripes: u64,
    /// Stripes that hold zeros or what was written, and agree.
    pub(crate) formatted: u64,
    pub(crate) members: Vec<MemberRecord>,
}

/// Whether a set is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Full,
    /// What is on it goes elsewhere, and nothing new is to come.
    Retiring,
    /// Nothing is on it, and its disks may be anywhere. Its places in the space remain, and
    /// hold nothing.
    Retired,
}

/// One member of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberRecord {
    pub(crate) disk: DiskId,
    pub(crate) state: MemberState,
}

/// Whether a member has what it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// All of it.
    Active,
    /// Nothing: it is out.
    Failed,
    /// What lies before that stripe.
    Rebuilding { stripes: u64 },
}

/// The label of one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) disk: DiskId,
    pub(crate) pool: Pool,
}

impl SetRecord {
    /// One of disks that hold nothing.
    pub(crate) fn new(kind: Kind, stripes: u64, disks: &[DiskId]) -> Self {
        let members = disks.iter().map(|&disk| MemberRecord {
            disk,
            state: MemberState::Active,
        });
        Self {
            kind,
            service: Service::Full,
            stripes,
            formatted: 0,
            members: members.collect(),
        }
    }

    /// All of it for the second stage, as set `number`. Without a speed its share is as
    /// large as it is, so that all become full together.
    pub(crate) fn extent(&self, number: usize, geometry: Geometry, speed: Option<u64>) -> Extent {
        let stripe_bytes = self.data_cells() as u64 * geometry.chunk();
        Extent {
            set: u16::try_from(number).unwrap_or(u16::MAX),
            first_stripe: 0,
            stripes: self.stripes,
            stripe_bytes,
            speed: speed.unwrap_or((self.stripes * stripe_bytes) >> 20),
        }
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.service == Service::Retired
    }

    /// How many members lack something.
    pub(crate) fn lacking(&self) -> usize {
        let is_active = |member: &&MemberRecord| member.state != MemberState::Active;
        self.members.iter().filter(is_active).count()
    }

    /// Whether a member can be spared without loss.
    pub(crate) fn can_spare(&self, member: usize) -> bool {
        let lacks = usize::from(self.members[member].state != MemberState::Active);
        let others = self.lacking() - lacks;
        others < self.kind.redundancy(self.members.len())
    }

    pub(crate) fn data_cells(&self) -> usize {
        self.kind.data_cells(self.members.len())
    }
}

impl Pool {
    /// Bytes of data in a stripe of a set.
    pub(crate) fn stripe_bytes(&self, set: usize) -> u64 {
        self.sets[set].data_cells() as u64 * self.geometry.chunk()
    }

    /// Bytes of one row of a segment.
    pub(crate) fn row_bytes(&self, segment: &Segment) -> u64 {
        let shares = segment.shares.iter();
        let bytes =
            |share: &Share| u64::from(share.weight) * self.stripe_bytes(usize::from(share.set));
        shares.map(bytes).sum()
    }

    /// How long the space can become.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        let segments = self.segments.iter();
        segments
            .map(|segment| segment.rows * self.row_bytes(segment))
            .sum()
    }

    /// Where a set's bytes lie in the space.
    pub(crate) fn places(&self, set: usize) -> Vec<Places> {
        let mut places = Vec::new();
        let mut begin = 0;
        for segment in &self.segments {
            let row_bytes = self.row_bytes(segment);
            let mut offset_bytes = begin;
            for share in &segment.shares {
                let of = usize::from(share.set);
                let bytes = u64::from(share.weight) * self.stripe_bytes(of);
                if of == set && segment.rows > 0 {
                    places.push(Places {
                        offset_bytes,
                        bytes,
                        row_bytes,
                        rows: segment.rows,
                    });
                }
                offset_bytes += bytes;
            }
            begin += segment.rows * row_bytes;
        }
        places
    }

    /// Bytes that a set holds.
    pub(crate) fn set_bytes(&self, set: usize) -> u64 {
        self.sets[set].stripes * self.stripe_bytes(set)
    }

    /// Whether a label has room for all of it.
    pub(crate) fn fits_label(&self) -> bool {
        let mut body = Writer::default();
        body.u64(0);
        self.put(&mut body);
        HEAD_BYTES + body.bytes.len() <= LABEL_BYTES
    }

    /// Where a disk is a member: set and place in it.
    pub(crate) fn place_of(&self, disk: DiskId) -> Option<(usize, usize)> {
        self.sets.iter().enumerate().find_map(|(number, set)| {
            let place = set.members.iter().position(|member| member.disk == disk)?;
            Some((number, place))
        })
    }

    /// Whether the disk belongs to it, and has not failed.
    pub(crate) fn has(&self, disk: DiskId) -> bool {
        let is_live = |(set, place): (usize, usize)| {
            let set = &self.sets[set];
            !set.is_retired() && set.members[place].state != MemberState::Failed
        };
        self.spares.contains(&disk) || self.place_of(disk).is_some_and(is_live)
    }

    fn put(&self, body: &mut Writer) {
        body.u64(self.id);
        body.u64(self.generation);
        body.u64(self.length_bytes);
        body.u32(self.geometry.chunk_bytes);
        body.u16(self.geometry.log_slots);
        body.u16(self.geometry.region_stripes);
        body.count(self.sets.len());
        for set in &self.sets {
            let kind = match set.kind {
                Kind::Stripe => 1,
                Kind::Mirror => 2,
                Kind::Parity => 3,
            };
            body.u8(match set.service {
                Service::Full => kind,
                Service::Retiring => kind | RETIRING,
                Service::Retired => kind | RETIRED,
            });
            body.u64(set.stripes);
            body.u64(set.formatted);
            body.count(set.members.len());
            for member in &set.members {
                body.u64(member.disk.0);
                let (state, stripes) = match member.state {
                    MemberState::Active => (1, 0),
                    MemberState::Failed => (2, 0),
                    MemberState::Rebuilding { stripes } => (3, stripes),
                };
                body.u8(state);
                body.u64(stripes);
            }
        }
        body.count(self.segments.len());
        for segment in &self.segments {
            body.u64(segment.rows);
            body.count(segment.shares.len());
            for share in &segment.shares {
                body.u16(share.set);
                body.u16(share.weight);
                body.u64(share.first_stripe);
            }
        }
        body.count(self.spares.len());
        for spare in &self.spares {
            body.u64(spare.0);
        }
    }

    fn get(body: &mut Reader<'_>) -> Option<Self> {
        let (id, generation, length_bytes) = (body.u64()?, body.u64()?, body.u64()?);
        let geometry = Geometry {
            chunk_bytes: body.u32()?,
            log_slots: body.u16()?,
            region_stripes: body.u16()?,
        };
        let sets = (0..body.u16()?)
            .map(|_| get_set(body))
            .collect::<Option<Vec<_>>>()?;
        let segments = (0..body.u16()?)
            .map(|_| get_segment(body, sets.len()))
            .collect::<Option<Vec<_>>>()?;
        let spares = (0..body.u16()?).map(|_| Some(DiskId(body.u64()?)));
        let spares = spares.collect::<Option<Vec<_>>>()?;
        geometry.is_valid().then_some(Self {
            id,
            generation,
            length_bytes,
            geometry,
            sets,
            segments,
            spares,
        })
    }
}

fn get_set(body: &mut Reader<'_>) -> Option<SetRecord> {
    let word = body.u8()?;
    let service = match word & (RETIRING | RETIRED) {
        0 => Service::Full,
        RETIRING => Service::Retiring,
        RETIRED => Service::Retired,
        _ => return None,
    };
    let kind = match word & !(RETIRING | RETIRED) {
        1 => Kind::Stripe,
        2 => Kind::Mirror,
        3 => Kind::Parity,
        _ => return None,
    };
    let (stripes, formatted) = (body.u64()?, body.u64()?);
    let members = (0..body.u16()?).map(|_| {
        let disk = DiskId(body.u64()?);
        let (state, stripes) = (body.u8()?, body.u64()?);
        let state = match state {
            1 => MemberState::Active,
            2 => MemberState::Failed,
            3 => MemberState::Rebuilding { stripes },
            _ => return None,
        };
        Some(MemberRecord { disk, state })
    });
    let members = members.collect::<Option<Vec<_>>>()?;
    kind.check_members(members.len()).ok()?;
    Some(SetRecord {
        kind,
        service,
        stripes,
        formatted,
        members,
    })
}

fn get_segment(body: &mut Reader<'_>, sets: usize) -> Option<Segment> {
    let rows = body.u64()?;
    let shares = (0..body.u16()?).map(|_| {
        let share = Share {
            set: body.u16()?,
            weight: body.u16()?,
            first_stripe: body.u64()?,
        };
        (usize::from(share.set) < sets).then_some(share)
    });
    let shares = shares.collect::<Option<Vec<_>>>()?;
    Some(Segment { rows, shares })
}

impl Label {
    /// Where it is written.
    pub(crate) const fn offset_bytes(&self) -> u64 {
        self.pool.generation % 2 * LABEL_BYTES as u64
    }

    /// The whole slot.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        body.u64(self.disk.0);
        self.pool.put(&mut body);
        let mut slot = Writer::default();
        slot.bytes.extend_from_slice(&MAGIC);
        slot.u16(VERSION);
        slot.u16(0);
        slot.u32(u32::try_from(body.bytes.len()).unwrap_or(u32::MAX));
        slot.u32(crc32c(&body.bytes));
        slot.bytes.extend_from_slice(&body.bytes);
        slot.bytes.resize(LABEL_BYTES, 0);
        slot.bytes
    }

    /// The label in one slot, if there is a whole one.
    fn decode(slot: &[u8]) -> Option<Self> {
        let rest = slot.strip_prefix(&MAGIC)?;
        let mut head = Reader::new(rest);
        if head.u16()? != VERSION {
            return None;
        }
        let _reserved = head.u16()?;
        let length = usize::try_from(head.u32()?).ok()?;
        let checksum = head.u32()?;
        let body = slot.get(HEAD_BYTES..)?.get(..length)?;
        if crc32c(body) != checksum {
            return None;
        }
        let mut body = Reader::new(body);
        Some(Self {
            disk: DiskId(body.u64()?),
            pool: Pool::get(&mut body)?,
        })
    }

    /// The newest label at the beginning of a disk.
    pub(crate) fn find(head: &[u8]) -> Option<Self> {
        let slots = head.chunks_exact(LABEL_BYTES).take(2);
        let labels = slots.filter_map(Self::decode);
        labels.max_by_key(|label| label.pool.generation)
    }
}

/// Whether a disk has nothing at its beginning but sectors of the label that it was to get as
/// its first when power failed. All others have theirs before it gets any: so what it would
/// be is known.
pub(crate) fn is_torn_first_label(head: &[u8], pool: &Pool) -> bool {
    let members = pool.sets.iter().flat_map(|set| &set.members);
    let disks = members.map(|member| member.disk).chain(pool.spares.clone());
    let is_of = |disk: DiskId| {
        let label = Label {
            disk,
            pool: pool.clone(),
        };
        let at = to_usize(label.offset_bytes());
        let wanted = label.encode();
        let Some(slot) = head.get(at..at + LABEL_BYTES) else {
            return false;
        };
        let mut sectors = slot.chunks(SECTOR_BYTES).zip(wanted.chunks(SECTOR_BYTES));
        let is_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
        sectors.all(|(found, wanted)| is_zero(found) || found == wanted)
            && is_zero(&head[..at])
            && is_zero(&head[at + LABEL_BYTES..])
    };
    disks.into_iter().any(is_of)
}

/// Whether the beginning of a disk has ever been a label, whole or not.
pub(crate) fn looks_like_label(head: &[u8]) -> bool {
    let mut slots = head.chunks_exact(LABEL_BYTES).take(2);
    slots.any(|slot| slot.starts_with(&MAGIC))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(generation: u64) -> Pool {
        let member = |disk, state| MemberRecord {
            disk: DiskId(disk),
            state,
        };
        Pool {
            id: 7,
            generation,
            length_bytes: 4096,
            geometry: Geometry::default(),
            sets: vec![SetRecord {
                kind: Kind::Parity,
                service: Service::Retiring,
                stripes: 100,
                formatted: 3,
                members: vec![
                    member(1, MemberState::Active),
                    member(2, MemberState::Failed),
                    member(3, MemberState::Rebuilding { stripes: 9 }),
                ],
            }],
            segments: vec![Segment {
                rows: 100,
                shares: vec![Share {
                    set: 0,
                    weight: 1,
                    first_stripe: 0,
                }],
            }],
            spares: vec![DiskId(9)],
        }
    }

    /// Goal: what is written is read; a torn slot leaves the one before.
    #[test]
    fn two_slots() {
        let label = |generation| Label {
            disk: DiskId(1),
            pool: pool(generation),
        };
        let mut head = label(4).encode();
        head.extend(label(5).encode());
        assert_eq!(Label::find(&head), Some(label(5)));
        head[LABEL_BYTES + 40] ^= 1;
        assert_eq!(Label::find(&head), Some(label(4)));
        head[40] ^= 1;
        assert_eq!(Label::find(&head), None);
        assert!(looks_like_label(&head));
        assert!(!looks_like_label(&[0; 2 * LABEL_BYTES]));
    }
}
