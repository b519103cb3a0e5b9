//! Pieces of a file straight from the nodes that have them: `crossdock sign --nodes`, and the
//! nodes' own HTTP door.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{Call, StableHow, Write};
use crossdock_nfs3::{HandleBuffer, Reply};
use crossdock_tests_crash::client::Client;
use crossdock_types::Payload;
use serde_json::Value;

use super::web::Web;
use super::wire::{Answer, Wire};
use crate::suite::cli::job::{self, BIG_BYTES};

const NAME: &str = "pieces";

/// What lies below it is sent by the gateway.
const HEAD_BYTES: usize = 64 << 10;

/// How long a node may take to forget what was removed, or to start, and a URL to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often it is looked whether it has.
const PAUSE: Duration = Duration::from_millis(100);

/// A piece as the program tells it.
#[derive(Clone, Debug)]
struct Piece {
    offset: usize,
    bytes: usize,
    node: Option<u64>,
    url: String,
    range: Option<String>,
}

pub(super) fn check(web: &Web<'_>) -> Result<()> {
    let mut client = Client::connect(web.up.nfs)?;
    job::write_one(&mut client, NAME, BIG_BYTES)?;
    let file = job::lookup(&mut client, NAME)?;
    let content = job::content(NAME, BIG_BYTES);
    let pieces = sign(web, &[])?;
    doors(web, &pieces).context("doors")?;
    all(web, &pieces, &content).context("all pieces")?;
    part(web, &pieces, &content).context("a part")?;
    refused(web, &pieces).context("refused")?;
    stopped(web, &pieces).context("a node that is stopped")?;
    overwritten(web, &mut client, &file, &pieces).context("overwritten")?;
    removed(web, &pieces).context("removed")?;
    small(web).context("a small file")
}

fn sign(web: &Web<'_>, words: &[&str]) -> Result<Vec<Piece>> {
    let path = format!("/{NAME}");
    sign_path(web, &[&["sign", &path, "--nodes"], words].concat())
}

fn sign_path(web: &Web<'_>, words: &[&str]) -> Result<Vec<Piece>> {
    let signed = web.up.ask(web.stage, words)?.json(0)?;
    let pieces = signed["pieces"].as_array().context("no pieces")?.iter();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let number = |value: &Value| value.as_u64().context("no number");
    let piece = |piece: &Value| {
        Ok(Piece {
            offset: usize::try_from(number(&piece["offset"])?)?,
            bytes: usize::try_from(number(&piece["bytes"])?)?,
            node: piece["node"].as_u64(),
            url: text(&piece["url"]).context("no URL")?,
            range: text(&piece["range"]),
        })
    };
    pieces.map(piece).collect()
}

/// Those that nodes send.
fn at_nodes(pieces: &[Piece]) -> Result<(&Piece, &Piece)> {
    let mut pieces = pieces.iter().filter(|piece| piece.node.is_some());
    let first = pieces.next().context("no node sends anything")?;
    Ok((first, pieces.next_back().context("one piece")?))
}

/// The door is told by `status`, for each node, and URLs lead there.
fn doors(web: &Web<'_>, pieces: &[Piece]) -> Result<()> {
    let status = web.up.ask(web.stage, &["status"])?.json(0)?;
    let doors = status["doors"].as_array().context("doors")?;
    let (name, scheme) = match web.tls {
        Some(_) => ("node-https", "https"),
        None => ("node-http", "http"),
    };
    let door = doors.iter().find(|door| door["name"] == name);
    let address = door.context("no door of nodes")?["address"].as_str();
    let address = address.context("no address")?;
    for node in status["nodes"].as_array().context("nodes")? {
        let told = node["http"].as_str().context("no door")?;
        let is_secure = told.starts_with("https://");
        ensure!(
            told.trim_start_matches("https://") == address && is_secure == web.tls.is_some(),
            "{node}"
        );
    }
    let start = format!("{scheme}://{address}/o/");
    let mut of_nodes = pieces.iter().filter(|piece| piece.node.is_some());
    ensure!(of_nodes.all(|piece| piece.url.starts_with(&start)));
    Ok(())
}

/// curl puts the file together, from both nodes; the bytes are counted.
fn all(web: &Web<'_>, pieces: &[Piece], content: &[u8]) -> Result<()> {
    for node in [0, 1] {
        let mut pieces = pieces.iter();
        ensure!(pieces.any(|piece| piece.node == Some(node)), "{pieces:?}");
    }
    let before = sent_bytes(web)?;
    let mut got = Vec::new();
    for piece in pieces {
        ensure!(piece.offset == got.len(), "a gap before {piece:?}");
        let mut words = vec!["--fail", piece.url.as_str()];
        let range = piece
            .range
            .as_deref()
            .and_then(|it| it.strip_prefix("bytes="));
        ensure!(range.is_some() != piece.node.is_some(), "{piece:?}");
        words.extend(range.into_iter().flat_map(|range| ["--range", range]));
        let bytes = web.curl(&words)?;
        ensure!(bytes.len() == piece.bytes, "{} of {piece:?}", bytes.len());
        got.extend(bytes);
    }
    ensure!(got == content, "other bytes");
    let sent = sent_bytes(web)? - before;
    let expected = u64::try_from(content.len() - HEAD_BYTES)?;
    ensure!(
        sent == expected,
        "{sent} bytes were counted, not {expected}"
    );
    Ok(())
}

/// What the nodes' door has sent.
fn sent_bytes(web: &Web<'_>) -> Result<u64> {
    let answer = ask("GET", &format!("http://{}/metrics", web.up.admin), "")?;
    let text = String::from_utf8(answer.content)?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("crossdock_node_http_sent_bytes_total "));
    Ok(value.context("no such metric")?.trim().parse()?)
}

/// A range within a piece, resumed as one version; and HEAD.
fn part(web: &Web<'_>, pieces: &[Piece], content: &[u8]) -> Result<()> {
    let (piece, _) = at_nodes(pieces)?;
    let whole = web.ask_url("HEAD", &piece.url, "")?;
    let tag = whole.field("etag").context("no tag")?.to_owned();
    ensure!(whole.status == 200 && whole.field("content-length") == Some(&piece.bytes.to_string()));
    let fields = format!("Range: bytes=1000-1999\r\nIf-Range: {tag}\r\n");
    let answer = web.ask_url("GET", &piece.url, &fields)?;
    ensure!(answer.status == 206, "{}", answer.text());
    ensure!(answer.content == content[piece.offset + 1000..][..1000]);
    let known = format!("If-None-Match: {tag}\r\n");
    let answer = web.ask_url("GET", &piece.url, &known)?;
    ensure!(answer.status == 304, "{}", answer.text());
    Ok(())
}

fn refused(web: &Web<'_>, pieces: &[Piece]) -> Result<()> {
    let (piece, other) = at_nodes(pieces)?;
    let url = &piece.url;
    let (front, signature) = url.rsplit_once('=').context("no signature")?;
    let digit = if signature.starts_with('0') { '1' } else { '0' };
    let changed = format!("{front}={digit}{}", &signature[1..]);
    let longer = url.replace(&format!("length={}", piece.bytes), "length=999999");
    let (_, version) = url.split_once("version=").context("no version")?;
    let newest = url.replace(
        &format!("version={version}"),
        &format!("version=9{version}"),
    );
    let (_, of_other) = other.url.split_once('?').context("no query")?;
    let (object, _) = url.split_once('?').context("no query")?;
    let mixed = format!("{object}?{of_other}");
    for (url, status) in [
        (&changed, 403),
        (&longer, 403),
        (&newest, 403),
        (&mixed, 403),
        (&format!("{url}&x=1"), 400),
    ] {
        let answer = web.ask_url("GET", url, "")?;
        ensure!(answer.status == status, "{url}: {}", answer.text());
    }
    let answer = web.ask_url("PUT", url, "Content-Length: 0\r\n")?;
    ensure!(answer.status == 405, "{}", answer.text());
    ensure!(answer.field("allow") == Some("GET, HEAD"), "{answer:?}");
    let answer = web.ask_url("PROPFIND", url, "")?;
    ensure!(answer.status == 501, "{}", answer.text());
    let filler = "x".repeat(20_000);
    let answer = web.ask_url("GET", url, &format!("Filler: {filler}\r\n"))?;
    ensure!(answer.status == 431, "{}", answer.text());
    let short = sign(web, &["--for", "1s"])?;
    let url = &at_nodes(&short)?.0.url;
    let mut ended = || Ok(web.ask_url("GET", url, "")?.status == 403);
    until(&mut ended).context("a URL that has ended")?;
    let words = ["sign", &format!("/{NAME}"), "--nodes", "--for", "1h"];
    let refused = web.up.ask(web.stage, &words)?;
    refused.expect(1, &["300 s"])
}

/// Its URLs say so, and hold again when it is back.
fn stopped(web: &Web<'_>, pieces: &[Piece]) -> Result<()> {
    let of_1 = pieces.iter().find(|piece| piece.node == Some(1));
    let url = &of_1.context("nothing at node 1")?.url;
    web.up.ask(web.stage, &["node", "stop", "1"])?.json(0)?;
    let answer = web.ask_url("GET", url, "")?;
    ensure!(answer.status == 503, "{}", answer.text());
    web.up.ask(web.stage, &["node", "start", "1"])?.json(0)?;
    until(&mut || Ok(web.ask_url("GET", url, "")?.status == 200))
}

/// What was written over is gone from under its URL; a piece beside it stays.
fn overwritten(
    web: &Web<'_>,
    client: &mut Client,
    file: &HandleBuffer,
    pieces: &[Piece],
) -> Result<()> {
    let (first, last) = at_nodes(pieces)?;
    let reply = client.call(&Call::Write(Write {
        file: file.as_handle(),
        offset: u64::try_from(first.offset + 5)?,
        count_bytes: 5,
        stable: StableHow::FileSync,
        data: Payload::from(Bytes::from_static(b"other")),
    }))?;
    ensure!(matches!(reply, Reply::Write(Ok(_))), "{reply:?}");
    let answer = web.ask_url("GET", &first.url, "")?;
    ensure!(answer.status == 410, "{}", answer.text());
    let answer = web.ask_url("GET", &last.url, "")?;
    ensure!(answer.status == 200, "{}", answer.text());
    Ok(())
}

/// A file that another one has replaced is gone from the nodes, sooner or later.
fn removed(web: &Web<'_>, pieces: &[Piece]) -> Result<()> {
    web.put(&format!("/{NAME}"), b"another file")?;
    let (_, last) = at_nodes(pieces)?;
    until(&mut || match web.ask_url("GET", &last.url, "")?.status {
        200 => Ok(false),
        404 => Ok(true),
        other => bail!("{other}"),
    })
}

/// What lies at its site only is the gateway's.
fn small(web: &Web<'_>) -> Result<()> {
    let pieces = sign(web, &[])?;
    let [piece] = &pieces[..] else {
        bail!("{pieces:?}");
    };
    ensure!(piece.node.is_none() && piece.range.as_deref() == Some("bytes=0-11"));
    ensure!(web.curl(&["--fail", &piece.url])? == b"another file");
    Ok(())
}

/// Asks for a URL over a connection of its own, without TLS.
pub(in crate::suite) fn ask(method: &str, url: &str, fields: &str) -> Result<Answer> {
    let (address, _) = parts(url)?;
    ask_over(Wire::connect(address)?, method, url, fields)
}

/// Asks for a URL over this connection.
pub(super) fn ask_over(mut wire: Wire, method: &str, url: &str, fields: &str) -> Result<Answer> {
    let (address, target) = parts(url)?;
    if method == "HEAD" {
        wire.expect_head();
    }
    let request = format!("{method} /{target} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n");
    wire.send(request.as_bytes())?;
    wire.answer()?.context("the connection ended")
}

/// Where a URL leads, and to what.
pub(in crate::suite) fn parts(url: &str) -> Result<(SocketAddr, &str)> {
    let (_, rest) = url.split_once("://").context("no URL")?;
    let (address, target) = rest.split_once('/').context("no path")?;
    Ok((address.parse()?, target))
}

/// Waits until it is so.
fn until(is_so: &mut dyn FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !is_so()? {
        ensure!(began.elapsed() < PATIENCE, "it did not come about");
        thread::park_timeout(PAUSE);
    }
    Ok(())
}
