//! A site with one member whose disk takes no writes any more: who waits is
//! told, what can be read is read, and the next opening has all that was
//! acknowledged.

mod rig;

use bytes::Bytes;
use crossdock_names::NodeId;
use crossdock_peer::{OpenFor, SiteAnswer, SiteError, SiteOperation, Stability};
use crossdock_site::SiteLimits;

use rig::{Landing, ROOT, Rig, create, once, plain, remove, write};

const ALONE: NodeId = NodeId(1);

/// A site whose set has one member.
fn alone() -> Rig {
    let mut rig = Rig::new(SiteLimits::default());
    rig.leave(NodeId(2));
    rig.run();
    rig
}

fn lookup(name: &str) -> SiteOperation {
    SiteOperation::Lookup {
        directory: ROOT,
        name: Bytes::copy_from_slice(name.as_bytes()),
    }
}

fn break_disk(rig: &mut Rig, landing: Landing) {
    let node = rig.nodes.get_mut(&ALONE).expect("there");
    node.takes_no_writes = Some(landing);
}

fn mend_and_reopen(rig: &mut Rig) {
    rig.nodes.get_mut(&ALONE).expect("there").takes_no_writes = None;
    rig.restart();
}

/// Goal: a change that cannot be logged is an error at once and not "try again"
/// for ever, with all that was gathered behind it; reads of what is durable go
/// on, and nothing is shown of what is not.
#[test]
fn changes_fail_and_reads_go_on() {
    let mut rig = alone();
    let old = rig.create("old");
    rig.write(old, 0, b"content", Stability::Stable);
    break_disk(&mut rig, Landing::Lost);
    let first = rig.send(once(1, create("first")));
    let behind = rig.send(once(2, create("behind")));
    let shown = rig.send(plain(lookup("first")));
    rig.run();
    for call in [first, behind, shown] {
        assert_eq!(rig.replies[&call].outcome, Err(SiteError::Io), "{call:?}");
    }
    assert!(rig.site.is_read_only() && !rig.site.is_serving());
    assert_eq!(rig.read_only.len(), 1);

    for change in [
        create("later"),
        remove("old"),
        write(old, 0, b"other", Stability::Stable),
        write(old, 0, b"other", Stability::Unstable),
        SiteOperation::Open {
            file: old,
            purpose: OpenFor::Write {
                offset_bytes: 0,
                end_bytes: 100_000,
            },
            holder: None,
        },
    ] {
        assert_eq!(rig.ask(change).outcome, Err(SiteError::Io));
    }
    assert_eq!(rig.read(old), b"content");
    let attributes = SiteOperation::GetAttributes { file: old };
    assert_eq!(rig.ask(attributes).outcome, Ok(SiteAnswer::Done));
    // The directory itself would show the names that nobody may see.
    assert_eq!(rig.lookup("first"), Err(SiteError::Io));
    // The same call again is not carried out, either.
    let again = rig.send(once(1, create("first")));
    rig.run();
    assert_eq!(rig.replies[&again].outcome, Err(SiteError::Io));
}

/// Goal: the next opening has all that was acknowledged; the frame that failed
/// is there with all its records or not at all, as the disk has it, and nothing
/// that was refused behind it.
#[test]
fn the_next_opening_has_what_was_acknowledged() {
    for landing in [Landing::Lost, Landing::Kept] {
        let mut rig = alone();
        let old = rig.create("old");
        break_disk(&mut rig, landing);
        rig.send(plain(create("first")));
        rig.send(plain(create("behind")));
        rig.run();
        assert!(rig.site.is_read_only());
        assert_eq!(rig.ask(create("later")).outcome, Err(SiteError::Io));
        mend_and_reopen(&mut rig);
        assert!(rig.site.is_serving());
        assert_eq!(rig.lookup("old"), Ok(old));
        let first = rig.lookup("first");
        assert_eq!(first.is_ok(), landing == Landing::Kept, "{first:?}");
        for name in ["behind", "later"] {
            assert_eq!(rig.lookup(name), Err(SiteError::NotFound));
        }
        rig.create("new");
    }
}

/// Goal: with another member left the log goes on there: nobody sees an error.
#[test]
fn with_another_member_nobody_is_told() {
    let mut rig = Rig::new(SiteLimits::default());
    break_disk(&mut rig, Landing::Lost);
    let call = rig.send(plain(create("first")));
    rig.run();
    assert!(!rig.replies.contains_key(&call) && rig.site.is_serving());
    assert_eq!(rig.read_only.len(), 0);
}
