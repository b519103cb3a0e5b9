//! Plans of homes: how much moves, how evenly, and what is refused.

use crossdock_sim::random::Random;

use super::*;
use crate::{Change, HostRecord};

/// An ensemble of nodes 10, 11 …, each of which runs as host 100, 101 …, with all sites
/// in use.
fn ensemble(nodes: u64, copies: u32) -> State {
    let mut state = fresh(nodes, copies);
    state.opened_sites = (0..).take(state.sites.len()).collect();
    state
}

/// The same with no site in use.
fn fresh(nodes: u64, copies: u32) -> State {
    let ids: Vec<u64> = (10..10 + nodes).collect();
    let mut state = State::fresh(1, 2, &ids, copies, copies).with_many_sets(16);
    for id in ids {
        join(&mut state, id);
    }
    settle(&mut state);
    state
}

fn join(state: &mut State, node: u64) {
    let record = HostRecord {
        nodes: vec![node],
        ..HostRecord::default()
    };
    let host = node + 90;
    let joined = state.apply(Change::Join { host, record });
    joined.expect("joins");
}

fn place(state: &mut State, placement: Placement) -> Result<(), Conflict> {
    state.apply(Change::Place(placement))
}

fn drain(state: &mut State, number: u32, drains: bool) -> Result<(), Conflict> {
    place(state, Placement::Drain { number, drains })
}

/// Every set's homes have been made equal.
pub(crate) fn settle(state: &mut State) {
    for (set, record) in state.sets.clone() {
        let (expected, moves) = (record.epoch, record.moves);
        let equal = Change::SetEqual {
            set,
            expected,
            moves,
        };
        state.apply(equal).expect("nobody else changes it");
    }
}

/// Least and most of each kind that a node has.
fn spans(state: &State) -> Vec<(usize, usize)> {
    let loads = Kind::ALL.map(|kind| state.loads(kind));
    let span = |load: &BTreeMap<u64, usize>| {
        let (least, most) = (load.values().min(), load.values().max());
        (least.copied().unwrap_or(0), most.copied().unwrap_or(0))
    };
    loads.iter().map(span).collect()
}

/// Goal: a fresh ensemble's sets are spread evenly, each pair of nodes has about
/// equally many in common, and neighbouring columns of a file are led by different
/// nodes.
#[test]
fn fresh_sets_are_spread_over_all_pairs() {
    let state = ensemble(5, 2);
    assert_eq!(spans(&state), [(16, 16), (16, 16), (51, 52), (51, 52)]);
    let mut pairs: BTreeMap<(u64, u64), u32> = BTreeMap::new();
    for set in &state.data_sets {
        let home = &state.sets[set].home;
        let pair = (home[0].min(home[1]), home[0].max(home[1]));
        *pairs.entry(pair).or_default() += 1;
    }
    assert_eq!(pairs.len(), 10);
    assert!(pairs.values().all(|&sets| (7..=9).contains(&sets)));
    let table = state.table();
    for slot in &table.slots {
        let leads = slot.iter().map(|set| table.sets[set].members[0]);
        assert_eq!(leads.collect::<BTreeSet<_>>().len(), 5);
    }
}

/// Goal: the N-th node gets about 1/N of all homes and nothing else moves; it is a
/// member of nothing until it has been made equal.
#[test]
fn a_new_node_gets_its_share_and_nothing_else_moves() {
    let mut state = ensemble(4, 2);
    let before = state.sets.clone();
    let add = Placement::Add { number: 4, id: 14 };
    assert_eq!(place(&mut state, add), Ok(()));
    assert_eq!(state.load_of(14), (0, 0));
    join(&mut state, 14);
    let total: usize = state.sets.values().map(|set| set.home.len()).sum();
    let (homes, members) = state.load_of(14);
    assert!(homes.abs_diff(total / 5) <= 4, "{homes} of {total}");
    assert_eq!(members, 0);
    let moved = before
        .iter()
        .filter(|(id, set)| set.home != state.sets[id].home);
    assert_eq!(moved.count(), homes);
    let same = |(id, set): (&u32, &SetRecord)| {
        (set.epoch, &set.members) == (state.sets[id].epoch, &state.sets[id].members)
    };
    assert!(before.iter().all(same));
    settle(&mut state);
    assert_eq!(state.load_of(14), (homes, homes));
    for (least, most) in spans(&state) {
        assert!(most - least <= 2, "{least} to {most}");
    }
}

/// Goal: a drained node keeps all copies until others have them, then has none and
/// can be removed; what has not moved yet comes back with undrain.
#[test]
fn a_drained_node_is_empty_when_others_are_equal() {
    let mut state = ensemble(4, 2);
    let (homes, members) = state.load_of(11);
    assert_eq!(drain(&mut state, 1, true), Ok(()));
    assert_eq!(state.load_of(11), (0, members));
    for (least, most) in spans(&state) {
        assert!(most - least <= 2, "{least} to {most}");
    }
    let refused = place(&mut state, Placement::Remove { number: 1 });
    assert!(
        matches!(refused, Err(Conflict::Refused { .. })),
        "{refused:?}"
    );
    assert_eq!(drain(&mut state, 1, false), Ok(()));
    assert_eq!(state.load_of(11), (homes, members));
    let refused = place(&mut state, Placement::Remove { number: 1 });
    assert!(
        matches!(refused, Err(Conflict::Refused { .. })),
        "{refused:?}"
    );

    assert_eq!(drain(&mut state, 1, true), Ok(()));
    settle(&mut state);
    assert_eq!(state.load_of(11), (0, 0));
    assert_eq!(place(&mut state, Placement::Remove { number: 1 }), Ok(()));
    assert!(!state.hosts.contains_key(&101));
    let numbers: Vec<u32> = state.nodes.iter().map(|node| node.number).collect();
    assert_eq!(numbers, [0, 2, 3]);
}

/// Goal: what has no other place stays, and whoever asks is told.
#[test]
fn nodes_that_are_needed_are_not_drained() {
    let mut state = ensemble(2, 2);
    let before = state.clone();
    let refused = drain(&mut state, 0, true);
    assert!(
        matches!(refused, Err(Conflict::Refused { .. })),
        "{refused:?}"
    );
    assert_eq!(state, before);
    let mut single = ensemble(2, 1);
    assert_eq!(drain(&mut single, 0, true), Ok(()));
    assert_eq!(single.load_of(11).0, single.sets.len());
}

/// Goal: who proposed that members are equal before the homes changed does not make
/// a member of a home that has nothing.
#[test]
fn equal_members_of_other_homes_do_not_count() {
    let mut state = ensemble(3, 2);
    let set = 0;
    let (expected, moves) = (state.sets[&set].epoch, state.sets[&set].moves);
    assert_eq!(drain(&mut state, 0, true), Ok(()));
    let late = Change::SetEqual {
        set,
        expected,
        moves,
    };
    let refused = state.apply(late);
    assert!(
        matches!(refused, Err(Conflict::Epoch { .. })),
        "{refused:?}"
    );
    assert_eq!(state.sets[&set].members, [10, 11]);
    assert_eq!(state.sets[&set].home, [12, 11]);
}

/// Goal: the homes of a node that is away go to others, and what only it has stays
/// its own; a place whose files are lost begins anew, but not while something is
/// nowhere else.
#[test]
fn what_a_lost_node_had_is_rebuilt_elsewhere() {
    let mut state = ensemble(3, 2);
    let replace = |id| Placement::Replace { number: 2, id };
    let refused = place(&mut state, replace(None));
    assert!(matches!(refused, Err(Conflict::Refused { .. })), "it runs");
    state.apply(Change::Leave { host: 102 }).expect("leaves");
    assert_eq!(place(&mut state, replace(None)), Ok(()));
    assert_eq!(state.load_of(12), (0, 0));
    join(&mut state, 12);
    assert!(state.load_of(12).0 > 0, "it comes back as a new one");
    settle(&mut state);

    state.apply(Change::Leave { host: 102 }).expect("leaves");
    state.apply(Change::Leave { host: 101 }).expect("leaves");
    assert_eq!(place(&mut state, replace(Some(99))), Ok(()));
    let lost = Placement::Replace {
        number: 1,
        id: Some(98),
    };
    let refused = place(&mut state, lost);
    assert!(
        matches!(refused, Err(Conflict::Refused { .. })),
        "{refused:?}"
    );
    assert_eq!(state.nodes[2].id, 99);
    assert!(!state.nodes[2].is_used);
    for set in state.sets.values() {
        assert!(!set.home.contains(&12) && !set.members.contains(&12));
    }
}

/// The set of a site that nobody has used, and the site.
fn unused(state: &State, site: u16) -> (&SetRecord, u64) {
    let (epoch, set) = state.sites[usize::from(site)];
    (&state.sets[&set], epoch)
}

fn leave(state: &mut State, node: u64) {
    let left = state.apply(Change::Leave { host: node + 90 });
    left.expect("leaves");
}

/// Goal: the set of a site that nobody has used, which holds nothing, has the homes that
/// run as its members, whoever had it before and stays away: also if that was the only
/// one, and if all homes have become others. The site's epoch tells who is about to use it.
#[test]
fn sets_of_unused_sites_wait_for_nobody() {
    let mut state = fresh(4, 2);
    let home = unused(&state, 5).0.home.clone();
    let (first, second) = (home[0], home[1]);
    leave(&mut state, second);
    assert_eq!(unused(&state, 5).0.members, [first]);
    join(&mut state, second);
    assert_eq!(unused(&state, 5).0.members, home, "nothing is to be copied");
    leave(&mut state, second);
    let epoch = unused(&state, 5).1;
    leave(&mut state, first);
    assert_eq!(unused(&state, 5).0.members, [first], "nobody else is there");
    join(&mut state, second);
    assert_eq!(
        unused(&state, 5),
        (&state.sets[&state.sites[5].1], epoch + 1)
    );
    assert_eq!(unused(&state, 5).0.members, [second]);
    leave(&mut state, second);
    for id in [first, second] {
        let number = u32::try_from(id - 10).expect("few");
        let replaced = place(&mut state, Placement::Replace { number, id: None });
        assert_eq!(replaced, Ok(()));
    }
    let record = unused(&state, 5).0;
    assert_eq!(record.members, record.home);
    assert!(!record.members.contains(&first) && !record.members.contains(&second));
}

/// Goal: what a site that was used has is given up for nobody, and a site counts as used
/// only where it was opened: not by who opened it with the members from before.
#[test]
fn sets_of_used_sites_keep_their_only_copy() {
    let mut state = fresh(4, 2);
    let opened = |state: &State, site: u16| Change::SiteOpened {
        site,
        expected: Some(unused(state, site).1),
    };
    let early = opened(&state, 5);
    let home = unused(&state, 5).0.home.clone();
    let mut others = 6..;
    let other = others.find(|&other| unused(&state, other).0.home == home);
    let other = other.expect("there are many");
    assert_eq!(state.apply(opened(&state, other)), Ok(()));
    leave(&mut state, home[0]);
    leave(&mut state, home[1]);
    join(&mut state, home[0]);
    assert_eq!(unused(&state, 5).0.members, [home[0]]);
    assert_eq!(unused(&state, other).0.members, [home[1]]);
    let late = state.apply(early);
    assert!(matches!(late, Err(Conflict::Epoch { .. })), "{late:?}");
    assert_eq!(state.apply(opened(&state, 5)), Ok(()));
    assert!(state.is_set_used(state.sites[5].1));
}

/// Goal: a member that has never run is waited for: a fresh ensemble's nodes come one
/// after the other.
#[test]
fn nodes_that_have_never_run_are_waited_for() {
    let ids = [10, 11, 12];
    let mut state = State::fresh(1, 2, &ids, 2, 2).with_many_sets(16);
    join(&mut state, 10);
    for site in 1..state.sites.len() {
        let record = &state.sets[&state.sites[site].1];
        assert_eq!(record.members, record.home);
    }
}

/// Any change of who runs and what belongs where; those that the state does not allow are
/// refused.
fn any_placement(random: &mut Random, state: &State) -> Change {
    let node = random.pick(&state.nodes).cloned().expect("there are nodes");
    let (number, id, host) = (node.number, node.id, node.id + 90);
    let fresh = 10 + random.below(1000);
    match random.below(9) {
        0..2 => Change::Leave { host },
        2..4 => Change::Join {
            host,
            record: HostRecord {
                nodes: vec![id],
                ..HostRecord::default()
            },
        },
        4..6 => Change::Place(Placement::Drain {
            number,
            drains: random.coin(),
        }),
        6 => Change::Place(Placement::Add {
            number: u32::try_from(fresh).expect("small"),
            id: fresh,
        }),
        7 => Change::Place(Placement::Remove { number }),
        _ => Change::Place(Placement::Replace {
            number,
            id: random.coin().then_some(fresh),
        }),
    }
}

/// Goal: with whatever change, the set of a site that nobody has used is left by who is no
/// home of it any more, and joined by those that are and run; no manager has a part in it. A
/// simulated ensemble had found one that a drained node never left, while managers came and
/// went: they had to make its homes equal first.
#[test]
fn sets_of_unused_sites_are_left_with_the_change() {
    let (mut drained, mut made) = (0, 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut state = fresh(3 + random.below(3), 2);
        for _ in 0..60 {
            let before = state.clone();
            let change = any_placement(&mut random, &state);
            match state.apply(change.clone()) {
                Ok(()) => made += 1,
                Err(_) => state = before,
            }
            for set in state.sites.iter().skip(1).map(|&(_, set)| set) {
                let record = &state.sets[&set];
                let (running, away): (Vec<u64>, Vec<u64>) =
                    record.home.iter().partition(|&&home| state.is_hosted(home));
                let are_members = running.iter().all(|home| record.members.contains(home));
                // Of others only those that are still to come for the first time.
                let mut others = record.members.iter().filter(|it| !running.contains(it));
                let may_come = others.all(|it| away.contains(it) && !state.has_run(*it));
                assert!(
                    running.is_empty() || are_members && may_come,
                    "seed {seed}, set {set}: {record:?} after {change:?}"
                );
            }
            let mut nodes = state.nodes.iter();
            drained += u32::from(nodes.any(|node| node.is_draining && state.is_hosted(node.id)));
        }
    }
    assert!(made > 500 && drained > 500, "{made}, {drained}");
}
