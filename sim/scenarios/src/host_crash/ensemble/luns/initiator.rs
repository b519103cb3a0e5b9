//! An initiator's end of an iSCSI connection, with one command at a time.

use bytes::Bytes;
use crossdock_iscsi_pdu::{
    Digests, Head, LoginFlags, LoginRequest, PduReader, Response, ScsiCommand, Stage, encode,
    encode_text, opcode,
};
use crossdock_types::Payload;

/// Bytes of a PDU's data that are taken.
const DATA_BYTES_MAX: usize = 1 << 20;

/// An initiator, in its newest session.
pub(super) struct Initiator {
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
pub(super) enum Said {
    /// The login is over; its status.
    LoggedIn(u8),
    /// The command that was sent last is over.
    Done(Done),
}

/// A command's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) status: u8,
    pub(super) data: Vec<u8>,
    sense: Vec<u8>,
}

impl Done {
    /// SENSE KEY, if there is sense data.
    pub(super) fn sense_key(&self) -> Option<u8> {
        self.sense.get(4).copied()
    }
}

impl Initiator {
    pub(super) fn new(number: u8, target: String) -> Self {
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
    pub(super) fn log_in(&mut self) -> Bytes {
        self.reader = PduReader::new(DATA_BYTES_MAX);
        self.cmd_sn = 1;
        let flags = LoginFlags {
            is_transit: true,
            is_continued: false,
            current: Stage::Operational,
            next: Stage::FullFeature,
        };
        let header = LoginRequest {
            head: Head::new(opcode::LOGIN | 0x40, flags.encode()),
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

    /// The bytes of the next command, which reads and writes so many.
    pub(super) fn command(&mut self, cdb: &[u8], reads: u32, data: Bytes) -> Bytes {
        self.tag += 1;
        self.data.clear();
        let writes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let direction = if reads > 0 { 0x40 } else { 0 } | if writes > 0 { 0x20 } else { 0 };
        let mut header = ScsiCommand {
            head: Head::new(opcode::COMMAND, 0x81 | direction),
            task_tag: self.tag.into(),
            expected_bytes: reads.max(writes).into(),
            cmd_sn: self.cmd_sn.into(),
            ..ScsiCommand::default()
        };
        header.cdb[..cdb.len()].copy_from_slice(cdb);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        encode(&header, Payload::from(data), Digests::default()).to_bytes()
    }

    /// Takes what the target has sent.
    pub(super) fn take(&mut self, bytes: Bytes) -> Result<Vec<Said>, String> {
        self.reader.push(bytes);
        let mut said = Vec::new();
        while let Some(pdu) = self.reader.take().map_err(|error| format!("{error:?}"))? {
            let response = Response::decode(&pdu.header);
            match response.ok_or("a header that is none of a target's")? {
                Response::Login(login) => said.push(Said::LoggedIn(login.status_class)),
                Response::Data(header) if header.task_tag.get() == self.tag => {
                    self.data.extend_from_slice(&pdu.data.to_bytes());
                    if header.head.flags & 1 != 0 {
                        let sense = Vec::new();
                        said.push(self.done(header.head.specific[1], sense));
                    }
                }
                Response::Command(header) if header.task_tag.get() == self.tag => {
                    let sense = pdu.data.to_bytes().to_vec();
                    said.push(self.done(header.head.specific[1], sense));
                }
                Response::Reject(header) => return Err(format!("a reject: {header:?}")),
                _ => {}
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
