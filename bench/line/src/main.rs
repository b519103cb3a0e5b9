//! Makes the device and is the line until it is killed: `crossdock-line --device NAME
//! --rtt-ms N…`. Prints `ready` once the device is there, without an address yet.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use crossdock_line::delay::Delay;
use crossdock_line::{PATHS_MAX, enter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use tappers::{Interface, Tun};

/// More than any packet of the device has.
const PACKET_BYTES: usize = 64 << 10;
/// Packets that are taken before it is looked whether others have arrived.
const PACKETS_AT_ONCE: usize = 64;

/// Gives packets back later.
#[derive(Parser)]
struct Flags {
    /// Name of the device.
    #[arg(long)]
    device: String,
    /// Round-trip time of a path, in milliseconds; one for each path.
    #[arg(long = "rtt-ms", required = true)]
    round_trips: Vec<u64>,
}

fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    ensure!(flags.round_trips.len() <= PATHS_MAX, "too many paths");
    let name = Interface::new(&flags.device)?;
    let mut device = Tun::new_named(name).context("cannot make the device (root is needed)")?;
    device.set_nonblocking(true)?;
    // It answers in time also where others use all processors; without the right to that
    // it is less exact.
    let _ = rustix::process::nice(-20);
    println!("ready");
    let ways = flags.round_trips.iter();
    let ways: Vec<_> = ways.map(|&rtt| Duration::from_millis(rtt) / 2).collect();
    let mut delay = Delay::new(&ways);
    let mut buffer = vec![0; PACKET_BYTES];
    let mut lost = 0;
    loop {
        take(&device, &mut delay, &mut buffer)?;
        give(&device, &mut delay)?;
        if delay.lost() > lost {
            lost = delay.lost();
            eprintln!("{lost} packets lost");
        }
        let wait = delay.poll_timeout().map(|due| due.saturating_sub(now()));
        let wait = wait.map(Timespec::try_from).transpose()?;
        let mut ready = [PollFd::new(&device, PollFlags::IN)];
        poll(&mut ready, wait.as_ref())?;
    }
}

/// Takes what the kernel has sent.
fn take(device: &Tun, delay: &mut Delay, buffer: &mut [u8]) -> anyhow::Result<()> {
    for _ in 0..PACKETS_AT_ONCE {
        match device.recv(buffer) {
            Ok(bytes) => {
                let packet = &mut buffer[..bytes];
                if let Some(path) = enter(packet) {
                    delay.handle(now(), path, packet);
                }
            }
            // Not up yet, or nothing there.
            Err(error) if is_passing(&error) => return Ok(()),
            Err(error) => return Err(error).context("cannot read the device"),
        }
    }
    Ok(())
}

/// Gives the kernel what has arrived.
fn give(device: &Tun, delay: &mut Delay) -> anyhow::Result<()> {
    let now = now();
    while let Some(packet) = delay.poll_packet(now) {
        match device.send(&packet) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => eprintln!("a packet lost: {error}"),
            Err(error) => return Err(error).context("cannot write to the device"),
        }
    }
    Ok(())
}

fn is_passing(error: &std::io::Error) -> bool {
    // EIO: the device is down.
    error.kind() == ErrorKind::WouldBlock
        || error.kind() == ErrorKind::Interrupted
        || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
