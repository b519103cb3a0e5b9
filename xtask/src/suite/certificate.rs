//! Certificates for a server that is reached as 127.0.0.1, each of an authority of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Certificate and key of a server, and the authority that its clients know.
pub(in crate::suite) struct Site {
    pub(in crate::suite) authority: PathBuf,
    pub(in crate::suite) certificate: PathBuf,
    pub(in crate::suite) key: PathBuf,
}

impl Site {
    /// Makes one, as PEM files in `folder`.
    pub(in crate::suite) fn make(folder: &Path, name: &str) -> Result<Self> {
        let mut params = params_of(&format!("{name} authority"), Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let params = params_of(name, vec!["127.0.0.1".to_owned()])?;
        let certificate = params.signed_by(&key, &issuer)?;
        let write = |part: &str, pem: &str| {
            let path = folder.join(format!("{name}-{part}.pem"));
            fs::write(&path, pem)?;
            Ok::<_, anyhow::Error>(path)
        };
        Ok(Self {
            authority: write("ca", &issuer.pem())?,
            certificate: write("certificate", &certificate.pem())?,
            key: write("key", &key.serialize_pem())?,
        })
    }

    /// Puts its files where the server reads them, each at once.
    pub(in crate::suite) fn install(&self, live: &[PathBuf; 2]) -> Result<()> {
        for (from, to) in [&self.certificate, &self.key].into_iter().zip(live) {
            let fresh = to.with_extension("fresh");
            fs::copy(from, &fresh)?;
            fs::rename(&fresh, to)?;
        }
        Ok(())
    }

    /// A client that believes its authority, and no other.
    pub(in crate::suite) fn client(&self) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.authority)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

/// Whoever has the name of its issuer would pass for one that has signed itself.
fn params_of(name: &str, addresses: Vec<String>) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(addresses)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}
