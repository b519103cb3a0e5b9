//! What the directory answers, and whom it asks when.

use std::time::Duration;

use crossdock_depots::{Directory, Effect, Input, Location, MISSED_MAX, Record, parse_depots};
use crossdock_ibp::Totals;
use crossdock_lbone::{Answer, Depot, DepotQuery, Request, Resolution};
use crossdock_types::Time;

fn depot(host: &str) -> Depot {
    Depot {
        host: host.to_owned(),
        port: 6714,
    }
}

fn totals(stable_mib: u64, duration: Option<u64>) -> Totals {
    Totals {
        stable_mib,
        stable_used_mib: 10,
        volatile_mib: 2 * stable_mib,
        volatile_used_mib: 10,
        duration_seconds_max: duration,
    }
}

/// Depots that have all answered.
fn directory(depots: &[(&str, &str, Totals)]) -> Directory {
    let records = depots.iter().map(|(host, place, _)| Record {
        depot: depot(host),
        location: Location::parse(place),
        poll_every: Duration::from_secs(10),
    });
    let mut directory = Directory::new(Time::from_secs(0), records);
    for (host, _, totals) in depots {
        let input = Input::Polled {
            depot: depot(host),
            totals: Some(*totals),
            elapsed: Duration::from_millis(1),
        };
        directory.handle(Time::from_secs(0), input);
    }
    while directory.poll_effect().is_some() {}
    directory
}

fn query(location: &str) -> DepotQuery {
    DepotQuery {
        depots_max: None,
        stable_mb: 1,
        volatile_mb: 0,
        duration_seconds: 60,
        location: location.to_owned(),
    }
}

fn found(directory: &Directory, query: DepotQuery) -> Vec<String> {
    match directory.answer(&Request::Depots(query), 1) {
        Answer::Depots(depots) => depots.into_iter().map(|depot| depot.host).collect(),
        other => panic!("{other:?}"),
    }
}

fn three() -> Directory {
    directory(&[
        (
            "knoxville",
            "airport= TYS connection= T3 firewall= yes",
            totals(100, None),
        ),
        (
            "turin",
            "city= Turin country= IT connection= T1",
            totals(50, Some(3600)),
        ),
        ("tokyo", "lat= 35.7 lon= 139.7", totals(1000, Some(86400))),
    ])
}

/// Goal: the nearest depot comes first, whichever way the place is said; without a place the
/// order is another one with other random numbers.
#[test]
fn the_nearest_comes_first() {
    let directory = three();
    for (place, first) in [
        ("zip= 37901", "knoxville"),
        ("state= TN city= NASHVILLE", "knoxville"),
        ("airport= GVA", "turin"),
        ("c= kr", "tokyo"),
        ("hostname= turin", "turin"),
        ("lat= -33.9 lon= 151.2", "tokyo"),
    ] {
        let found = found(&directory, query(place));
        assert_eq!((found.len(), found[0].as_str()), (3, first), "{place}");
    }
    let order = |random| directory.answer(&Request::Depots(query("nowhere= at all")), random);
    let first = order(0);
    assert!((1..50).any(|random| order(random) != first));
}

/// Goal: number, room, duration and properties are conditions.
#[test]
fn depots_have_to_fit() {
    let directory = three();
    let with = |change: &dyn Fn(&mut DepotQuery)| {
        let mut query = query("airport= TYS");
        change(&mut query);
        found(&directory, query)
    };
    assert_eq!(with(&|query| query.depots_max = Some(1)), ["knoxville"]);
    assert_eq!(with(&|query| query.depots_max = Some(0)), [""; 0]);
    assert_eq!(with(&|query| query.stable_mb = 91), ["tokyo"]);
    assert_eq!(
        with(&|query| query.volatile_mb = 100),
        ["knoxville", "tokyo"]
    );
    assert_eq!(
        with(&|query| query.duration_seconds = 86400),
        ["knoxville", "tokyo"]
    );
    let needs = |text: &str| found(&directory, query(text));
    assert_eq!(needs("airport= TYS connection= T1"), ["knoxville", "turin"]);
    assert_eq!(needs("connection= t3"), ["knoxville"]);
    assert_eq!(needs("firewall= yes connection= T1"), ["knoxville"]);
}

/// Goal: a depot that does not answer is told to nobody after some polls, and again once it
/// answers; one that never did is not told at all. Each is asked when it is due, and once only.
#[test]
fn silent_depots_expire() {
    let mut directory = directory(&[("a", "", totals(100, None))]);
    assert_eq!(found(&directory, query("")), ["a"]);
    let mut now = Time::from_secs(0);
    for missed in 1..=MISSED_MAX {
        assert_eq!(
            directory.poll_timeout(),
            Some(now + Duration::from_secs(10))
        );
        directory.handle(now + Duration::from_secs(9), Input::Timeout);
        assert_eq!(directory.poll_effect(), None);
        now = now + Duration::from_secs(10);
        directory.handle(now, Input::Timeout);
        directory.handle(now, Input::Timeout);
        assert_eq!(directory.poll_effect(), Some(Effect::Poll(depot("a"))));
        assert_eq!(directory.poll_effect(), None);
        let silent = Input::Polled {
            depot: depot("a"),
            totals: None,
            elapsed: Duration::from_secs(5),
        };
        directory.handle(now, silent);
        let is_there = !found(&directory, query("")).is_empty();
        assert_eq!(is_there, missed < MISSED_MAX);
    }
    let count = directory.answer(&Request::Count, 0);
    assert_eq!(count, Answer::Count { total: 1, live: 0 });
    let back = Input::Polled {
        depot: depot("a"),
        totals: Some(totals(100, None)),
        elapsed: Duration::from_millis(1),
    };
    directory.handle(now, back);
    assert_eq!(found(&directory, query("")), ["a"]);
}

/// Goal: distances are those of the globe (Knoxville to Turin: 4,590 miles and some), in lists
/// and tables; what is nowhere has none.
#[test]
fn distances_are_those_of_the_globe() {
    let directory = three();
    let location = "airport= TYS".to_owned();
    let Answer::Proximity(near) = directory.answer(&Request::Proximity { location }, 0) else {
        panic!("no distances");
    };
    let hosts: Vec<&str> = near.iter().map(|(host, _)| host.as_str()).collect();
    assert_eq!(hosts, ["knoxville", "turin", "tokyo"]);
    assert!(
        near[0].1 < 1.0 && (4585.0..4595.0).contains(&near[1].1),
        "{near:?}"
    );
    let pairs = |kind, host| Request::Resolution {
        kind,
        sources: vec![depot("knoxville")],
        targets: vec![depot(host)],
    };
    let answer = directory.answer(&pairs(Resolution::Geographic, "turin"), 0);
    assert!(matches!(answer, Answer::Resolution { values, .. } if values == [near[1].1]));
    for request in [
        pairs(Resolution::Geographic, "x"),
        pairs(Resolution::Network, "turin"),
    ] {
        assert!(matches!(directory.answer(&request, 0), Answer::Failure(_)));
    }
}

/// Goal: a file of depots is read, and what is wrong in it is told with its line.
#[test]
fn files_of_depots_are_read() {
    let depots = parse_depots("# ours\n\na.example:6714 airport= TYS # near\n[::1]:7\n").unwrap();
    assert_eq!(depots.len(), 2);
    assert_eq!(depots[0].location, Location::parse("airport= TYS"));
    assert_eq!(depots[1].depot.host, "[::1]");
    for wrong in ["a", "a:x", ":1", "x/y:1"] {
        let text = format!("a:1\n{wrong}");
        assert!(
            parse_depots(&text).unwrap_err().starts_with("line 2"),
            "{wrong}"
        );
    }
}

/// Goal: of depots that are equally near, those come first that are expected to answer soonest;
/// a farther one comes behind them, however fast it is. What was slow once is forgiven.
#[test]
fn the_fastest_of_the_near_comes_first() {
    let here = "lat= 36 lon= -84";
    let all = [("slow", here), ("fast", here), ("far", "airport= TRN")];
    let mut directory = directory(&all.map(|(host, place)| (host, place, totals(100, None))));
    let now = Time::from_secs(1);
    let mut answer_in = |host: &str, millis: u64, times: usize| {
        for _ in 0..times {
            let answered = Input::Polled {
                depot: depot(host),
                totals: Some(totals(100, None)),
                elapsed: Duration::from_millis(millis),
            };
            directory.handle(now, answered);
        }
        (0..20)
            .map(
                |random| match directory.answer(&Request::Depots(query(here)), random) {
                    Answer::Depots(depots) => {
                        depots.into_iter().map(|it| it.host).collect::<Vec<_>>()
                    }
                    other => panic!("{other:?}"),
                },
            )
            .collect::<std::collections::BTreeSet<_>>()
    };
    let both = answer_in("far", 1, 20);
    assert_eq!(both.len(), 2, "{both:?}");
    let slow = answer_in("slow", 200, 20);
    assert_eq!(
        slow.into_iter().collect::<Vec<_>>(),
        [["fast", "slow", "far"]]
    );
    let again = answer_in("slow", 1, 40);
    assert_eq!(again.len(), 2, "{again:?}");
}

/// Goal: depots that join are asked at once, those that leave are told to nobody, and what is
/// known of those that stay is not asked for again.
#[test]
fn depots_come_and_go() {
    let mut directory = directory(&[("a", "", totals(100, None)), ("b", "", totals(100, None))]);
    let record = |host: &str| Record {
        depot: depot(host),
        location: Location::parse(""),
        poll_every: Duration::from_secs(10),
    };
    directory.update(Time::from_secs(1), [record("b"), record("c")]);
    assert_eq!(directory.poll_effect(), Some(Effect::Poll(depot("c"))));
    assert_eq!(directory.poll_effect(), None);
    assert_eq!(found(&directory, query("")), ["b"]);
    let count = directory.answer(&Request::Count, 0);
    assert_eq!(count, Answer::Count { total: 2, live: 1 });
}
