//! A client made of the wire codecs, and a router that is played by hand.

#![allow(
    dead_code,
    reason = "each test file is a crate of its own and uses its part"
)]

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use crossdock_delivery::Switches;
use crossdock_names::{
    ExportId, FileHandle, FileId, FileRef, HandleKey, HandleKeys, LayoutClass, VolumeId,
};
use crossdock_nfs::{ConnId, DoorConfig, DoorLimits, Export, NfsDoor, NfsEffect, NfsInput};
use crossdock_nfs3::{
    self as nfs3, FileType, Handle, HandleBuffer, Location, Name, Procedure, Reply,
};
use crossdock_peer::{
    Attributes, BeforeAttributes, Call, CallId, Device, FileKind, SiteAnswer, SiteError,
    SiteOperation, SiteReply, SiteRequest, WeakCache,
};
use crossdock_router::RoutedReply;
use crossdock_rpc::{
    AuthSys, CallHeader, Credential, Groups, RecordReader, RecordWriter, ReplyHeader, Verifier,
};
use crossdock_types::{Time, WallTime};
use crossdock_xdr::{Decoder, Encode};

pub(crate) const ROOT: FileRef = FileRef {
    id: FileId(1),
    generation: 1,
};
pub(crate) const FILE: FileRef = FileRef {
    id: FileId(9),
    generation: 4,
};
pub(crate) const VOLUME: VolumeId = VolumeId(0xabcd);
pub(crate) const NOW: Time = Time::from_secs(100);
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const VERIFIER: [u8; 8] = *b"verifier";
pub(crate) const CONN: ConnId = ConnId(1);

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

pub(crate) fn keys() -> HandleKeys {
    HandleKeys::new(vec![HandleKey {
        id: 1,
        key: [5; 32],
    }])
}

pub(crate) fn config() -> DoorConfig {
    DoorConfig {
        volume: VOLUME,
        exports: vec![Export::local(ExportId(1), b"/", ROOT)],
        keys: Some(keys()),
        patience: PATIENCE,
        limits: DoorLimits::default(),
        delivery: Switches::default(),
    }
}

pub(crate) fn handle(file: FileRef) -> HandleBuffer {
    handle_of(&keys(), VOLUME, ExportId(1), file)
}

pub(crate) fn handle_of(
    keys: &HandleKeys,
    volume: VolumeId,
    export: ExportId,
    file: FileRef,
) -> HandleBuffer {
    let handle = keys.seal(&FileHandle {
        volume,
        export,
        file,
        placement: file.id,
        layout: LayoutClass::STRIPED,
    });
    HandleBuffer::new(&handle).expect("it fits")
}

pub(crate) fn forged() -> Handle<'static> {
    Handle::new(&[7; 64]).expect("it fits")
}

pub(crate) fn attributes(file: FileRef, kind: FileKind) -> Attributes {
    Attributes {
        file,
        kind,
        mode: 0o755,
        links: 2,
        uid: 3,
        gid: 4,
        size_bytes: 5,
        used_bytes: 6,
        device: Device { major: 7, minor: 8 },
        accessed: WallTime(9),
        modified: WallTime(10),
        changed: WallTime(11),
    }
}

/// What the client sees of [`attributes`].
pub(crate) fn shown(file: FileRef, kind: nfs3::FileType) -> nfs3::Attributes {
    let at = |nanoseconds| nfs3::Timestamp {
        seconds: 0,
        nanoseconds,
    };
    nfs3::Attributes {
        file_type: kind,
        mode: 0o755,
        links: 2,
        uid: 3,
        gid: 4,
        size_bytes: 5,
        used_bytes: 6,
        device: nfs3::DeviceNumber { major: 7, minor: 8 },
        fsid: VOLUME.0,
        fileid: file.id.0,
        accessed: at(9),
        modified: at(10),
        changed: at(11),
    }
}

pub(crate) fn cache(file: FileRef, kind: FileKind) -> WeakCache {
    WeakCache {
        before: Some(BeforeAttributes {
            size_bytes: 1,
            modified: WallTime(2),
            changed: WallTime(3),
        }),
        after: Some(attributes(file, kind)),
    }
}

/// What the client sees of [`cache`].
pub(crate) fn shown_cache(file: FileRef, kind: nfs3::FileType) -> nfs3::WccData {
    let at = |nanoseconds| nfs3::Timestamp {
        seconds: 0,
        nanoseconds,
    };
    nfs3::WccData {
        before: Some(nfs3::WccAttributes {
            size_bytes: 1,
            modified: at(2),
            changed: at(3),
        }),
        after: Some(shown(file, kind)),
    }
}

pub(crate) fn sys(uid: u32, gid: u32, groups: &[u32]) -> Credential<'static> {
    Credential::Sys(AuthSys {
        stamp: 1,
        machine_name: b"client",
        uid,
        gid,
        groups: Groups::new(groups).expect("few"),
    })
}

pub(crate) fn header(xid: u32, program: u32, version: u32, procedure: u32) -> CallHeader<'static> {
    CallHeader {
        xid,
        program,
        version,
        procedure,
        credential: sys(1000, 100, &[5]),
        verifier: Verifier::NONE,
    }
}

/// A record without its mark.
pub(crate) fn message(header: &CallHeader<'_>, arguments: &impl Encode) -> Bytes {
    finish(RecordWriter::datagram(0), header, arguments)
}

/// A record with its mark.
pub(crate) fn record(header: &CallHeader<'_>, arguments: &impl Encode) -> Bytes {
    finish(RecordWriter::stream(0), header, arguments)
}

fn finish(mut writer: RecordWriter, header: &CallHeader<'_>, arguments: &impl Encode) -> Bytes {
    writer.encoder().put(header);
    writer.encoder().put(arguments);
    writer.finish().to_bytes()
}

pub(crate) fn nfs(xid: u32, call: &nfs3::Call<'_>) -> Bytes {
    let procedure = call.procedure().number();
    record(&header(xid, nfs3::PROGRAM, nfs3::VERSION, procedure), call)
}

/// A door with one connection of a local client.
pub(crate) struct Bench {
    pub(crate) door: NfsDoor,
    now: Time,
    reader: RecordReader,
    /// Replies that were sent and not looked at.
    replies: Vec<Bytes>,
    /// Every other effect.
    pub(crate) effects: Vec<NfsEffect>,
    pub(crate) sends: usize,
    /// Replies are not read: what was asked makes no sense.
    pub(crate) is_deaf: bool,
}

impl Bench {
    pub(crate) fn new(config: DoorConfig) -> Self {
        Self::from(config, "127.0.0.1:999")
    }

    pub(crate) fn from(config: DoorConfig, client: &str) -> Self {
        let mut bench = Self {
            door: NfsDoor::new(config),
            now: NOW,
            reader: RecordReader::default(),
            replies: Vec::new(),
            effects: Vec::new(),
            sends: 0,
            is_deaf: false,
        };
        bench.input(NfsInput::Opened(CONN, address(client)));
        bench
    }

    pub(crate) fn input(&mut self, input: NfsInput) {
        self.door.handle(self.now, input);
        self.drain();
    }

    pub(crate) fn input_at(&mut self, now: Time, input: NfsInput) {
        self.now = now;
        self.input(input);
    }

    /// What the door does when it has waited until `until`, being woken whenever
    /// it wants to be.
    pub(crate) fn wait(&mut self, until: Time) -> Vec<NfsEffect> {
        while let Some(wake) = self.door.poll_timeout().filter(|&wake| wake <= until) {
            self.input_at(wake, NfsInput::Timeout);
            assert_ne!(self.door.poll_timeout(), Some(wake), "it turns in circles");
        }
        self.now = until;
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn receive(&mut self, bytes: Bytes) {
        self.input(NfsInput::Received(CONN, bytes));
    }

    fn drain(&mut self) {
        while let Some(effect) = self.door.poll_effect() {
            let NfsEffect::Send(CONN, payload) = effect else {
                self.effects.push(effect);
                continue;
            };
            self.sends += 1;
            if self.is_deaf {
                continue;
            }
            for mut piece in payload.into_pieces() {
                while let Some(reply) = self.reader.next_record(&mut piece).expect("sound") {
                    self.replies.push(reply);
                }
            }
        }
    }

    /// The calls to the router since the last time; there is nothing else.
    #[track_caller]
    pub(crate) fn asked(&mut self) -> Vec<Call<SiteRequest>> {
        let calls = self.effects.drain(..).map(|effect| match effect {
            NfsEffect::Router(call) => *call,
            other => panic!("unexpected {other:?}"),
        });
        calls.collect()
    }

    #[track_caller]
    pub(crate) fn asked_one(&mut self) -> Call<SiteRequest> {
        let mut calls = self.asked();
        assert_eq!(calls.len(), 1, "{calls:?}");
        calls.remove(0)
    }

    pub(crate) fn answer(
        &mut self,
        id: CallId,
        outcome: Result<SiteAnswer, SiteError>,
        subject: WeakCache,
    ) {
        self.answer_both(id, outcome, subject, WeakCache::default());
    }

    pub(crate) fn answer_both(
        &mut self,
        id: CallId,
        outcome: Result<SiteAnswer, SiteError>,
        subject: WeakCache,
        second: WeakCache,
    ) {
        let reply = SiteReply {
            id,
            outcome,
            subject,
            second,
        };
        let routed = RoutedReply {
            reply,
            verifier: VERIFIER,
            waited: crossdock_router::Waited::default(),
        };
        self.input(NfsInput::Reply(Box::new(routed)));
    }

    /// The replies since the last time, records without marks.
    pub(crate) fn replies(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.replies)
    }

    /// The only reply since the last time.
    #[track_caller]
    pub(crate) fn reply(&mut self) -> Bytes {
        let mut replies = self.replies();
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.remove(0)
    }

    /// Sends a call that is answered at once.
    #[track_caller]
    pub(crate) fn at_once(&mut self, call: &nfs3::Call<'_>) -> Reply {
        self.receive(nfs(1, call));
        assert!(self.effects.is_empty(), "{:?}", self.effects);
        decode(call.procedure(), &self.reply()).1
    }

    /// Sends a call, has it answered, and returns what was asked and the reply.
    #[track_caller]
    pub(crate) fn round(
        &mut self,
        call: &nfs3::Call<'_>,
        outcome: Result<SiteAnswer, SiteError>,
        subject: WeakCache,
    ) -> (SiteRequest, Reply) {
        self.receive(nfs(1, call));
        let asked = self.asked_one();
        assert_eq!(asked.deadline, NOW + PATIENCE);
        self.answer(asked.id, outcome, subject);
        let (xid, reply) = decode(call.procedure(), &self.reply());
        assert_eq!(xid, 1);
        (asked.request, reply)
    }
}

/// Xid and results of a successful reply, with nothing behind them.
#[track_caller]
pub(crate) fn decode(procedure: Procedure, reply: &Bytes) -> (u32, Reply) {
    let mut decoder = Decoder::of_record(reply);
    let header: ReplyHeader<'_> = decoder.get().expect("a reply");
    assert_eq!(header, ReplyHeader::success(header.xid));
    let results = Reply::decode(procedure, &mut decoder).expect("results");
    decoder.finish().expect("nothing behind");
    (header.xid, results)
}

/// Header of a reply that is nothing else.
#[track_caller]
pub(crate) fn bare(reply: &Bytes) -> ReplyHeader<'_> {
    let mut decoder = Decoder::of_record(reply);
    let header = decoder.get().expect("a reply");
    decoder.finish().expect("nothing behind");
    header
}

pub(crate) fn join(parts: &[Bytes]) -> Bytes {
    let mut whole = BytesMut::new();
    for part in parts {
        whole.extend_from_slice(part);
    }
    whole.freeze()
}

pub(crate) fn bench() -> Bench {
    Bench::new(config())
}

pub(crate) fn file_cache() -> WeakCache {
    cache(FILE, FileKind::Regular)
}

pub(crate) fn root_cache() -> WeakCache {
    cache(ROOT, FileKind::Directory)
}

pub(crate) fn shown_file() -> crossdock_nfs3::Attributes {
    shown(FILE, FileType::Regular)
}

pub(crate) fn shown_root() -> crossdock_nfs3::Attributes {
    shown(ROOT, FileType::Directory)
}

pub(crate) fn in_root<'a>(root: &'a HandleBuffer, name: &'a [u8]) -> Location<'a> {
    Location {
        directory: root.as_handle(),
        name: Name(name),
    }
}

pub(crate) fn found() -> SiteAnswer {
    SiteAnswer::Found {
        attributes: attributes(FILE, FileKind::Regular),
        layout: LayoutClass::STRIPED,
        placement: FILE.id,
    }
}

/// Compares by what is printed: operations have no equality.
#[track_caller]
pub(crate) fn assert_asked(operation: &SiteOperation, expected: &SiteOperation) {
    assert_eq!(format!("{operation:?}"), format!("{expected:?}"));
}
