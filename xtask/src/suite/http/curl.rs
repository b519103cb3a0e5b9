//! curl: a client that many have, with its own idea of HTTP.

use std::fs;

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::call::Call;
use crossdock_nfs3::{Location, Name, Reply};
use crossdock_tests_crash::client::Client;
use serde_json::Value;

use super::web::{Web, expect_same};
use crate::suite::cli::job::{self, BIG_BYTES, LENGTHS_BYTES};
use crate::suite::cli::program::text;

/// What curl is to tell of a transfer.
const TOLD: &str = "%{http_code} %{size_download} %{size_upload} %{num_connects}";

/// What has come before a download is resumed.
const HAD_BYTES: usize = 1_000_001;

/// What curl told of a transfer, whose content is in the file `received`.
#[derive(Debug)]
struct Transfer {
    status: u64,
    downloaded: usize,
    uploaded: usize,
    connections: u64,
}

/// Runs curl with these words.
fn transfer(web: &Web<'_>, words: &[&str]) -> Result<Transfer> {
    let received = web.local("received");
    let words = [&["--output", text(&received)?, "--write-out", TOLD], words].concat();
    let told = String::from_utf8(web.curl(&words)?)?;
    let numbers: Vec<&str> = told.split(' ').collect();
    let &[status, downloaded, uploaded, connections] = numbers.as_slice() else {
        anyhow::bail!("curl told {told}");
    };
    Ok(Transfer {
        status: status.parse()?,
        downloaded: downloaded.parse()?,
        uploaded: uploaded.parse()?,
        connections: connections.parse()?,
    })
}

fn expect(web: &Web<'_>, status: u64, words: &[&str]) -> Result<Transfer> {
    let told = transfer(web, words)?;
    ensure!(
        told.status == status,
        "{words:?}: {told:?} instead of {status}"
    );
    Ok(told)
}

/// Files that were written over NFS: whole, in parts, resumed, by an old client.
pub(super) fn reads(web: &Web<'_>) -> Result<()> {
    job::write(&web.up, "nfs")?;
    let received = web.local("received");
    for length in LENGTHS_BYTES {
        let content = job::content(&format!("nfs-{length}"), length);
        let url = web.url(&format!("/nfs-{length}"));
        for version in ["--http1.1", "--http1.0"] {
            fs::write(&received, b"")?;
            expect(web, 200, &[version, &url])?;
            expect_same(&received, &content)?;
        }
        let head = String::from_utf8(web.curl(&["--head", &url])?)?;
        let is_right = head.starts_with("HTTP/1.1 200 ")
            && head.contains(&format!("Content-Length: {length}\r\n"))
            && head.contains("ETag: \"")
            && head.ends_with("\r\n\r\n");
        ensure!(is_right, "{head}");
    }
    let url = web.url(&format!("/nfs-{BIG_BYTES}"));
    let content = job::content(&format!("nfs-{BIG_BYTES}"), BIG_BYTES);
    let last = BIG_BYTES - 1;
    for (range, part) in [
        ("0-99", 0..100),
        ("262100-262200", 262_100..262_201),
        ("4000000-", 4_000_000..BIG_BYTES),
        ("-77", BIG_BYTES - 77..BIG_BYTES),
        ("4194303-9999999", last..BIG_BYTES),
    ] {
        expect(web, 206, &["--range", range, &url])?;
        expect_same(&received, &content[part]).with_context(|| range.to_owned())?;
    }
    expect(web, 416, &["--range", "4194304-", &url])?;
    parts(web, &url, &content)?;
    resumed(web, &url, &content)?;
    // Several files over one connection.
    let urls: Vec<String> = ["/nfs-1", "/nfs-60001", "/nfs-70001"]
        .iter()
        .flat_map(|path| ["--output".to_owned(), "/dev/null".to_owned(), web.url(path)])
        .collect();
    let words = [
        &["--write-out".to_owned(), "%{num_connects}".to_owned()],
        &urls[..],
    ]
    .concat();
    let told = String::from_utf8(web.curl(&words)?)?;
    ensure!(told == "100", "connections: {told}");
    Ok(())
}

/// Several ranges in one answer (RFC 9110 section 14.6).
fn parts(web: &Web<'_>, url: &str, content: &[u8]) -> Result<()> {
    let ranges = [10..20_usize, 1_000_000..1_300_000, 4_194_300..4_194_304];
    let head = web.local("head");
    let words = [
        "--dump-header",
        text(&head)?,
        "--range",
        "10-19,1000000-1299999,-4",
        url,
    ];
    expect(web, 206, &words)?;
    let head = fs::read_to_string(head)?;
    let boundary = head
        .split_once("multipart/byteranges; boundary=")
        .and_then(|(_, rest)| rest.lines().next())
        .with_context(|| head.clone())?;
    let boundary = boundary.trim_matches('"');
    let mut expected = Vec::new();
    for range in ranges {
        let of = format!("bytes {}-{}/{BIG_BYTES}", range.start, range.end - 1);
        expected.push((of, &content[range]));
    }
    let mut rest = &fs::read(web.local("received"))?[..];
    for (of, part) in expected {
        let end = find(rest, b"\r\n\r\n").context("a part without a head")?;
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        ensure!(
            head.contains(&format!("--{boundary}\r\n")) && head.contains(&of),
            "{head}"
        );
        rest = &rest[end + 4..];
        ensure!(rest.starts_with(part), "{of} has other bytes");
        rest = &rest[part.len()..];
    }
    let end = format!("\r\n--{boundary}--\r\n");
    ensure!(rest == end.as_bytes(), "{}", String::from_utf8_lossy(rest));
    Ok(())
}

/// A download that was broken off goes on where it was.
fn resumed(web: &Web<'_>, url: &str, content: &[u8]) -> Result<()> {
    let received = web.local("received");
    fs::write(&received, &content[..HAD_BYTES])?;
    let told = expect(web, 206, &["--continue-at", "-", url])?;
    ensure!(told.downloaded == BIG_BYTES - HAD_BYTES, "{told:?}");
    expect_same(&received, content)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}

/// What curl uploads is read over NFS.
pub(super) fn writes(web: &Web<'_>) -> Result<()> {
    let shown = web.authorization();
    for length in LENGTHS_BYTES {
        let local = web.local("sent");
        fs::write(&local, job::content(&format!("put-{length}"), length))?;
        let url = web.url(&format!("/put-{length}"));
        let local = text(&local)?;
        for status in [201, 204] {
            // A client of curl's size waits for 100 Continue above 1 MiB; here always.
            let expects = [
                "-H",
                &shown,
                "-H",
                "Expect: 100-continue",
                "-T",
                local,
                &url,
            ];
            let told = expect(web, status, &expects)?;
            ensure!(told.uploaded == length && told.connections == 1, "{told:?}");
        }
    }
    job::verify(&web.up, "put")?;
    for length in LENGTHS_BYTES {
        let name = format!("chunked-{length}");
        let local = web.local("sent");
        fs::write(&local, job::content(&name, length))?;
        let mut curl = web.curl_command();
        curl.args(["--fail", "-H", &shown, "-T", "-"])
            .arg(web.url(&format!("/{name}")));
        curl.stdin(fs::File::open(&local)?);
        web.run(curl)?;
    }
    job::verify(&web.up, "chunked")?;
    // Who may not write is told before it sends anything.
    let big = web.local("sent");
    let url = web.url("/nobody");
    let told = expect(
        web,
        401,
        &["-H", "Expect: 100-continue", "-T", text(&big)?, &url],
    )?;
    ensure!(told.uploaded == 0, "{told:?}");

    directories(web)
}

/// Directories are made and removed, and so are files.
fn directories(web: &Web<'_>) -> Result<()> {
    let shown = web.authorization();
    let local = web.local("sent");
    fs::write(&local, b"inside")?;
    let local = text(&local)?;
    let (directory, file) = (web.url("/made/"), web.url("/made/file"));
    let put = |status, url: &str| {
        expect(web, status, &["-H", &shown, "-T", local, url]).context(url.to_owned())
    };
    put(409, &file)?;
    let make = ["-H", &shown, "-X", "PUT", &directory];
    expect(web, 201, &make)?;
    expect(web, 204, &make)?;
    put(201, &file)?;
    expect(web, 409, &["-H", &shown, "-X", "PUT", &web.url("/made")])?;
    // Where the slash is missing the client is led on.
    expect(web, 301, &[&web.url("/made")])?;
    expect(web, 200, &["--location", &web.url("/made")])?;
    let remove = |status, url: &str| expect(web, status, &["-H", &shown, "-X", "DELETE", url]);
    remove(409, &directory)?;
    remove(204, &file)?;
    remove(404, &file)?;
    remove(204, &directory)?;
    expect(web, 404, &[&directory])?;
    remove(409, &web.url("/"))?;
    Ok(())
}

/// What a client has is not sent again; lists are for people and for programs.
pub(super) fn conditions_and_lists(web: &Web<'_>) -> Result<()> {
    let (tag, copy) = (web.local("tag"), web.local("copy"));
    let url = web.url("/watched");
    web.put("/watched", b"first")?;
    let words = [
        "--etag-save",
        text(&tag)?,
        "--etag-compare",
        text(&tag)?,
        "--write-out",
        "%{http_code}",
        "--output",
        text(&copy)?,
        &url,
    ];
    let ask = || Ok::<_, anyhow::Error>(String::from_utf8(web.curl(&words)?)?);
    fs::write(&tag, b"")?;
    ensure!(ask()? == "200", "the first time");
    ensure!(ask()? == "304", "the same again");
    web.put("/watched", b"second")?;
    ensure!(ask()? == "200", "another one");
    expect_same(&copy, b"second")?;
    expect(web, 304, &["--time-cond", "1 Jan 2037", &url])?;
    expect(web, 200, &["--time-cond", "-1 Jan 2037", &url])?;
    expect(web, 412, &["--time-cond", "-1 Jan 2001", &url])?;

    let made = [
        "-H",
        &web.authorization(),
        "-X",
        "PUT",
        &web.url("/listed/"),
    ];
    expect(web, 201, &made)?;
    web.put("/listed/%3Cb%3E&.txt", b"12345")?;
    web.put("/listed/z", &[0; 3000])?;
    let page = String::from_utf8(web.curl(&[&web.url("/listed/")])?)?;
    let is_right = page.contains("href=\"./%3Cb%3E%26.txt\"")
        && page.contains("&lt;b&gt;&amp;.txt")
        && page.contains("2.9 KiB")
        && !page.contains("<b>");
    ensure!(is_right, "{page}");
    let list = list(web, "/listed/")?;
    let entries = list["entries"].as_array().context("no entries")?;
    ensure!(
        list["path"] == "/listed/"
            && entries.len() == 2
            && entries[0]["name"] == "<b>&.txt"
            && entries[0]["size"] == 5
            && entries[1]["kind"] == "file",
        "{list}"
    );
    // A page of its own is shown in the list's place.
    web.put("/listed/index.html", b"<p>mine</p>")?;
    let page = String::from_utf8(web.curl(&[&web.url("/listed/")])?)?;
    ensure!(page == "<p>mine</p>", "{page}");
    let page = String::from_utf8(web.curl(&[&web.url("/listed/?list")])?)?;
    ensure!(page.contains("./index.html"), "{page}");
    Ok(())
}

fn list(web: &Web<'_>, path: &str) -> Result<Value> {
    let words = ["-H", "Accept: application/json", &web.url(path)];
    Ok(serde_json::from_slice(&web.curl(&words)?)?)
}

/// A name of any bytes is the same over HTTP and over NFS.
pub(super) fn names(web: &Web<'_>) -> Result<()> {
    let shown = web.authorization();
    expect(web, 201, &["-H", &shown, "-X", "PUT", &web.url("/names/")])?;
    let mut client = Client::connect(web.up.nfs)?;
    let directory = job::lookup(&mut client, "names")?;
    let names: [&[u8]; 6] = [
        b"\xff\x01 ?#%",
        b"a:b",
        b"\\..",
        "\u{e4}\u{1f600}".as_bytes(),
        b"\r\nSet-Cookie: x",
        &[b'n'; 255],
    ];
    for name in names {
        let escaped: String = name.iter().map(|byte| format!("%{byte:02X}")).collect();
        web.put(&format!("/names/{escaped}"), name)?;
        let location = Location {
            directory: directory.as_handle(),
            name: Name(name),
        };
        let reply = client.call(&Call::Lookup(location))?;
        ensure!(
            matches!(reply, Reply::Lookup(Ok(_))),
            "{escaped}: {reply:?}"
        );
        expect(web, 200, &[&web.url(&format!("/names/{escaped}"))])?;
        expect_same(&web.local("received"), name)?;
    }
    // Each link of the list leads to its file.
    let list = list(web, "/names/")?;
    let entries = list["entries"].as_array().context("no entries")?;
    ensure!(entries.len() == names.len(), "{list}");
    for entry in entries {
        let href = entry["href"].as_str().context("no link")?;
        let told = expect(
            web,
            200,
            &["--path-as-is", &web.url(&format!("/names/{href}"))],
        )?;
        ensure!(entry["size"] == told.downloaded, "{entry}: {told:?}");
    }
    let too_long = format!("/names/{}", "n".repeat(256));
    expect(web, 400, &["-H", &shown, "-X", "PUT", &web.url(&too_long)])?;
    Ok(())
}
