//! Files of the volume as exNodes, and files of exNodes in the volume
//! (docs/decisions/0046).

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_ibp::Capability;
use crossdock_nfs3::call::{self, Call, StableHow};
use crossdock_nfs3::{HandleBuffer, Location, Name, Reply, Status};
use crossdock_tests_crash::client::Client;
use crossdock_types::Payload;
use serde_json::Value;

use super::{PATIENCE, Pool, job};

/// Longer than a small file, and in several stripes.
const FILM_BYTES: usize = 6_000_001;

/// What is written over: whole blocks, behind what is at the file's site.
const CHANGED: std::ops::Range<usize> = 2 << 20..(2 << 20) + 65_536;

pub(super) fn run(pool: &Pool<'_>) -> Result<()> {
    let mut client = Client::connect(pool.nfs)?;
    job::write_one(&mut client, "volume", FILM_BYTES)?;
    let film = job::content("volume", FILM_BYTES);
    export(pool, &film).context("export")?;
    small_and_sparse(pool, &mut client).context("small and sparse files")?;
    import(pool, &mut client, &film).context("import")?;
    changed(pool, &mut client, &film).context("a file that changes")?;
    refusals(pool).context("refusals")
}

/// With one node down each of its bytes has another one: for our tool and for a client that knows
/// nothing but the protocol.
fn export(pool: &Pool<'_>, film: &[u8]) -> Result<()> {
    let told = pool.json(&[
        "exnode",
        "export",
        "/volume",
        "-o",
        "volume.json",
        "--for",
        "1h",
    ])?;
    ensure!(told["bytes"] == FILM_BYTES, "{told}");
    let stat = pool.json(&["stat", "volume.json"])?;
    let mappings = stat["mappings"].as_array().context("no mappings")?;
    let lives = |it: &Value| {
        let left = it["seconds_left"].as_i64();
        left.is_some_and(|left| (3000..=3600).contains(&left))
    };
    ensure!(mappings.len() > 6 && mappings.iter().all(lives), "{stat}");
    pool.json(&["download", "volume.json", "-o", "volume.back"])?;
    pool.expect_same("volume.back", film)?;
    ensure!(by_hand(pool, "volume.json")? == film, "other bytes by hand");
    pool.finish(&["node", "stop", "0"])?.expect(0, &[])?;
    pool.json(&["download", "volume.json", "-o", "volume.back"])?;
    pool.expect_same("volume.back", film)?;
    pool.finish(&["node", "start", "0"])?.expect(0, &[])
}

/// Loads every mapping by its capability, and puts the file together.
fn by_hand(pool: &Pool<'_>, exnode: &str) -> Result<Vec<u8>> {
    let exnode: Value = serde_json::from_slice(&fs::read(pool.local(exnode))?)?;
    let mut file = vec![0; FILM_BYTES];
    for mapping in exnode["mappings"].as_array().context("no mappings")? {
        let number = |name: &str| -> Result<usize> {
            let number = mapping[name].as_u64();
            Ok(usize::try_from(
                number.with_context(|| format!("no {name}: {mapping}"))?,
            )?)
        };
        let (at, length) = (number("exnode_offset")?, number("logical_length")?);
        let read = mapping["read"].as_str().context("no capability")?;
        ensure!(mapping["write"].is_null() && mapping["manage"].is_null());
        let loaded = load(&read.parse()?, number("alloc_offset")?, length)?;
        file[at..at + length].copy_from_slice(&loaded);
    }
    Ok(file)
}

fn load(read: &Capability, offset: usize, length: usize) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect((read.host.as_str(), read.port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (key, attribute) = (&read.key, &read.attribute_key);
    stream.write_all(format!("0 8 {key} {attribute} {offset} {length} 10\n").as_bytes())?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    ensure!(line.trim() == format!("1 {length}"), "{line}");
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// All of a small file is with its site; a hole is nowhere.
fn small_and_sparse(pool: &Pool<'_>, client: &mut Client) -> Result<()> {
    job::write_one(client, "small", 1000)?;
    job::write_one(client, "empty", 0)?;
    job::write_one(client, "sparse", 10)?;
    let sparse = job::lookup(client, "sparse")?;
    let far = job::content("far", 5000);
    overwrite(client, &sparse, 9 << 20, &far)?;
    let mut content = job::content("sparse", 10);
    content.resize(9 << 20, 0);
    content.extend(&far);
    let small = job::content("small", 1000);
    for (name, content) in [("small", small), ("empty", Vec::new()), ("sparse", content)] {
        let path = format!("/{name}");
        pool.json(&["exnode", "export", &path])?;
        pool.json(&["download", &format!("{name}.xnd"), "-o", "back"])?;
        pool.expect_same("back", &content)?;
    }
    Ok(())
}

/// There is all of the file, or nothing.
fn import(pool: &Pool<'_>, client: &mut Client, film: &[u8]) -> Result<()> {
    let told = pool.json(&["exnode", "import", "volume.json", "/again"])?;
    ensure!(told["bytes"] == FILM_BYTES, "{told}");
    let again = job::lookup(client, "again")?;
    let failures = job::read_handle(client, &again, film)?;
    ensure!(failures.iter().all(Option::is_none), "{failures:?}");
    let twice = pool.finish(&["exnode", "import", "volume.json", "/again"])?;
    twice.expect(1, &["the file is there already; --force replaces it"])?;
    fs::write(pool.local("other"), &film[..100_000])?;
    pool.json(&["upload", "other", "--checksum", "--compress"])?;
    pool.json(&["exnode", "import", "other.xnd", "/again", "--force"])?;
    let again = job::lookup(client, "again")?;
    let failures = job::read_handle(client, &again, &film[..100_000])?;
    ensure!(failures.iter().all(Option::is_none), "{failures:?}");
    let mut torn: Value = serde_json::from_slice(&fs::read(pool.local("volume.json"))?)?;
    let mappings = torn["mappings"].as_array_mut().context("no mappings")?;
    mappings.retain(|mapping| {
        let start = mapping["exnode_offset"].as_u64().unwrap_or(0);
        !(1 << 20..=3 << 20).contains(&start)
    });
    fs::write(pool.local("torn.json"), serde_json::to_vec(&torn)?)?;
    let torn = pool.finish(&["exnode", "import", "torn.json", "/torn"])?;
    torn.expect(1, &["bytes"])?;
    is_missing(client, "torn")?;
    bounds(pool, client)
}

/// The process connects only where it may, and a user writes only where he may; the file is not
/// there then.
fn bounds(pool: &Pool<'_>, client: &mut Client) -> Result<()> {
    let mut far: Value = serde_json::from_slice(&fs::read(pool.local("volume.json"))?)?;
    for mapping in far["mappings"].as_array_mut().context("no mappings")? {
        let read: Capability = mapping["read"].as_str().context("no capability")?.parse()?;
        let (key, attribute) = (&read.key, &read.attribute_key);
        mapping["read"] = format!("ibp://192.0.2.7:22/{key}/{attribute}/READ").into();
    }
    fs::write(pool.local("far.json"), serde_json::to_vec(&far)?)?;
    let far = pool.finish(&["exnode", "import", "far.json", "/far"])?;
    far.expect(1, &["192.0.2.7 is not among the networks"])?;
    let denied = [
        "exnode",
        "import",
        "volume.json",
        "/far",
        "--uid",
        "5",
        "--gid",
        "5",
    ];
    pool.finish(&denied)?
        .expect(1, &["that user may not write there"])?;
    is_missing(client, "far")
}

fn is_missing(client: &mut Client, name: &str) -> Result<()> {
    let root = client.root();
    match client.call(&Call::Lookup(Location {
        directory: root.as_handle(),
        name: Name(name.as_bytes()),
    }))? {
        Reply::Lookup(Err(failure)) if failure.status == Status::NoEnt => Ok(()),
        other => bail!("half a file is there: {other:?}"),
    }
}

/// What is overwritten is refused, and nothing else; a new exNode has what is there now.
fn changed(pool: &Pool<'_>, client: &mut Client, film: &[u8]) -> Result<()> {
    let file = job::lookup(client, "volume")?;
    let new = job::content("new", CHANGED.len());
    overwrite(client, &file, CHANGED.start as u64, &new)?;
    let broken = pool.finish(&["download", "volume.json", "-o", "volume.back"])?;
    broken.expect(1, &["no source"])?;
    let rest = format!("{}-{FILM_BYTES}", CHANGED.end + 4096);
    pool.json(&["download", "volume.json", "-o", "rest", "--range", &rest])?;
    pool.expect_same("rest", &film[CHANGED.end + 4096..])?;
    pool.json(&["exnode", "export", "/volume", "-o", "volume.xnd"])?;
    pool.json(&["download", "volume.xnd", "-o", "now"])?;
    let mut now = film.to_vec();
    now[CHANGED].copy_from_slice(&new);
    pool.expect_same("now", &now)
}

fn refusals(pool: &Pool<'_>) -> Result<()> {
    let nothing = pool.finish(&["exnode", "export", "/nothing"])?;
    nothing.expect(1, &["the volume has no file /nothing"])?;
    let root = pool.finish(&["exnode", "export", "/"])?;
    root.expect(1, &["no regular file"])?;
    let long = pool.finish(&["exnode", "export", "/volume", "--for", "31d"])?;
    long.expect(1, &["its depot grants 1 to 2592000 s"])?;
    let denied = ["exnode", "export", "/volume", "--uid", "5", "--gid", "5"];
    let other = pool.finish(&denied)?;
    other.expect(0, &[]).context("others may read it")
}

fn overwrite(client: &mut Client, file: &HandleBuffer, offset: u64, bytes: &[u8]) -> Result<()> {
    let reply = client.call(&Call::Write(call::Write {
        file: file.as_handle(),
        offset,
        count_bytes: u32::try_from(bytes.len())?,
        stable: StableHow::FileSync,
        data: Payload::from(Bytes::copy_from_slice(bytes)),
    }))?;
    match &reply {
        Reply::Write(Ok(done)) if done.count_bytes as usize == bytes.len() => Ok(()),
        _ => bail!("{reply:?}"),
    }
}
