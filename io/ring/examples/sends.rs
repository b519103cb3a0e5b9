//! Ways to send from memory without a thread being woken for each acknowledgement
//! (TPF section 3.1), side by side: what each costs for a gigabyte that goes to some
//! connections over loopback. The receivers have the other processor.
//!
//! ```text
//! cargo run --release -p crossdock-ring --example sends -- [MEGABYTES [CONNECTIONS [SOCKET_BYTES]]]
//! ```
//!
//! - `plain`: sockets that do not block, and epoll: a call whenever there is room.
//! - `whole`: one send of 1 MiB, which the kernel continues by itself (MSG_WAITALL).
//! - `linked`: sends of 64 KiB, each of which begins when the one before is whole.
//! - `bundle`: a ring of buffers of 64 KiB from which the kernel takes the next by itself.
//! - `zero-copy`: like `whole`, from the memory as it is; what was copied nevertheless is
//!   told (receivers on this machine always copy).

#![expect(
    unsafe_code,
    reason = "the kernel is given memory, as in the crate itself"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small figures of a measurement"
)]

use std::alloc::{Layout, alloc_zeroed};
use std::error::Error;
use std::io::{Read, Write};
use std::mem;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Instant;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode};
use rustix::event::epoll;
use rustix::thread::{CpuSet, sched_setaffinity};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What is sent at once.
const SEND_BYTES: usize = 1 << 20;
/// Into how much of it buffers are cut.
const PART_BYTES: usize = 64 << 10;
const PARTS: usize = SEND_BYTES / PART_BYTES;
/// As much memory as a cache that processors do not hold.
const POOL_BYTES: usize = 64 << 20;
/// IORING_SEND_ZC_REPORT_USAGE, and IORING_NOTIF_USAGE_ZC_COPIED in its answer.
const REPORT_USAGE: u16 = 1 << 3;
const WAS_COPIED: u32 = 1 << 31;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let mut next = |usual| words.next().unwrap_or(Ok(usual));
    let (megabytes, connections, socket_bytes) = (next(4096)?, next(30)?, next(0)?);
    let pool: Vec<u8> = (0..POOL_BYTES).map(|at| at as u8).collect();
    println!("{megabytes} MiB, {connections} connections, socket buffers of {socket_bytes} bytes");
    println!("way         CPU s/GB  switches/MB  calls/MB      MB/s  copied");
    for _ in 0..3 {
        for way in ["plain", "whole", "linked", "bundle", "zero-copy"] {
            measure(way, &pool, (megabytes, connections, socket_bytes))?;
        }
    }
    Ok(())
}

/// What a way has to do.
struct Task<'pool> {
    sockets: Vec<TcpStream>,
    pool: &'pool [u8],
    sends: usize,
    calls: u64,
    copied: u64,
}

fn measure(
    way: &str,
    pool: &[u8],
    (megabytes, count, socket_bytes): (usize, usize, usize),
) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut receivers = Vec::new();
    let mut sockets = Vec::new();
    for _ in 0..count {
        let mut receiver = TcpStream::connect(listener.local_addr()?)?;
        let socket = listener.accept()?.0;
        if socket_bytes > 0 {
            rustix::net::sockopt::set_socket_send_buffer_size(&socket, socket_bytes)?;
        }
        sockets.push(socket);
        receivers.push(thread::spawn(move || {
            let _ = stay_on(1);
            let mut buffer = vec![0; 256 << 10];
            let mut bytes = 0;
            while let Ok(more @ 1..) = receiver.read(&mut buffer) {
                bytes += more;
            }
            bytes
        }));
    }
    let pool = &pool[..pool.len() / SEND_BYTES * SEND_BYTES];
    let sends = megabytes.max(count);
    let (calls, copied) = (0, 0);
    let mut task = Task {
        sockets,
        pool,
        sends,
        calls,
        copied,
    };
    stay_on(0)?;
    let (began, before) = (Instant::now(), spent());
    match way {
        "plain" => plain(&mut task)?,
        "bundle" => bundle(&mut task)?,
        _ => by_ring(way, &mut task)?,
    }
    let Task {
        sockets,
        calls,
        copied,
        ..
    } = task;
    drop(sockets);
    let mut received = 0;
    for receiver in receivers {
        received += receiver.join().map_err(|_| "a receiver has failed")?;
    }
    let (seconds, after) = (began.elapsed().as_secs_f64(), spent());
    assert_eq!(
        received,
        sends * SEND_BYTES,
        "{way}: not all of it has come"
    );
    let megabytes = received as f64 / 1e6;
    println!(
        "{way:<10} {:>9.3} {:>12.3} {:>9.3} {:>9.0} {:>7}",
        (after.0 - before.0) / megabytes * 1e3,
        (after.1 - before.1) as f64 / megabytes,
        calls as f64 / megabytes,
        megabytes / seconds,
        if way == "zero-copy" {
            format!("{} %", 100 * copied / sends as u64)
        } else {
            "all".to_owned()
        },
    );
    Ok(())
}

/// Send `number`'s part of the memory.
fn piece(pool: &[u8], number: usize) -> &[u8] {
    let at = number % (pool.len() / SEND_BYTES) * SEND_BYTES;
    &pool[at..at + SEND_BYTES]
}

fn plain(task: &mut Task<'_>) -> Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (socket, index) in task.sockets.iter().zip(0..) {
        socket.set_nonblocking(true)?;
        epoll::add(
            &poll,
            socket,
            epoll::EventData::new_u64(index),
            epoll::EventFlags::OUT | epoll::EventFlags::ET,
        )?;
    }
    let mut left: Vec<&[u8]> = vec![&[]; task.sockets.len()];
    let (mut begun, mut open) = (0, task.sockets.len());
    let mut events = Vec::with_capacity(64);
    while open > 0 {
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)?;
        task.calls += 1;
        for event in &events {
            let index = event.data.u64() as usize;
            loop {
                if left[index].is_empty() {
                    if begun == task.sends {
                        open -= 1;
                        epoll::delete(&poll, &task.sockets[index])?;
                        break;
                    }
                    left[index] = piece(task.pool, begun);
                    begun += 1;
                }
                task.calls += 1;
                match (&task.sockets[index]).write(left[index]) {
                    Ok(bytes) => left[index] = &left[index][bytes..],
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    Ok(())
}

/// `whole`, `linked` and `zero-copy`.
fn by_ring(way: &str, task: &mut Task<'_>) -> Result<()> {
    let mut ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(2048)?;
    let fds: Vec<RawFd> = task.sockets.iter().map(AsRawFd::as_raw_fd).collect();
    let mut begun = 0;
    let mut begin = |ring: &mut IoUring, index: usize| -> Result<bool> {
        if begun == task.sends {
            return Ok(false);
        }
        let entries = entries(way, fds[index], piece(task.pool, begun));
        begun += 1;
        for entry in entries {
            // SAFETY: the memory and the sockets outlive the ring.
            unsafe { ring.submission().push(&entry.user_data(index as u64))? };
        }
        Ok(true)
    };
    let mut open = 0;
    for index in 0..fds.len() {
        open += usize::from(begin(&mut ring, index)?);
    }
    let (mut calls, mut copied) = (0, 0);
    while open > 0 {
        ring.submit_and_wait(1)?;
        calls += 1;
        let done: Vec<_> = ring
            .completion()
            .map(|it| (it.user_data(), it.result(), it.flags()))
            .collect();
        for (index, result, flags) in done {
            if cqueue::notif(flags) {
                copied += u64::from(result as u32 & WAS_COPIED != 0);
                continue;
            }
            let expected = if way == "linked" {
                PART_BYTES
            } else {
                SEND_BYTES
            };
            if result != expected as i32 {
                return Err(format!("{way}: a send has ended with {result}").into());
            }
            if !begin(&mut ring, index as usize)? {
                open -= 1;
            }
        }
    }
    // What the kernel still tells of memory that it has let go of.
    while way == "zero-copy" && copied < task.sends as u64 {
        ring.submit_and_wait(1)?;
        let more = ring
            .completion()
            .filter(|it| cqueue::notif(it.flags()))
            .count();
        copied += more as u64;
    }
    (task.calls, task.copied) = (calls, copied);
    Ok(())
}

fn entries(way: &str, fd: RawFd, piece: &[u8]) -> Vec<Entry> {
    let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
    let send = |part: &[u8]| {
        opcode::Send::new(Fd(fd), part.as_ptr(), part.len() as u32)
            .flags(flags)
            .build()
    };
    match way {
        "whole" => vec![send(piece)],
        "zero-copy" => {
            let send = opcode::SendZc::new(Fd(fd), piece.as_ptr(), piece.len() as u32);
            vec![send.flags(flags).zc_flags(REPORT_USAGE).build()]
        }
        _ => {
            let parts = piece.chunks(PART_BYTES);
            let linked = parts.map(|part| send(part).flags(Flags::IO_LINK | Flags::SKIP_SUCCESS));
            let mut entries: Vec<Entry> = linked.collect();
            entries.pop();
            entries.push(send(&piece[SEND_BYTES - PART_BYTES..]));
            entries
        }
    }
}

/// A ring of provided buffers for each connection; a bundle takes as many as there are.
fn bundle(task: &mut Task<'_>) -> Result<()> {
    const ENTRIES: usize = 2 * PARTS;
    let mut ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(256)?;
    let layout = Layout::from_size_align(ENTRIES * mem::size_of::<BufRingEntry>(), 4096)?;
    let mut provided = Vec::new();
    for group in 0..task.sockets.len() {
        // SAFETY: the layout has a size; the memory is leaked, and so outlives the ring.
        let buffers = unsafe { alloc_zeroed(layout) }.cast::<BufRingEntry>();
        // SAFETY: so many entries are there, aligned to a page.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                buffers as u64,
                ENTRIES as u16,
                group as u16,
                0,
            )?
        };
        provided.push((buffers, 0_u16));
    }
    let (mut begun, mut open) = (0, 0);
    let mut left = vec![0_usize; task.sockets.len()];
    let mut waiting: Vec<usize> = (0..task.sockets.len()).collect();
    loop {
        for index in waiting.drain(..) {
            if left[index] == 0 {
                if begun == task.sends {
                    continue;
                }
                for (part, number) in piece(task.pool, begun).chunks(PART_BYTES).zip(0..) {
                    let (buffers, tail) = &mut provided[index];
                    // SAFETY: within the ring; the kernel has taken this entry before, and
                    // does not look at it until the tail moves.
                    let entry = unsafe { &mut *buffers.add(usize::from(*tail) % ENTRIES) };
                    entry.set_addr(part.as_ptr() as u64);
                    entry.set_len(part.len() as u32);
                    entry.set_bid(number);
                    *tail = tail.wrapping_add(1);
                }
                let (buffers, tail) = provided[index];
                // SAFETY: the tail lies in the ring's first entry.
                let shared = unsafe { &*BufRingEntry::tail(buffers).cast::<AtomicU16>() };
                shared.store(tail, Ordering::Release);
                left[index] = SEND_BYTES;
                begun += 1;
            }
            let fd = Fd(task.sockets[index].as_raw_fd());
            let send = opcode::SendBundle::new(fd, index as u16)
                .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL);
            // SAFETY: buffers and sockets outlive the ring.
            unsafe {
                ring.submission()
                    .push(&send.build().user_data(index as u64))?
            };
            open += 1;
        }
        if open == 0 {
            return Ok(());
        }
        ring.submit_and_wait(1)?;
        task.calls += 1;
        let done: Vec<_> = ring
            .completion()
            .map(|it: cqueue::Entry| (it.user_data() as usize, it.result()))
            .collect();
        for (index, result) in done {
            open -= 1;
            let bytes =
                usize::try_from(result).map_err(|_| format!("a bundle has ended with {result}"))?;
            left[index] = left[index]
                .checked_sub(bytes)
                .ok_or("more was sent than there was")?;
            waiting.push(index);
        }
    }
}

fn stay_on(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// CPU seconds and context switches of this thread so far.
fn spent() -> (f64, i64) {
    // SAFETY: plain numbers, which the call fills.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    (cpu, usage.ru_nvcsw + usage.ru_nivcsw)
}
