//! READDIR and READDIRPLUS: asking for about as many entries as fit, and
//! putting exactly those that fit into the reply.

use crossdock_limits::NAME_BYTES_MAX;
use crossdock_names::{FileId, FileRef, LayoutClass};
use crossdock_nfs3::call::{Readdir, Readdirplus};
use crossdock_nfs3::{
    CookieVerifier, Entry, EntryPlus, Failure, Name, Procedure, ReaddirBuilder, ReaddirplusBuilder,
    Reply, Status,
};
use crossdock_peer::{DirectoryEntry, SiteOperation, WeakCache};

use crate::convert::View;
use crate::request::Reader;

/// What a client asks of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing {
    cookie: u64,
    verifier: CookieVerifier,
    count_bytes: u32,
    /// For READDIRPLUS.
    directory_count_bytes: Option<u32>,
    /// Of an export's root: its own number, which is its parent's as well.
    root: Option<FileId>,
}

/// Least bytes of an entry of READDIR: mark, number, a short name, cookie.
const ENTRY_BYTES_MIN: usize = 28;
/// The same of READDIRPLUS, with attributes and handle.
const ENTRY_PLUS_BYTES_MIN: usize = ENTRY_BYTES_MIN + 88 + 8 + 64;
/// What a site counts for an entry besides its name.
const SITE_ENTRY_BYTES: usize = 24;

impl Listing {
    pub(crate) fn of_readdir(arguments: &Readdir<'_>, reader: &Reader<'_>) -> Self {
        Self {
            cookie: arguments.cookie,
            verifier: arguments.verifier,
            count_bytes: arguments.count_bytes.min(reader.io_bytes_max),
            directory_count_bytes: None,
            root: None,
        }
    }

    pub(crate) fn of_readdirplus(arguments: &Readdirplus<'_>, reader: &Reader<'_>) -> Self {
        Self {
            cookie: arguments.cookie,
            verifier: arguments.verifier,
            count_bytes: arguments.count_bytes.min(reader.io_bytes_max),
            directory_count_bytes: Some(arguments.directory_count_bytes),
            root: None,
        }
    }

    /// The same of an export's root, whose number is `root`.
    pub(crate) const fn of_root(mut self, root: FileId) -> Self {
        self.root = Some(root);
        self
    }

    pub(crate) const fn procedure(&self) -> Procedure {
        match self.directory_count_bytes {
            Some(_) => Procedure::Readdirplus,
            None => Procedure::Readdir,
        }
    }

    pub(crate) fn reply_bytes_max(&self) -> usize {
        usize::try_from(self.count_bytes).unwrap_or(usize::MAX)
    }

    /// What to ask of the site: never less than fits, and always one entry.
    pub(crate) fn operation(&self, directory: FileRef) -> SiteOperation {
        let count = self.reply_bytes_max();
        let (names, entry) = match self.directory_count_bytes {
            // `dircount` has 20 bytes for each name, the site 24.
            Some(bytes) => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                (
                    bytes.saturating_add(bytes / 4).min(count),
                    ENTRY_PLUS_BYTES_MIN,
                )
            }
            None => (count, ENTRY_BYTES_MIN),
        };
        SiteOperation::ReadDirectory {
            directory,
            cookie: self.cookie,
            entries_max: count / entry + 1,
            name_bytes_max: names.max(SITE_ENTRY_BYTES + NAME_BYTES_MAX),
            with_attributes: self.directory_count_bytes.is_some(),
        }
    }

    /// The reply with as many of `entries` as fit; `end` tells whether the
    /// directory ends after them.
    pub(crate) fn reply(
        &self,
        view: &View<'_>,
        subject: &WeakCache,
        entries: &[DirectoryEntry],
        end: bool,
        verifier: [u8; 8],
    ) -> Reply {
        let directory = view.after(subject);
        let verifier = CookieVerifier(verifier);
        if self.cookie != 0 && self.verifier != verifier {
            let failure = Failure::new(Status::BadCookie, directory);
            return match self.directory_count_bytes {
                Some(_) => Reply::Readdirplus(Err(failure)),
                None => Reply::Readdir(Err(failure)),
            };
        }
        match self.directory_count_bytes {
            None => {
                let mut builder = ReaddirBuilder::new(directory, verifier, self.count_bytes);
                let fits = entries.iter().all(|entry| builder.push(&self.plain(entry)));
                Reply::Readdir(builder.finish(fits && end))
            }
            Some(directory_count_bytes) => {
                let count = self.count_bytes;
                let mut builder =
                    ReaddirplusBuilder::new(directory, verifier, directory_count_bytes, count)
                        .expecting(entries.len());
                let fits = entries
                    .iter()
                    .all(|entry| builder.push(&self.plus(view, entry)));
                Reply::Readdirplus(builder.finish(fits && end))
            }
        }
    }

    fn plain<'a>(&self, entry: &'a DirectoryEntry) -> Entry<'a> {
        Entry {
            fileid: self.number(entry),
            name: Name(&entry.name),
            cookie: entry.cookie,
        }
    }

    fn plus<'a>(&self, view: &View<'_>, entry: &'a DirectoryEntry) -> EntryPlus<'a> {
        // No handle leads out of an export; clients know these two anyway.
        let is_dots = matches!(&entry.name[..], b"." | b"..");
        let known = entry.attributes.as_ref().filter(|_| !is_dots);
        // The layout in a handle is a hint, and nothing is a clone yet.
        let handle = known.and_then(|a| view.handle(a, entry.file, LayoutClass::STRIPED));
        EntryPlus {
            fileid: self.number(entry),
            name: Name(&entry.name),
            cookie: entry.cookie,
            attributes: known.map(|attributes| view.attributes(attributes)),
            object: handle,
        }
    }

    /// What lies above an export is nobody's business.
    fn number(&self, entry: &DirectoryEntry) -> u64 {
        let root = self.root.filter(|_| entry.name[..] == *b"..");
        root.unwrap_or(entry.file).0
    }
}
