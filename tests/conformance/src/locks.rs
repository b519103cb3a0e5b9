//! NLM, and what NSM does to locks, by hand: every procedure, and every status
//! that one machine can bring about.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use crossdock_nfs3::HandleBuffer;

use crate::client::next_xid;
use crate::datagrams::Datagrams;
use crate::hand::{Eye, Hand, anonymous, call};
use crate::runner::{Check, Stage, check, with_servers};
use crate::wire::{PATIENCE, Wire};

pub(crate) const CHECKS: &[Check] = &[
    check("NULL of NLM and NSM is answered to anybody", nulls),
    check(
        "versions and procedures that are not there are told",
        not_there,
    ),
    check(
        "TEST, LOCK and UNLOCK keep owners apart, byte by byte",
        owners,
    ),
    check(
        "a lock to the end of the file has length 0 for others",
        to_the_end,
    ),
    check("ranges beyond 2^63 are FBIG", too_big),
    check(
        "a file that is gone is STALE_FH, and has nothing to unlock",
        stale,
    ),
    check("who may not touch the file locks nothing", no_right),
    check("version 3 knows 32 bits and five statuses", version_three),
    check("a request that waits can be cancelled, once", cancelling),
    check("who waits is called when the lock is free", granted),
    check("two owners who wait for each other: DEADLCK", deadlock),
    check("a message is answered by a call to the client", messages),
    check("share reservations deny what they say", shares),
    check(
        "NM_LOCK locks, and FREE_ALL frees all of that client",
        free_all,
    ),
    check(
        "NOTIFY frees what an earlier state had, and no more",
        notified,
    ),
    check("a LOCK sent again after UNLOCK takes nothing", sent_again),
    check(
        "a reclaim outside the grace period is refused",
        late_reclaim,
    ),
    with_servers(
        "after a crash locks are held, and only reclaims taken",
        after_a_crash,
    ),
];

pub(crate) const NLM: u32 = 100_021;
pub(crate) const NSM: u32 = 100_024;
pub(crate) const PORTMAP: u32 = 100_000;

const TEST: u32 = 1;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const GRANTED: u32 = 5;
const LOCK_MSG: u32 = 7;
const LOCK_RES: u32 = 12;
const SHARE: u32 = 20;
const UNSHARE: u32 = 21;
const NM_LOCK: u32 = 22;
const FREE_ALL: u32 = 23;

/// `nlm4_stats`.
mod stat {
    pub(super) const GRANTED: u32 = 0;
    pub(super) const DENIED: u32 = 1;
    pub(super) const NOLOCKS: u32 = 2;
    pub(super) const BLOCKED: u32 = 3;
    pub(super) const GRACE: u32 = 4;
    pub(super) const DEADLCK: u32 = 5;
    pub(super) const STALE: u32 = 7;
    pub(super) const FBIG: u32 = 8;
    pub(super) const FAILED: u32 = 9;
}

const COOKIE: &[u8] = b"cookie";

/// Somebody who locks: a name of a machine, and a process of it.
#[derive(Clone, Copy)]
struct Who(&'static str, u32);

/// What is locked.
#[derive(Clone, Copy)]
struct Range<'a>(&'a HandleBuffer, u64, u64);

/// `nlm4_lock`, or `nlm_lock` of earlier versions.
fn lock_of(hand: Hand, version: u32, who: Who, range: Range<'_>) -> Hand {
    let hand = hand.opaque(who.0.as_bytes());
    let hand = hand.opaque(range.0.as_handle().as_bytes());
    let hand = hand.opaque(who.1.to_string().as_bytes()).u32(who.1);
    if version == 4 {
        return hand.u64(range.1).u64(range.2);
    }
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    hand.u32(narrow(range.1)).u32(narrow(range.2))
}

/// How a lock is asked for.
#[derive(Clone, Copy, Default)]
struct Terms {
    exclusive: bool,
    block: bool,
    reclaim: bool,
    state: u32,
}

const SHARED: Terms = Terms {
    exclusive: false,
    block: false,
    reclaim: false,
    state: 1,
};
const EXCLUSIVE: Terms = Terms {
    exclusive: true,
    ..SHARED
};
const BLOCKING: Terms = Terms {
    block: true,
    ..EXCLUSIVE
};

/// A connection that locks.
struct Locker {
    wire: Wire,
    version: u32,
}

impl Locker {
    fn connect(address: SocketAddr) -> Result<Self> {
        let wire = Wire::connect(address)?;
        Ok(Self { wire, version: 4 })
    }

    fn arguments(&self, procedure: u32, terms: Terms, who: Who, range: Range<'_>) -> (u32, Hand) {
        let xid = next_xid();
        let mut hand = call(xid, NLM, self.version, procedure).opaque(COOKIE);
        if matches!(procedure, LOCK | LOCK_MSG | NM_LOCK | CANCEL) {
            hand = hand.u32(terms.block.into());
        }
        if procedure != UNLOCK {
            hand = hand.u32(terms.exclusive.into());
        }
        hand = lock_of(hand, self.version, who, range);
        if matches!(procedure, LOCK | LOCK_MSG | NM_LOCK) {
            hand = hand.u32(terms.reclaim.into()).u32(terms.state);
        }
        (xid, hand)
    }

    /// The results of a call that was carried out.
    fn results(&mut self, (xid, hand): (u32, Hand)) -> Result<Bytes> {
        let reply = self.wire.exchange(&hand.0)?;
        Eye(&reply).success(xid)?;
        Ok(reply.slice(24..))
    }

    fn status(&mut self, procedure: u32, terms: Terms, who: Who, range: Range<'_>) -> Result<u32> {
        let arguments = self.arguments(procedure, terms, who, range);
        let results = self.results(arguments)?;
        let mut eye = Eye(&results);
        ensure!(eye.opaque()? == COOKIE, "another cookie");
        let status = eye.u32()?;
        eye.end()?;
        Ok(status)
    }

    /// Procedure `what` is answered with `expected`.
    fn expect(
        &mut self,
        expected: u32,
        what: u32,
        terms: Terms,
        who: Who,
        range: Range<'_>,
    ) -> Result<()> {
        let found = self.status(what, terms, who, range)?;
        ensure!(
            found == expected,
            "procedure {what}: status {found}, not {expected}"
        );
        Ok(())
    }

    /// Who is in the way: kind, process, first byte, length.
    fn holder(
        &mut self,
        terms: Terms,
        who: Who,
        range: Range<'_>,
    ) -> Result<Option<(bool, u32, u64, u64)>> {
        let arguments = self.arguments(TEST, terms, who, range);
        let results = self.results(arguments)?;
        let mut eye = Eye(&results);
        ensure!(eye.opaque()? == COOKIE, "another cookie");
        let status = eye.u32()?;
        if status == stat::GRANTED {
            eye.end()?;
            return Ok(None);
        }
        ensure!(status == stat::DENIED, "status {status}");
        let (exclusive, process) = (eye.u32()? == 1, eye.u32()?);
        ensure!(
            eye.opaque()? == process.to_string().as_bytes(),
            "another owner"
        );
        let (first, length) = if self.version == 4 {
            (eye.u64()?, eye.u64()?)
        } else {
            (eye.u32()?.into(), eye.u32()?.into())
        };
        eye.end()?;
        Ok(Some((exclusive, process, first, length)))
    }
}

const A: Who = Who("alpha", 11);
const B: Who = Who("beta", 22);

fn file(stage: &Stage<'_>) -> Result<HandleBuffer> {
    stage.client()?.create(&stage.directory, "file", 0o666)
}

fn nulls(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    let socket = Datagrams::connect(stage.address)?;
    for (program, version) in [(NLM, 1), (NLM, 3), (NLM, 4), (NSM, 1)] {
        let xid = next_xid();
        let null = anonymous(xid, program, version, 0).0;
        for reply in [wire.exchange(&null)?, socket.exchange(&null)?] {
            let mut eye = Eye(&reply);
            eye.success(xid)?;
            eye.end()?;
        }
    }
    Ok(())
}

fn not_there(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    let mut ask = |program, version, procedure, expected: &[u32]| {
        let xid = next_xid();
        let reply = wire.exchange(&anonymous(xid, program, version, procedure).0)?;
        let mut eye = Eye(&reply);
        eye.accepted(xid)?;
        for word in expected {
            eye.is(*word, "accept_stat and range")?;
        }
        eye.end()
    };
    ask(NLM, 2, 0, &[2, 1, 4])?;
    ask(NLM, 5, 0, &[2, 1, 4])?;
    ask(NSM, 2, 0, &[2, 1, 1])?;
    ask(NLM, 4, 17, &[3])?;
    ask(NLM, 4, 24, &[3])?;
    ask(NLM, 1, SHARE, &[3])?;
    ask(NSM, 1, 7, &[3])?;
    ask(NLM, 4, LOCK, &[4])?;
    ask(NSM, 1, 6, &[4])?;
    ask(PORTMAP, 2, 0, &[1]) // It has a door of its own.
}

fn owners(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut locker = Locker::connect(stage.address)?;
    let part = |first, length| Range(&file, first, length);
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, part(10, 10))?;
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, part(10, 10))?;
    locker.expect(stat::DENIED, LOCK, EXCLUSIVE, B, part(19, 1))?;
    locker.expect(stat::DENIED, LOCK, SHARED, Who("alpha", 12), part(10, 1))?;
    locker.expect(stat::GRANTED, LOCK, SHARED, B, part(20, 5))?;
    locker.expect(stat::GRANTED, LOCK, SHARED, A, part(20, 5))?;
    locker.expect(stat::DENIED, LOCK, EXCLUSIVE, A, part(24, 1))?;
    let held = locker.holder(SHARED, B, part(0, 100))?;
    ensure!(held == Some((true, 11, 10, 10)), "{held:?}");
    locker.expect(stat::GRANTED, UNLOCK, SHARED, A, part(13, 4))?;
    let held = locker.holder(EXCLUSIVE, B, part(12, 6))?;
    ensure!(held == Some((true, 11, 10, 3)), "{held:?}");
    ensure!(
        locker.holder(EXCLUSIVE, B, part(13, 4))?.is_none(),
        "not given up"
    );
    let held = locker.holder(EXCLUSIVE, B, part(17, 1))?;
    ensure!(held == Some((true, 11, 17, 3)), "{held:?}");
    locker.expect(stat::GRANTED, UNLOCK, SHARED, B, part(0, 0))?;
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, part(24, 1))
}

fn to_the_end(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut locker = Locker::connect(stage.address)?;
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, Range(&file, 100, 0))?;
    let far = Range(&file, (1 << 63) - 1, 1);
    let held = locker.holder(EXCLUSIVE, B, far)?;
    ensure!(held == Some((true, 11, 100, 0)), "{held:?}");
    locker.expect(stat::GRANTED, UNLOCK, SHARED, A, Range(&file, 200, 0))?;
    let held = locker.holder(EXCLUSIVE, B, Range(&file, 0, 0))?;
    ensure!(held == Some((true, 11, 100, 100)), "{held:?}");
    Ok(())
}

fn too_big(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut locker = Locker::connect(stage.address)?;
    for (first, length) in [(1 << 63, 1), ((1 << 63) - 1, 2), (5, u64::MAX)] {
        let range = Range(&file, first, length);
        locker.expect(stat::FBIG, LOCK, EXCLUSIVE, A, range)?;
        locker.expect(stat::FBIG, UNLOCK, EXCLUSIVE, A, range)?;
        locker.expect(stat::FBIG, TEST, EXCLUSIVE, A, range)?;
    }
    Ok(())
}

fn stale(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut locker = Locker::connect(stage.address)?;
    let range = Range(&file, 0, 0);
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, range)?;
    stage.client()?.remove(&stage.directory, "file")?;
    locker.expect(stat::STALE, LOCK, EXCLUSIVE, A, range)?;
    locker.expect(stat::STALE, TEST, EXCLUSIVE, A, range)?;
    locker.expect(stat::GRANTED, UNLOCK, EXCLUSIVE, A, range)?;
    let forged = HandleBuffer::new(&[7; 64]).context("a handle")?;
    locker.expect(stat::STALE, LOCK, EXCLUSIVE, A, Range(&forged, 0, 0))
}

fn no_right(stage: &Stage<'_>) -> Result<()> {
    let secret = stage.client()?.create(&stage.directory, "secret", 0o600)?;
    let mut locker = Locker::connect(stage.address)?;
    let range = Range(&secret, 0, 0);
    let xid = next_xid();
    let sys = Hand::default().u32(7).opaque(b"hand").u32(5).u32(5).u32(0);
    let hand = crate::hand::bare(xid, NLM, 4, LOCK).u32(1).opaque(&sys.0);
    let hand = hand.u32(0).u32(0).opaque(COOKIE).u32(0).u32(1);
    let hand = lock_of(hand, 4, B, range).u32(0).u32(1);
    let results = locker.results((xid, hand))?;
    let mut eye = Eye(&results);
    eye.opaque()?;
    eye.is(stat::FAILED, "status")?;
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, range)
}

fn version_three(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut wide = Locker::connect(stage.address)?;
    let mut narrow = Locker::connect(stage.address)?;
    for version in [1, 3] {
        narrow.version = version;
        narrow.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, Range(&file, 10, 5))?;
        let held = wide.holder(EXCLUSIVE, B, Range(&file, 0, 0))?;
        ensure!(held == Some((true, 11, 10, 5)), "{held:?}");
        wide.expect(stat::GRANTED, LOCK, EXCLUSIVE, B, Range(&file, 5 << 32, 7))?;
        let held = narrow.holder(EXCLUSIVE, A, Range(&file, 100, 0))?;
        ensure!(held == Some((true, 22, u64::from(u32::MAX), 7)), "{held:?}");
        // Up to the end of 32 bits is up to the end.
        narrow.expect(
            stat::DENIED,
            LOCK,
            EXCLUSIVE,
            A,
            Range(&file, 100, u64::from(u32::MAX)),
        )?;
        for who in [A, B] {
            wide.expect(stat::GRANTED, UNLOCK, EXCLUSIVE, who, Range(&file, 0, 0))?;
        }
        let forged = HandleBuffer::new(&[7; 64]).context("a handle")?;
        narrow.expect(stat::NOLOCKS, LOCK, EXCLUSIVE, A, Range(&forged, 0, 0))?;
    }
    Ok(())
}

fn cancelling(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut locker = Locker::connect(stage.address)?;
    let all = Range(&file, 0, 0);
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, all)?;
    locker.expect(stat::BLOCKED, LOCK, BLOCKING, B, all)?;
    locker.expect(stat::BLOCKED, LOCK, BLOCKING, B, all)?;
    locker.expect(stat::GRANTED, CANCEL, BLOCKING, B, all)?;
    locker.expect(stat::DENIED, CANCEL, BLOCKING, B, all)?;
    locker.expect(stat::GRANTED, UNLOCK, EXCLUSIVE, A, all)?;
    let held = locker.holder(EXCLUSIVE, A, all)?;
    ensure!(held.is_none(), "{held:?} waited on");
    Ok(())
}

/// A client's portmapper and, at the same port, its programs.
struct Callee(UdpSocket);

impl Callee {
    fn bind() -> Result<Self> {
        let socket = UdpSocket::bind("0.0.0.0:111")
            .context("the checks run as root, in a network of their own")?;
        Ok(Self(socket))
    }

    /// The arguments of the next call of `program` that is no question for a
    /// port; answered with `results`.
    fn called(&self, program: u32, procedure: u32, results: &Hand) -> Result<Vec<u8>> {
        let called = self.called_within(PATIENCE, program, procedure, results)?;
        called.context("nobody calls")
    }

    /// The same, if there is one so soon.
    fn called_within(
        &self,
        patience: Duration,
        program: u32,
        procedure: u32,
        results: &Hand,
    ) -> Result<Option<Vec<u8>>> {
        self.0.set_read_timeout(Some(patience))?;
        loop {
            let mut buffer = vec![0; 65_536];
            let (length, from) = match self.0.recv_from(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                received => received?,
            };
            let mut eye = Eye(&buffer[..length]);
            let xid = eye.u32()?;
            eye.is(0, "message type")?;
            eye.is(2, "RPC version")?;
            let (called, _version, number) = (eye.u32()?, eye.u32()?, eye.u32()?);
            eye.take(16)?; // Neither credential nor verifier.
            let reply = Hand::default().u32(xid).u32(1).u32(0).u32(0).u32(0).u32(0);
            if called == PORTMAP {
                eye.is(program, "program")?;
                let port = self.0.local_addr()?.port();
                self.0.send_to(&reply.u32(port.into()).0, from)?;
                continue;
            }
            if (called, number) != (program, procedure) {
                continue; // Another gateway's, about what was before.
            }
            self.0.send_to(&reply.raw(&results.0).0, from)?;
            return Ok(Some(eye.0.to_vec()));
        }
    }
}

fn granted(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let callee = Callee::bind()?;
    let mut locker = Locker::connect(stage.address)?;
    let part = Range(&file, 7, 9);
    for accepts in [true, false] {
        locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, Range(&file, 0, 0))?;
        locker.expect(stat::BLOCKED, LOCK, BLOCKING, B, part)?;
        locker.expect(stat::GRANTED, UNLOCK, EXCLUSIVE, A, Range(&file, 0, 0))?;
        let status = if accepts { stat::GRANTED } else { stat::DENIED };
        let results = Hand::default().opaque(COOKIE).u32(status);
        let arguments = callee.called(NLM, GRANTED, &results)?;
        let mut eye = Eye(&arguments);
        ensure!(!eye.opaque()?.is_empty(), "no cookie");
        let expected = lock_of(Hand::default().u32(1), 4, B, part);
        ensure!(eye.0 == expected.0, "another lock than was asked for");
        // The answer is taken a moment later.
        let mut held = locker.holder(EXCLUSIVE, A, part)?;
        for _ in 0..1000 {
            if held.is_some() == accepts {
                break;
            }
            // Of several gateways each may call, also for the lock before.
            callee.called_within(Duration::from_millis(1), NLM, GRANTED, &results)?;
            held = locker.holder(EXCLUSIVE, A, part)?;
        }
        let expected = accepts.then_some((true, 22, 7, 9));
        ensure!(held == expected, "{held:?}, not {expected:?}");
        locker.expect(stat::GRANTED, UNLOCK, EXCLUSIVE, B, part)?;
    }
    Ok(())
}

fn deadlock(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut locker = Locker::connect(stage.address)?;
    let (first, second) = (Range(&file, 0, 1), Range(&file, 1, 1));
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, first)?;
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, B, second)?;
    locker.expect(stat::BLOCKED, LOCK, BLOCKING, A, second)?;
    locker.expect(stat::DEADLCK, LOCK, BLOCKING, B, first)?;
    locker.expect(stat::GRANTED, CANCEL, BLOCKING, A, second)?;
    locker.expect(stat::BLOCKED, LOCK, BLOCKING, B, first)?;
    locker.expect(stat::GRANTED, CANCEL, BLOCKING, B, first)
}

fn messages(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let callee = Callee::bind()?;
    let mut locker = Locker::connect(stage.address)?;
    let forged = HandleBuffer::new(&[7; 64]).context("a handle")?;
    for (who, handle, expected) in [
        (A, &file, stat::GRANTED),
        (B, &file, stat::DENIED),
        (B, &forged, stat::STALE),
    ] {
        let message = locker.arguments(LOCK_MSG, EXCLUSIVE, who, Range(handle, 0, 0));
        let results = locker.results(message)?;
        ensure!(results.is_empty(), "a message has no results");
        let arguments = callee.called(NLM, LOCK_RES, &Hand::default())?;
        let mut eye = Eye(&arguments);
        ensure!(eye.opaque()? == COOKIE, "another cookie");
        eye.is(expected, "status")?;
        eye.end()?;
    }
    Ok(())
}

fn share(
    locker: &mut Locker,
    procedure: u32,
    who: Who,
    file: &HandleBuffer,
    deny: u32,
    access: u32,
) -> Result<u32> {
    let xid = next_xid();
    let hand = call(xid, NLM, 4, procedure).opaque(COOKIE);
    let hand = hand.opaque(who.0.as_bytes());
    let hand = hand.opaque(file.as_handle().as_bytes()).opaque(b"owner");
    let results = locker.results((xid, hand.u32(deny).u32(access).u32(0)))?;
    let mut eye = Eye(&results);
    ensure!(eye.opaque()? == COOKIE, "another cookie");
    let status = eye.u32()?;
    eye.u32()?; // A sequence number that nobody uses.
    eye.end()?;
    Ok(status)
}

fn shares(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut locker = Locker::connect(stage.address)?;
    let (reads, writes) = (1, 2);
    let mut ask = |procedure, who, deny, access, expected| {
        let found = share(&mut locker, procedure, who, &file, deny, access)?;
        ensure!(found == expected, "status {found}, not {expected}");
        Ok(())
    };
    ask(SHARE, A, writes, reads, stat::GRANTED)?;
    ask(SHARE, B, 0, writes, stat::DENIED)?;
    ask(SHARE, B, reads, reads, stat::DENIED)?;
    ask(SHARE, B, writes, reads, stat::GRANTED)?;
    ask(UNSHARE, A, writes, reads, stat::GRANTED)?;
    ask(SHARE, B, 0, writes, stat::GRANTED)?;
    ask(SHARE, A, writes, reads, stat::DENIED)?;
    ask(UNSHARE, B, 0, writes, stat::GRANTED)
}

fn free_all(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut locker = Locker::connect(stage.address)?;
    let (dos, other) = (Who("dos", 1), Who("other-dos", 1));
    locker.expect(stat::GRANTED, NM_LOCK, EXCLUSIVE, dos, Range(&file, 0, 1))?;
    locker.expect(stat::GRANTED, NM_LOCK, EXCLUSIVE, other, Range(&file, 1, 1))?;
    locker.expect(stat::DENIED, LOCK, EXCLUSIVE, A, Range(&file, 0, 1))?;
    let xid = next_xid();
    let hand = call(xid, NLM, 4, FREE_ALL).opaque(b"dos").u32(3);
    ensure!(
        locker.results((xid, hand))?.is_empty(),
        "FREE_ALL has no results"
    );
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, Range(&file, 0, 1))?;
    locker.expect(stat::DENIED, LOCK, EXCLUSIVE, A, Range(&file, 1, 1))
}

fn notified(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut locker = Locker::connect(stage.address)?;
    let of_state = |state| Terms { state, ..EXCLUSIVE };
    locker.expect(stat::GRANTED, LOCK, of_state(5), A, Range(&file, 0, 1))?;
    locker.expect(stat::GRANTED, LOCK, of_state(7), A, Range(&file, 5, 1))?;
    locker.expect(stat::GRANTED, LOCK, of_state(5), B, Range(&file, 9, 1))?;
    let socket = Datagrams::connect(stage.address)?;
    for _ in 0..2 {
        let xid = next_xid();
        let notify = anonymous(xid, NSM, 1, 6).opaque(b"alpha.example").u32(7);
        let reply = socket.exchange(&notify.0)?;
        let mut eye = Eye(&reply);
        eye.success(xid)?;
        eye.end()?;
        ensure!(
            locker.holder(EXCLUSIVE, B, Range(&file, 0, 1))?.is_none(),
            "state 5 is held"
        );
        let held = locker.holder(EXCLUSIVE, B, Range(&file, 5, 1))?;
        ensure!(held == Some((true, 11, 5, 1)), "{held:?}");
        let held = locker.holder(EXCLUSIVE, A, Range(&file, 9, 1))?;
        ensure!(held == Some((true, 22, 9, 1)), "{held:?}");
    }
    Ok(())
}

fn sent_again(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut locker = Locker::connect(stage.address)?;
    let all = Range(&file, 0, 0);
    let (_, record) = locker.arguments(LOCK, EXCLUSIVE, A, all);
    let first = locker.wire.exchange(&record.0)?;
    locker.expect(stat::GRANTED, UNLOCK, EXCLUSIVE, A, all)?;
    let again = Wire::connect(stage.address)?.exchange(&record.0)?;
    ensure!(first == again, "another reply");
    let held = locker.holder(EXCLUSIVE, B, all)?;
    ensure!(held.is_none(), "{held:?} is locked again");
    Ok(())
}

const RECLAIM: Terms = Terms {
    reclaim: true,
    ..EXCLUSIVE
};

fn late_reclaim(stage: &Stage<'_>) -> Result<()> {
    let file = file(stage)?;
    let mut locker = Locker::connect(stage.address)?;
    let all = Range(&file, 0, 0);
    locker.expect(stat::GRACE, LOCK, RECLAIM, A, all)?;
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, all)?;
    locker.expect(stat::GRANTED, LOCK, RECLAIM, A, all)
}

fn after_a_crash(stage: &Stage<'_>) -> Result<()> {
    let arguments = ["--grace", "600"];
    let server = stage.own_server("locks", &arguments)?;
    let mut client = crate::client::Client::connect(server.address())?;
    let root = client.mount("/")?;
    let file = client.create(&root, "file", 0o666)?;
    let part = |first| Range(&file, first, 10);
    let mut locker = Locker::connect(server.address())?;
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, part(0))?;
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, A, part(20))?;
    locker.expect(stat::GRANTED, UNLOCK, EXCLUSIVE, A, part(20))?;
    server.kill()?;

    let server = stage.own_server("locks", &arguments)?;
    let mut locker = Locker::connect(server.address())?;
    locker.expect(stat::GRACE, LOCK, EXCLUSIVE, B, part(40))?;
    locker.expect(stat::GRACE, LOCK, BLOCKING, B, part(40))?;
    locker.expect(stat::DENIED, LOCK, RECLAIM, B, part(5))?;
    locker.expect(stat::GRANTED, LOCK, RECLAIM, A, part(0))?;
    // The client's monitor is told, and with that all are: grace is over.
    let callee = Callee::bind()?;
    let arguments = callee.called(NSM, 6, &Hand::default())?;
    let mut eye = Eye(&arguments);
    eye.opaque()?;
    let state = eye.u32()?;
    ensure!(state % 2 == 1, "state {state} means that it is down");
    let mut found = stat::GRACE;
    for _ in 0..1000 {
        found = locker.status(LOCK, EXCLUSIVE, B, part(40))?;
        if found != stat::GRACE {
            break;
        }
    }
    ensure!(
        found == stat::GRANTED,
        "status {found} after the grace period"
    );
    locker.expect(stat::DENIED, LOCK, EXCLUSIVE, B, part(0))?;
    locker.expect(stat::GRANTED, LOCK, EXCLUSIVE, B, part(20))?;
    server.stop()?;
    stage.clear("locks")
}
