//! Export, against depots that die.

#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

#[allow(dead_code, reason = "each test file uses its part")]
mod world;

use std::time::Duration;

use bytes::Bytes;
use crossdock_tools::export::{Options, Part, export};
use crossdock_tools::{Address, Depots, Observer, download};
use world::{TestDepot, with_depots};

fn options(depots: &[TestDepot]) -> Options {
    Options {
        name: "film".to_owned(),
        depots: depots.iter().map(TestDepot::name).collect::<Vec<Address>>(),
        duration: Duration::from_secs(600),
        copies: 2,
    }
}

/// Goal: a file of which depots have the middle, twice, and nobody the first bytes and a hole that
/// is longer than the zeros for it: the download is that file, also when a depot is dead that had
/// some of each. Only read capabilities are in the exNode.
#[test]
fn what_nobody_has_is_stored() {
    const HOLE: usize = (9 << 20) + 5;
    let head = vec![7; 1000];
    let middle: Vec<u8> = (0..300_000_u32).map(|it| (it % 251) as u8).collect();
    with_depots(3, async |depots| {
        let client = Depots::new(Duration::from_secs(2));
        let reads = depots[1..].iter().map(|depot| depot.put(middle.clone()));
        let reads = reads.map(|made| made.read.to_string()).collect();
        let behind = (head.len() + middle.len()) as u64;
        let parts = [
            Part {
                offset_bytes: head.len() as u64,
                length_bytes: middle.len() as u64,
                reads,
            },
            Part {
                offset_bytes: behind,
                length_bytes: HOLE as u64,
                reads: Vec::new(),
            },
        ];
        // The first one takes nothing.
        depots[0].with(|store| store.is_dead = true);
        let how = options(&depots);
        let exported = export(&client, Bytes::from(head.clone()), &parts, &how);
        let exnode = exported.await.unwrap();
        assert!(
            exnode
                .mappings
                .iter()
                .all(|it| it.write.is_none() && it.manage.is_none())
        );
        depots[1].with(|store| store.is_dead = true);
        let folder = std::env::temp_dir().join(format!("export-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("film");
        let output = download::Output::file(&file, false).unwrap();
        let how = download::Options::default();
        let mut observer = Observer::silent();
        let got = download::download(&client, &exnode, output, &how, &mut observer).await;
        got.unwrap();
        let film = [head, middle, vec![0; HOLE]].concat();
        assert!(std::fs::read(&file).unwrap() == film);
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

/// Goal: without a depot that takes what has to be stored there is no exNode that promises it; a
/// capability that is none is not passed on.
#[test]
fn what_cannot_be_kept_is_not_promised() {
    with_depots(1, async |depots| {
        let client = Depots::new(Duration::from_secs(2));
        let head = Bytes::from_static(b"head");
        let nobody = export(&client, head.clone(), &[], &options(&[])).await;
        assert!(nobody.unwrap_err().to_string().contains("--depot"));
        let wrong = [Part {
            offset_bytes: 4,
            length_bytes: 4,
            reads: vec!["http://elsewhere/1".to_owned()],
        }];
        assert!(
            export(&client, head.clone(), &wrong, &options(&depots))
                .await
                .is_err()
        );
        depots[0].with(|store| store.is_dead = true);
        assert!(export(&client, head, &[], &options(&depots)).await.is_err());
        let empty = export(&client, Bytes::new(), &[], &options(&[]))
            .await
            .unwrap();
        assert_eq!((empty.mappings.len(), empty.size()), (0, 0));
    });
}
