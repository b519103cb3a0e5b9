//! Read capabilities of the volume's bytes (docs/decisions/0046).

#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

mod rig;

use crossdock_depot::DepotPolicy;
use crossdock_ibp::{ErrorCode, answer};
use crossdock_names::{FileId, ObjectId, Version};
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, Order, Stability, WriteContext};
use crossdock_sim::random::Random;
use rig::Rig;

const COLUMN: ObjectId = ObjectId::column(FileId(9), 1, 0, 0);

fn context(rig: &Rig, generation: u64) -> WriteContext {
    WriteContext {
        table_epoch: rig.epoch(),
        truncate_generation: generation,
        ..WriteContext::default()
    }
}

/// A column of the volume.
struct Column {
    rig: Rig,
    generation: u64,
    bytes: Vec<u8>,
}

impl Column {
    fn new(seed: u64) -> Self {
        let mut rig = Rig::new(seed, DepotPolicy::default());
        let context = context(&rig, 0);
        let made = rig.route(NodeRequest::Create {
            object: COLUMN,
            reservation_bytes: 0,
            attributes: bytes::Bytes::new(),
            context,
            order: Order::Primary,
        });
        made.expect("a column");
        Self {
            rig,
            generation: 0,
            bytes: Vec::new(),
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = self.bytes.len().max(offset + bytes.len());
        self.bytes.resize(end, 0);
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        let context = context(&self.rig, self.generation);
        let written = self.rig.route(NodeRequest::Write {
            object: COLUMN,
            offset_bytes: offset as u64,
            payload: bytes::Bytes::copy_from_slice(bytes).into(),
            stability: Stability::Stable,
            context,
            order: Order::Primary,
        });
        written.expect("written");
    }

    fn truncate(&mut self, size: usize) {
        self.generation += 1;
        self.bytes.resize(size, 0);
        let context = context(&self.rig, self.generation);
        let cut = self.rig.route(NodeRequest::Truncate {
            object: COLUMN,
            size_bytes: size as u64,
            context,
            order: Order::Primary,
        });
        cut.expect("cut");
    }

    fn version(&mut self) -> Version {
        match self.rig.route(NodeRequest::Stat { object: COLUMN }) {
            Ok(NodeAnswer::Stat(stat)) => stat.version,
            other => panic!("{other:?}"),
        }
    }

    fn share(&mut self, offset: usize, length: usize) -> Result<String, NodeError> {
        let version = self.version();
        self.share_as(offset, length, version, 60)
    }

    /// Key and attribute key, as two fields.
    fn share_as(
        &mut self,
        offset: usize,
        length: usize,
        version: Version,
        seconds: u32,
    ) -> Result<String, NodeError> {
        let request = NodeRequest::Share {
            object: COLUMN,
            offset_bytes: offset as u64,
            length_bytes: length as u64,
            version,
            seconds,
        };
        match self.rig.route(request)? {
            NodeAnswer::Shared { key, attribute_key } => Ok(format!("{key} {attribute_key}")),
            other => panic!("{other:?}"),
        }
    }

    /// The bytes that a load gives; or what it is told instead, or nothing if it breaks off.
    fn load(&mut self, keys: &str, offset: usize, length: usize) -> Result<Vec<u8>, String> {
        let id = self.rig.connect();
        self.rig
            .say(id, format!("0 8 {keys} {offset} {length} 1\n"));
        let (mut heard, head) = (Vec::new(), answer::follows(length as u64));
        for _ in 0..4 {
            self.rig.settle();
            heard.extend(self.rig.hear(id));
            if heard.len() >= head.len() + length || self.rig.ended.contains(&id) {
                break;
            }
            self.rig.wait(1);
        }
        let is_whole = heard.len() == head.len() + length;
        match heard.strip_prefix(head.as_bytes()) {
            Some(bytes) if is_whole => Ok(bytes.to_vec()),
            _ => Err(String::from_utf8_lossy(&heard).into_owned()),
        }
    }
}

fn refused(code: ErrorCode) -> Result<Vec<u8>, String> {
    Err(answer::refused(code))
}

/// Goal: what was shared is loaded like a byte array, in any part of it and no further; it can be
/// probed, and neither stored to nor managed. Another attribute key, or another time, is refused.
#[test]
fn shared_bytes_are_read_and_nothing_else() {
    let mut column = Column::new(1);
    let content: Vec<u8> = (0..100_000_u32).map(|it| (it / 7) as u8).collect();
    column.write(0, &content);
    let keys = column.share(5000, 90_000).expect("shared");
    assert_eq!(
        column.load(&keys, 0, 90_000).expect("all"),
        &content[5000..95_000]
    );
    assert_eq!(
        column.load(&keys, 4097, 10).expect("a part"),
        &content[9097..9107]
    );
    assert_eq!(
        column.load(&keys, 90_000, 1),
        refused(ErrorCode::INVALID_PARAMETER)
    );
    let probed = column.rig.ask(format!("0 9 {keys} 40 0 0\n"));
    assert_eq!(probed, "1 1 0 90000 90000 60 2 1 \n");
    let (key, attribute) = keys.split_once(' ').expect("two");
    let increment = column.rig.ask(format!("0 9 {keys} 41 1 0\n"));
    assert_eq!(increment, answer::refused(ErrorCode::INVALID_MANAGE_CAP));
    let store = column.rig.ask(format!("0 2 {keys} 5 0\n"));
    assert_eq!(store, answer::refused(ErrorCode::CAP_NOT_FOUND));
    let other = if attribute == "1" { "2" } else { "1" };
    assert_eq!(
        column.load(&format!("{key} {other}"), 0, 10),
        refused(ErrorCode::INVALID_READ_CAP)
    );
    column.rig.wait(61);
    assert_eq!(column.load(&keys, 0, 10), refused(ErrorCode::CAP_NOT_FOUND));
}

/// Goal: what is overwritten is refused, and only that; so is what was cut off, also when the file
/// is as long again; and all of it when the file is gone. A restart of the node changes nothing.
#[test]
fn what_is_changed_is_refused() {
    let mut column = Column::new(2);
    column.write(0, &[1; 64 << 10]);
    let keys = column.share(0, 64 << 10).expect("shared");
    column.write(8192, &[2; 4096]);
    assert_eq!(
        column.load(&keys, 8192, 1),
        refused(ErrorCode::CAP_NOT_FOUND)
    );
    assert_eq!(
        column.load(&keys, 0, 64 << 10),
        refused(ErrorCode::CAP_NOT_FOUND)
    );
    assert_eq!(column.load(&keys, 0, 8192), Ok(vec![1; 8192]));
    assert_eq!(column.load(&keys, 12_288, 4096), Ok(vec![1; 4096]));

    let mut random = Random::new(3);
    column.rig = column.rig.crash(&mut random, 5);
    assert_eq!(column.load(&keys, 12_288, 4096), Ok(vec![1; 4096]));
    assert_eq!(
        column.load(&keys, 8192, 1),
        refused(ErrorCode::CAP_NOT_FOUND)
    );

    column.truncate(20_000);
    assert_eq!(
        column.load(&keys, 20_480, 4096),
        refused(ErrorCode::CAP_NOT_FOUND)
    );
    column.truncate(64 << 10);
    assert_eq!(
        column.load(&keys, 20_480, 4096),
        refused(ErrorCode::CAP_NOT_FOUND)
    );
    assert_eq!(column.load(&keys, 0, 4096), Ok(vec![1; 4096]));
    let context = context(&column.rig, column.generation);
    let removed = column.rig.route(NodeRequest::Remove {
        object: COLUMN,
        context,
        order: Order::Primary,
    });
    removed.expect("removed");
    assert_eq!(
        column.load(&keys, 0, 4096),
        refused(ErrorCode::CAP_NOT_FOUND)
    );
}

/// Goal: a depot gives no capability of what its node does not have: of a change that has not come,
/// of bytes that are not there, for longer than it grants.
#[test]
fn what_is_not_there_is_not_shared() {
    let mut column = Column::new(4);
    column.write(0, &[7; 1000]);
    let newer = column.version().next();
    assert_eq!(
        column.share_as(0, 10, newer, 60),
        Err(NodeError::VersionGone)
    );
    assert_eq!(column.share(990, 11), Err(NodeError::VersionGone));
    assert!(column.share(990, 10).is_ok());
    let version = column.version();
    for seconds in [0, 30 * 24 * 3600 + 1] {
        let refused = column.share_as(0, 10, version, seconds);
        assert!(matches!(refused, Err(NodeError::Invalid(_))), "{refused:?}");
    }
}

/// Goal: whatever is written and cut meanwhile, a load gives the bytes as they were when they were
/// shared, or none.
#[test]
fn loads_give_the_shared_state_or_nothing() {
    const SIZE: usize = 200_000;
    let (mut given, mut withheld) = (0, 0);
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut column = Column::new(seed);
        let mut shares: Vec<(String, Vec<u8>)> = Vec::new();
        for _ in 0..40 {
            let here = column.bytes.len();
            match random.below(8) {
                0 => {
                    let size = random.below(SIZE as u64) as usize;
                    column.truncate(size);
                }
                1..4 => {
                    let offset = random.below(SIZE as u64) as usize;
                    let most = if random.coin() { 100 } else { 30_000 };
                    let length = 1 + random.below(most) as usize;
                    let byte = random.below(256) as u8;
                    column.write(offset, &vec![byte; length]);
                }
                4 if here > 0 => {
                    let offset = random.below(here as u64) as usize;
                    let length = 1 + random.below((here - offset) as u64) as usize;
                    let keys = column.share(offset, length).expect("shared");
                    let content = column.bytes[offset..offset + length].to_vec();
                    shares.push((keys, content));
                }
                _ if !shares.is_empty() => {
                    let which = random.below(shares.len() as u64) as usize;
                    let (keys, content) = shares[which].clone();
                    let offset = random.below(content.len() as u64) as usize;
                    let length = 1 + random.below((content.len() - offset) as u64) as usize;
                    match column.load(&keys, offset, length) {
                        Ok(bytes) => {
                            assert!(bytes == content[offset..offset + length], "seed {seed}");
                            given += 1;
                        }
                        Err(said) => {
                            assert!(!said.starts_with('1'), "seed {seed}: {said}");
                            withheld += 1;
                        }
                    }
                }
                _ => {}
            }
        }
    }
    assert!(given > 30 && withheld > 30, "{given} {withheld}");
}
