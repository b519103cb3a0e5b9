//! Decisions over snapshots made by hand, with the paper's own figures where it has them.

use super::*;
use crate::config::DeliveryConfig;
use crate::snapshot::Disks;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MBIT: u64 = 125_000;

fn pool() -> Pool {
    Pool {
        policy: DeliveryConfig::default().policy(),
        disks: Disks {
            count: 1,
            positioning: Duration::from_millis(8),
            sequential_bytes_per_second: 60_000_000,
            load_percent: 100,
        },
        streams: 300,
        rate_net: 180 * MBIT + 120 * MBIT / 5,
        memory_used: 0,
        background_used: 0,
        unsent_bytes: 0,
        rate_roots: 180 * MBIT.isqrt() + 120 * (MBIT / 5).isqrt(),
    }
}

fn look(rate: u64) -> Look {
    Look {
        class: StreamClass::Foreground,
        remaining_bytes: 1 << 30,
        unsent_bytes: 0,
        ready_bytes: 0,
        requested_bytes: 0,
        unit_bytes: 0,
        place_bytes: None,
        postponed_bytes: 0,
        rate: Some(rate),
        is_measured: true,
        acked_bytes: 1 << 20,
        is_troubled: false,
        is_held: false,
        is_behind_others: false,
    }
}

fn bytes(pool: Pool, look: Look) -> u64 {
    match decide(&Snapshot { pool, look }) {
        Verdict::Request { bytes } => bytes,
        other => panic!("{other:?}"),
    }
}

fn verdict(pool: Pool, look: Look) -> Verdict {
    decide(&Snapshot { pool, look })
}

/// Goal: the paper's figures (4.3): with T_D of 2.94 s and half of it left, a stream of
/// 1 Mb/s asks for 184 KB. Checks that (7) multiplies by B_n.
#[test]
fn a_stream_of_the_paper_asks_for_what_the_paper_says() {
    let mut pool = pool();
    // The disk with which T_D is 2.94 s.
    pool.disks.positioning = Duration::from_nanos(2_327_500);
    let term = horizon(&pool, None).buffering;
    assert!(term.abs_diff(Duration::from_millis(2940)) < Duration::from_millis(10));
    let look = Look {
        ready_bytes: 183_700,
        ..look(MBIT)
    };
    assert_eq!(bytes(pool, look), 184_000 / 4096 * 4096);
    let slow = super::tests::look(MBIT / 5);
    assert_eq!(bytes(pool, slow), 73_500 / 4096 * 4096);
}

/// Goal: T_D is two rounds of the disk: in that time all streams can be positioned to
/// twice, and their bytes be read, within u.
#[test]
fn the_round_fits_into_the_disk() {
    let pool = Pool {
        rate_net: 12_000_000,
        streams: 100,
        ..pool()
    };
    let term = horizon(&pool, None).buffering.as_secs_f64();
    let busy = 2.0 * 100.0 * 0.008 + term * 12.0 / 60.0;
    assert!((busy / term - 0.9).abs() < 1e-6, "{term}");
    let mut two = Pool {
        disks: Disks {
            count: 4,
            ..pool.disks
        },
        streams: 200,
        ..pool
    };
    two.policy.request_bytes_max = 2 * two.policy.stripe_bytes;
    // Each request lies on two of four disks: half of the visits, a quarter of the bytes.
    let term = horizon(&two, None).buffering.as_secs_f64();
    assert!(
        (term - 2.0 * 100.0 * 0.008 / (0.9 - 0.05)).abs() < 1e-6,
        "{term}"
    );
}

/// Goal: T_D has bounds in every state: a disk that cannot keep up, streams of no rate,
/// no streams, absurd profiles.
#[test]
fn the_term_is_always_within_its_bounds() {
    let least = Duration::from_millis(DELIVERY_BUFFERING_MILLIS_MIN);
    let most = Duration::from_millis(DELIVERY_BUFFERING_MILLIS_MAX);
    let overloaded = Pool {
        rate_net: 80_000_000,
        ..pool()
    };
    // All of it is filled for a round and a seventh, and half of that round is left on
    // average.
    let expected = 0.9 * (256 << 20) as f64 / 80e6 * (8.0 / 7.0) / (9.0 / 14.0);
    let term = horizon(&overloaded, None).buffering.as_secs_f64();
    assert!((term - expected).abs() < 1e-3, "{term}");
    for (streams, rate_net, sequential) in [
        (0, 0, 0),
        (u64::MAX, u64::MAX, u64::MAX),
        (u64::MAX, 0, 1),
        (1, u64::MAX, 0),
    ] {
        let mut pool = Pool {
            streams,
            rate_net,
            ..pool()
        };
        pool.disks.sequential_bytes_per_second = sequential;
        for literal_td in [false, true] {
            pool.policy.literal_td = literal_td;
            let term = horizon(&pool, None).buffering;
            assert!((least..=most).contains(&term), "{term:?}");
        }
    }
}

/// Goal: with less and less memory streams are filled later, for as long a round as ever,
/// until they nearly run dry; only then for a shorter one. What they have on average fits
/// into the memory at any time.
#[test]
fn little_memory_first_shortens_what_is_left_and_then_the_round() {
    let mut before = None;
    for megabytes in (16..400).rev() {
        let mut pool = pool();
        pool.policy.memory_bytes = megabytes << 20;
        let Horizon {
            buffering, refill, ..
        } = horizon(&pool, None);
        let round = buffering - refill;
        let mean = (refill + round / 2).as_secs_f64() * pool.rate_net as f64;
        assert!(
            mean <= 0.9001 * pool.policy.memory_bytes as f64,
            "{megabytes}"
        );
        assert!(refill <= round + Duration::from_nanos(10), "{megabytes}");
        if let Some((round_before, refill_before)) = before.replace((round, refill)) {
            let rounding = Duration::from_micros(1);
            assert!(refill <= refill_before + rounding && round <= round_before + rounding);
            let is_dry = refill < round / 6;
            assert!(is_dry || round_before.abs_diff(round) < rounding);
        }
    }
    let (round, refill) = before.unwrap();
    assert!(round < Duration::from_secs(1) && refill < round / 6);
}

/// Goal: what sockets hold is not in the memory of what is read ahead: where that is short,
/// streams are read further ahead by it.
#[test]
fn what_sockets_hold_leaves_memory_to_others() {
    let mut pool = pool();
    pool.policy.memory_bytes = 40 << 20;
    let short = horizon(&pool, None);
    pool.unsent_bytes = 8 << 20;
    let longer = horizon(&pool, None);
    // On average 36 MiB of 40 were to be had, and half of 8 more now.
    let ratio = longer.buffering.as_secs_f64() / short.buffering.as_secs_f64();
    assert!((ratio - 40.0 / 36.0).abs() < 1e-3, "{short:?} {longer:?}");
}

/// Goal: where memory is short, slow streams get longer rounds and fast ones shorter ones, by
/// which the disks have fewer requests for the same memory; where it is not, all get the same.
#[test]
fn little_memory_is_divided_so_that_requests_are_fewest() {
    let plenty = pool();
    assert_eq!(
        horizon(&plenty, Some(MBIT)),
        horizon(&plenty, Some(MBIT / 5))
    );
    let mut short = pool();
    short.policy.memory_bytes = 40 << 20;
    let even = horizon(&short, None);
    let all = [(180.0, MBIT), (120.0, MBIT / 5)];
    let sums = |horizon_of: &dyn Fn(u64) -> Horizon| {
        let mut sums = (0.0, 0.0);
        for (count, rate) in all {
            let Horizon {
                buffering, refill, ..
            } = horizon_of(rate);
            let round = (buffering - refill).as_secs_f64();
            sums.0 += count * rate as f64 * round;
            sums.1 += count / round;
        }
        sums
    };
    let (memory, requests) = sums(&|_| even);
    let (memory_divided, requests_divided) = sums(&|rate| horizon(&short, Some(rate)));
    assert!((memory_divided / memory - 1.0).abs() < 0.01);
    assert!(
        requests_divided < 0.92 * requests,
        "{requests_divided} {requests}"
    );
    // Neither is stretched without an end.
    assert!(horizon(&short, Some(1)).stretch <= 4.0);
    assert!(horizon(&short, Some(u64::MAX)).stretch >= 0.5);
}

/// Goal: a disk that is never idle gets requests as long as the memory allows, though by the
/// rates of streams that starve it could do with shorter ones.
#[test]
fn a_disk_that_is_behind_gets_the_longest_requests() {
    let mut starving = Pool {
        rate_net: 10_000_000,
        ..pool()
    };
    let enough = horizon(&starving, None).buffering;
    starving.disks.load_percent = FULL_PERCENT;
    let all = horizon(&starving, None).buffering;
    assert!(all > 3 * enough, "{enough:?} {all:?}");
}

/// Goal: where a disk needs next to no time for positioning, requests are as long as memory
/// affords, up to half of a second's bytes; and what streams have on average fits into it.
#[test]
fn a_fast_disk_gets_no_shorter_requests_than_memory_affords() {
    let mut fast = Pool {
        rate_net: 50_000_000,
        streams: 50,
        ..pool()
    };
    fast.disks = Disks {
        count: 1,
        positioning: Duration::from_micros(50),
        sequential_bytes_per_second: 2_000_000_000,
        load_percent: 5,
    };
    let plenty = horizon(&fast, Some(1_000_000));
    assert_eq!((plenty.buffering, plenty.refill), (WANTED, WANTED / 2));
    for megabytes in [1, 2, 4, 8, 16, 32] {
        fast.policy.memory_bytes = megabytes << 20;
        let short = horizon(&fast, None);
        let round = short.buffering - short.refill;
        let mean = (short.refill + round / 2).as_secs_f64() * fast.rate_net as f64;
        let memory = fast.policy.memory_bytes as f64;
        // Below that T_D is as short as it may be at all.
        if megabytes > 4 {
            assert!(mean <= 0.901 * memory, "{megabytes}: {mean}");
        }
        assert!(short.buffering <= plenty.buffering);
    }
}

/// Goal: the ablation has the paper's own form.
#[test]
fn the_literal_term_is_twice_the_random_rate_over_the_net_rate() {
    let mut pool = pool();
    pool.policy.literal_td = true;
    let bytes = pool.policy.request_bytes_max as f64;
    let disk = bytes / (0.008 + bytes / 60e6);
    let expected = 2.0 * disk / pool.rate_net as f64;
    assert!((horizon(&pool, None).buffering.as_secs_f64() - expected).abs() < 1e-6);
}

/// Goal: the threshold of (7): half of T_D, counting all of D1, D2 and D3.
#[test]
fn nothing_is_requested_above_half_of_the_term() {
    let pool = pool();
    let half = whole(horizon(&pool, None).buffering.as_secs_f64() / 2.0 * MBIT as f64);
    for part in 0..3 {
        let mut full = look(MBIT);
        let field = match part {
            0 => &mut full.unsent_bytes,
            1 => &mut full.ready_bytes,
            _ => &mut full.requested_bytes,
        };
        *field = half + 1;
        assert_eq!(verdict(pool, full), Verdict::Enough);
        match part {
            0 => full.unsent_bytes -= 2,
            1 => full.ready_bytes -= 2,
            _ => full.requested_bytes -= 2,
        }
        assert!(matches!(verdict(pool, full), Verdict::Request { .. }));
    }
}

/// Goal: the three terms of (7), each when it is the smallest.
#[test]
fn the_smallest_of_rate_memory_and_device_decides() {
    let pool = pool();
    let policy = pool.policy;
    assert_eq!(bytes(pool, look(100 * MBIT)), policy.request_bytes_max);
    let mut small = pool;
    small.policy.memory_bytes = 8 << 20;
    // Nothing is free beyond the shares of others.
    small.memory_used = (8 << 20) - MIB;
    let stretch = horizon(&small, Some(10 * MBIT)).stretch;
    let share = whole((8 << 20) as f64 * (10 * MBIT) as f64 / pool.rate_net as f64 * stretch);
    assert_eq!(bytes(small, look(10 * MBIT)), share / 4096 * 4096);
    // What it has of its share already counts.
    let has = Look {
        ready_bytes: 50_000,
        ..look(10 * MBIT)
    };
    assert_eq!(bytes(small, has), (share - 50_000) / 4096 * 4096);
    // Nobody's request is cut below H_min for it.
    let scarcer = Pool {
        memory_used: policy.memory_bytes - 64 * KIB,
        ..pool
    };
    assert_eq!(bytes(scarcer, look(MBIT)), 64 * KIB);
    let full = Pool {
        memory_used: policy.memory_bytes - 64 * KIB + 1,
        ..pool
    };
    assert_eq!(verdict(full, look(MBIT)), Verdict::Wait);
}

/// Goal: without a sample there is one request, and no second one: of H_min, or more while
/// there is memory for all.
#[test]
fn a_stream_of_unknown_rate_gets_one_request() {
    let unknown = Look {
        rate: None,
        is_measured: false,
        acked_bytes: 0,
        ..look(0)
    };
    let with = |megabytes: u64, streams| {
        let mut pool = pool();
        pool.policy.memory_bytes = megabytes << 20;
        pool.streams = streams;
        pool
    };
    assert_eq!(bytes(with(60, 500), unknown), 64 * KIB);
    assert_eq!(
        bytes(with(60, 199), unknown),
        60 * 1024 / 3 / 200 * KIB / 4096 * 4096
    );
    assert_eq!(bytes(with(60, 1), unknown), 128 * KIB);
    let asked = Look {
        requested_bytes: 1,
        ..unknown
    };
    assert_eq!(verdict(pool(), asked), Verdict::Enough);
}

/// Goal: a rate from a burst is believed no further than bytes have arrived.
#[test]
fn a_new_stream_begins_slowly() {
    let new = Look {
        is_measured: false,
        acked_bytes: 400 * KIB,
        ..look(1000 * MBIT)
    };
    assert_eq!(bytes(pool(), new), 400 * KIB);
    let busy = Look {
        unsent_bytes: 201 * KIB,
        ..new
    };
    assert_eq!(verdict(pool(), busy), Verdict::Enough);
}

/// Goal: 516 KiB are two requests of about the same size, not 512 and 4 (TPF 3.2).
#[test]
fn the_end_of_a_stream_is_no_tail() {
    let h_min = 64 * KIB;
    assert_eq!(cut(516 * KIB, 512 * KIB, 512 * KIB, h_min), 260 * KIB);
    assert_eq!(cut(256 * KIB, 200 * KIB, 512 * KIB, h_min), 256 * KIB);
    assert_eq!(cut(264 * KIB, 200 * KIB, 512 * KIB, h_min), 264 * KIB);
    assert_eq!(cut(300 * KIB, 200 * KIB, 512 * KIB, h_min), 200 * KIB);
    assert_eq!(cut(5, 4096, 512 * KIB, h_min), 5);
    // A slow stream's own requests are below H_min; their size is the measure.
    assert_eq!(cut(60 * KIB, 24 * KIB, 512 * KIB, h_min), 24 * KIB);
    assert_eq!(cut(36 * KIB, 24 * KIB, 512 * KIB, h_min), 36 * KIB);
    // No memory for all of it.
    assert_eq!(cut(300 * KIB, 280 * KIB, 290 * KIB, h_min), 152 * KIB);
}

/// Goal: no two cuts after each other differ much, over all lengths, and none is 0.
#[test]
fn every_stream_is_cut_into_requests_worth_their_while() {
    for length in (1..2_000 * KIB).step_by(3 * 1024 + 1) {
        for wanted in [8 * KIB, 64 * KIB, 300 * KIB, 512 * KIB] {
            let mut remaining = length;
            while remaining > 0 {
                let bytes = cut(remaining, wanted, 512 * KIB, 64 * KIB);
                assert!(bytes > 0 && bytes <= remaining, "{length} {wanted}");
                // Halves are whole blocks.
                let least = (wanted / 2 - BLOCK_BYTES).max(wanted.min(64 * KIB));
                let is_tail = bytes < least && bytes < length;
                assert!(!is_tail, "{bytes} of {length}, wanted {wanted}");
                remaining -= bytes;
            }
        }
    }
}

/// Goal: the background leaves three quarters of the memory alone, and stands behind.
#[test]
fn the_background_takes_what_is_left() {
    let back = Look {
        class: StreamClass::Background,
        ..look(MBIT)
    };
    let quarter = pool().policy.memory_bytes / 4;
    let taken = Pool {
        background_used: quarter,
        memory_used: quarter,
        ..pool()
    };
    assert_eq!(verdict(taken, back), Verdict::Wait);
    assert!(matches!(
        verdict(taken, look(MBIT)),
        Verdict::Request { .. }
    ));
    let behind = Look {
        is_behind_others: true,
        ..back
    };
    assert_eq!(verdict(pool(), behind), Verdict::Wait);
}

/// Goal: what a connection in trouble cannot use within T_D goes behind while disks are
/// loaded; idle disks, or EDRC off, change nothing.
#[test]
fn what_exceeds_the_new_rate_is_postponed() {
    let pool = pool();
    let term = horizon(&pool, None).buffering;
    let needed = whole(term.as_secs_f64() * MBIT as f64);
    let troubled = Look {
        is_troubled: true,
        unsent_bytes: 50_000,
        ready_bytes: 100_000,
        requested_bytes: needed,
        ..look(MBIT)
    };
    let by = term / 2;
    let bytes = 150_000;
    assert_eq!(verdict(pool, troubled), Verdict::Postpone { bytes, by });
    let again = Look {
        postponed_bytes: 150_000,
        ..troubled
    };
    assert_eq!(verdict(pool, again), Verdict::Enough);
    let recovered = Look {
        is_troubled: false,
        ..again
    };
    assert_eq!(verdict(pool, recovered), Verdict::Resume);
    let mut idle = pool;
    idle.disks.load_percent = LOADED_PERCENT - 1;
    assert_eq!(verdict(idle, again), Verdict::Resume);
    assert_eq!(verdict(idle, troubled), Verdict::Enough);
    let mut off = pool;
    off.policy.switches.edrc = false;
    assert_eq!(verdict(off, troubled), Verdict::Enough);
}

/// Goal: after a FIN everything requested waits, and nothing new is asked for, but only
/// while disks are loaded.
#[test]
fn a_half_closed_stream_waits_for_a_sign() {
    let held = Look {
        is_held: true,
        requested_bytes: 10_000,
        ..look(MBIT)
    };
    let by = horizon(&pool(), None).buffering / 2;
    let bytes = 10_000;
    assert_eq!(verdict(pool(), held), Verdict::Postpone { bytes, by });
    let nothing = Look {
        requested_bytes: 0,
        ..held
    };
    assert_eq!(verdict(pool(), nothing), Verdict::Enough);
    let mut idle = pool();
    idle.disks.load_percent = 0;
    assert!(matches!(verdict(idle, nothing), Verdict::Request { .. }));
}

/// Goal: without TDAP it is the paper's Linux: 128 KiB, two at a time, whatever the rate.
#[test]
fn without_tdap_the_window_is_fixed() {
    let mut fixed = pool();
    fixed.policy.switches.tdap = false;
    for rate in [MBIT / 5, 100 * MBIT] {
        assert_eq!(bytes(fixed, look(rate)), FIXED_BYTES);
        let one = Look {
            requested_bytes: FIXED_BYTES,
            ..look(rate)
        };
        assert_eq!(bytes(fixed, one), FIXED_BYTES);
        let two = Look {
            ready_bytes: 1,
            ..one
        };
        assert_eq!(verdict(fixed, two), Verdict::Enough);
    }
}

/// Goal: of a client that asks for pieces at least one is requested, and whole ones; for
/// others nothing changes.
#[test]
fn pieces_are_requested_whole() {
    let rate = 40_000;
    let unit_bytes = 64 << 10;
    let pool = Pool {
        streams: 1,
        rate_net: rate,
        ..pool()
    };
    let least = |unit_bytes, requested_bytes, unsent_bytes| {
        let look = Look {
            unit_bytes,
            requested_bytes,
            unsent_bytes,
            ..look(rate)
        };
        match decide(&Snapshot { pool, look }) {
            Verdict::Request { bytes } => bytes,
            Verdict::Enough => 0,
            other => panic!("{other:?}"),
        }
    };
    let term = horizon(&pool, None).buffering.as_secs_f64() * rate as f64;
    assert!(term < unit_bytes as f64, "{term}");
    let plain = least(0, 0, 0);
    assert!(plain > 0 && plain < unit_bytes);
    assert_eq!(least(unit_bytes, 0, 0), unit_bytes);
    assert_eq!(least(unit_bytes, 4096, 0), unit_bytes - 4096);
    assert_eq!(least(0, 0, unit_bytes), 0);
    assert_eq!(least(unit_bytes, 0, unit_bytes), unit_bytes);
    assert_eq!(least(unit_bytes, unit_bytes, 0), 0);
}

fn two_disks() -> Pool {
    let mut pool = pool();
    pool.disks.count = 2;
    pool
}

/// A stream that goes on at that byte of its file.
fn look_from(place_bytes: u64) -> Look {
    Look {
        place_bytes: Some(place_bytes),
        ..look(MBIT)
    }
}

/// What becomes of a request of so many KiB from that KiB of the file on.
fn striped(pool: &Pool, place: u64, remaining: u64, bytes: u64) -> u64 {
    let look = Look {
        remaining_bytes: remaining * KIB,
        ..look_from(place * KIB)
    };
    along_stripes(pool, &look, bytes * KIB, 512 * KIB) / KIB
}

/// Goal: over several disks requests end where a stripe of 256 KiB does, unless that makes
/// one shorter than H_min (64 KiB), longer than is allowed, or leaves a tail.
#[test]
fn requests_end_with_stripes() {
    let striping = two_disks();
    for (place, remaining, bytes, expected) in [
        (0, 4096, 256, 256),
        (0, 4096, 400, 256),
        (0, 4096, 200, 256), // 56 KiB are missing: the next would visit for them.
        (0, 4096, 192, 192), // 64 are not too few.
        (100, 4096, 160, 156),
        (200, 4096, 100, 100), // 56 would be too few, and 212 are missing.
        (200, 4096, 500, 312), // The last stripe of several.
        (0, 4096, 500, 512),
        (200, 4096, 300, 312),
        (0, 300, 300, 300), // 44 would be a tail.
        (0, 400, 400, 256),
        (0, 280, 200, 200), // 24 behind the end of the stripe would be one, too.
        (0, 256, 200, 256),
        (0, 4096, 24, 24), // A slow stream's own.
        (240, 4096, 8, 16),
        (20, 4096, 512, 492), // 20 more were too many.
    ] {
        let bytes = striped(&striping, place, remaining, bytes);
        assert_eq!(bytes, expected, "{place} {remaining}");
    }
    assert_eq!(striped(&pool(), 0, 4096, 400), 400, "one disk");
    let mut fixed = striping;
    fixed.policy.switches.tdap = false;
    assert_eq!(striped(&fixed, 0, 4096, 400), 400, "no TDAP");
}

/// Goal: a client's own pieces stay whole: they are cut at stripes only where both agree.
#[test]
fn stripes_cut_no_piece() {
    let pool = two_disks();
    for (unit, place, bytes, expected) in [
        (64, 0, 384, 256),
        (100, 0, 400, 400),
        (64, 32, 384, 384),
        (512, 0, 512, 512),
        (512, 256, 512, 512),
    ] {
        let look = Look {
            unit_bytes: unit * KIB,
            ..look_from(place * KIB)
        };
        let bytes = along_stripes(&pool, &look, bytes * KIB, MIB);
        assert_eq!(bytes, expected * KIB, "{unit} {place}");
    }
}

/// Goal: read to its end, a file is cut into requests that visit its disks less often than
/// without stripes, and none but a last one is shorter than H_min.
#[test]
fn along_stripes_disks_are_visited_less() {
    let visits = |pool: &Pool, begin: u64, wanted: u64| {
        let (mut at, end, mut visits) = (begin, begin + 16 * MIB, 0);
        while at < end {
            let look = Look {
                remaining_bytes: end - at,
                ..look_from(at)
            };
            let bytes = cut(end - at, wanted, MIB, 64 * KIB);
            let bytes = along_stripes(pool, &look, bytes, MIB);
            assert!(bytes >= wanted.min(64 * KIB) || at + bytes == end);
            assert!(bytes <= end - at && bytes <= MIB);
            let stripe = pool.policy.stripe_bytes;
            visits += (at + bytes).div_ceil(stripe) - at / stripe;
            at += bytes;
        }
        visits
    };
    for begin in [0, 4 * KIB, 100 * KIB, 255 * KIB, 12_345] {
        for wanted in [100 * KIB, 184 * KIB, 300 * KIB, 400 * KIB, 700 * KIB] {
            let (striped, plain) = (
                visits(&two_disks(), begin, wanted),
                visits(&pool(), begin, wanted),
            );
            assert!(striped <= plain, "{begin} {wanted}: {striped}, {plain}");
            let is_long = wanted >= 256 * KIB;
            assert!(!is_long || striped <= 66, "{begin} {wanted}: {striped}");
        }
    }
}
