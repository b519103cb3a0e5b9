//! Files of keys and certificates.
//!
//! ```text
//! --identity DIR   ca.pem, certificate.pem, key.pem   of a process; its own
//! --ca DIR         ca.pem, ca-key.pem                 of the ensemble's authority
//! ```
//!
//! What is secret is readable for its owner only. A process reads its files again
//! when they have changed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use crossdock_link::Role;
use crossdock_members::State;
use crossdock_secure::{Authority, Credentials, KeyMaterial};
use tracing::info;

use crate::config::{Transport, TransportSettings};
use crate::joining;

/// A certificate is renewed, or its end is told, so many seconds before: 30 days.
pub(crate) const RENEW_SECONDS: u64 = 30 * 24 * 3600;

/// The directory of a process's identity.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    directory: PathBuf,
}

/// When and how long the files were: whether they have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp([(u64, i64, i64, u64); 3]);

impl Identity {
    pub(crate) fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Whether there is a certificate, of whatever kind.
    fn exists(&self) -> bool {
        self.path("certificate.pem").exists()
    }

    /// Reads them.
    ///
    /// # Errors
    /// Which file is wrong, and what to do.
    pub(crate) fn read(&self, ensemble: u64) -> anyhow::Result<Credentials> {
        let [authority, certificate, key] =
            ["ca.pem", "certificate.pem", "key.pem"].map(|name| read(&self.path(name)));
        let credentials = Credentials::new(ensemble, &authority?, &certificate?, &key?);
        credentials.with_context(|| {
            format!(
                "the certificate in {} cannot be used; get another one with `crossdock cluster join --identity {0}`",
                self.directory.display()
            )
        })
    }

    /// What a changed file changes.
    ///
    /// # Errors
    /// A file cannot be looked at.
    pub(crate) fn stamp(&self) -> std::io::Result<Stamp> {
        let look = |name| {
            let it = fs::metadata(self.path(name))?;
            Ok::<_, std::io::Error>((it.ino(), it.mtime(), it.mtime_nsec(), it.len()))
        };
        Ok(Stamp([
            look("ca.pem")?,
            look("certificate.pem")?,
            look("key.pem")?,
        ]))
    }

    /// Puts a new key and certificate in the place of what was there.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub(crate) fn write(
        &self,
        authority: &str,
        certificate: &str,
        key: &KeyMaterial,
    ) -> anyhow::Result<()> {
        make_private(&self.directory)?;
        // Whoever reads between two of them finds what does not fit, and reads again.
        replace(&self.path("key.pem"), &key.to_pem())?;
        replace(&self.path("ca.pem"), authority)?;
        replace(&self.path("certificate.pem"), certificate)
    }

    /// Whom a process that has joined has believed since: the registry must not name
    /// another one.
    fn check_authority(&self, known: &str) -> anyhow::Result<()> {
        match fs::read_to_string(self.path("ca.pem")) {
            Ok(ours) if ours == known => Ok(()),
            Ok(_) => bail!(
                "the authority in {} is not the one that the registry names: the directory is of another ensemble, or somebody has changed the registry; if the ensemble was made anew, remove the directory and join again with a token",
                self.path("ca.pem").display()
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("cannot read {}", self.path("ca.pem").display()))
            }
        }
    }
}

/// Whom a certificate is for.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) role: Role,
    /// What a gateway is called.
    pub(crate) gateway: Option<String>,
}

/// What a process of an ensemble shows of itself, and the authority if it has it.
pub(crate) struct Prepared {
    pub(crate) identity: Identity,
    pub(crate) credentials: Credentials,
    pub(crate) authority: Option<Authority>,
}

impl Prepared {
    /// What the certificate calls a gateway.
    pub(crate) fn gateway(&self) -> Option<String> {
        self.credentials
            .identity()
            .gateway
            .as_deref()
            .map(str::to_owned)
    }
}

/// Sees to it that a process can talk as its ensemble does; `None`: in the clear. May
/// ask a manager for a certificate.
///
/// # Errors
/// What is missing or does not fit, and what to do.
pub(crate) fn prepare(
    settings: &TransportSettings,
    name: &str,
    holder: &Holder,
    registry: &crossdock_etcd::Config,
    state: &State,
) -> anyhow::Result<Option<Prepared>> {
    let role = holder.role;
    let Some(trust) = &state.trust else {
        if settings.transport == Some(Transport::Tls) || settings.identity.is_some() {
            bail!(
                "the ensemble {name} talks in the clear: leave --transport tls and --identity away, or make an ensemble with `crossdock cluster init --transport tls --ca DIR`"
            );
        }
        return Ok(None);
    };
    let word = role.word();
    if settings.transport == Some(Transport::Plain) {
        bail!(
            "the ensemble {name} talks over TLS: say --transport tls --identity DIR, and get a certificate with a token of `crossdock cluster token create --role {word}`"
        );
    }
    let Some(directory) = &settings.identity else {
        bail!(
            "the ensemble {name} talks over TLS: name a directory for this process's key and certificate with --identity DIR, and say --token TOKEN the first time; `crossdock cluster token create --role {word}` makes one"
        );
    };
    let identity = Identity::at(directory);
    identity.check_authority(&trust.authority)?;
    let authority = settings.ca.as_deref();
    let authority = authority.map(|ca| read_authority(ca, state)).transpose()?;
    let obtain = || match (&authority, &settings.token) {
        (Some(authority), _) => sign(authority, role, &identity),
        (None, Some(token)) => joining::join(registry, &token.0.parse()?, holder, &identity),
        (None, None) => bail!(
            "there is no certificate in {} that holds: make a token with `crossdock cluster token create --role {word}`, and start this process with --token TOKEN",
            directory.display()
        ),
    };
    // Managers with the authority need nobody to renew theirs.
    let ahead = authority.as_ref().map_or(0, |_| RENEW_SECONDS);
    if !identity.exists() || identity.read(state.ensemble)?.ends() <= seconds() + ahead {
        obtain()?;
    }
    let credentials = identity.read(state.ensemble)?;
    let roles = &credentials.identity().roles;
    if !roles.contains(&role) {
        let words: Vec<&str> = roles.iter().map(|role| role.word()).collect();
        bail!(
            "the certificate in {} is for a {}, this is a {word}: name another directory with --identity, or get another one with `crossdock cluster join --role {word}`",
            directory.display(),
            words.join(", ")
        );
    }
    let certified = credentials.identity().gateway.as_deref();
    if role == Role::Gateway && certified.is_none() {
        bail!(
            "the certificate in {} does not name its gateway: get another one with `crossdock cluster join --role gateway`",
            directory.display()
        );
    }
    let days_left = credentials.ends().saturating_sub(seconds()) / (24 * 3600);
    info!(identity = %directory.display(), days_left, "talks over TLS");
    Ok(Some(Prepared {
        identity,
        credentials,
        authority,
    }))
}

/// A certificate of this process's own authority.
fn sign(authority: &Authority, role: Role, identity: &Identity) -> anyhow::Result<()> {
    let key = KeyMaterial::generate()?;
    let certificate = authority.issue(role, None, &key.public_key()?, time(seconds())?)?;
    identity.write(authority.certificate_pem(), &certificate, &key)
}

/// Makes the authority of a new ensemble, and its files.
///
/// # Errors
/// There is one in the directory already, or it cannot be written to.
pub(crate) fn make_authority(directory: &Path, ensemble: u64) -> anyhow::Result<Authority> {
    let path = directory.join("ca-key.pem");
    if path.exists() {
        bail!(
            "there is an authority in {} already: name another directory with --ca",
            directory.display()
        );
    }
    let authority = Authority::create(ensemble, time(seconds())?)?;
    make_private(directory)?;
    replace(&path, &authority.key_pem())?;
    replace(&directory.join("ca.pem"), authority.certificate_pem())?;
    Ok(authority)
}

/// Removes what [`make_authority`] has made.
///
/// # Errors
/// The system's.
pub(crate) fn forget_authority(directory: &Path) -> anyhow::Result<()> {
    for name in ["ca-key.pem", "ca.pem"] {
        let path = directory.join(name);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

fn read_authority(directory: &Path, state: &State) -> anyhow::Result<Authority> {
    let certificate = read(&directory.join("ca.pem"))?;
    let key = read(&directory.join("ca-key.pem"))?;
    let known = state.trust.as_ref().map(|trust| trust.authority.as_str());
    if known != Some(&certificate) {
        bail!(
            "the authority in {} is of another ensemble: name with --ca the directory that `crossdock cluster init` has made for this one",
            directory.display()
        );
    }
    let authority = Authority::load(state.ensemble, &certificate, &key, time(seconds())?);
    authority.with_context(|| format!("the authority in {} cannot be used", directory.display()))
}

/// Seconds since 1970.
pub(crate) fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

pub(crate) fn time(seconds: u64) -> anyhow::Result<i64> {
    Ok(i64::try_from(seconds)?)
}

/// A text file, e.g. in PEM.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A directory that nobody else looks into.
fn make_private(directory: &Path) -> anyhow::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let made = builder.create(directory);
    made.with_context(|| format!("cannot make the directory {}", directory.display()))
}

/// Writes a file for its owner only; after a crash the old one or the new one is there.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    let write = || {
        // One that a crash has left has rights of its own.
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        let directory = path.parent().unwrap_or(path);
        File::open(directory)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Goal: nobody but the owner reads keys; files that were replaced are noticed, and
    /// an authority is never written over.
    #[test]
    fn secrets_are_the_owners() -> anyhow::Result<()> {
        let name = format!("crossdock-identity-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let outcome = keep_secrets(&folder);
        fs::remove_dir_all(&folder)?;
        outcome
    }

    fn keep_secrets(folder: &Path) -> anyhow::Result<()> {
        let mode = |path: &Path| fs::metadata(path).map(|it| it.permissions().mode() & 0o777);
        let ca = folder.join("ca");
        let authority = make_authority(&ca, 7)?;
        assert_eq!(mode(&ca.join("ca-key.pem"))?, 0o600);
        assert_eq!(mode(&ca)?, 0o700);
        let again = make_authority(&ca, 7).err().map(|error| error.to_string());
        assert!(again.is_some_and(|it| it.contains("already")));
        let identity = Identity::at(&folder.join("node"));
        assert!(!identity.exists());
        let mut stamps = Vec::new();
        for _ in 0..2 {
            let key = KeyMaterial::generate()?;
            let certificate =
                authority.issue(Role::Node, None, &key.public_key()?, time(seconds())?)?;
            identity.write(authority.certificate_pem(), &certificate, &key)?;
            assert_eq!(identity.read(7)?.identity().roles, [Role::Node]);
            assert_eq!(mode(&identity.path("key.pem"))?, 0o600);
            stamps.push(identity.stamp()?);
        }
        assert!(stamps[0] != stamps[1] && identity.stamp()? == stamps[1]);
        assert!(identity.check_authority("another").is_err());
        identity.check_authority(authority.certificate_pem())
    }
}
