//! Locks over take-overs: they are the file's, so they are there whoever serves it and
//! through whichever gateway they are asked for.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::call::{self, Call, CreateHow};
use crossdock_nfs3::{HandleBuffer, Location, Name, Reply, SetAttributes};
use crossdock_tests_crash::client::{Client, LockStatus, LockWish};

use super::Processes;
use crate::suite::Stage;

/// How long it may take until new locks are given again: who takes over gives the clients a
/// grace period of a second first (`--grace 1`), and whoever is not reached is waited for.
const GRACE_PATIENCE: Duration = Duration::from_secs(15);

const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The first ten bytes, and what nobody has locked.
const HELD: u64 = 0;
const FREE: u64 = 100;

/// Calls of one connection, at most, and how many there were.
const CALLS_MAX: u32 = 1 << 12;
static CONNECTIONS: AtomicU32 = AtomicU32::new(1);

/// Who holds the lock, and who would like to.
const ALPHA: &str = "alpha";
const BETA: &str = "beta";

/// The manager of the file's site dies, then a gateway; after each the lock is held, and its
/// owner can give it up.
pub(super) fn run(stage: &Stage<'_>, processes: &mut Processes<'_>) -> Result<()> {
    let doors = processes.doors()?;
    let file = create(doors[0])?;
    let alpha = |door| Locker::connect(door, file, ALPHA, 11);
    let beta = |door| Locker::connect(door, file, BETA, 22);

    alpha(doors[0])?.expect(LockStatus::Granted, HELD)?;
    beta(doors[1])?.expect(LockStatus::Denied, HELD)?;
    let serving = processes.serving_manager(stage)?;
    let began = Instant::now();
    processes.managers[serving].kill();
    let first = stays_held(&mut beta(doors[1])?, began)?;
    println!(
        "{} killed: the first answer about its locks after {:.2} s, new ones after {:.2} s",
        processes.managers[serving].name(),
        first.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
    // What was held is known, whether or not it is claimed.
    alpha(doors[0])?.expect(LockStatus::Granted, HELD)?;
    beta(doors[1])?.expect(LockStatus::Denied, HELD)?;
    give_and_take(&mut alpha(doors[0])?, &mut beta(doors[1])?)?;
    processes.managers[serving].restart(stage)?;
    processes.await_whole(stage)?;

    beta(doors[1])?.expect(LockStatus::Granted, HELD)?;
    alpha(doors[0])?.expect(LockStatus::Denied, HELD)?;
    processes.gateways[1].kill();
    alpha(doors[0])?.expect(LockStatus::Denied, HELD)?;
    // Its own, asked for once more where its client is now.
    beta(doors[0])?.expect(LockStatus::Granted, HELD)?;
    alpha(doors[0])?.expect(LockStatus::Denied, HELD)?;
    give_and_take(&mut beta(doors[0])?, &mut alpha(doors[0])?)?;
    processes.gateways[1].restart(stage)?;
    processes.await_whole(stage)
}

/// Until new locks are given again nobody gets the one that is held; how long the first
/// answer took.
fn stays_held(beta: &mut Locker, began: Instant) -> Result<Duration> {
    let mut first = None;
    loop {
        let held = beta.lock(HELD)?;
        first.get_or_insert_with(|| began.elapsed());
        let is_told = matches!(held, LockStatus::Denied | LockStatus::GracePeriod);
        ensure!(is_told, "a lock that is held: {held:?}");
        match beta.lock(FREE)? {
            LockStatus::Granted => break,
            LockStatus::GracePeriod => {}
            other => bail!("a lock that is free: {other:?}"),
        }
        ensure!(
            began.elapsed() < GRACE_PATIENCE,
            "there is no end to the grace period"
        );
        thread::park_timeout(AGAIN_AFTER);
    }
    beta.give_up(FREE)?;
    first.context("no answer")
}

/// The lock is given up, and the other one has it; then nobody.
fn give_and_take(holder: &mut Locker, other: &mut Locker) -> Result<()> {
    holder.give_up(HELD)?;
    other.expect(LockStatus::Granted, HELD)?;
    holder.expect(LockStatus::Denied, HELD)?;
    other.give_up(HELD)
}

/// A process of a client machine, at a gateway.
struct Locker {
    client: Client,
    file: HandleBuffer,
    name: &'static str,
    process: u32,
}

impl Locker {
    fn connect(
        door: SocketAddr,
        file: HandleBuffer,
        name: &'static str,
        process: u32,
    ) -> Result<Self> {
        let mut client = Client::connect(door)?;
        // Or its first call would be one of an earlier connection that is sent again.
        let connections = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        client.count_from(client.next_xid() + connections * CALLS_MAX);
        Ok(Self {
            client,
            file,
            name,
            process,
        })
    }

    const fn wish(&self, offset: u64) -> LockWish<'static> {
        LockWish {
            client: self.name,
            process: self.process,
            offset,
            length: 10,
            may_block: false,
        }
    }

    fn lock(&mut self, offset: u64) -> Result<LockStatus> {
        let wish = self.wish(offset);
        self.client.lock(&self.file, &wish)
    }

    fn expect(&mut self, expected: LockStatus, offset: u64) -> Result<()> {
        let found = self.lock(offset)?;
        ensure!(
            found == expected,
            "{} asks for {offset}: {found:?}, not {expected:?}",
            self.name
        );
        Ok(())
    }

    fn give_up(&mut self, offset: u64) -> Result<()> {
        let wish = self.wish(offset);
        let found = self.client.unlock(&self.file, &wish)?;
        ensure!(
            found == LockStatus::Granted,
            "{} gives up {offset}: {found:?}",
            self.name
        );
        Ok(())
    }
}

fn create(door: SocketAddr) -> Result<HandleBuffer> {
    let mut client = Client::connect(door)?;
    let root = client.root();
    let create = Call::Create(call::Create {
        location: Location {
            directory: root.as_handle(),
            name: Name(b"locked"),
        },
        how: CreateHow::Guarded(SetAttributes::default()),
    });
    match client.call(&create)? {
        Reply::Create(Ok(made)) => made.object.context("CREATE without a handle"),
        other => bail!("CREATE: {:?}", other.status()),
    }
}
