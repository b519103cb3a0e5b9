//! Many requests at once over one connection (RFC 9112 section 9.3.2): each is answered,
//! in order, by what those before it have left.

use std::thread;

use anyhow::{Context, Result, ensure};

use super::web::Web;
use super::wire::Wire;
use crate::suite::cli::job;

/// Requests that are sent before the first answer is read.
const REQUESTS: usize = 100;

/// Requests of a connection that sends more than the door takes in.
const FLOOD_REQUESTS: usize = 10_000;

/// What is asked, and what has to be answered.
struct Asked {
    request: String,
    status: u16,
    content: Option<Vec<u8>>,
    is_head: bool,
}

impl Asked {
    fn new(method: &str, path: &str, fields: &str, status: u16) -> Self {
        Self {
            request: format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n"),
            status,
            content: None,
            is_head: method == "HEAD",
        }
    }

    fn with(mut self, content: &[u8]) -> Self {
        self.content = Some(content.to_vec());
        self
    }
}

pub(super) fn check(web: &Web<'_>) -> Result<()> {
    let big = job::content("piped", 300_000);
    web.put("/piped-big", &big)?;
    web.put("/piped-small", b"0123456789")?;
    let tag = web.put("/piped-known", b"known")?;
    let all: Vec<Asked> = (0..REQUESTS)
        .map(|number| asked(web, number, &big, &tag))
        .collect();
    let mut wire = web.connect()?;
    let sent: String = all.iter().map(|asked| &asked.request[..]).collect();
    wire.send(sent.as_bytes())?;
    // What was sent before the end is served (section 9.6).
    wire.finish_sending()?;
    for (number, asked) in all.iter().enumerate() {
        expect(&mut wire, asked).with_context(|| format!("{number}: {}", asked.request))?;
    }
    ensure!(wire.is_over()?, "the connection goes on");
    let answer = web.get("/piped-new")?;
    ensure!(answer.status == 404, "{}", answer.text());
    Ok(())
}

/// Ten kinds in turn: what is written is read right behind it, and removed.
fn asked(web: &Web<'_>, number: usize, big: &[u8], tag: &str) -> Asked {
    let shown = web.authorization();
    let round = number / 10;
    match number % 10 {
        0 => Asked::new("GET", "/piped-small", "", 200).with(b"0123456789"),
        1 => Asked::new("HEAD", "/piped-big", "", 200),
        2 => {
            let written = format!("written {round}");
            let fields = format!("{shown}\r\nContent-Length: {}\r\n", written.len());
            let mut put = Asked::new("PUT", "/piped-new", &fields, 201);
            put.request.push_str(&written);
            put
        }
        3 => {
            let written = format!("written {round}");
            Asked::new("GET", "/piped-new", "", 200).with(written.as_bytes())
        }
        4 => Asked::new("GET", "/piped-none", "", 404),
        5 => Asked::new("GET", "/piped-big", "", 200).with(big),
        6 => Asked::new("GET", "/piped-small", "Range: bytes=3-5\r\n", 206).with(b"345"),
        7 => Asked::new(
            "GET",
            "/piped-known",
            &format!("If-None-Match: {tag}\r\n"),
            304,
        ),
        8 => Asked::new("DELETE", "/piped-new", &format!("{shown}\r\n"), 204),
        _ => Asked::new("OPTIONS", "*", "", 204),
    }
}

fn expect(wire: &mut Wire, asked: &Asked) -> Result<()> {
    if asked.is_head {
        wire.expect_head();
    }
    let answer = wire.answer()?.context("the connection ended")?;
    ensure!(answer.status == asked.status, "{}", answer.text());
    if let Some(content) = &asked.content {
        ensure!(
            answer.content == *content,
            "other content: {}",
            answer.content.len()
        );
    }
    Ok(())
}

/// Who sends without reading is not read from, and gets all answers when it reads.
pub(super) fn flood(web: &Web<'_>) -> Result<()> {
    web.put("/piped-small", b"0123456789")?;
    let request = "GET /piped-small HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut wire = web.connect()?;
    let mut writer = wire.second()?;
    thread::scope(|scope| {
        let sender = scope.spawn(move || writer.send(request.repeat(FLOOD_REQUESTS).as_bytes()));
        for number in 0..FLOOD_REQUESTS {
            let answer = wire.answer()?;
            let answer = answer.with_context(|| format!("the connection ended at {number}"))?;
            ensure!(
                answer.content == b"0123456789",
                "{number}: {}",
                answer.text()
            );
        }
        sender
            .join()
            .map_err(|_| anyhow::anyhow!("the sender panicked"))?
    })
}
