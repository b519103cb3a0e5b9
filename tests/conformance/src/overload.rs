//! More than the server may hold is asked of it: memory stays within the bound,
//! and who asks for little is served (docs/overload.md).

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::HandleBuffer;
use crossdock_nfs3::call::StableHow;
use crossdock_tests_crash::server::Server;

use crate::client::{Client, next_xid};
use crate::operations::{at, getattr, guarded, read};
use crate::runner::{Check, Stage, with_servers};
use crate::wire::{PATIENCE, framed, mark};

pub(crate) const CHECKS: &[Check] = &[
    with_servers(
        "5,000 clients that take no replies: memory within the bound, others served",
        never_read,
    ),
    with_servers(
        "5,000 beginnings of records: memory within the bound, others served",
        beginnings,
    ),
    with_servers(
        "among more connections than there may be, the idle give way",
        idle_connections,
    ),
    with_servers(
        "one with 1,000 calls outstanding leaves one with a single call its turn",
        turns,
    ),
];

const CROWD: usize = 5_000;
const MIB: u64 = 1 << 20;
/// What /proc counts in.
const PAGE_BYTES: u64 = 4096;

/// What the server is started with.
const ARGUMENTS: &[&str] = &["--request-memory", "64M", "--cache", "64M"];
const REQUEST_BYTES: u64 = 64 * MIB;
const CACHE_BYTES: u64 = 64 * MIB;
/// What a connection costs beside, at most: a receive buffer and its state.
const CONNECTION_BYTES: u64 = 16 << 10;
/// Buffers that are kept for the next need, and what the allocator keeps.
const SLACK_BYTES: u64 = 64 * MIB;

/// How long the crowd presses on.
const PRESSURE: Duration = Duration::from_secs(8);

/// A server with little memory, and a client that wants little of it.
struct Pressed {
    server: Server,
    modest: Client,
    root: HandleBuffer,
    file: HandleBuffer,
    idle_bytes: u64,
}

impl Pressed {
    fn start(stage: &Stage<'_>, label: &str) -> Result<Self> {
        let server = stage.own_server(label, ARGUMENTS)?;
        let mut modest = Client::connect(server.address())?;
        let root = modest.mount("/")?;
        let file = modest.create(&root, "file", 0o644)?;
        let data = vec![7; usize::try_from(MIB)?];
        for offset in 0..4 {
            modest.write(&file, offset * MIB, &data, StableHow::FileSync)?;
        }
        let idle_bytes = resident_bytes(&server)?;
        Ok(Self {
            server,
            modest,
            root,
            file,
            idle_bytes,
        })
    }

    /// One call of each kind that wants little.
    fn ask_modestly(&mut self) -> Result<()> {
        self.modest.getattr(&self.file)?;
        let name = format!("modest-{}", next_xid());
        let file = self.modest.create(&self.root, name, 0o644)?;
        self.modest
            .write(&file, 0, b"modest", StableHow::FileSync)?;
        let found = self.modest.read(&file, 0, 100)?;
        ensure!(found.data.to_bytes()[..] == b"modest"[..], "other bytes");
        Ok(())
    }

    /// Lets `press` go on for a while, looks at memory, and counts what the modest
    /// client gets done meanwhile.
    fn endure(&mut self, what: &str, mut press: impl FnMut()) -> Result<()> {
        let bound_bytes = self.idle_bytes
            + REQUEST_BYTES
            + CACHE_BYTES
            + CROWD as u64 * CONNECTION_BYTES
            + SLACK_BYTES;
        let begun = Instant::now();
        let (mut peak_bytes, mut rounds, mut longest) = (0, 0, Duration::ZERO);
        while begun.elapsed() < PRESSURE {
            press();
            let asked = Instant::now();
            self.ask_modestly()
                .with_context(|| format!("round {rounds} of the modest client"))?;
            longest = longest.max(asked.elapsed());
            rounds += 1;
            peak_bytes = peak_bytes.max(resident_bytes(&self.server)?);
        }
        println!(
            "     {what}: {} MiB at rest, {} MiB at most, bound {} MiB; {rounds} rounds of four calls beside, the longest {} ms; kernel's socket memory {} MiB",
            self.idle_bytes / MIB,
            peak_bytes / MIB,
            bound_bytes / MIB,
            longest.as_millis(),
            socket_bytes()? / MIB,
        );
        ensure!(
            peak_bytes <= bound_bytes,
            "{peak_bytes} bytes resident, bound {bound_bytes}"
        );
        ensure!(rounds >= 20, "only {rounds} rounds of the modest client");
        Ok(())
    }

    fn end(mut self, stage: &Stage<'_>, label: &str) -> Result<()> {
        self.ask_modestly().context("after the crowd has gone")?;
        self.server.stop()?;
        stage.clear(label)
    }
}

fn never_read(stage: &Stage<'_>) -> Result<()> {
    let mut pressed = Pressed::start(stage, "never-read")?;
    let mut crowd = connect(pressed.server.address(), CROWD)?;
    let mut calls = Vec::new();
    for _ in 0..64 {
        let call = read(&pressed.file, 0, 1 << 20);
        calls.extend(framed(&pressed.modest.record(next_xid(), &call)));
    }
    let mut second = Instant::now();
    pressed.endure("never read", || {
        if second <= Instant::now() {
            second += Duration::from_secs(1);
            crowd.retain_mut(|stream| match stream.write(&calls) {
                Ok(_) => true,
                // A part of it is a part of a call: that is a stall as well.
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            });
        }
    })?;
    drop(crowd);
    pressed.end(stage, "never-read")
}

fn beginnings(stage: &Stage<'_>) -> Result<()> {
    let mut pressed = Pressed::start(stage, "beginnings")?;
    let mut crowd = connect(pressed.server.address(), CROWD)?;
    // A first fragment of 960 KiB: nothing says yet what it is.
    let mut beginning = mark(960 << 10, false).to_vec();
    beginning.resize(256 << 10, 0);
    let mut sent = vec![0; CROWD];
    pressed.endure("beginnings", || {
        for (stream, sent) in crowd.iter_mut().zip(&mut sent) {
            // Cut off, or not read from.
            *sent += stream.write(&beginning[*sent..]).unwrap_or(0);
        }
    })?;
    drop(crowd);
    pressed.end(stage, "beginnings")
}

/// As many as the door takes stay open, and say nothing; then others come.
fn idle_connections(stage: &Stage<'_>) -> Result<()> {
    const MOST: usize = 12_000;
    let mut pressed = Pressed::start(stage, "idle")?;
    let address = pressed.server.address();
    let idle = connect(address, MOST)?;
    // They are let be for some seconds.
    let begun = Instant::now();
    while !is_served(address, &pressed.file)? {
        ensure!(
            begun.elapsed() < PATIENCE,
            "nobody gives way to one that came when all places were taken"
        );
        pressed.ask_modestly().context("one that is at work")?;
    }
    drop(idle);
    pressed.end(stage, "idle")
}

/// Whether a new connection is served, or refused within a moment.
fn is_served(address: SocketAddr, file: &HandleBuffer) -> Result<bool> {
    let mut late = Client::connect(address)?;
    let record = late.record(next_xid(), &getattr(file));
    if late.wire.send_record(&record).is_ok() && matches!(late.wire.receive(), Ok(Some(_))) {
        return Ok(true);
    }
    // Not at once again: nothing comes here, within this time.
    let quiet = std::net::UdpSocket::bind(("127.0.0.1", 0))?;
    quiet.set_read_timeout(Some(Duration::from_millis(300)))?;
    let _nothing = quiet.recv(&mut [0; 1]);
    Ok(false)
}

/// Calls that one client keeps outstanding.
const GREED: usize = 1000;

fn turns(stage: &Stage<'_>) -> Result<()> {
    let mut pressed = Pressed::start(stage, "turns")?;
    let (root, file) = (pressed.root, pressed.file);
    pressed.takes_turns("GETATTR", |client, xid| client.record(xid, &getattr(&file)))?;
    pressed.takes_turns("READ of 64 KiB", |client, xid| {
        client.record(xid, &read(&file, 0, 64 << 10))
    })?;
    pressed.takes_turns("CREATE", |client, xid| {
        let name = format!("greedy-{xid}");
        client.record(xid, &guarded(at(&root, name.as_bytes()), 0o644))
    })?;
    pressed.end(stage, "turns")
}

impl Pressed {
    /// While one client keeps [`GREED`] calls outstanding, each call of the modest
    /// one is answered after few of them.
    fn takes_turns(
        &mut self,
        what: &str,
        greed: impl Fn(&Client, u32) -> Bytes + Send,
    ) -> Result<()> {
        let greedy = Client::connect(self.server.address())?;
        let (answered, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut between = std::thread::scope(|scope| -> Result<Vec<usize>> {
            let thread = scope.spawn(|| be_greedy(greedy, greed, &answered, &is_over));
            while answered.load(Ordering::Relaxed) < GREED && !thread.is_finished() {
                self.modest.getattr(&self.file)?;
            }
            let between = (0..200).map(|_| {
                let before = answered.load(Ordering::Relaxed);
                self.modest.getattr(&self.file)?;
                Ok(answered.load(Ordering::Relaxed) - before)
            });
            let between: Result<Vec<usize>> = between.collect();
            is_over.store(true, Ordering::Relaxed);
            match thread.join() {
                Ok(ended) => ended.context("the greedy client")?,
                Err(_) => bail!("the greedy client has panicked"),
            }
            between
        })?;
        between.sort_unstable();
        let (median, most) = (between[between.len() / 2], between[between.len() - 1]);
        println!(
            "     {what}: of {GREED} outstanding calls {median} were answered during one of another client (median; at most {most})"
        );
        ensure!(median <= GREED / 4, "{what}: {median} calls came first");
        Ok(())
    }
}

/// Keeps calls outstanding until it is over, and takes all replies.
fn be_greedy(
    mut client: Client,
    greed: impl Fn(&Client, u32) -> Bytes,
    answered: &AtomicUsize,
    is_over: &AtomicBool,
) -> Result<()> {
    for _ in 0..GREED {
        let record = greed(&client, next_xid());
        client.wire.send_record(&record)?;
    }
    let mut outstanding = GREED;
    while outstanding > 0 {
        client.wire.expect()?;
        answered.fetch_add(1, Ordering::Relaxed);
        outstanding -= 1;
        if !is_over.load(Ordering::Relaxed) {
            let record = greed(&client, next_xid());
            client.wire.send_record(&record)?;
            outstanding += 1;
        }
    }
    Ok(())
}

/// Many connections that take next to nothing in.
fn connect(address: SocketAddr, count: usize) -> Result<Vec<TcpStream>> {
    let connect = |number| {
        let stream = TcpStream::connect(address).with_context(|| format!("connection {number}"))?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    (0..count).map(connect).collect()
}

/// Memory of the server's process.
/// Memory of the server's process.
fn resident_bytes(server: &Server) -> Result<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", server.id()))?;
    let pages = statm.split_whitespace().nth(1).context("statm")?;
    Ok(pages.parse::<u64>()? * PAGE_BYTES)
}

/// What the kernel holds for TCP sockets.
fn socket_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/net/sockstat")?;
    let line = text.lines().find(|line| line.starts_with("TCP:"));
    let words = line.context("no line of TCP")?.split_whitespace();
    let pages = words
        .skip_while(|word| *word != "mem")
        .nth(1)
        .context("mem")?;
    Ok(pages.parse::<u64>()? * PAGE_BYTES)
}
