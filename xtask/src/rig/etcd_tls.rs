//! Certificates by which members of etcd and their clients know each other.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// The files, in PEM.
pub(crate) struct EtcdTls {
    /// The certificate of the authority.
    pub(crate) ca: PathBuf,
    /// Certificate and key of all members.
    pub(crate) server: (PathBuf, PathBuf),
    /// Certificate and key of whoever is let in.
    pub(crate) client: (PathBuf, PathBuf),
}

impl EtcdTls {
    /// Makes them for members on loopback.
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let ca = folder.join("etcd-ca.pem");
        fs::write(&ca, authority.pem())?;
        let make = |name: &str| {
            let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
            // Members ask themselves, too.
            params.extended_key_usages = vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ];
            let key = KeyPair::generate()?;
            let [certificate, secret] =
                ["", "-key"].map(|part| folder.join(format!("etcd-{name}{part}.pem")));
            fs::write(&certificate, params.signed_by(&key, &authority)?.pem())?;
            fs::write(&secret, key.serialize_pem())?;
            Ok::<_, anyhow::Error>((certificate, secret))
        };
        Ok(Self {
            ca,
            server: make("server")?,
            client: make("client")?,
        })
    }

    /// What a member is told.
    pub(crate) fn of_member(&self) -> Vec<PathBuf> {
        let (certificate, key) = self.server.clone();
        vec![
            "--client-cert-auth".into(),
            "--trusted-ca-file".into(),
            self.ca.clone(),
            "--cert-file".into(),
            certificate,
            "--key-file".into(),
            key,
        ]
    }

    /// What etcdctl is told.
    pub(crate) fn of_client(&self) -> Vec<PathBuf> {
        let (certificate, key) = self.client.clone();
        vec![
            "--cacert".into(),
            self.ca.clone(),
            "--cert".into(),
            certificate,
            "--key".into(),
            key,
        ]
    }
}
