//! Quotas at a site: what is refused, what is counted, and what a death at any
//! moment leaves of a quota that is being set.

mod rig;

use bytes::Bytes;
use crossdock_names::FileRef;
use crossdock_peer::{
    AttributeChanges, CreateMode, OpenFor, Quota, QuotaChange, QuotaLimits, SiteAnswer, SiteError,
    SiteOperation, SiteReply, SpaceUsage, Stability,
};
use crossdock_site::{SiteInput, SiteLimits};

use rig::{ROOT, Rig, file_of, once, plain, write};

const BYTES: u64 = 1 << 20;

fn quotas(rig: &Rig) -> Vec<Quota> {
    let directory = rig.site.directory();
    let quotas: Vec<Quota> = directory.quotas().collect();
    let counted = directory.recount_trees();
    for quota in &quotas {
        let used = (quota.used_bytes, quota.used_files);
        assert_eq!(counted.get(&quota.tree), Some(&used));
    }
    quotas
}

fn make_directory(rig: &mut Rig, parent: FileRef, name: &'static str) -> FileRef {
    file_of(&rig.ask(SiteOperation::MakeDirectory {
        directory: parent,
        name: Bytes::from_static(name.as_bytes()),
        changes: AttributeChanges::default(),
    }))
}

fn create_in(directory: FileRef, name: &str) -> SiteOperation {
    SiteOperation::Create {
        directory,
        name: Bytes::copy_from_slice(name.as_bytes()),
        mode: CreateMode::Guarded(AttributeChanges::default()),
    }
}

fn set_quota(directory: FileRef, bytes: Option<u64>, files: Option<u64>) -> SiteOperation {
    let change = QuotaChange {
        bytes: Some(bytes),
        files: Some(files),
    };
    SiteOperation::SetQuota { directory, change }
}

fn quota_of(reply: &SiteReply) -> Quota {
    match reply.outcome {
        Ok(SiteAnswer::Quota(quota)) => quota,
        ref other => panic!("{other:?}"),
    }
}

fn open(file: FileRef, end_bytes: u64) -> SiteOperation {
    let purpose = OpenFor::Write {
        offset_bytes: 65_536,
        end_bytes,
    };
    SiteOperation::Open {
        file,
        purpose,
        holder: None,
    }
}

fn push(file: FileRef, size_at_least_bytes: u64) -> SiteOperation {
    SiteOperation::PushAttributes {
        file,
        size_at_least_bytes,
        wrote: true,
        read: false,
        truncate_generation: u64::MAX,
        stability: Stability::Stable,
        written: None,
        lease: None,
    }
}

fn resize(file: FileRef, size: u64) -> SiteOperation {
    SiteOperation::SetAttributes {
        file,
        changes: AttributeChanges {
            size_bytes: Some(size),
            ..AttributeChanges::default()
        },
        guard: None,
    }
}

/// Goal: what would grow beyond the limit is refused: small writes, bulk writes
/// before they begin, sizes; what does not grow, is pushed, or removed is not.
#[test]
fn nothing_begins_to_grow_beyond_a_quota() {
    let mut rig = Rig::new(SiteLimits::default());
    let home = make_directory(&mut rig, ROOT, "home");
    let small = file_of(&rig.ask(create_in(home, "small")));
    let large = file_of(&rig.ask(create_in(home, "large")));
    rig.write(small, 0, &[1; 5000], Stability::Stable);
    let quota = quota_of(&rig.ask(set_quota(home, Some(BYTES), None)));
    assert_eq!((quota.used_bytes, quota.used_files), (4096 + 8192, 3));
    let rest = BYTES - 4096 - 8192;
    let full = Err(SiteError::Quota);
    assert_eq!(rig.ask(open(large, rest + 1)).outcome, full);
    assert_eq!(rig.columns().len(), 0, "nothing was made for it");
    assert!(rig.ask(open(large, rest)).outcome.is_ok());
    assert_eq!(rig.ask(resize(large, rest + 1)).outcome, full);
    // What was opened before is pushed, whatever the limit says by then.
    assert!(rig.ask(open(large, rest)).outcome.is_ok());
    rig.write(small, 8192, &[1; 10], Stability::Unstable);
    assert_eq!(rig.ask(push(large, rest)).outcome, Ok(SiteAnswer::Done));
    let now = quotas(&rig)[0];
    assert_eq!(now.used_bytes, BYTES + 4096, "by what was in flight");
    for stability in [Stability::Unstable, Stability::Stable] {
        let grown = rig.ask(write(small, 12_288, &[1], stability));
        assert_eq!(grown.outcome, full);
        rig.write(small, 100, &[2; 8000], stability);
    }
    assert_eq!(rig.read(small)[100..8100], [2; 8000]);
    assert_eq!(
        rig.ask(create_in(home, "more")).outcome.err(),
        None,
        "no bytes, no limit of files"
    );
    let cut = rig.ask(resize(large, 100));
    assert_eq!(cut.outcome, Ok(SiteAnswer::Done));
    rig.write(small, 12_288, &[1], Stability::Unstable);
    let before = quotas(&rig)[0].used_bytes;
    let removal = SiteOperation::Remove {
        directory: home,
        name: Bytes::from_static(b"large"),
    };
    assert!(rig.ask(removal).outcome.is_ok());
    assert_eq!(quotas(&rig)[0].used_bytes, before - 4096);
    rig.pass(std::time::Duration::from_secs(10)); // What is in memory only is logged.
    let live = quotas(&rig);
    rig.restart();
    assert_eq!(quotas(&rig), live);
}

/// Goal: limits are changed one by one, taken away, and shown by FSSTAT within
/// the tree only.
#[test]
fn quotas_are_changed_and_removed() {
    let mut rig = Rig::new(SiteLimits::default());
    let volume = SpaceUsage {
        total_bytes: 10 * BYTES,
        free_bytes: 9 * BYTES,
        available_bytes: 9 * BYTES,
        total_files: 1000,
        free_files: 900,
        available_files: 900,
    };
    rig.input(SiteInput::Space(volume));
    let home = make_directory(&mut rig, ROOT, "home");
    let inner = make_directory(&mut rig, home, "inner");
    rig.ask(set_quota(home, Some(BYTES), Some(10)));
    let change = QuotaChange {
        bytes: None,
        files: Some(None),
    };
    let directory = home;
    let quota = quota_of(&rig.ask(SiteOperation::SetQuota { directory, change }));
    let limits = QuotaLimits {
        bytes: Some(BYTES),
        files: None,
    };
    assert_eq!((quota.limits, quota.root), (limits, home));
    let space = rig.ask(SiteOperation::Space { file: inner }).outcome;
    let expected = SpaceUsage {
        total_bytes: BYTES,
        free_bytes: BYTES - 8192,
        available_bytes: BYTES - 8192,
        ..volume
    };
    assert_eq!(space, Ok(SiteAnswer::Space(expected)));
    let outside = rig.ask(SiteOperation::Space { file: ROOT }).outcome;
    assert_eq!(outside, Ok(SiteAnswer::Space(volume)));
    let nested = rig.ask(set_quota(inner, Some(1), None)).outcome;
    assert_eq!(nested, Err(SiteError::Exists));
    rig.restart();
    assert_eq!(quotas(&rig), [quota]);
    let removed = rig.ask(SiteOperation::RemoveQuota { directory });
    assert_eq!(quota_of(&removed), quota);
    let again = rig.ask(SiteOperation::RemoveQuota { directory }).outcome;
    assert_eq!(again, Err(SiteError::NotFound));
    rig.restart();
    assert_eq!(quotas(&rig), []);
}

fn small_limits() -> SiteLimits {
    SiteLimits {
        segment_bytes_max: 2000,
        checkpoint_log_bytes_min: 500,
        checkpoint_log_bytes_max: 1500,
        checkpoint_ratio_max: u64::MAX,
        checkpoint_chunk_bytes: 300,
        quota_cells_max: 2,
        ..SiteLimits::default()
    }
}

/// Sets a quota while others work in the tree, until `deaths` messages were
/// carried out; then the manager dies. Returns whether it lived.
fn set_until(deaths: usize, shuffle: u64) -> bool {
    let mut rig = Rig::new(small_limits());
    rig.shuffle = shuffle;
    let home = make_directory(&mut rig, ROOT, "home");
    let inner = make_directory(&mut rig, home, "inner");
    for name in ["a", "b", "c", "d", "e"] {
        let file = file_of(&rig.ask(create_in(inner, name)));
        rig.write(file, 0, &[7; 100], Stability::Unstable);
    }
    let requests = [
        plain(set_quota(home, None, Some(8))),
        once(2, create_in(inner, "f")),
        plain(set_quota(ROOT, None, Some(5))),
        once(3, create_in(home, "too-many")),
        once(4, rename(inner, "a", ROOT, "a")),
        once(5, rename(inner, "b", home, "b")),
        once(6, create_in(ROOT, "outside")),
    ];
    let expected = [
        None,
        None,
        Some(SiteError::Exists),
        Some(SiteError::Quota),
        Some(SiteError::CrossDevice),
        None,
        None,
    ];
    let mut ids = Vec::new();
    for request in &requests {
        ids.push(rig.send(request.clone()));
    }
    let mut budget = deaths;
    let mut acknowledged = false;
    while !ids.iter().all(|id| rig.replies.contains_key(id)) {
        acknowledged |= rig.replies.contains_key(&ids[0]);
        if budget == 0 {
            rig.step_unanswered();
            rig.restart();
            after_death(&mut rig, home, inner, acknowledged);
            return false;
        }
        budget -= 1;
        assert!(rig.step(), "stuck after {deaths}");
    }
    for (id, expected) in ids.iter().zip(expected) {
        assert_eq!(rig.replies[id].outcome.clone().err(), expected);
    }
    assert_eq!(
        quotas(&rig)[0].used_files,
        8,
        "two directories, five files, and one more"
    );
    rig.run();
    rig.restart();
    after_death(&mut rig, home, inner, true);
    true
}

fn rename(from: FileRef, old: &'static str, to: FileRef, new: &'static str) -> SiteOperation {
    SiteOperation::Rename {
        from_directory: from,
        from_name: Bytes::from_static(old.as_bytes()),
        to_directory: to,
        to_name: Bytes::from_static(new.as_bytes()),
    }
}

/// The quota is there, whole, or it is not; then it can be set (again).
fn after_death(rig: &mut Rig, home: FileRef, inner: FileRef, acknowledged: bool) {
    let there = quotas(rig);
    assert!(
        !acknowledged || there.len() == 1,
        "an acknowledged quota is gone"
    );
    let in_tree = |rig: &Rig, tree: u32| {
        let counted = rig.site.directory().recount_trees();
        counted.get(&tree).map_or(0, |(_, files)| *files)
    };
    let again = quota_of(&rig.ask(set_quota(home, None, Some(20))));
    assert!(there.iter().all(|quota| quota.tree == again.tree));
    assert!(matches!(again.used_files, 7 | 8), "{again:?}");
    assert_eq!(in_tree(rig, again.tree), again.used_files);
    for directory in [home, inner] {
        let cell = rig.site.directory().cell(directory).expect("there");
        assert_eq!(cell.quota_tree, again.tree);
    }
    assert_eq!(rig.ask(create_in(inner, "later")).outcome.err(), None);
    assert_eq!(quotas(rig)[0].used_files, again.used_files + 1);
    rig.restart();
    assert_eq!(quotas(rig)[0].used_files, again.used_files + 1);
}

/// Goal: a quota that is set while a checkpoint is written and others work in
/// the tree is there whole or not at all, whenever the manager dies, and is
/// there if that was said.
#[test]
fn a_quota_is_set_whole_or_not_at_all() {
    for shuffle in 0..8 {
        let mut deaths = 0;
        while !set_until(deaths, shuffle) {
            deaths += 1;
        }
        assert!(deaths > 10, "died only {deaths} times");
    }
}

/// Goal: two quotas are not set at the same moment; the second is told to try
/// again, and a tree whose root goes meanwhile is told so.
#[test]
fn a_tree_is_set_while_nothing_else_is() {
    let mut rig = Rig::new(small_limits());
    let one = make_directory(&mut rig, ROOT, "one");
    let two = make_directory(&mut rig, ROOT, "two");
    let first = rig.send(plain(set_quota(one, None, Some(9))));
    let second = rig.send(plain(set_quota(two, None, Some(9))));
    let again = rig.send(plain(set_quota(one, None, Some(8))));
    let removal = rig.send(plain(SiteOperation::RemoveQuota { directory: one }));
    let gone = rig.send(plain(SiteOperation::RemoveDirectory {
        directory: ROOT,
        name: Bytes::from_static(b"one"),
    }));
    rig.run();
    let mut outcome = |id| rig.replies.remove(&id).expect("answered").outcome;
    assert_eq!(outcome(first), Err(SiteError::Stale));
    for id in [second, again, removal] {
        assert_eq!(outcome(id), Err(SiteError::Busy));
    }
    assert_eq!(outcome(gone), Ok(SiteAnswer::Done));
    let roots: Vec<FileRef> = quotas(&rig).iter().map(|quota| quota.root).collect();
    assert!(!roots.contains(&one));
}

/// Goal: a client that comes before the site has heard of the nodes' room is not told that
/// there is none.
#[test]
fn space_that_is_not_known_yet_is_not_none() {
    let mut rig = Rig::new(SiteLimits::default());
    let asked = || SiteOperation::Space { file: ROOT };
    assert_eq!(rig.ask(asked()).outcome, Err(SiteError::Busy));
    rig.input(SiteInput::Space(SpaceUsage::default()));
    let known = Ok(SiteAnswer::Space(SpaceUsage::default()));
    assert_eq!(rig.ask(asked()).outcome, known);
}
