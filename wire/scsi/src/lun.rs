//! Logical unit numbers as eight bytes (SAM-5 section 4.7).

/// A logical unit of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogicalUnit {
    /// One of the target, by number.
    Number(u16),
    /// REPORT LUNS, whatever units there are (SPC-4 section 7.7).
    ReportLuns,
    /// Of a form that no unit here has.
    Other,
}

impl LogicalUnit {
    /// Reads the eight bytes. Single-level units only: peripheral device addressing of bus
    /// 0, flat space addressing, and the well-known unit of REPORT LUNS.
    #[must_use]
    pub const fn decode(bytes: [u8; 8]) -> Self {
        let [method, low, rest @ ..] = bytes;
        let is_single = matches!(rest, [0, 0, 0, 0, 0, 0]);
        match (method >> 6, is_single) {
            (0, true) if method == 0 => Self::Number(low as u16),
            (1, true) => Self::Number((method as u16 & 0x3f) << 8 | low as u16),
            (3, true) if method == 0xc1 && low == 1 => Self::ReportLuns,
            _ => Self::Other,
        }
    }

    /// As eight bytes: peripheral device addressing below 256, flat space addressing above.
    #[must_use]
    pub const fn encode(self) -> [u8; 8] {
        let first = match self {
            Self::Number(number @ 0..256) => number.to_be_bytes(),
            Self::Number(number) => (0x4000 | number & 0x3fff).to_be_bytes(),
            Self::ReportLuns => [0xc1, 1],
            Self::Other => [0xff, 0xff],
        };
        [first[0], first[1], 0, 0, 0, 0, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: both usual forms of a number are read, other forms are no unit of ours.
    #[test]
    fn forms_are_told_apart() {
        let decode = |first: u8, second: u8| LogicalUnit::decode([first, second, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(0, 0), LogicalUnit::Number(0));
        assert_eq!(decode(0, 255), LogicalUnit::Number(255));
        assert_eq!(decode(0x41, 2), LogicalUnit::Number(258));
        assert_eq!(decode(0xc1, 1), LogicalUnit::ReportLuns);
        assert_eq!(decode(1, 0), LogicalUnit::Other, "another bus");
        assert_eq!(
            LogicalUnit::decode([0, 0, 0, 1, 0, 0, 0, 0]),
            LogicalUnit::Other
        );
        for number in [0, 7, 255, 256, 0x3fff] {
            let unit = LogicalUnit::Number(number);
            assert_eq!(LogicalUnit::decode(unit.encode()), unit);
        }
    }
}
