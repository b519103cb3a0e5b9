//! Credentials and verifiers (RFC 5531 section 8.2).

use crossdock_limits::AUTH_SYS_GROUPS_MAX;
use crossdock_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// AUTH_NONE.
pub const FLAVOR_NONE: u32 = 0;
/// AUTH_SYS.
pub const FLAVOR_SYS: u32 = 1;
/// AUTH_SHORT.
pub const FLAVOR_SHORT: u32 = 2;

/// Longest body of a credential or verifier (RFC 5531 section 8.2).
pub(crate) const AUTH_BODY_BYTES_MAX: usize = 400;

/// Longest machine name (RFC 5531 appendix A).
const MACHINE_NAME_BYTES_MAX: usize = 255;

/// Who the caller says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// AUTH_NONE: nobody in particular.
    None,
    /// AUTH_SYS: user and groups of a Unix machine.
    Sys(AuthSys<'a>),
    /// AUTH_SHORT and all other flavours: not understood here.
    Other {
        /// Number of the flavour.
        flavor: u32,
        /// Its body.
        body: &'a [u8],
    },
}

/// The credential of AUTH_SYS (RFC 5531 appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthSys<'a> {
    /// Any number of the caller's choice.
    pub stamp: u32,
    /// Name of the caller's machine.
    pub machine_name: &'a [u8],
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Groups,
}

/// Up to [`AUTH_SYS_GROUPS_MAX`] supplementary groups.
#[derive(Clone, Copy, Default)]
pub struct Groups {
    ids: [u32; AUTH_SYS_GROUPS_MAX],
    count: usize,
}

impl Groups {
    /// The groups `ids`, or nothing if there are more than AUTH_SYS can carry.
    #[must_use]
    pub fn new(ids: &[u32]) -> Option<Self> {
        let mut groups = Self::default();
        groups.ids.get_mut(..ids.len())?.copy_from_slice(ids);
        groups.count = ids.len();
        Some(groups)
    }

    /// The groups in the caller's order.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.ids[..self.count]
    }
}

impl PartialEq for Groups {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Groups {}

impl std::fmt::Debug for Groups {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(formatter)
    }
}

/// What proves a credential; for the flavours that are understood it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verifier<'a> {
    /// Number of the flavour.
    pub flavor: u32,
    /// Its body.
    pub body: &'a [u8],
}

impl Verifier<'_> {
    /// The verifier of AUTH_NONE and AUTH_SYS.
    pub const NONE: Self = Self {
        flavor: FLAVOR_NONE,
        body: &[],
    };
}

impl<'a> Decode<'a> for Verifier<'a> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            flavor: decoder.u32()?,
            body: decoder.opaque(AUTH_BODY_BYTES_MAX)?,
        })
    }
}

impl Encode for Verifier<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.flavor);
        encoder.opaque(self.body);
    }
}

impl<'a> Decode<'a> for Credential<'a> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let Verifier { flavor, body } = decoder.get()?;
        match flavor {
            FLAVOR_NONE => Ok(Self::None),
            FLAVOR_SYS => Decoder::new(body).get().map(Self::Sys),
            _ => Ok(Self::Other { flavor, body }),
        }
    }
}

impl Encode for Credential<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::None => encoder.put(&Verifier::NONE),
            Self::Sys(sys) => {
                encoder.u32(FLAVOR_SYS);
                encoder.count(sys.body_bytes());
                encoder.put(sys);
            }
            Self::Other { flavor, body } => encoder.put(&Verifier {
                flavor: *flavor,
                body,
            }),
        }
    }
}

impl AuthSys<'_> {
    fn body_bytes(&self) -> usize {
        const FIXED_BYTES: usize = 16; // Stamp, uid, gid, number of groups.
        FIXED_BYTES
            + crossdock_xdr::opaque_bytes(self.machine_name.len())
            + 4 * self.groups.as_slice().len()
    }
}

impl<'a> Decode<'a> for AuthSys<'a> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            stamp: decoder.u32()?,
            machine_name: decoder.opaque(MACHINE_NAME_BYTES_MAX)?,
            uid: decoder.u32()?,
            gid: decoder.u32()?,
            groups: decoder.get()?,
        })
    }
}

impl Encode for AuthSys<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.stamp);
        encoder.opaque(self.machine_name);
        encoder.u32(self.uid);
        encoder.u32(self.gid);
        encoder.put(&self.groups);
    }
}

impl<'a> Decode<'a> for Groups {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let mut groups = Self {
            count: decoder.count(AUTH_SYS_GROUPS_MAX)?,
            ..Self::default()
        };
        for id in &mut groups.ids[..groups.count] {
            *id = decoder.u32()?;
        }
        Ok(groups)
    }
}

impl Encode for Groups {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.count(self.count);
        for id in self.as_slice() {
            encoder.u32(*id);
        }
    }
}
