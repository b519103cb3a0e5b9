//! The directory of depots: requests and answers. Target and seeds.

use crossdock_lbone::{Answer, Depot, DepotQuery, Request, Resolution, take_request};

/// Places at which an input is cut.
const CUTS_MAX: usize = 64;

/// Reads a request, and the rest as its answer.
///
/// # Panics
/// If what was read is written as something else, or less of it is more.
pub fn lbone(input: &[u8]) {
    let whole = take_request(input);
    for cut in (0..input.len()).step_by(input.len() / CUTS_MAX + 1) {
        let found = take_request(&input[..cut]);
        assert!(
            found == Ok(None) || found == whole,
            "{found:?} at {cut}, then {whole:?}"
        );
    }
    let Ok(Some(request)) = whole else {
        return;
    };
    let written = request.encode();
    assert_eq!(take_request(&written), Ok(Some(request.clone())));
    let rest = input.get(written.len()..).unwrap_or_default();
    if let Ok(answer) = Answer::parse(&request, rest) {
        let again = answer.encode();
        // Fractions are cut to their fields, host names to theirs.
        if let Answer::Depots(_) | Answer::Count { .. } | Answer::Failure(_) = answer {
            assert_eq!(Answer::parse(&request, &again), Ok(answer));
        }
    }
}

pub(crate) fn lbone_seeds() -> Vec<Vec<u8>> {
    let depot = |port| Depot {
        host: "depot.example".to_owned(),
        port,
    };
    let location = "zip= 37901 connection= T1".to_owned();
    let query = DepotQuery {
        depots_max: None,
        stable_mb: 6,
        volatile_mb: 0,
        duration_seconds: 3600,
        location: location.clone(),
    };
    let depots = Answer::Depots(vec![depot(1), depot(65535)]);
    let near = Answer::Proximity(vec![("depot.example".to_owned(), 65.455_319)]);
    let table = Answer::Resolution {
        sources: 1,
        targets: 1,
        values: vec![0.5],
    };
    let pairs = Request::Resolution {
        kind: Resolution::Geographic,
        sources: vec![depot(1)],
        targets: vec![depot(2)],
    };
    let count = Answer::Count {
        total: 21,
        live: 20,
    };
    [
        (Request::Depots(query), depots),
        (Request::Count, count),
        (Request::Proximity { location }, near),
        (pairs, table),
        (Request::Count, Answer::Failure(-1111)),
    ]
    .into_iter()
    .map(|(request, answer)| [request.encode(), answer.encode()].concat())
    .collect()
}
