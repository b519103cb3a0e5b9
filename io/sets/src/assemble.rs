//! Which disks there are, what is on them, and whether that is what was asked for.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_types::BLOCK_BYTES;

use crate::geometry::{Geometry, INTENT_OFFSET, Kind, LOG_OFFSET, segments, to_usize};
use crate::intent::{ParityRecord, RegionList};
use crate::label::{
    DiskId, Label, MemberState, Pool, SetRecord, is_torn_first_label, looks_like_label,
};

mod half_made;

/// The number of a disk for its user: its place in [`Wish::disks`], or what it was added as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskNumber(pub u16);

/// A disk that was named.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its path, for errors and for people.
    pub name: String,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// The first [`Geometry::data_offset`] bytes, or why they cannot be read.
    pub head: Result<Vec<u8>, String>,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// All disks.
    pub disks: Vec<Found>,
    /// The sets.
    pub sets: Vec<SetWish>,
    /// Places in [`disks`](Self::disks) of those that are spare.
    pub spares: Vec<usize>,
    /// Sizes for sets that are made now.
    pub geometry: Geometry,
}

/// A set that was asked for.
#[derive(Clone, Debug)]
pub struct SetWish {
    /// What it is to be.
    pub kind: Kind,
    /// Places of its disks in [`Wish::disks`].
    pub disks: Vec<usize>,
    /// How fast it is, for its share of the space if it is made now: in whatever unit all
    /// have; `None` if nobody knows.
    pub speed: Option<u64>,
}

/// Why the sets cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// It cannot be read, and without it no set can be made.
    #[error("{name} cannot be read: {why}; new sets need all their disks")]
    Unreadable {
        /// Which disk.
        name: String,
        /// The system's answer.
        why: String,
    },
    /// It has something else on it.
    #[error(
        "{0} holds something that is not of a disk set; name another disk, or wipe its beginning if nobody needs what is on it"
    )]
    Foreign(String),
    /// It is of another node, or of another installation.
    #[error("{name} belongs to other sets than {other}; one of them is not of this node")]
    OtherPool {
        /// Which disk.
        name: String,
        /// A disk that it does not belong to.
        other: String,
    },
    /// Its labels are damaged.
    #[error(
        "{0} has a label that is damaged; take it out of --disks, and give it back as a spare after its beginning was wiped"
    )]
    Damaged(String),
    /// The sets are not those that were made.
    #[error("set {set} was made as {made}, and is said to be {said}")]
    OtherShape {
        /// Which one.
        set: usize,
        /// Kind and number of disks then.
        made: String,
        /// The same as said now.
        said: String,
    },
    /// Too many are missing.
    #[error(
        "set {set} ({kind}) lacks {missing}: it cannot be served without losing what is on it; bring back what is missing"
    )]
    Lacking {
        /// Which set.
        set: usize,
        /// What it is.
        kind: Kind,
        /// The disks, as far as they have names.
        missing: String,
    },
    /// Each of two disks has gone on without the other.
    #[error(
        "{first} and {second} were used without each other, and hold different bytes; decide which one is right, and wipe the beginning of the other"
    )]
    Diverged {
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// There are, or were, more sets than the labels can tell of.
    #[error("the disks' labels have no room for that many sets; name fewer or larger ones")]
    LabelFull,
    /// Too small to be of use.
    #[error("{name} has {length_bytes} bytes, {wanted_bytes} are needed")]
    TooSmall {
        /// Which disk.
        name: String,
        /// Its length.
        length_bytes: u64,
        /// What it would have to have.
        wanted_bytes: u64,
    },
}

/// Sets that can be served.
#[derive(Debug)]
pub struct Assembled {
    pub(crate) pool: Pool,
    /// Disks that take part, by number.
    pub(crate) attached: BTreeMap<DiskNumber, FoundDisk>,
    /// Whether the labels have to be written before anything else.
    pub(crate) is_changed: bool,
    pub(crate) recovery: Recovery,
    /// Places in [`Wish::sets`] of those that were retired: nobody needs their disks.
    pub retired: Vec<usize>,
    /// What people should know.
    pub notes: Vec<String>,
}

/// A disk that takes part.
#[derive(Clone, Debug)]
pub(crate) struct FoundDisk {
    pub(crate) id: DiskId,
    pub(crate) name: String,
    pub(crate) length_bytes: u64,
    /// It has a label under that name.
    pub(crate) is_labelled: bool,
}

/// What a loss of power may have left.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// Regions of mirrors.
    pub(crate) regions: BTreeSet<(usize, u64)>,
    /// Stripes of parity sets: of each block of a cell, the newest record.
    pub(crate) stripes: BTreeMap<(usize, u64), Vec<Option<RowRecord>>>,
    /// The next sequence of each disk's log.
    pub(crate) sequences: BTreeMap<DiskId, u64>,
    /// The newest sequence of each mirror's list.
    pub(crate) lists: BTreeMap<usize, u64>,
}

/// What was noted of one block of a stripe's cells.
#[derive(Clone, Debug)]
pub(crate) struct RowRecord {
    pub(crate) mask: u64,
    /// Exclusive or of the cells that were not changed, if there were some.
    pub(crate) partial: Option<Vec<u8>>,
}

impl Assembled {
    /// How long the space can become, in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.pool.capacity_bytes()
    }

    /// Whether they are made now, of disks that hold nothing.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.pool.generation == 0
    }

    /// The disks that take part, by number.
    pub fn disks(&self) -> impl Iterator<Item = DiskNumber> + '_ {
        self.attached.keys().copied()
    }
}

/// Finds out whether the disks are those of the sets; makes new sets of blank ones.
/// `fresh` gives random numbers.
///
/// # Errors
/// See [`AssembleError`]: nothing is changed on any disk.
pub fn assemble(wish: &Wish, fresh: impl FnMut() -> u64) -> Result<Assembled, AssembleError> {
    let mut labels = Vec::new();
    let mut odd = Vec::new();
    for found in &wish.disks {
        let looked = found
            .head
            .as_ref()
            .map(|head| (head, look(&found.name, head)));
        labels.push(match looked {
            Ok((_, Ok(label))) => label,
            Ok((head, Err(error))) => {
                odd.push((head, error));
                None
            }
            Err(_) => None,
        });
    }
    let mut assembler = Assembler {
        wish,
        sets: (0..wish.sets.len()).collect(),
        retired: Vec::new(),
        labels,
        attached: BTreeMap::new(),
        notes: Vec::new(),
        is_changed: false,
        fresh,
    };
    let newest = assembler.newest()?;
    for (head, error) in odd {
        let is_torn = |pool: &Pool| is_torn_first_label(head, pool);
        if !newest.as_ref().is_some_and(is_torn) {
            return Err(error);
        }
    }
    let pool = match newest {
        Some(pool) if !assembler.is_half_made(&pool) => assembler.join(pool)?,
        _ => assembler.make()?,
    };
    let recovery = assembler.recovery(&pool);
    Ok(Assembled {
        pool,
        attached: assembler.attached,
        is_changed: assembler.is_changed,
        recovery,
        retired: assembler.retired,
        notes: assembler.notes,
    })
}

/// The label of a disk; `None` if it is blank.
fn look(name: &str, head: &[u8]) -> Result<Option<Label>, AssembleError> {
    if let Some(label) = Label::find(head) {
        return Ok(Some(label));
    }
    if looks_like_label(head) {
        return Err(AssembleError::Damaged(name.to_owned()));
    }
    match head.iter().all(|&byte| byte == 0) {
        true => Ok(None),
        false => Err(AssembleError::Foreign(name.to_owned())),
    }
}

struct Assembler<'wish, F> {
    wish: &'wish Wish,
    /// Places in [`Wish::sets`] of those that are, or are to be made, in order.
    sets: Vec<usize>,
    /// The same of those that were retired.
    retired: Vec<usize>,
    /// Of each disk.
    labels: Vec<Option<Label>>,
    attached: BTreeMap<DiskNumber, FoundDisk>,
    notes: Vec<String>,
    is_changed: bool,
    fresh: F,
}

impl<F: FnMut() -> u64> Assembler<'_, F> {
    /// What the newest label tells, if there is one: all others must be of the same pool.
    fn newest(&self) -> Result<Option<Pool>, AssembleError> {
        let labelled = || {
            let labels = self.labels.iter().enumerate();
            labels.filter_map(|(place, label)| Some((place, label.as_ref()?)))
        };
        let newest = labelled().max_by_key(|(_, label)| label.pool.generation);
        let Some((newest_place, newest)) = newest else {
            return Ok(None);
        };
        for (place, label) in labelled() {
            if label.pool.id != newest.pool.id {
                return Err(AssembleError::OtherPool {
                    name: self.name(place),
                    other: self.name(newest_place),
                });
            }
            if !newest.pool.has(label.disk) && label_denies(label, &newest.pool) {
                return Err(AssembleError::Diverged {
                    first: self.name(newest_place),
                    second: self.name(place),
                });
            }
        }
        Ok(Some(newest.pool.clone()))
    }

    /// Whether power has failed while the first labels were written: nothing is stored yet.
    fn is_half_made(&self, pool: &Pool) -> bool {
        let is_blank = self.labels.iter().any(Option::is_none);
        let mut disks = self.wish.disks.iter();
        pool.length_bytes == 0 && is_blank && disks.all(|found| found.head.is_ok())
    }

    /// Takes the disks of a pool that is there.
    fn join(&mut self, mut pool: Pool) -> Result<Pool, AssembleError> {
        self.leave_out_retired(&pool);
        let undone = self.undo_half_made(&mut pool);
        self.check_shape(&pool)?;
        let mut here: BTreeSet<DiskId> = BTreeSet::new();
        let mut blank = Vec::new();
        for place in 0..self.labels.len() {
            if self.is_of_retired(place) {
                continue;
            }
            let label = self.labels[place].clone();
            let label = label.filter(|label| !undone.contains(&label.disk));
            let Some(label) = label else {
                if self.wish.disks[place].head.is_ok() {
                    blank.push(place);
                }
                continue;
            };
            if !pool.has(label.disk) {
                self.notes.push(format!(
                    "{} has left its set, what it holds is old: it is not used; wipe its beginning to give it back as a spare",
                    self.name(place)
                ));
                continue;
            }
            here.insert(label.disk);
            self.attach(place, label.disk);
        }
        self.miss(&mut pool, &here)?;
        pool.spares.retain(|spare| here.contains(spare));
        self.add_sets(&mut pool, &mut blank)?;
        for place in blank {
            // A disk that was put in the place of another one.
            let id = self.fresh_disk();
            self.notes
                .push(format!("{} is blank: it becomes a spare", self.name(place)));
            pool.spares.push(id);
            self.attach(place, id);
            self.is_changed = true;
        }
        Ok(pool)
    }

    /// Makes a pool of blank disks.
    fn make(&mut self) -> Result<Pool, AssembleError> {
        for found in &self.wish.disks {
            if let Err(why) = &found.head {
                return Err(AssembleError::Unreadable {
                    name: found.name.clone(),
                    why: why.clone(),
                });
            }
        }
        let mut pool = Pool {
            id: (self.fresh)(),
            generation: 0,
            length_bytes: 0,
            geometry: self.wish.geometry,
            sets: Vec::new(),
            segments: Vec::new(),
            spares: Vec::new(),
        };
        let mut blank: Vec<usize> = (0..self.wish.disks.len()).collect();
        self.add_sets(&mut pool, &mut blank)?;
        for place in blank {
            let id = self.fresh_disk();
            pool.spares.push(id);
            self.attach(place, id);
        }
        Ok(pool)
    }

    /// Makes the sets that the pool does not have yet, of blank disks.
    fn add_sets(&mut self, pool: &mut Pool, blank: &mut Vec<usize>) -> Result<(), AssembleError> {
        let known = pool.sets.iter().filter(|set| !set.is_retired()).count();
        let mut extents = Vec::new();
        for wished in self.sets.clone().into_iter().skip(known) {
            let set = &self.wish.sets[wished];
            let mut members = Vec::new();
            let mut stripes = u64::MAX;
            for &place in &set.disks {
                let Some(at) = blank.iter().position(|&one| one == place) else {
                    let name = self.name(place);
                    return Err(match &self.wish.disks[place].head {
                        Err(why) => AssembleError::Unreadable {
                            name,
                            why: why.clone(),
                        },
                        Ok(_) => AssembleError::Foreign(name),
                    });
                };
                blank.remove(at);
                stripes = stripes.min(self.stripes_of(place, pool.geometry)?);
                let disk = self.fresh_disk();
                self.attach(place, disk);
                members.push(disk);
            }
            let record = SetRecord::new(set.kind, stripes, &members);
            extents.push(record.extent(pool.sets.len(), pool.geometry, set.speed));
            pool.sets.push(record);
            self.is_changed = true;
        }
        pool.segments.extend(segments(extents));
        match pool.fits_label() {
            true => Ok(()),
            false => Err(AssembleError::LabelFull),
        }
    }

    fn stripes_of(&self, place: usize, geometry: Geometry) -> Result<u64, AssembleError> {
        let found = &self.wish.disks[place];
        let stripes = geometry.stripes_of(found.length_bytes);
        stripes.map_err(|wanted_bytes| AssembleError::TooSmall {
            name: found.name.clone(),
            length_bytes: found.length_bytes,
            wanted_bytes,
        })
    }

    fn check_shape(&self, pool: &Pool) -> Result<(), AssembleError> {
        let known = pool.sets.iter().enumerate();
        let known = known.filter(|(_, made)| !made.is_retired());
        for (at, (set, made)) in known.enumerate() {
            let made = format!("{} of {}", made.kind, made.members.len());
            let said = self.sets.get(at).map(|&said| &self.wish.sets[said]);
            let said = match said {
                Some(said) => format!("{} of {}", said.kind, said.disks.len()),
                None => "absent".to_owned(),
            };
            if made != said {
                return Err(AssembleError::OtherShape { set, made, said });
            }
        }
        Ok(())
    }

    /// Marks what is not here as failed, as far as the sets can do without.
    fn miss(&mut self, pool: &mut Pool, here: &BTreeSet<DiskId>) -> Result<(), AssembleError> {
        let used = pool.sets.iter_mut().enumerate();
        let used = used.filter(|(_, set)| !set.is_retired());
        for (at, (number, set)) in used.enumerate() {
            for place in 0..set.members.len() {
                let member = set.members[place];
                if here.contains(&member.disk) || member.state == MemberState::Failed {
                    continue;
                }
                if !set.can_spare(place) {
                    return Err(AssembleError::Lacking {
                        set: number,
                        kind: set.kind,
                        missing: self.missing(at, pool_disks(&self.labels)),
                    });
                }
                set.members[place].state = MemberState::Failed;
                self.is_changed = true;
                self.notes.push(format!(
                    "set {number} ({}) is served without disk {place}, which is not there",
                    set.kind
                ));
            }
        }
        Ok(())
    }

    /// Disks of the set at that place of those that are used.
    fn missing(&self, at: usize, known: BTreeSet<usize>) -> String {
        let named = &self.wish.sets[self.sets[at]].disks;
        let missing = named.iter().filter(|place| !known.contains(place));
        let names: Vec<String> = missing
            .map(|&place| match &self.wish.disks[place].head {
                Ok(_) => format!("{} (blank)", self.name(place)),
                Err(why) => format!("{} ({why})", self.name(place)),
            })
            .collect();
        match names.is_empty() {
            true => "disks that were replaced".to_owned(),
            false => names.join(", "),
        }
    }

    fn name(&self, place: usize) -> String {
        self.wish.disks[place].name.clone()
    }

    fn fresh_disk(&mut self) -> DiskId {
        DiskId((self.fresh)())
    }

    fn attach(&mut self, place: usize, id: DiskId) {
        let number = DiskNumber(u16::try_from(place).unwrap_or(u16::MAX));
        let found = &self.wish.disks[place];
        let label = self.labels[place].as_ref();
        let disk = FoundDisk {
            id,
            name: found.name.clone(),
            length_bytes: found.length_bytes,
            is_labelled: label.is_some_and(|label| label.disk == id),
        };
        self.attached.insert(number, disk);
    }

    /// Reads the intents of the disks that are members.
    fn recovery(&self, pool: &Pool) -> Recovery {
        let mut recovery = Recovery::default();
        let mut newest: BTreeMap<(usize, u64, usize), u64> = BTreeMap::new();
        for (number, FoundDisk { id: disk, .. }) in &self.attached {
            let Some((set, _)) = pool.place_of(*disk) else {
                continue;
            };
            let Ok(head) = &self.wish.disks[usize::from(number.0)].head else {
                continue;
            };
            match pool.sets[set].kind {
                Kind::Stripe => {}
                Kind::Mirror => {
                    for slot in 0..2 {
                        let at = to_usize(INTENT_OFFSET) + slot * BLOCK_BYTES;
                        let block = head.get(at..at + BLOCK_BYTES).unwrap_or(&[]);
                        if let Some(list) = RegionList::decode(block, *disk) {
                            let regions = list.regions.iter();
                            recovery
                                .regions
                                .extend(regions.map(|&region| (set, region)));
                            let last = recovery.lists.entry(set).or_default();
                            *last = list.sequence.max(*last);
                        }
                    }
                }
                Kind::Parity => read_log(pool, set, *disk, head, &mut recovery, &mut newest),
            }
        }
        recovery
    }
}

/// Places of the disks that have labels.
fn pool_disks(labels: &[Option<Label>]) -> BTreeSet<usize> {
    let labels = labels.iter().enumerate();
    labels
        .filter(|(_, label)| label.is_some())
        .map(|(place, _)| place)
        .collect()
}

/// Whether the label of a disk that is out says that a disk which is in has failed: then
/// both have gone on alone.
fn label_denies(label: &Label, pool: &Pool) -> bool {
    let members = label.pool.sets.iter().flat_map(|set| &set.members);
    let mut failed = members.filter(|member| member.state == MemberState::Failed);
    failed.any(|member| pool.has(member.disk))
}

fn read_log(
    pool: &Pool,
    set: usize,
    disk: DiskId,
    head: &[u8],
    recovery: &mut Recovery,
    newest: &mut BTreeMap<(usize, u64, usize), u64>,
) {
    let geometry = pool.geometry;
    let (rows, cells) = (geometry.rows(), pool.sets[set].data_cells());
    let slots = head.get(to_usize(LOG_OFFSET)..).unwrap_or(&[]);
    let slots = slots.chunks_exact(to_usize(geometry.slot_bytes()));
    let slots = slots.take(usize::from(geometry.log_slots));
    let records = slots.filter_map(|slot| ParityRecord::decode(slot, disk, rows, cells));
    let records: Vec<ParityRecord> = records.collect();
    let Some(last) = records.iter().map(|record| record.sequence).max() else {
        return;
    };
    recovery.sequences.insert(disk, last + 1);
    for record in records {
        // Slots are used in turn, and written in any order: where the next record has not come to
        // this slot, a newer one of the same stripe may have been written over already.
        if record.sequence + u64::from(geometry.log_slots) <= last {
            continue;
        }
        let key = (set, record.stripe);
        let stripe = recovery
            .stripes
            .entry(key)
            .or_insert_with(|| vec![None; rows]);
        let mut partials = record.payload.chunks_exact(BLOCK_BYTES);
        for (row, &mask) in record.masks.iter().enumerate() {
            let wants = crate::intent::wants_parity(mask, cells);
            let partial = wants.then(|| partials.next()).flatten();
            if mask == 0 {
                continue;
            }
            let age = newest.entry((set, record.stripe, row)).or_default();
            if record.sequence >= *age {
                *age = record.sequence;
                let partial = partial.map(<[u8]>::to_vec);
                stripe[row] = Some(RowRecord { mask, partial });
            }
        }
    }
}
