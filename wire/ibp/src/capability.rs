//! Capabilities: the text that names an allocation and allows one kind of access to it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// One field of a line: visible ASCII, at least one character.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word(Box<str>);

/// A part of a capability: a [`Word`] without `/`.
///
/// A *key* is `RID#NAME`, where `RID` names a resource of the depot; ibp 1.0 to 1.3 have the
/// name alone. An *attribute key* is a decimal below 2³¹ for the oldest clients, any text for
/// the others. Both are secret: `Debug` does not show them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Word);

/// A text that is no [`Word`], [`Key`] or [`Capability`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a capability: {0}")]
pub struct CapabilityError(&'static str);

impl Word {
    /// # Errors
    /// It is empty, or holds a blank or what is not visible ASCII.
    pub fn new(text: &str) -> Result<Self, CapabilityError> {
        match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(text.into())),
            false => Err(CapabilityError("a field is not visible ASCII")),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Key {
    /// # Errors
    /// It is no [`Word`], or holds a `/`.
    pub fn new(text: &str) -> Result<Self, CapabilityError> {
        match text.contains('/') {
            false => Word::new(text).map(Self),
            true => Err(CapabilityError("a part holds a slash")),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The id of the resource, if the key has one, and the name of the allocation.
    #[must_use]
    pub fn split(&self) -> (Option<&str>, &str) {
        match self.as_str().split_once('#') {
            Some((resource, name)) => (Some(resource), name),
            None => (None, self.as_str()),
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Word(..)")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// What a capability allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// To load, and to copy from.
    Read,
    /// To store and write, and to copy to.
    Write,
    /// To probe, change, and remove.
    Manage,
}

impl Access {
    /// All kinds, in the order of the wire.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Manage];

    /// The number in MANAGE.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::Manage => 3,
        }
    }

    /// The last part of a capability.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Manage => "MANAGE",
        }
    }
}

/// `ibp://HOST:PORT/KEY/ATTRKEY/READ`, or `WRITE`, or `MANAGE`. Who has it may do what it
/// says; `Debug` does not show its secrets, `Display` is the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// The depot: a name or an address, an IPv6 one in brackets.
    pub host: Key,
    /// Its port.
    pub port: u16,
    /// Which allocation.
    pub key: Key,
    /// The second secret, which some depots check.
    pub attribute_key: Key,
    /// What is allowed.
    pub access: Access,
}

impl FromStr for Capability {
    type Err = CapabilityError;

    /// The scheme is compared without case, the port follows the last colon.
    fn from_str(text: &str) -> Result<Self, CapabilityError> {
        let parts: Vec<&str> = text.splitn(7, '/').collect();
        let &[scheme, "", place, key, attribute_key, access] = &parts[..] else {
            return Err(CapabilityError("it does not have six parts"));
        };
        if !scheme.eq_ignore_ascii_case("ibp:") {
            return Err(CapabilityError("it does not begin with ibp://"));
        }
        let (host, port) = place
            .rsplit_once(':')
            .ok_or(CapabilityError("it has no port"))?;
        let port = match port.bytes().all(|byte| byte.is_ascii_digit()) {
            true => port.parse().ok(),
            false => None,
        };
        let access = Access::ALL.into_iter().find(|it| it.as_str() == access);
        Ok(Self {
            host: Key::new(host)?,
            port: port.ok_or(CapabilityError("its port is no port"))?,
            key: Key::new(key)?,
            attribute_key: Key::new(attribute_key)?,
            access: access.ok_or(CapabilityError("its kind is not READ, WRITE or MANAGE"))?,
        })
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ibp://{}:{}/{}/{}/{}",
            self.host,
            self.port,
            self.key,
            self.attribute_key,
            self.access.as_str()
        )
    }
}

/// The three capabilities of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// To read.
    pub read: Capability,
    /// To write.
    pub write: Capability,
    /// To manage.
    pub manage: Capability,
}
