//! Judges a record of device mapper's log-writes target: at many of the flushes
//! that a device has seen, the device is made as it was just then, mounted, and
//! Crossdock is started on it. What had been acknowledged before must be there.
//!
//! The record is made by tests/kernel/log-writes.sh. Step n of its workload, with
//! `piece(k, l)` = `l` bytes of the random file from `k * 1009` on:
//!
//! 1. makes `f<n>` with `piece(n, n * 7919 % 200000 + 6000)`, and fsyncs it;
//! 2. if 3 divides n: writes `piece(n + 500, 5000)` over the beginning of `f<n-1>`,
//!    which makes that file again if it was removed, and fsyncs it;
//! 3. if 4 divides n: renames `f<n-3>`, if that is there, to `g<n-3>`;
//! 4. if 5 divides n: removes `f<n>`;
//!
//! and then marks n. Steps that had their mark are there; of the one after, any
//! beginning may be, and of a file that was being written any of its bytes.
//!
//! Runs as root in a mount namespace of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::call::{Call, Read};
use crossdock_nfs3::{HandleBuffer, Location, Name, Reply, Status};
use crossdock_tests_crash::client::Client;
use crossdock_tests_crash::exit_code;
use crossdock_tests_crash::server::Server;

/// The first field of a record.
const MAGIC: u64 = 0x006a_7366_7773_6872;

/// Bits of an entry's flags.
const FLUSH: u64 = 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;

/// Bytes of one READ.
const READ_BYTES: u32 = 64 << 10;

struct Options {
    server: PathBuf,
    record: PathBuf,
    random: PathBuf,
    folder: PathBuf,
    device_bytes: u64,
    points: usize,
}

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    let options = parse(std::env::args().skip(1))?;
    let random = fs::read(&options.random)?;
    let record = Record::open(&options.record)?;
    let entries = record.entries()?;
    let points = choose(&entries, options.points)?;
    fs::create_dir_all(&options.folder)?;
    let device = options.folder.join("device");
    let image = File::create(&device)?;
    image.set_len(options.device_bytes)?;
    let (mut next, mut marked) = (0, None);
    for (number, &point) in points.iter().enumerate() {
        for entry in &entries[next..=point] {
            record.apply(entry, &image)?;
            marked = entry.mark.or(marked);
        }
        next = point + 1;
        image.sync_all()?;
        let acknowledged = marked.context("no mark before the first point")?;
        judge(&options, &device, acknowledged, &random).with_context(|| {
            format!(
                "at entry {point}, the {number}. of {} points, {acknowledged} steps acknowledged",
                points.len()
            )
        })?;
    }
    let flushes = entries.iter().filter(|entry| entry.is_flush()).count();
    println!(
        "{} of {flushes} flushes looked at, {} entries of the record: everything acknowledged was there",
        points.len(),
        entries.len()
    );
    Ok(())
}

/// Flushes after the first mark, evenly.
fn choose(entries: &[Entry], wanted: usize) -> Result<Vec<usize>> {
    let begin = entries
        .iter()
        .position(|entry| entry.mark.is_some())
        .context("the record has no mark")?;
    let flushes: Vec<usize> = (begin..entries.len())
        .filter(|&at| entries[at].is_flush())
        .collect();
    ensure!(
        flushes.len() >= wanted,
        "only {} flushes are recorded, {wanted} are wanted",
        flushes.len()
    );
    let chosen = (0..wanted).map(|at| flushes[at * (flushes.len() - 1) / (wanted - 1).max(1)]);
    Ok(chosen.collect())
}

/// The record's file.
///
/// Its layout (Linux, admin-guide/device-mapper/log-writes.rst): a superblock of
/// one sector, `{magic u64, version u64, entries u64, sector bytes u32}`; then for
/// each entry a sector `{sector u64, sectors u64, flags u64, data bytes u64}`, and
/// behind it the sectors that were written. A mark's name is in the entry's own
/// sector. All little-endian.
struct Record {
    file: File,
    sector_bytes: u64,
    count: u64,
}

/// One thing that the device was asked for.
#[derive(Debug)]
struct Entry {
    /// Where on the device, in bytes.
    offset: u64,
    length: u64,
    flags: u64,
    /// Where in the record its data is.
    data: u64,
    mark: Option<u64>,
}

impl Entry {
    const fn is_flush(&self) -> bool {
        self.flags & FLUSH != 0
    }
}

impl Record {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let mut head = [0; 28];
        file.read_exact_at(&mut head, 0)?;
        let magic = number(&head, 0);
        ensure!(
            magic == MAGIC && number(&head, 8) == 1,
            "no record of log-writes: magic {magic:#x}"
        );
        let sector_bytes = u64::from(u32::from_le_bytes([head[24], head[25], head[26], head[27]]));
        ensure!(sector_bytes >= 512, "sectors of {sector_bytes} bytes");
        Ok(Self {
            file,
            sector_bytes,
            count: number(&head, 16),
        })
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut at = self.sector_bytes;
        let mut sector = vec![0; usize::try_from(self.sector_bytes)?];
        for _ in 0..self.count {
            self.file.read_exact_at(&mut sector, at)?;
            at += self.sector_bytes;
            let (flags, data_bytes) = (number(&sector, 16), number(&sector, 24));
            let mark = if flags & MARK != 0 {
                let end = 32 + usize::try_from(data_bytes)?;
                let name = sector.get(32..end).context("a mark that is too long")?;
                let name = std::str::from_utf8(name)?.trim_end_matches('\0');
                name.trim().parse().ok() // The target itself marks the end, by a word.
            } else {
                None
            };
            let length = number(&sector, 8) * self.sector_bytes;
            entries.push(Entry {
                offset: number(&sector, 0) * self.sector_bytes,
                length,
                flags,
                data: at,
                mark,
            });
            if flags & (DISCARD | MARK) == 0 {
                at += length;
            }
        }
        Ok(entries)
    }

    /// Does to `image` what was done to the device.
    fn apply(&self, entry: &Entry, image: &File) -> Result<()> {
        if entry.flags & MARK != 0 || entry.length == 0 {
            return Ok(());
        }
        let mut bytes = vec![0; usize::try_from(entry.length)?];
        if entry.flags & DISCARD == 0 {
            self.file.read_exact_at(&mut bytes, entry.data)?;
        }
        image.write_all_at(&bytes, entry.offset)?;
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..at + 8).and_then(|it| it.try_into().ok());
    u64::from_le_bytes(field.unwrap_or_default())
}

type Files = BTreeMap<String, Vec<u8>>;

/// Starts the server on a copy of the device, and compares.
fn judge(options: &Options, device: &Path, acknowledged: u64, random: &[u8]) -> Result<()> {
    let copy = options.folder.join("copy");
    let data = options.folder.join("server").join("data");
    fs::create_dir_all(&data)?;
    call(
        Command::new("cp")
            .arg("--sparse=always")
            .arg(device)
            .arg(&copy),
    )?;
    call(
        Command::new("mount")
            .args(["-o", "loop,noatime"])
            .arg(&copy)
            .arg(&data),
    )?;
    let judged = judge_mounted(options, &data, acknowledged, random);
    let unmounted = call(Command::new("umount").arg(&data));
    judged.and(unmounted)
}

fn judge_mounted(options: &Options, data: &Path, acknowledged: u64, random: &[u8]) -> Result<()> {
    call(
        Command::new(&options.server)
            .args(["fsck", "--node"])
            .arg(data.join("node-0")),
    )?;
    let folder = options.folder.join("server");
    let arguments = ["--admin", "off", "--size", "100M"];
    let server = Server::start_with(&options.server, &folder, &arguments)?;
    let mut client = Client::connect(server.address())?;
    let found = read_all(&mut client, acknowledged)?;
    compare(&found, acknowledged, random)?;
    server.stop()
}

/// Every acknowledged step is there, and nothing that nobody did.
fn compare(found: &Files, acknowledged: u64, random: &[u8]) -> Result<()> {
    let mut before = Files::new();
    for step in 1..=acknowledged {
        for change in changes(step, random) {
            change.apply(&mut before);
        }
    }
    let underway = changes(acknowledged + 1, random);
    let mut names: BTreeSet<String> = before.keys().cloned().collect();
    // What the next step touches may be in any of the states on its way.
    let mut ways = vec![before.clone()];
    for change in underway {
        let mut after = ways.last().cloned().unwrap_or_default();
        change.apply(&mut after);
        names.extend(after.keys().cloned());
        ways.push(after);
    }
    for name in found.keys() {
        ensure!(names.contains(name), "{name} is there and must not be");
    }
    for name in &names {
        let states: Vec<Option<&Vec<u8>>> = ways.iter().map(|way| way.get(name)).collect();
        match found.get(name) {
            None => ensure!(states.contains(&None), "{name} is missing"),
            Some(bytes) => {
                ensure!(
                    states.iter().flatten().any(|_| true),
                    "{name} is there and must not be"
                );
                agree(bytes, &states).with_context(|| name.clone())?;
            }
        }
    }
    Ok(())
}

/// Each byte is as in one of the states of the file; one that has just been made
/// may still be empty, or have zeros.
fn agree(bytes: &[u8], states: &[Option<&Vec<u8>>]) -> Result<()> {
    let is_new = states.contains(&None);
    let known: Vec<&Vec<u8>> = states.iter().flatten().copied().collect();
    let lengths = known.iter().map(|state| state.len());
    let (shortest, longest) = (
        lengths.clone().min().unwrap_or(0),
        lengths.max().unwrap_or(0),
    );
    let fits = bytes.len() <= longest && (is_new || bytes.len() >= shortest);
    ensure!(fits, "{} bytes, not {shortest} to {longest}", bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let is_known = known.iter().any(|state| state.get(at) == Some(byte));
        ensure!(
            is_known || (is_new && *byte == 0),
            "byte {at} is {byte:#x}, which nobody has written"
        );
    }
    Ok(())
}

/// What the workload does.
enum Change {
    Write(String, Vec<u8>),
    Rename(String, String),
    Remove(String),
}

impl Change {
    fn apply(&self, files: &mut Files) {
        match self {
            Self::Write(name, bytes) => {
                let file = files.entry(name.clone()).or_default();
                if file.len() < bytes.len() {
                    file.resize(bytes.len(), 0);
                }
                file[..bytes.len()].copy_from_slice(bytes);
            }
            Self::Rename(from, to) => {
                if let Some(file) = files.remove(from) {
                    files.insert(to.clone(), file);
                }
            }
            Self::Remove(name) => {
                files.remove(name);
            }
        }
    }
}

fn changes(step: u64, random: &[u8]) -> Vec<Change> {
    let piece = |place: u64, length: u64| {
        let (from, length) = (as_index(place * 1009), as_index(length));
        random[from..from + length].to_vec()
    };
    let mut changes = vec![Change::Write(
        format!("f{step}"),
        piece(step, step * 7919 % 200_000 + 6000),
    )];
    if step.is_multiple_of(3) {
        changes.push(Change::Write(
            format!("f{}", step - 1),
            piece(step + 500, 5000),
        ));
    }
    if step.is_multiple_of(4) {
        changes.push(Change::Rename(
            format!("f{}", step - 3),
            format!("g{}", step - 3),
        ));
    }
    if step.is_multiple_of(5) {
        changes.push(Change::Remove(format!("f{step}")));
    }
    changes
}

fn as_index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// All files that there may be, and a few more.
fn read_all(client: &mut Client, steps: u64) -> Result<Files> {
    let root = client.root();
    let mut files = Files::new();
    let names = (1..steps + 4).flat_map(|step| [format!("f{step}"), format!("g{step}")]);
    for name in names {
        let lookup = Call::Lookup(Location {
            directory: root.as_handle(),
            name: Name(name.as_bytes()),
        });
        match client.call(&lookup)? {
            Reply::Lookup(Ok(found)) => {
                let bytes = read(client, &found.object).with_context(|| name.clone())?;
                files.insert(name, bytes);
            }
            other if other.status() == Some(Status::NoEnt) => {}
            other => bail!("cannot look {name} up: {other:?}"),
        }
    }
    Ok(files)
}

fn read(client: &mut Client, file: &HandleBuffer) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let read = Call::Read(Read {
            file: file.as_handle(),
            offset: bytes.len() as u64,
            count_bytes: READ_BYTES,
        });
        let Reply::Read(Ok(part)) = client.call(&read)? else {
            bail!("a file cannot be read");
        };
        for piece in part.data.pieces() {
            bytes.write_all(piece)?;
        }
        if part.is_end || part.data.is_empty() {
            return Ok(bytes);
        }
    }
}

/// Runs a program that must succeed.
fn call(command: &mut Command) -> Result<()> {
    let name = format!("{command:?}");
    let status = command
        .stdin(Stdio::null())
        .status()
        .context(name.clone())?;
    ensure!(status.success(), "{name}: {status}");
    Ok(())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options> {
    let mut values = BTreeMap::new();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word}: value?"))?;
        values.insert(word, value);
    }
    let mut take = |name: &str| {
        values
            .remove(name)
            .with_context(|| format!("{name} is missing"))
    };
    let options = Options {
        server: take("--server")?.into(),
        record: take("--record")?.into(),
        random: take("--random")?.into(),
        folder: take("--folder")?.into(),
        device_bytes: take("--device-bytes")?.parse()?,
        points: take("--points")?.parse()?,
    };
    ensure!(values.is_empty(), "no such options: {values:?}");
    Ok(options)
}
