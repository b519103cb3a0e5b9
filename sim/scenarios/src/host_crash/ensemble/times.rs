//! Times that clients have been shown: the ctime of a directory never goes back, whoever
//! serves it and however wrong the clocks of its managers are. Files are left out: what a
//! crash takes of unstable writes, it takes with their times.

use std::collections::BTreeMap;

use crossdock_nfs3::{Attributes, FileType, Reply, Timestamp};
use crossdock_types::Time;

/// By number of the directory: when a newer ctime than all before came to a client.
#[derive(Default)]
pub(super) struct Times {
    shown: BTreeMap<u64, BTreeMap<Time, Timestamp>>,
    /// Attributes that were compared with earlier ones.
    pub(super) compared: u64,
}

impl Times {
    /// Takes what a reply shows that came `now` to what was sent at `sent_at`: all that
    /// had been shown by then was so already.
    pub(super) fn take(&mut self, reply: &Reply, sent_at: Time, now: Time) -> Result<(), String> {
        for found in shown_by(reply).into_iter().flatten() {
            let shown = self.shown.entry(found.fileid).or_default();
            if let Some((_, &before)) = shown.range(..sent_at).next_back() {
                self.compared += 1;
                if found.changed < before {
                    let (fileid, changed) = (found.fileid, found.changed);
                    return Err(format!(
                        "ctime of directory {fileid:x} went back from {before:?} to {changed:?}"
                    ));
                }
            }
            let newest = shown.last_key_value().map(|(_, &newest)| newest);
            if newest.is_none_or(|newest| newest < found.changed) {
                shown.insert(now, found.changed);
            }
        }
        Ok(())
    }
}

/// Directories whose attributes a reply has.
fn shown_by(reply: &Reply) -> [Option<&Attributes>; 2] {
    let all = match reply {
        Reply::Create(Ok(made))
        | Reply::Mkdir(Ok(made))
        | Reply::Symlink(Ok(made))
        | Reply::Mknod(Ok(made)) => [made.directory.after.as_ref(), made.attributes.as_ref()],
        Reply::Remove(Ok(data)) | Reply::Rmdir(Ok(data)) => [data.after.as_ref(), None],
        Reply::Rename(Ok(data)) => [data.source.after.as_ref(), data.target.after.as_ref()],
        Reply::Link(Ok(data)) => [data.directory.after.as_ref(), None],
        Reply::Lookup(Ok(found)) => [found.directory.as_ref(), found.attributes.as_ref()],
        Reply::Getattr(Ok(found)) => [Some(found), None],
        _ => [None, None],
    };
    all.map(|found| found.filter(|found| found.file_type == FileType::Directory))
}
