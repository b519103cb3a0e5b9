//! Random bytes, and calls that are nearly right, at every socket of the running
//! program, for a while, from many connections at once: it goes on, a client
//! beside them is served all the time, and memory stays bounded.
//!
//! What is sent follows from a seed, which is printed; `CROSSDOCK_FUZZ_SEED`
//! repeats it (not the timing: the program is a real process).

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use crossdock_fuzzing::{Dice, samples};
use crossdock_nfs3::call::Call;
use crossdock_nfs3::{HandleBuffer, Location, Name, Procedure, mount};
use crossdock_rpc::{AuthSys, CallHeader, Credential, Groups, RecordWriter, Verifier};
use crossdock_tests_crash::client::Client;
use crossdock_xdr::{Encode, Encoder};

use super::Stage;
use super::cli::job;
use super::cli::program::{Up, crossdock, finish, text};

/// How long a call of the valid client may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// How long an attacker waits for what it does not need.
const GLANCE: Duration = Duration::from_millis(2);
/// Connections that an attacker leaves open and idle.
const IDLE_CONNECTIONS: usize = 64;
/// Most memory that the program may ever have had: its cache is 16 MiB, its door
/// holds up to 256 MiB of calls and replies, and each node some.
const PEAK_MEMORY_KIB: u64 = 600 << 10;

/// Room for the header of a call.
const HEADER_BYTES: usize = 512;

/// The name of what an attacker does, and how it does it once.
type Attack = (&'static str, fn(&Target, &mut Dice) -> std::io::Result<()>);

const ATTACKS: [Attack; 4] = [
    ("nfs-tcp", attack_stream),
    ("nfs-tcp-2", attack_stream),
    ("nfs-udp", attack_datagrams),
    ("admin-http", attack_http),
];

/// Whom to attack.
#[derive(Clone, Copy)]
struct Target {
    nfs: SocketAddr,
    admin: SocketAddr,
    root: HandleBuffer,
}

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    attack(stage, Duration::from_secs(20))
}

pub(super) fn run_long(stage: &Stage<'_>) -> Result<()> {
    attack(stage, Duration::from_secs(600))
}

fn attack(stage: &Stage<'_>, time: Duration) -> Result<()> {
    stage.expect_crossdock()?;
    let seed = seed()?;
    println!("CROSSDOCK_FUZZ_SEED={seed}");
    let data = stage.folder.join("pool");
    let arguments = [
        "up",
        "--nodes",
        "2",
        "--size",
        "400M",
        "--cache",
        "16M",
        "--data",
        text(&data)?,
    ];
    let free = "127.0.0.1:0";
    let up = Up::start_telling(stage, crossdock(stage, &arguments), free, free, "info")?;
    let target = Target {
        nfs: up.nfs,
        admin: up.admin.parse()?,
        root: Client::connect(up.nfs)?.root(),
    };
    let is_over = AtomicBool::new(false);
    let counts: Vec<AtomicU64> = ATTACKS.iter().map(|_| AtomicU64::new(0)).collect();
    let served = thread::scope(|scope| {
        for (number, (name, act)) in (0_u64..).zip(ATTACKS) {
            let (is_over, count) = (&is_over, &counts[usize::try_from(number).unwrap_or(0)]);
            scope.spawn(move || {
                let mut round = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let mut dice = Dice::new(seed ^ (number << 56) ^ round);
                    // The program may refuse, reset, or not answer at all.
                    let _ = act(&target, &mut dice);
                    round += 1;
                    count.store(round, Ordering::Relaxed);
                }
                name
            });
        }
        let served = serve(&up, time);
        is_over.store(true, Ordering::Relaxed);
        served
    });
    let sent: Vec<String> = (ATTACKS.iter().zip(&counts))
        .map(|((name, _), count)| format!("{name} {}", count.load(Ordering::Relaxed)))
        .collect();
    let (rounds, slowest) = served.with_context(|| format!("seed {seed}: {}", sent.join(", ")))?;
    let peak = peak_memory_kib(up.pid())?;
    let log = up.stop().with_context(|| format!("seed {seed}"))?;
    let has_panicked = log.iter().any(|line| line.to_string().contains("panicked"));
    ensure!(!has_panicked, "seed {seed}: a thread has panicked");
    println!(
        "{}; {rounds} rounds of a valid client, the slowest call {} ms; at most {} MiB",
        sent.join(", "),
        slowest.as_millis(),
        peak >> 10
    );
    ensure!(
        counts
            .iter()
            .all(|count| count.load(Ordering::Relaxed) > 100),
        "too little was sent"
    );
    ensure!(peak <= PEAK_MEMORY_KIB, "seed {seed}: {peak} KiB of memory");
    for number in 0..2 {
        let node = data.join(format!("node-{number}"));
        finish(stage, &["fsck", "--full", "--node", text(&node)?])?.expect(0, &[])?;
    }
    Ok(())
}

/// A client that does its work; how often, and the slowest call.
fn serve(up: &Up, time: Duration) -> Result<(u64, Duration)> {
    let end = Instant::now() + time;
    let (mut rounds, mut slowest) = (0, Duration::ZERO);
    while Instant::now() < end {
        let name = format!("valid-{}", rounds % 8);
        let mut client = Client::connect(up.nfs)?;
        let root = client.root();
        let location = Location {
            directory: root.as_handle(),
            name: Name(name.as_bytes()),
        };
        if rounds < 8 {
            job::write_one(&mut client, &name, 200_000)?;
        }
        let started = Instant::now();
        client.call(&Call::Lookup(location))?;
        slowest = slowest.max(started.elapsed());
        ensure!(slowest < ANSWER_PATIENCE, "a call took {slowest:?}");
        let statuses = job::read(&mut client, &name, 200_000)?;
        ensure!(statuses.iter().all(Option::is_none), "{name}: {statuses:?}");
        rounds += 1;
    }
    Ok((rounds, slowest))
}

fn seed() -> Result<u64> {
    if let Ok(seed) = std::env::var("CROSSDOCK_FUZZ_SEED") {
        return seed.parse().context("CROSSDOCK_FUZZ_SEED");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.as_secs() ^ (u64::from(now.subsec_nanos()) << 20))
}

/// The most memory that the process has had.
fn peak_memory_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.context("no VmHWM")?.parse()?)
}

thread_local! {
    /// Connections that stay open with half a call in them.
    static IDLE: std::cell::RefCell<Vec<TcpStream>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Some calls over a connection, changed and cut up, and an odd end.
fn attack_stream(target: &Target, dice: &mut Dice) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(target.nfs)?;
    stream.set_read_timeout(Some(GLANCE))?;
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    stream.set_nodelay(true)?;
    for _ in 0..=dice.below(6) {
        let mut call = call(target, dice);
        if dice.below(3) > 0 {
            mutate(&mut call, dice);
        }
        let mut record = fragments(&call, dice);
        if dice.below(4) == 0 {
            mutate(&mut record, dice);
        }
        send(&mut stream, &record, dice)?;
        if dice.flag() {
            let _ = stream.read(&mut [0; 4096]);
        }
    }
    match dice.below(4) {
        0 => stream.shutdown(Shutdown::Write)?,
        1 => stream.shutdown(Shutdown::Both)?,
        2 => IDLE.with_borrow_mut(|idle| {
            if idle.len() == IDLE_CONNECTIONS {
                idle.remove(dice.below(IDLE_CONNECTIONS));
            }
            idle.push(stream);
        }),
        _ => {}
    }
    Ok(())
}

fn attack_datagrams(target: &Target, dice: &mut Dice) -> std::io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(GLANCE))?;
    for _ in 0..=dice.below(8) {
        let mut call = call(target, dice);
        if dice.below(4) > 0 {
            mutate(&mut call, dice);
        }
        call.truncate(60_000);
        socket.send_to(&call, target.nfs)?;
    }
    match socket.recv(&mut [0; 65_536]) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// Requests that the admin API knows, nothing that would stop a node or take an
/// export away, and what is none at all.
fn attack_http(target: &Target, dice: &mut Dice) -> std::io::Result<()> {
    const REQUESTS: [&str; 7] = [
        "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /v1/exports HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "POST /v1/scrub HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "POST /v1/exports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n{\"path\":\"/nowhere\",\"networks\":[\"::/0\"]}",
        "POST /v1/exports HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\n\r\n",
        "GET /v1/../../etc/passwd HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    ];
    let mut stream = TcpStream::connect(target.admin)?;
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    let mut request = match dice.below(8) {
        0 => dice.bytes(4096).to_vec(),
        1 => {
            let mut long = b"GET /v1/status HTTP/1.1\r\n".to_vec();
            for number in 0..dice.below(2000) {
                long.extend(format!("X-{number}: {number}\r\n").bytes());
            }
            long
        }
        _ => dice.one_of(&REQUESTS).as_bytes().to_vec(),
    };
    if dice.below(3) > 0 {
        mutate(&mut request, dice);
    }
    send(&mut stream, &request, dice)?;
    if dice.flag() {
        stream.shutdown(Shutdown::Write)?;
    }
    let _ = stream.read(&mut [0; 4096]);
    Ok(())
}

/// A call as samples make it, or one that gets further: of the real root, from
/// somebody who may.
fn call(target: &Target, dice: &mut Dice) -> Vec<u8> {
    let mut writer = RecordWriter::datagram(HEADER_BYTES);
    let encoder = writer.encoder();
    if dice.below(3) == 0 {
        encoder.put(&samples::call_header(dice));
    }
    match dice.below(4) {
        0 => {
            let procedure = dice.one_of(mount::Procedure::ALL);
            let call = samples::mount_call(procedure, dice);
            let of = (mount::PROGRAM, mount::VERSION, procedure.number());
            put_call(encoder, of, &call, dice);
        }
        1 => {
            let procedure = dice.one_of(Procedure::ALL);
            let call = samples::call(procedure, dice);
            let of = (
                crossdock_nfs3::PROGRAM,
                crossdock_nfs3::VERSION,
                procedure.number(),
            );
            put_call(encoder, of, &call, dice);
        }
        _ => {
            let location = Location {
                directory: target.root.as_handle(),
                name: Name(dice.bytes(300)),
            };
            let mut call: Call<'_> = samples::call(dice.one_of(Procedure::ALL), dice);
            match &mut call {
                Call::Lookup(what) => *what = location,
                Call::Create(create) => create.location = location,
                Call::Mkdir(make) => make.location = location,
                Call::Symlink(make) => make.location = location,
                Call::Remove(what) | Call::Rmdir(what) => *what = location,
                Call::Readdir(list) => list.directory = target.root.as_handle(),
                Call::Readdirplus(list) => list.directory = target.root.as_handle(),
                other => {
                    *other = Call::Getattr(crossdock_nfs3::call::Getattr {
                        object: target.root.as_handle(),
                    })
                }
            }
            let number = call.procedure().number();
            let of = (crossdock_nfs3::PROGRAM, crossdock_nfs3::VERSION, number);
            put_call(encoder, of, &call, dice);
        }
    }
    writer.finish().to_bytes().to_vec()
}

fn put_call(
    encoder: &mut Encoder,
    (program, version, procedure): (u32, u32, u32),
    arguments: &impl Encode,
    dice: &mut Dice,
) {
    encoder.put(&CallHeader {
        xid: dice.u32(),
        program,
        version,
        procedure,
        credential: Credential::Sys(AuthSys {
            stamp: 0,
            machine_name: b"fuzz",
            uid: 1000,
            gid: 1000,
            groups: Groups::default(),
        }),
        verifier: Verifier::NONE,
    });
    encoder.put(arguments);
}

/// Changes some bytes, or their number.
fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = dice.below(bytes.len());
        match dice.below(6) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes.truncate(at),
            2 => {
                let word = dice.u32().to_be_bytes();
                let at = at / 4 * 4;
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
            3 => {
                let more = dice.bytes(200);
                bytes.splice(at..at, more.iter().copied());
            }
            4 => {
                let end = at + dice.below(bytes.len() - at + 1);
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => {
                let end = at + dice.below(bytes.len() - at + 1);
                bytes.drain(at..end);
            }
        }
    }
}

/// The bytes as fragments of a record: one, many, tiny and empty ones, or with a
/// length that is a lie.
fn fragments(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    const LAST: u32 = 1 << 31;
    let mut record = Vec::new();
    let mut rest = bytes;
    let step_max = match dice.below(4) {
        0 => 3,
        1 => 100,
        _ => usize::MAX,
    };
    while !rest.is_empty() {
        let step = rest.len().min(step_max);
        let step = if step_max < usize::MAX {
            dice.below(step + 1)
        } else {
            step
        };
        let (piece, after) = rest.split_at(step);
        let length = u32::try_from(piece.len()).unwrap_or(0);
        let mut mark = if after.is_empty() {
            length | LAST
        } else {
            length
        };
        if dice.below(200) == 0 {
            mark = dice.u32();
        }
        record.extend(mark.to_be_bytes());
        record.extend(piece);
        rest = after;
    }
    record
}

/// At once, or byte by byte to begin with.
fn send(stream: &mut TcpStream, bytes: &[u8], dice: &mut Dice) -> std::io::Result<()> {
    let dribbled = match dice.below(8) {
        0 => dice.below(bytes.len().min(40) + 1),
        _ => 0,
    };
    for byte in &bytes[..dribbled] {
        stream.write_all(&[*byte])?;
    }
    stream.write_all(&bytes[dribbled..])
}
