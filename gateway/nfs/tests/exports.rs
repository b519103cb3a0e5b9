//! Exports that are changed while they are mounted, and what a read-only one
//! refuses.

mod support;

use bytes::Bytes;
use crossdock_names::{ExportId, FileRef};
use crossdock_nfs::{Export, NfsInput};
use crossdock_nfs3::call::{
    Access, Commit, Create, CreateHow, Getattr, Link, Mkdir, Mknod, Read, Readdir, Readdirplus,
    Rename, Setattr, Special, StableHow, Symlink, Write, access,
};
use crossdock_nfs3::{
    self as nfs3, Call, CookieVerifier, Path, Reply, SetAttributes, Status, mount,
};
use crossdock_peer::{
    DirectoryEntry, ExportRules, FileKind, NOBODY, Network, SiteAnswer, SiteOperation, Squash,
};
use crossdock_rpc::{AuthStatus, Credential, Rejection, ReplyHeader};
use support::*;

/// Another directory than the volume's root.
const BELOW: FileRef = FileRef {
    id: crossdock_names::FileId(77),
    generation: 5,
};

fn export(id: u32, change: impl FnOnce(&mut ExportRules)) -> Export {
    let mut export = Export::local(ExportId(id), b"/", ROOT);
    change(&mut export.rules);
    export
}

fn network(text: &str) -> Network {
    text.parse().expect("a network")
}

fn getattr_status(bench: &mut Bench) -> Status {
    let root = handle(ROOT);
    let object = root.as_handle();
    let reply = bench.at_once(&Call::Getattr(Getattr { object }));
    reply.status().expect("refused")
}

/// Goal: a change of the exports counts for the next call of a mount that was
/// there before: other ids, other clients, no export at all.
#[test]
fn changes_count_for_existing_mounts() {
    let mut bench = bench();
    let root = handle(ROOT);
    let asked = Call::Getattr(Getattr {
        object: root.as_handle(),
    });
    let (request, _) = bench.round(&asked, Ok(SiteAnswer::Done), root_cache());
    assert_eq!(request.caller.uid, 1000);
    let (uid, gid) = (7, 8);
    let squashed = export(1, |rules| rules.squash = Squash::All { uid, gid });
    bench.input(NfsInput::Exports(vec![squashed]));
    let (request, _) = bench.round(&asked, Ok(SiteAnswer::Done), root_cache());
    assert_eq!((request.caller.uid, request.caller.gid), (uid, gid));

    let narrowed = export(1, |rules| rules.networks = vec![network("10.0.0.0/8")]);
    bench.input(NfsInput::Exports(vec![narrowed]));
    assert_eq!(getattr_status(&mut bench), Status::Acces);
    bench.input(NfsInput::Exports(vec![export(2, |_| {})]));
    assert_eq!(getattr_status(&mut bench), Status::Stale);
    bench.input(NfsInput::Exports(Vec::new()));
    assert_eq!(getattr_status(&mut bench), Status::Stale);
    // Nobody mounts anything now, and is told so by RPC.
    let call = mount::Call::Mnt(Path(b"/"));
    bench.receive(record(&header(9, mount::PROGRAM, 3, 1), &call));
    let rejection = Rejection::Auth(AuthStatus::TooWeak);
    assert_eq!(bare(&bench.reply()), ReplyHeader::denied(9, rejection));
    bench.input(NfsInput::Exports(vec![export(1, |_| {})]));
    let (_, reply) = bench.round(&asked, Ok(SiteAnswer::Done), root_cache());
    assert!(matches!(reply, Reply::Getattr(Ok(_))));
}

/// Goal: addresses of both kinds are let in by networks of their own kind, and
/// an IPv4 client is one through whatever socket it comes.
#[test]
fn clients_of_both_kinds_are_told_apart() {
    let cases = [
        ("10.1.2.3:999", "10.0.0.0/8", true),
        ("[::ffff:10.1.2.3]:999", "10.0.0.0/8", true),
        ("[fd00::7]:999", "fd00::/8", true),
        ("[fd00::7]:999", "10.0.0.0/8", false),
        ("10.1.2.3:999", "fd00::/8", false),
        ("[2001:db8::1]:999", "everybody", true),
    ];
    for (client, allowed, is_in) in cases {
        let mut config = config();
        config.exports = vec![export(1, |rules| rules.networks = vec![network(allowed)])];
        let mut bench = Bench::from(config, client);
        let root = handle(ROOT);
        let object = root.as_handle();
        bench.receive(nfs(1, &Call::Getattr(Getattr { object })));
        assert_eq!(
            bench.asked().len(),
            usize::from(is_in),
            "{client} {allowed}"
        );
    }
}

/// Goal: EXPORT names the networks that are let in, and nobody in particular
/// where everybody is.
#[test]
fn exports_are_listed_with_their_networks() {
    let mut config = config();
    let some = vec![network("127.0.0.1"), network("fd00::/8")];
    config.exports = vec![
        export(1, |rules| rules.networks = some),
        export(2, |rules| rules.networks = vec![Network::EVERYBODY]),
    ];
    let mut bench = Bench::new(config);
    let procedure = mount::Procedure::Export;
    let header = header(9, mount::PROGRAM, 3, procedure.number());
    bench.receive(record(&header, &mount::Call::Export));
    let bytes = bench.reply();
    let mut decoder = crossdock_xdr::Decoder::of_record(&bytes);
    let _: ReplyHeader<'_> = decoder.get().expect("a reply");
    let listed = |groups: &[&'static str]| mount::Export {
        path: Bytes::from_static(b"/"),
        groups: groups.iter().map(|group| Bytes::from(*group)).collect(),
    };
    let expected = vec![listed(&["127.0.0.1/32", "fd00::/8"]), listed(&[])];
    let reply = mount::Reply::decode(procedure, &mut decoder);
    assert_eq!(reply, Ok(mount::Reply::Export(expected)));
}

/// Goal: a read-only export refuses every procedure that changes something, at
/// once and with the same status, and grants no right to change.
#[test]
fn read_only_exports_refuse_every_change() {
    let mut config = config();
    config.exports = vec![export(1, |rules| rules.read_only = true)];
    let mut bench = Bench::new(config);
    let (root, file) = (handle(ROOT), handle(FILE));
    let at = in_root(&root, b"a");
    let attributes = SetAttributes::default();
    let changes = [
        Call::Setattr(Setattr {
            object: file.as_handle(),
            attributes,
            guard: None,
        }),
        Call::Write(Write {
            file: file.as_handle(),
            offset: 0,
            count_bytes: 1,
            stable: StableHow::Unstable,
            data: Bytes::from_static(b"x").into(),
        }),
        Call::Create(Create {
            location: at,
            how: CreateHow::Unchecked(attributes),
        }),
        Call::Mkdir(Mkdir {
            location: at,
            attributes,
        }),
        Call::Symlink(Symlink {
            location: at,
            attributes,
            target: Path(b"t"),
        }),
        Call::Mknod(Mknod {
            location: at,
            what: Special::Fifo(attributes),
        }),
        Call::Remove(at),
        Call::Rmdir(at),
        Call::Rename(Rename {
            source: at,
            target: at,
        }),
        Call::Link(Link {
            object: file.as_handle(),
            location: at,
        }),
        Call::Commit(Commit {
            file: file.as_handle(),
            offset: 0,
            count_bytes: 0,
        }),
    ];
    for call in &changes {
        let reply = bench.at_once(call);
        assert_eq!(reply.status(), Some(Status::Rofs), "{call:?}");
    }
    let call = Call::Access(Access {
        object: file.as_handle(),
        wanted: access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE,
    });
    let granted = SiteAnswer::Access { granted: 0 };
    let (request, _) = bench.round(&call, Ok(granted), file_cache());
    let (file, wanted) = (FILE, access::READ | access::LOOKUP);
    assert_asked(&request.operation, &SiteOperation::Access { file, wanted });
    let object = handle(FILE);
    bench.receive(nfs(
        1,
        &Call::Read(Read {
            file: object.as_handle(),
            offset: 0,
            count_bytes: 1,
        }),
    ));
    assert_eq!(bench.asked().len(), 1);
}

/// Goal: what an export's root lies in is not told: its parent is itself in
/// lists too, and below it parents are told as they are.
#[test]
fn lists_of_a_root_name_no_parent() {
    let mut config = config();
    config.exports[0].root = BELOW;
    let mut bench = Bench::new(config);
    let entry = |name: &'static str, file: FileRef| DirectoryEntry {
        file: file.id,
        name: Bytes::from(name),
        cookie: 1,
        attributes: Some(attributes(file, FileKind::Directory)),
    };
    for (listed, parent) in [(BELOW, BELOW), (FILE, ROOT)] {
        let listed = handle(listed);
        let directory = listed.as_handle();
        let verifier = CookieVerifier([0; 8]);
        let plain = Call::Readdir(Readdir {
            directory,
            cookie: 0,
            verifier,
            count_bytes: 4096,
        });
        let plus = Call::Readdirplus(Readdirplus {
            directory,
            cookie: 0,
            verifier,
            directory_count_bytes: 4096,
            count_bytes: 4096,
        });
        for call in [plain, plus] {
            let answer = SiteAnswer::Directory {
                entries: vec![entry("..", ROOT), entry("x", ROOT)],
                end: true,
                verifier: [0; 8],
            };
            let (_, reply) = bench.round(&call, Ok(answer), root_cache());
            let ids: Vec<u64> = match &reply {
                Reply::Readdir(Ok(list)) => list.entries.iter().map(|e| e.fileid).collect(),
                Reply::Readdirplus(Ok(list)) => list.entries.iter().map(|e| e.fileid).collect(),
                other => panic!("{other:?}"),
            };
            assert_eq!(ids, [parent.id.0, ROOT.id.0]);
        }
    }
}

/// Goal: who says nothing of himself is the export's anonymous user.
#[test]
fn callers_without_credentials_are_anonymous() {
    let mut bench = bench();
    let (uid, gid) = (7, 8);
    for (squash, expected) in [
        (Squash::None, (NOBODY, NOBODY)),
        (Squash::Root { uid, gid }, (uid, gid)),
    ] {
        bench.input(NfsInput::Exports(vec![export(1, |rules| {
            rules.squash = squash;
        })]));
        let mut header = header(1, nfs3::PROGRAM, 3, 1);
        header.credential = Credential::None;
        let root = handle(ROOT);
        let object = root.as_handle();
        bench.receive(record(&header, &Call::Getattr(Getattr { object })));
        let caller = bench.asked_one().request.caller;
        assert_eq!((caller.uid, caller.gid), expected);
    }
}
