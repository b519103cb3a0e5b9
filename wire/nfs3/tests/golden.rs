//! Messages laid out by hand, word by word, after the definitions in RFC 1813:
//! the codec must read and write exactly these bytes.

use bytes::Bytes;
use crossdock_nfs3::call::{self, Call, CreateHow, Special, StableHow};
use crossdock_nfs3::reply::{self, Failure, properties};
use crossdock_nfs3::{
    Attributes, CookieVerifier, CreateVerifier, DeviceNumber, Entry, EntryPlus, FileType, Handle,
    HandleBuffer, Location, Name, Path, ReaddirBuilder, ReaddirplusBuilder, Reply, SetAttributes,
    SetTime, Status, Timestamp, WccAttributes, WccData, WriteVerifier, mount,
};
use crossdock_types::Payload;
use crossdock_xdr::{Decoder, Encode, Encoder};

fn words(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn encoded<T: Encode>(value: &T) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.put(value);
    encoder.into_bytes().to_vec()
}

#[track_caller]
fn check_call(call: &Call<'_>, text: &str) {
    let bytes = words(text);
    assert_eq!(encoded(call), bytes);
    let mut decoder = Decoder::new(&bytes);
    let decoded = Call::decode(call.procedure(), &mut decoder);
    assert_eq!(decoded.as_ref(), Ok(call));
    assert_eq!(decoder.finish(), Ok(()));
}

#[track_caller]
fn check_reply(reply: &Reply, text: &str) {
    let bytes = words(text);
    assert_eq!(encoded(reply), bytes);
    let mut decoder = Decoder::new(&bytes);
    let decoded = Reply::decode(reply.procedure(), &mut decoder);
    assert_eq!(decoded.as_ref(), Ok(reply));
    assert_eq!(decoder.finish(), Ok(()));
}

const HANDLE: &str = "00000006 00112233 44550000";
const LOCATION: &str = "00000006 00112233 44550000 00000003 61626300"; // The name is "abc".

fn handle() -> Handle<'static> {
    Handle::new(&[0x00, 0x11, 0x22, 0x33, 0x44, 0x55]).unwrap()
}

fn location() -> Location<'static> {
    Location {
        directory: handle(),
        name: Name(b"abc"),
    }
}

const ATTRIBUTES: &str = "
    00000001 000001a4 00000002 000003e8 00000064
    00000000 00001001 00000000 00002000
    00000000 00000000
    01020304 05060708 00000000 0000002a
    65000000 00000001 65000001 00000002 65000002 00000003";

fn attributes() -> Attributes {
    Attributes {
        file_type: FileType::Regular,
        mode: 0o644,
        links: 2,
        uid: 1000,
        gid: 100,
        size_bytes: 4097,
        used_bytes: 8192,
        device: DeviceNumber::default(),
        fsid: 0x0102_0304_0506_0708,
        fileid: 42,
        accessed: time(0x6500_0000, 1),
        modified: time(0x6500_0001, 2),
        changed: time(0x6500_0002, 3),
    }
}

const fn time(seconds: u32, nanoseconds: u32) -> Timestamp {
    Timestamp {
        seconds,
        nanoseconds,
    }
}

/// Goal: GETATTR and the 84 bytes of `fattr3` (section 3.3.1).
#[test]
fn getattr() {
    let object = handle();
    check_call(&Call::Getattr(call::Getattr { object }), HANDLE);
    let reply = Reply::Getattr(Ok(attributes()));
    check_reply(&reply, &format!("00000000 {ATTRIBUTES}"));
    assert_eq!(words(ATTRIBUTES).len(), Attributes::ENCODED_BYTES);
    check_reply(&Reply::Getattr(Err(Status::Stale.into())), "00000046");
}

/// Goal: SETATTR with every kind of optional attribute and a guard (section 3.3.2).
#[test]
fn setattr() {
    let call = Call::Setattr(call::Setattr {
        object: handle(),
        attributes: SetAttributes {
            mode: Some(0o755),
            uid: None,
            gid: Some(7),
            size_bytes: Some(1 << 32),
            accessed: SetTime::ServerTime,
            modified: SetTime::ClientTime(time(5, 6)),
        },
        guard: Some(time(8, 9)),
    });
    check_call(
        &call,
        &format!(
            "{HANDLE} 00000001 000001ed 00000000 00000001 00000007
             00000001 00000001 00000000 00000001 00000002 00000005 00000006
             00000001 00000008 00000009"
        ),
    );
    let before = Some(WccAttributes {
        size_bytes: 4096,
        modified: time(1, 2),
        changed: time(3, 4),
    });
    let after = Some(attributes());
    let failure = Failure::new(Status::NotSync, WccData { before, after });
    check_reply(
        &Reply::Setattr(Err(failure)),
        &format!(
            "00002712 00000001 00000000 00001000 00000001 00000002 00000003 00000004
             00000001 {ATTRIBUTES}"
        ),
    );
}

/// Goal: LOOKUP found and not found, ACCESS, READLINK (sections 3.3.3 to 3.3.5).
#[test]
fn lookup_access_and_readlink() {
    check_call(&Call::Lookup(location()), LOCATION);
    let found = reply::Lookup {
        object: handle().into(),
        attributes: Some(attributes()),
        directory: None,
    };
    check_reply(
        &Reply::Lookup(Ok(found)),
        &format!("00000000 {HANDLE} 00000001 {ATTRIBUTES} 00000000"),
    );
    check_reply(
        &Reply::Lookup(Err(Status::NoEnt.into())),
        "00000002 00000000",
    );

    let object = handle();
    let wanted = call::access::READ | call::access::EXECUTE;
    check_call(
        &Call::Access(call::Access { object, wanted }),
        &format!("{HANDLE} 00000021"),
    );
    let granted = reply::Access {
        attributes: None,
        granted: call::access::READ,
    };
    check_reply(&Reply::Access(Ok(granted)), "00000000 00000000 00000001");

    let link = reply::Readlink {
        attributes: None,
        target: Bytes::from_static(b"../x"),
    };
    check_reply(
        &Reply::Readlink(Ok(link)),
        "00000000 00000000 00000004 2e2e2f78",
    );
}

/// Goal: READ, WRITE and COMMIT with their verifiers (sections 3.3.6, 3.3.7, 3.3.21).
#[test]
fn read_write_and_commit() {
    let file = handle();
    let data = Payload::from(Bytes::from_static(b"hello"));
    let offset = 0x1_0000_0002;
    let count_bytes = 5;
    let read = call::Read {
        file,
        offset,
        count_bytes,
    };
    check_call(
        &Call::Read(read),
        &format!("{HANDLE} 00000001 00000002 00000005"),
    );
    let read = reply::Read {
        attributes: None,
        is_end: true,
        data: data.clone(),
    };
    check_reply(
        &Reply::Read(Ok(read)),
        "00000000 00000000 00000005 00000001 00000005 68656c6c 6f000000",
    );

    let write = call::Write {
        file,
        offset,
        count_bytes,
        stable: StableHow::FileSync,
        data,
    };
    check_call(
        &Call::Write(write),
        &format!("{HANDLE} 00000001 00000002 00000005 00000002 00000005 68656c6c 6f000000"),
    );
    let verifier = WriteVerifier(*b"verifier");
    let written = reply::Write {
        file: WccData::default(),
        count_bytes,
        committed: StableHow::Unstable,
        verifier,
    };
    check_reply(
        &Reply::Write(Ok(written)),
        "00000000 00000000 00000000 00000005 00000000 76657269 66696572",
    );

    let commit = call::Commit {
        file,
        offset: 0,
        count_bytes: 0,
    };
    check_call(
        &Call::Commit(commit),
        &format!("{HANDLE} 00000000 00000000 00000000"),
    );
    let committed = reply::Commit {
        file: WccData::default(),
        verifier,
    };
    check_reply(
        &Reply::Commit(Ok(committed)),
        "00000000 00000000 00000000 76657269 66696572",
    );
}

/// Goal: what makes objects: CREATE, MKDIR, SYMLINK, MKNOD (sections 3.3.8 to 3.3.11).
#[test]
fn create_mkdir_symlink_and_mknod() {
    let location = location();
    let none = "00000000 00000000 00000000 00000000 00000000 00000000";
    let attributes = SetAttributes::default();
    for (how, text) in [
        (CreateHow::Unchecked(attributes), format!("00000000 {none}")),
        (CreateHow::Guarded(attributes), format!("00000001 {none}")),
        (
            CreateHow::Exclusive(CreateVerifier(*b"verifier")),
            "00000002 76657269 66696572".to_owned(),
        ),
    ] {
        let call = Call::Create(call::Create { location, how });
        check_call(&call, &format!("{LOCATION} {text}"));
    }
    let created = reply::Created {
        object: Some(handle().into()),
        attributes: None,
        directory: WccData::default(),
    };
    check_reply(
        &Reply::Create(Ok(created)),
        &format!("00000000 00000001 {HANDLE} 00000000 00000000 00000000"),
    );

    let mkdir = call::Mkdir {
        location,
        attributes,
    };
    check_call(&Call::Mkdir(mkdir), &format!("{LOCATION} {none}"));
    let symlink = call::Symlink {
        location,
        attributes,
        target: Path(b"to"),
    };
    check_call(
        &Call::Symlink(symlink),
        &format!("{LOCATION} {none} 00000002 746f0000"),
    );

    let device = DeviceNumber { major: 8, minor: 1 };
    for (what, text) in [
        (
            Special::CharacterDevice { attributes, device },
            format!("00000004 {none} 00000008 00000001"),
        ),
        (
            Special::BlockDevice { attributes, device },
            format!("00000003 {none} 00000008 00000001"),
        ),
        (Special::Socket(attributes), format!("00000006 {none}")),
        (Special::Fifo(attributes), format!("00000007 {none}")),
        (Special::Other(FileType::Directory), "00000002".to_owned()),
    ] {
        let call = Call::Mknod(call::Mknod { location, what });
        check_call(&call, &format!("{LOCATION} {text}"));
    }
}

/// Goal: RENAME and LINK carry two sets of attributes also when they fail
/// (sections 3.3.14 and 3.3.15).
#[test]
fn rename_and_link() {
    let rename = call::Rename {
        source: location(),
        target: location(),
    };
    check_call(&Call::Rename(rename), &format!("{LOCATION} {LOCATION}"));
    check_reply(
        &Reply::Rename(Err(Status::NotEmpty.into())),
        "00000042 00000000 00000000 00000000 00000000",
    );
    let link = call::Link {
        object: handle(),
        location: location(),
    };
    check_call(&Call::Link(link), &format!("{HANDLE} {LOCATION}"));
    let failure = Failure::new(
        Status::MLink,
        reply::Linked {
            attributes: Some(attributes()),
            directory: WccData::default(),
        },
    );
    check_reply(
        &Reply::Link(Err(failure)),
        &format!("0000001f 00000001 {ATTRIBUTES} 00000000 00000000"),
    );
}

/// Goal: lists of entries, ended and not (sections 3.3.16 and 3.3.17).
#[test]
fn readdir_and_readdirplus() {
    let directory = handle();
    let cookie = 3;
    let verifier = CookieVerifier(*b"verifier");
    let count_bytes = 0x1000;
    let readdir = call::Readdir {
        directory,
        cookie,
        verifier,
        count_bytes,
    };
    check_call(
        &Call::Readdir(readdir),
        &format!("{HANDLE} 00000000 00000003 76657269 66696572 00001000"),
    );
    let mut list = ReaddirBuilder::new(None, verifier, count_bytes);
    for (fileid, name) in [(7, &b"a"[..]), (8, b"four")] {
        assert!(list.push(&Entry {
            fileid,
            name: Name(name),
            cookie: fileid + 1,
        }));
    }
    check_reply(
        &Reply::Readdir(list.finish(true)),
        "00000000 00000000 76657269 66696572
         00000001 00000000 00000007 00000001 61000000 00000000 00000008
         00000001 00000000 00000008 00000004 666f7572 00000000 00000009
         00000000 00000001",
    );

    let readdirplus = call::Readdirplus {
        directory,
        cookie,
        verifier,
        directory_count_bytes: 0x200,
        count_bytes,
    };
    check_call(
        &Call::Readdirplus(readdirplus),
        &format!("{HANDLE} 00000000 00000003 76657269 66696572 00000200 00001000"),
    );
    let mut list = ReaddirplusBuilder::new(Some(attributes()), verifier, 0x200, count_bytes);
    assert!(list.push(&EntryPlus {
        fileid: 7,
        name: Name(b"a"),
        cookie: 8,
        attributes: Some(attributes()),
        object: HandleBuffer::new(handle().as_bytes()),
    }));
    check_reply(
        &Reply::Readdirplus(list.finish(false)),
        &format!(
            "00000000 00000001 {ATTRIBUTES} 76657269 66696572
             00000001 00000000 00000007 00000001 61000000 00000000 00000008
             00000001 {ATTRIBUTES} 00000001 {HANDLE}
             00000000 00000000"
        ),
    );
}

/// Goal: what is told about the file system (sections 3.3.18 to 3.3.20).
#[test]
fn fsstat_fsinfo_and_pathconf() {
    let fsstat = reply::Fsstat {
        attributes: None,
        total_bytes: 1,
        free_bytes: 2,
        available_bytes: 3,
        total_files: 4,
        free_files: 5,
        available_files: 6,
        invariant_seconds: 7,
    };
    check_reply(
        &Reply::Fsstat(Ok(fsstat)),
        "00000000 00000000 00000000 00000001 00000000 00000002 00000000 00000003
         00000000 00000004 00000000 00000005 00000000 00000006 00000007",
    );
    let fsinfo = reply::Fsinfo {
        attributes: None,
        read_bytes_max: 1,
        read_bytes_preferred: 2,
        read_bytes_multiple: 3,
        write_bytes_max: 4,
        write_bytes_preferred: 5,
        write_bytes_multiple: 6,
        readdir_bytes_preferred: 7,
        file_bytes_max: 8,
        time_delta: time(9, 10),
        properties: properties::LINK
            | properties::SYMLINK
            | properties::HOMOGENEOUS
            | properties::CAN_SET_TIME,
    };
    check_reply(
        &Reply::Fsinfo(Ok(fsinfo)),
        "00000000 00000000 00000001 00000002 00000003 00000004 00000005 00000006 00000007
         00000000 00000008 00000009 0000000a 0000001b",
    );
    let pathconf = reply::Pathconf {
        attributes: None,
        links_max: 1,
        name_bytes_max: 255,
        long_names_refused: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    };
    check_reply(
        &Reply::Pathconf(Ok(pathconf)),
        "00000000 00000000 00000001 000000ff 00000001 00000001 00000000 00000001",
    );
}

/// Goal: MOUNT (sections 5.2.1 to 5.2.5).
#[test]
fn mount_messages() {
    let check = |reply: mount::Reply, text: &str| {
        let bytes = words(text);
        assert_eq!(encoded(&reply), bytes);
        let procedure = reply.procedure();
        let decoded = mount::Reply::decode(procedure, &mut Decoder::new(&bytes));
        assert_eq!(decoded, Ok(reply));
    };
    let call = mount::Call::Mnt(Path(b"/"));
    assert_eq!(encoded(&call), words("00000001 2f000000"));

    let mounted = mount::Mounted {
        root: handle().into(),
        flavors: vec![1, 0],
    };
    check(
        mount::Reply::Mnt(Ok(mounted)),
        &format!("00000000 {HANDLE} 00000002 00000001 00000000"),
    );
    check(mount::Reply::Mnt(Err(mount::Status::Acces)), "0000000d");
    let mounts = vec![mount::Mount {
        host: Bytes::from_static(b"host"),
        path: Bytes::from_static(b"/"),
    }];
    check(
        mount::Reply::Dump(mounts),
        "00000001 00000004 686f7374 00000001 2f000000 00000000",
    );
    let exports = vec![
        mount::Export {
            path: Bytes::from_static(b"/"),
            groups: vec![Bytes::from_static(b"host")],
        },
        mount::Export {
            path: Bytes::from_static(b"/a"),
            groups: Vec::new(),
        },
    ];
    check(
        mount::Reply::Export(exports),
        "00000001 00000001 2f000000 00000001 00000004 686f7374 00000000
         00000001 00000002 2f610000 00000000
         00000000",
    );
}
