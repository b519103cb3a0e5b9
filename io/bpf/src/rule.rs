//! A rule of routing for sockets with a mark (rtnetlink(7), ip-rule(8)): told to the kernel directly,
//! as a process that has given up most rights cannot have a program do it.

use std::io;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const NEW_RULE: u16 = libc::RTM_NEWRULE;
/// A request that wants an answer, and the rule to be new.
const FLAGS: u16 = 0x1 | 0x4 | 0x200 | 0x400;
const HEADER_BYTES: usize = 16;
/// Look up a table (fib_rules.h), and the attributes that say which, for whom and when.
const TO_TABLE: u8 = 1;
const PRIORITY: u16 = 6;
const FWMARK: u16 = 10;
const TABLE: u16 = 15;
const ANSWER_BYTES_MAX: usize = 1024;

/// Packets of sockets with this mark are routed by this table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) family: AddressFamily,
    pub(crate) priority: u32,
    pub(crate) mark: u32,
    pub(crate) table: u32,
}

impl Rule {
    /// Adds it, unless it is there. Whether it was not.
    pub(crate) fn add(self) -> io::Result<bool> {
        let kernel = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // Of its protocols the first: routing.
        )?;
        send(&kernel, &self.request(), SendFlags::empty())?;
        let mut answer = [0; ANSWER_BYTES_MAX];
        let (bytes, _) = recv(&kernel, &mut answer[..], RecvFlags::empty())?;
        match errno(&answer[..bytes]) {
            Some(0) => Ok(true),
            Some(libc::EEXIST) => Ok(false),
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn request(self) -> Vec<u8> {
        let family = u8::try_from(self.family.as_raw()).unwrap_or(0);
        // `struct fib_rule_hdr`: of eight fields the first and the last are said here, then flags.
        let mut body = vec![family, 0, 0, 0, 0, 0, 0, TO_TABLE, 0, 0, 0, 0];
        for (kind, value) in [
            (PRIORITY, self.priority),
            (FWMARK, self.mark),
            (TABLE, self.table),
        ] {
            body.extend(8_u16.to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(value.to_ne_bytes());
        }
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
        let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
        message.extend(length.to_ne_bytes());
        message.extend(NEW_RULE.to_ne_bytes());
        message.extend(FLAGS.to_ne_bytes());
        // Number and sender: there is one question, and one who asks.
        message.extend([0; 8]);
        message.extend(body);
        message
    }
}

/// What the kernel says of a request: 0 for done.
fn errno(answer: &[u8]) -> Option<i32> {
    let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4)?;
    Some(-i32::from_ne_bytes(code.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the request is what `ip rule add priority 3280 fwmark 0xcd06 lookup 0xcd06` sends, but for
    /// who is said to have made the rule.
    #[test]
    fn requests_have_their_layout() {
        let rule = Rule {
            family: AddressFamily::INET,
            priority: 3280,
            mark: 0xcd06,
            table: 0xcd06,
        };
        let request = rule.request();
        assert_eq!(request.len(), 16 + 12 + 3 * 8);
        assert_eq!(request[..4], 52_u32.to_ne_bytes());
        assert_eq!(request[4..6], 32_u16.to_ne_bytes());
        assert_eq!((request[16], request[23]), (2, 1));
        assert_eq!(
            request[28..32],
            [8_u16.to_ne_bytes(), 6_u16.to_ne_bytes()].concat()
        );
        assert_eq!(request[48..], 0xcd06_u32.to_ne_bytes());
    }

    /// Goal: an error is the kernel's, and what is no answer is none.
    #[test]
    fn answers_are_understood() {
        let mut answer = [0; 20];
        assert_eq!(errno(&answer), Some(0));
        answer[16..].copy_from_slice(&(-libc::EEXIST).to_ne_bytes());
        assert_eq!(errno(&answer), Some(libc::EEXIST));
        assert_eq!(errno(&answer[..18]), None);
    }
}
