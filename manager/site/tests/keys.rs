//! The keys for handles and for proofs in the site's log: once told they never change.

mod rig;

use crossdock_names::{HandleKey, ProofKey};
use crossdock_site::{SiteInput, SiteLimits};

use rig::Rig;

const fn proof_key(byte: u8) -> ProofKey {
    let key = [byte; 32];
    ProofKey { id: 1, key }
}

const fn handle_key(byte: u8) -> HandleKey {
    let key = [byte; 32];
    HandleKey { id: 1, key }
}

/// Both keys are offered, made of `byte`.
fn offer(rig: &mut Rig, byte: u8) {
    rig.input(SiteInput::HandleKey(handle_key(byte)));
    rig.input(SiteInput::ProofKey(proof_key(byte)));
}

/// The first that were offered.
fn assert_first(rig: &Rig) {
    assert_eq!(rig.site.handle_key(), Some(&handle_key(1)));
    assert_eq!(rig.site.proof_key(), Some(&proof_key(1)));
}

/// Goal: a key is told when the log has it on every member, and not before: what is made
/// with one that was lost would be worth nothing.
#[test]
fn a_key_is_told_when_it_is_durable() {
    let mut rig = Rig::new(SiteLimits::default());
    assert!(!rig.site.has_handle_key() && !rig.site.has_proof_key());
    offer(&mut rig, 1);
    assert_eq!(rig.site.handle_key(), None);
    assert_eq!(rig.site.proof_key(), None);
    assert!(rig.site.has_handle_key() && rig.site.has_proof_key());
    assert!(rig.step(), "to the first member");
    assert_eq!(rig.site.handle_key(), None);
    assert_eq!(rig.site.proof_key(), None);
    rig.run();
    assert_first(&rig);
    offer(&mut rig, 2);
    rig.run();
    assert_first(&rig);
}

/// Goal: the keys survive managers, in the log and in checkpoints, whatever is offered
/// later.
#[test]
fn keys_survive_managers() {
    let mut rig = Rig::new(rig::many_checkpoints());
    offer(&mut rig, 1);
    rig.run();
    rig.restart();
    assert_first(&rig);
    for number in 0..200 {
        rig.create(&format!("file-{number}"));
    }
    rig.restart();
    let report = rig.opened.as_ref().expect("opened").as_ref().expect("well");
    assert!(report.checkpoint.is_some(), "{report:?}");
    assert_first(&rig);
    offer(&mut rig, 2);
    rig.run();
    assert_first(&rig);
}

/// Goal: one key does not stand for the other: an ensemble without scopes has none for
/// proofs.
#[test]
fn keys_are_kept_one_by_one() {
    let mut rig = Rig::new(SiteLimits::default());
    rig.input(SiteInput::HandleKey(handle_key(1)));
    rig.run();
    rig.restart();
    assert_eq!(rig.site.handle_key(), Some(&handle_key(1)));
    assert!(!rig.site.has_proof_key());
    offer(&mut rig, 2);
    rig.run();
    assert_eq!(rig.site.handle_key(), Some(&handle_key(1)));
    assert_eq!(rig.site.proof_key(), Some(&proof_key(2)));
}
