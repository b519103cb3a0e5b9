//! Lines as the programs of that time wrote them, byte for byte, except that names are cut.

use std::num::NonZeroU64;
use std::time::Duration;

use crossdock_ibp::answer::{self, AnswerError};
use crossdock_ibp::{
    Access, Capabilities, Command, ErrorCode, Key, Limits, Manage, Reliability, Request, Status,
    StatusQuery, StorageType, Totals, Version, Word,
};

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

fn word(text: &str) -> Word {
    Word::new(text).expect("a word")
}

/// The line means this, and this is written as the line.
fn same(line: &str, version: Version, command: Command) {
    let request = Request { version, command };
    let parsed = Request::parse(line.strip_suffix('\n').expect("a line").as_bytes());
    assert_eq!(parsed.as_ref(), Ok(&request), "{line:?}");
    assert_eq!(request.to_string(), line);
}

/// Goal: what LoRS 0.82 sends to upload is understood and written as it is.
#[test]
fn upload() {
    same(
        "1 4 0 1 ibp 0\n",
        Version::V040,
        Command::Status {
            resource: Some(word("0")),
            query: StatusQuery::Inquire {
                password: word("ibp"),
            },
            time_limit: 0,
        },
    );
    same(
        "1 1 0 2 1 3600 102400 0\n",
        Version::V040,
        Command::Allocate {
            resource: Some(word("0")),
            reliability: Reliability::Stable,
            storage: StorageType::ByteArray,
            duration_seconds: 3600,
            size_bytes: 102_400,
            time_limit: 0,
        },
    );
    same(
        "0 2 0#IBP-9DpxFj1W.. 9482785 102400 40 \n",
        Version::V031,
        Command::Store {
            key: key("0#IBP-9DpxFj1W.."),
            attribute_key: key("9482785"),
            size_bytes: 102_400,
            time_limit: 40,
        },
    );
    let (go, stored) = (answer::done(), answer::stored(102_400));
    assert_eq!((go.as_str(), stored.as_str()), ("1 \n", "1 102400\n"));
    assert_eq!(answer::read_done(b"1 "), Ok(()));
    assert_eq!(answer::read_bytes(b"1 102400"), Ok(102_400));
}

/// Goal: the three capabilities of a new allocation.
#[test]
fn allocated() {
    let line = "1 ibp://127.0.0.1:16711/0#IBP-9DpxFj1W../1573443159/READ \
                ibp://127.0.0.1:16711/0#IBP-9DpxFj1W../9482785/WRITE \
                ibp://127.0.0.1:16711/0#IBP-9DpxFj1W../197556811/MANAGE \n";
    let capabilities = answer::read_capabilities(line.trim_end().as_bytes()).expect("three");
    let Capabilities {
        read,
        write,
        manage,
    } = &capabilities;
    assert_eq!((read.host.as_str(), read.port), ("127.0.0.1", 16711));
    assert_eq!(read.key.split(), (Some("0"), "IBP-9DpxFj1W.."));
    assert_eq!(write.attribute_key.as_str(), "9482785");
    assert_eq!(manage.access, Access::Manage);
    assert_eq!(answer::allocated(&capabilities), line);
}

/// Goal: probing with the READ key, extending, releasing, as the tools do it.
#[test]
fn management() {
    let manage = |attribute_key: &str, manage, time_limit| Command::Manage {
        key: key("0#IBP-9DpxFj1W.."),
        attribute_key: key(attribute_key),
        manage,
        time_limit,
    };
    same(
        "0 9 0#IBP-9DpxFj1W.. 1573443159 40 0 0 0 0 0\n",
        Version::V031,
        manage("1573443159", Manage::Probe, 0),
    );
    let change = Manage::Change {
        size_bytes: 102_400,
        duration_seconds: 10_625,
        reliability: Reliability::Stable,
    };
    same(
        "0 9 0#IBP-9DpxFj1W.. 197556811 43 0 102400 10625 2 20\n",
        Version::V031,
        manage("197556811", change, 20),
    );
    same(
        "0 9 0#IBP-9DpxFj1W.. 197556811 42 1 20\n",
        Version::V031,
        manage("197556811", Manage::Decrement(Access::Read), 20),
    );
    same(
        "1 9 0#k 5 45 99 7\n",
        Version::V040,
        Command::Manage {
            key: key("0#k"),
            attribute_key: key("5"),
            manage: Manage::Truncate { size_bytes: 99 },
            time_limit: 7,
        },
    );
    let short = Request::parse(b"0 9 0#k 5 40 0 9").expect("the short form");
    let long = Request::parse(b"0 9 0#k 5 40 1 2 3 4 9").expect("the long form");
    assert_eq!(short, long);
    let probe = answer::read_probe(b"1 1 1 102400 102400 3426 2 1 ").expect("a probe");
    assert_eq!((probe.read_count, probe.duration_seconds), (1, 3426));
    assert_eq!(answer::probed(&probe), "1 1 1 102400 102400 3426 2 1 \n");
}

/// Goal: a download from ACCRE's depot and a copy between LoCI's, which is a store at the
/// target.
#[test]
fn transfers() {
    same(
        "0 8 1#wva0JrU0.. 13614433171500630234 0 204800 601 \n",
        Version::V031,
        Command::Load {
            key: key("1#wva0JrU0.."),
            attribute_key: key("13614433171500630234"),
            offset_bytes: 0,
            size_bytes: NonZeroU64::new(204_800),
            time_limit: 601,
        },
    );
    assert_eq!(answer::follows(204_800), "1 204800 \n");
    let target = "ibp://127.0.0.1:16712/0#IBP-vmU3o3M2../2003062377/WRITE";
    same(
        &format!("0 5 0#IBP-M3BKS5iE.. {target} 36697459 0 102400 39 39 40 \n"),
        Version::V031,
        Command::Send {
            key: key("0#IBP-M3BKS5iE.."),
            target: target.parse().expect("a capability"),
            attribute_key: key("36697459"),
            offset_bytes: 0,
            size_bytes: NonZeroU64::new(102_400),
            time_limit: 39,
            target_time_limit: 39,
            target_patience: 40,
        },
    );
    for all in ["0 8 0#k 5 7 0 1", "0 8 0#k 5 7 -1 1"] {
        let request = Request::parse(all.as_bytes()).expect("up to the end");
        let Command::Load { size_bytes, .. } = request.command else {
            panic!("{request:?}");
        };
        assert_eq!(size_bytes, None);
    }
}

/// Goal: status in version 0, in version 1 of both families, and what changes it.
#[test]
fn status() {
    let line = "500 0 800 0 864000 \n";
    let totals = Totals::parse(line.trim_end().as_bytes()).expect("totals");
    assert_eq!(totals.to_string(), line);
    assert_eq!(totals.duration_seconds_max, Some(864_000));
    assert!(matches!(
        Totals::parse(b"-29 "),
        Err(AnswerError::Refused { code, .. }) if code == ErrorCode::WRONG_PASSWD
    ));
    let loci = "VS:1.4:0.4 DT:1:2:3 RID:0 RT:1 CT:838860800 ST:838860800 UT:128 AT:838860672 \
                CH:524288000 SH:524288000 UH:128 AH:524287872 DR:864000 RE \n";
    assert_eq!(loci.len(), 137, "the length that its depot told");
    let status = Status::parse(loci.as_bytes()).expect("LoCI's");
    assert_eq!(status.to_string(), loci);
    assert_eq!(status.data_movers, [1, 2, 3]);
    let accre = b"VS:1.4:1.0 DT:1  RID:1 RT:1 CT:524288000 ST:524288000 UT:1000 UH:1000 \
                  SH:524288000 CH:524288000 AT:524287000 AH:524287000 DR:2592000 RE \n";
    let status = Status::parse(accre).expect("ACCRE's");
    assert_eq!(status.resources[0].stable.allocatable_bytes, 524_287_000);
    assert_eq!(status.resources[0].total.used_bytes, 1000);
    let limits = Limits::parse(b"100 200 -1 ").expect("limits");
    assert_eq!(limits.duration_seconds_max, None);
    assert_eq!(limits.to_string(), "100 200 -1 \n");
    let resources = |line: &[u8]| Request::parse(line).map(|it| it.command);
    assert!(matches!(
        resources(b"1 4 3 10"),
        Ok(Command::Status {
            query: StatusQuery::Resources,
            ..
        })
    ));
    assert_eq!(answer::read_resources(b"1 1 2 ").map(|it| it.len()), Ok(2));
    assert_eq!(answer::resources(&[word("0")]), "1 0 \n");
}

/// Goal: refusals as LoCI's depot words them, and as clients read them.
#[test]
fn refusals() {
    let refused = [
        ("7 1 2 1 600 1000 10", "-27 \n"),
        ("hello", "-27 \n"),
        ("", "-27 \n"),
        ("0 77 2", "-25 \n"),
        ("0 1", " -21 \n"),
        ("0 1 3 1 600 1000 10", " -30 \n"),
        ("0 1 1 5 600 1000 10", " -30 \n"),
        ("0 1 1 1 600 -1 10", " -36 \n"),
        ("0 1 1 1 600 1x 10", " -21 \n"),
        ("0 1 1 1 600 1000 10 11", " -21 \n"),
        ("0 9 0#k 5 41 3 0", " -30 \n"),
        ("0 9 0#k 5 44 0", "-25 \n"),
        ("0 5 0#k ibp://h/k/1/WRITE 5 0 1 1 1 1", " -11 \n"),
        ("0 2 a/b 5 1 1", " -11 \n"),
        ("0 4 9 ibp 0", "-25 \n"),
    ];
    for (line, expected) in refused {
        let code = Request::parse(line.as_bytes()).expect_err(line);
        assert_eq!(answer::refused(code), expected, "{line:?}");
    }
    let code = ErrorCode::OUT_OF_SOCKETS;
    let retry_after = Some(Duration::from_millis(1500));
    assert_eq!(
        answer::read_done(b"-66 1.5"),
        Err(AnswerError::Refused { code, retry_after })
    );
    assert_eq!(answer::passed_on(ErrorCode::INVALID_WRITE_CAP), "-8 \n");
    for malformed in [&b""[..], b"2", b"0", b"x", b"1 1 1", b"1 -5", b"\xff"] {
        assert_eq!(answer::read_bytes(malformed), Err(AnswerError::Malformed));
    }
}

/// Goal: blanks at the end, runs of them, CR, and a missing time limit mean nothing.
#[test]
fn blanks_and_missing_time_limits() {
    let expected = Request::parse(b"0 2 k 5 10 0").expect("a store");
    for line in [
        &b" 0  2 k\t5   10 0  "[..],
        b"0 2 k 5 10\r",
        b"0 2 k 5 10 -3 ",
    ] {
        assert_eq!(Request::parse(line).as_ref(), Ok(&expected), "{line:?}");
    }
}

/// Goal: parts of a second, as libdlt sends them, are a second; what is no number is none.
#[test]
fn time_limits_may_be_parts_of_seconds() {
    let limit = |text: &str| {
        let line = format!("0 4 1 ibp {text} ");
        let request = Request::parse(line.as_bytes());
        request.map(|request| match request.command {
            Command::Status { time_limit, .. } => time_limit,
            _ => panic!("{request:?}"),
        })
    };
    let said = [
        ("0.5", 1),
        ("0.0", 0),
        ("1.", 1),
        ("2.25", 3),
        ("-0.5", 0),
        ("7", 7),
    ];
    for (text, seconds) in said {
        assert_eq!(limit(text), Ok(seconds), "{text}");
    }
    for wrong in [".5", "0.5x", "0.-5", "x", "1.2.3"] {
        assert_eq!(limit(wrong), Err(ErrorCode::BAD_FORMAT), "{wrong}");
    }
}

/// Goal: IPv6 hosts and the scheme's case; what is not six parts is none.
#[test]
fn capabilities() {
    let text = "ibp://[fd00::1]:6714/0#k/5/MANAGE";
    let capability: crossdock_ibp::Capability = text.parse().expect("a capability");
    assert_eq!(
        (capability.host.as_str(), capability.port),
        ("[fd00::1]", 6714)
    );
    assert_eq!(capability.to_string(), text);
    assert_eq!(text.replace("ibp", "IBP").parse(), Ok(capability));
    for wrong in [
        "",
        "ibp://h:1/k/5/READ/",
        "ibp://h:1/k/READ",
        "http://h:1/k/5/READ",
        "ibp://h:1/k/5/read",
        "ibp://h:99999/k/5/READ",
        "ibp://h:+1/k/5/READ",
        "ibp://h/k/5/READ",
        "ibp://:1/k/5/READ",
        "ibp://h:1//5/READ",
        "ibp://h:1/k/5/RE AD",
    ] {
        assert!(
            wrong.parse::<crossdock_ibp::Capability>().is_err(),
            "{wrong:?}"
        );
    }
    assert!(!format!("{:?}", key("secret")).contains("secret"));
}
