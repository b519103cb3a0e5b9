//! What is asked of sites and nodes to mend what was found.

use std::collections::VecDeque;

use bytes::Bytes;
use crossdock_names::{FileRef, NodeId, RoutingTable, Spread};
use crossdock_peer::{
    AttributeChanges, NodeRequest, Order, Repair, SiteOperation, WriteContext, WriterId,
};

use super::finding::{Finding, NamedFinding};

/// Where files without a name get one.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// The mode of that directory: what is in it was not to be seen by everybody.
const LOST_AND_FOUND_MODE: u32 = 0o700;

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
    spread: Spread,
    writer: WriterId,
}

impl Mend {
    pub(super) fn new(
        findings: impl Iterator<Item = NamedFinding>,
        spread: Spread,
        writer: WriterId,
    ) -> Self {
        Self {
            left: findings.collect(),
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
        let site = |file: FileRef, repair| Step::Site(SiteOperation::Repair { file, repair });
        let mut steps = VecDeque::new();
        match *finding {
            Finding::Dangling {
                directory,
                cookie,
                child,
            } => steps.push_back(site(directory, Repair::RemoveName { cookie, child })),
            Finding::Orphan {
                file,
                changed,
                is_directory,
            } => {
                let Some(directory) = self.lost_and_found else {
                    return steps;
                };
                let name = Bytes::from(format!("#{}", file.id.0));
                let part = self.spread.part_for(directory, &name);
                let (child, parent) = (file, directory);
                steps.push_back(site(
                    part,
                    Repair::AddName {
                        name,
                        child,
                        is_directory,
                    },
                ));
                // It had no name, so nobody else has changed it.
                let repair = match is_directory {
                    true => Repair::SetParent { changed, parent },
                    false => Repair::SetLinks { changed, links: 1 },
                };
                steps.push_back(site(file, repair));
            }
            Finding::Links {
                file,
                changed,
                names: links,
                ..
            } => steps.push_back(site(file, Repair::SetLinks { changed, links })),
            Finding::Parent {
                directory,
                changed,
                named_in: parent,
                ..
            } => steps.push_back(site(directory, Repair::SetParent { changed, parent })),
            Finding::Missing { file, .. } => steps.push_back(site(file, Repair::MakeObjects)),
            Finding::Leaked { object, .. } => {
                let set = table.members_of(&object);
                if let Some(&primary) = set.and_then(|set| set.members.first()) {
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
                    steps.push_back(Step::Node(primary, remove));
                }
            }
            Finding::Nowhere { .. }
            | Finding::PartAlone { .. }
            | Finding::PartMissing { .. }
            | Finding::SeveralNames { .. } => {}
        }
        steps
    }
}
