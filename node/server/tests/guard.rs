//! What gateways show: who may have what done to which object.

use std::collections::BTreeSet;

use crossdock_names::{
    FileCapability, FileId, HostId, Incarnation, MintingKey, ObjectClass, ObjectId, Rights, Scope,
    SiteId, Version,
};
use crossdock_peer::{
    AccessError, CopySource, NodeRequest, Order, PinId, ReadVersion, Stability, WriteContext,
};
use crossdock_server::{CAPABILITY_SECONDS, CLOCK_MARGIN_SECONDS, Guard};
use crossdock_types::{Payload, WallTime};

const MANAGER: HostId = HostId(1);
const GATEWAY: HostId = HostId(2);
const FILE: FileId = FileId(9);
const KEY: MintingKey = MintingKey([7; 32]);
const NOW: i64 = 1_700_000_000;

fn wall(seconds: i64) -> WallTime {
    WallTime(seconds * 1_000_000_000)
}

fn guard() -> Guard {
    let mut guard = Guard::default();
    guard.learn(MANAGER, KEY);
    guard
}

fn capability(rights: Rights) -> FileCapability {
    FileCapability {
        rights,
        minter: MANAGER,
        holder: GATEWAY,
        scope: Scope::Columns {
            placement: FILE,
            generation: 1,
        },
        expiry_seconds: NOW.unsigned_abs() + CAPABILITY_SECONDS,
        mac: [0; 16],
    }
}

fn made(rights: Rights) -> FileCapability {
    capability(rights).mint(&KEY)
}

fn read(object: ObjectId) -> NodeRequest {
    NodeRequest::Read {
        object,
        offset_bytes: 0,
        length_bytes: 4096,
        version: ReadVersion::Current,
        patience_ms: 0,
    }
}

fn write(object: ObjectId) -> NodeRequest {
    NodeRequest::Write {
        object,
        offset_bytes: 0,
        payload: Payload::new(),
        stability: Stability::Stable,
        context: WriteContext::default(),
        order: Order::Primary,
    }
}

fn column() -> ObjectId {
    ObjectId::column(FILE, 1, 3, 2)
}

fn check(request: &NodeRequest, shown: Option<FileCapability>) -> Result<(), AccessError> {
    guard().check(wall(NOW), GATEWAY, request, shown.as_ref())
}

/// Goal: what the site gave is enough for what it was given for.
#[test]
fn what_a_site_has_allowed_is_done() {
    let both = Rights(Rights::READ.0 | Rights::WRITE.0);
    let commit = NodeRequest::Commit {
        object: column(),
        incarnation: Incarnation(1),
    };
    assert_eq!(check(&read(column()), Some(made(Rights::READ))), Ok(()));
    assert_eq!(check(&write(column()), Some(made(Rights::WRITE))), Ok(()));
    assert_eq!(check(&commit, Some(made(Rights::WRITE))), Ok(()));
    assert_eq!(check(&read(column()), Some(made(both))), Ok(()));
    // Who may read may have read ahead.
    for is_wanted in [true, false] {
        let ahead = NodeRequest::Ahead {
            object: column(),
            offset_bytes: 0,
            length_bytes: 4096,
            is_wanted,
        };
        assert_eq!(check(&ahead, Some(made(Rights::READ))), Ok(()));
        let wrong = check(&ahead, Some(made(Rights::WRITE)));
        assert_eq!(wrong, Err(AccessError::Rights));
        assert_eq!(check(&ahead, None), Err(AccessError::Missing));
    }
}

/// Goal: each thing that is wrong with a capability is refused, by its own name.
#[test]
fn what_is_wrong_with_a_capability_is_said() {
    let good = made(Rights::READ);
    let asked = read(column());
    assert_eq!(check(&asked, None), Err(AccessError::Missing));
    let mut forged = good;
    forged.mac[3] ^= 4;
    assert_eq!(check(&asked, Some(forged)), Err(AccessError::Forged));
    let mut wider = good;
    wider.rights = Rights(Rights::READ.0 | Rights::WRITE.0);
    assert_eq!(
        check(&write(column()), Some(wider)),
        Err(AccessError::Forged)
    );
    let mut longer = good;
    longer.expiry_seconds += 1;
    assert_eq!(check(&asked, Some(longer)), Err(AccessError::Forged));
    let rights = check(&write(column()), Some(good));
    assert_eq!(rights, Err(AccessError::Rights));
    let rights = check(&asked, Some(made(Rights::WRITE)));
    assert_eq!(rights, Err(AccessError::Rights));
    for other in [
        ObjectId::column(FileId(10), 1, 3, 2),
        ObjectId::column(FILE, 2, 3, 2),
    ] {
        assert_eq!(check(&read(other), Some(good)), Err(AccessError::OtherFile));
    }
    let other = guard().check(wall(NOW), HostId(3), &asked, Some(&good));
    assert_eq!(other, Err(AccessError::OtherHolder { holder: GATEWAY }));
}

/// Goal: a capability ends, whatever the clocks within their margin, and not before.
#[test]
fn a_capability_ends() {
    let shown = made(Rights::READ);
    let at = |after: u64| {
        let now = wall(NOW + i64::try_from(after).expect("small"));
        guard().check(now, GATEWAY, &read(column()), Some(&shown))
    };
    let last = CAPABILITY_SECONDS + CLOCK_MARGIN_SECONDS;
    assert_eq!(at(last), Ok(()));
    let seconds = CLOCK_MARGIN_SECONDS + 1;
    assert_eq!(at(last + 1), Err(AccessError::Expired { seconds }));
}

/// Goal: a manager that has been replaced has made nothing; one that was never heard
/// of neither. Both are cured by opening the file again.
#[test]
fn who_is_not_a_manager_makes_nothing() {
    let mut guard = guard();
    guard.learn(HostId(5), MintingKey([1; 32]));
    guard.keep(&BTreeSet::from([HostId(5)]));
    let shown = made(Rights::READ);
    let refused = guard.check(wall(NOW), GATEWAY, &read(column()), Some(&shown));
    let unknown = AccessError::UnknownMinter { minter: MANAGER };
    assert_eq!(refused, Err(unknown));
    assert!(unknown.is_outdated() && !AccessError::Forged.is_outdated());
}

/// Goal: logs, small files, and everything but reading, writing and committing are
/// not for gateways, whatever they show.
#[test]
fn gateways_reach_nothing_but_what_is_in_files() {
    let all = made(Rights(7));
    let context = WriteContext::default();
    let order = Order::Primary;
    let given = NodeRequest::Write {
        object: column(),
        offset_bytes: 0,
        payload: Payload::new(),
        stability: Stability::Stable,
        context,
        order: Order::Given(Version(1)),
    };
    let mut requests = vec![
        given,
        NodeRequest::Remove {
            object: column(),
            context,
            order,
        },
        NodeRequest::Truncate {
            object: column(),
            size_bytes: 0,
            context,
            order,
        },
        NodeRequest::Unpin { pin: PinId(1) },
        NodeRequest::List {
            class: ObjectClass::Column,
            placement: None,
            after: None,
            limit: 1,
        },
    ];
    for class in [
        ObjectClass::SiteLog,
        ObjectClass::Checkpoint,
        ObjectClass::SmallFiles,
    ] {
        let object = ObjectId::of_site(class, SiteId(9), 0);
        requests.extend([read(object), write(object), NodeRequest::Stat { object }]);
    }
    for request in requests {
        let refused = check(&request, Some(all));
        assert_eq!(refused, Err(AccessError::NotForGateways), "{request:?}");
    }
}

/// Goal: who has bytes copied needs the right to write there, and to read what is copied: the node
/// that reads it does so in its own name.
#[test]
fn copies_need_a_right_to_both() {
    const OTHER: FileId = FileId(10);
    let right = |file, rights, holder| {
        let made = FileCapability {
            scope: Scope::Columns {
                placement: file,
                generation: 1,
            },
            holder,
            ..capability(rights)
        };
        Some(made.mint(&KEY))
    };
    let copied = |object, source| {
        let request = NodeRequest::Copy {
            object: column(),
            offset_bytes: 0,
            source: Box::new(CopySource {
                object,
                offset_bytes: 0,
                length_bytes: 4096,
                version: ReadVersion::Current,
                capability: source,
            }),
            stability: Stability::Stable,
            frees_zeros: true,
            context: WriteContext::default(),
        };
        check(&request, right(FILE, Rights::WRITE, GATEWAY))
    };
    let source = ObjectId::column(OTHER, 1, 0, 0);
    assert_eq!(copied(source, right(OTHER, Rights::READ, GATEWAY)), Ok(()));
    let mut forged = right(OTHER, Rights::READ, GATEWAY);
    if let Some(forged) = &mut forged {
        forged.mac[0] ^= 1;
    }
    let holder = HostId(3);
    for (shown, error) in [
        (None, AccessError::Missing),
        (forged, AccessError::Forged),
        (right(OTHER, Rights::WRITE, GATEWAY), AccessError::Rights),
        (right(FILE, Rights::READ, GATEWAY), AccessError::OtherFile),
        (
            right(OTHER, Rights::READ, holder),
            AccessError::OtherHolder { holder },
        ),
    ] {
        assert_eq!(copied(source, shown), Err(error));
    }
    let log = ObjectId::of_site(ObjectClass::SiteLog, SiteId(9), 0);
    let refused = copied(log, right(OTHER, Rights::READ, GATEWAY));
    assert_eq!(refused, Err(AccessError::NotForGateways));
}

/// Goal: of an object with small files a gateway may read the range that it was told of, up to the
/// version of that time, and nothing beside it: other files lie there.
#[test]
fn small_files_do_not_show_their_neighbours() {
    let object = ObjectId::of_site(ObjectClass::SmallFiles, SiteId(3), 1);
    let scope = Scope::Range {
        object,
        offset_bytes: 8192,
        length_bytes: 4096,
        version: Version(7),
    };
    let shown = FileCapability {
        scope,
        ..capability(Rights::READ)
    };
    let shown = shown.mint(&KEY);
    let asked = |object, offset_bytes, length_bytes, version| {
        let request = NodeRequest::Read {
            object,
            offset_bytes,
            length_bytes,
            version,
            patience_ms: 0,
        };
        check(&request, Some(shown))
    };
    let then = ReadVersion::NotAfter(Version(7));
    assert_eq!(asked(object, 8192, 4096, then), Ok(()));
    assert_eq!(asked(object, 9000, 1, then), Ok(()));
    let exactly = |version| ReadVersion::Exactly(Version(version));
    assert_eq!(asked(object, 9000, 1, exactly(6)), Ok(()));
    let other = ObjectId::of_site(ObjectClass::SmallFiles, SiteId(3), 2);
    let later = ReadVersion::NotAfter(Version(8));
    for (object, offset, length, version) in [
        (object, 8191, 4096, then),
        (object, 8192, 4097, then),
        (object, 8192, u64::MAX, then),
        (other, 8192, 4096, then),
        (object, 8192, 4096, later),
        (object, 8192, 4096, exactly(8)),
        (column(), 8192, 4096, then),
    ] {
        let refused = asked(object, offset, length, version);
        assert_eq!(refused, Err(AccessError::OtherFile), "{object} {offset}");
    }
    let now = asked(object, 8192, 4096, ReadVersion::Current);
    assert_eq!(now, Err(AccessError::NotForGateways));
    // A right to columns is none to backing objects.
    let request = NodeRequest::Read {
        object,
        offset_bytes: 8192,
        length_bytes: 4096,
        version: then,
        patience_ms: 0,
    };
    let columns = check(&request, Some(made(Rights::READ)));
    assert_eq!(columns, Err(AccessError::OtherFile));
}

/// Goal: what a host has promised may be asked for at every member, kept and read again, in that
/// version and place only, and longer than what a site gives.
#[test]
fn a_promise_is_a_right_to_its_bytes() {
    let scope = Scope::Range {
        object: column(),
        offset_bytes: 8192,
        length_bytes: 4096,
        version: Version(7),
    };
    let shown = FileCapability {
        scope,
        expiry_seconds: capability(Rights::READ).expiry_seconds + 1500,
        ..capability(Rights::READ)
    };
    let shown = shown.mint(&KEY);
    let late = wall(NOW + i64::try_from(CAPABILITY_SECONDS).expect("small") + 1400);
    let asked = |request: &NodeRequest| guard().check(late, GATEWAY, request, Some(&shown));
    let read = |object, offset_bytes, version| NodeRequest::Read {
        object,
        offset_bytes,
        length_bytes: 4096,
        version,
        patience_ms: 0,
    };
    let pin = |offset_bytes, version| NodeRequest::Pin {
        object: column(),
        offset_bytes,
        length_bytes: 4096,
        version,
        lease_ms: 1,
    };
    let as_of = |version| ReadVersion::AsOf {
        changed: Version(1),
        as_of: Version(version),
    };
    let exactly = |version| ReadVersion::Exactly(Version(version));
    for allowed in [
        read(column(), 8192, as_of(7)),
        read(column(), 8192, exactly(6)),
        pin(8192, Some(Version(7))),
    ] {
        assert_eq!(asked(&allowed), Ok(()), "{allowed:?}");
    }
    let other = ObjectId::column(FILE, 1, 3, 1);
    for refused in [
        read(column(), 8192, as_of(8)),
        read(column(), 8192, exactly(8)),
        read(column(), 8193, as_of(7)),
        read(other, 8192, as_of(7)),
        read(column(), 8192, ReadVersion::Current),
        pin(8192, Some(Version(8))),
        pin(8191, Some(Version(7))),
    ] {
        assert_eq!(asked(&refused), Err(AccessError::OtherFile), "{refused:?}");
    }
    assert_eq!(asked(&pin(8192, None)), Err(AccessError::NotForGateways));
    let with_columns = guard().check(
        wall(NOW),
        GATEWAY,
        &pin(8192, Some(Version(7))),
        Some(&made(Rights::READ)),
    );
    assert_eq!(with_columns, Err(AccessError::OtherFile));
    let object = ObjectId::of_site(ObjectClass::SmallFiles, SiteId(3), 1);
    let small = read(object, 8192, as_of(7));
    assert_eq!(asked(&small), Err(AccessError::NotForGateways));
}
