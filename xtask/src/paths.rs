//! Where things lie in the checkout.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The folders that xtask reads and writes.
pub(crate) struct Paths {
    /// The checkout.
    pub(crate) root: PathBuf,
    /// What builds and tests produce.
    pub(crate) target: PathBuf,
}

impl Paths {
    /// Finds them from where xtask was built.
    pub(crate) fn find() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().context("xtask has no parent folder")?;
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map(|target| root.join(target))
            .unwrap_or_else(|| root.join("target"));
        Ok(Self {
            root: root.to_owned(),
            target,
        })
    }

    /// The server as `cargo build --release` leaves it.
    pub(crate) fn release_binary(&self) -> PathBuf {
        self.target.join("release/crossdock")
    }

    /// Programs that tests need and cargo builds.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// A program that tests need and that is installed for them.
    pub(crate) fn tool(&self, name: &str) -> PathBuf {
        self.tools().join("bin").join(name)
    }

    /// Logs of the last test run, one file per suite.
    pub(crate) fn logs(&self) -> PathBuf {
        self.target.join("test-logs")
    }

    /// Data of servers under test and the trees that clients copy.
    pub(crate) fn test_data(&self) -> PathBuf {
        self.target.join("test-data")
    }

    /// The unpacked guest kernel and its small root.
    pub(crate) fn guest(&self) -> PathBuf {
        self.target.join("guest")
    }

    /// `path` as words of the guest's kernel command line need it.
    pub(crate) fn plain(path: &Path) -> Result<&str> {
        let text = path.to_str().context("a folder's name is not UTF-8")?;
        ensure!(
            !text.contains([' ', ',', '"']),
            "the guest cannot see {text}: a space, comma or quote is in its name"
        );
        Ok(text)
    }
}
