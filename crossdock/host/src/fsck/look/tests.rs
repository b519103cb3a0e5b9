//! What a look finds in rows of which something is wrong.

use super::*;

const ROOT: FileRef = FileRef::root_of(SiteId(0));

fn file(site: u16, serial: u64) -> FileRef {
    FileRef {
        id: FileId::new(SiteId(site), serial),
        generation: 1,
    }
}

fn row(file: FileRef, kind: FileKind, links: u32) -> CensusRow {
    CensusRow::File {
        file,
        kind,
        links,
        changed: WallTime(5),
        columns: 0,
        segments: 0,
    }
}

fn name(directory: FileRef, cookie: u64, child: FileRef) -> CensusRow {
    CensusRow::Name {
        directory,
        cookie,
        child,
    }
}

fn parent(directory: FileRef, parent: FileRef) -> CensusRow {
    CensusRow::Parent {
        directory: directory.id,
        parent,
    }
}

/// `/d` at site 1, `/d/f` with a second name `/g`.
fn sound() -> Vec<CensusRow> {
    let (directory, regular) = (file(1, 9), file(1, 10));
    vec![
        row(ROOT, FileKind::Directory, 3),
        parent(ROOT, ROOT),
        name(ROOT, 3, directory),
        name(ROOT, 4, regular),
        row(directory, FileKind::Directory, 2),
        parent(directory, ROOT),
        row(regular, FileKind::Regular, 2),
        name(directory, 3, regular),
    ]
}

/// What is found, by looks in one class and in several.
fn found(rows: &[CensusRow], objects: &[ObjectId]) -> Vec<Finding> {
    let look = |of: u32| {
        let class = CensusClass { number: 0, of };
        let spread = Spread::new(0.5, 4);
        let mut look = Look::new(spread, class);
        loop {
            look.take_objects(NodeId(7), objects);
            let class = look.class();
            let is_of_it = |row: &&CensusRow| {
                let subject = match **row {
                    CensusRow::Unsettled(_) => return true,
                    CensusRow::File { file, .. } => file,
                    CensusRow::Parent { directory: id, .. } => FileRef { id, generation: 0 },
                    CensusRow::Name { child, .. } => child,
                };
                class.has(spread, subject)
            };
            let rows: Vec<CensusRow> = rows.iter().filter(is_of_it).copied().collect();
            look.take_rows(&rows);
            if !look.end_class(true) {
                return look.findings.into_iter().collect::<Vec<_>>();
            }
        }
    };
    let found = look(1);
    assert_eq!(found, look(3), "classes make a difference");
    found
}

/// Goal: a sound volume has no findings, whatever lies where.
#[test]
fn what_is_sound_is_found_so() {
    assert_eq!(found(&sound(), &[]), []);
}

/// Goal: each thing that can be wrong with names is found, once.
#[test]
fn wrong_names_are_found() {
    let (directory, regular, lost) = (file(1, 9), file(1, 10), file(2, 4));
    let changed = WallTime(5);

    let mut rows = sound();
    rows.push(name(ROOT, 8, lost));
    let dangling = Finding::Dangling {
        directory: ROOT,
        cookie: 8,
        child: lost,
    };
    assert_eq!(found(&rows, &[]), [dangling]);

    let mut rows = sound();
    rows.push(row(lost, FileKind::Symlink, 1));
    let orphan = Finding::Orphan {
        file: lost,
        changed,
        is_directory: false,
    };
    assert_eq!(found(&rows, &[]), [orphan]);

    let mut rows = sound();
    rows.retain(|row| *row != name(ROOT, 4, regular));
    let links = Finding::Links {
        file: regular,
        changed,
        links: 2,
        names: 1,
    };
    assert_eq!(found(&rows, &[]), [links]);

    let mut rows = sound();
    rows.retain(|row| *row != parent(directory, ROOT));
    rows.push(parent(directory, lost));
    let says = Finding::Parent {
        directory,
        changed,
        says: Some(lost.id),
        named_in: ROOT,
    };
    assert_eq!(found(&rows, &[]), [says]);

    let mut rows = sound();
    rows[0] = row(ROOT, FileKind::Directory, 2);
    let links = Finding::Links {
        file: ROOT,
        changed,
        links: 2,
        names: 3,
    };
    assert_eq!(found(&rows, &[]), [links]);
}

/// Goal: nothing is said of what is decided and not done everywhere.
#[test]
fn what_is_unsettled_is_not_told() {
    // A directory that another site is still to take over: its parent counts it.
    let (lost, regular) = (file(2, 4), file(1, 10));
    let mut rows = sound();
    rows[0] = row(ROOT, FileKind::Directory, 4);
    rows.push(name(ROOT, 8, lost));
    rows.push(CensusRow::Unsettled(lost.id));
    assert_eq!(found(&rows, &[]), []);

    // A name that another site is still to replace: its file does not count it.
    let mut rows = sound();
    rows.retain(|found| *found != row(regular, FileKind::Regular, 2));
    rows.push(row(regular, FileKind::Regular, 1));
    rows.push(CensusRow::Unsettled(file(1, 9).id));
    assert_eq!(found(&rows, &[]), []);
}

/// Goal: objects of no file are found, and objects that a file lacks.
#[test]
fn wrong_objects_are_found() {
    let large = file(0, 6);
    let mut rows = sound();
    rows.push(name(ROOT, 8, large));
    rows.push(CensusRow::File {
        file: large,
        kind: FileKind::Regular,
        links: 1,
        changed: WallTime(5),
        columns: 2,
        segments: 1,
    });
    let column = |generation, column| ObjectId::column(large.id, generation, 0, column);
    let whole = [column(1, 0), column(1, 1)];
    assert_eq!(found(&rows, &whole), []);
    let old = column(9, 0);
    let leaked = Finding::Leaked {
        node: NodeId(7),
        object: old,
    };
    assert_eq!(found(&rows, &[whole[0], whole[1], old]), [leaked]);
    let missing = Finding::Missing {
        file: large,
        changed: WallTime(5),
        objects: 1,
    };
    assert_eq!(found(&rows, &whole[..1]), [missing]);
}

/// Goal: names lead from the root to what is found, and nowhere in a circle.
#[test]
fn names_lead_to_what_is_found() {
    let (directory, regular) = (file(1, 9), file(1, 10));
    let mut rows = sound();
    rows.retain(|row| *row != name(ROOT, 4, regular));
    let way_to_the_only = |rows: &[CensusRow]| {
        let mut look = Look::new(Spread::new(0.5, 4), CensusClass::ALL);
        look.take_rows(rows);
        look.end_class(true);
        let findings = std::mem::take(&mut look.findings);
        let of_regular = |finding: &&Finding| finding.files().next() == Some(regular.id);
        let finding = findings.iter().find(of_regular).expect("one is found");
        look.way_to(finding)
    };
    let place = |directory, cookie| NamePlace { directory, cookie };
    let way = vec![place(directory, 3), place(ROOT, 3)];
    assert_eq!(way_to_the_only(&rows), Some(way));
    rows.retain(|row| *row != name(ROOT, 3, directory));
    assert_eq!(way_to_the_only(&rows), None);
    rows.push(name(directory, 4, directory));
    assert_eq!(way_to_the_only(&rows), None);
}
