//! What survives a kill -9, and what does not outlive its time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossdock_ibp::{Capabilities, Capability};

use super::talk::{Depots, Talk, content, keys};

/// How long the shortest leases are.
const SHORT_SECONDS: u64 = 8;

/// What was acknowledged before the server was killed.
pub(super) struct Left {
    arrays: Vec<(Capabilities, Vec<u8>)>,
    queue: Capabilities,
    /// Of a store that was not complete.
    half: Capabilities,
    /// Its time ends while nobody serves it, or soon after.
    short: Capabilities,
    until: Instant,
    used_mib: u64,
}

/// Stores in all ways; a store and a load are under way at the end.
pub(super) fn leave(depots: &Depots) -> Result<Left> {
    let mut talk = depots.talk()?;
    let mut arrays = Vec::new();
    for (number, bytes) in (0_u8..).zip([1, 4096, 65_536, 65_537, 1_000_000, 9_000_000]) {
        let made = talk.allocate(&format!("2 1 3600 {}", bytes + 10))?;
        let data = content(number, bytes);
        talk.store(&made.write, &data)?;
        arrays.push((made, data));
    }
    let queue = talk.allocate("2 4 3600 10")?;
    talk.store(&queue.write, b"abcdef")?;
    talk.store(&queue.write, b"ghijkl")?;
    ensure!(talk.load(&queue.read, "0 4", 4)? == b"cdef");
    let short = talk.allocate(&format!("2 1 {SHORT_SECONDS} 100000000"))?;
    let until = Instant::now() + Duration::from_secs(SHORT_SECONDS);
    talk.store(&short.write, &content(9, 1000))?;
    let used_mib = used_mib(&mut talk)?;
    let half = talk.allocate("2 1 3600 2000000")?;
    talk.store(&half.write, b"whole")?;
    talk.expect(&format!("0 2 {} 1900000 40 \n", keys(&half.write)), "1 \n")?;
    talk.say(content(7, 1_500_000))?;
    Ok(Left {
        arrays,
        queue,
        half,
        short,
        until,
        used_mib,
    })
}

/// Everything is as it was left, at other ports, and goes on.
pub(super) fn check(depots: &Depots, left: Left) -> Result<()> {
    let mut talk = depots.talk()?;
    for (made, data) in &left.arrays {
        let bytes = data.len();
        let probe = talk.probe(&made.manage)?;
        ensure!(probe.size_bytes == bytes as u64, "{probe:?}");
        ensure!(probe.duration_seconds <= 3600, "{probe:?}");
        ensure!(
            talk.load(&made.read, "0 0", bytes)? == *data,
            "{bytes} bytes"
        );
        talk.store(&made.write, b"more")?;
        ensure!(talk.load(&made.read, &format!("{bytes} 4"), 4)? == b"more");
    }
    ensure!(talk.load(&left.queue.read, "0 6", 6)? == b"ghijkl");
    let probe = talk.probe(&left.half.read)?;
    ensure!(probe.size_bytes == 5, "{probe:?}");
    talk.expect(&format!("0 13 {} 8 1 0 \n", keys(&left.half.write)), "1 \n")?;
    talk.say(b"!")?;
    ensure!(talk.line()? == "1 1\n");
    ensure!(talk.load(&left.half.read, "0 0", 9)? == b"whole\0\0\0!");
    expiry(depots, &left).context("expiry")
}

/// The lease that was given before the kill ends when it was to, and its space comes back.
fn expiry(depots: &Depots, left: &Left) -> Result<()> {
    let mut talk = depots.talk()?;
    let is_before = Instant::now() + Duration::from_secs(1) < left.until;
    if is_before {
        ensure!(talk.load(&left.short.read, "0 0", 1000)? == content(9, 1000));
    }
    let reader = Holder::of(depots, &left.short.read)?;
    let patience = Duration::from_secs(2);
    while Instant::now() < left.until + patience {
        thread::park_timeout(Duration::from_millis(200));
    }
    talk.expect(
        &format!("0 8 {} 0 0 1 \n", keys(&left.short.read)),
        " -4 \n",
    )?;
    let used = used_mib(&mut depots.talk()?)?;
    ensure!(used + 90 < left.used_mib, "{used} MiB of {}", left.used_mib);
    reader.expect_refusal()
}

/// Somebody who waits for more bytes than there are when a lease ends.
struct Holder(Talk);

impl Holder {
    fn of(depots: &Depots, read: &Capability) -> Result<Self> {
        let mut talk = depots.talk()?;
        talk.say(format!("0 8 {} 0 5000 60 \n", keys(read)))?;
        Ok(Self(talk))
    }

    fn expect_refusal(mut self) -> Result<()> {
        let line = self.0.line()?;
        ensure!(line == " -4 \n", "{line:?}");
        self.0.expect_end()
    }
}

/// Space of all allocations in use, as the depot tells it.
fn used_mib(talk: &mut Talk) -> Result<u64> {
    talk.say("0 4 1 ibp 10\n")?;
    let line = talk.line()?;
    let used = line.split(' ').nth(3).context("no status")?;
    Ok(used.parse()?)
}
