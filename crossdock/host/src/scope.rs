//! Gateways that are scoped to exports: what they have to prove of the files that they
//! name, and what managers prove of those that answers name (docs/decisions/0028).
//!
//! A site cannot tell where a file lies: files have no parents, and may have several
//! names. So the proof is that somebody has reached the file from an export's root, and
//! the roots are the only files that need none.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_http::HttpInput;
use crossdock_names::{ExportId, FileRef, HostId, Proof};
use crossdock_nfs::NfsInput;
use crossdock_peer::{
    CallId, DirectoryEntry, LockOperation, SiteAnswer, SiteError, SiteOperation, SiteReply,
    SiteRequest,
};

use crate::host::Host;
use crate::message::Message;

/// What a manager knows of scopes.
#[derive(Default)]
pub(crate) struct Scopes {
    /// The exports of each gateway that is scoped, as of the table.
    of_gateways: BTreeMap<HostId, BTreeSet<ExportId>>,
    /// Calls of others that have shown proofs, by their numbers here.
    shown: BTreeMap<CallId, Shown>,
}

/// What a call has proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Under which exports: what it names was reached from the root of each.
    exports: Vec<ExportId>,
    /// The file that it is about.
    subject: FileRef,
    /// Whether that is a root of which nothing was shown.
    is_bare_root: bool,
    /// Whether whoever asked has to prove things: else it may see what lies above.
    is_scoped: bool,
    /// Whether it asks for a list with attributes: whoever has these has the handles.
    is_full_list: bool,
}

/// A call names two files at most, and gateways know each through eight exports at most.
const PROOFS_PER_CALL_MAX: usize = 16;

/// Of what a longer list names clients ask one by one.
const PROOFS_PER_ANSWER_MAX: usize = 8192;

/// What becomes of a call.
pub(crate) enum Judged {
    /// It is a site's to answer, and what it has proved, if it had to or wanted to.
    Passed(Option<Shown>),
    /// This is the answer.
    Answered(Result<SiteAnswer, SiteError>),
}

impl Scopes {
    /// A call that has shown something is on its way to its site.
    pub(crate) fn begin(&mut self, id: CallId, shown: Shown) {
        self.shown.insert(id, shown);
    }

    /// It has its answer, or nobody waits for that any more.
    pub(crate) fn end(&mut self, id: CallId) -> Option<Shown> {
        self.shown.remove(&id)
    }
}

impl Host {
    /// To which exports this gateway is scoped, if it is.
    pub(crate) fn own_scope(&self) -> Option<&BTreeSet<u32>> {
        let own = self.role.is_gateway.then_some(&self.role.name)?;
        self.registry.state().scope(own)
    }

    /// Tells the door what may be mounted: under a scope what lies in it, by proofs.
    pub(crate) fn tell_exports(&mut self) {
        let mut exports = crate::exports::exports(self.registry.state());
        let scope = self.own_scope();
        exports.retain(|export| scope.is_none_or(|scope| scope.contains(&export.id.0)));
        let scoped = NfsInput::Scoped(scope.is_some());
        for input in [scoped, NfsInput::Exports(exports)] {
            self.queue.push_back(Message::Door(input));
        }
        let is_scoped = self.own_scope().is_some();
        let scoped = Message::Http(HttpInput::Scoped(is_scoped));
        self.queue.push_back(scoped);
        self.tell_gate();
    }

    /// The table or the connections have changed: which gateways are scoped, and who has
    /// the keys.
    pub(crate) fn follow_scopes(&mut self) {
        if !self.role.is_manager {
            return;
        }
        let state = self.registry.state();
        let gateways = state.hosts.iter().filter(|(_, record)| record.is_gateway);
        let scoped = gateways.filter_map(|(&host, record)| {
            let exports = state.scope(&record.name)?.iter();
            Some((HostId(host), exports.map(|&id| ExportId(id)).collect()))
        });
        self.scopes.of_gateways = scoped.collect();
        self.want_keys();
        self.tell_keys();
    }

    /// Whether any name of a gateway is scoped, of one that runs or of one to come.
    pub(crate) fn has_scopes(&self) -> bool {
        let mut gateways = self.registry.state().gateways.values();
        gateways.any(|known| known.scope.is_some())
    }

    /// What a router has to show with a request to another host.
    pub(crate) fn proofs_for(&mut self, operation: &SiteOperation) -> Vec<Proof> {
        if !self.door.has_proofs() {
            return Vec::new();
        }
        let spread = self.table.spread;
        let files = [Some(operation.subject()), operation.second()];
        let files = files.into_iter().flatten();
        files
            .flat_map(|file| self.door.proofs_of(spread.whole(*file)).to_vec())
            .collect()
    }

    /// What becomes of a call of the router of `peer`.
    pub(crate) fn judge_scope(
        &self,
        peer: HostId,
        request: &SiteRequest,
        proofs: &[Proof],
    ) -> Judged {
        let scope = self.scopes.of_gateways.get(&peer);
        let operation = &request.operation;
        if let SiteOperation::Prove { proof } = operation {
            return Judged::Answered(self.confirm(scope, proof));
        }
        if scope.is_none() && proofs.is_empty() {
            return Judged::Passed(None);
        }
        match self.check_proofs(scope, operation, proofs) {
            Ok(shown) => Judged::Passed(shown),
            // It may all the same, without proofs of what it gets.
            Err(_) if scope.is_none() => Judged::Passed(None),
            Err(error) => Judged::Answered(Err(error)),
        }
    }

    /// Whether a handle that a client has shown to a gateway is true.
    fn confirm(
        &self,
        scope: Option<&BTreeSet<ExportId>>,
        proof: &Proof,
    ) -> Result<SiteAnswer, SiteError> {
        self.verify(proof)?;
        match self.is_open(scope, proof.export) {
            true => Ok(SiteAnswer::Done),
            false => Err(SiteError::Stale),
        }
    }

    /// Whether a proof is right.
    fn verify(&self, proof: &Proof) -> Result<(), SiteError> {
        let Some(key) = &self.keys.proofs else {
            return Err(match self.has_scopes() {
                true => SiteError::Busy, // It has not been told yet.
                false => SiteError::NotProven,
            });
        };
        let is_right = proof.verify(key, self.registry.state().volume_id());
        is_right.then_some(()).ok_or(SiteError::NotProven)
    }

    /// Whether there is such an export, within a gateway's scope if it has one.
    fn is_open(&self, scope: Option<&BTreeSet<ExportId>>, export: ExportId) -> bool {
        let mut exports = self.exports().iter();
        exports.any(|record| record.id == export.0)
            && scope.is_none_or(|scope| scope.contains(&export))
    }

    /// What a call has proved; nothing has to be of what is not about files.
    fn check_proofs(
        &self,
        scope: Option<&BTreeSet<ExportId>>,
        operation: &SiteOperation,
        proofs: &[Proof],
    ) -> Result<Option<Shown>, SiteError> {
        match operation {
            SiteOperation::Locks { operation, .. } if is_of_clients(operation) => return Ok(None),
            SiteOperation::Locks { operation, .. } if operation.is_about_clients() => {
                return Err(SiteError::Refused);
            }
            // The rest of a way up that has left the site, which the gateway says: it may
            // have begun anywhere.
            SiteOperation::Within { .. } => return Err(SiteError::AccessDenied),
            _ => {}
        }
        if proofs.len() > PROOFS_PER_CALL_MAX {
            return Err(SiteError::Invalid);
        }
        let whole = |file: &FileRef| self.table.spread.whole(*file);
        let subject = whole(operation.subject());
        let (mut exports, is_bare_root) = self.exports_of(scope, subject, proofs)?;
        if let Some(second) = operation.second() {
            let (others, _) = self.exports_of(scope, whole(second), proofs)?;
            exports.retain(|export| others.contains(export));
            if exports.is_empty() {
                return Err(SiteError::CrossDevice);
            }
        }
        if let SiteOperation::LookupParent { within, .. } = operation {
            exports.retain(|export| self.root_of(*export) == Some(*within));
            if exports.is_empty() {
                return Err(SiteError::AccessDenied);
            }
        }
        Ok(Some(Shown {
            exports,
            subject,
            is_bare_root,
            is_scoped: scope.is_some(),
            is_full_list: matches!(
                operation,
                SiteOperation::ReadDirectory {
                    with_attributes: true,
                    ..
                }
            ),
        }))
    }

    /// From the roots of which exports a file was reached, and whether it is such a root
    /// and nothing was shown of that.
    fn exports_of(
        &self,
        scope: Option<&BTreeSet<ExportId>>,
        file: FileRef,
        proofs: &[Proof],
    ) -> Result<(Vec<ExportId>, bool), SiteError> {
        let mut exports = Vec::new();
        let mut error = SiteError::NotProven;
        for proof in proofs.iter().filter(|proof| proof.file == file) {
            match self.confirm(scope, proof) {
                Ok(_) => exports.push(proof.export),
                // It is known by now, and a wrong one says nothing about a right one.
                Err(SiteError::NotProven) => {}
                Err(other) => error = other,
            }
        }
        let records = self.exports().iter();
        let roots = records.filter(|record| FileRef::from(record.root) == file);
        let roots = roots.map(|record| ExportId(record.id));
        let open = roots.filter(|&export| self.is_open(scope, export));
        let more: Vec<ExportId> = open.filter(|export| !exports.contains(export)).collect();
        match (more.is_empty(), exports.is_empty()) {
            (true, true) => Err(error),
            (true, false) => Ok((exports, false)),
            // What is made of proofs is made with the key.
            (false, _) if self.keys.proofs.is_none() => Err(SiteError::Busy),
            (false, _) => {
                exports.extend(more);
                Ok((exports, true))
            }
        }
    }

    fn root_of(&self, export: ExportId) -> Option<FileRef> {
        let mut exports = self.exports().iter();
        let record = exports.find(|record| record.id == export.0)?;
        Some(record.root.into())
    }

    /// Proves what an answer names that leaves for a router which has shown as much, and
    /// takes out what would lead out of the exports.
    pub(crate) fn prove_answer(&self, shown: &Shown, reply: &mut SiteReply) -> Vec<Proof> {
        let root = Some(shown.subject).filter(|_| shown.is_bare_root);
        let mut files: Vec<FileRef> = root.into_iter().collect();
        match &mut reply.outcome {
            Ok(SiteAnswer::Found { attributes, .. }) => files.push(attributes.file),
            Ok(SiteAnswer::Elsewhere(file)) => files.push(*file),
            Ok(SiteAnswer::Directory { entries, .. }) => {
                if shown.is_scoped {
                    self.hide_above(shown, entries);
                }
                let entries = entries.iter().filter(|_| shown.is_full_list);
                files.extend(entries.filter_map(reached_by));
            }
            // Whether the parent lies within an export another site would have to say,
            // which the gateway would tell.
            outcome @ Ok(SiteAnswer::Above { .. }) if shown.is_scoped => {
                *outcome = Err(SiteError::AccessDenied);
            }
            _ => {}
        }
        let Some(key) = &self.keys.proofs else {
            return Vec::new();
        };
        let volume = self.registry.state().volume_id();
        let spread = self.table.spread;
        let each = files.into_iter().flat_map(|file| {
            let exports = shown.exports.iter();
            exports.map(move |&export| (export, spread.whole(file)))
        });
        each.take(PROOFS_PER_ANSWER_MAX)
            .map(|(export, file)| Proof::new(key, volume, export, file))
            .collect()
    }

    /// What lies above an export is nobody's business, and of what else lies above the
    /// directory it is not known where it is by now.
    fn hide_above(&self, shown: &Shown, entries: &mut [DirectoryEntry]) {
        let mut roots = shown.exports.iter().map(|&export| self.root_of(export));
        let is_root = roots.all(|root| root == Some(shown.subject));
        for entry in entries.iter_mut().filter(|entry| entry.name[..] == *b"..") {
            entry.attributes = None;
            if is_root {
                entry.file = shown.subject.id;
            }
        }
    }
}

/// What an entry of a directory proves to have been reached. The dots lead nowhere that
/// whoever asked has not proved.
fn reached_by(entry: &DirectoryEntry) -> Option<FileRef> {
    let is_dots = matches!(&entry.name[..], b"." | b"..");
    let known = entry.attributes.as_ref().map(|known| known.file);
    let file = known.unwrap_or(FileRef {
        id: entry.file,
        generation: 1, // Numbers are never given twice.
    });
    (!is_dots).then_some(file)
}

/// What a gateway may say of clients, whatever they have where: that one has restarted,
/// or has heard something. It costs these their locks if it is not true.
const fn is_of_clients(operation: &LockOperation) -> bool {
    matches!(
        operation,
        LockOperation::Forget(..) | LockOperation::Told(_) | LockOperation::GrantAnswered(..)
    )
}
