//! A client of a depot that says exactly what it is told to, and the processes that it talks
//! to.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crossdock_ibp::{Capabilities, Capability, answer};

use crate::process::{Running, open_log};
use crate::suite::Stage;
use crate::suite::cli::program::{crossdock, text};

/// How long a depot may take for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Nodes, each of which is a depot.
pub(super) const NODES: usize = 3;

/// `crossdock up` with depots.
pub(super) struct Depots {
    running: Running,
    /// Where they are, by node.
    pub(super) at: Vec<SocketAddr>,
    /// Where it is administered.
    pub(super) admin: String,
    log: PathBuf,
}

impl Depots {
    /// Starts them on the suite's data, with further words.
    pub(super) fn start(stage: &Stage<'_>, more: &[&str]) -> Result<Self> {
        let data = stage.folder.join("data");
        let log = stage.folder.join("server.log");
        let nodes = NODES.to_string();
        let words = ["up", "--data", text(&data)?, "--nodes", &nodes];
        let mut command = crossdock(stage, &words);
        command
            .args(["--size", "6G", "--nfs", "off", "--node-http", "off"])
            .args(["--admin", "127.0.0.1:0", "--http", "off"])
            .args(["--ibp", "127.0.0.1:0"])
            .args(more)
            .stdin(Stdio::null())
            .stderr(File::options().create(true).append(true).open(&log)?);
        let (running, lines) = Running::start_with_output_lines(command, open_log(&stage.log)?)?;
        let deadline = Instant::now() + PATIENCE;
        let (mut at, mut admin) = (Vec::new(), None);
        while at.len() < NODES || admin.is_none() {
            let Some(line) = lines.next(deadline)? else {
                bail!("the server ended: {}", fs::read_to_string(&log)?);
            };
            match line.trim().split_once(' ') {
                Some(("ibp", address)) => at.push(address.parse()?),
                Some(("admin", address)) => admin = Some(address.to_owned()),
                _ => {}
            }
        }
        lines.ignore();
        Ok(Self {
            running,
            at,
            admin: admin.context("no admin door")?,
            log,
        })
    }

    /// A connection to the first one.
    pub(super) fn talk(&self) -> Result<Talk> {
        Talk::to(self.at[0])
    }

    pub(super) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// What it has logged.
    pub(super) fn said(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// Kills it where it stands.
    pub(super) fn kill(mut self) {
        self.running.kill();
    }

    /// Stops it in order.
    pub(super) fn stop(mut self) -> Result<()> {
        let status = self.running.terminate(PATIENCE)?;
        ensure!(status.success(), "the server stopped with {status}");
        Ok(())
    }
}

/// One connection.
pub(super) struct Talk {
    reader: BufReader<TcpStream>,
}

impl Talk {
    pub(super) fn to(depot: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(depot)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let reader = BufReader::new(stream);
        Ok(Self { reader })
    }

    pub(super) fn say(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.reader.get_mut().write_all(bytes.as_ref())?)
    }

    /// The next line, with its end.
    pub(super) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        Ok(line)
    }

    pub(super) fn bytes(&mut self, bytes: usize) -> Result<Vec<u8>> {
        let mut taken = vec![0; bytes];
        self.reader.read_exact(&mut taken)?;
        Ok(taken)
    }

    /// Says a line; the answer has to be that one.
    pub(super) fn expect(&mut self, said: &str, answer: &str) -> Result<()> {
        self.say(said)?;
        let found = self.line()?;
        ensure!(found == answer, "{said:?}: {found:?}, not {answer:?}");
        Ok(())
    }

    /// The depot says no more, and ends the connection.
    pub(super) fn expect_end(&mut self) -> Result<()> {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => ensure!(rest.is_empty(), "{:?} after the end", rest.escape_ascii()),
            // It did not want to read what was behind.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The client sends no more.
    pub(super) fn finish(&mut self) -> Result<()> {
        Ok(self.reader.get_mut().shutdown(std::net::Shutdown::Write)?)
    }

    /// The client is gone at once.
    pub(super) fn reset(self) -> Result<()> {
        let stream = self.reader.into_inner();
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        Ok(())
    }

    /// Allocates; `wanted` is reliability, storage type, duration and size.
    pub(super) fn allocate(&mut self, wanted: &str) -> Result<Capabilities> {
        self.say(format!("0 1 {wanted} 0\n"))?;
        let line = self.line()?;
        let read = answer::read_capabilities(line.trim_end().as_bytes());
        let made = read.with_context(|| format!("{wanted}: {line:?}"))?;
        ensure!(answer::allocated(&made) == line, "{line:?}");
        Ok(made)
    }

    /// Stores, which has to be taken.
    pub(super) fn store(&mut self, write: &Capability, data: &[u8]) -> Result<()> {
        let size = data.len();
        self.expect(&format!("0 2 {} {size} 40 \n", keys(write)), "1 \n")?;
        self.say(data)?;
        let found = self.line()?;
        ensure!(found == format!("1 {size}\n"), "{found:?}");
        Ok(())
    }

    /// Loads `place`: offset and size; there have to be so many bytes.
    pub(super) fn load(&mut self, read: &Capability, place: &str, bytes: usize) -> Result<Vec<u8>> {
        let said = format!("0 8 {} {place} 10 \n", keys(read));
        self.expect(&said, &format!("1 {bytes} \n"))?;
        self.bytes(bytes)
    }

    /// What a probe tells; with any of the keys.
    pub(super) fn probe(&mut self, capability: &Capability) -> Result<crossdock_ibp::Probe> {
        self.say(format!("0 9 {} 40 0 0 0 0 0\n", keys(capability)))?;
        let line = self.line()?;
        let probe = answer::read_probe(line.trim_end().as_bytes());
        probe.with_context(|| format!("{line:?}"))
    }
}

/// Key and attribute key, as two fields.
pub(super) fn keys(capability: &Capability) -> String {
    format!("{} {}", capability.key, capability.attribute_key)
}

/// Bytes that nobody would guess.
pub(super) fn content(seed: u8, bytes: usize) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
