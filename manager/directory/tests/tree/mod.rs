//! A directory whose changes are all encoded, decoded, applied and kept.
#![allow(dead_code)]

use std::sync::Arc;

use bytes::Bytes;
use crossdock_directory::{Abroad, Answer, Directory, Mutation, Plan, QuotaPlan, Scan};
use crossdock_names::{FileId, FileRef, SiteId};
use crossdock_peer::{
    AttributeChanges, Attributes, Caller, CreateMode, QuotaChange, SiteError, SiteOperation,
};
use crossdock_types::WallTime;

pub(crate) const ROOT: FileRef = FileRef {
    id: FileId(1),
    generation: 1,
};

pub(crate) struct Tree {
    pub(crate) directory: Directory,
    pub(crate) wall: WallTime,
    /// Everything that was ever applied, as a log would have it.
    pub(crate) log: Vec<Mutation>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let mut tree = Self {
            directory: Directory::new(SiteId(0), 99),
            wall: WallTime::from_parts(1_000_000, 0),
            log: Vec::new(),
        };
        let root = tree.directory.make_root(&Caller::root(), 0o777, tree.wall);
        tree.apply(&root);
        tree
    }

    pub(crate) fn apply(&mut self, mutations: &[Mutation]) {
        for mutation in mutations {
            let mut bytes = Vec::new();
            mutation.encode(&mut bytes);
            let decoded = Mutation::decode(&mut bytes.as_slice()).expect("our own");
            assert_eq!(&decoded, mutation);
            self.directory.apply(&decoded);
            self.log.push(decoded);
        }
    }

    pub(crate) fn plan(
        &mut self,
        caller: &Caller,
        operation: &SiteOperation,
    ) -> Result<Plan, SiteError> {
        self.wall = WallTime(self.wall.0 + 1000);
        let plan = self
            .directory
            .plan(caller, operation, self.wall, &Abroad::default())?;
        self.apply(&plan.mutations);
        Ok(plan)
    }

    pub(crate) fn run(
        &mut self,
        caller: &Caller,
        operation: SiteOperation,
    ) -> Result<Answer, SiteError> {
        self.plan(caller, &operation).map(|plan| plan.answer)
    }

    pub(crate) fn run_for_file(&mut self, caller: &Caller, operation: SiteOperation) -> FileRef {
        match self.run(caller, operation) {
            Ok(Answer::Found(file)) => file,
            other => panic!("{other:?}"),
        }
    }

    /// Gives a directory a quota, as a site does.
    pub(crate) fn set_quota(&mut self, root: FileRef, bytes: Option<u64>, files: Option<u64>) {
        let change = QuotaChange {
            bytes: Some(bytes),
            files: Some(files),
        };
        match self.directory.plan_quota(root, &change).expect("a quota") {
            QuotaPlan::Limits(limits) => self.apply(&[limits]),
            QuotaPlan::New(mut new) => {
                self.apply(&[new.reserve()]);
                self.directory.hold_tree(&new);
                while let Some(cells) = new.next_cells(3) {
                    self.apply(&[cells]);
                }
                assert!(self.directory.holds_tree(&new));
                self.apply(&[new.put()]);
            }
        }
    }

    pub(crate) fn attributes(&self, file: FileRef) -> Attributes {
        let cell = self.directory.cell(file).expect("a living file");
        cell.attributes(SiteId(0))
    }
}

/// The whole state in an order of its own.
pub(crate) fn dump(directory: &Directory) -> Vec<Vec<u8>> {
    let mut scan = Scan::default();
    let mut all = Vec::new();
    while let Some(mutation) = directory.scan(&mut scan) {
        let mut bytes = Vec::new();
        mutation.encode(&mut bytes);
        all.push(bytes);
    }
    all.sort();
    all
}

pub(crate) fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn user(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller {
        uid,
        gid,
        groups: Arc::from(groups),
    }
}

pub(crate) fn mode(mode: u32) -> AttributeChanges {
    AttributeChanges {
        mode: Some(mode),
        ..AttributeChanges::default()
    }
}

pub(crate) fn create(directory: FileRef, text: &str, bits: u32) -> SiteOperation {
    SiteOperation::Create {
        directory,
        name: name(text),
        mode: CreateMode::Guarded(mode(bits)),
    }
}

pub(crate) fn make_directory(directory: FileRef, text: &str, bits: u32) -> SiteOperation {
    SiteOperation::MakeDirectory {
        directory,
        name: name(text),
        changes: mode(bits),
    }
}

pub(crate) fn remove(directory: FileRef, text: &str) -> SiteOperation {
    SiteOperation::Remove {
        directory,
        name: name(text),
    }
}

pub(crate) fn remove_directory(directory: FileRef, text: &str) -> SiteOperation {
    SiteOperation::RemoveDirectory {
        directory,
        name: name(text),
    }
}

pub(crate) fn rename(from: FileRef, old: &str, to: FileRef, new: &str) -> SiteOperation {
    SiteOperation::Rename {
        from_directory: from,
        from_name: name(old),
        to_directory: to,
        to_name: name(new),
    }
}

pub(crate) fn link(file: FileRef, directory: FileRef, text: &str) -> SiteOperation {
    SiteOperation::Link {
        file,
        directory,
        name: name(text),
    }
}

pub(crate) fn lookup(directory: FileRef, text: &str) -> SiteOperation {
    SiteOperation::Lookup {
        directory,
        name: name(text),
    }
}

pub(crate) fn parent(directory: FileRef, within: FileRef) -> SiteOperation {
    SiteOperation::LookupParent { directory, within }
}

pub(crate) fn set(file: FileRef, changes: AttributeChanges) -> SiteOperation {
    SiteOperation::SetAttributes {
        file,
        changes,
        guard: None,
    }
}

pub(crate) fn list(directory: FileRef, cookie: u64, entries_max: usize) -> SiteOperation {
    SiteOperation::ReadDirectory {
        directory,
        cookie,
        entries_max,
        name_bytes_max: 1 << 20,
        with_attributes: true,
    }
}
