//! Calls to clients, by UDP: a request that waited has its lock (GRANTED), this
//! server has restarted (NOTIFY of NSM), and results of messages.
//!
//! Each call asks the client's portmapper for the port first, unless that is
//! known, and is sent again until it is answered, with growing pauses, a bounded
//! number of times. Nothing is lost if it never is: clients ask for their locks
//! themselves every now and then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use crossdock_limits::LOCK_CALLS_MAX;
use crossdock_nlm::lock::{
    Arguments, Lock, Procedure, Results, Status, TestArguments, Versioned, Width,
};
use crossdock_nlm::portmap::{self, BindProcedure, Binding, Mapping};
use crossdock_nlm::{lock, status};
use crossdock_peer::{GrantId, GrantedLock, LockClient};
use crossdock_rpc::{
    AcceptStatus, CallHeader, Credential, RecordWriter, ReplyBody, ReplyHeader, Verifier,
};
use crossdock_types::Time;
use crossdock_xdr::{Decode, Decoder, Encode};

use crate::Encoded;

/// Ports of clients that are remembered.
const PORTS_MAX: usize = 4096;

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How often a call is sent: for about a minute, longer than the half minute
/// after which a client asks by itself.
const ATTEMPTS_MAX: u32 = 9;

/// The same for a result, whose message the client sends again.
const RESULT_ATTEMPTS_MAX: u32 = 3;

/// Attempts after which a remembered port is asked for again.
const PORT_ATTEMPTS_MAX: u32 = 2;

/// Room for a call's header.
const HEAD_BYTES: usize = 256;

/// What a client is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCall {
    /// It has a lock that it waited for.
    Granted(Box<GrantedLock>),
    /// The server has restarted.
    Restarted {
        /// Whom to tell.
        client: LockClient,
        /// Our state number.
        state: u32,
        /// Our name.
        host: Bytes,
    },
    /// What came of a message.
    Result {
        /// Whom to tell.
        client: IpAddr,
        /// In which version of NLM.
        version: u32,
        /// TEST_RES, LOCK_RES, CANCEL_RES or UNLOCK_RES.
        procedure: Procedure,
        /// Its arguments.
        body: Encoded,
    },
}

/// What a client has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAnswer {
    /// It wants the lock, or not; not, too, if it never answered.
    Granted(GrantId, bool),
    /// It knows of the restart.
    Told(LockClient),
}

/// The calls in progress.
#[derive(Debug, Default)]
pub struct ClientCalls {
    jobs: BTreeMap<u32, Job>,
    wakes: BTreeSet<(Time, u32)>,
    /// Where clients' programs are.
    ports: BTreeMap<(IpAddr, u32, u32), u16>,
    xids: u32,
    datagrams: VecDeque<(SocketAddr, Vec<Bytes>)>,
    answers: VecDeque<ClientAnswer>,
}

#[derive(Debug)]
struct Job {
    call: ClientCall,
    attempts: u32,
    wake: Time,
    /// Whether what was sent last is the question for the port.
    is_lookup: bool,
}

impl ClientCalls {
    /// Begins to tell a client something. Beyond the bound it is not told: it
    /// will ask.
    pub fn begin(&mut self, now: Time, call: ClientCall) {
        if self.jobs.len() >= LOCK_CALLS_MAX {
            return;
        }
        let xid = self.next_xid(now);
        let job = Job {
            call,
            attempts: 0,
            wake: now,
            is_lookup: false,
        };
        self.jobs.insert(xid, job);
        self.transmit(now, xid);
    }

    /// A client needs not be told of a grant any more.
    pub fn settle(&mut self, id: GrantId) {
        let is_it = |_: &u32, job: &mut Job| match &job.call {
            ClientCall::Granted(granted) => granted.id == id,
            _ => false,
        };
        for (xid, job) in self.jobs.extract_if(.., is_it) {
            self.wakes.remove(&(job.wake, xid));
        }
    }

    /// Takes a datagram that is a reply; one that nobody waits for is dropped.
    pub fn take_reply(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        let mut decoder = Decoder::new(datagram);
        let Ok(header) = ReplyHeader::decode(&mut decoder) else {
            return;
        };
        let xid = header.xid;
        let Some(job) = self.jobs.get_mut(&xid) else {
            return;
        };
        if job.call.address() != from.ip().to_canonical() {
            return;
        }
        let is_done = matches!(
            header.body,
            ReplyBody::Accepted {
                status: AcceptStatus::Success,
                ..
            }
        );
        if job.is_lookup {
            let port = is_done.then(|| read_port(&mut decoder, from)).flatten();
            if let Some(port) = port {
                if self.ports.len() >= PORTS_MAX {
                    self.ports.clear();
                }
                self.ports.insert(job.call.service(), port);
                job.is_lookup = false;
                self.transmit(now, xid);
            }
            return; // Not there (yet): asked again later.
        }
        if !is_done {
            self.ports.remove(&job.call.service());
            return;
        }
        let answer = match &job.call {
            ClientCall::Granted(granted) => {
                let width = width(granted.version);
                let results = Results::decode(Procedure::Granted, width, &mut decoder);
                match results {
                    Ok(Results::Done(outcome)) if outcome.status == Status::GracePeriod => return,
                    Ok(Results::Done(outcome)) => {
                        let is_wanted = outcome.status == Status::Granted;
                        Some(ClientAnswer::Granted(granted.id, is_wanted))
                    }
                    _ => return,
                }
            }
            ClientCall::Restarted { client, .. } => Some(ClientAnswer::Told(client.clone())),
            ClientCall::Result { .. } => None,
        };
        self.end(xid);
        self.answers.extend(answer);
    }

    /// Sends again what is due.
    pub fn timeout(&mut self, now: Time) {
        while let Some(&(wake, xid)) = self.wakes.first()
            && wake <= now
        {
            self.wakes.pop_first();
            let Some(job) = self.jobs.get_mut(&xid) else {
                continue;
            };
            if job.attempts < job.call.attempts_max() {
                if job.attempts % PORT_ATTEMPTS_MAX == 0 {
                    self.ports.remove(&job.call.service());
                }
                self.transmit(now, xid);
                continue;
            }
            if let Some(Job {
                call: ClientCall::Granted(granted),
                ..
            }) = self.jobs.remove(&xid)
            {
                let answer = ClientAnswer::Granted(granted.id, false);
                self.answers.push_back(answer);
            }
        }
    }

    /// When to call [`timeout`](Self::timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.wakes.first().map(|(time, _)| *time)
    }

    /// The next datagram to send.
    pub fn poll_datagram(&mut self) -> Option<(SocketAddr, Vec<Bytes>)> {
        self.datagrams.pop_front()
    }

    /// The next answer of a client.
    pub fn poll_answer(&mut self) -> Option<ClientAnswer> {
        self.answers.pop_front()
    }

    fn next_xid(&mut self, now: Time) -> u32 {
        if self.xids == 0 {
            // Another start uses other numbers: a late reply is nobody's.
            self.xids = u32::try_from(now.0 & 0xffff_ffff).unwrap_or_default();
        }
        loop {
            self.xids = self.xids.wrapping_add(1);
            if self.xids != 0 && !self.jobs.contains_key(&self.xids) {
                return self.xids;
            }
        }
    }

    fn end(&mut self, xid: u32) {
        if let Some(job) = self.jobs.remove(&xid) {
            self.wakes.remove(&(job.wake, xid));
        }
    }

    fn transmit(&mut self, now: Time, xid: u32) {
        let Some(job) = self.jobs.get_mut(&xid) else {
            return;
        };
        self.wakes.remove(&(job.wake, xid));
        let port = self.ports.get(&job.call.service()).copied();
        job.is_lookup = port.is_none();
        let port = port.unwrap_or(portmap::PORT);
        let pieces = if job.is_lookup {
            job.call.lookup(xid)
        } else {
            job.call.record(xid)
        };
        let pause = PAUSE_MIN * (1 << job.attempts.min(4));
        job.attempts += 1;
        job.wake = now + pause.min(PAUSE_MAX);
        self.wakes.insert((job.wake, xid));
        let target = SocketAddr::new(job.call.address(), port);
        self.datagrams.push_back((target, pieces));
    }
}

impl ClientCall {
    const fn address(&self) -> IpAddr {
        match self {
            Self::Granted(granted) => granted.lock.owner.client.address,
            Self::Restarted { client, .. } => client.address,
            Self::Result { client, .. } => *client,
        }
    }

    const fn program(&self) -> (u32, u32) {
        match self {
            Self::Granted(granted) => (lock::PROGRAM, granted.version),
            Self::Restarted { .. } => (status::PROGRAM, status::VERSION),
            Self::Result { version, .. } => (lock::PROGRAM, *version),
        }
    }

    const fn service(&self) -> (IpAddr, u32, u32) {
        let (program, version) = self.program();
        (self.address(), program, version)
    }

    const fn attempts_max(&self) -> u32 {
        match self {
            Self::Granted(_) | Self::Restarted { .. } => ATTEMPTS_MAX,
            Self::Result { .. } => RESULT_ATTEMPTS_MAX,
        }
    }

    /// The question for the port: of the portmapper by IPv4, else of rpcbind.
    fn lookup(&self, xid: u32) -> Vec<Bytes> {
        let (program, version) = self.program();
        if self.address().is_ipv4() {
            let arguments = portmap::Arguments::Mapping(Mapping {
                program,
                version,
                protocol: portmap::UDP,
                port: 0,
            });
            let procedure = portmap::Procedure::GetPort.number();
            let called = (portmap::PROGRAM, portmap::PORTMAP_VERSION, procedure);
            return record(xid, called, &arguments);
        }
        let arguments = portmap::Arguments::Binding(Binding {
            program,
            version,
            network: b"udp6",
            address: b"",
            owner: b"",
        });
        let procedure = BindProcedure::GetAddress.number();
        record(xid, (portmap::PROGRAM, 4, procedure), &arguments)
    }

    fn record(&self, xid: u32) -> Vec<Bytes> {
        let (program, version) = self.program();
        match self {
            Self::Granted(granted) => {
                let called = (program, version, Procedure::Granted.number());
                let owner = &granted.lock.owner;
                let arguments = Arguments::Test(TestArguments {
                    cookie: &granted.id.0.to_be_bytes(),
                    is_exclusive: granted.lock.is_exclusive,
                    lock: Lock {
                        caller: &owner.client.name,
                        file: &granted.handle,
                        owner: &owner.handle,
                        process: owner.process,
                        offset: granted.lock.range.first,
                        length: granted.lock.range.length(),
                    },
                });
                record(xid, called, &Versioned(width(version), arguments))
            }
            Self::Restarted { state, host, .. } => {
                let called = (program, version, status::Procedure::Notify.number());
                let state = *state;
                let change = status::Change { host, state };
                record(xid, called, &status::Arguments::Notify(change))
            }
            Self::Result {
                procedure, body, ..
            } => record(xid, (program, version, procedure.number()), body),
        }
    }
}

/// Whether a datagram is a reply rather than a call.
#[must_use]
pub fn is_reply(datagram: &[u8]) -> bool {
    datagram.get(4..8) == Some(&[0, 0, 0, 1])
}

fn read_port(decoder: &mut Decoder<'_>, from: SocketAddr) -> Option<u16> {
    let port = if from.ip().to_canonical().is_ipv4() {
        let results = portmap::Results::decode(portmap::Procedure::GetPort, decoder);
        match results {
            Ok(portmap::Results::Port(port)) => u16::try_from(port).ok()?,
            _ => return None,
        }
    } else {
        let results = portmap::Results::decode_bind(BindProcedure::GetAddress, decoder);
        match results {
            Ok(portmap::Results::Address(text)) => portmap::parse_universal_address(text)?.port(),
            _ => return None,
        }
    };
    (port != 0).then_some(port)
}

fn width(version: u32) -> Width {
    Width::of_version(version).unwrap_or(Width::Wide)
}

fn record(
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    arguments: &impl Encode,
) -> Vec<Bytes> {
    let mut writer = RecordWriter::datagram(HEAD_BYTES);
    let encoder = writer.encoder();
    encoder.put(&CallHeader {
        xid,
        program,
        version,
        procedure,
        credential: Credential::None,
        verifier: Verifier::NONE,
    });
    encoder.put(arguments);
    writer.finish().into_pieces()
}
