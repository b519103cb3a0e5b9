//! Valid values of every message, for seeds and for round trips; those of
//! locking are in `locking.rs`.

use bytes::Bytes;
use crossdock_limits::{AUTH_SYS_GROUPS_MAX, NAME_DECODE_BYTES_MAX, PATH_DECODE_BYTES_MAX};
use crossdock_nfs3::call::{self, CreateHow, Special, StableHow};
use crossdock_nfs3::reply::{self, Outcome};
use crossdock_nfs3::{
    Attributes, Call, CookieVerifier, CreateVerifier, DeviceNumber, Entry, EntryPlus, Failure,
    FileType, HANDLE_BYTES_MAX, Handle, HandleBuffer, Location, Name, Path, Procedure,
    ReaddirBuilder, ReaddirplusBuilder, Reply, SetAttributes, SetTime, Status, Timestamp,
    WccAttributes, WccData, WriteVerifier, mount,
};
use crossdock_rpc::{
    AcceptStatus, AuthStatus, AuthSys, CallHeader, Credential, Groups, Rejection, ReplyBody,
    ReplyHeader, Verifier,
};
use crossdock_types::Payload;

use crate::Dice;

pub use crate::locking::{
    bind_arguments, bind_results, lock_arguments, lock_results, map_arguments, map_results,
    status_arguments, status_results,
};

const AUTH_BODY_BYTES_MAX: usize = 400;
const DATA_BYTES_MAX: usize = 9000;

/// The header of an RPC call.
#[must_use]
pub fn call_header(dice: &mut Dice) -> CallHeader<'static> {
    CallHeader {
        xid: dice.u32(),
        program: dice.one_of(&[crossdock_nfs3::PROGRAM, mount::PROGRAM, 0]),
        version: dice.u32(),
        procedure: dice.u32(),
        credential: match dice.below(4) {
            0 => Credential::None,
            1 => Credential::Other {
                flavor: dice.one_of(&[2, 6, u32::MAX]),
                body: dice.bytes(AUTH_BODY_BYTES_MAX),
            },
            _ => Credential::Sys(auth_sys(dice)),
        },
        verifier: verifier(dice),
    }
}

fn auth_sys(dice: &mut Dice) -> AuthSys<'static> {
    let mut ids = [0; AUTH_SYS_GROUPS_MAX];
    ids.fill_with(|| dice.u32());
    let count = dice.below(AUTH_SYS_GROUPS_MAX + 1);
    AuthSys {
        stamp: dice.u32(),
        machine_name: dice.bytes(255),
        uid: dice.u32(),
        gid: dice.u32(),
        groups: Groups::new(&ids[..count]).unwrap_or_default(),
    }
}

fn verifier(dice: &mut Dice) -> Verifier<'static> {
    match dice.below(4) {
        0 => Verifier {
            flavor: dice.u32(),
            body: dice.bytes(AUTH_BODY_BYTES_MAX),
        },
        _ => Verifier::NONE,
    }
}

/// The header of an RPC reply.
#[must_use]
pub fn reply_header(dice: &mut Dice) -> ReplyHeader<'static> {
    let (low, high) = (dice.u32(), dice.u32());
    let body = match dice.below(4) {
        0 => ReplyBody::Denied(Rejection::RpcMismatch { low, high }),
        1 => ReplyBody::Denied(Rejection::Auth(dice.one_of(AuthStatus::ALL))),
        _ => ReplyBody::Accepted {
            verifier: verifier(dice),
            status: dice.one_of(&[
                AcceptStatus::Success,
                AcceptStatus::ProgramUnavailable,
                AcceptStatus::ProgramMismatch { low, high },
                AcceptStatus::ProcedureUnavailable,
                AcceptStatus::GarbageArguments,
                AcceptStatus::SystemError,
            ]),
        },
    };
    ReplyHeader {
        xid: dice.u32(),
        body,
    }
}

/// A call of an NFS procedure.
#[must_use]
pub fn call(procedure: Procedure, dice: &mut Dice) -> Call<'static> {
    match procedure {
        Procedure::Null => Call::Null,
        Procedure::Getattr => Call::Getattr(call::Getattr {
            object: handle(dice),
        }),
        Procedure::Setattr => Call::Setattr(call::Setattr {
            object: handle(dice),
            attributes: set_attributes(dice),
            guard: dice.maybe(timestamp),
        }),
        Procedure::Lookup => Call::Lookup(location(dice)),
        Procedure::Access => Call::Access(call::Access {
            object: handle(dice),
            wanted: dice.u32(),
        }),
        Procedure::Readlink => Call::Readlink(call::Readlink {
            symlink: handle(dice),
        }),
        Procedure::Read => Call::Read(call::Read {
            file: handle(dice),
            offset: dice.u64(),
            count_bytes: dice.u32(),
        }),
        Procedure::Write => Call::Write(call::Write {
            file: handle(dice),
            offset: dice.u64(),
            count_bytes: dice.u32(),
            stable: dice.one_of(StableHow::ALL),
            data: data(dice),
        }),
        Procedure::Create => Call::Create(call::Create {
            location: location(dice),
            how: match dice.below(3) {
                0 => CreateHow::Unchecked(set_attributes(dice)),
                1 => CreateHow::Guarded(set_attributes(dice)),
                _ => CreateHow::Exclusive(CreateVerifier(dice.eight())),
            },
        }),
        Procedure::Mkdir => Call::Mkdir(call::Mkdir {
            location: location(dice),
            attributes: set_attributes(dice),
        }),
        Procedure::Symlink => Call::Symlink(call::Symlink {
            location: location(dice),
            attributes: set_attributes(dice),
            target: Path(dice.bytes(PATH_DECODE_BYTES_MAX)),
        }),
        Procedure::Mknod => Call::Mknod(call::Mknod {
            location: location(dice),
            what: special(dice),
        }),
        Procedure::Remove => Call::Remove(location(dice)),
        Procedure::Rmdir => Call::Rmdir(location(dice)),
        Procedure::Rename => Call::Rename(call::Rename {
            source: location(dice),
            target: location(dice),
        }),
        Procedure::Link => Call::Link(call::Link {
            object: handle(dice),
            location: location(dice),
        }),
        Procedure::Readdir => Call::Readdir(call::Readdir {
            directory: handle(dice),
            cookie: dice.u64(),
            verifier: CookieVerifier(dice.eight()),
            count_bytes: dice.u32(),
        }),
        Procedure::Readdirplus => Call::Readdirplus(call::Readdirplus {
            directory: handle(dice),
            cookie: dice.u64(),
            verifier: CookieVerifier(dice.eight()),
            directory_count_bytes: dice.u32(),
            count_bytes: dice.u32(),
        }),
        Procedure::Fsstat => Call::Fsstat(call::Fsstat { root: handle(dice) }),
        Procedure::Fsinfo => Call::Fsinfo(call::Fsinfo { root: handle(dice) }),
        Procedure::Pathconf => Call::Pathconf(call::Pathconf {
            object: handle(dice),
        }),
        Procedure::Commit => Call::Commit(call::Commit {
            file: handle(dice),
            offset: dice.u64(),
            count_bytes: dice.u32(),
        }),
    }
}

fn handle(dice: &mut Dice) -> Handle<'static> {
    let length = dice.below(HANDLE_BYTES_MAX + 1);
    let bytes = dice.bytes(HANDLE_BYTES_MAX);
    Handle::new(&bytes[..length.min(bytes.len())]).expect("it was made short enough")
}

fn handle_buffer(dice: &mut Dice) -> HandleBuffer {
    handle(dice).into()
}

fn location(dice: &mut Dice) -> Location<'static> {
    Location {
        directory: handle(dice),
        name: Name(dice.bytes(NAME_DECODE_BYTES_MAX)),
    }
}

fn timestamp(dice: &mut Dice) -> Timestamp {
    Timestamp {
        seconds: dice.u32(),
        nanoseconds: dice.u32(),
    }
}

fn set_time(dice: &mut Dice) -> SetTime {
    match dice.below(3) {
        0 => SetTime::Keep,
        1 => SetTime::ServerTime,
        _ => SetTime::ClientTime(timestamp(dice)),
    }
}

fn set_attributes(dice: &mut Dice) -> SetAttributes {
    SetAttributes {
        mode: dice.maybe(Dice::u32),
        uid: dice.maybe(Dice::u32),
        gid: dice.maybe(Dice::u32),
        size_bytes: dice.maybe(Dice::u64),
        accessed: set_time(dice),
        modified: set_time(dice),
    }
}

fn special(dice: &mut Dice) -> Special {
    let attributes = set_attributes(dice);
    let device = device(dice);
    match dice.below(5) {
        0 => Special::CharacterDevice { attributes, device },
        1 => Special::BlockDevice { attributes, device },
        2 => Special::Socket(attributes),
        3 => Special::Fifo(attributes),
        _ => Special::Other(dice.one_of(&[
            FileType::Regular,
            FileType::Directory,
            FileType::Symlink,
        ])),
    }
}

fn device(dice: &mut Dice) -> DeviceNumber {
    DeviceNumber {
        major: dice.u32(),
        minor: dice.u32(),
    }
}

/// Data in up to three pieces.
fn data(dice: &mut Dice) -> Payload {
    let mut data = Payload::new();
    for _ in 0..dice.below(4) {
        data.push(Bytes::from_static(dice.bytes(DATA_BYTES_MAX)));
    }
    data
}

/// The reply of an NFS procedure: success in three of four.
#[must_use]
pub fn reply(procedure: Procedure, dice: &mut Dice) -> Reply {
    match procedure {
        Procedure::Null => Reply::Null,
        Procedure::Getattr => Reply::Getattr(outcome(dice, attributes, |_| ())),
        Procedure::Setattr => Reply::Setattr(outcome(dice, wcc, wcc)),
        Procedure::Lookup => Reply::Lookup(outcome(dice, lookup, post_op)),
        Procedure::Access => Reply::Access(outcome(dice, granted, post_op)),
        Procedure::Readlink => Reply::Readlink(outcome(dice, readlink, post_op)),
        Procedure::Read => Reply::Read(outcome(dice, read, post_op)),
        Procedure::Write => Reply::Write(outcome(dice, write, wcc)),
        Procedure::Create => Reply::Create(outcome(dice, created, wcc)),
        Procedure::Mkdir => Reply::Mkdir(outcome(dice, created, wcc)),
        Procedure::Symlink => Reply::Symlink(outcome(dice, created, wcc)),
        Procedure::Mknod => Reply::Mknod(outcome(dice, created, wcc)),
        Procedure::Remove => Reply::Remove(outcome(dice, wcc, wcc)),
        Procedure::Rmdir => Reply::Rmdir(outcome(dice, wcc, wcc)),
        Procedure::Rename => Reply::Rename(outcome(dice, renamed, renamed)),
        Procedure::Link => Reply::Link(outcome(dice, linked, linked)),
        Procedure::Readdir => Reply::Readdir(readdir(dice)),
        Procedure::Readdirplus => Reply::Readdirplus(readdirplus(dice)),
        Procedure::Fsstat => Reply::Fsstat(outcome(dice, fsstat, post_op)),
        Procedure::Fsinfo => Reply::Fsinfo(outcome(dice, fsinfo, post_op)),
        Procedure::Pathconf => Reply::Pathconf(outcome(dice, pathconf, post_op)),
        Procedure::Commit => Reply::Commit(outcome(dice, commit, wcc)),
    }
}

fn outcome<T, A>(
    dice: &mut Dice,
    done: impl FnOnce(&mut Dice) -> T,
    failed: impl FnOnce(&mut Dice) -> A,
) -> Outcome<T, A> {
    if dice.below(4) > 0 {
        return Ok(done(dice));
    }
    Err(Failure::new(dice.one_of(Status::ALL), failed(dice)))
}

fn attributes(dice: &mut Dice) -> Attributes {
    Attributes {
        file_type: dice.one_of(FileType::ALL),
        mode: dice.u32(),
        links: dice.u32(),
        uid: dice.u32(),
        gid: dice.u32(),
        size_bytes: dice.u64(),
        used_bytes: dice.u64(),
        device: device(dice),
        fsid: dice.u64(),
        fileid: dice.u64(),
        accessed: timestamp(dice),
        modified: timestamp(dice),
        changed: timestamp(dice),
    }
}

fn post_op(dice: &mut Dice) -> Option<Attributes> {
    dice.maybe(attributes)
}

fn wcc(dice: &mut Dice) -> WccData {
    WccData {
        before: dice.maybe(|dice| WccAttributes {
            size_bytes: dice.u64(),
            modified: timestamp(dice),
            changed: timestamp(dice),
        }),
        after: post_op(dice),
    }
}

fn lookup(dice: &mut Dice) -> reply::Lookup {
    reply::Lookup {
        object: handle_buffer(dice),
        attributes: post_op(dice),
        directory: post_op(dice),
    }
}

fn granted(dice: &mut Dice) -> reply::Access {
    reply::Access {
        attributes: post_op(dice),
        granted: dice.u32(),
    }
}

fn readlink(dice: &mut Dice) -> reply::Readlink {
    reply::Readlink {
        attributes: post_op(dice),
        target: Bytes::from_static(dice.bytes(PATH_DECODE_BYTES_MAX)),
    }
}

fn read(dice: &mut Dice) -> reply::Read {
    reply::Read {
        attributes: post_op(dice),
        is_end: dice.flag(),
        data: data(dice),
    }
}

fn write(dice: &mut Dice) -> reply::Write {
    reply::Write {
        file: wcc(dice),
        count_bytes: dice.u32(),
        committed: dice.one_of(StableHow::ALL),
        verifier: WriteVerifier(dice.eight()),
    }
}

fn created(dice: &mut Dice) -> reply::Created {
    reply::Created {
        object: dice.maybe(handle_buffer),
        attributes: post_op(dice),
        directory: wcc(dice),
    }
}

fn renamed(dice: &mut Dice) -> reply::Renamed {
    reply::Renamed {
        source: wcc(dice),
        target: wcc(dice),
    }
}

fn linked(dice: &mut Dice) -> reply::Linked {
    reply::Linked {
        attributes: post_op(dice),
        directory: wcc(dice),
    }
}

/// An entry of a directory.
#[must_use]
pub fn entry(dice: &mut Dice) -> Entry<'static> {
    Entry {
        fileid: dice.u64(),
        name: Name(dice.bytes(255)),
        cookie: dice.u64(),
    }
}

/// An entry of a directory with all that READDIRPLUS tells about it.
#[must_use]
pub fn entry_plus(dice: &mut Dice) -> EntryPlus<'static> {
    let Entry {
        fileid,
        name,
        cookie,
    } = entry(dice);
    EntryPlus {
        fileid,
        name,
        cookie,
        attributes: post_op(dice),
        object: dice.maybe(handle_buffer),
    }
}

fn readdir(dice: &mut Dice) -> Outcome<reply::Readdir, Option<Attributes>> {
    let verifier = CookieVerifier(dice.eight());
    let mut list = ReaddirBuilder::new(post_op(dice), verifier, 1024);
    for _ in 0..dice.below(8) {
        list.push(&entry(dice));
    }
    list.finish(dice.flag())
}

fn readdirplus(dice: &mut Dice) -> Outcome<reply::Readdirplus, Option<Attributes>> {
    let verifier = CookieVerifier(dice.eight());
    let mut list = ReaddirplusBuilder::new(post_op(dice), verifier, 512, 2048);
    for _ in 0..dice.below(8) {
        list.push(&entry_plus(dice));
    }
    list.finish(dice.flag())
}

fn fsstat(dice: &mut Dice) -> reply::Fsstat {
    reply::Fsstat {
        attributes: post_op(dice),
        total_bytes: dice.u64(),
        free_bytes: dice.u64(),
        available_bytes: dice.u64(),
        total_files: dice.u64(),
        free_files: dice.u64(),
        available_files: dice.u64(),
        invariant_seconds: dice.u32(),
    }
}

fn fsinfo(dice: &mut Dice) -> reply::Fsinfo {
    reply::Fsinfo {
        attributes: post_op(dice),
        read_bytes_max: dice.u32(),
        read_bytes_preferred: dice.u32(),
        read_bytes_multiple: dice.u32(),
        write_bytes_max: dice.u32(),
        write_bytes_preferred: dice.u32(),
        write_bytes_multiple: dice.u32(),
        readdir_bytes_preferred: dice.u32(),
        file_bytes_max: dice.u64(),
        time_delta: timestamp(dice),
        properties: dice.u32(),
    }
}

fn pathconf(dice: &mut Dice) -> reply::Pathconf {
    reply::Pathconf {
        attributes: post_op(dice),
        links_max: dice.u32(),
        name_bytes_max: dice.u32(),
        long_names_refused: dice.flag(),
        chown_restricted: dice.flag(),
        case_insensitive: dice.flag(),
        case_preserving: dice.flag(),
    }
}

fn commit(dice: &mut Dice) -> reply::Commit {
    reply::Commit {
        file: wcc(dice),
        verifier: WriteVerifier(dice.eight()),
    }
}

/// A call of a MOUNT procedure.
#[must_use]
pub fn mount_call(procedure: mount::Procedure, dice: &mut Dice) -> mount::Call<'static> {
    match procedure {
        mount::Procedure::Null => mount::Call::Null,
        mount::Procedure::Mnt => mount::Call::Mnt(Path(dice.bytes(PATH_DECODE_BYTES_MAX))),
        mount::Procedure::Dump => mount::Call::Dump,
        mount::Procedure::Umnt => mount::Call::Umnt(Path(dice.bytes(PATH_DECODE_BYTES_MAX))),
        mount::Procedure::Umntall => mount::Call::Umntall,
        mount::Procedure::Export => mount::Call::Export,
    }
}

/// The reply of a MOUNT procedure.
#[must_use]
pub fn mount_reply(procedure: mount::Procedure, dice: &mut Dice) -> mount::Reply {
    match procedure {
        mount::Procedure::Null => mount::Reply::Null,
        mount::Procedure::Mnt => mount::Reply::Mnt(match dice.below(4) {
            0 => Err(dice.one_of(mount::Status::ALL)),
            _ => Ok(mount::Mounted {
                root: handle_buffer(dice),
                flavors: several(dice, Dice::u32),
            }),
        }),
        mount::Procedure::Dump => mount::Reply::Dump(several(dice, |dice| mount::Mount {
            host: host(dice),
            path: path(dice),
        })),
        mount::Procedure::Umnt => mount::Reply::Umnt,
        mount::Procedure::Umntall => mount::Reply::Umntall,
        mount::Procedure::Export => mount::Reply::Export(several(dice, |dice| mount::Export {
            path: path(dice),
            groups: several(dice, host),
        })),
    }
}

fn several<T>(dice: &mut Dice, mut item: impl FnMut(&mut Dice) -> T) -> Vec<T> {
    (0..dice.below(4)).map(|_| item(dice)).collect()
}

fn host(dice: &mut Dice) -> Bytes {
    Bytes::from_static(dice.bytes(mount::HOST_BYTES_MAX))
}

fn path(dice: &mut Dice) -> Bytes {
    Bytes::from_static(dice.bytes(1024))
}
