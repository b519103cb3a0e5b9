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
