//! One TCP connection: of a client, or to another depot.

use std::net::SocketAddr;

use crossdock_delivery::Pace;
use crossdock_ibp::{LineTooLong, take_line};
use crossdock_types::{Payload, Time};

use crate::changing::{Allocating, Changing};
use crate::loading::{LoadStage, Loading};
use crate::message::ConnId;
use crate::policy::DepotConfig;
use crate::storing::{StoreStage, Storing};

/// State of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Who, and at which address of ours; the depot's own have none.
    pub(crate) ends: Option<(SocketAddr, SocketAddr)>,
    /// Arrived, and not taken yet.
    pub(crate) received: Payload,
    /// Since when a line waits for its end.
    line_since: Option<Time>,
    /// The command that is carried out; the next one waits.
    pub(crate) doing: Doing,
    /// Bytes that the kernel has not taken yet …
    pub(crate) unsent_bytes: u64,
    /// … and how many of the first of them are of no allocation.
    plain_bytes: u64,
    /// What is known of how fast it takes bytes, between its loads.
    pub(crate) pace: Option<Box<Pace>>,
    /// The other side sends no more.
    pub(crate) is_peer_done: bool,
    /// Nothing more is served: it ends behind what is to be sent.
    pub(crate) is_closing: bool,
    is_held_back: bool,
    /// When something last came, or went, or a command ended.
    pub(crate) active: Time,
}

/// What a connection is for at the moment.
#[derive(Debug)]
pub(crate) enum Doing {
    /// The next command.
    Nothing,
    Allocate(Box<Allocating>),
    Store(Box<Storing>),
    Load(Box<Loading>),
    Change(Box<Changing>),
    /// The line that follows STATUS CHANGE; whether the answer is of version 1.
    Limits(bool),
    /// It is the depot's own, for the copy that this client wants.
    Copy(ConnId),
}

/// What has not happened in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// The rest of a line.
    Line,
    /// A byte of what is to be stored.
    Data,
    /// That anything was taken of what was sent.
    Reader,
    /// A request.
    Idle,
    /// What a command waits for.
    Waited,
}

impl Connection {
    pub(crate) const fn new(
        now: Time,
        ends: Option<(SocketAddr, SocketAddr)>,
        doing: Doing,
    ) -> Self {
        Self {
            ends,
            received: Payload::new(),
            line_since: None,
            doing,
            unsent_bytes: 0,
            plain_bytes: 0,
            pace: None,
            is_peer_done: false,
            is_closing: false,
            is_held_back: false,
            active: now,
        }
    }

    /// Takes the next line, if it has come.
    pub(crate) fn take_line(
        &mut self,
        now: Time,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, LineTooLong> {
        let here = self.received.len();
        let head = self.received.slice(0, here.min(bytes_max)).to_bytes();
        let Some((line, bytes)) = take_line(&head, bytes_max)? else {
            match here {
                0 => self.line_since = None,
                _ => _ = self.line_since.get_or_insert(now),
            }
            return Ok(None);
        };
        self.line_since = None;
        self.received = self.received.slice(bytes, here);
        Ok(Some(line.to_vec()))
    }

    /// Takes the next bytes; so many have come.
    pub(crate) fn take_bytes(&mut self, bytes: usize) -> Payload {
        let taken = self.received.slice(0, bytes);
        self.received = self.received.slice(bytes, self.received.len());
        taken
    }

    /// Whether it is not to be read from now; `None` if that is as before.
    pub(crate) const fn hold_back(&mut self, is_full: bool) -> Option<bool> {
        let was_full = std::mem::replace(&mut self.is_held_back, is_full);
        if is_full == was_full {
            return None;
        }
        Some(is_full)
    }

    /// So many bytes of no allocation are to be sent. (None are behind those of one: the next
    /// command begins when these are gone.)
    pub(crate) const fn push_plain(&mut self, bytes: u64) {
        self.unsent_bytes += bytes;
        self.plain_bytes += bytes;
    }

    /// The kernel has taken bytes. Returns how many of them were of an allocation.
    pub(crate) fn sent(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.min(self.unsent_bytes);
        let plain = bytes.min(self.plain_bytes);
        self.unsent_bytes -= bytes;
        self.plain_bytes -= plain;
        bytes - plain
    }

    /// The allocation that its command is about.
    pub(crate) fn allocation(&self) -> Option<u64> {
        match &self.doing {
            Doing::Store(store) => Some(store.number),
            Doing::Load(load) => load.source.allocation(),
            Doing::Change(change) => Some(change.number),
            Doing::Nothing | Doing::Allocate(_) | Doing::Limits(_) | Doing::Copy(_) => None,
        }
    }

    /// When it has waited for too long, and what for.
    pub(crate) fn deadline(&self, config: &DepotConfig) -> Option<(Time, Late)> {
        if self.unsent_bytes > 0 {
            return Some((self.active + config.data_patience, Late::Reader));
        }
        if self.is_closing {
            return Some((self.active + config.idle_patience, Late::Idle));
        }
        let waited = |due: Time| Some((due, Late::Waited));
        match &self.doing {
            Doing::Nothing => match self.line_since {
                Some(since) => Some((since + config.line_patience, Late::Line)),
                None => Some((self.active + config.idle_patience, Late::Idle)),
            },
            Doing::Limits(_) => Some((self.active + config.line_patience, Late::Line)),
            Doing::Allocate(allocate) => allocate.due().and_then(waited),
            Doing::Store(store) => match &store.stage {
                StoreStage::Waiting => waited(store.deadline),
                StoreStage::Receiving(receiving) if receiving.in_flight == 0 => {
                    Some((self.active + config.data_patience, Late::Data))
                }
                _ => None, // It is the node that has to do something.
            },
            Doing::Load(load) => match load.stage {
                LoadStage::Waiting
                | LoadStage::Connecting
                | LoadStage::AwaitsGo
                | LoadStage::AwaitsStored => waited(load.deadline),
                LoadStage::Reading | LoadStage::Taking | LoadStage::Recording => None,
            },
            Doing::Change(_) | Doing::Copy(_) => None,
        }
    }
}
