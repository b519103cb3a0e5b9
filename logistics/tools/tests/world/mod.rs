//! Depots in this process, over real sockets, that die, forget and lie when they are told to:
//! what real ones do too seldom. They know of the protocol what the tools use of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossdock_ibp::{
    Access, Capabilities, Capability, Command, ErrorCode, Key, Manage, Probe, Reliability, Request,
    StorageType, Totals, answer, take_line,
};
use crossdock_tools::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One allocation.
pub(crate) struct Allocation {
    pub(crate) bytes: Vec<u8>,
    pub(crate) bytes_max: u64,
    pub(crate) readers: i64,
    pub(crate) seconds: i64,
}

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) allocations: BTreeMap<String, Allocation>,
    /// Connections are refused from now on.
    pub(crate) is_dead: bool,
    /// Each loaded byte is another one.
    pub(crate) lies: bool,
    /// Connections that it serves at a time; others are told that it is busy.
    pub(crate) serves: Option<usize>,
    pub(crate) connections: usize,
    /// All that there were.
    pub(crate) accepted: usize,
    pub(crate) connections_most: usize,
    /// Bytes that it has loaded for clients.
    pub(crate) loaded: u64,
    /// Its keys are as those of depots that read requests ahead, which all of these do.
    pub(crate) is_ours: bool,
    /// Its keys are as those of ACCRE's, and it probes for managers only.
    pub(crate) is_accre: bool,
    /// Before each 16 KiB of what is loaded.
    pub(crate) pause: Duration,
    /// A connection ends behind so many answers.
    pub(crate) answers_max: Option<usize>,
    /// Requests that had come before the answer to the one before them was out.
    pub(crate) asked_ahead: usize,
    next: u64,
}

#[derive(Clone)]
pub(crate) struct TestDepot {
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<Mutex<Store>>,
}

impl TestDepot {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let depot = Self {
            address: listener.local_addr().unwrap(),
            store: Arc::default(),
        };
        let serving = depot.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let depot = serving.clone();
                depot.with(|store| store.accepted += 1);
                tokio::spawn(async move {
                    depot.count(1);
                    let _ = depot.serve(stream).await;
                    depot.count(-1);
                });
            }
        });
        depot
    }

    pub(crate) fn name(&self) -> Address {
        self.address.to_string().parse().unwrap()
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Store) -> T) -> T {
        work(&mut self.store.lock().unwrap())
    }

    /// Makes an allocation without asking.
    pub(crate) fn put(&self, bytes: Vec<u8>) -> Capabilities {
        let size = bytes.len() as u64;
        let made = self.allocate(size, 3600);
        let name = made.read.key.as_str().to_owned();
        self.with(|store| store.allocations.get_mut(&name).unwrap().bytes = bytes);
        made
    }

    fn count(&self, more: isize) {
        self.with(|store| {
            store.connections = store.connections.saturating_add_signed(more);
            store.connections_most = store.connections_most.max(store.connections);
        });
    }

    fn allocate(&self, bytes_max: u64, seconds: i64) -> Capabilities {
        let name = self.with(|store| {
            store.next += 1;
            let name = match (store.is_ours, store.is_accre) {
                (true, _) => format!("0#{:080x}", store.next),
                (_, true) => format!("1#{:032}", store.next),
                _ => format!("0#IBP-{}", store.next),
            };
            let allocation = Allocation {
                bytes: Vec::new(),
                bytes_max,
                readers: 1,
                seconds,
            };
            store.allocations.insert(name.clone(), allocation);
            name
        });
        let capability = |access: Access| Capability {
            host: Key::new(&self.address.ip().to_string()).unwrap(),
            port: self.address.port(),
            key: Key::new(&name).unwrap(),
            attribute_key: Key::new(&format!("{}", access.number())).unwrap(),
            access,
        };
        Capabilities {
            read: capability(Access::Read),
            write: capability(Access::Write),
            manage: capability(Access::Manage),
        }
    }

    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut received = Vec::new();
        let mut answers = 0;
        loop {
            let taken = take_line(&received, 512).unwrap_or(None);
            let Some((line, length)) = taken.map(|(line, length)| (line.to_vec(), length)) else {
                if stream.read_buf(&mut received).await? == 0 {
                    return Ok(());
                }
                continue;
            };
            received.drain(..length);
            let is_busy = |store: &mut Store| store.serves.is_some_and(|it| store.connections > it);
            if self.with(|store| store.is_dead) {
                return Ok(());
            }
            if self.with(is_busy) {
                let busy = answer::refused(ErrorCode::QUEUE_FULL);
                return stream.write_all(busy.as_bytes()).await;
            }
            match Request::parse(&line) {
                Ok(request) => {
                    self.answer(&mut stream, &mut received, request.command)
                        .await?
                }
                Err(code) => stream.write_all(answer::refused(code).as_bytes()).await?,
            }
            if received.is_empty() {
                let _ = stream.try_read_buf(&mut received); // Mostly there is none.
            }
            answers += 1;
            let is_over = self.with(|store| {
                store.asked_ahead += usize::from(!received.is_empty());
                store.answers_max.is_some_and(|most| answers >= most)
            });
            if is_over {
                return Ok(());
            }
        }
    }

    async fn answer(
        &self,
        stream: &mut TcpStream,
        received: &mut Vec<u8>,
        command: Command,
    ) -> std::io::Result<()> {
        let said = match command {
            Command::Allocate {
                size_bytes,
                duration_seconds,
                ..
            } => answer::allocated(&self.allocate(size_bytes, duration_seconds)),
            Command::Store {
                key, size_bytes, ..
            } => {
                stream.write_all(answer::done().as_bytes()).await?;
                let mut rest = std::mem::take(received);
                rest.resize(size_bytes as usize, 0);
                stream.read_exact(&mut rest[..]).await?;
                self.with(|store| match store.allocations.get_mut(key.as_str()) {
                    Some(found) if (found.bytes.len() + rest.len()) as u64 <= found.bytes_max => {
                        found.bytes.extend(&rest);
                        answer::stored(size_bytes)
                    }
                    _ => answer::refused(ErrorCode::CAP_NOT_FOUND),
                })
            }
            Command::Load {
                key,
                offset_bytes,
                size_bytes,
                ..
            } => {
                let loaded = self.load(&key, offset_bytes, size_bytes.map_or(0, |it| it.get()));
                match loaded {
                    Ok(bytes) => {
                        let head = answer::follows(bytes.len() as u64);
                        stream.write_all(head.as_bytes()).await?;
                        let pause = self.with(|store| store.pause);
                        for chunk in bytes.chunks(16 << 10) {
                            if !pause.is_zero() {
                                tokio::time::sleep(pause).await;
                            }
                            stream.write_all(chunk).await?;
                        }
                        return Ok(());
                    }
                    Err(code) => answer::refused(code),
                }
            }
            Command::Send {
                key,
                target,
                offset_bytes,
                size_bytes,
                ..
            } => {
                let loaded = self.load(&key, offset_bytes, size_bytes.map_or(0, |it| it.get()));
                match loaded {
                    Ok(bytes) => {
                        let length = bytes.len() as u64;
                        let depots = crossdock_tools::Depots::default();
                        match depots.store(&target, bytes.into(), |_| {}).await {
                            Ok(()) => answer::stored(length),
                            Err(_) => answer::refused(ErrorCode::CONNECTION),
                        }
                    }
                    Err(code) => answer::refused(code),
                }
            }
            Command::Manage {
                key,
                attribute_key,
                manage,
                ..
            } => {
                let is_manager = attribute_key.as_str() == Access::Manage.number().to_string();
                match self.with(|store| store.is_accre) && !is_manager {
                    true => answer::refused(ErrorCode::CAP_NOT_FOUND),
                    false => self.manage(key.as_str(), manage),
                }
            }
            Command::Status { .. } => Totals {
                stable_mib: 100,
                stable_used_mib: 0,
                volatile_mib: 100,
                volatile_used_mib: 0,
                duration_seconds_max: Some(86400),
            }
            .to_string(),
            Command::Write { .. } => answer::refused(ErrorCode::INVALID_CMD),
        };
        stream.write_all(said.as_bytes()).await
    }

    fn load(&self, key: &Key, offset: u64, bytes: u64) -> Result<Vec<u8>, ErrorCode> {
        self.with(|store| {
            store.loaded += bytes;
            let lies = store.lies;
            let found = store.allocations.get(key.as_str());
            let found = found.ok_or(ErrorCode::CAP_NOT_FOUND)?;
            let range = offset as usize..(offset + bytes) as usize;
            let bytes = found.bytes.get(range).ok_or(ErrorCode::SERVER_TIMEOUT)?;
            let mask = if lies { 0xff } else { 0 };
            Ok(bytes.iter().map(|byte| byte ^ mask).collect())
        })
    }

    fn manage(&self, key: &str, manage: Manage) -> String {
        self.with(|store| {
            let Some(found) = store.allocations.get_mut(key) else {
                return answer::refused(ErrorCode::CAP_NOT_FOUND);
            };
            match manage {
                Manage::Probe => answer::probed(&Probe {
                    read_count: found.readers,
                    write_count: 1,
                    size_bytes: found.bytes.len() as u64,
                    size_bytes_max: found.bytes_max,
                    duration_seconds: found.seconds,
                    reliability: Reliability::Stable,
                    storage: StorageType::ByteArray,
                }),
                Manage::Change {
                    duration_seconds, ..
                } => {
                    found.seconds = duration_seconds;
                    answer::done()
                }
                Manage::Decrement(_) => {
                    found.readers -= 1;
                    if found.readers == 0 {
                        store.allocations.remove(key);
                    }
                    answer::done()
                }
                Manage::Increment(_) | Manage::Truncate { .. } => {
                    answer::refused(ErrorCode::INVALID_CMD)
                }
            }
        })
    }
}

/// Runs `work` with so many depots.
pub(crate) fn with_depots<F: Future>(
    count: usize,
    work: impl FnOnce(Vec<TestDepot>) -> F,
) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut depots = Vec::new();
        for _ in 0..count {
            depots.push(TestDepot::start().await);
        }
        work(depots).await
    })
}
