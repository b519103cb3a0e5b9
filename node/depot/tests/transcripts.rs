//! What programs of the family have said to depots – to those of LoCI and ACCRE, and to ours – is
//! said to the depot again: it answers the same, except keys and free space.

mod rig;
#[path = "../../../wire/ibp/tests/transcript/mod.rs"]
mod transcript;

use std::collections::{BTreeMap, BTreeSet};

use crossdock_depot::{ConnId, DepotPolicy};
use crossdock_ibp::answer;
use crossdock_ibp::{Capability, Command, Manage, Request, Status, StatusQuery, Totals, Version};
use rig::Rig;
use transcript::{Side, Transcript};

/// How much later than then a lease may be looked at here, in seconds.
const LATER_MAX: u64 = 60;

#[test]
fn the_depot_answers_as_it_was_answered_then() {
    for transcript in transcript::all() {
        replay(&transcript);
    }
}

/// Bytes for all and for stable allocations, and seconds.
type Granted = (u64, u64, Option<u64>);

#[derive(Default)]
struct Keys {
    /// Capabilities of then, and those that were given instead.
    pairs: Vec<(Capability, Capability)>,
    /// What the first depot of then grants, as which the one here is; others may take part.
    granted: Option<Granted>,
}

impl Keys {
    /// A request of then with the keys of now.
    fn of_now(&self, line: &str) -> String {
        let mut fields: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for (then, now) in &self.pairs {
            let (then_text, now_text) = (then.to_string(), now.to_string());
            let place = |text: &str| fields.iter().position(|field| *field == text);
            let (key, attribute_key) =
                (place(then.key.as_str()), place(then.attribute_key.as_str()));
            // All three of LoCI have the same key: the other one tells which it is.
            let is_own = self
                .pairs
                .iter()
                .filter(|(it, _)| it.key == then.key)
                .count()
                == 1;
            if let Some(key) = key.filter(|_| is_own || attribute_key.is_some()) {
                now.key.as_str().clone_into(&mut fields[key]);
            }
            if let Some(attribute_key) = attribute_key.filter(|_| key.is_some()) {
                now.attribute_key
                    .as_str()
                    .clone_into(&mut fields[attribute_key]);
            }
            let targets = fields.iter_mut().filter(|field| **field == then_text);
            targets.for_each(|field| field.clone_from(&now_text));
        }
        fields.join(" ")
    }
}

fn replay(transcript: &Transcript) {
    let mut rig = Rig::new(11, policy(transcript));
    rig.reaches_itself = true;
    let mut ends: BTreeMap<u64, ConnId> = BTreeMap::new();
    let mut asked: BTreeMap<u64, Request> = BTreeMap::new();
    let mut keys = Keys::default();
    // The depot makes copies itself, to itself: what depots have said to each other is left out.
    let mut copies: BTreeMap<u64, String> = BTreeMap::new();
    let mut between_depots = BTreeSet::new();
    for said in &transcript.said {
        if said.side == Side::Asks {
            let (line, _) = said.line();
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let target = fields.get(3).filter(|_| fields.get(1) == Some(&"5"));
            let is_copied = |target: &String| {
                let key = target.split('/').nth(3);
                fields.get(1) == Some(&"2") && fields.get(2).copied() == key
            };
            if copies.values().any(is_copied) {
                between_depots.insert(said.connection);
            }
            copies.remove(&said.connection);
            copies.extend(target.map(|&target| (said.connection, target.to_owned())));
        }
        if between_depots.contains(&said.connection) {
            continue;
        }
        if said.side == Side::Answers {
            copies.remove(&said.connection);
        }
        let end = *ends.entry(said.connection).or_insert_with(|| rig.connect());
        match said.side {
            Side::Asks => {
                let line = keys.of_now(said.line().0);
                let request = Request::parse(line.as_bytes());
                asked.remove(&said.connection);
                asked.extend(request.ok().map(|request| (said.connection, request)));
                rig.say(end, format!("{line}\n"));
            }
            Side::Stores => rig.say(end, &said.bytes),
            Side::Answers => {
                let request = asked.get(&said.connection);
                // LoCI ends the answer to a copy within a depot otherwise than to one to another.
                let is_copy = request.is_some_and(|it| matches!(it.command, Command::Send { .. }));
                let is_accre = transcript.name.starts_with("accre");
                let then = match is_accre {
                    true => transcript::without_pause(&said.bytes),
                    false => &said.bytes,
                };
                if then.is_empty() {
                    continue;
                }
                let heard = hear(&mut rig, end, then.len());
                let is_exact = !is_accre && !is_copy;
                let compared = compare(request, then, &heard, is_exact, &mut keys);
                let shown = |bytes: &[u8]| bytes[..bytes.len().min(300)].escape_ascii().to_string();
                assert_eq!(
                    compared,
                    Ok(()),
                    "{}: to {:?}\nthen {}\nnow  {}",
                    transcript.name,
                    request.map(Request::to_string),
                    shown(then),
                    shown(&heard)
                );
            }
        }
    }
}

/// What the depot of then has told that it grants.
fn policy(transcript: &Transcript) -> DepotPolicy {
    let mut policy = DepotPolicy::default();
    for said in transcript
        .said
        .iter()
        .filter(|said| said.side == Side::Answers)
    {
        let (line, rest) = said.line();
        let status = Status::parse(rest).ok();
        if let Some(resource) = status.as_ref().and_then(|it| it.resources.first()) {
            policy.total_bytes = Some(resource.total.configured_bytes);
            policy.stable_bytes = Some(resource.stable.configured_bytes);
            policy.duration_seconds_max = resource.duration_seconds_max;
            return policy;
        }
        if let Ok(totals) = Totals::parse(line.as_bytes()) {
            policy.total_bytes = Some(totals.volatile_mib << 20);
            policy.stable_bytes = Some(totals.stable_mib << 20);
            policy.duration_seconds_max = totals.duration_seconds_max;
            return policy;
        }
    }
    policy
}

/// What is answered: so many bytes of it, if it takes time.
fn hear(rig: &mut Rig, end: ConnId, bytes: usize) -> Vec<u8> {
    let mut heard = Vec::new();
    for _ in 0..10 {
        rig.settle();
        heard.append(&mut rig.hear(end));
        let is_load = bytes > 2000;
        if !heard.is_empty() && (!is_load || heard.len() >= bytes) {
            break;
        }
        rig.wait(1);
    }
    heard
}

/// Whether an answer is as that of then; notes keys.
fn compare(
    request: Option<&Request>,
    then: &[u8],
    now: &[u8],
    is_exact: bool,
    keys: &mut Keys,
) -> Result<(), &'static str> {
    if now.is_empty() {
        return Err("no answer");
    }
    let line = |bytes: &'_ [u8]| -> Vec<u8> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        bytes[..end.unwrap_or(bytes.len())].to_vec()
    };
    let (then_line, now_line) = (line(then), line(now));
    let is_same = match is_exact {
        true => then == now,
        false => {
            let fields = |line: &[u8]| -> Vec<Vec<u8>> {
                let fields = line.split(u8::is_ascii_whitespace);
                fields
                    .filter(|it| !it.is_empty())
                    .map(<[u8]>::to_vec)
                    .collect()
            };
            let rests = [&then[then_line.len()..], &now[now_line.len()..]];
            fields(&then_line) == fields(&now_line) && rests[0] == rests[1]
        }
    };
    let Some(request) = request else {
        // What neither has is refused by each in its own words.
        let is_refusal = |line: &[u8]| line.trim_ascii().starts_with(b"-");
        let are_refusals = is_refusal(&then_line) && is_refusal(&now_line);
        return are_refusals.then_some(()).ok_or("no refusal");
    };
    match &request.command {
        Command::Allocate { .. } => {
            let (Ok(then), Ok(now)) = (
                answer::read_capabilities(&then_line),
                answer::read_capabilities(&now_line),
            ) else {
                return is_same
                    .then_some(())
                    .ok_or("not the same of three capabilities");
            };
            keys.pairs.push((then.read, now.read));
            keys.pairs.push((then.write, now.write));
            keys.pairs.push((then.manage, now.manage));
            Ok(())
        }
        Command::Manage {
            manage: Manage::Probe,
            ..
        } => {
            // ACCRE probes for managers only.
            if !is_exact && then_line.trim_ascii() == b"-4" {
                return Ok(());
            }
            let read = |line: &[u8]| answer::read_probe(line).ok();
            let (Some(then), Some(mut now)) = (read(&then_line), read(&now_line)) else {
                return is_same.then_some(()).ok_or("not the same of a probe");
            };
            if now.duration_seconds.abs_diff(then.duration_seconds) <= LATER_MAX {
                now.duration_seconds = then.duration_seconds;
            }
            if !is_exact {
                now.write_count = then.write_count; // ACCRE begins with 0.
            }
            (then == now).then_some(()).ok_or("another probe")
        }
        Command::Status {
            query: StatusQuery::Inquire { .. },
            ..
        } => statuses(request.version, then, now, keys),
        _ => is_same.then_some(()).ok_or("another answer"),
    }
}

/// What is configured is the same; what is free is not.
fn statuses(
    version: Version,
    then: &[u8],
    now: &[u8],
    keys: &mut Keys,
) -> Result<(), &'static str> {
    let tell = |bytes: &[u8]| -> Option<Granted> {
        let end = bytes.iter().position(|&byte| byte == b'\n')?;
        match version {
            Version::V031 => {
                let totals = Totals::parse(&bytes[..end]).ok()?;
                let limit = totals.duration_seconds_max;
                Some((totals.volatile_mib << 20, totals.stable_mib << 20, limit))
            }
            Version::V040 => {
                let status = Status::parse(&bytes[end + 1..]).ok()?;
                let resource = status.resources.first()?;
                let (total, stable) = (&resource.total, &resource.stable);
                let limit = resource.duration_seconds_max;
                Some((total.configured_bytes, stable.configured_bytes, limit))
            }
        }
    };
    let (Some(then), Some(now)) = (tell(then), tell(now)) else {
        return Err("no status");
    };
    let is_same = *keys.granted.get_or_insert(then) != then || then == now;
    is_same.then_some(()).ok_or("another status")
}
