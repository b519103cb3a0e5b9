//! TLS between the hosts of an ensemble (docs/decisions/0021).
//!
//! An [`Authority`] signs certificates, each of which names the ensemble and what its
//! holder is for. A host that has [`Credentials`] puts a [`Stream`] between the bytes of a
//! connection and its link. One that has none yet proves a [`Token`], and is given a
//! certificate for a key that it has made itself ([`JoinRequest`], [`JoinAnswer`]).
//!
//! A [`WebStream`] is the server's side of HTTPS: by [`WebCredentials`] of any authority,
//! for clients without a certificate.
//!
//! No I/O here: bytes go in and come out. Random numbers, and the time by which
//! certificates of others are judged, are the TLS library's own.

mod authority;
mod credentials;
mod failure;
mod join;
mod names;
mod stream;
mod token;
mod web;

pub use authority::{Authority, KeyMaterial};
pub use credentials::{Credentials, CredentialsError, check_fingerprint, join_client};
pub use failure::Failure;
pub use join::{JOIN_ANSWER_BYTES_MAX, JoinAnswer, JoinError, JoinRequest, PUBLIC_KEY_BYTES};
pub use names::{GATEWAY_NAME_BYTES_MAX, is_name};
pub use stream::{Purpose, Stream, StreamEffect};
pub use token::{Fingerprint, Token, TokenError};
pub use web::{WebCredentials, WebEffect, WebFailure, WebStream};

/// Protocols of one port, as the connecting side names them in its first message (ALPN).
pub(crate) const LINK_PROTOCOL: &[u8] = b"crossdock-link";
pub(crate) const JOIN_PROTOCOL: &[u8] = b"crossdock-join";
