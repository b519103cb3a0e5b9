//! Waiting for etcd at the start: a process that cannot learn what its ensemble is says
//! so, tries again, and serves once it can (CONSISTENCY: what needs the registry waits).

use std::time::{Duration, Instant};

use crossdock_etcd::{Config, Error};
use crossdock_members::State;
use crossdock_net::{Receiver, Sender};
use tracing::{info, warn};

use crate::notify;
use crate::shell::Order;

/// Pause after the first attempt; twice as long after each further one, up to
/// [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(250);

/// Longest pause: nobody waits much longer than etcd is away.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How often an order to stop is looked for meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// Reads what the ensemble is, as soon as etcd answers; `None` if a stop was ordered
/// before that. Of what else was `received` meanwhile the last goes back to `orders`.
///
/// # Errors
/// Etcd answers, and there is no such ensemble, or this version cannot read it.
pub(crate) fn read(
    config: &Config,
    received: &Receiver<Order>,
    orders: &Sender<Order>,
) -> Result<Option<(u64, State)>, Error> {
    let mut kept = None;
    let read = wait(received, &mut kept, || crossdock_etcd::read(config))?;
    if let Some(order) = kept {
        // There is room: the queue has been read.
        let _ = orders.try_send(order);
    }
    Ok(read)
}

fn wait<T>(
    received: &Receiver<Order>,
    kept: &mut Option<Order>,
    mut attempt: impl FnMut() -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let begun = Instant::now();
    let mut pause = PAUSE;
    let mut has_waited = false;
    loop {
        let reason = match attempt() {
            Ok(read) => {
                if has_waited {
                    info!(waited_s = seconds(begun), "etcd answers");
                    notify::tell(notify::STARTING);
                }
                return Ok(Some(read));
            }
            Err(Error::Away(reason)) => reason,
            Err(error) => return Err(error),
        };
        has_waited = true;
        warn!(
            %reason,
            waited_s = seconds(begun),
            "etcd does not answer: waiting for it, as nothing is known of the ensemble without it"
        );
        notify::tell(notify::WAITING_FOR_ETCD);
        if is_stopped_within(pause, received, kept) {
            info!(
                waited_s = seconds(begun),
                "stopped while etcd did not answer"
            );
            return Ok(None);
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Rests for so long; whether a stop was ordered meanwhile. Nobody asks anything yet, but
/// the configuration may be read again: the last says all.
fn is_stopped_within(
    pause: Duration,
    received: &Receiver<Order>,
    kept: &mut Option<Order>,
) -> bool {
    let end = Instant::now() + pause;
    loop {
        while let Some(order) = received.try_receive() {
            match order {
                Order::Stop => return true,
                other => *kept = Some(other),
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::park_timeout(left.min(LOOK));
    }
}

/// Tenths are enough for people.
fn seconds(begun: Instant) -> String {
    format!("{:.1}", begun.elapsed().as_secs_f32())
}

#[cfg(test)]
mod tests {
    use crossdock_host::Tuning;
    use crossdock_net::{Driver, Options, Started};

    use super::*;

    fn away() -> Error {
        Error::Away("nobody there".to_owned())
    }

    /// Goal: etcd that is away is tried again until it answers; what it answers that will
    /// not get better by waiting ends the process; an order to stop ends the waiting.
    #[test]
    fn etcd_is_waited_for_until_it_answers_or_a_stop() {
        let Started { driver, .. } = Driver::start(Options::default()).expect("an event loop");
        let (sender, orders) = crossdock_net::channel(8, driver.waker());
        let (mut attempts, mut kept) = (0, None);
        let third = wait(&orders, &mut kept, || {
            attempts += 1;
            if attempts == 3 {
                Ok(attempts)
            } else {
                Err(away())
            }
        });
        assert!(matches!(third, Ok(Some(3))), "{third:?}");
        let missing = wait(&orders, &mut kept, || {
            Err::<(), _>(Error::Missing {
                prefix: "/crossdock/none".to_owned(),
            })
        });
        assert!(matches!(missing, Err(Error::Missing { .. })), "{missing:?}");
        assert!(kept.is_none());
        assert!(sender.try_send(Order::Tune(Tuning::default())).is_ok());
        assert!(sender.try_send(Order::Stop).is_ok());
        let stopped = wait(&orders, &mut kept, || Err::<(), _>(away()));
        assert!(matches!(stopped, Ok(None)), "{stopped:?}");
        assert!(matches!(kept, Some(Order::Tune(_))));
    }
}
