//! Arguments and results of the lock manager as bytes.

use crossdock_xdr::{DecodeError, Decoder, Encode, Encoder};

use super::{
    Arguments, CancelArguments, FreeAllArguments, Holder, Lock, LockArguments, Outcome, Procedure,
    Results, ShareArguments, ShareOutcome, Status, StatusChange, TestArguments, TestOutcome,
    UnlockArguments, Versioned, Width,
};
use crate::{OBJECT_BYTES_MAX, STRING_BYTES_MAX};

impl<'a> Arguments<'a> {
    /// Reads the arguments of `procedure`.
    ///
    /// # Errors
    /// They are not its arguments; answer GARBAGE_ARGS.
    pub fn decode(
        procedure: Procedure,
        width: Width,
        decoder: &mut Decoder<'a>,
    ) -> Result<Self, DecodeError> {
        use Procedure as P;
        match procedure {
            P::Null => Ok(Self::Nothing),
            P::Test | P::TestMessage | P::Granted | P::GrantedMessage => {
                decode_test(width, decoder).map(Self::Test)
            }
            P::Lock | P::LockMessage | P::UnmonitoredLock => {
                decode_lock_arguments(width, decoder).map(Self::Lock)
            }
            P::Cancel | P::CancelMessage => Ok(Self::Cancel(CancelArguments {
                cookie: object(decoder)?,
                may_block: decoder.bool()?,
                is_exclusive: decoder.bool()?,
                lock: decode_lock(width, decoder)?,
            })),
            P::Unlock | P::UnlockMessage => Ok(Self::Unlock(UnlockArguments {
                cookie: object(decoder)?,
                lock: decode_lock(width, decoder)?,
            })),
            P::TestResult => decode_test_outcome(width, decoder).map(Self::TestResult),
            P::LockResult | P::CancelResult | P::UnlockResult | P::GrantedResult => {
                decode_outcome(width, decoder).map(Self::Result)
            }
            P::StatusChanged => Ok(Self::StatusChanged(StatusChange {
                host: string(decoder)?,
                state: decoder.u32()?,
                private: decoder.array()?,
            })),
            P::Share | P::Unshare => Ok(Self::Share(ShareArguments {
                cookie: object(decoder)?,
                caller: string(decoder)?,
                file: object(decoder)?,
                owner: object(decoder)?,
                mode: decoder.get()?,
                access: decoder.get()?,
                is_reclaim: decoder.bool()?,
            })),
            P::FreeAll => Ok(Self::FreeAll(FreeAllArguments {
                caller: string(decoder)?,
                state: decoder.u32()?,
            })),
        }
    }
}

impl Encode for Versioned<Arguments<'_>> {
    fn encode(&self, encoder: &mut Encoder) {
        let Self(width, arguments) = *self;
        match arguments {
            Arguments::Nothing => {}
            Arguments::Test(test) => {
                encoder.opaque(test.cookie);
                encoder.bool(test.is_exclusive);
                encode_lock(width, &test.lock, encoder);
            }
            Arguments::Lock(lock) => {
                encoder.opaque(lock.cookie);
                encoder.bool(lock.may_block);
                encoder.bool(lock.is_exclusive);
                encode_lock(width, &lock.lock, encoder);
                encoder.bool(lock.is_reclaim);
                encoder.u32(lock.state);
            }
            Arguments::Cancel(cancel) => {
                encoder.opaque(cancel.cookie);
                encoder.bool(cancel.may_block);
                encoder.bool(cancel.is_exclusive);
                encode_lock(width, &cancel.lock, encoder);
            }
            Arguments::Unlock(unlock) => {
                encoder.opaque(unlock.cookie);
                encode_lock(width, &unlock.lock, encoder);
            }
            Arguments::TestResult(outcome) => encode_test_outcome(width, &outcome, encoder),
            Arguments::Result(outcome) => encode_outcome(width, &outcome, encoder),
            Arguments::Share(share) => {
                encoder.opaque(share.cookie);
                encoder.opaque(share.caller);
                encoder.opaque(share.file);
                encoder.opaque(share.owner);
                encoder.put(&share.mode);
                encoder.put(&share.access);
                encoder.bool(share.is_reclaim);
            }
            Arguments::FreeAll(free) => {
                encoder.opaque(free.caller);
                encoder.u32(free.state);
            }
            Arguments::StatusChanged(change) => {
                encoder.opaque(change.host);
                encoder.u32(change.state);
                encoder.array(&change.private);
            }
        }
    }
}

impl<'a> Results<'a> {
    /// Reads the results of `procedure`.
    ///
    /// # Errors
    /// They are not its results.
    pub fn decode(
        procedure: Procedure,
        width: Width,
        decoder: &mut Decoder<'a>,
    ) -> Result<Self, DecodeError> {
        use Procedure as P;
        match procedure {
            P::Test => decode_test_outcome(width, decoder).map(Self::Test),
            P::Lock | P::Cancel | P::Unlock | P::Granted | P::UnmonitoredLock => {
                decode_outcome(width, decoder).map(Self::Done)
            }
            P::Share | P::Unshare => Ok(Self::Share(ShareOutcome {
                cookie: object(decoder)?,
                status: decoder.get::<Status>()?.of_width(width),
                sequence: decoder.u32()?,
            })),
            _ => Ok(Self::Nothing),
        }
    }
}

impl Encode for Versioned<Results<'_>> {
    fn encode(&self, encoder: &mut Encoder) {
        let Self(width, results) = *self;
        match results {
            Results::Nothing => {}
            Results::Test(outcome) => encode_test_outcome(width, &outcome, encoder),
            Results::Done(outcome) => encode_outcome(width, &outcome, encoder),
            Results::Share(outcome) => {
                encoder.opaque(outcome.cookie);
                encoder.put(&outcome.status.of_width(width));
                encoder.u32(outcome.sequence);
            }
        }
    }
}

pub(crate) fn string<'a>(decoder: &mut Decoder<'a>) -> Result<&'a [u8], DecodeError> {
    decoder.opaque(STRING_BYTES_MAX)
}

fn object<'a>(decoder: &mut Decoder<'a>) -> Result<&'a [u8], DecodeError> {
    decoder.opaque(OBJECT_BYTES_MAX)
}

fn decode_extent(width: Width, decoder: &mut Decoder<'_>) -> Result<(u64, u64), DecodeError> {
    Ok(match width {
        Width::Narrow => (decoder.u32()?.into(), decoder.u32()?.into()),
        Width::Wide => (decoder.u64()?, decoder.u64()?),
    })
}

/// What 32 bits cannot say is cut: a lock beyond them, if it is shown, is shown
/// at their end, and one that reaches beyond them reaches the end of the file.
fn encode_extent(width: Width, offset: u64, length: u64, encoder: &mut Encoder) {
    match width {
        Width::Wide => {
            encoder.u64(offset);
            encoder.u64(length);
        }
        Width::Narrow => {
            encoder.u32(u32::try_from(offset).unwrap_or(u32::MAX));
            encoder.u32(u32::try_from(length).unwrap_or(0));
        }
    }
}

fn decode_lock<'a>(width: Width, decoder: &mut Decoder<'a>) -> Result<Lock<'a>, DecodeError> {
    let (caller, file) = (string(decoder)?, object(decoder)?);
    let (owner, process) = (object(decoder)?, decoder.u32()?);
    let (offset, length) = decode_extent(width, decoder)?;
    Ok(Lock {
        caller,
        file,
        owner,
        process,
        offset,
        length,
    })
}

fn encode_lock(width: Width, lock: &Lock<'_>, encoder: &mut Encoder) {
    encoder.opaque(lock.caller);
    encoder.opaque(lock.file);
    encoder.opaque(lock.owner);
    encoder.u32(lock.process);
    encode_extent(width, lock.offset, lock.length, encoder);
}

fn decode_test<'a>(
    width: Width,
    decoder: &mut Decoder<'a>,
) -> Result<TestArguments<'a>, DecodeError> {
    Ok(TestArguments {
        cookie: object(decoder)?,
        is_exclusive: decoder.bool()?,
        lock: decode_lock(width, decoder)?,
    })
}

fn decode_lock_arguments<'a>(
    width: Width,
    decoder: &mut Decoder<'a>,
) -> Result<LockArguments<'a>, DecodeError> {
    Ok(LockArguments {
        cookie: object(decoder)?,
        may_block: decoder.bool()?,
        is_exclusive: decoder.bool()?,
        lock: decode_lock(width, decoder)?,
        is_reclaim: decoder.bool()?,
        state: decoder.u32()?,
    })
}

fn decode_outcome<'a>(width: Width, decoder: &mut Decoder<'a>) -> Result<Outcome<'a>, DecodeError> {
    Ok(Outcome {
        cookie: object(decoder)?,
        status: decoder.get::<Status>()?.of_width(width),
    })
}

fn encode_outcome(width: Width, outcome: &Outcome<'_>, encoder: &mut Encoder) {
    encoder.opaque(outcome.cookie);
    encoder.put(&outcome.status.of_width(width));
}

fn decode_test_outcome<'a>(
    width: Width,
    decoder: &mut Decoder<'a>,
) -> Result<TestOutcome<'a>, DecodeError> {
    let cookie = object(decoder)?;
    let result = match decoder.get()? {
        Status::Denied => {
            let is_exclusive = decoder.bool()?;
            let (process, owner) = (decoder.u32()?, object(decoder)?);
            let (offset, length) = decode_extent(width, decoder)?;
            Err(Holder {
                is_exclusive,
                process,
                owner,
                offset,
                length,
            })
        }
        status => Ok(status_of_test(width, status)),
    };
    Ok(TestOutcome { cookie, result })
}

fn encode_test_outcome(width: Width, outcome: &TestOutcome<'_>, encoder: &mut Encoder) {
    encoder.opaque(outcome.cookie);
    match &outcome.result {
        Ok(status) => encoder.put(&status_of_test(width, *status)),
        Err(holder) => {
            encoder.put(&Status::Denied);
            encoder.bool(holder.is_exclusive);
            encoder.u32(holder.process);
            encoder.opaque(holder.owner);
            encode_extent(width, holder.offset, holder.length, encoder);
        }
    }
}

/// Without a holder nothing can be denied.
const fn status_of_test(width: Width, status: Status) -> Status {
    match status.of_width(width) {
        Status::Denied => Status::NoLocks,
        status => status,
    }
}
