//! Debian's nginx as an HTTP server beside which ours is measured.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::network::Network;
use crate::process::{Running, open_log, output};

/// How long it may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);

/// How it reads files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// As it is installed: `sendfile`, which blocks.
    Sendfile,
    /// `sendfile`, what is not in memory is read by threads.
    Threads,
    /// `directio`, one buffer of 512 KiB, read by threads: its best on a slow disk.
    Direct,
}

impl Variant {
    /// What it is called in results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sendfile => "sendfile",
            Self::Threads => "sendfile, aio threads",
            Self::Direct => "directio 512k, aio threads",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Sendfile => "sendfile on;",
            Self::Threads => "sendfile on; aio threads;",
            Self::Direct => {
                "sendfile off; directio 4k; directio_alignment 4k; output_buffers 1 512k; aio threads;"
            }
        }
    }
}

/// nginx, started. Dropping it ends it.
pub(crate) struct Nginx {
    master: Running,
}

impl Nginx {
    /// Serves `root` at `port` of all addresses inside `network`; `folder` is its own.
    pub(crate) fn start(
        variant: Variant,
        network: &Network,
        root: &Path,
        folder: &Path,
        port: u16,
    ) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let config = folder.join("nginx.conf");
        fs::write(&config, configuration(variant, root, folder, port)?)?;
        let mut command = network.program("nginx");
        command.arg("-c").arg(&config).stdin(Stdio::null());
        command.arg("-e").arg(folder.join("error.log"));
        let log = open_log(&folder.join("server.log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        let mut nginx = Self {
            master: Running::start(command)?,
        };
        nginx.await_worker()?;
        Ok(nginx)
    }

    /// The master and its worker.
    pub(crate) fn pids(&self) -> Result<Vec<u32>> {
        let master = self.master.pid();
        let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children"))?;
        let mut pids = vec![master];
        for child in children.split_whitespace() {
            pids.push(child.parse()?);
        }
        Ok(pids)
    }

    fn await_worker(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.pids()?.len() < 2 {
            ensure!(
                Instant::now() < deadline,
                "nginx has no worker: see its error.log"
            );
            thread::park_timeout(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Its version.
pub(crate) fn version() -> Result<String> {
    let mut query = Command::new("dpkg-query");
    let version = output(query.args(["-W", "-f", "${Version}", "nginx-light"]))?;
    // Without Debian's own part.
    Ok(version.split('-').next().unwrap_or(&version).to_owned())
}

fn configuration(variant: Variant, root: &Path, folder: &Path, port: u16) -> Result<String> {
    let root = root.to_str().context("not UTF-8")?;
    let folder = folder.to_str().context("not UTF-8")?;
    Ok(format!(
        "user root; daemon off; worker_processes 1; pid {folder}/nginx.pid;
         worker_rlimit_nofile 65536;
         events {{ worker_connections 16384; }}
         http {{
             access_log off; error_log {folder}/error.log warn;
             default_type application/octet-stream;
             keepalive_requests 1000000000; keepalive_timeout 600; send_timeout 600;
             reset_timedout_connection on; tcp_nopush on;
             open_file_cache max=16384 inactive=600; open_file_cache_valid 600;
             client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
             scgi_temp_path {folder}/scgi;
             {}
             server {{ listen {port} backlog=4096; root {root}; }}
         }}
",
        variant.words()
    ))
}
