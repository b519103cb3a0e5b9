//! CREATE in its three ways, MKDIR, SYMLINK and MKNOD.

use anyhow::{Result, ensure};
use crossdock_nfs3::call::{CreateHow, Special, StableHow};
use crossdock_nfs3::{DeviceNumber, FileType, SetAttributes, SetTime, Status, Timestamp};

use crate::operations::{
    at, create, exclusive, guarded, mkdir, mknod, mode, read, readlink, setattr, size, symlink,
    write,
};
use crate::runner::{Check, Stage, check, with_servers};

pub(crate) const CHECKS: &[Check] = &[
    check("CREATE takes over mode, size, times and owner", initial),
    check(
        "UNCHECKED leaves a file that exists as it is, but for its size",
        unchecked,
    ),
    check(
        "UNCHECKED is EXIST for what is no file",
        unchecked_of_others,
    ),
    check("GUARDED makes a file once", guarded_once),
    check(
        "EXCLUSIVE with the same verifier finds its file, with another one is EXIST",
        exclusive_again,
    ),
    check(
        "EXCLUSIVE after the file's times were set is EXIST",
        exclusive_after_setattr,
    ),
    with_servers(
        "EXCLUSIVE sent again after kill -9 finds its file",
        exclusive_after_a_crash,
    ),
    check(
        "MKNOD makes sockets, pipes and devices with their numbers",
        special_files,
    ),
    check(
        "MKNOD of files, directories and links is BADTYPE",
        bad_types,
    ),
    check(
        "only root makes devices; pipes and sockets are for all",
        devices_of_users,
    ),
    check(
        "special files and links cannot be read or written",
        no_content,
    ),
    check(
        "texts of links of 1 to 4,095 bytes come back as they were",
        link_texts,
    ),
    check(
        "empty texts of links are INVAL, longer ones NAMETOOLONG",
        bad_link_texts,
    ),
    check(
        "in a set-group directory everything gets its group",
        set_group,
    ),
    check("CREATE with a size that no file can have is FBIG", too_big),
];

fn initial(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let time = |seconds| Timestamp {
        seconds,
        nanoseconds: 5,
    };
    let wanted = SetAttributes {
        mode: Some(0o4711),
        uid: Some(3),
        gid: Some(4),
        size_bytes: Some(100_000),
        accessed: SetTime::ClientTime(time(7)),
        modified: SetTime::ClientTime(time(8)),
    };
    for (name, how) in [
        ("unchecked", CreateHow::Unchecked(wanted)),
        ("guarded", CreateHow::Guarded(wanted)),
    ] {
        let made = client.made(&create(at(&stage.directory, name), how))?;
        let file = made.object.unwrap_or(stage.root);
        let found = client.getattr(&file)?;
        ensure!(made.attributes == Some(found), "the reply had others");
        let (mode, owner) = (found.mode, (found.uid, found.gid));
        ensure!(mode == 0o4711 && owner == (3, 4), "{mode:o}, {owner:?}");
        ensure!(found.size_bytes == 100_000, "{} bytes", found.size_bytes);
        ensure!(found.accessed == time(7), "{:?}", found.accessed);
        ensure!(found.modified == time(8), "{:?}", found.modified);
        ensure!(
            found.file_type == FileType::Regular && found.links == 1,
            "type"
        );
        let zeros = client.read(&file, 99_000, 2000)?;
        ensure!(zeros.data.to_bytes()[..] == [0; 1000], "no zeros");
    }
    Ok(())
}

fn unchecked(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o640)?;
    client.write(&file, 0, b"content", StableHow::FileSync)?;
    let location = at(&stage.directory, "file");
    let again = create(location, CreateHow::Unchecked(mode(0o777)));
    ensure!(client.make(&again)? == file, "another file");
    let found = client.getattr(&file)?;
    ensure!(
        found.mode == 0o640 && found.size_bytes == 7,
        "{:o}, {} bytes",
        found.mode,
        found.size_bytes
    );
    client.make(&create(location, CreateHow::Unchecked(size(3))))?;
    let read = client.read(&file, 0, 100)?;
    ensure!(read.data.to_bytes()[..] == b"con"[..], "not cut");
    client.make(&create(location, CreateHow::Unchecked(size(0))))?;
    ensure!(client.getattr(&file)?.size_bytes == 0, "not empty");
    Ok(())
}

fn unchecked_of_others(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    client.mkdir(&stage.directory, "directory", 0o755)?;
    client.symlink(&stage.directory, "symlink", b"target")?;
    client.fifo(&stage.directory, "fifo")?;
    for name in ["directory", "symlink", "fifo"] {
        let how = CreateHow::Unchecked(mode(0o644));
        let call = create(at(&stage.directory, name), how);
        client.refuses(Status::Exist, &call)?;
    }
    Ok(())
}

fn guarded_once(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let call = guarded(at(&stage.directory, "file"), 0o644);
    let file = client.make(&call)?;
    client.write(&file, 0, b"content", StableHow::FileSync)?;
    client.refuses(Status::Exist, &call)?;
    ensure!(client.getattr(&file)?.size_bytes == 7, "it was cut");
    client.remove(&stage.directory, "file")?;
    ensure!(client.make(&call)? != file, "the handle is used again");
    Ok(())
}

fn exclusive_again(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let location = at(&stage.directory, "file");
    for verifier in [[0; 8], [0xff; 8], *b"verifier", [0x80, 0, 0, 0, 0, 0, 0, 1]] {
        let file = client.make(&exclusive(location, verifier))?;
        // New calls, not the same one sent again.
        ensure!(
            client.make(&exclusive(location, verifier))? == file,
            "another file"
        );
        for byte in 0..8 {
            let mut other = verifier;
            other[byte] ^= 0x80;
            client.refuses(Status::Exist, &exclusive(location, other))?;
            other[byte] ^= 0x81;
            client.refuses(Status::Exist, &exclusive(location, other))?;
        }
        client.refuses(Status::Exist, &guarded(location, 0o644))?;
        client.remove(&stage.directory, "file")?;
    }
    client.mkdir(&stage.directory, "file", 0o755)?;
    client.refuses(Status::Exist, &exclusive(location, [0; 8]))
}

fn exclusive_after_setattr(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let location = at(&stage.directory, "file");
    let file = client.make(&exclusive(location, *b"verifier"))?;
    let times = SetAttributes {
        mode: Some(0o644),
        accessed: SetTime::ServerTime,
        modified: SetTime::ServerTime,
        ..SetAttributes::default()
    };
    let before = client.getattr(&stage.directory)?.changed;
    client.setattr(&file, times)?;
    let found = client.getattr(&file)?;
    ensure!(
        found.accessed >= before && found.modified >= before,
        "the verifier is still in the times"
    );
    client.refuses(Status::Exist, &exclusive(location, *b"verifier"))
}

fn exclusive_after_a_crash(stage: &Stage<'_>) -> Result<()> {
    let server = stage.own_server("exclusive", &[])?;
    let mut client = crate::client::Client::connect(server.address())?;
    let root = client.mount("/")?;
    let file = client.make(&exclusive(at(&root, "file"), *b"verifier"))?;
    // The second one is not answered before the crash; it may be done or not.
    client.send(&exclusive(at(&root, "unanswered"), *b"verified"))?;
    server.kill()?;

    let server = stage.own_server("exclusive", &[])?;
    let mut client = crate::client::Client::connect(server.address())?;
    let again = client.make(&exclusive(at(&root, "file"), *b"verifier"))?;
    ensure!(again == file, "another file");
    client.refuses(Status::Exist, &exclusive(at(&root, "file"), *b"another!"))?;
    let second = client.make(&exclusive(at(&root, "unanswered"), *b"verified"))?;
    ensure!(
        client.lookup(&root, "unanswered")? == second,
        "another file"
    );
    let names = client.names(&root)?;
    ensure!(names.len() == 2, "{names:?}");
    server.stop()?;
    stage.clear("exclusive")
}

fn special_files(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let device = DeviceNumber {
        major: 0xfff1,
        minor: 0xf_fff2,
    };
    let attributes = mode(0o620);
    let none = DeviceNumber::default();
    for (name, what, file_type, number) in [
        (
            "character",
            Special::CharacterDevice { attributes, device },
            FileType::CharacterDevice,
            device,
        ),
        (
            "block",
            Special::BlockDevice { attributes, device },
            FileType::BlockDevice,
            device,
        ),
        (
            "socket",
            Special::Socket(attributes),
            FileType::Socket,
            none,
        ),
        ("fifo", Special::Fifo(attributes), FileType::Fifo, none),
    ] {
        let object = client.make(&mknod(at(&stage.directory, name), what))?;
        let found = client.getattr(&object)?;
        ensure!(
            found.file_type == file_type,
            "{name}: {:?}",
            found.file_type
        );
        ensure!(found.device == number, "{name}: {:?}", found.device);
        ensure!(found.mode == 0o620 && found.size_bytes == 0, "{name}");
        ensure!(client.lookup(&stage.directory, name)? == object, "{name}");
    }
    Ok(())
}

fn bad_types(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for file_type in [FileType::Regular, FileType::Directory, FileType::Symlink] {
        let call = mknod(at(&stage.directory, "name"), Special::Other(file_type));
        client.refuses(Status::BadType, &call)?;
    }
    Ok(())
}

fn devices_of_users(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.user(1000, 1000, &[])?;
    let attributes = mode(0o644);
    let device = DeviceNumber { major: 1, minor: 3 };
    for what in [
        Special::CharacterDevice { attributes, device },
        Special::BlockDevice { attributes, device },
    ] {
        client.refuses(Status::Perm, &mknod(at(&stage.directory, "device"), what))?;
    }
    client.accepts(&mknod(
        at(&stage.directory, "fifo"),
        Special::Fifo(attributes),
    ))?;
    let socket = Special::Socket(attributes);
    client.accepts(&mknod(at(&stage.directory, "socket"), socket))
}

fn no_content(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let attributes = mode(0o666);
    let device = DeviceNumber { major: 1, minor: 5 };
    let symlink = client.symlink(directory, "symlink", b"target")?;
    let mut others = vec![symlink, client.fifo(directory, "fifo")?];
    let character = Special::CharacterDevice { attributes, device };
    others.push(client.make(&mknod(at(directory, "device"), character))?);
    others.push(client.make(&mknod(at(directory, "socket"), Special::Socket(attributes)))?);
    for object in &others {
        client.refuses(Status::Inval, &read(object, 0, 100))?;
        let data = write(object, 0, b"data", StableHow::FileSync);
        client.refuses(Status::Inval, &data)?;
        client.refuses(Status::Inval, &setattr(object, size(0)))?;
    }
    let file = client.create(directory, "file", 0o644)?;
    for object in others[1..].iter().chain([&file, directory]) {
        client.refuses(Status::Inval, &readlink(object))?;
    }
    Ok(())
}

fn link_texts(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for length in [1, 2, 3, 4, 255, 256, 1023, 1024, 4095] {
        let text: Vec<u8> = (1..=255).cycle().take(length).collect();
        let name = format!("link-{length}");
        let symlink = client.symlink(&stage.directory, &name, &text)?;
        ensure!(client.readlink(&symlink)?[..] == text[..], "{length} bytes");
        let found = client.getattr(&symlink)?;
        ensure!(found.size_bytes == length as u64, "{}", found.size_bytes);
        ensure!(
            found.file_type == FileType::Symlink,
            "{:?}",
            found.file_type
        );
    }
    Ok(())
}

fn bad_link_texts(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let location = at(&stage.directory, "link");
    client.refuses(Status::Inval, &symlink(location, b""))?;
    client.refuses(Status::Inval, &symlink(location, b"a\0b"))?;
    for length in [4096, 10_000] {
        client.refuses(Status::NameTooLong, &symlink(location, &vec![b'x'; length]))?;
    }
    ensure!(client.names(&stage.directory)?.is_empty(), "it was made");
    Ok(())
}

fn set_group(stage: &Stage<'_>) -> Result<()> {
    let mut root = stage.client()?;
    let shared = root.mkdir(&stage.directory, "shared", 0o777)?;
    let group = SetAttributes {
        mode: Some(0o2777),
        gid: Some(77),
        ..SetAttributes::default()
    };
    root.setattr(&shared, group)?;
    let mut client = stage.user(1000, 1000, &[])?;
    let sub = client.make(&mkdir(at(&shared, "sub"), 0o755))?;
    let file = client.create(&shared, "file", 0o644)?;
    let link = client.symlink(&shared, "symlink", b"x")?;
    let fifo = client.fifo(&shared, "fifo")?;
    for object in [sub, file, link, fifo] {
        let found = client.getattr(&object)?;
        ensure!((found.uid, found.gid) == (1000, 77), "{}", found.gid);
    }
    let inherited = client.getattr(&sub)?.mode;
    ensure!(inherited == 0o2755, "a directory of {inherited:o}");
    Ok(())
}

fn too_big(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for bytes in [(1 << 46) + 1, 1 << 63, u64::MAX] {
        let how = CreateHow::Guarded(size(bytes));
        let call = create(at(&stage.directory, "file"), how);
        client.refuses(Status::FBig, &call)?;
    }
    ensure!(client.names(&stage.directory)?.is_empty(), "it was made");
    Ok(())
}
