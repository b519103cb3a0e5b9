//! The portmapper, version 2, and rpcbind, versions 3 and 4 (RFC 1833).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crossdock_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, xdr_enum, xdr_struct};

use crate::lock::string;

/// RPC program number of all versions.
pub const PROGRAM: u32 = 100_000;

/// The port where clients look for it.
pub const PORT: u16 = 111;

/// The version with numbers of protocols.
pub const PORTMAP_VERSION: u32 = 2;

/// The versions with names of networks and universal addresses.
pub const RPCBIND_VERSIONS: [u32; 2] = [3, 4];

/// TCP as a number.
pub const TCP: u32 = 6;

/// UDP as a number.
pub const UDP: u32 = 17;

/// Most entries read from one list.
const LIST_ENTRIES_MAX: usize = 4096;

xdr_enum! {
    /// A procedure of version 2.
    pub enum Procedure as "portmapper procedure" {
        /// Does nothing.
        Null = 0,
        /// Registers a program.
        Set = 1,
        /// Takes that back.
        Unset = 2,
        /// Asks for a program's port.
        GetPort = 3,
        /// Lists all programs.
        Dump = 4,
    }
}

xdr_enum! {
    /// A procedure of versions 3 and 4.
    pub enum BindProcedure as "rpcbind procedure" {
        /// Does nothing.
        Null = 0,
        /// Registers a program.
        Set = 1,
        /// Takes that back.
        Unset = 2,
        /// Asks for a program's address.
        GetAddress = 3,
        /// Lists all programs.
        Dump = 4,
        /// Asks for the address of just this version (version 4 only).
        GetVersionAddress = 9,
    }
}

xdr_struct! {
    /// A program and its port (`mapping`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Mapping {
        /// RPC program.
        pub program: u32,
        /// Its version.
        pub version: u32,
        /// [`TCP`] or [`UDP`].
        pub protocol: u32,
        /// The port; of no interest in a question.
        pub port: u32,
    }
}

/// A program and its address (`rpcb`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    /// RPC program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// `tcp`, `udp`, `tcp6`, `udp6`.
    pub network: &'a [u8],
    /// Universal address; in a question where the caller has reached us.
    pub address: &'a [u8],
    /// Who has registered it.
    pub owner: &'a [u8],
}

impl<'a> Decode<'a> for Binding<'a> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            program: decoder.u32()?,
            version: decoder.u32()?,
            network: string(decoder)?,
            address: string(decoder)?,
            owner: string(decoder)?,
        })
    }
}

impl Encode for Binding<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.program);
        encoder.u32(self.version);
        encoder.opaque(self.network);
        encoder.opaque(self.address);
        encoder.opaque(self.owner);
    }
}

/// What a procedure of any version is called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments<'a> {
    /// Of NULL and DUMP.
    Nothing,
    /// Of SET, UNSET and GETPORT in version 2.
    Mapping(Mapping),
    /// Of the others in versions 3 and 4.
    Binding(Binding<'a>),
}

impl<'a> Arguments<'a> {
    /// Reads the arguments of a procedure of version 2.
    ///
    /// # Errors
    /// They are not its arguments; answer GARBAGE_ARGS.
    pub fn decode(procedure: Procedure, decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match procedure {
            Procedure::Null | Procedure::Dump => Ok(Self::Nothing),
            _ => decoder.get().map(Self::Mapping),
        }
    }

    /// Reads the arguments of a procedure of versions 3 and 4.
    ///
    /// # Errors
    /// They are not its arguments; answer GARBAGE_ARGS.
    pub fn decode_bind(
        procedure: BindProcedure,
        decoder: &mut Decoder<'a>,
    ) -> Result<Self, DecodeError> {
        match procedure {
            BindProcedure::Null | BindProcedure::Dump => Ok(Self::Nothing),
            _ => decoder.get().map(Self::Binding),
        }
    }
}

impl Encode for Arguments<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Nothing => {}
            Self::Mapping(mapping) => encoder.put(mapping),
            Self::Binding(binding) => encoder.put(binding),
        }
    }
}

/// What a procedure of any version answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Results<'a> {
    /// NULL.
    Nothing,
    /// SET and UNSET: whether it was done.
    Done(bool),
    /// GETPORT: 0 if there is none.
    Port(u32),
    /// DUMP of version 2.
    Mappings(Vec<Mapping>),
    /// GETADDR: a universal address, empty if there is none.
    Address(&'a [u8]),
    /// DUMP of versions 3 and 4.
    Bindings(Vec<Binding<'a>>),
}

impl<'a> Results<'a> {
    /// Reads the results of a procedure of version 2.
    ///
    /// # Errors
    /// They are not its results.
    pub fn decode(procedure: Procedure, decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(match procedure {
            Procedure::Null => Self::Nothing,
            Procedure::Set | Procedure::Unset => Self::Done(decoder.bool()?),
            Procedure::GetPort => Self::Port(decoder.u32()?),
            Procedure::Dump => Self::Mappings(decode_list(decoder)?),
        })
    }

    /// Reads the results of a procedure of versions 3 and 4.
    ///
    /// # Errors
    /// They are not its results.
    pub fn decode_bind(
        procedure: BindProcedure,
        decoder: &mut Decoder<'a>,
    ) -> Result<Self, DecodeError> {
        Ok(match procedure {
            BindProcedure::Null => Self::Nothing,
            BindProcedure::Set | BindProcedure::Unset => Self::Done(decoder.bool()?),
            BindProcedure::GetAddress | BindProcedure::GetVersionAddress => {
                Self::Address(string(decoder)?)
            }
            BindProcedure::Dump => Self::Bindings(decode_list(decoder)?),
        })
    }
}

impl Encode for Results<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Nothing => {}
            Self::Done(done) => encoder.bool(*done),
            Self::Port(port) => encoder.u32(*port),
            Self::Address(address) => encoder.opaque(address),
            Self::Mappings(mappings) => encode_list(encoder, mappings),
            Self::Bindings(bindings) => encode_list(encoder, bindings),
        }
    }
}

/// Writes an address as rpcbind does: the port is two numbers behind it
/// (RFC 5665 section 5.2.3).
#[must_use]
pub fn universal_address(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// Reads such an address.
#[must_use]
pub fn parse_universal_address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (address, high) = rest.rsplit_once('.')?;
    let ip = match address.parse::<Ipv4Addr>() {
        Ok(ip) => IpAddr::V4(ip),
        Err(_) => IpAddr::V6(address.parse::<Ipv6Addr>().ok()?),
    };
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip, port))
}

/// A linked list: each item behind `TRUE`, then `FALSE` (RFC 4506 section 4.19).
fn decode_list<'a, T: Decode<'a>>(decoder: &mut Decoder<'a>) -> Result<Vec<T>, DecodeError> {
    let mut items = Vec::new();
    while decoder.bool()? {
        if items.len() == LIST_ENTRIES_MAX {
            return Err(DecodeError::TooLong {
                length: LIST_ENTRIES_MAX + 1,
                length_max: LIST_ENTRIES_MAX,
            });
        }
        items.push(decoder.get()?);
    }
    Ok(items)
}

fn encode_list<T: Encode>(encoder: &mut Encoder, items: &[T]) {
    for item in items {
        encoder.bool(true);
        encoder.put(item);
    }
    encoder.bool(false);
}
