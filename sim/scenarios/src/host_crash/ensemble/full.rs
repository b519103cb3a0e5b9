//! A node becomes full under a file with a block map that is written on: its next blocks
//! have been placed there already.

use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{FileId, ObjectId, Version};
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Reply};
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, Order, WriteContext};
use crossdock_types::Payload;

use super::Shape;
use super::network::Place;
use super::stage::{self, Stage};

const SHAPE: Shape = Shape {
    has_maps: true,
    ..stage::SHAPE
};

/// As [`super::SMALL_BLOCKS`] says.
const BLOCK: u32 = 64 << 10;

/// The node that becomes full.
const FULL: Place = 2;

/// What takes its room, at a time.
const PIECES: [u64; 3] = [8 << 20, 1 << 20, 4 << 10];

/// Blocks that are written before and after that. A site places 64 ahead.
const BEFORE: u32 = 8;
const AFTER: u32 = 48;

impl Stage {
    fn write_block(&mut self, file: &HandleBuffer, block: u32) -> Reply {
        let byte = u8::try_from(block).expect("few");
        self.do_it(&Call::Write(call::Write {
            file: file.as_handle(),
            offset: u64::from(block) * u64::from(BLOCK),
            count_bytes: BLOCK,
            stable: StableHow::FileSync,
            data: Payload::from(Bytes::from(vec![byte; BLOCK as usize])),
        }))
    }

    fn try_node(&mut self, place: Place, request: NodeRequest) -> Result<NodeAnswer, NodeError> {
        let number = u32::try_from(place).expect("few");
        let asked = self.world.ask_node(place, number, request);
        asked.expect("it runs");
        loop {
            if let Some(answer) = self.world.node_answer(place) {
                return answer;
            }
            self.step(Duration::from_secs(1));
        }
    }

    /// Reserves all room of a node for objects that nobody uses.
    fn fill_node(&mut self, place: Place) {
        let mut pieces = PIECES.into_iter().peekable();
        let mut number = 0;
        while let Some(&reservation_bytes) = pieces.peek() {
            number += 1;
            let reserve = NodeRequest::Create {
                object: ObjectId::column(FileId(u64::MAX), number, 0, 0),
                reservation_bytes,
                attributes: Bytes::new(),
                context: WriteContext::default(),
                order: Order::Given(Version(1)),
            };
            match self.try_node(place, reserve) {
                Ok(_) => {}
                Err(NodeError::NoSpace) => drop(pieces.next()),
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

/// Goal: who writes a file on finds room as long as any node of it has some, though its next
/// blocks were placed at one that has become full; what was written before stays.
#[test]
fn a_file_is_written_on_when_a_node_becomes_full() {
    let mut stage = Stage::new(SHAPE, None);
    let file = stage.create(b"file");
    for block in 0..BEFORE + AFTER {
        if block == BEFORE {
            stage.fill_node(FULL);
            // All have heard of it.
            stage.pass(Duration::from_secs(3));
        }
        let written = stage.write_block(&file, block);
        assert!(
            matches!(written, Reply::Write(Ok(_))),
            "{block}: {written:?}"
        );
    }
    for block in 0..BEFORE + AFTER {
        let read = Call::Read(call::Read {
            file: file.as_handle(),
            offset: u64::from(block) * u64::from(BLOCK),
            count_bytes: BLOCK,
        });
        let Reply::Read(Ok(found)) = stage.do_it(&read) else {
            panic!("block {block} cannot be read");
        };
        let byte = u8::try_from(block).expect("few");
        assert_eq!(found.data.to_bytes(), vec![byte; BLOCK as usize]);
    }
}
