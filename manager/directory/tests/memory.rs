//! What a file costs in memory, by the process's resident size and by the
//! directory's own count.

use std::fmt::Write as _;

use bytes::Bytes;
use crossdock_directory::{Abroad, Directory};
use crossdock_names::{FileId, FileRef, SiteId};
use crossdock_peer::{AttributeChanges, Caller, CreateMode, SiteOperation};
use crossdock_types::WallTime;

/// Resident bytes of this process.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number") * 4096
}

/// Goal: a file with entry, cell and all indexes costs at most 176 bytes
/// (1 M files in 1,000 directories, names of 15 bytes).
#[test]
fn a_file_costs_at_most_176_bytes() {
    const FILES: usize = 1_000_000;
    let caller = Caller::root();
    let wall = WallTime::from_parts(1_800_000_000, 123_456_789);
    let before = resident_bytes();
    let mut directory = Directory::new(SiteId(0), 7);
    for mutation in directory.make_root(&caller, 0o755, wall) {
        directory.apply(&mutation);
    }
    let run = |directory: &mut Directory, operation: &SiteOperation| {
        let plan = directory
            .plan(&caller, operation, wall, &Abroad::default())
            .expect("made");
        for mutation in &plan.mutations {
            directory.apply(mutation);
        }
        match plan.answer {
            crossdock_directory::Answer::Found(file) => file,
            other => panic!("{other:?}"),
        }
    };
    let root = FileRef {
        id: FileId(1),
        generation: 1,
    };
    let changes = AttributeChanges {
        mode: Some(0o755),
        ..AttributeChanges::default()
    };
    let mut parent = root;
    for number in 0..FILES {
        let mut name = String::new();
        write!(name, "file-{number:010}").expect("memory");
        if number % 1000 == 0 {
            let make = SiteOperation::MakeDirectory {
                directory: root,
                name: Bytes::from(format!("d{number}")),
                changes,
            };
            parent = run(&mut directory, &make);
        }
        let create = SiteOperation::Create {
            directory: parent,
            name: Bytes::from(name),
            mode: CreateMode::Guarded(changes),
        };
        run(&mut directory, &create);
    }
    let resident = resident_bytes().saturating_sub(before) / FILES;
    let counted = directory.memory_use();
    let own = counted.bytes / counted.cells;
    println!("{resident} resident and {own} counted bytes per file");
    assert!(resident <= 176, "{resident} resident bytes per file");
    assert!(own <= 176, "{own} counted bytes per file");
}
