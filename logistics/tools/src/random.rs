//! Random bytes, of the system.

use anyhow::{Result, anyhow};
use crossdock_exnode::ExNodeId;
use ring::rand::{SecureRandom, SystemRandom};

/// Fills `bytes`.
///
/// # Panics
/// If the system has no random numbers: nothing may be encrypted then.
pub(crate) fn fill(bytes: &mut [u8]) {
    let filled = SystemRandom::new().fill(bytes);
    filled.expect("the system gives random numbers");
}

/// An id that no other exNode has.
pub(crate) fn exnode_id() -> Result<ExNodeId> {
    let mut id = [0; 16];
    let filled = SystemRandom::new().fill(&mut id);
    filled.map_err(|_| anyhow!("the system gives no random numbers"))?;
    Ok(ExNodeId(id))
}
