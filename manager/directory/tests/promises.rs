//! What docs/semantics.md promises of names, listings and times, as far as one
//! site keeps it.

mod tree;

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_directory::{Answer, Directory, Wanted};
use crossdock_limits::PATH_BYTES_MAX;
use crossdock_names::{FileRef, SiteId};
use crossdock_peer::{
    AttributeChanges, Attributes, Caller, CreateMode, DirectoryEntry, SiteError, SiteOperation,
    TimeChange,
};
use crossdock_types::WallTime;

use tree::{
    ROOT, Tree, create, dump, link, list, lookup, make_directory, mode, name, remove,
    remove_directory, rename, set, user,
};

const DAY_NANOS: i64 = 24 * 3600 * 1_000_000_000;

fn root() -> Caller {
    Caller::root()
}

impl Tree {
    fn page(&mut self, cookie: u64, entries_max: usize) -> (Vec<DirectoryEntry>, bool) {
        match self.run(&root(), list(ROOT, cookie, entries_max)) {
            Ok(Answer::Directory { entries, end }) => (entries, end),
            other => panic!("{other:?}"),
        }
    }

    /// The site dies, and its log is replayed.
    fn replay(&mut self) {
        let mut replayed = Directory::new(SiteId(0), 7);
        for mutation in &self.log {
            replayed.apply(mutation);
        }
        self.directory = replayed;
    }
}

/// Goal: a listing in pages shows every entry that was there all the time once,
/// and no entry that was never there, whatever else is made, renamed and removed
/// between its pages, and also if the site is restarted.
#[test]
fn a_listing_under_change_shows_what_stays_once() {
    let mut tree = Tree::new();
    for number in 0..60 {
        tree.run_for_file(&root(), create(ROOT, &format!("stays-{number}"), 0o644));
        tree.run_for_file(&root(), create(ROOT, &format!("goes-{number}"), 0o644));
        tree.run_for_file(&root(), create(ROOT, &format!("moves-{number}"), 0o644));
    }
    let mut seen: BTreeMap<Bytes, usize> = BTreeMap::new();
    let (mut cookie, mut round) = (0, 0);
    loop {
        let (entries, end) = tree.page(cookie, 7);
        for entry in entries {
            *seen.entry(entry.name).or_default() += 1;
            cookie = entry.cookie;
        }
        if end {
            break;
        }
        let change = |tree: &mut Tree, operation| assert!(tree.run(&root(), operation).is_ok());
        if round < 60 {
            // From both ends: of what was listed and of what was not.
            let far = 59 - round;
            if round < far {
                change(&mut tree, remove(ROOT, &format!("goes-{round}")));
                change(&mut tree, remove(ROOT, &format!("goes-{far}")));
            }
            let (old, new) = (format!("moves-{round}"), format!("moved-{round}"));
            change(&mut tree, rename(ROOT, &old, ROOT, &new));
        }
        if round % 5 == 0 {
            tree.replay();
        }
        round += 1;
    }
    assert!(round > 20, "the changes fell between pages");
    for number in 0..60 {
        let count = |text: String| seen.get(text.as_bytes()).copied().unwrap_or(0);
        assert_eq!(count(format!("stays-{number}")), 1, "stays-{number}");
        assert!(count(format!("goes-{number}")) <= 1, "goes-{number}");
        let moved = (
            count(format!("moves-{number}")),
            count(format!("moved-{number}")),
        );
        assert!(
            matches!(moved, (0..=1, 0..=1)) && moved != (0, 0),
            "{number} was renamed and is listed as {moved:?}"
        );
    }
    let made = ["stays", "goes", "moves", "moved"];
    for name in seen
        .keys()
        .filter(|name| !matches!(&name[..], b"." | b".."))
    {
        let begins = |text: &&str| name.starts_with(text.as_bytes());
        assert!(made.iter().any(begins), "{name:?} was never there");
    }
}

/// Goal: a directory of 100,000 names lists each of them once, and each is found.
#[test]
fn a_large_directory_lists_each_name_once() {
    const NAMES: usize = 100_000;
    let mut tree = Tree::new();
    for number in 0..NAMES {
        tree.run_for_file(&root(), create(ROOT, &format!("{number:06}"), 0o644));
        tree.log.clear();
    }
    let (mut cookie, mut listed) = (0, Vec::new());
    loop {
        let (entries, end) = tree.page(cookie, 1000);
        for entry in entries {
            cookie = entry.cookie;
            listed.push(entry.name);
        }
        if end {
            break;
        }
    }
    assert_eq!(listed.len(), NAMES + 2, "with `.` and `..`");
    listed.sort();
    listed.dedup();
    assert_eq!(listed.len(), NAMES + 2, "a name came twice");
    for number in (0..NAMES).step_by(997) {
        assert!(
            tree.run(&root(), lookup(ROOT, &format!("{number:06}")))
                .is_ok()
        );
    }
}

/// Goal: renaming one name of a file to another of its names changes nothing.
#[test]
fn two_names_of_one_file_both_stay() {
    let mut tree = Tree::new();
    let file = tree.run_for_file(&root(), create(ROOT, "a", 0o644));
    assert!(tree.run(&root(), link(file, ROOT, "b")).is_ok());
    let before = dump(&tree.directory);
    for (from, to) in [("a", "b"), ("a", "a")] {
        assert_eq!(
            tree.run(&root(), rename(ROOT, from, ROOT, to)),
            Ok(Answer::Done)
        );
        assert_eq!(dump(&tree.directory), before);
    }
}

/// Goal: a name is its bytes: neither case nor any form of a letter is taken for
/// another, and a name that no text has is a name.
#[test]
fn names_are_bytes() {
    let mut tree = Tree::new();
    let names: [&[u8]; 7] = [
        b"a",
        b"A",
        "\u{e9}".as_bytes(),
        "e\u{301}".as_bytes(),
        b"\xff",
        b" ",
        b"...",
    ];
    let mut files = Vec::new();
    for bytes in names {
        let operation = SiteOperation::Create {
            directory: ROOT,
            name: Bytes::from_static(bytes),
            mode: CreateMode::Guarded(mode(0o644)),
        };
        files.push(tree.run_for_file(&root(), operation));
    }
    for (bytes, file) in names.into_iter().zip(files) {
        let operation = SiteOperation::Lookup {
            directory: ROOT,
            name: Bytes::from_static(bytes),
        };
        assert_eq!(tree.run(&root(), operation), Ok(Answer::Found(file)));
    }
}

/// Goal: the text of a link is 1 to 4,095 bytes, any but NUL.
#[test]
fn link_texts_have_a_limit() {
    let mut tree = Tree::new();
    let longest = vec![b'x'; PATH_BYTES_MAX];
    let too_long = vec![b'x'; PATH_BYTES_MAX + 1];
    let mut make = |text: &str, target: &[u8]| {
        let operation = SiteOperation::MakeSymlink {
            directory: ROOT,
            name: name(text),
            changes: AttributeChanges::default(),
            target: Bytes::copy_from_slice(target),
        };
        tree.run(&root(), operation).map(|_| ())
    };
    assert_eq!(make("empty", b""), Err(SiteError::Invalid));
    assert_eq!(make("nul", b"a\0b"), Err(SiteError::Invalid));
    assert_eq!(make("too-long", &too_long), Err(SiteError::NameTooLong));
    assert_eq!(make("longest", &longest), Ok(()));
    assert_eq!(make("strange", b"\xff//../ \n"), Ok(()));
}

/// Goal: an operation that is refused changes nothing at all.
#[test]
fn a_refused_operation_changes_nothing() {
    let mut tree = Tree::new();
    let (owner, other) = (user(1, 10, &[]), user(2, 20, &[]));
    let closed = tree.run_for_file(&owner, make_directory(ROOT, "closed", 0o755));
    let file = tree.run_for_file(&owner, create(closed, "f", 0o644));
    tree.run_for_file(&owner, make_directory(closed, "d", 0o755));
    tree.run_for_file(&owner, create(closed, "g", 0o644));
    let before = dump(&tree.directory);
    let both = AttributeChanges {
        size_bytes: Some(0),
        ..mode(0o777)
    };
    for (caller, operation, error) in [
        (
            &other,
            create(closed, "new", 0o644),
            SiteError::AccessDenied,
        ),
        (&other, remove(closed, "f"), SiteError::AccessDenied),
        (&other, link(file, closed, "h"), SiteError::AccessDenied),
        (&other, set(file, both), SiteError::AccessDenied),
        (&other, set(file, mode(0o777)), SiteError::NotOwner),
        (&owner, create(closed, "f", 0o644), SiteError::Exists),
        (
            &owner,
            make_directory(closed, "f", 0o755),
            SiteError::Exists,
        ),
        (&owner, link(file, closed, "g"), SiteError::Exists),
        (&owner, remove(closed, "d"), SiteError::IsDirectory),
        (&owner, remove(closed, "none"), SiteError::NotFound),
        (
            &owner,
            remove_directory(closed, "f"),
            SiteError::NotDirectory,
        ),
        (
            &owner,
            remove_directory(ROOT, "closed"),
            SiteError::NotEmpty,
        ),
        (
            &owner,
            rename(closed, "f", closed, "d"),
            SiteError::IsDirectory,
        ),
        (
            &owner,
            rename(closed, "d", closed, "f"),
            SiteError::NotDirectory,
        ),
        (
            &owner,
            rename(closed, "none", closed, "f"),
            SiteError::NotFound,
        ),
        (
            &owner,
            create(file, "below", 0o644),
            SiteError::NotDirectory,
        ),
    ] {
        let what = format!("{operation:?}");
        assert_eq!(tree.run(caller, operation), Err(error), "{what}");
        assert_eq!(dump(&tree.directory), before, "{what}");
    }
}

/// Which of atime, mtime and ctime differ.
fn moved(before: &Attributes, after: &Attributes) -> (bool, bool, bool) {
    (
        before.accessed != after.accessed,
        before.modified != after.modified,
        before.changed != after.changed,
    )
}

/// Goal: which times each operation moves: those of every directory whose
/// entries change, and the ctime of the file whose links or name change.
#[test]
fn operations_move_the_times_of_what_they_change() {
    const CONTENT: (bool, bool, bool) = (false, true, true);
    const ATTRIBUTES: (bool, bool, bool) = (false, false, true);
    const NOTHING: (bool, bool, bool) = (false, false, false);
    let mut tree = Tree::new();
    let one = tree.run_for_file(&root(), make_directory(ROOT, "one", 0o755));
    let two = tree.run_for_file(&root(), make_directory(ROOT, "two", 0o755));
    let file = tree.run_for_file(&root(), create(one, "f", 0o644));
    let mut check = |operation: SiteOperation, expected: [(bool, bool, bool); 3]| {
        let all: [FileRef; 3] = [one, two, file];
        let before = all.map(|file| tree.attributes(file));
        let what = format!("{operation:?}");
        assert!(tree.run(&root(), operation).is_ok(), "{what}");
        for ((file, before), expected) in all.into_iter().zip(&before).zip(expected) {
            let after = tree.attributes(file);
            assert_eq!(moved(before, &after), expected, "{what}: {file:?}");
        }
    };
    check(create(one, "new", 0o644), [CONTENT, NOTHING, NOTHING]);
    check(make_directory(one, "d", 0o755), [CONTENT, NOTHING, NOTHING]);
    check(link(file, two, "l"), [NOTHING, CONTENT, ATTRIBUTES]);
    check(rename(one, "f", one, "g"), [CONTENT, NOTHING, ATTRIBUTES]);
    check(rename(one, "g", two, "f"), [CONTENT, CONTENT, ATTRIBUTES]);
    check(remove(two, "l"), [NOTHING, CONTENT, ATTRIBUTES]);
    check(remove_directory(one, "d"), [CONTENT, NOTHING, NOTHING]);
    check(rename(one, "new", two, "n"), [CONTENT, CONTENT, NOTHING]);
    check(set(file, mode(0o600)), [NOTHING, NOTHING, ATTRIBUTES]);
    check(
        SiteOperation::LookupParent {
            directory: one,
            within: ROOT,
        },
        [NOTHING, NOTHING, NOTHING],
    );
    check(list(one, 0, 10), [NOTHING, NOTHING, NOTHING]);
}

/// Goal: a truncate moves mtime and ctime also if the size stays, a write moves
/// both, and a read moves atime only after a change or after a day.
#[test]
fn content_moves_its_times() {
    let mut tree = Tree::new();
    let file = tree.run_for_file(&root(), create(ROOT, "f", 0o644));
    let same_size = AttributeChanges {
        size_bytes: Some(0),
        ..AttributeChanges::default()
    };
    let before = tree.attributes(file);
    assert!(tree.run(&root(), set(file, same_size)).is_ok());
    let after = tree.attributes(file);
    assert_eq!(moved(&before, &after), (false, true, true));

    let cell = tree.directory.cell(file).expect("there").clone();
    let wall = WallTime(tree.wall.0 + 1000);
    let written = cell.written(&root(), 10, wall);
    assert_eq!((written.modified, written.changed), (wall, wall));
    assert_eq!(written.accessed, cell.accessed);

    let later = |nanos| WallTime(wall.0 + nanos);
    let read = written.read(later(1)).expect("it has changed since");
    assert_eq!(read.accessed, later(1));
    assert_eq!((read.modified, read.changed), (wall, wall));
    assert_eq!(read.read(later(DAY_NANOS)), None);
    let next_day = read.read(later(DAY_NANOS + 2)).expect("a day is over");
    assert_eq!(next_day.accessed, later(DAY_NANOS + 2));
}

/// Goal: an exclusive create cannot say a mode, so the file is closed to others
/// until it has one, and open to its maker (RFC 1813 section 3.3.8).
#[test]
fn an_exclusive_file_is_its_makers_until_it_has_a_mode() {
    let mut tree = Tree::new();
    let (maker, other) = (user(1, 10, &[]), user(2, 10, &[]));
    let exclusive = SiteOperation::Create {
        directory: ROOT,
        name: name("f"),
        mode: CreateMode::Exclusive([9; 8]),
    };
    let file = tree.run_for_file(&maker, exclusive);
    let attributes = tree.attributes(file);
    assert_eq!(
        (attributes.mode, attributes.uid, attributes.gid),
        (0, 1, 10)
    );
    let cell = tree.directory.cell(file).expect("there").clone();
    for wanted in [Wanted::Read, Wanted::Write] {
        assert_eq!(cell.check_io(&maker, wanted), Ok(()));
        assert_eq!(cell.check_io(&other, wanted), Err(SiteError::AccessDenied));
    }
    assert!(tree.run(&maker, set(file, mode(0o644))).is_ok());
    let cell = tree.directory.cell(file).expect("there");
    assert_eq!(cell.check_io(&other, Wanted::Read), Ok(()));
}

/// Goal: times that are set are kept to the nanosecond, and with them ctime moves.
#[test]
fn set_times_are_kept_to_the_nanosecond() {
    let mut tree = Tree::new();
    let file = tree.run_for_file(&root(), create(ROOT, "f", 0o644));
    let times = [
        WallTime::from_parts(0, 1),
        WallTime::from_parts(i64::from(u32::MAX), 999_999_999),
    ];
    let before = tree.attributes(file);
    let changes = AttributeChanges {
        accessed: TimeChange::To(times[0]),
        modified: TimeChange::To(times[1]),
        ..AttributeChanges::default()
    };
    assert!(tree.run(&root(), set(file, changes)).is_ok());
    tree.replay();
    let after = tree.attributes(file);
    assert_eq!([after.accessed, after.modified], times);
    assert!(after.changed > before.changed);
}
