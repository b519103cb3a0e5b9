//! Conversations that were taken from programs of the family (LoRS 0.82 with LoCI's depot),
//! replayed: the depot has to say the same but for keys, and for what it says of itself.

use anyhow::{Context, Result, ensure};
use crossdock_ibp::{Capability, answer};

use super::talk::{Depots, Talk, content, keys};

/// `lors_upload`, `lors_ls`, `lors_refresh`, `lors_download` and `lors_trim -d`: one
/// connection.
pub(super) fn upload(depots: &Depots) -> Result<()> {
    let mut talk = depots.talk()?;
    let status = "VS:1.4:0.1 DT:1 RID:0 RT:1 CT:838860800 ST:838860800 UT:0 AT:838860800 \
                  CH:524288000 SH:524288000 UH:0 AH:524288000 DR:864000 RE \n";
    talk.expect("1 4 0 1 ibp 0\n", &format!("1 {} \n", status.len()))?;
    let found = talk.line()?;
    ensure!(found == status, "{found:?}");
    talk.say("1 1 0 2 1 3600 102400 0\n")?;
    let line = talk.line()?;
    let made = answer::read_capabilities(line.trim_end().as_bytes())?;
    ensure!(answer::allocated(&made) == line, "{line:?}");
    let here = depots.at[0];
    for capability in [&made.read, &made.write, &made.manage] {
        ensure!(format!("{}:{}", capability.host, capability.port) == here.to_string());
        ensure!(capability.key.as_str().starts_with("0#"), "{capability}");
        let number: u32 = capability.attribute_key.as_str().parse()?;
        ensure!((1..1 << 31).contains(&number), "{capability}");
    }
    let (read, write, manage) = (keys(&made.read), keys(&made.write), keys(&made.manage));
    let data = content(1, 102_400);
    talk.expect(&format!("0 2 {write} 102400 40 \n"), "1 \n")?;
    talk.say(&data)?;
    let stored = talk.line()?;
    ensure!(stored == "1 102400\n", "{stored:?}");
    let probed = "1 1 1 102400 102400 3600 2 1 \n";
    for key in [&read, &write, &manage] {
        talk.say(format!("0 9 {key} 40 0 0 0 0 0\n"))?;
        let found = talk.line()?;
        let later = probed.replace("3600", "3599").replace(" \n", "");
        ensure!(found == probed || found.starts_with(&later), "{found:?}");
    }
    talk.expect(&format!("0 9 {manage} 43 0 102400 10625 2 20\n"), "1 \n")?;
    talk.say(format!("0 9 {read} 40 0 0\n"))?;
    let found = talk.line()?;
    ensure!(
        ["10625", "10624"].contains(&found.split(' ').nth(5).unwrap_or_default()),
        "{found:?}"
    );
    talk.expect(&format!("0 8 {read} 0 102400 601 \n"), "1 102400 \n")?;
    ensure!(talk.bytes(102_400)? == data, "other bytes");
    talk.expect(&format!("0 9 {manage} 42 1 20\n"), "1 \n")?;
    talk.expect(&format!("0 9 {read} 40 0 0 0 0 0\n"), " -4 \n")?;
    talk.expect_end()
}

/// `lors_augment`: a copy to another depot; then several at a time into one allocation and to
/// several depots.
pub(super) fn copy(depots: &Depots) -> Result<()> {
    let (mut from, mut to) = (depots.talk()?, Talk::to(depots.at[1])?);
    let source = from.allocate("2 1 3600 102400")?;
    let target = to.allocate("2 1 3600 102400")?;
    let data = content(2, 102_400);
    from.store(&source.write, &data)?;
    let send = |target: &Capability, place: &str| {
        let (key, attribute) = (&source.read.key, &source.read.attribute_key);
        let line = format!("0 5 {key} {target} {attribute} {place} 39 39 40 \n");
        assert!(line.len() < 512, "{line}");
        line
    };
    from.expect(&send(&target.write, "0 102400"), "1 102400\n")?;
    ensure!(
        to.load(&target.read, "0 0", 102_400)? == data,
        "other bytes"
    );
    // The target's refusal is passed on: it is full, and takes a wrong key for none.
    from.expect(&send(&target.write, "0 1"), "-19 \n")?;
    from.expect_end()?;
    let mut wrong = target.write.clone();
    wrong.attribute_key = target.read.attribute_key.clone();
    depots.talk()?.expect(&send(&wrong, "0 1"), "-8 \n")?;
    // Nobody is there.
    wrong.port = 1;
    depots.talk()?.expect(&send(&wrong, "0 1"), " -13 \n")?;

    let targets: Vec<_> = (0..6)
        .map(|number| {
            let mut talk = Talk::to(depots.at[number % depots.at.len()])?;
            Ok((talk.allocate("1 1 3600 102400")?, talk))
        })
        .collect::<Result<_>>()?;
    let mut copies: Vec<Talk> = Vec::new();
    for (target, _) in &targets {
        let mut talk = depots.talk()?;
        talk.say(send(&target.write, "0 102400"))?;
        copies.push(talk);
    }
    for mut talk in copies {
        let line = talk.line()?;
        ensure!(line == "1 102400\n", "{line:?}");
    }
    for (target, mut talk) in targets {
        ensure!(
            talk.load(&target.read, "0 0", 102_400)? == data,
            "other bytes"
        );
    }
    let mut talk = Talk::to(depots.at[1])?;
    let merged = talk.allocate("2 1 3600 102400")?;
    let mut from = depots.talk()?;
    from.expect(&send(&merged.write, "51200 51200"), "1 51200\n")?;
    from.expect(&send(&merged.write, "0 51200"), "1 51200\n")?;
    let both = [&data[51_200..], &data[..51_200]].concat();
    ensure!(
        talk.load(&merged.read, "0 0", 102_400)? == both,
        "other bytes"
    );
    Ok(())
}

/// Lines that are answered by one.
pub(super) fn small_ones(depots: &Depots) -> Result<()> {
    for (said, answer) in [
        ("7 1 2 1 600 1000 10\n", "-27 \n"),
        ("hello\n", "-27 \n"),
        ("0 77 2\n", "-25 \n"),
        ("0 1 2 1 0 1000 10\n", " -28 \n"),
        ("0 1 2 1 864001 1000 10\n", " -28 \n"),
        ("0 1 2 1 600 0 10\n", " -36 \n"),
        ("0 1 3 1 600 1000 10\n", " -30 \n"),
        ("0 1 2 5 600 1000 10\n", " -30 \n"),
        ("1 1 7 2 1 600 1000 10\n", " -49 \n"),
        ("0 1 2 1 600 524288001 0\n", " -19 \n"),
    ] {
        let mut talk = depots.talk()?;
        talk.expect(said, answer)?;
        talk.expect_end().context(said)?;
    }
    Ok(())
}

/// The four storage types: allocations of 10 bytes, two stores of 6.
pub(super) fn types(depots: &Depots) -> Result<()> {
    // Storage type, answer to the second store, bytes that are there then, and what is left
    // of them when they were loaded.
    let cases: [(&str, &str, &[u8], u64); 4] = [
        ("1", " -19 \n", b"abcdef", 6),
        ("2", "1 \n", b"ghijkl", 6),
        ("3", " -19 \n", b"abcdef", 0),
        ("4", "1 \n", b"cdefghijkl", 0),
    ];
    for (storage, second, there, left) in cases {
        let mut talk = depots.talk()?;
        let made = talk.allocate(&format!("1 {storage} 600 10"))?;
        talk.store(&made.write, b"abcdef")?;
        talk.expect(&format!("0 2 {} 6 1 \n", keys(&made.write)), second)?;
        if second == "1 \n" {
            talk.say(b"ghijkl")?;
            ensure!(talk.line()? == "1 6\n");
        } else {
            talk.expect_end()?;
            talk = depots.talk()?;
        }
        let context = || format!("type {storage}");
        let probe = talk.probe(&made.read).with_context(context)?;
        ensure!(
            probe.size_bytes == there.len() as u64,
            "{storage}: {probe:?}"
        );
        // More than there is: it waits for its time, and gives what there is.
        let said = format!("0 8 {} 0 10 1 \n", keys(&made.read));
        talk.expect(&said, &format!("1 {} \n", there.len()))?;
        ensure!(talk.bytes(there.len())? == there, "type {storage}");
        let probe = talk.probe(&made.read).with_context(context)?;
        ensure!(probe.size_bytes == left, "{storage}: {probe:?}");
        if left == 0 {
            talk.expect(&said, " -1 \n")?;
        }
    }
    waiting(depots).context("waiting")
}

/// Who loads waits for who stores, and the other way round.
fn waiting(depots: &Depots) -> Result<()> {
    let (mut reader, mut writer) = (depots.talk()?, depots.talk()?);
    let made = writer.allocate("1 3 600 10")?;
    reader.say(format!("0 8 {} 0 6 10 \n", keys(&made.read)))?;
    writer.store(&made.write, b"abc")?;
    writer.store(&made.write, b"def")?;
    ensure!(reader.line()? == "1 6 \n" && reader.bytes(6)? == b"abcdef");
    writer.store(&made.write, b"0123456789")?;
    writer.say(format!("0 2 {} 4 10 \n", keys(&made.write)))?;
    ensure!(reader.load(&made.read, "0 4", 4)? == b"0123");
    ensure!(writer.line()? == "1 \n");
    writer.say(b"wxyz")?;
    ensure!(writer.line()? == "1 4\n");
    ensure!(reader.load(&made.read, "0 10", 10)? == b"456789wxyz");
    let array = writer.allocate("1 1 600 10")?;
    reader.say(format!("0 8 {} 2 4 10 \n", keys(&array.read)))?;
    writer.store(&array.write, b"abcdef")?;
    ensure!(reader.line()? == "1 4 \n" && reader.bytes(4)? == b"cdef");
    // Nothing at that place.
    reader.expect(&format!("0 8 {} 8 2 1 \n", keys(&array.read)), " -46 \n")
}

/// Both versions on every command, blanks and CR as others send them, WRITE, TRUNCATE, and
/// commands sent ahead.
pub(super) fn versions(depots: &Depots) -> Result<()> {
    for version in ["0", "1"] {
        let mut talk = depots.talk()?;
        let made = talk.allocate("2 1 600 1000")?;
        let (read, write, manage) = (keys(&made.read), keys(&made.write), keys(&made.manage));
        talk.expect(&format!("{version} 13 {write} 4 3 0 \n"), "1 \n")?;
        talk.say(b"xyz")?;
        ensure!(talk.line()? == "1 3\n");
        talk.expect(&format!("{version}  2 {write} 2 0\r\n"), "1 \n")?;
        talk.say(b"ab")?;
        ensure!(talk.line()? == "1 2\n");
        talk.expect(&format!("{version} 13 {write} 5 1 0 \n"), "1 \n")?;
        talk.say(b"Y")?;
        ensure!(talk.line()? == "1 1\n");
        talk.expect(&format!("{version} 8 {read} 0 0 5 \n"), "1 9 \n")?;
        ensure!(talk.bytes(9)? == b"\0\0\0\0xYzab");
        talk.expect(&format!("{version} 9 {manage} 45 6 5\n"), "1 \n")?;
        talk.expect(&format!("{version} 9 {manage} 45 8 5\n"), "1 \n")?;
        let ahead = format!("{version} 8 {read} 0 4 5\n{version} 8 {read} 4 -1 5\n");
        talk.say(ahead.repeat(5))?;
        for _ in 0..5 {
            ensure!(talk.line()? == "1 4 \n" && talk.bytes(4)? == b"\0\0\0\0");
            ensure!(talk.line()? == "1 4 \n" && talk.bytes(4)? == b"xY\0\0");
        }
        talk.expect(&format!("{version} 9 {manage} 41 1 5\n"), "1 \n")?;
        talk.expect(&format!("{version} 9 {manage} 42 2 5\n"), "1 \n")?;
        let probe = talk.probe(&made.manage)?;
        ensure!((probe.read_count, probe.write_count) == (2, 0), "{probe:?}");
        talk.expect(&format!("{version} 9 {manage} 42 2 5\n"), " -12 \n")?;
    }
    depots.talk()?.expect("1 4 3 10\n", "1 0 \n")
}
