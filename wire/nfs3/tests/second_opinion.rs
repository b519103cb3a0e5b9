//! Another codec reads what ours writes, and writes the same bytes again.

use crossdock_fuzzing::{Dice, samples};
use crossdock_nfs3::call::{Mknod, Special};
use crossdock_nfs3::{Call, Procedure, Reply, mount};
use crossdock_xdr::{Encode, Encoder};
use nfs3_types::mount as their_mount;
use nfs3_types::nfs3 as theirs;
use nfs3_types::xdr_codec::{Pack, Unpack};
use proptest::prelude::*;

/// Bytes of `value`, which the other codec's type `T` must reproduce.
fn agree<T: Pack + Unpack>(value: &impl Encode, what: &dyn std::fmt::Debug) {
    let mut encoder = Encoder::new();
    encoder.put(value);
    let bytes = encoder.into_bytes();
    let mut rest = &bytes[..];
    let (decoded, length) = match T::unpack(&mut rest) {
        Ok(decoded) => decoded,
        Err(error) => panic!("{what:?}: {error:?}"),
    };
    assert_eq!((length, rest.len()), (bytes.len(), 0), "{what:?}");
    let mut again = Vec::new();
    if let Err(error) = decoded.pack(&mut again) {
        panic!("{what:?}: {error:?}");
    }
    assert_eq!(again, bytes, "{what:?}");
}

fn agree_on_call(call: &Call<'_>) {
    let procedure = call.procedure();
    match procedure {
        Procedure::Null => {}
        Procedure::Getattr => agree::<theirs::GETATTR3args>(call, &procedure),
        Procedure::Setattr => agree::<theirs::SETATTR3args>(call, &procedure),
        Procedure::Lookup => agree::<theirs::LOOKUP3args<'_>>(call, &procedure),
        Procedure::Access => agree::<theirs::ACCESS3args>(call, &procedure),
        Procedure::Readlink => agree::<theirs::READLINK3args>(call, &procedure),
        Procedure::Read => agree::<theirs::READ3args>(call, &procedure),
        Procedure::Write => agree::<theirs::WRITE3args<'_>>(call, &procedure),
        Procedure::Create => agree::<theirs::CREATE3args<'_>>(call, &procedure),
        Procedure::Mkdir => agree::<theirs::MKDIR3args<'_>>(call, &procedure),
        Procedure::Symlink => agree::<theirs::SYMLINK3args<'_>>(call, &procedure),
        // It reads the types that MKNOD cannot make, but does not write them.
        Procedure::Mknod
            if matches!(
                call,
                Call::Mknod(Mknod {
                    what: Special::Other(_),
                    ..
                })
            ) => {}
        Procedure::Mknod => agree::<theirs::MKNOD3args<'_>>(call, &procedure),
        Procedure::Remove => agree::<theirs::REMOVE3args<'_>>(call, &procedure),
        Procedure::Rmdir => agree::<theirs::RMDIR3args<'_>>(call, &procedure),
        Procedure::Rename => agree::<theirs::RENAME3args<'_, '_>>(call, &procedure),
        Procedure::Link => agree::<theirs::LINK3args<'_>>(call, &procedure),
        Procedure::Readdir => agree::<theirs::READDIR3args>(call, &procedure),
        Procedure::Readdirplus => agree::<theirs::READDIRPLUS3args>(call, &procedure),
        Procedure::Fsstat => agree::<theirs::FSSTAT3args>(call, &procedure),
        Procedure::Fsinfo => agree::<theirs::FSINFO3args>(call, &procedure),
        Procedure::Pathconf => agree::<theirs::PATHCONF3args>(call, &procedure),
        Procedure::Commit => agree::<theirs::COMMIT3args>(call, &procedure),
    }
}

fn agree_on_reply(reply: &Reply) {
    let procedure = reply.procedure();
    match procedure {
        Procedure::Null => {}
        Procedure::Getattr => agree::<theirs::GETATTR3res>(reply, &procedure),
        Procedure::Setattr => agree::<theirs::SETATTR3res>(reply, &procedure),
        Procedure::Lookup => agree::<theirs::LOOKUP3res>(reply, &procedure),
        Procedure::Access => agree::<theirs::ACCESS3res>(reply, &procedure),
        Procedure::Readlink => agree::<theirs::READLINK3res<'_>>(reply, &procedure),
        Procedure::Read => agree::<theirs::READ3res<'_>>(reply, &procedure),
        Procedure::Write => agree::<theirs::WRITE3res>(reply, &procedure),
        Procedure::Create => agree::<theirs::CREATE3res>(reply, &procedure),
        Procedure::Mkdir => agree::<theirs::MKDIR3res>(reply, &procedure),
        Procedure::Symlink => agree::<theirs::SYMLINK3res>(reply, &procedure),
        Procedure::Mknod => agree::<theirs::MKNOD3res>(reply, &procedure),
        Procedure::Remove => agree::<theirs::REMOVE3res>(reply, &procedure),
        Procedure::Rmdir => agree::<theirs::RMDIR3res>(reply, &procedure),
        Procedure::Rename => agree::<theirs::RENAME3res>(reply, &procedure),
        Procedure::Link => agree::<theirs::LINK3res>(reply, &procedure),
        Procedure::Readdir => agree::<theirs::READDIR3res<'_>>(reply, &procedure),
        Procedure::Readdirplus => agree::<theirs::READDIRPLUS3res<'_>>(reply, &procedure),
        Procedure::Fsstat => agree::<theirs::FSSTAT3res>(reply, &procedure),
        Procedure::Fsinfo => agree::<theirs::FSINFO3res>(reply, &procedure),
        Procedure::Pathconf => agree::<theirs::PATHCONF3res>(reply, &procedure),
        Procedure::Commit => agree::<theirs::COMMIT3res>(reply, &procedure),
    }
}

proptest! {
    /// Goal: for NFS calls and replies, two codecs that were written apart agree
    /// about every byte.
    #[test]
    fn nfs_messages_mean_the_same_to_another_codec(seed: u64) {
        for &procedure in Procedure::ALL {
            agree_on_call(&samples::call(procedure, &mut Dice::new(seed)));
            agree_on_reply(&samples::reply(procedure, &mut Dice::new(seed)));
        }
    }

    /// Goal: the same for MOUNT.
    #[test]
    fn mount_messages_mean_the_same_to_another_codec(seed: u64) {
        for &procedure in mount::Procedure::ALL {
            let call = samples::mount_call(procedure, &mut Dice::new(seed));
            if matches!(call, mount::Call::Mnt(_) | mount::Call::Umnt(_)) {
                agree::<their_mount::dirpath<'_>>(&call, &procedure);
            }
            let reply = samples::mount_reply(procedure, &mut Dice::new(seed));
            match &reply {
                mount::Reply::Mnt(_) => agree::<their_mount::mountres3<'_>>(&reply, &procedure),
                mount::Reply::Dump(_) => agree::<their_mount::mountlist<'_, '_>>(&reply, &procedure),
                mount::Reply::Export(_) => agree::<their_mount::exports<'_, '_>>(&reply, &procedure),
                mount::Reply::Null | mount::Reply::Umnt | mount::Reply::Umntall => {}
            }
        }
    }
}
