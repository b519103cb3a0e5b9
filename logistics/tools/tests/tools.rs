//! The tools against depots that die, forget and lie.

#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

mod world;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crossdock_exnode::{
    Code, Coding, ExNode, ExNodeId, Extents, FileKey, Group, Mapping, Place, Shard, Step,
};
use crossdock_tools::refresh::{End, refresh};
use crossdock_tools::upload::StepKind;
use crossdock_tools::{
    Address, Depots, Knowledge, Lost, Observer, Tuning, augment, download, stat, trim, upload,
};
use proptest::prelude::*;

use world::{TestDepot, with_depots};

/// A file of its own for each test.
fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("crossdock-tools-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 31 % 253) as u8 ^ (at >> 9) as u8)
        .collect()
}

fn impatient() -> Tuning {
    Tuning {
        away: Duration::from_millis(100),
        ..Tuning::default()
    }
}

fn names(depots: &[TestDepot]) -> Vec<Address> {
    depots.iter().map(TestDepot::name).collect()
}

fn client() -> Depots {
    Depots::new(Duration::from_secs(2))
}

async fn put(bytes: &[u8], name: &str, options: &upload::Options) -> anyhow::Result<ExNode> {
    let file = scratch(name);
    std::fs::write(&file, bytes).unwrap();
    let input = upload::Input::open(&file)?;
    upload::upload(&client(), input, options, &mut Observer::silent()).await
}

async fn get(exnode: &ExNode, name: &str, options: &download::Options) -> anyhow::Result<Vec<u8>> {
    let file = scratch(name);
    let output = download::Output::file(&file, false)?;
    download::download(&client(), exnode, output, options, &mut Observer::silent()).await?;
    Ok(std::fs::read(file).unwrap())
}

fn options(depots: &[TestDepot]) -> upload::Options {
    upload::Options {
        depots: names(depots),
        mapping_bytes: 100_000,
        tuning: impatient(),
        ..upload::Options::default()
    }
}

fn key() -> FileKey {
    FileKey::parse(&"5a".repeat(32)).unwrap()
}

/// Goal: what is uploaded comes back, with every coding and both strategies of copies; copies
/// of the same bytes are on depots apart.
#[test]
fn files_come_back() {
    with_depots(3, |depots| async move {
        let bytes = content(1_234_567);
        let all = [StepKind::Compress, StepKind::Encrypt, StepKind::Checksum];
        let historic = [
            StepKind::HistoricZlib,
            StepKind::HistoricAes,
            StepKind::HistoricChecksum,
        ];
        for (number, steps) in [&all[..0], &all, &all[2..], &historic]
            .into_iter()
            .enumerate()
        {
            for is_direct in [true, false] {
                let name = format!("back-{number}-{is_direct}");
                let options = upload::Options {
                    copies: 2,
                    is_direct,
                    steps: steps.to_vec(),
                    block_bytes: 7000,
                    key: Some(key()),
                    ..options(&depots)
                };
                let exnode = put(&bytes, &name, &options).await.unwrap();
                assert_eq!((exnode.size(), exnode.mappings.len()), (1_234_567, 26));
                for extent in Extents::new(&exnode, 0..exnode.size(), |_| Some(0)) {
                    let depot = |&n: &usize| exnode.mappings[n].read.clone().unwrap();
                    let depots: BTreeSet<String> = extent.sources.iter().map(depot).collect();
                    let hosts = depots.iter().map(|it| it.split('/').nth(2).unwrap());
                    assert_eq!(hosts.collect::<BTreeSet<_>>().len(), 2);
                }
                let options = download::Options {
                    key: Some(key()),
                    ..download::Options::default()
                };
                let name = format!("{name}.out");
                assert_eq!(get(&exnode, &name, &options).await.unwrap(), bytes);
                let options = download::Options {
                    range: Some(123_456..234_567),
                    ..options
                };
                let part = get(&exnode, &name, &options).await.unwrap();
                assert_eq!(part, bytes[123_456..234_567]);
            }
        }
    });
}

/// Goal: what ACCRE's depots, which probe for managers only, do not tell is not taken for gone: it
/// would be trimmed; with the right capability it is asked for, and what is gone is seen.
#[test]
fn accres_depots_are_asked_with_the_right_capability() {
    with_depots(1, |depots| async move {
        depots[0].with(|store| store.is_accre = true);
        let options = upload::Options {
            copies: 1,
            ..options(&depots)
        };
        let exnode = put(&content(1000), "accre", &options).await.unwrap();
        let knowledge = Knowledge::default();
        let ask = async |exnode: &ExNode| {
            let mut all = stat::stat(&client(), exnode, 1, &knowledge).await;
            all.remove(0)
        };
        let asked = ask(&exnode).await;
        assert!(asked.probe.is_ok_and(|probe| probe.size_bytes == 1000));
        let mut read_only = exnode.clone();
        read_only.mappings[0].manage = None;
        let asked = ask(&read_only).await;
        assert!(asked.probe.is_err() && !asked.is_gone);
        depots[0].with(|store| store.allocations.clear());
        assert!(ask(&exnode).await.is_gone);
    });
}

/// Goal: a client with bounds connects nowhere else, whatever an exNode says, and says which
/// depot it is about; what it may connect to it fetches, also where it may not first.
#[test]
fn clients_keep_to_their_bounds() {
    with_depots(2, |depots| async move {
        let bytes = content(300_000);
        let options = upload::Options {
            copies: 2,
            is_direct: true,
            ..options(&depots)
        };
        let exnode = put(&bytes, "bounds", &options).await.unwrap();
        let connected = || depots.iter().map(|depot| depot.with(|it| it.accepted));
        let before: Vec<usize> = connected().collect();
        let fetch = async |client: Depots| {
            let file = scratch("bounds.out");
            let output = download::Output::file(&file, false)?;
            let options = download::Options::default();
            let mut observer = Observer::silent();
            download::download(&client, &exnode, output, &options, &mut observer).await?;
            Ok::<_, anyhow::Error>(std::fs::read(file).unwrap())
        };
        let refused = fetch(client().within(|_, _| false)).await.unwrap_err();
        let refused = format!("{refused:#}");
        assert!(
            refused.contains("127.0.0.1 is not among the networks"),
            "{refused}"
        );
        assert_eq!(connected().collect::<Vec<_>>(), before);
        let second = depots[1].name();
        let within =
            client().within(move |depot, address| address.is_loopback() && *depot == second);
        assert_eq!(fetch(within).await.unwrap(), bytes);
        let after: Vec<usize> = connected().collect();
        assert!(after[0] == before[0] && after[1] > before[1], "{after:?}");
    });
}

/// Goal: with a code, any so many depots may die; one more, and the download says which bytes
/// are lost. An empty file and one of a few bytes are files, too.
#[test]
fn lost_depots_are_made_up_for() {
    with_depots(6, |depots| async move {
        for length in [1_000_001, 5, 0] {
            let bytes = content(length);
            let options = upload::Options {
                code: Some((4, 2)),
                steps: vec![StepKind::Compress, StepKind::Encrypt],
                key: Some(key()),
                ..options(&depots)
            };
            let exnode = put(&bytes, "coded", &options).await.unwrap();
            let options = download::Options {
                key: Some(key()),
                tuning: impatient(),
                ..download::Options::default()
            };
            for (dead, depot) in depots.iter().enumerate().take(3) {
                depot.with(|store| store.is_dead = true);
                let found = get(&exnode, "coded.out", &options).await;
                match dead {
                    2 if length > 5 => {
                        let error = found.unwrap_err();
                        let lost = error.downcast_ref::<Lost>().expect("what is lost");
                        assert!(lost.ranges.iter().all(|range| range.end <= length as u64));
                        assert!(!lost.ranges.is_empty());
                    }
                    2 => {}
                    _ => assert_eq!(found.unwrap(), bytes, "{dead} of a file of {length}"),
                }
            }
            depots
                .iter()
                .for_each(|depot| depot.with(|store| store.is_dead = false));
        }
    });
}

/// Goal: a depot that gives other bytes than were stored is noticed by every check, and the
/// next source is taken.
#[test]
fn liars_are_passed_over() {
    with_depots(2, |depots| async move {
        let bytes = content(300_000);
        for step in [
            StepKind::Checksum,
            StepKind::Encrypt,
            StepKind::HistoricChecksum,
        ] {
            let options = upload::Options {
                copies: 2,
                steps: vec![step],
                key: Some(key()),
                ..options(&depots)
            };
            let exnode = put(&bytes, "lies", &options).await.unwrap();
            let options = download::Options {
                key: Some(key()),
                tuning: impatient(),
                ..download::Options::default()
            };
            depots[0].with(|store| store.lies = true);
            assert_eq!(get(&exnode, "lies.out", &options).await.unwrap(), bytes);
            depots[1].with(|store| store.lies = true);
            let error = get(&exnode, "lies.out", &options).await.unwrap_err();
            assert!(error.to_string().contains("damaged"), "{error}");
            depots
                .iter()
                .for_each(|depot| depot.with(|store| store.lies = false));
        }
    });
}

/// Goal: a depot with few connections is not asked for more for long, and all comes.
#[test]
fn busy_depots_serve_in_the_end() {
    with_depots(2, |depots| async move {
        let bytes = content(3_000_000);
        let exnode = put(&bytes, "busy", &options(&depots)).await.unwrap();
        depots[0].with(|store| store.serves = Some(2));
        let options = download::Options {
            tuning: Tuning {
                threads: 12,
                ..Tuning::default()
            },
            ..download::Options::default()
        };
        assert_eq!(get(&exnode, "busy.out", &options).await.unwrap(), bytes);
    });
}

/// Goal: a stream gets all bytes in order, in little memory; a download that was cut off goes
/// on where it was.
#[test]
fn streams_are_in_order_and_downloads_resume() {
    with_depots(3, |depots| async move {
        let bytes = content(2_000_000);
        let exnode = put(&bytes, "stream", &options(&depots)).await.unwrap();
        let file = scratch("stream.out");
        let out = std::fs::File::create(&file).unwrap();
        let tuning = Tuning {
            memory_bytes: 200_000,
            ..impatient()
        };
        let options = download::Options {
            tuning,
            ..download::Options::default()
        };
        let output = download::Output::stream(Box::new(out));
        let mut observer = Observer::silent();
        download::download(&client(), &exnode, output, &options, &mut observer)
            .await
            .unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
        assert!(
            observer.timeline.report()["blocks"]
                .as_array()
                .unwrap()
                .len()
                >= 20
        );

        let file = scratch("resumed.out");
        depots[0].with(|store| store.is_dead = true);
        let output = download::Output::file(&file, false).unwrap();
        let mut observer = Observer::silent();
        let cut = download::download(&client(), &exnode, output, &options, &mut observer).await;
        assert!(cut.unwrap_err().is::<Lost>() && !file.exists());
        depots[0].with(|store| store.is_dead = false);
        let loaded = |depots: &[TestDepot]| -> u64 {
            depots
                .iter()
                .map(|depot| depot.with(|store| store.loaded))
                .sum()
        };
        let before = loaded(&depots);
        let other = ExNode {
            metadata: ExNode::new(ExNodeId([9; 16]), "").metadata,
            ..exnode.clone()
        };
        let output = download::Output::file(&file, true).unwrap();
        let refused = download::download(&client(), &other, output, &options, &mut observer).await;
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("another download")
        );
        let output = download::Output::file(&file, true).unwrap();
        download::download(&client(), &exnode, output, &options, &mut observer)
            .await
            .unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
        assert!(loaded(&depots) - before < 1_000_000, "most was there");
    });
}

/// Goal: copies are added to other depots without passing here, also of parts; leases are made
/// longer and shorter; what is trimmed is gone at its depot, and the rest still comes.
#[test]
fn exnodes_are_augmented_refreshed_and_trimmed() {
    with_depots(4, |depots| async move {
        let bytes = content(500_000);
        let first = upload::Options {
            steps: vec![StepKind::Checksum],
            block_bytes: 10_000,
            ..options(&depots[..2])
        };
        let mut exnode = put(&bytes, "augment", &first).await.unwrap();
        let before = exnode.mappings.len();
        let copy = augment::Options {
            depots: names(&depots[2..]),
            copies: 1,
            range: Some(150_000..260_000),
            duration: Duration::from_secs(100),
            reliability: first.reliability,
            tuning: Tuning::default(),
        };
        let mut knowledge = Knowledge::default();
        let mut observer = Observer::silent();
        let client = client();
        let part = augment::augment(&client, &exnode, &copy, &mut knowledge, &mut observer);
        let part = part.await.unwrap();
        let covered: u64 = part.iter().map(|mapping| mapping.logical_length).sum();
        assert!((110_000..=130_000).contains(&covered), "{covered}");
        let whole = augment::Options {
            range: None,
            ..copy
        };
        let made = augment::augment(&client, &exnode, &whole, &mut knowledge, &mut observer);
        let made = made.await.unwrap();
        exnode.mappings.extend(part);
        exnode.mappings.extend(made);

        let refreshed = refresh(&client, &exnode, End::Later(Duration::from_secs(50)), 4).await;
        assert!(refreshed.iter().all(Result::is_ok));
        let statuses = stat::stat(&client, &exnode, 4, &knowledge).await;
        let left = |n: usize| statuses[n].probe.as_ref().unwrap().duration_seconds;
        assert_eq!((left(0), left(before)), (86_450, 150));
        assert_eq!(statuses[0].coding, "blake3_checksum");

        let old: BTreeSet<usize> = (0..before).collect();
        let trimmed = trim::trim(&client, &mut exnode, &old, false, 4)
            .await
            .unwrap();
        assert!(trimmed.kept_at_depots.is_empty() && trimmed.removed.len() == before);
        for depot in &depots[..2] {
            assert!(depot.with(|store| store.allocations.is_empty()));
        }
        let found = get(&exnode, "augment.out", &download::Options::default()).await;
        assert_eq!(found.unwrap(), bytes);
        let many = BTreeSet::from([1000]);
        assert!(
            trim::trim(&client, &mut exnode, &many, true, 4)
                .await
                .is_err()
        );
    });
}

/// Goal: an upload goes around depots that take nothing, leaves nothing half stored behind, and
/// fails if there are too few.
#[test]
fn uploads_go_around_dead_depots() {
    with_depots(3, |depots| async move {
        let bytes = content(400_000);
        depots[1].with(|store| store.is_dead = true);
        let two = upload::Options {
            copies: 2,
            ..options(&depots)
        };
        let exnode = put(&bytes, "around", &two).await.unwrap();
        let found = get(&exnode, "around.out", &download::Options::default()).await;
        assert_eq!(found.unwrap(), bytes);
        let stored = |depot: &TestDepot| depot.with(|store| store.allocations.len());
        assert_eq!((stored(&depots[0]), stored(&depots[2])), (4, 4));
        let four = upload::Options {
            copies: 4,
            ..two.clone()
        };
        assert!(put(&bytes, "around", &four).await.is_err());
        depots[2].with(|store| store.is_dead = true);
        let error = put(&bytes, "around", &two).await.unwrap_err();
        assert!(error.is::<Lost>(), "{error}");
    });
}

/// A mapping over a part of the file.
#[derive(Clone, Debug)]
struct Part {
    start: usize,
    length: usize,
    depot: usize,
    steps: u8,
    block: u64,
}

fn part(size: usize) -> impl Strategy<Value = Part> {
    (0..size, 1..size, 0..4usize, 0..6u8, 1u64..400).prop_map(
        move |(start, length, depot, steps, block)| Part {
            start,
            length: length.min(size - start),
            depot,
            steps,
            block,
        },
    )
}

fn steps(of: u8, id: ExNodeId) -> Vec<Step> {
    match of {
        0 | 1 => Vec::new(),
        2 => vec![Step::Checksum],
        3 => vec![Step::Blake3],
        4 => vec![Step::AesGcm(key().check(id)), Step::Blake3],
        _ => vec![Step::Zstd, Step::AesCbc([1; 16])],
    }
}

/// Stores what a part covers, or a recovery shard, and gives its mapping.
fn stored(clear: &[u8], at: u64, shard: Option<Shard>, part: &Part, depot: &TestDepot) -> Mapping {
    let id = ExNodeId([4; 16]);
    let mut count = part.start as u8;
    let mut random = |bytes: &mut [u8]| {
        count = count.wrapping_add(1);
        bytes.fill(count);
    };
    let place = Place {
        id,
        shard: shard.as_ref().map_or(0, |shard| shard.index + 1),
        offset: if shard.is_some() { 0 } else { at },
    };
    let coding = Coding::new(steps(part.steps, id));
    let encoded = coding.encode(
        clear,
        part.block,
        place,
        shard.as_ref(),
        Some(&key()),
        &mut random,
    );
    let encoded = encoded.unwrap();
    let junk = part.start % 7;
    let bytes = [vec![0xee; junk], encoded.bytes].concat();
    let alloc_length = (bytes.len() - junk) as u64;
    let made = depot.put(bytes);
    Mapping {
        exnode_offset: at,
        logical_length: if shard.is_some() {
            0
        } else {
            clear.len() as u64
        },
        alloc_offset: junk as u64,
        alloc_length,
        e2e_blocksize: encoded.e2e_blocksize,
        function: encoded.function,
        read: Some(made.read.to_string()),
        ..Mapping::default()
    }
}

/// Goal: pieces are asked for before the ones before them have come, on as many connections as
/// there are threads, where the depot is known to read ahead; one that ends connections on which
/// requests wait costs no byte.
#[test]
fn pieces_are_asked_for_ahead() {
    for (is_ours, answers_max) in [(true, None), (true, Some(3)), (false, None)] {
        with_depots(1, |depots| async move {
            let depot = &depots[0];
            depot.with(|store| store.is_ours = is_ours);
            let bytes = content(3_000_000);
            let whole = upload::Options {
                mapping_bytes: 3_000_000,
                ..options(&depots)
            };
            let exnode = put(&bytes, "ahead", &whole).await.unwrap();
            while depot.with(|store| store.connections) > 0 {
                tokio::task::yield_now().await;
            }
            depot.with(|store| {
                store.connections_most = 0;
                store.asked_ahead = 0;
                store.answers_max = answers_max;
                store.pause = Duration::from_millis(1);
            });
            let options = download::Options {
                tuning: Tuning {
                    threads: 2,
                    fetches_again: false,
                    ..impatient()
                },
                ..download::Options::default()
            };
            assert!(get(&exnode, "ahead-back", &options).await.unwrap() == bytes);
            let (ahead, most) = depot.with(|store| (store.asked_ahead, store.connections_most));
            match (is_ours, answers_max) {
                (true, None) => assert!(ahead >= 3 && most == 2, "{ahead}, {most}"),
                (true, Some(_)) => {}
                (false, _) => assert_eq!((ahead, most), (0, 2)),
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Goal: of any exNode – overlaps, replicas, holes, codings, groups – and whichever depots
    /// are dead, the download is right, or says which bytes are lost, and no others are.
    #[test]
    fn downloads_are_right_or_say_what_is_lost(
        size in 64usize..3000,
        parts in (64usize..3000).prop_flat_map(|size| {
            proptest::collection::vec(part(size), 1..8)
        }),
        group in proptest::option::of((1u32..4, 1u32..3, 0u8..6)),
        dead in proptest::collection::vec(any::<bool>(), 4),
        threads in 1usize..6,
    ) {
        let bytes = content(size);
        with_depots(4, |depots| async move {
            let id = ExNodeId([4; 16]);
            let mut exnode = ExNode::new(id, "random");
            let mut alive = vec![false; size];
            for part in &parts {
                let part = Part {
                    start: part.start % size,
                    length: part.length.min(size - part.start % size),
                    ..part.clone()
                };
                let clear = &bytes[part.start..part.start + part.length];
                let depot = &depots[part.depot];
                let mapping = stored(clear, part.start as u64, None, &part, depot);
                exnode.mappings.push(mapping);
                if !dead[part.depot] {
                    alive[part.start..part.start + part.length].fill(true);
                }
            }
            let size = exnode.size() as usize;
            alive.truncate(size);
            // Without a group, what is alive is what can be had. With one, that is more: where
            // whole shards are there at least, and at most where units of 64 bytes are.
            let (mut most, mut least) = (alive.clone(), alive.clone());
            if let Some((data, recovery, coding)) = group {
                let code = if recovery == 1 { Code::Parity } else { Code::ReedSolomon };
                let group = Group::new(code, 0..size as u64, data, recovery).unwrap();
                let mut shards = Vec::new();
                for number in 0..data {
                    let range = group.data_range(number);
                    let mut shard = bytes[range.start as usize..range.end as usize].to_vec();
                    shard.resize(group.shard_bytes as usize, 0);
                    shards.push(shard);
                }
                let mut lost = 0;
                for (index, clear) in group.encode(&shards).unwrap().into_iter().enumerate() {
                    let depot = index % 4;
                    let part = Part { start: index, length: 0, depot, steps: coding, block: 100 };
                    let shard = Shard { group: group.clone(), index: index as u32 };
                    exnode.mappings.push(stored(&clear, 0, Some(shard), &part, &depots[depot]));
                    lost += u32::from(dead[depot]);
                }
                let whole = group.shard_bytes as usize;
                for (had, unit) in [(&mut most, 64), (&mut least, whole)] {
                    for column in 0..whole {
                        let unit = column / unit * unit..(column / unit + 1) * unit;
                        let has = |number: u32| {
                            let range = group.data_range(number);
                            let at = |column: usize| (range.start as usize + column).min(range.end as usize);
                            alive[at(unit.start)..at(unit.end)].iter().all(|alive| *alive)
                        };
                        let missing = (0..data).filter(|&number| !has(number)).count() as u32;
                        for number in (0..data).filter(|_| missing + lost <= recovery) {
                            let range = group.data_range(number);
                            let at = range.start as usize + column;
                            if at < range.end as usize {
                                had[at] = true;
                            }
                        }
                    }
                }
            }
            for (depot, dead) in depots.iter().zip(&dead) {
                depot.with(|store| store.is_dead = *dead);
            }
            let options = download::Options {
                key: Some(key()),
                piece_bytes: Some(200),
                tuning: Tuning { threads, ..impatient() },
                ..download::Options::default()
            };
            let file = scratch("random.out");
            let output = download::Output::file(&file, false).unwrap();
            let mut observer = Observer::silent();
            let client = client();
            let result = download::download(&client, &exnode, output, &options, &mut observer);
            match result.await {
                Ok(()) => {
                    prop_assert_eq!(std::fs::read(&file).unwrap(), &bytes[..size]);
                    prop_assert!(most.iter().all(|there| *there));
                }
                Err(error) => {
                    let lost = error.downcast_ref::<Lost>().expect("what is lost");
                    let mut there = vec![true; size];
                    for range in &lost.ranges {
                        there[range.start as usize..range.end as usize].fill(false);
                    }
                    let is_lost = there.iter().any(|there| !there);
                    prop_assert!(is_lost);
                    // A piece is lost as a whole if a byte of it is.
                    for at in 0..size {
                        prop_assert!(there[at] <= most[at], "byte {at} came from nowhere");
                        prop_assert!(there[at] >= least[at], "byte {at} could be had");
                    }
                    let part = std::fs::read(scratch("random.out.part")).unwrap();
                    for at in (0..size.min(part.len())).filter(|&at| there[at]) {
                        prop_assert_eq!(part[at], bytes[at]);
                    }
                }
            }
            Ok(())
        })?;
    }
}
