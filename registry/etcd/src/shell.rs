//! The thread that carries out what the [session](crate::session) decides, and the
//! calls that need no session.

use std::future::poll_fn;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use crossdock_members::{Change, State};
use crossdock_types::Time;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::api::{Config, Error, Notice, Tls};
use crate::client::Client;
use crate::keys::Keys;
use crate::session::{Effect, Entry, Failure, Input, PATIENCE, Reply, Request, Session};

/// Proposals that the thread has not taken yet.
const ORDERS_MAX: usize = 4096;
/// Answers that it has not taken yet: there are but a few requests at a time.
const ANSWERS_MAX: usize = 64;

/// How long dropping the handle may take: somewhat more than the session does.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);

/// A checked configuration.
pub(crate) struct Target {
    endpoints: Vec<Endpoint>,
    names: Vec<String>,
    keys: Keys,
    config: Config,
}

impl Target {
    pub(crate) fn new(config: Config) -> Result<Self, Error> {
        if config.endpoints.is_empty() {
            let what = "no address of an etcd member was given: --etcd http://HOST:2379,…";
            return Err(Error::Config(what.to_owned()));
        }
        if !config.prefix.starts_with('/') || config.prefix.trim_end_matches('/').is_empty() {
            let what = format!("{:?} is no prefix for keys: /NAME or longer", config.prefix);
            return Err(Error::Config(what));
        }
        if config.ttl < Duration::from_secs(1) {
            let what = format!("a lease of {:?} is too short: 1 s or more", config.ttl);
            return Err(Error::Config(what));
        }
        let tls = config.tls.as_ref();
        let endpoints = config.endpoints.iter();
        let endpoints = endpoints.map(|address| endpoint(address, tls));
        Ok(Self {
            endpoints: endpoints.collect::<Result<_, _>>()?,
            names: config.endpoints.clone(),
            keys: Keys::new(&config.prefix),
            config,
        })
    }

    fn client(&self, endpoint: usize) -> Client {
        let keys = self.keys.clone();
        Client::new(&self.endpoints[endpoint], keys, self.config.host)
    }

    /// Asks one endpoint after the other, until one answers.
    fn ask(&self, request: &Request) -> Result<Reply, Error> {
        let mut reasons = Vec::new();
        for (number, name) in self.names.iter().enumerate() {
            let answer = runtime()?.block_on(async {
                let client = self.client(number);
                timeout(PATIENCE, client.call(request.clone())).await
            });
            let reason = match answer {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(Failure::Away(reason))) => reason,
                Ok(Err(failure)) => format!("{failure:?}"),
                Err(_) => format!("no answer within {} s", PATIENCE.as_secs_f32()),
            };
            reasons.push(format!("{name}: {reason}"));
        }
        Err(Error::Away(reasons.join("; ")))
    }

    pub(crate) fn create(&self, state: &State) -> Result<(), Error> {
        let value = serde_json::to_vec(state).map_err(|error| Error::Config(error.to_string()))?;
        let expected = 0; // Of a key that is not there.
        let request = Request::Swap {
            expected,
            value: value.clone(),
        };
        match self.ask(&request)? {
            // Ours, if an endpoint did it and did not say so in time.
            Reply::Differs { state: Some(entry) } if entry.value != value => Err(Error::Exists {
                prefix: self.config.prefix.clone(),
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn read(&self) -> Result<(u64, State), Error> {
        let prefix = self.config.prefix.clone();
        let Reply::Read {
            state: Some(Entry { revision, value }),
            ..
        } = self.ask(&Request::Read)?
        else {
            return Err(Error::Missing { prefix });
        };
        match serde_json::from_slice(&value) {
            Ok(state) => Ok((revision.unsigned_abs(), state)),
            Err(error) => Err(Error::Unreadable {
                prefix,
                reason: error.to_string(),
            }),
        }
    }

    /// Applies `change` to what is there, again while others are faster.
    pub(crate) fn change(&self, change: &Change) -> Result<State, Error> {
        loop {
            let (revision, mut state) = self.read()?;
            state.apply(change.clone())?;
            let value = serde_json::to_vec(&state);
            let value = value.map_err(|error| Error::Config(error.to_string()))?;
            let expected = i64::try_from(revision).unwrap_or(i64::MAX);
            let swap = Request::Swap { expected, value };
            if let Reply::Swapped { .. } = self.ask(&swap)? {
                return Ok(state);
            }
        }
    }

    /// Starts the thread.
    pub(crate) fn start(
        self,
        revision: u64,
        state: State,
        notices: impl FnMut(Notice) + Send + 'static,
    ) -> Result<Follower, Error> {
        let Ok(revision) = i64::try_from(revision) else {
            return Err(Error::Config(format!("{revision} is no revision")));
        };
        let (orders, receiver) = channel(ORDERS_MAX);
        let runtime = runtime()?;
        let (alive, ended) = mpsc::channel();
        let follow = move || {
            let _alive: mpsc::Sender<()> = alive; // Until the end.
            runtime.block_on(self.follow(revision, state, receiver, notices));
        };
        let thread = std::thread::Builder::new().name("registry".to_owned());
        Ok(Follower {
            orders: Some(orders),
            thread: Some(thread.spawn(follow)?),
            ended,
        })
    }

    async fn follow(
        self,
        revision: i64,
        state: State,
        mut orders: Receiver<Change>,
        mut notices: impl FnMut(Notice),
    ) {
        let origin = Instant::now();
        let clock = || Time(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let (host, ttl) = (self.config.host, self.config.ttl);
        let names = self.names.clone();
        let mut session = Session::new(clock(), names, host, ttl, revision, state);
        let mut connection = None;
        let mut is_leaving = false;
        loop {
            while let Some(effect) = session.poll_effect() {
                match effect {
                    // With the old one its tasks end, and what they still said is lost.
                    Effect::Connect { endpoint } => {
                        connection = Some(Connection::new(self.client(endpoint)));
                    }
                    Effect::Send { id, request } => {
                        if let Some(connection) = &mut connection {
                            connection.send(id, request);
                        }
                    }
                    Effect::Watch {
                        connection: number,
                        from,
                    } => {
                        if let Some(connection) = &mut connection {
                            connection.watch(number, from);
                        }
                    }
                    Effect::Notice(notice) if !is_leaving => notices(notice),
                    Effect::Heard(at) if !is_leaving => {
                        notices(Notice::Heard(
                            origin.into_std() + Duration::from_nanos(at.0),
                        ));
                    }
                    Effect::Notice(_) | Effect::Heard(_) => {}
                    Effect::Ended => return,
                }
            }
            let next = poll_fn(|context| {
                if !is_leaving && let Poll::Ready(order) = orders.poll_recv(context) {
                    return Poll::Ready(order.map_or(Input::Leave, Input::Propose));
                }
                let Some(connection) = &mut connection else {
                    return Poll::Pending;
                };
                // Its sender is held by the connection itself: it does not end.
                let answer = connection.answers.poll_recv(context);
                answer.map(|answer| answer.unwrap_or(Input::Timeout))
            });
            let input = match session.poll_timeout() {
                Some(due) => {
                    let due = origin + Duration::from_nanos(due.0);
                    timeout_at(due, next).await.unwrap_or(Input::Timeout)
                }
                None => next.await,
            };
            is_leaving |= matches!(input, Input::Leave);
            session.handle(clock(), input);
        }
    }
}

/// What is going on over one connection. Dropping it ends that.
struct Connection {
    client: Client,
    answers: Receiver<Input>,
    sender: Sender<Input>,
    tasks: JoinSet<()>,
    watch: Option<AbortHandle>,
}

impl Connection {
    fn new(client: Client) -> Self {
        let (sender, answers) = channel(ANSWERS_MAX);
        Self {
            client,
            answers,
            sender,
            tasks: JoinSet::new(),
            watch: None,
        }
    }

    fn send(&mut self, id: u64, request: Request) {
        while self.tasks.try_join_next().is_some() {} // Those that have ended.
        let (client, sender) = (self.client.clone(), self.sender.clone());
        self.tasks.spawn(async move {
            let result = client.call(request).await;
            // Nobody listens any more if there is another connection.
            let _ = sender.send(Input::Answer { id, result }).await;
        });
    }

    /// Watches from there on, in place of what was watched.
    fn watch(&mut self, connection: u64, from: i64) {
        if let Some(earlier) = self.watch.take() {
            earlier.abort();
        }
        let (client, sender) = (self.client.clone(), self.sender.clone());
        let watch = self.tasks.spawn(async move {
            let mut watch = match client.watch(from).await {
                Ok(watch) => watch,
                Err(failure) => {
                    let result = Err(failure);
                    let _ = sender.send(Input::Watched { connection, result }).await;
                    return;
                }
            };
            loop {
                let result = watch.next().await;
                let is_over = result.is_err();
                let sent = sender.send(Input::Watched { connection, result }).await;
                if is_over || sent.is_err() {
                    return;
                }
            }
        });
        self.watch = Some(watch);
    }
}

/// The thread, and the way to it. Dropping it ends the session.
#[derive(Debug)]
pub(crate) struct Follower {
    orders: Option<Sender<Change>>,
    thread: Option<JoinHandle<()>>,
    /// Says nothing, and ends with the thread.
    ended: mpsc::Receiver<()>,
}

impl Follower {
    pub(crate) fn propose(&self, change: Change) {
        if let Some(orders) = &self.orders {
            // Full: the thread stands still, and so does the ensemble. Hosts
            // propose again what they still want.
            let _ = orders.try_send(change);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.orders = None; // The thread reads that it is to leave.
        let ended = self.ended.recv_timeout(LEAVE_PATIENCE);
        // A thread that stands in the caller's own code is left behind: the caller
        // may be what it waits for.
        if matches!(ended, Err(RecvTimeoutError::Disconnected))
            && let Some(thread) = self.thread.take()
        {
            // Its panic was printed; there is nothing left to undo.
            let _ = thread.join();
        }
    }
}

fn endpoint(address: &str, tls: Option<&Tls>) -> Result<Endpoint, Error> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let wrong = |why: &str| {
        let what =
            format!("{address:?} is no address of an etcd member ({why}): {scheme}://HOST:PORT");
        Error::Config(what)
    };
    match (address.starts_with("https://"), tls) {
        (true, None) => return Err(wrong("TLS needs the authority of etcd, --etcd-ca FILE")),
        (false, Some(_)) => return Err(wrong("with --etcd-ca it begins with https://")),
        (false, None) if !address.starts_with("http://") => {
            return Err(wrong("it does not begin with http://"));
        }
        _ => {}
    }
    let endpoint = Endpoint::from_shared(address.to_owned());
    let endpoint = endpoint.map_err(|error| wrong(&error.to_string()))?;
    if endpoint.uri().port().is_none() {
        return Err(wrong("there is no port"));
    }
    let Some(tls) = tls else {
        return Ok(endpoint);
    };
    let authority = Certificate::from_pem(&tls.authority);
    let mut config = ClientTlsConfig::new().ca_certificate(authority);
    if let Some((certificate, key)) = &tls.own {
        config = config.identity(Identity::from_pem(certificate, key));
    }
    let endpoint = endpoint.tls_config(config);
    endpoint.map_err(|error| {
        let causes = crate::client::chain(&error.to_string(), &error);
        Error::Config(format!(
            "the certificates for etcd cannot be used: {causes}"
        ))
    })
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_names::HostId;

    fn config(endpoint: &str, prefix: &str) -> Config {
        Config {
            endpoints: vec![endpoint.to_owned()],
            tls: None,
            prefix: prefix.to_owned(),
            host: HostId(1),
            ttl: Duration::from_secs(2),
        }
    }

    /// Goal: what cannot be meant is refused before anything is sent, and the
    /// message names it and shows how it is written.
    #[test]
    fn addresses_and_prefixes_are_checked() {
        for wrong in [
            "https://h:1",
            "h:2379",
            "http://h",
            "http://",
            "http://h h:1",
            "",
        ] {
            let Err(error) = Target::new(config(wrong, "/a")) else {
                panic!("{wrong} was taken");
            };
            let error = error.to_string();
            assert!(
                error.contains(wrong) && error.contains("http://HOST:PORT"),
                "{error}"
            );
        }
        for wrong in ["", "/", "a"] {
            let error = Target::new(config("http://h:1", wrong)).err();
            assert!(
                error.is_some_and(|error| error.to_string().contains("prefix")),
                "{wrong}"
            );
        }
        let mut none = config("http://h:1", "/a");
        none.endpoints.clear();
        assert!(Target::new(none).is_err_and(|error| error.to_string().contains("--etcd")));
        assert!(Target::new(config("http://h:1", "/a")).is_ok());
        assert!(Target::new(config("http://[::1]:1", "/a/b")).is_ok());
    }

    /// Goal: where nobody listens the error says so for every endpoint.
    #[test]
    fn an_etcd_that_is_not_there_is_named() {
        let mut config = config("http://127.0.0.1:1", "/a");
        config.endpoints.push("http://127.0.0.1:2".to_owned());
        let target = Target::new(config).expect("a target");
        let error = target.read().expect_err("nobody listens").to_string();
        assert!(
            error.contains("http://127.0.0.1:1: ")
                && error.contains("http://127.0.0.1:2: ")
                && error.contains("refused"),
            "{error}"
        );
    }
}
