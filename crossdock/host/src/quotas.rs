//! Quotas of a running host: an administrator sets and removes them; the sites
//! keep, count and apply them.

use crossdock_directory::Directory;
use crossdock_limits::QUOTAS_MAX;
use crossdock_names::FileRef;
use crossdock_peer::{Quota, QuotaChange, SiteAnswer, SiteError, SiteOperation};
use crossdock_site::Site;
use crossdock_types::{Time, WallTime};
use thiserror::Error;

use crate::host::{Host, HostEffect};
use crate::walks::{Goal, WALKS_MAX, Walk, WalkError, names_of, volume_root};

/// Which [`Host::set_quota`] or [`Host::remove_quota`] an effect answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaTicket(pub(crate) u64);

/// A quota, and where its tree lies now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedQuota {
    /// From the volume's root on.
    pub path: String,
    /// Limits and what is used.
    pub quota: Quota,
}

/// Why a quota was not set or removed; nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum QuotaError {
    /// The path cannot be one.
    #[error("{path:?} is no directory of the volume: {why}")]
    Path {
        /// As it was said.
        path: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The path leads nowhere.
    #[error("the volume has no directory {path}; mount / and make it, then set its quota")]
    NotFound {
        /// The path.
        path: String,
    },
    /// The path leads to something else.
    #[error("{path} is no directory; quotas are of directories and all below them")]
    NotDirectory {
        /// The path.
        path: String,
    },
    /// Nothing would be limited.
    #[error(
        "{path} would have no limit; give --bytes or --files, or remove its quota with crossdock quota remove {path}"
    )]
    NoLimit {
        /// The path.
        path: String,
    },
    /// Another tree is in the way.
    #[error(
        "quotas do not lie inside each other, and {other} has one; remove it first with crossdock quota remove {other}, or change it with crossdock quota set {other}"
    )]
    InTheWay {
        /// Where the other tree begins.
        other: String,
    },
    /// What a tree holds is counted at one site.
    #[error(
        "directories below {path} lie at other sites (the volume was made with --spread), and a quota counts at one: give {path} its quota while it is empty"
    )]
    Scattered {
        /// Where the tree begins.
        path: String,
    },
    /// There are as many as there may be.
    #[error("there are {QUOTAS_MAX} quotas already; remove one with crossdock quota remove PATH")]
    TooMany,
    /// There is no such quota.
    #[error("there is no quota {0}; crossdock quota list shows all")]
    Unknown(u64),
    /// The volume does not answer now.
    #[error("the volume did not answer ({0}); crossdock status may show why; try again")]
    Volume(SiteError),
    /// Too many at once.
    #[error("{WALKS_MAX} paths are being looked up at this moment; try again")]
    Busy,
}

impl Host {
    /// The quotas there are, by the number of their root.
    #[must_use]
    pub fn quotas(&self) -> Vec<PlacedQuota> {
        let sites = self.sites.values();
        sites.flat_map(|site| self.quotas_of(site)).collect()
    }

    /// Begins to give the tree below `path` a quota, or its quota other limits;
    /// [`HostEffect::QuotaChanged`] tells what came of it.
    ///
    /// # Errors
    /// What is wrong with the path, as far as it can be seen at once.
    pub fn set_quota(
        &mut self,
        now: Time,
        wall: WallTime,
        path: &str,
        change: QuotaChange,
    ) -> Result<QuotaTicket, QuotaError> {
        let names = names_of(path).map_err(|(path, why)| QuotaError::Path { path, why })?;
        if self.walks.len() >= WALKS_MAX {
            return Err(QuotaError::Busy);
        }
        let walk = Walk::new(&names, Goal::Quota(change));
        let number = self.begin_walk(now, walk, volume_root());
        self.pump(now, wall);
        Ok(QuotaTicket(number))
    }

    /// Begins to take the quota away whose tree begins at the directory with
    /// that file id; [`HostEffect::QuotaChanged`] tells what came of it.
    ///
    /// # Errors
    /// [`QuotaError::Unknown`], [`QuotaError::Busy`].
    pub fn remove_quota(
        &mut self,
        now: Time,
        wall: WallTime,
        id: u64,
    ) -> Result<QuotaTicket, QuotaError> {
        let mut quotas = self.quotas().into_iter();
        let placed = quotas.find(|placed| placed.quota.root.id.0 == id);
        let PlacedQuota { path, quota } = placed.ok_or(QuotaError::Unknown(id))?;
        if self.walks.len() >= WALKS_MAX {
            return Err(QuotaError::Busy);
        }
        let directory = quota.root;
        let mut walk = Walk::new(&[], Goal::AskedQuota(directory));
        walk.path = path;
        self.walks_total += 1;
        let number = self.walks_total;
        self.ask_for_walk(now, number, walk, SiteOperation::RemoveQuota { directory });
        self.pump(now, wall);
        Ok(QuotaTicket(number))
    }

    /// A site has changed a quota, or why not.
    pub(crate) fn take_quota(
        &mut self,
        number: u64,
        path: &str,
        directory: FileRef,
        outcome: Result<SiteAnswer, SiteError>,
    ) {
        let path = path.to_owned();
        let result = match outcome {
            Ok(SiteAnswer::Quota(quota)) => Ok(PlacedQuota { path, quota }),
            Ok(_) => Err(QuotaError::Volume(SiteError::Io)), // No answer to that.
            Err(SiteError::Invalid) => Err(QuotaError::NoLimit { path }),
            Err(SiteError::NoSpace) => Err(QuotaError::TooMany),
            Err(SiteError::NotFound) => Err(QuotaError::Unknown(directory.id.0)),
            Err(SiteError::Stale) => Err(QuotaError::NotFound { path }),
            Err(SiteError::Exists) => Err(self.quota_in_the_way(directory)),
            Err(SiteError::CrossDevice) => Err(QuotaError::Scattered { path }),
            Err(error) => Err(QuotaError::Volume(error)),
        };
        self.end_quota(QuotaTicket(number), result);
    }

    pub(crate) fn end_quota(
        &mut self,
        ticket: QuotaTicket,
        result: Result<PlacedQuota, QuotaError>,
    ) {
        self.effects
            .push_back(HostEffect::QuotaChanged { ticket, result });
    }

    fn quota_in_the_way(&self, directory: FileRef) -> QuotaError {
        let names = self.sites.get(&directory.id.site()).map(Site::directory);
        let other = names.and_then(|names| Some((names, names.quota_in_the_way(directory)?)));
        match other {
            Some((names, other)) => QuotaError::InTheWay {
                other: self.path_within(names, other),
            },
            None => QuotaError::Volume(SiteError::Busy), // It has gone meanwhile.
        }
    }

    fn quotas_of(&self, site: &Site) -> Vec<PlacedQuota> {
        let directory = site.directory();
        let quotas: Vec<Quota> = directory.quotas().collect();
        let roots: Vec<FileRef> = quotas.iter().map(|quota| quota.root).collect();
        let paths = directory.paths_of(&roots);
        let placed = quotas.into_iter().zip(paths);
        placed
            .map(|(quota, path)| PlacedQuota {
                path: join(self.path_above(directory, quota.root), path),
                quota,
            })
            .collect()
    }

    fn path_within(&self, directory: &Directory, root: FileRef) -> String {
        let mut paths = directory.paths_of(&[root]);
        join(self.path_above(directory, root), paths.pop().flatten())
    }

    /// Where a site's topmost directory above `file` lies, as far as the sites
    /// above it are this host's.
    fn path_above(&self, directory: &Directory, file: FileRef) -> String {
        let Some((topmost, parent)) = directory.border_above(file) else {
            return String::new();
        };
        let Some(site) = self.sites.get(&parent.id.site()) else {
            return String::new();
        };
        let name = site.directory().name_of(parent, topmost);
        let above = self.path_within(site.directory(), parent);
        format!(
            "{}/{}",
            above.trim_end_matches('/'),
            name.unwrap_or_default()
        )
    }
}

/// Both parts of a path, of which the second begins with a slash and may be no more.
fn join(above: String, below: Option<String>) -> String {
    match below.as_deref() {
        Some("/") | None if !above.is_empty() => above,
        below => above + below.unwrap_or_default(),
    }
}

impl From<(String, WalkError)> for QuotaError {
    fn from((path, error): (String, WalkError)) -> Self {
        match error {
            WalkError::NotFound => Self::NotFound { path },
            WalkError::NotDirectory => Self::NotDirectory { path },
            WalkError::Volume(error) => Self::Volume(error),
        }
    }
}
