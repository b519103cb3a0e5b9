//! Directories whose names are hashed: the router puts together what the sites of
//! their parts tell.

mod script;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use crossdock_names::{FileId, FileRef, SiteId, Spread};
use crossdock_peer::{
    Attributes, COOKIE_COUNTER_BITS, Call, CallId, DirectoryEntry, FileKind, SiteAnswer, SiteError,
    SiteOperation, SiteReply, SiteRequest, WeakCache, WriterId,
};
use crossdock_router::{Router, RouterConfig, RouterEffect, RouterInput};
use crossdock_types::WallTime;

use script::{attributes, secs, table};

const SITES: u16 = 4;

/// Its home is the third site.
const DIRECTORY: FileRef = file(2, 9);

const fn file(site: u16, number: u64) -> FileRef {
    FileRef {
        id: FileId::new(SiteId(site), number),
        generation: 1,
    }
}

fn spread() -> Spread {
    Spread::hashed(SITES)
}

/// What the sites have.
#[derive(Default)]
struct Sites {
    /// Entries of each part, by counter.
    parts: BTreeMap<FileRef, BTreeMap<u64, (Bytes, FileRef)>>,
    /// Attributes and changes of parts.
    shown: BTreeMap<FileRef, (Attributes, u64)>,
    /// Files that are no directories.
    files: BTreeMap<FileRef, Attributes>,
    /// Who was asked, and by which cookie, of lists.
    asked: Vec<(SiteId, u64)>,
}

impl Sites {
    fn with_names(names: u64) -> Self {
        let mut sites = Self::default();
        for part in spread().parts_of(DIRECTORY) {
            sites.parts.insert(part, BTreeMap::new());
        }
        for number in 0..names {
            let name = Bytes::from(format!("name-{number}"));
            let part = spread().part_for(DIRECTORY, &name);
            let entries = sites.parts.get_mut(&part).expect("a part");
            let child = file(part.id.site().0, 100 + number);
            entries.insert(3 + entries.len() as u64, (name, child));
        }
        sites
    }

    fn reply(&mut self, request: &SiteRequest) -> (Result<SiteAnswer, SiteError>, WeakCache) {
        let mut subject = WeakCache::default();
        let outcome = match &request.operation {
            SiteOperation::GetAttributes { file } => {
                if let Some((attributes, changes)) = self.shown.get(file).cloned() {
                    Ok(SiteAnswer::Part {
                        attributes,
                        changes,
                    })
                } else {
                    subject.after = self.files.get(file).cloned();
                    let found = subject.after.as_ref().map(|_| SiteAnswer::Done);
                    found.ok_or(SiteError::Stale)
                }
            }
            &SiteOperation::ReadDirectory {
                directory,
                cookie,
                entries_max,
                with_attributes,
                ..
            } => self.list(directory, cookie, entries_max, with_attributes),
            SiteOperation::Lookup { directory, name } => {
                let part = self.parts.get(directory).ok_or(SiteError::Stale);
                part.and_then(|part| {
                    let entry = part.values().find(|(own, _)| own == name);
                    let (_, child) = entry.ok_or(SiteError::NotFound)?;
                    Ok(SiteAnswer::Elsewhere(*child))
                })
            }
            other => panic!("{other:?}"),
        };
        (outcome, subject)
    }

    fn list(
        &mut self,
        part: FileRef,
        cookie: u64,
        entries_max: usize,
        with_attributes: bool,
    ) -> Result<SiteAnswer, SiteError> {
        let site = part.id.site();
        self.asked.push((site, cookie));
        let entries = self.parts.get(&part).ok_or(SiteError::Stale)?;
        let dots = [(1, "."), (2, "..")].map(|(own, name)| DirectoryEntry {
            file: DIRECTORY.id,
            name: Bytes::from(name),
            cookie: own,
            attributes: None,
        });
        let named = entries.iter().map(|(counter, (name, child))| {
            let own = self.files.get(child).filter(|_| child.id.site() == site);
            DirectoryEntry {
                file: child.id,
                name: name.clone(),
                cookie: u64::from(site.0) << COOKIE_COUNTER_BITS | counter,
                attributes: own.filter(|_| with_attributes).cloned(),
            }
        });
        let from = cookie & ((1 << COOKIE_COUNTER_BITS) - 1);
        let mut all: Vec<DirectoryEntry> =
            dots.into_iter().filter(|dot| dot.cookie > cookie).collect();
        all.extend(named.filter(|entry| entry.cookie & ((1 << COOKIE_COUNTER_BITS) - 1) > from));
        let end = all.len() <= entries_max;
        all.truncate(entries_max);
        Ok(SiteAnswer::Directory {
            entries: all,
            end,
            verifier: [0; 8],
        })
    }
}

/// Asks the router, which asks the sites.
fn ask(sites: &mut Sites, operation: SiteOperation) -> SiteReply {
    let mut table = Arc::unwrap_or_clone(table(1));
    table.spread = spread();
    let mut router = Router::new(RouterConfig::new(WriterId(7)), Arc::new(table));
    let call = Call {
        id: CallId(1),
        deadline: secs(100),
        request: SiteRequest::as_root(operation),
    };
    router.handle(secs(0), RouterInput::Request(Box::new(call)));
    loop {
        match router.poll_effect().expect("it goes on") {
            RouterEffect::Site(site, call) => {
                assert_eq!(site, call.request.operation.site());
                let (outcome, subject) = sites.reply(&call.request);
                let reply = SiteReply {
                    id: call.id,
                    outcome,
                    subject,
                    second: WeakCache::default(),
                };
                router.handle(secs(0), RouterInput::Site(Box::new(reply)));
            }
            RouterEffect::Reply(routed) => return routed.reply,
            other => panic!("{other:?}"),
        }
    }
}

fn list(cookie: u64, entries_max: usize, with_attributes: bool) -> SiteOperation {
    SiteOperation::ReadDirectory {
        directory: DIRECTORY,
        cookie,
        entries_max,
        name_bytes_max: 1 << 20,
        with_attributes,
    }
}

fn entries_of(reply: SiteReply) -> (Vec<DirectoryEntry>, bool) {
    match reply.outcome {
        Ok(SiteAnswer::Directory { entries, end, .. }) => (entries, end),
        other => panic!("{other:?}"),
    }
}

fn part(modified: i64, links: u32, changes: u64) -> (Attributes, u64) {
    let attributes = Attributes {
        file: DIRECTORY,
        kind: FileKind::Directory,
        links,
        modified: WallTime(modified),
        changed: WallTime(modified + 1),
        ..attributes(4096)
    };
    (attributes, changes)
}

/// Goal: page after page, of whatever size, a list has the dots and every name once;
/// a cookie leads to the site whose part has its entry, and to that behind it.
#[test]
fn lists_are_merged_page_by_page() {
    for page in 1..9 {
        let mut sites = Sites::with_names(20);
        let (mut cookie, mut names, mut end) = (0, Vec::new(), false);
        while !end {
            let (entries, ends) = entries_of(ask(&mut sites, list(cookie, page, false)));
            assert!(entries.len() <= page && (ends || !entries.is_empty()));
            cookie = entries.last().map_or(cookie, |last| last.cookie);
            names.extend(entries.into_iter().map(|entry| entry.name));
            end = ends;
        }
        assert_eq!(names[..2], [Bytes::from("."), Bytes::from("..")]);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 22, "pages of {page}");
        let is_right = |&(site, cookie): &(SiteId, u64)| {
            cookie < 2 && site == DIRECTORY.id.site()
                || cookie == 2
                || cookie >> COOKIE_COUNTER_BITS == u64::from(site.0)
        };
        assert!(sites.asked.iter().all(is_right), "{:?}", sites.asked);
    }
    let beyond = u64::from(SITES) << COOKIE_COUNTER_BITS | 3;
    let reply = ask(&mut Sites::with_names(3), list(beyond, 9, false));
    assert_eq!(reply.outcome, Err(SiteError::BadCookie));
}

/// Goal: READDIRPLUS asks for attributes of files that lie at another site than their
/// name, and of no others.
#[test]
fn attributes_of_files_elsewhere_are_asked_for() {
    let mut sites = Sites::with_names(6);
    let name = Bytes::from("moved");
    let place = spread().part_for(DIRECTORY, &name);
    let elsewhere = file((place.id.site().0 + 1) % SITES, 50);
    let entries = sites.parts.get_mut(&place).expect("a part");
    entries.insert(90, (name.clone(), elsewhere));
    sites.files.insert(elsewhere, attributes(77));
    let (entries, end) = entries_of(ask(&mut sites, list(0, 100, true)));
    assert!(end);
    for entry in entries {
        let size = entry.attributes.map(|attributes| attributes.size_bytes);
        assert_eq!(size, (entry.name == name).then_some(77), "{:?}", entry.name);
    }
}

/// Goal: the attributes of a directory are those of its parts together, in GETATTR and
/// LOOKUP, which also find it at another site.
#[test]
fn attributes_of_parts_are_put_together() {
    let mut sites = Sites::default();
    let all = spread().parts_of(DIRECTORY);
    let told = [
        part(50, 3, 1),
        part(70, 2, 4),
        part(10, 5, 0),
        part(60, 2, 2),
    ];
    sites.shown = all.zip(told).collect();
    let reply = ask(&mut sites, SiteOperation::GetAttributes { file: DIRECTORY });
    assert_eq!(reply.outcome, Ok(SiteAnswer::Done));
    let shown = reply.subject.after.expect("attributes");
    assert_eq!((shown.file, shown.links), (DIRECTORY, 6));
    assert_eq!(
        (shown.modified, shown.changed),
        (WallTime(77), WallTime(78))
    );

    let (parent, name) = (file(0, 4), Bytes::from("sub"));
    let place = spread().part_for(parent, &name);
    sites
        .parts
        .insert(place, BTreeMap::from([(3, (name.clone(), DIRECTORY))]));
    let directory = parent;
    let reply = ask(&mut sites, SiteOperation::Lookup { directory, name });
    let found = SiteAnswer::Found {
        attributes: shown,
        layout: crossdock_names::LayoutClass::STRIPED,
        placement: DIRECTORY.id,
    };
    assert_eq!(reply.outcome, Ok(found));
}

/// Goal: where a name would lie in a file, or in a directory that is gone, is told apart
/// by the site that would be its home.
#[test]
fn what_is_no_directory_is_told() {
    let mut sites = Sites::default();
    let plain = file(1, 5);
    sites.files.insert(plain, attributes(3));
    for number in 0..8 {
        let name = Bytes::from(format!("name-{number}"));
        if spread().part_for(plain, &name) == plain {
            continue; // That site tells it itself.
        }
        for (directory, error) in [
            (plain, SiteError::NotDirectory),
            (file(1, 6), SiteError::Stale),
        ] {
            let name = name.clone();
            let reply = ask(&mut sites, SiteOperation::Lookup { directory, name });
            assert_eq!(reply.outcome, Err(error));
        }
    }
    let beyond = 3 << COOKIE_COUNTER_BITS | 3;
    for (directory, error) in [
        (plain, SiteError::NotDirectory),
        (file(1, 6), SiteError::Stale),
    ] {
        let operation = SiteOperation::ReadDirectory {
            directory,
            cookie: beyond,
            entries_max: 9,
            name_bytes_max: 999,
            with_attributes: false,
        };
        let reply = ask(&mut sites, operation);
        assert_eq!(reply.outcome, Err(error));
    }
}
