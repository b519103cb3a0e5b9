//! A kernel that denies io_uring, as container runtimes do by seccomp.

#![allow(unsafe_code)] // A seccomp filter is set by raw system calls.

use std::thread;

use crossdock_net::{Driver, Event, KernelChoice, NetError, Options, now};

/// Has the kernel refuse io_uring_setup to the calling thread, as a policy would.
fn deny_io_uring() {
    let instruction = |code: u32, jump_true, jump_false, value| libc::sock_filter {
        code: u16::try_from(code).expect("a BPF opcode"),
        jt: jump_true,
        jf: jump_false,
        k: value,
    };
    let denied = u32::try_from(libc::SYS_io_uring_setup).expect("a system call");
    let refusal = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).expect("an error");
    let mut filter = [
        // The first word of what the filter sees is the system call's number.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, denied),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, refusal),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).expect("a short filter"),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: no memory is passed.
    let unprivileged = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(unprivileged, 0);
    // SAFETY: the kernel copies the program, which lives until after the call.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    assert_eq!(set, 0, "the filter was not taken");
}

/// Goal: where io_uring is denied the loop comes over epoll and says why; who
/// demands the ring gets the reason as an error.
#[test]
fn a_denied_ring_falls_back_with_its_reason() {
    thread::spawn(|| {
        deny_io_uring();
        let mut started = Driver::start(Options::default()).expect("a loop");
        let reason = started.fallback.expect("no ring can be had").to_string();
        assert!(reason.starts_with("io_uring is not available"), "{reason}");
        started.driver.waker().wake();
        started.driver.wait(Some(now())).expect("to wait");
        assert!(matches!(started.driver.next_event(), Some(Event::Woken)));
        let demanded = Driver::start(Options {
            kernel: KernelChoice::Ring,
            ..Options::default()
        });
        assert!(matches!(demanded.err(), Some(NetError::Ring(_))));
    })
    .join()
    .expect("no panic");
}
