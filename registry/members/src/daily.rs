//! A time of every day, in which something may be done: `02:00-05:00`, in UTC.

use std::fmt;
use std::str::FromStr;

use crossdock_types::WallTime;
use serde::{Deserialize, Serialize};
use thiserror::Error;

const MINUTES_OF_DAY: u16 = 24 * 60;

/// From one minute of every day to another one, in UTC; over midnight if that is the
/// earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DailyWindow {
    /// First minute of the day that is within.
    pub from_minute: u16,
    /// First minute after it.
    pub to_minute: u16,
}

/// Why something is no time of the day.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is no time of the day: say it like 02:00-05:00, in UTC, and let it not be empty")]
pub struct DailyWindowError(String);

impl DailyWindow {
    /// Whether that moment is within.
    #[must_use]
    pub fn contains(self, wall: WallTime) -> bool {
        let (seconds, _) = wall.parts();
        let minute = seconds.rem_euclid(24 * 3600) / 60;
        let (from, to) = (i64::from(self.from_minute), i64::from(self.to_minute));
        match from < to {
            true => (from..to).contains(&minute),
            false => minute >= from || minute < to,
        }
    }
}

impl FromStr for DailyWindow {
    type Err = DailyWindowError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ends = || {
            let (from, to) = text.split_once('-')?;
            Some((minute_of(from)?, minute_of(to)?))
        };
        match ends() {
            Some((from_minute, to_minute)) if from_minute != to_minute => Ok(Self {
                from_minute,
                to_minute,
            }),
            _ => Err(DailyWindowError(text.chars().take(40).collect())),
        }
    }
}

impl fmt::Display for DailyWindow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, to] = [self.from_minute, self.to_minute].map(|at| (at / 60, at % 60));
        write!(
            formatter,
            "{:02}:{:02}-{:02}:{:02}",
            from.0, from.1, to.0, to.1
        )
    }
}

/// Minutes since midnight; `24:00` is the next one.
fn minute_of(text: &str) -> Option<u16> {
    let number = |digits: &str| -> Option<u16> {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number)
    };
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minute = hours * 60 + minutes;
    (minutes < 60 && minute <= MINUTES_OF_DAY).then_some(minute % MINUTES_OF_DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64, minutes: i64) -> WallTime {
        // The third day of 1970.
        WallTime::from_parts(2 * 86_400 + hours * 3600 + minutes * 60, 0)
    }

    fn window(text: &str) -> DailyWindow {
        text.parse().expect("a window")
    }

    /// Goal: what is said is what is shown; what cannot be meant is refused with what to say.
    #[test]
    fn windows_are_read_as_they_are_shown() {
        for text in ["02:00-05:00", "22:30-04:05", "00:00-23:59"] {
            assert_eq!(window(text).to_string(), text);
        }
        assert_eq!(window("22:00-24:00").to_string(), "22:00-00:00");
        let wrong = [
            "",
            "02:00",
            "2:00-5:00",
            "02:00-25:00",
            "02:60-05:00",
            "02:00-02:00",
            "+2:00-05:00",
            "24:01-05:00",
            "00:00-24:00",
        ];
        for text in wrong {
            let error = text.parse::<DailyWindow>().expect_err(text);
            assert!(error.to_string().contains("like 02:00-05:00"), "{error}");
        }
    }

    /// Goal: the first minute is within, the last one is not, also over midnight and before
    /// 1970.
    #[test]
    fn a_window_is_open_at_its_time() {
        let night = window("02:00-05:00");
        let inside = [(2, 0), (4, 59)].map(|(hour, minute)| night.contains(at(hour, minute)));
        assert_eq!(inside, [true, true]);
        let outside =
            [(1, 59), (5, 0), (14, 0)].map(|(hour, minute)| night.contains(at(hour, minute)));
        assert_eq!(outside, [false; 3]);
        let over = window("22:00-01:00");
        assert!(over.contains(at(23, 59)) && over.contains(at(0, 0)));
        assert!(!over.contains(at(1, 0)) && !over.contains(at(21, 59)));
        assert!(night.contains(WallTime::from_parts(-22 * 3600, 0)));
    }
}
