//! Permissions and the rules of single operations.

mod tree;

use bytes::Bytes;
use crossdock_directory::{Answer, Cell, Mutation, Wanted};
use crossdock_limits::LINKS_MAX;
use crossdock_names::FileRef;
use crossdock_peer::{
    AttributeChanges, Caller, CreateMode, Device, FileKind, SiteError, SiteOperation, TimeChange,
};
use crossdock_types::WallTime;

use tree::{
    ROOT, Tree, create, link, list, lookup, make_directory, mode, name, parent, remove,
    remove_directory, rename, set, user,
};

fn root() -> Caller {
    Caller::root()
}

fn size(bytes: u64) -> AttributeChanges {
    AttributeChanges {
        size_bytes: Some(bytes),
        ..AttributeChanges::default()
    }
}

/// Goal: user, group, supplementary group and other bits, root and its limit.
#[test]
fn permission_bits_decide() {
    let mut tree = Tree::new();
    let (owner, member, other) = (user(1, 10, &[]), user(2, 20, &[10]), user(3, 30, &[]));
    let file = tree.run_for_file(&owner, create(ROOT, "f", 0o640));
    let cell = tree.directory.cell(file).expect("there").clone();
    assert_eq!(cell.check(&owner, Wanted::Write), Ok(()));
    assert_eq!(cell.check(&member, Wanted::Read), Ok(()));
    let denied = Err(SiteError::AccessDenied);
    assert_eq!(cell.check(&member, Wanted::Write), denied);
    assert_eq!(cell.check(&other, Wanted::Read), denied);
    assert_eq!(cell.check(&root(), Wanted::Write), Ok(()));
    assert_eq!(cell.check(&root(), Wanted::Execute), denied);
    assert_eq!(cell.access(&member, 0x3f), 0x01);
    assert_eq!(cell.access(&owner, 0x3f), 0x0d);
    assert_eq!(
        tree.directory
            .cell(ROOT)
            .expect("root")
            .access(&other, 0x3f),
        0x1f
    );
}

/// Goal: an owner gets through without permission bits, since NFS has no open;
/// who may execute may read.
#[test]
fn content_is_open_to_owners_and_executors() {
    let mut tree = Tree::new();
    let (owner, other) = (user(1, 10, &[]), user(3, 30, &[]));
    let file = tree.run_for_file(&owner, create(ROOT, "f", 0o001));
    let cell = tree.directory.cell(file).expect("there").clone();
    assert_eq!(cell.check_io(&owner, Wanted::Write), Ok(()));
    assert_eq!(cell.check_io(&other, Wanted::Read), Ok(()));
    assert_eq!(
        cell.check_io(&other, Wanted::Write),
        Err(SiteError::AccessDenied)
    );
    let directory = tree.directory.cell(ROOT).expect("root");
    assert_eq!(
        directory.check_io(&root(), Wanted::Read),
        Err(SiteError::IsDirectory)
    );
}

/// Goal: only bytes that can be a name are one.
#[test]
fn names_are_checked() {
    let mut tree = Tree::new();
    let long = "x".repeat(256);
    for (text, error) in [
        ("", SiteError::Invalid),
        ("a/b", SiteError::Invalid),
        ("a\0b", SiteError::Invalid),
        (".", SiteError::Exists),
        ("..", SiteError::Exists),
        (long.as_str(), SiteError::NameTooLong),
    ] {
        assert_eq!(
            tree.run(&root(), create(ROOT, text, 0o644)),
            Err(error),
            "{text:?}"
        );
    }
    assert!(tree.run(&root(), create(ROOT, &long[..255], 0o644)).is_ok());
    let bytes = SiteOperation::Create {
        directory: ROOT,
        name: Bytes::from_static(b"\xff\xfe"),
        mode: CreateMode::Guarded(mode(0o600)),
    };
    assert!(tree.run(&root(), bytes).is_ok());
    assert_eq!(
        tree.run(&root(), remove(ROOT, ".")),
        Err(SiteError::Invalid)
    );
    assert_eq!(
        tree.run(&root(), remove_directory(ROOT, "..")),
        Err(SiteError::Exists)
    );
    assert_eq!(
        tree.run(&root(), rename(ROOT, ".", ROOT, "x")),
        Err(SiteError::Invalid)
    );
    assert_eq!(
        tree.run(&root(), lookup(ROOT, ".")),
        Ok(Answer::Found(ROOT))
    );
    assert_eq!(
        tree.run(&root(), lookup(ROOT, "..")),
        Err(SiteError::Invalid)
    );
}

/// Goal: nobody climbs out of a tree, neither at its root nor from a directory
/// that was moved out of it; permission to search is needed as for any name.
#[test]
fn parents_are_found_within_a_tree() {
    let mut tree = Tree::new();
    let make =
        |tree: &mut Tree, at, name| tree.run_for_file(&root(), make_directory(at, name, 0o755));
    let exported = make(&mut tree, ROOT, "exported");
    let inner = make(&mut tree, exported, "inner");
    let deep = make(&mut tree, inner, "deep");
    let beside = make(&mut tree, ROOT, "beside");
    let up = |tree: &mut Tree, from| tree.run(&root(), parent(from, exported));
    assert_eq!(up(&mut tree, deep), Ok(Answer::Found(inner)));
    assert_eq!(up(&mut tree, inner), Ok(Answer::Found(exported)));
    for outside in [exported, beside, ROOT] {
        assert_eq!(up(&mut tree, outside), Err(SiteError::AccessDenied));
    }
    assert_eq!(
        tree.run(&root(), parent(ROOT, ROOT)),
        Ok(Answer::Found(ROOT))
    );
    // The one that is moved out, and what it holds, lead back no more.
    assert!(
        tree.run(&root(), rename(exported, "inner", beside, "inner"))
            .is_ok()
    );
    for outside in [deep, inner] {
        assert_eq!(up(&mut tree, outside), Err(SiteError::AccessDenied));
    }
    assert_eq!(
        tree.run(&root(), parent(deep, beside)),
        Ok(Answer::Found(inner))
    );
    let file = tree.run_for_file(&root(), create(ROOT, "f", 0o755));
    assert_eq!(up(&mut tree, file), Err(SiteError::NotDirectory));
    let closed = tree.run_for_file(&root(), make_directory(exported, "closed", 0o700));
    assert_eq!(
        tree.run(&user(5, 5, &[]), parent(closed, exported)),
        Err(SiteError::AccessDenied)
    );
}

/// Goal: in a sticky directory only the owner of either takes a name out.
#[test]
fn sticky_directories_protect_names() {
    let mut tree = Tree::new();
    let (one, two) = (user(1, 10, &[]), user(2, 10, &[]));
    let directory = tree.run_for_file(&root(), make_directory(ROOT, "tmp", 0o1777));
    tree.run_for_file(&one, create(directory, "f", 0o666));
    tree.run_for_file(&two, create(directory, "g", 0o666));
    assert_eq!(
        tree.run(&two, remove(directory, "f")),
        Err(SiteError::NotOwner)
    );
    let over = rename(directory, "g", directory, "f");
    assert_eq!(tree.run(&two, over), Err(SiteError::NotOwner));
    assert!(tree.run(&one, remove(directory, "f")).is_ok());
}

/// Goal: a set-group directory hands its group down, and the bit to directories.
#[test]
fn set_group_directories_hand_their_group_down() {
    let mut tree = Tree::new();
    let shared = tree.run_for_file(&root(), make_directory(ROOT, "s", 0o2777));
    let changes = AttributeChanges {
        gid: Some(50),
        mode: Some(0o2777),
        ..AttributeChanges::default()
    };
    assert!(tree.run(&root(), set(shared, changes)).is_ok());
    let caller = user(1, 10, &[]);
    let file = tree.run_for_file(&caller, create(shared, "f", 0o2755));
    assert_eq!(
        (tree.attributes(file).gid, tree.attributes(file).mode),
        (50, 0o755)
    );
    let below = tree.run_for_file(&caller, make_directory(shared, "d", 0o755));
    assert_eq!(
        (tree.attributes(below).gid, tree.attributes(below).mode),
        (50, 0o2755)
    );
}

/// Goal: who may change owner, group and mode, and that set-id bits go.
#[test]
fn owners_change_what_they_may() {
    let mut tree = Tree::new();
    let (owner, other) = (user(1, 10, &[11]), user(2, 10, &[]));
    let file = tree.run_for_file(&owner, create(ROOT, "f", 0o755));
    let change = |uid, gid| AttributeChanges {
        uid,
        gid,
        ..AttributeChanges::default()
    };
    assert_eq!(
        tree.run(&other, set(file, mode(0o700))),
        Err(SiteError::NotOwner)
    );
    assert_eq!(
        tree.run(&owner, set(file, change(Some(2), None))),
        Err(SiteError::NotOwner)
    );
    assert_eq!(
        tree.run(&owner, set(file, change(None, Some(99)))),
        Err(SiteError::NotOwner)
    );
    assert!(tree.run(&owner, set(file, mode(0o6755))).is_ok());
    assert_eq!(tree.attributes(file).mode, 0o6755);
    assert!(
        tree.run(&owner, set(file, change(Some(1), Some(11))))
            .is_ok()
    );
    assert_eq!(
        (tree.attributes(file).mode, tree.attributes(file).gid),
        (0o755, 11)
    );
    assert!(tree.run(&root(), set(file, mode(0o4755))).is_ok());
    let written = tree
        .directory
        .cell(file)
        .expect("there")
        .written(&other, 5, tree.wall);
    assert_eq!((written.mode(), written.size_bytes), (0o755, 5));
    assert!(tree.run(&root(), set(file, change(Some(7), None))).is_ok());
    assert_eq!(
        (tree.attributes(file).uid, tree.attributes(file).mode),
        (7, 0o755)
    );
}

/// Goal: given times are the owner's, "now" is for who may write.
#[test]
fn times_follow_the_rules_of_utimes() {
    let mut tree = Tree::new();
    let (owner, writer, other) = (user(1, 10, &[]), user(2, 10, &[]), user(3, 30, &[]));
    let file = tree.run_for_file(&owner, create(ROOT, "f", 0o664));
    let times = |change| AttributeChanges {
        accessed: change,
        modified: change,
        ..AttributeChanges::default()
    };
    let given = WallTime::from_parts(-5, 7);
    assert_eq!(
        tree.run(&writer, set(file, times(TimeChange::To(given)))),
        Err(SiteError::NotOwner)
    );
    assert_eq!(
        tree.run(&other, set(file, times(TimeChange::Now))),
        Err(SiteError::AccessDenied)
    );
    assert!(tree.run(&writer, set(file, times(TimeChange::Now))).is_ok());
    assert!(
        tree.run(&owner, set(file, times(TimeChange::To(given))))
            .is_ok()
    );
    let attributes = tree.attributes(file);
    assert_eq!((attributes.accessed, attributes.modified), (given, given));
    assert!(attributes.changed > given);
}

/// Goal: ctime grows with every change, also when the clock goes back.
#[test]
fn change_times_never_go_back() {
    let mut tree = Tree::new();
    let file = tree.run_for_file(&root(), create(ROOT, "f", 0o644));
    let mut last = tree.attributes(file).changed;
    for _ in 0..5 {
        tree.wall = WallTime(0);
        assert!(tree.run(&root(), set(file, mode(0o600))).is_ok());
        let changed = tree.attributes(file).changed;
        assert!(changed > last);
        last = changed;
    }
}

/// Goal: a guard lets a change through only if nothing has changed since.
#[test]
fn guards_are_compared() {
    let mut tree = Tree::new();
    let file = tree.run_for_file(&root(), create(ROOT, "f", 0o644));
    let guarded = |guard| SiteOperation::SetAttributes {
        file,
        changes: mode(0o600),
        guard: Some(guard),
    };
    let seen = tree.attributes(file).changed;
    assert!(tree.run(&root(), guarded(seen)).is_ok());
    assert_eq!(tree.run(&root(), guarded(seen)), Err(SiteError::NotSync));
}

/// Goal: an exclusive create sent again finds its own file, and nobody else's.
#[test]
fn exclusive_creates_know_their_verifier() {
    let mut tree = Tree::new();
    let exclusive = |verifier| SiteOperation::Create {
        directory: ROOT,
        name: name("f"),
        mode: CreateMode::Exclusive(verifier),
    };
    let verifier = [0xff, 0, 0xaa, 1, 0x80, 2, 3, 4];
    let file = tree.run_for_file(&root(), exclusive(verifier));
    assert_eq!(
        tree.run(&root(), exclusive(verifier)),
        Ok(Answer::Found(file))
    );
    assert_eq!(tree.run(&root(), exclusive([1; 8])), Err(SiteError::Exists));
    let now = AttributeChanges {
        accessed: TimeChange::Now,
        modified: TimeChange::Now,
        ..mode(0o644)
    };
    assert!(tree.run(&root(), set(file, now)).is_ok());
    assert_eq!(
        tree.run(&root(), exclusive(verifier)),
        Err(SiteError::Exists)
    );
}

/// Goal: an unchecked create takes the file that is there, and cuts it if a
/// size is given; a truncate raises the generation (CONSISTENCY 5).
#[test]
fn unchecked_creates_take_what_is_there() {
    let mut tree = Tree::new();
    let file = tree.run_for_file(&root(), create(ROOT, "f", 0o600));
    assert!(tree.run(&root(), set(file, size(100))).is_ok());
    let unchecked = |changes| SiteOperation::Create {
        directory: ROOT,
        name: name("f"),
        mode: CreateMode::Unchecked(changes),
    };
    assert_eq!(
        tree.run(&root(), unchecked(mode(0o777))),
        Ok(Answer::Found(file))
    );
    assert_eq!(
        (tree.attributes(file).mode, tree.attributes(file).size_bytes),
        (0o600, 100)
    );
    let plan = tree.plan(&root(), &unchecked(size(0))).expect("cut");
    assert_eq!(
        plan.resized.map(|cell| cell.rare().truncate_generation),
        Some(2)
    );
    assert_eq!(tree.attributes(file).size_bytes, 0);
    let stranger = user(9, 9, &[]);
    assert_eq!(
        tree.run(&stranger, unchecked(size(0))),
        Err(SiteError::AccessDenied)
    );
    tree.run_for_file(&root(), make_directory(ROOT, "d", 0o755));
    let over = SiteOperation::Create {
        directory: ROOT,
        name: name("d"),
        mode: CreateMode::Unchecked(mode(0o644)),
    };
    assert_eq!(tree.run(&root(), over), Err(SiteError::Exists));
}

/// Goal: the last name takes the file along, any other only a link; over a
/// limit of links nothing is added.
#[test]
fn links_are_counted() {
    let mut tree = Tree::new();
    let file = tree.run_for_file(&root(), create(ROOT, "a", 0o644));
    assert!(tree.run(&root(), link(file, ROOT, "b")).is_ok());
    assert_eq!(tree.attributes(file).links, 2);
    let plan = tree.plan(&root(), &remove(ROOT, "a")).expect("removed");
    assert_eq!((plan.freed, tree.attributes(file).links), (None, 1));
    let full = Cell {
        links: LINKS_MAX,
        ..tree.directory.cell(file).expect("there").clone()
    };
    tree.apply(&[Mutation::PutCell(full)]);
    assert_eq!(
        tree.run(&root(), link(file, ROOT, "c")),
        Err(SiteError::TooManyLinks)
    );
    let single = Cell {
        links: 1,
        ..tree.directory.cell(file).expect("there").clone()
    };
    tree.apply(&[Mutation::PutCell(single)]);
    let plan = tree.plan(&root(), &remove(ROOT, "b")).expect("removed");
    assert_eq!(plan.freed.map(|cell| cell.serial), Some(file.id.serial()));
    assert!(tree.directory.cell(file).is_err());
    assert_eq!(tree.run(&root(), set(file, mode(0))), Err(SiteError::Stale));
}

/// Goal: a directory never moves below itself, and moving it to another parent
/// needs the right to change it.
#[test]
fn directories_move_with_care() {
    let mut tree = Tree::new();
    let owner = user(1, 1, &[]);
    let a = tree.run_for_file(&owner, make_directory(ROOT, "a", 0o755));
    let b = tree.run_for_file(&owner, make_directory(a, "b", 0o777));
    assert_eq!(
        tree.run(&owner, rename(ROOT, "a", b, "x")),
        Err(SiteError::Invalid)
    );
    assert_eq!(
        tree.run(&owner, rename(ROOT, "a", a, "x")),
        Err(SiteError::Invalid)
    );
    let stranger = user(2, 2, &[]);
    assert_eq!(
        tree.run(&stranger, rename(ROOT, "a", b, "x")),
        Err(SiteError::Invalid)
    );
    let c = tree.run_for_file(&stranger, make_directory(ROOT, "c", 0o777));
    assert_eq!(
        tree.run(&stranger, rename(ROOT, "a", c, "a")),
        Err(SiteError::AccessDenied)
    );
    assert!(tree.run(&owner, rename(a, "b", c, "b")).is_ok());
    assert_eq!(tree.run(&owner, parent(b, ROOT)), Ok(Answer::Found(c)));
    assert_eq!((tree.attributes(a).links, tree.attributes(c).links), (2, 3));
}

/// Goal: the bytes of a file that a rename replaces are given back.
#[test]
fn a_rename_frees_what_it_replaces() {
    let mut tree = Tree::new();
    tree.run_for_file(&root(), create(ROOT, "a", 0o644));
    let file = tree.run_for_file(&root(), create(ROOT, "b", 0o644));
    let plan = tree
        .plan(&root(), &rename(ROOT, "a", ROOT, "b"))
        .expect("renamed");
    assert_eq!(plan.freed.map(|cell| cell.serial), Some(file.id.serial()));
}

/// Goal: quota trees are not left or entered by rename or link, but their roots
/// go where they like outside of other trees; a number without a tree means
/// nothing.
#[test]
fn quota_trees_are_closed() {
    let mut tree = Tree::new();
    let inside = tree.run_for_file(&root(), make_directory(ROOT, "t", 0o755));
    let beside = tree.run_for_file(&root(), make_directory(ROOT, "u", 0o755));
    tree.run_for_file(&root(), create(beside, "g", 0o644));
    tree.set_quota(inside, Some(1 << 30), None);
    tree.set_quota(beside, None, Some(10));
    let file = tree.run_for_file(&root(), create(inside, "f", 0o644));
    let across = Err(SiteError::CrossDevice);
    assert_eq!(tree.run(&root(), rename(inside, "f", ROOT, "f")), across);
    assert_eq!(tree.run(&root(), rename(inside, "f", beside, "f")), across);
    assert_eq!(tree.run(&root(), rename(ROOT, "u", inside, "u")), across);
    assert_eq!(tree.run(&root(), link(file, ROOT, "f")), across);
    assert!(tree.run(&root(), link(file, inside, "g")).is_ok());
    let away = tree.run_for_file(&root(), make_directory(ROOT, "away", 0o755));
    assert!(tree.run(&root(), rename(ROOT, "t", away, "t")).is_ok());
    let removal = tree.directory.plan_quota_removal(inside).expect("a quota");
    tree.apply(&[removal]);
    assert!(tree.run(&root(), rename(inside, "f", ROOT, "f")).is_ok());
    assert_eq!(tree.run(&root(), rename(beside, "g", ROOT, "g")), across);
}

/// Goal: special files and links are what they were made as.
#[test]
fn special_files_keep_their_kind() {
    let mut tree = Tree::new();
    let node = |text, kind| SiteOperation::MakeNode {
        directory: ROOT,
        name: name(text),
        kind,
        device: Device { major: 8, minor: 1 },
        changes: mode(0o600),
    };
    let block = tree.run_for_file(&root(), node("b", FileKind::Block));
    let attributes = tree.attributes(block);
    assert_eq!(
        (attributes.kind, attributes.device.major),
        (FileKind::Block, 8)
    );
    let fifo = tree.run_for_file(&user(1, 1, &[]), node("p", FileKind::Fifo));
    assert_eq!(tree.attributes(fifo).device.major, 0);
    let refused = tree.run(&user(1, 1, &[]), node("c", FileKind::Character));
    assert_eq!(refused, Err(SiteError::NotOwner));
    assert_eq!(
        tree.run(&root(), node("r", FileKind::Regular)),
        Err(SiteError::BadType)
    );
    let target = Bytes::from_static(b"../somewhere");
    let symlink = tree.run_for_file(
        &root(),
        SiteOperation::MakeSymlink {
            directory: ROOT,
            name: name("l"),
            changes: AttributeChanges::default(),
            target: target.clone(),
        },
    );
    let read = |file: FileRef| SiteOperation::ReadLink { file };
    assert_eq!(tree.run(&root(), read(symlink)), Ok(Answer::Link(target)));
    assert_eq!(tree.run(&root(), read(fifo)), Err(SiteError::Invalid));
    assert_eq!(
        tree.run(&root(), set(fifo, size(0))),
        Err(SiteError::Invalid)
    );
    assert_eq!(
        tree.run(&root(), set(ROOT, size(0))),
        Err(SiteError::IsDirectory)
    );
}

/// Goal: cookies that were never given out are refused, old ones go on from
/// where their entry was.
#[test]
fn cookies_stay_valid_when_entries_go() {
    let mut tree = Tree::new();
    for text in ["a", "b", "c"] {
        tree.run_for_file(&root(), create(ROOT, text, 0o644));
    }
    let names = |answer| match answer {
        Ok(Answer::Directory { entries, .. }) => entries,
        other => panic!("{other:?}"),
    };
    let first = names(tree.run(&root(), list(ROOT, 0, 3)));
    assert_eq!(first[2].name, &b"a"[..]);
    let cookie = first[2].cookie;
    assert!(tree.run(&root(), remove(ROOT, "a")).is_ok());
    let rest = names(tree.run(&root(), list(ROOT, cookie, 10)));
    assert_eq!(rest.len(), 2);
    assert!(rest[0].attributes.is_some());
    for never in [1 << 40, 1 << 46, 1 << 62, 1 << 63 | 3, u64::MAX] {
        assert_eq!(
            tree.run(&root(), list(ROOT, never, 10)),
            Err(SiteError::BadCookie),
            "{never:#x}"
        );
    }
    let tight = SiteOperation::ReadDirectory {
        directory: ROOT,
        cookie: 0,
        entries_max: 100,
        name_bytes_max: 25 + 26,
        with_attributes: false,
    };
    let fit = names(tree.run(&root(), tight));
    assert_eq!(fit.len(), 2, "`.` and `..`");
}
