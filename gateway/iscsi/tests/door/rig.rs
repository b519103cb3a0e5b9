//! A door, a LUN's bytes in memory, and initiators, driven by hand: what the door asks the
//! router for is answered when the test says so.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use crossdock_iscsi::{
    ConnId, IscsiConfig, IscsiDoor, IscsiEffect, IscsiInput, LunTable, Portals, ReserveOrder,
};
use crossdock_iscsi_pdu::{
    DataOut, Digests, Head, LoginFlags, LoginRequest, NO_TAG, PduReader, Response, ScsiCommand,
    Stage, TaskFunction, TaskRequest, encode, encode_text, opcode, parse_text,
};
use crossdock_limits::COPY_BYTES_MAX;
use crossdock_names::{FileId, FileRef, Incarnation, SMALL_FILE_THRESHOLD_BYTES};
use crossdock_peer::{
    Call, CallId, Lun, LunAccess, MappedRanges, Reservations, SiteAnswer, SiteError, SiteOperation,
    SiteReply, SiteRequest, Stability, WeakCache,
};
use crossdock_router::{RoutedReply, Waited};
use crossdock_types::{Filler, Payload, Time};
use zerocopy::{Immutable, IntoBytes};

pub(crate) const TARGET: &str = "iqn.2026-11.io.crossdock:disk";
pub(crate) const BLOCK: usize = 512;

/// A PDU of the door's, and its data.
pub(crate) type Answer = (Response, Payload);

pub(crate) struct Rig {
    pub(crate) door: IscsiDoor,
    pub(crate) now: Time,
    pub(crate) luns: LunTable,
    pub(crate) content: Vec<u8>,
    /// Bytes of further LUNs, by their files' ids.
    pub(crate) others: BTreeMap<u64, Vec<u8>>,
    /// Without space, in order; and of further LUNs.
    pub(crate) holes: Vec<Range<u64>>,
    pub(crate) other_holes: Vec<Range<u64>>,
    /// Asked, not answered.
    pub(crate) asked: VecDeque<Call<SiteRequest>>,
    /// Changes of reservations that are obeyed.
    pub(crate) obeyed: Vec<u64>,
    pub(crate) withdrawn: Vec<CallId>,
    pub(crate) verifier: [u8; 8],
    /// Reads of these bytes fail.
    pub(crate) bad: Option<std::ops::Range<u64>>,
    /// Changes of reservations are answered with this.
    pub(crate) takes_reservations: bool,
    /// Changes of the LUN's record that are in the registry, and not obeyed by all gateways yet.
    pub(crate) unobeyed: Vec<u64>,
    /// Whether they wait for that.
    pub(crate) waits_for_gateways: bool,
    readers: BTreeMap<ConnId, PduReader>,
    /// What is received in one piece.
    pub(crate) filling: BTreeMap<ConnId, Filler>,
    pub(crate) ended: BTreeMap<ConnId, Ended>,
    pub(crate) paused: BTreeMap<ConnId, bool>,
    /// Whether initiators take what they are sent.
    pub(crate) is_reading: bool,
    connections: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Closed,
    Aborted,
}

pub(crate) fn lun(id: u64, name: &str) -> Lun {
    Lun {
        id,
        name: name.to_owned(),
        file: FileRef {
            id: FileId(7),
            generation: 1,
        },
        size_bytes: 4 << 20,
        block_bytes: 512,
        is_thin: true,
        is_removable: false,
        has_write_cache: true,
        access: LunAccess::local(),
        reservations: Reservations::default(),
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(IscsiConfig {
            seed: [7; 32],
            ..IscsiConfig::default()
        })
    }

    pub(crate) fn with(config: IscsiConfig) -> Self {
        let mut rig = Self {
            door: IscsiDoor::new(config),
            now: Time::from_secs(1),
            luns: [(1, lun(1, "disk"))].into(),
            content: vec![0; 4 << 20],
            others: BTreeMap::new(),
            holes: Vec::new(),
            other_holes: Vec::new(),
            asked: VecDeque::new(),
            withdrawn: Vec::new(),
            obeyed: Vec::new(),
            verifier: [1; 8],
            bad: None,
            takes_reservations: true,
            unobeyed: Vec::new(),
            waits_for_gateways: false,
            readers: BTreeMap::new(),
            filling: BTreeMap::new(),
            ended: BTreeMap::new(),
            paused: BTreeMap::new(),
            is_reading: true,
            connections: 0,
        };
        rig.tell_luns();
        let portal = "0.0.0.0:3260".parse().expect("an address");
        rig.give(IscsiInput::Portals(Portals {
            own: vec![portal],
            port: 1,
            ..Portals::default()
        }));
        rig
    }

    pub(crate) fn tell_luns(&mut self) {
        let luns = Arc::new(self.luns.clone());
        self.give(IscsiInput::Luns(luns));
    }

    pub(crate) fn give(&mut self, input: IscsiInput) {
        self.door.handle(self.now, input);
        while let Some(effect) = self.door.poll_effect() {
            match effect {
                IscsiEffect::Send(id, payload) => {
                    let bytes = payload.to_bytes();
                    let length = bytes.len();
                    if let Some(reader) = self.readers.get_mut(&id) {
                        reader.push(bytes);
                    }
                    if self.is_reading {
                        self.door.handle(self.now, IscsiInput::Sent(id, length));
                    }
                }
                IscsiEffect::Close(id) => drop(self.ended.insert(id, Ended::Closed)),
                IscsiEffect::Abort(id) => drop(self.ended.insert(id, Ended::Aborted)),
                IscsiEffect::Fill(id, fill) => drop(self.filling.insert(id, fill.into())),
                IscsiEffect::Pause(id) => drop(self.paused.insert(id, true)),
                IscsiEffect::Resume(id) => drop(self.paused.insert(id, false)),
                IscsiEffect::Router(call) => self.asked.push_back(*call),
                IscsiEffect::Withdraw(id) => {
                    self.asked.retain(|call| call.id != id);
                    self.withdrawn.push(id);
                }
                IscsiEffect::Reserve(order) => self.reserve(*order),
                IscsiEffect::Obeyed(changes) => self.obeyed.push(changes),
            }
        }
    }

    fn reserve(&mut self, order: ReserveOrder) {
        let known = self.luns.get_mut(&order.lun).expect("a LUN");
        let is_done = self.takes_reservations && known.reservations == order.expected;
        if is_done {
            known.reservations = order.wanted;
            let luns = Arc::new(self.luns.clone());
            self.door.handle(self.now, IscsiInput::Luns(luns));
            if self.waits_for_gateways && order.is_obeyed_first {
                return self.unobeyed.push(order.ticket);
            }
        }
        self.door
            .handle(self.now, IscsiInput::Reserved(order.ticket, is_done));
    }

    /// Answers the oldest call.
    pub(crate) fn answer_one(&mut self) {
        let call = self.asked.pop_front().expect("a call");
        let outcome = self.carry_out(&call.request.operation);
        self.reply(call.id, outcome);
    }

    pub(crate) fn reply(&mut self, id: CallId, outcome: Result<SiteAnswer, SiteError>) {
        let reply = SiteReply {
            id,
            outcome,
            subject: WeakCache::default(),
            second: WeakCache::default(),
        };
        let routed = RoutedReply {
            reply,
            verifier: self.verifier,
            waited: Waited::default(),
        };
        self.give(IscsiInput::Reply(Box::new(routed)));
    }

    pub(crate) fn answer_all(&mut self) {
        while !self.asked.is_empty() {
            self.answer_one();
        }
    }

    fn holes_of(&mut self, file: FileRef) -> &mut Vec<Range<u64>> {
        match self.others.contains_key(&file.id.0) {
            true => &mut self.other_holes,
            false => &mut self.holes,
        }
    }

    fn content_of(&mut self, file: FileRef) -> &mut Vec<u8> {
        self.others.get_mut(&file.id.0).unwrap_or(&mut self.content)
    }

    fn carry_out(&mut self, operation: &SiteOperation) -> Result<SiteAnswer, SiteError> {
        match operation {
            SiteOperation::Read {
                file,
                offset_bytes,
                length_bytes,
                ..
            } => {
                let end = offset_bytes + length_bytes;
                let is_bad =
                    |bad: &std::ops::Range<u64>| bad.start < end && *offset_bytes < bad.end;
                if self.bad.as_ref().is_some_and(is_bad) {
                    return Err(SiteError::Io);
                }
                let bytes = &self.content_of(*file)[place(*offset_bytes)..place(end)];
                Ok(SiteAnswer::Read {
                    payload: Bytes::copy_from_slice(bytes).into(),
                    end_of_file: false,
                })
            }
            SiteOperation::Write {
                file,
                offset_bytes,
                payload,
                ..
            } => {
                let start = place(*offset_bytes);
                let content = self.content_of(*file);
                payload.copy_to_slice(&mut content[start..start + payload.len()]);
                let incarnation = Incarnation(1);
                Ok(SiteAnswer::Written { incarnation })
            }
            SiteOperation::Exchange {
                file,
                offset_bytes,
                payload,
            } => {
                let both = payload.to_bytes();
                let (expected, new) = both.split_at(both.len() / 2);
                let start = place(*offset_bytes);
                let found = &mut self.content_of(*file)[start..start + new.len()];
                let mut pairs = found.iter().zip(expected);
                if let Some(at) = pairs.position(|(found, expected)| found != expected) {
                    let at_bytes = at as u64;
                    return Ok(SiteAnswer::Differs { at_bytes });
                }
                found.copy_from_slice(new);
                Ok(SiteAnswer::Done)
            }
            SiteOperation::Zero {
                file,
                offset_bytes,
                length_bytes,
            } => {
                let range = *offset_bytes..offset_bytes + length_bytes;
                self.content_of(*file)[place(range.start)..place(range.end)].fill(0);
                self.holes_of(*file).push(range);
                let incarnation = Incarnation(1);
                Ok(SiteAnswer::Written { incarnation })
            }
            SiteOperation::Copy { .. } => self.copy(operation),
            SiteOperation::Mapped {
                file,
                offset_bytes,
                length_bytes,
            } => {
                let end_bytes = offset_bytes + length_bytes;
                let mut mapped = MappedRanges {
                    runs: Vec::new(),
                    end_bytes,
                };
                let mut at = *offset_bytes;
                let holes = self.holes_of(*file).iter();
                for hole in holes.filter(|hole| hole.end > *offset_bytes) {
                    mapped.add(at..hole.start.max(at));
                    at = hole.end;
                }
                mapped.add(at..end_bytes);
                Ok(SiteAnswer::Mapped(mapped))
            }
            SiteOperation::Commit { .. } => Ok(SiteAnswer::Committed),
            other => panic!("nobody asks {other:?}"),
        }
    }

    /// As nodes do it.
    fn copy(&mut self, operation: &SiteOperation) -> Result<SiteAnswer, SiteError> {
        let &SiteOperation::Copy {
            file,
            offset_bytes,
            source,
            source_offset_bytes,
            length_bytes,
            frees_zeros,
            ..
        } = operation
        else {
            panic!("a copy");
        };
        let first = source_offset_bytes.min(offset_bytes);
        assert!(first >= SMALL_FILE_THRESHOLD_BYTES, "sites copy nothing");
        assert!((1..=COPY_BYTES_MAX).contains(&length_bytes));
        let read = source_offset_bytes..source_offset_bytes + length_bytes;
        let is_bad = |bad: &Range<u64>| bad.start < read.end && read.start < bad.end;
        if self.bad.as_ref().is_some_and(is_bad) {
            return Ok(SiteAnswer::Unreadable);
        }
        let bytes = self.content_of(source)[place(read.start)..place(read.end)].to_vec();
        let written = offset_bytes..offset_bytes + length_bytes;
        if frees_zeros && bytes.iter().all(|byte| *byte == 0) {
            self.holes_of(file).push(written.clone());
        }
        self.content_of(file)[place(written.start)..place(written.end)].copy_from_slice(&bytes);
        let incarnation = Incarnation(1);
        Ok(SiteAnswer::Written { incarnation })
    }

    /// How durable the writes are that were asked for.
    pub(crate) fn stabilities(&self) -> Vec<Stability> {
        let writes =
            self.asked
                .iter()
                .filter_map(|call| match call.request.operation {
                    SiteOperation::Write { stability, .. }
                    | SiteOperation::Copy { stability, .. } => Some(stability),
                    _ => None,
                });
        writes.collect()
    }

    /// Whether nodes are copying.
    pub(crate) fn is_copying(&self) -> bool {
        let mut asked = self.asked.iter();
        asked.any(|call| matches!(call.request.operation, SiteOperation::Copy { .. }))
    }

    pub(crate) fn connect_from(&mut self, peer: &str) -> ConnId {
        self.connect(peer, "127.0.0.1:3260")
    }

    fn connect(&mut self, peer: &str, local: &str) -> ConnId {
        self.connections += 1;
        let id = ConnId(self.connections);
        self.readers.insert(id, PduReader::new(1 << 24));
        let peer = peer.parse().expect("an address");
        let local = local.parse().ok();
        self.give(IscsiInput::Opened(id, peer, local));
        id
    }

    pub(crate) fn receive(&mut self, id: ConnId) -> Vec<Answer> {
        let reader = self.readers.get_mut(&id).expect("a connection");
        let mut found = Vec::new();
        while let Some(pdu) = reader.take().expect("a PDU") {
            assert!(pdu.is_intact);
            found.push((
                Response::decode(&pdu.header).expect("one of a target"),
                pdu.data,
            ));
        }
        found
    }

    pub(crate) fn send_bytes(&mut self, id: ConnId, bytes: impl Into<Bytes>) {
        let mut bytes = bytes.into();
        while let Some(whole) = Filler::next_of(&mut self.filling, id, &mut bytes) {
            self.give(IscsiInput::Received(id, whole));
        }
    }

    fn agree(&mut self, id: ConnId, digests: Digests) {
        let reader = self.readers.get_mut(&id).expect("a connection");
        reader.agree(digests, 1 << 24);
    }
}

/// An initiator's connection.
pub(crate) struct Initiator {
    pub(crate) id: ConnId,
    pub(crate) name: String,
    pub(crate) target: String,
    pub(crate) isid: [u8; 6],
    pub(crate) tsih: u16,
    pub(crate) cid: u16,
    pub(crate) cmd_sn: u32,
    pub(crate) tag: u32,
    pub(crate) digests: Digests,
}

impl Initiator {
    pub(crate) fn new(rig: &mut Rig, number: u8) -> Self {
        Self::at(rig, number, "127.0.0.1:3260")
    }

    /// One that has come to that address of the machine.
    pub(crate) fn at(rig: &mut Rig, number: u8, local: &str) -> Self {
        Self {
            id: rig.connect("127.0.0.1:999", local),
            name: format!("iqn.2026-11.example:{number}"),
            target: TARGET.to_owned(),
            isid: [0x80, 0, 0, 0, 0, number],
            tsih: 0,
            cid: 0,
            cmd_sn: 100,
            tag: 0,
            digests: Digests::default(),
        }
    }

    /// One that has logged in, and been told that the unit has started.
    pub(crate) fn ready(rig: &mut Rig, number: u8) -> Self {
        Self::ready_with(rig, number, &[])
    }

    pub(crate) fn ready_with(rig: &mut Rig, number: u8, pairs: &[(&str, &str)]) -> Self {
        let mut initiator = Self::new(rig, number);
        initiator.log_in(rig, pairs);
        let sense = initiator.run(rig, &[0; 6], (0, 0), b"").sense();
        assert_eq!(sense, Some((6, 0x29, 0)));
        initiator
    }

    /// Says who it is, and goes to the full feature phase at once.
    pub(crate) fn log_in(&mut self, rig: &mut Rig, pairs: &[(&str, &str)]) {
        let (name, target) = (self.name.clone(), self.target.clone());
        let mut all = vec![
            ("InitiatorName", name.as_str()),
            ("SessionType", "Normal"),
            ("TargetName", target.as_str()),
        ];
        all.extend_from_slice(pairs);
        let flags = transit(Stage::Operational, Stage::FullFeature);
        let (status, answers) = self.say(rig, flags, &all);
        assert_eq!(status, (0, 0), "{answers:?}");
        let is_on = |key: &str| {
            let value = answers.iter().find(|(name, _)| name == key);
            value.is_some_and(|(_, value)| value == "CRC32C")
        };
        self.digests = Digests {
            header: is_on("HeaderDigest"),
            data: is_on("DataDigest"),
        };
        rig.agree(self.id, self.digests);
    }

    /// One login request, its status and its answer.
    pub(crate) fn say(
        &mut self,
        rig: &mut Rig,
        flags: LoginFlags,
        pairs: &[(&str, &str)],
    ) -> ((u8, u8), Vec<(String, String)>) {
        let header = LoginRequest {
            head: Head::new(opcode::LOGIN | 0x40, flags.encode()),
            isid: self.isid,
            tsih: self.tsih.into(),
            task_tag: 1.into(),
            cid: self.cid.into(),
            cmd_sn: self.cmd_sn.into(),
            ..LoginRequest::default()
        };
        let text = encode_text(pairs.iter().copied());
        let bytes = encode(&header, text.into(), Digests::default()).to_bytes();
        rig.send_bytes(self.id, bytes);
        let answers = rig.receive(self.id);
        let Some((Response::Login(login), text)) = answers.into_iter().next_back() else {
            panic!("no answer to a login");
        };
        if login.tsih.get() != 0 {
            self.tsih = login.tsih.get();
        }
        let pairs = parse_text(&text.to_bytes()).expect("a text");
        ((login.status_class, login.status_detail), pairs)
    }

    pub(crate) fn send(&self, rig: &mut Rig, header: &(impl IntoBytes + Immutable), data: &[u8]) {
        let data = Payload::from(Bytes::copy_from_slice(data));
        let bytes = encode(header, data, self.digests).to_bytes();
        rig.send_bytes(self.id, bytes);
    }

    /// A command; `expected`: bytes that are read and written. Its tag.
    pub(crate) fn ask(
        &mut self,
        rig: &mut Rig,
        cdb: &[u8],
        (reads, writes): (u32, u32),
        data: &[u8],
    ) -> u32 {
        let header = self.command(cdb, (reads, writes));
        self.send(rig, &header, data);
        header.task_tag.get()
    }

    /// The header of the next command.
    pub(crate) fn command(&mut self, cdb: &[u8], expected: (u32, u32)) -> ScsiCommand {
        self.tag += 1;
        let header = ScsiCommand {
            task_tag: self.tag.into(),
            cmd_sn: self.cmd_sn.into(),
            ..ScsiCommand::simple(cdb, expected)
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        header
    }

    /// The same, to its end.
    pub(crate) fn run(
        &mut self,
        rig: &mut Rig,
        cdb: &[u8],
        expected: (u32, u32),
        data: &[u8],
    ) -> Done {
        let tag = self.ask(rig, cdb, expected, data);
        rig.answer_all();
        Done::of(tag, rig.receive(self.id))
    }

    pub(crate) fn read(&mut self, rig: &mut Rig, lba: u32, blocks: u16) -> Done {
        let bytes = u32::from(blocks) * 512;
        self.run(rig, &ten(0x28, lba, blocks), (bytes, 0), b"")
    }

    /// Data for a transfer, or unasked.
    pub(crate) fn data_out(
        &self,
        rig: &mut Rig,
        (tag, transfer): (u32, u32),
        (sn, offset, is_final): (u32, u32, bool),
        data: &[u8],
    ) {
        let header = DataOut {
            head: Head::new(opcode::DATA_OUT, if is_final { 0x80 } else { 0 }),
            task_tag: tag.into(),
            transfer_tag: transfer.into(),
            data_sn: sn.into(),
            offset: offset.into(),
            ..DataOut::default()
        };
        self.send(rig, &header, data);
    }

    /// A function of task management, out of turn.
    pub(crate) fn manage(&self, rig: &mut Rig, function: TaskFunction, tag: u32) {
        let header = TaskRequest {
            head: Head::new(opcode::TASK | 0x40, 0x80 | function as u8),
            task_tag: 0x7000_0000.into(),
            referenced_tag: tag.into(),
            cmd_sn: self.cmd_sn.into(),
            ..TaskRequest::default()
        };
        self.send(rig, &header, b"");
    }
}

/// A command that was answered.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: u8,
    pub(crate) data: Vec<u8>,
    /// Flags and bytes of the residual.
    pub(crate) residual: (u8, u32),
    sense: Vec<u8>,
}

impl Done {
    /// What the PDUs say of that task.
    pub(crate) fn of(tag: u32, answers: Vec<Answer>) -> Self {
        let mut data = Vec::new();
        for (response, bytes) in answers {
            match response {
                Response::Data(header) if header.task_tag.get() == tag => {
                    assert_eq!(header.offset.get() as usize, data.len());
                    assert_eq!(header.transfer_tag.get(), NO_TAG);
                    data.extend_from_slice(&bytes.to_bytes());
                    if header.head.flags & 1 != 0 {
                        return Self {
                            status: header.head.specific[1],
                            data,
                            residual: (header.head.flags & 6, header.residual.get()),
                            sense: Vec::new(),
                        };
                    }
                }
                Response::Command(header) if header.task_tag.get() == tag => {
                    return Self {
                        status: header.head.specific[1],
                        data,
                        residual: (header.head.flags & 6, header.residual.get()),
                        sense: bytes.to_bytes().to_vec(),
                    };
                }
                _ => {}
            }
        }
        panic!("task {tag} was not answered");
    }

    pub(crate) fn is_good(&self) -> bool {
        self.status == 0
    }

    /// Key, code and qualifier.
    pub(crate) fn sense(&self) -> Option<(u8, u8, u8)> {
        let sense = self.sense.get(2..)?;
        Some((*sense.get(2)?, *sense.get(12)?, *sense.get(13)?))
    }

    /// What a place of a copy has said, source or destination: its status, and key and code of
    /// its sense data.
    pub(crate) fn forwarded(&self) -> Option<(bool, u8, u8, u8)> {
        let sense = self.sense.get(2..)?;
        let (source, destination) = (*sense.get(8)?, *sense.get(9)?);
        let said = sense.get(usize::from(source.max(destination))..)?;
        let byte = |at: usize| said.get(at).copied().unwrap_or_default();
        (source.max(destination) > 0).then(|| (source > 0, byte(0), byte(3), byte(13)))
    }

    /// INFORMATION.
    pub(crate) fn information(&self) -> u32 {
        let bytes = &self.sense[2 + 3..2 + 7];
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

pub(crate) fn transit(current: Stage, next: Stage) -> LoginFlags {
    LoginFlags {
        is_transit: true,
        is_continued: false,
        current,
        next,
    }
}

/// A command of ten bytes with an address and a length.
pub(crate) fn ten(code: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let (l, b) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [code, 0, l[0], l[1], l[2], l[3], 0, b[0], b[1], 0]
}

/// How a function of task management was answered, if it was.
pub(crate) fn management(answers: &[Answer]) -> Option<u8> {
    answers.iter().find_map(|(response, _)| match response {
        Response::Task(it) => Some(it.head.specific[0]),
        _ => None,
    })
}

/// In memory.
fn place(offset_bytes: u64) -> usize {
    usize::try_from(offset_bytes).expect("of little content")
}
