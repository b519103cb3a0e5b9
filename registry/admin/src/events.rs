//! The last log events, kept to be looked at.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Events that are kept.
pub const EVENTS_MAX: usize = 512;

/// Longest text of an event's field that is kept.
const TEXT_BYTES_MAX: usize = 1024;

/// A log event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, from 1 on: gaps are events that were too old to keep.
    pub number: u64,
    /// When, in seconds since 1970.
    pub at: f64,
    /// `ERROR`, `WARN` or `INFO`.
    pub level: String,
    /// What happened.
    pub message: String,
    /// To what: node, client, file, …
    pub fields: BTreeMap<String, String>,
}

/// The last events, from all threads.
#[derive(Debug, Default)]
pub struct Events {
    kept: Mutex<(u64, VecDeque<Event>)>,
}

impl Events {
    /// Keeps an event, whose number it gives.
    pub fn push(&self, mut event: Event) {
        shorten(&mut event.message);
        event.fields.values_mut().for_each(shorten);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, events) = &mut *kept;
        *count += 1;
        event.number = *count;
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// The events with a number above `number`, oldest first.
    #[must_use]
    pub fn after(&self, number: u64) -> Vec<Event> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let newer = kept.1.iter().filter(|event| event.number > number);
        newer.cloned().collect()
    }
}

fn shorten(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the newest events are kept, numbered without gaps, and no text
    /// grows without bound.
    #[test]
    fn events_are_bounded() {
        let events = Events::default();
        for _ in 0..EVENTS_MAX + 3 {
            let message = "ä".repeat(TEXT_BYTES_MAX);
            events.push(Event {
                message,
                ..Event::default()
            });
        }
        let kept = events.after(0);
        assert_eq!(kept.len(), EVENTS_MAX);
        assert_eq!(kept[0].number, 4);
        assert!(
            kept.iter()
                .all(|event| event.message.len() <= TEXT_BYTES_MAX + 3)
        );
        let newest = kept[EVENTS_MAX - 1].number;
        assert_eq!(events.after(newest - 1).len(), 1);
        assert_eq!(events.after(newest), []);
    }
}
