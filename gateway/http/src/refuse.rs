//! What a client is told of what the volume could not do.

use crossdock_http1::Status;
use crossdock_peer::SiteError;

/// The status of an error, for a caller that has shown who it is, or has not.
pub(crate) const fn status_of(error: SiteError, is_anonymous: bool) -> Status {
    match error {
        SiteError::NotFound | SiteError::NotDirectory | SiteError::Stale => Status::NotFound,
        // What a token would allow: say that one is wanted (RFC 9110 section 15.5.2).
        SiteError::AccessDenied | SiteError::NotOwner if is_anonymous => Status::Unauthorized,
        SiteError::AccessDenied | SiteError::NotOwner | SiteError::CrossDevice => Status::Forbidden,
        SiteError::Exists | SiteError::IsDirectory | SiteError::NotEmpty | SiteError::NotSync => {
            Status::Conflict
        }
        SiteError::NoSpace | SiteError::Quota | SiteError::TooManyLinks => {
            Status::InsufficientStorage
        }
        SiteError::FileTooBig => Status::ContentTooLarge,
        SiteError::NameTooLong | SiteError::Invalid | SiteError::BadCookie => Status::BadRequest,
        SiteError::Busy | SiteError::Moved | SiteError::Unanswered | SiteError::Lost { .. } => {
            Status::ServiceUnavailable
        }
        SiteError::Refused | SiteError::NotProven => Status::Forbidden,
        SiteError::Io | SiteError::BadType => Status::InternalServerError,
    }
}

/// Whether the same may well be done when it is asked again.
pub(crate) const fn is_passing(error: SiteError) -> bool {
    matches!(
        error,
        SiteError::Busy | SiteError::Moved | SiteError::Unanswered
    )
}
