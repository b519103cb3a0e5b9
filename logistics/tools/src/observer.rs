//! Who watches a transfer: a bar on a terminal, plain lines elsewhere, nobody; and the
//! timeline.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::timeline::{Span, Timeline};

/// How often plain lines come.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Watches one transfer.
#[derive(Debug)]
pub struct Observer {
    shown: Shown,
    moved: u64,
    whole: u64,
    started: Instant,
    /// What was done, for reports.
    pub timeline: Timeline,
}

#[derive(Debug)]
enum Shown {
    Nothing,
    Bar(ProgressBar),
    Lines { what: String, last: Instant },
}

impl Observer {
    /// One that shows nothing.
    #[must_use]
    pub fn silent() -> Self {
        Self {
            shown: Shown::Nothing,
            moved: 0,
            whole: 0,
            started: Instant::now(),
            timeline: Timeline::default(),
        }
    }

    /// One that shows a bar with rate and time left if standard error is a terminal, and a line
    /// every few seconds if not.
    #[must_use]
    pub fn visible(what: &str) -> Self {
        let shown = match std::io::stderr().is_terminal() {
            true => {
                let bar = ProgressBar::new(0);
                let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style);
                }
                bar.set_message(what.to_owned());
                Shown::Bar(bar)
            }
            false => Shown::Lines {
                what: what.to_owned(),
                last: Instant::now(),
            },
        };
        Self {
            shown,
            ..Self::silent()
        }
    }

    /// So many bytes are to be moved in all.
    pub fn expect(&mut self, bytes: u64) {
        self.whole = bytes;
        if let Shown::Bar(bar) = &self.shown {
            bar.set_length(bytes);
        }
    }

    /// So many more have moved.
    pub fn moved(&mut self, bytes: u64) {
        self.moved += bytes;
        let (moved, whole) = (self.moved, self.whole);
        match &mut self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar) => bar.set_position(moved),
            Shown::Lines { what, last } if last.elapsed() >= LINE_EVERY => {
                *last = Instant::now();
                #[expect(clippy::cast_precision_loss, reason = "for people")]
                let rate = moved as f64 / self.started.elapsed().as_secs_f64() / 1e6;
                let line = format!("{what}: {moved} of {whole} bytes, {rate:.2} MB/s");
                // Nobody may read it.
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            Shown::Lines { .. } => {}
        }
    }

    /// They have moved for nothing.
    pub(crate) fn unmoved(&mut self, bytes: u64) {
        self.moved = self.moved.saturating_sub(bytes);
    }

    pub(crate) fn span(&mut self, span: Span) {
        self.timeline.add(span);
    }

    /// Nothing more comes.
    pub fn finish(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }

    /// How long it has taken.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}
