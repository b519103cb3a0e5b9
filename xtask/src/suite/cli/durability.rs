//! What is acknowledged is on the disk: counted at the device.

use anyhow::{Result, ensure};
use bytes::Bytes;
use crossdock_nfs3::Reply;
use crossdock_nfs3::call::{Call, Getattr, StableHow, Write};
use crossdock_tests_crash::client::Client;
use crossdock_types::Payload;

use super::exports::create;
use super::pool;
use super::service;
use crate::rig::device::Device;
use crate::suite::Stage;

/// Calls of each kind, one after another.
const CALLS: u64 = 200;

/// Others may use the device too: how often it may be too busy to tell.
const ATTEMPTS: u32 = 5;

/// Each of many stable changes, one after another, has a flush of the device to
/// itself before its reply; calls that change nothing have none.
pub(super) fn flushes(stage: &Stage<'_>) -> Result<()> {
    let up = service::start(stage)?;
    let device = Device::of(&pool(stage))?;
    // Nothing is flushed where nothing is volatile, and nothing can be counted
    // on a file system without a device: neither is passed over in silence.
    let reason = match &device {
        None => Some("the folder lies on no block device, flushes cannot be counted"),
        Some(device) if !device.has_volatile_cache()? => Some("the device has no volatile cache"),
        Some(_) => None,
    };
    let (Some(device), None) = (device, reason) else {
        println!("durability: NOT CHECKED: {}", reason.unwrap_or_default());
        return up.stop().map(drop);
    };
    let mut client = Client::connect(up.nfs)?;
    let root = client.root();
    let file =
        create(&mut client, &root, "flushed").map_err(|status| anyhow::anyhow!("{status}"))?;
    let mut attempt = 0;
    loop {
        let idle = flushes_during(&device, |_| {
            let object = file.as_handle();
            client.call(&Call::Getattr(Getattr { object })).map(drop)
        })?;
        let written = flushes_during(&device, |number| {
            let write = Call::Write(Write {
                file: file.as_handle(),
                offset: number * 100,
                count_bytes: 100,
                stable: StableHow::FileSync,
                data: Payload::from(Bytes::from(vec![7; 100])),
            });
            let reply = client.call(&write)?;
            ensure!(matches!(reply, Reply::Write(Ok(_))), "{reply:?}");
            Ok(())
        })?;
        let created = flushes_during(&device, |number| {
            let name = format!("flushed-{attempt}-{number}");
            let made = create(&mut client, &root, &name);
            made.map(drop).map_err(|status| anyhow::anyhow!("{status}"))
        })?;
        ensure!(
            written >= CALLS && created >= CALLS,
            "{CALLS} stable WRITEs had {written} flushes of the device, as many CREATEs {created}"
        );
        if idle < CALLS / 2 {
            println!(
                "durability: {CALLS} calls each: GETATTR {idle} flushes, WRITE {written}, CREATE {created}"
            );
            return up.stop().map(drop);
        }
        attempt += 1;
        ensure!(
            attempt < ATTEMPTS,
            "others flush the device all the time ({idle} flushes during {CALLS} GETATTRs): nothing can be told"
        );
    }
}

/// Flushes of the device while `call` is made [`CALLS`] times.
fn flushes_during(device: &Device, mut call: impl FnMut(u64) -> Result<()>) -> Result<u64> {
    let before = device.flushes()?;
    for number in 0..CALLS {
        call(number)?;
    }
    Ok(device.flushes()? - before)
}
