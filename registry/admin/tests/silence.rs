//! The admin port while the data thread says nothing: it still answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossdock_admin::{Answer, Command, Control, Event, Events, Snapshot, Watch, serve};
use tokio::sync::oneshot;

/// A data thread that hangs: it keeps every question and answers none.
#[derive(Default)]
struct Hanging {
    asked: Mutex<Vec<oneshot::Sender<Snapshot>>>,
}

/// One that has ended: it drops every question.
struct Ended;

impl Control for Hanging {
    fn ask(&self, _: Command, _: oneshot::Sender<Answer>) {}

    fn snapshot(&self, reply: oneshot::Sender<Snapshot>) {
        self.asked.lock().expect("nobody panicked").push(reply);
    }
}

impl Control for Ended {
    fn ask(&self, _: Command, _: oneshot::Sender<Answer>) {}

    fn snapshot(&self, _: oneshot::Sender<Snapshot>) {}
}

fn start(control: Arc<dyn Control>, events: &Arc<Events>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let watch = Watch::new(control, Arc::clone(events), Vec::new());
    serve(listener, watch).expect("a thread");
    address
}

fn get(address: SocketAddr, path: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let timeout = Some(Duration::from_secs(20));
    stream.set_read_timeout(timeout).expect("a timeout");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("HTTP");
    let status = head.split(' ').nth(1).expect("a status");
    (status.parse().expect("a number"), body.to_owned())
}

/// Goal: while the data thread hangs, health says so within its patience, and
/// what does not need the data thread is still told.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a real server's patience is real time"
)]
fn a_hanging_data_thread_is_told() {
    let events = Arc::new(Events::default());
    events.push(Event {
        message: "before".to_owned(),
        ..Event::default()
    });
    let address = start(Arc::new(Hanging::default()), &events);
    let host = address.to_string();
    let begun = Instant::now();
    let (status, body) = get(address, "/health", &host);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(status, 503);
    let health: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(health["status"], "failed");
    assert_eq!(health["checks"][0]["name"], "data_thread");
    let detail = health["checks"][0]["detail"].as_str().expect("text");
    assert!(detail.contains("has not answered"), "{detail}");
    assert_eq!(get(address, "/metrics", &host).0, 503);
    let (status, body) = get(address, "/v1/events", &host);
    assert!(status == 200 && body.contains("\"before\""), "{body}");
    assert_eq!(get(address, "/v1/history", &host), (200, "[]".to_owned()));
    assert_eq!(get(address, "/", &host).0, 200);
}

/// Goal: one that has ended is no riddle either; and who asks under a strange
/// name gets nothing, whatever he asks for.
#[test]
fn an_ended_data_thread_is_told() {
    let address = start(Arc::new(Ended), &Arc::new(Events::default()));
    let (status, body) = get(address, "/health", &address.to_string());
    assert!(
        status == 503 && body.contains("the system is stopping"),
        "{body}"
    );
    for path in ["/", "/health", "/metrics", "/v1/events", "/v1/status"] {
        assert_eq!(get(address, path, "evil.example").0, 403, "{path}");
    }
}
