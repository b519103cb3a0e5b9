//! Forecasts: light probes of the way between two ends, and what they lead to expect.

use std::time::Instant;

use anyhow::{Result, ensure};
use bytes::Bytes;
use crossdock_forecast::{Forecast as Found, Quantity};
use crossdock_ibp::Reliability;
use serde_json::{Value, json};

use super::args::Forecast;
use super::{carry, output};
use crate::depot::Wanted;
use crate::knowledge::HERE;
use crate::{Address, Depots, Knowledge};

/// How long what probes leave behind stays, if it cannot be removed.
const PROBE_SECONDS: u64 = 300;

/// Largest probe, in bytes: probes are light.
const PROBE_BYTES_MAX: u64 = 16 << 20;

pub(super) async fn forecast(args: &Forecast) -> Result<()> {
    let size = args.size;
    ensure!(
        (1..=PROBE_BYTES_MAX).contains(&size),
        "a measurement has 1 to {PROBE_BYTES_MAX} bytes"
    );
    let mut knowledge = carry::knowledge(args.forecasts.as_deref());
    let depots = Depots::default();
    let from: Option<Address> = match args.from.as_str() {
        HERE => None,
        text => Some(text.parse()?),
    };
    let name = from
        .as_ref()
        .map_or_else(|| HERE.to_owned(), ToString::to_string);
    for _ in 0..args.probes {
        probe(
            &depots,
            &mut knowledge,
            &name,
            from.as_ref(),
            &args.to,
            size,
        )
        .await?;
    }
    knowledge.keep();
    let to = args.to.to_string();
    let bandwidth = knowledge.forecast(&name, &to, Quantity::Bandwidth);
    let latency = knowledge.forecast(&name, &to, Quantity::Latency);
    if args.json {
        output::json(&json!({
            "from": name, "to": to,
            "bandwidth_bytes_per_second": bandwidth.map(as_json),
            "latency_seconds": latency.map(as_json),
        }));
        return Ok(());
    }
    let show = |what: &str, found: Option<Found>, unit: &str, factor: f64| match found {
        None => output::line(&format!("{what}: never measured")),
        Some(found) => {
            let (value, error) = (found.value * factor, found.error * factor);
            let (method, count) = (found.method, found.measurements);
            output::line(&format!(
                "{what}: {value:.2} {unit} (± {error:.2}; {method:?} of {count} measurements)"
            ));
        }
    };
    show("bandwidth", bandwidth, "MB/s per connection", 1e-6);
    show("latency", latency, "ms", 1e3);
    Ok(())
}

fn as_json(found: Found) -> Value {
    json!({
        "value": found.value,
        "error": found.error,
        "method": format!("{:?}", found.method),
        "measurements": found.measurements,
    })
}

/// Moves `size` bytes from one end to the other, and nothing.
async fn probe(
    depots: &Depots,
    knowledge: &mut Knowledge,
    name: &str,
    from: Option<&Address>,
    to: &Address,
    size: u64,
) -> Result<()> {
    let wanted = Wanted {
        bytes: size,
        duration: std::time::Duration::from_secs(PROBE_SECONDS),
        reliability: Reliability::Volatile,
    };
    let bytes = Bytes::from(vec![0; usize::try_from(size)?]);
    let target = depots.allocate(to, wanted).await?;
    #[expect(clippy::cast_precision_loss, reason = "a measurement")]
    let length = size as f64;
    let (latency, bandwidth) = match from {
        None => {
            let began = Instant::now();
            depots.probe(&target.manage).await?;
            let latency = began.elapsed();
            let began = Instant::now();
            depots.store(&target.write, bytes, |_| {}).await?;
            (latency, began.elapsed())
        }
        Some(from) => {
            let source = depots.allocate(from, wanted).await?;
            depots.store(&source.write, bytes, |_| {}).await?;
            // A byte first: the depots connect, and what that takes is no bandwidth.
            let one = depots.allocate(to, wanted).await?;
            let began = Instant::now();
            depots.copy(&source.read, 0, 1, &one.write).await?;
            let latency = began.elapsed();
            let began = Instant::now();
            depots.copy(&source.read, 0, size, &target.write).await?;
            let bandwidth = began.elapsed();
            depots.release(&one.manage).await?;
            depots.release(&source.manage).await?;
            (latency, bandwidth)
        }
    };
    depots.release(&target.manage).await?;
    let to = to.to_string();
    let rate = length / bandwidth.as_secs_f64().max(1e-6);
    knowledge.observe(name, &to, Quantity::Latency, latency.as_secs_f64());
    knowledge.observe(name, &to, Quantity::Bandwidth, rate);
    Ok(())
}
