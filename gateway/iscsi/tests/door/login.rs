//! Logins: who is let in, what is agreed on, which targets there are.

use crossdock_iscsi::{IscsiInput, Portals};
use crossdock_iscsi_pdu::{
    Head, Response, Stage, TextRequest, encode_binary, encode_text, opcode, parse_binary,
    parse_text,
};
use crossdock_peer::{ChapSecret, ChapUser, InitiatorRule};
use md5::{Digest, Md5};

use crate::rig::{Ended, Initiator, Rig, TARGET, lun, ten, transit};

const SECRET: &str = "a-secret-of-sixteen";
const OURS: &str = "another-secret-of-ours";

fn guarded() -> Rig {
    let mut rig = Rig::new();
    let user = |user: &str, secret: &str| {
        Some(ChapUser {
            user: user.to_owned(),
            secret: ChapSecret(secret.to_owned()),
        })
    };
    let rule = InitiatorRule {
        chap: user("alice", SECRET),
        mutual: user("target", OURS),
        ..InitiatorRule::open("iqn.2026-11.example:1")
    };
    if let Some(lun) = rig.luns.get_mut(&1) {
        lun.access.initiators.push(rule);
    }
    rig.tell_luns();
    rig
}

fn md5(id: &str, secret: &str, challenge: &str) -> String {
    let mut hash = Md5::new();
    hash.update([id.parse::<u8>().expect("a number")]);
    hash.update(secret.as_bytes());
    hash.update(parse_binary(challenge, 1024).expect("bytes"));
    encode_binary(&hash.finalize())
}

fn value<'a>(pairs: &'a [(String, String)], key: &str) -> &'a str {
    let found = pairs.iter().find(|(name, _)| name == key);
    found.map_or("", |(_, value)| value.as_str())
}

/// Up to the challenge.
fn challenged(rig: &mut Rig) -> (Initiator, Vec<(String, String)>) {
    let mut initiator = Initiator::new(rig, 1);
    let mut flags = transit(Stage::Security, Stage::Operational);
    flags.is_transit = false;
    let who = [
        ("InitiatorName", "iqn.2026-11.example:1"),
        ("TargetName", TARGET),
        ("AuthMethod", "CHAP,None"),
    ];
    let (status, pairs) = initiator.say(rig, flags, &who);
    assert_eq!((status, value(&pairs, "AuthMethod")), ((0, 0), "CHAP"));
    assert_eq!(value(&pairs, "TargetPortalGroupTag"), "1");
    let (status, pairs) = initiator.say(rig, flags, &[("CHAP_A", "6,5")]);
    assert_eq!((status, value(&pairs, "CHAP_A")), ((0, 0), "5"));
    (initiator, pairs)
}

/// Goal: both sides prove themselves, and then agree on the rest.
#[test]
fn both_sides_prove_themselves() {
    let mut rig = guarded();
    let (mut initiator, told) = challenged(&mut rig);
    let proof = md5(value(&told, "CHAP_I"), SECRET, value(&told, "CHAP_C"));
    let flags = transit(Stage::Security, Stage::Operational);
    let theirs = [
        ("CHAP_N", "alice"),
        ("CHAP_R", &proof),
        ("CHAP_I", "9"),
        ("CHAP_C", "0x0102030405060708"),
    ];
    let (status, pairs) = initiator.say(&mut rig, flags, &theirs);
    assert_eq!((status, value(&pairs, "CHAP_N")), ((0, 0), "target"));
    assert_eq!(
        value(&pairs, "CHAP_R"),
        md5("9", OURS, "0x0102030405060708")
    );
    let flags = transit(Stage::Operational, Stage::FullFeature);
    let (status, pairs) = initiator.say(&mut rig, flags, &[("HeaderDigest", "None")]);
    assert_eq!(status, (0, 0));
    assert_eq!(value(&pairs, "MaxRecvDataSegmentLength"), "262144");
    assert_ne!(initiator.tsih, 0);
}

/// Goal: a wrong secret, a wrong name, our own challenge given back, and leaving the proof out
/// are all refused, and two challenges are never the same.
#[test]
fn who_does_not_prove_himself_is_refused() {
    let flags = transit(Stage::Security, Stage::Operational);
    let mut rig = guarded();
    let mut seen = Vec::new();
    for (user, secret) in [("alice", "a-wrong-secret-it-is"), ("bob", SECRET)] {
        let (mut initiator, told) = challenged(&mut rig);
        seen.push(value(&told, "CHAP_C").to_owned());
        let proof = md5(value(&told, "CHAP_I"), secret, value(&told, "CHAP_C"));
        let said = [("CHAP_N", user), ("CHAP_R", &proof)];
        assert_eq!(initiator.say(&mut rig, flags, &said).0, (2, 1));
        assert_eq!(rig.ended.get(&initiator.id), Some(&Ended::Closed));
    }
    assert_ne!(seen[0], seen[1]);
    let (mut initiator, told) = challenged(&mut rig);
    let (id, challenge) = (value(&told, "CHAP_I"), value(&told, "CHAP_C"));
    let proof = md5(id, SECRET, challenge);
    let said = [
        ("CHAP_N", "alice"),
        ("CHAP_R", &proof),
        ("CHAP_I", id),
        ("CHAP_C", challenge),
    ];
    assert_eq!(initiator.say(&mut rig, flags, &said).0, (2, 1));
    let mut initiator = Initiator::new(&mut rig, 1);
    let who = [
        ("InitiatorName", "iqn.2026-11.example:1"),
        ("TargetName", TARGET),
    ];
    let skipped = transit(Stage::Operational, Stage::FullFeature);
    assert_eq!(initiator.say(&mut rig, skipped, &who).0, (2, 1));
    let mut initiator = Initiator::new(&mut rig, 1);
    let none = [who[0], who[1], ("AuthMethod", "None")];
    assert_eq!(initiator.say(&mut rig, flags, &none).0, (2, 1));
}

/// Goal: each way in which a login cannot be has its own status, and ends the connection.
#[test]
fn logins_that_cannot_be_are_refused() {
    let to_full = transit(Stage::Operational, Stage::FullFeature);
    let name = ("InitiatorName", "iqn.2026-11.example:1");
    for (pairs, status) in [
        (vec![("TargetName", TARGET)], (2, 7)),
        (vec![name], (2, 7)),
        (vec![name, ("TargetName", "iqn.other:disk")], (2, 3)),
        (
            vec![name, ("TargetName", "iqn.2026-11.io.crossdock:b")],
            (2, 3),
        ),
        (vec![name, ("SessionType", "Other")], (2, 9)),
        (vec![name, ("TargetName", TARGET), name], (2, 0)),
        (
            vec![
                name,
                ("TargetName", TARGET),
                ("FirstBurstLength", "65536"),
                ("MaxBurstLength", "512"),
            ],
            (2, 0),
        ),
    ] {
        let mut rig = Rig::new();
        let mut initiator = Initiator::new(&mut rig, 1);
        let (given, _) = initiator.say(&mut rig, to_full, &pairs);
        assert_eq!(given, status, "{pairs:?}");
        assert_eq!(rig.ended.get(&initiator.id), Some(&Ended::Closed));
    }
    let mut rig = Rig::new();
    let mut initiator = Initiator::new(&mut rig, 1);
    initiator.id = rig.connect_from("10.0.0.1:999");
    let who = [name, ("TargetName", TARGET)];
    assert_eq!(initiator.say(&mut rig, to_full, &who).0, (2, 2));
    let mut initiator = Initiator::new(&mut rig, 1);
    initiator.tsih = 77;
    assert_eq!(initiator.say(&mut rig, to_full, &who).0, (2, 10));
}

/// Goal: who goes round in circles, or says nothing, is not kept.
#[test]
fn endless_logins_end() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::new(&mut rig, 1);
    let mut flags = transit(Stage::Operational, Stage::FullFeature);
    flags.is_transit = false;
    let who = [
        ("InitiatorName", "iqn.2026-11.example:1"),
        ("TargetName", TARGET),
    ];
    assert_eq!(initiator.say(&mut rig, flags, &who).0, (0, 0));
    let mut rounds = 1;
    while initiator.say(&mut rig, flags, &[]).0 == (0, 0) {
        rounds += 1;
        assert!(rounds < 100, "it goes on");
    }
    assert_eq!(rounds, 64);
    let silent = rig.connect_from("127.0.0.1:1");
    rig.now = crossdock_types::Time::from_secs(15);
    rig.give(crossdock_iscsi::IscsiInput::Timeout);
    assert_eq!(rig.ended.get(&silent), None);
    rig.now = crossdock_types::Time::from_secs(16);
    rig.give(crossdock_iscsi::IscsiInput::Timeout);
    assert_eq!(rig.ended.get(&silent), Some(&Ended::Aborted));
}

/// Goal: discovery tells the targets that the initiator may use, with the address that it
/// came to; a list that is too long for one PDU goes on.
#[test]
fn discovery_tells_what_may_be_used() {
    let mut rig = Rig::new();
    for number in 2..60 {
        rig.luns
            .insert(number, lun(number, &format!("disk{number}")));
    }
    if let Some(lun) = rig.luns.get_mut(&3) {
        lun.access.initiators = vec![InitiatorRule::open("iqn.somebody.else")];
    }
    rig.tell_luns();
    let initiator = Initiator::new(&mut rig, 1);
    let pairs = discover(&mut rig, initiator);
    let names = pairs.iter().filter(|(key, _)| key == "TargetName");
    assert_eq!(names.count(), 58, "all but one");
    let addresses = pairs.iter().filter(|(key, _)| key == "TargetAddress");
    assert!(
        addresses
            .clone()
            .all(|(_, value)| value == "127.0.0.1:3260,1")
    );
    assert_eq!(addresses.count(), 58);
}

/// What a discovery session tells of all targets, part by part.
fn discover(rig: &mut Rig, mut initiator: Initiator) -> Vec<(String, String)> {
    let flags = transit(Stage::Operational, Stage::FullFeature);
    let who = [
        ("InitiatorName", "iqn.2026-11.example:1"),
        ("SessionType", "Discovery"),
        ("MaxRecvDataSegmentLength", "1024"),
    ];
    assert_eq!(initiator.say(rig, flags, &who).0, (0, 0));
    let mut text = Vec::new();
    let mut transfer = u32::MAX;
    let mut question = encode_text([("SendTargets", "All")]).to_vec();
    loop {
        let header = TextRequest {
            head: Head::new(opcode::TEXT, 0x80),
            task_tag: 5.into(),
            transfer_tag: transfer.into(),
            cmd_sn: initiator.cmd_sn.into(),
            ..TextRequest::default()
        };
        initiator.cmd_sn += 1;
        initiator.send(rig, &header, &question);
        question.clear();
        let Some((Response::Text(header), data)) = rig.receive(initiator.id).pop() else {
            panic!("no answer");
        };
        assert!(data.len() <= 1024);
        text.extend_from_slice(&data.to_bytes());
        transfer = header.transfer_tag.get();
        if header.head.is_final() {
            break;
        }
    }
    parse_text(&text).expect("a text")
}

fn two_gateways(others: &[(&str, u16)], virtual_ones: &[(&str, u16)]) -> Portals {
    let parsed = |all: &[(&str, u16)]| {
        let all = all.iter();
        let parsed = all.map(|(address, port)| (address.parse().expect("an address"), *port));
        parsed.collect()
    };
    Portals {
        own: vec!["0.0.0.0:3260".parse().expect("an address")],
        port: 4,
        others: parsed(others),
        virtual_ones: parsed(virtual_ones),
    }
}

/// Goal: each gateway tells of all, with the number of its port; of those that have gone no more;
/// the loopback address of another machine only on this one.
#[test]
fn discovery_tells_of_all_gateways() {
    let told = |rig: &mut Rig, at: &str| -> Vec<String> {
        let initiator = Initiator::at(rig, 1, at);
        let pairs = discover(rig, initiator).into_iter();
        let addresses = pairs.filter(|(key, _)| key == "TargetAddress");
        addresses.map(|(_, value)| value).collect()
    };
    let mut rig = Rig::new();
    let others = [
        ("10.0.0.2:3260", 7),
        ("127.0.0.1:3261", 9),
        ("10.0.0.3:860", 5),
    ];
    let virtual_ones = [("10.0.0.50:3260", 2), ("10.0.0.51:860", 3)];
    let portals = two_gateways(&others, &virtual_ones);
    rig.give(IscsiInput::Portals(portals));
    assert_eq!(
        told(&mut rig, "10.0.0.1:3260"),
        ["10.0.0.1:3260,4", "10.0.0.2:3260,7", "10.0.0.3:860,5"]
    );
    assert_eq!(told(&mut rig, "127.0.0.1:3260").len(), 4);
    assert_eq!(
        told(&mut rig, "10.0.0.50:3260"),
        ["10.0.0.50:3260,2", "10.0.0.51:860,3"]
    );
    rig.give(IscsiInput::Portals(two_gateways(&others[..1], &[])));
    assert_eq!(
        told(&mut rig, "10.0.0.1:3260"),
        ["10.0.0.1:3260,4", "10.0.0.2:3260,7"]
    );
}

/// Goal: a gateway that has no number yet lets nobody in: sessions would be with another port.
#[test]
fn nobody_is_let_in_without_a_port() {
    let mut rig = Rig::new();
    rig.give(IscsiInput::Portals(Portals::default()));
    let mut initiator = Initiator::new(&mut rig, 1);
    let flags = transit(Stage::Operational, Stage::FullFeature);
    let who = [
        ("InitiatorName", "iqn.2026-11.example:1"),
        ("TargetName", TARGET),
    ];
    assert_eq!(initiator.say(&mut rig, flags, &who).0, (3, 1));
}

/// Goal: what a unit says of its ports is what the login has said: the port that was come to, a
/// virtual one's own, and that all are equally near.
#[test]
fn a_unit_tells_its_ports() {
    let mut rig = Rig::new();
    let others = [("10.0.0.2:3260", 7), ("10.0.0.2:3261", 7)];
    let virtual_ones = [("127.0.0.50:3260", 2)];
    let portals = two_gateways(&others, &virtual_ones);
    rig.give(IscsiInput::Portals(portals));
    for (at, port) in [("127.0.0.1:3260", 4), ("127.0.0.50:3260", 2)] {
        let mut initiator = Initiator::at(&mut rig, 1, at);
        let flags = transit(Stage::Operational, Stage::FullFeature);
        let who = [
            ("InitiatorName", "iqn.2026-11.example:1"),
            ("TargetName", TARGET),
        ];
        let (status, answers) = initiator.say(&mut rig, flags, &who);
        assert_eq!(status, (0, 0));
        let tag = ("TargetPortalGroupTag".to_owned(), port.to_string());
        assert!(answers.contains(&tag), "{answers:?}");
        initiator.run(&mut rig, &[0; 6], (0, 0), b""); // It has started.
        let page = initiator.run(&mut rig, &[0x12, 1, 0x83, 0, 255, 0], (255, 0), b"");
        let relative = [0x51, 0x94, 0, 4, 0, 0, 0, port];
        let group = [0x51, 0x95, 0, 4, 0, 0, 0, 1];
        let name = format!("{TARGET},t,0x{port:04x}");
        for part in [&relative[..], &group, name.as_bytes()] {
            let mut places = page.data.windows(part.len());
            assert!(places.any(|place| place == part), "{part:02x?}");
        }
        let groups = [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
        let told = initiator.run(&mut rig, &groups, (255, 0), b"").data;
        let ports = [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 7];
        assert_eq!(told[..12], [0, 0, 0, 20, 0, 1, 0, 1, 0, 0, 0, 3]);
        assert_eq!(told[12..], ports);
    }
}

/// Goal: sessions with two ports are two, and so are their registrations, though an initiator
/// names them alike.
#[test]
fn ports_are_told_apart() {
    let mut rig = Rig::new();
    rig.give(IscsiInput::Portals(two_gateways(
        &[],
        &[("127.0.0.50:3260", 2)],
    )));
    let list = |key: u8| {
        let mut list = [0; 24];
        list[15] = key;
        list
    };
    let out = |action: u8| [0x5f, action, 1, 0, 0, 0, 0, 0, 24, 0];
    let mut paths = ["127.0.0.1:3260", "127.0.0.50:3260"].map(|at| {
        let mut initiator = Initiator::at(&mut rig, 1, at);
        initiator.log_in(&mut rig, &[]);
        initiator.run(&mut rig, &[0; 6], (0, 0), b""); // It has started.
        initiator
    });
    let registered = paths[0].run(&mut rig, &out(0), (0, 24), &list(5));
    assert!(registered.is_good(), "{registered:?}");
    let mut reserve = list(0);
    reserve[7] = 5;
    assert_eq!(
        paths[1].run(&mut rig, &out(1), (0, 24), &reserve).status,
        0x18
    );
    assert!(paths[0].run(&mut rig, &out(1), (0, 24), &reserve).is_good());
    assert!(paths[1].read(&mut rig, 0, 1).is_good());
    let write = paths[1].run(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    assert_eq!(write.status, 0x18);
    let registrants = &rig.luns[&1].reservations.registrants;
    assert_eq!(registrants[0].nexus.port, 4);
}
