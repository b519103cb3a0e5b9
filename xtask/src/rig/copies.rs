//! How many bytes a process copies within its own memory, counted from outside: probes at the
//! C library's `memcpy` and `memmove`, which every longer copy of a Rust program goes through. Only
//! this one process is stopped there (perf(1)): a probe of the whole system holds all others up.
//! Copies of less than [`COUNTED_BYTES_MIN`] are not counted: they are headers and messages.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::process::{Running, output, program};

/// Where probes are declared, and under which group ours are.
const PROBES: &str = "/sys/kernel/tracing/uprobe_events";
const GROUP: &str = "crossdock_copies";

/// Least length of a copy that counts.
pub(crate) const COUNTED_BYTES_MIN: u64 = 4096;

/// How long perf may take to begin and to end, and how often it is looked whether it has begun.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Counts copies of a process while it stands.
pub(crate) struct Copies {
    /// perf, which has the kernel stop at the probes in this one process.
    recorder: Running,
    record: PathBuf,
}

impl Copies {
    /// Counts from now on what the process `pid` copies, which runs `binary`; what is counted is
    /// kept in a file in `folder` meanwhile.
    pub(crate) fn of(pid: u32, binary: &Path, folder: &Path) -> Result<Self> {
        // Of a run that was killed.
        remove_probes();
        let places = places(pid, binary)?;
        let mut probes = OpenOptions::new().append(true).open(PROBES)?;
        for (number, (library, offset)) in places.iter().enumerate() {
            // System V's third argument of memcpy and memmove.
            let library = library.display();
            let probe = format!("p:{GROUP}/copy{number} {library}:{offset:#x} size=%dx:u64");
            let declared = probes.write_all(probe.as_bytes());
            declared.with_context(|| probe.clone())?;
        }
        let record = folder.join("copies.perf");
        let mut perf = program("perf");
        perf.args(["record", "--quiet", "--mmap-pages", "4096"]);
        for number in 0..places.len() {
            perf.args(["--event", &format!("{GROUP}:copy{number}")]);
            perf.args(["--filter", &format!("size >= {COUNTED_BYTES_MIN}")]);
        }
        perf.args(["--pid", &pid.to_string(), "--output"])
            .arg(&record);
        let recorder = Running::start(perf)?;
        let until = Instant::now() + PATIENCE;
        while !records(recorder.pid())? {
            ensure!(Instant::now() < until, "perf does not begin");
            thread::park_timeout(PAUSE);
        }
        Ok(Self { recorder, record })
    }

    /// Ends it; the bytes that were copied.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.recorder.signal(Signal::INT)?;
        self.recorder.wait(Instant::now() + PATIENCE)?;
        let mut script = program("perf");
        script.args(["script", "--show-lost-events", "--fields", "event,trace"]);
        let said = output(script.arg("--input").arg(&self.record))?;
        ensure!(!said.contains("LOST"), "copies were lost");
        Ok(said.lines().filter_map(size_in).sum())
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.recorder.kill();
        remove_probes();
    }
}

/// Whether perf has its events, and is asleep until there are some.
fn records(perf: u32) -> Result<bool> {
    let mut events = 0;
    for descriptor in fs::read_dir(format!("/proc/{perf}/fd"))? {
        let leads_to = fs::read_link(descriptor?.path());
        events += usize::from(leads_to.is_ok_and(|to| to == Path::new("anon_inode:[perf_event]")));
    }
    let state = fs::read_to_string(format!("/proc/{perf}/stat"))?;
    Ok(events > 0 && state.contains(") S "))
}

fn remove_probes() {
    let Ok(known) = fs::read_to_string(PROBES) else {
        return;
    };
    let ours = known.lines().filter_map(|line| line.split(' ').next());
    for probe in ours.filter(|probe| probe.starts_with(&format!("p:{GROUP}/"))) {
        let removal = probe.replacen("p:", "-:", 1);
        let file = OpenOptions::new().append(true).open(PROBES);
        // What cannot be removed now the next run removes.
        let _ = file.and_then(|mut file| file.write_all(removal.as_bytes()));
    }
}

/// The size in a line of what perf has recorded.
fn size_in(line: &str) -> Option<u64> {
    line.rsplit_once(" size=")?.1.trim().parse().ok()
}

/// Libraries and offsets in them to which the process's calls of `memcpy` and `memmove` lead: the
/// dynamic linker has chosen one of several for this processor.
fn places(pid: u32, binary: &Path) -> Result<BTreeSet<(PathBuf, u64)>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mappings: Vec<Mapping> = maps.lines().filter_map(Mapping::of).collect();
    let binary = binary.canonicalize()?;
    let own = mappings.iter().find(|it| it.file == binary);
    let base = own.context("the process runs another program")?.start;
    let words = ["-r", "-W"];
    let relocations = output(program("readelf").args(words).arg(&binary))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut places = BTreeSet::new();
    for slot in relocations.lines().filter_map(slot_in) {
        let mut pointer = [0; 8];
        memory.read_exact_at(&mut pointer, base + slot)?;
        let address = u64::from_ne_bytes(pointer);
        let library = mappings
            .iter()
            .find(|it| (it.start..it.end).contains(&address));
        // A slot that was not used yet leads back into the program.
        if let Some(library) = library.filter(|it| it.file != binary) {
            let offset = address - library.start + library.offset;
            places.insert((library.file.clone(), offset));
        }
    }
    if places.is_empty() {
        bail!("no way to memcpy in {}", binary.display());
    }
    Ok(places)
}

/// The slot of a relocation of `memcpy` or `memmove`, from the beginning of the program:
/// "1c171d0 … R_X86_64_GLOB_DAT 0 memcpy@GLIBC_2.14 + 0".
fn slot_in(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    let slot = words.next()?;
    let is_copy = |word: &str| word.starts_with("memcpy@") || word.starts_with("memmove@");
    words.any(is_copy).then_some(())?;
    u64::from_str_radix(slot, 16).ok()
}

/// A part of a file in a process's memory.
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    file: PathBuf,
}

impl Mapping {
    /// "7f00-7f10 r-xp 00026000 fe:00 1234 /lib/x86_64-linux-gnu/libc.so.6".
    fn of(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let offset = number(words.nth(1)?)?;
        let file = words.nth(2)?;
        Some(Self {
            start: number(start)?,
            end: number(end)?,
            offset,
            file: file.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines of the kernel and of readelf are read for what they say.
    #[test]
    fn lines_are_understood() {
        let recorded = "crossdock_copies:copy0: (7f2c0056d800) size=65536";
        assert_eq!(size_in(recorded), Some(65_536));
        assert_eq!(size_in("crossdock_copies:copy0:"), None);
        let slot =
            "0000000001c171d0  0000000800000006 R_X86_64_GLOB_DAT      0 memcpy@GLIBC_2.14 + 0";
        assert_eq!(slot_in(slot), Some(0x01c1_71d0));
        assert_eq!(slot_in(&slot.replace("memcpy", "memcmp")), None);
        let mapped = "7f10-7f20 r-xp 00026000 fe:00 99 /lib/libc.so.6";
        let mapping = Mapping::of(mapped).expect("one");
        assert_eq!((mapping.start, mapping.offset), (0x7f10, 0x26000));
        assert_eq!(mapping.file, Path::new("/lib/libc.so.6"));
        assert!(Mapping::of("7f10-7f20 rw-p 00000000 00:00 0").is_none());
    }
}
