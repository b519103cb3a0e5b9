//! The program with its HTTP door.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::ClientConfig;
use serde_json::Value;

use super::nodes;
use super::wire::{Answer, Wire};
use crate::process::{describe, open_log, program};
use crate::suite::Stage;
use crate::suite::certificate::Site;
use crate::suite::cli::program::{Up, crossdock, text};

/// How long a program may take for all that it is told, in seconds.
const CURL_SECONDS: &str = "60";

/// `crossdock up` with an HTTP door, and a token that may do everything.
pub(super) struct Web<'stage> {
    pub(super) stage: &'stage Stage<'stage>,
    pub(super) up: Up,
    /// Where it serves HTTP.
    pub(super) address: SocketAddr,
    /// Of user 0:0, for reading and writing everywhere.
    pub(super) token: String,
    /// If it serves HTTPS.
    pub(super) tls: Option<Tls>,
}

/// What is to know of a server that serves HTTPS.
pub(super) struct Tls {
    /// Of the certificate that it was started with.
    pub(super) site: Site,
    /// Where it reads certificate and key.
    pub(super) live: [PathBuf; 2],
    client: Arc<ClientConfig>,
}

impl<'stage> Web<'stage> {
    /// Starts it with data in a folder of that name, which begins empty.
    pub(super) fn start(stage: &'stage Stage<'stage>, name: &str, more: &[&str]) -> Result<Self> {
        Self::start_at(stage, name, more, None)
    }

    /// The same with HTTPS, under a certificate of its own.
    pub(super) fn start_https(
        stage: &'stage Stage<'stage>,
        name: &str,
        more: &[&str],
    ) -> Result<Self> {
        let folder = stage.folder.join(format!("{name}-certificates"));
        fs::create_dir_all(&folder)?;
        let site = Site::make(&folder, "first")?;
        let live = [folder.join("live.pem"), folder.join("live-key.pem")];
        site.install(&live)?;
        let client = site.client()?;
        Self::start_at(stage, name, more, Some(Tls { site, live, client }))
    }

    fn start_at(
        stage: &'stage Stage<'stage>,
        name: &str,
        more: &[&str],
        tls: Option<Tls>,
    ) -> Result<Self> {
        let data = stage.folder.join(name);
        let mut words = [&["up", "--data", text(&data)?], more].concat();
        if let Some(Tls { live, .. }) = &tls {
            let [certificate, key] = [text(&live[0])?, text(&live[1])?];
            words.extend(["--http-cert", certificate, "--http-key", key]);
            words.extend(["--node-http-cert", certificate, "--node-http-key", key]);
        }
        let free = "127.0.0.1:0";
        let up = Up::start_telling(stage, crossdock(stage, &words), free, free, "info")?;
        let made = up.ask(stage, &["token", "create", "--read", "--write"])?;
        let token = made.json(0)?["token"]
            .as_str()
            .context("no token")?
            .to_owned();
        let address = match (&tls, &up.https) {
            (Some(_), Some(address)) => address.parse()?,
            _ => up.http.context("no HTTP door")?,
        };
        Ok(Self {
            stage,
            address,
            up,
            token,
            tls,
        })
    }

    /// The URL of a path that is written as URLs write it.
    pub(super) fn url(&self, path: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// A field that shows the token.
    pub(super) fn authorization(&self) -> String {
        format!("Authorization: Bearer {}", self.token)
    }

    /// A file of the local file system, for clients.
    pub(super) fn local(&self, name: &str) -> PathBuf {
        self.stage.folder.join(name)
    }

    /// A connection of its own.
    pub(super) fn connect(&self) -> Result<Wire> {
        self.secured(Wire::connect(self.address)?)
    }

    /// With TLS over it, if that is what it serves.
    pub(super) fn secured(&self, wire: Wire) -> Result<Wire> {
        match &self.tls {
            Some(tls) => wire.secure(&tls.client),
            None => Ok(wire),
        }
    }

    /// Asks for a path over a connection of its own.
    pub(super) fn get(&self, path: &str) -> Result<Answer> {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    /// Sends a request over a connection of its own and returns the answer.
    pub(super) fn ask(&self, request: impl AsRef<[u8]>) -> Result<Answer> {
        let mut wire = self.connect()?;
        wire.send(request.as_ref())?;
        wire.answer()?.context("the connection ended")
    }

    /// Asks for a URL of a door of this server over a connection of its own.
    pub(super) fn ask_url(&self, method: &str, url: &str, fields: &str) -> Result<Answer> {
        let wire = self.secured(Wire::connect(nodes::parts(url)?.0)?)?;
        nodes::ask_over(wire, method, url, fields)
    }

    /// Puts a file; returns its entity tag.
    pub(super) fn put(&self, path: &str, content: &[u8]) -> Result<String> {
        let mut wire = self.connect()?;
        wire.send(self.put_head(path, content.len()).as_bytes())?;
        wire.send(content)?;
        let answer = wire.answer()?.context("the connection ended")?;
        ensure!(
            matches!(answer.status, 201 | 204),
            "PUT {path}: {}",
            answer.text()
        );
        Ok(answer.field("etag").context("no tag")?.to_owned())
    }

    /// The head of a request that puts a file, with the token.
    pub(super) fn put_head(&self, path: &str, bytes: usize) -> String {
        let shown = self.authorization();
        format!("PUT {path} HTTP/1.1\r\nHost: x\r\n{shown}\r\nContent-Length: {bytes}\r\n\r\n")
    }

    /// A fresh token.
    pub(super) fn make_token(&self, words: &[&str]) -> Result<Value> {
        let words = [&["token", "create"], words].concat();
        self.up.ask(self.stage, &words)?.json(0)
    }

    /// Runs curl to its end; returns what it printed.
    ///
    /// # Errors
    /// It ends with another code than 0.
    pub(super) fn curl<Word: AsRef<OsStr>>(&self, words: &[Word]) -> Result<Vec<u8>> {
        let mut curl = self.curl_command();
        curl.args(words);
        self.run(curl)
    }

    /// curl, which believes the server's certificate.
    pub(super) fn curl_command(&self) -> Command {
        let mut curl = program("curl");
        curl.args(["--silent", "--show-error", "--max-time", CURL_SECONDS]);
        if let Some(tls) = &self.tls {
            curl.arg("--cacert").arg(&tls.site.authority);
        }
        curl
    }

    /// Runs a program to its end; returns what it printed.
    ///
    /// # Errors
    /// It ends with another code than 0.
    pub(super) fn run(&self, mut command: Command) -> Result<Vec<u8>> {
        let name = describe(&command);
        let output = command
            .output()
            .with_context(|| format!("cannot start {name}"))?;
        let mut log = open_log(&self.stage.log)?;
        let said = String::from_utf8_lossy(&output.stderr);
        writeln!(log, "$ {name}\n{said}{}", output.status)?;
        ensure!(output.status.success(), "{name}: {}: {said}", output.status);
        Ok(output.stdout)
    }

    /// Memory that the process has now, in KiB.
    pub(super) fn resident_kib(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.up.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        Ok(kib.context("no VmRSS")?.parse()?)
    }

    /// Stops it; no thread of it has panicked.
    pub(super) fn stop(self) -> Result<()> {
        let log = self.up.stop()?;
        let panicked = log
            .iter()
            .find(|line| line.to_string().contains("panicked"));
        ensure!(panicked.is_none(), "a thread has panicked: {panicked:?}");
        Ok(())
    }
}

/// Whether two files have the same bytes.
pub(super) fn expect_same(path: &Path, expected: &[u8]) -> Result<()> {
    let found = fs::read(path)?;
    let first = found
        .iter()
        .zip(expected)
        .position(|(one, other)| one != other);
    ensure!(
        found == expected,
        "{} has {} bytes instead of {}; the first wrong one is {first:?}",
        path.display(),
        found.len(),
        expected.len()
    );
    Ok(())
}
