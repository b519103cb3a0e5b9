//! Two links back to back, under simulated time.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use crossdock_fuzzing::Dice;
use crossdock_fuzzing::link as samples;
use crossdock_limits::LINK_CALLS_MAX;
use crossdock_link::{CallRef, CloseReason, Frame, Link, LinkInput, Message, Target};
use crossdock_names::{Epoch, FileId, Incarnation, NodeId, SiteId};
use crossdock_peer::{
    CallId, Caller, ListedLock, LockClient, LockOperation, LockOwner, LockRange, LockWanted,
    NodeError, NodeRequest, Port, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest,
    WeakCache,
};
use crossdock_types::{Payload, Time};

mod pair;

use pair::frames::{
    MIB, answer, call_ref, config, node_call, object, pair_of, read, site_call, write,
};
use pair::{LAN, Network, Pair, Told};

/// Goal: however bytes are cut and delayed, all frames of both directions come
/// as they were sent, in their order, also where the shell receives payloads.
#[test]
fn all_frames_arrive_in_order_through_any_cuts_and_delays() {
    let mut fills = 0;
    for seed in 0..6 {
        let (mut left, mut right) = (config(1), config(2));
        (left.fills, right.fills) = (seed % 2 == 1, seed % 3 == 1);
        let mut pair = pair_of(seed, left, right);
        pair.network.flight_bytes_max =
            [500, 50_000, 300_000][usize::try_from(seed % 3).expect("small")];
        pair.network.delay_max = Duration::from_micros(20);
        pair.network.chunk_bytes_max =
            [7, 1000, 100_000][usize::try_from(seed % 3).expect("small")];
        let mut dice = Dice::new(seed);
        let mut sent = [Vec::new(), Vec::new()];
        for (side, list) in sent.iter_mut().enumerate() {
            let all = samples::frames(&mut dice).into_iter();
            let soon = pair.now + Duration::from_secs(60);
            let mut frames: Vec<Frame> = all.filter_map(|frame| callable(frame, soon)).collect();
            frames.push(write(1, soon, 200_000));
            for frame in frames {
                pair.send(side, frame.clone());
                list.push(frame);
            }
        }
        pair.run(Duration::from_secs(20));
        for (side, list) in sent.iter().enumerate() {
            let came = pair.sides[1 - side].frames();
            let mut came: Vec<String> = came.iter().map(text).collect();
            let mut list: Vec<String> = list.iter().map(text).collect();
            // Calls keep their order, notices keep theirs.
            came.sort_by_key(|frame| frame.starts_with("Lock"));
            list.sort_by_key(|frame| frame.starts_with("Lock"));
            assert!(
                came == list,
                "seed {seed}: {} of {}",
                came.len(),
                list.len()
            );
        }
        fills += pair.sides[0].fills + pair.sides[1].fills;
    }
    assert!(fills >= 3, "{fills} payloads were received by the shell");
}

/// A frame that may be sent without having been asked for, in time.
fn callable(frame: Frame, soon: Time) -> Option<Frame> {
    match frame {
        Frame::NodeCall {
            from,
            to,
            mut call,
            capability,
            flow,
        } => {
            call.deadline = soon;
            Some(Frame::NodeCall {
                from,
                to,
                call,
                capability,
                flow,
            })
        }
        Frame::SiteCall {
            from,
            to,
            mut call,
            proofs,
        } => {
            call.deadline = soon;
            Some(Frame::SiteCall {
                from,
                to,
                call,
                proofs,
            })
        }
        Frame::Lock(_)
        | Frame::Renew { .. }
        | Frame::Granted { .. }
        | Frame::AskClock { .. }
        | Frame::Clock { .. }
        | Frame::Space { .. }
        | Frame::Defrag { .. }
        | Frame::Clients { .. }
        | Frame::Minting(_)
        | Frame::Proving(_)
        | Frame::Handling(_)
        | Frame::Recall(_)
        | Frame::Transfer(_) => Some(frame),
        _ => None,
    }
}

/// What counts of a frame: not the deadline, which is a little later.
fn text(frame: &Frame) -> String {
    match frame {
        Frame::NodeCall {
            from,
            to,
            call,
            capability,
            flow,
        } => {
            let payload = frame.payload().map(Payload::to_bytes);
            format!(
                "{from:?} {to} {:?} {payload:?} {:?} {capability:?} {flow:?}",
                call.id,
                kind(&call.request)
            )
        }
        Frame::SiteCall { to, call, .. } => {
            let payload = frame.payload().map(Payload::to_bytes);
            format!("{to} {:?} {payload:?} {:?}", call.id, call.request.caller)
        }
        other => format!("{other:?}"),
    }
}

fn kind(request: &NodeRequest) -> impl std::fmt::Debug {
    (std::mem::discriminant(request), request.object().copied())
}

/// Goal: two hosts that ask each other for more than the windows hold, with
/// answers that are larger than the windows, get every answer; and no more than
/// the windows is ever between them.
#[test]
fn hosts_that_wait_for_each_other_do_not_block_each_other() {
    for seed in 0..4 {
        let window = 100_000;
        let with_window = |host| {
            let mut config = config(host);
            (config.window_bytes, config.unsent_bytes_max) = (window, 300_000);
            config
        };
        let mut pair = pair_of(seed, with_window(1), with_window(2));
        let deadline = pair.now + Duration::from_secs(600);
        for id in 0..60 {
            for side in 0..2 {
                let frame = match id % 2 {
                    0 => write(id, deadline, 150_000),
                    _ => read(id, deadline, id),
                };
                pair.send(side, frame);
            }
        }
        let mut seen = [0, 0];
        let mut answers = [0, 0];
        let end = pair.now + Duration::from_secs(300);
        while answers != [60, 60] && pair.now < end {
            pair.step(end);
            for side in 0..2 {
                let frames = pair.sides[side].told[1..].to_vec();
                for told in &frames[seen[side]..] {
                    match told {
                        Told::Frame(frame @ Frame::NodeCall { .. }) => {
                            let reply = answer(frame).expect("a call");
                            pair.send(side, reply);
                        }
                        Told::Frame(Frame::NodeReply { .. }) => answers[side] += 1,
                        other => panic!("{other:?}"),
                    }
                }
                seen[side] = frames.len();
                let on_the_way = pair.sides[side].socket_bytes() + pair.sides[side].flight_bytes();
                assert!(on_the_way <= 2 * (window + MIB + 1000), "{on_the_way}");
            }
        }
        assert_eq!(answers, [60, 60], "seed {seed}");
    }
}

/// Goal: a host that takes nothing is sent no more than its window and one
/// message, what waits is bounded, the rest is busy; and all goes on when it
/// takes again.
#[test]
fn a_host_that_takes_nothing_bounds_what_waits() {
    let mut sender = config(1);
    sender.queue_bytes_max = 10 * MIB;
    let mut receiver = config(2);
    receiver.window_bytes = 4 * MIB;
    let mut pair = pair_of(5, sender, receiver);
    pair.sides[1].takes = false;
    let deadline = pair.now + Duration::from_secs(3600);
    for id in 0..40 {
        pair.send(0, write(id, deadline, MIB));
        pair.run(Duration::from_millis(20));
        assert!(pair.sides[0].link.queued_bytes() <= 10 * MIB);
    }
    let busy = |pair: &Pair| {
        let told = &pair.sides[0].told;
        told.iter()
            .filter(|told| matches!(told, Told::Busy(_)))
            .count()
    };
    let refused = busy(&pair);
    // Four or five in the window, nine in the queue.
    assert!((25..=28).contains(&refused), "{refused}");
    pair.sides[1].takes = true;
    pair.take(1);
    pair.run(Duration::from_millis(500));
    assert_eq!(pair.sides[1].frames().len(), 40 - refused);
    assert_eq!(
        (busy(&pair), pair.sides[0].link.queued_bytes()),
        (refused, 0)
    );
}

/// Goal: who sends more than it may is cut off.
#[test]
fn more_than_the_window_is_not_taken() {
    let mut small = config(2);
    small.window_bytes = 1000;
    let mut pair = Pair::new(6, Link::connect(config(1)), Link::accept(small));
    pair.run(Duration::from_millis(50));
    pair.sides[1].takes = false;
    let frame = Message::Frame(write(1, pair.now, 1000).by(Epoch(3)));
    let bytes = frame.encode(pair.now).expect("a call").to_bytes();
    pair.give(1, LinkInput::Received(bytes.clone()));
    pair.give(1, LinkInput::Received(bytes));
    pair.sides[1].takes = true;
    pair.take(1);
    let reason = pair.sides[1].closed().expect("closed");
    assert!(matches!(reason, CloseReason::Protocol(_)), "{reason}");
}

/// Goal: what the socket has not taken is bounded: more waits where it can be
/// cancelled, and goes when the socket has room.
#[test]
fn a_full_socket_keeps_calls_where_they_can_be_cancelled() {
    let mut pair = pair_of(7, config(1), config(2));
    pair.network = Network {
        flight_bytes_max: 10_000,
        ..LAN
    };
    let deadline = pair.now + Duration::from_secs(60);
    for id in 1..=5 {
        pair.send(0, write(id, deadline, MIB));
    }
    assert!(pair.sides[0].socket_bytes() < 2 * MIB + 1000);
    let cancel = |id| Frame::CancelNode {
        from: Port::Router,
        to: NodeId(4),
        id: CallId(id),
    };
    let queued_bytes = pair.sides[0].link.queued_bytes();
    for id in [1, 4, 4, 77] {
        pair.send(0, cancel(id));
    }
    // The fourth had not been sent: nobody hears of it.
    assert!(pair.sides[0].link.queued_bytes() < queued_bytes - MIB);
    pair.network = LAN;
    pair.run(Duration::from_secs(1));
    let came: Vec<(bool, u64)> = pair.sides[1]
        .frames()
        .iter()
        .map(|frame| match frame {
            Frame::NodeCall { call, .. } => (true, call.id.0),
            Frame::CancelNode { id, .. } => (false, id.0),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        came.iter().filter(|(is_call, _)| *is_call).count(),
        4,
        "{came:?}"
    );
    assert!(!came.contains(&(true, 4)));
    let cancels: Vec<_> = came.iter().filter(|(is_call, _)| !is_call).collect();
    assert_eq!(cancels, [&(false, 1)]);
    assert_eq!(pair.sides[0].link.calls(), 4);
}

/// Goal: what is said about a call never comes before it: a postponement of a call
/// that waits here goes behind it, one of a call that is on its way goes at once, and
/// of what is cancelled or unknown nobody hears.
#[test]
fn a_postponement_comes_after_its_call() {
    let mut pair = pair_of(7, config(1), config(2));
    pair.network = Network {
        flight_bytes_max: 10_000,
        ..LAN
    };
    let deadline = pair.now + Duration::from_secs(60);
    for id in 1..=4 {
        pair.send(0, write(id, deadline, MIB));
    }
    let (from, to) = (Port::Router, NodeId(4));
    let postpone = |id| Frame::PostponeNode {
        from,
        to,
        id: CallId(id),
        by_micros: 5,
    };
    for id in [1, 3, 77] {
        pair.send(0, postpone(id));
    }
    let id = CallId(4);
    pair.send(0, Frame::CancelNode { from, to, id });
    pair.send(0, postpone(4));
    let id = CallId(3);
    pair.send(0, Frame::ResumeNode { from, to, id });
    pair.network = LAN;
    pair.run(Duration::from_secs(1));
    let came: Vec<(&str, u64)> = pair.sides[1]
        .frames()
        .iter()
        .map(|frame| match frame {
            Frame::NodeCall { call, .. } => ("call", call.id.0),
            Frame::PostponeNode {
                id, by_micros: 5, ..
            } => ("postpone", id.0),
            Frame::ResumeNode { id, .. } => ("resume", id.0),
            other => panic!("{other:?}"),
        })
        .collect();
    let place = |what| came.iter().position(|&it| it == what);
    assert_eq!(came.len(), 6, "{came:?}");
    assert!(place(("call", 1)) < place(("postpone", 1)), "{came:?}");
    let third = ["call", "postpone", "resume"].map(|what| place((what, 3)));
    assert!(third.is_sorted() && third[0].is_some(), "{came:?}");
    assert!(place(("postpone", 1)) < third[0], "ahead of what waits");
}

/// Goal: a call that has waited here until nobody waits for its answer is not
/// sent any more.
#[test]
fn late_calls_are_not_sent() {
    let mut receiver = config(2);
    receiver.window_bytes = 1000;
    let mut pair = pair_of(8, config(1), receiver);
    pair.sides[1].takes = false;
    let later = pair.now + Duration::from_secs(3600);
    let soon = pair.now + Duration::from_millis(1500);
    pair.send(0, write(1, later, 5000));
    pair.send(0, write(2, soon, 5000));
    pair.send(0, write(3, later, 5000));
    for _ in 0..4 {
        pair.run(Duration::from_millis(900));
        // The host that takes nothing is alive.
        let ping = Message::Ping.encode(pair.now).expect("ping").to_bytes();
        pair.give(0, LinkInput::Received(ping));
    }
    assert_eq!(pair.sides[0].told[1..], [Told::Busy(call_ref(2))]);
}

/// Goal: an idle connection lives for ever; one that is cut is noticed by both
/// within the patience, and everybody who waits is told.
#[test]
fn a_dead_line_is_noticed_in_time() {
    let mut pair = pair_of(9, config(1), config(2));
    pair.run(Duration::from_secs(600));
    assert!(pair.sides.iter().all(|side| side.told.len() == 1));
    let deadline = pair.now + Duration::from_secs(60);
    pair.send(0, read(1, deadline, 0));
    pair.run(Duration::from_millis(10));
    let cut_at = pair.now;
    pair.cut();
    pair.send(0, read(2, deadline, 0));
    while pair.sides.iter().any(|side| side.closed().is_none()) {
        assert!(pair.step(cut_at + Duration::from_secs(10)));
    }
    assert!(
        pair.now - cut_at <= Duration::from_millis(3010),
        "{:?}",
        pair.now - cut_at
    );
    let [caller, callee] = &pair.sides;
    let lost: Vec<_> = caller.told[1..3].to_vec();
    assert_eq!(lost, [1, 2].map(|id| Told::Lost(call_ref(id))));
    assert!(matches!(caller.closed(), Some(CloseReason::Silent(_))));
    // The callee is told to stop what it does for the caller.
    let cancelled = Frame::CancelNode {
        from: Port::Router,
        to: NodeId(4),
        id: CallId(1),
    };
    assert_eq!(callee.frames().last(), Some(&cancelled));
    // Who asks now is answered, too.
    pair.send(0, read(3, deadline, 0));
    assert_eq!(pair.sides[0].told.last(), Some(&Told::Lost(call_ref(3))));
    assert_eq!(pair.sides[0].link.poll_timeout(), None);
}

/// Goal: a host that stood still itself asks before it gives the other one up.
#[test]
fn a_host_that_stood_still_asks_first() {
    let mut pair = pair_of(10, config(1), config(2));
    pair.now = pair.now + Duration::from_secs(60);
    pair.run(Duration::from_secs(10));
    assert!(pair.sides.iter().all(|side| side.closed().is_none()));
}

/// Goal: a large payload on a slow line that the shell receives by itself is no
/// sign of death.
#[test]
fn a_slow_line_is_not_a_dead_one() {
    let mut receiver = config(2);
    receiver.fills = true;
    let mut pair = pair_of(11, config(1), receiver);
    // About 200 KB in a second.
    pair.network = Network {
        delay_max: Duration::from_millis(100),
        chunk_bytes_max: 10_000,
        flight_bytes_max: 10_000,
    };
    let deadline = pair.now + Duration::from_secs(60);
    pair.send(0, write(1, deadline, MIB));
    pair.run(Duration::from_secs(30));
    assert_eq!((pair.sides[1].fills, pair.sides[1].frames().len()), (1, 1));
    assert!(pair.sides.iter().all(|side| side.closed().is_none()));
}

/// Goal: the end of the stream answers everybody, once.
#[test]
fn the_end_of_the_stream_answers_everybody() {
    let mut pair = pair_of(12, config(1), config(2));
    let deadline = pair.now + Duration::from_secs(60);
    let request = SiteRequest {
        caller: Caller::root(),
        duplicate: None,
        operation: SiteOperation::ReadLink {
            file: crossdock_names::FileRef {
                id: FileId(1),
                generation: 1,
            },
        },
    };
    pair.send(0, read(1, deadline, 0));
    pair.send(0, site_call(1, deadline, request));
    pair.run(Duration::from_millis(10));
    pair.give(0, LinkInput::Closed);
    pair.give(0, LinkInput::Closed);
    pair.give(1, LinkInput::Closed);
    let site = CallRef {
        port: Port::Router,
        to: Target::Site(SiteId(3)),
        id: CallId(1),
    };
    let end = Told::Closed(CloseReason::Ended);
    assert_eq!(
        pair.sides[0].told[1..],
        [Told::Lost(call_ref(1)), Told::Lost(site), end.clone()]
    );
    assert_eq!(pair.sides[1].told.last(), Some(&end));
    // An answer that comes too late goes nowhere.
    let reply = answer(&read(1, deadline, 0)).expect("a call");
    pair.send(1, reply);
    assert_eq!(pair.sides[1].told.last(), Some(&end));
}

/// Goal: an answer that nobody has asked for goes nowhere: neither is it sent,
/// nor is it handed on if another host sends it.
#[test]
fn answers_that_nobody_asked_for_go_nowhere() {
    let mut pair = pair_of(13, config(1), config(2));
    let reply = answer(&read(5, pair.now, 0)).expect("a call");
    pair.send(1, reply.clone());
    assert_eq!(pair.sides[1].link.queued_bytes(), 0);
    let bytes = Message::Frame(reply.by(Epoch(3)))
        .encode(pair.now)
        .expect("a reply");
    pair.give(0, LinkInput::Received(bytes.to_bytes()));
    pair.run(Duration::from_millis(10));
    assert!(pair.sides.iter().all(|side| side.told.len() == 1));
}

/// Goal: the answer to a read lies in memory as it lay in the object, like the
/// data of a write.
#[test]
fn answers_to_reads_keep_their_alignment() {
    let mut pair = pair_of(14, config(1), config(2));
    let deadline = pair.now + Duration::from_secs(60);
    for (id, offset) in [(1, 4097), (2, 8192)] {
        let call = read(id, deadline, offset);
        pair.send(0, call.clone());
        pair.run(Duration::from_millis(10));
        pair.send(1, answer(&call).expect("a call"));
        pair.run(Duration::from_millis(50));
        let frames = pair.sides[0].frames();
        let payload = frames.last().and_then(Frame::payload).expect("bytes");
        let place = payload.pieces()[0].as_ptr().addr();
        assert_eq!(u64::try_from(place % 4096).expect("small"), offset % 4096);
        assert_eq!((payload.len(), payload.pieces().len()), (MIB, 1));
    }
}

/// Goal: an answer that no message holds becomes "busy", and the link goes on.
#[test]
fn an_answer_that_is_too_long_becomes_busy() {
    let mut pair = pair_of(15, config(1), config(2));
    let deadline = pair.now + Duration::from_secs(60);
    let file = crossdock_names::FileRef {
        id: FileId(1),
        generation: 1,
    };
    let operation = SiteOperation::Locks {
        file,
        operation: LockOperation::List,
    };
    let request = SiteRequest {
        caller: Caller::root(),
        duplicate: None,
        operation,
    };
    pair.send(0, site_call(1, deadline, request));
    pair.run(Duration::from_millis(10));
    let owner = LockOwner {
        client: LockClient {
            name: Bytes::from(vec![b'n'; 250]),
            address: std::net::Ipv4Addr::LOCALHOST.into(),
        },
        process: 1,
        handle: Bytes::from(vec![1; 250]),
    };
    let lock = LockWanted {
        owner,
        range: LockRange { first: 0, last: 9 },
        is_exclusive: true,
    };
    let listed = ListedLock {
        file: 1,
        lock,
        is_waiting: false,
    };
    let reply = SiteReply {
        id: CallId(1),
        outcome: Ok(SiteAnswer::Locked(vec![listed; 20_000])),
        subject: WeakCache::default(),
        second: WeakCache::default(),
    };
    let to = Port::Router;
    let proofs = Vec::new();
    pair.send(
        1,
        Frame::SiteReply {
            to,
            reply: Box::new(reply),
            proofs,
        },
    );
    pair.run(Duration::from_millis(10));
    let frames = pair.sides[0].frames();
    let Some(Frame::SiteReply { reply, .. }) = frames.last() else {
        panic!("{frames:?}");
    };
    assert_eq!(reply.outcome, Err(SiteError::Busy));
}

/// Goal: answers that find no room lose their bytes and not their way.
#[test]
fn answers_without_room_say_busy() {
    let (mut asking, mut asked) = (config(1), config(2));
    asked.queue_bytes_max = 2 * MIB;
    asking.window_bytes = 10_000;
    let mut pair = pair_of(16, asking, asked);
    let deadline = pair.now + Duration::from_secs(60);
    let calls: Vec<Frame> = (0..20).map(|id| read(id, deadline, 0)).collect();
    for call in &calls {
        pair.send(0, call.clone());
    }
    pair.run(Duration::from_millis(10));
    pair.sides[0].takes = false;
    for call in &calls {
        pair.send(1, answer(call).expect("a call"));
        assert!(pair.sides[1].link.queued_bytes() <= 2 * MIB + 20_000);
    }
    pair.sides[0].takes = true;
    pair.take(0);
    pair.run(Duration::from_millis(500));
    let outcomes: BTreeMap<u64, bool> = pair.sides[0]
        .frames()
        .iter()
        .map(|frame| match frame {
            Frame::NodeReply { reply, .. } => {
                let is_busy = matches!(reply.outcome, Err(NodeError::Busy { .. }));
                (reply.id.0, is_busy)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(outcomes.len(), 20);
    let busy = outcomes.values().filter(|is_busy| **is_busy).count();
    assert!((15..20).contains(&busy), "{busy} are busy");
}

/// Goal: one host has a bounded number of calls at another one.
#[test]
fn calls_without_answer_are_bounded() {
    let mut pair = pair_of(17, config(1), config(2));
    let deadline = pair.now + Duration::from_secs(60);
    let commit = |id| {
        let incarnation = Incarnation(1);
        let object = object();
        let request = NodeRequest::Commit {
            object,
            incarnation,
        };
        node_call(id, deadline, request)
    };
    let most = u64::try_from(LINK_CALLS_MAX).expect("small");
    for id in 0..most + 3 {
        pair.send(0, commit(id));
    }
    let busy = (most..most + 3).map(|id| Told::Busy(call_ref(id)));
    let busy: Vec<Told> = busy.collect();
    assert_eq!(pair.sides[0].told[1..], busy[..]);
    assert_eq!(pair.sides[0].link.calls(), LINK_CALLS_MAX);
}
