//! Configuration of the HTTP door and of the delivery engine.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use crossdock_delivery::{DeliveryConfig, Switches};
use crossdock_http::{HttpConfig, HttpLimits};
use crossdock_limits::DELIVERY_REQUEST_BYTES_MAX;
use crossdock_peer::Network;
use serde::{Deserialize, Serialize};

use super::values::{Door, HttpRead, Networks, Size};
use super::{Group, usage};
use crate::shell::{Https, TlsFiles};

/// How long the rest of the system may take for a request over HTTP.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// The least memory that is of use: some of the largest requests.
const MEMORY_MIN: u64 = 8 * DELIVERY_REQUEST_BYTES_MAX;

/// Whether a mechanism is used.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Switch {
    /// It is.
    On,
    /// It is not, to see what it is worth.
    Off,
}

/// How far ahead is read.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tdap {
    /// By the rates of network and disks.
    On,
    /// Not by them, to see what that is worth.
    Off,
    /// By them, for as long as the paper's formula says as it is printed, to compare.
    Literal,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct HttpFlags {
    /// HTTP door: an IPv4 and an IPv6 address at most [default: 127.0.0.1:8080 of up, else off].
    #[arg(long, value_name = "ADDR,…|off", env = "CROSSDOCK_HTTP")]
    pub(crate) http: Option<Door>,
    /// Who may read over HTTP without a token (crossdock token create) or a signed URL
    /// (crossdock sign); writing always takes one [default: open].
    #[arg(long, value_name = "WHO", env = "CROSSDOCK_HTTP_READ")]
    pub(crate) http_read: Option<HttpRead>,
    /// Requests per second of one HTTP client; ten times as many may come at once
    /// [default: as many as come].
    #[arg(long, value_name = "N", env = "CROSSDOCK_HTTP_RATE")]
    pub(crate) http_rate: Option<u32>,
    /// Longest content of a PUT, like 10G [default: 64T].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_HTTP_BODY")]
    pub(crate) http_body: Option<Size>,
    /// HTTPS: file with the certificates of the HTTP door, its own first, as PEM. It is read
    /// anew when it changes. With it the door takes HTTPS only [default: HTTP].
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_HTTP_CERT")]
    pub(crate) http_cert: Option<PathBuf>,
    /// HTTPS: file with the key of the certificate, as PEM.
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_HTTP_KEY")]
    pub(crate) http_key: Option<PathBuf>,
    /// From which depots files may be imported (crossdock exnode import), besides those of the
    /// volume: the process connects nowhere else for them [default: this machine's].
    #[arg(
        long,
        value_name = "NETWORK,…|everybody",
        env = "CROSSDOCK_IMPORT_FROM"
    )]
    pub(crate) import_from: Option<Networks>,
    /// For what is read ahead of connections and not sent yet, like 64M: of HTTP in memory
    /// here, of NFS in the caches of nodes
    /// [default: 256M, or an eighth of memory if that is less].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_DELIVERY_MEMORY")]
    pub(crate) delivery_memory: Option<Size>,
    /// Delivery: the next bytes go out without the data thread [default: on].
    #[arg(
        long = "delivery.idsr",
        value_name = "HOW",
        env = "CROSSDOCK_DELIVERY_IDSR"
    )]
    pub(crate) delivery_idsr: Option<Switch>,
    /// Delivery: bytes are read ahead by the rates of network and disks; off: for HTTP 128 KiB
    /// at a time, for NFS as nodes think right [default: on].
    #[arg(
        long = "delivery.tdap",
        value_name = "HOW",
        env = "CROSSDOCK_DELIVERY_TDAP"
    )]
    pub(crate) delivery_tdap: Option<Tdap>,
    /// Delivery: what dead and stalled connections have asked of disks is withdrawn or put off
    /// [default: on].
    #[arg(
        long = "delivery.edrc",
        value_name = "HOW",
        env = "CROSSDOCK_DELIVERY_EDRC"
    )]
    pub(crate) delivery_edrc: Option<Switch>,
    /// Delivery: while only HTTP clients are there, other processes finish their turns at the
    /// processor before the next bytes are seen to [default: on].
    #[arg(
        long = "delivery.daemon",
        value_name = "HOW",
        env = "CROSSDOCK_DELIVERY_DAEMON"
    )]
    pub(crate) delivery_daemon: Option<Switch>,
}

impl Group for HttpFlags {
    fn over(self, file: Self) -> Self {
        Self {
            http: self.http.or(file.http),
            http_read: self.http_read.or(file.http_read),
            http_rate: self.http_rate.or(file.http_rate),
            http_body: self.http_body.or(file.http_body),
            http_cert: self.http_cert.or(file.http_cert),
            http_key: self.http_key.or(file.http_key),
            import_from: self.import_from.or(file.import_from),
            delivery_memory: self.delivery_memory.or(file.delivery_memory),
            delivery_idsr: self.delivery_idsr.or(file.delivery_idsr),
            delivery_tdap: self.delivery_tdap.or(file.delivery_tdap),
            delivery_edrc: self.delivery_edrc.or(file.delivery_edrc),
            delivery_daemon: self.delivery_daemon.or(file.delivery_daemon),
        }
    }
}

/// Where and how HTTP clients are served.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HttpSettings {
    pub(crate) http: Door,
    pub(crate) http_read: HttpRead,
    pub(crate) http_rate: Option<u32>,
    pub(crate) http_body: Option<u64>,
    /// Certificates and key.
    pub(crate) http_tls: Option<TlsFiles>,
    /// Where files may be imported from, besides the volume's depots.
    pub(crate) import_from: Networks,
    pub(crate) delivery_memory: Option<u64>,
    pub(crate) delivery_idsr: Switch,
    pub(crate) delivery_tdap: Tdap,
    pub(crate) delivery_edrc: Switch,
    pub(crate) delivery_daemon: Switch,
}

impl HttpFlags {
    pub(super) fn settle(self, door_default: Door) -> anyhow::Result<HttpSettings> {
        if self.http_rate == Some(0) {
            return Err(usage(
                "http_rate must be at least 1; leave it away to serve as many requests as come"
                    .to_owned(),
            ));
        }
        let delivery_memory = self.delivery_memory.map(|size| size.0);
        if let Some(bytes) = delivery_memory
            && bytes < MEMORY_MIN
        {
            return Err(usage(format!(
                "delivery_memory must be at least {}M, not {bytes} bytes",
                MEMORY_MIN >> 20
            )));
        }
        let http_tls = TlsFiles::of("--http", self.http_cert, self.http_key).map_err(usage)?;
        let on = |switch: Option<Switch>| switch.unwrap_or(Switch::On);
        Ok(HttpSettings {
            http: self.http.unwrap_or(door_default),
            http_read: self.http_read.unwrap_or(HttpRead::Open),
            http_rate: self.http_rate,
            http_body: self.http_body.map(|size| size.0),
            http_tls,
            import_from: self
                .import_from
                .unwrap_or_else(|| Networks(Network::loopback())),
            delivery_memory,
            delivery_idsr: on(self.delivery_idsr),
            delivery_tdap: self.delivery_tdap.unwrap_or(Tdap::On),
            delivery_edrc: on(self.delivery_edrc),
            delivery_daemon: on(self.delivery_daemon),
        })
    }
}

impl HttpSettings {
    /// Which mechanisms of delivery are on.
    pub(crate) const fn switches(&self) -> Switches {
        Switches {
            tdap: !matches!(self.delivery_tdap, Tdap::Off),
            edrc: matches!(self.delivery_edrc, Switch::On),
            idsr: matches!(self.delivery_idsr, Switch::On),
            daemon: matches!(self.delivery_daemon, Switch::On),
        }
    }

    /// Certificate and key, if clients are to talk over TLS.
    pub(crate) fn https(&self) -> anyhow::Result<Option<Https>> {
        self.http_tls.as_ref().map(Https::read).transpose()
    }

    /// The door's own configuration; `memory_bytes` is what delivery gets if nothing was
    /// said, `seed` a random number of this process.
    pub(crate) fn config(&self, memory_bytes: u64, seed: u64) -> HttpConfig {
        let mut limits = HttpLimits {
            requests_per_second: self.http_rate,
            ..HttpLimits::default()
        };
        if let Some(bytes) = self.http_body {
            limits.body_bytes_max = limits.body_bytes_max.min(bytes);
        }
        HttpConfig {
            policy: self.http_read.into(),
            patience: PATIENCE,
            limits,
            delivery: DeliveryConfig {
                memory_bytes: self.delivery_memory.unwrap_or(memory_bytes),
                switches: self.switches(),
                literal_td: self.delivery_tdap == Tdap::Literal,
                ..DeliveryConfig::default()
            },
            seed,
        }
    }
}
