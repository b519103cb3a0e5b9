//! What nodes refuse: a process that speaks their protocol as a gateway and has no
//! right to what it asks for, and a gateway that an administrator has revoked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_link::{Frame, FrameReader, Hello, Message, PROTOCOL_VERSION, Role};
use crossdock_names::{
    Epoch, FileCapability, FileId, HostId, NodeId, ObjectClass, ObjectId, Rights, Scope, SiteId,
};
use crossdock_nfs3::{Call as NfsCall, Status, call};
use crossdock_peer::{
    AccessError, Call, CallId, NodeError, NodeRequest, Order, Port, ReadVersion, Stability,
    WriteContext,
};
use crossdock_tests_crash::client::Client;
use crossdock_types::{Payload, Time};
use rustix::process::Signal;
use serde_json::Value;

use super::load::{Files, Load};
use super::members::Member;
use super::{ANSWERS, Processes};
use crate::admin;
use crate::suite::Stage;
use crate::suite::cli::program::{Finished, finish};

/// How long a node, or the registry, may take.
const PATIENCE: Duration = Duration::from_secs(10);

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Longer than any of the answers.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A window that is never full here.
const WINDOW_BYTES: u64 = 1 << 20;

/// A process that is connected to a node as a gateway of the ensemble.
struct Impostor {
    stream: TcpStream,
    reader: FrameReader,
    /// What has come and is not read.
    rest: Bytes,
    node: NodeId,
    epoch: Epoch,
    calls: u64,
}

/// A valid hello of a gateway, and no capability, or none that a manager has made: each
/// call is refused by its own error, and nothing of it is done.
pub(super) fn impostor(stage: &Stage<'_>, processes: &Processes<'_>) -> Result<()> {
    let (node, gateway) = (&processes.nodes[0], &processes.gateways[0]);
    let admin = node.door("admin")?.to_string();
    let listed = finish(stage, &["gateway", "list", "--json", "--admin", &admin])?.json(0)?;
    let mut listed = listed.as_array().into_iter().flatten();
    let found = listed.find(|one| one["name"] == gateway.name());
    let host = id_of(&found.context("the gateway is not listed")?["hosts"][0])?;
    // For a moment: else it takes its connection back at once.
    gateway.signal(Signal::STOP)?;
    let refused = refuse(stage, node, host);
    gateway.signal(Signal::CONT)?;
    refused
}

fn refuse(stage: &Stage<'_>, node: &Member<'_>, gateway: HostId) -> Result<()> {
    let status = node.status(stage)?;
    let manager = host_of(&status, "manager")?;
    let mut impostor = Impostor::connect(node, &status, gateway)?;
    let column = ObjectId::column(FileId::new(SiteId(0), 2), 1, 0, 0);
    let log = ObjectId::of_site(ObjectClass::SiteLog, SiteId(0), 0);
    let router = Port::Router;
    let refused = |error| Err(NodeError::Refused(error));

    let missing = impostor.ask(router, read(column), None)?;
    ensure!(missing == refused(AccessError::Missing), "{missing:?}");
    let missing = impostor.ask(router, write(column), None)?;
    ensure!(missing == refused(AccessError::Missing), "{missing:?}");
    let forged = FileCapability {
        rights: Rights(7),
        minter: manager,
        holder: gateway,
        scope: Scope::Columns {
            placement: FileId(column.placement),
            generation: column.generation,
        },
        expiry_seconds: u64::MAX,
        mac: [9; 16],
    };
    let said = impostor.ask(router, write(column), Some(forged))?;
    ensure!(said == refused(AccessError::Forged), "{said:?}");
    let stolen = FileCapability {
        holder: manager,
        ..forged
    };
    let said = impostor.ask(router, read(column), Some(stolen))?;
    let holder = manager;
    ensure!(
        said == refused(AccessError::OtherHolder { holder }),
        "{said:?}"
    );
    let stat = |object| NodeRequest::Stat { object };
    let said = impostor.ask(router, stat(column), Some(forged))?;
    ensure!(said == refused(AccessError::Forged), "{said:?}");
    for request in [read(log), write(log), stat(log)] {
        let said = impostor.ask(router, request, Some(forged))?;
        ensure!(said == refused(AccessError::NotForGateways), "{said:?}");
    }
    // In the name of a site it would have all rights: it has none.
    let append = NodeRequest::Append {
        object: log,
        offset_bytes: 0,
        payload: Bytes::from_static(b"forged").into(),
        fence: Epoch(u64::MAX >> 1),
    };
    let said = impostor.ask(Port::Site(SiteId(0)), append, None)?;
    let host = gateway;
    ensure!(said == refused(AccessError::Role { host }), "{said:?}");
    println!("a process that speaks as a gateway without its capabilities is refused");
    Ok(())
}

impl Impostor {
    fn connect(node: &Member<'_>, status: &Value, host: HostId) -> Result<Self> {
        let stream = TcpStream::connect(node.door("link")?)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let id = status["nodes"][0]["id"].as_str().context("no node")?;
        let epoch = status["table_epoch"].as_u64().context("no epoch")?;
        let mut impostor = Self {
            stream,
            reader: FrameReader::new(),
            rest: Bytes::new(),
            node: NodeId(u64::from_str_radix(id, 16)?),
            epoch: Epoch(epoch),
            calls: 0,
        };
        impostor.reader.trust();
        let ensemble = status["ensemble"].as_str().context("no ensemble")?;
        impostor.send(&Message::Hello(Hello {
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            ensemble: u64::from_str_radix(ensemble, 16)?,
            host,
            role: Role::Gateway as u8,
            // Above all of the gateway's own.
            connection: u64::MAX >> 1,
            table_epoch: impostor.epoch,
            call_window_bytes: WINDOW_BYTES,
            reply_window_bytes: WINDOW_BYTES,
            expected: None,
        }))?;
        match impostor.next()? {
            Message::Welcome(_) => Ok(impostor),
            other => bail!("{} answers {other:?}", node.name()),
        }
    }

    /// What the node answers.
    fn ask(
        &mut self,
        from: Port,
        request: NodeRequest,
        capability: Option<FileCapability>,
    ) -> Result<Result<crossdock_peer::NodeAnswer, NodeError>> {
        self.calls += 1;
        let call = Call {
            id: CallId(self.calls),
            deadline: Time::default() + PATIENCE,
            request,
        };
        let frame = Frame::NodeCall {
            from,
            to: self.node,
            call,
            capability,
            flow: None,
        };
        self.send(&Message::Frame(frame.by(self.epoch)))?;
        loop {
            if let Message::Frame(sent) = self.next()?
                && let Frame::NodeReply { reply, .. } = sent.frame
                && reply.id == CallId(self.calls)
            {
                return Ok(reply.outcome);
            }
        }
    }

    fn send(&mut self, message: &Message) -> Result<()> {
        let bytes = message.encode(Time::default())?.to_bytes();
        Ok(self.stream.write_all(&bytes)?)
    }

    fn next(&mut self) -> Result<Message> {
        loop {
            let now = Time::default();
            if let Some(message) = self.reader.next_message(now, &mut self.rest)? {
                return Ok(message);
            }
            let mut bytes = vec![0; ANSWER_BYTES_MAX];
            let count = self.stream.read(&mut bytes)?;
            ensure!(count > 0, "the node has ended the connection");
            bytes.truncate(count);
            self.rest = bytes.into();
        }
    }
}

fn read(object: ObjectId) -> NodeRequest {
    NodeRequest::Read {
        object,
        offset_bytes: 0,
        length_bytes: 4096,
        version: ReadVersion::Current,
        patience_ms: 0,
    }
}

fn write(object: ObjectId) -> NodeRequest {
    NodeRequest::Write {
        object,
        offset_bytes: 0,
        payload: Payload::from(Bytes::from_static(b"forged")),
        stability: Stability::Stable,
        context: WriteContext::default(),
        order: Order::Primary,
    }
}

fn host_of(status: &Value, role: &str) -> Result<HostId> {
    let hosts = status["hosts"].as_array().context("no hosts")?;
    let mut hosts = hosts.iter().filter(|host| host["role"] == role);
    let found = hosts.next().with_context(|| format!("no {role}"))?;
    id_of(&found["id"])
}

fn id_of(text: &Value) -> Result<HostId> {
    let digits = text.as_str().context("no id")?;
    Ok(HostId(u64::from_str_radix(digits, 16)?))
}

/// Under load: who is revoked is refused at once, also after a restart, and the other
/// gateway goes on; its clients wait, and go on when it is let in again.
pub(super) fn revoke(stage: &Stage<'_>, processes: &mut Processes<'_>) -> Result<()> {
    let ask = |words: &[&str], admin: SocketAddr| -> Result<Finished> {
        let admin = admin.to_string();
        finish(stage, &[&["gateway"], words, &["--admin", &admin]].concat())
    };
    let (manager, node) = (&processes.managers[0], &processes.nodes[0]);
    let (manager, node) = (manager.door("admin")?, node.door("admin")?);
    let [name, other] = ["gateway-a", "gateway-b"];
    let doors = processes.doors()?;
    let (door, other_door) = (doors[0], doors[1]);
    ask(&["revoke", "nobody"], node)?.expect(1, &["no gateway nobody", "gateway list"])?;
    let cut = Load::start("cut", &[door]);
    let kept = Load::start("kept", &[other_door]);
    cut.pause(ANSWERS)?;
    kept.pause(ANSWERS)?;

    let mut client = Client::connect(door)?;
    let began = Instant::now();
    ask(&["revoke", name], manager)?.expect(0, &["refuse", name])?;
    wait("it is refused", || is_refused(&mut client))?;
    println!(
        "{name} revoked: refused {:.2} s after the order was given",
        began.elapsed().as_secs_f64()
    );
    kept.mark();
    let pause = kept.pause(ANSWERS)?;
    println!("{other} meanwhile: {pause}");
    pause.judge(other)?;
    let listed = ask(&["list", "--json"], node)?.json(0)?;
    let is_it = |name: &str, revoked: bool| {
        let mut all = listed.as_array().into_iter().flatten();
        all.any(|one| one["name"] == name && one["revoked"] == revoked)
    };
    ensure!(is_it(name, true) && is_it(other, false), "{listed}");
    let gateway = &mut processes.gateways[0];
    gateway.await_said(&["has been revoked", "gateway restore"])?;
    let status = gateway.status(stage)?;
    ensure!(status["revoked"] == name, "{status}");
    ensure!(
        admin::get(gateway.door("admin")?, "/health", PATIENCE)?.contains("has been revoked"),
        "/health does not say that it is revoked"
    );
    gateway.kill();
    gateway.restart(stage)?;
    let status = gateway.status(stage)?;
    ensure!(status["revoked"] == name, "after a restart: {status}");

    ask(&["restore", name], node)?.expect(0, &["let in", name])?;
    cut.mark();
    // They may be told once more to try again later before they are let in.
    let pause = cut.pause(ANSWERS)?;
    println!("{name} restored: its clients go on, {pause}");
    processes.await_whole(stage)?;
    let files: Vec<Files> = [cut.finish()?, kept.finish()?]
        .into_iter()
        .flatten()
        .collect();
    super::verify(&files, processes)
}

/// Whether clients of that door are asked to try again later.
fn is_refused(client: &mut Client) -> Result<bool> {
    let root = client.root();
    let reply = client.call(&NfsCall::Getattr(call::Getattr {
        object: root.as_handle(),
    }))?;
    Ok(reply.status() == Some(Status::Jukebox))
}

fn wait(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "not so: {what}");
        thread::park_timeout(LOOK_EVERY);
    }
    Ok(())
}
