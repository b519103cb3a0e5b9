//! What clients notice of something that happens to an ensemble: how long the longest
//! answer took, and how many answers were no more than "try again later".

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};

/// Whoever dies is replaced, and its clients are served, within 5 s (docs/operations.md);
/// the rest is for a machine that does ten other things meanwhile.
const LONGEST_MAX: Duration = Duration::from_secs(5 + 3);

/// What the clients of a load have noticed since its mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::suite) struct Pause {
    /// From when a call was first sent until it was carried out, however often it was
    /// sent meanwhile.
    pub(in crate::suite) longest: Duration,
    /// Answers NFS3ERR_JUKEBOX.
    pub(in crate::suite) refused: u64,
}

/// Where copies move, sites are opened anew while nodes are busy with copying: that takes as
/// long as the machine's disks and processors say.
const MOVING_MAX: Duration = Duration::from_secs(15);

impl Pause {
    /// Of hosts that die or come back: that it was short, and that requests were held and
    /// none refused.
    ///
    /// # Errors
    /// It was not so.
    pub(in crate::suite) fn judge(self, what: &str) -> Result<()> {
        self.judge_within(LONGEST_MAX, what)
    }

    /// The same while copies move from node to node.
    ///
    /// # Errors
    /// As there.
    pub(in crate::suite) fn judge_moving(self, what: &str) -> Result<()> {
        self.judge_within(MOVING_MAX, what)
    }

    fn judge_within(self, most: Duration, what: &str) -> Result<()> {
        ensure!(
            self.longest <= most,
            "{what}: {self}, which is more than {} s",
            most.as_secs()
        );
        ensure!(
            self.refused == 0,
            "{what}: {self}; requests are to be held until somebody can carry them out"
        );
        Ok(())
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.longest.as_secs_f64();
        write!(formatter, "longest answer {seconds:.2} s, ")?;
        match self.refused {
            0 => formatter.write_str("none refused"),
            refused => write!(formatter, "{refused} refused"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a pause that is too long, or a single refusal, fails a suite; and the line that
    /// is printed says which.
    #[test]
    fn long_pauses_and_refusals_are_told() {
        let good = Pause {
            longest: Duration::from_millis(2150),
            refused: 0,
        };
        assert!(good.judge("it").is_ok());
        assert_eq!(good.to_string(), "longest answer 2.15 s, none refused");
        let long = Pause {
            longest: LONGEST_MAX + Duration::from_millis(1),
            ..good
        };
        assert!(long.judge_moving("it").is_ok());
        assert!(
            long.judge("it")
                .is_err_and(|it| it.to_string().contains("8.00 s"))
        );
        let refused = Pause { refused: 2, ..good };
        assert!(
            refused
                .judge("it")
                .is_err_and(|it| it.to_string().contains("2 refused"))
        );
    }
}
