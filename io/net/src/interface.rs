//! A network interface on which addresses come and go: the kernel is told by netlink
//! (rtnetlink(7)), the network by announcements.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, send, sendto,
    socket_with,
};

use crate::NetError;
use crate::packets::{HardwareAddress, announcement, ethertype, tickle};

const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
/// Make it, or change what is there.
const REPLACE_OR_CREATE: u16 = 0x100 | 0x400;
const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;
/// Attributes of addresses and links.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const LIFETIMES: u16 = 6;
const FLAGS: u16 = 8;
const LINK_ADDRESS: u16 = 1;
/// No asking around whether somebody has it: the registry says that nobody has.
const NO_DETECTION: u32 = 2;
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// An interface whose addresses are managed here. Needs CAP_NET_RAW to be opened, and
/// CAP_NET_ADMIN for as long as it is used.
#[derive(Debug)]
pub struct Interface {
    name: String,
    index: u32,
    hardware: Option<HardwareAddress>,
    kernel: OwnedFd,
    frames: OwnedFd,
    packets_v4: OwnedFd,
    packets_v6: Option<OwnedFd>,
    questions: u32,
}

impl Interface {
    /// The interface of that name.
    ///
    /// # Errors
    /// [`NetError::System`]: there is none, or this process may not manage it.
    pub fn open(name: &str) -> Result<Self, NetError> {
        let index = || -> io::Result<u32> {
            let any = socket_with(
                AddressFamily::INET,
                SocketType::DGRAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            Ok(rustix::net::netdevice::name_to_index(any, name)?)
        };
        let index = index().map_err(NetError::system("find the network interface"))?;
        let raw = |family, protocol| -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            Ok(socket_with(family, SocketType::RAW, flags, protocol)?)
        };
        let with_header = ipproto::RAW;
        let open = || -> io::Result<Self> {
            let kernel = socket_with(
                AddressFamily::NETLINK,
                SocketType::RAW,
                SocketFlags::CLOEXEC,
                None, // Of its protocols the first: routing and addresses.
            )?;
            Ok(Self {
                name: name.to_owned(),
                index,
                hardware: None,
                kernel,
                frames: raw(AddressFamily::PACKET, None)?,
                packets_v4: raw(AddressFamily::INET, Some(with_header))?,
                // A kernel without IPv6 has no such addresses, either.
                packets_v6: raw(AddressFamily::INET6, Some(with_header)).ok(),
                questions: 0,
            })
        };
        let mut interface = open().map_err(NetError::system("open raw sockets (CAP_NET_RAW)"))?;
        interface.hardware = interface
            .ask_hardware()
            .map_err(NetError::system("ask for the interface's hardware address"))?;
        Ok(interface)
    }

    /// Has `address` on the interface for `lifetime` (in whole seconds): then the kernel
    /// takes it away by itself, unless it is told again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set(&mut self, address: IpAddr, prefix_bits: u8, lifetime: Duration) -> io::Result<()> {
        let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX).max(1);
        let mut body = self.address_body(address, prefix_bits);
        let mut lifetimes = Vec::with_capacity(16);
        // Preferred, valid; when it was made and changed is the kernel's.
        for value in [seconds, seconds, 0, 0] {
            lifetimes.extend(value.to_ne_bytes());
        }
        attribute(&mut body, LIFETIMES, &lifetimes);
        if address.is_ipv6() {
            attribute(&mut body, FLAGS, &NO_DETECTION.to_ne_bytes());
        }
        self.tell(NEW_ADDRESS, REPLACE_OR_CREATE, &body)
    }

    /// Takes `address` from the interface.
    ///
    /// # Errors
    /// The kernel's; that it is not there is none.
    pub fn remove(&mut self, address: IpAddr, prefix_bits: u8) -> io::Result<()> {
        let body = self.address_body(address, prefix_bits);
        match self.tell(DELETE_ADDRESS, 0, &body) {
            Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => Ok(()),
            result => result,
        }
    }

    /// Tells the network that `address` is here now. Nothing on an interface that is no
    /// Ethernet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn announce(&self, address: IpAddr) -> io::Result<()> {
        match self.hardware {
            Some(hardware) => self.send_frame(ethertype(address), &announcement(hardware, address)),
            None => Ok(()),
        }
    }

    /// Has `client` find out at once that its connection to `at`, which was another
    /// host's, is no more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn tickle(&self, at: SocketAddr, client: SocketAddr) -> io::Result<()> {
        let socket = match at {
            SocketAddr::V4(_) => Some(&self.packets_v4),
            SocketAddr::V6(_) => self.packets_v6.as_ref(),
        };
        if let (Some(socket), Some(packet)) = (socket, tickle(at, client)) {
            // A raw socket has no ports.
            let to = SocketAddr::new(client.ip(), 0);
            sendto(socket, &packet, SendFlags::empty(), &to)?;
        }
        Ok(())
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `struct ifaddrmsg` and the address.
    fn address_body(&self, address: IpAddr, prefix_bits: u8) -> Vec<u8> {
        let (family, octets) = match address {
            IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
        };
        let family = u8::try_from(family).unwrap_or(0);
        let mut body = vec![family, prefix_bits, 0, 0];
        body.extend(self.index.to_ne_bytes());
        attribute(&mut body, LOCAL, &octets);
        attribute(&mut body, ADDRESS, &octets);
        body
    }

    /// `None` if it has none of six bytes.
    fn ask_hardware(&mut self) -> io::Result<Option<HardwareAddress>> {
        // `struct ifinfomsg`.
        let mut body = vec![0; 4];
        body.extend(self.index.to_ne_bytes());
        body.extend([0; 8]);
        self.ask(GET_LINK, 0, &body)?;
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        let (bytes, _) = recv(&self.kernel, &mut answer[..], RecvFlags::empty())?;
        let answer = &answer[..bytes];
        check(answer)?;
        if field_u16(answer, 4) != Some(NEW_LINK) {
            return Ok(None);
        }
        let attributes = answer.get(HEADER_BYTES + LINK_BYTES..).unwrap_or_default();
        Ok(find_attribute(attributes, LINK_ADDRESS).and_then(|found| found.try_into().ok()))
    }

    fn tell(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.ask(kind, flags | ACKNOWLEDGE, body)?;
        let mut answer = [0; 1024];
        let (bytes, _) = recv(&self.kernel, &mut answer[..], RecvFlags::empty())?;
        check(&answer[..bytes])
    }

    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.questions = self.questions.wrapping_add(1);
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
        let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
        message.extend(length.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((flags | REQUEST).to_ne_bytes());
        message.extend(self.questions.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(body);
        send(&self.kernel, &message, SendFlags::empty())?;
        Ok(())
    }

    #[expect(
        unsafe_code,
        reason = "no library of ours has addresses of packet sockets"
    )]
    fn send_frame(&self, ethertype: u16, frame: &[u8]) -> io::Result<()> {
        // SAFETY: all fields are numbers, for which zero is a value.
        let mut to: libc::sockaddr_ll = unsafe { mem::zeroed() };
        to.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
        to.sll_protocol = ethertype.to_be();
        to.sll_ifindex = i32::try_from(self.index).unwrap_or(0);
        let length = libc::socklen_t::try_from(mem::size_of_val(&to)).unwrap_or(0);
        // SAFETY: frame and address are valid for the lengths that are given, and the
        // kernel does not keep them.
        let sent = unsafe {
            libc::sendto(
                self.frames.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
                (&raw const to).cast(),
                length,
            )
        };
        match sent {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// Appends an attribute (rtnetlink(7)): length, type, value, padded to 4 bytes.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn find_attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(field_u16(attributes, 0)?);
        let value = attributes.get(4..length)?;
        if field_u16(attributes, 2)? == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn field_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(field.try_into().ok()?))
}

/// Whether the kernel's answer is an error.
fn check(answer: &[u8]) -> io::Result<()> {
    if field_u16(answer, 4) != Some(ERROR) {
        return Ok(());
    }
    let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4);
    let code = code.and_then(|code| code.try_into().ok());
    match code.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: attributes are found behind others, whatever their padding, and damaged
    /// ones end the search.
    #[test]
    fn attributes_are_found() {
        let mut body = Vec::new();
        attribute(&mut body, 3, b"eth0\0");
        attribute(&mut body, LINK_ADDRESS, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(body.len() % 4, 0);
        assert_eq!(
            find_attribute(&body, LINK_ADDRESS),
            Some(&[1, 2, 3, 4, 5, 6][..])
        );
        assert_eq!(find_attribute(&body, 9), None);
        body[0] = 0;
        assert_eq!(find_attribute(&body, LINK_ADDRESS), None);
        body[0] = 200;
        assert_eq!(find_attribute(&body, LINK_ADDRESS), None);
    }

    /// Goal: an error of the kernel is an error, an acknowledgement is none.
    #[test]
    fn answers_are_understood() {
        let mut answer = vec![0; 36];
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        assert!(check(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        let error = check(&answer).expect_err("an error");
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        assert!(check(&answer[..17]).is_err());
    }

    /// Goal: an interface that is not there is refused.
    #[test]
    fn unknown_interfaces_are_refused() {
        let error = Interface::open("no-such-one").expect_err("no interface");
        assert!(error.to_string().contains("interface"), "{error}");
    }
}
