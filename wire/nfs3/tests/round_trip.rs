//! What holds for every message of NFS and MOUNT, over random values and bytes.

use bytes::Bytes;
use crossdock_fuzzing::{Dice, mount_call, mount_reply, nfs3_call, nfs3_reply, samples};
use crossdock_limits::NAME_DECODE_BYTES_MAX;
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::reply;
use crossdock_nfs3::{
    Call, CookieVerifier, Entry, HANDLE_BYTES_MAX, Handle, HandleBuffer, Location, Name, Procedure,
    ReaddirBuilder, ReaddirplusBuilder, Reply, Status, mount,
};
use crossdock_types::Payload;
use crossdock_xdr::{DecodeError, Decoder, Encode, Encoder};
use proptest::prelude::*;

fn encoded<T: Encode>(value: &T) -> Bytes {
    let mut encoder = Encoder::new();
    encoder.put(value);
    let length_bytes = encoder.len();
    let bytes = encoder.into_bytes();
    assert_eq!(bytes.len(), length_bytes);
    bytes
}

/// `decode` reads all of `bytes`, and no strict beginning of them.
fn check<T>(bytes: &Bytes, decode: impl Fn(&mut Decoder<'_>) -> Result<T, DecodeError>) {
    let mut decoder = Decoder::of_record(bytes);
    assert!(decode(&mut decoder).is_ok());
    assert_eq!(decoder.finish(), Ok(()));
    let step = 1 + bytes.len() / 64; // Long data: some of the beginnings.
    for length in (0..bytes.len()).step_by(step) {
        assert!(decode(&mut Decoder::new(&bytes[..length])).is_err());
    }
}

proptest! {
    /// Goal: every NFS call survives the way over the wire, and not a byte of it
    /// can be missing.
    #[test]
    fn calls_are_decoded_as_they_were_encoded(seed: u64) {
        for &procedure in Procedure::ALL {
            let call = samples::call(procedure, &mut Dice::new(seed));
            let bytes = encoded(&call);
            let decoded = Call::decode(procedure, &mut Decoder::new(&bytes));
            prop_assert_eq!(decoded.as_ref(), Ok(&call));
            check(&bytes, |decoder| Call::decode(procedure, decoder).map(drop));
        }
    }

    /// Goal: the same for every NFS reply.
    #[test]
    fn replies_are_decoded_as_they_were_encoded(seed: u64) {
        for &procedure in Procedure::ALL {
            let reply = samples::reply(procedure, &mut Dice::new(seed));
            let bytes = encoded(&reply);
            let decoded = Reply::decode(procedure, &mut Decoder::new(&bytes));
            prop_assert_eq!(decoded.as_ref(), Ok(&reply));
            check(&bytes, |decoder| Reply::decode(procedure, decoder).map(drop));
        }
    }

    /// Goal: the same for every MOUNT call and reply.
    #[test]
    fn mount_messages_are_decoded_as_they_were_encoded(seed: u64) {
        for &procedure in mount::Procedure::ALL {
            let call = samples::mount_call(procedure, &mut Dice::new(seed));
            let bytes = encoded(&call);
            prop_assert_eq!(mount::Call::decode(procedure, &mut Decoder::new(&bytes)), Ok(call));
            check(&bytes, |decoder| mount::Call::decode(procedure, decoder).map(drop));

            let reply = samples::mount_reply(procedure, &mut Dice::new(seed));
            let bytes = encoded(&reply);
            let decoded = mount::Reply::decode(procedure, &mut Decoder::new(&bytes));
            prop_assert_eq!(decoded.as_ref(), Ok(&reply));
            check(&bytes, |decoder| mount::Reply::decode(procedure, decoder).map(drop));
        }
    }

    /// Goal: whatever a peer sends, nothing panics, and what is accepted means
    /// the same when it is sent on.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        nfs3_call(&bytes);
        nfs3_reply(&bytes);
        mount_call(&bytes);
        mount_reply(&bytes);
    }

    /// Goal: the same for messages that are nearly right.
    #[test]
    fn damaged_messages_are_survived(
        seed: u64,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for &procedure in Procedure::ALL {
            let first = [procedure.number().to_be_bytes()[3]];
            let call = encoded(&samples::call(procedure, &mut Dice::new(seed)));
            let reply = encoded(&samples::reply(procedure, &mut Dice::new(seed)));
            for (message, target) in [(call, nfs3_call as fn(&[u8])), (reply, nfs3_reply)] {
                let mut bytes = [&first[..], &message].concat();
                for (place, value) in &damage {
                    let place = place.index(bytes.len());
                    bytes[place] = *value;
                }
                target(&bytes);
            }
        }
    }

    /// Goal: a listing is never larger than asked for, and stops only where the
    /// next entry would have made it so.
    #[test]
    fn listings_fill_their_room_exactly(seed: u64, count_bytes in 0..3000_u32, plus: bool) {
        let mut dice = Dice::new(seed);
        let room_bytes = usize::try_from(count_bytes).unwrap();
        let verifier = CookieVerifier(dice.eight());
        let mut refused_bytes = None;
        let (reply, pushed) = if plus {
            let mut list = ReaddirplusBuilder::new(None, verifier, u32::MAX, count_bytes);
            let mut pushed = 0;
            for _ in 0..20 {
                let entry = samples::entry_plus(&mut dice);
                if !list.push(&entry) {
                    refused_bytes = Some(entry.encoded_bytes());
                    break;
                }
                pushed += 1;
            }
            (Reply::Readdirplus(list.finish(false)), pushed)
        } else {
            let mut list = ReaddirBuilder::new(None, verifier, count_bytes);
            let mut pushed = 0;
            for _ in 0..20 {
                let entry = samples::entry(&mut dice);
                if !list.push(&entry) {
                    refused_bytes = Some(entry.encoded_bytes());
                    break;
                }
                pushed += 1;
            }
            (Reply::Readdir(list.finish(false)), pushed)
        };
        if pushed == 0 {
            prop_assert_eq!(reply.status(), Some(Status::TooSmall));
            return Ok(());
        }
        const STATUS_BYTES: usize = 4; // In front of the resok structure.
        let resok_bytes = encoded(&reply).len() - STATUS_BYTES;
        prop_assert!(resok_bytes <= room_bytes);
        if let Some(refused_bytes) = refused_bytes {
            prop_assert!(resok_bytes + refused_bytes > room_bytes);
        }
        let listed = match &reply {
            Reply::Readdir(Ok(reply)) => reply.entries.iter().count(),
            Reply::Readdirplus(Ok(reply)) => reply.entries.iter().count(),
            _ => 0,
        };
        prop_assert_eq!(listed, pushed);
    }
}

/// Goal: the client's dircount stops a READDIRPLUS, but not before its first entry.
#[test]
fn directory_count_is_honoured_behind_the_first_entry() {
    let mut list = ReaddirplusBuilder::new(None, CookieVerifier::default(), 8, 4096);
    let mut entry = samples::entry_plus(&mut Dice::new(3));
    entry.name = Name(b"name");
    assert_eq!(entry.directory_bytes(), 24);
    assert!(list.push(&entry));
    assert!(!list.push(&entry));

    let mut list = ReaddirplusBuilder::new(None, CookieVerifier::default(), 48, 4096);
    assert!(list.push(&entry));
    assert!(list.push(&entry));
    assert!(!list.push(&entry));
    let listing = list.finish(false).unwrap();
    assert_eq!(listing.entries.iter().count(), 2);
}

/// Goal: an empty directory is an empty list and no error, however small the buffer.
#[test]
fn end_of_directory_needs_no_room() {
    let list = ReaddirBuilder::new(None, CookieVerifier([7; 8]), 0);
    let reply = list.finish(true).unwrap();
    assert!(reply.is_end);
    assert_eq!(reply.entries.iter().next(), None::<Entry<'_>>);
}

/// Goal: a handle of 65 bytes is no handle; a name is decoded up to its limit, so
/// that the server can say NFS3ERR_NAMETOOLONG, and no further.
#[test]
fn handles_and_names_have_limits() {
    assert!(Handle::new(&[0; HANDLE_BYTES_MAX + 1]).is_none());
    assert!(HandleBuffer::new(&[0; HANDLE_BYTES_MAX + 1]).is_none());
    let mut encoder = Encoder::new();
    encoder.opaque(&[0; HANDLE_BYTES_MAX + 1]);
    let bytes = encoder.into_bytes();
    let too_long = |length, length_max| Err(DecodeError::TooLong { length, length_max });
    assert_eq!(
        Call::decode(Procedure::Getattr, &mut Decoder::new(&bytes)),
        too_long(65, 64)
    );

    let lookup = |length| {
        let name = vec![b'n'; length];
        encoded(&Location {
            directory: Handle::new(b"directory").unwrap(),
            name: Name(&name),
        })
    };
    let longest = lookup(NAME_DECODE_BYTES_MAX);
    assert!(Call::decode(Procedure::Lookup, &mut Decoder::new(&longest)).is_ok());
    let longer = lookup(NAME_DECODE_BYTES_MAX + 1);
    assert_eq!(
        Call::decode(Procedure::Lookup, &mut Decoder::new(&longer)),
        too_long(NAME_DECODE_BYTES_MAX + 1, NAME_DECODE_BYTES_MAX)
    );
}

/// Goal: the bytes of WRITE and READ are never copied: neither from the record to
/// the server, nor from the cache to the socket.
#[test]
fn bulk_data_is_never_copied() {
    let data = Bytes::from(vec![7; 4096]);
    let write = Call::Write(call::Write {
        file: Handle::new(b"file").unwrap(),
        offset: 0,
        count_bytes: 4096,
        stable: StableHow::Unstable,
        data: Payload::from(data.clone()),
    });
    let mut encoder = Encoder::new();
    encoder.put(&write);
    let message = encoder.into_payload();
    assert_eq!(message.pieces()[1].as_ptr(), data.as_ptr());
    let record = message.to_bytes();
    let decoded = Call::decode(Procedure::Write, &mut Decoder::of_record(&record));
    let Ok(Call::Write(decoded)) = decoded else {
        panic!("not a WRITE: {decoded:?}");
    };
    let at = record.len() - 4096;
    assert_eq!(decoded.data.pieces()[0].as_ptr(), record[at..].as_ptr());

    let read = Reply::Read(Ok(reply::Read {
        attributes: None,
        is_end: false,
        data: Payload::from(data.slice(1..4096)),
    }));
    let mut encoder = Encoder::new();
    encoder.put(&read);
    let message = encoder.into_payload();
    let [head, body, padding] = message.pieces() else {
        panic!("{} pieces", message.pieces().len());
    };
    assert_eq!((head.len(), padding.len()), (20, 1));
    assert_eq!(body.as_ptr(), data[1..].as_ptr());
}

/// Goal: every procedure has its plain failure, which can be sent and read.
#[test]
fn any_procedure_can_fail_without_attributes() {
    for &procedure in Procedure::ALL {
        let reply = Reply::failure(procedure, Status::Jukebox);
        assert_eq!(reply.procedure(), procedure);
        let expected = (procedure != Procedure::Null).then_some(Status::Jukebox);
        assert_eq!(reply.status(), expected);
        let bytes = encoded(&reply);
        let decoded = Reply::decode(procedure, &mut Decoder::new(&bytes));
        assert_eq!(decoded, Ok(reply));
    }
}
