//! The MOUNT program.

mod support;

use bytes::Bytes;
use crossdock_names::{ExportId, FileRef, LayoutClass};
use crossdock_nfs::{Export, NfsInput};
use crossdock_nfs3::{Path, mount};
use crossdock_peer::{Caller, FileKind, SiteAnswer, SiteError, SiteOperation};
use crossdock_rpc::ReplyHeader;
use crossdock_xdr::Decoder;
use support::*;

fn mnt(bench: &mut Bench, path: &[u8]) {
    let header = header(9, mount::PROGRAM, 3, 1);
    bench.receive(record(&header, &mount::Call::Mnt(Path(path))));
}

#[track_caller]
fn mount_reply(bench: &mut Bench, procedure: mount::Procedure) -> mount::Reply {
    let bytes = bench.reply();
    let mut decoder = Decoder::of_record(&bytes);
    let header: ReplyHeader<'_> = decoder.get().expect("a reply");
    assert_eq!(header, ReplyHeader::success(9));
    mount::Reply::decode(procedure, &mut decoder).expect("results")
}

/// Goal: MNT resolves the path by look-ups below the export and gives the
/// handle of a directory.
#[test]
fn mount_walks_the_path() {
    let mut bench = bench();
    mnt(&mut bench, b"/a//b/");
    let first = bench.asked_one();
    assert_eq!(first.request.caller, Caller::root());
    let look_up = |directory, name: &'static [u8]| SiteOperation::Lookup {
        directory,
        name: Bytes::from_static(name),
    };
    assert_asked(&first.request.operation, &look_up(ROOT, b"a"));
    let directory = FileRef {
        id: crossdock_names::FileId(50),
        generation: 2,
    };
    let found = |file: FileRef, kind| SiteAnswer::Found {
        attributes: attributes(file, kind),
        layout: LayoutClass::STRIPED,
        placement: file.id,
    };
    bench.answer(
        first.id,
        Ok(found(directory, FileKind::Directory)),
        root_cache(),
    );
    let second = bench.asked_one();
    assert_asked(&second.request.operation, &look_up(directory, b"b"));
    bench.answer(
        second.id,
        Ok(found(FILE, FileKind::Directory)),
        root_cache(),
    );
    let mounted = mount::Mounted {
        root: handle(FILE),
        flavors: vec![1],
    };
    let reply = mount_reply(&mut bench, mount::Procedure::Mnt);
    assert_eq!(reply, mount::Reply::Mnt(Ok(mounted)));
    assert_eq!(bench.door.calls(), 0);

    mnt(&mut bench, b"/");
    let asked = bench.asked_one();
    assert_asked(
        &asked.request.operation,
        &SiteOperation::GetAttributes { file: ROOT },
    );
    bench.answer(asked.id, Ok(SiteAnswer::Done), root_cache());
    let reply = mount_reply(&mut bench, mount::Procedure::Mnt);
    assert!(matches!(reply, mount::Reply::Mnt(Ok(m)) if m.root == handle(ROOT)));
}

/// Goal: paths that cannot be mounted are told apart.
#[test]
fn mount_refuses_with_a_reason() {
    let mut config = config();
    config.exports[0].path = b"/data".to_vec();
    let mut private = Export::local(ExportId(2), b"/data/private", ROOT);
    private.rules.networks = vec!["10.0.0.0/8".parse().expect("a network")];
    config.exports.push(private);
    let mut bench = Bench::new(config);
    let at_once = [
        (&b"/"[..], mount::Status::NoEnt),
        (b"/database", mount::Status::NoEnt),
        (b"/data/private/x", mount::Status::Acces),
        (b"/data/../x", mount::Status::Inval),
        (&[b'/'; 5000], mount::Status::NameTooLong),
    ];
    for (path, status) in at_once {
        mnt(&mut bench, path);
        let reply = mount_reply(&mut bench, mount::Procedure::Mnt);
        assert_eq!(reply, mount::Reply::Mnt(Err(status)));
    }
    let answered = [
        (Err(SiteError::NotFound), mount::Status::NoEnt),
        (Err(SiteError::Busy), mount::Status::ServerFault),
        (Ok(found()), mount::Status::NotDir),
    ];
    for (outcome, status) in answered {
        mnt(&mut bench, b"/data/x");
        let asked = bench.asked_one();
        bench.answer(asked.id, outcome, root_cache());
        let reply = mount_reply(&mut bench, mount::Procedure::Mnt);
        assert_eq!(reply, mount::Reply::Mnt(Err(status)));
    }
}

/// Goal: the other MOUNT procedures answer without state.
#[test]
fn mount_lists_exports() {
    let mut bench = bench();
    let call = |bench: &mut Bench, procedure: mount::Procedure, call: &mount::Call<'_>| {
        let header = header(9, mount::PROGRAM, 3, procedure.number());
        bench.receive(record(&header, call));
        mount_reply(bench, procedure)
    };
    let reply = call(&mut bench, mount::Procedure::Export, &mount::Call::Export);
    let groups = ["127.0.0.0/8", "::1/128"].map(Bytes::from).to_vec();
    let path = Bytes::from_static(b"/");
    let expected = mount::Reply::Export(vec![mount::Export { path, groups }]);
    assert_eq!(reply, expected);
    let umnt = mount::Call::Umnt(Path(b"/"));
    let reply = call(&mut bench, mount::Procedure::Umnt, &umnt);
    assert_eq!(reply, mount::Reply::Umnt);
    let reply = call(&mut bench, mount::Procedure::Umntall, &mount::Call::Umntall);
    assert_eq!(reply, mount::Reply::Umntall);
    let reply = call(&mut bench, mount::Procedure::Dump, &mount::Call::Dump);
    assert_eq!(reply, mount::Reply::Dump(vec![]));
}

/// Mounts the root of an export.
fn mount_root(bench: &mut Bench, path: &[u8]) {
    mnt(bench, path);
    let asked = bench.asked_one();
    bench.answer(asked.id, Ok(SiteAnswer::Done), root_cache());
    let reply = mount_reply(bench, mount::Procedure::Mnt);
    assert!(matches!(reply, mount::Reply::Mnt(Ok(_))), "{reply:?}");
}

/// Goal: DUMP lists who has mounted what, once each; UMNT and UMNTALL take it
/// away, and so does the end of the export.
#[test]
fn mounts_are_listed() {
    let mut config = config();
    config.exports = vec![
        Export::local(ExportId(1), b"/a", ROOT),
        Export::local(ExportId(2), b"/b", ROOT),
    ];
    let exports = config.exports.clone();
    let mut bench = Bench::from(config, "[::1]:700");
    let call = |bench: &mut Bench, call: &mount::Call<'_>| {
        let header = header(9, mount::PROGRAM, 3, call.procedure().number());
        bench.receive(record(&header, call));
        mount_reply(bench, call.procedure())
    };
    let dump = |bench: &mut Bench| match call(bench, &mount::Call::Dump) {
        mount::Reply::Dump(mounts) => mounts
            .into_iter()
            .map(|mount| (mount.host, mount.path))
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let of = |path: &'static str| (Bytes::from("::1"), Bytes::from(path));
    for path in [&b"/a"[..], b"/b", b"/a"] {
        mount_root(&mut bench, path);
    }
    assert_eq!(dump(&mut bench), [of("/b"), of("/a")]);
    mnt(&mut bench, b"/c");
    let refused = mount_reply(&mut bench, mount::Procedure::Mnt);
    assert!(matches!(refused, mount::Reply::Mnt(Err(_))));
    let reply = call(&mut bench, &mount::Call::Umnt(Path(b"/a/")));
    assert_eq!(reply, mount::Reply::Umnt);
    assert_eq!(dump(&mut bench), [of("/b")]);
    mount_root(&mut bench, b"/a");
    bench.input(NfsInput::Exports(exports[..1].to_vec()));
    assert_eq!(dump(&mut bench), [of("/a")]);
    let reply = call(&mut bench, &mount::Call::Umntall);
    assert_eq!(reply, mount::Reply::Umntall);
    assert_eq!(dump(&mut bench), []);
}
