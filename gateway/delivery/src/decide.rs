//! The decisions of TPF as pure functions: how far ahead (T_D), what is read next (TDAP),
//! what of the requested has to wait (EDRC).
//!
//! Where the paper's formulas have no dimension of time or bytes, they are the issue's:
//! see docs/decisions/0030-delivery-engine.md.

use std::time::Duration;

use crossdock_limits::{DELIVERY_BUFFERING_MILLIS_MAX, DELIVERY_BUFFERING_MILLIS_MIN};

use crate::config::BLOCK_BYTES;
use crate::connection::StreamClass;
use crate::number::{seconds, whole};
use crate::snapshot::{Look, Pool, Snapshot, Verdict};

/// From this load on a disk counts as loaded: what one stream does not need now holds up
/// another one's.
const LOADED_PERCENT: u32 = 60;

/// Without TDAP: the read-ahead group of Linux 2.4, of which two are under way.
const FIXED_BYTES: u64 = 128 << 10;

/// The background gets at most one part in so many of the memory.
const BACKGROUND_SHARE: u64 = 4;

/// The part of the memory that the targets T_D·B_n of all streams may add up to. Each
/// stream has three quarters of its target on average (it falls to T_D/2 and is filled to
/// T_D), and half a target must be free for M_a·B_n/B_net not to cut requests of half a
/// target smaller: 3/4 + 1/2 of the target fill the memory.
const TARGET_PART: f64 = 1.0 / (0.75 + 0.5);

/// What to do about a stream. At most one thing: decide again when it is done.
#[must_use]
pub fn decide(snapshot: &Snapshot) -> Verdict {
    decide_requested(snapshot).unwrap_or_else(|| decide_read(snapshot))
}

/// T_D: for how long each stream should have bytes ahead.
///
/// In a round each of N streams is served once. A disk then spends N·t_pos on positioning
/// and B_net/B_seq of the time on transfers, and may be busy for a part u of it, so the
/// round lasts at least N·t_pos / (u − B_net/B_seq); two of them, for the next request has
/// to be under way when the last one's bytes are half gone (TPF 3.2, the factor 2 of (6)).
#[must_use]
pub fn buffering_time(pool: &Pool) -> Duration {
    let rate_net = pool.rate_net.max(1) as f64;
    let wanted = match pool.policy.literal_td {
        true => 2.0 * random_rate(pool) / rate_net,
        false => two_rounds(pool, rate_net),
    };
    let affordable = pool.policy.memory_bytes as f64 * TARGET_PART / rate_net;
    seconds(wanted.min(affordable)).clamp(
        Duration::from_millis(DELIVERY_BUFFERING_MILLIS_MIN),
        Duration::from_millis(DELIVERY_BUFFERING_MILLIS_MAX),
    )
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
fn decide_requested(Snapshot { pool, look }: &Snapshot) -> Option<Verdict> {
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
    let term = buffering_time(pool);
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
fn decide_read(Snapshot { pool, look }: &Snapshot) -> Verdict {
    let policy = &pool.policy;
    let is_held = look.is_held && policy.switches.edrc;
    if look.remaining_bytes == 0 || is_held && pool.disks.load_percent >= LOADED_PERCENT {
        return Verdict::Enough;
    }
    let wanted = match policy.switches.tdap {
        true => wanted(pool, look),
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
    let bytes = wanted.min(memory_share(pool, look, free).max(least));
    let allowed = free.min(policy.request_bytes_max);
    let bytes = cut(
        look.remaining_bytes,
        bytes,
        allowed,
        policy.request_bytes_min,
    );
    Verdict::Request { bytes }
}

/// (T_D − T_n)·B_n, at most H_max; nothing while T_n > T_D/2. Of a client that asks for
/// pieces at least one, and whole ones.
fn wanted(pool: &Pool, look: &Look) -> Option<u64> {
    let policy = &pool.policy;
    let ahead = look.ahead_bytes();
    let Some(rate) = look.rate else {
        return (ahead == 0).then_some(policy.request_bytes_min);
    };
    let term = buffering_time(pool).as_secs_f64();
    let margin = ahead as f64 / rate.max(1) as f64;
    // A piece that is there in part would cost the disks two visits instead of one.
    if margin > term / 2.0 && look.requested_bytes >= look.unit_bytes {
        return None;
    }
    let mut wanted = whole((term - margin).max(0.0) * rate as f64);
    if !look.is_measured {
        // A burst into the peer's buffer says little of its rate: as TCP itself, begin
        // slowly, with as much again as has arrived.
        let proven = look.acked_bytes.max(policy.request_bytes_min);
        if ahead > proven / 2 {
            return None;
        }
        wanted = wanted.min(proven);
    }
    let blocks = wanted.min(policy.request_bytes_max) / BLOCK_BYTES;
    Some(in_units(look, blocks.max(1) * BLOCK_BYTES))
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

/// M_a, as far as the class may take it.
fn free_memory(pool: &Pool, class: StreamClass) -> u64 {
    let memory = pool.policy.memory_bytes;
    let free = memory.saturating_sub(pool.memory_used);
    match class {
        StreamClass::Foreground => free,
        StreamClass::Background => {
            // But never less than one stream's least.
            let share = (memory / BACKGROUND_SHARE).max(pool.policy.request_bytes_min);
            free.min(share.saturating_sub(pool.background_used))
        }
    }
}

/// M_a·B_n/B_net; the whole of it while nothing is known of the rate, or without TDAP.
fn memory_share(pool: &Pool, look: &Look, free: u64) -> u64 {
    match look.rate {
        Some(rate) if pool.policy.switches.tdap => {
            let part = rate as f64 / pool.rate_net.max(rate).max(1) as f64;
            whole(free as f64 * part) / BLOCK_BYTES * BLOCK_BYTES
        }
        _ => free,
    }
}

/// No tail requests: what would leave less than H_min (or than a request like this one,
/// if that is less) takes the rest along, or halves what is left where the rest does not
/// fit into `allowed` bytes.
fn cut(remaining: u64, bytes: u64, allowed: u64, request_bytes_min: u64) -> u64 {
    let bytes = bytes.min(allowed);
    let behind = remaining.saturating_sub(bytes);
    if behind >= request_bytes_min.min(bytes) {
        return bytes;
    }
    if remaining <= allowed {
        return remaining;
    }
    let half = (remaining / 2).next_multiple_of(BLOCK_BYTES);
    half.min(allowed)
}

#[cfg(test)]
mod tests;
