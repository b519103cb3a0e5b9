//! MOUNT version 3: how a client gets its first handle (RFC 1813 appendix I).

use bytes::Bytes;
use crossdock_limits::PATH_DECODE_BYTES_MAX;
use crossdock_xdr::{DecodeError, Decoder, Encode, Encoder, xdr_enum};
use thiserror::Error;

use crate::names::{HandleBuffer, Path};

/// RPC program number of MOUNT.
pub const PROGRAM: u32 = 100_005;

/// Version of the program.
pub const VERSION: u32 = 3;

/// MNTNAMLEN: longest name of a host or a group, in bytes.
pub const HOST_BYTES_MAX: usize = 255;

/// Most authentication flavours read from a reply.
const FLAVORS_MAX: usize = 64;

/// Most entries read from one list.
const LIST_ENTRIES_MAX: usize = 4096;

xdr_enum! {
    /// A procedure, by its number.
    pub enum Procedure as "MOUNT procedure" {
        /// Does nothing.
        Null = 0,
        /// Gets the handle of a path's root, and is noted as a mount.
        Mnt = 1,
        /// Lists who has mounted what.
        Dump = 2,
        /// Forgets one mount of the caller.
        Umnt = 3,
        /// Forgets all mounts of the caller.
        Umntall = 4,
        /// Lists what can be mounted.
        Export = 5,
    }
}

xdr_enum! {
    /// `mountstat3` without MNT3_OK (RFC 1813 section 5.1.5).
    #[derive(Error)]
    pub enum Status as "mountstat3" {
        /// MNT3ERR_PERM: only the superuser may.
        #[error("not owner")]
        Perm = 1,
        /// MNT3ERR_NOENT: there is no such path.
        #[error("no such file or directory")]
        NoEnt = 2,
        /// MNT3ERR_IO: a disk failed.
        #[error("input or output error")]
        Io = 5,
        /// MNT3ERR_ACCES: the caller has no permission.
        #[error("permission denied")]
        Acces = 13,
        /// MNT3ERR_NOTDIR: not a directory.
        #[error("not a directory")]
        NotDir = 20,
        /// MNT3ERR_INVAL: an argument makes no sense.
        #[error("invalid argument")]
        Inval = 22,
        /// MNT3ERR_NAMETOOLONG: the path is too long.
        #[error("name too long")]
        NameTooLong = 63,
        /// MNT3ERR_NOTSUPP: the operation is not supported.
        #[error("not supported")]
        NotSupp = 10004,
        /// MNT3ERR_SERVERFAULT: the server failed in a way without a name.
        #[error("server fault")]
        ServerFault = 10006,
    }
}

/// A call: the procedure and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The variants are the procedures, documented at `Procedure`.
pub enum Call<'a> {
    Null,
    Mnt(Path<'a>),
    Dump,
    Umnt(Path<'a>),
    Umntall,
    Export,
}

impl<'a> Call<'a> {
    /// Reads the arguments of `procedure`.
    ///
    /// # Errors
    /// They are not its arguments; answer GARBAGE_ARGS.
    pub fn decode(procedure: Procedure, decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match procedure {
            Procedure::Null => Ok(Self::Null),
            Procedure::Mnt => decoder.get().map(Self::Mnt),
            Procedure::Dump => Ok(Self::Dump),
            Procedure::Umnt => decoder.get().map(Self::Umnt),
            Procedure::Umntall => Ok(Self::Umntall),
            Procedure::Export => Ok(Self::Export),
        }
    }

    /// The procedure that is called.
    #[must_use]
    pub const fn procedure(&self) -> Procedure {
        match self {
            Self::Null => Procedure::Null,
            Self::Mnt(_) => Procedure::Mnt,
            Self::Dump => Procedure::Dump,
            Self::Umnt(_) => Procedure::Umnt,
            Self::Umntall => Procedure::Umntall,
            Self::Export => Procedure::Export,
        }
    }
}

impl Encode for Call<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Null | Self::Dump | Self::Umntall | Self::Export => {}
            Self::Mnt(path) | Self::Umnt(path) => encoder.put(path),
        }
    }
}

/// The reply to a call of the procedure of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The variants are the procedures, documented at `Procedure`.
pub enum Reply {
    Null,
    Mnt(Result<Mounted, Status>),
    Dump(Vec<Mount>),
    Umnt,
    Umntall,
    Export(Vec<Export>),
}

/// A path was mounted (`mountres3_ok`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Handle of the root.
    pub root: HandleBuffer,
    /// RPC authentication flavours that it takes, the best first.
    pub flavors: Vec<u32>,
}

/// Somebody mounted something (`mountbody`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Name of the client's host.
    pub host: Bytes,
    /// The path.
    pub path: Bytes,
}

/// Something can be mounted (`exportnode`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The path.
    pub path: Bytes,
    /// Who may mount it; everybody if empty.
    pub groups: Vec<Bytes>,
}

impl Reply {
    /// Reads the results of `procedure`.
    ///
    /// # Errors
    /// They are not its results.
    pub fn decode(procedure: Procedure, decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match procedure {
            Procedure::Null => Ok(Self::Null),
            Procedure::Mnt => decode_mounted(decoder).map(Self::Mnt),
            Procedure::Dump => decode_list(decoder, |decoder| {
                let host = decoder.bytes(HOST_BYTES_MAX)?;
                let path = decoder.bytes(PATH_DECODE_BYTES_MAX)?;
                Ok(Mount { host, path })
            })
            .map(Self::Dump),
            Procedure::Umnt => Ok(Self::Umnt),
            Procedure::Umntall => Ok(Self::Umntall),
            Procedure::Export => decode_list(decoder, |decoder| {
                let path = decoder.bytes(PATH_DECODE_BYTES_MAX)?;
                let groups = decode_list(decoder, |decoder| decoder.bytes(HOST_BYTES_MAX))?;
                Ok(Export { path, groups })
            })
            .map(Self::Export),
        }
    }

    /// The procedure that is answered.
    #[must_use]
    pub const fn procedure(&self) -> Procedure {
        match self {
            Self::Null => Procedure::Null,
            Self::Mnt(_) => Procedure::Mnt,
            Self::Dump(_) => Procedure::Dump,
            Self::Umnt => Procedure::Umnt,
            Self::Umntall => Procedure::Umntall,
            Self::Export(_) => Procedure::Export,
        }
    }
}

impl Encode for Reply {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Null | Self::Umnt | Self::Umntall => {}
            Self::Mnt(Ok(mounted)) => {
                encoder.u32(MNT3_OK);
                encoder.put(&mounted.root);
                encoder.count(mounted.flavors.len());
                for flavor in &mounted.flavors {
                    encoder.u32(*flavor);
                }
            }
            Self::Mnt(Err(status)) => encoder.put(status),
            Self::Dump(mounts) => encode_list(encoder, mounts, |encoder, mount| {
                encoder.opaque(&mount.host);
                encoder.opaque(&mount.path);
            }),
            Self::Export(exports) => encode_list(encoder, exports, |encoder, export| {
                encoder.opaque(&export.path);
                encode_list(encoder, &export.groups, |encoder, group| {
                    encoder.opaque(group);
                });
            }),
        }
    }
}

const MNT3_OK: u32 = 0;

fn decode_mounted(decoder: &mut Decoder<'_>) -> Result<Result<Mounted, Status>, DecodeError> {
    let mut ahead = decoder.clone();
    if ahead.u32()? != MNT3_OK {
        return decoder.get().map(Err);
    }
    *decoder = ahead;
    let root = decoder.get()?;
    let count = decoder.count(FLAVORS_MAX)?;
    let flavors = (0..count)
        .map(|_| decoder.u32())
        .collect::<Result<_, _>>()?;
    Ok(Ok(Mounted { root, flavors }))
}

/// A linked list: each item behind `TRUE`, then `FALSE` (RFC 4506 section 4.19).
fn decode_list<'a, T>(
    decoder: &mut Decoder<'a>,
    mut item: impl FnMut(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut items = Vec::new();
    while decoder.bool()? {
        if items.len() == LIST_ENTRIES_MAX {
            return Err(DecodeError::TooLong {
                length: LIST_ENTRIES_MAX + 1,
                length_max: LIST_ENTRIES_MAX,
            });
        }
        items.push(item(decoder)?);
    }
    Ok(items)
}

fn encode_list<T>(encoder: &mut Encoder, items: &[T], mut item: impl FnMut(&mut Encoder, &T)) {
    for element in items {
        encoder.bool(true);
        item(encoder, element);
    }
    encoder.bool(false);
}
