//! An initiator's end of a connection, with one command at a time: for those who test targets.

use bytes::Bytes;
use crossdock_types::Payload;
use thiserror::Error;

use crate::header::{
    Head, LoginFlags, LoginRequest, NO_TAG, Response, ScsiCommand, TaskFunction, TaskRequest,
    opcode,
};
use crate::reader::{PduError, PduReader};
use crate::text::encode_text;
use crate::writer::{Digests, encode};

/// Bytes of a PDU's data that are taken.
const DATA_BYTES_MAX: usize = 1 << 20;

/// An initiator, in its newest session; no I/O.
#[derive(Debug)]
pub struct Initiator {
    name: String,
    target: String,
    isid: [u8; 6],
    reader: PduReader,
    cmd_sn: u32,
    tag: u32,
    data: Vec<u8>,
}

/// What a target has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The login is over.
    LoggedIn {
        /// STATUS-CLASS; zero: it is logged in.
        class: u8,
        /// STATUS-DETAIL.
        detail: u8,
    },
    /// The command that was sent last is over.
    Done(Done),
    /// Something else.
    Other(Response),
}

/// A command's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// SCSI status.
    pub status: u8,
    /// What was read.
    pub data: Vec<u8>,
    /// Length and sense data, or nothing.
    pub sense: Vec<u8>,
}

/// What a target sends is not what targets send.
#[derive(Debug, Error)]
pub enum InitiatorError {
    /// No PDU.
    #[error(transparent)]
    Pdu(#[from] PduError),
    /// A PDU that only initiators send, or nobody.
    #[error("a header that is none of a target's")]
    Header,
}

impl Done {
    /// SENSE KEY, if there is sense data.
    #[must_use]
    pub fn sense_key(&self) -> Option<u8> {
        // Behind the two bytes of its length: it is in byte 2.
        self.sense.get(4).map(|byte| byte & 0xf)
    }
}

impl Initiator {
    /// Initiator `number`, of the target of that name.
    #[must_use]
    pub fn new(number: u8, target: String) -> Self {
        Self {
            name: format!("iqn.2026-11.example:{number}"),
            target,
            isid: [0x80, 0, 0, 0, 0, number],
            reader: PduReader::new(DATA_BYTES_MAX),
            cmd_sn: 1,
            tag: 0,
            data: Vec::new(),
        }
    }

    /// The first bytes of a new connection.
    pub fn log_in(&mut self) -> Bytes {
        self.reader = PduReader::new(DATA_BYTES_MAX);
        self.cmd_sn = 1;
        let header = LoginRequest {
            head: Head::new(opcode::LOGIN | 0x40, LoginFlags::TO_FULL_FEATURE.encode()),
            isid: self.isid,
            task_tag: 1.into(),
            cmd_sn: self.cmd_sn.into(),
            ..LoginRequest::default()
        };
        let pairs = [
            ("InitiatorName", self.name.as_str()),
            ("SessionType", "Normal"),
            ("TargetName", self.target.as_str()),
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
        ];
        encode(&header, encode_text(pairs).into(), Digests::default()).to_bytes()
    }

    /// The bytes of the next command, which reads so many and writes `data`.
    ///
    /// # Panics
    /// If the command has more than 16 bytes.
    pub fn command(&mut self, cdb: &[u8], reads: u32, data: Bytes) -> Bytes {
        self.tag += 1;
        self.data.clear();
        let writes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let header = ScsiCommand {
            task_tag: self.tag.into(),
            cmd_sn: self.cmd_sn.into(),
            ..ScsiCommand::simple(cdb, (reads, writes))
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        encode(&header, Payload::from(data), Digests::default()).to_bytes()
    }

    /// The bytes of a function of task management that is of no single task, out of turn; its
    /// answer is [`Response::Task`].
    pub fn manage(&mut self, function: TaskFunction) -> Bytes {
        self.tag += 1;
        let header = TaskRequest {
            head: Head::new(opcode::TASK | 0x40, 0x80 | function as u8),
            task_tag: self.tag.into(),
            referenced_tag: NO_TAG.into(),
            cmd_sn: self.cmd_sn.into(),
            ..TaskRequest::default()
        };
        encode(&header, Payload::new(), Digests::default()).to_bytes()
    }

    /// Takes what the target has sent.
    ///
    /// # Errors
    /// It is not what targets send.
    pub fn take(&mut self, bytes: Bytes) -> Result<Vec<Said>, InitiatorError> {
        self.reader.push(bytes);
        let mut said = Vec::new();
        while let Some(pdu) = self.reader.take()? {
            let response = Response::decode(&pdu.header).ok_or(InitiatorError::Header)?;
            match response {
                Response::Login(login) => said.push(Said::LoggedIn {
                    class: login.status_class,
                    detail: login.status_detail,
                }),
                Response::Data(header) if header.task_tag.get() == self.tag => {
                    self.data.extend_from_slice(&pdu.data.to_bytes());
                    if header.head.flags & 1 != 0 {
                        said.push(self.done(header.head.specific[1], Vec::new()));
                    }
                }
                Response::Command(header) if header.task_tag.get() == self.tag => {
                    let sense = pdu.data.to_bytes().to_vec();
                    said.push(self.done(header.head.specific[1], sense));
                }
                other => said.push(Said::Other(other)),
            }
        }
        Ok(said)
    }

    fn done(&mut self, status: u8, sense: Vec<u8>) -> Said {
        let data = std::mem::take(&mut self.data);
        Said::Done(Done {
            status,
            data,
            sense,
        })
    }
}
