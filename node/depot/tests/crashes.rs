//! Power is lost at any moment, on seeds: what was answered is there, what was not has
//! happened wholly or not at all.

mod rig;

use crossdock_depot::DepotPolicy;
use crossdock_ibp::{Capabilities, answer};
use crossdock_sim::random::Random;
use rig::{Rig, keys};

/// Runs of the test; `CROSSDOCK_SEEDS` says another number.
const SEEDS: u64 = 60;

/// What an allocation holds by what clients were told, and what it may hold as well.
struct Known {
    capabilities: Capabilities,
    is_queue: bool,
    size: usize,
    content: Vec<u8>,
    /// If a command was under way.
    or: Option<Vec<u8>>,
}

impl Known {
    fn stored(&self, data: &[u8]) -> Vec<u8> {
        let mut content = [&self.content[..], data].concat();
        if self.is_queue {
            content.drain(..content.len().saturating_sub(self.size));
        }
        content
    }
}

/// Goal: after any number of crashes, each at any step of any command, every allocation that
/// was answered is there with the bytes that were acknowledged; a store that was under way has
/// happened or not; nothing is left of others.
#[test]
fn what_was_answered_survives() {
    let seeds = std::env::var("CROSSDOCK_SEEDS").ok();
    let seeds = seeds.and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    for seed in 0..seeds {
        println!("seed {seed}"); // Shown if it fails.
        run(seed);
    }
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let mut rig = Rig::new(seed, DepotPolicy::default());
    let mut known: Vec<Known> = Vec::new();
    for _ in 0..4 {
        for _ in 0..random.between(1, 12) {
            act(&mut rig, &mut random, &mut known);
        }
        interrupt(&mut rig, &mut random, &mut known);
        rig = rig.crash(&mut random, 1);
        assert_eq!(rig.warnings, Vec::<String>::new());
        for one in &mut known {
            let found = rig.content(&one.capabilities);
            let expected = [Some(&one.content), one.or.as_ref()];
            assert!(
                expected
                    .into_iter()
                    .flatten()
                    .any(|content| *content == found),
                "{} bytes, not {} or {:?}",
                found.len(),
                one.content.len(),
                one.or.as_ref().map(Vec::len)
            );
            // A queue has given it.
            one.content = if one.is_queue { Vec::new() } else { found };
            one.or = None;
        }
    }
}

/// Something that is answered.
fn act(rig: &mut Rig, random: &mut Random, known: &mut Vec<Known>) {
    if known.is_empty() || random.one_in(4) {
        let is_queue = random.one_in(3);
        let size = [3000, 100_000, 1_500_000][random.index(3)];
        let reliability = random.between(1, 2);
        let storage = if is_queue { 4 } else { 1 };
        let capabilities = rig.allocate(&format!("{reliability} {storage} 3600 {size}"));
        known.push(Known {
            capabilities,
            is_queue,
            size,
            content: Vec::new(),
            or: None,
        });
        return;
    }
    let one = random.index(known.len());
    let one = &mut known[one];
    if one.is_queue && !one.content.is_empty() && random.one_in(2) {
        assert!(rig.content(&one.capabilities) == one.content);
        one.content.clear();
        return;
    }
    let data = data(random, one);
    if !data.is_empty() {
        rig.store(&one.capabilities.write, &data);
        one.content = one.stored(&data);
    }
}

/// Something that is begun, and goes on for some steps at most.
fn interrupt(rig: &mut Rig, random: &mut Random, known: &mut [Known]) {
    if known.is_empty() {
        return;
    }
    let one = random.index(known.len());
    let one = &mut known[one];
    let data = data(random, one);
    if data.is_empty() {
        return;
    }
    let id = rig.begin_store(&one.capabilities.write, data.len());
    let sent = match random.one_in(3) {
        true => random.index(data.len()),
        false => data.len(),
    };
    rig.say(id, &data[..sent]);
    for _ in 0..random.below(30) {
        rig.step();
    }
    let heard = rig.hear(id);
    let stored = one.stored(&data);
    if heard == answer::stored(data.len() as u64).as_bytes() {
        one.content = stored;
    } else {
        assert_eq!(heard, b"");
        one.or = (sent == data.len()).then_some(stored);
    }
}

/// Something to store that fits.
fn data(random: &mut Random, one: &Known) -> Vec<u8> {
    let room = match one.is_queue {
        true => one.size,
        false => one.size - one.content.len(),
    };
    let most = [10, 5000, 70_000, 1_500_000][random.index(4)].min(room);
    let mut data = vec![0; random.index(most + 1)];
    random.fill(&mut data);
    data
}

/// Goal: a lease ends when it was to, however the machine's clock is set, and whether the
/// depot ran meanwhile or not; its space comes back.
#[test]
fn leases_end_in_their_time() {
    let mut random = Random::new(5);
    for step in [0, 86_400, -86_400] {
        let mut rig = Rig::new(5, DepotPolicy::default());
        let free = rig.taken_bytes();
        let long = rig.allocate("2 1 3000 1000000");
        let short = rig.allocate("2 1 100 1000000");
        rig.store(&short.write, &[1; 500_000]);
        rig.wait(30);
        rig.wall_ahead += step;
        rig.wait(1);
        let left = rig.probe(&short.read).expect("there").duration_seconds;
        assert_eq!(left, 69, "step {step}");
        let mut rig = rig.crash(&mut random, 10);
        let left = rig.probe(&short.read).expect("there").duration_seconds;
        assert!((58..=59).contains(&left), "step {step}: {left}");
        rig.wait(50);
        assert!(rig.probe(&short.read).is_some());
        rig.wait(10);
        assert!(rig.probe(&short.read).is_none(), "step {step}");
        assert_eq!(rig.objects(), 2, "the depot's, and one");
        let mut rig = rig.crash(&mut random, 3000);
        assert!(rig.probe(&long.read).is_none(), "step {step}");
        rig.wait(10);
        assert_eq!((rig.objects(), rig.taken_bytes()), (1, free), "step {step}");
    }
}

/// Goal: an allocation that was released is gone for good, also if the power is lost right
/// behind the answer; one that was not is not.
#[test]
fn what_was_released_stays_gone() {
    let mut random = Random::new(6);
    let mut rig = Rig::new(6, DepotPolicy::default());
    let (one, other) = (rig.allocate("2 1 600 1000"), rig.allocate("1 3 600 1000"));
    for capabilities in [&one, &other] {
        rig.store(&capabilities.write, b"bytes");
    }
    let said = format!("0 9 {} 42 1 0\n", keys(&one.manage));
    assert_eq!(rig.ask(said), answer::done());
    let mut rig = rig.crash(&mut random, 1);
    assert!(rig.probe(&one.read).is_none());
    assert_eq!(rig.content(&other), b"bytes");
}
