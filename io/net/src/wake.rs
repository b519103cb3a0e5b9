//! How other threads reach the loop: a wake-up, and bounded channels that
//! carry one.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};

use rustix::event::{EventfdFlags, eventfd};

/// Ends the wait of one loop. Clones wake the same loop.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

struct Shared {
    /// Read by the loop, so kept alive by its operations too.
    counter: Arc<OwnedFd>,
    /// The loop has been told and has not looked yet; one system call is enough.
    told: AtomicBool,
}

impl Waker {
    /// `nonblocking` as the kernel side needs its descriptors.
    pub(crate) fn new(nonblocking: bool) -> io::Result<Self> {
        let mode = if nonblocking {
            EventfdFlags::NONBLOCK
        } else {
            EventfdFlags::empty()
        };
        let counter = eventfd(0, EventfdFlags::CLOEXEC | mode)?;
        Ok(Self {
            shared: Arc::new(Shared {
                counter: Arc::new(counter),
                told: AtomicBool::new(false),
            }),
        })
    }

    /// Makes the loop's present or next wait end with
    /// [`Event::Woken`](crate::Event::Woken). What was written before the call
    /// is seen by the loop after that event.
    pub fn wake(&self) {
        if !self.shared.told.swap(true, Ordering::AcqRel) {
            // Cannot fail but by overflow, at 2^64 wake-ups unheard.
            let _ = rustix::io::write(&*self.shared.counter, &1_u64.to_ne_bytes());
        }
    }

    pub(crate) fn counter(&self) -> &Arc<OwnedFd> {
        &self.shared.counter
    }

    /// Called by the loop when the counter was read, before it looks at what
    /// the wakers have left: a wake from here on counts again.
    pub(crate) fn heard(&self) {
        self.shared.told.swap(false, Ordering::AcqRel);
    }
}

/// A bounded queue from other threads into the loop that `waker` wakes.
#[must_use]
pub fn channel<T>(capacity: usize, waker: Waker) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::sync_channel(capacity);
    (Sender { sender, waker }, Receiver { receiver })
}

/// The other threads' end.
pub struct Sender<T> {
    sender: SyncSender<T>,
    waker: Waker,
}

/// The loop's end: to be emptied after each [`Event::Woken`](crate::Event::Woken).
pub struct Receiver<T> {
    receiver: mpsc::Receiver<T>,
}

/// A message that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused<T> {
    /// There are as many as the queue holds: try again later.
    #[error("the queue into the loop is full")]
    Full(T),
    /// The loop is gone.
    #[error("the loop has ended")]
    Gone(T),
}

impl<T> Sender<T> {
    /// Hands a message to the loop and wakes it. Does not wait.
    ///
    /// # Errors
    /// [`Refused`], with the message.
    pub fn try_send(&self, message: T) -> Result<(), Refused<T>> {
        self.sender.try_send(message).map_err(|error| match error {
            TrySendError::Full(message) => Refused::Full(message),
            TrySendError::Disconnected(message) => Refused::Gone(message),
        })?;
        self.waker.wake();
        Ok(())
    }

    /// Hands a message to the loop, waiting for room, and wakes it. Not for
    /// threads that the loop may wait for.
    ///
    /// # Errors
    /// [`Refused::Gone`], with the message.
    pub fn send(&self, message: T) -> Result<(), Refused<T>> {
        self.sender
            .send(message)
            .map_err(|error| Refused::Gone(error.0))?;
        self.waker.wake();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            waker: self.waker.clone(),
        }
    }
}

impl<T> Receiver<T> {
    /// The next message, if there is one by now.
    #[must_use]
    pub fn try_receive(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}
