//! Requests and answers on the wire.

use crossdock_lbone::{Answer, Depot, DepotQuery, Request, RequestError, Resolution, take_request};
use proptest::prelude::*;

fn query(location: &str) -> Request {
    Request::Depots(DepotQuery {
        depots_max: Some(16),
        stable_mb: 6,
        volatile_mb: 0,
        duration_seconds: 3600,
        location: location.to_owned(),
    })
}

fn depot(host: &str, port: u16) -> Depot {
    let host = host.to_owned();
    Depot { host, port }
}

/// Goal: a request and its answer are, byte for byte, those that were seen between the
/// historic client and server.
#[test]
fn depot_list_is_as_it_was_seen() {
    let mut seen = b"     0.0.1         1        16         6         0      3600NULL".to_vec();
    seen.resize(512, 0);
    assert_eq!(query("").encode(), seen);
    assert_eq!(take_request(&seen), Ok(Some(query(""))));
    let answer = Answer::Depots(vec![depot("127.0.0.1", 16711), depot("127.0.0.1", 16712)]);
    let blanks = " ".repeat(247);
    let seen =
        format!("1         2         127.0.0.1{blanks}16711     127.0.0.1{blanks}16712     ");
    assert_eq!(answer.encode(), seen.as_bytes());
    assert_eq!(Answer::parse(&query(""), seen.as_bytes()), Ok(answer));
}

/// Goal: an unknown type is answered as the historic server does; a short request waits for
/// more.
#[test]
fn unknown_and_short_requests_are_told_apart() {
    let unknown = take_request(b"0.0.1     9         ");
    assert_eq!(unknown, Err(RequestError::Type));
    let answer = Answer::Failure(RequestError::Type.number()).encode();
    assert_eq!(answer, b"2         -1111     ");
    let whole = query("zip= 37901").encode();
    for cut in [0, 19, 20, 511] {
        assert_eq!(take_request(&whole[..cut]), Ok(None), "{cut}");
    }
    assert_eq!(take_request(&whole), Ok(Some(query("zip= 37901"))));
}

/// Goal: every request and answer is read as it was written; the count as the real client
/// reads it, in fields of ten.
#[test]
fn requests_and_answers_survive() {
    let pair = vec![depot("a.example", 1), depot("b.example", 65535)];
    let resolution = Request::Resolution {
        kind: Resolution::Geographic,
        sources: pair.clone(),
        targets: pair[..1].to_vec(),
    };
    let proximity = Request::Proximity {
        location: "airport= TYS".to_owned(),
    };
    for request in [resolution.clone(), proximity.clone(), Request::Count] {
        assert_eq!(take_request(&request.encode()), Ok(Some(request)));
    }
    let count = Answer::Count {
        total: 21,
        live: 20,
    };
    let bytes = count.encode();
    assert_eq!((bytes.len(), &bytes[..12]), (46, &b"1         21"[..]));
    assert_eq!(Answer::parse(&Request::Count, &bytes), Ok(count));
    let near = Answer::Proximity(vec![("a.example".to_owned(), 65.455_319)]);
    let bytes = near.encode();
    assert!(bytes.ends_with(b"65.455319 "));
    assert_eq!(Answer::parse(&proximity, &bytes), Ok(near));
    let values = Answer::Resolution {
        sources: 2,
        targets: 1,
        values: vec![0.0, 12345.5],
    };
    assert_eq!(Answer::parse(&resolution, &values.encode()), Ok(values));
}

/// Goal: numbers of depots that no answer could hold are refused before anything is read.
#[test]
fn sizes_are_bounded() {
    let head = |sources: &str, targets: &str| {
        format!(
            "{:<10}{:<10}{:<10}{sources:<10}{targets:<10}",
            "0.0.1", "5", "2"
        )
    };
    for (sources, targets) in [("4097", "1"), ("100", "100"), ("-1", "1"), ("x", "1")] {
        let found = take_request(head(sources, targets).as_bytes());
        assert_eq!(found, Err(RequestError::Malformed), "{sources} {targets}");
    }
    assert_eq!(take_request(head("64", "64").as_bytes()), Ok(None));
}

proptest! {
    /// Goal: no bytes make either end fail; what is read is read again as the same.
    #[test]
    fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..600), kind in 0u8..7) {
        let mut bytes = bytes;
        let head = format!("{:<10}{kind:<10}", "0.0.1");
        let _ = take_request(&bytes);
        bytes.splice(..0, head.bytes());
        if let Ok(Some(request)) = take_request(&bytes) {
            prop_assert_eq!(take_request(&request.encode()), Ok(Some(request.clone())));
            let _ = Answer::parse(&request, &bytes);
        }
    }
}
