//! COMPARE AND WRITE below the threshold: one step, however often it is sent, and whatever has to
//! be fetched for it.

mod rig;

use bytes::Bytes;
use crossdock_names::FileRef;
use crossdock_peer::{SiteAnswer, SiteError, SiteOperation, Stability};
use crossdock_types::Payload;

use rig::{Rig, many_checkpoints, once, plain, write};

fn exchange(file: FileRef, offset_bytes: u64, expected: &[u8], new: &[u8]) -> SiteOperation {
    let mut payload = Payload::from(Bytes::copy_from_slice(expected));
    payload.append(Bytes::copy_from_slice(new).into());
    SiteOperation::Exchange {
        file,
        offset_bytes,
        payload,
    }
}

fn there(rig: &mut Rig, file: FileRef, at: usize, length: usize) -> Vec<u8> {
    rig.read(file)[at..at + length].to_vec()
}

const DONE: Result<SiteAnswer, SiteError> = Ok(SiteAnswer::Done);

/// Goal: all that a file's bytes are made of is compared: what is in fragments, in the log, in
/// memory only, and what was never written; and what is exchanged is there for good.
#[test]
fn bytes_are_compared_as_they_are() {
    let mut rig = Rig::new(many_checkpoints());
    let file = rig.create("a");
    rig.write(file, 0, &[1; 20_000], Stability::Stable);
    rig.write(file, 5000, &[2; 1000], Stability::Stable);
    rig.write(file, 5500, &[3; 100], Stability::Unstable);
    rig.write(file, 30_000, &[4; 100], Stability::Stable);
    let mut expected = vec![0; 26_000];
    expected[..16_000].fill(1);
    expected[1000..2000].fill(2);
    expected[1500..1600].fill(3);
    let mut wrong = expected.clone();
    wrong[1599] = 0;
    let differs = |at_bytes| Ok(SiteAnswer::Differs { at_bytes });
    let answer = rig.ask(exchange(file, 4000, &wrong, &[9; 26_000]));
    assert_eq!(answer.outcome, differs(1599));
    wrong = expected.clone();
    wrong[17_000] = 1;
    let answer = rig.ask(exchange(file, 4000, &wrong, &[9; 26_000]));
    assert_eq!(answer.outcome, differs(17_000));
    assert_eq!(there(&mut rig, file, 4000, 26_000), expected);
    let answer = rig.ask(exchange(file, 4000, &expected, &[9; 26_000]));
    assert_eq!(answer.outcome, DONE);
    let answer = rig.ask(exchange(file, 4000, &[9; 512], &[8; 512]));
    assert_eq!(answer.outcome, DONE);
    let mut now = vec![9; 26_000];
    now[..512].fill(8);
    assert_eq!(there(&mut rig, file, 4000, 26_000), now);
    rig.restart();
    assert_eq!(there(&mut rig, file, 4000, 26_000), now);
    for (offset, bytes) in [(0, &[][..]), (60_000, &[0; 8000][..])] {
        let refused = rig.ask(exchange(file, offset, bytes, bytes)).outcome;
        assert_eq!(refused, Err(SiteError::Invalid));
    }
}

/// Goal: what is sent again gets the first answer, whatever was written since, also after a
/// restart, and of a difference as long as the site is there.
#[test]
fn what_is_sent_again_is_not_done_again() {
    let mut rig = Rig::new(many_checkpoints());
    let file = rig.create("a");
    rig.write(file, 0, &[1; 10_000], Stability::Stable);
    for length in [512, 6000] {
        rig.write(file, 0, &[1; 10_000], Stability::Stable);
        let number = u8::try_from(length / 512).expect("small");
        let first = once(
            number,
            exchange(file, 100, &vec![1; length], &vec![2; length]),
        );
        let id = rig.send(first.clone());
        rig.run();
        assert_eq!(rig.replies[&id].outcome, DONE);
        rig.write(file, 0, &[1; 10_000], Stability::Stable);
        for restarts in [false, true] {
            if restarts {
                rig.restart();
            }
            let id = rig.send(first.clone());
            rig.run();
            assert_eq!(rig.replies[&id].outcome, DONE, "{length}, {restarts}");
            assert_eq!(rig.read(file), [1; 10_000]);
        }
    }
    let differs = once(99, exchange(file, 0, &[5; 512], &[6; 512]));
    for bytes in [1, 5] {
        rig.write(file, 0, &[bytes; 512], Stability::Stable);
        let id = rig.send(differs.clone());
        rig.run();
        let told = Ok(SiteAnswer::Differs { at_bytes: 0 });
        assert_eq!(rig.replies[&id].outcome, told);
    }
    assert_eq!(there(&mut rig, file, 0, 512), [5; 512]);
}

/// Goal: of several that all have to fetch what they compare one is done, and of one that comes
/// twice both sendings are told that it was.
#[test]
fn fetching_lets_nothing_come_between() {
    for shuffle in 0..50 {
        let mut rig = Rig::new(many_checkpoints());
        let file = rig.create("a");
        rig.write(file, 0, &[1; 30_000], Stability::Stable);
        rig.shuffle = shuffle;
        let ids: Vec<_> = (0..6u8)
            .map(|rival| {
                let operation = exchange(file, 700, &[1; 6000], &[10 + rival / 2; 6000]);
                rig.send(once(rival / 2, operation))
            })
            .collect();
        let between = rig.send(plain(write(file, 20_000, &[3; 5000], Stability::Stable)));
        rig.run();
        assert!(rig.replies[&between].outcome.is_ok());
        let done: Vec<bool> = ids
            .iter()
            .map(|id| rig.replies[id].outcome == DONE)
            .collect();
        let winner = done.iter().position(|done| *done).expect("one is done");
        let expected: Vec<bool> = (0..6).map(|rival| rival / 2 == winner / 2).collect();
        assert_eq!(done, expected, "shuffle {shuffle}");
        let fill = 10 + u8::try_from(winner / 2).expect("few");
        assert_eq!(there(&mut rig, file, 700, 6000), [fill; 6000]);
        assert_eq!(there(&mut rig, file, 20_000, 5000), [3; 5000]);
    }
}

/// Goal: an exchange whose bytes did not get to every member was not done: it is said so, nothing
/// of it is there, and it can be sent again.
#[test]
fn a_void_exchange_is_forgotten() {
    for restarts in [false, true] {
        let mut rig = Rig::new(many_checkpoints());
        let file = rig.create("a");
        rig.write(file, 0, &[1; 30_000], Stability::Stable);
        let request = once(7, exchange(file, 700, &[1; 6000], &[2; 6000]));
        for node in rig.nodes.values_mut() {
            node.no_space_for_small_files = true;
        }
        let id = rig.send(request.clone());
        rig.run();
        assert_eq!(rig.replies[&id].outcome, Err(SiteError::NoSpace));
        assert_eq!(there(&mut rig, file, 700, 6000), [1; 6000]);
        for node in rig.nodes.values_mut() {
            node.no_space_for_small_files = false;
        }
        if restarts {
            rig.restart();
        }
        let id = rig.send(request);
        rig.run();
        assert_eq!(rig.replies[&id].outcome, DONE);
        assert_eq!(there(&mut rig, file, 700, 6000), [2; 6000]);
    }
}
