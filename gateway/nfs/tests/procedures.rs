//! Every procedure of NFS and MOUNT: what the router is asked, and what the
//! client gets for its answer.

mod support;

use bytes::Bytes;
use crossdock_names::{ExportId, FileRef, HandleKey, HandleKeys, VolumeId};
use crossdock_nfs::{Export, NfsEffect, NfsInput};
use crossdock_nfs3::call::{
    self, Access, Commit, Create, CreateHow, Fsinfo, Fsstat, Getattr, Link, Mkdir, Mknod, Pathconf,
    Readlink, Rename, Setattr, Special, StableHow, Symlink, Write, access,
};
use crossdock_nfs3::reply::{self, Created, Failure, Linked, Renamed};
use crossdock_nfs3::{
    Call, CreateVerifier, DeviceNumber, FileType, HandleBuffer, Path, Reply, SetAttributes,
    SetTime, Status, Timestamp, WriteVerifier,
};
use crossdock_peer::{
    AttributeChanges, CallId, Caller, CreateMode, Device, ExportRules, FileKind, Flow, SiteAnswer,
    SiteError, SiteOperation, SpaceUsage, Squash, Stability, TimeChange, Transport, WeakCache,
};
use crossdock_rpc::Credential;
use crossdock_types::{Extent, Part, Payload, Released, WallTime};
use support::*;

/// Goal: the caller is who the credential says.
#[test]
fn callers_come_from_credentials() {
    let mut bench = bench();
    let root = handle(ROOT);
    let object = root.as_handle();
    let call = Call::Getattr(Getattr { object });
    let done = || Ok(SiteAnswer::Done);
    let (request, reply) = bench.round(&call, done(), root_cache());
    let caller = |uid, gid, groups: &[u32]| Caller {
        uid,
        gid,
        groups: groups.into(),
    };
    assert_eq!(request.caller, caller(1000, 100, &[5]));
    assert_asked(
        &request.operation,
        &SiteOperation::GetAttributes { file: ROOT },
    );
    assert_eq!(reply, Reply::Getattr(Ok(shown_root())));

    let mut nobody = header(2, 100_003, 3, 1);
    nobody.credential = Credential::None;
    bench.receive(record(&nobody, &call));
    assert_eq!(bench.asked_one().request.caller, caller(65534, 65534, &[]));
}

/// Goal: squash and networks are those of the export in the handle, not of the
/// one that was mounted; read-only exports refuse changes and never grant them.
#[test]
fn exports_are_checked_with_every_call() {
    let mut config = config();
    let (uid, gid) = (65534, 65533);
    let export = |id, change: &dyn Fn(&mut ExportRules)| {
        let mut export = Export::local(ExportId(id), b"/x", ROOT);
        change(&mut export.rules);
        export
    };
    config.exports = vec![
        export(1, &|rules| {
            rules.squash = Squash::All { uid, gid };
            rules.read_only = true;
        }),
        export(2, &|rules| {
            rules.networks = vec!["10.0.0.0/8".parse().expect("a network")];
        }),
        export(3, &|rules| rules.privileged_ports_only = true),
    ];
    let mut bench = Bench::from(config, "127.0.0.1:2000");
    let in_export = |id| handle_of(&keys(), VOLUME, ExportId(id), ROOT);

    let first = in_export(1);
    let asked = Call::Access(Access {
        object: first.as_handle(),
        wanted: access::READ | access::MODIFY | access::EXTEND | access::DELETE,
    });
    let granted = SiteAnswer::Access { granted: 1 };
    let (request, _) = bench.round(&asked, Ok(granted), root_cache());
    assert_eq!((request.caller.uid, request.caller.gid), (uid, gid));
    let (file, wanted) = (ROOT, access::READ);
    assert_asked(&request.operation, &SiteOperation::Access { file, wanted });
    let remove = Call::Remove(in_root(&first, b"a"));
    assert_eq!(bench.at_once(&remove).status(), Some(Status::Rofs));

    let foreign_keys = HandleKeys::new(vec![HandleKey {
        id: 1,
        key: [6; 32],
    }]);
    let cases = [
        (in_export(2), Status::Acces),
        (in_export(3), Status::Acces),
        (in_export(4), Status::Stale),
        (
            handle_of(&foreign_keys, VOLUME, ExportId(1), ROOT),
            Status::BadHandle,
        ),
        (
            handle_of(&keys(), VolumeId(1), ExportId(1), ROOT),
            Status::BadHandle,
        ),
        (
            HandleBuffer::new(b"short").expect("it fits"),
            Status::BadHandle,
        ),
    ];
    for (handle, status) in cases {
        let object = handle.as_handle();
        let reply = bench.at_once(&Call::Getattr(Getattr { object }));
        assert_eq!(reply.status(), Some(status));
    }
}

/// Goal: SETATTR passes every attribute and the guard, and refuses values that
/// no file can have.
#[test]
fn setattr_passes_all_attributes() {
    let mut bench = bench();
    let file = handle(FILE);
    let at = |nanoseconds| Timestamp {
        seconds: 1,
        nanoseconds,
    };
    let wanted = SetAttributes {
        mode: Some(0o1_0644),
        uid: Some(1),
        gid: Some(2),
        size_bytes: Some(3),
        accessed: SetTime::ServerTime,
        modified: SetTime::ClientTime(at(5)),
    };
    let call = |attributes| {
        Call::Setattr(Setattr {
            object: file.as_handle(),
            attributes,
            guard: Some(at(7)),
        })
    };
    let (request, reply) = bench.round(&call(wanted), Ok(SiteAnswer::Done), file_cache());
    let expected = SiteOperation::SetAttributes {
        file: FILE,
        changes: AttributeChanges {
            mode: Some(0o644),
            uid: Some(1),
            gid: Some(2),
            size_bytes: Some(3),
            accessed: TimeChange::Now,
            modified: TimeChange::To(WallTime(1_000_000_005)),
        },
        guard: Some(WallTime(1_000_000_007)),
    };
    assert_asked(&request.operation, &expected);
    assert!(request.duplicate.is_some());
    assert_eq!(
        reply,
        Reply::Setattr(Ok(shown_cache(FILE, FileType::Regular)))
    );

    let refused = |bench: &mut Bench, wanted| bench.at_once(&call(wanted)).status();
    let mut huge = wanted;
    huge.size_bytes = Some(1 << 63);
    assert_eq!(refused(&mut bench, huge), Some(Status::FBig));
    let mut odd = wanted;
    odd.modified = SetTime::ClientTime(at(1_000_000_000));
    assert_eq!(refused(&mut bench, odd), Some(Status::Inval));
}

/// Goal: LOOKUP gives a handle that opens the file; nobody climbs out of an export.
#[test]
fn lookup_gives_handles() {
    let mut bench = bench();
    let root = handle(ROOT);
    let call = Call::Lookup(in_root(&root, b"a"));
    let (request, reply) = bench.round(&call, Ok(found()), root_cache());
    let lookup = |directory: FileRef, name: &'static [u8]| SiteOperation::Lookup {
        directory,
        name: Bytes::from_static(name),
    };
    assert_asked(&request.operation, &lookup(ROOT, b"a"));
    let expected = reply::Lookup {
        object: handle(FILE),
        attributes: Some(shown_file()),
        directory: Some(shown_root()),
    };
    assert_eq!(reply, Reply::Lookup(Ok(expected)));

    let up = Call::Lookup(in_root(&root, b".."));
    let (request, reply) = bench.round(&up, Err(SiteError::Stale), root_cache());
    assert_asked(&request.operation, &lookup(ROOT, b"."));
    let failure = Failure::new(Status::Stale, Some(shown_root()));
    assert_eq!(reply, Reply::Lookup(Err(failure)));

    // Below the root the site has to look whether the parent is in the export.
    let (directory, within) = (FILE, ROOT);
    let below = handle(directory);
    let up = Call::Lookup(in_root(&below, b".."));
    let (request, _) = bench.round(&up, Ok(found()), root_cache());
    let expected = SiteOperation::LookupParent { directory, within };
    assert_asked(&request.operation, &expected);
}

/// Goal: names that cannot stand in a directory are refused by the door.
#[test]
fn impossible_names_are_refused() {
    let mut bench = bench();
    let root = handle(ROOT);
    let at = |name| in_root(&root, name);
    let long = [b'a'; 256];
    let attributes = SetAttributes::default();
    let mkdir = |location| {
        Call::Mkdir(Mkdir {
            location,
            attributes,
        })
    };
    let rename = |source, target| Call::Rename(Rename { source, target });
    let symlink = |target| {
        Call::Symlink(Symlink {
            location: at(b"a"),
            attributes,
            target: Path(target),
        })
    };
    let cases = [
        (Call::Lookup(at(b"")), Status::Inval),
        (Call::Lookup(at(b"a/b")), Status::Inval),
        (Call::Lookup(at(b"a\0")), Status::Inval),
        (Call::Lookup(at(&long)), Status::NameTooLong),
        (mkdir(at(b".")), Status::Exist),
        (mkdir(at(b"..")), Status::Exist),
        (Call::Remove(at(b"..")), Status::Inval),
        (Call::Rmdir(at(b".")), Status::Inval),
        (Call::Rmdir(at(b"..")), Status::Exist),
        (rename(at(b"."), at(b"a")), Status::Inval),
        (rename(at(b"a"), at(b"..")), Status::Inval),
        (symlink(b""), Status::Inval),
        (symlink(&[b'a'; 4096]), Status::NameTooLong),
    ];
    for (call, status) in cases {
        assert_eq!(bench.at_once(&call).status(), Some(status), "{call:?}");
    }
}

/// Goal: ACCESS, READLINK and the file system procedures.
#[test]
fn what_only_reads() {
    let mut bench = bench();
    let handle = handle(FILE);
    let object = handle.as_handle();
    let wanted = 0x3f;
    let call = Call::Access(Access { object, wanted });
    let answer = SiteAnswer::Access { granted: 0x21 };
    let (_, reply) = bench.round(&call, Ok(answer), file_cache());
    let attributes = Some(shown_file());
    let granted = 0x21;
    let expected = reply::Access {
        attributes,
        granted,
    };
    assert_eq!(reply, Reply::Access(Ok(expected)));

    let call = Call::Readlink(Readlink { symlink: object });
    let target = Bytes::from_static(b"over/there");
    let answer = SiteAnswer::Link {
        target: target.clone(),
    };
    let (_, reply) = bench.round(&call, Ok(answer), file_cache());
    let expected = reply::Readlink { attributes, target };
    assert_eq!(reply, Reply::Readlink(Ok(expected)));

    let space = SpaceUsage {
        total_bytes: 1,
        free_bytes: 2,
        available_bytes: 5,
        total_files: 3,
        free_files: 4,
        available_files: 6,
    };
    let call = Call::Fsstat(Fsstat { root: object });
    let (_, reply) = bench.round(&call, Ok(SiteAnswer::Space(space)), file_cache());
    let Reply::Fsstat(Ok(stat)) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(
        (stat.total_bytes, stat.free_bytes, stat.available_bytes),
        (1, 2, 5)
    );
    assert_eq!(
        (stat.total_files, stat.free_files, stat.available_files),
        (3, 4, 6)
    );

    let call = Call::Fsinfo(Fsinfo { root: object });
    let (_, reply) = bench.round(&call, Ok(SiteAnswer::Done), file_cache());
    let Reply::Fsinfo(Ok(info)) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(
        (info.read_bytes_max, info.write_bytes_max),
        (1 << 20, 1 << 20)
    );
    assert_eq!((info.time_delta.nanoseconds, info.properties), (1, 0x1b));
    assert_eq!(info.file_bytes_max, 1 << 46);

    let call = Call::Pathconf(Pathconf { object });
    let (_, reply) = bench.round(&call, Ok(SiteAnswer::Done), file_cache());
    let Reply::Pathconf(Ok(conf)) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(conf.name_bytes_max, 255);
    assert!(conf.long_names_refused && conf.chown_restricted);
    assert!(conf.case_preserving && !conf.case_insensitive);
}

/// Goal: bulk data goes through without a copy, in both directions.
#[test]
fn bulk_data_is_not_copied() {
    let mut bench = bench();
    let handle = handle(FILE);
    let file = handle.as_handle();
    let record = nfs(
        1,
        &Call::Write(Write {
            file,
            offset: 7,
            count_bytes: 4,
            stable: StableHow::DataSync,
            data: Payload::from(Bytes::from_static(b"data")),
        }),
    );
    bench.receive(record.clone());
    let asked = bench.asked_one();
    let SiteOperation::Write {
        file: FILE,
        offset_bytes: 7,
        payload,
        stability: Stability::Stable,
    } = &asked.request.operation
    else {
        panic!("{asked:?}");
    };
    assert_eq!(&payload.to_bytes()[..], b"data");
    let range = record.as_ptr_range();
    assert!(range.contains(&payload.pieces()[0].as_ptr()), "copied");
    assert_eq!(asked.request.duplicate, None);

    let written = SiteAnswer::Written {
        incarnation: crossdock_names::Incarnation(1),
    };
    bench.answer(asked.id, Ok(written), file_cache());
    let (_, reply) = decode(crossdock_nfs3::Procedure::Write, &bench.reply());
    let expected = reply::Write {
        file: shown_cache(FILE, FileType::Regular),
        count_bytes: 4,
        committed: StableHow::FileSync,
        verifier: WriteVerifier(VERIFIER),
    };
    assert_eq!(reply, Reply::Write(Ok(expected)));

    let mut door = bench.door;
    let call = Call::Read(call::Read {
        file,
        offset: 0,
        count_bytes: 2 << 20,
    });
    door.handle(NOW, NfsInput::Received(CONN, nfs(2, &call)));
    let Some(NfsEffect::Router(asked)) = door.poll_effect() else {
        panic!("nothing asked");
    };
    let data = Bytes::from(vec![3; 1001]);
    let answer = SiteAnswer::Read {
        payload: Payload::from(data.clone()),
        end_of_file: false,
    };
    let reply = crossdock_peer::SiteReply {
        id: asked.id,
        outcome: Ok(answer),
        subject: file_cache(),
        second: WeakCache::default(),
    };
    let verifier = VERIFIER;
    let routed = crossdock_router::RoutedReply {
        reply,
        verifier,
        waited: crossdock_router::Waited::default(),
    };
    door.handle(NOW, NfsInput::Reply(Box::new(routed)));
    let Some(NfsEffect::Send(CONN, payload)) = door.poll_effect() else {
        panic!("no reply");
    };
    let pieces = payload.into_pieces();
    assert_eq!(pieces[1].as_ptr(), data.as_ptr());
    let pieces: Vec<usize> = pieces.iter().map(Bytes::len).collect();
    assert_eq!(pieces[1..], [1001, 3]); // Data, padding.
}

/// A READ's answer of which a node keeps 1001 bytes.
fn held_answer(id: CallId) -> Box<crossdock_router::RoutedReply> {
    let mut payload = Payload::from(Bytes::from_static(b"head"));
    payload.push_extent(Extent::new(7, 9, 1001, &Released::default()));
    let reply = crossdock_peer::SiteReply {
        id,
        outcome: Ok(SiteAnswer::Read {
            payload,
            end_of_file: false,
        }),
        subject: file_cache(),
        second: WeakCache::default(),
    };
    Box::new(crossdock_router::RoutedReply {
        reply,
        verifier: VERIFIER,
        waited: crossdock_router::Waited::default(),
    })
}

/// Which of a reply's parts are extents, and how long each is.
fn parts_of(payload: Payload) -> Vec<(bool, usize)> {
    let parts = payload.into_parts();
    let parts = parts.iter();
    parts
        .map(|part| (matches!(part, Part::Extent(_)), part.len()))
        .collect()
}

fn flow(transport: Transport) -> Flow {
    Flow {
        transport,
        source: "198.18.2.1:2049".parse().expect("an address"),
        destination: "127.0.0.1:700".parse().expect("an address"),
    }
}

/// Goal: in a connection that nodes may send in a READ is asked for with it, and what they keep
/// lies in the reply where its bytes would; others know nothing of it.
#[test]
fn what_nodes_send_is_named_in_the_reply() {
    let flow = flow(Transport::Tcp);
    let handle = handle(FILE);
    let file = handle.as_handle();
    let mut door = bench().door;
    door.handle(NOW, NfsInput::Flow(CONN, flow));
    let call = Call::Read(call::Read {
        file,
        offset: 0,
        count_bytes: 1 << 20,
    });
    door.handle(NOW, NfsInput::Received(CONN, nfs(2, &call)));
    let Some(NfsEffect::ReadFor(of, _, asked)) = door.poll_effect() else {
        panic!("nothing asked");
    };
    assert_eq!(of, flow);
    door.handle(NOW, NfsInput::Reply(held_answer(asked.id)));
    let Some(NfsEffect::Send(CONN, payload)) = door.poll_effect() else {
        panic!("no reply");
    };
    // The head's four bytes, then what the node has, and the padding of 1005 bytes.
    let parts = parts_of(payload);
    assert_eq!(parts[1..], [(false, 4), (true, 1001), (false, 3)]);
}

/// Goal: the same with a datagram, to a client that nodes may answer: its reads are asked for in
/// its name, and no other call is; what is sent is one datagram with the extents in it.
#[test]
fn what_nodes_send_is_named_in_a_datagram() {
    let flow = flow(Transport::Udp);
    let handle = handle(FILE);
    let mut door = bench().door;
    let getattr = Call::Getattr(call::Getattr {
        object: handle.as_handle(),
    });
    let read = Call::Read(call::Read {
        file: handle.as_handle(),
        offset: 0,
        count_bytes: 1 << 20,
    });
    let datagram = |call: &Call<'_>| {
        let header = header(5, crossdock_nfs3::PROGRAM, 3, call.procedure().number());
        message(&header, call)
    };
    door.handle(NOW, NfsInput::DatagramIn(flow, datagram(&getattr)));
    let asked = door.poll_effect();
    assert!(matches!(asked, Some(NfsEffect::Router(_))), "{asked:?}");
    door.handle(NOW, NfsInput::Datagram(flow.destination, datagram(&read)));
    let asked = door.poll_effect();
    assert!(matches!(asked, Some(NfsEffect::Router(_))), "{asked:?}");
    door.handle(NOW, NfsInput::DatagramIn(flow, datagram(&read)));
    let Some(NfsEffect::ReadFor(of, _, asked)) = door.poll_effect() else {
        panic!("nothing asked");
    };
    assert_eq!(of, flow);
    door.handle(NOW, NfsInput::Reply(held_answer(asked.id)));
    let Some(NfsEffect::SendIn(to, payload)) = door.poll_effect() else {
        panic!("no reply");
    };
    assert_eq!(to, flow);
    let parts = parts_of(payload);
    assert_eq!(parts[1..], [(false, 4), (true, 1001), (false, 3)]);
    assert!(door.poll_effect().is_none());
}

/// Goal: a WRITE says how much was taken, whatever the client claims.
#[test]
fn write_counts_are_checked() {
    let mut bench = bench();
    let handle = handle(FILE);
    let write = |count_bytes| {
        Call::Write(Write {
            file: handle.as_handle(),
            offset: 0,
            count_bytes,
            stable: StableHow::Unstable,
            data: Payload::from(Bytes::from_static(b"data")),
        })
    };
    assert_eq!(bench.at_once(&write(5)).status(), Some(Status::Inval));
    let (request, reply) = bench.round(&write(3), Err(SiteError::NoSpace), file_cache());
    let SiteOperation::Write { payload, .. } = request.operation else {
        panic!("no write");
    };
    assert_eq!(payload.len(), 3);
    let failure = Failure::new(Status::NoSpc, shown_cache(FILE, FileType::Regular));
    assert_eq!(reply, Reply::Write(Err(failure)));
}

/// Goal: COMMIT returns the router's verifier.
#[test]
fn commit_returns_the_verifier() {
    let mut bench = bench();
    let handle = handle(FILE);
    let call = Call::Commit(Commit {
        file: handle.as_handle(),
        offset: 5,
        count_bytes: 6,
    });
    let (_, reply) = bench.round(&call, Ok(SiteAnswer::Committed), file_cache());
    let expected = reply::Commit {
        file: shown_cache(FILE, FileType::Regular),
        verifier: WriteVerifier(VERIFIER),
    };
    assert_eq!(reply, Reply::Commit(Ok(expected)));
}

/// Goal: every kind of object is made with its arguments.
#[test]
fn objects_are_made() {
    let mut bench = bench();
    let root = handle(ROOT);
    let location = in_root(&root, b"new");
    let wanted = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let changes = AttributeChanges {
        mode: Some(0o600),
        ..AttributeChanges::default()
    };
    let (directory, name) = (ROOT, Bytes::from_static(b"new"));
    let created = || Created {
        object: Some(handle(FILE)),
        attributes: Some(shown_file()),
        directory: shown_cache(ROOT, FileType::Directory),
    };
    let hows = [
        (CreateHow::Unchecked(wanted), CreateMode::Unchecked(changes)),
        (CreateHow::Guarded(wanted), CreateMode::Guarded(changes)),
        (
            CreateHow::Exclusive(CreateVerifier(*b"exclusiv")),
            CreateMode::Exclusive(*b"exclusiv"),
        ),
    ];
    for (how, mode) in hows {
        let call = Call::Create(Create { location, how });
        let (request, reply) = bench.round(&call, Ok(found()), root_cache());
        let name = name.clone();
        let expected = SiteOperation::Create {
            directory,
            name,
            mode,
        };
        assert_asked(&request.operation, &expected);
        assert_eq!(reply, Reply::Create(Ok(created())));
    }
    let call = Call::Mkdir(Mkdir {
        location,
        attributes: wanted,
    });
    let (request, reply) = bench.round(&call, Ok(found()), root_cache());
    let expected = SiteOperation::MakeDirectory {
        directory,
        name: name.clone(),
        changes,
    };
    assert_asked(&request.operation, &expected);
    assert_eq!(reply, Reply::Mkdir(Ok(created())));

    let call = Call::Symlink(Symlink {
        location,
        attributes: wanted,
        target: Path(b"to"),
    });
    let (request, reply) = bench.round(&call, Ok(found()), root_cache());
    let expected = SiteOperation::MakeSymlink {
        directory,
        name: name.clone(),
        changes,
        target: Bytes::from_static(b"to"),
    };
    assert_asked(&request.operation, &expected);
    assert_eq!(reply, Reply::Symlink(Ok(created())));

    let device = DeviceNumber { major: 1, minor: 2 };
    let attributes = wanted;
    let given = Device { major: 1, minor: 2 };
    let none = Device::default();
    let specials = [
        (
            Special::BlockDevice { attributes, device },
            FileKind::Block,
            given,
        ),
        (
            Special::CharacterDevice { attributes, device },
            FileKind::Character,
            given,
        ),
        (Special::Socket(attributes), FileKind::Socket, none),
        (Special::Fifo(attributes), FileKind::Fifo, none),
    ];
    for (what, kind, device) in specials {
        let call = Call::Mknod(Mknod { location, what });
        let (request, reply) = bench.round(&call, Ok(found()), root_cache());
        let expected = SiteOperation::MakeNode {
            directory,
            name: name.clone(),
            kind,
            device,
            changes,
        };
        assert_asked(&request.operation, &expected);
        assert_eq!(reply, Reply::Mknod(Ok(created())));
    }
    let what = Special::Other(FileType::Regular);
    let reply = bench.at_once(&Call::Mknod(Mknod { location, what }));
    assert_eq!(reply.status(), Some(Status::BadType));
}

/// Goal: names are removed, moved and added, with attributes of both sides.
#[test]
fn names_are_changed() {
    let mut bench = bench();
    let root = handle(ROOT);
    let (a, b) = (in_root(&root, b"a"), in_root(&root, b"b"));
    let shown_dir = shown_cache(ROOT, FileType::Directory);
    let done = || Ok(SiteAnswer::Done);
    let (request, reply) = bench.round(&Call::Remove(a), done(), root_cache());
    let (directory, name) = (ROOT, Bytes::from_static(b"a"));
    let expected = SiteOperation::Remove {
        directory,
        name: name.clone(),
    };
    assert_asked(&request.operation, &expected);
    assert_eq!(reply, Reply::Remove(Ok(shown_dir)));
    let (request, reply) = bench.round(&Call::Rmdir(a), Err(SiteError::NotEmpty), root_cache());
    let expected = SiteOperation::RemoveDirectory { directory, name };
    assert_asked(&request.operation, &expected);
    let failure = Failure::new(Status::NotEmpty, shown_dir);
    assert_eq!(reply, Reply::Rmdir(Err(failure)));

    let (source, target) = (a, b);
    let call = Call::Rename(Rename { source, target });
    let (_, reply) = bench.round(&call, done(), root_cache());
    let expected = Renamed {
        source: shown_dir,
        target: shown_dir, // The same directory.
    };
    assert_eq!(reply, Reply::Rename(Ok(expected)));

    let object = handle(FILE);
    bench.receive(nfs(
        3,
        &Call::Link(Link {
            object: object.as_handle(),
            location: b,
        }),
    ));
    let asked = bench.asked_one();
    let expected = SiteOperation::Link {
        file: FILE,
        directory,
        name: Bytes::from_static(b"b"),
    };
    assert_asked(&asked.request.operation, &expected);
    bench.answer_both(asked.id, done(), root_cache(), file_cache());
    let expected = Linked {
        attributes: Some(shown_file()),
        directory: shown_dir,
    };
    let (_, reply) = decode(crossdock_nfs3::Procedure::Link, &bench.reply());
    assert_eq!(reply, Reply::Link(Ok(expected)));
}

/// Goal: every failure of a site has its own NFS status.
#[test]
fn failures_are_mapped() {
    let current = crossdock_names::Incarnation(1);
    let cases = [
        (SiteError::NotOwner, Status::Perm),
        (SiteError::NotFound, Status::NoEnt),
        (SiteError::Io, Status::Io),
        (SiteError::AccessDenied, Status::Acces),
        (SiteError::Exists, Status::Exist),
        (SiteError::CrossDevice, Status::XDev),
        (SiteError::NotDirectory, Status::NotDir),
        (SiteError::IsDirectory, Status::IsDir),
        (SiteError::Invalid, Status::Inval),
        (SiteError::FileTooBig, Status::FBig),
        (SiteError::NoSpace, Status::NoSpc),
        (SiteError::Quota, Status::DQuot),
        (SiteError::TooManyLinks, Status::MLink),
        (SiteError::NameTooLong, Status::NameTooLong),
        (SiteError::NotEmpty, Status::NotEmpty),
        (SiteError::Stale, Status::Stale),
        (SiteError::BadCookie, Status::BadCookie),
        (SiteError::NotSync, Status::NotSync),
        (SiteError::BadType, Status::BadType),
        (SiteError::Busy, Status::Jukebox),
        (SiteError::Lost { current }, Status::Jukebox),
        (SiteError::Moved, Status::Jukebox),
        (SiteError::Unanswered, Status::Jukebox),
        (SiteError::Refused, Status::Jukebox),
        (SiteError::NotProven, Status::BadHandle),
    ];
    let mut bench = bench();
    let root = handle(ROOT);
    let object = root.as_handle();
    for (error, status) in cases {
        let call = Call::Getattr(Getattr { object });
        let (_, reply) = bench.round(&call, Err(error), WeakCache::default());
        assert_eq!(reply.status(), Some(status));
    }
}
