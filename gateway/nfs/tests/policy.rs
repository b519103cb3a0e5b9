//! Which way the bytes of READs go.

mod support;

use std::sync::Arc;

use bytes::Bytes;
use crossdock_names::{ExportId, FileId, FileRef, LayoutClass};
use crossdock_nfs::{Export, NfsDoor, NfsEffect, NfsInput};
use crossdock_nfs3::{Call, Path, call, mount};
use crossdock_peer::{
    FileKind, Flow, Policy, PolicyConditions, PolicyRule, RelayedBytes, SiteAnswer, SiteReply,
    TransferMode, Transport, WeakCache,
};
use crossdock_router::{RoutedReply, Waited};
use support::*;

const DIRECTORY: FileRef = FileRef {
    id: FileId(20),
    generation: 1,
};
const LONG: u32 = 1 << 20;

fn door() -> NfsDoor {
    let mut door = bench().door;
    let flow = Flow {
        transport: Transport::Tcp,
        source: "198.18.2.1:2049".parse().expect("an address"),
        destination: "198.18.5.1:700".parse().expect("an address"),
    };
    door.handle(NOW, NfsInput::Flow(CONN, flow));
    door
}

fn set(door: &mut NfsDoor, rules: &[(FileRef, TransferMode)]) {
    let rules = rules.iter().map(|&(place, mode)| {
        let when = PolicyConditions::default();
        (place, PolicyRule { mode, when })
    });
    let policy = Policy {
        rules: rules.collect(),
        ..Policy::default()
    };
    door.handle(NOW, NfsInput::Policy(Arc::new(policy)));
}

fn routed(id: crossdock_peer::CallId, answer: SiteAnswer) -> NfsInput {
    NfsInput::Reply(Box::new(RoutedReply {
        reply: SiteReply {
            id,
            outcome: Ok(answer),
            subject: cache(FILE, FileKind::Regular),
            second: WeakCache::default(),
        },
        verifier: VERIFIER,
        waited: Waited::default(),
    }))
}

fn answer(door: &mut NfsDoor, id: crossdock_peer::CallId, answer: SiteAnswer) {
    door.handle(NOW, routed(id, answer));
    while door.poll_effect().is_some() {}
}

/// Whether nodes are to send what a READ of so many bytes of [`FILE`] asks for.
fn is_injected(door: &mut NfsDoor, count_bytes: u32) -> bool {
    let handle = handle(FILE);
    let read = Call::Read(call::Read {
        file: handle.as_handle(),
        offset: 0,
        count_bytes,
    });
    door.handle(NOW, NfsInput::Received(CONN, nfs(7, &read)));
    let mut asked = None;
    while let Some(effect) = door.poll_effect() {
        match effect {
            NfsEffect::ReadFor(_, _, call) => asked = Some((true, call)),
            NfsEffect::Router(call) | NfsEffect::ReadHot(call) => asked = Some((false, call)),
            _ => {}
        }
    }
    let (is_injected, call) = asked.expect("a read");
    let read = SiteAnswer::Read {
        payload: Bytes::from(vec![0; count_bytes as usize]).into(),
        end_of_file: false,
    };
    answer(door, call.id, read);
    is_injected
}

/// A client looks [`FILE`], or another one, up.
fn look_up(door: &mut NfsDoor, directory: FileRef, found: FileRef, kind: FileKind) {
    let directory = handle(directory);
    let lookup = Call::Lookup(in_root(&directory, b"name"));
    door.handle(NOW, NfsInput::Received(CONN, nfs(8, &lookup)));
    let mut asked = None;
    while let Some(effect) = door.poll_effect() {
        if let NfsEffect::Router(call) = effect {
            asked = Some(call.id);
        }
    }
    let found = SiteAnswer::Found {
        attributes: attributes(found, kind),
        layout: LayoutClass::STRIPED,
        placement: found.id,
    };
    answer(door, asked.expect("a look-up"), found);
}

/// Goal: without rules the length decides; what the gateway sends itself is counted by why.
#[test]
fn long_reads_are_injected() {
    let mut door = door();
    assert!(is_injected(&mut door, LONG));
    assert!(!is_injected(&mut door, 1000));
    set(&mut door, &[(FILE, TransferMode::Relay)]);
    assert!(!is_injected(&mut door, LONG));
    let relayed = RelayedBytes {
        short_bytes: 1000,
        by_rule_bytes: LONG.into(),
        ..RelayedBytes::default()
    };
    assert_eq!(door.relayed_bytes(), relayed);
    // A client cannot be sent elsewhere over NFS.
    set(&mut door, &[(FILE, TransferMode::Redirect)]);
    assert!(is_injected(&mut door, LONG));
}

/// Goal: rules of a directory count for what was found in it and below; those of the export,
/// and of what that lies in, whatever was looked up.
#[test]
fn rules_of_directories_count_below() {
    let mut door = door();
    set(&mut door, &[(DIRECTORY, TransferMode::Relay)]);
    assert!(is_injected(&mut door, LONG), "it is not known to be there");
    let between = FileRef {
        id: FileId(21),
        generation: 1,
    };
    look_up(&mut door, DIRECTORY, between, FileKind::Directory);
    look_up(&mut door, between, FILE, FileKind::Regular);
    assert!(!is_injected(&mut door, LONG));
    let nearer = [
        (DIRECTORY, TransferMode::Relay),
        (between, TransferMode::Inject),
    ];
    set(&mut door, &nearer);
    assert!(is_injected(&mut door, LONG));

    set(&mut door, &[(ROOT, TransferMode::Relay)]);
    assert!(!is_injected(&mut door, LONG));
    let outside = FileRef {
        id: FileId(22),
        generation: 1,
    };
    set(&mut door, &[(outside, TransferMode::Relay)]);
    assert!(is_injected(&mut door, LONG));
    let mut export = Export::local(ExportId(1), b"/a/b", ROOT);
    export.above = vec![outside];
    door.handle(NOW, NfsInput::Exports(vec![export]));
    assert!(!is_injected(&mut door, LONG));
}

/// Goal: a file that is read again and again comes through the gateway, where that keeps any.
#[test]
fn hot_files_come_through_the_gateway() {
    let mut door = door();
    let policy = Policy {
        hot_file_bytes_max: 1000,
        ..Policy::default()
    };
    door.handle(NOW, NfsInput::Policy(Arc::new(policy)));
    assert!(is_injected(&mut door, LONG));
    // It has five bytes, as the reply says.
    assert!(!is_injected(&mut door, LONG));
    assert_eq!(door.relayed_bytes().hot_bytes, LONG.into());
    set(&mut door, &[]);
    assert!(is_injected(&mut door, LONG));
}

/// Goal: who mounts a directory below an export has found it on the way there.
#[test]
fn a_mount_finds_directories() {
    let mut door = door();
    set(&mut door, &[(DIRECTORY, TransferMode::Relay)]);
    let between = FileRef {
        id: FileId(21),
        generation: 1,
    };
    let mount = mount::Call::Mnt(Path(b"/dir/sub"));
    let mount = record(&header(9, mount::PROGRAM, mount::VERSION, 1), &mount);
    door.handle(NOW, NfsInput::Received(CONN, mount));
    for found in [DIRECTORY, between] {
        let Some(NfsEffect::Router(call)) = door.poll_effect() else {
            panic!("no look-up");
        };
        let found = SiteAnswer::Found {
            attributes: attributes(found, FileKind::Directory),
            layout: LayoutClass::STRIPED,
            placement: found.id,
        };
        door.handle(NOW, routed(call.id, found));
    }
    while door.poll_effect().is_some() {}
    look_up(&mut door, between, FILE, FileKind::Regular);
    assert!(!is_injected(&mut door, LONG));
}
