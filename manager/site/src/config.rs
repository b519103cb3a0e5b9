//! What a site is told when it is opened.

use std::time::Duration;

use crossdock_names::{Epoch, SiteId, Spread, VolumeId};
use crossdock_peer::WriterId;
use crossdock_smallfile::SmallFilesConfig;
use crossdock_types::Time;

/// Which site, in which incarnation.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    /// The site.
    pub site: SiteId,
    /// The volume: log id and hashes follow from it.
    pub volume: VolumeId,
    /// The site's epoch, raised in the registry before every opening.
    pub epoch: Epoch,
    /// This manager's instance.
    pub writer: WriterId,
    /// Whether the site may be without a log: until the first opening of the
    /// volume has succeeded. Afterwards a missing log is an error.
    pub new_volume: bool,
    /// Where new directories go.
    pub spread: Spread,
    /// Permission bits of the root directory, if it has to be made.
    pub root_mode: u32,
    /// How long only reclaims of locks are taken after a restart, unless all
    /// clients are told earlier.
    pub grace: Duration,
    /// Until then leases of an earlier opening may be held: nothing is answered before.
    pub serves_from: Time,
    /// Bounds.
    pub limits: SiteLimits,
    /// Bounds of the small files.
    pub small_files: SmallFilesConfig,
    /// A fault built in on purpose, so that tests prove they would find it.
    #[cfg(feature = "mutations")]
    pub fault: Option<Fault>,
}

/// A fault that a test build can put into a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What a participant has prepared is not in its log: who opens it anew knows nothing.
    PrepareUnlogged,
    /// A participant does not keep what it has told as it is.
    FreezeNothing,
    /// A coordinator forgets what it has decided when it has told the participants once.
    ForgetDecision,
}

impl SiteConfig {
    /// The usual configuration of `site`.
    #[must_use]
    pub fn new(site: SiteId, volume: VolumeId, epoch: Epoch) -> Self {
        Self {
            site,
            volume,
            epoch,
            writer: WriterId(epoch.0),
            new_volume: false,
            spread: Spread::default(),
            root_mode: 0o755,
            grace: Duration::from_secs(45),
            serves_from: Time(0),
            limits: SiteLimits::default(),
            small_files: SmallFilesConfig::new(site),
            #[cfg(feature = "mutations")]
            fault: None,
        }
    }

    #[cfg(feature = "mutations")]
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    #[cfg(not(feature = "mutations"))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) const fn has(&self, _: Fault) -> bool {
        false
    }
}

/// Bounds of a site.
#[derive(Clone, Copy, Debug)]
pub struct SiteLimits {
    /// A log object is followed by the next one at this size.
    pub segment_bytes_max: u64,
    /// Log bytes since the last checkpoint at which the next one begins, if the
    /// last one was small.
    pub checkpoint_log_bytes_min: u64,
    /// The same, unless the last one was even larger than this: a log that is
    /// dropped before never leaves the journals of its nodes.
    pub checkpoint_log_bytes_max: u64,
    /// How many times as long as the log since the last one a checkpoint may be:
    /// what bounds the bytes written for a change, however large the state is.
    pub checkpoint_ratio_max: u64,
    /// Bytes of a checkpoint's chunk: what one step of it takes.
    pub checkpoint_chunk_bytes: usize,
    /// Replies that are remembered for duplicate requests.
    pub duplicates_max: usize,
    /// How long they are remembered at most.
    pub duplicate_age: Duration,
    /// Requests that wait for something (opening, log, a truncate of their
    /// file); beyond it they are answered with "busy".
    pub waiting_max: usize,
    /// Replies that wait for the log; beyond it requests are answered with "busy".
    pub held_max: usize,
    /// Attribute changes that are not logged yet; beyond it they are logged.
    pub volatile_max: usize,
    /// After which time they are logged in any case; also how long freed space
    /// of small files waits for a record that lets it be reused.
    pub volatile_patience: Duration,
    /// Cells that one record puts into a tree with a quota.
    pub quota_cells_max: usize,
}

impl SiteLimits {
    /// Log bytes after a checkpoint of that length at which the next one begins.
    ///
    /// Four times its length: checkpoints add a quarter to what the log writes.
    /// After a large one it comes sooner, so that a restart has less to replay.
    pub(crate) fn checkpoint_after(&self, length_bytes: u64) -> u64 {
        let usual = length_bytes
            .saturating_mul(4)
            .max(self.checkpoint_log_bytes_min);
        let least = length_bytes / self.checkpoint_ratio_max.max(1);
        usual.min(self.checkpoint_log_bytes_max).max(least)
    }
}

impl Default for SiteLimits {
    fn default() -> Self {
        Self {
            segment_bytes_max: 8 << 20,
            checkpoint_log_bytes_min: 16 << 20,
            checkpoint_log_bytes_max: 64 << 20,
            checkpoint_ratio_max: 1,
            checkpoint_chunk_bytes: 64 << 10,
            duplicates_max: 65_536,
            duplicate_age: Duration::from_secs(600),
            waiting_max: 4096,
            held_max: 16_384,
            volatile_max: 1024,
            volatile_patience: Duration::from_secs(5),
            quota_cells_max: 8192,
        }
    }
}
