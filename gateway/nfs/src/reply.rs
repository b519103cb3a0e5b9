//! From answers of sites to replies of NFS.

use crossdock_limits::{FILE_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX};
use crossdock_nfs3::reply::{self, Created, Linked, Renamed, properties};
use crossdock_nfs3::{Failure, Outcome, Procedure, Reply, Status, Timestamp, WriteVerifier};
use crossdock_peer::{Attributes, SiteAnswer, SiteReply, WeakCache};
use crossdock_router::RoutedReply;

use crate::convert::{View, status};
use crate::request::Expected;

/// Best size of a READDIR.
const READDIR_BYTES_PREFERRED: u32 = 64 << 10;
/// READs and WRITEs are best multiples of a block.
const IO_BYTES_MULTIPLE: u32 = 4096;

/// The reply to a call of which `expected` is known.
pub(crate) fn reply(view: &View<'_>, expected: &Expected, routed: RoutedReply) -> Reply {
    let RoutedReply {
        reply, verifier, ..
    } = routed;
    match reply.outcome {
        Err(error) => failure(view, expected, &reply, status(error)),
        // Bulk data moves on without touching its reference counts.
        Ok(SiteAnswer::Read {
            payload,
            end_of_file,
        }) if expected.procedure() == Procedure::Read => Reply::Read(Ok(reply::Read {
            attributes: view.after(&reply.subject),
            is_end: end_of_file,
            data: payload,
        })),
        Ok(ref answer) => success(view, expected, &reply, answer, WriteVerifier(verifier)),
    }
}

/// A failure, with the attributes that the procedure's failures carry.
fn failure(view: &View<'_>, expected: &Expected, reply: &SiteReply, status: Status) -> Reply {
    let subject = &reply.subject;
    let wcc = || Failure::new(status, view.wcc(subject));
    let after = || Failure::new(status, view.after(subject));
    match expected.procedure() {
        Procedure::Null => Reply::Null,
        Procedure::Getattr => Reply::Getattr(Err(status.into())),
        Procedure::Setattr => Reply::Setattr(Err(wcc())),
        Procedure::Lookup => Reply::Lookup(Err(after())),
        Procedure::Access => Reply::Access(Err(after())),
        Procedure::Readlink => Reply::Readlink(Err(after())),
        Procedure::Read => Reply::Read(Err(after())),
        Procedure::Write => Reply::Write(Err(wcc())),
        Procedure::Create => Reply::Create(Err(wcc())),
        Procedure::Mkdir => Reply::Mkdir(Err(wcc())),
        Procedure::Symlink => Reply::Symlink(Err(wcc())),
        Procedure::Mknod => Reply::Mknod(Err(wcc())),
        Procedure::Remove => Reply::Remove(Err(wcc())),
        Procedure::Rmdir => Reply::Rmdir(Err(wcc())),
        Procedure::Rename => {
            Reply::Rename(Err(Failure::new(status, renamed(view, expected, reply))))
        }
        Procedure::Link => Reply::Link(Err(Failure::new(status, linked(view, reply)))),
        Procedure::Readdir => Reply::Readdir(Err(after())),
        Procedure::Readdirplus => Reply::Readdirplus(Err(after())),
        Procedure::Fsstat => Reply::Fsstat(Err(after())),
        Procedure::Fsinfo => Reply::Fsinfo(Err(after())),
        Procedure::Pathconf => Reply::Pathconf(Err(after())),
        Procedure::Commit => Reply::Commit(Err(wcc())),
    }
}

/// A success. A site that answers something else than it was asked has a bug:
/// the client sees a server fault.
fn success(
    view: &View<'_>,
    expected: &Expected,
    reply: &SiteReply,
    answer: &SiteAnswer,
    verifier: WriteVerifier,
) -> Reply {
    let subject = &reply.subject;
    match (expected.procedure(), answer) {
        (Procedure::Getattr, _) => Reply::Getattr(match view.after(subject) {
            Some(attributes) => Ok(attributes),
            None => Err(Status::ServerFault.into()),
        }),
        (Procedure::Setattr, _) => Reply::Setattr(Ok(view.wcc(subject))),
        (Procedure::Remove, _) => Reply::Remove(Ok(view.wcc(subject))),
        (Procedure::Rmdir, _) => Reply::Rmdir(Ok(view.wcc(subject))),
        (Procedure::Rename, _) => Reply::Rename(Ok(renamed(view, expected, reply))),
        (Procedure::Link, _) => Reply::Link(Ok(linked(view, reply))),
        (Procedure::Commit, _) => Reply::Commit(Ok(reply::Commit {
            file: view.wcc(subject),
            verifier,
        })),
        (Procedure::Pathconf, _) => Reply::Pathconf(Ok(pathconf(view, subject))),
        (Procedure::Lookup, answer @ SiteAnswer::Found { .. }) => {
            Reply::Lookup(found(view, subject, answer))
        }
        (Procedure::Create, answer @ SiteAnswer::Found { .. }) => {
            Reply::Create(Ok(created(view, subject, answer)))
        }
        (Procedure::Mkdir, answer @ SiteAnswer::Found { .. }) => {
            Reply::Mkdir(Ok(created(view, subject, answer)))
        }
        (Procedure::Symlink, answer @ SiteAnswer::Found { .. }) => {
            Reply::Symlink(Ok(created(view, subject, answer)))
        }
        (Procedure::Mknod, answer @ SiteAnswer::Found { .. }) => {
            Reply::Mknod(Ok(created(view, subject, answer)))
        }
        (Procedure::Access, SiteAnswer::Access { granted }) => Reply::Access(Ok(reply::Access {
            attributes: view.after(subject),
            granted: *granted,
        })),
        (Procedure::Readlink, SiteAnswer::Link { target }) => {
            Reply::Readlink(Ok(reply::Readlink {
                attributes: view.after(subject),
                target: target.clone(),
            }))
        }
        (Procedure::Fsstat, SiteAnswer::Space(space)) => Reply::Fsstat(Ok(reply::Fsstat {
            attributes: view.after(subject),
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            available_bytes: space.available_bytes,
            total_files: space.total_files,
            free_files: space.free_files,
            available_files: space.available_files,
            invariant_seconds: 0,
        })),
        _ => by_expected(view, expected, reply, answer, verifier),
    }
}

/// Successes that depend on the call.
fn by_expected(
    view: &View<'_>,
    expected: &Expected,
    reply: &SiteReply,
    answer: &SiteAnswer,
    verifier: WriteVerifier,
) -> Reply {
    match (expected, answer) {
        (
            Expected::Write {
                count_bytes,
                stable,
            },
            SiteAnswer::Written { .. },
        ) => Reply::Write(Ok(reply::Write {
            file: view.wcc(&reply.subject),
            count_bytes: *count_bytes,
            committed: *stable,
            verifier,
        })),
        (
            Expected::Listing(listing),
            SiteAnswer::Directory {
                entries,
                end,
                verifier,
            },
        ) => listing.reply(view, &reply.subject, entries, *end, *verifier),
        (Expected::Fsinfo { io_bytes_max }, _) => {
            Reply::Fsinfo(Ok(fsinfo(view, &reply.subject, *io_bytes_max)))
        }
        _ => failure(view, expected, reply, Status::ServerFault),
    }
}

fn found(
    view: &View<'_>,
    subject: &WeakCache,
    answer: &SiteAnswer,
) -> Outcome<reply::Lookup, Option<crossdock_nfs3::Attributes>> {
    let directory = view.after(subject);
    match (handle(view, answer), attributes(answer)) {
        (Some(object), Some(attributes)) => Ok(reply::Lookup {
            object,
            attributes: Some(view.attributes(attributes)),
            directory,
        }),
        _ => Err(Failure::new(view.no_handle(), directory)),
    }
}

fn created(view: &View<'_>, subject: &WeakCache, answer: &SiteAnswer) -> Created {
    Created {
        object: handle(view, answer),
        attributes: attributes(answer).map(|attributes| view.attributes(attributes)),
        directory: view.wcc(subject),
    }
}

fn handle(view: &View<'_>, answer: &SiteAnswer) -> Option<crossdock_nfs3::HandleBuffer> {
    match answer {
        SiteAnswer::Found {
            attributes,
            layout,
            placement,
        } => view.handle(attributes, *placement, *layout),
        _ => None,
    }
}

const fn attributes(answer: &SiteAnswer) -> Option<&Attributes> {
    match answer {
        SiteAnswer::Found { attributes, .. } => Some(attributes),
        _ => None,
    }
}

fn renamed(view: &View<'_>, expected: &Expected, reply: &SiteReply) -> Renamed {
    let source = view.wcc(&reply.subject);
    let is_same = matches!(expected, Expected::Rename { is_same: true });
    let target = if is_same && reply.second == WeakCache::default() {
        source
    } else {
        view.wcc(&reply.second)
    };
    Renamed { source, target }
}

fn linked(view: &View<'_>, reply: &SiteReply) -> Linked {
    Linked {
        attributes: view.after(&reply.second),
        directory: view.wcc(&reply.subject),
    }
}

fn fsinfo(view: &View<'_>, subject: &WeakCache, io_bytes_max: u32) -> reply::Fsinfo {
    reply::Fsinfo {
        attributes: view.after(subject),
        read_bytes_max: io_bytes_max,
        read_bytes_preferred: io_bytes_max,
        read_bytes_multiple: IO_BYTES_MULTIPLE,
        write_bytes_max: io_bytes_max,
        write_bytes_preferred: io_bytes_max,
        write_bytes_multiple: IO_BYTES_MULTIPLE,
        readdir_bytes_preferred: READDIR_BYTES_PREFERRED.min(io_bytes_max),
        file_bytes_max: FILE_BYTES_MAX,
        time_delta: Timestamp {
            seconds: 0,
            nanoseconds: 1,
        },
        properties: properties::LINK
            | properties::SYMLINK
            | properties::HOMOGENEOUS
            | properties::CAN_SET_TIME,
    }
}

fn pathconf(view: &View<'_>, subject: &WeakCache) -> reply::Pathconf {
    #[expect(clippy::cast_possible_truncation, reason = "it is 255")]
    const NAME_MAX: u32 = NAME_BYTES_MAX as u32;
    reply::Pathconf {
        attributes: view.after(subject),
        links_max: LINKS_MAX,
        name_bytes_max: NAME_MAX,
        long_names_refused: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    }
}
