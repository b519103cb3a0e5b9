//! Files that this process fetches from depots into the volume (docs/decisions/0046): each on a
//! thread of its own, which puts what it fetches to the HTTP door of this process under a signed
//! URL. So there is all of a file or nothing, and whoever asks has the right that a PUT takes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossdock_admin::{Answer, FileImport, ImportStatus, Refusal};
use crossdock_peer::Network;
use crossdock_tools::command::Wanted;
use crossdock_tools::{Address, Depots};
use crossdock_web::{SignedMethod, SignedUrl};
use tracing::{info, warn};

use super::Shell;
use super::token_orders::seconds_now;
use crate::report;

/// Imports at a time: each has a thread, and the memory of a download.
const RUNNING_MAX: usize = 4;

/// Imports that can be asked about.
const KNOWN_MAX: usize = 64;

/// Connections to depots of one import.
const THREADS_MAX: usize = 64;

/// For how long nobody may have asked about an import: whoever wanted it is gone then.
const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// For how long the URL holds under which a file is written: it has to begin within it.
const PUT_SECONDS: u64 = 300;

/// How long the door may take for bytes and answers.
const DOOR_PATIENCE: Duration = Duration::from_secs(120);

/// How long depots may take for answers and each next byte.
const DEPOT_PATIENCE: Duration = Duration::from_secs(30);

/// Longest head of an answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 10;

/// The imports of this process.
pub(super) struct Imports {
    /// Where may be fetched from, besides the volume's depots.
    from: Vec<Network>,
    imports_total: u32,
    known: BTreeMap<u32, Arc<Import>>,
}

/// One that is under way or over.
struct Import {
    size_bytes: AtomicU64,
    moved_bytes: AtomicU64,
    asked: Mutex<Instant>,
    /// Why the file was not made, if it was not.
    end: OnceLock<Option<String>>,
}

impl Imports {
    pub(super) const fn new(from: Vec<Network>) -> Self {
        Self {
            from,
            imports_total: 0,
            known: BTreeMap::new(),
        }
    }

    /// How far one is.
    pub(super) fn status(&self, id: u32) -> Answer {
        let import = self
            .known
            .get(&id)
            .ok_or_else(|| Refusal::Unknown(format!("this process knows of no import {id}")))?;
        *import.asked.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let end = import.end.get();
        report::json(&ImportStatus {
            id,
            size_bytes: import.size_bytes.load(Relaxed),
            moved_bytes: import.moved_bytes.load(Relaxed),
            is_over: end.is_some(),
            error: end.cloned().flatten(),
        })
    }

    /// Has one more, and forgets what is over for longest.
    fn begin(&mut self) -> Result<(u32, Arc<Import>), Refusal> {
        let running = self.known.values().filter(|it| it.end.get().is_none());
        if running.count() >= RUNNING_MAX {
            return Err(Refusal::Conflict(format!(
                "{RUNNING_MAX} files are being imported at the moment; try again when one is done"
            )));
        }
        while self.known.len() >= KNOWN_MAX {
            let over = self.known.iter().find(|(_, it)| it.end.get().is_some());
            let Some(id) = over.map(|(&id, _)| id) else {
                break; // As fewer run, there is one.
            };
            self.known.remove(&id);
        }
        self.imports_total += 1;
        let import = Arc::new(Import {
            size_bytes: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            asked: Mutex::new(Instant::now()),
            end: OnceLock::new(),
        });
        self.known.insert(self.imports_total, Arc::clone(&import));
        Ok((self.imports_total, import))
    }
}

impl Shell {
    /// Begins to fetch a file; whoever asked has to ask about it from time to time.
    pub(super) fn import_file(&mut self, order: FileImport) -> Answer {
        if !(1..=THREADS_MAX).contains(&order.threads) {
            return Err(Refusal::Invalid(format!(
                "an import has 1 to {THREADS_MAX} connections, not {}",
                order.threads
            )));
        }
        let url = SignedUrl {
            method: SignedMethod::Put,
            path: order.path.clone(),
            expires: seconds_now().saturating_add(PUT_SECONDS),
            uid: order.uid,
            gid: order.gid,
        };
        let target = self.signed_target(&url)?;
        let depots = self.host.depot_doors();
        let own: BTreeSet<(String, u16)> =
            depots.map(|door| (door.host.clone(), door.port)).collect();
        let from = self.imports.from.clone();
        let allows = move |depot: &Address, address: IpAddr| {
            own.contains(&(depot.host.clone(), depot.port))
                || from.iter().any(|network| network.contains(address))
        };
        let door = self.connect_to_http().map_err(|error| {
            Refusal::Conflict(format!(
                "the HTTP door cannot be reached from within: {error}"
            ))
        })?;
        let (id, import) = self.imports.begin()?;
        let work = Work {
            order,
            target,
            door,
            depots: Depots::new(DEPOT_PATIENCE).within(allows),
            import,
        };
        let thread = thread::Builder::new().name("import".to_owned());
        let started = thread.spawn(move || work.run());
        started.map_err(|error| Refusal::Conflict(format!("no thread for it: {error}")))?;
        self.imports.status(id)
    }
}

/// What the thread of an import has.
struct Work {
    order: FileImport,
    /// Path and query under which the file is written.
    target: String,
    door: TcpStream,
    depots: Depots,
    import: Arc<Import>,
}

/// Also where there was no thread for it, or that has failed.
impl Drop for Work {
    fn drop(&mut self) {
        // It is over already, if all went well.
        let _ = self.import.end.set(Some("it has broken off".to_owned()));
    }
}

impl Work {
    fn run(self) {
        let outcome = self.carry_out();
        let path = self.order.path.encode();
        let bytes = self.import.size_bytes.load(Relaxed);
        let end = match outcome {
            Ok(()) => {
                info!(%path, bytes, "file imported from depots");
                None
            }
            Err(error) => {
                warn!(%path, error = format!("{error:#}"), "file not imported");
                Some(format!("{error:#}"))
            }
        };
        // Nobody else sets it.
        let _ = self.import.end.set(end);
    }

    fn carry_out(&self) -> anyhow::Result<()> {
        let FileImport { exnode, key, .. } = &self.order;
        let wanted = Wanted::read(exnode, key.as_deref())?;
        let size_bytes = wanted.size_bytes();
        self.import.size_bytes.store(size_bytes, Relaxed);
        self.door.set_read_timeout(Some(DOOR_PATIENCE))?;
        self.door.set_write_timeout(Some(DOOR_PATIENCE))?;
        let mut answers = BufReader::new(&self.door);
        self.ask(size_bytes).context("the HTTP door is gone")?;
        match status_of(&mut answers)? {
            100 => {}
            status => return taken(status),
        }
        let out = Out {
            door: self.door.try_clone()?,
            import: Arc::clone(&self.import),
        };
        let brought = wanted.bring(&self.depots, self.order.threads, Box::new(out));
        if let Err(error) = brought {
            // A door that takes no more says why; while it waits for more it says nothing.
            self.door.set_nonblocking(true)?;
            if let Ok(status) = status_of(&mut answers) {
                taken(status)?;
            }
            return Err(error);
        }
        taken(status_of(&mut answers)?)
    }

    /// Sends the head of the PUT. Nothing is fetched before the door wants it.
    fn ask(&self, size_bytes: u64) -> io::Result<()> {
        let only_new = match self.order.replaces {
            true => "",
            false => "If-None-Match: *\r\n",
        };
        let head = format!(
            "PUT {} HTTP/1.1\r\nHost: import\r\nContent-Length: {size_bytes}\r\nExpect: 100-continue\r\n{only_new}\r\n",
            self.target
        );
        (&self.door).write_all(head.as_bytes())
    }
}

/// What the answer that comes next says.
fn status_of(answers: &mut impl BufRead) -> anyhow::Result<u16> {
    let mut lines = answers.take(ANSWER_BYTES_MAX).lines();
    let mut next = || -> anyhow::Result<String> {
        let line = lines.next().context("the HTTP door has not answered")?;
        line.context("the HTTP door has not answered")
    };
    let first = next()?;
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|it| it.get(..3));
    let status = status.and_then(|it| it.parse().ok());
    let status = status.with_context(|| format!("the HTTP door says {first:?}"))?;
    while !next()?.is_empty() {}
    Ok(status)
}

/// Whether the door has taken the file.
fn taken(status: u16) -> anyhow::Result<()> {
    match status {
        200..300 => Ok(()),
        403 => bail!("that user may not write there"),
        404 | 409 => bail!("there is no directory for it, or it is one"),
        412 => bail!("the file is there already; --force replaces it"),
        status => bail!("the volume has not taken the file: HTTP {status}"),
    }
}

/// Where the download writes: half a file is none to the door, as it knows the length.
struct Out {
    door: TcpStream,
    import: Arc<Import>,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let asked = *self
            .import
            .asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if asked.elapsed() > ASKED_WITHIN {
            let what = "nobody has asked about the import any more";
            return Err(io::Error::other(what));
        }
        let written = self.door.write(bytes)?;
        self.import.moved_bytes.fetch_add(written as u64, Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.door.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the answer before the content and the one behind it are told apart; what is no
    /// answer is an error, also one that has broken off.
    #[test]
    fn answers_are_read_one_by_one() {
        let mut two =
            &b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"[..];
        assert_eq!(status_of(&mut two).ok(), Some(100));
        assert_eq!(status_of(&mut two).ok(), Some(201));
        for broken in ["", "HTTP/1.1 20", "HTTP/1.1 200 OK\r\n", "nothing\r\n\r\n"] {
            assert!(status_of(&mut broken.as_bytes()).is_err(), "{broken}");
        }
        assert!(taken(201).is_ok() && taken(412).is_err() && taken(100).is_err());
    }

    /// Goal: so many run at a time and no more, and those that are over are forgotten some time,
    /// the oldest first.
    #[test]
    fn imports_are_bounded() {
        let mut imports = Imports::new(Vec::new());
        for _ in 0..RUNNING_MAX {
            imports.begin().expect("room");
        }
        assert!(matches!(imports.begin(), Err(Refusal::Conflict(_))));
        for end in imports.known.values() {
            end.end.set(None).expect("once");
        }
        for _ in 0..KNOWN_MAX {
            let (_, import) = imports.begin().expect("room");
            import.end.set(Some("lost".to_owned())).expect("once");
        }
        assert_eq!(imports.known.len(), KNOWN_MAX);
        assert!(matches!(imports.status(1), Err(Refusal::Unknown(_))));
        let last = imports.status(imports.imports_total).expect("known");
        assert_eq!(
            (&last["is_over"], &last["error"]),
            (&true.into(), &"lost".into())
        );
    }
}
