//! Read capabilities of the volume's own bytes, for IBP clients (docs/decisions/0046).
//!
//! The name in such a key is 132 hexadecimal digits. It says all that the depot has to know, so
//! nothing is kept of those that were given out, however many there are:
//!
//! | digits | meaning |
//! |---|---|
//! | 0–36 | the column: placement (64 bits), generation, segment (32 each), column (16) |
//! | 36–52 | first byte in it |
//! | 52–68 | how many bytes |
//! | 68–84 | the version: nothing newer is given |
//! | 84–100 | when it ends, in milliseconds since 1970 by the depot's clock |
//! | 100–132 | the MAC of all that under the depot's key |
//!
//! Its attribute key is made from the same, as those of allocations are.

use std::fmt::Write as _;

use crossdock_checksum::{equal_in_constant_time, mac};
use crossdock_ibp::{ErrorCode, Key, Probe, Reliability, StorageType, answer};
use crossdock_names::{ObjectClass, ObjectId, Version};
use crossdock_peer::{
    Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest, ObjectStat, Port,
};
use crossdock_types::Time;

use crate::clock::Millis;
use crate::depot::Depot;
use crate::keys::{Keyring, RESOURCE};
use crate::message::{ConnId, DepotEffect};
use crate::node::Purpose;
use crate::opening::Opening;

/// How soon a depot that is being opened may be asked again, in milliseconds.
const OPENING_RETRY_MS: u32 = 100;

/// Digits of a name but for the MAC.
const SAID_DIGITS: usize = 100;

/// What MACs of these keys begin with; those of allocations begin with other numbers.
const SEAL: u8 = 4;
const ATTRIBUTE: u8 = 5;

/// Bytes of a column, as they were at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) object: ObjectId,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
    pub(crate) version: Version,
    pub(crate) end: Millis,
}

/// A capability that somebody waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    to: Port,
    id: CallId,
    shared: Shared,
}

impl Sharing {
    /// Who waits for it.
    pub(crate) const fn caller(&self) -> (Port, CallId) {
        (self.to, self.id)
    }
}

impl Shared {
    fn said(&self) -> String {
        let ObjectId {
            placement,
            generation,
            segment,
            column,
            ..
        } = self.object;
        let mut text = format!("{placement:016x}{generation:08x}{segment:08x}{column:04x}");
        let numbers = [
            self.offset_bytes,
            self.length_bytes,
            self.version.0,
            self.end.0,
        ];
        for number in numbers {
            // Writing to a string cannot fail.
            let _ = write!(text, "{number:016x}");
        }
        text
    }

    fn parse(said: &str) -> Option<Self> {
        let number = |from, to| u64::from_str_radix(said.get(from..to)?, 16).ok();
        let narrow = |from, to| u32::try_from(number(from, to)?).ok();
        Some(Self {
            object: ObjectId {
                class: ObjectClass::Column,
                placement: number(0, 16)?,
                generation: narrow(16, 24)?,
                branch: 0,
                segment: narrow(24, 32)?,
                column: u16::try_from(number(32, 36)?).ok()?,
            },
            offset_bytes: number(36, 52)?,
            length_bytes: number(52, 68)?,
            version: Version(number(68, 84)?),
            end: Millis(number(84, SAID_DIGITS)?),
        })
    }
}

impl Keyring {
    fn make_shared(&self, shared: &Shared) -> (String, String) {
        let said = shared.said();
        let attribute = self.attribute_of_shared(&said);
        let seal = self.mac_of_shared(SEAL, &said);
        (format!("{RESOURCE}#{said}{seal:032x}"), attribute)
    }

    /// What a key of the volume's bytes says and this depot has made; `None`: it is none.
    fn read_shared(&self, key: &Key) -> Option<(Shared, String)> {
        let (resource, name) = key.split();
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if resource.is_some_and(|id| id != RESOURCE) || !name.bytes().all(is_digit) {
            return None;
        }
        let (said, seal) = name.split_at_checked(SAID_DIGITS)?;
        let made = format!("{:032x}", self.mac_of_shared(SEAL, said));
        if !equal_in_constant_time(made.as_bytes(), seal.as_bytes()) {
            return None;
        }
        Some((Shared::parse(said)?, self.attribute_of_shared(said)))
    }

    /// Below 2³¹, and not 0: the oldest clients carry no more.
    fn attribute_of_shared(&self, said: &str) -> String {
        (self.mac_of_shared(ATTRIBUTE, said) % 0x7fff_ffff + 1).to_string()
    }

    fn mac_of_shared(&self, purpose: u8, said: &str) -> u128 {
        let bytes = [&[purpose], said.as_bytes()].concat();
        u128::from_be_bytes(mac(&self.key(), &bytes))
    }
}

impl Depot {
    /// Begins to make a capability of the volume's bytes; the node has to have them.
    pub(crate) fn begin_share(&mut self, now: Time, to: Port, call: Call<NodeRequest>) {
        let refuse = |error| {
            Some(DepotEffect::Shared {
                to,
                reply: NodeReply {
                    id: call.id,
                    outcome: Err(error),
                },
            })
        };
        let refused = match (&self.opening, call.request) {
            (Opening::Failed, _) => refuse(NodeError::Invalid("its depot does not serve".into())),
            (
                Opening::Done,
                NodeRequest::Share {
                    object,
                    offset_bytes,
                    length_bytes,
                    version,
                    seconds,
                },
            ) => match self.end_of(now, seconds.into()) {
                Ok(end) => {
                    let shared = Shared {
                        object,
                        offset_bytes,
                        length_bytes,
                        version,
                        end,
                    };
                    let id = call.id;
                    let sharing = Box::new(Sharing { to, id, shared });
                    self.ask(now, Purpose::Share(sharing), NodeRequest::Stat { object });
                    None
                }
                Err(_) => {
                    let most = self.config.policy.duration_seconds_max.unwrap_or(u64::MAX);
                    let what = format!("its depot grants 1 to {most} s, not {seconds}");
                    refuse(NodeError::Invalid(what.into()))
                }
            },
            (Opening::Done, _) => refuse(NodeError::Invalid("no question for a depot".into())),
            _ => refuse(NodeError::Busy {
                retry_after_ms: OPENING_RETRY_MS,
            }),
        };
        self.effects.extend(refused);
    }

    /// The node has said what it has of the column.
    pub(crate) fn take_shared(
        &mut self,
        sharing: &Sharing,
        outcome: Result<NodeAnswer, NodeError>,
    ) {
        let Sharing { to, id, shared } = *sharing;
        let outcome = match (outcome, &self.ring) {
            (Ok(NodeAnswer::Stat(stat)), Some(ring)) if has_all(&stat, &shared) => {
                let (key, attribute_key) = ring.make_shared(&shared);
                Ok(NodeAnswer::Shared { key, attribute_key })
            }
            // It has yet to be told of some change, or has been cut meanwhile.
            (Ok(_), _) => Err(NodeError::VersionGone),
            (Err(error), _) => Err(error),
        };
        let reply = NodeReply { id, outcome };
        self.effects.push_back(DepotEffect::Shared { to, reply });
    }

    /// The bytes of the volume that a key and its attribute key allow to read; `None`: it is no
    /// such key.
    ///
    /// # Errors
    /// A wrong attribute key, or its time is over.
    pub(crate) fn shared(
        &self,
        now: Time,
        key: &Key,
        attribute: &Key,
    ) -> Result<Option<Shared>, ErrorCode> {
        let (Some(ring), Some(clock)) = (&self.ring, &self.clock) else {
            return Err(ErrorCode::SERVER_RECOVERING);
        };
        let Some((shared, made)) = ring.read_shared(key) else {
            return Ok(None);
        };
        if !equal_in_constant_time(made.as_bytes(), attribute.as_str().as_bytes()) {
            return Err(ErrorCode::INVALID_READ_CAP);
        }
        match clock.read(now) < shared.end {
            true => Ok(Some(shared)),
            false => Err(ErrorCode::CAP_NOT_FOUND),
        }
    }

    /// Tells what there is to know of the volume's bytes: they look like a byte array that
    /// nobody else writes.
    pub(crate) fn probe_shared(&mut self, now: Time, id: ConnId, shared: &Shared) {
        let left = match (shared.end, &self.clock) {
            (Millis::FOREVER, _) | (_, None) => 0,
            (end, Some(clock)) => end.seconds_from(clock.read(now)),
        };
        let probe = Probe {
            read_count: 1,
            write_count: 0,
            size_bytes: shared.length_bytes,
            size_bytes_max: shared.length_bytes,
            duration_seconds: i64::try_from(left).unwrap_or(i64::MAX),
            reliability: Reliability::Stable,
            storage: StorageType::ByteArray,
        };
        self.answer(id, answer::probed(&probe));
    }
}

/// Whether a member has had every change up to the version, and none has cut the bytes off.
fn has_all(stat: &ObjectStat, shared: &Shared) -> bool {
    let end = shared.offset_bytes.checked_add(shared.length_bytes);
    stat.version >= shared.version && end.is_some_and(|end| end <= stat.size_bytes)
}

#[cfg(test)]
mod tests {
    use crossdock_names::FileId;

    use super::*;

    const RING: Keyring = Keyring::new([7; 32]);

    const SHARED: Shared = Shared {
        object: ObjectId::column(FileId(0xfeed), 3, 2, 9),
        offset_bytes: 1 << 20,
        length_bytes: 77,
        version: Version(1 << 40),
        end: Millis(1_700_000_000_000),
    };

    /// Goal: a key says what was shared; no other text is taken for one: each digit changed, cut
    /// off, another depot's, that of an allocation. None is taken for an allocation's.
    #[test]
    fn keys_of_the_volumes_bytes_are_recognised() {
        let (text, attribute) = RING.make_shared(&SHARED);
        let read = |text: &str| RING.read_shared(&Key::new(text).expect("a key"));
        assert_eq!(read(&text), Some((SHARED, attribute.clone())));
        let number: u32 = attribute.parse().expect("a decimal");
        assert!((1..1 << 31).contains(&number));
        assert_eq!(text.len(), RESOURCE.len() + 1 + 132);
        for at in 2..text.len() {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let wrong = str::from_utf8(&bytes).expect("ASCII");
            assert_eq!(read(wrong), None, "byte {at}");
        }
        let key = Key::new(&text).expect("a key");
        assert_eq!(Keyring::new([8; 32]).read_shared(&key), None);
        assert!(RING.read(&key).is_err());
        let (allocation, _) = RING.make(9, &[1; 16], crossdock_ibp::Access::Read);
        assert_eq!(RING.read_shared(&allocation), None);
        assert_eq!(read(&text[..text.len() - 1]), None);
        assert_eq!(read(&text.to_uppercase()), None);
    }
}
