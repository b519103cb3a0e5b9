//! Who may do what: tokens of all kinds, and URLs that were signed.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::web::Web;

/// For how long the URL holds that is to have ended.
const SHORT: Duration = Duration::from_secs(1);

pub(super) fn check(web: &Web<'_>) -> Result<()> {
    tokens(web).context("tokens")?;
    signatures(web).context("signed URLs")
}

fn tokens(web: &Web<'_>) -> Result<()> {
    status(web, "PUT", "/scoped/", &web.token, 201)?;
    web.put("/scoped/file", b"scoped")?;
    web.put("/beside", b"beside")?;
    let reader = web.make_token(&["--read"])?;
    let writer = web.make_token(&["--write"])?;
    let scoped = web.make_token(&["--read", "--write", "--path", "/scoped"])?;
    let user = web.make_token(&["--write", "--uid", "1000", "--gid", "1000"])?;
    let secret = |made: &Value| {
        Ok::<_, anyhow::Error>(made["token"].as_str().context("no token")?.to_owned())
    };
    let [reader_text, writer_text, scoped_text, user_text] = [
        secret(&reader)?,
        secret(&writer)?,
        secret(&scoped)?,
        secret(&user)?,
    ];
    for (method, path, token, expected) in [
        ("GET", "/beside", "", 200),
        ("PUT", "/new", "", 401),
        ("DELETE", "/beside", "", 401),
        ("GET", "/beside", &reader_text, 200),
        ("PUT", "/new", &reader_text, 403),
        ("DELETE", "/beside", &reader_text, 403),
        ("PUT", "/new", &writer_text, 201),
        ("DELETE", "/new", &writer_text, 204),
        ("PUT", "/scoped/new", &scoped_text, 201),
        ("PUT", "/scoped2", &scoped_text, 403),
        ("DELETE", "/beside", &scoped_text, 403),
        // Dots are resolved before anything is compared.
        ("PUT", "/scoped/../stolen", &scoped_text, 403),
        ("PUT", "/scoped/%2e%2e/stolen", &scoped_text, 403),
        // The root directory is root's.
        ("PUT", "/new", &user_text, 403),
        ("GET", "/beside", "crossdockweb1-00000000-00", 401),
    ] {
        status(web, method, path, token, expected)?;
    }
    for made in [&reader, &writer, &scoped, &user] {
        let id = made["id"].as_str().context("no number")?;
        web.up.ask(web.stage, &["token", "revoke", id])?.json(0)?;
    }
    for token in [&reader_text, &scoped_text] {
        status(web, "GET", "/scoped/file", token, 401)?;
    }
    Ok(())
}

fn status(web: &Web<'_>, method: &str, path: &str, token: &str, expected: u16) -> Result<()> {
    let shown = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{shown}Content-Length: 0\r\n\r\n");
    let answer = web.ask(request)?;
    ensure!(
        answer.status == expected,
        "{method} {path} with {token:.24}: {} instead of {expected}",
        answer.text()
    );
    ensure!(
        (answer.status == 401) == answer.field("www-authenticate").is_some()
            || answer.status == 403,
        "{method} {path}: {answer:?}"
    );
    Ok(())
}

/// A signed URL is for its method and path, and for its time. The file is one that
/// others may not read.
fn signatures(web: &Web<'_>) -> Result<()> {
    web.put("/beside", b"beside")?;
    let target = |words: &[&str]| {
        let signed = web
            .up
            .ask(web.stage, &[&["sign"], words].concat())?
            .json(0)?;
        let url = signed["url"].as_str().context("no URL")?;
        let target = url.strip_prefix(&format!("http://{}", web.address));
        Ok::<_, anyhow::Error>(target.context("another door")?.to_owned())
    };
    let get = target(&["/beside", "--for", "1h"])?;
    let short = target(&["/beside", "--for", "1s"])?;
    let put = target(&["/signed", "--method", "PUT", "--for", "1h"])?;
    let until = std::time::Instant::now() + 2 * SHORT;
    for (method, target, expected) in [
        ("GET", get.clone(), 200),
        ("HEAD", get.clone(), 200),
        ("GET", get.replace("/beside", "/watched"), 403),
        ("GET", get.replace("/beside", "/beside/"), 403),
        ("GET", get.replace("expires=", "expires=9"), 403),
        ("GET", format!("{get}0"), 400),
        ("GET", format!("{get}&x=1"), 400),
        ("PUT", get.clone(), 403),
        ("DELETE", get.clone(), 403),
        ("GET", put.clone(), 403),
        ("PUT", put.clone(), 201),
        ("DELETE", put, 403),
    ] {
        signed(web, method, &target, expected)?;
    }
    while std::time::Instant::now() < until {
        thread::park_timeout(SHORT / 10);
    }
    signed(web, "GET", &short, 403)?;
    let both = format!(
        "GET {get} HTTP/1.1\r\nHost: x\r\n{}\r\n\r\n",
        web.authorization()
    );
    ensure!(web.ask(both)?.status == 400, "a token beside a signature");
    Ok(())
}

fn signed(web: &Web<'_>, method: &str, target: &str, expected: u16) -> Result<()> {
    let mut wire = web.connect()?;
    if method == "HEAD" {
        wire.expect_head();
    }
    let request = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    wire.send(request.as_bytes())?;
    let answer = wire.answer()?.context("no answer")?;
    ensure!(
        answer.status == expected,
        "{method} {target}: {} instead of {expected}",
        answer.text()
    );
    Ok(())
}
