//! READDIR and READDIRPLUS: sizes, cookies, and directories that change.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use crossdock_nfs3::call;
use crossdock_nfs3::{Call, CookieVerifier, HandleBuffer, Procedure, Reply, Status};

use crate::client::{Client, decode_of, next_xid};
use crate::operations::{at, getattr, guarded, readdir, readdirplus};
use crate::runner::{Check, Stage, check, with_servers};

pub(crate) const CHECKS: &[Check] = &[
    check(
        "READDIR of any count gives no more bytes than that, or TOOSMALL",
        tiny_counts,
    ),
    check(
        "READDIRPLUS of any count gives no more bytes than that, or TOOSMALL",
        tiny_counts_plus,
    ),
    check(
        "READDIRPLUS with hardly any dircount still gets on",
        tiny_dircount,
    ),
    check(
        "READDIRPLUS gives the handles and attributes of LOOKUP",
        plus_is_lookup,
    ),
    check(
        "an empty directory has its dots and an end",
        empty_directory,
    ),
    check("counts up to 2^32-1 are taken", huge_counts),
    check(
        "cookies go on behind entries that were removed",
        cookies_after_removal,
    ),
    check(
        "what stays is listed exactly once while others come and go",
        changing_directory,
    ),
    with_servers(
        "cookies and their verifier are good after a stop and after kill -9",
        cookies_after_restart,
    ),
    with_servers(
        "no cookie is given twice: new entries lie behind all old ones, after restarts too",
        cookies_are_used_once,
    ),
    check(
        "a verifier that was never given is BAD_COOKIE",
        bad_verifiers,
    ),
    check("a cookie that was never given is BAD_COOKIE", bad_cookies),
    check(
        "a directory of 100,000 entries is listed whole, both ways",
        one_hundred_thousand,
    ),
];

/// Asks with these counts; entries, end, and how long the results were.
struct Lister<'a> {
    directory: &'a HandleBuffer,
    is_plus: bool,
    directory_count_bytes: u32,
    count_bytes: u32,
}

/// What one call listed: names and cookies in order.
type Listed = (Vec<(Vec<u8>, u64)>, bool);

impl Lister<'_> {
    fn ask(
        &self,
        client: &mut Client,
        cookie: u64,
        verifier: CookieVerifier,
    ) -> Result<Result<(Listed, CookieVerifier), Status>> {
        let call = self.call(cookie, verifier);
        let xid = next_xid();
        let record = client.record(xid, &call);
        let reply: Bytes = client.wire.exchange(&record)?;
        const HEADER_AND_STATUS_BYTES: usize = 28;
        let length = reply.len() - HEADER_AND_STATUS_BYTES;
        let reply = decode_of(xid, call.procedure(), &reply)?;
        if let Some(status) = reply.status() {
            return Ok(Err(status));
        }
        ensure!(
            length <= self.count_bytes as usize,
            "{length} bytes for a count of {}",
            self.count_bytes
        );
        Ok(Ok(match reply {
            Reply::Readdir(Ok(done)) => {
                let entries = done.entries.iter();
                let entries = entries.map(|e| (e.name.0.to_vec(), e.cookie)).collect();
                ((entries, done.is_end), done.verifier)
            }
            Reply::Readdirplus(Ok(done)) => {
                let entries = done.entries.iter();
                let entries = entries.map(|e| (e.name.0.to_vec(), e.cookie)).collect();
                ((entries, done.is_end), done.verifier)
            }
            other => anyhow::bail!("{other:?}"),
        }))
    }

    fn call(&self, cookie: u64, verifier: CookieVerifier) -> Call<'_> {
        let directory = self.directory.as_handle();
        if self.is_plus {
            return Call::Readdirplus(call::Readdirplus {
                directory,
                cookie,
                verifier,
                directory_count_bytes: self.directory_count_bytes,
                count_bytes: self.count_bytes,
            });
        }
        Call::Readdir(call::Readdir {
            directory,
            cookie,
            verifier,
            count_bytes: self.count_bytes,
        })
    }

    /// All names from the beginning; `None`: TOOSMALL somewhere.
    fn all(&self, client: &mut Client) -> Result<Option<Vec<Vec<u8>>>> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        let mut verifier = CookieVerifier::default();
        loop {
            match self.ask(client, cookie, verifier)? {
                Ok(((entries, is_end), given)) => {
                    ensure!(is_end || !entries.is_empty(), "neither entries nor an end");
                    for (name, at) in entries {
                        ensure!(at > cookie, "cookies go back");
                        cookie = at;
                        names.push(name);
                    }
                    verifier = given;
                    if is_end {
                        return Ok(Some(names));
                    }
                }
                Err(Status::TooSmall) => return Ok(None),
                Err(status) => anyhow::bail!("{status:?}"),
            }
        }
    }
}

const fn plain(directory: &HandleBuffer, count_bytes: u32) -> Lister<'_> {
    Lister {
        directory,
        is_plus: false,
        directory_count_bytes: count_bytes,
        count_bytes,
    }
}

const fn plus(directory: &HandleBuffer, count_bytes: u32) -> Lister<'_> {
    Lister {
        is_plus: true,
        ..plain(directory, count_bytes)
    }
}

/// Names of all lengths; how many there are, with the dots.
fn fill(client: &mut Client, directory: &HandleBuffer) -> Result<BTreeSet<Vec<u8>>> {
    let mut names = BTreeSet::from([b".".to_vec(), b"..".to_vec()]);
    for length in (1..=255).step_by(11) {
        let name = vec![b'n'; length];
        client.create(directory, &name, 0o644)?;
        names.insert(name);
    }
    Ok(names)
}

fn sizes(stage: &Stage<'_>, is_plus: bool, enough: u32) -> Result<()> {
    let mut client = stage.client()?;
    let expected = fill(&mut client, &stage.directory)?;
    let mut counts: Vec<u32> = (0..enough + 100).step_by(4).collect();
    counts.extend([1, 3, 127, 1000, 1024, 4095, 8192, 65_536, 1 << 20]);
    let (mut refused, mut listed) = (0, 0);
    for count in counts {
        let lister = Lister {
            is_plus,
            ..plain(&stage.directory, count)
        };
        match lister.all(&mut client)? {
            None => {
                refused += 1;
                ensure!(count < enough, "TOOSMALL with {count} bytes");
            }
            Some(names) => {
                listed += 1;
                let set: BTreeSet<Vec<u8>> = names.iter().cloned().collect();
                ensure!(names.len() == set.len(), "{count} bytes: a name twice");
                ensure!(set == expected, "{count} bytes: {} names", set.len());
            }
        }
    }
    ensure!(
        refused > 10 && listed > 10,
        "{refused} refused, {listed} listed"
    );
    Ok(())
}

fn tiny_counts(stage: &Stage<'_>) -> Result<()> {
    // Attributes, verifier, list end and eof; an entry with the longest name.
    sizes(stage, false, 88 + 8 + 8 + (4 + 8 + 4 + 256 + 8))
}

fn tiny_counts_plus(stage: &Stage<'_>) -> Result<()> {
    sizes(
        stage,
        true,
        88 + 8 + 8 + (4 + 8 + 4 + 256 + 8) + 88 + 8 + 64,
    )
}

fn tiny_dircount(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let expected = fill(&mut client, &stage.directory)?;
    for directory_count_bytes in [0, 1, 24, 100, 512] {
        let lister = Lister {
            directory_count_bytes,
            ..plus(&stage.directory, 4096)
        };
        let names = lister.all(&mut client)?.context("TOOSMALL")?;
        ensure!(names.len() == expected.len(), "{} names", names.len());
    }
    Ok(())
}

fn plus_is_lookup(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    client.create(directory, "file", 0o640)?;
    client.mkdir(directory, "sub", 0o751)?;
    client.symlink(directory, "symlink", b"target")?;
    client.fifo(directory, "fifo")?;
    let listed = client.readdirplus(directory, 0, 8192)?;
    let mut seen = 0;
    for entry in listed.entries.iter() {
        let found = client.found(directory, entry.name.0)?;
        let attributes = found.attributes.context("no attributes")?;
        ensure!(entry.fileid == attributes.fileid, "{:?}", entry.name);
        if !matches!(entry.name.0, b"." | b"..") {
            ensure!(entry.object == Some(found.object), "{:?}", entry.name);
            ensure!(entry.attributes == Some(attributes), "{:?}", entry.name);
            seen += 1;
        }
    }
    ensure!(seen == 4 && listed.is_end, "{seen} entries");
    let plain = client.readdir(directory, 0, 8192)?;
    let numbers = |fileids: Vec<u64>| fileids;
    ensure!(
        numbers(plain.entries.iter().map(|e| e.fileid).collect())
            == numbers(listed.entries.iter().map(|e| e.fileid).collect()),
        "READDIR has other numbers"
    );
    Ok(())
}

fn empty_directory(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for lister in [plain(&stage.directory, 512), plus(&stage.directory, 512)] {
        let names = lister.all(&mut client)?;
        ensure!(
            names == Some(vec![b".".to_vec(), b"..".to_vec()]),
            "{names:?}"
        );
        // Behind the last cookie there is nothing but the end.
        let Ok((rest, _)) = lister.ask(&mut client, 2, CookieVerifier::default())? else {
            anyhow::bail!("refused");
        };
        ensure!(rest == (Vec::new(), true), "{rest:?}");
    }
    Ok(())
}

fn huge_counts(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let expected = fill(&mut client, &stage.directory)?;
    for count in [1 << 21, 1 << 31, u32::MAX] {
        for lister in [
            plain(&stage.directory, count),
            plus(&stage.directory, count),
        ] {
            let names = lister.all(&mut client)?.context("TOOSMALL")?;
            ensure!(names.len() == expected.len(), "{} names", names.len());
        }
    }
    Ok(())
}

fn numbered(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|n| format!("entry-{n:05}").into_bytes())
        .collect()
}

fn cookies_after_removal(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let names = numbered(60);
    for name in &names {
        client.create(directory, name, 0o644)?;
    }
    let first = client.readdir(directory, 0, 1024)?;
    let entries: Vec<(Vec<u8>, u64)> = first
        .entries
        .iter()
        .map(|entry| (entry.name.0.to_vec(), entry.cookie))
        .collect();
    let (last, cookie) = entries.last().cloned().context("no entries")?;
    ensure!(!first.is_end, "everything at once");
    // The entry of the cookie, some before it, and the next two.
    let at_last = names
        .iter()
        .position(|name| *name == last)
        .context("dots")?;
    let gone = [at_last - 2, at_last, at_last + 1, at_last + 2, 59];
    for number in gone {
        client.remove(directory, &names[number])?;
    }
    let (mut rest, mut cookie) = (Vec::new(), cookie);
    loop {
        let listed = client.readdir(directory, cookie, 512)?;
        for entry in listed.entries.iter() {
            cookie = entry.cookie;
            rest.push(entry.name.0.to_vec());
        }
        if listed.is_end {
            break;
        }
    }
    let expected = &names[at_last + 3..59];
    ensure!(
        rest == expected,
        "{} names, not {}",
        rest.len(),
        expected.len()
    );
    // Behind the last entry of all, which is gone now.
    let end = client.readdir(directory, cookie, 512)?;
    ensure!(end.is_end && end.entries.iter().next().is_none(), "more");
    Ok(())
}

fn changing_directory(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let staying = numbered(200);
    for name in &staying {
        client.create(directory, name, 0o644)?;
    }
    for is_plus in [false, true] {
        let lister = Lister {
            is_plus,
            ..plain(directory, 700)
        };
        let mut seen: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        let (mut cookie, mut round) = (0, 0);
        loop {
            let asked = lister.ask(&mut client, cookie, CookieVerifier::default())?;
            let Ok(((entries, is_end), _)) = asked else {
                anyhow::bail!("{asked:?}");
            };
            for (name, at) in entries {
                cookie = at;
                *seen.entry(name).or_default() += 1;
            }
            if is_end {
                break;
            }
            // Some come and go between any two calls, at most 100 in all.
            if round < 100 {
                client.create(directory, format!("coming-{is_plus}-{round}"), 0o644)?;
                if round % 2 == 1 {
                    client.remove(directory, format!("coming-{is_plus}-{}", round - 1))?;
                }
            }
            round += 1;
        }
        for name in &staying {
            let times = seen.get(name).copied().unwrap_or(0);
            ensure!(
                times == 1,
                "{} was listed {times} times",
                name.escape_ascii()
            );
        }
        let twice = seen.values().any(|times| *times > 1);
        ensure!(!twice, "something was listed twice");
    }
    Ok(())
}

fn cookies_after_restart(stage: &Stage<'_>) -> Result<()> {
    let server = stage.own_server("cookies", &[])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let names = numbered(90);
    for name in &names {
        client.create(&root, name, 0o644)?;
    }
    let mut listed: Vec<Vec<u8>> = Vec::new();
    let mut server = Some(server);
    let mut cookie = 0;
    let mut verifier = CookieVerifier::default();
    for round in 0.. {
        let lister = plain(&root, 1200);
        let asked = lister.ask(&mut client, cookie, verifier)?;
        let Ok(((entries, is_end), given)) = asked else {
            anyhow::bail!("round {round}: {asked:?}");
        };
        verifier = given;
        for (name, at) in entries {
            cookie = at;
            listed.push(name);
        }
        if is_end {
            break;
        }
        // A stop, then a kill.
        let running = if round < 2 { server.take() } else { None };
        if let Some(running) = running {
            if round == 0 {
                running.stop()?;
            } else {
                running.kill()?;
            }
            let started = stage.own_server("cookies", &[])?;
            client = Client::connect(started.address())?;
            server = Some(started);
        }
    }
    ensure!(listed[2..] == names, "{} names", listed.len());
    drop(server);
    stage.clear("cookies")
}

fn cookies_are_used_once(stage: &Stage<'_>) -> Result<()> {
    let mut server = stage.own_server("used-once", &[])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    for round in 0..4 {
        let name = format!("entry-{round}");
        client.create(&root, &name, 0o644)?;
        let listed = client.readdir(&root, 0, 4096)?;
        let last = listed.entries.iter().last().context("no entries")?;
        ensure!(last.name.0 == name.as_bytes(), "listed before others");
        let cookie = last.cookie;
        client.remove(&root, &name)?;
        if round % 2 == 0 {
            server.kill()?;
        } else {
            server.stop()?;
        }
        server = stage.own_server("used-once", &[])?;
        client = Client::connect(server.address())?;
        client.create(&root, "new", 0o644)?;
        let rest = client.readdir(&root, cookie, 4096)?;
        let names: Vec<&[u8]> = rest.entries.iter().map(|e| e.name.0).collect();
        ensure!(names == [b"new"], "round {round}: {names:?}");
        client.remove(&root, "new")?;
    }
    server.stop()?;
    stage.clear("used-once")
}

fn bad_verifiers(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    fill(&mut client, &stage.directory)?;
    for lister in [plain(&stage.directory, 600), plus(&stage.directory, 1200)] {
        let Ok(((entries, _), given)) = lister.ask(&mut client, 0, CookieVerifier::default())?
        else {
            anyhow::bail!("refused");
        };
        let (_, cookie) = entries.last().context("no entries")?;
        for byte in [0, 7] {
            let mut wrong = given;
            wrong.0[byte] ^= 0x40;
            let refused = lister.ask(&mut client, *cookie, wrong)?;
            ensure!(refused.is_err_and(|s| s == Status::BadCookie), "taken");
            // At the beginning no verifier is asked for.
            let begun = lister.ask(&mut client, 0, wrong)?;
            ensure!(begun.is_ok(), "{begun:?}");
        }
        ensure!(lister.ask(&mut client, *cookie, given)?.is_ok(), "refused");
    }
    Ok(())
}

fn bad_cookies(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    client.create(&stage.directory, "file", 0o644)?;
    for cookie in [
        1000,
        1 << 32,
        (1 << 45) + 7,
        (1 << 46) - 1,
        1 << 62,
        1 << 63,
        (1 << 63) | 3,
        u64::MAX,
    ] {
        let call = readdir(&stage.directory, cookie, 4096);
        client
            .refuses(Status::BadCookie, &call)
            .with_context(|| format!("{cookie:#x}"))?;
        let call = readdirplus(&stage.directory, cookie, 4096);
        client
            .refuses(Status::BadCookie, &call)
            .with_context(|| format!("{cookie:#x}"))?;
    }
    Ok(())
}

/// Sends `calls` with many outstanding; all must succeed.
fn pipelined(
    client: &mut Client,
    procedure: Procedure,
    names: &[Vec<u8>],
    directory: &HandleBuffer,
) -> Result<()> {
    const OUTSTANDING: usize = 128;
    let mut answered = 0;
    for (sent, name) in names.iter().enumerate() {
        client.send(&guarded(at(directory, name), 0o644))?;
        if sent - answered >= OUTSTANDING {
            let (_, reply) = client.receive(procedure)?;
            ensure!(reply.status().is_none(), "{:?}", reply.status());
            answered += 1;
        }
    }
    while answered < names.len() {
        let (_, reply) = client.receive(procedure)?;
        ensure!(reply.status().is_none(), "{:?}", reply.status());
        answered += 1;
    }
    Ok(())
}

fn one_hundred_thousand(stage: &Stage<'_>) -> Result<()> {
    const COUNT: usize = 100_000;
    let mut client = stage.client()?;
    let directory = client.mkdir(&stage.directory, "large", 0o755)?;
    let names: Vec<Vec<u8>> = (0..COUNT)
        .map(|n| format!("e{n:06}").into_bytes())
        .collect();
    pipelined(&mut client, Procedure::Create, &names, &directory)?;
    for lister in [plain(&directory, 32_768), plus(&directory, 1 << 20)] {
        let mut listed = lister.all(&mut client)?.context("TOOSMALL")?;
        listed.sort_unstable();
        ensure!(listed[2..] == names, "{} names", listed.len());
    }
    for number in [0, 1, COUNT / 2, COUNT - 1] {
        let file = client.lookup(&directory, &names[number])?;
        client.accepts(&getattr(&file))?;
    }
    client.refuses(Status::NoEnt, &Call::Lookup(at(&directory, "e100000")))?;
    client.refuses(
        Status::NotEmpty,
        &Call::Rmdir(at(&stage.directory, "large")),
    )
}
