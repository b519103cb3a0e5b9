//! Capabilities of this depot: made from an allocation's secret, and recognised.
//!
//! The name in a key is 80 hexadecimal digits: the allocation's number (64 bits), a secret of
//! this kind of access (128 bits), and the MAC of both (128 bits). Nobody has to look for an
//! allocation to see that a key is forged; and a key of one that is gone has a secret that no
//! later one has. The attribute key is made from the same secret: 31 bits, which is what the
//! oldest clients can carry.

use std::fmt::Write as _;

use crossdock_checksum::{equal_in_constant_time, mac};
use crossdock_ibp::{Access, ErrorCode, Key};

/// The only resource of a depot.
pub(crate) const RESOURCE: &str = "0";

/// What MACs are made with.
pub(crate) struct Keyring {
    key: [u8; 32],
}

/// What a genuine key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) allocation: u64,
    pub(crate) access: Access,
    secret: u128,
}

/// What a MAC is for.
#[derive(Clone, Copy)]
enum Purpose {
    Secret = 1,
    Seal = 2,
    Attribute = 3,
}

impl Keyring {
    pub(crate) const fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    pub(crate) const fn key(&self) -> [u8; 32] {
        self.key
    }

    /// Key and attribute key for one kind of access.
    pub(crate) fn make(&self, allocation: u64, secret: &[u8; 16], access: Access) -> (Key, Key) {
        let inner = self.secret(allocation, secret, access);
        let seal = self.seal(allocation, inner, access);
        let mut text = format!("{RESOURCE}#");
        // Writing to a string cannot fail.
        let _ = write!(text, "{allocation:016x}{inner:032x}{seal:032x}");
        let attribute = self.attribute(allocation, inner, access).to_string();
        let key = |text: &str| Key::new(text).expect("digits and letters");
        (key(&text), key(&attribute))
    }

    /// What a key says that this depot has made.
    ///
    /// # Errors
    /// [`ErrorCode::CAP_NOT_FOUND`]: it has not.
    pub(crate) fn read(&self, key: &Key) -> Result<Shown, ErrorCode> {
        self.parse(key).ok_or(ErrorCode::CAP_NOT_FOUND)
    }

    fn parse(&self, key: &Key) -> Option<Shown> {
        let (resource, name) = key.split();
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if resource.is_some_and(|id| id != RESOURCE) || !name.bytes().all(is_digit) {
            return None;
        }
        let number = |from, to| u128::from_str_radix(name.get(from..to)?, 16).ok();
        let allocation = u64::try_from(number(0, 16)?).ok()?;
        let secret = number(16, 48)?;
        let seal = number(48, 80).filter(|_| name.len() == 80)?;
        let is_sealed = |&access: &Access| {
            let made = self.seal(allocation, secret, access).to_be_bytes();
            equal_in_constant_time(&made, &seal.to_be_bytes())
        };
        let access = Access::ALL.into_iter().find(is_sealed)?;
        Some(Shown {
            allocation,
            access,
            secret,
        })
    }

    /// Whether the key is of the allocation that has that secret, rather than of one that had
    /// its number before.
    pub(crate) fn is_of(&self, shown: &Shown, secret: &[u8; 16]) -> bool {
        let made = self.secret(shown.allocation, secret, shown.access);
        equal_in_constant_time(&made.to_be_bytes(), &shown.secret.to_be_bytes())
    }

    /// Whether that is the attribute key that belongs to the key.
    pub(crate) fn has_attribute(&self, shown: &Shown, attribute: &Key) -> bool {
        let made = self.attribute(shown.allocation, shown.secret, shown.access);
        equal_in_constant_time(made.to_string().as_bytes(), attribute.as_str().as_bytes())
    }

    fn secret(&self, allocation: u64, secret: &[u8; 16], access: Access) -> u128 {
        self.mac(Purpose::Secret, allocation, secret, access)
    }

    fn seal(&self, allocation: u64, secret: u128, access: Access) -> u128 {
        self.mac(Purpose::Seal, allocation, &secret.to_be_bytes(), access)
    }

    /// Below 2³¹, and not 0.
    fn attribute(&self, allocation: u64, secret: u128, access: Access) -> u128 {
        let secret = secret.to_be_bytes();
        self.mac(Purpose::Attribute, allocation, &secret, access) % 0x7fff_ffff + 1
    }

    fn mac(&self, purpose: Purpose, allocation: u64, secret: &[u8; 16], access: Access) -> u128 {
        let mut bytes = [0; 26];
        bytes[0] = purpose as u8;
        bytes[1] = access as u8;
        bytes[2..10].copy_from_slice(&allocation.to_be_bytes());
        bytes[10..].copy_from_slice(secret);
        u128::from_be_bytes(mac(&self.key, &bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Keyring = Keyring::new([7; 32]);

    /// Goal: keys differ by kind of access, say what they are, and hold for one allocation.
    #[test]
    fn keys_are_recognised() {
        let made = Access::ALL.map(|access| RING.make(9, &[1; 16], access));
        for ((key, attribute), access) in made.iter().zip(Access::ALL) {
            let shown = RING.read(key).expect("our own");
            assert_eq!((shown.allocation, shown.access), (9, access));
            assert!(RING.is_of(&shown, &[1; 16]) && !RING.is_of(&shown, &[2; 16]));
            assert!(RING.has_attribute(&shown, attribute));
            let number: u32 = attribute.as_str().parse().expect("a decimal");
            assert!((1..1 << 31).contains(&number));
            for (other, wrong) in &made {
                assert_eq!(other == key, wrong == attribute);
                assert_eq!(RING.has_attribute(&shown, wrong), wrong == attribute);
            }
        }
    }

    /// Goal: no other text is taken for a key: each digit changed, case, length, resource,
    /// another depot's.
    #[test]
    fn forged_keys_are_refused() {
        let (key, _) = RING.make(0xabcd, &[1; 16], Access::Read);
        let text = key.as_str();
        let refused = |text: &str| RING.read(&Key::new(text).expect("a key")).is_err();
        for at in 2..text.len() {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            assert!(refused(str::from_utf8(&bytes).expect("ASCII")), "byte {at}");
        }
        assert!(refused(&text.to_uppercase()) && refused(&text[..text.len() - 1]));
        assert!(refused(&format!("{text}0")) && refused(&text.replace("0#", "1#")));
        assert!(refused("x") && refused("0#") && refused(&format!("0#{}", "+".repeat(80))));
        assert!(!refused(text.split_once('#').expect("a resource").1));
        assert!(Keyring::new([8; 32]).read(&key).is_err());
    }
}
