//! Who is believed, and as whom (RFC 5531 section 8.2 and appendix A).

use anyhow::{Result, ensure};
use crossdock_nfs3::{Call, Procedure, Status};
use crossdock_rpc::Credential;

use crate::client::{decode_of, next_xid, user};
use crate::hand::{Eye, Hand, MOUNT, NFS, bare};
use crate::operations::{at, guarded, readdir};
use crate::runner::{Check, Stage, check};
use crate::wire::Wire;

pub(crate) const CHECKS: &[Check] = &[
    check("who comes with AUTH_NONE is nobody", auth_none),
    check(
        "flavours that are not known are AUTH_TOOWEAK, AUTH_SHORT is AUTH_REJECTEDCRED",
        unknown_flavors,
    ),
    check("each of 16 groups counts", sixteen_groups),
    check("17 groups and more are AUTH_BADCRED", too_many_groups),
    check(
        "credentials that are too long or end early are AUTH_BADCRED",
        bad_credentials,
    ),
    check(
        "a verifier that is too long is AUTH_BADVERF, another one is ignored",
        verifiers,
    ),
    check("NULL is answered to everybody", null_for_all),
    check(
        "calls of two users on one connection are told apart",
        two_users,
    ),
];

const AUTH_BADCRED: u32 = 1;
const AUTH_REJECTEDCRED: u32 = 2;
const AUTH_BADVERF: u32 = 3;
const AUTH_TOOWEAK: u32 = 5;

/// The call is denied for this reason.
fn denied(wire: &mut Wire, record: Hand, status: u32, what: &str) -> Result<()> {
    let reply = wire.exchange(&record.0)?;
    let mut eye = Eye(&reply);
    eye.is(4, "xid")?;
    eye.is(1, "REPLY")?;
    eye.is(1, &format!("{what}: MSG_DENIED"))?;
    eye.is(1, "AUTH_ERROR")?;
    eye.is(status, what)?;
    eye.end()
}

/// A GETATTR of the root with credential and verifier.
fn with(stage: &Stage<'_>, credential: Hand, verifier: Hand) -> Hand {
    let header = bare(4, NFS, 3, 1).raw(&credential.0).raw(&verifier.0);
    header.opaque(stage.root.as_bytes())
}

fn none() -> Hand {
    Hand::default().u32(0).u32(0)
}

/// AUTH_SYS with a machine's name and groups.
fn sys(machine: &[u8], groups: &[u32]) -> Hand {
    let count = u32::try_from(groups.len()).unwrap_or(u32::MAX);
    let body = Hand::default().u32(0).opaque(machine).u32(0).u32(0);
    let body = groups
        .iter()
        .fold(body.u32(count), |body, group| body.u32(*group));
    Hand::default().u32(1).opaque(&body.0)
}

fn accepted(wire: &mut Wire, record: &Hand) -> Result<()> {
    let reply = wire.exchange(&record.0)?;
    let mut eye = Eye(&reply);
    eye.success(4)?;
    eye.is(0, "status")
}

fn auth_none(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let shut = client.mkdir(&stage.directory, "shut", 0o750)?;
    client.credential = Credential::None;
    let made = client.create(&stage.directory, "file", 0o644)?;
    let attributes = client.getattr(&made)?;
    ensure!(
        (attributes.uid, attributes.gid) == (65534, 65534),
        "made by {}:{}",
        attributes.uid,
        attributes.gid
    );
    client.refuses(Status::Acces, &readdir(&shut, 0, 4096))
}

fn unknown_flavors(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    // AUTH_DH, RPCSEC_GSS, and numbers of nobody.
    for flavor in [3, 6, 7, 390_003, u32::MAX] {
        let record = with(stage, Hand::default().u32(flavor).opaque(b"body"), none());
        denied(
            &mut wire,
            record,
            AUTH_TOOWEAK,
            &format!("flavour {flavor}"),
        )?;
    }
    let record = with(stage, Hand::default().u32(2).opaque(b"body"), none());
    denied(&mut wire, record, AUTH_REJECTEDCRED, "AUTH_SHORT")?;
    let mount = bare(4, MOUNT, 3, 5).u32(6).opaque(b"body").raw(&none().0);
    denied(&mut wire, mount, AUTH_TOOWEAK, "MOUNT")?;
    accepted(&mut wire, &with(stage, sys(b"m", &[]), none()))
}

fn sixteen_groups(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let groups: Vec<u32> = (500..516).collect();
    for group in &groups {
        let name = format!("of-{group}");
        let directory = client.mkdir(&stage.directory, &name, 0o070)?;
        let change = crossdock_nfs3::SetAttributes {
            gid: Some(*group),
            ..Default::default()
        };
        client.setattr(&directory, change)?;
        let call = readdir(&directory, 0, 4096);
        stage.user(1000, 1000, &groups)?.accepts(&call)?;
        let others: Vec<u32> = groups.iter().filter(|g| *g != group).copied().collect();
        stage
            .user(1000, 1000, &others)?
            .refuses(Status::Acces, &call)?;
    }
    Ok(())
}

fn too_many_groups(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    let groups: Vec<u32> = (0..90).collect();
    accepted(&mut wire, &with(stage, sys(b"m", &groups[..16]), none()))?;
    for count in [17, 32, 80, 90] {
        let record = with(stage, sys(b"m", &groups[..count]), none());
        denied(&mut wire, record, AUTH_BADCRED, &format!("{count} groups"))?;
    }
    let body = Hand::default().u32(0).opaque(b"m").u32(0).u32(0);
    let body = body.u32(u32::MAX).u32(5);
    let record = with(stage, Hand::default().u32(1).opaque(&body.0), none());
    denied(&mut wire, record, AUTH_BADCRED, "2^32-1 groups")
}

fn bad_credentials(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    accepted(&mut wire, &with(stage, sys(&[b'm'; 255], &[1; 16]), none()))?;
    let record = with(stage, sys(&[b'm'; 256], &[]), none());
    denied(
        &mut wire,
        record,
        AUTH_BADCRED,
        "a machine name of 256 bytes",
    )?;
    let full = sys(b"machine", &[1, 2, 3]).0;
    let body = &full[8..];
    for length in (0..body.len()).step_by(4) {
        let record = with(
            stage,
            Hand::default().u32(1).opaque(&body[..length]),
            none(),
        );
        let what = format!("{length} bytes of AUTH_SYS");
        denied(&mut wire, record, AUTH_BADCRED, &what)?;
    }
    for flavor in [0, 1, 6] {
        let record = with(stage, Hand::default().u32(flavor).opaque(&[0; 404]), none());
        denied(&mut wire, record, AUTH_BADCRED, "a body of 404 bytes")?;
    }
    let endless = bare(4, NFS, 3, 1).u32(1).u32(u32::MAX).raw(&[0; 40]);
    denied(&mut wire, endless, AUTH_BADCRED, "a body of 2^32-1 bytes")
}

fn verifiers(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    let too_long = Hand::default().u32(0).opaque(&[0; 404]);
    let record = with(stage, sys(b"m", &[]), too_long);
    denied(&mut wire, record, AUTH_BADVERF, "a body of 404 bytes")?;
    let other = Hand::default().u32(1).opaque(&[9; 16]);
    accepted(&mut wire, &with(stage, sys(b"m", &[]), other))
}

fn null_for_all(stage: &Stage<'_>) -> Result<()> {
    let mut wire = Wire::connect(stage.address)?;
    for program in [NFS, MOUNT] {
        for flavor in [0, 1, 2, 6, 4711] {
            let body = if flavor == 1 {
                sys(b"m", &[]).0[8..].to_vec()
            } else {
                Vec::new()
            };
            let record = bare(4, program, 3, 0).u32(flavor).opaque(&body);
            let reply = wire.exchange(&record.raw(&none().0).0)?;
            let mut eye = Eye(&reply);
            eye.success(4)?;
            eye.end()?;
        }
    }
    Ok(())
}

fn two_users(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.user(1000, 100, &[])?;
    let mine = client.mkdir(&stage.directory, "mine", 0o700)?;
    for round in 0..20 {
        let (uid, groups): (u32, &[u32]) = match round % 4 {
            0 => (1000, &[]),
            1 => (1001, &[]),
            2 => (1000, &[7]),
            _ => (1001, &[1000]),
        };
        client.credential = user(uid, 100, groups);
        let name = format!("file-{round}");
        let xid = next_xid();
        let call: Call<'_> = guarded(at(&mine, &name), 0o600);
        let record = client.record(xid, &call);
        let reply = decode_of(xid, Procedure::Create, &client.wire.exchange(&record)?)?;
        let expected = (uid != 1000).then_some(Status::Acces);
        ensure!(
            reply.status() == expected,
            "user {uid}: {:?}",
            reply.status()
        );
    }
    Ok(())
}
