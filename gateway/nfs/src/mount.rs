//! The MOUNT program: a path becomes the handle of a directory by look-ups,
//! name by name, with the rights of the super user, as mount daemons do.

use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use crossdock_names::{ExportId, FileId, FileRef, LayoutClass};
use crossdock_nfs3::mount::{self, Call, Mounted, Reply, Status};
use crossdock_peer::{Attributes, FileKind, SiteAnswer, SiteError, SiteOperation, SiteReply};
use crossdock_rpc::FLAVOR_SYS;

use crate::convert::{self, View};
use crate::export::{Export, names};

/// A MNT whose path is being walked.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) export: ExportId,
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

/// Answers a call, or begins to.
pub(crate) fn begin(exports: &[Export], client: SocketAddr, call: &Call<'_>) -> Start {
    Start::Reply(match call {
        Call::Null => Reply::Null,
        Call::Mnt(path) => match Walk::begin(exports, client, path.0) {
            Ok((walk, operation)) => return Start::Walk(walk, operation),
            Err(status) => Reply::Mnt(Err(status)),
        },
        // Who has mounted is not kept: it would be state that a client misses.
        Call::Dump => Reply::Dump(Vec::new()),
        Call::Umnt(_) => Reply::Umnt,
        Call::Umntall => Reply::Umntall,
        Call::Export => Reply::Export(exports.iter().map(listed).collect()),
    })
}

fn listed(export: &Export) -> mount::Export {
    let networks = export.networks.iter();
    mount::Export {
        path: Bytes::copy_from_slice(&export.path),
        groups: networks.map(|n| Bytes::from(n.to_string())).collect(),
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
        if !export.admits(client) {
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
