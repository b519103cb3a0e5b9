//! A plain initiator over a socket, with one command at a time.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_iscsi_pdu::{self as pdu, Done, Response, TaskFunction};

/// Bytes of a block.
const BLOCK_BYTES: u32 = 512;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// An initiator with a session.
pub(in crate::suite) struct Initiator {
    socket: TcpStream,
    machine: pdu::Initiator,
    number: u8,
    /// What the target has said and nobody has looked at.
    said: VecDeque<pdu::Said>,
    /// Late answers that were passed over, to what nobody has waited for.
    late: usize,
}

/// A command's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::suite) enum Said {
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
    pub(in crate::suite) fn connect(address: SocketAddr, number: u8, lun: &str) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let target = format!("iqn.2026-11.io.crossdock:{lun}");
        let mut initiator = Self {
            socket,
            machine: pdu::Initiator::new(number, target),
            number,
            said: VecDeque::new(),
            late: 0,
        };
        let bytes = initiator.machine.log_in();
        initiator.socket.write_all(&bytes)?;
        match initiator.receive()? {
            pdu::Said::LoggedIn {
                class: 0,
                detail: 0,
            } => Ok(initiator),
            said => bail!("a login is answered {said:?}"),
        }
    }

    pub(in crate::suite) fn read(&mut self, lba: u32) -> Result<Said> {
        self.command(&sixteen(0x88, lba), BLOCK_BYTES, &[])
    }

    pub(in crate::suite) fn write(&mut self, lba: u32, block: &[u8]) -> Result<Said> {
        self.command(&sixteen(0x8a, lba), 0, block)
    }

    /// Sends a read whose answer nobody waits for.
    pub(in crate::suite) fn begin_read(&mut self, lba: u32, blocks: u32) -> Result<()> {
        let mut cdb = sixteen(0x88, lba);
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        let bytes = self
            .machine
            .command(&cdb, blocks * BLOCK_BYTES, Bytes::new());
        Ok(self.socket.write_all(&bytes)?)
    }

    /// Sends a write whose answer nobody waits for.
    pub(in crate::suite) fn begin_write(&mut self, lba: u32, block: &[u8]) -> Result<()> {
        let data = Bytes::copy_from_slice(block);
        let bytes = self.machine.command(&sixteen(0x8a, lba), 0, data);
        Ok(self.socket.write_all(&bytes)?)
    }

    /// A function of task management that is of no single task, until it is carried out.
    pub(in crate::suite) fn manage(&mut self, function: TaskFunction) -> Result<()> {
        let bytes = self.machine.manage(function);
        self.socket.write_all(&bytes)?;
        loop {
            match self.receive()? {
                pdu::Said::Other(Response::Task(answer)) => {
                    let response = answer.head.specific[0];
                    ensure!(response == 0, "{function:?} is answered {response}");
                    return Ok(());
                }
                pdu::Said::Other(Response::Nop(_)) => {}
                pdu::Said::Other(Response::Command(_)) => self.late += 1,
                other => bail!("{function:?} is answered {other:?}"),
            }
        }
    }

    /// Answers that nobody has waited for, since this was asked last.
    pub(in crate::suite) fn take_late(&mut self) -> usize {
        std::mem::take(&mut self.late)
    }

    /// Waits until the target has ended the connection.
    pub(in crate::suite) fn await_end(&mut self) -> Result<()> {
        let mut bytes = vec![0; 64 << 10];
        while self.socket.read(&mut bytes).context("it does not end")? > 0 {}
        Ok(())
    }

    pub(in crate::suite) fn test_unit(&mut self) -> Result<Said> {
        self.command(&[0; 6], 0, &[])
    }

    pub(in crate::suite) fn compare_and_write(
        &mut self,
        lba: u32,
        old: &[u8],
        new: &[u8],
    ) -> Result<Said> {
        self.command(&sixteen(0x89, lba), 0, &[old, new].concat())
    }

    /// RESERVE (6), which gateways of ensembles do not know.
    pub(in crate::suite) fn reserve_six(&mut self) -> Result<Said> {
        self.command(&[0x16, 0, 0, 0, 0, 0], 0, &[])
    }

    /// START STOP UNIT: stop.
    pub(in crate::suite) fn stop_unit(&mut self) -> Result<Said> {
        self.command(&[0x1b, 0, 0, 0, 0, 0], 0, &[])
    }

    /// REPORT TARGET PORT GROUPS.
    pub(in crate::suite) fn port_groups(&mut self) -> Result<Said> {
        self.command(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256, &[])
    }

    /// REGISTER AND IGNORE EXISTING KEY, by the initiator's number.
    pub(in crate::suite) fn register(&mut self) -> Result<Said> {
        self.reserve_out(6, 0, 0, self.number)
    }

    pub(in crate::suite) fn reserve(&mut self, kind: u8) -> Result<Said> {
        self.reserve_out(1, kind, self.number, 0)
    }

    pub(in crate::suite) fn release(&mut self, kind: u8) -> Result<Said> {
        self.reserve_out(2, kind, self.number, 0)
    }

    pub(in crate::suite) fn preempt_and_abort(&mut self, kind: u8, victim: u8) -> Result<Said> {
        self.reserve_out(5, kind, self.number, victim)
    }

    /// POPULATE TOKEN, and the token.
    pub(in crate::suite) fn populate(&mut self, ranges: &[(u64, u32)]) -> Result<Vec<u8>> {
        let list = with_ranges(vec![0; 14], ranges)?;
        let made = self.settled(|it| it.command(&token_cdb(0x10, list.len())?, 0, &list))?;
        ensure!(matches!(made, Said::Good(_)), "POPULATE TOKEN: {made:?}");
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[5], cdb[12]) = (0x84, 0x07, TOKEN_LIST, 4);
        match self.command(&cdb, 1024, &[])? {
            Said::Good(told) if told.len() == 38 + TOKEN_BYTES => Ok(told[38..].to_vec()),
            said => bail!("RECEIVE ROD TOKEN INFORMATION: {said:?}"),
        }
    }

    /// WRITE USING TOKEN, from the beginning of what it stands for.
    pub(in crate::suite) fn write_using(
        &mut self,
        token: &[u8],
        ranges: &[(u64, u32)],
    ) -> Result<Said> {
        let mut head = vec![0; 22 + TOKEN_BYTES];
        head[16..16 + TOKEN_BYTES].copy_from_slice(token);
        let list = with_ranges(head, ranges)?;
        self.settled(|it| it.command(&token_cdb(0x11, list.len())?, 0, &list))
    }

    /// The same until the target has told all that it had to tell.
    pub(in crate::suite) fn settled(
        &mut self,
        ask: impl Fn(&mut Self) -> Result<Said>,
    ) -> Result<Said> {
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
        let bytes = self
            .machine
            .command(cdb, reads, Bytes::copy_from_slice(data));
        self.socket.write_all(&bytes)?;
        loop {
            match self.receive()? {
                pdu::Said::Done(done) => return Ok(said(done)),
                pdu::Said::Other(Response::Nop(_) | Response::Async(_)) => {}
                pdu::Said::Other(Response::Command(_)) => self.late += 1,
                other => bail!("a command is answered {other:?}"),
            }
        }
    }

    fn receive(&mut self) -> Result<pdu::Said> {
        loop {
            if let Some(said) = self.said.pop_front() {
                return Ok(said);
            }
            let mut bytes = vec![0; 64 << 10];
            let length = self.socket.read(&mut bytes).context("no answer")?;
            ensure!(length > 0, "the target has closed the connection");
            bytes.truncate(length);
            self.said.extend(self.machine.take(bytes.into())?);
        }
    }
}

const TOKEN_BYTES: usize = 512;

/// List identifier of commands about tokens.
const TOKEN_LIST: u8 = 7;

fn token_cdb(action: u8, length: usize) -> Result<[u8; 16]> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[9]) = (0x83, action, TOKEN_LIST);
    cdb[10..14].copy_from_slice(&u32::try_from(length)?.to_be_bytes());
    Ok(cdb)
}

/// A list of block device range descriptors behind their length, and the length of all.
fn with_ranges(mut list: Vec<u8>, ranges: &[(u64, u32)]) -> Result<Vec<u8>> {
    list.extend(u16::try_from(16 * ranges.len())?.to_be_bytes());
    for (lba, blocks) in ranges {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    let length = u16::try_from(list.len() - 2)?;
    list[..2].copy_from_slice(&length.to_be_bytes());
    Ok(list)
}

fn said(done: Done) -> Said {
    match (done.status, done.sense_key()) {
        (0, _) => Said::Good(done.data),
        (2, Some(6)) => Said::Attention,
        (2, Some(0xe)) => Said::Miscompare,
        (8, _) => Said::Busy,
        (0x18, _) => Said::Conflict,
        _ => Said::Other(done.status, done.sense),
    }
}

fn sixteen(code: u8, lba: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[6..10].copy_from_slice(&lba.to_be_bytes());
    (cdb[0], cdb[13]) = (code, 1);
    cdb
}
