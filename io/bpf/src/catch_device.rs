//! The device that packets are caught at.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::Command;

use rustix::net::AddressFamily;
use socket2::SockRef;

use crate::BpfError;
use crate::rule::Rule;

/// What it is called; also the name of what people see in `ip link`.
const NAME: &str = "crossdock-out";
/// The mark of sockets that are routed to it, and the number of its routing table.
const MARK: u32 = 0xcd06;
/// Of the rule: before the table that everything else uses.
const RULE_PRIORITY: u32 = 0xcd06 >> 4;

/// Whom all packets go to there, so that the kernel remembers one neighbour and not every
/// client: the dummy address of RFC 7600, and one of the link.
const NEIGHBOURS: [(&str, &str); 2] = [("-4", "192.0.0.8"), ("-6", "fe80::1")];

/// A device that sends nothing: a bridge without ports. Sockets with a mark are routed to it, and if it is not there they
/// are routed nowhere: only what a program on it forwards to the way out comes to a client.
///
/// It outlives the process on purpose: connections of a gateway that has died go on repeating
/// dummy bytes.
#[derive(Debug)]
pub struct CatchDevice {
    way_out: u32,
    way_out_name: String,
}

impl CatchDevice {
    /// Makes the device, unless it is there, for what leaves by `way_out`.
    ///
    /// # Errors
    /// [`BpfError`]: a device or a rule cannot be made.
    pub fn make(way_out_name: &str) -> Result<Self, BpfError> {
        let (way_out, mtu) = number_and_mtu(way_out_name)?;
        // First what keeps packets from other ways, then the way.
        let families = families();
        for (family, _) in families {
            ip(&format!(
                "{family} route replace unreachable default metric 4278198272 table {MARK}"
            ))?;
        }
        add_rules()?;
        unless_there(&format!("link add name {NAME} type bridge"))?;
        ip(&format!("link set dev {NAME} arp off mtu {mtu} up"))?;
        for (family, neighbour) in families {
            ip(&format!(
                "{family} route replace default via {neighbour} dev {NAME} onlink metric 1 table {MARK}"
            ))?;
        }
        Ok(Self {
            way_out,
            way_out_name: way_out_name.to_owned(),
        })
    }

    pub(crate) const fn name(&self) -> &'static str {
        NAME
    }

    pub(crate) fn way_out_name(&self) -> &str {
        &self.way_out_name
    }

    /// Has packets of marked sockets come here again if somebody has taken the rule away that says
    /// so: what manages a system's rules may take away those that it does not know. Whether that
    /// was so.
    pub(crate) fn keep(&self) -> Result<bool, BpfError> {
        add_rules()
    }

    /// The number of the device that packets leave by.
    pub(crate) const fn way_out(&self) -> u32 {
        self.way_out
    }

    /// Resets every connection whose packets come here.
    pub(crate) fn reset_all(&self) -> Result<(), BpfError> {
        let words = format!("--tcp --kill fwmark = {MARK}");
        tool("ss", &words).map(drop)
    }

    /// Whether packets of the socket come here from now on.
    pub(crate) fn mark(&self, socket: BorrowedFd<'_>, comes_here: bool) -> Result<(), BpfError> {
        let mark = if comes_here { MARK } else { 0 };
        let marked = SockRef::from(&socket).set_mark(mark);
        marked.map_err(|error| BpfError::System {
            what: "a socket's mark",
            error,
        })
    }
}

/// Adds the rules that route marked sockets to the device; whether one was missing.
fn add_rules() -> Result<bool, BpfError> {
    let mut is_new = false;
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        if family == AddressFamily::INET6 && !has_ipv6() {
            continue;
        }
        let rule = Rule {
            family,
            priority: RULE_PRIORITY,
            mark: MARK,
            table: MARK,
        };
        let added = rule.add().map_err(|error| BpfError::System {
            what: "a rule for a mark",
            error,
        });
        is_new |= added?;
    }
    Ok(is_new)
}

/// Those of this system, with their neighbours: IPv6 may be missing.
fn families() -> &'static [(&'static str, &'static str)] {
    match has_ipv6() {
        true => &NEIGHBOURS,
        false => &NEIGHBOURS[..1],
    }
}

/// Whether the system knows IPv6.
fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// Number and MTU of a device, as `ip` tells them in one line: "2: eth0@if3: <UP> mtu 1500 …".
fn number_and_mtu(device: &str) -> Result<(u32, u32), BpfError> {
    let words = format!("-o link show dev {device}");
    let line = ip(&words)?;
    let number = line.split(':').next();
    let mtu = line.split(' ').skip_while(|&word| word != "mtu").nth(1);
    let parse = |text: Option<&str>| text.and_then(|text| text.parse().ok());
    let both = parse(number).zip(parse(mtu));
    both.ok_or_else(|| failed("ip", &words, &line))
}

/// Carries a command of `ip` out; what it says.
pub(crate) fn ip(words: &str) -> Result<String, BpfError> {
    tool("ip", words)
}

/// The same with any program of iproute2.
fn tool(program: &'static str, words: &str) -> Result<String, BpfError> {
    let output = Command::new(program).args(words.split(' ')).output();
    let output = output.map_err(|error| failed(program, words, &error.to_string()))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(said(&output.stdout)),
        false => Err(failed(program, words, &said(&output.stderr))),
    }
}

fn unless_there(words: &str) -> Result<(), BpfError> {
    match ip(words) {
        Err(BpfError::Tool { said, .. }) if said.contains("File exists") => Ok(()),
        other => other.map(drop),
    }
}

fn failed(program: &'static str, words: &str, said: &str) -> BpfError {
    BpfError::Tool {
        program,
        words: words.to_owned(),
        said: said.trim().to_owned(),
    }
}
