//! What a site can rely on, one sentence a test.

use bytes::Bytes;
use crossdock_names::{FileId, SiteId, Version};
use crossdock_peer::Stability;
use crossdock_smallfile::{
    Change, Fetched, Plan, ReadPiece, ReplayTail, SmallFileError, SmallFiles, SmallFilesConfig,
    Standing, Write,
};
use crossdock_types::Payload;

const SITE: SiteId = SiteId(1);

fn file(serial: u64) -> FileId {
    FileId::new(SITE, serial)
}

fn write(serial: u64, offset_bytes: u64, length: usize, stability: Stability) -> Write {
    let byte = u8::try_from(1 + (serial + offset_bytes) % 250).unwrap();
    Write {
        file: file(serial),
        offset_bytes,
        payload: Payload::from(Bytes::from(vec![byte; length])),
        stability,
        version: Version(7),
    }
}

fn change(plan: Result<Plan, SmallFileError>) -> Change {
    match plan {
        Ok(Plan::Change(change)) => change,
        other => panic!("a change was expected, not {other:?}"),
    }
}

/// Plans a stable write and accepts it.
fn begin(files: &mut SmallFiles, serial: u64, offset: u64, length: usize) -> Change {
    let write = write(serial, offset, length, Stability::Stable);
    let change = change(files.plan_write(&write, &Fetched::new()));
    files.accept(&change);
    change
}

fn settle(files: &mut SmallFiles, change: &Change) {
    files.written(change.sequence);
    files.durable(change.sequence);
    assert_eq!(files.standing(change.sequence), Standing::Settled);
}

fn store(files: &mut SmallFiles, serial: u64, offset: u64, length: usize) -> Change {
    let change = begin(files, serial, offset, length);
    settle(files, &change);
    change
}

fn shape(
    files: &mut SmallFiles,
    serial: u64,
    offset: u64,
    length: u64,
) -> Vec<(&'static str, u32)> {
    let plan = files
        .plan_read(file(serial), offset, length)
        .expect("in range");
    if let Some(ticket) = plan.ticket {
        files.read_done(ticket);
    }
    let name = |piece: &ReadPiece| match piece {
        ReadPiece::Memory(bytes) => ("memory", u32::try_from(bytes.len()).unwrap()),
        ReadPiece::Zeros(length) => ("zeros", *length),
        ReadPiece::Backing(read) => ("backing", read.length_bytes),
    };
    plan.pieces.iter().map(name).collect()
}

fn new() -> SmallFiles {
    SmallFiles::new(SmallFilesConfig::new(SITE))
}

/// Goal: 4 KiB go into the log record and nowhere else (CONSISTENCY 10).
#[test]
fn a_small_stable_write_costs_one_log_append() {
    let mut files = new();
    let change = begin(&mut files, 1, 0, 4096);
    assert!(change.writes.is_empty());
    assert!(change.record.len() < 4096 + 16);
    assert_eq!(files.standing(change.sequence), Standing::Pending);
    files.durable(change.sequence);
    assert_eq!(files.standing(change.sequence), Standing::Settled);
    assert_eq!(
        shape(&mut files, 1, 0, 8192),
        [("memory", 4096), ("zeros", 4096)]
    );
}

/// Goal: a file of many blocks is one backing write and one backing read, and
/// takes what Slice 4.4 says: 8,300 bytes in 8,320.
#[test]
fn a_larger_file_is_one_run() {
    let mut files = new();
    let small = store(&mut files, 1, 0, 8300);
    assert_eq!((small.writes.len(), files.used_bytes(file(1))), (1, 8320));
    let large = store(&mut files, 2, 0, 60_000);
    assert_eq!(large.writes.len(), 1);
    assert_eq!(large.writes[0].offset_bytes % 8192, 0);
    assert_eq!(shape(&mut files, 2, 0, 60_000), [("backing", 60_000)]);
    assert_eq!(shape(&mut files, 2, 10_000, 100), [("backing", 100)]);
    let plan = files.plan_read(file(2), 0, 60_000).expect("in range");
    let checks: usize = plan.reads().map(|read| read.checks.len()).sum();
    assert_eq!(checks, 8, "each fragment that is read whole is compared");
}

/// Goal: until the nodes have it, what was written is read from memory, and
/// the reply waits for it.
#[test]
fn a_write_under_way_is_served_from_memory() {
    let mut files = new();
    let change = begin(&mut files, 1, 0, 10_000);
    let plan = files.plan_read(file(1), 0, 10_000).expect("in range");
    assert_eq!((plan.after, plan.ticket), (Some(change.sequence), None));
    assert_eq!(
        shape(&mut files, 1, 0, 10_000),
        [("memory", 8192), ("memory", 1808)]
    );
    settle(&mut files, &change);
    let plan = files.plan_read(file(1), 0, 10_000).expect("in range");
    assert!(plan.after.is_none() && plan.ticket.is_some());
}

/// Goal: what a truncate cut off in the middle of a block never comes back;
/// extending shows zeros.
#[test]
fn an_extension_after_a_truncate_is_zeros() {
    let mut files = new();
    store(&mut files, 1, 0, 20_000);
    let Plan::Change(cut) = files.plan_truncate(file(1), 10_000) else {
        panic!("there is something to cut");
    };
    files.accept(&cut);
    files.durable(cut.sequence);
    assert_eq!(
        shape(&mut files, 1, 0, 20_000),
        [("backing", 10_000), ("zeros", 10_000)]
    );
    store(&mut files, 1, 15_000, 10);
    let expected = [
        ("backing", 10_000),
        ("zeros", 5000),
        ("memory", 10),
        ("zeros", 4990),
    ];
    assert_eq!(shape(&mut files, 1, 0, 20_000), expected);
}

/// Goal: what lies beyond the threshold is none of this site's: the head stays
/// when a file grows past it or is cut above it, and is cut below it.
#[test]
fn the_head_of_a_large_file_stays_here() {
    let mut files = new();
    store(&mut files, 1, 0, 65_536);
    assert!(matches!(
        files.plan_truncate(file(1), 65_536),
        Plan::Done { after: None }
    ));
    assert!(matches!(
        files.plan_truncate(file(1), 1 << 40),
        Plan::Done { after: None }
    ));
    assert!(matches!(
        files.plan_truncate(file(1), 65_535),
        Plan::Change(_)
    ));
    let beyond = write(1, 65_535, 2, Stability::Stable);
    let refused = files.plan_write(&beyond, &Fetched::new());
    assert_eq!(refused.err(), Some(SmallFileError::BeyondThreshold));
    assert!(files.plan_read(file(1), u64::MAX, 2).is_err());
}

/// Goal: pieces of many new files go to the nodes as one stream, fragments
/// below 4 KiB never straddle a node's block, and nobody waits for it.
#[test]
fn a_flush_batches_creates_into_one_write() {
    let mut files = new();
    for serial in 1..=100 {
        let length = usize::try_from(serial * 37).unwrap();
        store(&mut files, serial, 0, length);
    }
    let flush = change(files.plan_flush(Version(8), usize::MAX, &Fetched::new()));
    files.accept(&flush);
    assert_eq!(flush.writes.len(), 1);
    let plan = files.plan_read(file(50), 0, 50 * 37).expect("in range");
    assert_eq!(plan.after, None, "the bytes are in the log already");
    settle(&mut files, &flush);
    assert_eq!(files.memory().inlined_bytes, 0);
    for serial in 1..=100 {
        let length = serial * 37;
        let plan = files.plan_read(file(serial), 0, length).expect("in range");
        let reads: Vec<_> = plan.reads().collect();
        assert_eq!(reads.len(), 1, "a small read is one disk read");
        let first = reads[0].offset_bytes;
        assert_eq!(first / 4096, (first + length - 1) / 4096);
    }
    files.check_space().expect("space is exact");
}

/// Goal: old bytes are read only where they are needed, and compared.
#[test]
fn a_partial_overwrite_merges_with_old_bytes() {
    let mut files = new();
    let old = store(&mut files, 1, 0, 20_000);
    let whole = begin(&mut files, 1, 0, 20_000);
    settle(&mut files, &whole);
    let partial = write(1, 1000, 10_000, Stability::Stable);
    let Ok(Plan::Fetch { reads, ticket }) = files.plan_write(&partial, &Fetched::new()) else {
        panic!("two blocks keep old bytes");
    };
    assert_eq!((reads.len(), reads[0].length_bytes), (1, 16_384));
    let mut fetched = Fetched::new();
    let wrong = Payload::from(Bytes::from(vec![9; 16_384]));
    assert!(fetched.add(&reads[0], &wrong).is_err());
    let content = old.writes[0].payload.slice(0, 16_384);
    fetched.add(&reads[0], &content).expect("the same bytes");
    let merged = change(files.plan_write(&partial, &fetched));
    files.read_done(ticket);
    files.accept(&merged);
    let expected = [("memory", 8192), ("memory", 8192), ("backing", 3616)];
    assert_eq!(shape(&mut files, 1, 0, 20_000), expected);
    assert!(matches!(files.plan_truncate(file(1), 0), Plan::Wait(by) if by == merged.sequence));
}

/// Goal: a fragment is reused only when no change can become void any more
/// that had it, and nobody reads it.
#[test]
fn freed_space_waits_for_marks_and_readers() {
    let mut files = new();
    store(&mut files, 1, 0, 8192);
    let reader = files.plan_read(file(1), 0, 8192).expect("in range");
    store(&mut files, 1, 0, 8192);
    assert_eq!(files.space().pending_bytes, 8192);
    let mark = files.plan_mark().expect("it would help");
    files.accept(&mark);
    assert!(files.plan_mark().is_none(), "one is enough");
    files.durable(mark.sequence);
    assert_eq!(files.space().pending_bytes, 8192, "it is being read");
    files.read_done(reader.ticket.expect("it reads a node"));
    assert_eq!(files.space().pending_bytes, 0);
    assert_eq!(files.space().free_bytes, 8192);
}

/// Goal: a failed backing write leaves what was there, unstable bytes too, and
/// says so to who waits for it.
#[test]
fn a_failed_write_is_undone() {
    let mut files = new();
    store(&mut files, 1, 0, 10_000);
    let unstable = write(1, 0, 9000, Stability::Unstable);
    let buffered = files.plan_write(&unstable, &Fetched::new());
    assert!(matches!(buffered, Ok(Plan::Done { after: None })));
    let Ok(Plan::Fetch { reads, ticket }) = files.plan_commit(file(1), Version(9), &Fetched::new())
    else {
        panic!("the second block keeps old bytes");
    };
    let mut fetched = Fetched::new();
    let old = Payload::from(Bytes::from(vec![2; 1808]));
    fetched.add(&reads[0], &old).expect("the old bytes");
    let commit = change(files.plan_commit(file(1), Version(9), &fetched));
    files.read_done(ticket);
    files.accept(&commit);
    let void = files.plan_void(&[commit.sequence]);
    files.accept(&void);
    assert_eq!(files.standing(commit.sequence), Standing::Void);
    assert_eq!(
        shape(&mut files, 1, 0, 10_000),
        [("memory", 9000), ("backing", 1000)]
    );
    files.check_space().expect("space is exact");
}

/// Goal: beyond their bounds unstable writes become stable ones and small ones
/// take fragments; the bounds count tiny pieces too.
#[test]
fn memory_is_bounded() {
    let mut files = SmallFiles::new(SmallFilesConfig {
        inlined_bytes_max: 4096,
        unstable_bytes_max: 4096,
        ..SmallFilesConfig::new(SITE)
    });
    let mut buffered = 0;
    while let Ok(Plan::Done { .. }) = files.plan_write(
        &write(1, 2 * buffered, 1, Stability::Unstable),
        &Fetched::new(),
    ) {
        buffered += 1;
    }
    assert!((16..64).contains(&buffered), "{buffered}");
    let mut inlined = 0;
    while begin(&mut files, 2 + inlined, 0, 1).writes.is_empty() {
        inlined += 1;
    }
    assert!((16..64).contains(&inlined), "{inlined}");
    assert!(files.flush_is_due());
}

/// Goal: no space is an answer, and nothing has changed; space that is about
/// to become free is waited for.
#[test]
fn a_full_site_refuses() {
    let mut files = SmallFiles::new(SmallFilesConfig {
        object_bytes_max: 128 << 10,
        backing_bytes_max: 128 << 10,
        ..SmallFilesConfig::new(SITE)
    });
    store(&mut files, 1, 0, 65_536);
    store(&mut files, 2, 0, 65_536);
    let more = write(3, 0, 5000, Stability::Stable);
    assert_eq!(
        files.plan_write(&more, &Fetched::new()).err(),
        Some(SmallFileError::NoSpace)
    );
    let Plan::Change(remove) = files.plan_truncate(file(1), 0) else {
        panic!("there is something to remove");
    };
    files.accept(&remove);
    files.durable(remove.sequence);
    assert_eq!(
        files.plan_write(&more, &Fetched::new()).err(),
        Some(SmallFileError::Busy)
    );
    let mark = files.plan_mark().expect("it would help");
    files.accept(&mark);
    files.durable(mark.sequence);
    assert!(files.plan_write(&more, &Fetched::new()).is_ok());
}

/// Goal: the tail holds back the first record whose bytes are not known to be
/// there and all after it, drops what a void record names, and goes on.
#[test]
fn the_tail_holds_back_what_may_be_void() {
    let mut files = new();
    let mut log = vec![begin(&mut files, 1, 0, 5000), begin(&mut files, 2, 0, 10)];
    files.written(log[0].sequence);
    log.push(begin(&mut files, 3, 0, 5000));
    let mut again = new();
    let mut tail = ReplayTail::new();
    let mut out = Vec::new();
    for change in &log {
        let summary = again.summary(&change.record).expect("own record");
        tail.push(change.sequence, Some(summary));
        tail.push(change.sequence, None);
        out.extend(std::iter::from_fn(|| tail.pop()));
    }
    let [first, second, third] = [0, 1, 2].map(|index: usize| log[index].sequence);
    assert_eq!(
        out,
        [first, first, second, second],
        "the third says that the first was written"
    );
    let unverified: Vec<_> = tail.unverified().map(|(sequence, _)| sequence).collect();
    assert_eq!(unverified, [third]);
    let void = files.plan_void(&[third]);
    let summary = again.summary(&void.record).expect("own record");
    tail.push(void.sequence, Some(summary));
    let rest: Vec<_> = std::iter::from_fn(|| tail.pop()).collect();
    assert_eq!(
        rest,
        [third, void.sequence],
        "only the site's own record after it is left"
    );
}

/// Goal: a checkpoint cannot be taken for another, cut short, or loaded twice.
#[test]
fn a_broken_checkpoint_is_refused() {
    let mut files = new();
    for serial in 0..200 {
        store(
            &mut files,
            serial,
            0,
            5000 + usize::try_from(serial).unwrap() * 100,
        );
        store(&mut files, serial, 0, 100);
    }
    let mut checkpoint = files.begin_checkpoint();
    let chunks: Vec<_> = std::iter::from_fn(|| checkpoint.next_chunk(1000)).collect();
    assert!(chunks.len() > 5);
    let load = |chunks: &[&Vec<u8>]| {
        let mut files = new();
        chunks
            .iter()
            .try_for_each(|chunk| files.load(chunk))
            .map(|()| files)
    };
    let all: Vec<_> = chunks.iter().collect();
    let loaded = load(&all).expect("it is whole");
    assert_eq!(loaded.memory().files, files.memory().files);
    assert_eq!(
        loaded.space().allocated_bytes,
        files.space().allocated_bytes
    );
    loaded.check_space().expect("space is exact");
    for missing in 1..all.len() - 1 {
        let without: Vec<_> = all
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != missing)
            .map(|(_, chunk)| *chunk)
            .collect();
        assert!(load(&without).is_err(), "chunk {missing} is missing");
    }
    let twice: Vec<_> = all.iter().chain(&all).copied().collect();
    assert!(load(&twice).is_err());
}

/// Goal: a file of up to 8 KiB costs at most 26 bytes of memory, one of 64 KiB
/// at most 160.
#[test]
fn a_file_costs_little_memory() {
    for (length, cost_max) in [(100, 26), (8192, 26), (20_000, 90), (65_536, 160)] {
        let mut files = new();
        for serial in 0..640 {
            store(&mut files, serial, 0, length);
        }
        let flush = files.plan_flush(Version(8), usize::MAX, &Fetched::new());
        if let Ok(Plan::Change(flush)) = flush {
            files.accept(&flush);
            settle(&mut files, &flush);
        }
        let memory = files.memory();
        assert_eq!((memory.files, memory.inlined_bytes), (640, 0));
        let cost = memory.map_bytes / memory.files;
        println!("{length} bytes: {cost} bytes of memory");
        assert!(cost <= cost_max, "{length} bytes cost {cost}");
    }
}
