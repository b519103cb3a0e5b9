//! Configuration of the L-Bone: where it listens, and which depots of elsewhere it tells of.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use crossdock_depots::{Location, Record, parse_depots};
use crossdock_lbone::Depot;
use crossdock_members::DepotDoor;
use serde::{Deserialize, Serialize};

use super::values::Door;
use super::{Group, usage};

/// How often our own depots are asked: a node that was stopped is soon told to nobody.
const POLL_OWN_EVERY: Duration = Duration::from_secs(2);

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct LboneFlags {
    /// L-Bone door, which tells clients of depots: those of all nodes of the volume, and others
    /// [default: 127.0.0.1:6767 of up, else off].
    #[arg(long, value_name = "ADDR,…|off", env = "CROSSDOCK_LBONE")]
    lbone: Option<Door>,
    /// File with depots of elsewhere that the L-Bone tells of, too: on each line HOST:PORT and
    /// where it is, like `airport= TYS`.
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_LBONE_DEPOTS")]
    lbone_depots: Option<PathBuf>,
    /// Where our own depots are, and what they have: `zip= 37901`, `state= TN city= Knoxville`,
    /// `lat= 36 lon= -84`, `power= generator`.
    #[arg(long, value_name = "TEXT", env = "CROSSDOCK_LBONE_LOCATION")]
    lbone_location: Option<String>,
}

impl Group for LboneFlags {
    fn over(self, file: Self) -> Self {
        Self {
            lbone: self.lbone.or(file.lbone),
            lbone_depots: self.lbone_depots.or(file.lbone_depots),
            lbone_location: self.lbone_location.or(file.lbone_location),
        }
    }
}

/// Where the L-Bone listens, and what it knows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LboneSettings {
    pub(crate) lbone: Door,
    lbone_depots: Option<PathBuf>,
    lbone_location: Option<String>,
}

impl LboneFlags {
    pub(super) fn settle(self, door_default: Door) -> anyhow::Result<LboneSettings> {
        let location = self.lbone_location.as_deref();
        if location.is_some_and(|text| Location::parse(text) == Location::default()) {
            return Err(usage(format!(
                "lbone_location: {:?} says no place that is known; coordinates do: lat= 36 lon= -84",
                location.unwrap_or_default()
            )));
        }
        Ok(LboneSettings {
            lbone: self.lbone.unwrap_or(door_default),
            lbone_depots: self.lbone_depots,
            lbone_location: self.lbone_location,
        })
    }
}

impl LboneSettings {
    /// Where our own depots are, and what they have.
    pub(crate) fn location(&self) -> &str {
        self.lbone_location.as_deref().unwrap_or_default()
    }

    /// Depots of elsewhere, as the file says.
    pub(crate) fn others(&self) -> anyhow::Result<Vec<Record>> {
        let mut records = Vec::new();
        if let Some(file) = &self.lbone_depots {
            let shown = file.display();
            let text = std::fs::read_to_string(file);
            let text = text.with_context(|| format!("cannot read {shown}"))?;
            let others = parse_depots(&text);
            records = others.map_err(|error| usage(format!("{shown}: {error}")))?;
        }
        Ok(records)
    }
}

/// One of ours, as the L-Bone tells of it.
pub(crate) fn record_of(door: &DepotDoor) -> Record {
    Record {
        depot: Depot {
            host: door.host.clone(),
            port: door.port,
        },
        location: Location::parse(&door.location),
        poll_every: POLL_OWN_EVERY,
    }
}
