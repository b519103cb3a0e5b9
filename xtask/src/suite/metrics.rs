//! What a running server tells of itself: figures that agree with a known load,
//! health, events, slow requests, and who may ask.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::call::{Call, Getattr};
use crossdock_nfs3::{Location, Name, Reply, Status};
use crossdock_tests_crash::client::{Client, LockStatus, LockWish};
use serde_json::Value;

use super::Stage;
use super::cli::job::{self, LENGTHS_BYTES, PART_BYTES};
use super::cli::program::{Up, crossdock, text};

/// Calls of the load that job does not make.
const GETATTRS: u64 = 500;
const MISSES: u64 = 7;
const LOCKS: u64 = 3;

/// How long the admin port may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    let data = stage.folder.join("data");
    // Every request is slow: what is told of slow ones can be counted.
    let arguments = [
        "up",
        "--nodes",
        "2",
        "--slow-ms",
        "0",
        "--data",
        text(&data)?,
    ];
    let up = Up::start(stage, crossdock(stage, &arguments))?;
    let before = scrape(&up.admin)?;
    load(&up)?;
    let after = scrape(&up.admin)?;
    figures_agree(&before, &after).context("figures")?;
    top(stage, &up).context("top")?;
    slow(&up).context("slow requests")?;
    health(stage, &up).context("health")?;
    strangers(&up).context("strangers")?;
    history(stage, &up).context("history")?;
    let log = up.stop()?;
    let told = log.iter().filter(|line| {
        let fields = &line["fields"];
        fields["message"] == "slow request" && !fields["procedure"].is_null()
    });
    let told = told.count();
    // Ten in ten seconds: the log is no place for every request.
    ensure!((10..200).contains(&told), "{told} slow requests were told");
    Ok(())
}

/// A load of which every call is known.
fn load(up: &Up) -> Result<()> {
    job::write(up, "counted")?;
    job::verify(up, "counted")?;
    let mut client = Client::connect(up.nfs)?;
    let root = client.root();
    for _ in 0..GETATTRS {
        let object = root.as_handle();
        let reply = client.call(&Call::Getattr(Getattr { object }))?;
        ensure!(matches!(reply, Reply::Getattr(Ok(_))), "{reply:?}");
    }
    for _ in 0..MISSES {
        let reply = client.call(&Call::Lookup(Location {
            directory: root.as_handle(),
            name: Name(b"nothing"),
        }))?;
        ensure!(reply.status() == Some(Status::NoEnt), "{reply:?}");
    }
    locks(&mut client)
}

/// A lock that is had, as often as it is asked for, and one that is not.
fn locks(client: &mut Client) -> Result<()> {
    let root = client.root();
    let wish = |name, process| LockWish {
        client: name,
        process,
        offset: 0,
        length: 10,
        may_block: false,
    };
    for _ in 0..LOCKS {
        let status = client.lock(&root, &wish("alpha", 1))?;
        ensure!(status == LockStatus::Granted, "{status:?}");
    }
    let status = client.lock(&root, &wish("beta", 2))?;
    ensure!(status == LockStatus::Denied, "{status:?}");
    Ok(())
}

fn figures_agree(before: &Samples, after: &Samples) -> Result<()> {
    let parts: usize = LENGTHS_BYTES
        .iter()
        .map(|length| length.div_ceil(PART_BYTES))
        .sum();
    let files = LENGTHS_BYTES.len() as f64;
    let bytes: usize = LENGTHS_BYTES.iter().sum();
    let requests = |procedure: &str, status: &str| {
        let program = match procedure {
            "MNT" => "mount3",
            "LOCK" => "nlm",
            _ => "nfs3",
        };
        let labels = format!("program=\"{program}\",procedure=\"{procedure}\"");
        format!("crossdock_nfs_requests_total{{{labels},status=\"{status}\"}}")
    };
    let timed = |program: &str, procedure: &str| {
        let labels = format!("program=\"{program}\",procedure=\"{procedure}\"");
        format!("crossdock_nfs_request_duration_seconds_count{{{labels}}}")
    };
    let mut expected = vec![
        (requests("GETATTR", "ok"), GETATTRS as f64),
        (requests("LOOKUP", "noent"), MISSES as f64),
        (requests("LOOKUP", "ok"), files),
        (requests("CREATE", "ok"), files),
        (requests("WRITE", "ok"), parts as f64),
        (requests("COMMIT", "ok"), files),
        (requests("READ", "ok"), parts as f64),
        (requests("LOCK", "ok"), LOCKS as f64),
        (requests("LOCK", "denied"), 1.0),
        (timed("nfs3", "WRITE"), parts as f64),
        (timed("nfs3", "LOOKUP"), files + MISSES as f64),
        (timed("nlm", "LOCK"), LOCKS as f64 + 1.0),
    ];
    let client = |what: &str| format!("crossdock_client_{what}_total{{client=\"127.0.0.1\"}}");
    let export = |what: &str| format!("crossdock_export_{what}_total{{export=\"/\"}}");
    let locks = LOCKS as f64 + 1.0;
    let all = GETATTRS as f64 + MISSES as f64 + locks + 3.0 * files + 2.0 * parts as f64;
    let mounts = after.since(before, &requests("MNT", "ok"));
    ensure!(mounts >= 3.0, "{mounts} mounts");
    for named in [client, export] {
        expected.push((named("read_bytes"), bytes as f64));
        expected.push((named("written_bytes"), bytes as f64));
        expected.push((named("failures"), MISSES as f64 + 1.0));
        expected.push((named("requests"), all + mounts));
    }
    for (name, expected) in expected {
        let found = after.since(before, &name);
        ensure!(found == expected, "{name}: {found} instead of {expected}");
    }
    for name in [
        "crossdock_journal_frame_records_count{node=\"0\"}",
        "crossdock_disk_moved_bytes_total{node=\"1\",disk=\"journal\",operation=\"write\"}",
        "crossdock_site_log_bytes_total{site=\"0\"}",
        "crossdock_loop_turns_total",
        "crossdock_nfs_connections_accepted_total",
    ] {
        ensure!(after.since(before, name) > 0.0, "{name} stands still");
    }
    for name in [
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "crossdock_thread_cpu_seconds_total{thread=\"control\"}",
        "crossdock_memory_bytes{part=\"directory\"}",
    ] {
        ensure!(after.samples.contains_key(name), "there is no {name}");
    }
    Ok(())
}

/// What `crossdock top --once` shows, for programs and for people.
fn top(stage: &Stage<'_>, up: &Up) -> Result<()> {
    let top = up
        .ask(stage, &["top", "--once", "--interval", "0.2"])?
        .json(0)?;
    let nodes = top["nodes"].as_array().context("nodes")?;
    ensure!(
        nodes.len() == 2 && nodes[1]["state"] == "running" && top["seconds"].as_f64() > Some(0.1),
        "{top}"
    );
    let words = ["top", "--interval", "0.2", "--admin", &up.admin];
    let shown = super::cli::program::finish(stage, &words)?;
    shown.expect(0, &[])?;
    for word in ["health ok", "disk write", "running", "slow"] {
        ensure!(shown.stdout.contains(word), "no {word}: {}", shown.stdout);
    }
    up.ask(stage, &["top", "--interval", "0"])?
        .expect(2, &["--interval"])
}

fn slow(up: &Up) -> Result<()> {
    let slow = get(&up.admin, "/v1/slow")?.json()?;
    let slow = slow.as_array().context("a list")?;
    ensure!(slow.len() == 256, "{} are kept", slow.len());
    let last = &slow[255];
    ensure!(
        last["program"] == "nlm"
            && last["procedure"] == "LOCK"
            && last["status"] == "denied"
            && last["export"] == "/"
            && last["file"].as_u64().is_some()
            && last["waited"]["site"].as_f64() <= last["seconds"].as_f64()
            && last["waited"]["nodes"].as_f64() == Some(0.0)
            && last["client"]
                .as_str()
                .is_some_and(|client| client.starts_with("127.0.0.1:")),
        "{last}"
    );
    Ok(())
}

/// A node that is away is seen in the health, the status and the events.
fn health(stage: &Stage<'_>, up: &Up) -> Result<()> {
    let well = get(&up.admin, "/health")?;
    ensure!(
        well.status == 200 && well.json()?["status"] == "ok",
        "{}",
        well.body
    );
    up.ask(stage, &["node", "stop", "1"])?.json(0)?;
    let away = get(&up.admin, "/health")?;
    let checks = away.json()?;
    let is_node_1 = |check: &Value| check["name"] == "node-1" && check["status"] == "degraded";
    ensure!(
        away.status == 200
            && checks["status"] == "degraded"
            && checks["checks"]
                .as_array()
                .context("checks")?
                .iter()
                .any(is_node_1),
        "{}",
        away.body
    );
    let status = up.ask(stage, &["status"])?.json(0)?;
    ensure!(status["health"]["status"] == "degraded", "{status}");
    up.ask(stage, &["node", "start", "1"])?.json(0)?;
    while get(&up.admin, "/health")?.json()?["status"] != "ok" {
        ensure!(Instant::now() < stage.deadline, "node 1 does not come back");
    }
    let events = get(&up.admin, "/v1/events")?.json()?;
    let events = events.as_array().context("events")?;
    let stopped = events
        .iter()
        .find(|event| event["message"] == "node stopped" && event["fields"]["node"] == "1");
    let number = stopped.context("the stop is no event")?["number"].as_u64();
    let number = number.context("no number")?;
    let newer = get(&up.admin, &format!("/v1/events?after={number}"))?.json()?;
    let newer = newer.as_array().context("events")?;
    ensure!(
        newer
            .iter()
            .all(|event| event["number"].as_u64() > Some(number)),
        "{newer:?}"
    );
    Ok(())
}

/// A page elsewhere, and a name that anybody could point here, get nothing.
fn strangers(up: &Up) -> Result<()> {
    let stop = "/v1/nodes/0/stop";
    for (headers, path, method) in [
        (
            "Host: evil.example:7070\r\n".to_owned(),
            "/v1/status",
            "GET",
        ),
        (
            format!("Host: {}\r\nOrigin: http://evil.example\r\n", up.admin),
            stop,
            "POST",
        ),
        (
            format!("Host: {}\r\nSec-Fetch-Site: cross-site\r\n", up.admin),
            stop,
            "POST",
        ),
    ] {
        let answer = ask(&up.admin, method, path, &headers)?;
        ensure!(answer.status == 403, "{headers}: {}", answer.status);
    }
    let page = get(&up.admin, "/")?;
    let policy = "content-security-policy: default-src 'none'; script-src 'self'";
    ensure!(
        page.status == 200
            && page.head.to_lowercase().contains(policy)
            && page.body.contains("/console.js"),
        "{}",
        page.head
    );
    Ok(())
}

/// The server remembers the last minutes by itself.
fn history(stage: &Stage<'_>, up: &Up) -> Result<()> {
    loop {
        let points = get(&up.admin, "/v1/history")?.json()?;
        let points = points.as_array().context("points")?;
        let asked = |name: &str| {
            points
                .iter()
                .any(|one| one["requests"][name].as_f64() > Some(0.0))
        };
        if asked("GETATTR") && asked("WRITE") {
            return Ok(());
        }
        ensure!(Instant::now() < stage.deadline, "{points:?}");
    }
}

/// Samples by name and labels.
pub(super) struct Samples {
    samples: BTreeMap<String, f64>,
}

impl Samples {
    /// How much a counter has grown; one that is not there is 0.
    pub(super) fn since(&self, before: &Self, name: &str) -> f64 {
        let value = |samples: &Self| samples.samples.get(name).copied().unwrap_or_default();
        value(self) - value(before)
    }
}

/// What all samples of a family add up to.
pub(super) fn sum(admin: &str, family: &str) -> Result<u64> {
    let answer = get(admin, "/metrics")?;
    let lines = answer.body.lines().filter(|line| !line.starts_with('#'));
    let of_family = lines.filter(|line| line.split(['{', ' ']).next() == Some(family));
    let values = of_family.map(|line| {
        let (_, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
        value.parse::<u64>().with_context(|| line.to_owned())
    });
    values.sum()
}

/// What the admin port tells now.
pub(super) fn scrape(admin: &str) -> Result<Samples> {
    let answer = get(admin, "/metrics")?;
    ensure!(answer.status == 200, "{}", answer.body);
    ensure!(
        answer
            .head
            .to_lowercase()
            .contains("content-type: text/plain; version=0.0.4"),
        "{}",
        answer.head
    );
    let lines = answer.body.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
        Ok((
            name.to_owned(),
            value.parse().with_context(|| line.to_owned())?,
        ))
    });
    Ok(Samples {
        samples: samples.collect::<Result<_>>()?,
    })
}

/// What the admin port answers.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("no JSON: {}", self.body))
    }
}

fn get(admin: &str, path: &str) -> Result<Answer> {
    ask(admin, "GET", path, &format!("Host: {admin}\r\n"))
}

fn ask(admin: &str, method: &str, path: &str, headers: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        bail!("no HTTP: {answer}");
    };
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}
