//! The name space against a simple model of it, and its log against its state.

mod tree;

use std::collections::{BTreeMap, BTreeSet};

use crossdock_directory::{Answer, Directory, PieceWriter, Scan};
use crossdock_names::{FileRef, SiteId};
use crossdock_peer::{Caller, SiteError, SiteOperation};
use proptest::prelude::*;

use tree::{
    ROOT, Tree, create, dump, link, list, lookup, make_directory, remove, remove_directory, rename,
};

/// One step: an operation, directories and names by number.
#[derive(Clone, Debug)]
enum Step {
    Create(usize, u8),
    MakeDirectory(usize, u8),
    Link(usize, usize, u8),
    Remove(usize, u8),
    RemoveDirectory(usize, u8),
    Rename(usize, u8, usize, u8),
    Lookup(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..40usize;
    let name = 0..5u8;
    prop_oneof![
        3 => (file.clone(), name.clone()).prop_map(|(d, n)| Step::Create(d, n)),
        3 => (file.clone(), name.clone()).prop_map(|(d, n)| Step::MakeDirectory(d, n)),
        1 => (file.clone(), file.clone(), name.clone()).prop_map(|(f, d, n)| Step::Link(f, d, n)),
        1 => (file.clone(), name.clone()).prop_map(|(d, n)| Step::Remove(d, n)),
        1 => (file.clone(), name.clone()).prop_map(|(d, n)| Step::RemoveDirectory(d, n)),
        4 => (file.clone(), name.clone(), file.clone(), name.clone())
            .prop_map(|(d, n, e, m)| Step::Rename(d, n, e, m)),
        1 => (file, name).prop_map(|(d, n)| Step::Lookup(d, n)),
    ]
}

/// A file of the model: `None` children = not a directory.
#[derive(Clone, Debug)]
struct File {
    children: Option<BTreeMap<String, usize>>,
    links: u32,
}

/// The model: files by number, 0 is the root; a file without links is gone.
struct Model {
    files: Vec<File>,
}

type Outcome = Result<Option<usize>, SiteError>;

impl Model {
    fn new() -> Self {
        Self {
            files: vec![File {
                children: Some(BTreeMap::new()),
                links: 2,
            }],
        }
    }

    fn children(&self, directory: usize) -> Result<&BTreeMap<String, usize>, SiteError> {
        let file = self.files.get(directory).ok_or(SiteError::Stale)?;
        if file.links == 0 {
            return Err(SiteError::Stale);
        }
        file.children.as_ref().ok_or(SiteError::NotDirectory)
    }

    fn insert(&mut self, directory: usize, name: &str, file: usize) {
        let children = self.files[directory].children.as_mut();
        children.expect("a directory").insert(name.into(), file);
        if self.files[file].children.is_some() {
            self.files[directory].links += 1;
        }
    }

    fn take(&mut self, directory: usize, name: &str) -> usize {
        let children = self.files[directory].children.as_mut();
        let file = children.expect("a directory").remove(name).expect("there");
        if self.files[file].children.is_some() {
            self.files[directory].links -= 1;
        }
        file
    }

    fn make(&mut self, directory: usize, name: &str, is_directory: bool) -> Outcome {
        if self.children(directory)?.contains_key(name) {
            return Err(SiteError::Exists);
        }
        self.files.push(File {
            children: is_directory.then(BTreeMap::new),
            links: if is_directory { 2 } else { 1 },
        });
        let file = self.files.len() - 1;
        self.insert(directory, name, file);
        Ok(Some(file))
    }

    fn link(&mut self, file: usize, directory: usize, name: &str) -> Outcome {
        let known = self.files.get(file).filter(|known| known.links > 0);
        let is_directory = known.ok_or(SiteError::Stale)?.children.is_some();
        if self.children(directory)?.contains_key(name) {
            return Err(SiteError::Exists);
        }
        if is_directory {
            return Err(SiteError::IsDirectory);
        }
        self.insert(directory, name, file);
        self.files[file].links += 1;
        Ok(None)
    }

    fn unlink(&mut self, directory: usize, name: &str, is_directory: bool) -> Outcome {
        let file = *self
            .children(directory)?
            .get(name)
            .ok_or(SiteError::NotFound)?;
        match (&self.files[file].children, is_directory) {
            (Some(_), false) => return Err(SiteError::IsDirectory),
            (None, true) => return Err(SiteError::NotDirectory),
            (Some(children), true) if !children.is_empty() => return Err(SiteError::NotEmpty),
            _ => {}
        }
        self.take(directory, name);
        self.drop_link(file);
        Ok(None)
    }

    fn drop_link(&mut self, file: usize) {
        let known = &mut self.files[file];
        known.links = if known.children.is_some() {
            0
        } else {
            known.links - 1
        };
    }

    fn contains(&self, ancestor: usize, file: usize) -> bool {
        let children = self.files[ancestor].children.iter().flatten();
        ancestor == file
            || children
                .into_iter()
                .any(|(_, &child)| self.contains(child, file))
    }

    fn rename(&mut self, from: usize, old: &str, to: usize, new: &str) -> Outcome {
        let source = self.children(from)?.get(old).copied();
        let target = self.children(to)?.get(new).copied();
        let file = source.ok_or(SiteError::NotFound)?;
        let is_directory = self.files[file].children.is_some();
        if is_directory && self.contains(file, to) {
            return Err(SiteError::Invalid);
        }
        if let Some(target) = target {
            if target == file {
                return Ok(None);
            }
            match (is_directory, &self.files[target].children) {
                (true, None) => return Err(SiteError::NotDirectory),
                (false, Some(_)) => return Err(SiteError::IsDirectory),
                (true, Some(children)) if !children.is_empty() => return Err(SiteError::NotEmpty),
                _ => {}
            }
            self.take(to, new);
            self.drop_link(target);
        }
        self.take(from, old);
        self.insert(to, new, file);
        Ok(None)
    }
}

/// Model and state side by side.
struct Pair {
    model: Model,
    tree: Tree,
    /// The real file of each of the model's.
    files: Vec<FileRef>,
    /// Every cookie that a name of a directory ever had.
    cookies: BTreeMap<(u64, u64), (String, usize)>,
}

impl Pair {
    fn new() -> Self {
        Self {
            model: Model::new(),
            tree: Tree::new(),
            files: vec![ROOT],
            cookies: BTreeMap::new(),
        }
    }

    fn file(&self, number: usize) -> FileRef {
        let stale = FileRef {
            id: crossdock_names::FileId(1 << 40),
            generation: 1,
        };
        self.files.get(number).copied().unwrap_or(stale)
    }

    /// Mostly a living directory, sometimes any file, or one that never was.
    fn pick(&self, number: usize) -> usize {
        let living = |(number, file): (usize, &File)| {
            (file.links > 0 && file.children.is_some()).then_some(number)
        };
        let directories: Vec<usize> = self
            .model
            .files
            .iter()
            .enumerate()
            .filter_map(living)
            .collect();
        if number < 34 {
            directories[number % directories.len()]
        } else {
            number % (self.model.files.len() + 1)
        }
    }

    fn step(&mut self, step: &Step) {
        let step = &match *step {
            Step::Create(d, n) => Step::Create(self.pick(d), n),
            Step::MakeDirectory(d, n) => Step::MakeDirectory(self.pick(d), n),
            Step::Link(f, d, n) => Step::Link(f % (self.model.files.len() + 1), self.pick(d), n),
            Step::Remove(d, n) => Step::Remove(self.pick(d), n),
            Step::RemoveDirectory(d, n) => Step::RemoveDirectory(self.pick(d), n),
            Step::Rename(d, n, e, m) => Step::Rename(self.pick(d), n, self.pick(e), m),
            Step::Lookup(d, n) => Step::Lookup(self.pick(d), n),
        };
        let text = |number: &u8| format!("name {number}");
        let (expected, operation) = match step {
            Step::Create(d, n) => (
                self.model.make(*d, &text(n), false),
                create(self.file(*d), &text(n), 0o644),
            ),
            Step::MakeDirectory(d, n) => (
                self.model.make(*d, &text(n), true),
                make_directory(self.file(*d), &text(n), 0o755),
            ),
            Step::Link(f, d, n) => (
                self.model.link(*f, *d, &text(n)),
                link(self.file(*f), self.file(*d), &text(n)),
            ),
            Step::Remove(d, n) => (
                self.model.unlink(*d, &text(n), false),
                remove(self.file(*d), &text(n)),
            ),
            Step::RemoveDirectory(d, n) => (
                self.model.unlink(*d, &text(n), true),
                remove_directory(self.file(*d), &text(n)),
            ),
            Step::Rename(d, n, e, m) => (
                self.model.rename(*d, &text(n), *e, &text(m)),
                rename(self.file(*d), &text(n), self.file(*e), &text(m)),
            ),
            Step::Lookup(d, n) => {
                let children = self.model.children(*d);
                let found = children.and_then(|all| all.get(&text(n)).ok_or(SiteError::NotFound));
                let found = found.map(|&file| Some(file));
                (found, lookup(self.file(*d), &text(n)))
            }
        };
        let answer = self.tree.run(&Caller::root(), operation);
        self.compare(step, expected, answer);
    }

    fn compare(&mut self, step: &Step, expected: Outcome, answer: Result<Answer, SiteError>) {
        match (expected, answer) {
            (Ok(Some(number)), Ok(Answer::Found(file))) => {
                if number == self.files.len() {
                    self.files.push(file);
                }
                assert_eq!(self.files[number], file, "{step:?}");
            }
            (Ok(None), Ok(Answer::Done)) => {}
            (Err(expected), Err(error)) => assert_eq!(error, expected, "{step:?}"),
            other => panic!("{step:?}: {other:?}"),
        }
    }

    /// Every directory lists what the model has, in pages of any size, and no
    /// cookie ever names another entry.
    fn check_listings(&mut self, page: usize) {
        for (number, file) in self.files.clone().into_iter().enumerate() {
            let known = self.model.files[number].clone();
            if known.links == 0 {
                assert!(self.tree.directory.cell(file).is_err());
                continue;
            }
            let attributes = self.tree.attributes(file);
            assert_eq!(attributes.links, known.links, "links of {number}");
            let Some(children) = known.children else {
                continue;
            };
            let mut listed = BTreeMap::new();
            let mut cookie = 0;
            loop {
                let answer = self.tree.run(&Caller::root(), list(file, cookie, page));
                let Ok(Answer::Directory { entries, end }) = answer else {
                    panic!("{answer:?}");
                };
                for entry in entries {
                    assert!(entry.cookie > cookie);
                    cookie = entry.cookie;
                    let child = self.files.iter().position(|file| file.id == entry.file);
                    let text = String::from_utf8(entry.name.to_vec()).expect("our names");
                    if text != "." && text != ".." {
                        let child = child.expect("a known file");
                        let had = (text.clone(), child);
                        let key = (file.id.0, cookie);
                        let first = self.cookies.entry(key).or_insert_with(|| had.clone());
                        assert_eq!(*first, had, "a cookie was used again");
                        listed.insert(text, child);
                    }
                }
                if end {
                    break;
                }
            }
            assert_eq!(listed, children);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: every operation answers what the model answers, and afterwards
    /// all directories hold what the model holds.
    #[test]
    fn names_behave_like_the_model(steps in prop::collection::vec(step(), 1..120), page in 1..7usize) {
        let mut pair = Pair::new();
        for (number, step) in steps.iter().enumerate() {
            pair.step(step);
            if number % 16 == 0 {
                pair.check_listings(page);
            }
        }
        pair.check_listings(page);

        let mut replayed = Directory::new(SiteId(0), 99);
        for mutation in &pair.tree.log {
            replayed.apply(mutation);
        }
        prop_assert_eq!(dump(&replayed), dump(&pair.tree.directory));
    }

    /// Goal: a scan that runs while changes go on, and a replay from where it
    /// began, give the live state (fuzzy checkpoint).
    #[test]
    fn a_scan_during_changes_is_repaired_by_replay(
        before in prop::collection::vec(step(), 1..80),
        during in prop::collection::vec((step(), 0..6usize), 1..80),
        piece_length in 1..40usize,
    ) {
        let mut pair = Pair::new();
        for step in &before {
            pair.step(step);
        }
        let start = pair.tree.log.len();
        let mut scan = Scan::default();
        let mut checkpoint = Vec::new();
        for (step, scanned) in &during {
            checkpoint.extend((0..*scanned).map_while(|_| pair.tree.directory.scan(&mut scan)));
            pair.step(step);
        }
        while let Some(mutation) = pair.tree.directory.scan(&mut scan) {
            checkpoint.push(mutation);
        }
        let mut restored = Directory::new(SiteId(0), 99);
        for mutations in checkpoint.chunks(piece_length) {
            let mut piece = PieceWriter::default();
            piece.put_sizes(&pair.tree.directory);
            mutations.iter().for_each(|mutation| piece.put(mutation));
            prop_assert_eq!(restored.load(&piece.finish()), Ok(()));
        }
        for mutation in &pair.tree.log[start..] {
            restored.apply(mutation);
        }
        prop_assert_eq!(dump(&restored), dump(&pair.tree.directory));
    }
}

/// Goal: a serial or a cookie is never given out twice, also after the newest
/// file is gone and the state was restored from a scan.
#[test]
fn numbers_are_never_used_again() {
    let mut tree = Tree::new();
    let mut seen = BTreeSet::new();
    let mut cookies = BTreeSet::new();
    for _ in 0..10 {
        let file = tree.run_for_file(&Caller::root(), create(ROOT, "x", 0o644));
        assert!(seen.insert(file.id));
        let Ok(Answer::Directory { entries, .. }) = tree.run(&Caller::root(), list(ROOT, 2, 10))
        else {
            panic!("not listed");
        };
        assert!(cookies.insert(entries[0].cookie));
        let removal: SiteOperation = remove(ROOT, "x");
        assert!(tree.run(&Caller::root(), removal).is_ok());
        let mut restored = Directory::new(SiteId(0), 99);
        let mut scan = Scan::default();
        while let Some(mutation) = tree.directory.scan(&mut scan) {
            restored.apply(&mutation);
        }
        tree.directory = restored;
    }
}
