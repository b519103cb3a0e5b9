//! What an operation costs: messages between hosts, and synchronous writes of logs,
//! counted on an ensemble at rest. The table in docs/performance.md is what comes out.

use std::ops::Sub;
use std::time::Duration;

use bytes::Bytes;
use crossdock_host::HostEffect;
use crossdock_link::Frame;
use crossdock_names::{FileRef, SiteId};
use crossdock_nfs3::call::{
    Commit, Create, CreateHow, Getattr, Link, Mkdir, Read, Readdirplus, Rename, Setattr, StableHow,
    Symlink, Write,
};
use crossdock_nfs3::{Call, CookieVerifier, HandleBuffer, Path, Reply, SetAttributes};
use crossdock_peer::{NodeRequest, Port};
use crossdock_types::Payload;

use super::Shape;
use super::stage::{SHAPE, Stage};

/// Counted since the start. An answer belongs to each message, and is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    /// Gateways asked sites.
    to_sites: u64,
    /// Sites asked each other.
    between_sites: u64,
    /// Sites appended to their logs, on each node that has one.
    log_appends: u64,
    /// Anybody else asked nodes for data.
    to_nodes: u64,
    /// Nodes sent what they order to other members.
    copies: u64,
}

impl Spent {
    pub(super) fn count(&mut self, effect: &HostEffect) {
        if let HostEffect::Send { sent, .. } = effect {
            self.count_frame(&sent.frame);
        }
    }

    const fn count_frame(&mut self, frame: &Frame) {
        let counter = match frame {
            Frame::SiteCall {
                from: Port::Router, ..
            } => &mut self.to_sites,
            Frame::SiteCall { .. } => &mut self.between_sites,
            Frame::NodeCall {
                from: Port::Node(_),
                ..
            } => &mut self.copies,
            Frame::NodeCall { call, .. } if matches!(call.request, NodeRequest::Append { .. }) => {
                &mut self.log_appends
            }
            Frame::NodeCall { .. } => &mut self.to_nodes,
            _ => return, // Answers, leases, and what is told now and then.
        };
        *counter += 1;
    }

    /// A row of the table.
    fn row(what: &str, spent: Self) -> String {
        let word = |count: u64| match count {
            0 => "–".to_owned(),
            count => count.to_string(),
        };
        format!(
            "| {what} | {} | {} | {} | {} | {} |",
            word(spent.to_sites),
            word(spent.between_sites),
            word(spent.log_appends),
            word(spent.to_nodes),
            word(spent.copies),
        )
    }
}

impl Sub for Spent {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            to_sites: self.to_sites - earlier.to_sites,
            between_sites: self.between_sites - earlier.between_sites,
            log_appends: self.log_appends - earlier.log_appends,
            to_nodes: self.to_nodes - earlier.to_nodes,
            copies: self.copies - earlier.copies,
        }
    }
}

/// Everything is at rest again.
const REST: Duration = Duration::from_secs(8);

/// Longest that what an operation leaves to be done takes.
const BEHIND: Duration = Duration::from_secs(2);

struct Table {
    stage: Stage,
    rows: Vec<String>,
    named: usize,
}

impl Table {
    /// Does it on an ensemble at rest, and adds what it took.
    fn add(&mut self, what: &str, call: &Call<'_>) -> Reply {
        self.add_all(what, std::slice::from_ref(call))
    }

    /// The same with calls that come one after the other; the reply to the last one.
    fn add_all(&mut self, what: &str, calls: &[Call<'_>]) -> Reply {
        self.stage.pass(REST);
        let before = self.stage.world.spent;
        let mut reply = None;
        for call in calls {
            let done = self.stage.do_it(call);
            assert_eq!(done.status(), None, "{what}: {done:?}");
            reply = Some(done);
        }
        let reply = reply.expect("a call");
        self.stage.pass(BEHIND);
        let row = Spent::row(what, self.stage.world.spent - before);
        self.rows.push(row);
        reply
    }

    /// Makes a directory of the root at that site.
    fn mkdir(&mut self, what: &str, site: SiteId) -> (String, HandleBuffer) {
        let root = self.stage.root;
        let name = self.name_at(|found| found == site);
        let Reply::Mkdir(Ok(made)) = self.add(what, &mkdir(&root, &name)) else {
            unreachable!("it has succeeded");
        };
        (name, made.object.expect("a handle"))
    }

    /// A new name in the root, under which a directory would lie at a site that is
    /// wanted.
    fn name_at(&mut self, is_wanted: impl Fn(SiteId) -> bool) -> String {
        let state = &self.stage.world.service.state;
        let root = FileRef::root_of(SiteId(0));
        let home = |name: &str| state.spread.home(state.volume_id(), root, name.as_bytes());
        let mut names = (self.named..self.named + 10_000).map(|number| format!("d{number}"));
        let name = names.find(|name| is_wanted(home(name)));
        self.named += 10_000;
        name.expect("a name for each site")
    }

    /// A site of another manager than the root's, which has been used.
    fn another_site(&mut self) -> SiteId {
        let state = &self.stage.world.service.state;
        let is_apart = |site: &u16| state.owners[site] != state.owners[&0];
        let site = state.owners.keys().copied().find(is_apart);
        let site = SiteId(site.expect("the managers share the sites"));
        self.mkdir("the first there", site);
        self.rows.pop();
        site
    }
}

fn mkdir<'a>(directory: &'a HandleBuffer, name: &'a str) -> Call<'a> {
    Call::Mkdir(Mkdir {
        location: Stage::location(directory, name.as_bytes()),
        attributes: SetAttributes::default(),
    })
}

fn create<'a>(directory: &'a HandleBuffer, name: &'a str) -> Call<'a> {
    Call::Create(Create {
        location: Stage::location(directory, name.as_bytes()),
        how: CreateHow::Guarded(SetAttributes::default()),
    })
}

fn rename<'a>(
    source: (&'a HandleBuffer, &'a str),
    target: (&'a HandleBuffer, &'a str),
) -> Call<'a> {
    Call::Rename(Rename {
        source: Stage::location(source.0, source.1.as_bytes()),
        target: Stage::location(target.0, target.1.as_bytes()),
    })
}

fn link<'a>(object: &'a HandleBuffer, directory: &'a HandleBuffer, name: &'a str) -> Call<'a> {
    Call::Link(Link {
        object: object.as_handle(),
        location: Stage::location(directory, name.as_bytes()),
    })
}

fn write(file: &HandleBuffer, offset: u64, count_bytes: u32, stable: StableHow) -> Call<'_> {
    Call::Write(Write {
        file: file.as_handle(),
        offset,
        count_bytes,
        stable,
        data: Payload::from(Bytes::from(vec![1; count_bytes as usize])),
    })
}

fn read(file: &HandleBuffer, offset: u64, count_bytes: u32) -> Call<'_> {
    Call::Read(Read {
        file: file.as_handle(),
        offset,
        count_bytes,
    })
}

/// Names at one site.
fn names_here(table: &mut Table) -> HandleBuffer {
    let root = table.stage.root;
    let at = |name: &'static str| Stage::location(&root, name.as_bytes());
    let made = table.add("CREATE", &create(&root, "a"));
    let Reply::Create(Ok(made)) = made else {
        unreachable!("its status is looked at");
    };
    let file = made.object.expect("a handle");
    table.add("LOOKUP", &Call::Lookup(at("a")));
    let object = file.as_handle();
    table.add("GETATTR", &Call::Getattr(Getattr { object }));
    let (name, directory) = table.mkdir("MKDIR", SiteId(0));
    let listing = Call::Readdirplus(Readdirplus {
        directory: root.as_handle(),
        cookie: 0,
        verifier: CookieVerifier::default(),
        directory_count_bytes: 4096,
        count_bytes: 16_384,
    });
    table.add("READDIRPLUS", &listing);
    let attributes = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let setattr = Call::Setattr(Setattr {
        object,
        attributes,
        guard: None,
    });
    table.add("SETATTR (mode)", &setattr);
    let symlink = Call::Symlink(Symlink {
        location: at("s"),
        attributes: SetAttributes::default(),
        target: Path(b"a"),
    });
    table.add("SYMLINK", &symlink);
    table.add("LINK", &link(&file, &root, "b"));
    table.add("RENAME", &rename((&root, "b"), (&directory, "b")));
    table.add("REMOVE", &Call::Remove(at("s")));
    table.add(
        "REMOVE of one of two names",
        &Call::Remove(Stage::location(&directory, b"b")),
    );
    table.add(
        "RMDIR",
        &Call::Rmdir(Stage::location(&root, name.as_bytes())),
    );
    file
}

fn bytes_of(table: &mut Table, file: &HandleBuffer) {
    let far = 1 << 20;
    table.add(
        "WRITE of 4 KiB below 64 KiB, UNSTABLE",
        &write(file, 0, 4096, StableHow::Unstable),
    );
    table.add(
        "WRITE of 4 KiB below 64 KiB, FILE_SYNC",
        &write(file, 0, 4096, StableHow::FileSync),
    );
    table.add(
        "WRITE of 32 KiB below 64 KiB, FILE_SYNC",
        &write(file, 0, 32_768, StableHow::FileSync),
    );
    table.add("READ below 64 KiB", &read(file, 0, 4096));
    table.add(
        "WRITE of 32 KiB beyond, UNSTABLE, the first",
        &write(file, far, 32_768, StableHow::Unstable),
    );
    table.add(
        "WRITE of 32 KiB beyond, UNSTABLE",
        &write(file, far, 32_768, StableHow::Unstable),
    );
    let commit = Call::Commit(Commit {
        file: file.as_handle(),
        offset: 0,
        count_bytes: 0,
    });
    table.add("COMMIT", &commit);
    table.add(
        "WRITE of 32 KiB beyond, FILE_SYNC",
        &write(file, far, 32_768, StableHow::FileSync),
    );
    table.add("READ beyond 64 KiB", &read(file, far, 32_768));
    let many = |number: u64| far + number * 32_768;
    let writes = (0..100).map(|number| write(file, many(number), 32_768, StableHow::Unstable));
    let writes: Vec<Call<'_>> = writes.chain([commit]).collect();
    table.add_all("100 WRITEs beyond 64 KiB, UNSTABLE, and a COMMIT", &writes);
    let reads: Vec<Call<'_>> = (0..100)
        .map(|number| read(file, many(number), 32_768))
        .collect();
    table.add_all("100 READs beyond 64 KiB", &reads);
}

/// Names at two sites of different managers.
fn names_elsewhere(table: &mut Table, file: &HandleBuffer) {
    let root = table.stage.root;
    let site = table.another_site();
    let (name, there) = table.mkdir("MKDIR, at another site", site);
    let within = |name: &'static [u8]| Stage::location(&there, name);
    table.add("LINK, into a directory there", &link(file, &there, "l"));
    table.add("LOOKUP of it", &Call::Lookup(within(b"l")));
    table.add("REMOVE of it", &Call::Remove(within(b"l")));
    let file = rename((&root, "a"), (&there, "a"));
    table.add("RENAME of a file, into a directory there", &file);
    table.add("REMOVE of it", &Call::Remove(within(b"a")));
    let (moved, _) = table.mkdir("the one that moves", SiteId(0));
    table.rows.pop();
    let directory = rename((&root, &moved), (&there, "d"));
    table.add("RENAME of a directory, into a directory there", &directory);
    table.add("RMDIR of it", &Call::Rmdir(within(b"d")));
    let gone = Stage::location(&root, name.as_bytes());
    table.add("RMDIR, at another site", &Call::Rmdir(gone));
}

/// Goal: what an operation costs is known, written down, and noticed when it
/// changes.
#[test]
fn every_operation_costs_what_the_table_says() {
    let shape = Shape {
        sites: 256,
        ..SHAPE
    };
    let mut table = Table {
        stage: Stage::new(shape, None),
        rows: Vec::new(),
        named: 0,
    };
    let file = names_here(&mut table);
    bytes_of(&mut table, &file);
    names_elsewhere(&mut table, &file);
    let found = table.rows.join("\n");
    let documented = include_str!("../../../../../docs/performance.md");
    assert!(
        documented.contains(&found),
        "docs/performance.md has another table than this:\n{found}"
    );
}
