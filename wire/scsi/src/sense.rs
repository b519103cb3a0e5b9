//! What came of a command: status (SAM-5 section 5.3.1) and sense data (SPC-4 section 4.5).

/// SCSI status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Good = 0x00,
    /// Sense data says why not.
    CheckCondition = 0x02,
    /// The unit cannot take the command now.
    Busy = 0x08,
    /// A reservation of another initiator is in the way.
    ReservationConflict = 0x18,
    /// There are as many commands as may be.
    TaskSetFull = 0x28,
    /// Aborted by another initiator, where this is told.
    TaskAborted = 0x40,
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SenseKey {
    /// Nothing.
    NoSense = 0x0,
    /// The unit cannot be accessed.
    NotReady = 0x2,
    /// Bytes cannot be read or written.
    MediumError = 0x3,
    /// The unit has failed.
    HardwareError = 0x4,
    /// The command makes no sense.
    IllegalRequest = 0x5,
    /// Something happened to the unit since the last command.
    UnitAttention = 0x6,
    /// Writing is not allowed.
    DataProtect = 0x7,
    /// A copy has ended before all was copied.
    CopyAborted = 0xa,
    /// The target gave up.
    AbortedCommand = 0xb,
    /// Bytes differ from those on the medium.
    Miscompare = 0xe,
}

/// Additional sense code and its qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdditionalSense(pub u8, pub u8);

impl AdditionalSense {
    /// Nothing to add.
    pub const NONE: Self = Self(0x00, 0x00);
    /// OPERATION IN PROGRESS.
    pub const IN_PROGRESS: Self = Self(0x00, 0x16);
    /// LOGICAL UNIT COMMUNICATION FAILURE.
    pub const COMMUNICATION_FAILURE: Self = Self(0x08, 0x00);
    /// UNREACHABLE COPY TARGET.
    pub const UNREACHABLE_TARGET: Self = Self(0x08, 0x04);
    /// LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED.
    pub const STOPPED: Self = Self(0x04, 0x02);
    /// WRITE ERROR.
    pub const WRITE_ERROR: Self = Self(0x0c, 0x00);
    /// UNEXPECTED UNSOLICITED DATA.
    pub const UNEXPECTED_DATA: Self = Self(0x0c, 0x0c);
    /// NOT ENOUGH UNSOLICITED DATA.
    pub const NOT_ENOUGH_DATA: Self = Self(0x0c, 0x0d);
    /// COPY TARGET DEVICE NOT REACHABLE.
    pub const TARGET_NOT_REACHABLE: Self = Self(0x0d, 0x02);
    /// INCORRECT COPY TARGET DEVICE TYPE.
    pub const TARGET_TYPE: Self = Self(0x0d, 0x03);
    /// UNRECOVERED READ ERROR.
    pub const READ_ERROR: Self = Self(0x11, 0x00);
    /// PARAMETER LIST LENGTH ERROR.
    pub const LIST_LENGTH: Self = Self(0x1a, 0x00);
    /// MISCOMPARE DURING VERIFY OPERATION.
    pub const MISCOMPARE: Self = Self(0x1d, 0x00);
    /// INVALID COMMAND OPERATION CODE.
    pub const INVALID_OPCODE: Self = Self(0x20, 0x00);
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub const OUT_OF_RANGE: Self = Self(0x21, 0x00);
    /// INVALID TOKEN OPERATION, UNSUPPORTED TOKEN TYPE.
    pub const TOKEN_TYPE: Self = Self(0x23, 0x01);
    /// INVALID TOKEN OPERATION, TOKEN CORRUPT.
    pub const TOKEN_CORRUPT: Self = Self(0x23, 0x05);
    /// INVALID TOKEN OPERATION, TOKEN REVOKED.
    pub const TOKEN_REVOKED: Self = Self(0x23, 0x06);
    /// INVALID TOKEN OPERATION, TOKEN EXPIRED.
    pub const TOKEN_EXPIRED: Self = Self(0x23, 0x07);
    /// INVALID TOKEN OPERATION, INVALID TOKEN LENGTH.
    pub const TOKEN_LENGTH: Self = Self(0x23, 0x0a);
    /// INVALID FIELD IN CDB.
    pub const INVALID_FIELD: Self = Self(0x24, 0x00);
    /// LOGICAL UNIT NOT SUPPORTED.
    pub const NO_UNIT: Self = Self(0x25, 0x00);
    /// INVALID FIELD IN PARAMETER LIST.
    pub const INVALID_PARAMETER: Self = Self(0x26, 0x00);
    /// INVALID RELEASE OF PERSISTENT RESERVATION.
    pub const INVALID_RELEASE: Self = Self(0x26, 0x04);
    /// TOO MANY TARGET DESCRIPTORS.
    pub const TOO_MANY_TARGETS: Self = Self(0x26, 0x06);
    /// UNSUPPORTED TARGET DESCRIPTOR TYPE CODE.
    pub const UNSUPPORTED_TARGET: Self = Self(0x26, 0x07);
    /// TOO MANY SEGMENT DESCRIPTORS.
    pub const TOO_MANY_SEGMENTS: Self = Self(0x26, 0x08);
    /// UNSUPPORTED SEGMENT DESCRIPTOR TYPE CODE.
    pub const UNSUPPORTED_SEGMENT: Self = Self(0x26, 0x09);
    /// UNEXPECTED INEXACT SEGMENT.
    pub const INEXACT_SEGMENT: Self = Self(0x26, 0x0a);
    /// INLINE DATA LENGTH EXCEEDED.
    pub const INLINE_LENGTH: Self = Self(0x26, 0x0b);
    /// WRITE PROTECTED.
    pub const WRITE_PROTECTED: Self = Self(0x27, 0x00);
    /// LOGICAL UNIT SOFTWARE WRITE PROTECTED.
    pub const SOFTWARE_WRITE_PROTECTED: Self = Self(0x27, 0x02);
    /// SPACE ALLOCATION FAILED WRITE PROTECT.
    pub const NO_SPACE: Self = Self(0x27, 0x07);
    /// NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
    pub const MEDIUM_CHANGED: Self = Self(0x28, 0x00);
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
    pub const RESET: Self = Self(0x29, 0x00);
    /// BUS DEVICE RESET FUNCTION OCCURRED.
    pub const DEVICE_RESET: Self = Self(0x29, 0x03);
    /// I_T NEXUS LOSS OCCURRED.
    pub const NEXUS_LOSS: Self = Self(0x29, 0x07);
    /// MODE PARAMETERS CHANGED.
    pub const MODE_CHANGED: Self = Self(0x2a, 0x01);
    /// RESERVATIONS PREEMPTED.
    pub const RESERVATIONS_PREEMPTED: Self = Self(0x2a, 0x03);
    /// RESERVATIONS RELEASED.
    pub const RESERVATIONS_RELEASED: Self = Self(0x2a, 0x04);
    /// REGISTRATIONS PREEMPTED.
    pub const REGISTRATIONS_PREEMPTED: Self = Self(0x2a, 0x05);
    /// CAPACITY DATA HAS CHANGED.
    pub const CAPACITY_CHANGED: Self = Self(0x2a, 0x09);
    /// COMMANDS CLEARED BY ANOTHER INITIATOR.
    pub const COMMANDS_CLEARED: Self = Self(0x2f, 0x00);
    /// SAVING PARAMETERS NOT SUPPORTED.
    pub const NO_SAVING: Self = Self(0x39, 0x00);
    /// MEDIUM NOT PRESENT.
    pub const NO_MEDIUM: Self = Self(0x3a, 0x00);
    /// INTERNAL TARGET FAILURE.
    pub const TARGET_FAILURE: Self = Self(0x44, 0x00);
    /// PROTOCOL SERVICE CRC ERROR.
    pub const CRC_ERROR: Self = Self(0x47, 0x05);
    /// MEDIUM REMOVAL PREVENTED.
    pub const REMOVAL_PREVENTED: Self = Self(0x53, 0x02);
    /// INSUFFICIENT RESERVATION RESOURCES.
    pub const NO_RESERVATION_ROOM: Self = Self(0x55, 0x02);
    /// INSUFFICIENT REGISTRATION RESOURCES.
    pub const NO_REGISTRATION_ROOM: Self = Self(0x55, 0x04);
}

/// Which field of the CDB or of the parameter list is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// Whether it is one of the CDB.
    pub is_cdb: bool,
    /// Its highest bit, if it is part of a byte.
    pub bit: Option<u8>,
    /// Its first byte.
    pub byte: u16,
}

/// What a place of a copy has said to who copies (SPC-4, errors detected while segment
/// descriptors are processed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Whether it was the source, and not the destination.
    pub is_source: bool,
    /// Its status.
    pub status: Status,
    /// Key and code of its sense data, with CHECK CONDITION.
    pub key: SenseKey,
    /// See above.
    pub additional: AdditionalSense,
    /// The block.
    pub information: Option<u64>,
}

impl Forwarded {
    /// Of a command that a place has answered with sense data.
    #[must_use]
    pub const fn sense(is_source: bool, sense: &Sense) -> Self {
        Self {
            is_source,
            status: Status::CheckCondition,
            key: sense.key,
            additional: sense.additional,
            information: sense.information,
        }
    }

    /// Of one that it has answered with no more than a status.
    #[must_use]
    pub const fn status(is_source: bool, status: Status) -> Self {
        Self {
            is_source,
            status,
            key: SenseKey::NoSense,
            additional: AdditionalSense::NONE,
            information: None,
        }
    }

    /// Its status and its sense data.
    fn encode(self, is_descriptor: bool) -> Vec<u8> {
        let mut data = vec![self.status as u8];
        if self.status == Status::CheckCondition {
            let mut sense = Sense::new(self.key, self.additional);
            sense.information = self.information;
            data.extend(sense.encode(is_descriptor));
        }
        data
    }
}

/// Sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// What kind of thing.
    pub key: SenseKey,
    /// Which.
    pub additional: AdditionalSense,
    /// Where: an LBA, or an offset.
    pub information: Option<u64>,
    /// What is wrong with the command.
    pub field: Option<FieldPointer>,
    /// Of a copy: what one of its places has said.
    pub forwarded: Option<Forwarded>,
}

/// Bytes of fixed format sense data.
const FIXED_BYTES: usize = 18;

impl Sense {
    /// Sense data without more details.
    #[must_use]
    pub const fn new(key: SenseKey, additional: AdditionalSense) -> Self {
        Self {
            key,
            additional,
            information: None,
            field: None,
            forwarded: None,
        }
    }

    /// ILLEGAL REQUEST.
    #[must_use]
    pub const fn illegal(additional: AdditionalSense) -> Self {
        Self::new(SenseKey::IllegalRequest, additional)
    }

    /// INVALID FIELD IN CDB, with the field's place.
    #[must_use]
    pub const fn invalid_field(byte: u16, bit: Option<u8>) -> Self {
        let field = FieldPointer {
            is_cdb: true,
            bit,
            byte,
        };
        Self {
            field: Some(field),
            ..Self::illegal(AdditionalSense::INVALID_FIELD)
        }
    }

    /// INVALID FIELD IN PARAMETER LIST, with the field's place.
    #[must_use]
    pub const fn invalid_parameter(byte: u16, bit: Option<u8>) -> Self {
        let field = FieldPointer {
            is_cdb: false,
            bit,
            byte,
        };
        Self {
            field: Some(field),
            ..Self::illegal(AdditionalSense::INVALID_PARAMETER)
        }
    }

    /// The same with where it happened.
    #[must_use]
    pub const fn at(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// As bytes: fixed format, or descriptor format where the control mode page says so
    /// (D_SENSE) – and where the place does not fit the fixed one, as SBC-3 section 4.18.1
    /// allows to leave it out there.
    #[must_use]
    pub fn encode(&self, is_descriptor: bool) -> Vec<u8> {
        if is_descriptor {
            self.descriptor_format()
        } else {
            self.fixed_format()
        }
    }

    fn fixed_format(&self) -> Vec<u8> {
        let mut data = vec![0; FIXED_BYTES];
        data[0] = 0x70;
        data[2] = self.key as u8;
        data[7] = 10; // Bytes behind this one.
        (data[12], data[13]) = (self.additional.0, self.additional.1);
        if let Some(information) = self.information.and_then(|place| u32::try_from(place).ok()) {
            data[0] |= 0x80;
            data[3..7].copy_from_slice(&information.to_be_bytes());
        }
        if let Some(field) = self.field {
            data[15..18].copy_from_slice(&field.encode());
        }
        if let Some(forwarded) = self.forwarded {
            // COMMAND-SPECIFIC INFORMATION says where it begins, of each place in a byte.
            let at = if forwarded.is_source { 8 } else { 9 };
            data[at] = crate::bytes::tiny(FIXED_BYTES);
            data.extend(forwarded.encode(false));
            data[7] = crate::bytes::tiny(data.len() - 8);
        }
        data
    }

    fn descriptor_format(&self) -> Vec<u8> {
        let (code, qualifier) = (self.additional.0, self.additional.1);
        let mut data = vec![0x72, self.key as u8, code, qualifier, 0, 0, 0, 0];
        if let Some(information) = self.information {
            data.extend([0x00, 0x0a, 0x80, 0]);
            data.extend(information.to_be_bytes());
        }
        if let Some(field) = self.field {
            data.extend([0x02, 0x06, 0, 0]);
            data.extend(field.encode());
            data.push(0);
        }
        if let Some(forwarded) = self.forwarded {
            let said = forwarded.encode(true);
            let source = if forwarded.is_source { 1 } else { 2 };
            data.extend([0x0c, crate::bytes::tiny(said.len() + 1), source]);
            data.extend(said);
        }
        data[7] = crate::bytes::tiny(data.len() - 8);
        data
    }
}

impl FieldPointer {
    /// The sense-key specific bytes (SPC-4 section 4.5.2.4.2).
    fn encode(self) -> [u8; 3] {
        let of_cdb = if self.is_cdb { 0x40 } else { 0 };
        let bit = self.bit.map_or(0, |bit| 0x08 | bit & 7);
        let [high, low] = self.byte.to_be_bytes();
        [0x80 | of_cdb | bit, high, low]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: both formats say the same, byte by byte as SPC-4 has them.
    #[test]
    fn both_formats_say_the_same() {
        let miscompare = Sense::new(SenseKey::Miscompare, AdditionalSense::MISCOMPARE).at(513);
        let fixed = miscompare.encode(false);
        assert_eq!(fixed[..8], [0xf0, 0, 0x0e, 0, 0, 2, 1, 10]);
        assert_eq!((fixed[12], fixed[13], fixed.len()), (0x1d, 0, 18));
        let descriptor = miscompare.encode(true);
        assert_eq!(descriptor[..8], [0x72, 0x0e, 0x1d, 0, 0, 0, 0, 12]);
        assert_eq!(descriptor[8..], [0, 0x0a, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 1]);
    }

    /// Goal: what a place of a copy has said is in the sense data of the copy, where each
    /// format has it.
    #[test]
    fn what_others_said_is_forwarded() {
        let beyond = Sense::illegal(AdditionalSense::OUT_OF_RANGE).at(3);
        let mut copy = Sense::new(SenseKey::CopyAborted, AdditionalSense::NONE).at(2);
        copy.forwarded = Some(Forwarded::sense(false, &beyond));
        let fixed = copy.encode(false);
        assert_eq!(fixed[..12], [0xf0, 0, 0x0a, 0, 0, 0, 2, 29, 0, 18, 0, 0]);
        assert_eq!(fixed[18], 2);
        assert_eq!(fixed[19..], beyond.encode(false));
        let descriptor = copy.encode(true);
        assert_eq!(descriptor[20..24], [0x0c, 22, 2, 2]);
        assert_eq!(descriptor[24..], beyond.encode(true));
        assert_eq!(usize::from(descriptor[7]), descriptor.len() - 8);
        copy.forwarded = Some(Forwarded::status(true, Status::ReservationConflict));
        let fixed = copy.encode(false);
        assert_eq!((fixed[8], fixed[18], fixed.len()), (18, 0x18, 19));
    }

    /// Goal: a wrong field is pointed at, and a place that does not fit is left out.
    #[test]
    fn fields_are_pointed_at() {
        let fixed = Sense::invalid_field(2, Some(3)).encode(false);
        assert_eq!(fixed[15..], [0xcb, 0, 2]);
        let descriptor = Sense::invalid_parameter(300, None).encode(true);
        assert_eq!(descriptor[8..], [2, 6, 0, 0, 0x80, 1, 44, 0]);
        let far = Sense::new(SenseKey::MediumError, AdditionalSense::READ_ERROR).at(1 << 33);
        assert_eq!(far.encode(false)[0], 0x70);
        assert_eq!(far.encode(true)[12..], (1u64 << 33).to_be_bytes());
    }
}
