//! What transfers have taught of depots, from one run of a tool to the next.
//!
//! A small file of the user: `{"version": 1, "series": [[from, to, "bandwidth", [values…]]]}`.
//! What is in it are hints: one that is damaged or missing is as good as an empty one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock_forecast::{Forecast, Measurements, Pair, Quantity};
use serde::{Deserialize, Serialize};

use crate::Address;
use crate::document::beside;

/// Longest such file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// How this end of a measurement is called.
pub(crate) const HERE: &str = "here";

/// Fewer bytes than that say more of latency than of bandwidth.
const BYTES_MIN: u64 = 64 << 10;

/// Measurements of a user.
#[derive(Debug, Default)]
pub struct Knowledge {
    file: Option<PathBuf>,
    measurements: Measurements,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    series: Vec<(String, String, String, Vec<f64>)>,
}

impl Knowledge {
    /// That of a file; of none if it is not there yet.
    #[must_use]
    pub fn of_file(file: &Path) -> Self {
        let mut knowledge = Self {
            file: Some(file.to_owned()),
            measurements: Measurements::default(),
        };
        let is_short = fs::metadata(file).is_ok_and(|it| it.len() <= FILE_BYTES_MAX);
        let text = is_short.then(|| fs::read(file).ok()).flatten();
        let stored: Option<Stored> = text.and_then(|text| serde_json::from_slice(&text).ok());
        for (from, to, quantity, values) in stored.map_or_else(Vec::new, |it| it.series) {
            let quantity = match quantity.as_str() {
                "bandwidth" => Quantity::Bandwidth,
                "latency" => Quantity::Latency,
                _ => continue,
            };
            let pair = Pair { from, to };
            for value in values {
                knowledge.measurements.observe(&pair, quantity, value);
            }
        }
        knowledge
    }

    /// The user's own, if there is a place for it.
    #[must_use]
    pub fn of_user() -> Self {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
        match cache.or_else(home) {
            Some(cache) => Self::of_file(&cache.join("crossdock/forecasts.json")),
            None => Self::default(),
        }
    }

    /// What a connection to or from a depot is expected to carry, in bytes per second.
    #[must_use]
    pub fn bandwidth(&self, depot: &Address) -> Option<f64> {
        let found = self.forecast(HERE, &depot.to_string(), Quantity::Bandwidth);
        found.map(|forecast| forecast.value)
    }

    /// What is expected between two ends.
    #[must_use]
    pub fn forecast(&self, from: &str, to: &str, quantity: Quantity) -> Option<Forecast> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.measurements.forecast(&Pair { from, to }, quantity)
    }

    /// Takes a measurement.
    pub(crate) fn observe(&mut self, from: &str, to: &str, quantity: Quantity, value: f64) {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.measurements
            .observe(&Pair { from, to }, quantity, value);
    }

    /// So many bytes have moved between here and a depot.
    pub(crate) fn moved(&mut self, depot: &Address, bytes: u64, elapsed: Duration) {
        if bytes >= BYTES_MIN {
            #[expect(clippy::cast_precision_loss, reason = "a measurement")]
            let rate = bytes as f64 / elapsed.as_secs_f64().max(1e-6);
            self.observe(HERE, &depot.to_string(), Quantity::Bandwidth, rate);
        }
    }

    /// Keeps it for the next time; what cannot be kept is no fault of the transfer.
    pub fn keep(&self) {
        let Some(file) = &self.file else {
            return;
        };
        let name = |quantity| match quantity {
            Quantity::Bandwidth => "bandwidth".to_owned(),
            Quantity::Latency => "latency".to_owned(),
        };
        let series = self.measurements.histories();
        let series = series.map(|(pair, quantity, values)| {
            (pair.from.clone(), pair.to.clone(), name(quantity), values)
        });
        let stored = Stored {
            version: 1,
            series: series.collect(),
        };
        let write = || -> std::io::Result<()> {
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder)?;
            }
            let new = beside(file, ".new");
            fs::write(&new, serde_json::to_vec(&stored)?)?;
            fs::rename(&new, file)
        };
        // The next transfer learns it again.
        let _ = write();
    }
}
