//! Histories of CONSISTENCY 4 and 7, move by move. Each must also go wrong when the rule
//! that prevents it is built out: else it would prove nothing.

use std::time::Duration;

use bytes::Bytes;
use crossdock_host::Mutation;
use crossdock_members::Change;
use crossdock_nfs3::call::{self, CreateHow, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Reply, SetAttributes, Status};
use crossdock_types::Payload;

use super::damaged_directories::{HASHED, name_at, other_parts};
use super::network::Place;
use super::stage::{CUT, LONG, SHAPE, Stage, WELL};

/// The manager of a site is paused and cut off together with a gateway; when it
/// goes on, another one has long changed a name. Whether the old name shows.
fn paused_reader(mutation: Option<Mutation>) -> bool {
    let mut stage = Stage::new(SHAPE, mutation);
    stage.create(b"old");
    let manager = stage.manager();
    stage.world.pause(manager, Duration::from_millis(2900));
    for place in [manager, CUT] {
        stage.world.cut_from_registry(place, LONG);
    }
    stage.wait_for_another(manager);
    stage.rename(b"old", b"new");
    stage.is_shown(b"old", Duration::from_secs(12))
}

/// Goal: history `paused-reader`: a manager that stood still for longer than its
/// leases last answers nothing of what it remembers.
#[test]
fn paused_reader_is_shown_nothing_old() {
    assert!(!paused_reader(None));
    assert!(paused_reader(Some(Mutation::IgnoreLease)));
}

/// A manager and a gateway are cut off. Whether the old name shows after somebody
/// was told that it has been changed.
fn lease_lost_at_take_over(mutation: Option<Mutation>) -> bool {
    let mut stage = Stage::new(SHAPE, mutation);
    stage.create(b"old");
    let manager = stage.manager();
    for place in [manager, CUT] {
        stage.world.cut_from_registry(place, LONG);
    }
    stage.wait_for_another(manager);
    stage.rename(b"old", b"new");
    stage.is_shown(b"old", Duration::from_secs(3))
}

/// Goal: history `lease-lost-at-take-over`: a successor acknowledges nothing while
/// the one that it has replaced may still answer.
#[test]
fn a_lease_is_waited_out_before_the_site_goes_on() {
    assert!(!lease_lost_at_take_over(None));
    assert!(lease_lost_at_take_over(Some(Mutation::GrantAtOnce)));
    assert!(lease_lost_at_take_over(Some(Mutation::IgnoreLease)));
}

/// Where in a file the bytes lie: beyond what a site keeps.
const OFFSET: u64 = 128 << 10;

const BYTES: u32 = 4096;

fn write(file: &HandleBuffer, byte: u8, stable: StableHow) -> Call<'_> {
    Call::Write(call::Write {
        file: file.as_handle(),
        offset: OFFSET,
        count_bytes: BYTES,
        stable,
        data: Payload::from(Bytes::from(vec![byte; BYTES as usize])),
    })
}

/// A node is cut off together with the manager and a gateway. What was written
/// meanwhile went to the node's successor. Whether the old bytes show.
fn deposed_primary(node: Place, mutation: Option<Mutation>) -> bool {
    let mut stage = Stage::new(SHAPE, mutation);
    let file = stage.create(b"file");
    let written = stage.do_it(&write(&file, 1, StableHow::FileSync));
    assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    let manager = stage.manager();
    stage.world.cut(WELL, node, LONG);
    for place in [node, manager, CUT] {
        stage.world.cut_from_registry(place, LONG);
    }
    stage.begin(WELL, &write(&file, 2, StableHow::Unstable));
    let written = stage.wait(LONG).expect("an answer");
    assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    let read = Call::Read(call::Read {
        file: file.as_handle(),
        offset: OFFSET,
        count_bytes: BYTES,
    });
    let answer = stage.ask(CUT, &read, Duration::from_secs(3));
    let Some(Reply::Read(Ok(read))) = answer else {
        return false;
    };
    read.data.to_bytes() == vec![1; BYTES as usize]
}

/// Goal: the primary of a data set shows nothing old either, whichever of the
/// nodes it is that is cut off.
#[test]
fn a_deposed_primary_shows_nothing_old() {
    let is_shown = |mutation| (0..3).any(|node| deposed_primary(node, mutation));
    assert!(!is_shown(None));
    assert!(is_shown(Some(Mutation::IgnoreLease)));
    assert!(is_shown(Some(Mutation::GrantAtOnce)));
}

/// Goal: who loses the registry, and nothing else, is replaced within 5 s of it:
/// the registry's lease and the hosts' together.
#[test]
fn a_site_is_taken_over_within_five_seconds() {
    let mut stage = Stage::new(SHAPE, None);
    stage.create(b"old");
    let manager = stage.manager();
    let begun = stage.world.now;
    stage.world.cut_from_registry(manager, LONG);
    stage.wait_for_another(manager);
    stage.rename(b"old", b"new");
    let pause = stage.world.now.since(begun);
    assert!(pause < Duration::from_secs(5), "{pause:?}");
}

/// Goal: a gateway whose certificate has another name than the gateway itself is refused:
/// else the key of one that was revoked would be of use under any name.
#[test]
fn a_gateway_has_the_name_of_its_certificate() {
    let mut stage = Stage::new(SHAPE, None);
    let soon = Duration::from_secs(3);
    stage.create(b"file");
    stage.world.certify(CUT, "gateway-0");
    assert!(stage.is_shown(b"file", soon));
    stage.world.certify(CUT, "stolen");
    assert!(!stage.is_shown(b"file", soon));
}

/// Goal: history `revoked-gateway`: from the moment that all have heard of it a
/// gateway that is revoked neither shows nor changes anything, in small files and in
/// large ones; the other one goes on, and so does the first one when it is let in again.
#[test]
fn a_revoked_gateway_shows_and_changes_nothing() {
    let mut stage = Stage::new(SHAPE, None);
    let file = stage.create(b"file");
    let soon = Duration::from_secs(3);
    let read = Call::Read(call::Read {
        file: file.as_handle(),
        offset: OFFSET,
        count_bytes: BYTES,
    });
    let written = stage.ask(CUT, &write(&file, 1, StableHow::FileSync), soon);
    assert!(matches!(written, Some(Reply::Write(Ok(_)))), "{written:?}");
    let name = "gateway-0".to_owned();
    stage.propose(Change::RevokeGateway { name: name.clone() });
    for stable in [StableHow::FileSync, StableHow::Unstable] {
        let written = stage.ask(CUT, &write(&file, 2, stable), soon);
        let status = written.and_then(|reply| reply.status());
        assert_eq!(status, Some(Status::Jukebox));
    }
    let shown = stage.ask(CUT, &read, soon);
    assert_eq!(shown.and_then(|it| it.status()), Some(Status::Jukebox));
    assert!(!stage.is_shown(b"file", soon));
    let Reply::Read(Ok(there)) = stage.do_it(&read) else {
        panic!("the other gateway does not go on");
    };
    assert_eq!(there.data.to_bytes(), vec![1; BYTES as usize]);
    let written = stage.do_it(&write(&file, 3, StableHow::FileSync));
    assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    stage.propose(Change::RestoreGateway { name });
    let Some(Reply::Read(Ok(there))) = stage.ask(CUT, &read, soon) else {
        panic!("it is not let in again");
    };
    assert_eq!(there.data.to_bytes(), vec![3; BYTES as usize]);
}

/// A directory in parts is removed while a name is made in a part that is not its home;
/// whether both are done.
fn name_in_removed(mutation: Option<Mutation>) -> bool {
    let mut stage = Stage::new(HASHED, mutation);
    let root = stage.root;
    (0..60).any(|step| {
        let of_directory = format!("d-{step}").into_bytes();
        let directory = stage.new_directory(&of_directory);
        let site = other_parts(directory.file)[0].id.site();
        let name = name_at(directory.file, site);
        let remove = Call::Rmdir(Stage::location(&root, &of_directory));
        stage.begin(CUT, &remove);
        stage.pass(Duration::from_micros(100 * step));
        let create = Call::Create(call::Create {
            location: Stage::location(&directory.handle, &name),
            how: CreateHow::Guarded(SetAttributes::default()),
        });
        let made = stage.ask(WELL, &create, LONG);
        stage.pass(Duration::from_secs(1));
        let is_made = matches!(made, Some(Reply::Create(Ok(_))));
        is_made && stage.look(&root, &of_directory).is_none()
    })
}

/// Goal: RMDIR of a directory in parts keeps all of them as they are until it is done.
#[test]
fn no_name_is_made_in_what_is_removed() {
    assert!(!name_in_removed(None));
    assert!(name_in_removed(Some(Mutation::FreezeNothing)));
}
