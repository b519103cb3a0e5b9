//! Unstable bytes that nobody commits.

mod rig;

use crossdock_sim::random::Random;
use rig::*;

const OBJECTS: u64 = 5;

/// Blocks of each that are written, with a gap behind each, so that they are no stretch.
const BLOCKS: u64 = 4;

/// Goal: when they are old all of them become durable, a little in each frame, as nobody who
/// writes meanwhile shall wait for all; a crash takes none then.
#[test]
fn what_is_old_becomes_durable_little_by_little() {
    let mut rig = Rig::new();
    let bytes = |number: u64, block: u64| {
        let byte = u8::try_from(number * BLOCKS + block + 1).expect("few");
        vec![byte; BLOCK]
    };
    for number in 1..=OBJECTS {
        assert!(rig.call(create(object(number), 1)).is_ok());
        for block in 0..BLOCKS {
            let offset = 2 * block * BLOCK as u64;
            let request = write(
                object(number),
                offset,
                bytes(number, block),
                false,
                2 + block,
            );
            assert!(rig.call(request).is_ok());
        }
    }
    rig.settle();
    let before = rig.store.status();
    assert!(before.dirty_bytes >= OBJECTS * BLOCKS * BLOCK as u64);
    rig.wait(3);
    let after = rig.store.status();
    assert_eq!(after.dirty_bytes, 0);
    let written = after.frame_bytes - before.frame_bytes;
    assert!(written > OBJECTS * BLOCKS * BLOCK as u64, "{written}");
    let frames = after.frames - before.frames;
    assert!(
        written / frames < 48 << 10,
        "{written} bytes in {frames} frames"
    );
    let mut rig = rig.crash(&mut Random::new(3));
    for number in 1..=OBJECTS {
        for block in 0..BLOCKS {
            let offset = 2 * block * BLOCK as u64;
            let found = rig.read(object(number), offset, BLOCK as u64);
            assert_eq!(
                found,
                Ok(bytes(number, block)),
                "object {number}, block {block}"
            );
        }
    }
}
