//! The key of handles (docs/decisions/0028): who is told it, where it is, how long it lives.
//! Every manager that is started offers another one.

use crossdock_link::Frame;
use crossdock_members::Change;
use crossdock_names::HandleKey;
use crossdock_nfs3::call::Getattr;
use crossdock_nfs3::{Call, HandleBuffer, Reply};

use super::network::Place;
use super::scoped::{SCOPED, SOON};
use super::stage::{CUT, LONG, SHAPE, Stage, WELL};

impl Stage {
    /// Who has been told what handles are made with since it was asked last, and the key.
    fn told(&mut self) -> (Vec<Place>, Option<HandleKey>) {
        let told = std::mem::take(&mut self.world.told);
        let key = told.first().map(|(.., key)| key.clone());
        assert!(told.iter().all(|(.., other)| Some(other) == key.as_ref()));
        assert!(told.iter().all(|(by, ..)| [3, 4].contains(by)), "managers");
        let mut places: Vec<Place> = told.into_iter().map(|(_, to, _)| to).collect();
        places.sort_unstable();
        (places, key)
    }

    pub(super) fn restart_manager(&mut self) {
        let manager = self.manager();
        self.world.kill(manager, SOON);
        while self.world.owner_of_root().is_none_or(|it| it == manager) {
            self.step(SOON);
        }
        self.pass(LONG);
    }

    fn is_good(&mut self, via: Place, handle: &HandleBuffer) -> bool {
        let object = handle.as_handle();
        let reply = self.ask(via, &Call::Getattr(Getattr { object }), LONG);
        matches!(reply, Some(Reply::Getattr(Ok(_))))
    }
}

/// Goal: handles are good for ever: after the death of each manager, and of everything at
/// once, whatever managers offer that are started later.
#[test]
fn handles_survive_managers_and_everything_else() {
    let mut stage = Stage::new(SHAPE, None);
    let (root, file) = (stage.root, stage.create(b"file"));
    let (gateways, key) = stage.told();
    assert_eq!(gateways, [CUT, WELL]);
    for _ in 0..2 {
        stage.restart_manager();
        assert_eq!(stage.told(), (vec![CUT, WELL], key.clone()));
        assert!(stage.is_good(CUT, &file) && stage.is_good(WELL, &file));
    }
    for place in 0..stage.world.places() {
        stage.world.kill(place, SOON);
    }
    for via in [CUT, WELL] {
        stage.connect_again(via);
        assert_eq!(stage.mount(via), root);
        assert!(stage.is_good(via, &file));
    }
    stage.pass(LONG);
    let (gateways, again) = stage.told();
    assert_eq!(
        (gateways.first(), gateways.last()),
        (Some(&CUT), Some(&WELL))
    );
    assert_eq!(again, key);
}

/// Goal: a gateway that is scoped is never told the key, however often it starts and who
/// the manager is; one that is let out is told it, and nobody else.
#[test]
fn scoped_gateways_are_not_told_the_key() {
    let mut stage = Stage::new(SCOPED, None);
    stage.restart_manager();
    stage.world.kill(CUT, SOON);
    stage.connect_again(CUT);
    stage.pass(LONG);
    assert_eq!(stage.told().0, Vec::<Place>::new());
    stage.scope("gateway-1", None);
    assert_eq!(stage.told().0, [WELL]);
    stage.restart_manager();
    assert_eq!(stage.told().0, [WELL]);
    // Back in its scope it gets it no more.
    stage.scope("gateway-1", Some(1));
    stage.restart_manager();
    stage.world.kill(WELL, SOON);
    stage.connect_again(WELL);
    stage.pass(LONG);
    assert_eq!(stage.told().0, Vec::<Place>::new());
}

/// Goal: what gateways read has no key in it, in no spelling that serde has, whoever has
/// been at work.
#[test]
fn the_registry_has_no_key() {
    let mut stage = Stage::new(SCOPED, None);
    stage.scope("gateway-1", None);
    stage.restart_manager();
    let key = stage.told().1.expect("a gateway was told").key;
    for secret in [key, super::PROVING] {
        let spelled = serde_json::to_string(&secret).expect("JSON");
        let part = spelled.trim_matches(['[', ']']);
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let state = serde_json::to_string(&stage.world.service.state).expect("JSON");
        assert!(!state.contains(part) && !state.contains(&hex), "{state}");
        assert!(state.contains("\"hosts\""), "it is all of it");
    }
}

/// Goal: a gateway that was revoked is told nothing, and its clients wait, not knowing that
/// it could not tell their handles from forged ones; let in again it is told.
#[test]
fn a_revoked_gateway_is_told_nothing() {
    let mut stage = Stage::new(SHAPE, None);
    let root = stage.root;
    assert_eq!(stage.told().0, [CUT, WELL]);
    let name = || "gateway-0".to_owned();
    stage.propose(Change::RevokeGateway { name: name() });
    stage.world.kill(CUT, SOON);
    stage.connect_again(CUT);
    stage.restart_manager();
    assert_eq!(stage.told().0, [WELL]);
    let object = root.as_handle();
    let asked = stage.ask(CUT, &Call::Getattr(Getattr { object }), SOON);
    assert_eq!(asked, None);
    stage.propose(Change::RestoreGateway { name: name() });
    assert_eq!(stage.told().0, [CUT]);
    stage.connect_again(CUT);
    assert!(stage.is_good(CUT, &root));
}

/// Goal: what a certificate calls a gateway counts, and not the number that it says.
#[test]
fn the_name_in_the_certificate_is_told_the_key() {
    let mut stage = Stage::new(SHAPE, None);
    assert_eq!(stage.told().0, [CUT, WELL]);
    stage.world.certify(CUT, "gateway-2");
    stage.pass(SOON);
    assert_eq!(stage.told().0, Vec::<Place>::new());
    stage.world.certify(CUT, "gateway-0");
    stage.pass(SOON);
    assert_eq!(stage.told().0, [CUT]);
}

/// Goal: keys come from managers: what another gateway says is one is none.
#[test]
fn nobody_else_tells_a_key() {
    let mut stage = Stage::new(SHAPE, None);
    let root = stage.root;
    let key = HandleKey {
        id: 1,
        key: [1; 32],
    };
    stage.world.forge(CUT, WELL, Frame::Handling(key));
    stage.pass(SOON);
    assert!(stage.is_good(WELL, &root));
    assert_eq!(stage.mount(WELL), root);
}
