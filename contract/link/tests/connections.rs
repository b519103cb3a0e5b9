//! Hosts that lose each other and find each other again.

use std::time::Duration;

use bytes::Bytes;
use crossdock_limits::LINK_HANDSHAKES_MAX;
use crossdock_link::{
    CloseReason, Connections, ConnectionsConfig, ConnectionsEffect, ConnectionsInput, Hello,
    LinkConfig, LinkId, Message, PROTOCOL_VERSION, RefusalKind, Role,
};
use crossdock_names::{Epoch, HostId};
use crossdock_types::Time;

mod world;

use world::World;

const SECOND: Duration = Duration::from_secs(1);

/// Goal: hosts that all want each other end up with one connection for each two,
/// whoever of them connects first.
#[test]
fn hosts_that_connect_to_each_other_share_one_connection() {
    for seed in 0..30 {
        let mut world = World::new(seed, 4);
        let ids: Vec<HostId> = world.hosts.iter().map(|host| host.id).collect();
        for host in 0..4 {
            for other in ids.iter().filter(|id| **id != ids[host]) {
                world.give(host, ConnectionsInput::Connect(*other));
            }
            if seed % 2 == 0 {
                world.run(Duration::from_millis(3));
            }
        }
        world.run(5 * SECOND);
        for one in 0..4 {
            assert_eq!(world.hosts[one].ready.len(), 3, "seed {seed}");
            assert_eq!(world.hosts[one].connections.peers().count(), 3);
            for other in one + 1..4 {
                assert_eq!(world.streams_between(one, other), 1, "seed {seed}");
            }
        }
    }
}

/// Goal: whatever is cut, every call has one answer or is reported as lost, no
/// call comes after a later one, and when the network is well again all hosts
/// are connected again soon.
#[test]
fn calls_end_and_never_come_late_whatever_is_cut() {
    let (mut answered, mut lost, mut superseded, mut silent, mut cancelled) = (0, 0, 0, 0, 0);
    for seed in 0..25 {
        let mut world = World::new(seed, 3);
        for (host, other) in [(0, 1), (1, 0), (1, 2), (2, 0), (0, 2)] {
            let peer = world.hosts[other].id;
            world.give(host, ConnectionsInput::Connect(peer));
        }
        for _ in 0..150 {
            for _ in 0..3 {
                let from = world.random.index(3);
                let to = (from + 1 + world.random.index(2)) % 3;
                world.call(from, to);
            }
            match world.random.below(20) {
                0 => world.cut_one(),
                1 => world.connects = !world.connects,
                _ => {}
            }
            let pause = Duration::from_millis(world.random.between(0, 300));
            world.run(pause);
        }
        world.connects = true;
        world.run(40 * SECOND);
        for host in 0..3 {
            assert_eq!(world.hosts[host].ready.len(), 2, "seed {seed}");
        }
        // The last ones that are never answered end with their connections.
        let ids: Vec<HostId> = world.hosts.iter().map(|host| host.id).collect();
        for host in 0..3 {
            for id in &ids {
                world.give(host, ConnectionsInput::Forget(*id));
            }
        }
        world.run(SECOND);
        for host in &world.hosts {
            assert!(host.waiting.is_empty(), "seed {seed}: {:?}", host.waiting);
            assert!(host.ready.is_empty());
            answered += host.answered;
            lost += host.lost;
            cancelled += host.cancelled;
            let count =
                |is: fn(&CloseReason) -> bool| host.closed.iter().filter(|it| is(it)).count();
            superseded += count(|it| matches!(it, CloseReason::Superseded));
            silent += count(|it| matches!(it, CloseReason::Silent(_)));
        }
    }
    // It was not all sunshine, and not all rain.
    assert!(answered > 1000 && lost > 100, "{answered} {lost}");
    assert!(
        superseded > 10 && silent > 10 && cancelled > 10,
        "{superseded} {silent} {cancelled}"
    );
}

fn connections(host: u64) -> Connections {
    let link = LinkConfig::new(5, HostId(host), Role::All);
    Connections::new(ConnectionsConfig::new(link, host))
}

fn hello(connection: u64) -> Bytes {
    hello_to(connection, None)
}

fn hello_to(connection: u64, expected: Option<HostId>) -> Bytes {
    let hello = Message::Hello(Hello {
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        ensemble: 5,
        host: HostId(9),
        role: Role::Gateway as u8,
        connection,
        table_epoch: Epoch(1),
        call_window_bytes: 1000,
        reply_window_bytes: 1000,
        expected,
    });
    hello.encode(Time::default()).expect("hello").to_bytes()
}

fn effects(of: &mut Connections) -> Vec<ConnectionsEffect> {
    std::iter::from_fn(|| of.poll_effect()).collect()
}

fn closed(effects: &[ConnectionsEffect]) -> Vec<(LinkId, CloseReason)> {
    let closed = effects.iter().filter_map(|effect| match effect {
        ConnectionsEffect::Close { link, reason, .. } => Some((*link, reason.clone())),
        _ => None,
    });
    closed.collect()
}

/// Goal: whoever has connected for somebody else, who had this address before, is
/// refused, and the connection that there is stays, however high the other's number.
#[test]
fn a_connection_for_somebody_else_ends_nothing() {
    let now = Time::from_secs(1);
    let mut host = connections(2);
    let there = host.accept(now);
    let for_us = hello_to(1, Some(HostId(2)));
    host.handle(now, ConnectionsInput::Received(there, for_us));
    assert!(closed(&effects(&mut host)).is_empty());
    let lost = host.accept(now);
    let for_another = hello_to(7, Some(HostId(1)));
    host.handle(now, ConnectionsInput::Received(lost, for_another));
    let told = effects(&mut host);
    let [(link, CloseReason::Refused(refusal))] = &closed(&told)[..] else {
        panic!("{told:?}");
    };
    assert_eq!((*link, refusal.kind()), (lost, RefusalKind::Host));
    assert_eq!(host.peers().count(), 1);
}

/// Goal: a newer connection of the same host ends the older one before anything
/// else of it is heard, an older one is refused, and what the older one still
/// sends is dropped (history `late-write`).
#[test]
fn a_zombie_is_not_heard() {
    let now = Time::from_secs(1);
    let mut host = connections(2);
    let older = host.accept(now);
    host.handle(now, ConnectionsInput::Received(older, hello(3)));
    assert!(matches!(
        effects(&mut host)[..],
        [ConnectionsEffect::Transmit(..), ConnectionsEffect::Ready(_),]
    ));
    let newer = host.accept(now);
    host.handle(now, ConnectionsInput::Received(newer, hello(4)));
    let told = effects(&mut host);
    let [
        ConnectionsEffect::Close {
            link,
            reason: CloseReason::Superseded,
            ..
        },
        ConnectionsEffect::Gone { peer: HostId(9) },
        ConnectionsEffect::Transmit(to, _),
        ConnectionsEffect::Ready(peer),
    ] = &told[..]
    else {
        panic!("{told:?}");
    };
    assert_eq!((*link, *to, peer.connection), (older, newer, 4));
    // The older one speaks: nobody hears it.
    let ping = Message::Ping.encode(now).expect("ping").to_bytes();
    host.handle(now, ConnectionsInput::Received(older, ping));
    assert!(effects(&mut host).is_empty());
    // It comes back, with a number that is not newer.
    for number in [3, 4] {
        let again = host.accept(now);
        host.handle(now, ConnectionsInput::Received(again, hello(number)));
        let told = closed(&effects(&mut host));
        let [(link, CloseReason::Refused(refusal))] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!((*link, refusal.kind()), (again, RefusalKind::Superseded));
        assert_eq!(refusal.connection, 4);
    }
    assert_eq!(host.peers().count(), 1);
}

/// Goal: also after the newer one has ended an older one does not come back.
#[test]
fn a_zombie_does_not_come_back_after_the_end() {
    let now = Time::from_secs(1);
    let mut host = connections(2);
    let newer = host.accept(now);
    host.handle(now, ConnectionsInput::Received(newer, hello(4)));
    host.handle(now, ConnectionsInput::Closed(newer));
    effects(&mut host);
    let older = host.accept(now);
    host.handle(now, ConnectionsInput::Received(older, hello(3)));
    let told = closed(&effects(&mut host));
    assert!(
        matches!(&told[..], [(_, CloseReason::Refused(_))]),
        "{told:?}"
    );
}

/// Goal: attempts to connect come at growing pauses, with jitter, and none while
/// one is under way; a host that is not wanted any more is left alone.
#[test]
fn attempts_come_at_growing_pauses() {
    let mut host = connections(2);
    let mut now = Time::from_secs(1);
    host.handle(now, ConnectionsInput::Connect(HostId(9)));
    host.handle(now, ConnectionsInput::Connect(HostId(9)));
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let told = effects(&mut host);
        let [ConnectionsEffect::Dial { link, peer }] = told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(peer, HostId(9));
        host.handle(now, ConnectionsInput::Closed(link));
        assert_eq!(closed(&effects(&mut host)), [(link, CloseReason::Ended)]);
        let next = host.poll_timeout().expect("another attempt");
        pauses.push(next - now);
        now = next;
        host.handle(now, ConnectionsInput::Timeout);
    }
    let ms = Duration::from_millis;
    assert!((ms(50)..=ms(100)).contains(&pauses[0]), "{pauses:?}");
    assert!((ms(200)..=ms(400)).contains(&pauses[2]), "{pauses:?}");
    let longest = &pauses[7..];
    assert!(longest.iter().all(|it| (ms(2500)..=ms(5000)).contains(it)));
    assert!(longest.windows(2).any(|two| two[0] != two[1]), "{pauses:?}");
    host.handle(now, ConnectionsInput::Forget(HostId(9)));
    let told = closed(&effects(&mut host));
    assert!(matches!(told[..], [(_, CloseReason::Unwanted)]));
    assert_eq!(host.poll_timeout(), None);
}

/// Goal: an attempt to which nobody answers ends, and is made again.
#[test]
fn an_attempt_without_answer_ends() {
    let mut host = connections(2);
    let now = Time::from_secs(1);
    host.handle(now, ConnectionsInput::Connect(HostId(9)));
    effects(&mut host);
    let at = host.poll_timeout().expect("an end");
    assert_eq!(at, Time::from_secs(4));
    host.handle(at, ConnectionsInput::Timeout);
    let told = closed(&effects(&mut host));
    assert!(
        matches!(told[..], [(_, CloseReason::NoHandshake(_))]),
        "{told:?}"
    );
    assert!(host.poll_timeout().is_some_and(|next| next <= at + SECOND));
}

/// Goal: hosts that connect and say nothing are bounded, and told so.
#[test]
fn strangers_are_bounded() {
    let mut host = connections(2);
    let now = Time::from_secs(1);
    for _ in 0..LINK_HANDSHAKES_MAX {
        host.accept(now);
        assert!(effects(&mut host).is_empty());
    }
    let one_more = host.accept(now);
    let told = closed(&effects(&mut host));
    let [(link, CloseReason::Refused(refusal))] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((*link, refusal.kind()), (one_more, RefusalKind::Full));
    let later = now + 3 * SECOND;
    host.handle(later, ConnectionsInput::Timeout);
    assert_eq!(closed(&effects(&mut host)).len(), LINK_HANDSHAKES_MAX);
    assert_eq!(host.poll_timeout(), None);
}

/// Goal: a host of another ensemble is tried seldom, and both say why it is not
/// connected.
#[test]
fn a_hopeless_connection_is_tried_seldom() {
    let mut host = connections(2);
    let now = Time::from_secs(1);
    host.handle(now, ConnectionsInput::Connect(HostId(9)));
    let told = effects(&mut host);
    let [ConnectionsEffect::Dial { link, .. }] = told[..] else {
        panic!("{told:?}");
    };
    host.handle(now, ConnectionsInput::Opened(link));
    let told = effects(&mut host);
    let [ConnectionsEffect::Transmit(_, greeting)] = &told[..] else {
        panic!("{told:?}");
    };
    let other = LinkConfig::new(6, HostId(9), Role::All);
    let mut other = Connections::new(ConnectionsConfig::new(other, 1));
    let theirs = other.accept(now);
    let greeting = greeting.concat().into();
    other.handle(now, ConnectionsInput::Received(theirs, greeting));
    let told = effects(&mut other);
    let [
        ConnectionsEffect::Transmit(_, answer),
        ConnectionsEffect::Close { reason, .. },
    ] = &told[..]
    else {
        panic!("{told:?}");
    };
    let answer = answer.concat().into();
    host.handle(now, ConnectionsInput::Received(link, answer));
    let ours = &closed(&effects(&mut host))[0].1;
    for reason in [reason, ours] {
        assert!(
            reason.to_string().contains("of ensemble 0000000000000005"),
            "{reason}"
        );
    }
    let pause = host.poll_timeout().expect("another attempt") - now;
    assert!(pause >= Duration::from_millis(2500), "{pause:?}");
}
