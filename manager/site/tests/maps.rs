//! Files with block maps: blocks lie where there is room, and keep their columns until they
//! are cut off (docs/decisions/0029).

mod rig;

use std::sync::Arc;

use crossdock_names::{FileRef, LayoutClass, MapFragment, NodeId, UNMAPPED};
use crossdock_peer::{AttributeChanges, FileLayout, OpenFor, SiteAnswer, SiteOperation, Stability};
use crossdock_site::{NodeRoom, SiteInput, SiteLimits};

use rig::Rig;

const MIB: u64 = 1 << 20;

/// A site of a volume whose large files have maps, with columns on nodes 1, 2 and 3.
fn rig() -> Rig {
    let mut rig = Rig::new(SiteLimits::default());
    rig.table.layout = LayoutClass::MAPPED;
    rig.restart();
    rig
}

fn opened(rig: &mut Rig, file: FileRef, purpose: OpenFor) -> FileLayout {
    let open = SiteOperation::Open {
        file,
        purpose,
        holder: None,
    };
    match rig.ask(open).outcome {
        Ok(SiteAnswer::Opened { layout, .. }) => layout,
        other => panic!("{other:?}"),
    }
}

fn write_at(rig: &mut Rig, file: FileRef, block: u64) -> FileLayout {
    let purpose = OpenFor::Write {
        offset_bytes: block * MIB,
        end_bytes: (block + 1) * MIB,
    };
    let layout = opened(rig, file, purpose);
    let end = (block + 1) * MIB;
    rig.ask(SiteOperation::PushAttributes {
        file,
        size_at_least_bytes: end,
        wrote: true,
        read: false,
        truncate_generation: layout.truncate_generation,
        stability: Stability::Stable,
        written: None,
        lease: None,
    });
    layout
}

/// What the site says to a reader of those blocks.
fn map(rig: &mut Rig, file: FileRef, blocks: (u64, u64)) -> MapFragment {
    let purpose = OpenFor::Read {
        offset_bytes: blocks.0 * MIB,
        end_bytes: blocks.1 * MIB,
    };
    opened(rig, file, purpose).map
}

fn columns(map: &MapFragment, blocks: (u64, u64)) -> Vec<u8> {
    let told = |block| map.column_of(block).expect("it was asked for");
    (blocks.0..blocks.1).map(told).collect()
}

fn truncate(rig: &mut Rig, file: FileRef, size_bytes: u64) {
    let done = rig.ask(SiteOperation::SetAttributes {
        file,
        changes: AttributeChanges {
            size_bytes: Some(size_bytes),
            ..AttributeChanges::default()
        },
        guard: None,
    });
    assert_eq!(done.outcome, Ok(SiteAnswer::Done));
}

/// Goal: new blocks go to nodes by what these have to give: room, and disks with little to
/// do; none to one that is full.
#[test]
fn blocks_go_where_there_is_room() {
    let mut rig = rig();
    let file = rig.create("large");
    let room = |free: u64, load_percent| NodeRoom {
        free_bytes: free * MIB,
        load_percent,
    };
    let rooms = [room(4000, 100), room(1000, 0), room(0, 0)];
    let nodes = (1..).map(NodeId);
    let rooms = Arc::new(nodes.zip(rooms).collect());
    rig.site.handle(rig.now, rig.wall, SiteInput::Rooms(rooms));
    let layout = write_at(&mut rig, file, 0);
    assert_eq!(layout.columns, 3);
    let map = map(&mut rig, file, (0, 60));
    let columns = columns(&map, (0, 60));
    let count = |wanted: u8| columns.iter().filter(|&&column| column == wanted).count();
    assert_eq!((count(0), count(1), count(2)), (40, 20, 0));
}

/// Goal: a block keeps its column when the site dies; what was never written lies nowhere.
#[test]
fn maps_outlive_the_site() {
    let mut rig = rig();
    let file = rig.create("large");
    write_at(&mut rig, file, 0);
    write_at(&mut rig, file, 500);
    let before = map(&mut rig, file, (0, 600));
    assert!(columns(&before, (0, 60)).iter().all(|&column| column < 3));
    assert_eq!(columns(&before, (490, 500)), [UNMAPPED; 10]);
    assert!(columns(&before, (500, 501))[0] < 3);
    rig.restart();
    assert_eq!(map(&mut rig, file, (0, 600)), before);
}

/// Goal: blocks behind the end are placed anew after a truncate, whose generation tells
/// old maps from new ones; the others stay where they are.
#[test]
fn a_truncate_cuts_the_map() {
    let mut rig = rig();
    let file = rig.create("large");
    let old = write_at(&mut rig, file, 0).truncate_generation;
    let before = columns(&map(&mut rig, file, (0, 8)), (0, 8));
    truncate(&mut rig, file, 2 * MIB - 7);
    let cut = map(&mut rig, file, (0, 8));
    assert_eq!(columns(&cut, (0, 2)), before[..2]);
    assert_eq!(columns(&cut, (2, 8)), [UNMAPPED; 6]);
    assert!(write_at(&mut rig, file, 3).truncate_generation > old);
    let anew = map(&mut rig, file, (0, 8));
    assert_eq!(columns(&anew, (0, 3)), [&before[..2], &[UNMAPPED]].concat());
    assert!(columns(&anew, (3, 4))[0] < 3);
}

/// Goal: a truncate reaches the column objects at the file's end within the segment,
/// wherever its blocks lie, and a file that was striped stays so.
#[test]
fn columns_are_cut_at_the_file_s_end() {
    let mut rig = Rig::new(SiteLimits::default());
    let striped = rig.create("striped");
    assert_eq!(write_at(&mut rig, striped, 0).class, LayoutClass::STRIPED);
    rig.table.layout = LayoutClass::MAPPED;
    rig.restart();
    assert_eq!(write_at(&mut rig, striped, 1).class, LayoutClass::STRIPED);
    let mapped = rig.create("mapped");
    write_at(&mut rig, mapped, 1);
    truncate(&mut rig, mapped, MIB + 5);
    let own = rig.columns();
    let own = own.iter().filter(|column| column.placement == mapped.id.0);
    let mut seen = 0;
    for column in own {
        let object = rig.nodes.values().find_map(|node| node.objects.get(column));
        let length = object.map(|object| object.bytes.len() as u64);
        assert_eq!(length, Some(MIB + 5), "{column}");
        seen += 1;
    }
    assert_eq!(seen, 3);
}

/// Goal: blocks behind the end that were placed at a node which has become full get other
/// places after a truncate to where the file ends; those before the end keep theirs.
#[test]
fn a_truncate_to_the_end_places_blocks_anew() {
    let mut rig = rig();
    let file = rig.create("large");
    let tell = |rig: &mut Rig, free: [u64; 3]| {
        let rooms = free.map(|free| NodeRoom {
            free_bytes: free * MIB,
            load_percent: 0,
        });
        let rooms = Arc::new((1..).map(NodeId).zip(rooms).collect());
        rig.site.handle(rig.now, rig.wall, SiteInput::Rooms(rooms));
    };
    tell(&mut rig, [1000, 1000, 1000]);
    let old = write_at(&mut rig, file, 5).truncate_generation;
    write_at(&mut rig, file, 0);
    let before = columns(&map(&mut rig, file, (0, 60)), (0, 60));
    assert!(before[6..].contains(&2), "{before:?}");
    tell(&mut rig, [1000, 1000, 0]);
    truncate(&mut rig, file, 6 * MIB);
    assert!(write_at(&mut rig, file, 6).truncate_generation > old);
    let after = columns(&map(&mut rig, file, (0, 60)), (0, 60));
    assert_eq!(after[..6], before[..6]);
    assert!(after[6..].iter().all(|&column| column < 2), "{after:?}");
}
