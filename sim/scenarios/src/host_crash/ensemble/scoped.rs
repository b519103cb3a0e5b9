//! Gateways that are scoped to exports (docs/decisions/0028): what they serve, and what
//! managers answer to one that was taken over.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use crossdock_link::Frame;
use crossdock_members::Change;
use crossdock_names::{ExportId, FileRef, Proof, ProofKey, SiteId, VolumeId};
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{
    Call, CookieVerifier, HandleBuffer, Location, Name, Reply, SetAttributes, Status,
};
use crossdock_peer::{
    Call as SiteCall, ExportRules, LockClient, LockOperation, Port, SiteAnswer, SiteError,
    SiteOperation, SiteReply, SiteRequest,
};
use crossdock_types::Payload;

use super::stage::{CUT, LONG, SHAPE, Stage, WELL};
use super::world::FORGED;
use super::{PROVING, Shape};

pub(super) const SCOPED: Shape = Shape {
    is_scoped: true,
    ..SHAPE
};

pub(super) const SOON: Duration = Duration::from_secs(3);

/// Beyond the small part of a file, which the site has.
const OFFSET: u64 = 100_000;

impl Stage {
    fn volume(&self) -> VolumeId {
        self.world.service.state.volume_id()
    }

    fn file(&self, handle: &HandleBuffer) -> FileRef {
        let proof = Proof::of_handle(handle.as_handle().as_bytes(), self.volume());
        proof.expect("no forgery").expect("of format 2").file
    }

    fn proof(&self, export: u32, file: FileRef) -> Proof {
        let key = ProofKey {
            id: 1,
            key: PROVING,
        };
        Proof::new(&key, self.volume(), ExportId(export), file)
    }

    fn handle(&self, export: u32, file: FileRef) -> HandleBuffer {
        let handle = self.proof(export, file).to_handle(self.volume());
        HandleBuffer::new(&handle).expect("it fits")
    }

    fn make_directory(&mut self, name: &[u8]) -> HandleBuffer {
        let root = self.root;
        let made = self.do_it(&Call::Mkdir(call::Mkdir {
            location: Self::location(&root, name),
            attributes: SetAttributes::default(),
        }));
        let Reply::Mkdir(Ok(made)) = made else {
            panic!("{made:?}");
        };
        made.object.expect("a handle")
    }

    /// What the gateway that is scoped anew says to a name in a directory.
    fn look_up(&mut self, directory: &HandleBuffer, name: &[u8]) -> Result<HandleBuffer, Status> {
        let call = Call::Lookup(Self::location(directory, name));
        match self.ask(CUT, &call, SOON).expect("an answer") {
            Reply::Lookup(Ok(found)) => Ok(found.object),
            other => Err(other.status().expect("a failure")),
        }
    }

    /// `/in` is exported as number 2, and all that the first gateway reaches; `/out` is
    /// beside it. With a file in each.
    fn divide(&mut self) -> (FileRef, FileRef) {
        let [inner, outer] = [&b"in"[..], b"out"].map(|name| self.make_directory(name));
        let [inner, outer] = [inner, outer].map(|handle| self.file(&handle));
        let (path, rules) = ("/in".to_owned(), ExportRules::local());
        let root = inner.into();
        self.propose(Change::AddExport { path, root, rules });
        self.scope("gateway-0", Some(2));
        (inner, outer)
    }

    /// A gateway is scoped to an export, or let out of its scope.
    pub(super) fn scope(&mut self, name: &str, export: Option<u32>) {
        let name = name.to_owned();
        let exports = export.map(|export| BTreeSet::from([export]));
        self.propose(Change::ScopeGateway { name, exports });
    }

    /// What the manager of the root's site answers to a gateway that was taken over, which
    /// says anything.
    fn forge(&mut self, operation: SiteOperation, proofs: Vec<Proof>) -> (SiteReply, Vec<Proof>) {
        let call = SiteCall {
            id: FORGED,
            deadline: self.world.now + LONG,
            request: SiteRequest::as_root(operation),
        };
        let frame = Frame::SiteCall {
            from: Port::Router,
            to: SiteId(0),
            call: Box::new(call),
            proofs,
        };
        let manager = self.manager();
        self.world.forge(CUT, manager, frame);
        self.pass(SOON);
        self.world.forged.pop().expect("an answer")
    }

    fn refusal(&mut self, operation: SiteOperation, proofs: Vec<Proof>) -> Option<SiteError> {
        self.forge(operation, proofs).0.outcome.err()
    }
}

/// Goal: through a gateway that is scoped to an export all that lies in it is there, and
/// handles are good at its other gateways, and after the death of a manager.
#[test]
fn a_scoped_gateway_serves_its_export() {
    let mut stage = Stage::new(SCOPED, None);
    let file = stage.create(b"file");
    let directory = stage.make_directory(b"directory");
    for stable in [StableHow::Unstable, StableHow::FileSync] {
        let written = stage.do_it(&Call::Write(call::Write {
            file: file.as_handle(),
            offset: OFFSET,
            count_bytes: 5,
            stable,
            data: Payload::from(Bytes::from_static(b"hello")),
        }));
        assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    }
    let committed = stage.do_it(&Call::Commit(call::Commit {
        file: file.as_handle(),
        offset: 0,
        count_bytes: 0,
    }));
    assert!(matches!(committed, Reply::Commit(Ok(_))), "{committed:?}");
    let root = stage.root;
    let renamed = stage.do_it(&Call::Rename(call::Rename {
        source: Stage::location(&root, b"file"),
        target: Stage::location(&directory, b"inside"),
    }));
    assert!(matches!(renamed, Reply::Rename(Ok(_))), "{renamed:?}");
    let linked = stage.do_it(&Call::Link(call::Link {
        object: file.as_handle(),
        location: Stage::location(&root, b"again"),
    }));
    assert!(matches!(linked, Reply::Link(Ok(_))), "{linked:?}");
    let listed = stage.do_it(&Call::Readdirplus(call::Readdirplus {
        directory: directory.as_handle(),
        cookie: 0,
        verifier: CookieVerifier([0; 8]),
        directory_count_bytes: 4096,
        count_bytes: 8192,
    }));
    assert!(matches!(listed, Reply::Readdirplus(Ok(_))), "{listed:?}");

    let manager = stage.manager();
    stage.world.kill(manager, SOON);
    while stage.world.owner_of_root().is_none() {
        stage.step(SOON);
    }
    for via in [CUT, CUT + 1] {
        let read = Call::Read(call::Read {
            file: file.as_handle(),
            offset: OFFSET,
            count_bytes: 5,
        });
        let Some(Reply::Read(Ok(read))) = stage.ask(via, &read, LONG) else {
            panic!("{via} does not read");
        };
        assert_eq!(read.data.to_bytes(), b"hello"[..]);
    }
    assert_eq!(stage.look_up(&root, b"again"), Ok(file));
    assert_eq!(stage.look_up(&directory, b".."), Ok(root));
}

/// Goal: a gateway gives nothing for handles that no manager made, nor for those that
/// gateways without a scope make, nor for what lies outside of its exports.
#[test]
fn other_handles_are_refused_at_the_door() {
    let mut stage = Stage::new(SCOPED, None);
    let root = stage.root;
    // As the other gateway makes them once it is let out.
    stage.scope("gateway-1", None);
    let unscoped = stage.mount(WELL);
    assert_ne!(unscoped, root);
    let (inner, outer) = stage.divide();
    let top = stage.file(&root);
    assert_eq!(stage.look_up(&unscoped, b"in"), Err(Status::Stale));
    assert_eq!(stage.look_up(&root, b"in"), Err(Status::Stale));
    let inside = stage.handle(2, inner);
    assert_eq!(stage.look_up(&inside, b".."), Ok(inside));
    assert_eq!(stage.look_up(&inside, b"none"), Err(Status::NoEnt));
    for file in [top, outer] {
        let mut bytes = stage.handle(2, file).as_handle().as_bytes().to_vec();
        bytes[63] ^= 1;
        let forged = HandleBuffer::new(&bytes).expect("it fits");
        assert_eq!(stage.look_up(&forged, b"none"), Err(Status::BadHandle));
    }
    // Let out again, it takes both kinds.
    stage.scope("gateway-0", None);
    assert!(stage.look_up(&unscoped, b"in").is_ok());
    assert_eq!(stage.look_up(&root, b"in"), Ok(stage.handle(1, inner)));
}

/// Goal: whatever a scoped gateway says, a manager does nothing for it of which it does not
/// prove that it was reached from the root of one of its exports.
#[test]
fn managers_believe_proofs_only() {
    let mut stage = Stage::new(SCOPED, None);
    let (inner, outer) = stage.divide();
    let top = FileRef::root_of(SiteId(0));
    let attributes = |file| SiteOperation::GetAttributes { file };
    let prove = |proof| SiteOperation::Prove { proof };

    // The root of its export needs none; everything else does, of itself.
    assert_eq!(stage.refusal(attributes(inner), vec![]), None);
    for file in [top, outer] {
        let refused = Some(SiteError::NotProven);
        assert_eq!(stage.refusal(attributes(file), vec![]), refused);
        let others = stage.proof(2, inner);
        assert_eq!(stage.refusal(attributes(file), vec![others]), refused);
        let mut wrong = stage.proof(2, file);
        wrong.mac[0] ^= 1;
        assert_eq!(stage.refusal(attributes(file), vec![wrong]), refused);
        assert_eq!(stage.refusal(prove(wrong), vec![]), refused);
        // Right, and of an export out of its scope, or that there is not.
        let refused = Some(SiteError::Stale);
        for export in [1, 3] {
            let proof = stage.proof(export, file);
            assert_eq!(stage.refusal(attributes(file), vec![proof]), refused);
            assert_eq!(stage.refusal(prove(proof), vec![]), refused);
        }
        let right = stage.proof(2, file);
        assert_eq!(stage.refusal(attributes(file), vec![right]), None);
        assert_eq!(stage.refusal(prove(right), vec![]), None);
    }

    // Both directories of a rename; upwards only to the root of the export; no locks of
    // others' clients.
    let name = || Bytes::from_static(b"x");
    let rename = SiteOperation::Rename {
        from_directory: inner,
        from_name: name(),
        to_directory: outer,
        to_name: name(),
    };
    let refused = stage.refusal(rename, vec![]);
    assert_eq!(refused, Some(SiteError::NotProven));
    let upwards = SiteOperation::LookupParent {
        directory: inner,
        within: top,
    };
    let refused = Some(SiteError::AccessDenied);
    assert_eq!(stage.refusal(upwards, vec![]), refused);
    let (directory, root) = (inner, inner);
    let within = SiteOperation::Within { directory, root };
    assert_eq!(stage.refusal(within, vec![]), refused);
    let locks = |operation| SiteOperation::Locks {
        file: top,
        operation,
    };
    let refused = Some(SiteError::Refused);
    assert_eq!(stage.refusal(locks(LockOperation::List), vec![]), refused);
    let client = LockClient {
        name: name(),
        address: [127, 0, 0, 1].into(),
    };
    let told = stage.refusal(locks(LockOperation::Told(client)), vec![]);
    assert_eq!(told, None);
}

/// Goal: what a manager answers proves what the answer names, for the export through which
/// it was asked, and nothing that leads out of it.
#[test]
fn answers_prove_what_they_name() {
    let mut stage = Stage::new(SCOPED, None);
    let (inner, _) = stage.divide();
    let inside = stage.handle(2, inner);
    let location = Location {
        directory: inside.as_handle(),
        name: Name(b"below"),
    };
    let attributes = SetAttributes::default();
    let made = Call::Mkdir(call::Mkdir {
        location,
        attributes,
    });
    let made = stage.ask(CUT, &made, SOON);
    let Some(Reply::Mkdir(Ok(made))) = made else {
        panic!("{made:?}");
    };
    let below = stage.file(&made.object.expect("a handle"));
    let list = SiteOperation::ReadDirectory {
        directory: inner,
        cookie: 0,
        entries_max: 10,
        name_bytes_max: 1000,
        with_attributes: true,
    };
    let (reply, proofs) = stage.forge(list, vec![]);
    let Ok(SiteAnswer::Directory { entries, .. }) = reply.outcome else {
        panic!("{reply:?}");
    };
    let root = stage.proof(2, inner);
    assert_eq!(proofs, [root, stage.proof(2, below)]);
    let above = entries.iter().find(|entry| entry.name[..] == *b"..");
    let above = above.expect("it is there");
    assert_eq!((above.file, &above.attributes), (inner.id, &None));
}
