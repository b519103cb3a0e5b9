//! The real disks under the common suite, and what only files can do.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crossdock_ring::Ring;
use crossdock_types::{AlignedBuffer, BLOCK_BYTES};

use super::*;
use crate::pool::{Pool, PoolDisk};
use crate::uring::UringDisk;

const BLOCK: u64 = BLOCK_BYTES as u64;
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("crossdock-disk-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path, length_bytes: u64, prewrite: bool) -> Result<DiskFile, OpenError> {
    let options = OpenOptions {
        length_bytes,
        prewrite,
    };
    DiskFile::open_or_create(path, options)
}

/// Makes and reopens files; `serve` makes a disk of one.
struct FileRig<S, W> {
    folder: Folder,
    made: u32,
    serve: S,
    wait: W,
}

impl<D: Disk, S: FnMut(DiskFile) -> D, W: FnMut()> FileRig<S, W> {
    fn new(serve: S, wait: W) -> Self {
        Self {
            folder: Folder::new(),
            made: 0,
            serve,
            wait,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.file(&format!("disk-{}", self.made))
    }
}

impl<D: Disk, S: FnMut(DiskFile) -> D, W: FnMut()> suite::Rig for FileRig<S, W> {
    type Disk = D;

    fn create(&mut self, length_bytes: u64) -> D {
        self.made += 1;
        let prewrite = self.made.is_multiple_of(2);
        let file = open(&self.path(), length_bytes, prewrite).expect("a new disk");
        (self.serve)(file)
    }

    fn reopen(&mut self, disk: D) -> D {
        drop(disk);
        let file = open(&self.path(), BLOCK, false).expect("the old disk");
        (self.serve)(file)
    }

    fn wait(&mut self, disk: &mut D) -> DiskCompletion {
        loop {
            if let Some(completion) = disk.poll() {
                return completion;
            }
            (self.wait)();
        }
    }
}

fn pool() -> (Pool, mpsc::Receiver<()>) {
    let (sender, receiver) = mpsc::channel();
    let notify = Arc::new(move || {
        let _ = sender.send(());
    });
    (Pool::start(4, notify).expect("threads"), receiver)
}

/// Goal: the pool is a disk.
#[test]
fn the_pool_passes_the_suite() {
    let (pool, notified) = pool();
    let serve = |file| -> PoolDisk { pool.disk(file) };
    let wait = || notified.recv_timeout(PATIENCE).expect("a completion");
    suite::run(&mut FileRig::new(serve, wait));
}

/// Goal: the ring is a disk.
#[test]
fn the_ring_passes_the_suite() {
    let ring = Ring::new(64).expect("a ring");
    let serve = |file| UringDisk::new(&ring, file);
    let wait = || ring.turn(Some(PATIENCE)).expect("a turn");
    suite::run(&mut FileRig::new(serve, wait));
}

/// Goal: one ring serves several disks, and the tokens do not mix.
#[test]
fn one_ring_serves_several_disks() {
    let folder = Folder::new();
    let ring = Ring::new(8).expect("a ring");
    let mut disks: Vec<UringDisk> = (0..5_u64)
        .map(|index| {
            let path = folder.file(&index.to_string());
            UringDisk::new(&ring, open(&path, 100 * BLOCK, false).expect("a disk"))
        })
        .collect();
    for (index, disk) in disks.iter_mut().enumerate() {
        for block in 0..100 {
            let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
            buffer.fill(u8::try_from(index).expect("few disks"));
            disk.submit(DiskRequest {
                token: DiskToken(block),
                operation: DiskOperation::Write {
                    offset_bytes: block * BLOCK,
                    pieces: vec![buffer.freeze()],
                    is_durable: false,
                },
            });
        }
    }
    for disk in &mut disks {
        for _ in 0..100 {
            while disk
                .poll()
                .map(|done| done.result.expect("to write"))
                .is_none()
            {
                ring.turn(Some(PATIENCE)).expect("a turn");
            }
        }
    }
    drop(disks);
    drop(ring);
    for index in 0..5_u8 {
        let content = fs::read(folder.file(&index.to_string())).expect("to read");
        assert_eq!(content.len(), 100 * BLOCK_BYTES);
        assert!(content.iter().all(|&byte| byte == index));
    }
}

/// Goal: the buffered file is a blocking disk.
#[test]
fn the_buffered_file_passes_the_blocking_suite() {
    let folder = Folder::new();
    let path = folder.file("index");
    let disk = FileBlockingDisk::open_or_create(&path).expect("a file");
    suite::run_blocking(&disk);
    assert!(matches!(
        FileBlockingDisk::open_or_create(&path),
        Err(OpenError::InUse(_))
    ));
}

/// Goal: a journal has its space written when it is made, a data file has it
/// reserved, and a longer disk is not cut.
#[test]
fn new_files_have_their_space() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new();
    for prewrite in [false, true] {
        let path = folder.file(&prewrite.to_string());
        let file = open(&path, 300 * BLOCK, prewrite).expect("a disk");
        assert_eq!(file.length_bytes(), 300 * BLOCK);
        let metadata = fs::metadata(&path).expect("metadata");
        assert_eq!(metadata.len(), 300 * BLOCK);
        assert!(metadata.blocks() * 512 >= 300 * BLOCK, "{prewrite}");
        drop(file);
        let file = open(&path, 20 * BLOCK, prewrite).expect("a disk");
        assert_eq!(file.length_bytes(), 300 * BLOCK);
    }
}

/// Goal: a creation that was interrupted is completed, and keeps its bytes.
#[test]
fn a_short_file_is_completed() {
    let folder = Folder::new();
    let path = folder.file("journal");
    fs::write(&path, vec![7; 2 * BLOCK_BYTES + 100]).expect("to write");
    let file = open(&path, 10 * BLOCK, true).expect("a disk");
    assert_eq!(file.length_bytes(), 10 * BLOCK);
    let content = fs::read(&path).expect("to read");
    assert!(content[..2 * BLOCK_BYTES].iter().all(|&byte| byte == 7));
    assert!(content[2 * BLOCK_BYTES..].iter().all(|&byte| byte == 0));
}

/// Goal: two users of one disk are refused, and what is no file too; both say
/// why.
#[test]
fn a_disk_has_one_user() {
    let folder = Folder::new();
    let path = folder.file("disk");
    let first = open(&path, BLOCK, false).expect("a disk");
    let error = open(&path, BLOCK, false).expect_err("in use");
    assert!(matches!(error, OpenError::InUse(_)), "{error}");
    drop(first);
    open(&path, BLOCK, false).expect("free again");
    let error = open(&folder.0, BLOCK, false).expect_err("a directory");
    assert!(error.to_string().starts_with("cannot open"), "{error}");
    let error = open(Path::new("/dev/null"), BLOCK, false).expect_err("a device");
    assert!(matches!(error, OpenError::Unsuitable(_)), "{error}");
}

/// Goal: growth beyond the file system is an error that leaves the disk as it
/// was, by both servers.
#[test]
fn growth_beyond_the_file_system_fails_and_changes_nothing() {
    let folder = Folder::new();
    let grow = |disk: &mut dyn Disk, wait: &dyn Fn()| {
        disk.submit(DiskRequest {
            token: DiskToken(1),
            operation: DiskOperation::Grow {
                length_bytes: 1 << 60,
            },
        });
        let completion = loop {
            match disk.poll() {
                Some(completion) => break completion,
                None => wait(),
            }
        };
        assert!(completion.result.is_err());
        assert_eq!(disk.length_bytes(), BLOCK);
    };
    let ring = Ring::new(8).expect("a ring");
    let file = open(&folder.file("a"), BLOCK, false).expect("a disk");
    grow(&mut UringDisk::new(&ring, file), &|| {
        ring.turn(Some(PATIENCE)).expect("a turn");
    });
    let (pool, notified) = pool();
    let file = open(&folder.file("b"), BLOCK, false).expect("a disk");
    grow(&mut pool.disk(file), &|| {
        notified.recv_timeout(PATIENCE).expect("a completion");
    });
}
