//! What a killed process leaves in the kernel for a moment.
//!
//! A ring keeps its files and sockets until the last of its requests has ended,
//! also after its process is gone: locks of disks, which such a request may
//! still write, and ports. A process that lives holds the registry, which is
//! opened before all of them.

use std::time::{Duration, Instant};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Tries until it succeeds, fails for another reason than `is_taken` names, or
/// `patience` is over; gives the last outcome.
pub(crate) fn when_free<T, E>(
    patience: Duration,
    is_taken: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let deadline = Instant::now() + patience;
    loop {
        match attempt() {
            Err(error) if is_taken(&error) && Instant::now() < deadline => {
                // Nothing tells when the kernel has let go.
                std::thread::park_timeout(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what gets free in time is had, what does not is refused as it was,
    /// and other failures are told at once.
    #[test]
    fn what_is_taken_is_waited_for() {
        let mut attempts = 0;
        let mut third = || {
            attempts += 1;
            if attempts == 3 {
                Ok(attempts)
            } else {
                Err("taken")
            }
        };
        let is_taken = |error: &&str| *error == "taken";
        let long = Duration::from_secs(60);
        assert_eq!(when_free(long, is_taken, &mut third), Ok(3));
        let never = when_free(Duration::ZERO, is_taken, || Err::<(), _>("taken"));
        assert_eq!(never, Err("taken"));
        let other = when_free(long, is_taken, || Err::<(), _>("broken"));
        assert_eq!(other, Err("broken"));
    }
}
