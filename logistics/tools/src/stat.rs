//! Stat: "takes an exNode as input and provides information about the metadata stored therein"
//! (Network Storage Stack 2.3), and asks depots how long they keep it.

use std::time::{Duration, SystemTime};

use crossdock_exnode::{Coding, ExNode, Mapping, Shard};
use crossdock_ibp::{Access, Capability, ErrorCode, Probe, Reliability};

use crate::knowledge::Knowledge;
use crate::parallel::each;
use crate::{Address, DepotError, Depots};

/// What is known of one mapping.
#[derive(Debug)]
pub struct MappingStatus {
    /// Where its bytes are; none if its capabilities are none.
    pub depot: Option<Address>,
    /// What its depot says.
    pub probe: Result<Probe, String>,
    /// Whether the depot answered that it does not have it (any more).
    pub is_gone: bool,
    /// What a connection to the depot is expected to carry, in bytes per second.
    pub bandwidth: Option<f64>,
    /// What was done to its bytes, the first thing first; and what it restores.
    pub coding: String,
}

impl MappingStatus {
    /// When it ends, if it does.
    #[must_use]
    pub fn ends(&self, now: SystemTime) -> Option<SystemTime> {
        let probe = self.probe.as_ref().ok()?;
        let left = u64::try_from(probe.duration_seconds)
            .ok()
            .filter(|&left| left > 0)?;
        now.checked_add(Duration::from_secs(left))
    }
}

/// Asks the depots of all mappings, some at a time.
pub async fn stat(
    depots: &Depots,
    exnode: &ExNode,
    threads: usize,
    knowledge: &Knowledge,
) -> Vec<MappingStatus> {
    let probes = each(
        exnode.mappings.iter().map(capability),
        threads,
        |capability| {
            let depots = depots.clone();
            async move {
                match capability {
                    Ok(capability) => depots.probe(&capability).await.map_err(Reason::Depot),
                    Err(reason) => Err(Reason::Capability(reason)),
                }
            }
        },
    );
    let probes = probes.await;
    let status = |(mapping, probe): (&Mapping, Option<Result<Probe, Reason>>)| {
        let asked = capability(mapping).ok();
        let depot = asked.as_ref().map(Address::from);
        let is_gone = match &probe {
            Some(Err(Reason::Depot(DepotError::Refused { code, .. }))) => {
                *code == ErrorCode::CAP_NOT_FOUND && asked.is_some_and(|it| is_asked_by(&it))
            }
            _ => false,
        };
        let probe = match probe {
            Some(Ok(probe)) => Ok(probe),
            Some(Err(Reason::Depot(error))) => Err(error.to_string()),
            Some(Err(Reason::Capability(reason))) => Err(reason),
            None => Err("it was not asked for".to_owned()),
        };
        MappingStatus {
            bandwidth: depot.as_ref().and_then(|depot| knowledge.bandwidth(depot)),
            coding: coding(mapping),
            depot,
            probe,
            is_gone,
        }
    };
    exnode.mappings.iter().zip(probes).map(status).collect()
}

enum Reason {
    Depot(DepotError),
    Capability(String),
}

/// Whether depots tell of an allocation by that capability. ACCRE's, whose keys have names of 32
/// characters, do so for managers only: to others it is as one that is not there.
fn is_asked_by(capability: &Capability) -> bool {
    let (_, name) = capability.key.split();
    capability.access == Access::Manage || name.len() != 32
}

/// What to ask with about a mapping.
fn capability(mapping: &Mapping) -> Result<Capability, String> {
    let text = mapping.any_capability().ok_or("it has no capability")?;
    text.parse().map_err(|error| format!("{error}"))
}

fn coding(mapping: &Mapping) -> String {
    let steps = match Coding::of(mapping) {
        Ok(coding) => coding.steps,
        Err(error) => return error.to_string(),
    };
    let mut names: Vec<String> = steps.iter().map(|step| step.name().to_owned()).collect();
    if let Ok(Some(shard)) = Shard::of(mapping) {
        let group = &shard.group;
        let (data, recovery) = (group.data_shards, group.recovery_shards);
        names.insert(
            0,
            format!("{} {data}+{recovery} #{}", group.name(), shard.index),
        );
    }
    names.join(" ")
}

/// A mapping's line as `lors_ls` has it: number; reliability, capabilities and storage type;
/// read count; offset; length; depot; end.
#[must_use]
pub fn lors_line(number: usize, mapping: &Mapping, status: &MappingStatus, ends: &str) -> String {
    let letter = match &status.probe {
        Ok(probe) if probe.reliability == Reliability::Stable => 'H',
        Ok(_) => 'S',
        Err(_) => '?',
    };
    let has = |capability: &Option<String>, letter| capability.as_ref().map_or('-', |_| letter);
    let (r, w) = (has(&mapping.read, 'r'), has(&mapping.write, 'w'));
    let m = has(&mapping.manage, 'm');
    let count = match &status.probe {
        Ok(probe) => probe.read_count.to_string(),
        Err(_) => "?".to_owned(),
    };
    let depot = status
        .depot
        .as_ref()
        .map_or_else(|| "?".to_owned(), ToString::to_string);
    let (offset, length) = (mapping.exnode_offset, mapping.logical_length);
    format!("{number:4} {letter}{r}{w}{m}a {count:>2} {offset:12} {length:10} {depot:<24} {ends}")
}

/// A time of day as `lors_ls` and exNodes have it, in UTC: `YYYY-MM-DD HH:MM:SS`.
#[must_use]
pub fn date(at: SystemTime) -> String {
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86400, since.as_secs() % 86400);
    // Days since 1970 to a date: eras of 400 years that begin on a first of March.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{:02}",
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: dates are those of `date -u`, leap days and centuries included.
    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00:00");
        assert_eq!(at(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(at(4_107_542_399), "2100-02-28 23:59:59");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00:00");
        assert_eq!(at(1_795_996_800), "2026-11-30 00:00:00");
    }
}
