//! What is asked of sites and nodes to mend what was found.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use crossdock_names::{FileId, FileRef, NodeId, ObjectId, RoutingTable, Spread};
use crossdock_peer::{
    AttributeChanges, NodeRequest, Order, Repair, Rights, SiteOperation, WriteContext, WriterId,
};
use crossdock_types::WallTime;

use super::finding::{Finding, NamedFinding};

/// Where files without a name get one.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// The mode of that directory: what is in it was not to be seen by everybody.
const LOST_AND_FOUND_MODE: u32 = 0o700;

/// Of a directory of which only names are left: nobody knows whose it was.
const UNKNOWN_RIGHTS: Rights = Rights {
    uid: 0,
    gid: 0,
    mode: LOST_AND_FOUND_MODE,
};

/// A directory that is not there any more, by its number: numbers are given out once.
const fn directory_of(id: FileId) -> FileRef {
    FileRef { id, generation: 1 }
}

/// One thing to ask.
pub(super) enum Step {
    Site(SiteOperation),
    Node(NodeId, NodeRequest),
}

/// The findings that are still to be mended.
pub(super) struct Mend {
    /// What is left, and what is being done about the first one.
    left: VecDeque<NamedFinding>,
    steps: VecDeque<Step>,
    lost_and_found: Option<FileRef>,
    /// Directories that are made anew, as there are names in them, and with which rights.
    made_anew: BTreeMap<FileId, Rights>,
    spread: Spread,
    writer: WriterId,
}

impl Mend {
    pub(super) fn new(
        findings: impl Iterator<Item = NamedFinding>,
        spread: Spread,
        writer: WriterId,
    ) -> Self {
        let left: VecDeque<NamedFinding> = findings.collect();
        Self {
            made_anew: made_anew(left.iter(), spread),
            left,
            steps: VecDeque::new(),
            lost_and_found: None,
            spread,
            writer,
        }
    }

    /// What is to be asked first, or again; nothing at the end.
    pub(super) fn step(&mut self, root: FileRef, table: &RoutingTable) -> Option<&Step> {
        while self.steps.is_empty() {
            let finding = self.left.front()?.finding;
            if matches!(finding, Finding::Orphan { .. }) && self.lost_and_found.is_none() {
                self.steps.push_back(Step::Site(SiteOperation::Lookup {
                    directory: root,
                    name: Bytes::from_static(LOST_AND_FOUND),
                }));
                break;
            }
            self.steps = self.steps_for(&finding, table);
            if self.steps.is_empty() {
                self.left.pop_front(); // Nobody knows how.
            }
        }
        self.steps.front()
    }

    /// It is done: the finding that is mended with it, if that was the last step.
    pub(super) fn done(&mut self) -> Option<NamedFinding> {
        self.steps.pop_front();
        match self.steps.is_empty() {
            true => self.left.pop_front(),
            false => None,
        }
    }

    /// It cannot be done; whatever else the finding needs is not, either.
    pub(super) fn give_up(&mut self) {
        self.steps.clear();
        self.left.pop_front();
    }

    /// Steps may have been done or not, which does no harm when they are done again; the
    /// table may have changed.
    pub(super) fn begin_again(&mut self) {
        self.steps.clear();
    }

    /// Where files get names is there.
    pub(super) fn found_directory(&mut self, directory: FileRef) {
        self.lost_and_found = Some(directory);
        self.steps.clear();
    }

    /// It is not, and has to be made.
    pub(super) fn make_directory(&mut self, root: FileRef) {
        self.steps = VecDeque::from([Step::Site(SiteOperation::MakeDirectory {
            directory: root,
            name: Bytes::from_static(LOST_AND_FOUND),
            changes: AttributeChanges {
                mode: Some(LOST_AND_FOUND_MODE),
                ..AttributeChanges::default()
            },
        })]);
    }

    /// Whether the directory is being looked for or made.
    pub(super) fn prepares(&self) -> bool {
        matches!(
            self.steps.front(),
            Some(Step::Site(
                SiteOperation::Lookup { .. } | SiteOperation::MakeDirectory { .. }
            ))
        )
    }

    fn steps_for(&self, finding: &Finding, table: &RoutingTable) -> VecDeque<Step> {
        match *finding {
            // It leads to something in a moment.
            Finding::Dangling { child, .. } if self.made_anew.contains_key(&child.id) => {
                VecDeque::new()
            }
            Finding::Dangling {
                directory,
                cookie,
                child,
            } => one(directory, Repair::RemoveName { cookie, child }),
            Finding::Orphan {
                file,
                changed,
                is_directory,
            } => self.steps_for_orphan(file, changed, is_directory),
            Finding::Links {
                file,
                changed,
                names: links,
                ..
            } => one(file, Repair::SetLinks { changed, links }),
            Finding::Parent {
                directory,
                changed,
                named_in: parent,
                ..
            } => one(directory, Repair::SetParent { changed, parent }),
            Finding::Missing { file, .. } => one(file, Repair::MakeObjects),
            Finding::Leaked { object, .. } => self.remove_object(object, table),
            Finding::Nowhere { directory } => self.make_anew(directory),
            Finding::PartAlone {
                part,
                has_names: true,
                ..
            } => self.make_anew(part.id),
            Finding::PartAlone { part, changed, .. } => one(part, Repair::RemovePart { changed }),
            Finding::PartMissing {
                directory,
                site,
                rights,
                ..
            } => {
                let mut parts = self.spread.parts_of(directory);
                let part = parts.find(|part| part.id.site() == site);
                let make = Repair::MakeDirectory { rights };
                part.map_or_else(VecDeque::new, |part| one(part, make))
            }
            Finding::PartDiffers {
                part,
                changed,
                rights,
                ..
            } => one(part, Repair::SetRights { changed, rights }),
            Finding::SeveralNames { .. } => VecDeque::new(),
        }
    }

    fn steps_for_orphan(
        &self,
        file: FileRef,
        changed: WallTime,
        is_directory: bool,
    ) -> VecDeque<Step> {
        let Some(directory) = self.lost_and_found else {
            return VecDeque::new();
        };
        let name = Bytes::from(format!("#{}", file.id.0));
        let part = self.spread.part_for(directory, &name);
        let (child, parent) = (file, directory);
        let add = Repair::AddName {
            name,
            child,
            is_directory,
        };
        // It had no name, so nobody else has changed it.
        let repair = match is_directory {
            true => Repair::SetParent { changed, parent },
            false => Repair::SetLinks { changed, links: 1 },
        };
        VecDeque::from([ask(part, add), ask(file, repair)])
    }

    /// A directory that is not there has names.
    fn make_anew(&self, directory: FileId) -> VecDeque<Step> {
        let whole = self.spread.whole(directory_of(directory));
        let rights = self.made_anew.get(&whole.id).copied();
        let rights = rights.unwrap_or(UNKNOWN_RIGHTS);
        one(whole, Repair::MakeDirectory { rights })
    }

    fn remove_object(&self, object: ObjectId, table: &RoutingTable) -> VecDeque<Step> {
        let set = table.members_of(&object);
        let Some(&primary) = set.and_then(|set| set.members.first()) else {
            return VecDeque::new();
        };
        let context = WriteContext {
            table_epoch: table.epoch,
            writer: self.writer,
            ..WriteContext::default()
        };
        let remove = NodeRequest::Remove {
            object,
            context,
            order: Order::Primary,
        };
        VecDeque::from([Step::Node(primary, remove)])
    }
}

const fn ask(file: FileRef, repair: Repair) -> Step {
    Step::Site(SiteOperation::Repair { file, repair })
}

fn one(file: FileRef, repair: Repair) -> VecDeque<Step> {
    VecDeque::from([ask(file, repair)])
}

/// Directories that are not there while names in them are, and the rights that they get.
fn made_anew<'a>(
    findings: impl Iterator<Item = &'a NamedFinding>,
    spread: Spread,
) -> BTreeMap<FileId, Rights> {
    let mut made_anew = BTreeMap::new();
    let whole = |id| spread.whole(directory_of(id)).id;
    for found in findings {
        match found.finding {
            Finding::Nowhere { directory } => {
                let rights = made_anew.entry(whole(directory));
                rights.or_insert(UNKNOWN_RIGHTS);
            }
            Finding::PartAlone {
                part,
                rights,
                has_names: true,
                ..
            } => {
                made_anew.insert(whole(part.id), rights);
            }
            _ => {}
        }
    }
    made_anew
}
