//! What is about clients, wherever they have locks, is asked of every site that may
//! have some.

mod script;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use crossdock_names::{FileId, FileRef, SiteId};
use crossdock_peer::{ForgetWhat, LockClient, LockOperation, LockOwner, LockRange, SiteOperation};
use crossdock_router::{Router, RouterConfig, RouterEffect};

use script::{ask, secs, table};

fn asked(router: &mut Router) -> BTreeSet<SiteId> {
    let effects = std::iter::from_fn(|| router.poll_effect());
    let site = |effect| match effect {
        RouterEffect::Site(site, call) => {
            assert_eq!(site, call.request.operation.site());
            site
        }
        other => panic!("{other:?}"),
    };
    effects.map(site).collect()
}

/// Goal: a site that was opened a moment ago, and of which this router's table does not
/// know yet, forgets a client's locks too when he has restarted: he has asked it for one.
#[test]
fn a_site_that_the_table_does_not_have_yet_forgets_too() {
    let mut known = Arc::unwrap_or_clone(table(1));
    known.hosts.opened = BTreeSet::from([SiteId(0), SiteId(2)]);
    let config = RouterConfig::new(crossdock_peer::WriterId(77));
    let mut router = Router::new(config, Arc::new(known));
    let client = LockClient {
        name: Bytes::from_static(b"alpha"),
        address: [198, 18, 0, 1].into(),
    };
    let owner = LockOwner {
        client: client.clone(),
        process: 1,
        handle: Bytes::from_static(b"owner"),
    };
    let all = LockRange::new(0, 0).expect("a range");
    let file = FileRef {
        id: FileId::new(SiteId(3), 9),
        generation: 1,
    };
    let operation = LockOperation::Unlock(owner, all);
    ask(
        &mut router,
        secs(0),
        1,
        SiteOperation::Locks { file, operation },
    );
    assert_eq!(asked(&mut router), BTreeSet::from([SiteId(3)]));

    let file = FileRef::root_of(SiteId(0));
    let operation = LockOperation::Forget(client, ForgetWhat::BeforeState(7));
    ask(
        &mut router,
        secs(0),
        2,
        SiteOperation::Locks { file, operation },
    );
    let sites = [SiteId(0), SiteId(2), SiteId(3)];
    assert_eq!(asked(&mut router), BTreeSet::from(sites));
}
