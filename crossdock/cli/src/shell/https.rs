//! HTTPS: the certificate of the HTTP door, and TLS between its machine and the sockets.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use crossdock_host::HostInput;
use crossdock_http::{ConnId, HttpInput};
use crossdock_net::{Driver, now};
use crossdock_secure::{WebCredentials, WebEffect, WebFailure, WebStream};
use crossdock_types::Time;
use tracing::{debug, error, info, warn};

use super::Shell;

/// How often the files are looked at, at most.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Encrypted bytes of a connection that the kernel has not taken.
const WINDOW_BYTES: usize = 256 << 10;

/// The same of all connections. With more, each has a record or what is left of one
/// and no more is encrypted ahead.
const WINDOWS_BYTES: usize = 64 << 20;

/// Certificate and key of the HTTP door.
pub(crate) struct Https {
    certificate: PathBuf,
    key: PathBuf,
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
    pub(crate) fn read((certificate, key): &(PathBuf, PathBuf)) -> anyhow::Result<Self> {
        let stamp = stamp(certificate, key).ok();
        Ok(Self {
            credentials: read(certificate, key)?,
            certificate: certificate.clone(),
            key: key.clone(),
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
        let stamp = stamp(&self.certificate, &self.key).ok();
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        match read(&self.certificate, &self.key) {
            Ok(credentials) => {
                info!(certificate = %self.certificate.display(), "took a new certificate for HTTPS");
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
    fn with(
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

impl Shell {
    /// Bytes of an HTTPS client, or their end.
    pub(super) fn receive_https(&mut self, name: ConnId, bytes: Option<&[u8]>) {
        self.act_https(name, |session| match bytes {
            Some(bytes) => session.receive(bytes),
            None => {
                session.peer_done();
                Ok(())
            }
        });
    }

    /// What the door says to an HTTPS client.
    pub(super) fn send_https(&mut self, name: ConnId, pieces: Vec<Bytes>) {
        self.act_https(name, |session| {
            session.send(pieces);
            Ok(())
        });
    }

    /// The door ends a connection behind what it has said. What its client still says is
    /// not read.
    pub(super) fn close_https(&mut self, name: ConnId) {
        self.on_http(name, Driver::pause_receive);
        self.act_https(name, |session| {
            session.end();
            Ok(())
        });
    }

    /// The kernel has taken so many encrypted bytes.
    pub(super) fn tell_https_sent(&mut self, name: ConnId, bytes: usize) {
        let mut plain_bytes = 0;
        self.act_https(name, |session| {
            plain_bytes = session.gone(bytes);
            Ok(())
        });
        if plain_bytes > 0 {
            self.give(HostInput::Http(HttpInput::Sent(name, plain_bytes)));
        }
    }

    /// Does something to a session and carries out what follows from it.
    fn act_https(
        &mut self,
        name: ConnId,
        act: impl FnOnce(&mut WebStream) -> Result<(), WebFailure>,
    ) {
        let Some((https, session)) = self.web.session(name) else {
            return;
        };
        let outcome = https.with(session, act);
        let (mut sealed, mut heard, mut has_ended) = (Vec::new(), Vec::new(), outcome.is_err());
        while let Some(effect) = session.poll_effect() {
            match effect {
                WebEffect::Transmit(bytes) => sealed.push(bytes),
                WebEffect::Received(bytes) => heard.push(HttpInput::Received(name, bytes)),
                WebEffect::PeerDone => heard.push(HttpInput::PeerDone(name)),
                WebEffect::Ended => has_ended = true,
            }
        }
        if let Err(failure) = outcome {
            debug!(connection = name.0, "no HTTPS: {failure}");
        }
        if !sealed.is_empty() {
            self.send_http(name, sealed);
        }
        for input in heard {
            self.give(HostInput::Http(input));
        }
        if has_ended {
            self.on_http(name, Driver::close);
        }
    }
}

fn stamp(certificate: &Path, key: &Path) -> std::io::Result<[Stamp; 2]> {
    let look = |path: &Path| {
        let it = fs::metadata(path)?;
        let changed = (it.ctime(), it.ctime_nsec());
        Ok::<_, std::io::Error>((it.dev(), it.ino(), changed.0, changed.1, it.len()))
    };
    Ok([look(certificate)?, look(key)?])
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<WebCredentials> {
    let texts = [
        text(certificate, "certificate", "--http-cert")?,
        text(key, "key", "--http-key")?,
    ];
    WebCredentials::new(&texts[0], &texts[1]).with_context(|| {
        format!(
            "the certificate {} and the key {} make no HTTPS server; name with --http-cert a PEM file with the server's own certificate first, and with --http-key one with its key",
            certificate.display(),
            key.display()
        )
    })
}

fn text(path: &Path, what: &str, flag: &str) -> anyhow::Result<String> {
    let text = fs::read(path).with_context(|| {
        format!(
            "cannot read the {what} of the HTTP door, {}; name it with {flag}, and let the account that this process runs as read it",
            path.display()
        )
    })?;
    let text = String::from_utf8(text).map_err(|_| std::io::Error::from(ErrorKind::InvalidData));
    text.with_context(|| {
        format!(
            "the {what} of the HTTP door, {}, is no PEM file; convert it with openssl, or name another one with {flag}",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use crossdock_secure::CredentialsError;

    use super::*;

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
        let files = (certificate.clone(), key.clone());
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
        assert_eq!(https.stamp, Some(stamp(&certificate, &key)?));
        Ok(())
    }
}
