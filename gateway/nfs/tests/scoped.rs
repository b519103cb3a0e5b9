//! A gateway that is scoped to exports: handles of format 2 (docs/decisions/0028).

mod support;

use crossdock_names::{ExportId, FileRef, HANDLE_BYTES, Proof, ProofKey};
use crossdock_nfs::{Export, NfsInput};
use crossdock_nfs3::call::{Getattr, Rename};
use crossdock_nfs3::{Call, HandleBuffer, Reply, Status, mount};
use crossdock_peer::{FileKind, SiteAnswer, SiteError, SiteOperation};

use support::*;

fn proof(export: u32, file: FileRef) -> Proof {
    let key = ProofKey {
        id: 1,
        key: [3; 32],
    };
    Proof::new(&key, VOLUME, ExportId(export), file)
}

fn proven(proof: &Proof) -> HandleBuffer {
    HandleBuffer::new(&proof.to_handle(VOLUME)).expect("it fits")
}

fn scoped() -> Bench {
    let mut bench = bench();
    bench.input(NfsInput::Scoped(true));
    bench
}

fn get<'a>(handle: &'a HandleBuffer) -> Call<'a> {
    let object = handle.as_handle();
    Call::Getattr(Getattr { object })
}

/// Goal: of a handle that it has not seen the door asks a manager, before anything else is
/// asked for it; afterwards it knows the handle.
#[test]
fn an_unknown_handle_is_checked_once() {
    let mut bench = scoped();
    let root = proof(1, ROOT);
    let handle = proven(&root);
    bench.receive(nfs(1, &get(&handle)));
    let asked = bench.asked_one();
    let prove = SiteOperation::Prove { proof: root };
    assert_asked(&asked.request.operation, &prove);
    assert!(!bench.door.has_proofs());
    bench.answer(asked.id, Ok(SiteAnswer::Done), Default::default());
    let asked = bench.asked_one();
    let attributes = SiteOperation::GetAttributes { file: ROOT };
    assert_asked(&asked.request.operation, &attributes);
    assert_eq!(asked.request.caller.uid, 1000);
    assert_eq!(bench.door.proofs_of(ROOT), [root]);
    bench.answer(asked.id, Ok(SiteAnswer::Done), root_cache());
    let (_, reply) = decode(crossdock_nfs3::Procedure::Getattr, &bench.reply());
    assert_eq!(reply, Reply::Getattr(Ok(shown_root())));

    let done = Ok(SiteAnswer::Done);
    let (request, _) = bench.round(&get(&handle), done, root_cache());
    assert_asked(&request.operation, &attributes);
}

/// Goal: what a manager does not confirm is told as it says, and nothing else is asked:
/// whatever the door knows of the file through others.
#[test]
fn a_forged_handle_gets_nothing() {
    let mut bench = scoped();
    bench.door.learn([proof(1, FILE)]);
    let mut forged = proof(1, FILE);
    forged.mac[3] ^= 1;
    let elsewhere = Proof {
        export: ExportId(2),
        ..proof(1, FILE)
    };
    let mut exports = config().exports;
    exports.push(Export::local(ExportId(2), b"/x", FILE));
    bench.input(NfsInput::Exports(exports));
    for proof in [forged, elsewhere] {
        for (error, status) in [
            (SiteError::NotProven, Status::BadHandle),
            (SiteError::Stale, Status::Stale),
            (SiteError::Busy, Status::Jukebox),
        ] {
            let handle = proven(&proof);
            let (request, reply) = bench.round(&get(&handle), Err(error), Default::default());
            assert_asked(&request.operation, &SiteOperation::Prove { proof });
            assert_eq!(reply.status(), Some(status));
        }
    }
    // What no manager would make is not even asked.
    let handle = proof(1, FILE).to_handle(VOLUME);
    for at in [2, 3, 8, 16, 28, 32, 40] {
        let mut bytes = handle;
        bytes[at] ^= 0x80;
        let handle = HandleBuffer::new(&bytes).expect("it fits");
        let reply = bench.at_once(&get(&handle));
        assert_eq!(reply.status(), Some(Status::BadHandle), "byte {at}");
    }
    assert_eq!(handle.len(), HANDLE_BYTES);
}

/// Goal: a call with two handles has both checked.
#[test]
fn both_handles_of_a_rename_are_checked() {
    let mut bench = scoped();
    let other = FileRef {
        id: crossdock_names::FileId(77),
        generation: 1,
    };
    let (from, to) = (proof(1, ROOT), proof(1, other));
    let (source, target) = (proven(&from), proven(&to));
    let call = Call::Rename(Rename {
        source: in_root(&source, b"a"),
        target: in_root(&target, b"b"),
    });
    bench.receive(nfs(1, &call));
    for proof in [to, from] {
        let asked = bench.asked_one();
        assert_asked(&asked.request.operation, &SiteOperation::Prove { proof });
        bench.answer(asked.id, Ok(SiteAnswer::Done), Default::default());
    }
    let asked = bench.asked_one();
    assert!(asked.request.duplicate.is_some());
    assert!(matches!(
        asked.request.operation,
        SiteOperation::Rename { .. }
    ));
}

/// Goal: handles in replies are made of what managers have proved; without that a look-up
/// is tried again.
#[test]
fn replies_have_handles_of_format_2() {
    let mut bench = scoped();
    bench.door.learn([proof(1, ROOT)]);
    let root = proven(&proof(1, ROOT));
    let lookup = Call::Lookup(in_root(&root, b"file"));
    let (_, reply) = bench.round(&lookup, Ok(found()), root_cache());
    assert_eq!(reply.status(), Some(Status::Jukebox));
    bench.door.learn([proof(1, FILE)]);
    let (_, reply) = bench.round(&lookup, Ok(found()), root_cache());
    let Reply::Lookup(Ok(reply)) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(reply.object, proven(&proof(1, FILE)));
}

/// Goal: under a scope a handle that gateways make with their own keys is stale, and MOUNT
/// gives one of format 2; without one a call is answered in the format of its handles.
#[test]
fn the_scope_decides_what_handles_are_taken_and_made() {
    let mut bench = scoped();
    let own = handle(ROOT);
    let reply = bench.at_once(&get(&own));
    assert_eq!(reply.status(), Some(Status::Stale));
    let forged = forged();
    let reply = bench.at_once(&Call::Getattr(Getattr { object: forged }));
    assert_eq!(reply.status(), Some(Status::BadHandle));

    bench.door.learn([proof(1, ROOT), proof(1, FILE)]);
    let path = mount::Call::Mnt(crossdock_nfs3::Path(b"/"));
    let header = header(7, mount::PROGRAM, mount::VERSION, 1);
    bench.receive(record(&header, &path));
    let asked = bench.asked_one();
    let cache = cache(ROOT, FileKind::Directory);
    bench.answer(asked.id, Ok(SiteAnswer::Done), cache);
    let reply = bench.reply();
    let handle = proof(1, ROOT).to_handle(VOLUME);
    let has = reply.windows(HANDLE_BYTES).any(|bytes| bytes == handle);
    assert!(has, "{reply:?}");

    bench.input(NfsInput::Scoped(false));
    let lookup = Call::Lookup(in_root(&own, b"file"));
    let (_, reply) = bench.round(&lookup, Ok(found()), root_cache());
    let Reply::Lookup(Ok(reply)) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(reply.object, support::handle(FILE));
    let root = proven(&proof(1, ROOT));
    let lookup = Call::Lookup(in_root(&root, b"file"));
    let (_, reply) = bench.round(&lookup, Ok(found()), root_cache());
    let Reply::Lookup(Ok(reply)) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(reply.object, proven(&proof(1, FILE)));
}
