//! `df`: every gateway tells what the nodes together have, copies counted.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use crossdock_nfs3::{Call, Reply, call};
use crossdock_tests_crash::client::Client;

use super::Processes;

/// How long it may take until every node was heard of.
const PATIENCE: Duration = Duration::from_secs(10);

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Three nodes of 4 GiB with two copies.
const TOTAL_BYTES: u64 = 3 << 31;

/// Files that may be there are as many as blocks of 4 KiB, copies not counted.
const TOTAL_FILES: u64 = 3 << 20;

pub(super) fn run(processes: &Processes<'_>) -> Result<()> {
    for door in processes.doors()? {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut client = Client::connect(door)?;
            let root = client.root();
            let root = root.as_handle();
            let call = Call::Fsstat(call::Fsstat { root });
            let Reply::Fsstat(Ok(told)) = client.call(&call)? else {
                bail!("FSSTAT fails at {door}");
            };
            if told.total_bytes == TOTAL_BYTES {
                let (free, files) = (told.free_bytes, told.free_files);
                ensure!(told.total_files == TOTAL_FILES, "{told:?}");
                ensure!(
                    free > 0 && free < TOTAL_BYTES && told.available_bytes == free,
                    "{told:?}"
                );
                ensure!(files > 0 && files < TOTAL_FILES, "{told:?}");
                break;
            }
            ensure!(Instant::now() < deadline, "{door} tells {told:?}");
            thread::park_timeout(LOOK_EVERY);
        }
    }
    Ok(())
}
