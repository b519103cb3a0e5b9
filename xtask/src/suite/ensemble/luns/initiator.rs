//! A plain initiator over a socket, with one command at a time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use crossdock_iscsi_pdu::{
    Digests, Head, LoginFlags, LoginRequest, PduReader, Response, ScsiCommand, Stage, encode,
    encode_text, opcode,
};
use crossdock_types::Payload;

/// Bytes of a PDU's data that are taken.
const DATA_BYTES_MAX: usize = 1 << 20;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// An initiator with a session.
pub(super) struct Initiator {
    socket: TcpStream,
    reader: PduReader,
    number: u8,
    cmd_sn: u32,
}

/// A command's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Good(Vec<u8>),
    Miscompare,
    /// UNIT ATTENTION: the command was not looked at.
    Attention,
    Busy,
    Conflict,
    /// Status and sense data.
    Other(u8, Vec<u8>),
}

impl Initiator {
    /// Logs in to the LUN of that name.
    pub(super) fn connect(address: SocketAddr, number: u8, lun: &str) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut initiator = Self {
            socket,
            reader: PduReader::new(DATA_BYTES_MAX),
            number,
            cmd_sn: 1,
        };
        let flags = LoginFlags {
            is_transit: true,
            is_continued: false,
            current: Stage::Operational,
            next: Stage::FullFeature,
        };
        let header = LoginRequest {
            head: Head::new(opcode::LOGIN | 0x40, flags.encode()),
            isid: [0x80, 0, 0, 0, 0, number],
            task_tag: 1.into(),
            cmd_sn: 1.into(),
            ..LoginRequest::default()
        };
        let name = format!("iqn.2026-11.example:{number}");
        let target = format!("iqn.2026-11.io.crossdock:{lun}");
        let pairs = [
            ("InitiatorName", name.as_str()),
            ("SessionType", "Normal"),
            ("TargetName", target.as_str()),
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
        ];
        let bytes = encode(&header, encode_text(pairs).into(), Digests::default());
        initiator.socket.write_all(&bytes.to_bytes())?;
        let (response, _) = initiator.receive()?;
        let Response::Login(login) = response else {
            bail!("a login is answered {response:?}");
        };
        let status = (login.status_class, login.status_detail);
        ensure!(status == (0, 0), "a login is refused: {status:?}");
        Ok(initiator)
    }

    pub(super) fn read(&mut self, lba: u32) -> Result<Said> {
        self.command(&sixteen(0x88, lba), 512, &[])
    }

    pub(super) fn write(&mut self, lba: u32, block: &[u8]) -> Result<Said> {
        self.command(&sixteen(0x8a, lba), 0, block)
    }

    pub(super) fn compare_and_write(&mut self, lba: u32, old: &[u8], new: &[u8]) -> Result<Said> {
        self.command(&sixteen(0x89, lba), 0, &[old, new].concat())
    }

    /// REGISTER AND IGNORE EXISTING KEY, by the initiator's number.
    pub(super) fn register(&mut self) -> Result<Said> {
        self.reserve_out(6, 0, 0, self.number)
    }

    pub(super) fn reserve(&mut self, kind: u8) -> Result<Said> {
        self.reserve_out(1, kind, self.number, 0)
    }

    pub(super) fn release(&mut self, kind: u8) -> Result<Said> {
        self.reserve_out(2, kind, self.number, 0)
    }

    pub(super) fn preempt_and_abort(&mut self, kind: u8, victim: u8) -> Result<Said> {
        self.reserve_out(5, kind, self.number, victim)
    }

    /// The same until the target has told all that it had to tell.
    pub(super) fn settled(&mut self, ask: impl Fn(&mut Self) -> Result<Said>) -> Result<Said> {
        for _ in 0..16 {
            match ask(self)? {
                Said::Attention => {}
                said => return Ok(said),
            }
        }
        bail!("unit attentions without an end")
    }

    fn reserve_out(&mut self, action: u8, kind: u8, key: u8, other: u8) -> Result<Said> {
        let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
        let mut list = [0; 24];
        (list[7], list[15]) = (key, other);
        self.command(&cdb, 0, &list)
    }

    fn command(&mut self, cdb: &[u8], reads: u32, data: &[u8]) -> Result<Said> {
        let writes = u32::try_from(data.len())?;
        let direction = if reads > 0 { 0x40 } else { 0 } | if writes > 0 { 0x20 } else { 0 };
        let tag = self.cmd_sn;
        let mut header = ScsiCommand {
            head: Head::new(opcode::COMMAND, 0x81 | direction),
            task_tag: tag.into(),
            expected_bytes: reads.max(writes).into(),
            cmd_sn: self.cmd_sn.into(),
            ..ScsiCommand::default()
        };
        header.cdb[..cdb.len()].copy_from_slice(cdb);
        self.cmd_sn += 1;
        let data = Payload::from(bytes::Bytes::copy_from_slice(data));
        let bytes = encode(&header, data, Digests::default()).to_bytes();
        self.socket.write_all(&bytes)?;
        let mut read = Vec::new();
        loop {
            match self.receive()? {
                (Response::Data(header), data) if header.task_tag.get() == tag => {
                    read.extend_from_slice(&data);
                    if header.head.flags & 1 != 0 {
                        return Ok(said(header.head.specific[1], read, Vec::new()));
                    }
                }
                (Response::Command(header), sense) if header.task_tag.get() == tag => {
                    return Ok(said(header.head.specific[1], read, sense));
                }
                (Response::Nop(_) | Response::Async(_), _) => {}
                (response, _) => bail!("a command is answered {response:?}"),
            }
        }
    }

    fn receive(&mut self) -> Result<(Response, Vec<u8>)> {
        loop {
            if let Some(pdu) = self.reader.take()? {
                let response = Response::decode(&pdu.header).context("none of a target's PDUs")?;
                return Ok((response, pdu.data.to_bytes().to_vec()));
            }
            let mut bytes = vec![0; 64 << 10];
            let length = self.socket.read(&mut bytes).context("no answer")?;
            ensure!(length > 0, "the target has closed the connection");
            bytes.truncate(length);
            self.reader.push(bytes.into());
        }
    }
}

fn said(status: u8, data: Vec<u8>, sense: Vec<u8>) -> Said {
    // Behind the two bytes of its length: the sense key is in byte 2.
    match (status, sense.get(4).map(|byte| byte & 0xf)) {
        (0, _) => Said::Good(data),
        (2, Some(6)) => Said::Attention,
        (2, Some(0xe)) => Said::Miscompare,
        (8, _) => Said::Busy,
        (0x18, _) => Said::Conflict,
        _ => Said::Other(status, sense),
    }
}

fn sixteen(code: u8, lba: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[6..10].copy_from_slice(&lba.to_be_bytes());
    (cdb[0], cdb[13]) = (code, 1);
    cdb
}
