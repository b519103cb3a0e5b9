//! What a depot does not let anybody do, and what it tells of itself.

use anyhow::{Context, Result, ensure};
use crossdock_ibp::Access;

use super::talk::{Depots, Talk, content, keys};
use crate::suite::metrics::sum;

/// Bytes that are no request end their connection with an error, or without a word; the depot
/// goes on.
pub(super) fn garbage(depots: &Depots) -> Result<()> {
    let long = "0 2 ".to_owned() + &"x".repeat(600);
    let cases: [(&[u8], &str); 7] = [
        (b"\0\xff\xfe\n", " -21 \n"),
        (b"GET / HTTP/1.1\r\n\r\n", "-27 \n"),
        (long.as_bytes(), " -21 \n"),
        (b"0 2 key\n", " -21 \n"),
        (b"0 2 key 5 99999999999999999999 1\n", " -21 \n"),
        (b"0 8 0#nokey 5 0 1 1\n", " -4 \n"),
        (b"0 2 a/b 5 1 1\n", " -11 \n"),
    ];
    for (said, answer) in cases {
        let mut talk = depots.talk()?;
        talk.say(said)?;
        let line = talk.line()?;
        ensure!(line == answer, "{}: {line:?}", said.escape_ascii());
        talk.expect_end()?;
    }
    let mut talk = depots.talk()?;
    talk.say("0 4 1")?;
    talk.finish()?;
    talk.expect_end()?;
    Ok(())
}

/// Each key allows one kind of access, with its own attribute key, as long as there is the
/// allocation.
pub(super) fn keys_are_checked(depots: &Depots) -> Result<()> {
    let made = depots.talk()?.allocate("1 1 600 100")?;
    let refused = |said: String, answer: &str| {
        let mut talk = depots.talk()?;
        talk.expect(&said, answer)?;
        talk.expect_end()
    };
    let (read, write, manage) = (&made.read, &made.write, &made.manage);
    ensure!(read.access == Access::Read && manage.access == Access::Manage);
    refused(format!("0 8 {} 0 1 1 \n", keys(write)), " -9 \n")?;
    refused(format!("0 2 {} 1 1 \n", keys(read)), " -8 \n")?;
    refused(format!("0 9 {} 42 1 1\n", keys(write)), " -10 \n")?;
    refused(format!("0 9 {} 42 1 1\n", keys(read)), " -10 \n")?;
    let mixed = format!("{} {}", read.key, write.attribute_key);
    refused(format!("0 8 {mixed} 0 1 1 \n"), " -9 \n")?;
    refused(format!("0 9 {mixed} 40 0 1\n"), " -9 \n")?;
    // Another depot knows nothing of it.
    let mut other = Talk::to(depots.at[1])?;
    other.expect(&format!("0 8 {} 0 1 1 \n", keys(read)), " -4 \n")?;
    depots
        .talk()?
        .expect(&format!("0 9 {} 42 1 1\n", keys(manage)), "1 \n")?;
    for key in [read, write, manage] {
        refused(format!("0 9 {} 40 0 1\n", keys(key)), " -4 \n")?;
    }
    Ok(())
}

/// A store that its client does not complete has not happened, and nobody waits for it.
pub(super) fn half_sent(depots: &Depots) -> Result<()> {
    let mut talk = depots.talk()?;
    let made = talk.allocate("2 1 600 3000000")?;
    talk.store(&made.write, b"before")?;
    for resets in [false, true] {
        let mut client = depots.talk()?;
        let said = format!("0 2 {} 2900000 40 \n", keys(&made.write));
        client.expect(&said, "1 \n")?;
        client.say(content(3, 1_000_000))?;
        if resets {
            client.reset()?;
        } else {
            client.finish()?;
            ensure!(client.line()? == " -2 \n");
            client.expect_end()?;
        }
        // Who stores next waits until it is gone.
        talk.store(&made.write, b"|after")?;
    }
    let all = b"before|after|after";
    ensure!(talk.load(&made.read, "0 0", all.len())? == all);
    // More than fits is refused before it is sent.
    talk.expect(
        &format!("0 2 {} 2999999 1 \n", keys(&made.write)),
        " -19 \n",
    )?;
    talk.expect_end()
}

/// Volatile allocations make room for stable ones, those that end first; not for volatile
/// ones.
pub(super) fn revoked_for_stable(depots: &Depots) -> Result<()> {
    let mut talk = Talk::to(depots.at[2])?;
    let mut volatile = Vec::new();
    for hours in [3, 1, 2] {
        volatile.push(talk.allocate(&format!("1 1 {} 250000000", hours * 3600))?);
    }
    talk.expect("0 1 1 1 600 250000000 0\n", " -19 \n")?;
    let mut talk = Talk::to(depots.at[2])?;
    let stable = talk.allocate("2 1 600 300000000")?;
    talk.store(&stable.write, b"stable")?;
    for (allocation, is_there) in volatile.iter().zip([true, false, true]) {
        let mut talk = Talk::to(depots.at[2])?;
        let found = talk.probe(&allocation.read);
        ensure!(found.is_ok() == is_there, "{found:?}");
    }
    // Of stable ones there can be no more than is granted.
    talk.expect("0 1 2 1 600 300000000 0\n", " -19 \n")
}

/// The limits are changed with the password, from this machine with the usual one.
pub(super) fn status_is_changed(depots: &Depots) -> Result<()> {
    let mut talk = Talk::to(depots.at[1])?;
    talk.expect("0 4 2 wrong 10\n", "-29 \n")?;
    talk.expect_end()?;
    let mut talk = Talk::to(depots.at[1])?;
    talk.expect("0 4 2 ibp 10\n", "1 \n")?;
    talk.say("100 200 60 \n")?;
    let line = talk.line()?;
    ensure!(
        line.starts_with("100 ") && line.ends_with(" 60 \n"),
        "{line:?}"
    );
    talk.expect("0 1 2 1 61 1000 10\n", " -28 \n")?;
    let mut talk = Talk::to(depots.at[1])?;
    talk.expect("1 4 0 2 ibp 10\n", "1 \n")?;
    talk.say("500 800 -1 \n")?;
    let line = talk.line()?;
    let bytes: usize = line.split(' ').nth(1).context("no length")?.parse()?;
    let text = String::from_utf8(talk.bytes(bytes)?)?;
    ensure!(text.ends_with(" DR:-1 RE \n"), "{text:?}");
    let made = talk.allocate("1 1 0 1000")?;
    let probe = talk.probe(&made.read)?;
    ensure!(probe.duration_seconds == 0, "{probe:?}");
    Ok(())
}

/// What the metrics tell agrees with what was done.
pub(super) fn figures(depots: &Depots) -> Result<()> {
    let expected = [
        ("crossdock_ibp_stored_bytes_total", 1_000_000),
        ("crossdock_ibp_sent_bytes_total", 1_000_000),
        ("crossdock_ibp_refused_total", 1),
        ("crossdock_ibp_requests_total", 3),
        ("crossdock_ibp_allocations", 1),
        ("crossdock_ibp_promised_bytes", 1_000_000),
    ];
    let before: Vec<u64> = (expected.iter())
        .map(|(family, _)| sum(&depots.admin, family))
        .collect::<Result<_>>()?;
    let mut talk = depots.talk()?;
    let made = talk.allocate("2 1 600 1000000")?;
    talk.store(&made.write, &content(5, 1_000_000))?;
    talk.load(&made.read, "0 0", 1_000_000)?;
    talk.expect("0 77\n", "-25 \n")?;
    for ((family, expected), before) in expected.into_iter().zip(before) {
        let grown = sum(&depots.admin, family)? - before;
        ensure!(grown == expected, "{family}: {grown}, not {expected}");
    }
    Ok(())
}

/// Connections, rate, size, and a password of the depot's own.
pub(super) fn limits(depots: &Depots) -> Result<()> {
    let mut talk = depots.talk()?;
    talk.expect("0 1 1 1 600 1048577 0\n", " -45 \n")?;
    // Those that have ended count no more.
    talk.expect_end()?;
    let mut talk = depots.talk()?;
    talk.expect("0 4 2 ibp 0\n", "-29 \n")?;
    talk.expect_end()?;
    let mut talk = depots.talk()?;
    talk.expect("0 4 2 other 0\n", "1 \n")?;
    let mut held: Vec<Talk> = Vec::new();
    for _ in 0..2 {
        let mut talk = depots.talk()?;
        talk.allocate("1 1 600 1000")?;
        held.push(talk);
    }
    let mut fourth = depots.talk()?;
    ensure!(fourth.line()? == "-53 \n");
    fourth.expect_end()?;
    drop((held, talk));
    // Twenty a second, and the first ten seconds' worth at once.
    let mut is_told = false;
    for _ in 0..300 {
        let mut talk = Talk::to(depots.at[1])?;
        talk.say("0 4 1 ibp 0\n")?;
        if talk.line()? == "-53 \n" {
            is_told = true;
            break;
        }
    }
    ensure!(is_told, "300 requests were as many as may be");
    Ok(())
}
