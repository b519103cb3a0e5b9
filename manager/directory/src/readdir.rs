//! Listing a directory in cookie order.

use bytes::Bytes;
use crossdock_names::FileRef;
use crossdock_peer::{Caller, DirectoryEntry, SiteError};

use crate::names::{cookie as cookie_of, counter_before, is_given};
use crate::permission::Wanted;
use crate::plan::{Answer, Plan};
use crate::state::Directory;

/// Cookies after `.` and after `..`.
const AFTER_SELF: u64 = 1;
const AFTER_PARENT: u64 = 2;

/// What an entry counts beside its name.
const ENTRY_BYTES: usize = 24;

impl Directory {
    pub(crate) fn read_directory(
        &self,
        caller: &Caller,
        directory: FileRef,
        cookie: u64,
        (entries_max, name_bytes_max): (usize, usize),
        with_attributes: bool,
    ) -> Result<Plan, SiteError> {
        let cell = self.directory_cell(directory)?;
        cell.check(caller, Wanted::Read)?;
        let listing = self.listing(cell.serial).ok_or(SiteError::Io)?;
        if cookie > AFTER_PARENT && !is_given(cookie, listing.next_cookie) {
            return Err(SiteError::BadCookie);
        }
        let parent = self.parent_of(cell.serial).ok_or(SiteError::Io)?;
        let dots = [
            (AFTER_SELF, directory, &b"."[..]),
            (AFTER_PARENT, parent, &b".."[..]),
        ];
        let after = counter_before(self.site, cookie.max(AFTER_PARENT));
        let named = listing.entries.after(after).map(|(counter, index)| {
            let entry = self.entries.get(index);
            let cookie = cookie_of(self.site, counter);
            (cookie, entry.child(), entry.name.as_bytes())
        });
        let all = dots
            .into_iter()
            .filter(|(own, ..)| *own > cookie)
            .chain(named);

        let (mut entries, mut name_bytes, mut end) = (Vec::new(), 0, true);
        for (cookie, file, name) in all {
            name_bytes += name.len() + ENTRY_BYTES;
            if entries.len() >= entries_max || name_bytes > name_bytes_max {
                end = false;
                break;
            }
            let attributes = with_attributes
                .then(|| self.cell(file).ok())
                .flatten()
                .map(|cell| cell.attributes(self.site));
            entries.push(DirectoryEntry {
                file: file.id,
                name: Bytes::copy_from_slice(name),
                cookie,
                attributes,
            });
        }
        Ok(Plan::answer(Answer::Directory { entries, end }))
    }
}
