//! What both sides agree on at login (RFC 7143 section 13).

use crossdock_iscsi_pdu::{Digests, parse_number};
use crossdock_limits::{
    ISCSI_BURST_BYTES_MAX, ISCSI_DATA_BYTES_MAX, ISCSI_FIRST_BURST_BYTES_MAX, ISCSI_TRANSFERS_MAX,
};

/// The answer to a key that is not known.
const NOT_UNDERSTOOD: &str = "NotUnderstood";
/// The answer to one whose value cannot be agreed to.
const REJECT: &str = "Reject";
/// The answer to one that means nothing here.
const IRRELEVANT: &str = "Irrelevant";

/// Least and most bytes that lengths may have.
const LENGTHS: std::ops::RangeInclusive<u64> = 512..=(1 << 24) - 1;

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) digests: Digests,
    /// Bytes of data of one PDU that the initiator takes.
    pub(crate) their_data_bytes_max: usize,
    pub(crate) max_burst_bytes: u32,
    pub(crate) first_burst_bytes: u32,
    pub(crate) is_initial_r2t: bool,
    pub(crate) is_immediate_data: bool,
    pub(crate) transfers_max: u32,
    pub(crate) connections_max: u64,
}

impl Parameters {
    /// What holds for who says nothing.
    pub(crate) const DEFAULT: Self = Self {
        digests: Digests {
            header: false,
            data: false,
        },
        their_data_bytes_max: 8192,
        max_burst_bytes: 262_144,
        first_burst_bytes: 65_536,
        is_initial_r2t: true,
        is_immediate_data: true,
        transfers_max: 1,
        connections_max: 1,
    };

    /// The lengths fit each other: what comes unsolicited is part of a burst.
    pub(crate) const fn is_consistent(&self) -> bool {
        self.first_burst_bytes <= self.max_burst_bytes
    }

    /// Takes a key of the operational stage; the answer to it, if it wants one.
    pub(crate) fn take(
        &mut self,
        key: &str,
        value: &str,
        connections_max: usize,
    ) -> Option<String> {
        let answer = match key {
            "HeaderDigest" => return Some(digest(value, &mut self.digests.header)),
            "DataDigest" => return Some(digest(value, &mut self.digests.data)),
            "MaxRecvDataSegmentLength" => return self.take_data_length(value),
            "MaxBurstLength" => lowest(value, ISCSI_BURST_BYTES_MAX.into(), |agreed| {
                self.max_burst_bytes = narrow(agreed);
            }),
            "FirstBurstLength" => lowest(value, ISCSI_FIRST_BURST_BYTES_MAX.into(), |agreed| {
                self.first_burst_bytes = narrow(agreed);
            }),
            "MaxOutstandingR2T" => number(value, 1..=65_535).map(|theirs| {
                let agreed = theirs.min(ISCSI_TRANSFERS_MAX.into());
                self.transfers_max = narrow(agreed);
                agreed.to_string()
            }),
            "MaxConnections" => number(value, 1..=65_535).map(|theirs| {
                self.connections_max = theirs.min(connections_max as u64);
                self.connections_max.to_string()
            }),
            // Unsolicited data saves a round trip: it comes unless the initiator minds.
            "InitialR2T" => boolean(value).map(|theirs| {
                self.is_initial_r2t = theirs;
                yes_or_no(theirs)
            }),
            "ImmediateData" => boolean(value).map(|theirs| {
                self.is_immediate_data = theirs;
                yes_or_no(theirs)
            }),
            // Of these the outcome of an OR with Yes is Yes.
            "DataPDUInOrder" | "DataSequenceInOrder" => boolean(value).map(|_| yes_or_no(true)),
            "ErrorRecoveryLevel" => number(value, 0..=2).map(|_| "0".to_owned()),
            "DefaultTime2Wait" => number(value, 0..=3600).map(|theirs| theirs.to_string()),
            "DefaultTime2Retain" => number(value, 0..=3600).map(|_| "0".to_owned()),
            // Markers are no more (RFC 7143 section 13.25).
            "IFMarker" | "OFMarker" => boolean(value).map(|_| yes_or_no(false)),
            "IFMarkInt" | "OFMarkInt" => Some(IRRELEVANT.to_owned()),
            "TaskReporting" => {
                let is_offered = value.split(',').any(|name| name == "RFC3720");
                is_offered.then(|| "RFC3720".to_owned())
            }
            "iSCSIProtocolLevel" => number(value, 0..=31).map(|theirs| theirs.min(1).to_string()),
            "InitiatorAlias" | "InitiatorName" | "SessionType" | "TargetName" => return None,
            _ if matches!(value, NOT_UNDERSTOOD | REJECT | IRRELEVANT) => return None,
            _ => return Some(NOT_UNDERSTOOD.to_owned()),
        };
        Some(answer.unwrap_or_else(|| REJECT.to_owned()))
    }

    /// The initiator says how much it takes; that is no question. It may say it again later.
    pub(crate) fn take_data_length(&mut self, value: &str) -> Option<String> {
        match number(value, LENGTHS) {
            Some(theirs) => {
                // No more than a burst goes into one PDU.
                let bytes = theirs.min(ISCSI_BURST_BYTES_MAX.into());
                self.their_data_bytes_max = usize::try_from(bytes).unwrap_or(512);
                None
            }
            None => Some(REJECT.to_owned()),
        }
    }

    /// What the target says of itself.
    pub(crate) fn declaration() -> (String, String) {
        let bytes = ISCSI_DATA_BYTES_MAX.to_string();
        ("MaxRecvDataSegmentLength".to_owned(), bytes)
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn number(value: &str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    parse_number(value).filter(|number| range.contains(number))
}

fn lowest(value: &str, ours: u64, agree: impl FnOnce(u64)) -> Option<String> {
    let agreed = number(value, LENGTHS)?.min(ours);
    agree(agreed);
    Some(agreed.to_string())
}

fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn yes_or_no(is_yes: bool) -> String {
    if is_yes { "Yes" } else { "No" }.to_owned()
}

/// The first of a list that is known; without one, the key is refused.
fn digest(list: &str, is_on: &mut bool) -> String {
    let known = |name: &&str| matches!(*name, "CRC32C" | "None");
    match list.split(',').find(known) {
        Some(name) => {
            *is_on = name == "CRC32C";
            name.to_owned()
        }
        None => REJECT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(parameters: &mut Parameters, key: &str, value: &str) -> Option<String> {
        parameters.take(key, value, 8)
    }

    /// Goal: each key is answered by its own rule: the first known, the lowest, AND, OR.
    #[test]
    fn each_key_has_its_rule() {
        let mut agreed = Parameters::DEFAULT;
        for (key, value, answer) in [
            ("HeaderDigest", "X-a,CRC32C,None", "CRC32C"),
            ("DataDigest", "None,CRC32C", "None"),
            ("MaxBurstLength", "16776192", "1048576"),
            ("MaxBurstLength", "511", "Reject"),
            ("FirstBurstLength", "0x10000", "65536"),
            ("MaxOutstandingR2T", "4", "4"),
            ("MaxOutstandingR2T", "0", "Reject"),
            ("MaxConnections", "100", "8"),
            ("InitialR2T", "No", "No"),
            ("ImmediateData", "No", "No"),
            ("ImmediateData", "Maybe", "Reject"),
            ("DataPDUInOrder", "No", "Yes"),
            ("ErrorRecoveryLevel", "2", "0"),
            ("DefaultTime2Wait", "2", "2"),
            ("DefaultTime2Retain", "20", "0"),
            ("OFMarker", "Yes", "No"),
            ("IFMarkInt", "2048", "Irrelevant"),
            ("iSCSIProtocolLevel", "2", "1"),
            ("X-com.example", "1", "NotUnderstood"),
        ] {
            let given = take(&mut agreed, key, value);
            assert_eq!(given.as_deref(), Some(answer), "{key}={value}");
        }
        assert_eq!(take(&mut agreed, "MaxRecvDataSegmentLength", "4096"), None);
        assert_eq!(take(&mut agreed, "X-com.example", "NotUnderstood"), None);
        let expected = Parameters {
            digests: Digests {
                header: true,
                data: false,
            },
            their_data_bytes_max: 4096,
            max_burst_bytes: 1 << 20,
            first_burst_bytes: 65_536,
            is_initial_r2t: false,
            is_immediate_data: false,
            transfers_max: 4,
            connections_max: 8,
        };
        assert_eq!(agreed, expected);
    }
}
