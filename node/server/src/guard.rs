//! Checks what gateways show (CONSISTENCY 9, docs/decisions/0024). A host with nodes
//! asks it before it gives them a call of another host.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_names::{FileCapability, HostId, MintingKey};
use crossdock_peer::{AccessError, NodeRequest};
use crossdock_types::WallTime;

/// For how long a capability is good, in seconds: long enough for clocks that nobody
/// looks after, as revoking does not wait for it.
pub const CAPABILITY_SECONDS: u64 = 300;

/// How far two clocks of an ensemble may be apart, in seconds: each may be wrong by 5.
pub const CLOCK_MARGIN_SECONDS: u64 = 10;

/// What the managers make capabilities with, and the checks.
#[derive(Debug, Default)]
pub struct Guard {
    /// One per live manager: the registry bounds them.
    keys: BTreeMap<HostId, MintingKey>,
}

impl Guard {
    /// A manager tells its key.
    pub fn learn(&mut self, minter: HostId, key: MintingKey) {
        self.keys.insert(minter, key);
    }

    /// What live managers make capabilities with.
    #[must_use]
    pub const fn minters(&self) -> &BTreeMap<HostId, MintingKey> {
        &self.keys
    }

    /// Forgets managers that have been replaced: what they made counts no more.
    pub fn keep(&mut self, live: &BTreeSet<HostId>) {
        self.keys.retain(|minter, _| live.contains(minter));
    }

    /// Whether the gateway `holder` may have `request` done at `now` by what it shows.
    /// The MAC comes last: it costs most.
    ///
    /// # Errors
    /// [`AccessError`]: why not.
    pub fn check(
        &self,
        now: WallTime,
        holder: HostId,
        request: &NodeRequest,
        shown: Option<&FileCapability>,
    ) -> Result<(), AccessError> {
        // The node reads the source in its own name: the gateway has to have the right to.
        if let NodeRequest::Copy { source, .. } = request {
            self.check(now, holder, &source.read(), source.capability.as_ref())?;
        }
        let shown = request.check_capability(holder, shown)?;
        let minter = shown.minter;
        let key = self.keys.get(&minter);
        let key = key.ok_or(AccessError::UnknownMinter { minter })?;
        let now = u64::try_from(now.parts().0).unwrap_or(0);
        let late = now.saturating_sub(shown.expiry_seconds);
        if late > CLOCK_MARGIN_SECONDS {
            return Err(AccessError::Expired { seconds: late });
        }
        match shown.verify(key) {
            true => Ok(()),
            false => Err(AccessError::Forged),
        }
    }
}
