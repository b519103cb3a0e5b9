//! The MOUNT program: a path becomes the handle of a directory by look-ups,
//! name by name, with the rights of the super user, as mount daemons do.

use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use crossdock_names::{ExportId, FileId, FileRef, LayoutClass};
use crossdock_nfs3::mount::{self, Call, Mounted, Reply, Status};
use crossdock_peer::{
    Attributes, FileKind, Network, SiteAnswer, SiteError, SiteOperation, SiteReply,
};
use crossdock_rpc::FLAVOR_SYS;

use crate::convert::{self, View};
use crate::export::{Export, names};
use crate::mounts::{Mounts, fitting};

/// A MNT whose path is being walked.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) export: ExportId,
    /// The path as the client said it.
    pub(crate) path: Bytes,
    rest: Vec<Bytes>, // Names still to look up, the next one last.
}

/// What becomes of a call.
pub(crate) enum Start {
    Reply(Reply),
    Walk(Walk, SiteOperation),
}

/// What becomes of a walk after an answer.
pub(crate) enum Walked {
    Reply(Reply),
    On(SiteOperation),
}

/// Answers a call, or begins to; a list takes about `room_bytes` at most.
pub(crate) fn begin(
    exports: &[Export],
    mounts: &mut Mounts,
    client: SocketAddr,
    call: &Call<'_>,
    room_bytes: usize,
) -> Start {
    Start::Reply(match call {
        Call::Null => Reply::Null,
        Call::Mnt(path) => match Walk::begin(exports, client, path.0) {
            Ok((walk, operation)) => return Start::Walk(walk, operation),
            Err(status) => Reply::Mnt(Err(status)),
        },
        Call::Dump => Reply::Dump(mounts.list(room_bytes)),
        Call::Umnt(path) => {
            mounts.remove(client, path.0);
            Reply::Umnt
        }
        Call::Umntall => {
            mounts.remove_all(client);
            Reply::Umntall
        }
        Call::Export => {
            let exports = exports.iter().map(listed);
            Reply::Export(fitting(exports, room_bytes, |export| {
                let groups = export.groups.iter();
                export.path.len() + groups.map(|group| group.len() + 12).sum::<usize>()
            }))
        }
    })
}

/// An empty list of groups means everybody (RFC 1813 appendix I 5.5).
fn listed(export: &Export) -> mount::Export {
    let networks = &export.rules.networks;
    let groups = if networks.contains(&Network::EVERYBODY) {
        Vec::new()
    } else {
        let texts = networks.iter().map(|network| network.to_string());
        texts.map(Bytes::from).collect()
    };
    mount::Export {
        path: Bytes::copy_from_slice(&export.path),
        groups,
    }
}

impl Walk {
    fn begin(
        exports: &[Export],
        client: SocketAddr,
        path: &[u8],
    ) -> Result<(Self, SiteOperation), Status> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Status::NameTooLong);
        }
        // The export whose path is the longest beginning of this one.
        let matching = exports.iter().filter(|export| export.below(path).is_some());
        let export = matching.max_by_key(|export| names(&export.path).count());
        let export = export.ok_or(Status::NoEnt)?;
        if !export.rules.admits(client) {
            return Err(Status::Acces);
        }
        let mut rest = Vec::new();
        for name in export.below(path).into_iter().flatten() {
            if name.len() > NAME_BYTES_MAX {
                return Err(Status::NameTooLong);
            }
            if name == b".." || name.contains(&0) {
                return Err(Status::Inval);
            }
            rest.push(Bytes::copy_from_slice(name));
        }
        rest.reverse();
        let mut walk = Self {
            export: export.id,
            path: Bytes::copy_from_slice(path),
            rest,
        };
        let file = export.root;
        let operation = walk.look_up_in(file);
        let operation = operation.unwrap_or(SiteOperation::GetAttributes { file });
        Ok((walk, operation))
    }

    fn look_up_in(&mut self, directory: FileRef) -> Option<SiteOperation> {
        let name = self.rest.pop()?;
        Some(SiteOperation::Lookup { directory, name })
    }

    /// Goes on after an answer.
    pub(crate) fn next(&mut self, view: &View<'_>, reply: &SiteReply) -> Walked {
        let here = match &reply.outcome {
            Ok(SiteAnswer::Found {
                attributes,
                layout,
                placement,
            }) => (attributes, *placement, *layout),
            Ok(_) => match &reply.subject.after {
                Some(root) => (root, root.file.id, LayoutClass::STRIPED),
                None => return failed(Status::ServerFault),
            },
            Err(error) => return failed(status(*error)),
        };
        match self.look_up_in(here.0.file) {
            Some(operation) => Walked::On(operation),
            None => Walked::Reply(Reply::Mnt(mounted(view, here))),
        }
    }
}

fn failed(status: Status) -> Walked {
    Walked::Reply(Reply::Mnt(Err(status)))
}

fn mounted(
    view: &View<'_>,
    (attributes, placement, layout): (&Attributes, FileId, LayoutClass),
) -> Result<Mounted, Status> {
    if attributes.kind != FileKind::Directory {
        return Err(Status::NotDir);
    }
    let root = view.handle(attributes, placement, layout);
    Ok(Mounted {
        root: root.ok_or(Status::ServerFault)?,
        flavors: vec![FLAVOR_SYS],
    })
}

/// MOUNT has some of the numbers of NFS, with the same meaning.
fn status(error: SiteError) -> Status {
    let number = convert::status(error).number();
    match error {
        SiteError::Stale => Status::NoEnt, // The root of the export is gone.
        _ => Status::from_number(number).unwrap_or(Status::ServerFault),
    }
}
