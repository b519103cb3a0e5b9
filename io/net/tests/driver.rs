//! The loop over real sockets and files; every test runs over the ring and
//! over epoll.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossdock_disk::{DiskFile, DiskOperation, DiskOutput, DiskRequest, DiskToken, OpenOptions};
use crossdock_net::{
    CloseReason, ConnectionId, Driver, Event, KernelChoice, Options, Refused, SendError, channel,
    now,
};
use crossdock_types::{AlignedBuffer, BLOCK_BYTES, Fill, Scatter, is_aligned};
use socket2::SockRef;

const PATIENCE: Duration = Duration::from_secs(30);

/// A loop that panics rather than waits for ever.
struct Rig {
    driver: Driver,
}

impl Rig {
    fn next(&mut self) -> Event {
        let until = now() + PATIENCE;
        loop {
            match self.driver.next_event() {
                // Also of a wait before.
                Some(Event::Timeout) => assert!(now() < until, "nothing happened"),
                Some(Event::Woken) => {}
                Some(event) => return event,
                None => self.driver.wait(Some(until)).expect("to wait"),
            }
        }
    }

    /// Turns the loop for a while; panics if something happens.
    fn expect_silence(&mut self, patience: Duration) {
        let until = now() + patience;
        loop {
            self.driver.wait(Some(until)).expect("to wait");
            match self.driver.next_event() {
                Some(Event::Timeout) if now() >= until => return,
                None | Some(Event::Woken | Event::Timeout) => {}
                Some(event) => panic!("unasked for: {event:?}"),
            }
        }
    }

    fn listen(&mut self) -> SocketAddr {
        let (_, address) = self.driver.listen(loopback()).expect("to listen");
        address
    }

    fn accepted(&mut self) -> ConnectionId {
        match self.next() {
            Event::Accepted { connection, .. } => connection,
            event => panic!("no connection: {event:?}"),
        }
    }

    /// A connection of the loop, and its client's end.
    fn pair(&mut self) -> (ConnectionId, TcpStream) {
        let address = self.listen();
        let client = connect(address);
        (self.accepted(), client)
    }

    fn received(&mut self, bytes: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < bytes {
            match self.next() {
                Event::Received { bytes, .. } => all.extend_from_slice(&bytes),
                event => panic!("no bytes: {event:?}"),
            }
        }
        all
    }

    fn closed(&mut self) -> CloseReason {
        match self.next() {
            Event::Closed { why, .. } => why,
            event => panic!("not closed: {event:?}"),
        }
    }
}

/// Runs a test over both ways to wait.
fn over_both(test: impl Fn(Rig)) {
    over_both_with(Options::default(), test);
}

fn over_both_with(options: Options, test: impl Fn(Rig)) {
    for kernel in [KernelChoice::Ring, KernelChoice::Epoll] {
        println!("over {kernel:?}");
        let started = Driver::start(Options { kernel, ..options }).expect("a loop");
        assert!(started.fallback.is_none());
        test(Rig {
            driver: started.driver,
        });
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).expect("to connect");
    client.set_read_timeout(Some(PATIENCE)).expect("an option");
    client.set_write_timeout(Some(PATIENCE)).expect("an option");
    client
}

fn fill(head: Bytes, lead_bytes: usize, missing_bytes: usize) -> Fill {
    Fill {
        head,
        lead_bytes,
        missing_bytes,
    }
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|index| (index.wrapping_mul(31) + seed + index / 251).to_le_bytes()[0])
        .collect()
}

/// Goal: what is accepted waits for no more bytes before it sends, notices a peer that has
/// vanished, and leaves what is not sent with us: by its listener, without a call for each.
#[test]
fn what_is_accepted_has_the_options_of_its_listener() {
    over_both(|mut rig| {
        let (connection, _client) = rig.pair();
        let socket = rig.driver.socket(connection).expect("it is there");
        let socket = SockRef::from(&socket);
        assert!(socket.tcp_nodelay().expect("an option"));
        assert!(socket.keepalive().expect("an option"));
        let after = socket.tcp_keepalive_time().expect("an option");
        assert_eq!(after, Duration::from_secs(60));
        let unsent_bytes = socket.tcp_notsent_lowat().expect("an option");
        assert_eq!(unsent_bytes, 512 << 10);
    });
}

/// Goal: many connections at once, each with more bytes than any buffer, get
/// back exactly their own.
#[test]
fn many_connections_are_echoed() {
    const CLIENTS: usize = 40;
    const BYTES: usize = 700_000;
    over_both(|mut rig| {
        let address = rig.listen();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|seed| {
                thread::spawn(move || {
                    let mut client = connect(address);
                    let sent = pattern(seed, BYTES);
                    let mut writer = client.try_clone().expect("a clone");
                    let to_send = sent.clone();
                    let writing = thread::spawn(move || {
                        writer.write_all(&to_send).expect("to write");
                        writer.shutdown(Shutdown::Write).expect("to end");
                    });
                    let mut echoed = Vec::new();
                    client.read_to_end(&mut echoed).expect("to read");
                    writing.join().expect("no panic");
                    assert!(echoed == sent, "client {seed}");
                })
            })
            .collect();
        let mut closed = 0;
        while closed < CLIENTS {
            match rig.next() {
                Event::Accepted { .. } => {}
                Event::Received { connection, bytes } => {
                    rig.driver.send(connection, vec![bytes]).expect("room");
                }
                Event::PeerDone { connection } => rig.driver.close(connection),
                Event::Closed { why, .. } => {
                    assert_eq!(why, CloseReason::Local);
                    closed += 1;
                }
                event => panic!("{event:?}"),
            }
        }
        for client in clients {
            client.join().expect("the client saw its bytes");
        }
    });
}

/// Goal: one send of more pieces than the kernel takes at once arrives whole
/// and in order, and what follows comes after it.
#[test]
fn a_large_gathered_send_arrives_in_order() {
    over_both(|mut rig| {
        let (connection, mut client) = rig.pair();
        let whole = Bytes::from(pattern(3, 6_000_000));
        let pieces = (0..3000).map(|index| whole.slice(index * 2000..(index + 1) * 2000));
        rig.driver.send(connection, pieces.collect()).expect("room");
        let tail = Bytes::from_static(b"the end");
        rig.driver.send(connection, vec![tail]).expect("room");
        rig.driver.close(connection);
        let refused = rig.driver.send(connection, Vec::new());
        assert_eq!(refused.expect_err("closed").why, SendError::Closed);
        let expected = [&whole[..], b"the end"].concat();
        let reading = thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).expect("to read");
            assert!(all == expected);
        });
        assert!(matches!(
            rig.next(),
            Event::Writable { .. } | Event::Closed { .. }
        ));
        reading.join().expect("all bytes in order");
    });
}

/// Goal: a peer that has ended its side still gets its answer.
#[test]
fn a_half_closed_peer_gets_its_answer() {
    over_both(|mut rig| {
        let (connection, mut client) = rig.pair();
        client.write_all(b"question").expect("to write");
        client.shutdown(Shutdown::Write).expect("to end");
        assert_eq!(rig.received(8), b"question");
        assert!(matches!(rig.next(), Event::PeerDone { .. }));
        rig.expect_silence(Duration::from_millis(20));
        let answer = pattern(1, 3_000_000);
        let pieces = vec![Bytes::from(answer.clone())];
        rig.driver.send(connection, pieces).expect("room");
        rig.driver.close(connection);
        let reading = thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).expect("to read");
            all
        });
        assert_eq!(rig.closed(), CloseReason::Local);
        assert!(reading.join().expect("no panic") == answer);
    });
}

/// Goal: a peer that resets while we send ends its connection once, and no
/// other; its id stays dead.
#[test]
fn a_reset_in_mid_send_closes_the_connection_once() {
    over_both(|mut rig| {
        let (other, mut bystander) = rig.pair();
        let (connection, mut client) = rig.pair();
        let bytes = Bytes::from(pattern(1, 60_000_000));
        rig.driver.send(connection, vec![bytes]).expect("room");
        rig.driver.wait(Some(now())).expect("to wait");
        while rig.driver.next_event().is_some() {}
        client.read_exact(&mut [0; 1000]).expect("to read");
        socket2::SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .expect("an option");
        drop(client);
        match rig.next() {
            Event::Closed {
                connection: closed,
                why,
            } => assert_eq!((closed, why), (connection, CloseReason::Reset)),
            event => panic!("{event:?}"),
        }
        assert_eq!(rig.driver.queued_bytes(connection), 0);
        let refused = rig.driver.send(connection, Vec::new());
        assert_eq!(refused.expect_err("gone").why, SendError::Closed);
        rig.driver.close(connection);
        bystander.write_all(b"still here").expect("to write");
        assert_eq!(rig.received(10), b"still here");
        assert!(rig.driver.socket(other).is_some());
    });
}

/// Goal: a peer that does not read makes the queue full, not long; what was
/// refused comes back, and there is word when there is room.
#[test]
fn a_slow_reader_meets_a_bounded_queue() {
    const LIMIT: usize = 1 << 20;
    let options = Options {
        send_queue_bytes_max: LIMIT,
        ..Options::default()
    };
    over_both_with(options, |mut rig| {
        let (connection, mut client) = rig.pair();
        let piece = Bytes::from(pattern(7, 100_000));
        let mut taken = 0;
        // The kernel's buffers take a bounded number first.
        let unsent = loop {
            match rig.driver.send(connection, vec![piece.clone()]) {
                Ok(()) => taken += 1,
                Err(unsent) => {
                    rig.driver
                        .wait(Some(now() + Duration::from_millis(30)))
                        .expect("to wait");
                    while rig.driver.next_event().is_some() {}
                    if rig.driver.queued_bytes(connection) >= LIMIT {
                        break unsent;
                    }
                }
            }
            assert!(taken < 1000, "the queue has no bound");
        };
        assert_eq!(unsent.why, SendError::Full);
        assert_eq!(unsent.pieces.concat(), piece);
        assert!(rig.driver.queued_bytes(connection) < LIMIT + piece.len());
        let total = (taken + 1) * piece.len();
        let reading = thread::spawn(move || {
            let mut all = vec![0; total];
            client.read_exact(&mut all).expect("to read");
            all
        });
        match rig.next() {
            Event::Writable { queued_bytes, .. } => assert!(queued_bytes <= LIMIT / 2),
            event => panic!("{event:?}"),
        }
        rig.driver.send(connection, unsent.pieces).expect("room");
        while rig.driver.queued_bytes(connection) > 0 {
            rig.driver.wait(Some(now() + PATIENCE)).expect("to wait");
        }
        let all = reading.join().expect("no panic");
        assert!(all.chunks(piece.len()).all(|chunk| chunk == piece));
    });
}

/// Goal: an aborted connection is gone at once, though its peer does not read;
/// the peer sees a reset.
#[test]
fn an_abort_waits_for_nobody() {
    over_both(|mut rig| {
        let (connection, mut client) = rig.pair();
        let bytes = Bytes::from(pattern(1, 60_000_000));
        rig.driver.send(connection, vec![bytes]).expect("room");
        rig.driver.wait(Some(now())).expect("to wait");
        rig.driver.close(connection);
        rig.expect_silence(Duration::from_millis(30));
        rig.driver.abort(connection);
        assert_eq!(rig.closed(), CloseReason::Local);
        let error = client.read_to_end(&mut Vec::new());
        assert_eq!(
            error.expect_err("a reset").kind(),
            ErrorKind::ConnectionReset
        );
    });
}

/// Goal: a paused connection tells nothing and stalls its peer; after the
/// pause everything comes, in order.
#[test]
fn a_paused_connection_stalls_its_peer() {
    over_both(|mut rig| {
        let (connection, mut client) = rig.pair();
        rig.driver.wait(Some(now())).expect("to wait"); // A receive is in flight.
        rig.driver.pause_receive(connection);
        client.set_nonblocking(true).expect("an option");
        let chunk = pattern(5, 100_000);
        let mut sent = Vec::new();
        let mut full = 0;
        while full < 3 {
            match client.write(&chunk) {
                Ok(bytes) => sent.extend_from_slice(&chunk[..bytes]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    full += 1;
                    rig.expect_silence(Duration::from_millis(30));
                }
            }
            assert!(sent.len() < 200_000_000, "the peer never stalled");
        }
        client.shutdown(Shutdown::Write).expect("to end");
        rig.driver.resume_receive(connection);
        let bytes = sent.len();
        assert!(rig.received(bytes) == sent);
        assert!(matches!(rig.next(), Event::PeerDone { .. }));
    });
}

/// Goal: what is missing of a record comes in one piece behind its head, and
/// lies where it was wanted, whatever the packets; the bytes around it come as
/// they come.
#[test]
fn a_record_is_filled_behind_its_head() {
    const BODY: usize = 1_000_000;
    over_both(|mut rig| {
        let (connection, mut client) = rig.pair();
        let body = pattern(9, BODY);
        for lead_bytes in [0, 100, 5000] {
            client.write_all(b"head").expect("to write");
            assert_eq!(rig.received(4), b"head");
            let mut writer = client.try_clone().expect("a clone");
            let message = [&body[..], b"tail"].concat();
            let writing = thread::spawn(move || {
                for part in message.chunks(70_001) {
                    writer.write_all(part).expect("to write");
                }
            });
            let head = Bytes::from_static(b"head");
            rig.driver.fill(connection, &fill(head, lead_bytes, BODY));
            match rig.next() {
                Event::Filled { bytes, .. } => {
                    assert_eq!(&bytes[..4], b"head");
                    assert!(bytes[4..] == body);
                    assert_eq!(bytes.as_ptr().addr() % 4096, lead_bytes % 4096);
                }
                event => panic!("{event:?}"),
            }
            assert_eq!(rig.received(4), b"tail");
            writing.join().expect("no panic");
        }
    });
}

/// Goal: without zero copy all bytes go both ways as with it, but what is filled lies where no
/// disk takes it, and what is sent is let go of at once.
#[test]
fn without_zero_copy_all_is_copied() {
    let options = Options {
        zero_copy: false,
        ..Options::default()
    };
    over_both_with(options, |mut rig| {
        let (connection, mut client) = rig.pair();
        let sent = pattern(3, 100_000);
        rig.driver
            .fill(connection, &fill(Bytes::new(), 0, sent.len()));
        client.write_all(&sent).expect("to write");
        match rig.next() {
            Event::Filled { bytes, .. } => {
                assert!(bytes == sent && !is_aligned(&bytes[..BLOCK_BYTES]));
            }
            event => panic!("{event:?}"),
        }
        let pieces = vec![Bytes::from(sent.clone()), Bytes::from_static(b"end")];
        let kept = pieces.clone();
        rig.driver.send(connection, pieces).expect("room");
        assert!(
            kept.iter()
                .all(|piece| piece.is_unique() || piece.len() == 3)
        );
        let mut received = vec![0; sent.len() + 3];
        let reading = thread::spawn(move || {
            client.read_exact(&mut received).expect("to read");
            received
        });
        rig.driver.wait(Some(now())).expect("to wait");
        while rig.driver.queued_bytes(connection) > 0 {
            let soon = now() + Duration::from_millis(1);
            rig.driver.wait(Some(soon)).expect("to wait");
        }
        let received = reading.join().expect("no panic");
        assert!(received == [&sent[..], b"end"].concat());
    });
}

/// Goal: a fill that is asked for while a receive is in flight, or in a pause
/// with bytes at hand, begins with those bytes.
#[test]
fn a_late_fill_takes_what_has_come() {
    over_both(|mut rig| {
        let (connection, mut client) = rig.pair();
        rig.driver.wait(Some(now())).expect("to wait");
        rig.driver.pause_receive(connection);
        client.write_all(b"abcdefgh").expect("to write");
        rig.expect_silence(Duration::from_millis(30));
        rig.driver.fill(connection, &fill(Bytes::new(), 0, 6));
        rig.driver.resume_receive(connection);
        match rig.next() {
            Event::Filled { bytes, .. } => assert_eq!(&bytes[..], b"abcdef"),
            event => panic!("{event:?}"),
        }
        assert_eq!(rig.received(1), b"gh");
    });
}

/// Goal: a fill begins with bytes of which an event lies ready that nobody has taken yet: they
/// are not told of twice, and the end of the stream is told of behind them.
#[test]
fn a_fill_takes_what_was_not_heard_of() {
    over_both(|mut rig| {
        for sent in [&b"abcd"[..], b"abcdef", b"abcdefgh"] {
            let (connection, mut client) = rig.pair();
            rig.driver.pause_receive(connection);
            client.write_all(sent).expect("to write");
            rig.expect_silence(Duration::from_millis(30));
            rig.driver.resume_receive(connection);
            rig.driver
                .fill(connection, &fill(Bytes::from_static(b">"), 7, 6));
            client.write_all(b"ghijkl").expect("to write");
            client.shutdown(Shutdown::Write).expect("to end");
            let stream = [sent, b"ghijkl"].concat();
            match rig.next() {
                Event::Filled { bytes, .. } => {
                    assert_eq!(bytes[..], [b">", &stream[..6]].concat());
                }
                event => panic!("{event:?}"),
            }
            assert_eq!(rig.received(stream.len() - 6), stream[6..]);
            assert!(matches!(rig.next(), Event::PeerDone { .. }));
        }
    });
}

/// Goal: datagrams of all sizes go both ways whole; a closed socket is silent.
#[test]
fn datagrams_go_both_ways() {
    over_both(|mut rig| {
        let (socket, address) = rig.driver.bind_datagram(loopback()).expect("to bind");
        let client = UdpSocket::bind(loopback()).expect("to bind");
        client.set_read_timeout(Some(PATIENCE)).expect("an option");
        client.connect(address).expect("to connect");
        let mut buffer = vec![0; 70_000];
        for bytes in [1, 100, 1400, 32_000, 65_000] {
            let datagram = pattern(bytes, bytes);
            for _ in 0..3 {
                client.send(&datagram).expect("to send");
            }
            for _ in 0..3 {
                match rig.next() {
                    Event::Datagram { from, bytes, .. } => {
                        assert!(bytes == datagram);
                        let (head, tail) = (bytes.slice(..1), bytes.slice(1..));
                        let sent = rig.driver.send_datagram(socket, from, vec![head, tail]);
                        sent.expect("room");
                    }
                    event => panic!("{event:?}"),
                }
            }
            rig.driver.wait(Some(now())).expect("to wait");
            for _ in 0..3 {
                let bytes = client.recv(&mut buffer).expect("an answer");
                assert!(buffer[..bytes] == datagram);
            }
        }
        rig.driver.close_datagram(socket);
        let refused = rig.driver.send_datagram(socket, address, Vec::new());
        assert_eq!(refused, Err(SendError::Closed));
        rig.expect_silence(Duration::from_millis(10));
    });
}

/// Goal: disks are served beside sockets, each with its own completions.
#[test]
fn disks_are_served_beside_sockets() {
    over_both(|mut rig| {
        let (connection, mut client) = rig.pair();
        let disks: Vec<_> = (0..2)
            .map(|index| {
                let name = format!("crossdock-net-{}-{index}", std::process::id());
                let path = std::env::temp_dir().join(name);
                let options = OpenOptions {
                    length_bytes: 1 << 20,
                    prewrite: false,
                };
                let file = DiskFile::open_or_create(&path, options).expect("a disk");
                std::fs::remove_file(&path).expect("to unlink");
                rig.driver.add_disk(file).expect("room")
            })
            .collect();
        assert_ne!(disks[0], disks[1]);
        let submit = |rig: &mut Rig, disk, token, operation| {
            let token = DiskToken(token);
            rig.driver
                .submit_disk(disk, DiskRequest { token, operation });
        };
        for (index, &disk) in (1..).zip(&disks) {
            let pieces = vec![AlignedBuffer::padded_from(&[index; 5000]).freeze()];
            let offset_bytes = 4096;
            let write = DiskOperation::Write {
                offset_bytes,
                pieces,
                is_durable: false,
            };
            submit(&mut rig, disk, index.into(), write);
        }
        client.write_all(b"beside").expect("to write");
        let (mut written, mut beside) = (0, Vec::new());
        while written < 2 || beside.len() < 6 {
            match rig.next() {
                Event::Disk(disk, done) => {
                    assert_eq!(disk, disks[usize::from(done.token.0 == 2)]);
                    done.result.expect("to write");
                    written += 1;
                }
                Event::Received { bytes, .. } => beside.extend_from_slice(&bytes),
                event => panic!("{event:?}"),
            }
        }
        let buffer = Scatter::zeroed(2 * BLOCK_BYTES);
        let offset_bytes = 4096;
        let read = DiskOperation::Read {
            offset_bytes,
            buffer,
        };
        submit(&mut rig, disks[1], 9, read);
        match rig.next() {
            Event::Disk(_, done) => match done.result {
                Ok(DiskOutput::Read(buffer)) => {
                    let buffer = buffer.into_bytes();
                    assert_eq!((buffer[4999], buffer[5000]), (2, 0));
                }
                result => panic!("{result:?}"),
            },
            event => panic!("{event:?}"),
        }
        // Refused without the kernel, but answered like all.
        let offset_bytes = 1 << 20;
        let pieces = vec![AlignedBuffer::zeroed(BLOCK_BYTES).freeze()];
        let beyond = DiskOperation::Write {
            offset_bytes,
            pieces,
            is_durable: false,
        };
        submit(&mut rig, disks[0], 3, beyond);
        assert!(matches!(rig.next(), Event::Disk(_, done) if done.result.is_err()));
        assert_eq!(rig.driver.disk_length_bytes(disks[0]), 1 << 20);
        rig.driver.close(connection);
        assert_eq!(rig.closed(), CloseReason::Local);
    });
}

/// Goal: dummy bytes arrive as zeros in their place, however many, and leave nothing behind
/// when the peer goes in the middle.
#[test]
fn dummy_bytes_arrive_in_their_place() {
    const BYTES: usize = 9_000_001;
    over_both(|mut rig| {
        let (_, address) = rig.driver.listen(loopback()).expect("to listen");
        for is_gone in [false, true] {
            let client = connect(address);
            let connection = rig.accepted();
            let reader = thread::spawn(move || {
                let mut client = client;
                let mut all = Vec::new();
                match is_gone {
                    true => drop(client.read(&mut [0; 100_000])),
                    false => drop(client.read_to_end(&mut all).expect("to read")),
                }
                all
            });
            let mut pieces = vec![Bytes::from_static(b"head")];
            pieces.extend(crossdock_net::dummy(BYTES));
            pieces.push(Bytes::from_static(b"tail"));
            rig.driver.send_whole(connection);
            rig.driver.send(connection, pieces).expect("room");
            rig.driver.close(connection);
            let mut is_over = false;
            while !is_over {
                rig.driver.wait(Some(now() + PATIENCE)).expect("to wait");
                while let Some(event) = rig.driver.next_event() {
                    is_over |= matches!(event, Event::Closed { .. });
                }
            }
            let all = reader.join().expect("no panic");
            if !is_gone {
                let expected = [&b"head"[..], &vec![0; BYTES], b"tail"].concat();
                assert!(all == expected, "{} bytes", all.len());
            }
        }
    });
}

/// Goal: a descriptor is told of until it has been read, and again when there is more.
#[test]
fn what_is_watched_is_told_of() {
    over_both(|mut rig| {
        let (mut theirs, ours) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let mut reader = ours.try_clone().expect("a clone");
        let watch = rig.driver.watch(ours.into()).expect("to watch");
        for _ in 0..3 {
            rig.driver.wait(Some(now())).expect("to wait");
            while let Some(event) = rig.driver.next_event() {
                assert!(matches!(event, Event::Timeout), "{event:?}");
            }
            theirs.write_all(b"ab").expect("to write");
            for _ in 0..2 {
                let mut is_told = false;
                while !is_told {
                    rig.driver.wait(Some(now() + PATIENCE)).expect("to wait");
                    while let Some(event) = rig.driver.next_event() {
                        assert!(
                            matches!(event, Event::Readable(id) if id == watch),
                            "{event:?}"
                        );
                        is_told = true;
                    }
                }
                reader.read_exact(&mut [0]).expect("a byte");
            }
            // One that was armed before the last byte was read may still be told of.
            rig.driver.wait(Some(now())).expect("to wait");
            while rig.driver.next_event().is_some() {}
        }
    });
}

/// Goal: other threads end an endless wait, no message is lost, and their
/// queue has a bound.
#[test]
fn other_threads_wake_the_loop() {
    const MESSAGES: u32 = 20_000;
    over_both(|mut rig| {
        let (sender, receiver) = channel(64, rig.driver.waker());
        let threads: Vec<_> = (0..3_u32)
            .map(|thread| {
                let sender = sender.clone();
                thread::spawn(move || {
                    for number in 0..MESSAGES {
                        sender.send((thread, number)).expect("a loop");
                    }
                })
            })
            .collect();
        let mut next: BTreeMap<u32, u32> = BTreeMap::new();
        while next.len() < 3 || next.values().any(|&count| count < MESSAGES) {
            rig.driver.wait(Some(now() + PATIENCE)).expect("to wait");
            while let Some(event) = rig.driver.next_event() {
                assert!(matches!(event, Event::Woken), "{event:?}");
                while let Some((thread, number)) = receiver.try_receive() {
                    let count = next.entry(thread).or_default();
                    assert_eq!(number, *count);
                    *count += 1;
                }
            }
        }
        for thread in threads {
            thread.join().expect("no panic");
        }
        let refused = (0..65).find_map(|number| sender.try_send((9, number)).err());
        assert_eq!(refused, Some(Refused::Full((9, 64))));
        drop(receiver);
        assert_eq!(sender.try_send((1, 1)), Err(Refused::Gone((1, 1))));
    });
}

/// Goal: a wait ends in time, neither early nor at once.
#[test]
fn a_wait_ends_in_time() {
    over_both(|mut rig| {
        let before = Instant::now();
        rig.expect_silence(Duration::from_millis(60));
        assert!(before.elapsed() >= Duration::from_millis(60));
        assert!(rig.driver.enters() < 10, "it spun");
        rig.driver.wait(Some(now())).expect("to wait");
        assert!(matches!(rig.driver.next_event(), Some(Event::Timeout)));
    });
}

/// Goal: no more connections than the limit; the next one is taken when one
/// has gone. A closed listener takes none.
#[test]
fn connections_have_a_limit() {
    let options = Options {
        connections_max: 2,
        ..Options::default()
    };
    over_both_with(options, |mut rig| {
        let (listener, address) = rig.driver.listen(loopback()).expect("to listen");
        let clients: Vec<_> = (0..3).map(|_| connect(address)).collect();
        let first = rig.accepted();
        rig.accepted();
        rig.expect_silence(Duration::from_millis(30));
        rig.driver.close(first);
        assert_eq!(rig.closed(), CloseReason::Local);
        let third = rig.accepted();
        assert_ne!(third, first, "names are not used again");
        rig.driver.close_listener(listener);
        rig.driver.close(third);
        assert_eq!(rig.closed(), CloseReason::Local);
        rig.expect_silence(Duration::from_millis(10));
        assert!(TcpStream::connect(address).is_err());
        drop(clients);
    });
}

/// Goal: a connection made elsewhere becomes one of the loop.
#[test]
fn a_connected_socket_is_adopted() {
    over_both(|mut rig| {
        let listener = std::net::TcpListener::bind(loopback()).expect("to bind");
        let stream = connect(listener.local_addr().expect("an address"));
        let (mut peer, _) = listener.accept().expect("to accept");
        let connection = rig.driver.adopt(stream).expect("a connection");
        let piece = Bytes::from_static(b"hello");
        rig.driver.send(connection, vec![piece]).expect("room");
        peer.write_all(b"you").expect("to write");
        assert_eq!(rig.received(3), b"you");
        let mut greeting = [0; 5];
        peer.read_exact(&mut greeting).expect("to read");
        assert_eq!(&greeting, b"hello");
    });
}

/// Goal: over the ring a turn is one system call, whatever it does.
#[test]
fn a_turn_of_the_ring_is_one_system_call() {
    let options = Options {
        kernel: KernelChoice::Ring,
        ..Options::default()
    };
    let driver = Driver::start(options).expect("a ring").driver;
    let mut rig = Rig { driver };
    let pairs: Vec<_> = (0..50).map(|_| rig.pair()).collect();
    let before = rig.driver.enters();
    for (connection, _) in &pairs {
        for _ in 0..20 {
            let piece = Bytes::from_static(b"x");
            rig.driver.send(*connection, vec![piece]).expect("room");
        }
    }
    rig.driver.wait(Some(now())).expect("to wait");
    assert_eq!(rig.driver.enters(), before + 1);
    for (_, mut client) in pairs {
        let mut all = [0; 20];
        client.read_exact(&mut all).expect("to read");
    }
}
