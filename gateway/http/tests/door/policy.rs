//! Which way the bytes of responses go.

use std::sync::Arc;

use crossdock_http::{ConnId, HttpInput};
use crossdock_names::FileRef;
use crossdock_peer::{
    BulkRequest, FileKind, Policy, PolicyConditions, PolicyRule, RelayedBytes, TransferMode,
};

use crate::reading::{get, pattern, with};
use crate::rig::Rig;

/// Of a file that nodes send without a rule.
const BYTES: usize = 1_200_000;

fn always(mode: TransferMode) -> PolicyRule {
    let when = PolicyConditions::default();
    PolicyRule { mode, when }
}

fn rule(rig: &mut Rig, rules: Vec<(FileRef, PolicyRule)>) {
    let policy = Policy {
        rules,
        ..Policy::default()
    };
    rig.input(HttpInput::Policy(Arc::new(policy)));
}

/// Whether nodes were to send what this request is answered with.
fn is_injected(rig: &mut Rig, id: ConnId, request: &str) -> bool {
    rig.flows.clear();
    rig.send(id, request);
    rig.settle();
    rig.named.clear();
    !rig.flows.is_empty()
}

/// Goal: rules of a directory count for all below it, the nearest first, by the request and
/// its length; from the next request on; what is not injected is counted by why.
#[test]
fn rules_say_which_way_bytes_go() {
    let mut rig = Rig::new();
    let file = rig.put("/dir/sub/big.bin", FileKind::Regular, vec![1; BYTES]);
    rig.put("/other.bin", FileKind::Regular, vec![1; BYTES]);
    rig.put("/dir/short.bin", FileKind::Regular, vec![1; 1000]);
    let directory = rig.file("/dir");
    let (id, _) = rig.connect_for_nodes();
    assert!(is_injected(&mut rig, id, &get("/dir/sub/big.bin")));
    assert!(!is_injected(&mut rig, id, &get("/dir/short.bin")));
    let short = RelayedBytes {
        short_bytes: 1000,
        ..RelayedBytes::default()
    };
    assert_eq!(rig.door.figures().relayed, short);

    let relay = (directory, always(TransferMode::Relay));
    rule(&mut rig, vec![relay]);
    assert!(!is_injected(&mut rig, id, &get("/dir/sub/big.bin")));
    assert!(is_injected(&mut rig, id, &get("/other.bin")));
    let by_rule = RelayedBytes {
        by_rule_bytes: BYTES as u64,
        ..short
    };
    assert_eq!(rig.door.figures().relayed, by_rule);

    let ranges = PolicyRule {
        mode: TransferMode::Inject,
        when: PolicyConditions {
            request: Some(BulkRequest::Range),
            from_bytes: Some(5000),
            ..PolicyConditions::default()
        },
    };
    rule(&mut rig, vec![relay, (file, ranges)]);
    let range = |bytes: u32| with("/dir/sub/big.bin", &format!("Range: bytes=0-{}", bytes - 1));
    assert!(!is_injected(&mut rig, id, &get("/dir/sub/big.bin")));
    assert!(is_injected(&mut rig, id, &range(5000)));
    assert!(!is_injected(&mut rig, id, &range(4999)));
}

/// Goal: a directory's own page is in that directory.
#[test]
fn a_page_lies_in_its_directory() {
    let mut rig = Rig::new();
    rig.put("/dir/index.html", FileKind::Regular, vec![b'x'; BYTES]);
    let directory = rig.file("/dir");
    let (id, _) = rig.connect_for_nodes();
    assert!(is_injected(&mut rig, id, &get("/dir/")));
    let relay = (directory, always(TransferMode::Relay));
    rule(&mut rig, vec![relay]);
    assert!(!is_injected(&mut rig, id, &get("/dir/")));
}

/// Goal: a client that may be sent elsewhere is sent to the node that has all of its range;
/// where none has, or it asked in secret, it is served here. What it says about the file's tag
/// a node cannot judge.
#[test]
fn clients_are_sent_to_nodes() {
    let mut rig = Rig::new();
    let file = rig.put("/dir/big.bin", FileKind::Regular, pattern(BYTES));
    rule(&mut rig, vec![(file, always(TransferMode::Redirect))]);
    let (id, _) = rig.connect_for_nodes();
    let request = with("/dir/big.bin", "Range: bytes=70000-79999");
    let url = "http://198.18.0.3:8080/o/1";
    let located = |rig: &mut Rig, id, url: Option<&str>| {
        rig.settle();
        let (of, wanted) = rig.wanted.pop().expect("asked");
        let names = ["dir", "big.bin"].map(bytes::Bytes::from).to_vec();
        assert_eq!(
            (of, wanted.names, wanted.range),
            (id, names, 70_000..80_000)
        );
        rig.input(HttpInput::Located(id, url.map(str::to_owned)));
        rig.settle();
        rig.response(id)
    };
    rig.send(id, &request);
    let response = located(&mut rig, id, Some(url));
    assert_eq!(
        (response.status, response.header("location")),
        (307, Some(url))
    );
    assert_eq!(rig.door.figures().redirected_bytes, 10_000);

    rig.send(id, &request);
    let response = located(&mut rig, id, None);
    assert_eq!((response.status, response.body.len()), (206, 10_000));
    rig.input(HttpInput::Secure(id));
    rig.send(id, &request);
    assert_eq!(located(&mut rig, id, Some(url)).status, 206);
    rig.send(id, &request);
    let secret = located(&mut rig, id, Some("https://198.18.0.3/o/1"));
    assert_eq!(secret.status, 307);

    let tagged = "Range: bytes=70000-79999\r\nIf-Range: \"x\"";
    let tagged = with("/dir/big.bin", tagged);
    rig.send(id, &tagged);
    rig.settle();
    assert!(rig.wanted.is_empty());
    assert_eq!(rig.response(id).status, 200);
    rig.send(id, &request);
    rig.settle();
    rig.input(HttpInput::Closed(id));
    rig.input(HttpInput::Located(id, Some(url.to_owned())));
    assert_eq!(rig.door.calls(), 0);
}

/// Goal: a file that is read again and again comes through the gateway, which keeps it, where
/// it keeps any and no rule says otherwise.
#[test]
fn hot_files_are_kept() {
    let mut rig = Rig::new();
    let file = rig.put("/hot.bin", FileKind::Regular, vec![1; BYTES]);
    let (id, _) = rig.connect_for_nodes();
    let policy = Policy {
        hot_file_bytes_max: BYTES as u64,
        ..Policy::default()
    };
    rig.input(HttpInput::Policy(Arc::new(policy.clone())));
    for _ in 0..2 {
        assert!(is_injected(&mut rig, id, &get("/hot.bin")));
    }
    assert!(rig.kept.is_empty());
    assert!(!is_injected(&mut rig, id, &get("/hot.bin")));
    assert!(!rig.kept.is_empty());
    assert_eq!(rig.door.figures().relayed.hot_bytes, BYTES as u64);
    let always = Policy {
        rules: vec![(file, always(TransferMode::Inject))],
        ..policy
    };
    rig.input(HttpInput::Policy(Arc::new(always)));
    assert!(is_injected(&mut rig, id, &get("/hot.bin")));
}
