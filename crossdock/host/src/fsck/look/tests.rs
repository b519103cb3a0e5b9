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
    found_in(Spread::new(0.5, 4), rows, objects)
}

fn found_in(spread: Spread, rows: &[CensusRow], objects: &[ObjectId]) -> Vec<Finding> {
    let look = |of: u32| {
        let class = CensusClass { number: 0, of };
        let mut look = Look::new(spread, class);
        loop {
            look.take_objects(NodeId(7), objects);
            let class = look.class();
            let is_of_it = |row: &&CensusRow| {
                let subject = match **row {
                    CensusRow::Unsettled(_) => return true,
                    CensusRow::File { file, .. } => file,
                    CensusRow::Parent { directory: id, .. }
                    | CensusRow::Rights { directory: id, .. } => FileRef { id, generation: 0 },
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

const HASHED: Spread = Spread::hashed(2);

const RIGHTS: Rights = Rights {
    uid: 5,
    gid: 6,
    mode: 0o750,
};

fn rights(directory: FileRef, rights: Rights) -> CensusRow {
    CensusRow::Rights {
        directory: directory.id,
        rights,
    }
}

/// `/d`, its home at site 0 and a part at site 1, and the two of the root.
fn hashed() -> (Vec<CensusRow>, FileRef, FileRef) {
    let directory = file(0, 9);
    let mut rows = vec![name(ROOT, 3, directory)];
    for whole in [ROOT, directory] {
        for part in HASHED.parts_of(whole) {
            let links = if part == ROOT { 3 } else { 2 };
            let above = if part == whole { ROOT } else { whole };
            rows.push(row(part, FileKind::Directory, links));
            rows.push(parent(part, above));
            rows.push(rights(part, RIGHTS));
        }
    }
    let part = HASHED.parts_of(directory).nth(1).expect("a part");
    (rows, directory, part)
}

/// Goal: what differs between the home of a directory and its part is found, once.
#[test]
fn wrong_parts_are_found() {
    let changed = WallTime(5);
    let (rows, directory, part) = hashed();
    assert_eq!(found_in(HASHED, &rows, &[]), []);

    let mut other = rows.clone();
    other.retain(|row| *row != rights(part, RIGHTS));
    other.push(rights(part, Rights::default()));
    let differs = Finding::PartDiffers {
        part,
        changed,
        home_changed: changed,
        rights: RIGHTS,
    };
    assert_eq!(found_in(HASHED, &other, &[]), [differs]);

    let mut other = rows;
    other.retain(|row| *row != parent(part, directory));
    other.push(parent(part, ROOT));
    let above = Finding::Parent {
        directory: part,
        changed,
        says: Some(ROOT.id),
        named_in: directory,
    };
    assert_eq!(found_in(HASHED, &other, &[]), [above]);
}

/// Goal: a part that is missing is found, once, whether names in it are left or not; and
/// so is a home, together with whether there is something to keep.
#[test]
fn missing_parts_are_found() {
    let changed = WallTime(5);
    let (rows, directory, part) = hashed();
    let without = |gone: FileRef| {
        let is_left = |row: &&CensusRow| match row {
            CensusRow::File { file, .. } => *file != gone,
            CensusRow::Parent { directory, .. } | CensusRow::Rights { directory, .. } => {
                *directory != gone.id
            }
            _ => true,
        };
        rows.iter().filter(is_left).copied().collect::<Vec<_>>()
    };
    let regular = file(1, 20);
    let missing = Finding::PartMissing {
        directory,
        changed,
        site: SiteId(1),
        rights: RIGHTS,
    };
    let mut other = without(part);
    assert_eq!(found_in(HASHED, &other, &[]), [missing]);
    let nameless = FileRef {
        generation: 0,
        ..part
    };
    other.push(name(nameless, 3, regular));
    other.push(row(regular, FileKind::Regular, 1));
    assert_eq!(found_in(HASHED, &other, &[]), [missing]);

    let mut other = without(directory);
    let dangling = Finding::Dangling {
        directory: ROOT,
        cookie: 3,
        child: directory,
    };
    let links = Finding::Links {
        file: ROOT,
        changed,
        links: 3,
        names: 2,
    };
    let alone = |has_names| Finding::PartAlone {
        part,
        changed,
        rights: RIGHTS,
        has_names,
    };
    let findings = [dangling, alone(false), links];
    assert_eq!(found_in(HASHED, &other, &[]), findings);
    other.push(name(part, 3, regular));
    other.push(row(regular, FileKind::Regular, 1));
    let findings = [dangling, alone(true), links];
    assert_eq!(found_in(HASHED, &other, &[]), findings);
}
