//! What a certificate says of its holder, as DNS names:
//!
//! | name | means |
//! |---|---|
//! | `ENSEMBLE.crossdock.internal` | a part of this ensemble |
//! | `ROLE.ENSEMBLE.crossdock.internal` | a `node`, `manager` or `gateway` of it |
//!
//! `ENSEMBLE` is 16 hexadecimal digits. Nobody looks these names up. A gateway's has a URI,
//! too: `crossdock:gateway:NAME`, by which administrators know it.

use std::sync::Arc;

use crossdock_link::{Identity, Role};
use rustls::pki_types::CertificateDer;

const DOMAIN: &str = "crossdock.internal";

/// Everybody of the ensemble.
pub(crate) fn ensemble_name(ensemble: u64) -> String {
    format!("{ensemble:016x}.{DOMAIN}")
}

/// Those with that role.
pub(crate) fn role_name(ensemble: u64, role: Role) -> String {
    format!("{}.{}", role.word(), ensemble_name(ensemble))
}

/// The longest name of a gateway.
pub const GATEWAY_NAME_BYTES_MAX: usize = 64;

/// Whether it can be the name of a gateway or an ensemble: it is part of keys, addresses
/// and certificates.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (1..=GATEWAY_NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

const GATEWAY_URI: &str = "crossdock:gateway:";

/// The gateway of that name.
pub(crate) fn gateway_uri(name: &str) -> String {
    format!("{GATEWAY_URI}{name}")
}

/// What a certificate that was verified says; `None` if it names no ensemble, or
/// several.
pub(crate) fn identity(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let (mut ensemble, mut roles) = (None, Vec::new());
    for name in certificate.valid_dns_names() {
        let Some(name) = name.strip_suffix(DOMAIN) else {
            continue;
        };
        let (role, digits) = match name.trim_end_matches('.').split_once('.') {
            Some((word, digits)) => (Role::from_word(word), digits),
            None => (None, name.trim_end_matches('.')),
        };
        let named = (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())??;
        if ensemble.is_some_and(|it| it != named) {
            return None;
        }
        ensemble = Some(named);
        roles.extend(role);
    }
    let gateways = certificate.valid_uri_names();
    let mut gateways = gateways.filter_map(|uri| uri.strip_prefix(GATEWAY_URI));
    let gateway = gateways.next().filter(|name| is_name(name));
    if gateways.next().is_some() {
        return None;
    }
    Some(Identity {
        ensemble: ensemble?,
        roles,
        gateway: gateway.map(Arc::from),
    })
}
