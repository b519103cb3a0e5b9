//! The L-Bone of this process: it knows the depots of the volume's nodes from the registry, so
//! every process of an ensemble tells clients the same.

use crossdock_depots::{Handle, Record};
use crossdock_members::DepotDoor;

use super::Shell;
use crate::config::record_of;

/// What the L-Bone is told.
pub(super) struct Lbone {
    handle: Handle,
    /// Depots of elsewhere.
    others: Vec<Record>,
    /// Ours, as it was told last.
    own: Vec<DepotDoor>,
}

impl Shell {
    /// From now on an L-Bone is told of all depots: ours as they come and go, and `others`.
    pub(crate) fn serve_lbone(&mut self, handle: Handle, others: Vec<Record>) {
        handle.update(others.clone());
        self.lbone = Some(Lbone {
            handle,
            others,
            own: Vec::new(),
        });
        self.tell_lbone();
    }

    /// The registry's state may be another one.
    pub(super) fn tell_lbone(&mut self) {
        let Some(lbone) = &mut self.lbone else {
            return;
        };
        if self.host.depot_doors().eq(&lbone.own) {
            return;
        }
        lbone.own = self.host.depot_doors().cloned().collect();
        let own = lbone.own.iter().map(record_of);
        lbone
            .handle
            .update(own.chain(lbone.others.clone()).collect());
    }
}
