//! Small writes all over an object.

mod rig;

use crossdock_sim::random::Random;
use rig::*;

/// Goal: blocks that lie apart go to the disk many at a time: one flush serves
/// them all, and nobody waits for room that does not come.
#[test]
fn scattered_blocks_share_their_flushes() {
    const COUNT: u64 = 4000;
    let mut rig = Rig::new();
    assert!(rig.call(create(object(1), 1)).is_ok());
    let mut model = vec![0; 2 * BLOCK * usize::try_from(COUNT).expect("small")];
    let mut calls = Vec::new();
    for number in 0..COUNT {
        let at = 2 * number * BLOCK as u64;
        let fill = u8::try_from(number % 251 + 1).expect("small");
        let start = usize::try_from(at).expect("small");
        model[start..start + BLOCK].fill(fill);
        calls.push(rig.send(write(object(1), at, vec![fill; BLOCK], false, number + 2)));
        while calls.len() >= 64 {
            assert!(rig.step(), "it stands still");
            calls.retain(|call| match rig.take_reply(*call) {
                Some(reply) => {
                    assert!(reply.is_ok(), "{reply:?}");
                    false
                }
                None => true,
            });
        }
    }
    let status = rig.store.status();
    assert!(status.data_flushes < COUNT / 64, "{status:?}");
    let boot = rig.config.boot;
    assert!(rig.call(commit(object(1), boot)).is_ok());
    let mut rig = rig.crash(&mut Random::new(5));
    let size = (2 * COUNT - 1) * BLOCK as u64;
    model.truncate(usize::try_from(size).expect("small"));
    for from in (0..model.len()).step_by(1 << 20) {
        let to = model.len().min(from + (1 << 20));
        let found = rig.read(object(1), from as u64, (to - from) as u64);
        assert_eq!(found.as_deref(), Ok(&model[from..to]));
    }
}
