//! Why two hosts do not come together, in words that help the administrator of either.

use rustls::{AlertDescription, CertificateError, Error};
use thiserror::Error as ThisError;

/// What ended a TLS connection.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Failure {
    /// What came is no TLS.
    #[error(
        "the other side does not speak TLS; if it is a host of this ensemble, start it with --transport tls --identity DIR"
    )]
    NotTls,
    /// The other side's certificate is of another authority.
    #[error(
        "the other side's certificate is not of this ensemble's authority; get it one with `crossdock cluster join` and a token of this ensemble"
    )]
    OtherAuthority,
    /// It has ended.
    #[error(
        "the other side's certificate has ended; get it one with `crossdock cluster join` and a token of this ensemble, or see whether the clocks agree"
    )]
    Ended,
    /// It has not begun.
    #[error("the other side's certificate does not hold yet: see whether the clocks agree")]
    NotYet,
    /// It names another ensemble, or is not a manager's where one is needed.
    #[error(
        "the other side's certificate is not for that: it is for {0}; get it one with `crossdock cluster join` and a token of this ensemble"
    )]
    OtherName(String),
    /// The other side does not know this host's authority.
    #[error(
        "the other side refuses this host's certificate: it is of another authority; get this host one of that ensemble with `crossdock cluster join`, and see that --identity names it"
    )]
    RefusedAuthority,
    /// This host's certificate has ended.
    #[error(
        "the other side refuses this host's certificate: it has ended; get this host a new one with `crossdock cluster join`, it is taken without a restart"
    )]
    RefusedEnded,
    /// The other side wants no part of it, and says no more.
    #[error("the other side refuses this host: {0}; its log says why")]
    Refused(String),
    /// The authority is not the one that the token names.
    #[error(
        "the ensemble's authority is not the one that the token names: the token is of another ensemble, or somebody has changed the registry; make a new token where the ensemble is"
    )]
    Fingerprint,
    /// Something else that the library says.
    #[error("TLS: {0}")]
    Library(String),
}

impl Failure {
    /// What is to be said of an error of the library; before the handshake is over what
    /// makes no sense is most likely no TLS at all.
    pub(crate) fn of(error: Error, is_open: bool) -> Self {
        match error {
            Error::InvalidCertificate(error) => Self::of_certificate(error),
            Error::AlertReceived(alert) => match alert {
                // The second: another one of the same name.
                AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                    Self::RefusedAuthority
                }
                AlertDescription::CertificateExpired => Self::RefusedEnded,
                alert => Self::Refused(format!("{alert:?}")),
            },
            Error::InvalidMessage(_) if !is_open => Self::NotTls,
            error => Self::Library(error.to_string()),
        }
    }

    fn of_certificate(error: CertificateError) -> Self {
        match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::OtherAuthority
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Ended,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYet
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                Self::OtherName(presented.join(", "))
            }
            error => Self::Library(error.to_string()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::of(error, true)
    }
}
