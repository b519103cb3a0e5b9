//! The site on nodes in memory: what is acknowledged survives, what is shown
//! is durable, what is promised is finished.

mod rig;

use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{FileRef, Incarnation, NodeId, ObjectClass};
use crossdock_peer::{
    AttributeChanges, Call, CallId, CreateMode, NodeRequest, OpenFor, SiteAnswer, SiteError,
    SiteOperation, SiteReply, Stability,
};
use crossdock_site::{SiteInput, SiteLimits};

use rig::{READ, ROOT, Rig, create, file_of, once, plain, remove};

fn rig() -> Rig {
    Rig::new(SiteLimits::default())
}

fn truncate(file: FileRef, size: u64) -> SiteOperation {
    SiteOperation::SetAttributes {
        file,
        changes: AttributeChanges {
            size_bytes: Some(size),
            ..AttributeChanges::default()
        },
        guard: None,
    }
}

fn open_write(file: FileRef, end: u64) -> SiteOperation {
    SiteOperation::Open {
        file,
        purpose: OpenFor::Write {
            offset_bytes: 0,
            end_bytes: end,
        },
        holder: None,
    }
}

fn generation(rig: &Rig, file: FileRef) -> u64 {
    rig.site
        .directory()
        .cell(file)
        .expect("it is there")
        .rare()
        .truncate_generation
}

fn push(file: FileRef, size: u64, generation: u64, stability: Stability) -> SiteOperation {
    SiteOperation::PushAttributes {
        file,
        size_at_least_bytes: size,
        wrote: true,
        read: false,
        truncate_generation: generation,
        stability,
        written: None,
        lease: None,
    }
}

/// Goal: files, their names, attributes and small contents are there after the
/// manager died.
#[test]
fn state_survives_a_restart() {
    let mut rig = rig();
    let file = rig.create("a");
    rig.write(file, 0, b"hello", Stability::Stable);
    rig.write(file, 5, &[7; 30_000], Stability::Stable);
    let before = rig.attributes(file);
    for _ in 0..3 {
        rig.restart();
        assert!(matches!(&rig.opened, Some(Ok(report)) if !report.fresh));
        assert_eq!(rig.lookup("a"), Ok(file));
        let after = rig.attributes(file);
        assert_eq!((after.size_bytes, after.changed), (30_005, before.changed));
        let content = rig.read(file);
        assert_eq!((&content[..5], content.len()), (&b"hello"[..], 30_005));
        assert!(content[5..].iter().all(|&byte| byte == 7));
    }
}

/// Goal: no reply leaves before every member has the record, neither of the
/// operation nor of somebody who is shown its effect (`seen-then-gone`).
#[test]
fn nothing_is_shown_before_it_is_durable() {
    let mut rig = rig();
    let made = rig.send(plain(create("a")));
    let looked = rig.send(plain(SiteOperation::Lookup {
        directory: ROOT,
        name: Bytes::from_static(b"a"),
    }));
    let again = rig.send(plain(create("a")));
    assert!(rig.step(), "the first member");
    assert!(rig.replies.is_empty());
    rig.run();
    let file = file_of(&rig.replies[&made]);
    assert_eq!(file_of(&rig.replies[&looked]), file);
    assert_eq!(rig.replies[&again].outcome, Err(SiteError::Exists));
}

/// Goal: what one member has more of the log than the other is given to it,
/// and an answered operation is on both.
#[test]
fn members_are_made_equal() {
    let mut rig = rig();
    rig.create("a");
    rig.send(plain(create("b")));
    assert!(rig.step_unanswered(), "only one member gets it");
    rig.restart();
    let report = rig.opened.clone().expect("opened").expect("well");
    assert!(report.repaired_bytes > 0);
    let logs = |node: u64| -> Vec<_> {
        let objects = &rig.nodes[&NodeId(node)].objects;
        let logs = objects
            .iter()
            .filter(|(id, _)| id.class == ObjectClass::SiteLog);
        logs.map(|(id, object)| (*id, object.bytes.clone()))
            .collect()
    };
    assert_eq!(logs(1), logs(2));
    assert!(rig.lookup("b").is_ok(), "the longest tail is chosen");
}

/// Goal: a request that is sent again gets the first reply: at once, while the
/// first is under way, and after a restart with and without a checkpoint.
#[test]
fn duplicates_get_the_first_reply() {
    for checkpoint in [false, true] {
        let mut rig = Rig::new(SiteLimits {
            checkpoint_log_bytes_max: if checkpoint { 1 } else { 1 << 20 },
            checkpoint_ratio_max: u64::MAX,
            ..SiteLimits::default()
        });
        let first = rig.send(once(1, create("a")));
        let during = rig.send(once(1, create("a")));
        rig.run();
        let same = |left: &SiteReply, right: &SiteReply| {
            let right = SiteReply {
                id: left.id,
                ..right.clone()
            };
            assert_eq!(left, &right);
        };
        let original = rig.replies[&first].clone();
        same(&rig.replies[&during], &original);
        let gone = rig.send(once(2, remove("a")));
        rig.run();
        let removal = rig.replies[&gone].clone();
        assert_eq!(removal.outcome, Ok(SiteAnswer::Done));
        rig.create("b"); // Changes the directory's attributes.
        for _ in 0..2 {
            rig.restart();
            let again = rig.send(once(1, create("a")));
            let gone = rig.send(once(2, remove("a")));
            rig.run();
            same(&rig.replies[&again], &original);
            same(&rig.replies[&gone], &removal);
            assert_eq!(rig.lookup("a"), Err(SiteError::NotFound));
        }
    }
}

/// Goal: a rename that changes nothing, as both names are of one file, and a creation that
/// finds its own file are remembered like others: sent again when the names have changed,
/// they would change something (simulated races, seed 12).
#[test]
fn what_changed_nothing_is_not_done_when_it_is_sent_again() {
    let mut rig = rig();
    let file = rig.create("a");
    let name = |name: &'static str| Bytes::from_static(name.as_bytes());
    rig.ask(SiteOperation::Link {
        file,
        directory: ROOT,
        name: name("b"),
    });
    let rename = SiteOperation::Rename {
        from_directory: ROOT,
        from_name: name("a"),
        to_directory: ROOT,
        to_name: name("b"),
    };
    let exclusive = SiteOperation::Create {
        directory: ROOT,
        name: name("c"),
        mode: CreateMode::Exclusive([7; 8]),
    };
    rig.ask(exclusive.clone());
    let requests = [once(1, rename), once(2, exclusive)];
    let sent = requests.clone().map(|request| rig.send(request));
    rig.run();
    let firsts = sent.map(|sent| rig.replies[&sent].clone());
    assert_eq!(firsts[0].outcome, Ok(SiteAnswer::Done));
    assert_eq!(rig.lookup("a"), Ok(file), "both names stay");
    rig.remove("b");
    rig.remove("c");
    for _ in 0..2 {
        for (request, first) in requests.iter().zip(&firsts) {
            let again = rig.send(request.clone());
            rig.run();
            assert_eq!(rig.replies[&again].outcome, first.outcome);
        }
        assert_eq!(rig.lookup("a"), Ok(file));
        assert_eq!(rig.lookup("c"), Err(SiteError::NotFound));
        rig.restart();
    }
}

/// Goal: unstable writes are there until a crash, and for ever once committed;
/// a commit to another incarnation is told.
#[test]
fn unstable_writes_are_durable_once_committed() {
    let mut rig = rig();
    let file = rig.create("a");
    rig.write(file, 0, &[1; 20_000], Stability::Unstable);
    assert_eq!(rig.read(file), vec![1; 20_000]);
    let commit = |incarnation| SiteOperation::Commit { file, incarnation };
    let reply = rig.ask(commit(Incarnation(1)));
    assert_eq!(reply.outcome, Ok(SiteAnswer::Committed));
    rig.write(file, 20_000, &[2; 10], Stability::Unstable);
    rig.restart();
    assert_eq!(rig.read(file), vec![1; 20_000]);
    let current = Incarnation(2);
    let reply = rig.ask(commit(Incarnation(1)));
    assert_eq!(reply.outcome, Err(SiteError::Lost { current }));
}

/// Goal: the first bulk write makes all columns before it is answered; removal
/// takes all of them away, also when the manager dies in between.
#[test]
fn columns_come_and_go_with_the_file() {
    let mut rig = rig();
    let file = rig.create("big");
    let opened = rig.send(plain(open_write(file, 1 << 20)));
    rig.run();
    let Ok(SiteAnswer::Opened { layout, .. }) = &rig.replies[&opened].outcome else {
        panic!("{:?}", rig.replies[&opened]);
    };
    assert_eq!(layout.columns, 3);
    assert_eq!(rig.columns().len(), 3);
    assert_eq!(rig.site.open_intentions(), 0);

    let removed = rig.send(plain(remove("big")));
    for _ in 0..2 {
        rig.step(); // The record is durable; the nodes were not asked yet.
    }
    assert_eq!(rig.replies[&removed].outcome, Ok(SiteAnswer::Done));
    assert_eq!(rig.columns().len(), 3);
    rig.restart();
    assert_eq!(rig.columns(), []);
    assert_eq!(rig.site.open_intentions(), 0);
    rig.restart();
    let report = rig.opened.clone().expect("opened").expect("well");
    assert_eq!(report.intentions, 0, "the end was logged");
}

/// Goal: columns are not touched before the intention is durable.
#[test]
fn an_intention_is_durable_before_it_is_driven() {
    let mut rig = rig();
    let file = rig.create("big");
    rig.ask(open_write(file, 1 << 20));
    let made = rig.send(plain(create("other")));
    rig.send(plain(remove("big"))); // Gathered behind the frame in flight.
    while !rig.replies.contains_key(&made) {
        assert!(rig.step());
    }
    let to_columns = rig.to_nodes.iter().filter(|(_, call)| {
        let object = call.request.object();
        object.is_some_and(|object| object.class == ObjectClass::Column)
    });
    assert_eq!(to_columns.count(), 0);
    rig.run();
    assert_eq!(rig.columns(), []);
}

/// Goal: a truncate reaches every column before it is answered, holds up who
/// wants the content meanwhile, and is re-driven by the next manager.
#[test]
fn a_truncate_reaches_every_column() {
    let mut rig = rig();
    let file = rig.create("big");
    rig.ask(open_write(file, 1 << 20));
    let written = generation(&rig, file);
    rig.ask(push(file, 1 << 20, written, Stability::Stable));
    assert_eq!(rig.attributes(file).size_bytes, 1 << 20);
    let cut = rig.send(once(9, truncate(file, 100)));
    for _ in 0..2 {
        rig.step();
    }
    let opened = rig.send(plain(SiteOperation::Open {
        file,
        purpose: READ,
        holder: None,
    }));
    assert!(rig.replies.is_empty(), "{:?}", rig.replies);
    rig.step();
    rig.restart();
    assert!(!rig.replies.contains_key(&opened));
    for column in rig.columns() {
        let object = rig
            .nodes
            .values()
            .find_map(|node| node.objects.get(&column));
        assert_eq!(
            object.map(|object| object.truncate_generation),
            Some(written + 1)
        );
    }
    let again = rig.send(once(9, truncate(file, 100)));
    rig.run();
    assert!(!rig.replies.contains_key(&cut));
    assert_eq!(rig.replies[&again].outcome, Ok(SiteAnswer::Done));
    assert_eq!(rig.attributes(file).size_bytes, 100);
    let late = rig.ask(push(file, 1 << 20, written, Stability::Stable));
    let size = rig.attributes(file).size_bytes;
    assert_eq!(size, 100, "written before the truncate");
    // The writer learns that some of what it wrote may be cut.
    let Ok(SiteAnswer::Opened { layout, .. }) = late.outcome else {
        panic!("{:?}", late.outcome);
    };
    assert!(layout.truncate_generation > written);
}

/// History `resurrected-bytes`: a write beyond the end reaches its column and is
/// never answered; the site dies; a later write extends the file. Goal: what
/// lies between is zeros: the columns are cut at the end before anything can
/// extend the file in a new epoch, and only once.
#[test]
fn bytes_beyond_the_end_do_not_outlive_an_epoch() {
    let mut rig = rig();
    let file = rig.create("big");
    rig.ask(open_write(file, 1 << 20));
    let old = generation(&rig, file);
    rig.ask(push(file, 1 << 20, old, Stability::Stable));
    rig.restart();
    assert!(rig.ask(open_write(file, 2 << 20)).outcome.is_ok());
    let new = generation(&rig, file);
    assert!(new > old);
    for column in rig.columns() {
        for node in rig.nodes.values() {
            let object = node.objects.get(&column);
            assert!(object.is_none_or(|object| object.truncate_generation == new));
        }
    }
    assert_eq!(rig.attributes(file).size_bytes, 1 << 20);
    assert!(rig.ask(open_write(file, 2 << 20)).outcome.is_ok());
    assert_eq!(generation(&rig, file), new, "tidied once");
    rig.restart();
    assert!(rig.ask(truncate(file, 3 << 20)).outcome.is_ok());
    assert!(generation(&rig, file) > new + 1, "tidied, then extended");
}

/// Goal: after a truncate nobody can write under the new generation before its
/// end is in the log: a restart would truncate what they wrote.
#[test]
fn a_finished_truncate_is_not_repeated_over_new_bytes() {
    let mut rig = rig();
    let file = rig.create("big");
    rig.ask(open_write(file, 1 << 20));
    let cut = rig.send(plain(truncate(file, 0)));
    while !rig.replies.contains_key(&cut) {
        assert!(rig.step());
    }
    let opened = rig.send(plain(open_write(file, 1 << 20)));
    assert!(!rig.replies.contains_key(&opened), "the end is not durable");
    rig.run();
    assert!(rig.replies[&opened].outcome.is_ok());
    rig.restart();
    let report = rig.opened.clone().expect("opened").expect("well");
    assert_eq!(report.intentions, 0);
}

/// Goal: where there is no space for columns the write is refused, nothing is
/// left behind, and it works once there is space.
#[test]
fn columns_without_space_leave_nothing_behind() {
    let mut rig = rig();
    let file = rig.create("big");
    rig.nodes
        .get_mut(&NodeId(3))
        .expect("3")
        .no_space_for_columns = true;
    let reply = rig.ask(open_write(file, 1 << 20));
    assert_eq!(reply.outcome, Err(SiteError::NoSpace));
    assert_eq!(rig.columns(), []);
    assert_eq!(rig.site.open_intentions(), 0);
    rig.nodes
        .get_mut(&NodeId(3))
        .expect("3")
        .no_space_for_columns = false;
    let reply = rig.ask(open_write(file, 1 << 20));
    assert!(reply.outcome.is_ok());
    assert_eq!(rig.columns().len(), 3);
}

/// Goal: a node that is away delays, and is asked again until it answers.
#[test]
fn a_node_that_is_away_is_asked_again() {
    let mut rig = rig();
    rig.nodes.get_mut(&NodeId(2)).expect("2").down = true;
    let made = rig.send(plain(create("a")));
    rig.run();
    assert!(rig.replies.is_empty());
    rig.pass(Duration::from_millis(50));
    assert!(rig.replies.is_empty());
    rig.nodes.get_mut(&NodeId(2)).expect("2").down = false;
    rig.pass(Duration::from_secs(2));
    assert!(rig.replies[&made].outcome.is_ok());
}

/// Goal: an append whose first sending was slow is acknowledged when the node
/// says that it is durable, and no sooner; one that the node lost is sent again.
#[test]
fn a_slow_append_is_not_taken_for_durable() {
    for lost in [false, true] {
        let mut rig = rig();
        let made = rig.send(plain(create("a")));
        assert!(rig.step(), "one member");
        let slow = rig.to_nodes[0].clone();
        assert!(rig.step_unanswered(), "visible at the other one");
        rig.now = rig.now + Duration::from_secs(11);
        rig.input(crossdock_site::SiteInput::Timeout);
        assert!(rig.step(), "the end is not where it was");
        assert!(rig.replies.is_empty());
        let asked = rig.to_nodes.front().map(|(_, call)| &call.request);
        assert!(
            matches!(asked, Some(crossdock_peer::NodeRequest::Seal { .. })),
            "{asked:?}"
        );
        if lost
            && let crossdock_peer::NodeRequest::Append {
                object,
                offset_bytes,
                ..
            } = slow.1.request
        {
            let node = rig.nodes.get_mut(&slow.0).expect("a node");
            let end = usize::try_from(offset_bytes).expect("small");
            node.objects
                .get_mut(&object)
                .expect("a log")
                .bytes
                .truncate(end);
        }
        rig.run();
        assert!(rig.replies[&made].outcome.is_ok());
        rig.restart();
        let report = rig.opened.clone().expect("opened").expect("well");
        assert_eq!(report.repaired_bytes, 0);
        assert!(rig.lookup("a").is_ok());
    }
}

/// Goal: when the table takes a member out, the others are enough.
#[test]
fn a_member_that_was_taken_out_does_not_count() {
    let mut rig = rig();
    rig.nodes.get_mut(&NodeId(2)).expect("2").down = true;
    let file = rig.send(plain(create("a")));
    rig.run();
    assert!(rig.replies.is_empty());
    rig.table.epoch.0 += 1;
    let set = rig.table.sets.get_mut(&crossdock_names::SetId(0));
    set.expect("set 0").members.pop();
    let table = std::sync::Arc::new(rig.table.clone());
    rig.input(crossdock_site::SiteInput::Table(table));
    rig.run();
    let file = file_of(&rig.replies[&file]);
    rig.write(file, 0, &[3; 9000], Stability::Stable);
    rig.restart();
    assert_eq!(rig.read(file), vec![3; 9000]);
}

/// Goal: an old manager whose site was taken over changes nothing and answers
/// nothing but "moved" (invariant 2).
#[test]
fn a_replaced_manager_answers_nothing() {
    let mut rig = rig();
    let file = rig.create("a");
    rig.ask(push(file, 70_000, 0, Stability::Unstable));
    for node in rig.nodes.values_mut() {
        for (id, object) in &mut node.objects {
            if id.class == ObjectClass::SiteLog {
                object.fence.0 += 1; // Somebody sealed it.
            }
        }
    }
    let made = rig.send(plain(create("b")));
    rig.run();
    assert_eq!(rig.replies[&made].outcome, Err(SiteError::Moved));
    let asked = rig.send(plain(SiteOperation::GetAttributes { file: ROOT }));
    assert_eq!(rig.replies[&asked].outcome, Err(SiteError::Moved));
    assert_eq!(rig.site.poll_timeout(), None, "nothing is left to do");
    assert!(rig.site.is_settled());
}

/// A read that waited for a node when its site was given to another epoch was
/// never answered: the gateway waited for it for ever.
///
/// Goal: it is answered "moved", too.
#[test]
fn a_replaced_manager_answers_who_waits_for_a_node() {
    let mut rig = rig();
    let file = rig.create("a");
    rig.write(file, 0, &[3; 9000], Stability::Stable);
    let asked = rig.send(plain(SiteOperation::Read {
        file,
        offset_bytes: 0,
        length_bytes: 9000,
        patience_ms: 0,
    }));
    assert!(!rig.replies.contains_key(&asked), "it has to ask a node");
    let mut table = rig.table.clone();
    table.epoch.0 += 1;
    table.sites[0].epoch.0 += 1;
    rig.input(SiteInput::Table(table.into()));
    assert_eq!(rig.replies[&asked].outcome, Err(SiteError::Moved));
}

/// Goal: a file whose bytes lie in backing objects is located there, with the version by which an
/// overwrite is noticed; one with bytes in memory is read.
#[test]
fn a_file_is_located_where_it_lies() {
    let mut rig = rig();
    let file = rig.create("a");
    let content: Vec<u8> = (0..20_000u32).map(|at| at.to_le_bytes()[0]).collect();
    rig.write(file, 0, &content, Stability::Stable);
    let locate = |length_bytes| SiteOperation::Locate {
        file,
        offset_bytes: 0,
        length_bytes,
        patience_ms: 0,
    };
    let Ok(SiteAnswer::Located {
        extents,
        end_of_file: true,
    }) = rig.ask(locate(65_536)).outcome
    else {
        panic!("not located")
    };
    let mut there = Vec::new();
    for extent in &extents {
        let object = &rig.nodes[&NodeId(1)].objects[&extent.object];
        let start = usize::try_from(extent.offset_bytes).expect("little");
        there.extend_from_slice(&object.bytes[start..start + extent.length_bytes as usize]);
    }
    assert_eq!(there, content);
    let Ok(SiteAnswer::Located {
        end_of_file: false, ..
    }) = rig.ask(locate(8192)).outcome
    else {
        panic!("not located")
    };
    rig.write(file, 0, &content[..8192], Stability::Stable);
    let Ok(SiteAnswer::Located { extents: later, .. }) = rig.ask(locate(8192)).outcome else {
        panic!("not located")
    };
    assert!(later[0].version > extents[0].version, "{later:?}");
    rig.write(file, 100, b"new", Stability::Unstable);
    match rig.ask(locate(65_536)).outcome {
        Ok(SiteAnswer::Read {
            payload,
            end_of_file: true,
        }) => assert_eq!(&payload.to_bytes()[99..104], [99, b'n', b'e', b'w', 103]),
        other => panic!("{other:?}"),
    }
}

/// Goal: checkpoints are made while the site works; old log objects and
/// checkpoints go, and restarts begin from the newest.
#[test]
fn checkpoints_bound_the_log() {
    let mut rig = Rig::new(SiteLimits {
        segment_bytes_max: 4000,
        checkpoint_log_bytes_max: 10_000,
        checkpoint_ratio_max: u64::MAX,
        checkpoint_chunk_bytes: 2000,
        ..SiteLimits::default()
    });
    for number in 0..200 {
        let file = rig.create(&format!("file {number}"));
        rig.write(file, 0, &[1; 100], Stability::Stable);
        if number % 3 == 0 {
            rig.remove(&format!("file {number}"));
        }
    }
    let kept = |class| {
        let objects = rig.nodes[&NodeId(1)].objects.keys();
        objects.filter(move |id| id.class == class).count()
    };
    assert_eq!(kept(ObjectClass::Checkpoint), 1);
    assert!(kept(ObjectClass::SiteLog) < 8);
    rig.restart();
    let report = rig.opened.clone().expect("opened").expect("well");
    assert!(report.checkpoint.is_some());
    assert!(report.records < 200, "{report:?}");
    for number in 0..200 {
        let there = rig.lookup(&format!("file {number}"));
        assert_eq!(there.is_ok(), number % 3 != 0, "{number}");
        if let Ok(file) = there {
            assert_eq!(rig.read(file), vec![1; 100]);
        }
    }
}

/// Goal: a checkpoint that shows what the log does not have yet is not valid:
/// the log's appends are late, everything else arrives, and the manager dies.
#[test]
fn a_checkpoint_is_never_ahead_of_the_log() {
    let mut rig = Rig::new(SiteLimits {
        checkpoint_log_bytes_max: 1,
        checkpoint_ratio_max: u64::MAX,
        ..SiteLimits::default()
    });
    rig.create("old");
    for name in ["a", "b", "c"] {
        rig.send(plain(create(name)));
    }
    rig.send(plain(remove("old")));
    loop {
        let late = |call: &crossdock_peer::Call<crossdock_peer::NodeRequest>| {
            matches!(call.request, crossdock_peer::NodeRequest::Append { .. })
        };
        let (appends, others): (Vec<_>, Vec<_>) =
            rig.to_nodes.drain(..).partition(|(_, call)| late(call));
        let arrived = others.len();
        rig.to_nodes.extend(others);
        for _ in 0..arrived {
            rig.step();
        }
        rig.to_nodes.extend(appends);
        if arrived == 0 {
            break;
        }
    }
    assert!(!rig.to_nodes.is_empty(), "the appends");
    rig.restart();
    assert!(rig.lookup("old").is_ok());
    for name in ["a", "b", "c"] {
        assert_eq!(rig.lookup(name), Err(SiteError::NotFound));
    }
}

/// Goal: a volume that was used and has no log any more is an error, not an
/// empty volume.
#[test]
fn a_lost_log_is_an_error() {
    let mut rig = rig();
    rig.create("a");
    for node in rig.nodes.values_mut() {
        node.objects.clear();
    }
    rig.restart();
    let error = rig.opened.clone().expect("ended").expect_err("no log");
    assert_eq!(error, crossdock_site::OpenError::NoLog);
}

/// Goal: requests during opening wait, and their number is bounded.
#[test]
fn requests_wait_for_opening() {
    let mut rig = Rig::unopened(SiteLimits {
        waiting_max: 2,
        ..SiteLimits::default()
    });
    let all: Vec<_> = (0..3)
        .map(|number| rig.send(plain(create(&number.to_string()))))
        .collect();
    assert_eq!(rig.replies[&all[2]].outcome, Err(SiteError::Busy));
    rig.run();
    assert!(rig.replies[&all[0]].outcome.is_ok());
    assert!(rig.replies[&all[1]].outcome.is_ok());
}

/// Goal: attribute changes that nobody committed are logged after a while.
#[test]
fn volatile_attributes_are_logged_after_a_while() {
    let mut rig = rig();
    let file = rig.create("a");
    rig.ask(push(file, 70_000, 0, Stability::Unstable));
    assert_eq!(rig.attributes(file).size_bytes, 70_000);
    rig.pass(Duration::from_secs(6));
    rig.restart();
    assert_eq!(rig.attributes(file).size_bytes, 70_000);
    rig.ask(push(file, 80_000, 0, Stability::Unstable));
    rig.restart();
    assert_eq!(rig.attributes(file).size_bytes, 70_000);
}

/// Goal: a site that is restarted again and again does not pile up log objects.
#[test]
fn restarts_do_not_pile_up_log_objects() {
    let mut rig = rig();
    rig.create("a");
    for _ in 0..60 {
        rig.restart();
        let objects = rig.nodes[&NodeId(2)].objects.keys();
        let logs = objects.filter(|id| id.class == ObjectClass::SiteLog);
        assert!(logs.count() <= 18);
    }
    assert!(rig.lookup("a").is_ok());
}

/// Goal: a graceful stop waits for the log, not for a node that is away: what
/// it still has to do is in the log, and done after the next opening.
#[test]
fn a_node_that_is_away_does_not_hold_up_a_stop() {
    let mut rig = rig();
    let file = rig.create("big");
    rig.ask(open_write(file, 1 << 20));
    rig.nodes.get_mut(&NodeId(3)).expect("3").down = true;
    assert_eq!(rig.remove("big").outcome, Ok(SiteAnswer::Done));
    let other = rig.create("other");
    rig.ask(push(other, 70_000, 0, Stability::Unstable));
    assert!(!rig.site.is_settled(), "the attributes are in memory only");
    rig.site.settle(rig.now, rig.wall);
    rig.collect();
    assert!(!rig.site.is_settled(), "they are on their way to the log");
    rig.run();
    assert!(rig.site.is_settled());
    assert!(!rig.site.is_idle(), "a column is left");
    assert_eq!(rig.columns().len(), 1);
    rig.nodes.get_mut(&NodeId(3)).expect("3").down = false;
    rig.restart();
    assert_eq!(rig.attributes(other).size_bytes, 70_000);
    assert_eq!(rig.columns(), []);
    assert!(rig.site.is_idle());
}

/// Goal: requests that come in one turn share a frame of the log, and nobody is
/// answered before it is durable.
#[test]
fn requests_of_one_turn_share_a_frame_of_the_log() {
    let mut rig = rig();
    rig.run();
    let calls: Vec<CallId> = (0..8)
        .map(|number| {
            let id = CallId(1_000_000 + number);
            let request = once(
                u8::try_from(number).expect("few"),
                create(&format!("f{number}")),
            );
            let call = Call {
                id,
                deadline: rig.now + Duration::from_secs(60),
                request,
            };
            let input = SiteInput::Request(Box::new(call));
            rig.site.gather(rig.now, rig.wall, input);
            rig.collect();
            assert!(rig.to_nodes.is_empty(), "the turn goes on");
            id
        })
        .collect();
    rig.site.end_turn(rig.now);
    rig.collect();
    let is_append = |call: &Call<NodeRequest>| matches!(call.request, NodeRequest::Append { .. });
    let mut members: Vec<NodeId> = (rig.to_nodes.iter())
        .filter(|(_, call)| is_append(call))
        .map(|(node, _)| *node)
        .collect();
    let appends = members.len();
    members.sort_unstable();
    members.dedup();
    assert!(
        appends > 0 && appends == members.len(),
        "one for each member"
    );
    assert!(calls.iter().all(|id| !rig.replies.contains_key(id)));
    rig.run();
    for id in calls {
        assert!(
            rig.replies
                .get(&id)
                .is_some_and(|reply| reply.outcome.is_ok())
        );
    }
}
