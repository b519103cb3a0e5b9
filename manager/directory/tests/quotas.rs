//! Quotas: what trees hold is the sum of their cells whatever happens, and
//! nothing grows beyond a limit.

mod tree;

use std::collections::BTreeMap;

use crossdock_directory::{Directory, Mutation, QuotaPlan, Scan};
use crossdock_names::{FileId, FileRef, SiteId};
use crossdock_peer::{
    AttributeChanges, Caller, CreateMode, Device, FileKind, QuotaChange, SiteError, SiteOperation,
    SpaceUsage,
};
use proptest::prelude::*;

use tree::{
    ROOT, Tree, create, dump, link, make_directory, mode, name, remove, remove_directory, rename,
    set,
};

fn check(directory: &Directory) {
    let counted = directory.recount_trees();
    for quota in directory.quotas() {
        let used = (quota.used_bytes, quota.used_files);
        assert_eq!(Some(&used), counted.get(&quota.tree), "tree {}", quota.tree);
    }
}

/// Every cell below a tree's root is in it, and none that lies elsewhere only.
fn check_membership(tree: &Tree, names: &BTreeMap<FileRef, Vec<FileRef>>) {
    for quota in tree.directory.quotas() {
        let mut below = vec![quota.root];
        while let Some(directory) = below.pop() {
            let cell = tree.directory.cell(directory).expect("living");
            if cell.is_directory() {
                assert_eq!(cell.quota_tree, quota.tree, "a directory is in its tree");
            }
            below.extend(names.get(&directory).into_iter().flatten());
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize, u8, u64),
    MakeDirectory(usize, u8),
    MakeDevice(usize, u8),
    Link(usize, usize, u8),
    Remove(usize, u8),
    RemoveDirectory(usize, u8),
    Rename(usize, u8, usize, u8),
    Resize(usize, u64),
    Write(usize, u64),
    SetQuota(usize, u64, u64),
    RemoveQuota(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..30usize;
    let name = 0..5u8;
    let at = || (file.clone(), name.clone());
    prop_oneof![
        4 => (at(), 0..40_000u64).prop_map(|((d, n), size)| Step::Create(d, n, size)),
        4 => at().prop_map(|(d, n)| Step::MakeDirectory(d, n)),
        1 => at().prop_map(|(d, n)| Step::MakeDevice(d, n)),
        2 => (file.clone(), at()).prop_map(|(f, (d, n))| Step::Link(f, d, n)),
        2 => at().prop_map(|(d, n)| Step::Remove(d, n)),
        1 => at().prop_map(|(d, n)| Step::RemoveDirectory(d, n)),
        3 => (at(), at()).prop_map(|((d, n), (e, m))| Step::Rename(d, n, e, m)),
        2 => (file.clone(), 0..60_000u64).prop_map(|(f, size)| Step::Resize(f, size)),
        2 => (file.clone(), 0..60_000u64).prop_map(|(f, end)| Step::Write(f, end)),
        3 => (file.clone(), 0..200_000u64, 0..12u64).prop_map(|(d, b, f)| Step::SetQuota(d, b, f)),
        1 => file.clone().prop_map(Step::RemoveQuota),
    ]
}

/// A tree, and all files that it ever had.
struct World {
    tree: Tree,
    files: Vec<FileRef>,
}

impl World {
    fn new() -> Self {
        Self {
            tree: Tree::new(),
            files: vec![ROOT],
        }
    }

    fn file(&self, number: usize) -> FileRef {
        self.files[number % self.files.len()]
    }

    /// Carries a step out, or has it refused; either is fine here.
    fn step(&mut self, step: &Step) {
        let text = |number: u8| format!("name {number}");
        let operation = match *step {
            Step::Create(d, n, size) => SiteOperation::Create {
                directory: self.file(d),
                name: name(&text(n)),
                mode: CreateMode::Guarded(sized(size)),
            },
            Step::MakeDirectory(d, n) => make_directory(self.file(d), &text(n), 0o755),
            Step::MakeDevice(d, n) => SiteOperation::MakeNode {
                directory: self.file(d),
                name: name(&text(n)),
                kind: FileKind::Block,
                device: Device { major: 7, minor: 9 },
                changes: mode(0o600),
            },
            Step::Link(f, d, n) => link(self.file(f), self.file(d), &text(n)),
            Step::Remove(d, n) => remove(self.file(d), &text(n)),
            Step::RemoveDirectory(d, n) => remove_directory(self.file(d), &text(n)),
            Step::Rename(d, n, e, m) => rename(self.file(d), &text(n), self.file(e), &text(m)),
            Step::Resize(f, size) => set(self.file(f), sized(size)),
            Step::Write(f, end) => return self.write(self.file(f), end),
            Step::SetQuota(d, bytes, files) => return self.set_quota(self.file(d), bytes, files),
            Step::RemoveQuota(d) => {
                if let Ok(removal) = self.tree.directory.plan_quota_removal(self.file(d)) {
                    self.tree.apply(&[removal]);
                }
                return;
            }
        };
        let before = self
            .tree
            .directory
            .quotas()
            .map(|quota| (quota.tree, quota));
        let before: BTreeMap<_, _> = before.collect();
        if let Ok(plan) = self.tree.plan(&Caller::root(), &operation) {
            if let crossdock_directory::Answer::Found(file) = plan.answer {
                self.files.push(file);
            }
            for quota in self.tree.directory.quotas() {
                let grew = before.get(&quota.tree);
                let bytes = grew.is_some_and(|old| quota.used_bytes > old.used_bytes);
                let files = grew.is_some_and(|old| quota.used_files > old.used_files);
                assert!(
                    !bytes
                        || quota
                            .limits
                            .bytes
                            .is_none_or(|limit| quota.used_bytes <= limit)
                );
                assert!(
                    !files
                        || quota
                            .limits
                            .files
                            .is_none_or(|limit| quota.used_files <= limit)
                );
            }
        }
    }

    fn write(&mut self, file: FileRef, end: u64) {
        let Ok(cell) = self.tree.directory.cell(file) else {
            return;
        };
        if cell.is_regular() && self.tree.directory.check_growth(cell, end).is_ok() {
            let cell = cell.written(&Caller::root(), end, self.tree.wall);
            self.tree.apply(&[Mutation::PutCell(cell)]);
        }
    }

    fn set_quota(&mut self, directory: FileRef, bytes: u64, files: u64) {
        let change = QuotaChange {
            bytes: Some((bytes > 50_000).then_some(bytes)),
            files: Some((files > 3).then_some(files)),
        };
        if self.tree.directory.plan_quota(directory, &change).is_ok() {
            let (bytes, files) = (change.bytes.flatten(), change.files.flatten());
            self.tree.set_quota(directory, bytes, files);
        }
    }
}

fn sized(size: u64) -> AttributeChanges {
    AttributeChanges {
        size_bytes: Some(size),
        ..AttributeChanges::default()
    }
}

/// Who lies in which directory, by the entries of a scan.
fn entries(directory: &Directory) -> BTreeMap<FileRef, Vec<FileRef>> {
    let mut names: BTreeMap<FileRef, Vec<FileRef>> = BTreeMap::new();
    let mut scan = Scan::default();
    while let Some(mutation) = directory.scan(&mut scan) {
        if let Mutation::PutEntry { parent, child, .. } = mutation {
            let parent = directory.cell_of(parent).expect("a directory");
            names.entry(parent.file(SiteId(0))).or_default().push(child);
        }
    }
    names
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: whatever is done, what a tree is said to hold is the sum over its
    /// cells, all below its root is in it, nothing that grew is above a limit,
    /// and a replay of any part of the log counts the same.
    #[test]
    fn usage_is_the_sum_of_the_cells(steps in prop::collection::vec(step(), 1..100), cut: prop::sample::Index) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            check(&world.tree.directory);
        }
        check_membership(&world.tree, &entries(&world.tree.directory));
        let mut replayed = Directory::new(SiteId(0), 99);
        let cut = cut.index(world.tree.log.len());
        for (number, mutation) in world.tree.log.iter().enumerate() {
            replayed.apply(mutation);
            if number == cut {
                check(&replayed);
            }
        }
        check(&replayed);
        prop_assert_eq!(dump(&replayed), dump(&world.tree.directory));
    }

    /// Goal: a checkpoint that is written while quotas come and go, and a replay
    /// from where it began, give the live state and the same sums.
    #[test]
    fn a_scan_during_changes_keeps_the_sums(
        before in prop::collection::vec(step(), 1..60),
        during in prop::collection::vec((step(), 0..6usize), 1..60),
    ) {
        let mut world = World::new();
        before.iter().for_each(|step| world.step(step));
        let start = world.tree.log.len();
        let mut scan = Scan::default();
        let mut checkpoint = Vec::new();
        for (step, scanned) in &during {
            checkpoint.extend((0..*scanned).map_while(|_| world.tree.directory.scan(&mut scan)));
            world.step(step);
        }
        while let Some(mutation) = world.tree.directory.scan(&mut scan) {
            checkpoint.push(mutation);
        }
        let mut restored = Directory::new(SiteId(0), 99);
        for mutation in checkpoint.iter().chain(&world.tree.log[start..]) {
            restored.apply(mutation);
        }
        check(&restored);
        prop_assert_eq!(dump(&restored), dump(&world.tree.directory));
    }
}

/// Goal: a quota whose directory was replaced by a rename is not there again after a
/// replay over a checkpoint that was written when the directory was gone.
#[test]
fn a_quota_goes_with_its_directory_on_replay() {
    let mut world = World::new();
    let before = [Step::MakeDirectory(0, 4), Step::MakeDirectory(0, 0)];
    before.iter().for_each(|step| world.step(step));
    let start = world.tree.log.len();
    world.step(&Step::SetQuota(2, 60_000, 0));
    assert_eq!(world.tree.directory.quotas().count(), 1);
    world.step(&Step::Rename(0, 4, 0, 0));
    assert_eq!(world.tree.directory.quotas().count(), 0);
    let mut restored = Directory::new(SiteId(0), 99);
    let mut scan = Scan::default();
    while let Some(mutation) = world.tree.directory.scan(&mut scan) {
        restored.apply(&mutation);
    }
    for mutation in &world.tree.log[start..] {
        restored.apply(mutation);
    }
    assert_eq!(restored.quotas().count(), 0);
}

/// Goal: a limit of files counts directories, links and special files and the
/// root itself, not further names; a limit of bytes what attributes say is on
/// disk; neither root nor the owner is exempt.
#[test]
fn limits_hold_for_everybody() {
    let mut tree = Tree::new();
    let home = tree.run_for_file(&Caller::root(), make_directory(ROOT, "home", 0o777));
    let first = tree.run_for_file(&Caller::root(), create(home, "first", 0o666));
    tree.set_quota(home, Some(4096 * 4), Some(4));
    let quota = tree.directory.quota_at(home).expect("a quota");
    assert_eq!((quota.used_bytes, quota.used_files), (4096, 2));
    tree.run_for_file(&Caller::root(), make_directory(home, "inner", 0o777));
    assert!(
        tree.run(&Caller::root(), link(first, home, "again"))
            .is_ok()
    );
    let full = Err(SiteError::Quota);
    let large = tree.run(&Caller::root(), sized_create(home, "large", 8193));
    assert_eq!(large, full, "12 KiB beside the 8 of two directories");
    let user = tree::user(1000, 1000, &[]);
    tree.run_for_file(&user, sized_create(home, "fits", 4097));
    for caller in [Caller::root(), user] {
        assert_eq!(tree.run(&caller, create(home, "x", 0o600)), full);
        assert_eq!(tree.run(&caller, make_directory(home, "x", 0o700)), full);
        let device = SiteOperation::MakeNode {
            directory: home,
            name: name("x"),
            kind: FileKind::Fifo,
            device: Device::default(),
            changes: mode(0o600),
        };
        assert_eq!(tree.run(&caller, device), full);
        let symlink = SiteOperation::MakeSymlink {
            directory: home,
            name: name("x"),
            changes: mode(0o777),
            target: name("there"),
        };
        assert_eq!(tree.run(&caller, symlink), full);
        assert_eq!(tree.run(&caller, set(first, sized(1))), full);
    }
    assert!(tree.run(&Caller::root(), remove(home, "fits")).is_ok());
    assert!(tree.run(&Caller::root(), set(first, sized(8192))).is_ok());
    let quota = tree.directory.quota_at(home).expect("a quota");
    assert_eq!(
        quota.used_bytes, 8192,
        "a size takes nothing until it is written"
    );
    let cell = tree.directory.cell(first).expect("there").clone();
    assert_eq!(tree.directory.check_growth(&cell, 100), Ok(()));
    assert_eq!(
        tree.directory.check_growth(&cell, 8193),
        Err(SiteError::Quota)
    );
    // Lowered below what is used: nothing grows, what there is can be changed and removed.
    let written = cell.written(&Caller::root(), 8192, tree.wall);
    tree.apply(&[Mutation::PutCell(written.clone())]);
    tree.set_quota(home, Some(1), None);
    assert_eq!(tree.directory.check_growth(&written, 8192), Ok(()));
    assert_eq!(
        tree.directory.check_growth(&written, 8193),
        Err(SiteError::Quota)
    );
    assert!(tree.run(&Caller::root(), set(first, sized(10))).is_ok());
    assert!(
        tree.run(&Caller::root(), rename(home, "first", home, "renamed"))
            .is_ok()
    );
}

fn sized_create(directory: FileRef, text: &str, size: u64) -> SiteOperation {
    SiteOperation::Create {
        directory,
        name: name(text),
        mode: CreateMode::Guarded(sized(size)),
    }
}

/// Goal: trees do not lie inside each other, whichever comes first; what cannot
/// be limited says why.
#[test]
fn trees_do_not_nest() {
    let mut tree = Tree::new();
    let outer = tree.run_for_file(&Caller::root(), make_directory(ROOT, "outer", 0o755));
    let middle = tree.run_for_file(&Caller::root(), make_directory(outer, "middle", 0o755));
    let inner = tree.run_for_file(&Caller::root(), make_directory(middle, "inner", 0o755));
    let file = tree.run_for_file(&Caller::root(), create(inner, "file", 0o644));
    let change = QuotaChange {
        bytes: Some(Some(1 << 20)),
        files: None,
    };
    let plan = |tree: &Tree, directory| match tree.directory.plan_quota(directory, &change) {
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    tree.set_quota(middle, Some(1 << 20), None);
    for (directory, error) in [
        (ROOT, SiteError::Exists),
        (outer, SiteError::Exists),
        (inner, SiteError::Exists),
        (file, SiteError::NotDirectory),
    ] {
        assert_eq!(plan(&tree, directory), Err(error));
    }
    assert_eq!(tree.directory.quota_in_the_way(outer), Some(middle));
    assert_eq!(tree.directory.quota_in_the_way(inner), Some(middle));
    assert_eq!(tree.directory.quota_in_the_way(middle), None);
    let nothing = QuotaChange {
        bytes: Some(None),
        files: None,
    };
    let refused = tree.directory.plan_quota(middle, &nothing);
    assert_eq!(refused.err(), Some(SiteError::Invalid));
    let paths = tree.directory.paths_of(&[middle, ROOT, inner, file]);
    let expected = ["/outer/middle", "/", "/outer/middle/inner"];
    let shown: Vec<_> = paths.iter().flatten().take(3).map(String::as_str).collect();
    assert_eq!(shown, expected);
    let removal = tree.directory.plan_quota_removal(middle).expect("there");
    tree.apply(&[removal]);
    assert_eq!(plan(&tree, outer), Ok(()));
    tree.set_quota(outer, Some(1 << 20), None);
    let quota = tree.directory.quota_at(outer).expect("a quota");
    assert_eq!((quota.used_bytes, quota.used_files), (3 * 4096, 4));
    let none = tree.directory.plan_quota_removal(middle);
    assert_eq!(none.err(), Some(SiteError::NotFound));
}

/// Goal: files are found with their paths, wherever they were moved; what has
/// no name has none.
#[test]
fn files_are_found_with_their_paths() {
    let mut tree = Tree::new();
    let root = Caller::root();
    let folder = tree.run_for_file(&root, make_directory(ROOT, "folder", 0o777));
    let inner = tree.run_for_file(&root, make_directory(folder, "inner", 0o777));
    let low = tree.run_for_file(&root, create(inner, "low", 0o666));
    let high = tree.run_for_file(&root, create(ROOT, "high", 0o666));
    tree.run(&root, rename(folder, "inner", ROOT, "outer"))
        .expect("moved");
    let ids = [low, high, inner].map(|file| file.id.serial());
    let wanted = ids.into_iter().chain([99]).collect();
    let paths = tree.directory.paths_of_files(&wanted);
    let shown: Vec<_> = ids.iter().map(|id| paths[id].as_str()).collect();
    assert_eq!(shown, ["/outer/low", "/high", "/outer"]);
    assert_eq!(paths.len(), 3);
    tree.run(&root, remove(ROOT, "high")).expect("removed");
    assert!(!tree.directory.paths_of_files(&wanted).contains_key(&ids[1]));
}

/// Goal: with its root a tree's quota goes; its number is never used again.
#[test]
fn a_removed_root_takes_its_quota_along() {
    let mut tree = Tree::new();
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let home = tree.run_for_file(&Caller::root(), make_directory(ROOT, "home", 0o755));
        tree.set_quota(home, None, Some(5));
        numbers.extend(tree.directory.quotas().map(|quota| quota.tree));
        assert!(
            tree.run(&Caller::root(), remove_directory(ROOT, "home"))
                .is_ok()
        );
        assert_eq!(tree.directory.quotas().count(), 0);
        let mut restored = Directory::new(SiteId(0), 99);
        let mut scan = Scan::default();
        while let Some(mutation) = tree.directory.scan(&mut scan) {
            restored.apply(&mutation);
        }
        tree.directory = restored;
    }
    assert_eq!(numbers, [1, 2, 3]);
}

/// Goal: a tree whose last record is missing is none, in checkpoint and replay,
/// and its number is not used again.
#[test]
fn half_a_tree_is_none() {
    let mut tree = Tree::new();
    let home = tree.run_for_file(&Caller::root(), make_directory(ROOT, "home", 0o755));
    tree.run_for_file(&Caller::root(), create(home, "file", 0o644));
    let change = QuotaChange {
        bytes: None,
        files: Some(Some(2)),
    };
    let Ok(QuotaPlan::New(mut new)) = tree.directory.plan_quota(home, &change) else {
        panic!("no new tree");
    };
    tree.apply(&[new.reserve()]);
    tree.directory.hold_tree(&new);
    // It counts at once, but it is not there yet.
    let refused = tree.run(&Caller::root(), create(home, "more", 0o644));
    assert_eq!(refused, Err(SiteError::Quota));
    assert_eq!(tree.directory.quotas().count(), 0);
    let cells = new.next_cells(1).expect("two cells");
    tree.apply(&[cells]);
    let mut scan = Scan::default();
    let mut restored = Directory::new(SiteId(0), 99);
    while let Some(mutation) = tree.directory.scan(&mut scan) {
        restored.apply(&mutation);
    }
    let mut replayed = Directory::new(SiteId(0), 99);
    for mutation in &tree.log {
        replayed.apply(mutation);
    }
    for directory in [restored, replayed] {
        tree.directory = directory;
        assert_eq!(tree.directory.quotas().count(), 0);
        tree.run_for_file(&Caller::root(), create(home, "more", 0o644));
        tree.set_quota(home, None, Some(9));
        let quota = tree.directory.quota_at(home).expect("a quota");
        assert_eq!((quota.tree, quota.used_files), (2, 3));
        check(&tree.directory);
    }
}

/// Goal: FSSTAT of a file in a tree shows the tree's space, as far as it is
/// limited; what can be used is bounded by the volume, too.
#[test]
fn space_is_that_of_the_tree() {
    let mut tree = Tree::new();
    let home = tree.run_for_file(&Caller::root(), make_directory(ROOT, "home", 0o755));
    let file = tree.run_for_file(&Caller::root(), create(home, "file", 0o644));
    let volume = SpaceUsage {
        total_bytes: 100_000,
        free_bytes: 50_000,
        available_bytes: 50_000,
        total_files: 1000,
        free_files: 500,
        available_files: 500,
    };
    assert_eq!(tree.directory.space_at(file, volume), Ok(volume));
    tree.set_quota(home, Some(80_000), None);
    let expected = SpaceUsage {
        total_bytes: 80_000,
        free_bytes: 80_000 - 4096,
        ..volume
    };
    assert_eq!(tree.directory.space_at(file, volume), Ok(expected));
    assert_eq!(tree.directory.space_at(ROOT, volume), Ok(volume));
    tree.set_quota(home, Some(10), Some(3));
    let expected = SpaceUsage {
        total_bytes: 10,
        free_bytes: 0,
        available_bytes: 0,
        total_files: 3,
        free_files: 1,
        available_files: 1,
    };
    assert_eq!(tree.directory.space_at(home, volume), Ok(expected));
    let stale = FileRef {
        id: FileId(1 << 30),
        generation: 1,
    };
    assert_eq!(
        tree.directory.space_at(stale, volume),
        Err(SiteError::Stale)
    );
}
