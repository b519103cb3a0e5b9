//! What other hosts may ask of a node, and why they may not.

use crossdock_names::{FileCapability, HostId, ObjectClass, Rights, Scope};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{NodeRequest, Order, ReadVersion};

/// Why a node does not do what another host asks. Nothing was done.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessError {
    /// An administrator has revoked the gateway.
    #[error("the gateway {host} has been revoked: crossdock gateway restore lets it in again")]
    Revoked {
        /// Which.
        host: HostId,
    },
    /// It is not what it says that it is, or asks in the name of something that it
    /// does not have.
    #[error("host {host} is no such part of the ensemble")]
    Role {
        /// Which.
        host: HostId,
    },
    /// Its certificate is that of another gateway.
    #[error(
        "the certificate of gateway {host} has another name than the gateway: start it with that name, or get it a certificate with crossdock cluster join --gateway-name"
    )]
    Name {
        /// Which.
        host: HostId,
    },
    /// Gateways read, write and commit columns of files, and nothing else.
    #[error("gateways may only read, write and commit what is in files")]
    NotForGateways,
    /// It has shown none.
    #[error("no capability was shown")]
    Missing,
    /// It was made for another gateway.
    #[error("the capability was made for host {holder}")]
    OtherHolder {
        /// Which.
        holder: HostId,
    },
    /// It is for another file.
    #[error("the capability is for another file")]
    OtherFile,
    /// It is for reading, or for writing, only.
    #[error("the capability does not allow that")]
    Rights,
    /// The node does not know the manager (any more) that made it. The file has to be
    /// opened again; a manager that has just started may be known a moment later.
    #[error("the capability was made by manager {minter}, which is not known here")]
    UnknownMinter {
        /// Which.
        minter: HostId,
    },
    /// Its time is over: the file has to be opened again.
    #[error("the capability ended {seconds} s ago, if the clocks are right")]
    Expired {
        /// By the node's clock.
        seconds: u64,
    },
    /// No manager made it.
    #[error("the capability is forged")]
    Forged,
}

impl AccessError {
    /// Whether the file's site gives another capability that may do.
    #[must_use]
    pub const fn is_outdated(&self) -> bool {
        matches!(self, Self::UnknownMinter { .. } | Self::Expired { .. })
    }
}

impl NodeRequest {
    /// What a gateway needs for it; `None` if no gateway may ask for it.
    #[must_use]
    pub fn rights_of_gateway(&self) -> Option<Rights> {
        let is_column = |class: ObjectClass| class == ObjectClass::Column;
        match self {
            Self::Read {
                object,
                version:
                    ReadVersion::Current
                    | ReadVersion::MappedUnder(_)
                    | ReadVersion::NotAfter(_)
                    | ReadVersion::Exactly(_)
                    | ReadVersion::AsOf { .. },
                ..
            }
            | Self::Pin {
                object,
                version: Some(_),
                ..
            }
            | Self::Stat { object }
            | Self::Mapped { object, .. }
            | Self::Ahead { object, .. }
            | Self::Share { object, .. }
                if is_column(object.class) =>
            {
                Some(Rights::READ)
            }
            // What has been overwritten since may be another file's.
            Self::Read {
                object,
                version: ReadVersion::NotAfter(_) | ReadVersion::Exactly(_),
                ..
            } if object.class == ObjectClass::SmallFiles => Some(Rights::READ),
            Self::Write {
                object,
                order: Order::Primary,
                ..
            }
            | Self::Zero {
                object,
                order: Order::Primary,
                ..
            }
            | Self::Exchange { object, .. }
            | Self::Copy { object, .. }
            | Self::Commit { object, .. }
                if is_column(object.class) =>
            {
                Some(Rights::WRITE)
            }
            _ => None,
        }
    }

    /// Checks all of a capability but its MAC and its end. A copy's source has one of its own
    /// ([`CopySource::capability`](crate::CopySource)).
    ///
    /// # Errors
    /// [`AccessError`]: what is wrong with it.
    pub fn check_capability(
        &self,
        holder: HostId,
        shown: Option<&FileCapability>,
    ) -> Result<FileCapability, AccessError> {
        let wanted = self
            .rights_of_gateway()
            .ok_or(AccessError::NotForGateways)?;
        let shown = shown.ok_or(AccessError::Missing)?;
        if shown.holder != holder {
            let holder = shown.holder;
            return Err(AccessError::OtherHolder { holder });
        }
        if !self.is_covered(shown) {
            return Err(AccessError::OtherFile);
        }
        if !shown.rights.allow(wanted) {
            return Err(AccessError::Rights);
        }
        Ok(*shown)
    }

    /// Whether what it is about is the file's that was shown.
    fn is_covered(&self, shown: &FileCapability) -> bool {
        match self {
            Self::Read {
                object,
                offset_bytes,
                length_bytes,
                version:
                    ReadVersion::NotAfter(version)
                    | ReadVersion::Exactly(version)
                    | ReadVersion::AsOf { as_of: version, .. },
                ..
            }
            | Self::Pin {
                object,
                offset_bytes,
                length_bytes,
                version: Some(version),
                ..
            } if matches!(shown.scope, Scope::Range { .. }) => {
                let end = offset_bytes.saturating_add(*length_bytes);
                shown.covers_range(object, *offset_bytes..end, *version)
            }
            // What a host has promised is named by a range.
            Self::Pin { .. } => false,
            _ => self
                .object()
                .is_some_and(|object| shown.covers_column(object)),
        }
    }
}
