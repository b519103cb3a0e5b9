//! The shell: a control thread that answers clients and asks depots.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossdock_ibp::{
    Command, Request as IbpRequest, StatusQuery, Totals, Version, Word, take_line,
};
use crossdock_lbone::{Answer, Depot, take_request};
use crossdock_limits::{IBP_ANSWER_BYTES_MAX, LBONE_CONNECTIONS_MAX, LBONE_REQUEST_BYTES_MAX};
use crossdock_types::Time;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

use crate::directory::{Directory, Effect, Input, Record};

/// How long a client may take for its request and to take the answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a depot may take to answer.
const DEPOT_PATIENCE: Duration = Duration::from_secs(5);

struct Shared {
    directory: Mutex<Directory>,
    start: Instant,
    changed: Notify,
}

impl Shared {
    fn now(&self) -> Time {
        Time::default() + self.start.elapsed()
    }

    fn with<T>(&self, work: impl FnOnce(&mut Directory) -> T) -> T {
        let mut directory = self
            .directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        work(&mut directory)
    }
}

/// The way to an L-Bone that is served.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// These are all depots that there are from now on ([`Directory::update`]).
    pub fn update(&self, records: Vec<Record>) {
        let now = self.shared.now();
        self.shared.with(|directory| directory.update(now, records));
        self.shared.changed.notify_one();
    }
}

/// Serves clients on `listeners` from a thread of its own until the process ends. It knows of no
/// depot before it is [told](Handle::update).
///
/// # Errors
/// If the thread or its runtime cannot be started.
pub fn serve(listeners: Vec<TcpListener>) -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    for listener in &listeners {
        listener.set_nonblocking(true)?;
    }
    let shared = Arc::new(Shared {
        directory: Mutex::new(Directory::new(Time::default(), [])),
        start: Instant::now(),
        changed: Notify::new(),
    });
    let handle = Handle {
        shared: Arc::clone(&shared),
    };
    thread::Builder::new()
        .name("lbone".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                for listener in listeners {
                    tokio::spawn(accept(listener, Arc::clone(&shared)));
                }
                poll(shared).await;
            });
        })?;
    Ok(handle)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let room = Arc::new(Semaphore::new(LBONE_CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    // A client that goes away needs no answer.
                    let _ = timeout(PATIENCE, converse(stream, &shared)).await;
                    drop(permit);
                });
            }
            // Out of descriptors: those that are served give theirs back.
            Err(error) => {
                tracing::warn!(%error, "the L-Bone cannot take a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut received = Vec::new();
    let answer = loop {
        match take_request(&received) {
            Ok(Some(request)) => {
                let random = shared.start.elapsed().as_nanos();
                let random = u64::try_from(random).unwrap_or(u64::MAX);
                break shared.with(|directory| directory.answer(&request, random));
            }
            Err(error) => break Answer::Failure(error.number()),
            Ok(None) if received.len() >= LBONE_REQUEST_BYTES_MAX => return Ok(()),
            Ok(None) => {}
        }
        if stream.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
    };
    stream.write_all(&answer.encode()).await?;
    stream.shutdown().await
}

async fn poll(shared: Arc<Shared>) {
    loop {
        while let Some(Effect::Poll(depot)) = shared.with(Directory::poll_effect) {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let asked = Instant::now();
                let totals = timeout(DEPOT_PATIENCE, ask(&depot)).await;
                let totals = totals.ok().and_then(Result::ok);
                let now = shared.now();
                let input = Input::Polled {
                    depot,
                    totals,
                    elapsed: asked.elapsed(),
                };
                shared.with(|directory| directory.handle(now, input));
                shared.changed.notify_one();
            });
        }
        let next = shared.with(|directory| directory.poll_timeout());
        let wait = next.map_or(Duration::from_secs(3600), |next| next - shared.now());
        if timeout(wait, shared.changed.notified()).await.is_err() {
            let now = shared.now();
            shared.with(|directory| directory.handle(now, Input::Timeout));
        }
    }
}

/// Asks a depot for its room, as the historic L-Bone does.
async fn ask(depot: &Depot) -> io::Result<Totals> {
    let password = Word::new("ibp").map_err(io::Error::other)?;
    let request = IbpRequest {
        version: Version::V031,
        command: Command::Status {
            resource: None,
            query: StatusQuery::Inquire { password },
            time_limit: 5,
        },
    };
    let host = depot.host.trim_start_matches('[').trim_end_matches(']');
    let mut stream = TcpStream::connect((host, depot.port)).await?;
    stream.write_all(request.to_string().as_bytes()).await?;
    let mut received = Vec::new();
    loop {
        let line = take_line(&received, IBP_ANSWER_BYTES_MAX).map_err(io::Error::other)?;
        if let Some((line, _)) = line {
            return Totals::parse(line).map_err(io::Error::other);
        }
        if stream.read_buf(&mut received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
