//! The key of handles of format 1 comes from a manager (docs/decisions/0028), and comes
//! after the door.

mod support;

use crossdock_names::{ExportId, HandleKey, Proof, ProofKey};
use crossdock_nfs::{DoorConfig, NfsEffect, NfsInput};
use crossdock_nfs3::call::Getattr;
use crossdock_nfs3::{Call, HandleBuffer, Reply, Status};
use crossdock_peer::{SiteAnswer, SiteOperation};

use support::*;

/// What [`keys`] are made of.
const KEY: HandleKey = HandleKey {
    id: 1,
    key: [5; 32],
};

/// A door that has not been told.
fn waiting() -> Bench {
    Bench::new(DoorConfig {
        keys: None,
        ..config()
    })
}

fn get<'a>(handle: &'a HandleBuffer) -> Call<'a> {
    let object = handle.as_handle();
    Call::Getattr(Getattr { object })
}

/// Nothing is asked and nothing said.
fn assert_waits(bench: &mut Bench) {
    let effects = std::mem::take(&mut bench.effects);
    let is_pause = |effect: &NfsEffect| matches!(effect, NfsEffect::Pause(_));
    assert!(effects.iter().all(is_pause), "{effects:?}");
    assert_eq!(bench.replies(), Vec::<bytes::Bytes>::new());
}

fn assert_goes_on(bench: &mut Bench) {
    bench
        .effects
        .retain(|effect| !matches!(effect, NfsEffect::Resume(_)));
    let asked = bench.asked_one();
    let attributes = SiteOperation::GetAttributes { file: ROOT };
    assert_asked(&asked.request.operation, &attributes);
    bench.answer(asked.id, Ok(SiteAnswer::Done), root_cache());
    let (_, reply) = decode(crossdock_nfs3::Procedure::Getattr, &bench.reply());
    assert_eq!(reply, Reply::Getattr(Ok(shown_root())));
}

/// Goal: before the door has a key, calls wait: nobody is told that a true handle is
/// forged, nor to begin anew what another gateway may have done.
#[test]
fn calls_wait_for_the_key() {
    let mut bench = waiting();
    let handle = handle(ROOT);
    bench.receive(nfs(1, &get(&handle)));
    assert_waits(&mut bench);
    let datagram = message(
        &header(2, crossdock_nfs3::PROGRAM, crossdock_nfs3::VERSION, 1),
        &Getattr {
            object: handle.as_handle(),
        },
    );
    bench.input(NfsInput::Datagram(address("127.0.0.1:700"), datagram));
    assert_waits(&mut bench);
    bench.input(NfsInput::HandleKey(KEY));
    assert_goes_on(&mut bench);
}

/// Goal: a scoped gateway needs no key: it takes and makes handles of format 2 only.
#[test]
fn a_scoped_door_needs_no_key() {
    let mut bench = waiting();
    let own = handle(ROOT);
    bench.receive(nfs(1, &get(&own)));
    assert_waits(&mut bench);
    bench.input(NfsInput::Scoped(true));
    bench
        .effects
        .retain(|effect| !matches!(effect, NfsEffect::Resume(_)));
    let (_, reply) = decode(crossdock_nfs3::Procedure::Getattr, &bench.reply());
    assert_eq!(reply.status(), Some(Status::Stale));
    let short = HandleBuffer::new(&[1; 8]).expect("it fits");
    let reply = bench.at_once(&get(&short));
    assert_eq!(reply.status(), Some(Status::BadHandle));

    let key = ProofKey {
        id: 1,
        key: [3; 32],
    };
    let root = Proof::new(&key, VOLUME, ExportId(1), ROOT);
    bench.door.learn([root]);
    let proven = HandleBuffer::new(&root.to_handle(VOLUME)).expect("it fits");
    let (_, reply) = bench.round(&get(&proven), Ok(SiteAnswer::Done), root_cache());
    assert_eq!(reply, Reply::Getattr(Ok(shown_root())));

    // Let out of its scope it waits until it is told.
    bench.input(NfsInput::Scoped(false));
    bench.receive(nfs(1, &get(&own)));
    assert_waits(&mut bench);
    bench.input(NfsInput::HandleKey(KEY));
    assert_goes_on(&mut bench);
}
