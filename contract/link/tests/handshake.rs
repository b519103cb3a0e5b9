//! Who may talk to whom.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_link::{
    CloseReason, FrameError, Identity, Link, LinkConfig, LinkEffect, LinkInput, Message,
    PROTOCOL_VERSION, Refusal, RefusalKind, Role,
};
use crossdock_names::{Epoch, HostId};
use crossdock_types::Time;

mod pair;

use pair::frames::{config, pair_of};
use pair::{Pair, Side};

/// Goal: both sides learn who the other one is, its role and its table.
#[test]
fn hosts_get_to_know_each_other() {
    let mut gateway = config(1);
    gateway.role = Role::Gateway;
    gateway.table_epoch = Epoch(7);
    gateway.connection = 5;
    gateway.expected = Some(HostId(2));
    let mut node = config(2);
    node.role = Role::Node;
    node.table_epoch = Epoch(8);
    let pair = pair_of(1, gateway, node);
    let [at_gateway, at_node] = &pair.sides;
    let found = at_gateway.link.peer().expect("ready");
    assert_eq!(
        (found.host, found.role, found.table_epoch),
        (HostId(2), Role::Node, Epoch(8))
    );
    let found = at_node.link.peer().expect("ready");
    assert_eq!((found.host, found.role), (HostId(1), Role::Gateway));
    assert_eq!((found.table_epoch, found.connection), (Epoch(7), 5));
}

/// Tries to connect, and gives both sides' reasons for the end.
fn refused(connects: LinkConfig, accepts: LinkConfig) -> (CloseReason, CloseReason) {
    let mut pair = Pair::new(2, Link::connect(connects), Link::accept(accepts));
    pair.run(Duration::from_secs(1));
    let [connected, accepted] = &pair.sides;
    let reason = |side: &Side| side.closed().expect("closed").clone();
    (reason(connected), reason(accepted))
}

fn refusal_of(reason: &CloseReason) -> &Refusal {
    match reason {
        CloseReason::Refused(refusal) | CloseReason::RefusedByPeer(refusal) => refusal,
        other => panic!("{other}"),
    }
}

/// Goal: who does not belong here is told why, in words that name both, and
/// both sides can log them.
#[test]
fn strangers_are_refused_with_a_clear_message() {
    let mut other_ensemble = config(1);
    other_ensemble.ensemble = 0xabc;
    let mut old = config(1);
    old.versions = (0, 0);
    let mut new = config(1);
    new.versions = (PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 2);
    let newer = format!(
        "versions {} to {}",
        PROTOCOL_VERSION + 1,
        PROTOCOL_VERSION + 2
    );
    let mut mistaken = config(1);
    mistaken.expected = Some(HostId(77));
    let cases = [
        (other_ensemble, RefusalKind::Ensemble, "0000000000000abc"),
        (old, RefusalKind::Version, "versions 0 to 0"),
        (new, RefusalKind::Version, &newer),
        (mistaken, RefusalKind::Host, "000000000000004d was expected"),
        (config(2), RefusalKind::Host, "itself"),
    ];
    for (config_of_caller, kind, words) in cases {
        let (connected, accepted) = refused(config_of_caller, config(2));
        for reason in [&connected, &accepted] {
            let refusal = refusal_of(reason);
            assert_eq!(refusal.kind(), kind, "{reason}");
            assert!(refusal.text.contains(words), "{}", refusal.text);
            assert!(reason.to_string().contains(words));
        }
        assert_ne!(connected, accepted, "one refuses, one is refused");
    }
}

/// Goal: where certificates are wanted, a host without one, or with one that says
/// something else than it says itself, is refused by either side, and both read why.
#[test]
fn what_a_host_says_must_be_in_its_certificate() {
    let certified = |ensemble, role| {
        Some(Identity {
            ensemble,
            roles: vec![role],
            gateway: (role == Role::Gateway).then(|| Arc::from("gateway-a")),
        })
    };
    let wanting = |id, role| {
        let mut config = config(id);
        config.role = role;
        config.wants_certificate = true;
        config
    };
    let ours = config(1).ensemble;
    let good = [certified(ours, Role::Gateway), certified(ours, Role::Node)];
    let meet = |shown: [Option<Identity>; 2]| {
        let connects = Link::connect(wanting(1, Role::Gateway));
        let accepts = Link::accept(wanting(2, Role::Node));
        let mut pair = Pair::new(2, connects, accepts);
        let [by_gateway, by_node] = shown;
        let shown = [(0, by_node), (1, by_gateway)];
        for (side, identity) in shown {
            if let Some(identity) = identity {
                let input = LinkInput::Certified(identity);
                pair.sides[side].link.handle(Time::default(), input);
            }
        }
        pair.run(Duration::from_secs(1));
        pair
    };
    let pair = meet(good.clone());
    assert!(pair.sides.iter().all(|side| side.link.peer().is_some()));
    let name = pair
        .sides
        .iter()
        .filter_map(|side| side.link.peer()?.gateway.as_deref());
    assert_eq!(name.collect::<Vec<_>>(), ["gateway-a"]);
    let nameless = certified(ours, Role::Gateway).map(|identity| Identity {
        gateway: None,
        ..identity
    });
    let cases = [
        (0, nameless, "does not name a gateway"),
        (0, None, "has shown no certificate"),
        (1, None, "has shown no certificate"),
        (
            0,
            certified(0xabc, Role::Gateway),
            "ensemble 0000000000000abc",
        ),
        (0, certified(ours, Role::Manager), "is for a manager"),
        (1, certified(ours, Role::Gateway), "is for a gateway"),
    ];
    for (side, identity, words) in cases {
        let mut shown = good.clone();
        shown[side] = identity;
        let pair = meet(shown);
        for side in &pair.sides {
            let refusal = refusal_of(side.closed().expect("closed"));
            assert_eq!(refusal.kind(), RefusalKind::Certificate);
            let text = &refusal.text;
            assert!(
                text.contains(words) && text.contains("cluster join"),
                "{text}"
            );
        }
    }
}

/// Goal: a role that a later version has is refused, on both sides of the
/// handshake.
#[test]
fn unknown_roles_are_refused() {
    let now = Time::from_secs(1);
    let hello = |link: &mut Link| {
        link.handle(now, LinkInput::Timeout);
        let Some(LinkEffect::Transmit(pieces)) = link.poll_effect() else {
            panic!("no hello");
        };
        Message::decode(now, &pieces.concat().into())
    };
    let mut link = Link::connect(config(1));
    let Ok(Some(Message::Hello(mut message))) = hello(&mut link) else {
        panic!("no hello");
    };
    message.role = 9;
    let bytes = Message::Hello(message).encode(now).expect("hello");
    let mut accepts = Link::accept(config(2));
    accepts.handle(now, LinkInput::Received(bytes.to_bytes()));
    let effects: Vec<_> = std::iter::from_fn(|| accepts.poll_effect()).collect();
    let [LinkEffect::Transmit(pieces), LinkEffect::Close(reason)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert!(reason.flushes());
    assert_eq!(refusal_of(reason).kind(), RefusalKind::Role);
    assert!(reason.to_string().contains("role 9 of host"), "{reason}");
    // The other side gets the same words.
    link.handle(now, LinkInput::Received(pieces.concat().into()));
    let Some(LinkEffect::Close(theirs)) = link.poll_effect() else {
        panic!("not closed");
    };
    assert_eq!(refusal_of(&theirs), refusal_of(reason));
}

/// Goal: of the versions that both speak the newest is used.
#[test]
fn the_newest_common_version_is_used() {
    let (mut old, mut new) = (config(1), config(2));
    old.versions = (1, 3);
    new.versions = (2, 5);
    let pair = pair_of(3, old, new);
    for side in &pair.sides {
        assert_eq!(side.link.peer().expect("ready").version, 3);
    }
}

/// Goal: what is no peer of ours is left, and says why.
#[test]
fn what_makes_no_sense_ends_the_link() {
    let http = Bytes::from_static(b"GET / HTTP/1.1\r\nHost: storage\r\n\r\n");
    let early = Message::Ping.encode(Time::default()).expect("ping");
    let cases = [(http, true), (early.to_bytes(), false)];
    for (bytes, is_broken) in cases {
        let mut link = Link::accept(config(1));
        link.handle(Time::from_secs(1), LinkInput::Received(bytes));
        let Some(LinkEffect::Close(reason)) = link.poll_effect() else {
            panic!("not closed");
        };
        let is = matches!(&reason, CloseReason::Broken(FrameError::Magic(_)));
        assert_eq!(is, is_broken, "{reason}");
        assert!(!reason.flushes());
    }
    // And who says nothing at all.
    let mut link = Link::accept(config(1));
    assert_eq!(link.poll_timeout(), Some(Time::default()));
    link.handle(Time::from_secs(1), LinkInput::Timeout);
    assert_eq!(link.poll_timeout(), Some(Time::from_secs(4)));
    link.handle(Time::from_secs(4), LinkInput::Timeout);
    let effect = link.poll_effect();
    assert!(matches!(
        effect,
        Some(LinkEffect::Close(CloseReason::NoHandshake(_)))
    ));
}
