//! The log: lines on standard error, and the last events kept for the admin API.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use crossdock_admin::{Event, Events};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::config::{LogFormat, ProcessSettings};

/// Which lines are shown, to be changed while the process runs.
pub(crate) struct Filter(reload::Handle<EnvFilter, Registry>);

impl Filter {
    /// Shows other lines from now on.
    ///
    /// # Errors
    /// It is no filter.
    pub(crate) fn set(&self, text: &str) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(text).context("the log filter")?;
        self.0.reload(filter).context("the log filter")
    }
}

/// Starts logging; the events from INFO on are also kept, whatever is shown.
pub(crate) fn start(settings: &ProcessSettings) -> anyhow::Result<(Arc<Events>, Filter)> {
    let filter = EnvFilter::try_new(&settings.log).context("the log filter")?;
    let (filter, handle) = reload::Layer::new(filter);
    let events = Arc::new(Events::default());
    let kept = Kept(Arc::clone(&events)).with_filter(LevelFilter::INFO);
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        // A reader of the log that went away must not end the server.
        .log_internal_errors(false);
    let lines = match settings.log_format {
        LogFormat::Human => lines
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(kept)
        .init();
    Ok((events, Filter(handle)))
}

/// Keeps events.
struct Kept(Arc<Events>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Kept {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut kept = Event {
            at: since.unwrap_or_default().as_secs_f64(),
            level: event.metadata().level().to_string(),
            ..Event::default()
        };
        event.record(&mut Fields(&mut kept));
        self.0.push(kept);
    }
}

/// Takes the fields of an event.
struct Fields<'a>(&'a mut Event);

impl Fields<'_> {
    fn take(&mut self, field: &Field, text: String) {
        if field.name() == "message" {
            self.0.message = text;
        } else {
            self.0.fields.insert(field.name().to_owned(), text);
        }
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, text: &str) {
        self.take(field, text.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.take(field, format!("{value:?}"));
    }
}
