//! What RPC answers when it does not carry a call out (RFC 5531 section 9).

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{CreateHow, StableHow};
use crossdock_nfs3::{Call, CreateVerifier, HandleBuffer, Procedure};

use crate::client::{encode, next_xid, user};
use crate::hand::{Eye, Hand, MOUNT, NFS, anonymous, call};
use crate::operations::{
    access, at, commit, create, fifo, fsinfo, fsstat, getattr, link, mkdir, mode, pathconf, read,
    readdir, readdirplus, readlink, rename, setattr, symlink, write,
};
use crate::runner::{Check, Stage, check};
use crate::wire::Wire;

pub(crate) const CHECKS: &[Check] = &[
    check(
        "other RPC versions are RPC_MISMATCH, with version 2 as the range",
        rpc_versions,
    ),
    check("other programs are PROG_UNAVAIL", programs),
    check(
        "other versions are PROG_MISMATCH, with version 3 as the range",
        versions,
    ),
    check("other procedures are PROC_UNAVAIL", procedures),
    check(
        "arguments that end early are GARBAGE_ARGS, wherever they end",
        short_arguments,
    ),
    check(
        "numbers that no enumeration has are GARBAGE_ARGS",
        bad_numbers,
    ),
    check(
        "lengths beyond the record or the limits are GARBAGE_ARGS",
        bad_lengths,
    ),
    check("bytes behind the arguments are ignored", more_bytes),
    check(
        "a header that ends early is refused, and others are served on",
        short_headers,
    ),
    check(
        "what is no call is not answered, and others are served on",
        no_calls,
    ),
    check(
        "of 300 calls sent at once each is answered once, by its xid",
        many_xids,
    ),
];

/// `accept_stat` and what follows it.
fn accept_stat(wire: &mut Wire, xid: u32, record: &[u8]) -> Result<Vec<u32>> {
    let reply = wire.exchange(record)?;
    let mut eye = Eye(&reply);
    eye.accepted(xid)?;
    let mut words = Vec::new();
    while !eye.0.is_empty() {
        words.push(eye.u32()?);
    }
    Ok(words)
}

const PROG_UNAVAIL: u32 = 1;
const PROG_MISMATCH: u32 = 2;
const PROC_UNAVAIL: u32 = 3;
const GARBAGE_ARGS: u32 = 4;

fn rpc_versions(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    for version in [0, 1, 3, 4, u32::MAX] {
        let record = Hand::default().u32(77).u32(0).u32(version).u32(NFS).u32(3);
        let reply = wire.exchange(&record.u32(0).u64(0).u64(0).0)?;
        let mut eye = Eye(&reply);
        eye.is(77, "xid")?;
        eye.is(1, "REPLY")?;
        eye.is(1, "MSG_DENIED")?;
        eye.is(0, "RPC_MISMATCH")?;
        eye.is(2, "low")?;
        eye.is(2, "high")?;
        eye.end()?;
    }
    Ok(())
}

fn programs(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    for program in [0, 99_999, 100_002, 100_004, 400_122, u32::MAX] {
        let words = accept_stat(&mut wire, 5, &call(5, program, 3, 1).0)?;
        ensure!(words == [PROG_UNAVAIL], "program {program}: {words:?}");
    }
    Ok(())
}

fn versions(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    for program in [NFS, MOUNT] {
        for version in [0, 1, 2, 4, u32::MAX] {
            for procedure in [0, 1, 99] {
                let record = call(6, program, version, procedure);
                let words = accept_stat(&mut wire, 6, &record.0)?;
                ensure!(
                    words == [PROG_MISMATCH, 3, 3],
                    "program {program} version {version}: {words:?}"
                );
            }
        }
    }
    Ok(())
}

fn procedures(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    for (program, procedures) in [(NFS, [22, 23, u32::MAX]), (MOUNT, [6, 7, u32::MAX])] {
        for procedure in procedures {
            let words = accept_stat(&mut wire, 7, &call(7, program, 3, procedure).0)?;
            ensure!(
                words == [PROC_UNAVAIL],
                "program {program} procedure {procedure}: {words:?}"
            );
        }
    }
    Ok(())
}

/// One call of every procedure that has arguments.
fn one_of_each<'a>(directory: &'a HandleBuffer, file: &'a HandleBuffer) -> Vec<Call<'a>> {
    vec![
        getattr(file),
        setattr(file, mode(0o600)),
        Call::Lookup(at(directory, "file")),
        access(file, 0x3f),
        readlink(file),
        read(file, 0, 16),
        write(file, 0, b"data", StableHow::Unstable),
        create(
            at(directory, "new"),
            CreateHow::Exclusive(CreateVerifier([7; 8])),
        ),
        mkdir(at(directory, "sub"), 0o755),
        symlink(at(directory, "symlink"), b"target"),
        fifo(at(directory, "fifo")),
        Call::Remove(at(directory, "absent")),
        Call::Rmdir(at(directory, "absent")),
        rename(at(directory, "absent"), at(directory, "absent2")),
        link(file, at(directory, "file")),
        readdir(directory, 0, 4096),
        readdirplus(directory, 0, 4096),
        fsstat(directory),
        fsinfo(directory),
        pathconf(directory),
        commit(file),
    ]
}

fn short_arguments(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    let calls = one_of_each(&stage.directory, &file);
    ensure!(
        calls.len() == Procedure::ALL.len() - 1,
        "a procedure is missing"
    );
    for call in &calls {
        let xid = next_xid();
        let record = client.record(xid, call);
        let header = client.record(xid, &Call::Null).len();
        for length in (header..record.len()).step_by(4) {
            let words = accept_stat(&mut client.wire, xid, &record[..length])?;
            ensure!(
                words == [GARBAGE_ARGS],
                "{:?} cut at {length} of {}: {words:?}",
                call.procedure(),
                record.len()
            );
        }
        // The connection is as good as before.
        client.call(call)?;
    }
    let mount = crossdock_nfs3::mount::PROGRAM;
    for procedure in [1, 3] {
        let record = encode(8, (mount, 3, procedure), user(0, 0, &[]), &());
        let words = accept_stat(&mut client.wire, 8, &record)?;
        ensure!(words == [GARBAGE_ARGS], "MOUNT {procedure}: {words:?}");
    }
    Ok(())
}

fn garbage(wire: &mut Wire, what: &str, record: Hand) -> Result<()> {
    let words = accept_stat(wire, 9, &record.0)?;
    ensure!(words == [GARBAGE_ARGS], "{what}: {words:?}");
    Ok(())
}

fn bad_numbers(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    let file = file.as_bytes();
    let directory = stage.directory.as_bytes();
    let wire = &mut client.wire;
    let to = |procedure, handle| call(9, NFS, 3, procedure).opaque(handle);
    garbage(wire, "set_mode 2", to(2, file).u32(2).raw(&[0; 28]))?;
    let times = to(2, file).u32(0).u32(0).u32(0).u32(0);
    garbage(wire, "time_how 3", times.u32(3).raw(&[0; 16]))?;
    garbage(wire, "guard 2", to(2, file).raw(&[0; 24]).u32(2).u64(0))?;
    let data = to(7, file).u64(0).u32(1).u32(3);
    garbage(wire, "stable_how 3", data.opaque(b"x"))?;
    let new = to(8, directory).opaque(b"x");
    garbage(wire, "createmode 3", new.u32(3).raw(&[0; 24]))?;
    let special = to(11, directory).opaque(b"x");
    garbage(wire, "ftype 0", special.clone().u32(0).raw(&[0; 32]))?;
    garbage(wire, "ftype 8", special.u32(8).raw(&[0; 32]))?;
    let listed = client.names(&stage.directory)?;
    ensure!(listed == [b"file"], "something was made: {listed:?}");
    Ok(())
}

fn bad_lengths(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    let wire = &mut client.wire;
    let to = |procedure| call(9, NFS, 3, procedure);
    garbage(wire, "handle of 65 bytes", to(1).opaque(&[1; 65]))?;
    garbage(wire, "handle of 2^32-1", to(1).u32(u32::MAX).raw(&[1; 64]))?;
    garbage(wire, "handle of 2^31", to(1).u32(1 << 31).raw(&[1; 64]))?;
    garbage(
        wire,
        "handle beyond the record",
        to(1).u32(40).raw(&[1; 36]),
    )?;
    let name = to(3).opaque(stage.directory.as_bytes());
    garbage(wire, "name of 2^32-1", name.clone().u32(u32::MAX))?;
    garbage(wire, "name of 2^32-4", name.u32(u32::MAX - 3).raw(b"name"))?;
    let data = to(7).opaque(file.as_bytes()).u64(0).u32(8).u32(2);
    garbage(wire, "data of 2^32-1", data.clone().u32(u32::MAX).u64(0))?;
    garbage(wire, "data beyond the record", data.u32(12).u64(0))?;
    let text = to(10).opaque(stage.directory.as_bytes()).opaque(b"link");
    garbage(
        wire,
        "text of 1 MiB",
        text.mode(0o777).opaque(&[b'x'; 1 << 20]),
    )?;
    let path = call(9, MOUNT, 3, 1).opaque(&[b'x'; 100_000]);
    garbage(wire, "path of 100,000 bytes", path)?;
    let size = client.getattr(&file)?.size_bytes;
    ensure!(size == 0, "{size} bytes were written");
    Ok(())
}

fn more_bytes(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    let record = call(3, NFS, 3, 1).opaque(stage.root.as_bytes());
    let reply = wire.exchange(&record.raw(&[0xff; 12]).0)?;
    let mut eye = Eye(&reply);
    eye.success(3)?;
    eye.is(0, "status")
}

fn short_headers(stage: &Stage<'_>) -> Result<()> {
    let mut other = stage.client()?;
    let full = call(0x1234, NFS, 3, 0).0;
    for length in 0..full.len() {
        let mut wire = Wire::connect(stage.address)?;
        wire.send_record(&full[..length])?;
        wire.finish_sending()?;
        // A refusal or none; never a success, and never silence for ever.
        if let Some(reply) = wire.receive()? {
            let mut eye = Eye(&reply);
            eye.is(0x1234, "xid")?;
            eye.is(1, "REPLY")?;
            let is_accepted = eye.u32()? == 0;
            ensure!(
                !is_accepted || reply[20..] != [0, 0, 0, 0],
                "{length} bytes of a header are a call"
            );
        }
    }
    other.getattr(&stage.root)?;
    Ok(())
}

fn no_calls(stage: &Stage<'_>) -> Result<()> {
    let mut other = stage.client()?;
    let as_reply = Hand::default().u32(1).u32(1).u32(0).u64(0).u32(0);
    let as_nothing = Hand::default().u32(1).u32(2).raw(&[0; 32]);
    let random: Vec<u8> = (0..200u32)
        .flat_map(|n| (n.wrapping_mul(2_654_435_761) | 1).to_be_bytes())
        .collect();
    let records = [
        as_reply.0,
        as_nothing.0,
        random,
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        Vec::new(),
    ];
    for record in records {
        let mut wire = Wire::connect(stage.address)?;
        wire.send_record(&record)?;
        wire.finish_sending()?;
        if let Some(reply) = wire.receive()? {
            bail!("{record:02x?} was answered with {reply:02x?}");
        }
        other.getattr(&stage.root)?;
    }
    Ok(())
}

fn many_xids(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    let mut bytes = Vec::new();
    let mut xids = std::collections::BTreeSet::new();
    for number in 0..300u32 {
        let xid = number.wrapping_mul(0x9e37_79b9) ^ 0x8000_0000;
        xids.insert(xid);
        let record = if number % 3 == 0 {
            anonymous(xid, NFS, 3, 0)
        } else {
            call(xid, NFS, 3, 1).opaque(stage.root.as_bytes())
        };
        bytes.extend(crate::wire::framed(&record.0));
    }
    ensure!(wire.send(&bytes)?, "closed");
    while !xids.is_empty() {
        let reply: Bytes = wire.expect()?;
        let xid = Eye(&reply).u32()?;
        ensure!(
            xids.remove(&xid),
            "{xid:#x} was answered twice or never sent"
        );
        Eye(&reply).success(xid)?;
    }
    wire.finish_sending()?;
    wire.expect_end()
}
