//! The ensemble's certificate authority: it says who is a part of the ensemble.

use crossdock_link::Role;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SignatureAlgorithm,
};
use time::OffsetDateTime;

use crate::credentials::CredentialsError;
use crate::join::PUBLIC_KEY_BYTES;
use crate::names::{ensemble_name, gateway_uri, role_name};
use crate::{Credentials, Fingerprint};

/// How long a host's certificate holds: a year.
const CERTIFICATE_SECONDS: i64 = 365 * 24 * 3600;

/// How long the authority's own holds: 20 years.
const AUTHORITY_SECONDS: i64 = 20 * CERTIFICATE_SECONDS;

/// What the clocks of hosts may differ by.
const SKEW_SECONDS: i64 = 3600;

/// A key pair of a host, and its certificate once it has one.
pub struct KeyMaterial {
    pair: KeyPair,
}

/// Whoever has it can make members of the ensemble.
pub struct Authority {
    ensemble: u64,
    certificate_pem: String,
    pair: KeyPair,
}

impl KeyMaterial {
    /// A new key, from the system's random numbers.
    ///
    /// # Errors
    /// [`CredentialsError::Library`]: the system has none.
    pub fn generate() -> Result<Self, CredentialsError> {
        Ok(Self {
            pair: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
        })
    }

    /// What may be shown to everybody.
    ///
    /// # Errors
    /// [`CredentialsError::Library`]: it is not of the kind that Crossdock makes.
    pub fn public_key(&self) -> Result<[u8; PUBLIC_KEY_BYTES], CredentialsError> {
        let point = self.pair.public_key_raw().try_into();
        point.map_err(|_| CredentialsError::Library("no P-256 key".to_owned()))
    }

    /// The secret, as a file holds it.
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.pair.serialize_pem()
    }
}

impl Authority {
    /// A new one for an ensemble; `now` in seconds since 1970.
    ///
    /// # Errors
    /// [`CredentialsError::Library`]: no random numbers, or no such time.
    pub fn create(ensemble: u64, now: i64) -> Result<Self, CredentialsError> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = authority_params(ensemble);
        hold(&mut params, now, AUTHORITY_SECONDS)?;
        Ok(Self {
            ensemble,
            certificate_pem: params.self_signed(&pair)?.pem(),
            pair,
        })
    }

    /// The one of an ensemble that its files hold.
    ///
    /// # Errors
    /// [`CredentialsError`]: they are no PEM, or the key is not that of the certificate.
    pub fn load(
        ensemble: u64,
        certificate_pem: &str,
        key_pem: &str,
        now: i64,
    ) -> Result<Self, CredentialsError> {
        let pair = KeyPair::from_pem(key_pem).map_err(|_| CredentialsError::NoKey)?;
        let authority = Self {
            ensemble,
            certificate_pem: certificate_pem.to_owned(),
            pair,
        };
        // What it signs must hold under its certificate.
        let probe = KeyMaterial::generate()?;
        let signed = authority.issue(Role::Manager, None, &probe.public_key()?, now)?;
        Credentials::new(ensemble, certificate_pem, &signed, &probe.to_pem())?;
        Ok(authority)
    }

    /// A certificate for a host's public key, as PEM; `gateway` is what a gateway is
    /// called; `now` in seconds since 1970.
    ///
    /// # Errors
    /// [`CredentialsError::Library`]: there is no such time, or the name cannot be written.
    pub fn issue(
        &self,
        role: Role,
        gateway: Option<&str>,
        public_key: &[u8; PUBLIC_KEY_BYTES],
        now: i64,
    ) -> Result<String, CredentialsError> {
        let names = [ensemble_name(self.ensemble), role_name(self.ensemble, role)];
        let mut params = CertificateParams::new(names)?;
        if let Some(name) = gateway {
            let uri = gateway_uri(name).try_into()?;
            params.subject_alt_names.push(SanType::URI(uri));
        }
        params.distinguished_name = called(&format!("crossdock {}", role.word()));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        hold(&mut params, now, CERTIFICATE_SECONDS)?;
        let issuer = Issuer::new(authority_params(self.ensemble), &self.pair);
        Ok(params.signed_by(&Point(public_key), &issuer)?.pem())
    }

    /// What everybody knows the authority by.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The secret, as a file holds it.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.pair.serialize_pem()
    }

    /// What tokens name it by.
    ///
    /// # Errors
    /// [`CredentialsError::NoCertificate`].
    pub fn fingerprint(&self) -> Result<Fingerprint, CredentialsError> {
        Fingerprint::of_pem(&self.certificate_pem)
    }
}

/// A public key of P-256, uncompressed (SEC 1, 2.3.3).
struct Point<'a>(&'a [u8; PUBLIC_KEY_BYTES]);

impl PublicKeyData for Point<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// It signs hosts of its own ensemble, and no further authorities.
fn authority_params(ensemble: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = called(&format!("crossdock ensemble {ensemble:016x}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName(ensemble_name(ensemble))],
        excluded_subtrees: Vec::new(),
    });
    params
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

fn hold(params: &mut CertificateParams, now: i64, seconds: i64) -> Result<(), CredentialsError> {
    let at = |seconds: i64| {
        let time = OffsetDateTime::from_unix_timestamp(seconds);
        time.map_err(|error| CredentialsError::Library(error.to_string()))
    };
    params.not_before = at(now.saturating_sub(SKEW_SECONDS))?;
    params.not_after = at(now.saturating_add(seconds))?;
    Ok(())
}
