//! Damage to directories of which something lies at several sites: the parts of hashed
//! ones, and names whose directory is gone.

use crossdock_directory::{Directory, Mutation};
use crossdock_names::{FileRef, SiteId, Spread};
use crossdock_nfs3::call::{self, CreateHow};
use crossdock_nfs3::{Call, HandleBuffer, Reply, SetAttributes};
use crossdock_peer::COOKIE_COUNTER_BITS;

use super::Shape;
use super::damage::SPREAD;
use super::stage::Stage;

pub(super) const HASHED: Shape = Shape {
    is_hashed: true,
    ..SPREAD
};

const SPREAD_OF_HASHED: Spread = Spread::hashed(HASHED.sites);

const ROOT: FileRef = FileRef::root_of(SiteId(0));

/// A directory of the root.
pub(super) struct Planted {
    pub(super) handle: HandleBuffer,
    pub(super) file: FileRef,
}

fn remove_cell(file: FileRef) -> Mutation {
    Mutation::RemoveCell {
        serial: file.id.serial(),
    }
}

fn remove_name(directory: FileRef, name: &[u8]) -> Mutation {
    Mutation::RemoveEntry {
        parent: directory.id.serial(),
        name: name.to_vec().into(),
    }
}

/// A name that a directory lacks, for which no directory is needed.
fn put_name(directory: FileRef, name: &[u8], child: FileRef) -> Mutation {
    Mutation::PutEntry {
        parent: directory.id.serial(),
        name: name.to_vec().into(),
        child,
        cookie: u64::from(directory.id.site().0) << COOKIE_COUNTER_BITS | 50,
    }
}

impl Stage {
    pub(super) fn new_directory(&mut self, name: &[u8]) -> Planted {
        let root = self.root;
        let made = self.do_it(&Call::Mkdir(call::Mkdir {
            location: Self::location(&root, name),
            attributes: SetAttributes {
                mode: Some(0o750),
                ..SetAttributes::default()
            },
        }));
        assert!(matches!(made, Reply::Mkdir(Ok(_))), "{made:?}");
        let known = self.look(&root, name).expect("it was made");
        Planted {
            handle: known.handle,
            file: known.file,
        }
    }

    pub(super) fn create_in(&mut self, directory: &HandleBuffer, name: &[u8]) -> FileRef {
        let made = self.do_it(&Call::Create(call::Create {
            location: Self::location(directory, name),
            how: CreateHow::Guarded(SetAttributes::default()),
        }));
        assert!(matches!(made, Reply::Create(Ok(_))), "{made:?}");
        self.look(directory, name).expect("it was made").file
    }

    fn damage_site(&mut self, site: SiteId, changes: Vec<Mutation>) {
        self.world.damage(site, |_| changes);
    }

    /// All of this is found, and nothing of it after it has been mended.
    fn is_mended(&mut self, says: &[&str]) {
        let (findings, ..) = self.check();
        for says in says {
            let mut findings = findings.iter();
            let is_said = findings.any(|finding| finding.contains(says));
            assert!(is_said, "{says}: {:?}", self.check());
        }
        let (findings, ..) = self.mend();
        assert!(findings.is_empty(), "{findings:?}");
    }

    fn mode_of(&mut self, directory: &HandleBuffer) -> u32 {
        let object = directory.as_handle();
        let told = self.do_it(&Call::Getattr(call::Getattr { object }));
        let Reply::Getattr(Ok(told)) = told else {
            panic!("{told:?}");
        };
        told.mode
    }
}

/// A name that lies in the part of a directory at a site.
pub(super) fn name_at(directory: FileRef, site: SiteId) -> Vec<u8> {
    let mut names = (0..).map(|number| format!("name-{number}").into_bytes());
    let is_there = |name: &Vec<u8>| SPREAD_OF_HASHED.part_for(directory, name).id.site() == site;
    names.find(is_there).expect("some name does")
}

/// The parts of a directory beside its home.
pub(super) fn other_parts(directory: FileRef) -> Vec<FileRef> {
    SPREAD_OF_HASHED.parts_of(directory).skip(1).collect()
}

/// Goal: a part that is missing is made anew, with the directory's rights and the names
/// in it that are left; what had its name there has one in `lost+found`.
#[test]
fn a_missing_part_is_made_anew() {
    let mut stage = Stage::new(HASHED, None);
    let directory = stage.new_directory(b"d");
    let parts = other_parts(directory.file);
    let names: Vec<Vec<u8>> = parts
        .iter()
        .map(|part| name_at(directory.file, part.id.site()))
        .collect();
    let lost = stage.create_in(&directory.handle, &names[0]);
    let kept = stage.create_in(&directory.handle, &names[1]);
    stage.damage_site(parts[0].id.site(), vec![remove_cell(parts[0])]);
    let changes = vec![remove_cell(parts[1]), put_name(parts[1], &names[1], kept)];
    stage.damage_site(parts[1].id.site(), changes);
    stage.is_mended(&["has no part of /d (directory ", "has no name"]);

    let found = stage.look_in_lost_and_found(lost).expect("a name");
    assert_eq!(found.file, lost);
    let found = stage.look(&directory.handle, &names[1]).expect("its name");
    assert_eq!(found.file, kept);
    stage.create_in(&directory.handle, &names[0]);
    assert_eq!(stage.mode_of(&directory.handle), 0o750);
}

/// A directory `d` whose home is missing, with a name in one of its other parts and the
/// file of that name.
fn without_home() -> (Stage, FileRef, Vec<u8>, FileRef) {
    let mut stage = Stage::new(HASHED, None);
    let directory = stage.new_directory(b"d");
    let (home, part) = (directory.file, other_parts(directory.file)[0]);
    let name = name_at(home, part.id.site());
    let kept = stage.create_in(&directory.handle, &name);
    stage.damage_site(home.id.site(), vec![remove_cell(home)]);
    (stage, home, name, kept)
}

/// Goal: a directory whose home is missing is made anew as its parts say, where its name
/// is, and has the names that they have.
#[test]
fn a_missing_home_is_made_anew() {
    let (mut stage, home, name, kept) = without_home();
    stage.is_mended(&[
        "/d names file ",
        "is a part of a directory that is not there",
    ]);
    let root = stage.root;
    let found = stage.look(&root, b"d").expect("its name");
    assert_eq!(found.file, home);
    assert_eq!(stage.mode_of(&found.handle), 0o750);
    let found = stage.look(&found.handle, &name).expect("the name");
    assert_eq!(found.file, kept);
}

/// Goal: one that has lost its name, too, has one in `lost+found`.
#[test]
fn a_missing_home_without_a_name_gets_one() {
    let (mut stage, home, name, kept) = without_home();
    let named_in = SPREAD_OF_HASHED.part_for(ROOT, b"d");
    let gone = remove_name(named_in, b"d");
    stage.damage_site(named_in.id.site(), vec![gone]);
    stage.is_mended(&["is a part of a directory that is not there"]);
    let found = stage.look_in_lost_and_found(home).expect("a name");
    assert_eq!(found.file, home);
    let found = stage.look(&found.handle, &name).expect("the name");
    assert_eq!(found.file, kept);
}

/// Goal: parts of a directory that is not there go, with its name, if they are empty.
#[test]
fn empty_parts_without_a_home_go() {
    let mut stage = Stage::new(HASHED, None);
    let home = stage.new_directory(b"d").file;
    stage.damage_site(home.id.site(), vec![remove_cell(home)]);
    stage.is_mended(&["/d names file ", "is a part of a directory"]);
    let root = stage.root;
    assert!(stage.look(&root, b"d").is_none());
    assert!(stage.look(&root, b"lost+found").is_none());
    stage.new_directory(b"d");
}

/// Goal: owner, mode, link count and home of a part become what they should be.
#[test]
fn parts_are_made_alike() {
    let mut stage = Stage::new(HASHED, None);
    let directory = stage.new_directory(b"d").file;
    let part = other_parts(directory)[0];
    let change = |stage: &mut Stage, change: &dyn Fn(&mut crossdock_directory::Cell)| {
        stage.world.damage(part.id.site(), |state: &Directory| {
            let mut cell = state.cell(part).expect("it is there").clone();
            change(&mut cell);
            vec![Mutation::PutCell(cell)]
        });
    };
    change(&mut stage, &|cell| cell.set_mode(0o777));
    stage.is_mended(&["/d (directory ", "another owner, group or mode"]);
    change(&mut stage, &|cell| cell.uid = 77);
    stage.is_mended(&["another owner, group or mode"]);
    change(&mut stage, &|cell| cell.links = 7);
    stage.is_mended(&["7 links, and 2 lead to it"]);
    let parent = Mutation::PutDirectory {
        serial: part.id.serial(),
        parent: ROOT,
        next_cookie: 0,
    };
    stage.damage_site(part.id.site(), vec![parent]);
    stage.is_mended(&["the parent of /d (directory "]);
    stage.world.damage(part.id.site(), |state: &Directory| {
        let cell = state.cell(part).expect("it is there");
        assert_eq!((cell.mode(), cell.uid, cell.links), (0o750, 0, 2));
        Vec::new()
    });
}

/// Goal: names in a directory that is not there have it again, where its name is or in
/// `lost+found`.
#[test]
fn a_directory_of_which_names_are_left_is_made_anew() {
    let mut stage = Stage::new(SPREAD, None);
    let directory = stage.directory_elsewhere();
    let kept = stage.create_in(&directory.handle, b"inner");
    let site = directory.file.id.site();
    let damage = |stage: &mut Stage| {
        let changes = vec![
            remove_cell(directory.file),
            put_name(directory.file, b"inner", kept),
        ];
        stage.damage_site(site, changes);
    };
    damage(&mut stage);
    let says = format!("there are names in /{} (directory ", directory.name);
    stage.is_mended(&[&says]);
    let root = stage.root;
    let found = stage.look(&root, directory.name.as_bytes());
    let found = found.expect("its name");
    assert_eq!(
        (found.file, stage.mode_of(&found.handle)),
        (directory.file, 0o700)
    );
    let inner = stage.look(&found.handle, b"inner").expect("the name");
    assert_eq!(inner.file, kept);

    damage(&mut stage);
    let gone = remove_name(ROOT, directory.name.as_bytes());
    stage.damage_site(SiteId(0), vec![gone]);
    stage.is_mended(&["there are names in directory "]);
    let found = stage.look_in_lost_and_found(directory.file);
    let found = found.expect("a name");
    let inner = stage.look(&found.handle, b"inner").expect("the name");
    assert_eq!(inner.file, kept);
}
