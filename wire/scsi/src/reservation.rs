//! Persistent reservations: what PERSISTENT RESERVE IN returns and PERSISTENT RESERVE OUT
//! brings (SPC-4 sections 6.15 and 6.16).

use crate::bytes::{long, short, u64_at};
use crate::sense::{AdditionalSense, Sense};

/// What PERSISTENT RESERVE IN asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReserveIn {
    /// The keys of all registrants.
    ReadKeys = 0,
    /// The reservation.
    ReadReservation = 1,
    /// What is supported.
    ReportCapabilities = 2,
    /// All registrants, and who holds the reservation.
    ReadFullStatus = 3,
}

impl ReserveIn {
    /// The one of that service action.
    pub(crate) const fn from_action(action: u8) -> Option<Self> {
        Some(match action {
            0 => Self::ReadKeys,
            1 => Self::ReadReservation,
            2 => Self::ReportCapabilities,
            3 => Self::ReadFullStatus,
            _ => return None,
        })
    }
}

/// What PERSISTENT RESERVE OUT does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReserveOutAction {
    /// Registers a key in place of the one that is known, or none.
    Register = 0,
    /// Makes a reservation.
    Reserve = 1,
    /// Gives it up.
    Release = 2,
    /// Ends all registrations and the reservation.
    Clear = 3,
    /// Ends registrations of others, and takes their reservation.
    Preempt = 4,
    /// The same, and aborts their commands.
    PreemptAndAbort = 5,
    /// Registers a key in place of whatever there is.
    RegisterAndIgnore = 6,
}

impl ReserveOutAction {
    /// The one of that service action.
    pub(crate) const fn from_action(action: u8) -> Option<Self> {
        Some(match action {
            0 => Self::Register,
            1 => Self::Reserve,
            2 => Self::Release,
            3 => Self::Clear,
            4 => Self::Preempt,
            5 => Self::PreemptAndAbort,
            6 => Self::RegisterAndIgnore,
            _ => return None,
        })
    }
}

/// Whom a reservation keeps from what (SPC-4 table 38).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReserveType {
    /// Others may not write.
    WriteExclusive = 1,
    /// Others may do nothing.
    ExclusiveAccess = 3,
    /// Who is not registered may not write.
    WriteExclusiveRegistrants = 5,
    /// Who is not registered may do nothing.
    ExclusiveAccessRegistrants = 6,
    /// The same as 5, and all registrants hold it.
    WriteExclusiveAll = 7,
    /// The same as 6, and all registrants hold it.
    ExclusiveAccessAll = 8,
}

impl ReserveType {
    /// The type of that number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::WriteExclusive,
            3 => Self::ExclusiveAccess,
            5 => Self::WriteExclusiveRegistrants,
            6 => Self::ExclusiveAccessRegistrants,
            7 => Self::WriteExclusiveAll,
            8 => Self::ExclusiveAccessAll,
            _ => return None,
        })
    }

    /// Whether reading is kept from others, too.
    #[must_use]
    pub const fn is_exclusive_access(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess | Self::ExclusiveAccessRegistrants | Self::ExclusiveAccessAll
        )
    }

    /// Whether all who are registered may do everything.
    #[must_use]
    pub const fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether all who are registered hold it.
    #[must_use]
    pub const fn is_held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }
}

/// What PERSISTENT RESERVE OUT brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveOut {
    /// RESERVATION KEY: that of who asks.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY: the new one, or that of who is preempted.
    pub action_key: u64,
    /// APTPL: it survives the loss of power.
    pub is_lasting: bool,
    /// ALL_TG_PT: through all ports.
    pub is_all_ports: bool,
}

/// Bytes of the parameter list.
const LIST_BYTES: usize = 24;

/// Reads the parameter list.
///
/// # Errors
/// It has another length, or registers others (SPEC_I_PT), which is not supported.
pub fn parse_reserve_out(list: &[u8]) -> Result<ReserveOut, Sense> {
    if list.len() < LIST_BYTES {
        return Err(Sense::illegal(AdditionalSense::LIST_LENGTH));
    }
    let flags = list[20];
    if flags & 0x08 != 0 {
        return Err(Sense::invalid_parameter(20, Some(3)));
    }
    if list.len() != LIST_BYTES {
        return Err(Sense::illegal(AdditionalSense::LIST_LENGTH));
    }
    Ok(ReserveOut {
        key: u64_at(list, 0),
        action_key: u64_at(list, 8),
        is_lasting: flags & 0x01 != 0,
        is_all_ports: flags & 0x04 != 0,
    })
}

/// READ KEYS.
#[must_use]
pub fn read_keys(generation: u32, keys: impl Iterator<Item = u64>) -> Vec<u8> {
    with_header(generation, keys.flat_map(u64::to_be_bytes).collect())
}

/// READ RESERVATION; the key of one that all registrants hold is 0.
#[must_use]
pub fn read_reservation(generation: u32, held: Option<(u64, ReserveType)>) -> Vec<u8> {
    let body = held.map_or_else(Vec::new, |(key, kind)| {
        let mut body = key.to_be_bytes().to_vec();
        body.extend([0, 0, 0, 0, 0, kind as u8, 0, 0]);
        body
    });
    with_header(generation, body)
}

/// REPORT CAPABILITIES: all types of reservation, which survive the loss of power.
#[must_use]
pub fn report_capabilities(is_lasting: bool) -> Vec<u8> {
    // PTPL_C; TMV, and whether it is so at present.
    vec![0, 8, 0x01, 0x80 | u8::from(is_lasting), 0xea, 0x01, 0, 0]
}

/// A registrant as READ FULL STATUS tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrantStatus<'a> {
    /// Its key.
    pub key: u64,
    /// The reservation that it holds.
    pub holds: Option<ReserveType>,
    /// The port through which it is registered.
    pub port: u16,
    /// Name of the initiator.
    pub initiator: &'a str,
    /// The initiator session's identifier.
    pub isid: [u8; 6],
}

/// READ FULL STATUS.
#[must_use]
pub fn full_status<'a>(
    generation: u32,
    registrants: impl Iterator<Item = RegistrantStatus<'a>>,
) -> Vec<u8> {
    let mut body = Vec::new();
    for registrant in registrants {
        let transport = transport_id(registrant.initiator, registrant.isid);
        body.extend(registrant.key.to_be_bytes());
        body.extend([0; 4]);
        body.push(u8::from(registrant.holds.is_some()));
        body.push(registrant.holds.map_or(0, |kind| kind as u8));
        body.extend([0; 4]);
        body.extend(registrant.port.to_be_bytes());
        body.extend(long(transport.len()).to_be_bytes());
        body.extend(transport);
    }
    with_header(generation, body)
}

fn with_header(generation: u32, body: Vec<u8>) -> Vec<u8> {
    let mut data = generation.to_be_bytes().to_vec();
    data.extend(long(body.len()).to_be_bytes());
    data.extend(body);
    data
}

/// Of an iSCSI initiator's port (SPC-4 section 7.6.4.6): its name, and its session.
fn transport_id(initiator: &str, isid: [u8; 6]) -> Vec<u8> {
    let [a, b, c, d, e, f] = isid;
    let mut name =
        format!("{initiator},i,0x{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{f:02x}\0").into_bytes();
    name.resize(name.len().next_multiple_of(4).max(20), 0);
    let mut data = vec![0x45, 0];
    data.extend(short(name.len()).to_be_bytes());
    data.extend(name);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is told lies where SPC-4 has it.
    #[test]
    fn parameter_data_is_laid_out() {
        assert_eq!(
            read_keys(3, [5, 6].into_iter()),
            [
                0, 0, 0, 3, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6
            ]
        );
        assert_eq!(read_reservation(3, None), [0, 0, 0, 3, 0, 0, 0, 0]);
        let held = read_reservation(3, Some((5, ReserveType::ExclusiveAccessAll)));
        assert_eq!((held[7], held[15], held[21], held.len()), (16, 5, 8, 24));
        let status = RegistrantStatus {
            key: 9,
            holds: Some(ReserveType::WriteExclusive),
            port: 1,
            initiator: "iqn.a",
            isid: [0x80, 0, 0, 0, 0, 1],
        };
        let full = full_status(1, [status].into_iter());
        assert_eq!(&full[8 + 12..8 + 14], [1, 1]);
        assert_eq!(&full[8 + 24..8 + 28], [0x45, 0, 0, 24]);
        assert!(full[8 + 28..].starts_with(b"iqn.a,i,0x800000000001\0"));
        let told = u32::from_be_bytes([full[4], full[5], full[6], full[7]]);
        assert_eq!(told as usize, full.len() - 8);
    }

    /// Goal: a list of another length, and one that registers others, are refused.
    #[test]
    fn lists_are_checked() {
        let mut list = [0; 24];
        (list[7], list[15], list[20]) = (1, 2, 1);
        let out = parse_reserve_out(&list).expect("a list");
        assert_eq!((out.key, out.action_key, out.is_lasting), (1, 2, true));
        let length = Sense::illegal(AdditionalSense::LIST_LENGTH);
        assert_eq!(parse_reserve_out(&list[..23]), Err(length));
        assert_eq!(parse_reserve_out(&[0; 28]), Err(length));
        list[20] = 8;
        assert!(parse_reserve_out(&list).is_err());
    }
}
