//! HTTPS of a running server: what a client gets by it, certificates that change under it,
//! and files that make no server.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::program::{Finished, Up, crossdock, finish, finish_command, text};
use crate::process::program;
use crate::suite::Stage;
use crate::suite::certificate::Site;

/// What curl says of a certificate that it does not believe.
const CURL_UNTRUSTED: i32 = 60;

/// Of several records and windows, and of no even length.
const CONTENT_BYTES: usize = (5 << 20) + 7;

/// A client and a server that is given certificates.
struct Case<'a> {
    stage: &'a Stage<'a>,
    folder: PathBuf,
}

/// HTTPS carries requests of TLS 1.2 and 1.3; a new certificate is taken without a restart,
/// a bad one is not; what makes no server is refused at the start.
pub(super) fn serve(stage: &Stage<'_>) -> Result<()> {
    let folder = stage.folder.join("https");
    fs::create_dir_all(&folder)?;
    let case = Case { stage, folder };
    let (first, second) = (
        Site::make(&case.folder, "first")?,
        Site::make(&case.folder, "second")?,
    );
    case.refusals(&first, &second)?;
    let live = [
        case.folder.join("live.pem"),
        case.folder.join("live-key.pem"),
    ];
    first.install(&live)?;
    let up = case.start(&live)?;
    case.transfers(&up, &first)?;
    case.certificates(&up, &live, &first, &second)?;
    let log = up.stop()?;
    let says = |level: &str, words: &str| {
        let line = |it: &Value| it["level"] == level && it["fields"].to_string().contains(words);
        ensure!(log.iter().any(line), "no {level} with {words:?}");
        Ok(())
    };
    says("INFO", "took a new certificate for HTTPS")?;
    says("ERROR", "HTTPS goes on with the certificate that it has")
}

impl Case<'_> {
    fn start(&self, [certificate, key]: &[PathBuf; 2]) -> Result<Up> {
        let data = self.folder.join("data");
        let arguments = ["up", "--nodes", "2", "--data", text(&data)?];
        let mut command = crossdock(self.stage, &arguments);
        command.arg("--http-cert").arg(certificate);
        command.arg("--http-key").arg(key);
        Up::start(self.stage, command)
    }

    /// What makes no HTTPS is refused with its reason and a next step.
    fn refusals(&self, first: &Site, second: &Site) -> Result<()> {
        let data = self.folder.join("unused");
        let missing = self.folder.join("missing.pem");
        let (certificate, key) = (text(&first.certificate)?, text(&first.key)?);
        let cases: [(&[&str], i32, &[&str]); 5] = [
            (
                &["--http-cert", certificate],
                2,
                &["both --http-cert and --http-key"],
            ),
            (
                &["--http-cert", text(&missing)?, "--http-key", key],
                1,
                &["cannot read the certificate", "missing.pem", "--http-cert"],
            ),
            (
                &["--http-cert", certificate, "--http-key", text(&missing)?],
                1,
                &["cannot read the key", "missing.pem", "--http-key"],
            ),
            (
                &["--http-cert", key, "--http-key", key],
                1,
                &["no certificate", "--http-cert"],
            ),
            (
                &["--http-cert", certificate, "--http-key", text(&second.key)?],
                1,
                &["not that of the certificate", "--http-key"],
            ),
        ];
        for (words, code, expected) in cases {
            let doors = ["--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
            let up = ["up", "--nodes", "1", "--data", text(&data)?];
            let arguments = [&up[..], &doors, words].concat();
            let finished = finish(self.stage, &arguments)?;
            finished
                .expect(code, expected)
                .with_context(|| format!("{words:?}"))?;
        }
        Ok(())
    }

    /// A file goes in and comes out, whole and in part.
    fn transfers(&self, up: &Up, site: &Site) -> Result<()> {
        let made = up.ask(self.stage, &["token", "create", "--read", "--write"])?;
        let made = made.json(0)?;
        let token = made["token"].as_str().context("no token")?;
        let bearer = format!("Authorization: Bearer {token}");
        let content: Vec<u8> = (0..CONTENT_BYTES)
            .map(|at| (at % 251).to_le_bytes()[0] ^ (at >> 16).to_le_bytes()[0])
            .collect();
        let (sent, got) = (self.folder.join("sent"), self.folder.join("got"));
        fs::write(&sent, &content)?;
        for (version, name) in [("1.2", "old"), ("1.3", "new")] {
            let least = format!("--tlsv{version}");
            let tls = [least.as_str(), "--tls-max", version];
            let put = [&tls[..], &["-H", &bearer, "-T", text(&sent)?]].concat();
            self.curl(up, site, name, &put)?.says(&["201"])?;
            let get = [&tls[..], &["-o", text(&got)?]].concat();
            self.curl(up, site, name, &get)?.says(&["200"])?;
            ensure!(
                fs::read(&got)? == content,
                "TLS {version} has changed bytes"
            );
            let part = [&tls[..], &["-r", "1048575-2097152", "-o", text(&got)?]].concat();
            self.curl(up, site, name, &part)?.says(&["206"])?;
            ensure!(
                fs::read(&got)? == content[1_048_575..=2_097_152],
                "{version}"
            );
        }
        // Two requests of one connection, and one that forgets the TLS.
        let [url, one, two] = ["new", "old", "none"].map(|name| url(up, name));
        let mut command = program("curl");
        command.args(["-sS", "-w", "%{num_connects}:%{http_code} ", "--cacert"]);
        command.arg(&site.authority).args(["-o", "/dev/null", &one]);
        command.args(["-o", "/dev/null", &two]);
        finish_command(self.stage, command)?.says(&["1:200 0:404"])?;
        let mut command = program("curl");
        command.args(["-sS", "-i", &url.replace("https:", "http:")]);
        finish_command(self.stage, command)?.says(&["400 Bad Request", "https://"])
    }

    /// New files are taken by connections that come after; files of no use are not.
    fn certificates(
        &self,
        up: &Up,
        live: &[PathBuf; 2],
        first: &Site,
        second: &Site,
    ) -> Result<()> {
        let read = |site: &Site| self.curl(up, site, "new", &["-I", "-o", "/dev/null"]);
        read(second)?.expect(CURL_UNTRUSTED, &[])?;
        // The server looks once a second.
        second.install(live)?;
        self.wait("the new certificate", || Ok(read(second)?.code == 0))?;
        read(second)?.says(&["200"])?;
        read(first)?.expect(CURL_UNTRUSTED, &[])?;
        fs::write(&live[0], "no certificate at all")?;
        self.wait("an error in the log", || {
            read(second)?.says(&["200"])?;
            Ok(fs::read_to_string(up.log())?.contains("HTTPS goes on"))
        })?;
        first.install(live)?;
        self.wait("the first certificate", || Ok(read(first)?.code == 0))
    }

    /// Asks again and again, each time over a new connection.
    fn wait(&self, what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
        while !is_so()? {
            ensure!(Instant::now() < self.stage.deadline, "{what} does not come");
        }
        Ok(())
    }

    /// Asks for a file, and prints the status last.
    fn curl(&self, up: &Up, site: &Site, name: &str, words: &[&str]) -> Result<Finished> {
        let mut command = program("curl");
        command.args(["-sS", "-w", "%{http_code}", "--cacert"]);
        command.arg(&site.authority).args(words);
        command.arg(url(up, name));
        finish_command(self.stage, command)
    }
}

fn url(up: &Up, name: &str) -> String {
    let address = up.https.as_deref().unwrap_or_default();
    format!("https://{address}/{name}")
}
