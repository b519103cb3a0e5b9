//! The machine as a door drives it, step by step.

use std::time::Duration;

use crossdock_delivery::{
    Congestion, Decision, Delivery, DeliveryConfig, DiskProfile, End, Record, Residence,
    StreamClass, StreamId, Switches, TcpSample, replay,
};
use crossdock_types::Time;

const KIB: u64 = 1 << 10;
/// What a stream gets first, with as much memory as usual.
const FIRST: u64 = 128 * KIB;
const A: StreamId = StreamId(1);
const B: StreamId = StreamId(2);
const C: StreamId = StreamId(3);

fn at(millis: u64) -> Time {
    Time(millis * 1_000_000)
}

fn all(delivery: &mut Delivery) -> Vec<Decision> {
    std::iter::from_fn(|| delivery.poll_decision()).collect()
}

fn requested(decisions: &[Decision], stream: StreamId) -> u64 {
    let bytes = decisions.iter().map(|decision| match decision {
        Decision::Request { stream: of, bytes } if *of == stream => *bytes,
        _ => 0,
    });
    bytes.sum()
}

fn loaded(delivery: &mut Delivery) {
    let profile = DiskProfile {
        load_percent: 100,
        ..DiskProfile::default()
    };
    delivery.set_disk(0, profile);
}

/// A connection that has taken a megabyte a second for three seconds, and has bytes ahead
/// for about T_D; its last sample, and how much of that is ready.
fn steady(delivery: &mut Delivery, stream: StreamId) -> (TcpSample, u64) {
    delivery.open(at(0), stream, 1 << 30, StreamClass::Foreground);
    let mut sample = TcpSample {
        unsent_bytes: 100 * KIB,
        delivery_rate: 1_000_000,
        rtt: Duration::from_millis(10),
        ..TcpSample::default()
    };
    let mut ready = 0;
    for step in 0..=30 {
        let now = at(step * 100);
        sample.acked_bytes = step * 100_000;
        delivery.sample(now, stream, sample);
        let bytes = requested(&all(delivery), stream);
        if bytes > 0 {
            delivery.delivered(now, stream, bytes);
        }
        ready += bytes;
        let handed = ready.min(100_000);
        delivery.handed(now, stream, handed);
        ready -= handed;
        sample.unsent_bytes = 100 * KIB;
    }
    delivery.sample(at(3000), stream, sample);
    (sample, ready)
}

/// The same whose bytes are all in its socket, 40 MiB since the last sample, at 3001 ms.
fn all_in_the_socket(delivery: &mut Delivery, stream: StreamId) -> TcpSample {
    let (sample, ready) = steady(delivery, stream);
    let bytes = requested(&all(delivery), stream);
    delivery.delivered(at(3000), stream, bytes);
    delivery.handed(at(3000), stream, ready + bytes);
    let full = TcpSample {
        unsent_bytes: 40 << 20,
        ..sample
    };
    delivery.sample(at(3001), stream, full);
    assert_eq!(requested(&all(delivery), stream), 0);
    full
}

/// Goal: an unknown stream gets H_min, a known one what its rate wants; D3 counts when polled.
#[test]
fn a_stream_gets_its_first_bytes_and_then_more() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    delivery.open(at(0), A, 1 << 20, StreamClass::Foreground);
    let first = [Decision::Request {
        stream: A,
        bytes: FIRST,
    }];
    assert_eq!(all(&mut delivery), first);
    assert_eq!(delivery.figures().memory_used, FIRST);
    delivery.delivered(at(5), A, FIRST);
    assert_eq!(all(&mut delivery), []);
    delivery.handed(at(5), A, FIRST);
    assert_eq!(delivery.figures().memory_used, 0);
    let sample = TcpSample {
        delivery_rate: 10_000_000,
        ..TcpSample::default()
    };
    delivery.sample(at(6), A, sample);
    assert!(requested(&all(&mut delivery), A) >= FIRST);
}

/// Goal: a socket that takes everything at once does not stop its stream: the engine asks
/// to look at it when half of T_D is left.
#[test]
fn a_stream_whose_socket_took_everything_is_looked_at_in_time() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    let (sample, _) = steady(&mut delivery, A);
    all(&mut delivery);
    let big = TcpSample {
        unsent_bytes: 20 << 20,
        acked_bytes: sample.acked_bytes + 1000,
        ..sample
    };
    delivery.sample(at(3001), A, big);
    assert_eq!(requested(&all(&mut delivery), A), 0);
    let due = delivery.poll_timeout().expect("a timer");
    assert!(due <= at(3001) + delivery.figures().buffering_time);
    delivery.timeout(due);
    assert!(all(&mut delivery).contains(&Decision::Look { stream: A }));
    // Nobody answers: it asks again.
    assert!(delivery.poll_timeout().is_some_and(|again| again > due));
}

/// Goal: that a socket has emptied since it was looked at is not taken for granted when more
/// is read: a client that has stopped gets nothing on top, one that has not gets it at once.
#[test]
fn who_may_have_stopped_is_looked_at_first() {
    for has_stopped in [true, false] {
        let mut delivery = Delivery::new(DeliveryConfig::default());
        let full = all_in_the_socket(&mut delivery, A);
        delivery.handed(at(45_000), A, 0);
        assert_eq!(all(&mut delivery), [Decision::Look { stream: A }]);
        let seen = TcpSample {
            unsent_bytes: if has_stopped { 40 << 20 } else { 0 },
            acked_bytes: full.acked_bytes + if has_stopped { 0 } else { 40 << 20 },
            ..full
        };
        delivery.sample(at(45_001), A, seen);
        assert_eq!(requested(&all(&mut delivery), A) == 0, has_stopped);
    }
}

/// Goal: one look is enough for the timer that wants it and for the request that waits for it.
#[test]
fn a_request_waits_for_the_look_of_the_timer() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    all_in_the_socket(&mut delivery, A);
    delivery.timeout(at(45_000));
    assert_eq!(all(&mut delivery), [Decision::Look { stream: A }]);
    // A door that has nothing to tell holds nothing up.
    delivery.handed(at(45_001), A, 0);
    assert!(requested(&all(&mut delivery), A) > 0);
}

/// Goal: RST takes everything back at once: the request queue, the memory, the turn.
#[test]
fn a_reset_withdraws_and_frees_at_once() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    delivery.open(at(0), A, 1 << 20, StreamClass::Foreground);
    all(&mut delivery);
    delivery.close(at(1), A, End::Reset);
    assert_eq!(all(&mut delivery), [Decision::Withdraw { stream: A }]);
    let figures = delivery.figures();
    assert_eq!((figures.memory_used, figures.streams), (0, 0));
    assert_eq!(figures.withdrawn_bytes, FIRST);
    // The read that could not be stopped.
    delivery.delivered(at(2), A, FIRST);
    let figures = delivery.figures();
    assert_eq!((figures.dead_bytes, figures.thrown_away_bytes), (FIRST, 0));
    assert_eq!(delivery.poll_timeout(), None);
    // One that was decided and never polled was never asked for.
    delivery.open(at(3), B, 1 << 20, StreamClass::Foreground);
    delivery.close(at(3), B, End::Reset);
    assert_eq!(all(&mut delivery), []);
}

/// Goal: without EDRC requests of the dead take their memory until they have come.
#[test]
fn without_edrc_the_dead_are_read_for() {
    let switches = Switches {
        edrc: false,
        ..Switches::default()
    };
    let mut delivery = Delivery::new(DeliveryConfig {
        switches,
        ..DeliveryConfig::default()
    });
    delivery.open(at(0), A, 1 << 20, StreamClass::Foreground);
    all(&mut delivery);
    delivery.close(at(1), A, End::Reset);
    assert_eq!(all(&mut delivery), []);
    assert_eq!(delivery.figures().memory_used, FIRST);
    delivery.delivered(at(2), A, FIRST);
    let figures = delivery.figures();
    assert_eq!((figures.memory_used, figures.dead_bytes), (0, FIRST));
}

/// Goal: on a loaded disk loss postpones what is too much; recovery brings it back, and so
/// does the time, and an idle disk.
#[test]
fn loss_postpones_and_recovery_resumes() {
    for way in 0..3 {
        let mut delivery = Delivery::new(DeliveryConfig::default());
        // Many streams, so that T_D is long.
        for other in 100..400 {
            delivery.open(at(0), StreamId(other), 1 << 30, StreamClass::Foreground);
        }
        let (sample, ready) = steady(&mut delivery, A);
        loaded(&mut delivery);
        all(&mut delivery);
        delivery.handed(at(3000), A, ready);
        delivery.sample(at(3000), A, sample);
        assert!(requested(&all(&mut delivery), A) > 0);
        let loss = TcpSample {
            unsent_bytes: 100 * KIB,
            delivery_rate: 100_000,
            congestion: Congestion::Recovery,
            acked_bytes: sample.acked_bytes + 1,
            ..sample
        };
        delivery.sample(at(3010), A, loss);
        let decisions = all(&mut delivery);
        let postponed = decisions.iter().find_map(|decision| match *decision {
            Decision::Postpone { stream: A, by, .. } => Some(by),
            _ => None,
        });
        let by = postponed.unwrap_or_else(|| panic!("{decisions:?}"));
        let resumed = [Decision::Resume { stream: A }];
        match way {
            0 => {
                let healed = TcpSample {
                    congestion: Congestion::Open,
                    ..loss
                };
                delivery.sample(at(3020), A, healed);
                assert_eq!(all(&mut delivery), resumed);
            }
            1 => {
                delivery.set_disk(0, DiskProfile::default());
                assert_eq!(all(&mut delivery), resumed);
            }
            _ => {
                delivery.timeout(at(3010) + by);
                let decisions = all(&mut delivery);
                assert!(
                    !decisions.contains(&resumed[0]),
                    "they return by themselves"
                );
            }
        }
    }
}

/// Goal: FIN alone holds a stream only until it is seen to move, or for T_D/2.
#[test]
fn a_half_closed_stream_goes_on() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    loaded(&mut delivery);
    delivery.open(at(0), A, 1 << 20, StreamClass::Foreground);
    all(&mut delivery);
    delivery.close(at(1), A, End::PeerFinished);
    let decisions = all(&mut delivery);
    let [
        Decision::Postpone {
            stream: A,
            bytes,
            by,
        },
    ] = decisions[..]
    else {
        panic!("{decisions:?}");
    };
    assert_eq!(bytes, FIRST);
    let due = delivery.poll_timeout().expect("a timer");
    assert!(due >= at(1) + by);
    delivery.timeout(due);
    delivery.delivered(due, A, FIRST);
    delivery.handed(due, A, FIRST);
    delivery.sample(due + by, A, TcpSample::default());
    assert!(requested(&all(&mut delivery), A) > 0);
    assert_eq!(delivery.figures().thrown_away_bytes, 0);

    // The same with something that moves.
    let mut delivery = Delivery::new(DeliveryConfig::default());
    let (sample, _) = steady(&mut delivery, B);
    loaded(&mut delivery);
    all(&mut delivery);
    delivery.close(at(3001), B, End::PeerFinished);
    all(&mut delivery);
    let moves = TcpSample {
        unsent_bytes: 0,
        acked_bytes: sample.acked_bytes + 50_000,
        ..sample
    };
    delivery.sample(at(3002), B, moves);
    let decisions = all(&mut delivery);
    let holds = |decision: &Decision| matches!(decision, Decision::Postpone { .. });
    assert!(!decisions.iter().any(holds), "{decisions:?}");
}

trait After {
    fn millis(self, millis: u64) -> Time;
}

impl After for Time {
    fn millis(self, millis: u64) -> Time {
        self + Duration::from_millis(millis)
    }
}

/// Goal: when memory is short the longest waiting stream is first, whoever is faster, and
/// the background is last.
#[test]
fn who_waits_longest_is_served_first() {
    let mut delivery = Delivery::new(DeliveryConfig {
        memory_bytes: 128 * KIB,
        request_bytes_max: 64 * KIB,
        ..DeliveryConfig::default()
    });
    let back = StreamId(9);
    let (one, two) = (StreamId(10), StreamId(11));
    for (stream, millis) in [(one, 0), (two, 0), (A, 1), (B, 2)] {
        delivery.open(at(millis), stream, 1 << 20, StreamClass::Foreground);
        all(&mut delivery);
    }
    delivery.open(at(3), back, 1 << 20, StreamClass::Background);
    delivery.open(at(4), C, 1 << 20, StreamClass::Foreground);
    assert_eq!(all(&mut delivery), []);
    assert_eq!(delivery.figures().waiting, 4);
    let now = at(5).millis(0);
    let served = [
        (one, Some(A)),
        (two, Some(B)),
        (A, Some(C)),
        (B, Some(back)),
        (C, None),
    ];
    for (done, next) in served {
        delivery.delivered(now, done, 64 * KIB);
        delivery.handed(now, done, 64 * KIB);
        let decisions = all(&mut delivery);
        let expected = next.map(|stream| Decision::Request {
            stream,
            bytes: 64 * KIB,
        });
        assert_eq!(decisions, Vec::from_iter(expected));
    }
    assert_eq!(delivery.figures().wait.count(), 4);
}

/// Goal: recorded decisions survive being written down, and are decided the same again;
/// a changed one is found.
#[test]
fn recorded_decisions_replay() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    assert_eq!(delivery.records().count(), 0);
    delivery.record(20);
    loaded(&mut delivery);
    steady(&mut delivery, A);
    all(&mut delivery);
    let records: Vec<_> = delivery.records().copied().collect();
    assert_eq!(records.len(), 20);
    let bytes = postcard::to_allocvec(&records).expect("records");
    let mut again: Vec<Record> = postcard::from_bytes(&bytes).expect("the same bytes");
    assert_eq!(again, records);
    assert_eq!(replay(&again), Ok(20));
    let last = &mut again[19];
    last.snapshot.look.remaining_bytes = 1;
    last.snapshot.look.rate = None;
    last.snapshot.look.unsent_bytes = 0;
    last.snapshot.look.ready_bytes = 0;
    last.snapshot.look.requested_bytes = 0;
    assert_eq!(replay(&again).expect_err("another decision").index, 19);
}

/// Goal: the residence figure is from a block's arrival to its last byte leaving the queue.
#[test]
fn residence_ends_when_the_socket_has_sent() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    delivery.open(at(0), A, 64 * KIB, StreamClass::Foreground);
    all(&mut delivery);
    let buffering = delivery.figures().buffering_time;
    delivery.delivered(at(10), A, 64 * KIB);
    delivery.handed(at(11), A, 64 * KIB);
    let sample = |unsent_bytes| TcpSample {
        unsent_bytes,
        ..TcpSample::default()
    };
    delivery.sample(at(12), A, sample(1));
    assert_eq!(delivery.figures().residence.time.count(), 0);
    delivery.sample(at(110), A, sample(0));
    let residence = delivery.figures().residence;
    let Residence { time, percent } = residence;
    assert_eq!((time.count(), time.sum()), (1, 100_000));
    let of_buffering = Duration::from_secs(10).div_duration_f64(buffering).floor();
    assert_eq!((percent.count(), percent.sum() as f64), (1, of_buffering));
}

/// Goal: at a door of requests what the client asks for leaves the budget, what it has asked
/// for by itself is ahead of it all the same, and in the end nothing of it is left.
#[test]
fn what_a_client_asks_for_itself_is_no_request() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    delivery.open(at(0), A, 10 << 20, StreamClass::Foreground);
    let first = requested(&all(&mut delivery), A);
    assert_eq!(first, FIRST);
    assert_eq!(delivery.figures().memory_used, first);
    delivery.asked(at(1), A, first + 32 * KIB);
    assert_eq!(delivery.figures().memory_used, 0);
    assert_eq!(all(&mut delivery), [], "an answer is under way");
    delivery.answered(at(2), A, first + 32 * KIB);
    assert_eq!(all(&mut delivery), [], "and now it is at the socket");
    delivery.sample(at(3), A, TcpSample::default());
    let next = requested(&all(&mut delivery), A);
    assert_eq!(next, FIRST);
    delivery.leave(at(4), A);
    let figures = delivery.figures();
    assert_eq!((figures.memory_used, figures.streams), (0, 0));
    assert_eq!(
        (figures.unclaimed_bytes, figures.withdrawn_total),
        (next, 0)
    );
    assert_eq!(all(&mut delivery), []);
}

/// Goal: whatever is asked for beyond what there is, no sum goes below nothing.
#[test]
fn a_client_may_ask_for_more_than_there_is() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    delivery.open(at(0), A, 100 * KIB, StreamClass::Foreground);
    assert_eq!(requested(&all(&mut delivery), A), 100 * KIB);
    delivery.asked(at(1), A, u64::MAX);
    delivery.asked(at(1), A, u64::MAX);
    delivery.answered(at(1), A, u64::MAX);
    delivery.answered(at(1), A, u64::MAX);
    assert_eq!(all(&mut delivery), []);
    assert_eq!(delivery.figures().memory_used, 0);
}

/// Where requests of a stream of 1 MB/s end in the last stripe that they touch, over two
/// busy disks, when it is told of these places in its file at those times.
fn ends_in_stripes(told: &[(u64, u64)]) -> Vec<u64> {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    let profile = DiskProfile {
        load_percent: 400,
        ..DiskProfile::default()
    };
    (0..2).for_each(|disk| delivery.set_disk(disk, profile));
    delivery.open(at(0), A, 1 << 30, StreamClass::Foreground);
    let (mut end, mut ready, mut ends) = (100_000, 0, Vec::new());
    for millis in (0..20_000).step_by(100) {
        let now = at(millis);
        if let Some((_, place)) = told.iter().find(|(when, _)| *when == millis) {
            delivery.set_place(now, A, *place);
            end = *place;
        }
        let sample = TcpSample {
            acked_bytes: millis * 1000,
            unsent_bytes: 100 * KIB,
            delivery_rate: 1_000_000,
            ..TcpSample::default()
        };
        delivery.sample(now, A, sample);
        while let Some(decision) = delivery.poll_decision() {
            if let Decision::Request { bytes, .. } = decision {
                end += bytes;
                ready += bytes;
                ends.push(end % (256 * KIB));
                delivery.delivered(now, A, bytes);
            }
        }
        let handed = ready.min(100_000);
        delivery.handed(now, A, handed);
        ready -= handed;
    }
    ends
}

/// Goal: with several disks and a place in the file requests end with stripes, also behind a
/// gap that the door tells of; without a place they do not.
#[test]
fn requests_go_along_the_stripes() {
    let off = |ends: &[u64]| ends.iter().filter(|&&end| end != 0).count();
    let ends = ends_in_stripes(&[(0, 100_000)]);
    // The first ones are short, as the rate is not known.
    assert!(ends.len() > 10 && off(&ends[4..]) == 0, "{ends:?}");
    let gap = ends_in_stripes(&[(0, 100_000), (10_000, 77_777_777)]);
    assert!(off(&gap[4..]) <= 1, "{gap:?}");
    let plain = ends_in_stripes(&[]);
    assert!(off(&plain) > plain.len() / 2, "{plain:?}");
}
