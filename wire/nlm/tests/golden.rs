//! Messages laid out by hand, word by word, after the definitions in Open Group
//! C702 and RFC 1833: the codecs must read and write exactly these bytes.

use crossdock_nlm::lock::{
    Arguments, Holder, Lock, LockArguments, Outcome, Procedure, Results, ShareAccess,
    ShareArguments, ShareMode, Status, TestArguments, TestOutcome, UnlockArguments, Versioned,
    Width,
};
use crossdock_nlm::portmap::{self, BindProcedure, Binding, Mapping};
use crossdock_nlm::status::{self, Monitored};
use crossdock_xdr::{Decoder, Encode, Encoder};

fn words(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.put(value);
    encoder.into_bytes().to_vec()
}

#[track_caller]
fn check_call(procedure: Procedure, width: Width, call: Arguments<'_>, text: &str) {
    let bytes = words(text);
    assert_eq!(encoded(&Versioned(width, call)), bytes);
    let mut decoder = Decoder::new(&bytes);
    assert_eq!(Arguments::decode(procedure, width, &mut decoder), Ok(call));
    assert_eq!(decoder.finish(), Ok(()));
}

#[track_caller]
fn check_reply(procedure: Procedure, width: Width, reply: Results<'_>, text: &str) {
    let bytes = words(text);
    assert_eq!(encoded(&Versioned(width, reply)), bytes);
    let mut decoder = Decoder::new(&bytes);
    assert_eq!(Results::decode(procedure, width, &mut decoder), Ok(reply));
    assert_eq!(decoder.finish(), Ok(()));
}

fn lock() -> Lock<'static> {
    Lock {
        caller: b"host",
        file: &[1, 2, 3, 4, 5],
        owner: b"7@host",
        process: 7,
        offset: 0x10,
        length: 0x20,
    }
}

const COOKIE: &str = "00000004 0a0b0c0d";
const LOCK: &str =
    "00000004 686f7374 00000005 01020304 05000000 00000006 3740686f 73740000 00000007";
const WIDE: &str = "00000000 00000010 00000000 00000020";
const NARROW: &str = "00000010 00000020";
const TRUE: &str = "00000001";
const FALSE: &str = "00000000";

/// Goal: LOCK in both widths.
#[test]
fn lock_is_laid_out_as_published() {
    let call = Arguments::Lock(LockArguments {
        cookie: &[10, 11, 12, 13],
        may_block: true,
        is_exclusive: false,
        lock: lock(),
        is_reclaim: true,
        state: 0x33,
    });
    for (width, extent) in [(Width::Wide, WIDE), (Width::Narrow, NARROW)] {
        let text = format!("{COOKIE} {TRUE} {FALSE} {LOCK} {extent} {TRUE} 00000033");
        check_call(Procedure::Lock, width, call, &text);
        check_call(Procedure::UnmonitoredLock, width, call, &text);
    }
}

/// Goal: TEST, GRANTED and UNLOCK.
#[test]
fn test_and_unlock_are_laid_out_as_published() {
    let test = Arguments::Test(TestArguments {
        cookie: &[10, 11, 12, 13],
        is_exclusive: true,
        lock: lock(),
    });
    let text = format!("{COOKIE} {TRUE} {LOCK} {WIDE}");
    check_call(Procedure::Test, Width::Wide, test, &text);
    check_call(Procedure::Granted, Width::Wide, test, &text);
    let unlock = Arguments::Unlock(UnlockArguments {
        cookie: &[10, 11, 12, 13],
        lock: lock(),
    });
    let text = format!("{COOKIE} {LOCK} {NARROW}");
    check_call(Procedure::Unlock, Width::Narrow, unlock, &text);
}

/// Goal: results with and without a holder.
#[test]
fn results_are_laid_out_as_published() {
    let done = Outcome {
        cookie: &[10, 11, 12, 13],
        status: Status::Deadlock,
    };
    let text = format!("{COOKIE} 00000005");
    check_reply(Procedure::Lock, Width::Wide, Results::Done(done), &text);
    let denied = Results::Test(TestOutcome {
        cookie: &[10, 11, 12, 13],
        result: Err(Holder {
            is_exclusive: true,
            process: 9,
            owner: b"ab",
            offset: 0x10,
            length: 0x20,
        }),
    });
    let holder = "00000001 00000009 00000002 61620000";
    let text = format!("{COOKIE} 00000001 {holder} {WIDE}");
    check_reply(Procedure::Test, Width::Wide, denied, &text);
    let text = format!("{COOKIE} 00000001 {holder} {NARROW}");
    check_reply(Procedure::Test, Width::Narrow, denied, &text);
}

/// Goal: a lock beyond 32 bits is shown to old clients at the end of theirs.
#[test]
fn wide_holders_are_cut_for_narrow_clients() {
    let denied = Results::Test(TestOutcome {
        cookie: &[],
        result: Err(Holder {
            is_exclusive: false,
            process: 1,
            owner: &[],
            offset: 5 << 32,
            length: 1 << 32,
        }),
    });
    let bytes = encoded(&Versioned(Width::Narrow, denied));
    let text = "00000000 00000001 00000000 00000001 00000000 ffffffff 00000000";
    assert_eq!(bytes, words(text));
}

/// Goal: SHARE.
#[test]
fn share_is_laid_out_as_published() {
    let share = Arguments::Share(ShareArguments {
        cookie: &[],
        caller: b"host",
        file: &[1, 2, 3, 4],
        owner: b"o",
        mode: ShareMode::DenyWrite,
        access: ShareAccess::Both,
        is_reclaim: false,
    });
    let text = "00000000 00000004 686f7374 00000004 01020304 00000001 6f000000
                00000002 00000003 00000000";
    check_call(Procedure::Share, Width::Wide, share, text);
}

/// Goal: SM_NOTIFY, SM_MON and SM_STAT.
#[test]
fn states_are_laid_out_as_published() {
    let notify = status::Arguments::Notify(status::Change {
        host: b"host",
        state: 5,
    });
    assert_eq!(encoded(&notify), words("00000004 686f7374 00000005"));
    let mon = status::Arguments::Mon(
        b"host",
        status::Monitor {
            host: b"me",
            program: 100_021,
            version: 4,
            procedure: 16,
        },
        *b"0123456789abcdef",
    );
    let text = "00000004 686f7374 00000002 6d650000 000186b5 00000004 00000010
                30313233 34353637 38396162 63646566";
    assert_eq!(encoded(&mon), words(text));
    let stat = status::Results::Monitored(Monitored::No, 3);
    assert_eq!(encoded(&stat), words("00000001 00000003"));
}

/// Goal: GETPORT, DUMP and GETADDR.
#[test]
fn ports_are_laid_out_as_published() {
    let mapping = Mapping {
        program: 100_003,
        version: 3,
        protocol: portmap::TCP,
        port: 2049,
    };
    let text = "000186a3 00000003 00000006 00000801";
    assert_eq!(encoded(&portmap::Arguments::Mapping(mapping)), words(text));
    let dump = portmap::Results::Mappings(vec![mapping]);
    assert_eq!(encoded(&dump), words(&format!("{TRUE} {text} {FALSE}")));
    let binding = portmap::Arguments::Binding(Binding {
        program: 100_003,
        version: 3,
        network: b"tcp",
        address: b"192.0.2.1.0.111",
        owner: b"",
    });
    let text = "000186a3 00000003 00000003 74637000 0000000f 3139322e 302e322e 312e302e
                31313100 00000000";
    let bytes = words(text);
    assert_eq!(encoded(&binding), bytes);
    let decoded =
        portmap::Arguments::decode_bind(BindProcedure::GetAddress, &mut Decoder::new(&bytes));
    assert_eq!(decoded, Ok(binding));
}

/// Goal: universal addresses, as RFC 5665 section 5.2.3 writes them.
#[test]
fn universal_addresses_are_read_and_written() {
    for (text, address) in [
        ("192.0.2.1.8.1", "192.0.2.1:2049"),
        ("2001:db8::1.0.111", "[2001:db8::1]:111"),
    ] {
        let address = address.parse().unwrap();
        assert_eq!(portmap::universal_address(address), text);
        let parsed = portmap::parse_universal_address(text.as_bytes());
        assert_eq!(parsed, Some(address));
    }
    for wrong in ["", "1.2.3", "1.2.3.4.5", "1.2.3.4.256.1", "1.2.3.4.-1.1"] {
        assert_eq!(portmap::parse_universal_address(wrong.as_bytes()), None);
    }
}
