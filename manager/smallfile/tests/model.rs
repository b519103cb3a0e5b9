//! Random histories beside a model: what is read is what was written, live,
//! after failed backing writes and after crashes; space is never shared,
//! reused too early or lost.

mod rig;

use proptest::prelude::*;
use rig::{Event, Rig};

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Goal: after any history with crashes, every settled change is there,
    /// every other one is there whole or not at all, and all space is accounted for.
    #[test]
    fn any_history_reads_back_as_the_model(
        events in proptest::collection::vec(any::<(u8, u16, u16, u16)>(), 1..160)
    ) {
        let mut rig = Rig::new();
        for (step, numbers) in events.into_iter().enumerate() {
            rig.step(step, Event::from_numbers(numbers));
        }
        rig.crash(0x5a5a);
        rig.remove_everything();
    }
}

/// A record that was void said, as each does, how far changes were written, and
/// space was reused for that; the tail dropped it, and the claim of that space
/// failed on replay. What a void record says of others counts.
#[test]
fn space_reused_because_of_a_void_record_replays() {
    let mut rig = Rig::new();
    let write = |file, start, length| Event::Write {
        file,
        start,
        length,
        stable: true,
    };
    let events = [
        write(2, 0, 20_000),
        write(2, 0, 1),
        Event::Flush { bytes_max: 65_536 },
        write(0, 0, 4097),
        Event::LogDurable { records: 4 },
        write(1, 0, 4097),
        Event::LogDurable { records: 1 },
        Event::Crash { seed: 0 },
    ];
    for (step, event) in events.into_iter().enumerate() {
        if step == 3 {
            rig.step(step, Event::BackingDone { which: 0 });
        }
        rig.step(step, event);
    }
    rig.remove_everything();
}
