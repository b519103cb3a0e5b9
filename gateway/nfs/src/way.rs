//! Which way the bytes of a READ go, as the policy has it.
//!
//! Rules are of files and directories; a handle says which file it is, but not where that
//! lies. The door learns it from what clients look up and create on their way there. A gateway
//! that has not seen that – it has begun anew, and clients go on with the handles that they
//! have – goes by the rules of the file itself and of what its export is and lies in.

use std::collections::{BTreeMap, VecDeque};

use crossdock_names::{ExportId, FileRef};
use crossdock_peer::{
    BulkDoor, BulkReply, BulkRequest, Choice, FileKind, RelayedBytes, SiteAnswer, SiteOperation,
    SiteReply,
};
use crossdock_types::Time;

use crate::door::{NfsDoor, Origin};

/// Files and directories of which is known where they lie.
const KNOWN_MAX: usize = 65_536;
/// Directories above a file that are looked at.
const DEPTH_MAX: usize = 64;

/// Where files lie, as clients have found them.
#[derive(Debug, Default)]
pub(crate) struct Places {
    parents: BTreeMap<FileRef, FileRef>,
    /// The oldest first.
    order: VecDeque<FileRef>,
}

impl Places {
    /// Clients have found `file` in `directory`.
    fn learn(&mut self, file: FileRef, directory: FileRef) {
        if self.parents.insert(file, directory).is_some() {
            return;
        }
        self.order.push_back(file);
        if self.order.len() > KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.parents.remove(&oldest);
        }
    }

    /// `file`, and the directories that it is known to lie in, from the inside out.
    fn above(&self, file: FileRef) -> impl Iterator<Item = FileRef> {
        let up = |here: &FileRef| self.parents.get(here).copied();
        std::iter::successors(Some(file), up).take(DEPTH_MAX)
    }
}

/// The directory in which a request looks for a name, or makes one.
pub(crate) const fn directory_of(operation: &SiteOperation) -> Option<FileRef> {
    match operation {
        SiteOperation::Lookup { directory, .. }
        | SiteOperation::Create { directory, .. }
        | SiteOperation::MakeDirectory { directory, .. } => Some(*directory),
        _ => None,
    }
}

impl NfsDoor {
    /// A name has been found, or made, in a directory.
    pub(crate) fn note_place(&mut self, directory: FileRef, reply: &SiteReply) {
        if let Ok(SiteAnswer::Found { attributes, .. }) = &reply.outcome
            && matches!(attributes.kind, FileKind::Regular | FileKind::Directory)
        {
            self.places.learn(attributes.file, directory);
        }
    }

    /// What nodes could have sent to clients, and were not asked to.
    #[must_use]
    pub const fn relayed_bytes(&self) -> RelayedBytes {
        self.figures.relayed
    }

    /// Counts the bytes of a READ, and those that nodes were not asked to send by why.
    pub(crate) fn note_bytes(
        &mut self,
        now: Time,
        relayed: Option<(Choice, bool)>,
        reply: &SiteReply,
    ) {
        let Ok(SiteAnswer::Read { payload, .. }) = &reply.outcome else {
            return;
        };
        let bytes = payload.len() as u64;
        if let Some(after) = &reply.subject.after {
            self.heat.note(now, after.file, bytes, after.size_bytes);
        }
        if let Some((choice, is_hot)) = relayed {
            self.figures.relayed.note(choice, is_hot, bytes);
        }
    }

    /// Which way the bytes of a READ go, and whether a rule says so.
    pub(crate) fn way(
        &self,
        origin: &Origin,
        export: ExportId,
        (file, length_bytes, is_hot): (FileRef, u64, bool),
    ) -> Choice {
        let reply = BulkReply {
            door: BulkDoor::Nfs,
            request: BulkRequest::Read,
            length_bytes,
            client: origin.client().ip(),
            is_hot,
            is_datagram: matches!(origin, Origin::Datagram(..)),
        };
        let mut exports = self.config.exports.iter();
        let export = exports.find(|known| known.id == export);
        let outside = export.into_iter().flat_map(|export| {
            let root = std::iter::once(export.root);
            root.chain(export.above.iter().copied())
        });
        self.transfer
            .choose(self.places.above(file).chain(outside), &reply)
    }
}
