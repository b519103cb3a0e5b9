//! Pieces of a checkpoint: they bring back what was put into them, in few bytes.

mod tree;

use bytes::Bytes;
use crossdock_directory::{Cell, Directory, Mutation, PieceWriter, Scan};
use crossdock_names::{FileId, FileRef, LayoutClass, SiteId};
use crossdock_peer::{Caller, FileKind};
use crossdock_types::WallTime;
use proptest::prelude::*;

use tree::{ROOT, Tree, create, dump};

fn any_cell() -> impl Strategy<Value = Cell> {
    let small = || prop_oneof![Just(0u64), 1..5u64, any::<u64>()];
    let time = || prop_oneof![Just(1_800_000_000_000_000_000), 0..9i64, any::<i64>()];
    let numbers = (1..1u64 << 48, 1..4u32, 0..3u32, 0..3u32, 0..4u32, 0..2u32);
    let times = (time(), time(), time());
    let sizes = (small(), small());
    let rare = (small(), 0..3u16, 0..3u32, 0..2u8, any::<bool>());
    (numbers, times, sizes, rare).prop_map(|(numbers, times, sizes, rare)| {
        let (serial, generation, uid, gid, links, quota_tree) = numbers;
        let mut cell = Cell {
            serial,
            generation,
            kind_and_mode: Cell::pack_kind(FileKind::Regular, 0o644),
            links,
            uid,
            gid,
            size_bytes: sizes.0,
            used_or_device: sizes.1,
            accessed: WallTime(times.0),
            modified: WallTime(times.1),
            changed: WallTime(times.2),
            quota_tree,
            ..Cell::default()
        };
        let (truncate_generation, columns, segments, class, has_more) = rare;
        if has_more {
            cell.change_rare(|rare| {
                rare.truncate_generation = truncate_generation;
                (rare.columns, rare.segments) = (columns, segments);
                rare.layout = LayoutClass(class);
                (rare.snapshot_birth, rare.layout_epoch) = (truncate_generation, segments);
            });
        }
        cell
    })
}

fn any_entry() -> impl Strategy<Value = Mutation> {
    let parent = prop_oneof![1..40u64, (1 << 48) - 9..1u64 << 48];
    let numbers = (parent, any::<u64>(), 0..3u32, 3..1u64 << 46);
    (numbers, "[ab]{1,40}").prop_map(|((parent, child, generation, cookie), name)| {
        Mutation::PutEntry {
            parent,
            name: Bytes::from(name),
            child: FileRef {
                id: FileId(child),
                generation,
            },
            cookie,
        }
    })
}

fn piece_of(mutations: &[Mutation]) -> Vec<u8> {
    let mut piece = PieceWriter::default();
    mutations.iter().for_each(|mutation| piece.put(mutation));
    piece.finish()
}

proptest! {
    /// Goal: whatever the records are, a load sets the state that they set.
    #[test]
    fn pieces_bring_back_what_was_put(
        mutations in prop::collection::vec(
            prop_oneof![any_cell().prop_map(Mutation::PutCell), any_entry()],
            0..60,
        ),
    ) {
        let mut applied = Directory::new(SiteId(0), 5);
        mutations.iter().for_each(|mutation| applied.apply(mutation));
        let mut loaded = Directory::new(SiteId(0), 5);
        prop_assert_eq!(loaded.load(&piece_of(&mutations)), Ok(()));
        prop_assert_eq!(dump(&loaded), dump(&applied));
    }

    /// Goal: no bytes make the load panic, and a piece that is cut within its
    /// last record is damaged.
    #[test]
    fn damage_is_found(bytes: Vec<u8>, entry in any_entry()) {
        let mut directory = Directory::new(SiteId(0), 5);
        let _ = directory.load(&bytes); // Damaged or not: it ends.
        let whole = piece_of(&[entry]);
        for length in 1..whole.len() {
            prop_assert!(directory.load(&whole[..length]).is_err());
        }
    }
}

/// Goal: an ordinary file, its name included, takes at most 24 bytes of a
/// checkpoint.
#[test]
fn an_ordinary_file_takes_few_bytes() {
    const FILES: usize = 1000;
    let mut tree = Tree::new();
    for number in 0..FILES {
        tree.run_for_file(
            &Caller::root(),
            create(ROOT, &format!("file-{number:010}"), 0o644),
        );
    }
    let mut piece = PieceWriter::default();
    let mut scan = Scan::default();
    while let Some(mutation) = tree.directory.scan(&mut scan) {
        piece.put(&mutation);
    }
    assert!(piece.len() <= 24 * FILES, "{} bytes", piece.len());
}
