//! Who may do what: by user, by group, by one of 16 further groups, and in
//! sticky directories. Root may do everything.

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::call::StableHow;
use crossdock_nfs3::{Call, HandleBuffer, SetAttributes, SetTime, Status, Timestamp};

use crate::client::Client;
use crate::operations::{
    at, create, fifo, guarded, link, mkdir, mode, read, readdir, readdirplus, rename, setattr,
    size, symlink, write,
};
use crate::runner::{Check, Stage, check};

pub(crate) const CHECKS: &[Check] = &[
    check(
        "owner, group and others have each their bits of a directory",
        classes_of_a_directory,
    ),
    check(
        "owner, group and others have each their bits of a file",
        classes_of_a_file,
    ),
    check(
        "without search nothing in a directory is found or changed",
        without_search,
    ),
    check(
        "without write nothing can be made, linked, moved or removed",
        without_write,
    ),
    check(
        "in a sticky directory only owners remove and rename",
        sticky,
    ),
    check(
        "a directory that moves elsewhere must be writable itself",
        moved_directory,
    ),
    check("only owners change modes and times", owners_attributes),
    check(
        "whoever may write may set times to now, not to his own",
        times_of_writers,
    ),
    check(
        "only root gives files away; owners choose among their groups",
        giving_away,
    ),
    check(
        "a SETATTR that is refused for one of its fields changes none",
        all_or_nothing,
    ),
    check(
        "an owner reads and writes a file without permission, as after open",
        owner_override,
    ),
    check("whoever may execute a file may read it", execute_is_read),
    check("root does everything everywhere", root_may),
    check(
        "UNCHECKED with a size needs permission to write the file",
        unchecked_needs_write,
    ),
];

const OWNER: (u32, u32) = (1000, 1000);
const STRANGER: (u32, u32) = (2000, 2000);

fn owner(stage: &Stage<'_>) -> Result<Client> {
    stage.user(OWNER.0, OWNER.1, &[])
}

fn stranger(stage: &Stage<'_>) -> Result<Client> {
    stage.user(STRANGER.0, STRANGER.1, &[])
}

/// Who is in which class: the owner, his group, it as a further group, others.
fn classes(stage: &Stage<'_>) -> Result<[(u32, Client); 4]> {
    Ok([
        (6, owner(stage)?),
        (3, stage.user(1001, OWNER.1, &[])?),
        (3, stage.user(1002, 1002, &[5, 6, OWNER.1, 7])?),
        (0, stranger(stage)?),
    ])
}

fn expect(client: &mut Client, call: &Call<'_>, is_allowed: bool, what: &str) -> Result<()> {
    let expected = (!is_allowed).then_some(Status::Acces);
    let found = client.status(call)?;
    ensure!(
        found == expected,
        "{what}: {:?} is {found:?}",
        call.procedure()
    );
    Ok(())
}

fn classes_of_a_directory(stage: &Stage<'_>) -> Result<()> {
    let mut root = stage.client()?;
    let directory = owner(stage)?.mkdir(&stage.directory, "sub", 0o777)?;
    root.create(&directory, "file", 0o644)?;
    for (shift, mut client) in classes(stage)? {
        for bits in 0..8u32 {
            // The other classes have the opposite.
            let all = 0o777 & !(7 << shift) & !(bits * 0o111);
            root.setattr(&directory, mode(all | bits << shift))?;
            let what = format!("class {shift} with {bits:o}");
            let (r, w, x) = (bits & 4 != 0, bits & 2 != 0, bits & 1 != 0);
            expect(&mut client, &readdir(&directory, 0, 4096), r, &what)?;
            expect(&mut client, &readdirplus(&directory, 0, 4096), r, &what)?;
            expect(&mut client, &Call::Lookup(at(&directory, "file")), x, &what)?;
            let make = mkdir(at(&directory, "made"), 0o777);
            expect(&mut client, &make, w && x, &what)?;
            if w && x {
                client.rmdir(&directory, "made")?;
            }
        }
    }
    Ok(())
}

fn classes_of_a_file(stage: &Stage<'_>) -> Result<()> {
    let mut root = stage.client()?;
    let file = owner(stage)?.create(&stage.directory, "file", 0o777)?;
    for (shift, mut client) in classes(stage)?.into_iter().skip(1) {
        for bits in 0..8u32 {
            let all = 0o777 & !(7 << shift) & !(bits * 0o111);
            root.setattr(&file, mode(all | bits << shift))?;
            let what = format!("class {shift} with {bits:o}");
            expect(&mut client, &read(&file, 0, 10), bits & 5 != 0, &what)?;
            for stable in [StableHow::Unstable, StableHow::FileSync] {
                let call = write(&file, 0, b"x", stable);
                expect(&mut client, &call, bits & 2 != 0, &what)?;
            }
            let far = write(&file, 100_000, b"x", StableHow::FileSync);
            expect(&mut client, &far, bits & 2 != 0, &what)?;
            expect(&mut client, &read(&file, 100_000, 1), bits & 5 != 0, &what)?;
            expect(&mut client, &setattr(&file, size(9)), bits & 2 != 0, &what)?;
        }
    }
    Ok(())
}

/// Every call that changes a name in a directory.
fn changes<'a>(
    directory: &'a HandleBuffer,
    own: &'a HandleBuffer,
    file: &'a HandleBuffer,
) -> Vec<Call<'a>> {
    vec![
        guarded(at(directory, "new"), 0o644),
        mkdir(at(directory, "new"), 0o755),
        symlink(at(directory, "new"), b"target"),
        fifo(at(directory, "new")),
        link(file, at(directory, "new")),
        Call::Remove(at(directory, "file")),
        Call::Rmdir(at(directory, "sub")),
        rename(at(directory, "file"), at(own, "new")),
        rename(at(own, "file"), at(directory, "new")),
        rename(at(directory, "file"), at(directory, "new")),
    ]
}

/// A directory of the owner's, filled, and one of the stranger's.
fn two_directories(stage: &Stage<'_>, bits: u32) -> Result<[HandleBuffer; 3]> {
    let mut owner = owner(stage)?;
    let mut stranger = stranger(stage)?;
    let directory = owner.mkdir(&stage.directory, "owned", 0o755)?;
    owner.create(&directory, "file", 0o666)?;
    owner.mkdir(&directory, "sub", 0o777)?;
    owner.setattr(&directory, mode(bits))?;
    let own = stranger.mkdir(&stage.directory, "own", 0o777)?;
    let file = stranger.create(&own, "file", 0o666)?;
    Ok([directory, own, file])
}

fn without_search(stage: &Stage<'_>) -> Result<()> {
    let [directory, own, file] = two_directories(stage, 0o776)?;
    let mut client = stranger(stage)?;
    client.refuses(Status::Acces, &Call::Lookup(at(&directory, "file")))?;
    client.refuses(Status::Acces, &Call::Lookup(at(&directory, "..")))?;
    for call in changes(&directory, &own, &file) {
        client.refuses(Status::Acces, &call)?;
    }
    // What exists stays unknown.
    client.refuses(Status::Acces, &guarded(at(&directory, "file"), 0o644))?;
    client.accepts(&readdir(&directory, 0, 4096))
}

fn without_write(stage: &Stage<'_>) -> Result<()> {
    let [directory, own, file] = two_directories(stage, 0o775)?;
    let mut client = stranger(stage)?;
    for call in changes(&directory, &own, &file) {
        client.refuses(Status::Acces, &call)?;
    }
    client.accepts(&Call::Lookup(at(&directory, "file")))?;
    let mut names = client.names(&directory)?;
    names.sort();
    ensure!(names == [&b"file"[..], b"sub"], "{names:?}");
    Ok(())
}

fn sticky(stage: &Stage<'_>) -> Result<()> {
    let mut root = stage.client()?;
    let mut owner = owner(stage)?;
    let mut other = stranger(stage)?;
    let directory = root.mkdir(&stage.directory, "sticky", 0o1777)?;
    owner.create(&directory, "file", 0o666)?;
    owner.mkdir(&directory, "sub", 0o777)?;
    other.create(&directory, "others", 0o666)?;
    other.mkdir(&directory, "others-sub", 0o777)?;
    for call in [
        Call::Remove(at(&directory, "file")),
        Call::Rmdir(at(&directory, "sub")),
        rename(at(&directory, "file"), at(&directory, "stolen")),
        rename(at(&directory, "file"), at(&stage.directory, "stolen")),
        rename(at(&directory, "others"), at(&directory, "file")),
        rename(at(&directory, "others-sub"), at(&directory, "sub")),
    ] {
        other.refuses(Status::Perm, &call)?;
    }
    owner.rename(at(&directory, "file"), at(&directory, "renamed"))?;
    owner.remove(&directory, "renamed")?;
    // The owner of the directory may remove what is another's.
    let change = SetAttributes {
        uid: Some(OWNER.0),
        ..SetAttributes::default()
    };
    root.setattr(&directory, change)?;
    owner.remove(&directory, "others")?;
    owner.rmdir(&directory, "sub")?;
    root.rmdir(&directory, "others-sub")?;
    Ok(())
}

fn moved_directory(stage: &Stage<'_>) -> Result<()> {
    let mut root = stage.client()?;
    let mut client = owner(stage)?;
    let from = root.mkdir(&stage.directory, "from", 0o777)?;
    let to = root.mkdir(&stage.directory, "to", 0o777)?;
    let moved = root.mkdir(&from, "moved", 0o755)?;
    let across = rename(at(&from, "moved"), at(&to, "moved"));
    client.refuses(Status::Acces, &across)?;
    client.rename(at(&from, "moved"), at(&from, "moved2"))?;
    root.setattr(&moved, mode(0o777))?;
    client.rename(at(&from, "moved2"), at(&to, "moved"))?;
    Ok(())
}

fn owners_attributes(stage: &Stage<'_>) -> Result<()> {
    let mut owner = owner(stage)?;
    let mut other = stranger(stage)?;
    let file = owner.create(&stage.directory, "file", 0o666)?;
    let sub = owner.mkdir(&stage.directory, "sub", 0o777)?;
    for object in [&file, &sub] {
        other.refuses(Status::Perm, &setattr(object, mode(0o777)))?;
        owner.accepts(&setattr(object, mode(0o770)))?;
        owner.accepts(&setattr(object, mode(0)))?;
        owner.accepts(&setattr(object, mode(0o777)))?;
    }
    Ok(())
}

fn times_of_writers(stage: &Stage<'_>) -> Result<()> {
    let mut owner = owner(stage)?;
    let mut other = stranger(stage)?;
    let file = owner.create(&stage.directory, "file", 0o666)?;
    let to = |time| SetAttributes {
        accessed: time,
        modified: time,
        ..SetAttributes::default()
    };
    let client_time = to(SetTime::ClientTime(Timestamp {
        seconds: 5,
        nanoseconds: 5,
    }));
    other.accepts(&setattr(&file, to(SetTime::ServerTime)))?;
    other.refuses(Status::Perm, &setattr(&file, client_time))?;
    owner.setattr(&file, mode(0o444))?;
    let now = setattr(&file, to(SetTime::ServerTime));
    other.refuses(Status::Acces, &now)?;
    owner.accepts(&now)?;
    owner.accepts(&setattr(&file, client_time))
}

fn giving_away(stage: &Stage<'_>) -> Result<()> {
    let mut root = stage.client()?;
    let mut owner = stage.user(OWNER.0, OWNER.1, &[50])?;
    let mut other = stranger(stage)?;
    let file = owner.create(&stage.directory, "file", 0o666)?;
    let to = |uid, gid| SetAttributes {
        uid,
        gid,
        ..SetAttributes::default()
    };
    owner.refuses(Status::Perm, &setattr(&file, to(Some(STRANGER.0), None)))?;
    owner.refuses(Status::Perm, &setattr(&file, to(None, Some(51))))?;
    other.refuses(Status::Perm, &setattr(&file, to(Some(STRANGER.0), None)))?;
    other.refuses(Status::Perm, &setattr(&file, to(None, Some(STRANGER.1))))?;
    owner.accepts(&setattr(&file, to(Some(OWNER.0), Some(50))))?;
    root.accepts(&setattr(&file, to(Some(STRANGER.0), Some(4))))?;
    let found = owner.getattr(&file)?;
    ensure!((found.uid, found.gid) == (STRANGER.0, 4), "{found:?}");
    // CREATE cannot do it either: what it asks for is not given.
    let wanted = to(Some(0), Some(0));
    let call = create(
        at(&stage.directory, "new"),
        crossdock_nfs3::call::CreateHow::Guarded(wanted),
    );
    let made = owner.made(&call)?.attributes.context("no attributes")?;
    ensure!((made.uid, made.gid) == OWNER, "made for {}", made.uid);
    Ok(())
}

fn all_or_nothing(stage: &Stage<'_>) -> Result<()> {
    let mut owner = owner(stage)?;
    let mut other = stranger(stage)?;
    let file = owner.create(&stage.directory, "file", 0o666)?;
    owner.write(&file, 0, b"content", StableHow::FileSync)?;
    let before = owner.getattr(&file)?;
    let cut = size(3);
    let away = SetAttributes {
        uid: Some(STRANGER.0),
        ..mode(0o600)
    };
    let stamped = SetAttributes {
        modified: SetTime::ClientTime(Timestamp::default()),
        ..cut
    };
    owner.refuses(Status::Perm, &setattr(&file, away))?;
    owner.refuses(
        Status::Perm,
        &setattr(
            &file,
            SetAttributes {
                uid: away.uid,
                ..cut
            },
        ),
    )?;
    other.refuses(
        Status::Perm,
        &setattr(
            &file,
            SetAttributes {
                mode: away.mode,
                ..cut
            },
        ),
    )?;
    other.refuses(Status::Perm, &setattr(&file, stamped))?;
    let after = owner.getattr(&file)?;
    ensure!(after == before, "{after:?}, not {before:?}");
    let read = owner.read(&file, 0, 100)?;
    ensure!(read.data.to_bytes()[..] == b"content"[..], "it was cut");
    Ok(())
}

fn owner_override(stage: &Stage<'_>) -> Result<()> {
    let mut owner = owner(stage)?;
    let file = owner.create(&stage.directory, "file", 0)?;
    for length in [10, 200_000] {
        let data = vec![1; length];
        owner.write(&file, 0, &data, StableHow::FileSync)?;
        let read = owner.read(&file, 0, 1 << 20)?;
        ensure!(read.data.to_bytes()[..] == data[..], "{length} bytes");
    }
    // ACCESS still says what open has to know.
    ensure!(owner.access(&file, 0x3f)? == 0, "ACCESS grants");
    Ok(())
}

fn execute_is_read(stage: &Stage<'_>) -> Result<()> {
    let mut owner = owner(stage)?;
    let mut other = stranger(stage)?;
    let file = owner.create(&stage.directory, "file", 0o711)?;
    owner.write(&file, 0, b"program", StableHow::FileSync)?;
    other.accepts(&read(&file, 0, 10))?;
    owner.setattr(&file, mode(0o700))?;
    other.refuses(Status::Acces, &read(&file, 0, 10))
}

fn root_may(stage: &Stage<'_>) -> Result<()> {
    let [directory, own, file] = two_directories(stage, 0)?;
    let mut root = stage.client()?;
    for call in changes(&directory, &own, &file) {
        // They are in each other's way, but permission is not.
        let status = root.status(&call)?;
        ensure!(
            matches!(status, None | Some(Status::Exist | Status::NoEnt)),
            "{:?}: {status:?}",
            call.procedure()
        );
    }
    root.setattr(&file, mode(0))?;
    root.write(&file, 0, b"x", StableHow::FileSync)?;
    root.accepts(&read(&file, 0, 1))
}

fn unchecked_needs_write(stage: &Stage<'_>) -> Result<()> {
    let mut owner = owner(stage)?;
    let mut other = stranger(stage)?;
    let file = owner.create(&stage.directory, "file", 0o644)?;
    owner.write(&file, 0, b"content", StableHow::FileSync)?;
    let how = crossdock_nfs3::call::CreateHow::Unchecked(size(0));
    let call = create(at(&stage.directory, "file"), how);
    other.refuses(Status::Acces, &call)?;
    ensure!(owner.getattr(&file)?.size_bytes == 7, "it was cut");
    owner.accepts(&call)
}
