//! What an initiator is told when the volume did not do it.

use crossdock_peer::SiteError;
use crossdock_scsi::{AdditionalSense, Sense, SenseKey, Status};

use crate::respond::Outcome;

/// Whether it was a read, which has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The one place where the volume's errors become SCSI's: `lba` is the first block that was
/// not read or written.
pub(crate) fn outcome_of(error: SiteError, access: Access, lba: u64) -> Outcome {
    let sense = match (error, access) {
        // It is over soon: the initiator tries again.
        (SiteError::Busy | SiteError::Moved | SiteError::Unanswered, _) => {
            return Outcome::Status(Status::Busy);
        }
        (SiteError::Io, Access::Read) => {
            Sense::new(SenseKey::MediumError, AdditionalSense::READ_ERROR).at(lba)
        }
        (SiteError::Io | SiteError::Lost { .. }, _) => {
            Sense::new(SenseKey::MediumError, AdditionalSense::WRITE_ERROR).at(lba)
        }
        (SiteError::NoSpace | SiteError::Quota, _) => {
            Sense::new(SenseKey::DataProtect, AdditionalSense::NO_SPACE).at(lba)
        }
        // The file is not there any more, or not ours.
        (SiteError::Stale | SiteError::NotFound, _) => {
            Sense::new(SenseKey::NotReady, AdditionalSense::COMMUNICATION_FAILURE)
        }
        _ => Sense::new(SenseKey::HardwareError, AdditionalSense::TARGET_FAILURE),
    };
    Outcome::Sense(sense)
}
