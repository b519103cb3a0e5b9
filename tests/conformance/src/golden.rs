//! Whole conversations in bytes made and read by hand ([`hand`](crate::hand)).

use anyhow::{Result, ensure};

use crate::hand::{Eye, Hand, MOUNT, NFS, anonymous, call};
use crate::runner::{Check, Stage, check};
use crate::wire::Wire;

pub(crate) const CHECKS: &[Check] = &[
    check(
        "NULL of NFS is answered with these 24 bytes",
        null_is_answered,
    ),
    check(
        "MNT of the root gives a handle and AUTH_SYS",
        mount_gives_a_handle,
    ),
    check("GETATTR has 84 bytes of attributes", getattr_is_laid_out),
    check(
        "CREATE, WRITE, READ and COMMIT of a file are laid out as RFC 1813 says",
        a_file_is_laid_out,
    ),
    check(
        "SYMLINK, READLINK, LINK and LOOKUP are laid out as RFC 1813 says",
        links_are_laid_out,
    ),
    check(
        "READDIR and READDIRPLUS lists are laid out as RFC 1813 says",
        lists_are_laid_out,
    ),
    check(
        "RENAME, REMOVE and RMDIR are laid out as RFC 1813 says",
        removal_is_laid_out,
    ),
    check(
        "a failure carries its status and attributes that may be absent",
        failures_are_laid_out,
    ),
    check(
        "FSSTAT, FSINFO and PATHCONF are laid out as RFC 1813 says",
        volume_is_laid_out,
    ),
    check(
        "SETATTR with every field and a guard is understood",
        setattr_is_laid_out,
    ),
];

/// A connection and the directory of the check.
struct Talk {
    wire: Wire,
    directory: Vec<u8>,
    /// Whether replies show a directory that they are not asked for.
    shows: bool,
}

impl Talk {
    fn new(stage: &Stage<'_>) -> Result<Self> {
        Ok(Self {
            wire: Wire::connect(stage.address)?,
            directory: stage.directory.as_bytes().to_vec(),
            shows: stage.shown(()).is_some(),
        })
    }

    fn ask(&mut self, record: Hand) -> Result<Vec<u8>> {
        Ok(self.wire.exchange(&record.0)?.to_vec())
    }

    /// CREATE, GUARDED: the handle.
    fn create(&mut self, name: &[u8]) -> Result<Vec<u8>> {
        let record = call(8, NFS, 3, 8).opaque(&self.directory).opaque(name);
        let reply = self.ask(record.u32(1).mode(0o640))?;
        let mut eye = Eye(&reply);
        eye.success(8)?;
        made(&mut eye, 1, self.shows)
    }
}

/// The results of CREATE and its kin, without an error.
fn made(eye: &mut Eye<'_>, file_type: u32, shows: bool) -> Result<Vec<u8>> {
    eye.is(0, "status")?;
    eye.is(1, "handle follows")?;
    let handle = eye.opaque()?.to_vec();
    let attributes = eye.attributes()?;
    ensure!(
        attributes.is_some_and(|(found, _)| found == file_type),
        "made {attributes:?}"
    );
    let (has_before, after) = eye.wcc()?;
    let is_directory = after.map(|(found, _)| found == 2);
    ensure!(
        has_before == shows && is_directory == shows.then_some(true),
        "the directory's attributes"
    );
    eye.end()?;
    Ok(handle)
}

fn null_is_answered(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    let call: [u8; 44] = [
        0x80, 0, 0, 40, // Mark: the last fragment, 40 bytes.
        0xde, 0xad, 0xbe, 0xef, // Xid.
        0, 0, 0, 0, // CALL.
        0, 0, 0, 2, // RPC version.
        0, 1, 0x86, 0xa3, // 100003.
        0, 0, 0, 3, // Version.
        0, 0, 0, 0, // NULL.
        0, 0, 0, 0, 0, 0, 0, 0, // AUTH_NONE.
        0, 0, 0, 0, 0, 0, 0, 0, // AUTH_NONE.
    ];
    ensure!(wire.send(&call)?, "closed");
    let expected: [u8; 24] = [
        0xde, 0xad, 0xbe, 0xef, // Xid.
        0, 0, 0, 1, // REPLY.
        0, 0, 0, 0, // MSG_ACCEPTED.
        0, 0, 0, 0, 0, 0, 0, 0, // AUTH_NONE.
        0, 0, 0, 0, // SUCCESS.
    ];
    let reply = wire.expect()?;
    ensure!(reply[..] == expected, "{:02x?}", &reply[..]);
    let again = wire.exchange(&anonymous(9, MOUNT, 3, 0).0)?;
    let mut eye = Eye(&again);
    eye.success(9)?;
    eye.end()
}

fn mount_gives_a_handle(stage: &Stage<'_>) -> Result<()> {
    let mut talk = Talk::new(stage)?;
    let reply = talk.ask(call(1, MOUNT, 3, 1).opaque(b"/"))?;
    let mut eye = Eye(&reply);
    eye.success(1)?;
    eye.is(0, "MNT3_OK")?;
    let handle = eye.opaque()?;
    ensure!(handle == stage.root.as_bytes(), "another handle");
    ensure!(handle.len() <= 64, "a handle of {} bytes", handle.len());
    let count = eye.u32()?;
    let flavors: Vec<u32> = (0..count).map(|_| eye.u32()).collect::<Result<_>>()?;
    ensure!(flavors.contains(&1), "no AUTH_SYS in {flavors:?}");
    eye.end()
}

fn getattr_is_laid_out(stage: &Stage<'_>) -> Result<()> {
    let mut talk = Talk::new(stage)?;
    let reply = talk.ask(call(2, NFS, 3, 1).opaque(stage.directory.as_bytes()))?;
    let mut eye = Eye(&reply);
    eye.success(2)?;
    eye.is(0, "status")?;
    ensure!(eye.0.len() == 84, "{} bytes", eye.0.len());
    eye.is(2, "NF3DIR")?;
    eye.is(0o777, "mode")?;
    eye.is(2, "links")?;
    eye.is(0, "uid")?;
    eye.is(0, "gid")?;
    eye.take(8 + 8 + 8)?; // Size, used, device.
    let fsid = eye.u64()?;
    let fileid = eye.u64()?;
    ensure!(fsid != 0 && fileid != 0, "fsid {fsid}, fileid {fileid}");
    for time in ["atime", "mtime", "ctime"] {
        let (seconds, nanoseconds) = (eye.u32()?, eye.u32()?);
        let is_now = seconds > 1_700_000_000 && nanoseconds < 1_000_000_000;
        ensure!(is_now, "{time}: {seconds}.{nanoseconds}");
    }
    eye.end()
}

fn a_file_is_laid_out(stage: &Stage<'_>) -> Result<()> {
    let mut talk = Talk::new(stage)?;
    let file = talk.create(b"file")?;
    // 7 bytes, one of padding; FILE_SYNC.
    let record = call(3, NFS, 3, 7).opaque(&file).u64(2).u32(7).u32(2);
    let reply = talk.ask(record.opaque(b"seventy"))?;
    let mut eye = Eye(&reply);
    eye.success(3)?;
    eye.is(0, "status")?;
    let (has_before, after) = eye.wcc()?;
    ensure!(has_before && after == Some((1, 9)), "{after:?}");
    eye.is(7, "count")?;
    eye.is(2, "FILE_SYNC")?;
    let verifier = eye.u64()?;
    eye.end()?;

    let reply = talk.ask(call(4, NFS, 3, 6).opaque(&file).u64(1).u32(100))?;
    let mut eye = Eye(&reply);
    eye.success(4)?;
    eye.is(0, "status")?;
    ensure!(eye.attributes()? == Some((1, 9)), "attributes");
    eye.is(8, "count")?;
    eye.is(1, "eof")?;
    ensure!(eye.opaque()? == b"\0seventy", "other bytes");
    eye.end()?;

    let reply = talk.ask(call(5, NFS, 3, 21).opaque(&file).u64(0).u32(0))?;
    let mut eye = Eye(&reply);
    eye.success(5)?;
    eye.is(0, "status")?;
    eye.wcc()?;
    ensure!(eye.u64()? == verifier, "another verifier");
    eye.end()
}

fn links_are_laid_out(stage: &Stage<'_>) -> Result<()> {
    let mut talk = Talk::new(stage)?;
    let record = call(1, NFS, 3, 10).opaque(&talk.directory).opaque(b"link");
    let reply = talk.ask(record.mode(0o777).opaque(b"../to/x"))?;
    let mut eye = Eye(&reply);
    eye.success(1)?;
    let symlink = made(&mut eye, 5, talk.shows)?;

    let reply = talk.ask(call(2, NFS, 3, 5).opaque(&symlink))?;
    let mut eye = Eye(&reply);
    eye.success(2)?;
    eye.is(0, "status")?;
    ensure!(eye.attributes()? == Some((5, 7)), "attributes");
    ensure!(eye.opaque()? == b"../to/x", "another text");
    eye.end()?;

    let record = call(3, NFS, 3, 15).opaque(&symlink);
    let reply = talk.ask(record.opaque(&talk.directory.clone()).opaque(b"second"))?;
    let mut eye = Eye(&reply);
    eye.success(3)?;
    eye.is(0, "status")?;
    ensure!(eye.attributes()? == Some((5, 7)), "attributes");
    ensure!(eye.wcc()?.0 == talk.shows, "the directory before");
    eye.end()?;

    let record = call(4, NFS, 3, 3).opaque(&talk.directory).opaque(b"second");
    let reply = talk.ask(record)?;
    let mut eye = Eye(&reply);
    eye.success(4)?;
    eye.is(0, "status")?;
    ensure!(eye.opaque()? == symlink, "another handle");
    ensure!(eye.attributes()? == Some((5, 7)), "attributes");
    ensure!(eye.attributes()?.is_some() == talk.shows, "the directory");
    eye.end()
}

fn lists_are_laid_out(stage: &Stage<'_>) -> Result<()> {
    let mut talk = Talk::new(stage)?;
    let file = talk.create(b"entry")?;
    let record = call(1, NFS, 3, 16).opaque(&talk.directory).u64(0).u64(0);
    let reply = talk.ask(record.u32(4096))?;
    let mut eye = Eye(&reply);
    eye.success(1)?;
    eye.is(0, "status")?;
    ensure!(eye.attributes()?.is_some() == talk.shows, "attributes");
    eye.u64()?; // Cookie verifier.
    let mut names = Vec::new();
    while eye.u32()? == 1 {
        ensure!(eye.u64()? != 0, "fileid 0");
        names.push(eye.opaque()?.to_vec());
        ensure!(eye.u64()? != 0, "cookie 0");
    }
    eye.is(1, "eof")?;
    eye.end()?;
    ensure!(names == [&b"."[..], b"..", b"entry"], "{names:?}");

    let record = call(2, NFS, 3, 17).opaque(&talk.directory).u64(0).u64(0);
    let reply = talk.ask(record.u32(512).u32(4096))?;
    let mut eye = Eye(&reply);
    eye.success(2)?;
    eye.is(0, "status")?;
    ensure!(eye.attributes()?.is_some() == talk.shows, "attributes");
    eye.u64()?;
    let mut last = None;
    while eye.u32()? == 1 {
        eye.u64()?;
        let name = eye.opaque()?;
        eye.u64()?;
        let attributes = eye.attributes()?;
        let handle = (eye.u32()? == 1).then(|| eye.opaque()).transpose()?;
        last = Some((name, attributes, handle));
    }
    eye.is(1, "eof")?;
    eye.end()?;
    let expected = (&b"entry"[..], Some((1, 0)), Some(&file[..]));
    ensure!(last == Some(expected), "{last:?}");
    Ok(())
}

fn removal_is_laid_out(stage: &Stage<'_>) -> Result<()> {
    let mut talk = Talk::new(stage)?;
    talk.create(b"old")?;
    let directory = talk.directory.clone();
    let record = call(1, NFS, 3, 14).opaque(&directory).opaque(b"old");
    let reply = talk.ask(record.opaque(&directory).opaque(b"new"))?;
    let mut eye = Eye(&reply);
    eye.success(1)?;
    eye.is(0, "status")?;
    for which in ["source", "target"] {
        ensure!(eye.wcc()?.1.is_some() == talk.shows, "{which}");
    }
    eye.end()?;

    let reply = talk.ask(call(2, NFS, 3, 12).opaque(&directory).opaque(b"new"))?;
    let mut eye = Eye(&reply);
    eye.success(2)?;
    eye.is(0, "status")?;
    ensure!(eye.wcc()?.0 == talk.shows, "the directory before");
    eye.end()?;

    let record = call(3, NFS, 3, 9).opaque(&directory).opaque(b"sub");
    let reply = talk.ask(record.mode(0o755))?;
    let mut eye = Eye(&reply);
    eye.success(3)?;
    made(&mut eye, 2, talk.shows)?;
    let reply = talk.ask(call(4, NFS, 3, 13).opaque(&directory).opaque(b"sub"))?;
    let mut eye = Eye(&reply);
    eye.success(4)?;
    eye.is(0, "status")?;
    ensure!(eye.wcc()?.0 == talk.shows, "the directory before");
    eye.end()
}

fn failures_are_laid_out(stage: &Stage<'_>) -> Result<()> {
    let mut talk = Talk::new(stage)?;
    let directory = talk.directory.clone();
    let reply = talk.ask(call(1, NFS, 3, 3).opaque(&directory).opaque(b"absent"))?;
    let mut eye = Eye(&reply);
    eye.success(1)?;
    eye.is(2, "NFS3ERR_NOENT")?;
    ensure!(eye.attributes()?.is_some() == talk.shows, "the directory");
    eye.end()?;
    let reply = talk.ask(call(2, NFS, 3, 12).opaque(&directory).opaque(b"absent"))?;
    let mut eye = Eye(&reply);
    eye.success(2)?;
    eye.is(2, "NFS3ERR_NOENT")?;
    eye.wcc()?;
    eye.end()?;
    let reply = talk.ask(call(3, NFS, 3, 1).opaque(&[0x55; 32]))?;
    let mut eye = Eye(&reply);
    eye.success(3)?;
    eye.is(10_001, "NFS3ERR_BADHANDLE")?;
    eye.end()
}

fn volume_is_laid_out(stage: &Stage<'_>) -> Result<()> {
    let mut talk = Talk::new(stage)?;
    let directory = talk.directory.clone();
    let reply = talk.ask(call(1, NFS, 3, 18).opaque(&directory))?;
    let mut eye = Eye(&reply);
    eye.success(1)?;
    eye.is(0, "status")?;
    eye.attributes()?;
    let (total, free) = (eye.u64()?, eye.u64()?);
    ensure!(
        total >= free && free > 0,
        "{free} of {total} bytes are free"
    );
    eye.take(8 * 4)?;
    eye.u32()?;
    eye.end()?;

    let reply = talk.ask(call(2, NFS, 3, 19).opaque(&directory))?;
    let mut eye = Eye(&reply);
    eye.success(2)?;
    eye.is(0, "status")?;
    eye.attributes()?;
    eye.is(1 << 20, "rtmax")?;
    eye.take(2 * 4)?;
    eye.is(1 << 20, "wtmax")?;
    eye.take(3 * 4)?;
    ensure!(eye.u64()? == 1 << 46, "maxfilesize");
    eye.take(2 * 4)?;
    eye.is(0x1b, "LINK, SYMLINK, HOMOGENEOUS, CANSETTIME")?;
    eye.end()?;

    let reply = talk.ask(call(3, NFS, 3, 20).opaque(&directory))?;
    let mut eye = Eye(&reply);
    eye.success(3)?;
    eye.is(0, "status")?;
    eye.attributes()?;
    eye.u32()?;
    eye.is(255, "name_max")?;
    eye.is(1, "no_trunc")?;
    eye.is(1, "chown_restricted")?;
    eye.is(0, "case_insensitive")?;
    eye.is(1, "case_preserving")?;
    eye.end()
}

fn setattr_is_laid_out(stage: &Stage<'_>) -> Result<()> {
    let mut talk = Talk::new(stage)?;
    let file = talk.create(b"file")?;
    let reply = talk.ask(call(1, NFS, 3, 1).opaque(&file))?;
    let (seconds, nanoseconds) = (
        &reply[reply.len() - 8..reply.len() - 4],
        &reply[reply.len() - 4..],
    );
    let record = call(2, NFS, 3, 2).opaque(&file);
    let record = record.u32(1).u32(0o4751).u32(1).u32(11).u32(1).u32(12);
    let record = record.u32(1).u64(1 << 33); // Size.
    let record = record.u32(2).u32(1_000_000).u32(999_999_999); // A client's atime.
    let record = record.u32(2).u32(u32::MAX).u32(1); // A client's mtime.
    let reply = talk.ask(record.u32(1).raw(seconds).raw(nanoseconds))?;
    let mut eye = Eye(&reply);
    eye.success(2)?;
    eye.is(0, "status")?;
    eye.is(1, "before follows")?;
    eye.take(24)?;
    eye.is(1, "after follows")?;
    eye.is(1, "NF3REG")?;
    // A change of owner takes set-user-id away, also from a mode that comes with
    // it, as on Linux.
    eye.is(0o751, "mode")?;
    eye.is(1, "links")?;
    eye.is(11, "uid")?;
    eye.is(12, "gid")?;
    ensure!(eye.u64()? == 1 << 33, "size");
    eye.take(8 * 4)?;
    eye.is(1_000_000, "atime")?;
    eye.is(999_999_999, "atime")?;
    eye.is(u32::MAX, "mtime")?;
    eye.is(1, "mtime")?;
    eye.take(8)?;
    eye.end()
}
