//! Requests byte by byte, each with the section of RFC 9110 or 9112 that says what is to
//! be answered, and whether the connection goes on.
//!
//! In a row's text `{AUTH}` is a field line with a token, `{TAG}` the entity tag of
//! `/case/file`, and letters up to `\u{ff}` are single bytes.

mod messages;
mod semantics;
mod smuggling;

use anyhow::{Context, Result, ensure};

use super::web::Web;

/// What becomes of the connection behind the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It serves another request.
    Kept,
    /// It ends without another byte.
    Closed,
}

/// Section, what is sent, what is answered in turn, and what becomes of the connection.
type Case = (&'static str, &'static str, &'static [u16], End);

/// Content of `/case/file`.
const CONTENT: &[u8; 100] =
    b"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

/// The least number of rows: none goes unseen.
const ROWS_MIN: usize = 150;

pub(super) fn check(web: &Web<'_>) -> Result<()> {
    let shown = web.authorization();
    let make = format!("PUT /case/ HTTP/1.1\r\nHost: x\r\n{shown}\r\n\r\n");
    ensure!(web.ask(make)?.status == 201, "the directory");
    let tag = web.put("/case/file", CONTENT)?;
    web.put("/case/empty", b"")?;
    web.put("/case/dots..", b"dots")?;
    let mut wrong = Vec::new();
    let rows = [messages::ROWS, semantics::ROWS, smuggling::ROWS].concat();
    ensure!(rows.len() >= ROWS_MIN, "{} rows", rows.len());
    for case in &rows {
        let text = case.1.replace("{AUTH}", &format!("{shown}\r\n"));
        let text = text.replace("{TAG}", &tag);
        if let Err(error) = run(web, case.2, case.3, &bytes(&text)?) {
            wrong.push(format!("section {}: {:?}: {error:#}", case.0, case.1));
        }
    }
    long_heads(web)?;
    ensure!(
        wrong.is_empty(),
        "{} of {} rows:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
    // What a row was to leave alone is as it was.
    let answer = web.get("/case/file")?;
    ensure!(
        answer.content == CONTENT && answer.field("etag") == Some(&tag),
        "{answer:?}"
    );
    println!("{} rows of RFC 9110 and 9112", rows.len());
    Ok(())
}

fn run(web: &Web<'_>, expected: &[u16], end: End, request: &[u8]) -> Result<()> {
    let mut wire = web.connect()?;
    wire.send_what_is_taken(request)?;
    for (number, &status) in expected.iter().enumerate() {
        if number == 0 && request.starts_with(b"HEAD ") {
            wire.expect_head();
        }
        let answer = wire.answer()?;
        let answer = answer.with_context(|| format!("the connection ended instead of {status}"))?;
        ensure!(
            answer.status == status,
            "{} instead of {status}",
            answer.text()
        );
        ensure!(
            answer.status < 200 || answer.field("date").is_some(),
            "9110 6.6.1: no Date: {answer:?}"
        );
        ensure!(
            (answer.status == 405) == answer.field("allow").is_some()
                || request.starts_with(b"OPTIONS "),
            "9110 15.5.6: Allow: {answer:?}"
        );
    }
    if end == End::Kept {
        wire.get("/case/file", true)?;
        let answer = wire.answer()?.context("the connection was not kept")?;
        ensure!(
            answer.status == 200 && answer.content == CONTENT,
            "the next one: {}",
            answer.text()
        );
    }
    ensure!(wire.is_over()?, "the connection goes on");
    Ok(())
}

/// What is too long for a row: a target, a field, and many fields.
fn long_heads(web: &Web<'_>) -> Result<()> {
    let long = "x".repeat(9 << 10);
    let many: String = (0..70).map(|number| format!("X-{number}: x\r\n")).collect();
    for (section, request, status) in [
        (
            "9112 3",
            format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"),
            414,
        ),
        (
            "9110 5.4",
            format!("GET /case/file HTTP/1.1\r\nHost: x\r\nX: {long}{long}\r\n\r\n"),
            431,
        ),
        (
            "9110 5.4",
            format!("GET /case/file HTTP/1.1\r\nHost: x\r\n{many}\r\n"),
            431,
        ),
    ] {
        run(web, &[status], End::Closed, request.as_bytes()).with_context(|| section.to_owned())?;
    }
    // Up to the limits all is served.
    let long = "x".repeat(7 << 10);
    let many: String = (0..60).map(|number| format!("X-{number}: x\r\n")).collect();
    let request = format!("GET /case/file?{long} HTTP/1.1\r\nHost: x\r\n{many}\r\n");
    run(web, &[200], End::Kept, request.as_bytes())
}

/// One byte for each letter.
fn bytes(text: &str) -> Result<Vec<u8>> {
    let byte = |letter: char| u8::try_from(u32::from(letter));
    Ok(text.chars().map(byte).collect::<Result<_, _>>()?)
}
