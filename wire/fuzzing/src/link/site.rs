//! Samples of what is said to and by sites.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crossdock_names::{
    Epoch, ExportId, FileId, FileRef, HostId, Incarnation, LayoutClass, MapFragment, Proof, Version,
};
use crossdock_peer::{
    AttributeChanges, Attributes, BackingExtent, BeforeAttributes, CensusClass, CensusPage,
    CensusPlace, CensusRow, CreateMode, Device, DirectoryEntry, FileKind, FileLayout, FileLease,
    ForgetWhat, GrantId, GrantedLock, LeaseId, LeaseUse, ListedLock, LockClient, LockNotice,
    LockOperation, LockOwner, LockRange, LockRefusal, LockTerms, LockWanted, NamePlace, OpenFor,
    Part, Quota, QuotaChange, QuotaLimits, Repair, Rights, ShareTerms, SiteAnswer, SiteError,
    SiteOperation, SpaceUsage, TimeChange, TransactionId, TransactionStep, WeakCache,
};
use crossdock_types::WallTime;

use super::{bytes, capability, mapped, object, payload, sixteen, stability};
use crate::Dice;

fn file(dice: &mut Dice) -> FileRef {
    FileRef {
        id: FileId(dice.u64()),
        generation: dice.u32(),
    }
}

fn time_change(dice: &mut Dice) -> TimeChange {
    match dice.below(3) {
        0 => TimeChange::Keep,
        1 => TimeChange::Now,
        _ => TimeChange::To(wall(dice)),
    }
}

const fn wall(dice: &mut Dice) -> WallTime {
    WallTime(dice.u64().cast_signed())
}

fn changes(dice: &mut Dice) -> AttributeChanges {
    AttributeChanges {
        mode: dice.maybe(Dice::u32),
        uid: dice.maybe(Dice::u32),
        gid: dice.maybe(Dice::u32),
        size_bytes: dice.maybe(Dice::u64),
        accessed: time_change(dice),
        modified: time_change(dice),
    }
}

fn attributes(dice: &mut Dice) -> Attributes {
    Attributes {
        file: file(dice),
        kind: dice.one_of(&[
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Block,
            FileKind::Character,
            FileKind::Symlink,
            FileKind::Socket,
            FileKind::Fifo,
        ]),
        mode: dice.u32(),
        links: dice.u32(),
        uid: dice.u32(),
        gid: dice.u32(),
        size_bytes: dice.u64(),
        used_bytes: dice.u64(),
        device: device(dice),
        accessed: wall(dice),
        modified: wall(dice),
        changed: wall(dice),
    }
}

fn device(dice: &mut Dice) -> Device {
    Device {
        major: dice.u32(),
        minor: dice.u32(),
    }
}

pub(super) fn weak_cache(dice: &mut Dice) -> WeakCache {
    WeakCache {
        before: dice.maybe(|dice| BeforeAttributes {
            size_bytes: dice.u64(),
            modified: wall(dice),
            changed: wall(dice),
        }),
        after: dice.maybe(attributes),
    }
}

/// One operation of each kind.
#[must_use]
pub fn site_operations(dice: &mut Dice) -> Vec<SiteOperation> {
    let mut all = name_operations(dice);
    all.extend(file_operations(dice));
    let locks = lock_operations(dice).into_iter();
    all.extend(locks.map(|operation| SiteOperation::Locks {
        file: file(dice),
        operation,
    }));
    let steps = transaction_steps(dice).into_iter();
    all.extend(steps.map(|step| SiteOperation::Transaction {
        file: file(dice),
        id: TransactionId {
            site: file(dice).id.site(),
            epoch: Epoch(dice.u64()),
            number: dice.u64(),
        },
        step,
    }));
    all.push(SiteOperation::Census {
        file: file(dice),
        class: CensusClass {
            number: dice.u32(),
            of: dice.u32(),
        },
        from: census_place(dice),
    });
    all.push(SiteOperation::Names {
        file: file(dice),
        places: vec![name_place(dice), name_place(dice)],
    });
    let repairs = repairs(dice).into_iter();
    all.extend(repairs.map(|repair| SiteOperation::Repair {
        file: file(dice),
        repair,
    }));
    all.push(SiteOperation::Prove { proof: proof(dice) });
    all
}

pub(super) fn proof(dice: &mut Dice) -> Proof {
    Proof {
        export: ExportId(dice.u32()),
        file: file(dice),
        key_id: dice.eight()[0],
        mac: sixteen(dice),
    }
}

fn repairs(dice: &mut Dice) -> Vec<Repair> {
    vec![
        Repair::RemoveName {
            cookie: dice.u64(),
            child: file(dice),
        },
        Repair::AddName {
            name: bytes(dice),
            child: file(dice),
            is_directory: dice.flag(),
        },
        Repair::SetLinks {
            changed: wall(dice),
            links: dice.u32(),
        },
        Repair::SetParent {
            changed: wall(dice),
            parent: file(dice),
        },
        Repair::MakeDirectory {
            rights: rights(dice),
        },
        Repair::SetRights {
            changed: wall(dice),
            rights: rights(dice),
        },
        Repair::RemovePart {
            changed: wall(dice),
        },
        Repair::MakeObjects,
    ]
}

fn census_place(dice: &mut Dice) -> CensusPlace {
    CensusPlace {
        phase: dice.u32().to_le_bytes()[0],
        index: dice.u64(),
    }
}

fn rights(dice: &mut Dice) -> Rights {
    Rights {
        uid: dice.u32(),
        gid: dice.u32(),
        mode: dice.u32(),
    }
}

fn name_place(dice: &mut Dice) -> NamePlace {
    NamePlace {
        directory: file(dice),
        cookie: dice.u64(),
    }
}

fn census_rows(dice: &mut Dice) -> Vec<CensusRow> {
    vec![
        CensusRow::Unsettled(file(dice).id),
        CensusRow::File {
            file: file(dice),
            kind: FileKind::Symlink,
            links: dice.u32(),
            changed: wall(dice),
            columns: dice.u32().to_le_bytes()[0].into(),
            segments: dice.u32(),
        },
        CensusRow::Parent {
            directory: file(dice).id,
            parent: file(dice),
        },
        CensusRow::Rights {
            directory: file(dice).id,
            rights: rights(dice),
        },
        CensusRow::Name {
            directory: file(dice),
            cookie: dice.u64(),
            child: file(dice),
        },
    ]
}

fn transaction_steps(dice: &mut Dice) -> Vec<TransactionStep> {
    let parts = vec![
        Part::File(file(dice)),
        Part::Place {
            directory: file(dice),
            name: bytes(dice),
        },
        Part::Moves,
        Part::Ancestors(file(dice)),
    ];
    vec![
        TransactionStep::Prepare {
            parts,
            oldest: dice.u64(),
        },
        TransactionStep::Finish(dice.maybe(bytes)),
        TransactionStep::Adopt {
            edits: bytes(dice),
            settled_below: dice.u64(),
        },
        TransactionStep::Inquire,
    ]
}

fn name_operations(dice: &mut Dice) -> Vec<SiteOperation> {
    let directory = file(dice);
    let name = bytes(dice);
    let modes = [
        CreateMode::Unchecked(changes(dice)),
        CreateMode::Guarded(changes(dice)),
        CreateMode::Exclusive(dice.eight()),
    ];
    let mut all: Vec<SiteOperation> = modes
        .map(|mode| SiteOperation::Create {
            directory,
            name: name.clone(),
            mode,
        })
        .into();
    all.extend([
        SiteOperation::Lookup {
            directory,
            name: name.clone(),
        },
        SiteOperation::LookupParent {
            directory,
            within: file(dice),
        },
        SiteOperation::Within {
            directory,
            root: file(dice),
        },
        SiteOperation::MakeDirectory {
            directory,
            name: name.clone(),
            changes: changes(dice),
        },
        SiteOperation::MakeSymlink {
            directory,
            name: name.clone(),
            changes: changes(dice),
            target: bytes(dice),
        },
        SiteOperation::MakeNode {
            directory,
            name: name.clone(),
            kind: FileKind::Fifo,
            device: device(dice),
            changes: changes(dice),
        },
        SiteOperation::Remove {
            directory,
            name: name.clone(),
        },
        SiteOperation::RemoveDirectory {
            directory,
            name: name.clone(),
        },
        SiteOperation::Rename {
            from_directory: directory,
            from_name: name.clone(),
            to_directory: file(dice),
            to_name: bytes(dice),
        },
        SiteOperation::Link {
            file: file(dice),
            directory,
            name,
        },
        SiteOperation::ReadDirectory {
            directory,
            cookie: dice.u64(),
            entries_max: dice.below(1000),
            name_bytes_max: dice.below(100_000),
            with_attributes: dice.flag(),
        },
    ]);
    all
}

fn file_operations(dice: &mut Dice) -> Vec<SiteOperation> {
    let file = file(dice);
    vec![
        SiteOperation::GetAttributes { file },
        SiteOperation::SetAttributes {
            file,
            changes: changes(dice),
            guard: dice.maybe(wall),
        },
        SiteOperation::Access {
            file,
            wanted: dice.u32(),
        },
        SiteOperation::ReadLink { file },
        SiteOperation::Space { file },
        SiteOperation::SetQuota {
            directory: file,
            change: QuotaChange {
                bytes: dice.maybe(|dice| dice.maybe(Dice::u64)),
                files: dice.maybe(|dice| dice.maybe(Dice::u64)),
            },
        },
        SiteOperation::RemoveQuota { directory: file },
        SiteOperation::Read {
            file,
            offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
            patience_ms: 1500,
        },
        SiteOperation::Locate {
            file,
            offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
            patience_ms: dice.u32(),
        },
        SiteOperation::Write {
            file,
            offset_bytes: dice.u64(),
            payload: payload(dice),
            stability: stability(dice),
        },
        SiteOperation::Zero {
            file,
            offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
        },
        SiteOperation::Mapped {
            file,
            offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
        },
        SiteOperation::Exchange {
            file,
            offset_bytes: dice.u64(),
            payload: payload(dice),
        },
        SiteOperation::Copy {
            file,
            offset_bytes: dice.u64(),
            source: file,
            source_offset_bytes: dice.u64(),
            length_bytes: dice.u64(),
            stability: stability(dice),
            frees_zeros: dice.flag(),
        },
        SiteOperation::Open {
            file,
            purpose: OpenFor::Free {
                offset_bytes: dice.u64(),
                end_bytes: dice.u64(),
            },
            holder: None,
        },
        SiteOperation::Commit {
            file,
            incarnation: Incarnation(dice.u64()),
        },
        SiteOperation::Open {
            file,
            purpose: OpenFor::Read {
                offset_bytes: dice.u64(),
                end_bytes: dice.u64(),
            },
            holder: None,
        },
        SiteOperation::Open {
            file,
            purpose: OpenFor::Write {
                offset_bytes: dice.u64(),
                end_bytes: dice.u64(),
            },
            holder: Some(HostId(dice.u64())),
        },
        SiteOperation::PushAttributes {
            file,
            size_at_least_bytes: dice.u64(),
            wrote: dice.flag(),
            read: dice.flag(),
            truncate_generation: dice.u64(),
            stability: stability(dice),
            written: dice.maybe(wall),
            lease: dice.maybe(|dice| match dice.flag() {
                true => LeaseUse::Keep(LeaseId(dice.u64())),
                false => LeaseUse::GiveBack(LeaseId(dice.u64())),
            }),
        },
    ]
}

fn client(dice: &mut Dice) -> LockClient {
    let address = match dice.flag() {
        true => IpAddr::V4(Ipv4Addr::from_bits(dice.u32())),
        false => IpAddr::V6(Ipv6Addr::from(sixteen(dice))),
    };
    LockClient {
        name: bytes(dice),
        address,
    }
}

fn owner(dice: &mut Dice) -> LockOwner {
    LockOwner {
        client: client(dice),
        process: dice.u32(),
        handle: bytes(dice),
    }
}

fn wanted(dice: &mut Dice) -> LockWanted {
    LockWanted {
        owner: owner(dice),
        range: range(dice),
        is_exclusive: dice.flag(),
    }
}

const fn range(dice: &mut Dice) -> LockRange {
    LockRange {
        first: dice.u64(),
        last: dice.u64(),
    }
}

fn terms(dice: &mut Dice) -> LockTerms {
    LockTerms {
        may_block: dice.flag(),
        is_reclaim: dice.flag(),
        is_monitored: dice.flag(),
        state: dice.u32(),
        handle: bytes(dice),
        version: 4,
    }
}

/// One operation of each kind.
#[must_use]
pub fn lock_operations(dice: &mut Dice) -> Vec<LockOperation> {
    let share = ShareTerms { access: 3, deny: 2 };
    vec![
        LockOperation::Test(wanted(dice)),
        LockOperation::Lock(wanted(dice), terms(dice)),
        LockOperation::Cancel(wanted(dice)),
        LockOperation::Unlock(owner(dice), range(dice)),
        LockOperation::Share(owner(dice), share, terms(dice)),
        LockOperation::Unshare(owner(dice)),
        LockOperation::Forget(client(dice), ForgetWhat::BeforeState(dice.u32())),
        LockOperation::Forget(client(dice), ForgetWhat::Everything),
        LockOperation::Told(client(dice)),
        LockOperation::GrantAnswered(GrantId(dice.u64()), dice.flag()),
        LockOperation::List,
        LockOperation::Release(bytes(dice)),
    ]
}

/// One answer of each kind.
#[must_use]
pub fn site_answers(dice: &mut Dice) -> Vec<SiteAnswer> {
    let file = file(dice);
    let incarnation = Incarnation(dice.u64());
    let refusals = [
        LockRefusal::Held(wanted(dice)),
        LockRefusal::Shared,
        LockRefusal::NotWaiting,
        LockRefusal::Blocked,
        LockRefusal::GracePeriod,
        LockRefusal::Full,
        LockRefusal::Deadlock,
    ];
    let mut all = Vec::from(refusals.map(SiteAnswer::NotLocked));
    let entry = |dice: &mut Dice| DirectoryEntry {
        file: FileId(dice.u64()),
        name: bytes(dice),
        cookie: dice.u64(),
        attributes: dice.maybe(attributes),
    };
    let listed = |dice: &mut Dice| ListedLock {
        file: dice.u64(),
        lock: wanted(dice),
        is_waiting: dice.flag(),
    };
    all.extend([
        SiteAnswer::Done,
        SiteAnswer::Elsewhere(file),
        SiteAnswer::Above {
            parent: dice.maybe(self::file),
            directory: file,
        },
        SiteAnswer::Prepared(bytes(dice)),
        SiteAnswer::Census(CensusPage {
            incarnation: Incarnation(dice.u64()),
            rows: census_rows(dice),
            next: dice.maybe(census_place),
        }),
        SiteAnswer::Names(vec![None, Some(bytes(dice))]),
        SiteAnswer::Part {
            attributes: attributes(dice),
            changes: dice.u64(),
        },
        SiteAnswer::Found {
            attributes: attributes(dice),
            layout: LayoutClass::STRIPED,
            placement: file.id,
        },
        SiteAnswer::Access {
            granted: dice.u32(),
        },
        SiteAnswer::Link {
            target: bytes(dice),
        },
        SiteAnswer::Directory {
            entries: (0..dice.below(9)).map(|_| entry(dice)).collect(),
            end: dice.flag(),
            verifier: dice.eight(),
        },
        SiteAnswer::Space(SpaceUsage {
            total_bytes: dice.u64(),
            free_bytes: dice.u64(),
            available_bytes: dice.u64(),
            total_files: dice.u64(),
            free_files: dice.u64(),
            available_files: dice.u64(),
        }),
        SiteAnswer::Quota(Quota {
            tree: dice.u32(),
            root: file,
            limits: QuotaLimits {
                bytes: dice.maybe(Dice::u64),
                files: dice.maybe(Dice::u64),
            },
            used_bytes: dice.u64(),
            used_files: dice.u64(),
        }),
        SiteAnswer::Read {
            payload: payload(dice),
            end_of_file: dice.flag(),
        },
        SiteAnswer::Located {
            extents: vec![BackingExtent {
                object: object(dice),
                offset_bytes: dice.u64(),
                length_bytes: dice.u32(),
                version: Version(dice.u64()),
                capability: dice.maybe(capability),
            }],
            end_of_file: dice.flag(),
        },
        SiteAnswer::Written { incarnation },
        SiteAnswer::Committed,
        SiteAnswer::Mapped(mapped(dice)),
        SiteAnswer::Differs {
            at_bytes: dice.u64(),
        },
        SiteAnswer::Unreadable,
        SiteAnswer::Opened {
            layout: FileLayout {
                class: LayoutClass::MAPPED,
                class_epoch: dice.u32(),
                placement: file.id,
                generation: file.generation,
                columns: 4,
                truncate_generation: dice.u64(),
                map: MapFragment {
                    first_window: dice.u64(),
                    windows: dice.u64(),
                    columns: super::bytes(dice),
                },
                capability: dice.maybe(super::capability),
            },
            incarnation,
            lease: dice.maybe(|dice| FileLease {
                id: LeaseId(dice.u64()),
                is_exclusive: dice.flag(),
                lasts_ms: dice.u32(),
                wall: wall(dice),
                writable_bytes: dice.u64(),
            }),
        },
        SiteAnswer::Locked((0..dice.below(9)).map(|_| listed(dice)).collect()),
    ]);
    all
}

/// Every error.
#[must_use]
pub fn site_errors(dice: &mut Dice) -> Vec<SiteError> {
    vec![
        SiteError::NotOwner,
        SiteError::NotFound,
        SiteError::Io,
        SiteError::AccessDenied,
        SiteError::Exists,
        SiteError::CrossDevice,
        SiteError::NotDirectory,
        SiteError::IsDirectory,
        SiteError::Invalid,
        SiteError::FileTooBig,
        SiteError::NoSpace,
        SiteError::Quota,
        SiteError::TooManyLinks,
        SiteError::NameTooLong,
        SiteError::NotEmpty,
        SiteError::Stale,
        SiteError::BadCookie,
        SiteError::NotSync,
        SiteError::BadType,
        SiteError::Busy,
        SiteError::Lost {
            current: Incarnation(dice.u64()),
        },
        SiteError::Moved,
        SiteError::Unanswered,
        SiteError::Refused,
        SiteError::NotProven,
    ]
}

/// One notice of each kind.
#[must_use]
pub fn notices(dice: &mut Dice) -> Vec<LockNotice> {
    vec![
        LockNotice::Restarted {
            state: dice.u32(),
            clients: (0..dice.below(5)).map(|_| client(dice)).collect(),
        },
        LockNotice::Granted(Box::new(GrantedLock {
            id: GrantId(dice.u64()),
            lock: wanted(dice),
            handle: bytes(dice),
            version: 4,
        })),
        LockNotice::GrantSettled(GrantId(dice.u64())),
    ]
}
