//! The decisions of TPF as pure functions: how far ahead (T_D), what is read next (TDAP),
//! what of the requested has to wait (EDRC).
//!
//! Where the paper's formulas have no dimension of time or bytes, they are the issue's:
//! see docs/decisions/0030-delivery-engine.md.

use std::time::Duration;

use crossdock_limits::{
    DELIVERY_BUFFERING_MILLIS_MAX, DELIVERY_BUFFERING_MILLIS_MIN, DELIVERY_BUFFERING_MILLIS_WANTED,
};

use crate::config::BLOCK_BYTES;
use crate::connection::StreamClass;
use crate::number::{seconds, whole};
use crate::snapshot::{Look, Pool, Snapshot, Verdict};

/// From this load on a disk counts as loaded: what one stream does not need now holds up
/// another one's.
const LOADED_PERCENT: u32 = 60;

/// One part in so many of the memory is for first requests, none of which is larger than
/// this.
const FIRST_SHARE: u64 = 3;
const FIRST_BYTES_MAX: u64 = 128 << 10;

/// From this load on, that many requests all the time, a disk is as busy as it can be.
const FULL_PERCENT: u32 = 400;

/// Without TDAP: the read-ahead group of Linux 2.4, of which two are under way.
const FIXED_BYTES: u64 = 128 << 10;

/// The background gets at most one part in so many of the memory.
const BACKGROUND_SHARE: u64 = 4;

/// Beyond its share a stream gets at most one part in so many of what is free.
const SPARE_SHARE: u64 = 16;

/// The part of the memory that streams may fill on average: the rest is for what disks
/// have not read yet, and for streams that are out of step.
const MEMORY_PART: f64 = 0.9;

/// Where memory is little, streams may run down to one part in so many of what a round
/// takes before they are filled again.
const REFILL_PART: f64 = 1.0 / 7.0;

const WANTED: Duration = Duration::from_millis(DELIVERY_BUFFERING_MILLIS_WANTED);

/// What to do about a stream. At most one thing: decide again when it is done.
#[must_use]
pub fn decide(snapshot: &Snapshot) -> Verdict {
    decide_within(snapshot, &horizon(&snapshot.pool, snapshot.look.rate))
}

/// The same where the stream's [`horizon`] is known.
pub(crate) fn decide_within(snapshot: &Snapshot, horizon: &Horizon) -> Verdict {
    decide_requested(snapshot, horizon).unwrap_or_else(|| decide_read(snapshot, horizon))
}

/// How far ahead a stream is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Horizon {
    /// T_D: for how long a stream has bytes when it was just filled.
    pub buffering: Duration,
    /// For how long it still has some when it is filled again.
    pub refill: Duration,
    /// How much longer than that of all its round is, because memory is short.
    pub stretch: f64,
}

/// T_D of a stream of this rate, in bytes per second if it is known, and when to read on.
///
/// In a round each of N streams is served once. A disk then spends N·t_pos on positioning
/// and B_net/B_seq of the time on transfers, and may be busy for a part u of it, so the
/// round lasts at least N·t_pos / (u − B_net/B_seq). T_D is two of them, and a stream is
/// filled again when one is left, for so long may the next request wait (TPF 3.2, the
/// factor 2 of (6)).
///
/// A stream that is filled for a round `r` when `m` is left has m + r/2 on average, and
/// that of all has to fit into the memory and what sockets hold. Where it does not, `m`
/// shrinks first: disks are seldom a whole round behind, but requests that are too short
/// keep them from being in time at all. Then the round shrinks, too.
///
/// For fast disks a round would be some milliseconds, and the CPU busy with short requests:
/// there T_D is [`DELIVERY_BUFFERING_MILLIS_WANTED`], within the same memory.
#[must_use]
pub fn horizon(pool: &Pool, rate: Option<u64>) -> Horizon {
    let rate_net = pool.rate_net.max(1) as f64;
    let wanted = match pool.policy.literal_td {
        true => 2.0 * random_rate(pool) / rate_net,
        // Rates are what starving streams get: sums of them say that the disk is fast enough.
        false if pool.disks.load_percent >= FULL_PERCENT => f64::INFINITY,
        false => two_rounds(pool, rate_net).max(WANTED.as_secs_f64()),
    };
    let memory = pool.policy.memory_bytes as f64 * MEMORY_PART;
    // About half of what was in sockets has left them since they were looked at.
    let affordable = (memory + pool.unsent_bytes as f64 / 2.0) / rate_net;
    let longest = affordable / (REFILL_PART + 0.5);
    let round = (wanted / 2.0).min(longest);
    let refill = (affordable - round / 2.0).clamp(round * REFILL_PART, round);
    let stretch = match wanted / 2.0 > longest {
        true => stretch(pool, rate),
        false => 1.0,
    };
    let least = Duration::from_millis(DELIVERY_BUFFERING_MILLIS_MIN);
    let most = Duration::from_millis(DELIVERY_BUFFERING_MILLIS_MAX);
    Horizon {
        buffering: seconds(round * stretch + refill).clamp(least, most),
        refill: seconds(refill).clamp(least / 2, most / 2),
        stretch,
    }
}

/// By how much the round of a stream of this rate is longer than that of all.
///
/// Streams of R_n bytes a request ask the disks ΣB_n/R_n times a second, and take ΣR_n/2
/// of the memory. Where that is short the requests are fewest if R_n is as √B_n: slow
/// streams are filled for longer than fast ones. The bounds keep fast ones from running
/// dry before a disk comes to them.
fn stretch(pool: &Pool, rate: Option<u64>) -> f64 {
    let Some(rate) = rate.filter(|_| pool.rate_roots > 0) else {
        return 1.0;
    };
    let even = pool.rate_net as f64 / pool.rate_roots as f64;
    (even / (rate.max(1) as f64).sqrt()).clamp(0.5, 4.0)
}

/// In seconds; endless if the disks cannot give B_net at all.
fn two_rounds(pool: &Pool, rate_net: f64) -> f64 {
    let count = f64::from(pool.disks.count.max(1));
    let policy = &pool.policy;
    // A request is cut along the stripes, and lies on so many disks.
    let touched = policy.request_bytes_max.div_ceil(policy.stripe_bytes) as f64;
    let visits = pool.streams as f64 * touched.min(count) / count;
    let sequential = pool.disks.sequential_bytes_per_second.max(1) as f64;
    let spare = f64::from(policy.utilisation_permille) / 1000.0 - rate_net / (count * sequential);
    if spare <= 0.0 {
        return f64::INFINITY;
    }
    2.0 * visits * pool.disks.positioning.as_secs_f64() / spare
}

/// B_D of the paper: what the disks give when each request is elsewhere, in bytes per second.
fn random_rate(pool: &Pool) -> f64 {
    let bytes = pool.policy.request_bytes_max as f64;
    let sequential = pool.disks.sequential_bytes_per_second.max(1) as f64;
    let time = pool.disks.positioning.as_secs_f64() + bytes / sequential;
    f64::from(pool.disks.count.max(1)) * bytes / time
}

/// EDRC for what lives on (TPF 3.3): while disks are loaded, what a connection in trouble
/// cannot send within T_D goes behind.
fn decide_requested(Snapshot { pool, look }: &Snapshot, horizon: &Horizon) -> Option<Verdict> {
    if !pool.policy.switches.edrc {
        return None;
    }
    let is_loaded = pool.disks.load_percent >= LOADED_PERCENT;
    let is_disturbed = look.is_held || look.is_troubled;
    if look.postponed_bytes > 0 && !(is_loaded && is_disturbed) {
        return Some(Verdict::Resume);
    }
    if !is_loaded || !is_disturbed {
        return None;
    }
    let term = horizon.buffering;
    let needed = match look.is_held {
        true => 0,
        // Nothing is known of a rate that could have shrunk.
        false => whole(look.rate? as f64 * term.as_secs_f64()),
    };
    let excess = look.ahead_bytes().saturating_sub(needed);
    let bytes = excess
        .min(look.requested_bytes)
        .saturating_sub(look.postponed_bytes);
    (bytes >= BLOCK_BYTES.min(look.requested_bytes).max(1)).then(|| Verdict::Postpone {
        bytes,
        by: term / 2,
    })
}

/// TDAP (TPF 3.2, (5) and (7)), within the memory that there is.
fn decide_read(Snapshot { pool, look }: &Snapshot, horizon: &Horizon) -> Verdict {
    let policy = &pool.policy;
    let is_held = look.is_held && policy.switches.edrc;
    if look.remaining_bytes == 0 || is_held && pool.disks.load_percent >= LOADED_PERCENT {
        return Verdict::Enough;
    }
    let wanted = match policy.switches.tdap {
        true => wanted(pool, look, horizon),
        false => fixed(look),
    };
    let Some(wanted) = wanted else {
        return Verdict::Enough;
    };
    // What there must be room for: nobody gets less for want of memory.
    let least = wanted
        .min(policy.request_bytes_min)
        .min(look.remaining_bytes);
    let free = free_memory(pool, look.class);
    if look.is_behind_others || free < least {
        return Verdict::Wait;
    }
    let bytes = wanted.min(memory_share(pool, look, horizon, free).max(least));
    let allowed = free.min(policy.request_bytes_max);
    let bytes = cut(
        look.remaining_bytes,
        bytes,
        allowed,
        policy.request_bytes_min,
    );
    Verdict::Request {
        bytes: along_stripes(pool, look, bytes, allowed),
    }
}

/// (T_D − T_n)·B_n, at most H_max; nothing before it is time. Of a client that asks for
/// pieces at least one, and whole ones.
fn wanted(pool: &Pool, look: &Look, horizon: &Horizon) -> Option<u64> {
    let policy = &pool.policy;
    let ahead = look.ahead_bytes();
    let Some(rate) = look.rate else {
        return (ahead == 0).then(|| first_bytes(pool));
    };
    let margin = ahead as f64 / rate.max(1) as f64;
    // A piece that is there in part would cost the disks two visits instead of one.
    if margin > horizon.refill.as_secs_f64() && look.requested_bytes >= look.unit_bytes {
        return None;
    }
    let mut wanted = whole((horizon.buffering.as_secs_f64() - margin).max(0.0) * rate as f64);
    if !look.is_measured {
        // A burst into the peer's buffer says little of its rate: as TCP itself, begin
        // slowly, with as much again as has arrived.
        let proven = look.acked_bytes.max(first_bytes(pool));
        if ahead > proven / 2 {
            return None;
        }
        wanted = wanted.min(proven);
    }
    let blocks = wanted.min(policy.request_bytes_max) / BLOCK_BYTES;
    Some(in_units(look, blocks.max(1) * BLOCK_BYTES))
}

/// What a stream gets whose rate is unknown: H_min, or more while there is memory for as
/// much for as many as there are. A disk that is visited once more for each newcomer is
/// busy with little else while many come.
fn first_bytes(pool: &Pool) -> u64 {
    let part = pool.policy.memory_bytes / FIRST_SHARE / pool.streams.saturating_add(1);
    let most = FIRST_BYTES_MAX.min(pool.policy.request_bytes_max);
    let bytes = part.min(most).max(pool.policy.request_bytes_min);
    bytes / BLOCK_BYTES * BLOCK_BYTES
}

/// So much more that what is requested is whole pieces.
fn in_units(look: &Look, bytes: u64) -> u64 {
    let all = look.requested_bytes.saturating_add(bytes);
    match look.unit_bytes {
        0 => bytes,
        unit => all.div_ceil(unit).saturating_mul(unit) - look.requested_bytes,
    }
}

/// Linux asks for the next group when the first byte of the last one is used.
fn fixed(look: &Look) -> Option<u64> {
    let ahead = look.ready_bytes.saturating_add(look.requested_bytes);
    (ahead <= FIXED_BYTES).then_some(FIXED_BYTES)
}

/// What a class may have of the memory in all; the background never less than one
/// stream's least.
fn memory_of(pool: &Pool, class: StreamClass) -> u64 {
    let memory = pool.policy.memory_bytes;
    match class {
        StreamClass::Foreground => memory,
        StreamClass::Background => (memory / BACKGROUND_SHARE).max(pool.policy.request_bytes_min),
    }
}

/// What is free of it.
fn free_memory(pool: &Pool, class: StreamClass) -> u64 {
    let free = pool.policy.memory_bytes.saturating_sub(pool.memory_used);
    match class {
        StreamClass::Foreground => free,
        StreamClass::Background => {
            free.min(memory_of(pool, class).saturating_sub(pool.background_used))
        }
    }
}

/// M_a·B_n/B_net, with what sockets hold as part of M_a, less what the stream has of it. As
/// streams are not all filled at the same moment, one may have more while memory is free;
/// and all of that while nothing is known of the rate, or without TDAP.
fn memory_share(pool: &Pool, look: &Look, horizon: &Horizon, free: u64) -> u64 {
    match look.rate {
        Some(rate) if pool.policy.switches.tdap => {
            let part = rate as f64 / pool.rate_net.max(rate).max(1) as f64;
            let all = memory_of(pool, look.class).saturating_add(pool.unsent_bytes);
            let share = whole(all as f64 * part * horizon.stretch);
            let share = share.saturating_sub(look.ahead_bytes());
            share.max(free / SPARE_SHARE) / BLOCK_BYTES * BLOCK_BYTES
        }
        _ => free,
    }
}

/// No tail requests: what would leave less than H_min or half of itself takes the rest
/// along, or halves what is left where the rest does not fit into `allowed` bytes. Of
/// requests below H_min the rest is to be another one like them.
fn cut(remaining: u64, bytes: u64, allowed: u64, request_bytes_min: u64) -> u64 {
    let bytes = bytes.min(allowed);
    let behind = remaining.saturating_sub(bytes);
    if behind >= request_bytes_min.min(bytes).max(bytes / 2) {
        return bytes;
    }
    if remaining <= allowed {
        return remaining;
    }
    let half = (remaining / 2).next_multiple_of(BLOCK_BYTES);
    half.min(allowed)
}

/// Where there are several disks a request ends where a stripe does, so that the next one
/// visits no disk for the rest of it: less of it if H_min is left, more if less than that is
/// missing and allowed. Neither makes a tail.
fn along_stripes(pool: &Pool, look: &Look, bytes: u64, allowed: u64) -> u64 {
    let policy = &pool.policy;
    let (min, stripe) = (policy.request_bytes_min, policy.stripe_bytes);
    let Some(place) = look.place_bytes else {
        return bytes;
    };
    let over = place.saturating_add(bytes) % stripe;
    let missing = stripe - over;
    // A client's own pieces stay whole.
    let is_whole = |part: u64| look.unit_bytes == 0 || part.is_multiple_of(look.unit_bytes);
    if pool.disks.count < 2
        || !policy.switches.tdap
        || over == 0
        || !is_whole(over)
        || !is_whole(missing)
    {
        return bytes;
    }
    let has_no_tail = |bytes: u64| match look.remaining_bytes.checked_sub(bytes) {
        Some(behind) => behind == 0 || behind >= min,
        None => false,
    };
    let (shorter, longer) = (bytes.saturating_sub(over), bytes.saturating_add(missing));
    if missing < min && longer <= allowed && has_no_tail(longer) {
        longer
    } else if shorter >= min && has_no_tail(shorter) {
        shorter
    } else {
        bytes
    }
}

#[cfg(test)]
mod tests;
