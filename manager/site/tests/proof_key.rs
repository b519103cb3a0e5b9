//! The key for proofs in the site's log: once it is told it never changes.

mod rig;

use crossdock_names::ProofKey;
use crossdock_site::{SiteInput, SiteLimits};

use rig::Rig;

const fn key(byte: u8) -> ProofKey {
    ProofKey {
        id: 1,
        key: [byte; 32],
    }
}

/// Goal: a key is told when the log has it on every member, and not before: what is made
/// with one that was lost would be worth nothing.
#[test]
fn a_key_is_told_when_it_is_durable() {
    let mut rig = Rig::new(SiteLimits::default());
    assert_eq!(rig.site.proof_key(), None);
    rig.input(SiteInput::ProofKey(key(1)));
    assert_eq!(rig.site.proof_key(), None);
    assert!(rig.site.has_proof_key());
    assert!(rig.step(), "to the first member");
    assert_eq!(rig.site.proof_key(), None);
    rig.run();
    assert_eq!(rig.site.proof_key(), Some(&key(1)));
    rig.input(SiteInput::ProofKey(key(2)));
    rig.run();
    assert_eq!(rig.site.proof_key(), Some(&key(1)), "there is one already");
}

/// Goal: the key survives managers, in the log and in checkpoints, whatever is offered
/// later.
#[test]
fn a_key_survives_managers() {
    let mut rig = Rig::new(SiteLimits {
        segment_bytes_max: 4096,
        checkpoint_log_bytes_min: 4096,
        checkpoint_ratio_max: u64::MAX,
        checkpoint_chunk_bytes: 512,
        ..SiteLimits::default()
    });
    rig.input(SiteInput::ProofKey(key(1)));
    rig.run();
    rig.restart();
    assert_eq!(rig.site.proof_key(), Some(&key(1)));
    for number in 0..200 {
        rig.create(&format!("file-{number}"));
    }
    rig.restart();
    let report = rig.opened.as_ref().expect("opened").as_ref().expect("well");
    assert!(report.checkpoint.is_some(), "{report:?}");
    assert_eq!(rig.site.proof_key(), Some(&key(1)));
    rig.input(SiteInput::ProofKey(key(2)));
    rig.run();
    assert_eq!(rig.site.proof_key(), Some(&key(1)));
}
