//! What a gateway can prove: handles of format 2, as managers have made or confirmed them
//! (docs/decisions/0028).
//!
//! The door cannot check such a handle. One that it has not seen it has a manager check
//! ([`SiteOperation::Prove`](crossdock_peer::SiteOperation)), once: behind it the router
//! may answer from what it knows under a lease. What is known goes with every call to a
//! manager, which checks it again.

use std::collections::BTreeMap;

use crossdock_limits::GATEWAY_PROOFS_MAX;
use crossdock_names::{ExportId, FileRef, Proof};

/// Exports through which a file is known; of more, the next call shows the handle again.
const EXPORTS_PER_FILE_MAX: usize = 8;

/// Proofs by file, all of them right. Two generations: what was not used while the
/// younger one filled up is forgotten.
#[derive(Debug, Default)]
pub struct Proofs {
    young: BTreeMap<FileRef, Vec<Proof>>,
    old: BTreeMap<FileRef, Vec<Proof>>,
}

impl Proofs {
    /// Whether none are known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    /// A manager has made it, or says that it is right.
    pub fn learn(&mut self, proof: Proof) {
        let known = self.of(proof.file).is_empty();
        if known && self.young.len() >= GATEWAY_PROOFS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        let proofs = self.young.entry(proof.file).or_default();
        proofs.retain(|known| known.export != proof.export);
        proofs.truncate(EXPORTS_PER_FILE_MAX - 1);
        proofs.insert(0, proof);
    }

    /// Those of a file, which is in use.
    pub fn of(&mut self, file: FileRef) -> &[Proof] {
        if let Some(proofs) = self.old.remove(&file) {
            self.young.insert(file, proofs);
        }
        self.young.get(&file).map_or(&[], Vec::as_slice)
    }

    /// Whether a handle that a client shows is known to be right.
    pub(crate) fn has(&mut self, shown: &Proof) -> bool {
        self.of(shown.file).iter().any(|known| shown.is_same(known))
    }

    /// What makes the handle of a file through an export.
    pub(crate) fn find(&self, export: ExportId, file: FileRef) -> Option<&Proof> {
        let proofs = self.young.get(&file).or_else(|| self.old.get(&file))?;
        proofs.iter().find(|proof| proof.export == export)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_names::{FileId, ProofKey, VolumeId};

    fn proof(file: u64, export: u32) -> Proof {
        let key = ProofKey {
            id: 1,
            key: [3; 32],
        };
        let file = FileRef {
            id: FileId(file),
            generation: 1,
        };
        Proof::new(&key, VolumeId(5), ExportId(export), file)
    }

    /// Goal: a handle is known for the export that it names only, and not with another
    /// MAC; a file may be known through several exports, and through no more than there
    /// is room for.
    #[test]
    fn a_handle_is_known_for_its_own_export() {
        let mut proofs = Proofs::default();
        assert!(proofs.is_empty());
        proofs.learn(proof(7, 1));
        assert!(proofs.has(&proof(7, 1)));
        let mut other = proof(7, 1);
        other.export = ExportId(2);
        let mut forged = proof(7, 1);
        forged.mac[15] ^= 1;
        assert!(!proofs.has(&other) && !proofs.has(&forged));
        for export in 2..20 {
            proofs.learn(proof(7, export));
        }
        let file = proof(7, 1).file;
        assert_eq!(proofs.of(file).len(), EXPORTS_PER_FILE_MAX);
        assert_eq!(proofs.find(ExportId(19), file), Some(&proof(7, 19)));
        assert_eq!(proofs.find(ExportId(1), file), None);
    }

    /// Goal: what is in use outlasts any number of files that are seen once, and these
    /// are bounded.
    #[test]
    fn what_is_used_is_not_forgotten() {
        let mut proofs = Proofs::default();
        proofs.learn(proof(0, 1));
        let count = GATEWAY_PROOFS_MAX as u64 * 3;
        for file in 1..count {
            proofs.learn(proof(file, 1));
            if file % 1000 == 0 {
                assert!(proofs.has(&proof(0, 1)), "after {file}");
            }
        }
        assert!(!proofs.has(&proof(1, 1)));
        assert!(proofs.young.len() + proofs.old.len() <= GATEWAY_PROOFS_MAX * 2 + 1);
    }
}
