//! NLM, NSM and the portmapper: samples and targets.

use crossdock_nlm::lock::{
    Arguments, CancelArguments, FreeAllArguments, Holder, Lock, LockArguments, Outcome, Procedure,
    Results, ShareAccess, ShareArguments, ShareMode, ShareOutcome, Status, StatusChange,
    TestArguments, TestOutcome, UnlockArguments, Versioned, Width,
};
use crossdock_nlm::portmap::{self, BindProcedure, Binding, Mapping};
use crossdock_nlm::status::{self, Monitored};
use crossdock_nlm::{OBJECT_BYTES_MAX, STRING_BYTES_MAX};
use crossdock_xdr::{Decoder, Encode};

use crate::Dice;
use crate::targets::{check_round_trip, choose, encoded, seeds};

const WIDTHS: [Width; 2] = [Width::Narrow, Width::Wide];

/// Arguments of an NLM procedure.
#[must_use]
pub fn lock_arguments(procedure: Procedure, width: Width, dice: &mut Dice) -> Arguments<'static> {
    use Procedure as P;
    let cookie = dice.bytes(OBJECT_BYTES_MAX);
    match procedure {
        P::Null => Arguments::Nothing,
        P::Test | P::TestMessage | P::Granted | P::GrantedMessage => {
            Arguments::Test(TestArguments {
                cookie,
                is_exclusive: dice.flag(),
                lock: lock(width, dice),
            })
        }
        P::Lock | P::LockMessage | P::UnmonitoredLock => Arguments::Lock(LockArguments {
            cookie,
            may_block: dice.flag(),
            is_exclusive: dice.flag(),
            lock: lock(width, dice),
            is_reclaim: dice.flag(),
            state: dice.u32(),
        }),
        P::Cancel | P::CancelMessage => Arguments::Cancel(CancelArguments {
            cookie,
            may_block: dice.flag(),
            is_exclusive: dice.flag(),
            lock: lock(width, dice),
        }),
        P::Unlock | P::UnlockMessage => Arguments::Unlock(UnlockArguments {
            cookie,
            lock: lock(width, dice),
        }),
        P::TestResult => Arguments::TestResult(test_outcome(width, dice)),
        P::LockResult | P::CancelResult | P::UnlockResult | P::GrantedResult => {
            Arguments::Result(outcome(width, dice))
        }
        P::StatusChanged => Arguments::StatusChanged(StatusChange {
            host: dice.bytes(STRING_BYTES_MAX),
            state: dice.u32(),
            private: [dice.eight(), dice.eight()]
                .concat()
                .try_into()
                .unwrap_or([0; 16]),
        }),
        P::Share | P::Unshare => Arguments::Share(ShareArguments {
            cookie,
            caller: dice.bytes(STRING_BYTES_MAX),
            file: dice.bytes(OBJECT_BYTES_MAX),
            owner: dice.bytes(OBJECT_BYTES_MAX),
            mode: dice.one_of(ShareMode::ALL),
            access: dice.one_of(ShareAccess::ALL),
            is_reclaim: dice.flag(),
        }),
        P::FreeAll => Arguments::FreeAll(FreeAllArguments {
            caller: dice.bytes(STRING_BYTES_MAX),
            state: dice.u32(),
        }),
    }
}

/// Results of an NLM procedure.
#[must_use]
pub fn lock_results(procedure: Procedure, width: Width, dice: &mut Dice) -> Results<'static> {
    use Procedure as P;
    match procedure {
        P::Test => Results::Test(test_outcome(width, dice)),
        P::Lock | P::Cancel | P::Unlock | P::Granted | P::UnmonitoredLock => {
            Results::Done(outcome(width, dice))
        }
        P::Share | P::Unshare => Results::Share(ShareOutcome {
            cookie: dice.bytes(OBJECT_BYTES_MAX),
            status: dice.one_of(Status::ALL).of_width(width),
            sequence: dice.u32(),
        }),
        _ => Results::Nothing,
    }
}

/// Arguments of an NSM procedure.
#[must_use]
pub fn status_arguments(
    procedure: status::Procedure,
    dice: &mut Dice,
) -> status::Arguments<'static> {
    use status::{Arguments as A, Procedure as P};
    let host = dice.bytes(STRING_BYTES_MAX);
    let monitor = status::Monitor {
        host: dice.bytes(STRING_BYTES_MAX),
        program: dice.u32(),
        version: dice.u32(),
        procedure: dice.u32(),
    };
    match procedure {
        P::Null | P::SimuCrash => A::Nothing,
        P::Stat => A::Stat(host),
        P::Mon => A::Mon(host, monitor, [7; 16]),
        P::Unmon => A::Unmon(host, monitor),
        P::UnmonAll => A::UnmonAll(monitor),
        P::Notify => A::Notify(status::Change {
            host,
            state: dice.u32(),
        }),
    }
}

/// Results of an NSM procedure.
#[must_use]
pub fn status_results(procedure: status::Procedure, dice: &mut Dice) -> status::Results {
    use status::{Procedure as P, Results as R};
    match procedure {
        P::Null | P::SimuCrash | P::Notify => R::Nothing,
        P::Stat | P::Mon => R::Monitored(dice.one_of(Monitored::ALL), dice.u32()),
        P::Unmon | P::UnmonAll => R::State(dice.u32()),
    }
}

/// Arguments of a procedure of the portmapper.
#[must_use]
pub fn map_arguments(
    procedure: portmap::Procedure,
    dice: &mut Dice,
) -> portmap::Arguments<'static> {
    match procedure {
        portmap::Procedure::Null | portmap::Procedure::Dump => portmap::Arguments::Nothing,
        _ => portmap::Arguments::Mapping(mapping(dice)),
    }
}

/// Results of a procedure of the portmapper.
#[must_use]
pub fn map_results(procedure: portmap::Procedure, dice: &mut Dice) -> portmap::Results<'static> {
    use portmap::{Procedure as P, Results as R};
    match procedure {
        P::Null => R::Nothing,
        P::Set | P::Unset => R::Done(dice.flag()),
        P::GetPort => R::Port(dice.u32()),
        P::Dump => R::Mappings((0..dice.below(4)).map(|_| mapping(dice)).collect()),
    }
}

/// Arguments of a procedure of rpcbind.
#[must_use]
pub fn bind_arguments(procedure: BindProcedure, dice: &mut Dice) -> portmap::Arguments<'static> {
    match procedure {
        BindProcedure::Null | BindProcedure::Dump => portmap::Arguments::Nothing,
        _ => portmap::Arguments::Binding(binding(dice)),
    }
}

/// Results of a procedure of rpcbind.
#[must_use]
pub fn bind_results(procedure: BindProcedure, dice: &mut Dice) -> portmap::Results<'static> {
    use portmap::Results as R;
    match procedure {
        BindProcedure::Null => R::Nothing,
        BindProcedure::Set | BindProcedure::Unset => R::Done(dice.flag()),
        BindProcedure::GetAddress | BindProcedure::GetVersionAddress => {
            R::Address(dice.bytes(STRING_BYTES_MAX))
        }
        BindProcedure::Dump => R::Bindings((0..dice.below(4)).map(|_| binding(dice)).collect()),
    }
}

fn mapping(dice: &mut Dice) -> Mapping {
    Mapping {
        program: dice.u32(),
        version: dice.u32(),
        protocol: dice.one_of(&[portmap::TCP, portmap::UDP]),
        port: dice.u32(),
    }
}

fn binding(dice: &mut Dice) -> Binding<'static> {
    Binding {
        program: dice.u32(),
        version: dice.u32(),
        network: dice.bytes(8),
        address: dice.bytes(STRING_BYTES_MAX),
        owner: dice.bytes(STRING_BYTES_MAX),
    }
}

fn lock(width: Width, dice: &mut Dice) -> Lock<'static> {
    let (offset, length) = extent(width, dice);
    Lock {
        caller: dice.bytes(STRING_BYTES_MAX),
        file: dice.bytes(OBJECT_BYTES_MAX),
        owner: dice.bytes(OBJECT_BYTES_MAX),
        process: dice.u32(),
        offset,
        length,
    }
}

fn extent(width: Width, dice: &mut Dice) -> (u64, u64) {
    match width {
        Width::Narrow => (dice.u32().into(), dice.u32().into()),
        Width::Wide => (dice.u64(), dice.u64()),
    }
}

fn outcome(width: Width, dice: &mut Dice) -> Outcome<'static> {
    Outcome {
        cookie: dice.bytes(OBJECT_BYTES_MAX),
        status: dice.one_of(Status::ALL).of_width(width),
    }
}

fn test_outcome(width: Width, dice: &mut Dice) -> TestOutcome<'static> {
    let cookie = dice.bytes(OBJECT_BYTES_MAX);
    let result = match dice.one_of(Status::ALL).of_width(width) {
        Status::Denied => {
            let (offset, length) = extent(width, dice);
            Err(Holder {
                is_exclusive: dice.flag(),
                process: dice.u32(),
                owner: dice.bytes(OBJECT_BYTES_MAX),
                offset,
                length,
            })
        }
        status => Ok(status),
    };
    TestOutcome { cookie, result }
}

/// Arguments of NLM; the first two bytes are the procedure and the width.
pub fn nlm_call(input: &[u8]) {
    let Some((procedure, rest)) = choose(Procedure::ALL, input) else {
        return;
    };
    let Some((width, rest)) = choose(&WIDTHS, rest) else {
        return;
    };
    if let Ok(found) = Arguments::decode(procedure, width, &mut Decoder::new(rest)) {
        check_round_trip(&Versioned(width, found), |decoder| {
            Arguments::decode(procedure, width, decoder).as_ref() == Ok(&found)
        });
    }
}

/// Results of NLM; the first two bytes are the procedure and the width.
pub fn nlm_reply(input: &[u8]) {
    let Some((procedure, rest)) = choose(Procedure::ALL, input) else {
        return;
    };
    let Some((width, rest)) = choose(&WIDTHS, rest) else {
        return;
    };
    if let Ok(found) = Results::decode(procedure, width, &mut Decoder::new(rest)) {
        check_round_trip(&Versioned(width, found), |decoder| {
            Results::decode(procedure, width, decoder).as_ref() == Ok(&found)
        });
    }
}

/// Arguments and results of NSM; the first byte is the procedure, the second
/// says which of them.
pub fn nsm(input: &[u8]) {
    let Some((procedure, rest)) = choose(status::Procedure::ALL, input) else {
        return;
    };
    match choose(&[false, true], rest) {
        Some((false, rest)) => {
            let found = status::Arguments::decode(procedure, &mut Decoder::new(rest));
            if let Ok(found) = found {
                check_round_trip(&found, |decoder| {
                    status::Arguments::decode(procedure, decoder).as_ref() == Ok(&found)
                });
            }
        }
        Some((true, rest)) => {
            let found = status::Results::decode(procedure, &mut Decoder::new(rest));
            if let Ok(found) = found {
                check_round_trip(&found, |decoder| {
                    status::Results::decode(procedure, decoder).as_ref() == Ok(&found)
                });
            }
        }
        None => {}
    }
}

/// Arguments and results of the portmapper and of rpcbind, and universal
/// addresses; the first byte is the procedure, the second says which of them.
pub fn portmap(input: &[u8]) {
    if let Some(address) = portmap::parse_universal_address(input) {
        let text = portmap::universal_address(address);
        let again = portmap::parse_universal_address(text.as_bytes());
        assert_eq!(again, Some(address));
    }
    let Some((number, rest)) = choose(&[0, 1, 2, 3, 4, 9], input) else {
        return;
    };
    let Some((kind, rest)) = choose(&[0, 1, 2, 3], rest) else {
        return;
    };
    let mut decoder = Decoder::new(rest);
    let map = portmap::Procedure::from_number(number);
    let bind = BindProcedure::from_number(number);
    match (kind, map, bind) {
        (0, Some(procedure), _) => {
            if let Ok(found) = portmap::Arguments::decode(procedure, &mut decoder) {
                check_round_trip(&found, |decoder| {
                    portmap::Arguments::decode(procedure, decoder).as_ref() == Ok(&found)
                });
            }
        }
        (1, Some(procedure), _) => {
            if let Ok(found) = portmap::Results::decode(procedure, &mut decoder) {
                check_round_trip(&found, |decoder| {
                    portmap::Results::decode(procedure, decoder).as_ref() == Ok(&found)
                });
            }
        }
        (2, _, Some(procedure)) => {
            if let Ok(found) = portmap::Arguments::decode_bind(procedure, &mut decoder) {
                check_round_trip(&found, |decoder| {
                    portmap::Arguments::decode_bind(procedure, decoder).as_ref() == Ok(&found)
                });
            }
        }
        (3, _, Some(procedure)) => {
            if let Ok(found) = portmap::Results::decode_bind(procedure, &mut decoder) {
                check_round_trip(&found, |decoder| {
                    portmap::Results::decode_bind(procedure, decoder).as_ref() == Ok(&found)
                });
            }
        }
        _ => {}
    }
}

pub(crate) fn nlm_call_seeds() -> Vec<Vec<u8>> {
    lock_seeds(|procedure, width, dice| {
        encoded(&Versioned(width, lock_arguments(procedure, width, dice)))
    })
}

pub(crate) fn nlm_reply_seeds() -> Vec<Vec<u8>> {
    lock_seeds(|procedure, width, dice| {
        encoded(&Versioned(width, lock_results(procedure, width, dice)))
    })
}

pub(crate) fn nsm_seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (&procedure, index) in status::Procedure::ALL.iter().zip(0..) {
        all.extend(seeds(1, |dice| {
            seed(index, 0, &status_arguments(procedure, dice))
        }));
        all.extend(seeds(1, |dice| {
            seed(index, 1, &status_results(procedure, dice))
        }));
    }
    all
}

pub(crate) fn portmap_seeds() -> Vec<Vec<u8>> {
    let mut all = vec![b"192.0.2.1.8.1".to_vec(), b"2001:db8::1.0.111".to_vec()];
    for (&procedure, index) in portmap::Procedure::ALL.iter().zip(0..) {
        all.extend(seeds(1, |dice| {
            seed(index, 0, &map_arguments(procedure, dice))
        }));
        all.extend(seeds(1, |dice| {
            seed(index, 1, &map_results(procedure, dice))
        }));
    }
    for (&procedure, index) in BindProcedure::ALL.iter().zip(0..) {
        all.extend(seeds(1, |dice| {
            seed(index, 2, &bind_arguments(procedure, dice))
        }));
        all.extend(seeds(1, |dice| {
            seed(index, 3, &bind_results(procedure, dice))
        }));
    }
    all
}

fn seed(first: u8, second: u8, value: &impl Encode) -> Vec<u8> {
    let mut seed = vec![first, second];
    seed.extend(encoded(value));
    seed
}

fn lock_seeds(sample: impl Fn(Procedure, Width, &mut Dice) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (&procedure, index) in Procedure::ALL.iter().zip(0u8..) {
        for (width, which) in WIDTHS.into_iter().zip(0u8..) {
            let mut dice = Dice::new(u64::from(index) * 2 + u64::from(which));
            let mut seed = vec![index, which];
            seed.extend(sample(procedure, width, &mut dice));
            all.push(seed);
        }
    }
    all
}
