//! What a host shows of itself, and by what it judges others.

use std::sync::Arc;
use std::time::Duration;

use crossdock_link::{Identity, Role};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;

use crate::names::{ensemble_name, identity, role_name};
use crate::stream::Stream;
use crate::{Failure, Fingerprint, JOIN_PROTOCOL, LINK_PROTOCOL};

/// The last second of the year 9999: by then every certificate has ended.
const END_OF_TIME: u64 = 253_402_300_799;

/// Why files do not make credentials.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// Nothing that begins with `-----BEGIN CERTIFICATE-----`.
    #[error("it holds no certificate in PEM")]
    NoCertificate,
    /// Nothing that begins with `-----BEGIN PRIVATE KEY-----`.
    #[error("it holds no private key in PEM")]
    NoKey,
    /// The certificate is of another authority.
    #[error("the certificate is not of this ensemble's authority")]
    OtherAuthority,
    /// It names no ensemble, or another one.
    #[error("the certificate is not for this ensemble")]
    OtherEnsemble,
    /// Certificate and key are not of one pair.
    #[error("the key is not that of the certificate")]
    OtherKey,
    /// What the TLS library says.
    #[error("{0}")]
    Library(String),
}

impl From<rcgen::Error> for CredentialsError {
    fn from(error: rcgen::Error) -> Self {
        Self::Library(error.to_string())
    }
}

impl From<rustls::Error> for CredentialsError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InconsistentKeys(_) => Self::OtherKey,
            error => Self::Library(error.to_string()),
        }
    }
}

/// A host's certificate and key, and the authority by which it judges others.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// What the certificate of whoever is connected to has to name.
    pub(crate) expected: ServerName<'static>,
    identity: Identity,
    ends: u64,
}

impl Credentials {
    /// Those of PEM texts. A certificate that has ended is taken: others will say so.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub fn new(
        ensemble: u64,
        authority_pem: &str,
        certificate_pem: &str,
        key_pem: &str,
    ) -> Result<Self, CredentialsError> {
        let roots = roots(authority_pem)?;
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes());
        let certificate = certificate.map_err(|_| CredentialsError::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes());
        let key = key.map_err(|_| CredentialsError::NoKey)?;
        let ends = ends(&certificate, &roots)?;
        let identity = identity(&certificate).filter(|it| it.ensemble == ensemble);
        let identity = identity.ok_or(CredentialsError::OtherEnsemble)?;
        let chain = vec![certificate];

        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain.clone(), key.clone_key())?;
        quieten(&mut client, LINK_PROTOCOL);
        // A process that joins has no certificate yet. Whether one that wants a link
        // has one is asked by the link: it can say so in words.
        let judge = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .allow_unauthenticated()
            .build()
            .map_err(|error| CredentialsError::Library(error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(judge)
            .with_single_cert(chain, key)?;
        server.alpn_protocols = vec![LINK_PROTOCOL.to_vec(), JOIN_PROTOCOL.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
            expected: server_name(ensemble_name(ensemble))?,
            identity,
            ends,
        })
    }

    /// What the certificate says of its holder.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// When the certificate ends, in seconds since 1970.
    #[must_use]
    pub const fn ends(&self) -> u64 {
        self.ends
    }
}

/// The side that joins: talks to a manager of the ensemble whose authority that is, and
/// shows no certificate.
///
/// # Errors
/// [`CredentialsError`].
pub fn join_client(ensemble: u64, authority_pem: &str) -> Result<Stream, CredentialsError> {
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots(authority_pem)?)
        .with_no_client_auth();
    quieten(&mut client, JOIN_PROTOCOL);
    let manager = server_name(role_name(ensemble, Role::Manager))?;
    Ok(Stream::begin(Arc::new(client), manager)?)
}

/// Whether a certificate is the one that a token names.
///
/// # Errors
/// [`Failure::Fingerprint`]: it is not. Nothing may be sent to its holder.
pub fn check_fingerprint(authority_pem: &str, expected: &Fingerprint) -> Result<(), Failure> {
    match Fingerprint::of_pem(authority_pem) {
        Ok(found) if found == *expected => Ok(()),
        _ => Err(Failure::Fingerprint),
    }
}

/// Each connection is judged anew, by the certificates of that moment; and nobody who
/// listens is told whom it is for.
fn quieten(client: &mut ClientConfig, protocol: &[u8]) {
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    client.alpn_protocols = vec![protocol.to_vec()];
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn server_name(name: String) -> Result<ServerName<'static>, CredentialsError> {
    let name = ServerName::try_from(name);
    name.map_err(|error| CredentialsError::Library(error.to_string()))
}

fn roots(authority_pem: &str) -> Result<Arc<RootCertStore>, CredentialsError> {
    let authority = CertificateDer::from_pem_slice(authority_pem.as_bytes());
    let authority = authority.map_err(|_| CredentialsError::NoCertificate)?;
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    Ok(Arc::new(roots))
}

/// When a certificate of the authority ends: the library tells, if it is asked at a time
/// at which it surely has.
fn ends(certificate: &CertificateDer<'_>, roots: &RootCertStore) -> Result<u64, CredentialsError> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    let algorithms = provider().signature_verification_algorithms;
    let verify = |at: u64| {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            roots,
            &[],
            at,
            algorithms.all,
        )
    };
    let ends = match verify(END_OF_TIME) {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            not_after,
            ..
        })) => not_after.as_secs(),
        Ok(()) => END_OF_TIME,
        Err(error) => return Err(error.into()),
    };
    match verify(ends) {
        Ok(()) => Ok(ends),
        Err(_) => Err(CredentialsError::OtherAuthority),
    }
}
