//! The same over TLS: processes join by token, clients go on while some are killed, and
//! whoever is no part of the ensemble is refused, in words that help.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use crossdock_link::{CloseReason, Link, LinkConfig, LinkEffect, LinkInput, Role};
use crossdock_names::HostId;
use crossdock_secure::{Authority, Credentials, KeyMaterial, Stream, StreamEffect, Token};
use crossdock_types::Time;

use super::load::{Files, Load};
use super::members::{Ensemble, Member};
use super::{ANSWERS, Processes, kill, refusals, scoped, verify};
use crate::paths::Paths;
use crate::rig::etcd::Etcd;
use crate::suite::Stage;
use crate::suite::cli::program::Finished;

/// How long a host may take to refuse another one.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(10);

/// How long a token of a second may hold.
const TOKEN_PATIENCE: Duration = Duration::from_secs(10);

const YEAR_SECONDS: i64 = 365 * 24 * 3600;

/// The suite.
pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    let etcd = Etcd::start_secure(stage.paths, &stage.folder)?;
    let ensemble = Ensemble {
        ca: Some(stage.folder.join("ca")),
        ..Ensemble::over(&etcd, stage)?
    };
    ensemble.init(&[])?;
    without_certificate(&ensemble)?;
    let mut processes = start(&ensemble)?;
    processes.await_whole(stage)?;
    tokens(&ensemble)?;
    other_ensemble(&ensemble)?;
    liars(&ensemble, &processes.nodes[0])?;
    refusals::nonsense(&processes.nodes[0])?;
    processes.nodes[0].await_said(&["does not speak TLS", "--transport tls"])?;

    let load = Load::start("tls", &processes.doors()?);
    load.pause(ANSWERS)?;
    renew(&ensemble, &processes.nodes[0])?;
    kill(stage, &mut processes, &load, |all| &mut all.managers[0])?;
    kill(stage, &mut processes, &load, |all| &mut all.nodes[1])?;
    kill(stage, &mut processes, &load, |all| &mut all.gateways[0])?;
    processes.nodes[0].await_said(&["took a new certificate"])?;
    names(&ensemble, &mut processes)?;
    scoped::run(&ensemble, &mut processes)?;
    let files = load.finish()?;
    let made: u64 = files.iter().map(Files::made).sum();
    println!("{made} files were written, read and renamed over TLS meanwhile");
    verify(&files, &processes)?;
    secrets(&ensemble, &processes)?;
    processes.stop()
}

/// The first manager has the authority, and waits for nodes; these ask it for certificates.
fn start<'stage>(ensemble: &Ensemble<'stage>) -> Result<Processes<'stage>> {
    let (mut first, lines) = ensemble.waiting_manager("manager-a")?;
    let nodes = (0..3).map(|number| ensemble.node(number));
    let nodes = nodes.collect::<Result<_>>()?;
    first.await_ready(lines)?;
    Ok(Processes {
        nodes,
        managers: vec![first, ensemble.manager("manager-b")?],
        gateways: vec![
            ensemble.gateway("gateway-a")?,
            ensemble.gateway("gateway-b")?,
        ],
    })
}

/// Runs a gateway that is to be refused at its start.
fn gateway(ensemble: &Ensemble<'_>, more: &[&str]) -> Result<Finished> {
    let words = ["gateway", "run", "--listen", "127.0.0.1:0"];
    let doors = ["--nfs", "127.0.0.1:0", "--admin", "off"];
    let at = ensemble.at(Ensemble::NAME);
    ensemble.finish(&[&words[..], &doors, &at, more].concat())
}

/// etcd itself lets nobody in without a certificate of its own authority.
fn etcd(ensemble: &Ensemble<'_>) -> Result<()> {
    let list = |flags: &[&str]| {
        let at = ["--etcd", &ensemble.etcd, "--name", Ensemble::NAME];
        let words = ["cluster", "token", "list"];
        ensemble.finish(&[&words[..], &at, flags].concat())
    };
    list(&[])?.expect(1, &["https://", "--etcd-ca"])?;
    let flags: Vec<&str> = ensemble.etcd_flags.iter().map(String::as_str).collect();
    list(&flags[..2])?.expect(1, &["etcd does not answer"])?;
    list(&flags[..4])?.expect(2, &["--etcd-key", "missing", "etcd_key"])?;
    list(&flags)?.expect(0, &[])
}

/// Processes that have nothing to show.
fn without_certificate(ensemble: &Ensemble<'_>) -> Result<()> {
    let run = |more: &[&str]| gateway(ensemble, more);
    etcd(ensemble)?;
    let empty = ensemble.stage.folder.join("empty");
    let empty = Paths::plain(&empty)?;
    run(&[])?.expect(
        1,
        &[
            "talks over TLS",
            "--identity",
            "token create --role gateway",
        ],
    )?;
    run(&["--transport", "plain"])?.expect(1, &["talks over TLS", "--transport tls"])?;
    run(&["--transport", "tls"])?.expect(2, &["--identity", "missing"])?;
    run(&["--identity", empty])?.expect(1, &["there is no certificate", "--token"])?;
    let wrong = run(&["--identity", empty, "--token", "crossdock1-0badc0de"])?;
    wrong.expect(1, &["this is no token", "token create"])?;
    ensure!(!wrong.stderr.contains("0badc0de"), "a token was shown");
    // Nobody runs yet who could answer.
    let token = ensemble.token(&[])?;
    let alone = run(&["--identity", empty, "--token", &token])?;
    alone.expect(1, &["no manager runs", "--ca"])?;
    ensure!(
        !Path::new(empty).exists(),
        "what was refused has made files"
    );
    Ok(())
}

/// Tokens that are of no use any more, or not for that.
fn tokens(ensemble: &Ensemble<'_>) -> Result<()> {
    let folder = ensemble.stage.folder.join("refused");
    let identity = Paths::plain(&folder)?;
    let at = ensemble.at(Ensemble::NAME);
    let join = |token: &str, role: &str| {
        let words = ["cluster", "join", "--identity", identity, "--token", token];
        let words = [&words[..], &["--role", role], &at[..]].concat();
        ensemble.finish(&words)
    };
    let list = || {
        let words = ["cluster", "token", "list", "--json"];
        let listed = ensemble.finish(&[&words[..], &at].concat())?;
        let listed = listed.json(0)?;
        Ok::<_, anyhow::Error>(listed.as_array().context("no list of tokens")?.clone())
    };
    let id = |token: &str| token.get(11..19).map(str::to_owned).context("no token");

    let revoked = ensemble.token(&[])?;
    let name = id(&revoked)?;
    ensure!(
        list()?.iter().any(|token| token["id"] == *name),
        "not listed"
    );
    let revoke = [&["cluster", "token", "revoke", &name], &at[..]].concat();
    ensemble.finish(&revoke)?.expect(0, &[])?;
    ensure!(
        list()?.iter().all(|token| token["id"] != *name),
        "still listed"
    );
    join(&revoked, "node")?.expect(1, &["revoked", "token create --role node"])?;
    ensemble.finish(&revoke)?.expect(1, &["no token", &name])?;

    let short = ensemble.token(&["--for", "1s"])?;
    let (name, began) = (id(&short)?, Instant::now());
    while list()?.iter().any(|token| token["id"] == *name) {
        ensure!(began.elapsed() < TOKEN_PATIENCE, "a token of 1 s holds on");
    }
    join(&short, "node")?.expect(1, &["has ended", "token create --role node"])?;

    let node = ensemble.token(&["--role", "node"])?;
    join(&node, "gateway")?.expect(1, &["is for a node", "token create --role gateway"])?;
    // The number is right, the secret is not.
    let mut guessed: Token = node.parse()?;
    guessed.secret[0] ^= 1;
    let said = join(&guessed.reveal(), "node")?;
    said.expect(1, &["is not known", "token create --role node"])?;
    ensure!(!folder.exists(), "what was refused has made files");
    join(&node, "node")?.expect(0, &[])?;
    let said = gateway(ensemble, &["--identity", identity])?;
    said.expect(1, &["is for a node, this is a gateway", "--role gateway"])
}

/// Another ensemble in the same etcd, with an authority of its own.
fn other_ensemble(ensemble: &Ensemble<'_>) -> Result<()> {
    let folder = &ensemble.stage.folder;
    let (ca, foreign) = (folder.join("other-ca"), folder.join("foreign"));
    let (ca, foreign) = (Paths::plain(&ca)?, Paths::plain(&foreign)?);
    let (at, here) = (ensemble.at("other"), ensemble.at(Ensemble::NAME));
    let init = ["cluster", "init", "--nodes", "1", "--replicas", "1"];
    let tls = ["--transport", "tls", "--ca", ca];
    let init = [&init[..], &tls, &at].concat();
    ensemble.finish(&init)?.expect(0, &[])?;
    ensemble
        .finish(&init)?
        .expect(1, &["authority", "already", ca])?;
    let made = ensemble.finish(&[&["cluster", "token", "create"], &at[..]].concat())?;
    made.expect(0, &[])?;
    let token = made.stdout.trim();
    let said = gateway(ensemble, &["--identity", foreign, "--token", token])?;
    said.expect(1, &["not the one that the token names", "another ensemble"])?;
    // An identity of one ensemble is of no use in the other.
    let ours = ensemble.identity("gateway-a");
    let words = [
        "gateway",
        "run",
        "--listen",
        "127.0.0.1:0",
        "--nfs",
        "127.0.0.1:0",
    ];
    let own = ["--admin", "off", "--identity", Paths::plain(&ours)?];
    let words = [&words[..], &own, &at].concat();
    let said = ensemble.finish(&words)?;
    said.expect(1, &["not the one that the registry names", "join again"])?;
    let words = [
        "manager",
        "run",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "off",
    ];
    let words = [&words[..], &["--ca", ca, "--identity", foreign], &here].concat();
    let said = ensemble.finish(&words)?;
    said.expect(1, &["of another ensemble", "--ca"])
}

/// Programs that talk to a host's port as no process of Crossdock would.
fn liars(ensemble: &Ensemble<'_>, node: &Member<'_>) -> Result<()> {
    let ca = ensemble.ca.as_ref().context("no authority")?;
    let (known, key) = (
        fs::read_to_string(ca.join("ca.pem"))?,
        fs::read_to_string(ca.join("ca-key.pem"))?,
    );
    let status = node.status(ensemble.stage)?;
    let number = status["ensemble"].as_str().context("no ensemble")?;
    let number = u64::from_str_radix(number, 16)?;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let now = i64::try_from(since.as_secs())?;
    let authority = Authority::load(number, &known, &key, now)?;
    let show = |authority: &Authority, role, at| {
        let key = KeyMaterial::generate()?;
        let signed = authority.issue(role, Some("liar"), &key.public_key()?, at)?;
        let known = authority.certificate_pem();
        Credentials::new(number, known, &signed, &key.to_pem())
    };
    let address = node.door("link")?;

    let other = Authority::create(number, now)?;
    let said = refused(address, number, &show(&other, Role::Gateway, now)?)?;
    ensure!(said.contains("not of this ensemble's authority"), "{said}");
    node.await_said(&["refuses this host's certificate", "of another authority"])?;

    let ended = show(&authority, Role::Gateway, now - 2 * YEAR_SECONDS)?;
    let said = refused(address, number, &ended)?;
    ensure!(
        said.contains("it has ended") && said.contains("cluster join"),
        "{said}"
    );
    node.await_said(&["the other side's certificate has ended", "cluster join"])?;

    // A gateway that would be a manager.
    let words = "says that it is a manager, its certificate is for a gateway";
    let said = refused(address, number, &show(&authority, Role::Gateway, now)?)?;
    ensure!(
        said.contains(words) && said.contains("--role manager"),
        "{said}"
    );
    node.await_said(&[words, "--role manager"])
}

/// Says hello as a manager of the ensemble, with these credentials; why that is refused.
fn refused(address: SocketAddr, ensemble: u64, credentials: &Credentials) -> Result<String> {
    let mut config = LinkConfig::new(ensemble, HostId(1), Role::Manager);
    config.wants_certificate = true;
    let mut link = Link::connect(config);
    let mut stream = Stream::connect(credentials)?;
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(REFUSAL_PATIENCE))?;
    let now = Time::from_secs(1);
    let mut chunk = [0; 4096];
    loop {
        while let Some(effect) = stream.poll_effect() {
            match effect {
                StreamEffect::Transmit(bytes) => socket.write_all(&bytes)?,
                StreamEffect::Opened { identity, .. } => {
                    let identity = identity.context("no certificate")?;
                    link.handle(now, LinkInput::Certified(identity));
                }
                StreamEffect::Received(bytes) => link.handle(now, LinkInput::Received(bytes)),
            }
            while let Some(effect) = link.poll_effect() {
                match effect {
                    LinkEffect::Transmit(pieces) => stream.send(&pieces)?,
                    LinkEffect::Close(CloseReason::RefusedByPeer(refusal)) => {
                        return Ok(refusal.text);
                    }
                    other => bail!("{other:?}"),
                }
            }
        }
        let length = socket.read(&mut chunk)?;
        ensure!(length > 0, "the connection has ended without a word");
        if let Err(failure) = stream.receive(&chunk[..length]) {
            while let Some(StreamEffect::Transmit(bytes)) = stream.poll_effect() {
                socket.write_all(&bytes)?;
            }
            return Ok(failure.to_string());
        }
    }
}

/// A gateway's name is in its certificate: who has the key of one that was revoked does
/// not come back under another name, and gets no new certificate for the old one.
fn names(ensemble: &Ensemble<'_>, processes: &mut Processes<'_>) -> Result<()> {
    let admin = processes.managers[0].door("admin")?.to_string();
    let order = |words: &[&str]| -> Result<()> {
        let words = [&["gateway"], words, &["--admin", &admin]].concat();
        ensemble.finish(&words)?.expect(0, &[])
    };
    let name = "gateway-b";
    order(&["revoke", name])?;
    let identity = ensemble.identity(name);
    let stolen = ["--identity", Paths::plain(&identity)?];
    let said = gateway(
        ensemble,
        &[&stolen[..], &["--gateway-name", "other"]].concat(),
    )?;
    said.expect(1, &["is for the gateway gateway-b", "--gateway-name other"])?;
    let token = ensemble.token(&["--role", "gateway"])?;
    let folder = ensemble.stage.folder.join("again");
    let join = |name: &str| {
        let words = ["cluster", "join", "--role", "gateway", "--token", &token];
        let more = ["--identity", Paths::plain(&folder)?, "--gateway-name", name];
        ensemble.finish(&[&words[..], &more, &ensemble.at(Ensemble::NAME)].concat())
    };
    join(name)?.expect(1, &["has been revoked", "gateway restore gateway-b"])?;
    join("no name")?.expect(2, &["--gateway-name", "letters"])?;
    order(&["restore", name])?;
    join(name)?.expect(0, &["gateway gateway-b"])
}

/// A running process gets another certificate.
fn renew(ensemble: &Ensemble<'_>, node: &Member<'_>) -> Result<()> {
    let stage = ensemble.stage;
    let ends = |node: &Member<'_>| {
        let status = node.status(stage)?;
        let health = &status["health"]["checks"];
        let check = health.as_array().context("no checks")?.iter();
        let check = check.clone().find(|check| check["name"] == "certificate");
        let check = check.context("health does not look at the certificate")?;
        ensure!(check["status"] == "ok", "{check}");
        status["certificate_ends"].as_u64().context("no end")
    };
    let before = ends(node)?;
    let identity = ensemble.identity("node-0");
    let token = ensemble.token(&["--role", "node"])?;
    let words = ["cluster", "join", "--role", "node", "--token", &token];
    let at = ensemble.at(Ensemble::NAME);
    let own = ["--identity", Paths::plain(&identity)?];
    ensemble
        .finish(&[&words[..], &at, &own].concat())?
        .expect(0, &[])?;
    ensure!(
        ends(node)? >= before,
        "the certificate ends earlier than before"
    );
    Ok(())
}

/// No log shows a secret; no file of one can be read by others.
fn secrets(ensemble: &Ensemble<'_>, processes: &Processes<'_>) -> Result<()> {
    let all = processes.nodes.iter().chain(&processes.managers);
    for member in all.chain(&processes.gateways) {
        let said = member.said()?;
        // The rig's own line with the command is none of the process.
        let mut lines = said.lines().filter(|line| !line.starts_with("$ "));
        let shown = lines.find(|line| line.contains("crossdock1-") || line.contains("PRIVATE"));
        ensure!(
            shown.is_none(),
            "{} shows a secret: {shown:?}",
            member.name()
        );
    }
    let ca = ensemble.ca.as_ref().context("no authority")?;
    for path in [
        ca.join("ca-key.pem"),
        ensemble.identity("node-0").join("key.pem"),
    ] {
        let mode = fs::metadata(&path)?.permissions().mode();
        ensure!(mode & 0o077 == 0, "{} has mode {mode:o}", path.display());
    }
    Ok(())
}
