//! Histories that must not happen, by the names that docs and rules give them
//! (CONSISTENCY 1, 5 and 6), on a host with clients over NFS.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{ObjectClass, ObjectId, Version};
use crossdock_nfs3::call::{self, CreateHow};
use crossdock_nfs3::{
    Call, HandleBuffer, Location, Name, Procedure, Reply, SetAttributes, Status, WriteVerifier,
};
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, ReadVersion};
use crossdock_sim::disk::SimDiskOptions;
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::acts::write;
use super::driver::{Driver, Memory, Stop};
use super::model::{CELL, CELL_BYTES, CELLS_MAX, fill};
use super::rig::{Disks, Rig};
use super::{Faults, Shape, wire};

/// Cells beyond the threshold, in the file's first column.
const CELLS: Range<usize> = 70..200;

const SEEDS: u64 = 12;

/// A host between two starts.
struct Bench {
    shape: Shape,
    random: Random,
    memory: Memory,
    disks: Option<Disks>,
    now: Time,
}

type Scene<'a, T> = &'a mut dyn FnMut(&mut Driver<'_>) -> Result<T, Stop>;

impl Bench {
    fn new(seed: u64, nodes: u32, replicas: u32) -> Self {
        let shape = Shape {
            nodes,
            replicas,
            stops_nodes: false,
            faults: Faults::None,
        };
        let mut random = Random::new(seed);
        let (memory, disks) = super::new_host(shape, &mut random, false).expect("a host is made");
        Self {
            shape,
            random,
            memory,
            disks: Some(disks),
            now: Time::default(),
        }
    }

    /// A start with what happens in it; power fails at its end.
    #[track_caller]
    fn start<T>(&mut self, scene: Scene<'_, T>) -> T {
        let disks = self.disks.take().expect("no start is under way");
        let rig = Rig::start(disks, self.now, self.random.fork()).expect("it starts");
        let mut driver = Driver::new(self.shape, &mut self.memory, rig, None);
        let played = driver.open().and_then(|()| scene(&mut driver));
        let Driver { rig, .. } = driver;
        self.now = rig.now + Duration::from_secs(1);
        self.disks = Some(rig.crash());
        played.expect("nothing wrong")
    }
}

impl Driver<'_> {
    fn make_file(&mut self) -> Result<HandleBuffer, Stop> {
        self.make_named(b"file")
    }

    fn make_named(&mut self, name: &[u8]) -> Result<HandleBuffer, Stop> {
        let root = self.memory.model.directories[0];
        let location = Location {
            directory: root.as_handle(),
            name: Name(name),
        };
        let how = CreateHow::Guarded(SetAttributes::default());
        match self.call(&Call::Create(call::Create { location, how }))? {
            Reply::Create(Ok(made)) => Ok(made.object.expect("a handle")),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a file below the root; why not.
    fn create(&mut self, name: &[u8]) -> Result<Option<Status>, Stop> {
        let root = self.memory.model.directories[0];
        let location = Location {
            directory: root.as_handle(),
            name: Name(name),
        };
        let how = CreateHow::Guarded(SetAttributes::default());
        let reply = self.call(&Call::Create(call::Create { location, how }))?;
        Ok(reply.status())
    }

    fn write(
        &mut self,
        file: HandleBuffer,
        cells: &Range<usize>,
        tag: u32,
        is_stable: bool,
    ) -> Result<WriteVerifier, Stop> {
        match self.call(&write(file.as_handle(), cells, tag, is_stable))? {
            Reply::Write(Ok(done)) => Ok(done.verifier),
            other => panic!("{other:?}"),
        }
    }

    /// The same where a node may be full: how long the answer takes, and whether it is
    /// that there was room.
    fn write_timed(
        &mut self,
        file: HandleBuffer,
        cells: &Range<usize>,
        tag: u32,
    ) -> Result<(Duration, bool), Stop> {
        let since = self.rig.now;
        let reply = self.call(&write(file.as_handle(), cells, tag, true))?;
        let has_room = match &reply {
            Reply::Write(Ok(_)) => true,
            Reply::Write(Err(failure)) if failure.status == Status::NoSpc => false,
            other => panic!("{other:?}"),
        };
        Ok((self.rig.now.since(since), has_room))
    }

    fn commit(&mut self, file: HandleBuffer) -> Result<WriteVerifier, Stop> {
        let commit = Call::Commit(call::Commit {
            file: file.as_handle(),
            offset: 0,
            count_bytes: 0,
        });
        match self.call(&commit)? {
            Reply::Commit(Ok(done)) => Ok(done.verifier),
            other => panic!("{other:?}"),
        }
    }

    fn read_cells(&mut self, file: HandleBuffer, cells: &Range<usize>) -> Result<Bytes, Stop> {
        let read = Call::Read(call::Read {
            file: file.as_handle(),
            offset: cells.start as u64 * CELL_BYTES,
            count_bytes: u32::try_from(cells.len() as u64 * CELL_BYTES).expect("small"),
        });
        match self.call(&read)? {
            Reply::Read(Ok(done)) => Ok(done.data.to_bytes()),
            other => panic!("{other:?}"),
        }
    }

    fn size(&mut self, file: HandleBuffer) -> Result<u64, Stop> {
        let object = file.as_handle();
        match self.call(&Call::Getattr(call::Getattr { object }))? {
            Reply::Getattr(Ok(attributes)) => Ok(attributes.size_bytes),
            other => panic!("{other:?}"),
        }
    }

    /// The only column on a node, if there is one, and its version.
    fn column(&mut self, number: u32) -> Result<Option<(ObjectId, Version)>, Stop> {
        let Some(&object) = self.list(number, ObjectClass::Column)?.first() else {
            return Ok(None);
        };
        Ok(Some((object, self.stat(number, object)?.version)))
    }
}

fn truncate(file: &HandleBuffer, size_bytes: u64) -> Call<'_> {
    Call::Setattr(call::Setattr {
        object: file.as_handle(),
        attributes: SetAttributes {
            size_bytes: Some(size_bytes),
            ..SetAttributes::default()
        },
        guard: None,
    })
}

fn content(cells: &Range<usize>, tag: u32) -> Vec<u8> {
    let mut bytes = vec![0; cells.len() * CELL];
    for (cell, part) in cells.clone().zip(bytes.chunks_mut(CELL)) {
        fill(tag, cell, part);
    }
    bytes
}

/// Goal: an unstable write is v10, is seen by readers, is lost in a crash; the
/// next write is not v10 again with other bytes, and whoever kept v10 is told
/// that it is gone.
#[test]
fn version_reuse() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed, 1, 1);
        let (file, before) = bench.start(&mut |driver| {
            let file = driver.make_file()?;
            // Columns are made, durable, by the first write beyond the threshold.
            driver.write(file, &CELLS, 1, true)?;
            driver.write(file, &CELLS, 2, false)?;
            let seen = driver.read_cells(file, &CELLS)?;
            assert_eq!(seen, content(&CELLS, 2));
            Ok((file, driver.column(0)?.expect("a column")))
        });
        bench.start(&mut |driver| {
            driver.write(file, &CELLS, 3, false)?;
            let (object, version) = driver.column(0)?.expect("a column");
            assert_eq!(object, before.0);
            assert!(version > before.1, "seed {seed}: {version} again");
            let read = NodeRequest::Read {
                object,
                offset_bytes: CELLS.start as u64 * CELL_BYTES,
                length_bytes: CELL_BYTES,
                version: ReadVersion::NotAfter(before.1),
                patience_ms: 0,
            };
            assert_eq!(driver.ask(0, read)?, Err(NodeError::VersionGone));
            assert_eq!(driver.read_cells(file, &CELLS)?, content(&CELLS, 3));
            Ok(())
        });
    }
}

/// Goal: a write in flight that meets truncate(0) is before it or after it; its
/// bytes do not come back where a later extension shows zeros, not even after a
/// crash.
#[test]
fn resurrected_bytes() {
    let mut truncates_last = 0;
    for seed in 0..3 * SEEDS {
        let mut bench = Bench::new(seed, 2, 2);
        let is_stable = seed % 2 == 0;
        let end_bytes = CELLS.end as u64 * CELL_BYTES;
        let file = bench.start(&mut |driver| {
            let file = driver.make_file()?;
            driver.write(file, &CELLS, 1, true)?;
            let first = wire::encode(1, &write(file.as_handle(), &CELLS, 2, is_stable));
            let second = wire::encode(2, &truncate(&file, 0));
            let replies = driver.exchange_both(first, second)?;
            for (procedure, reply) in [Procedure::Write, Procedure::Setattr]
                .into_iter()
                .zip(&replies)
            {
                assert_eq!(wire::decode(procedure, reply)?.status(), None);
            }
            if driver.size(file)? > 0 {
                return Ok(None); // The write came after the truncate.
            }
            assert_eq!(driver.call(&truncate(&file, end_bytes))?.status(), None);
            let shown = driver.read_cells(file, &CELLS)?;
            assert_eq!(shown, content(&CELLS, 0), "seed {seed}");
            Ok(Some(file))
        });
        let Some(file) = file else {
            continue;
        };
        truncates_last += 1;
        bench.start(&mut |driver| {
            let shown = driver.read_cells(file, &CELLS)?;
            assert_eq!(shown, content(&CELLS, 0), "seed {seed}, after a crash");
            driver.verify_replicas()
        });
    }
    assert!(truncates_last > 0, "no write was before its truncate");
}

/// Goal: a node restarts between an unstable WRITE and its COMMIT, faster than
/// anybody notices: the verifier changes, the client sends the bytes again, and
/// then they are durable.
#[test]
fn quick_restart() {
    let all = 0..CELLS_MAX;
    for (seed, replicas) in (0..SEEDS).flat_map(|seed| [(seed, 1), (seed, 2)]) {
        let mut bench = Bench::new(seed, 2, replicas);
        let file = bench.start(&mut |driver| {
            let file = driver.make_file()?;
            let taken = driver.write(file, &all, 1, false)?;
            // Node 0 has the site's log, of which there may be one copy only.
            driver.rig.stop_node(1)?;
            driver.rig.start_node(1)?;
            let committed = driver.commit(file)?;
            assert_ne!(committed, taken, "seed {seed}, {replicas} replicas");
            // Once more at most: the node may become a member just in between.
            for _ in 0..2 {
                let taken = driver.write(file, &all, 2, false)?;
                if driver.commit(file)? == taken {
                    return Ok(file);
                }
            }
            panic!("seed {seed}, {replicas} replicas: nothing becomes durable");
        });
        bench.start(&mut |driver| {
            assert_eq!(
                driver.read_cells(file, &all)?,
                content(&all, 2),
                "seed {seed}"
            );
            driver.verify_replicas()
        });
    }
}

/// Goal: replicas hold what the primary shows, also of a node's own point of
/// view: what a reader is sent from any of them is the same.
#[test]
fn a_mirrored_write_is_on_all_members() {
    let mut bench = Bench::new(1, 2, 2);
    bench.start(&mut |driver| {
        let file = driver.make_file()?;
        driver.write(file, &CELLS, 1, false)?;
        for number in 0..2 {
            let (object, _) = driver.column(number)?.expect("a column");
            let read = NodeRequest::Read {
                object,
                offset_bytes: CELLS.start as u64 * CELL_BYTES,
                length_bytes: CELLS.len() as u64 * CELL_BYTES,
                version: ReadVersion::Current,
                patience_ms: 0,
            };
            match driver.ask(number, read)? {
                Ok(NodeAnswer::Read { payload, .. }) => {
                    assert_eq!(payload.to_bytes(), content(&CELLS, 1));
                }
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    });
}

/// Goal: a graceful stop does not wait for a change that needs a node that is
/// away; the client sends it again after the next start, and it is done once.
#[test]
fn a_stop_does_not_wait_for_a_node_that_is_away() {
    let mut bench = Bench::new(1, 2, 1);
    let record = bench.start(&mut |driver| {
        // The log of the site lies on this node alone.
        driver.rig.stop_node(0)?;
        let root = driver.memory.model.directories[0];
        let location = Location {
            directory: root.as_handle(),
            name: Name(b"file"),
        };
        let how = CreateHow::Guarded(SetAttributes::default());
        let record = wire::encode(7, &Call::Create(call::Create { location, how }));
        let connection = driver.connections[0];
        driver.rig.send(connection, record.clone());
        driver.settle(Duration::from_secs(1))?;
        assert!(driver.rig.replies.is_empty(), "answered without a log");
        driver.rig.drain();
        let until = driver.rig.now + Duration::from_secs(5);
        while !driver.rig.is_quiet {
            driver.step(Some(until))?;
            assert!(driver.rig.now < until, "it waits for the node");
        }
        driver.rig.start_node(0)?;
        driver.settle(Duration::from_secs(1))?;
        Ok(record)
    });
    bench.start(&mut |driver| {
        let reply = driver.exchange(0, record.clone())?;
        match wire::decode(Procedure::Create, &reply)? {
            Reply::Create(Ok(_)) => Ok(()),
            other => panic!("{other:?}"),
        }
    });
}

/// Goal: on the only disk, from the moment that it takes no writes, changes are
/// errors and reads go on; stopped and started on a mended disk, the node takes
/// changes again, and all that was acknowledged is there.
#[test]
fn refused_by_a_failed_disk() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed, 1, 1);
        bench.start(&mut |driver| {
            let file = driver.make_file()?;
            driver.write(file, &(0..3), 1, true)?;
            let broken = SimDiskOptions {
                write_error_one_in: 1,
                ..SimDiskOptions::default()
            };
            driver.rig.set_disk_options(0, [broken, broken]);
            for name in [&b"first"[..], b"second"] {
                assert_eq!(driver.create(name)?, Some(Status::Io), "seed {seed}");
            }
            assert!(driver.rig.failed_at.is_some(), "seed {seed}");
            let found = driver.read_cells(file, &(0..3))?;
            assert_eq!(found, content(&(0..3), 1), "seed {seed}");

            let sound = SimDiskOptions::default();
            driver.rig.set_disk_options(0, [sound, sound]);
            driver.rig.stop_node(0)?;
            driver.rig.start_node(0)?;
            driver.settle(Duration::from_secs(5))?;
            assert_eq!(driver.create(b"third")?, None, "seed {seed}");
            assert_eq!(driver.create(b"second")?, None, "it was not done later");
            driver.write(file, &(3..5), 2, true)?;
            let found = driver.read_cells(file, &(0..3))?;
            assert_eq!(found, content(&(0..3), 1), "seed {seed}");
            Ok(())
        });
    }
}

/// Goal: a member whose file system is full does not hold up who writes over what is
/// there. Its journal, which had taken bytes for which there were no blocks, could not be
/// emptied, and what waited for it waited without end.
#[test]
fn a_full_member_holds_nobody_up() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed, 2, 2);
        bench.start(&mut |driver| {
            driver.is_uneven = true; // That it stays out is what shall be.
            let file = driver.make_file()?;
            driver.write(file, &(0..700), 1, true)?;
            let full = SimDiskOptions {
                no_space_one_in: 1,
                ..SimDiskOptions::default()
            };
            driver
                .rig
                .set_disk_options(1, [SimDiskOptions::default(), full]);
            let mut longest = Duration::ZERO;
            for tag in 2..12 {
                for at in (0..690).step_by(7) {
                    let (took, has_room) = driver.write_timed(file, &(at..at + 3), tag)?;
                    assert!(has_room, "seed {seed}: what is written over has its place");
                    longest = longest.max(took);
                }
            }
            assert!(longest < Duration::from_secs(5), "seed {seed}: {longest:?}");
            Ok(())
        });
    }
}

/// Goal: a node that comes back to its sets with no room for what was written since, but
/// with files that were removed since, becomes a member: what is gone makes the room.
#[test]
fn what_was_removed_makes_room_for_who_comes_back() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed, 2, 2);
        bench.start(&mut |driver| {
            let first = driver.make_file()?;
            for at in (0..5200).step_by(130) {
                driver.write(first, &(at..at + 130), 1, true)?;
            }
            driver.settle(Duration::from_secs(2))?;
            driver.rig.stop_node(1)?;
            let root = driver.memory.model.directories[0];
            let location = Location {
                directory: root.as_handle(),
                name: Name(b"file"),
            };
            let removed = driver.call(&Call::Remove(location))?;
            assert_eq!(removed.status(), None, "seed {seed}");
            let second = driver.make_named(b"second")?;
            for at in (0..5200).step_by(130) {
                driver.write(second, &(at..at + 130), 2, true)?;
            }
            let full = SimDiskOptions {
                no_space_one_in: 1,
                ..SimDiskOptions::default()
            };
            driver
                .rig
                .set_disk_options(1, [SimDiskOptions::default(), full]);
            driver.rig.start_node(1)?;
            driver.settle(Duration::from_secs(20))?;
            // That its sets have it is looked at at the end of each run.
            driver.rig.stop_node(0)?;
            let found = driver.read_cells(second, &(5070..5200))?;
            assert_eq!(found, content(&(5070..5200), 2), "seed {seed}");
            Ok(())
        });
    }
}

/// Goal: a node whose file system is full, and that is to become a member again, does not
/// hold up who writes. What it was to be made equal by waited for room without end, and
/// the set's changes with it.
#[test]
fn a_full_node_that_comes_back_holds_nobody_up() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed, 2, 2);
        bench.start(&mut |driver| {
            let (first, second) = (driver.make_file()?, driver.make_named(b"second")?);
            driver.is_uneven = true; // That it stays out is what shall be.
            let mut tag = 0;
            let mut longest = Duration::ZERO;
            let mut write = |driver: &mut Driver<'_>, file, cells: Range<usize>| {
                tag += 1;
                let written = driver.write_timed(file, &cells, tag);
                written.map(|(took, _)| longest = longest.max(took))
            };
            for at in (70..700).step_by(130) {
                write(driver, first, at..at + 130)?;
            }
            let full = SimDiskOptions {
                no_space_one_in: 1,
                ..SimDiskOptions::default()
            };
            driver
                .rig
                .set_disk_options(1, [SimDiskOptions::default(), full]);
            for _ in 0..4 {
                driver.rig.stop_node(1)?;
                for at in (70..700).step_by(7) {
                    write(driver, first, at..at + 3)?;
                }
                driver.rig.start_node(1)?;
                for at in (70..700).step_by(13) {
                    write(driver, first, at..at + 5)?;
                    write(driver, second, at..at + 130)?;
                }
            }
            assert!(longest < Duration::from_secs(5), "seed {seed}: {longest:?}");
            Ok(())
        });
    }
}
