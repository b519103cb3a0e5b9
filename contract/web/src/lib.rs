//! Who may do what over HTTP, without I/O and without a clock.
//!
//! A request is anonymous, or carries a bearer token ([`Tokens`]), or was signed by an
//! administrator beforehand ([`SignedUrl`]); [`Gate`] says of each what it may do and as
//! whom, or why not. Nodes have signed URLs of their own, for their objects
//! ([`ObjectUrl`], [`ObjectGate`]). Keys are derived from keys that others have for other purposes, each
//! with a context of its own, so that nothing made with one is taken for something else.

mod digits;
mod gate;
mod object_gate;
mod object_url;
mod path;
mod query;
mod signed;
mod token;

pub use gate::{Denial, Gate, Grant, Method, ReadPolicy, Request};
pub use object_gate::ObjectGate;
pub use object_url::{FilePlace, ObjectUrl};
pub use path::{PathError, UrlPath};
pub use signed::{SignedMethod, SignedUrl, SigningKey, SigningKeys};
pub use token::{
    TokenNameError, TokenRecord, TokenSecret, TokenTextError, Tokens, check_token_name,
};
