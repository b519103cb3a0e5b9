//! What programs of the family and we have said to each other is read and written as it was
//! said.

mod transcript;

use std::collections::BTreeMap;

use crossdock_ibp::answer::{self, AnswerError};
use crossdock_ibp::{Command, Manage, Request, Status, StatusQuery, Totals, Version};
use transcript::Side;

/// Goal: every request of theirs is understood, and means the same when it is written again;
/// every answer of theirs is understood by who has asked.
#[test]
fn everything_is_understood() {
    for transcript in transcript::all() {
        let mut asked: BTreeMap<u64, Request> = BTreeMap::new();
        let mut answers = 0;
        for said in &transcript.said {
            let at = format!("{}: {}", transcript.name, said.bytes.escape_ascii());
            match said.side {
                Side::Asks => {
                    let (line, rest) = said.line();
                    // libdlt has a blank behind the line.
                    assert!(rest.trim_ascii().is_empty(), "{at}");
                    // What nobody here knows is refused, and answered as such.
                    let Ok(request) = Request::parse(line.as_bytes()) else {
                        asked.remove(&said.connection);
                        continue;
                    };
                    let written = request.to_string();
                    let again = Request::parse(written.trim_end().as_bytes());
                    assert_eq!(again.as_ref(), Ok(&request), "{at}");
                    asked.insert(said.connection, request);
                }
                Side::Stores => {}
                Side::Answers => {
                    let (line, rest) = said.line();
                    let rest = transcript::without_pause(rest);
                    match asked.get(&said.connection) {
                        Some(request) => {
                            let is_read = is_read(request, line, rest);
                            assert!(is_read.is_ok(), "{at} to {request}: {is_read:?}");
                        }
                        None => assert!(line.trim().starts_with('-'), "{at}"),
                    }
                    answers += 1;
                }
            }
        }
        assert!(answers > 0, "{}", transcript.name);
    }
}

/// Whether who has sent the request can make anything of the answer; a refusal is one.
fn is_read(request: &Request, line: &str, rest: &[u8]) -> Result<(), AnswerError> {
    let line = line.as_bytes();
    let read = match &request.command {
        Command::Allocate { .. } => answer::read_capabilities(line).map(drop),
        // First the go-ahead, then how much was stored.
        Command::Store { .. } | Command::Write { .. } => {
            answer::read_done(line).or_else(|_| answer::read_bytes(line).map(drop))
        }
        Command::Load { .. } => answer::read_bytes(line).map(|bytes| {
            assert_eq!(rest.len() as u64, bytes);
        }),
        Command::Send { .. } => answer::read_bytes(line).map(drop),
        Command::Manage { manage, .. } => match manage {
            Manage::Probe => answer::read_probe(line).map(drop),
            _ => answer::read_done(line),
        },
        Command::Status { query, .. } => match (request.version, query) {
            (Version::V031, StatusQuery::Inquire { .. }) => Totals::parse(line).map(drop),
            (Version::V040, StatusQuery::Inquire { .. }) => {
                answer::read_bytes(line).and_then(|bytes| {
                    assert_eq!(rest.len() as u64, bytes);
                    Status::parse(rest)
                        .map(drop)
                        .map_err(|_| AnswerError::Malformed)
                })
            }
            (_, StatusQuery::Resources) => answer::read_resources(line).map(drop),
            (_, StatusQuery::Change { .. }) => Ok(()),
        },
    };
    match read {
        Err(AnswerError::Refused { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}
