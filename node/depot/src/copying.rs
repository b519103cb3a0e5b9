//! SEND: a third-party copy (Network Storage Stack 2.1; docs/ibp.md). The depot is a client of
//! the target's depot, and stores there what it reads here.

use crossdock_delivery::End;
use crossdock_ibp::answer::{self, AnswerError};
use crossdock_ibp::{Access, Capability, Command, ErrorCode, Request, Version};
use crossdock_types::Time;

use crate::connection::{Connection, Doing};
use crate::depot::Depot;
use crate::loading::LoadStage;
use crate::message::{ConnId, DepotEffect};

/// Where a copy goes.
#[derive(Debug)]
pub(crate) struct Target {
    capability: Capability,
    /// What the target is told as its time limit, in seconds.
    time_limit: u32,
    /// How long it is waited for, in seconds; 0: as long as any.
    patience: u32,
}

impl Target {
    pub(crate) fn new(
        capability: Capability,
        time_limit: u32,
        patience: u32,
    ) -> Result<Self, ErrorCode> {
        match capability.access {
            Access::Write => Ok(Self {
                capability,
                time_limit,
                patience,
            }),
            Access::Read | Access::Manage => Err(ErrorCode::CAP_NOT_WRITE),
        }
    }
}

impl Depot {
    /// Opens the connection to the target of a copy.
    pub(crate) fn connect(&mut self, now: Time, id: ConnId) {
        if self.connections.len() >= self.config.policy.connections_max {
            return self.end_command_with(now, id, ErrorCode::QUEUE_FULL);
        }
        let own = ConnId::own(self.own_total);
        self.own_total += 1;
        let Some(Doing::Load(load)) = self.doing(id) else {
            return;
        };
        let Some(target) = &load.target else {
            return;
        };
        let host = target.capability.host.as_str().to_owned();
        let (port, patience) = (target.capability.port, target.patience);
        load.to = own;
        let deadline = self.deadline(now, patience);
        if let Some(Doing::Load(load)) = self.doing(id) {
            load.deadline = deadline;
        }
        let connection = Connection::new(now, None, Doing::Copy(id));
        self.connections.insert(own, connection);
        self.effects.push_back(DepotEffect::Connect {
            id: own,
            host,
            port,
            within: self.config.policy.copy_targets.clone(),
        });
    }

    /// The target is where copies may not go.
    pub(crate) fn not_allowed(&mut self, now: Time, own: ConnId) {
        let owner = self.owner_of(own);
        self.connections.remove(&own);
        let is_its = matches!(self.doing(owner), Some(Doing::Load(load)) if load.to == own);
        if is_its && owner != own {
            self.end_command_with(now, owner, ErrorCode::INV_IP_ADDR);
        }
    }

    /// The connection is there: asks the target to take the bytes.
    pub(crate) fn connected(&mut self, now: Time, own: ConnId) {
        let owner = self.owner_of(own);
        let Some(Doing::Load(load)) = self.doing(owner) else {
            return self.abort(now, own);
        };
        let Some(target) = load.target.as_deref() else {
            return;
        };
        let request = Request {
            version: Version::V031,
            command: Command::Store {
                key: target.capability.key.clone(),
                attribute_key: target.capability.attribute_key.clone(),
                size_bytes: load.bytes,
                time_limit: target.time_limit,
            },
        };
        load.stage = LoadStage::AwaitsGo;
        if let Some(connection) = self.connections.get_mut(&own) {
            connection.active = now;
        }
        self.answer(own, request.to_string());
    }

    /// Takes what the target says.
    pub(crate) fn go_on_copying(&mut self, now: Time, own: ConnId, owner: ConnId) -> bool {
        let Some(line) = self.take_line(now, own) else {
            return false;
        };
        let Some(Doing::Load(load)) = self.doing(owner) else {
            self.abort(now, own);
            return false;
        };
        let (stage, bytes) = (load.stage, load.bytes);
        let failure = match stage {
            LoadStage::AwaitsGo => match answer::read_done(&line) {
                Ok(()) => {
                    self.open_stream(now, owner);
                    return true;
                }
                Err(error) => error,
            },
            LoadStage::AwaitsStored => match answer::read_bytes(&line) {
                Ok(stored) if stored == bytes => {
                    self.end_load(owner);
                    return true;
                }
                Ok(_) => AnswerError::Malformed,
                Err(error) => error,
            },
            // Before all bytes are there it can only refuse them.
            _ => match answer::read_done(&line) {
                Ok(()) => AnswerError::Malformed,
                Err(error) => error,
            },
        };
        self.end_command(now, owner, None, End::Reset);
        match failure {
            AnswerError::Refused { code, .. } => self.refuse_with(owner, answer::passed_on(code)),
            AnswerError::Malformed => self.refuse(owner, ErrorCode::GENERIC),
        }
        false
    }

    /// The other side of a copy does not answer, or has gone before it did.
    pub(crate) fn other_side_gone(&mut self, now: Time, own: ConnId, owner: ConnId) {
        let load = match self.doing(owner) {
            Some(Doing::Load(load)) if load.to == own => load.stage,
            _ => return,
        };
        if !matches!(load, LoadStage::Taking | LoadStage::Recording) {
            self.end_command_with(now, owner, ErrorCode::CONNECTION);
        }
    }
}
