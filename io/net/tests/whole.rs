//! Sends that the kernel goes on with by itself (IDSR of the TPF paper).

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use crossdock_net::{Driver, Event, KernelChoice, Options, now};
use socket2::SockRef;

const BYTES: usize = 1 << 20;

/// Turns of the loop until a client has all of 1 MiB that comes through a socket buffer of
/// some 64 KiB.
fn turns(whole: bool) -> usize {
    let options = Options {
        kernel: KernelChoice::Ring,
        ..Options::default()
    };
    let mut driver = Driver::start(options).expect("a loop").driver;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (_, address) = driver.listen(any).expect("a listener");
    let reader = thread::spawn(move || {
        let mut client = TcpStream::connect(address).expect("a connection");
        let mut got = vec![0; BYTES];
        let mut at = 0;
        while at < BYTES {
            let end = BYTES.min(at + (32 << 10));
            at += client.read(&mut got[at..end]).expect("bytes");
        }
        got
    });
    let connection = loop {
        driver
            .wait(Some(now() + Duration::from_secs(10)))
            .expect("to wait");
        if let Some(Event::Accepted { connection, .. }) = driver.next_event() {
            break connection;
        }
    };
    let socket = driver.socket(connection).expect("a socket");
    SockRef::from(&socket.as_fd())
        .set_send_buffer_size(32 << 10)
        .expect("an option");
    if whole {
        driver.send_whole(connection);
    }
    let content: Vec<u8> = (0..BYTES).map(|at| (at % 249).to_le_bytes()[0]).collect();
    driver
        .send(connection, vec![Bytes::from(content.clone())])
        .expect("room");
    let mut turns = 0;
    while driver.queued_bytes(connection) > 0 {
        driver
            .wait(Some(now() + Duration::from_secs(10)))
            .expect("to wait");
        while driver.next_event().is_some() {}
        turns += 1;
    }
    driver.close(connection);
    while driver.socket(connection).is_some() {
        driver
            .wait(Some(now() + Duration::from_secs(1)))
            .expect("to wait");
        while driver.next_event().is_some() {}
    }
    assert!(reader.join().expect("the client") == content, "its bytes");
    turns
}

/// Goal: the loop sleeps through a whole send, however small the socket's buffer is; without
/// it is woken each time that some bytes have been acknowledged.
#[test]
fn the_kernel_goes_on_with_a_whole_send() {
    let (by_itself, each_time) = (turns(true), turns(false));
    assert!(by_itself <= 3, "{by_itself} turns");
    assert!(each_time >= 8, "{each_time} turns");
}
