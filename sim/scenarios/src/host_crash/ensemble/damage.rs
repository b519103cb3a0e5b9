//! Damage that no part of the program does by itself: the check of the volume finds it.

use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{
    Epoch, FileId, FileRef, HostId, NodeId, ObjectClass, ObjectId, SiteId, Version,
};
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Reply, SetAttributes};
use crossdock_peer::{COOKIE_COUNTER_BITS, NodeAnswer, NodeRequest, Order, Repair, WriteContext};
use crossdock_types::{Payload, WallTime};

use super::Shape;
use super::stage::{LONG, SHAPE, Stage, WELL};

/// More than lies at a site.
const LARGE_BYTES: usize = 200 << 10;

/// Newer than all that was written.
const NEWEST: Version = Version::first_of(Epoch(1 << 20));

impl Stage {
    /// What a node answers who is asked past all ordering.
    fn ask_node(&mut self, node: NodeId, request: NodeRequest) -> NodeAnswer {
        let place = self.world.place_of_node(node.0).expect("it has a place");
        let nodes = self.world.service.state.nodes.iter();
        let number = nodes.filter(|record| record.id == node.0);
        let number = number.map(|record| record.number).next();
        let number = number.expect("it has a number");
        (self.world.ask_node(place, number, request)).expect("it runs");
        loop {
            if let Some(answer) = self.world.node_answer(place) {
                return answer.expect("it does so");
            }
            self.step(LONG);
        }
    }

    fn write_large(&mut self, name: &[u8]) {
        let file = self.create(name);
        let mut data = Payload::new();
        data.push(Bytes::from(vec![7; LARGE_BYTES]));
        let written = self.do_it(&Call::Write(call::Write {
            file: file.as_handle(),
            offset: 0,
            count_bytes: u32::try_from(LARGE_BYTES).expect("it is small"),
            stable: StableHow::FileSync,
            data,
        }));
        assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    }

    /// What the manager of the root finds, and how many files and objects it looked at.
    pub(super) fn check(&mut self) -> (Vec<String>, u64, u64) {
        self.check_and(false)
    }

    /// The same after it has been mended.
    pub(super) fn mend(&mut self) -> (Vec<String>, u64, u64) {
        self.check_and(true)
    }

    fn check_and(&mut self, repairs: bool) -> (Vec<String>, u64, u64) {
        let manager = self.manager();
        self.world.begin_fsck(manager, repairs);
        loop {
            let checked = self.world.fsck_progress(manager).expect("it runs");
            if !checked.running {
                assert_eq!((&checked.error, checked.unsettled), (&None, 0));
                let findings = checked.findings.iter().map(ToString::to_string);
                return (findings.collect(), checked.seen.files, checked.seen.objects);
            }
            self.step(Duration::from_millis(10));
        }
    }

    /// Has nodes hold an object that no file has.
    fn make_stray(&mut self, version: Version) {
        let stray = ObjectId::column(FileId::new(SiteId(0), 999), 1, 0, 0);
        for node in self.members_of(&stray) {
            let create = NodeRequest::Create {
                object: stray,
                reservation_bytes: 0,
                attributes: Bytes::new(),
                context: WriteContext::default(),
                order: Order::Given(version),
            };
            self.ask_node(node, create);
        }
    }

    /// The last bytes of what [`write_large`](Self::write_large) wrote.
    fn read_end(&mut self, file: &HandleBuffer) -> Vec<u8> {
        let read = self.do_it(&Call::Read(call::Read {
            file: file.as_handle(),
            offset: (LARGE_BYTES - 100) as u64,
            count_bytes: 200,
        }));
        let Reply::Read(Ok(read)) = read else {
            panic!("{read:?}");
        };
        read.data.to_bytes().to_vec()
    }

    /// The nodes that hold an object.
    fn members_of(&self, object: &ObjectId) -> Vec<NodeId> {
        let table = self.world.service.state.table();
        let set = table.members_of(object).expect("it has a set");
        set.members.clone()
    }
}

/// Goal: what is whole is found whole; an object that no file has, and objects of a file
/// that no node has any more, are found.
#[test]
fn objects_without_a_file_and_files_without_objects_are_found() {
    let mut stage = Stage::new(SHAPE, None);
    stage.write_large(b"large");
    let (findings, files, objects) = stage.check();
    assert_eq!((findings.len(), files), (0, 2), "{findings:?}");
    assert!(objects > 0);

    stage.make_stray(NEWEST);
    let (findings, ..) = stage.check();
    assert_eq!(findings.len(), SHAPE.replicas as usize, "{findings:?}");
    for finding in findings {
        assert!(finding.contains("belongs to no file"), "{finding}");
    }

    let nodes = stage.world.service.state.nodes.clone();
    for node in nodes.iter().map(|record| NodeId(record.id)) {
        let list = NodeRequest::List {
            class: ObjectClass::Column,
            placement: None,
            after: None,
            limit: 100,
        };
        let NodeAnswer::List { objects, .. } = stage.ask_node(node, list) else {
            panic!("no list");
        };
        for object in objects {
            let remove = NodeRequest::Remove {
                object,
                context: WriteContext::default(),
                order: Order::Given(NEWEST),
            };
            stage.ask_node(node, remove);
        }
    }
    let (findings, ..) = stage.check();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].contains("of /large (file"), "{findings:?}");
    assert!(findings[0].contains("are on no node"), "{findings:?}");

    // The file has holes now, and can be written again.
    let (findings, files, _) = stage.mend();
    assert_eq!((findings.len(), files), (0, 2), "{findings:?}");
    let root = stage.root;
    let large = stage.look(&root, b"large").expect("it is there");
    assert_eq!(stage.read_end(&large.handle), [0; 100]);
}

/// Goal: objects that no file has are removed by a repair.
#[test]
fn objects_without_a_file_are_removed() {
    let mut stage = Stage::new(SHAPE, None);
    stage.write_large(b"large");
    stage.make_stray(Version(1));
    let (findings, ..) = stage.check();
    assert_eq!(findings.len(), SHAPE.replicas as usize, "{findings:?}");
    let (findings, ..) = stage.mend();
    assert!(findings.is_empty(), "{findings:?}");
}

/// Names over several sites: what one says of another's files nobody else checks.
pub(super) const SPREAD: Shape = Shape { sites: 3, ..SHAPE };

/// The root's first entry has this counter.
const FIRST_COOKIE: u64 = 3;

/// A file or directory as a client and as a site knows it.
pub(super) struct Known {
    pub(super) name: String,
    pub(super) handle: HandleBuffer,
    pub(super) file: FileRef,
    changed: WallTime,
}

impl Stage {
    /// What lies at `name` in a directory.
    pub(super) fn look(&mut self, directory: &HandleBuffer, name: &[u8]) -> Option<Known> {
        let call = Call::Lookup(Self::location(directory, name));
        let found = match self.do_it(&call) {
            Reply::Lookup(Ok(found)) => found,
            Reply::Lookup(Err(_)) => return None,
            other => panic!("{other:?}"),
        };
        let object = found.object.as_handle();
        let told = self.do_it(&Call::Getattr(call::Getattr { object }));
        let Reply::Getattr(Ok(told)) = told else {
            panic!("{told:?}");
        };
        let changed = told.changed;
        let nanoseconds = i64::from(changed.seconds) * 1_000_000_000;
        Some(Known {
            name: String::from_utf8_lossy(name).into_owned(),
            handle: found.object,
            file: FileRef {
                id: FileId(told.fileid),
                generation: 1,
            },
            changed: WallTime(nanoseconds + i64::from(changed.nanoseconds)),
        })
    }

    /// A directory of the root that lies at another site.
    pub(super) fn directory_elsewhere(&mut self) -> Known {
        let root = self.root;
        for number in 0..32 {
            let name = format!("directory-{number}");
            let made = self.do_it(&Call::Mkdir(call::Mkdir {
                location: Self::location(&root, name.as_bytes()),
                attributes: SetAttributes::default(),
            }));
            assert!(matches!(made, Reply::Mkdir(Ok(_))), "{made:?}");
            let known = self.look(&root, name.as_bytes()).expect("it was made");
            if known.file.id.site() != SiteId(0) {
                return known;
            }
        }
        panic!("all directories lie at one site");
    }

    /// A manager does to a file what a repair would do; the one finding says so.
    fn damage(&mut self, file: FileRef, damage: Repair, says: &str) {
        let manager = self.manager();
        self.world.plant(manager, file, damage);
        self.pass(Duration::from_secs(1));
        let (findings, ..) = self.check();
        assert!(
            findings.iter().any(|finding| finding.contains(says)),
            "{findings:?}"
        );
        let (findings, ..) = self.mend();
        assert!(findings.is_empty(), "{findings:?}");
    }

    /// What has a name in `lost+found`.
    pub(super) fn look_in_lost_and_found(&mut self, file: FileRef) -> Option<Known> {
        let root = self.root;
        let directory = self.look(&root, b"lost+found").expect("it was made");
        let name = format!("#{}", file.id.0);
        self.look(&directory.handle, name.as_bytes())
    }
}

/// Goal: a name of a file that is not there, a wrong link count and a wrong `..` are
/// found and mended.
#[test]
fn wrong_names_are_found_and_mended() {
    let root = FileRef::root_of(SiteId(0));
    let mut stage = Stage::new(SPREAD, None);
    stage.create(b"file");
    let handle = stage.root;
    let nothing = FileRef {
        id: FileId::new(SiteId(0), 777),
        generation: 1,
    };
    let dangling = Repair::AddName {
        name: Bytes::from_static(b"nothing"),
        child: nothing,
        is_directory: false,
    };
    stage.damage(root, dangling, "/nothing names file");

    let file = stage.look(&handle, b"file").expect("it is there");
    let links = Repair::SetLinks {
        changed: file.changed,
        links: 5,
    };
    stage.damage(file.file, links, "/file (file ");

    let directory = stage.directory_elsewhere();
    let dangling = Repair::AddName {
        name: Bytes::from_static(b"n\xff"),
        child: nothing,
        is_directory: false,
    };
    let says = format!("/{}/n\\xff names file", directory.name);
    stage.damage(directory.file, dangling, &says);
    let directory = stage.look(&handle, directory.name.as_bytes());
    let directory = directory.expect("it is there");
    let says = format!("the parent of /{} (directory ", directory.name);
    let parent = Repair::SetParent {
        changed: directory.changed,
        parent: file.file,
    };
    stage.damage(directory.file, parent, &says);
    let links = Repair::SetLinks {
        changed: WallTime(1),
        links: 9,
    };
    let manager = stage.manager();
    stage.world.plant(manager, directory.file, links);
    stage.pass(Duration::from_secs(1));
    let (findings, ..) = stage.check();
    assert!(
        findings.is_empty(),
        "what has changed since is not touched: {findings:?}"
    );
}

/// Goal: a directory and a file that have lost their names have others in `lost+found`
/// after a repair, and the file has its content.
#[test]
fn what_has_no_name_gets_one() {
    let root = FileRef::root_of(SiteId(0));
    let mut stage = Stage::new(SPREAD, None);
    let directory = stage.directory_elsewhere();
    stage.write_large(b"large");
    let handle = stage.root;
    let large = stage.look(&handle, b"large").expect("it is there");
    let renamed = stage.do_it(&Call::Rename(call::Rename {
        source: Stage::location(&handle, b"large"),
        target: Stage::location(&directory.handle, b"inner"),
    }));
    assert!(matches!(renamed, Reply::Rename(Ok(_))), "{renamed:?}");

    let of_file = Repair::RemoveName {
        cookie: cookie(directory.file.id.site(), FIRST_COOKIE),
        child: large.file,
    };
    stage.damage(directory.file, of_file, "has no name");
    let found = stage.look_in_lost_and_found(large.file).expect("a name");
    assert_eq!(found.file, large.file);
    assert_eq!(stage.read_end(&found.handle), [7; 100]);

    // Which entry of the root it is, nobody says: all are tried.
    let manager = stage.manager();
    for counter in FIRST_COOKIE..FIRST_COOKIE + 40 {
        let of_directory = Repair::RemoveName {
            cookie: cookie(SiteId(0), counter),
            child: directory.file,
        };
        stage.world.plant(manager, root, of_directory);
    }
    stage.pass(Duration::from_secs(1));
    let (findings, ..) = stage.check();
    assert!(!findings.is_empty(), "its name is gone");
    let (findings, ..) = stage.mend();
    assert!(findings.is_empty(), "{findings:?}");
    let found = stage.look_in_lost_and_found(directory.file);
    assert_eq!(found.expect("a name").file, directory.file);
}

/// Goal: a site that cannot be opened keeps its manager from nothing else: all other sites
/// are served by whoever has it, and it is tried again.
#[test]
fn a_site_without_a_log_keeps_no_other_from_being_served() {
    let mut stage = Stage::new(SPREAD, None);
    let directory = stage.directory_elsewhere();
    let site = directory.file.id.site();
    stage.world.has_damage = true;
    let log = ObjectId::of_site(ObjectClass::SiteLog, site, 0);
    for node in stage.members_of(&log) {
        let remove = NodeRequest::Remove {
            object: log,
            context: WriteContext {
                site_epoch: Epoch(1 << 20),
                ..WriteContext::default()
            },
            order: Order::Given(NEWEST),
        };
        stage.ask_node(node, remove);
    }
    let owner = stage.world.service.state.owners[&site.0];
    let place = stage.world.place_of(HostId(owner)).expect("it runs");
    stage.world.kill(place, LONG);
    stage.pass(Duration::from_secs(8));
    let next = stage.world.service.state.owners[&site.0];
    assert_ne!(next, owner, "it has another manager");
    stage.create(b"meanwhile");
    let asked = Call::Getattr(call::Getattr {
        object: directory.handle.as_handle(),
    });
    let answer = stage.ask(WELL, &asked, Duration::from_secs(3));
    assert!(answer.is_none(), "{answer:?}");
    stage.pass(Duration::from_secs(40));
    stage.create(b"later");
    assert_eq!(stage.world.service.state.owners[&site.0], next);
    let epochs = stage.world.service.state.site_epoch(site);
    assert!(epochs > Epoch(3), "it is not tried again: {epochs:?}");
}

/// The cookie with that counter.
const fn cookie(site: SiteId, counter: u64) -> u64 {
    (site.0 as u64) << COOKIE_COUNTER_BITS | counter
}
