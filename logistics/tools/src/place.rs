//! Which depots: those that are named, or what an L-Bone knows.

use std::time::Duration;

use anyhow::{Result, bail};
use crossdock_ibp::Reliability;
use crossdock_lbone::{Answer, DepotQuery, Request};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Address;

/// How long an L-Bone may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest answer that is read, in bytes: 4096 depots.
const ANSWER_BYTES_MAX: u64 = 20 + 4096 * 266;

/// Where depots are looked for.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// These, in this order; then no L-Bone is asked.
    pub depots: Vec<Address>,
    /// Host and port of an L-Bone.
    pub lbone: Option<Address>,
    /// Near what, in the words of the L-Bone (`zip= 37901`).
    pub location: String,
    /// So many at most; all unless said.
    pub depots_max: Option<u32>,
}

/// Why there are no depots.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// Nothing says where.
    #[error("no depots: name them with --depot, or an L-Bone with --lbone")]
    Nowhere,
    /// The L-Bone did not answer.
    #[error("L-Bone {0} did not answer: {1}")]
    Silent(Address, String),
    /// It knows of none.
    #[error("L-Bone {0} knows no depot that has this much room for so long")]
    Empty(Address),
}

impl Place {
    /// Depots that have room for so many bytes each, for so long; the best first.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub async fn find(
        &self,
        bytes: u64,
        duration: Duration,
        reliability: Reliability,
    ) -> Result<Vec<Address>> {
        if !self.depots.is_empty() {
            return Ok(self.depots.clone());
        }
        let Some(lbone) = &self.lbone else {
            bail!(PlaceError::Nowhere);
        };
        let megabytes = (bytes >> 20) + 1;
        let (stable_mb, volatile_mb) = match reliability {
            Reliability::Stable => (megabytes, 0),
            Reliability::Volatile => (0, megabytes),
        };
        let request = Request::Depots(DepotQuery {
            depots_max: self.depots_max,
            stable_mb,
            volatile_mb,
            duration_seconds: duration.as_secs(),
            location: self.location.clone(),
        });
        match ask(lbone, &request).await? {
            Answer::Depots(depots) if !depots.is_empty() => {
                let address = |depot: crossdock_lbone::Depot| Address {
                    host: depot.host,
                    port: depot.port,
                };
                Ok(depots.into_iter().map(address).collect())
            }
            Answer::Depots(_) => bail!(PlaceError::Empty(lbone.clone())),
            other => bail!(PlaceError::Silent(lbone.clone(), format!("{other:?}"))),
        }
    }
}

/// Asks an L-Bone.
pub(crate) async fn ask(lbone: &Address, request: &Request) -> Result<Answer> {
    let silent = |why: String| PlaceError::Silent(lbone.clone(), why);
    let asking = async {
        let host = lbone.host.trim_start_matches('[').trim_end_matches(']');
        let mut stream = TcpStream::connect((host, lbone.port)).await?;
        stream.write_all(&request.encode()).await?;
        let mut bytes = Vec::new();
        stream
            .take(ANSWER_BYTES_MAX)
            .read_to_end(&mut bytes)
            .await?;
        Ok::<_, std::io::Error>(bytes)
    };
    let bytes = match timeout(PATIENCE, asking).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => bail!(silent(error.to_string())),
        Err(_) => bail!(silent("its time is over".to_owned())),
    };
    let answer = Answer::parse(request, &bytes);
    Ok(answer.map_err(|error| silent(error.to_string()))?)
}
