//! The sockets of depots, one set for each node: of clients, and of other depots that copies
//! go to.
//!
//! Connecting to another depot waits for its name and for the network, so each attempt is a
//! short-lived thread; there are no more of them than a depot may have connections.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use crossdock_depot::{ConnId, DepotEffect, DepotInput};
use crossdock_host::HostInput;
use crossdock_net::{Driver, Event, ListenerId, Receiver, Sender};
use crossdock_peer::Network;
use tracing::debug;

use super::Shell;
use super::clients::{Clients, Heard};
use super::http::sample;

/// Attempts to connect that have ended and wait for the data thread.
const DIALED_MAX: usize = 256;

/// How long an attempt may take, with each address that a name has.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);

/// The connections of this process's depots, by the number of their nodes.
pub(super) struct Depots {
    clients: BTreeMap<u32, Clients>,
    dialed: Receiver<Dialed>,
    dialer: Sender<Dialed>,
}

struct Dialed {
    number: u32,
    id: ConnId,
    stream: Result<TcpStream, DialError>,
}

/// Why there is no connection to another depot.
#[derive(Debug)]
enum DialError {
    /// None of the host's addresses is one that copies may go to.
    NotAllowed,
    Io(io::Error),
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed => formatter.write_str("copies may not go there"),
            Self::Io(error) => error.fmt(formatter),
        }
    }
}

impl Depots {
    pub(super) fn new(listeners: BTreeMap<u32, Vec<ListenerId>>, driver: &Driver) -> Self {
        let (dialer, dialed) = crossdock_net::channel(DIALED_MAX, driver.waker());
        let clients = listeners
            .into_iter()
            .map(|(number, listeners)| (number, Clients::new(listeners, None, true)));
        Self {
            clients: clients.collect(),
            dialed,
            dialer,
        }
    }

    /// Whether the kernel has not taken all that was sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.clients.values().any(Clients::has_unsent)
    }

    /// Takes no more clients, and no more requests of those that are there.
    pub(super) fn stop(&mut self, driver: &mut Driver) {
        for clients in self.clients.values_mut() {
            clients.stop(driver);
        }
    }

    fn dial(
        &self,
        number: u32,
        id: ConnId,
        (host, port): (String, u16),
        within: Vec<Network>,
    ) -> io::Result<()> {
        let dialer = self.dialer.clone();
        let attempt = move || {
            let stream = connect(&host, port, &within);
            // If the data thread is gone, nobody wants it any more.
            let _ = dialer.send(Dialed { number, id, stream });
        };
        let thread = thread::Builder::new().name("dial".to_owned());
        thread.spawn(attempt).map(drop)
    }
}

/// Tries the addresses of a host one after the other, as far as they are within the bounds.
fn connect(host: &str, port: u16, within: &[Network]) -> Result<TcpStream, DialError> {
    let name = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let mut last = DialError::from(io::Error::from(io::ErrorKind::NotFound));
    for address in (name.unwrap_or(host), port).to_socket_addrs()? {
        if !within.iter().any(|network| network.contains(address.ip())) {
            last = DialError::NotAllowed;
            continue;
        }
        match TcpStream::connect_timeout(&address, DIAL_PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

impl Shell {
    /// Something has happened at a connection of a depot; the event again if it is somebody
    /// else's.
    pub(super) fn take_depot_event(&mut self, event: Event) -> Option<Event> {
        let mut event = event;
        let (driver, injector) = (&mut self.driver, &mut self.injector);
        for (&number, clients) in &mut self.depots.clients {
            match clients.take_event(driver, injector, event) {
                Ok(heard) => {
                    self.tell_depot(number, heard);
                    return None;
                }
                Err(other) => event = other,
            }
        }
        Some(event)
    }

    /// Tells depots what the kernel has taken.
    pub(super) fn tell_depots_sent(&mut self) {
        let (driver, injector) = (&mut self.driver, &mut self.injector);
        let all = self.depots.clients.iter_mut().map(|(&number, clients)| {
            let heard = clients.take_sent(driver, injector);
            (number, heard)
        });
        // Most turns of the loop have none.
        let all: Vec<_> = all.filter(|(_, heard)| !heard.is_empty()).collect();
        for (number, heard) in all {
            self.tell_depot(number, heard);
        }
    }

    fn tell_depot(&mut self, number: u32, heard: Vec<Heard>) {
        for heard in heard {
            let input = match heard {
                Heard::Opened(client, peer) => {
                    let clients = self.depots.clients.get(&number);
                    let local = clients.and_then(|it| it.local_address(&self.driver, client));
                    let Some(local) = local else {
                        continue; // It is gone already; that is told, too.
                    };
                    let id = ConnId(client);
                    DepotInput::Opened { id, peer, local }
                }
                Heard::Received(client, bytes) => DepotInput::Received(ConnId(client), bytes),
                Heard::Sent(client, bytes) => DepotInput::Sent(ConnId(client), bytes),
                Heard::PeerDone(client) => DepotInput::PeerDone(ConnId(client)),
                Heard::Closed(client) => DepotInput::Closed(ConnId(client)),
            };
            self.give(HostInput::Depot { number, input });
        }
    }

    /// Attempts to connect that have ended.
    pub(super) fn take_dialed_depots(&mut self) {
        while let Some(Dialed { number, id, stream }) = self.depots.dialed.try_receive() {
            let adopted = stream.and_then(|stream| {
                let adopted = self.driver.adopt(stream);
                adopted.map_err(|error| io::Error::other(error.to_string()).into())
            });
            let input = match (adopted, self.depots.clients.get_mut(&number)) {
                (Ok(connection), Some(clients)) => {
                    clients.adopt(&mut self.driver, id.0, connection);
                    DepotInput::Connected(id)
                }
                (Ok(connection), None) => {
                    self.driver.abort(connection);
                    DepotInput::Closed(id)
                }
                (Err(error), _) => {
                    debug!(node = number, %error, "cannot connect to another depot");
                    match error {
                        DialError::NotAllowed => DepotInput::NotAllowed(id),
                        DialError::Io(_) => DepotInput::Closed(id),
                    }
                }
            };
            self.give(HostInput::Depot { number, input });
        }
    }

    pub(super) fn take_depot_effect(&mut self, number: u32, effect: DepotEffect) {
        let Some(clients) = self.depots.clients.get_mut(&number) else {
            return;
        };
        let (driver, injector) = (&mut self.driver, &mut self.injector);
        let mut heard = Vec::new();
        match effect {
            DepotEffect::Connect {
                id,
                host,
                port,
                within,
            } => {
                if let Err(error) = self.depots.dial(number, id, (host, port), within) {
                    debug!(node = number, %error, "cannot connect: no thread");
                    heard.push(Heard::Closed(id.0));
                }
            }
            DepotEffect::Send(id, pieces) => {
                let payload = pieces.into_iter().collect();
                heard = clients.send(driver, injector, id.0, payload);
            }
            DepotEffect::Close(id) => heard = clients.close(driver, injector, id.0),
            DepotEffect::Abort(id) => clients.on(driver, id.0, Driver::abort),
            DepotEffect::Pause(id) => clients.on(driver, id.0, Driver::pause_receive),
            DepotEffect::Resume(id) => clients.on(driver, id.0, Driver::resume_receive),
            DepotEffect::Sample(id) => {
                if let Some(info) = clients.tcp_info(driver, id.0) {
                    let input = DepotInput::Sampled(id, sample(&info));
                    self.give(HostInput::Depot { number, input });
                }
            }
            // The host has passed them to its node, or has told of them.
            DepotEffect::Node(_)
            | DepotEffect::Cancel(_)
            | DepotEffect::Postpone(..)
            | DepotEffect::Hurry(_)
            | DepotEffect::Shared { .. }
            | DepotEffect::Warning(_) => {}
        }
        self.tell_depot(number, heard);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Goal: only addresses within the bounds are connected to, whatever a name stands for.
    #[test]
    fn connections_keep_to_their_bounds() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let elsewhere = ["192.0.2.0/24".parse().expect("a network")];
        for host in ["127.0.0.1", "localhost"] {
            let refused = connect(host, port, &elsewhere);
            assert!(matches!(refused, Err(DialError::NotAllowed)), "{refused:?}");
            let reached = connect(host, port, &Network::loopback());
            assert!(reached.is_ok(), "{reached:?}");
        }
        // None but the allowed ones were tried.
        listener.set_nonblocking(true).expect("a socket");
        assert_eq!(listener.incoming().take_while(Result::is_ok).count(), 2);
    }
}
