//! A session of one connection that does not block: it logs in, sends commands and their
//! data, and tells when they are answered. What is not as a well-behaved target has it ends
//! the run.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::{Buf, Bytes, BytesMut};
use crossdock_iscsi_pdu::{
    DataOut, Digests, Head, LoginFlags, LoginRequest, NO_TAG, NopOut, Pdu, PduReader,
    ReadyToTransfer, Response, ScsiCommand, encode, encode_text, opcode, parse_text,
};
use crossdock_types::Payload;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::{Immutable, IntoBytes};

/// Bytes received at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Pieces that one system call sends.
const PIECES_MAX: usize = 64;
/// Data of one PDU that we take.
const OUR_DATA_BYTES: usize = 1 << 20;
/// How long a target may say nothing while it has something to answer.
const PATIENCE: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};
/// Attempts at TEST UNIT READY: a unit tells what has happened to it first.
const READY_ATTEMPTS: usize = 8;
/// Set in the first byte behind the operation code: last PDU, reads, writes.
const FINAL: u8 = 0x80;
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
const FORCED: u8 = 0x08;

/// Blocks that are read or written.
pub(super) struct Transfer {
    pub(super) lba: u64,
    pub(super) bytes: u32,
    pub(super) is_forced: bool,
    /// What is written.
    pub(super) content: Option<Payload>,
}

/// A command that is not answered.
struct Task {
    since: Instant,
    content: Payload,
    /// Bytes that are to be read, and those that were.
    wanted: usize,
    received: usize,
}

/// What the target has agreed to.
struct Agreed {
    their_data_bytes: usize,
    first_burst_bytes: usize,
    is_immediate: bool,
}

/// An initiator that has logged in.
pub(super) struct Session {
    stream: TcpStream,
    reader: PduReader,
    chunk: BytesMut,
    unsent: VecDeque<Bytes>,
    tasks: BTreeMap<u32, Task>,
    lun: [u8; 8],
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    next_tag: u32,
    agreed: Agreed,
    digests: Digests,
    block_bytes: u32,
    blocks: u64,
    /// Data of commands that somebody waits for alone.
    data: Vec<u8>,
}

impl Session {
    pub(super) fn open(
        server: SocketAddr,
        target: &str,
        lun: u8,
        has_digests: bool,
    ) -> anyhow::Result<Self> {
        let stream =
            TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut session = Self {
            stream,
            reader: PduReader::new(OUR_DATA_BYTES),
            chunk: BytesMut::new(),
            unsent: VecDeque::new(),
            tasks: BTreeMap::new(),
            lun: [0, lun, 0, 0, 0, 0, 0, 0],
            cmd_sn: 1,
            max_cmd_sn: 1,
            exp_stat_sn: 0,
            next_tag: 1,
            agreed: Agreed {
                // RFC 7143 section 13: what holds until something else is agreed on.
                their_data_bytes: 8192,
                first_burst_bytes: 65_536,
                is_immediate: true,
            },
            // Until the login is over.
            digests: Digests::default(),
            block_bytes: 512,
            blocks: 0,
            data: Vec::new(),
        };
        session.log_in(target, has_digests)?;
        session.find_unit()?;
        Ok(session)
    }

    pub(super) const fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    pub(super) const fn unit_bytes(&self) -> u64 {
        self.blocks * self.block_bytes as u64
    }

    pub(super) fn outstanding(&self) -> usize {
        self.tasks.len()
    }

    /// Whether the target takes a further command.
    pub(super) const fn has_room(&self) -> bool {
        self.max_cmd_sn.wrapping_sub(self.cmd_sn) < 1 << 31
    }

    fn log_in(&mut self, target: &str, has_digests: bool) -> anyhow::Result<()> {
        let ours = OUR_DATA_BYTES.to_string();
        let digest = if has_digests { "CRC32C" } else { "None" };
        let pairs = [
            ("InitiatorName", "iqn.2026-11.io.crossdock:load"),
            ("SessionType", "Normal"),
            ("TargetName", target),
            ("HeaderDigest", digest),
            ("DataDigest", digest),
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
            ("MaxBurstLength", ours.as_str()),
            ("FirstBurstLength", "262144"),
            ("MaxRecvDataSegmentLength", ours.as_str()),
            ("MaxOutstandingR2T", "1"),
            ("MaxConnections", "1"),
            ("ErrorRecoveryLevel", "0"),
            ("DefaultTime2Wait", "2"),
            ("DefaultTime2Retain", "0"),
            ("DataPDUInOrder", "Yes"),
            ("DataSequenceInOrder", "Yes"),
        ];
        let mut text = encode_text(pairs);
        loop {
            let flags = LoginFlags::TO_FULL_FEATURE;
            let header = LoginRequest {
                head: Head::new(opcode::LOGIN | 0x40, flags.encode()),
                isid: [0x80, 0, 0, 0, 0, 9],
                task_tag: 1.into(),
                cmd_sn: self.cmd_sn.into(),
                exp_stat_sn: self.exp_stat_sn.into(),
                ..LoginRequest::default()
            };
            self.push(&header, Payload::from(std::mem::take(&mut text)));
            let pdu = self.wait()?;
            let Some(Response::Login(login)) = Response::decode(&pdu.header) else {
                bail!("no answer to a login");
            };
            let status = (login.status_class, login.status_detail);
            ensure!(status == (0, 0), "the target refuses: {status:?}");
            self.exp_stat_sn = login.stat_sn.get().wrapping_add(1);
            self.max_cmd_sn = login.max_cmd_sn.get();
            self.agree(&pdu.data.to_bytes(), digest)?;
            if login.head.flags & FINAL != 0 {
                self.digests = Digests {
                    header: has_digests,
                    data: has_digests,
                };
                self.reader.agree(self.digests, OUR_DATA_BYTES);
                return Ok(());
            }
        }
    }

    /// Notes what the target says of itself, and of what is the lesser of both.
    fn agree(&mut self, text: &[u8], digest: &str) -> anyhow::Result<()> {
        for (key, value) in parse_text(text)? {
            match key.as_str() {
                "MaxRecvDataSegmentLength" => self.agreed.their_data_bytes = value.parse()?,
                "FirstBurstLength" => self.agreed.first_burst_bytes = value.parse()?,
                "ImmediateData" => self.agreed.is_immediate = value == "Yes",
                "HeaderDigest" | "DataDigest" => {
                    ensure!(value == digest, "the target wants {key}={value}");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn find_unit(&mut self) -> anyhow::Result<()> {
        let mut attempts = 0;
        while let Err(error) = self.alone([0; 16], 0) {
            attempts += 1;
            ensure!(
                attempts < READY_ATTEMPTS,
                "the unit is not ready: {error:#}"
            );
        }
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32); // READ CAPACITY (16).
        let data = self.alone(cdb, 32)?;
        let last = data.get(..8).context("no capacity")?;
        let block_bytes = data.get(8..12).context("no capacity")?;
        self.blocks = u64::from_be_bytes(last.try_into()?) + 1;
        self.block_bytes = u32::from_be_bytes(block_bytes.try_into()?);
        ensure!(self.block_bytes > 0, "blocks of no bytes");
        Ok(())
    }

    /// A command that nothing is under way beside, and its data.
    fn alone(&mut self, cdb: [u8; 16], reads: u32) -> anyhow::Result<Vec<u8>> {
        self.data.clear();
        self.command(cdb, (reads, READS), Payload::new());
        let mut latencies = Vec::new();
        while !self.tasks.is_empty() {
            self.turn(&mut latencies)?;
        }
        Ok(std::mem::take(&mut self.data))
    }

    /// SYNCHRONIZE CACHE, to its end.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        let mut cdb = [0; 16];
        cdb[0] = 0x35;
        self.alone(cdb, 0).map(drop)
    }

    /// Sends a READ or WRITE (16).
    pub(super) fn ask(&mut self, transfer: Transfer) -> anyhow::Result<()> {
        let mut cdb = [0; 16];
        let (code, flag) = match &transfer.content {
            None => (0x88, READS),
            Some(_) => (0x8a, WRITES),
        };
        cdb[0] = code;
        cdb[1] = if transfer.is_forced { FORCED } else { 0 };
        cdb[2..10].copy_from_slice(&transfer.lba.to_be_bytes());
        let blocks = transfer.bytes / self.block_bytes;
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        let content = transfer.content.unwrap_or_default();
        self.command(cdb, (transfer.bytes, flag), content);
        self.send()
    }

    fn command(&mut self, cdb: [u8; 16], (bytes, direction): (u32, u8), content: Payload) {
        let tag = self.next_tag;
        self.next_tag = if tag == NO_TAG - 1 { 1 } else { tag + 1 };
        let immediate = match self.agreed.is_immediate {
            true => (self.agreed.first_burst_bytes)
                .min(self.agreed.their_data_bytes)
                .min(content.len()),
            false => 0,
        };
        let direction = if bytes == 0 { 0 } else { direction };
        let header = ScsiCommand {
            head: Head::new(opcode::COMMAND, FINAL | direction),
            lun: self.lun,
            task_tag: tag.into(),
            expected_bytes: bytes.into(),
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: self.exp_stat_sn.into(),
            cdb,
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        let task = Task {
            since: Instant::now(),
            wanted: if direction == READS {
                bytes as usize
            } else {
                0
            },
            received: 0,
            content,
        };
        let data = task.content.slice(0, immediate);
        self.tasks.insert(tag, task);
        self.push(&header, data);
    }

    fn push(&mut self, header: &(impl IntoBytes + Immutable), data: Payload) {
        let pdu = encode(header, data, self.digests);
        self.unsent.extend(pdu.into_pieces());
    }

    fn send(&mut self) -> anyhow::Result<()> {
        while !self.unsent.is_empty() {
            let pieces = self.unsent.iter().take(PIECES_MAX);
            let slices: Vec<IoSlice<'_>> = pieces.map(|piece| IoSlice::new(piece)).collect();
            match self.stream.write_vectored(&slices) {
                Ok(written) => self.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(piece) = self.unsent.front_mut() {
            if written < piece.len() {
                piece.advance(written);
                return;
            }
            written -= piece.len();
            self.unsent.pop_front();
        }
    }

    /// Waits until something has come, and takes it; how long commands took that it answers.
    pub(super) fn turn(&mut self, latencies: &mut Vec<Duration>) -> anyhow::Result<()> {
        self.send()?;
        self.receive()?;
        while let Some(pdu) = self.reader.take()? {
            self.take(&pdu, latencies)?;
        }
        self.send()
    }

    fn wait(&mut self) -> anyhow::Result<Pdu> {
        loop {
            self.send()?;
            if let Some(pdu) = self.reader.take()? {
                return Ok(pdu);
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        let mut wanted = PollFlags::IN;
        if !self.unsent.is_empty() {
            wanted |= PollFlags::OUT;
        }
        let mut polled = [PollFd::from_borrowed_fd(self.stream.as_fd(), wanted)];
        ensure!(
            poll(&mut polled, Some(&PATIENCE))? > 0,
            "the target says nothing"
        );
        self.chunk.resize(CHUNK_BYTES, 0);
        match self.stream.read(&mut self.chunk) {
            Ok(0) => bail!("the target has closed the connection"),
            Ok(count) => {
                self.reader.push(self.chunk.split_to(count).freeze());
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, pdu: &Pdu, latencies: &mut Vec<Duration>) -> anyhow::Result<()> {
        ensure!(pdu.is_intact, "data whose digest does not match");
        match Response::decode(&pdu.header) {
            Some(Response::Data(header)) => {
                let tag = header.task_tag.get();
                let task = self.tasks.get_mut(&tag).context("data of no command")?;
                task.received += pdu.data.len();
                if task.wanted < OUR_DATA_BYTES && self.tasks.len() == 1 {
                    self.data.extend_from_slice(&pdu.data.to_bytes());
                }
                self.max_cmd_sn = header.max_cmd_sn.get();
                if header.head.flags & 1 != 0 {
                    self.exp_stat_sn = header.stat_sn.get().wrapping_add(1);
                    self.answered(tag, header.head.specific[1], latencies)?;
                }
            }
            Some(Response::Command(header)) => {
                self.max_cmd_sn = header.max_cmd_sn.get();
                self.exp_stat_sn = header.stat_sn.get().wrapping_add(1);
                let tag = header.task_tag.get();
                self.answered(tag, header.head.specific[1], latencies)?;
            }
            Some(Response::Ready(ready)) => self.bring(&ready)?,
            Some(Response::Nop(nop)) if nop.transfer_tag.get() != NO_TAG => {
                let header = NopOut {
                    head: Head::new(opcode::NOP_OUT | 0x40, FINAL),
                    task_tag: NO_TAG.into(),
                    transfer_tag: nop.transfer_tag,
                    cmd_sn: self.cmd_sn.into(),
                    exp_stat_sn: self.exp_stat_sn.into(),
                    ..NopOut::default()
                };
                self.push(&header, Payload::new());
            }
            other => bail!("unexpected {other:?}"),
        }
        Ok(())
    }

    fn answered(
        &mut self,
        tag: u32,
        status: u8,
        latencies: &mut Vec<Duration>,
    ) -> anyhow::Result<()> {
        let task = self.tasks.remove(&tag).context("an answer to no command")?;
        ensure!(status == 0, "status {status:#x}");
        ensure!(
            task.received == task.wanted,
            "{} bytes of {} were read",
            task.received,
            task.wanted
        );
        latencies.push(task.since.elapsed());
        Ok(())
    }

    /// Sends the data that the target asks for.
    fn bring(&mut self, ready: &ReadyToTransfer) -> anyhow::Result<()> {
        self.max_cmd_sn = ready.max_cmd_sn.get();
        let tag = ready.task_tag.get();
        let task = self.tasks.get(&tag).context("R2T of no command")?;
        let content = task.content.clone();
        let mut offset = ready.offset.get() as usize;
        let end = offset + ready.desired_bytes.get() as usize;
        ensure!(end <= content.len(), "R2T beyond the command's data");
        let mut data_sn = 0u32;
        while offset < end {
            let to = end.min(offset + self.agreed.their_data_bytes);
            let flags = if to == end { FINAL } else { 0 };
            let header = DataOut {
                head: Head::new(opcode::DATA_OUT, flags),
                lun: self.lun,
                task_tag: tag.into(),
                transfer_tag: ready.transfer_tag,
                exp_stat_sn: self.exp_stat_sn.into(),
                data_sn: data_sn.into(),
                offset: u32::try_from(offset)?.into(),
                ..DataOut::default()
            };
            self.push(&header, content.slice(offset, to));
            (offset, data_sn) = (to, data_sn + 1);
        }
        Ok(())
    }
}
