//! Leases of files that a site gives (docs/decisions/0027): what waits until they have
//! been given back, or have ended.

mod rig;

use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{FileRef, HostId, LayoutClass, ObjectClass};
use crossdock_peer::{
    AttributeChanges, CallId, CreateMode, FileLease, LeaseId, LeaseUse, OpenFor, Recall,
    SiteAnswer, SiteOperation, SiteReply, Stability,
};
use crossdock_site::{SiteInput, SiteLimits};
use crossdock_types::WallTime;

use rig::{READ, ROOT, Rig, once, plain};

const FIRST: HostId = HostId(1);
const SECOND: HostId = HostId(2);
const GROWN_BYTES: u64 = 300_000;

const WRITE: OpenFor = OpenFor::Write {
    offset_bytes: 65_536,
    end_bytes: GROWN_BYTES,
};

/// A site with a file that has columns.
fn rig_with_file() -> (Rig, FileRef) {
    let mut rig = Rig::new(SiteLimits::default());
    let created = rig.ask(SiteOperation::Create {
        directory: ROOT,
        name: Bytes::from_static(b"file"),
        mode: CreateMode::Guarded(AttributeChanges::default()),
    });
    let Ok(SiteAnswer::Found { attributes, .. }) = created.outcome else {
        panic!("{created:?}");
    };
    let file = attributes.file;
    assert!(
        lease_of(&rig.ask(open(file, WRITE, FIRST))).is_none(),
        "columns are made"
    );
    (rig, file)
}

fn open(file: FileRef, purpose: OpenFor, holder: HostId) -> SiteOperation {
    SiteOperation::Open {
        file,
        purpose,
        holder: Some(holder),
    }
}

fn lease_of(reply: &SiteReply) -> Option<FileLease> {
    match &reply.outcome {
        Ok(SiteAnswer::Opened { lease, .. }) => *lease,
        other => panic!("{other:?}"),
    }
}

fn given(rig: &mut Rig, file: FileRef, purpose: OpenFor, holder: HostId) -> LeaseId {
    lease_of(&rig.ask(open(file, purpose, holder)))
        .expect("a lease")
        .id
}

/// What gives a lease back, with what was written under it.
fn back(rig: &mut Rig, file: FileRef, id: LeaseId, size_at_least_bytes: u64) -> SiteOperation {
    let opened = rig.site.directory().cell(file).expect("it is there");
    SiteOperation::PushAttributes {
        file,
        size_at_least_bytes,
        wrote: size_at_least_bytes > 0,
        read: false,
        truncate_generation: opened.rare().truncate_generation,
        stability: Stability::Unstable,
        written: (size_at_least_bytes > 0).then_some(WallTime(rig.wall.0 + 5_000_000)),
        lease: Some(LeaseUse::GiveBack(id)),
    }
}

fn stat(file: FileRef) -> SiteOperation {
    SiteOperation::GetAttributes { file }
}

fn size(rig: &Rig, call: CallId) -> u64 {
    let reply = &rig.replies[&call];
    reply.subject.after.as_ref().expect("attributes").size_bytes
}

fn elapse(rig: &mut Rig, time: Duration) {
    rig.now = rig.now + time;
    rig.input(SiteInput::Timeout);
    rig.run();
}

/// Asserts that the request waits, and for which lease.
#[track_caller]
fn waits(rig: &mut Rig, operation: SiteOperation, holder: HostId, id: LeaseId) -> CallId {
    rig.recalls.clear();
    let call = rig.send(plain(operation));
    rig.run();
    assert!(!rig.replies.contains_key(&call), "{:?}", rig.replies[&call]);
    let named: Vec<(HostId, LeaseId)> =
        rig.recalls.iter().map(|(to, it)| (*to, it.lease)).collect();
    assert_eq!(named, [(holder, id)]);
    call
}

/// Goal: nobody is shown a file's attributes while somebody else may know newer ones
/// (history `write-then-stat-elsewhere`): by number, by name, or to read it.
#[test]
fn what_a_writer_knows_is_waited_for() {
    let lookup = |_| SiteOperation::Lookup {
        directory: ROOT,
        name: Bytes::from_static(b"file"),
    };
    let read = |file| open(file, READ, SECOND);
    let asks: [fn(FileRef) -> SiteOperation; 3] = [stat, lookup, read];
    for ask in asks {
        let (mut rig, file) = rig_with_file();
        let lease = given(&mut rig, file, WRITE, FIRST);
        let call = waits(&mut rig, ask(file), FIRST, lease);
        let push = back(&mut rig, file, lease, GROWN_BYTES);
        rig.ask(push);
        let reply = &rig.replies[&call];
        let shown = match &reply.outcome {
            Ok(SiteAnswer::Found { attributes, .. }) => attributes,
            _ => reply.subject.after.as_ref().expect("attributes"),
        };
        assert_eq!(shown.size_bytes, GROWN_BYTES);
        assert_eq!(shown.modified.0 % 1_000_000, rig.wall.0 % 1_000_000);
    }
}

/// Goal: what changes a file waits for all who may know what it was (histories
/// `truncate-under-read-lease`, and each other change).
#[test]
fn changes_wait_for_readers() {
    let set = |file, changes| SiteOperation::SetAttributes {
        file,
        changes,
        guard: None,
    };
    let name = || Bytes::from_static(b"file");
    for number in 0..4 {
        let (mut rig, file) = rig_with_file();
        let lease = given(&mut rig, file, READ, FIRST);
        let change = match number {
            0 => set(
                file,
                AttributeChanges {
                    size_bytes: Some(9),
                    ..Default::default()
                },
            ),
            1 => set(
                file,
                AttributeChanges {
                    mode: Some(0o600),
                    ..Default::default()
                },
            ),
            2 => SiteOperation::Remove {
                directory: ROOT,
                name: name(),
            },
            _ => SiteOperation::Link {
                file,
                directory: ROOT,
                name: Bytes::from_static(b"more"),
            },
        };
        let shown = rig.ask(stat(file));
        assert!(shown.outcome.is_ok(), "readers keep nobody from looking");
        let call = waits(&mut rig, change, FIRST, lease);
        let push = back(&mut rig, file, lease, 0);
        rig.ask(push);
        assert!(rig.replies[&call].outcome.is_ok());
    }
}

/// Goal: any number of gateways may read; one that writes has readers' leases taken back
/// before its write is told.
#[test]
fn a_writer_without_a_lease_is_told_after_the_readers() {
    let (mut rig, file) = rig_with_file();
    let first = given(&mut rig, file, READ, FIRST);
    given(&mut rig, file, READ, SECOND);
    assert!(lease_of(&rig.ask(open(file, WRITE, HostId(3)))).is_none());
    let push = SiteOperation::PushAttributes {
        file,
        size_at_least_bytes: GROWN_BYTES,
        wrote: true,
        read: false,
        truncate_generation: u64::MAX,
        stability: Stability::Stable,
        written: None,
        lease: None,
    };
    let call = rig.send(plain(push));
    rig.run();
    assert!(!rig.replies.contains_key(&call));
    assert_eq!(rig.recalls.len(), 2);
    let push = back(&mut rig, file, first, 0);
    rig.ask(push);
    assert!(
        !rig.replies.contains_key(&call),
        "the other one still has its own"
    );
    elapse(&mut rig, FileLease::KEPT);
    assert_eq!(size(&rig, call), GROWN_BYTES);
}

/// Goal: the only reader may become the writer at once; its old lease counts no more.
#[test]
fn a_reader_becomes_a_writer() {
    let (mut rig, file) = rig_with_file();
    let old = given(&mut rig, file, READ, FIRST);
    let lease = given(&mut rig, file, WRITE, FIRST);
    assert!(rig.recalls.is_empty());
    let push = back(&mut rig, file, old, 0);
    rig.ask(push);
    waits(&mut rig, stat(file), FIRST, lease);
}

/// What bulk I/O has written to the columns: the last byte of the file is `end`'s.
fn write_columns(rig: &mut Rig, file: FileRef, end: u64) {
    let columns = rig.site.directory().cell(file).unwrap().rare().columns;
    for node in rig.nodes.values_mut() {
        for (object, content) in &mut node.objects {
            if object.class == ObjectClass::Column {
                let end = LayoutClass::STRIPED.column_end(end, 0, object.column, columns);
                content.bytes.resize(usize::try_from(end).unwrap(), 1);
            }
        }
    }
}

fn generation(rig: &Rig, file: FileRef) -> u64 {
    let cell = rig.site.directory().cell(file).expect("it is there");
    cell.rare().truncate_generation
}

/// Goal: a holder that does not answer is waited for no longer than its lease lasts, and
/// asked again until then; what it had written is seen then, by what the columns tell, and
/// what is still on its way is refused (history `holder-dies-dirty`).
#[test]
fn what_a_lost_writer_wrote_the_columns_tell() {
    let (mut rig, file) = rig_with_file();
    let lease = given(&mut rig, file, WRITE, FIRST);
    let before = generation(&rig, file);
    write_columns(&mut rig, file, GROWN_BYTES);
    let call = waits(&mut rig, stat(file), FIRST, lease);
    elapse(&mut rig, Duration::from_millis(300));
    assert_eq!(rig.recalls.len(), 2, "asked again");
    elapse(&mut rig, FileLease::KEPT);
    assert_eq!(size(&rig, call), GROWN_BYTES);
    let current = generation(&rig, file);
    assert!(current > before, "late writes are not refused");
    for column in rig.columns() {
        let held = rig
            .nodes
            .values()
            .filter_map(|node| node.objects.get(&column));
        let mut held = held.map(|content| content.truncate_generation);
        assert!(held.all(|generation| generation == current));
    }
    // What it tells now says nothing of the file as it is.
    let mut push = back(&mut rig, file, lease, 2 * GROWN_BYTES);
    if let SiteOperation::PushAttributes {
        truncate_generation,
        ..
    } = &mut push
    {
        *truncate_generation = before;
    }
    let told = rig.ask(push);
    assert!(
        matches!(told.outcome, Ok(SiteAnswer::Opened { .. })),
        "{told:?}"
    );
    let size = rig.site.directory().cell(file).unwrap().size_bytes;
    assert_eq!(size, GROWN_BYTES);
}

/// Goal: a holder that was only away tells all that there is to know, if nobody has asked
/// meanwhile: then nothing of it has to be written again.
#[test]
fn what_a_writer_tells_late_counts_if_nobody_has_asked() {
    let (mut rig, file) = rig_with_file();
    let lease = given(&mut rig, file, WRITE, FIRST);
    let before = generation(&rig, file);
    elapse(&mut rig, 2 * FileLease::KEPT);
    let push = back(&mut rig, file, lease, GROWN_BYTES);
    let told = rig.ask(push);
    assert_eq!(told.outcome, Ok(SiteAnswer::Done));
    let shown = rig.ask(stat(file)).subject.after.expect("attributes");
    assert_eq!(shown.size_bytes, GROWN_BYTES);
    assert_eq!(generation(&rig, file), before);
}

/// Goal: a file of which a lease was recalled is given out to nobody for a second: it is
/// shared, and recalls would cost more than leases save.
#[test]
fn a_shared_file_is_not_given_out_for_a_while() {
    let (mut rig, file) = rig_with_file();
    let lease = given(&mut rig, file, WRITE, FIRST);
    waits(&mut rig, stat(file), FIRST, lease);
    let push = back(&mut rig, file, lease, 0);
    rig.ask(push);
    assert!(lease_of(&rig.ask(open(file, WRITE, FIRST))).is_none());
    elapse(&mut rig, Duration::from_millis(1100));
    given(&mut rig, file, WRITE, FIRST);
}

/// Goal: a list of names waits for nobody: of a file that somebody writes it tells no
/// attributes, as NFS allows.
#[test]
fn a_list_leaves_out_what_a_writer_knows() {
    let (mut rig, file) = rig_with_file();
    let list = || SiteOperation::ReadDirectory {
        directory: ROOT,
        cookie: 0,
        entries_max: 100,
        name_bytes_max: 10_000,
        with_attributes: true,
    };
    let has_attributes = |reply: &SiteReply| match &reply.outcome {
        Ok(SiteAnswer::Directory { entries, .. }) => {
            let entry = entries.iter().find(|entry| entry.file == file.id);
            entry.expect("listed").attributes.is_some()
        }
        other => panic!("{other:?}"),
    };
    assert!(has_attributes(&rig.ask(list())));
    given(&mut rig, file, WRITE, FIRST);
    assert!(!has_attributes(&rig.ask(list())));
    assert!(rig.recalls.is_empty());
}

/// Goal: a site is not closed before all leases are back (history
/// `handover-with-leases`).
#[test]
fn a_site_is_closed_after_its_leases_are_back() {
    let (mut rig, file) = rig_with_file();
    let lease = given(&mut rig, file, WRITE, FIRST);
    rig.site.commit_all(rig.now, rig.wall);
    rig.collect();
    rig.run();
    assert_eq!(rig.recalls, [(FIRST, Recall { file, lease })]);
    assert!(!rig.site.is_committed());
    assert_eq!(rig.site.leases_end(), rig.now + FileLease::KEPT);
    let push = back(&mut rig, file, lease, GROWN_BYTES);
    rig.ask(push);
    rig.site.commit_all(rig.now, rig.wall);
    rig.collect();
    rig.run();
    assert!(rig.site.is_committed());
}

/// Goal: whose write takes bits from the mode, and who is not bounded by what the site
/// counts, asks each time.
#[test]
fn a_file_with_set_id_bits_is_not_given_to_write() {
    let (mut rig, file) = rig_with_file();
    let changes = AttributeChanges {
        mode: Some(0o4755),
        ..AttributeChanges::default()
    };
    let set = SiteOperation::SetAttributes {
        file,
        changes,
        guard: None,
    };
    rig.send(once(1, set));
    rig.run();
    assert!(lease_of(&rig.ask(open(file, WRITE, FIRST))).is_none());
    given(&mut rig, file, READ, FIRST);
}

/// Goal: what a stable write has told under a lease does not move the times when the lease
/// comes back: that is in memory only, so they went back when the manager was killed (suite
/// `cluster-clocks`).
#[test]
fn what_was_told_before_moves_no_time() {
    let (mut rig, file) = rig_with_file();
    let lease = given(&mut rig, file, WRITE, FIRST);
    let mut told = back(&mut rig, file, lease, GROWN_BYTES);
    if let SiteOperation::PushAttributes {
        stability, lease, ..
    } = &mut told
    {
        *stability = Stability::Stable;
        *lease = lease.map(|used| match used {
            LeaseUse::GiveBack(id) | LeaseUse::Keep(id) => LeaseUse::Keep(id),
        });
    }
    let again = back(&mut rig, file, lease, GROWN_BYTES);
    let after = |reply: SiteReply| reply.subject.after.expect("attributes");
    let written = after(rig.ask(told));
    assert_eq!(written.size_bytes, GROWN_BYTES);
    assert!(rig.ask(again).outcome.is_ok());
    let seen = after(rig.ask(stat(file)));
    assert_eq!(
        (seen.changed, seen.modified),
        (written.changed, written.modified)
    );
}
