//! Damage that no part of the program does by itself: the check of the volume finds it.

use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{Epoch, FileId, NodeId, ObjectClass, ObjectId, SiteId, Version};
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, Reply};
use crossdock_peer::{NodeAnswer, NodeRequest, Order, WriteContext};
use crossdock_types::Payload;

use super::stage::{LONG, SHAPE, Stage};

/// More than lies at a site.
const LARGE_BYTES: usize = 200 << 10;

/// Newer than all that was written.
const NEWEST: Version = Version::first_of(Epoch(1 << 20));

impl Stage {
    /// What a node answers who is asked past all ordering.
    fn ask_node(&mut self, node: NodeId, request: NodeRequest) -> NodeAnswer {
        let place = self.world.place_of_node(node.0).expect("it has a place");
        let nodes = self.world.service.state.nodes.iter();
        let number = nodes.filter(|record| record.id == node.0);
        let number = number.map(|record| record.number).next();
        let number = number.expect("it has a number");
        (self.world.ask_node(place, number, request)).expect("it runs");
        loop {
            if let Some(answer) = self.world.node_answer(place) {
                return answer.expect("it does so");
            }
            self.step(LONG);
        }
    }

    fn write_large(&mut self, name: &[u8]) {
        let file = self.create(name);
        let mut data = Payload::new();
        data.push(Bytes::from(vec![7; LARGE_BYTES]));
        let written = self.do_it(&Call::Write(call::Write {
            file: file.as_handle(),
            offset: 0,
            count_bytes: u32::try_from(LARGE_BYTES).expect("it is small"),
            stable: StableHow::FileSync,
            data,
        }));
        assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    }

    /// What the manager of the root finds, and how many files and objects it looked at.
    fn check(&mut self) -> (Vec<String>, u64, u64) {
        let manager = self.manager();
        self.world.begin_fsck(manager);
        loop {
            let checked = self.world.fsck_progress(manager).expect("it runs");
            if !checked.running {
                assert_eq!((&checked.error, checked.unsettled), (&None, 0));
                let findings = checked.findings.iter().map(ToString::to_string);
                return (findings.collect(), checked.seen.files, checked.seen.objects);
            }
            self.step(Duration::from_millis(10));
        }
    }

    /// The nodes that hold an object.
    fn members_of(&self, object: &ObjectId) -> Vec<NodeId> {
        let table = self.world.service.state.table();
        let set = table.members_of(object).expect("it has a set");
        set.members.clone()
    }
}

/// Goal: what is whole is found whole; an object that no file has, and objects of a file
/// that no node has any more, are found.
#[test]
fn objects_without_a_file_and_files_without_objects_are_found() {
    let mut stage = Stage::new(SHAPE, None);
    stage.write_large(b"large");
    let (findings, files, objects) = stage.check();
    assert_eq!((findings.len(), files), (0, 2), "{findings:?}");
    assert!(objects > 0);

    let stray = ObjectId::column(FileId::new(SiteId(0), 999), 1, 0, 0);
    for node in stage.members_of(&stray) {
        let create = NodeRequest::Create {
            object: stray,
            reservation_bytes: 0,
            attributes: Bytes::new(),
            context: WriteContext::default(),
            order: Order::Given(NEWEST),
        };
        stage.ask_node(node, create);
    }
    let (findings, ..) = stage.check();
    assert_eq!(findings.len(), SHAPE.replicas as usize, "{findings:?}");
    for finding in findings {
        assert!(finding.contains("belongs to no file"), "{finding}");
    }

    let nodes = stage.world.service.state.nodes.clone();
    for node in nodes.iter().map(|record| NodeId(record.id)) {
        let list = NodeRequest::List {
            class: ObjectClass::Column,
            placement: None,
            after: None,
            limit: 100,
        };
        let NodeAnswer::List { objects, .. } = stage.ask_node(node, list) else {
            panic!("no list");
        };
        for object in objects {
            let remove = NodeRequest::Remove {
                object,
                context: WriteContext::default(),
                order: Order::Given(NEWEST),
            };
            stage.ask_node(node, remove);
        }
    }
    let (findings, ..) = stage.check();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].contains("are on no node"), "{findings:?}");
}
