//! Bearer tokens and signed URLs: through whom they are made, where they hold, and how long.

use crossdock_host::{Host, SignError, TokenError};
use crossdock_members::Change;
use crossdock_web::{Denial, Method, SignedMethod, SignedUrl, TokenRecord, TokenSecret, UrlPath};

use super::network::Place;
use super::scoped::{SCOPED, SOON};
use super::stage::{CUT, SHAPE, Stage, WELL};

/// Processes that are no gateways.
const NODE: Place = 0;
const MANAGERS: [Place; 2] = [3, 4];

/// Seconds since 1970 at which nothing here has ended.
const NOW: u64 = 0;

fn secret(id: u32) -> TokenSecret {
    let secret = [7; 32];
    TokenSecret { id, secret }
}

fn record(id: u32, name: &str) -> TokenRecord {
    TokenRecord {
        id,
        name: name.to_owned(),
        digest: secret(id).digest(),
        reads: true,
        writes: false,
        path: UrlPath::root(),
        uid: 0,
        gid: 0,
        created: 0,
        expires: 1000,
    }
}

impl Stage {
    /// An order is carried out through a process; what came of it.
    fn add(&mut self, via: Place, record: TokenRecord) -> Result<TokenRecord, TokenError> {
        let add = |host: &mut Host, now, wall| host.add_token(now, wall, record);
        self.world.order(via, add)?;
        self.ended()
    }

    fn remove(&mut self, via: Place, id: u32) -> Result<TokenRecord, TokenError> {
        let remove = |host: &mut Host, now, wall| host.remove_token(now, wall, id);
        self.world.order(via, remove)?;
        self.ended()
    }

    fn ended(&mut self) -> Result<TokenRecord, TokenError> {
        self.pass(SOON);
        let mut results = std::mem::take(&mut self.world.tokens);
        assert_eq!(results.len(), 1, "one order, one answer");
        results.remove(0)
    }

    /// Whether the process at `place` lets the token in.
    fn knows(&self, place: Place, id: u32) -> bool {
        let shown = format!("Bearer {}", secret(id).reveal());
        let tokens = self.world.host(place).web_tokens();
        tokens.find(shown.as_bytes(), NOW).is_ok()
    }

    fn sign(&self, place: Place) -> Result<String, SignError> {
        self.world.host(place).sign(&SignedUrl {
            method: SignedMethod::Get,
            path: "/file".parse().expect("a path"),
            expires: 1000,
            uid: 0,
            gid: 0,
        })
    }

    /// What the process at `place` says to a signed URL.
    fn verify(&self, place: Place, url: &str) -> Result<(), Denial> {
        let (path, query) = url.split_once('?').expect("a query");
        let path = path.parse().expect("a path");
        let keys = self.world.host(place).signing_keys();
        let keys = keys.map_err(|_| Denial::NoKey)?;
        SignedUrl::verify(keys, Method::Get, &path, query.as_bytes(), NOW).map(|_| ())
    }
}

/// Goal: a token that any process has made holds at every gateway, and nowhere once any
/// other one has revoked it; a name and a number are had once, whoever is asked.
#[test]
fn tokens_hold_at_all_gateways() {
    let mut stage = Stage::new(SHAPE, None);
    assert_eq!(stage.add(NODE, record(1, "ci")), Ok(record(1, "ci")));
    assert!(stage.knows(CUT, 1) && stage.knows(WELL, 1) && !stage.knows(CUT, 2));
    let named = TokenError::Named {
        name: "ci".to_owned(),
    };
    assert_eq!(stage.add(CUT, record(2, "ci")), Err(named));
    assert_eq!(stage.add(WELL, record(1, "other")), Err(TokenError::Number));
    assert_eq!(stage.add(CUT, record(2, "ci2")), Ok(record(2, "ci2")));
    assert_eq!(stage.remove(MANAGERS[0], 1), Ok(record(1, "ci")));
    for gateway in [CUT, WELL] {
        assert!(!stage.knows(gateway, 1) && stage.knows(gateway, 2));
    }
    assert_eq!(stage.remove(WELL, 1), Err(TokenError::Unknown(1)));
    let mut later = record(3, "ci2");
    (later.created, later.expires) = (1000, 2000);
    assert_eq!(
        stage.add(WELL, later.clone()),
        Ok(later),
        "the other one has ended"
    );
}

/// Goal: of two processes that give one name away at the same moment, one is told that
/// the other one was faster.
#[test]
fn of_two_of_one_name_one_is_refused() {
    let mut stage = Stage::new(SHAPE, None);
    for (via, id) in [(CUT, 1), (WELL, 2)] {
        let add = |host: &mut Host, now, wall| host.add_token(now, wall, record(id, "ci"));
        stage.world.order(via, add).expect("nothing is known yet");
    }
    stage.pass(SOON);
    let results = std::mem::take(&mut stage.world.tokens);
    let good = results.iter().filter(|result| result.is_ok()).count();
    let named = |result: &&Result<TokenRecord, TokenError>| matches!(result, Err(TokenError::Named { name }) if name == "ci");
    let refused = results.iter().filter(named).count();
    assert_eq!((results.len(), good, refused), (2, 1, 1), "{results:?}");
    assert!(stage.knows(CUT, 1) != stage.knows(CUT, 2));
}

/// Goal: what one gateway signs holds at the others, whatever managers die; who is no
/// gateway, or scoped, or revoked, signs nothing and says why.
#[test]
fn gateways_sign_for_each_other() {
    let mut stage = Stage::new(SHAPE, None);
    let url = stage.sign(CUT).expect("a gateway");
    assert_eq!(stage.sign(WELL), Ok(url.clone()), "one key");
    assert_eq!(stage.verify(WELL, &url), Ok(()));
    let other = url.replace("/file?", "/file2?");
    assert_eq!(stage.verify(WELL, &other), Err(Denial::Signature));
    for place in [NODE, MANAGERS[0], MANAGERS[1]] {
        assert_eq!(stage.sign(place), Err(SignError::NoGateway));
    }
    stage.restart_manager();
    assert_eq!(stage.verify(CUT, &url), Ok(()));
    let name = || "gateway-0".to_owned();
    stage.propose(Change::RevokeGateway { name: name() });
    assert_eq!(stage.sign(CUT), Err(SignError::Revoked));
    stage.propose(Change::RestoreGateway { name: name() });
    assert_eq!(stage.sign(CUT), Ok(url));
}

/// Goal: a gateway that is scoped does not sign, and does not judge what others sign, also
/// when it knew the key before.
#[test]
fn scoped_gateways_sign_nothing() {
    let mut stage = Stage::new(SCOPED, None);
    for place in [CUT, WELL] {
        assert_eq!(stage.sign(place), Err(SignError::Scoped));
    }
    stage.scope("gateway-1", None);
    let url = stage.sign(WELL).expect("it is let out");
    assert_eq!(stage.verify(CUT, &url), Err(Denial::NoKey));
    stage.scope("gateway-1", Some(1));
    assert_eq!(stage.sign(WELL), Err(SignError::Scoped));
    assert_eq!(stage.verify(WELL, &url), Err(Denial::NoKey));
}
