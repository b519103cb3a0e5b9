//! HTTPS: the certificate of a door, and how far ahead of the kernel it encrypts.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use crossdock_net::now;
use crossdock_secure::{WebCredentials, WebFailure, WebStream};
use crossdock_types::Time;
use serde::Serialize;
use tracing::{error, info, warn};

/// How often the files are looked at, at most.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Encrypted bytes of a connection that the kernel has not taken.
const WINDOW_BYTES: usize = 256 << 10;

/// The same of all connections. With more, each has a record or what is left of one
/// and no more is encrypted ahead.
const WINDOWS_BYTES: usize = 64 << 20;

/// Certificate and key of a door, and where they are named.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// The option of the door itself: those of the files begin with it.
    #[serde(skip)]
    pub(crate) door: &'static str,
}

impl TlsFiles {
    /// Both or none of them.
    ///
    /// # Errors
    /// Only one was named.
    pub(crate) fn of(
        door: &'static str,
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> Result<Option<Self>, String> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some(Self {
                certificate,
                key,
                door,
            })),
            (None, None) => Ok(None),
            _ => Err(format!(
                "HTTPS needs both {door}-cert and {door}-key; leave both away for HTTP"
            )),
        }
    }
}

/// HTTPS of a door.
pub(crate) struct Https {
    files: TlsFiles,
    credentials: WebCredentials,
    /// The files as they were read last; `None`: they could not be looked at.
    stamp: Option<[Stamp; 2]>,
    looked: Time,
    /// Encrypted bytes of all connections that the kernel has not taken.
    sealed_bytes: usize,
}

/// Device, inode, change time and length: whether a file has changed.
type Stamp = (u64, u64, i64, i64, u64);

impl Https {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file is wrong, and what to do.
    pub(crate) fn read(files: &TlsFiles) -> anyhow::Result<Self> {
        let stamp = stamp(files).ok();
        Ok(Self {
            credentials: read(files)?,
            files: files.clone(),
            stamp,
            looked: now(),
            sealed_bytes: 0,
        })
    }

    /// A session for somebody who has connected.
    pub(super) fn accept(&mut self) -> Option<WebStream> {
        self.reload();
        let session = WebStream::accept(&self.credentials);
        session
            .inspect_err(|failure| warn!("cannot begin an HTTPS session: {failure}"))
            .ok()
    }

    /// Reads the files again if they have changed; keeps what it has if they are of no
    /// use. What they become is said once.
    fn reload(&mut self) {
        let time = now();
        if time < self.looked + LOOK_PAUSE {
            return;
        }
        self.looked = time;
        let stamp = stamp(&self.files).ok();
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        match read(&self.files) {
            Ok(credentials) => {
                info!(certificate = %self.files.certificate.display(), "took a new certificate for HTTPS");
                self.credentials = credentials;
            }
            Err(reason) => {
                error!("HTTPS goes on with the certificate that it has: {reason:#}");
            }
        }
    }

    /// How far ahead of the kernel a connection encrypts.
    const fn window_bytes(&self) -> usize {
        match self.sealed_bytes < WINDOWS_BYTES {
            true => WINDOW_BYTES,
            false => 1,
        }
    }

    /// Does something to a session, and encrypts what it has to say.
    pub(super) fn with(
        &mut self,
        session: &mut WebStream,
        act: impl FnOnce(&mut WebStream) -> Result<(), WebFailure>,
    ) -> Result<(), WebFailure> {
        let before = session.sealed_bytes();
        let outcome = act(session);
        let window_bytes = self.window_bytes();
        let outcome = outcome.and_then(|()| session.seal(window_bytes));
        self.sealed_bytes = self.sealed_bytes - before + session.sealed_bytes();
        outcome
    }

    /// A session is over.
    pub(super) const fn forget(&mut self, session: &WebStream) {
        self.sealed_bytes -= session.sealed_bytes();
    }
}

fn stamp(files: &TlsFiles) -> std::io::Result<[Stamp; 2]> {
    let look = |path: &Path| {
        let it = fs::metadata(path)?;
        let changed = (it.ctime(), it.ctime_nsec());
        Ok::<_, std::io::Error>((it.dev(), it.ino(), changed.0, changed.1, it.len()))
    };
    Ok([look(&files.certificate)?, look(&files.key)?])
}

fn read(files: &TlsFiles) -> anyhow::Result<WebCredentials> {
    let TlsFiles {
        certificate,
        key,
        door,
    } = files;
    let texts = [
        text(certificate, "certificate", &format!("{door}-cert"))?,
        text(key, "key", &format!("{door}-key"))?,
    ];
    WebCredentials::new(&texts[0], &texts[1]).with_context(|| {
        format!(
            "the certificate {} and the key {} make no HTTPS server; name with {door}-cert a PEM file with the server's own certificate first, and with {door}-key one with its key",
            certificate.display(),
            key.display()
        )
    })
}

fn text(path: &Path, what: &str, flag: &str) -> anyhow::Result<String> {
    let text = fs::read(path).with_context(|| {
        format!(
            "cannot read the {what} of an HTTP door, {}; name it with {flag}, and let the account that this process runs as read it",
            path.display()
        )
    })?;
    let text = String::from_utf8(text).map_err(|_| std::io::Error::from(ErrorKind::InvalidData));
    text.with_context(|| {
        format!(
            "the {what} of an HTTP door, {}, is no PEM file; convert it with openssl, or name another one with {flag}",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use crossdock_secure::CredentialsError;

    use super::*;

    /// Goal: a certificate without its key is refused, with the options of the door that lacks
    /// it.
    #[test]
    fn a_certificate_takes_a_key() {
        let file = || Some(PathBuf::from("c.pem"));
        let files = |certificate, key| TlsFiles::of("--node-http", certificate, key);
        assert!(files(None, None).is_ok_and(|files| files.is_none()));
        assert!(files(file(), file()).is_ok_and(|files| files.is_some()));
        for said in [files(file(), None), files(None, file())] {
            let said = said.expect_err("one of two");
            assert!(
                said.contains("--node-http-cert and --node-http-key"),
                "{said}"
            );
        }
    }

    /// Goal: files that changed are read, once, and those that are of no use leave what
    /// was there.
    #[test]
    fn a_certificate_is_replaced_only_by_a_good_one() -> anyhow::Result<()> {
        let folder = std::env::temp_dir().join(format!("crossdock-https-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let outcome = replace_files(&folder);
        fs::remove_dir_all(&folder)?;
        outcome
    }

    fn replace_files(folder: &Path) -> anyhow::Result<()> {
        let [certificate, key] = ["c.pem", "k.pem"].map(|name| folder.join(name));
        let pair = || {
            let made = crossdock_secure::KeyMaterial::generate()?;
            let authority = crossdock_secure::Authority::create(1, 1_700_000_000)?;
            let role = crossdock_link::Role::Gateway;
            let issued = authority.issue(role, None, &made.public_key()?, 1_700_000_000)?;
            Ok::<_, CredentialsError>((issued, made.to_pem()))
        };
        let (one, other) = (pair()?, pair()?);
        fs::write(&certificate, &one.0)?;
        let files = TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            door: "--http",
        };
        let said = Https::read(&files)
            .map(|_| ())
            .map_err(|it| format!("{it:#}"));
        let said = said.expect_err("no key");
        assert!(
            said.contains("k.pem") && said.contains("--http-key"),
            "{said}"
        );
        fs::write(&key, &other.1)?;
        let said = Https::read(&files)
            .map(|_| ())
            .map_err(|it| format!("{it:#}"));
        let said = said.expect_err("another's key");
        assert!(said.contains("is not that of the certificate"), "{said}");
        fs::write(&key, &one.1)?;

        let mut https = Https::read(&files)?;
        let before = https.stamp;
        let look = |https: &mut Https| {
            https.looked = Time::default();
            https.reload();
        };
        fs::write(&certificate, "nothing of use")?;
        look(&mut https);
        assert_ne!(https.stamp, before);
        fs::remove_file(&certificate)?;
        look(&mut https);
        assert_eq!(https.stamp, None);
        assert!(https.accept().is_some());
        fs::write(&certificate, &other.0)?;
        fs::write(&key, &other.1)?;
        look(&mut https);
        assert_eq!(https.stamp, Some(stamp(&files)?));
        Ok(())
    }
}
