//! The device by which a node sends packets as a gateway, or a gateway those that no node can.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::BpfError;
use crate::catch_device::ip;

/// As whom packets are sent: the device's name in `ip link`, and what the system is told
/// of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// A node, as gateways on other machines.
    Node,
    /// A gateway, as itself: the system would take a packet that comes in with an address of
    /// its own for a forged one.
    Gateway,
}

impl Speaker {
    const fn device(self) -> &'static str {
        match self {
            Self::Node => "crossdock-in",
            Self::Gateway => "crossdock-own",
        }
    }

    const fn accept_local(self) -> &'static str {
        match self {
            Self::Node => "0",
            Self::Gateway => "1",
        }
    }
}

/// A TUN device: what is written to it comes into the system as if from a network, and the
/// system routes it on. Each packet has a `virtio_net_hdr` before it: the system completes
/// the checksum, or the network card does, and cuts it into segments.
#[derive(Debug)]
pub struct SendDevice {
    file: File,
    has_ipv6: bool,
}

impl SendDevice {
    /// Makes the device; it ends with the value.
    ///
    /// Packets that come by it are forwarded whatever the system does with others, and may
    /// have a source that is elsewhere.
    ///
    /// # Errors
    /// [`BpfError`]: without /dev/net/tun, or without the rights.
    pub fn make(speaker: Speaker) -> Result<Self, BpfError> {
        let name = speaker.device();
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = open("/dev/net/tun", flags, Mode::empty());
        let file = File::from(file.map_err(BpfError::system("/dev/net/tun"))?);
        take_name(file.as_fd(), name).map_err(|error| BpfError::System {
            what: "a TUN device",
            error,
        })?;
        let settings = [
            ("forwarding", "1"),
            ("rp_filter", "0"),
            ("accept_local", speaker.accept_local()),
        ];
        for (setting, value) in settings {
            set(&format!("/proc/sys/net/ipv4/conf/{name}/{setting}"), value)?;
        }
        ip(&format!("link set dev {name} up"))?;
        let has_ipv6 = forwards_ipv6(name)?;
        Ok(Self { file, has_ipv6 })
    }

    /// Whether packets of IPv6 get through, too: the system has to have it, and to forward them.
    #[must_use]
    pub const fn has_ipv6(&self) -> bool {
        self.has_ipv6
    }

    /// Sends a packet: what the kernel has to do, headers, payload.
    ///
    /// # Errors
    /// Those of the device; the packet is lost, and TCP repeats it.
    pub fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        rustix::io::writev(&self.file, pieces)?;
        Ok(())
    }
}

impl AsFd for SendDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Has packets of IPv6 forwarded, if that can be said of this device alone (Linux 6.17): before,
/// the system forwards those of all devices or of none. Whether it does.
fn forwards_ipv6(name: &str) -> Result<bool, BpfError> {
    let of = |device: &str, setting: &str| format!("/proc/sys/net/ipv6/conf/{device}/{setting}");
    let own = of(name, "force_forwarding");
    if Path::new(&own).exists() {
        return set(&own, "1").map(|()| true);
    }
    let all = std::fs::read_to_string(of("all", "forwarding"));
    Ok(all.is_ok_and(|value| value.trim() == "1"))
}

fn set(path: &str, value: &str) -> Result<(), BpfError> {
    std::fs::write(path, value).map_err(|error| BpfError::System {
        what: "a setting of the TUN device",
        error,
    })
}

/// The file is the device's from here on.
#[expect(unsafe_code, reason = "no library of ours has this call")]
fn take_name(file: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: all zeros are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, &from) in request.ifr_name.iter_mut().zip(name.as_bytes_with_nul()) {
        *to = from.cast_signed();
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
    // SAFETY: the request is valid, and the call keeps nothing of it.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
