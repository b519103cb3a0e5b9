//! Arguments of the procedures (RFC 1813 section 3.3).

use crossdock_types::Payload;
use crossdock_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, xdr_enum, xdr_struct};

use crate::attributes::{DeviceNumber, FileType, SetAttributes, Timestamp};
use crate::names::{CookieVerifier, CreateVerifier, Handle, Location, Path};
use crate::procedure::Procedure;

/// Bits of [`Access::wanted`] and of its result (`ACCESS3_*`, RFC 1813 section 3.3.4).
pub mod access {
    /// Read the file or the directory.
    pub const READ: u32 = 0x01;
    /// Look names up in the directory.
    pub const LOOKUP: u32 = 0x02;
    /// Change what is there.
    pub const MODIFY: u32 = 0x04;
    /// Add to it.
    pub const EXTEND: u32 = 0x08;
    /// Delete entries of the directory.
    pub const DELETE: u32 = 0x10;
    /// Execute the file.
    pub const EXECUTE: u32 = 0x20;
}

/// Defines [`Call`] from the procedures with arguments.
macro_rules! calls {
    ($($procedure:ident($arguments:ty),)*) => {
        /// A call: the procedure and its arguments.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // The variants are the procedures, documented at `Procedure`.
        pub enum Call<'a> {
            Null,
            $($procedure($arguments),)*
        }

        impl<'a> Call<'a> {
            /// Reads the arguments of `procedure`.
            ///
            /// What follows them is left to the caller: servers in the field
            /// ignore it, so clients may send it.
            ///
            /// # Errors
            /// They are not its arguments; answer GARBAGE_ARGS.
            pub fn decode(
                procedure: Procedure,
                decoder: &mut Decoder<'a>,
            ) -> Result<Self, DecodeError> {
                match procedure {
                    Procedure::Null => Ok(Self::Null),
                    $(Procedure::$procedure => decoder.get().map(Self::$procedure),)*
                }
            }

            /// The procedure that is called.
            #[must_use]
            pub const fn procedure(&self) -> Procedure {
                match self {
                    Self::Null => Procedure::Null,
                    $(Self::$procedure(_) => Procedure::$procedure,)*
                }
            }
        }

        /// The arguments alone: the procedure is part of the RPC header.
        impl Encode for Call<'_> {
            fn encode(&self, encoder: &mut Encoder) {
                match self {
                    Self::Null => {}
                    $(Self::$procedure(arguments) => encoder.put(arguments),)*
                }
            }
        }
    };
}

calls! {
    Getattr(Getattr<'a>),
    Setattr(Setattr<'a>),
    Lookup(Location<'a>),
    Access(Access<'a>),
    Readlink(Readlink<'a>),
    Read(Read<'a>),
    Write(Write<'a>),
    Create(Create<'a>),
    Mkdir(Mkdir<'a>),
    Symlink(Symlink<'a>),
    Mknod(Mknod<'a>),
    Remove(Location<'a>),
    Rmdir(Location<'a>),
    Rename(Rename<'a>),
    Link(Link<'a>),
    Readdir(Readdir<'a>),
    Readdirplus(Readdirplus<'a>),
    Fsstat(Fsstat<'a>),
    Fsinfo(Fsinfo<'a>),
    Pathconf(Pathconf<'a>),
    Commit(Commit<'a>),
}

xdr_struct! {
    /// `GETATTR3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Getattr<'a> {
        /// Any object.
        pub object: Handle<'a>,
    }
}

xdr_struct! {
    /// `SETATTR3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Setattr<'a> {
        /// Any object.
        pub object: Handle<'a>,
        /// What to set.
        pub attributes: SetAttributes,
        /// Refuse with NOT_SYNC unless the object's change time is this.
        pub guard: Option<Timestamp>,
    }
}

xdr_struct! {
    /// `ACCESS3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access<'a> {
        /// Any object.
        pub object: Handle<'a>,
        /// Bits of [`access`].
        pub wanted: u32,
    }
}

xdr_struct! {
    /// `READLINK3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Readlink<'a> {
        /// A symbolic link.
        pub symlink: Handle<'a>,
    }
}

xdr_struct! {
    /// `READ3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Read<'a> {
        /// A file.
        pub file: Handle<'a>,
        /// First byte wanted.
        pub offset: u64,
        /// Bytes wanted.
        pub count_bytes: u32,
    }
}

xdr_enum! {
    /// How durable a write shall be when it is answered (`stable_how`).
    pub enum StableHow as "stable_how" {
        /// UNSTABLE: after a COMMIT is enough.
        Unstable = 0,
        /// DATA_SYNC: the data, and what is needed to find it.
        DataSync = 1,
        /// FILE_SYNC: data and attributes.
        FileSync = 2,
    }
}

xdr_struct! {
    /// `WRITE3args`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Write<'a> {
        /// A file.
        pub file: Handle<'a>,
        /// Where the first byte goes.
        pub offset: u64,
        /// Bytes to write, as the client says; the server checks that `data`
        /// is as long.
        pub count_bytes: u32,
        /// How durable.
        pub stable: StableHow,
        /// The bytes; shared with the record if it was decoded
        /// [`of_record`](Decoder::of_record).
        pub data: Payload,
    }
}

/// How to create a file (`createhow3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// UNCHECKED: a file that exists is success.
    Unchecked(SetAttributes),
    /// GUARDED: it is NFS3ERR_EXIST.
    Guarded(SetAttributes),
    /// EXCLUSIVE: it is success only if it was made with the same verifier.
    Exclusive(CreateVerifier),
}

impl<'a> Decode<'a> for CreateHow {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match decoder.u32()? {
            0 => decoder.get().map(Self::Unchecked),
            1 => decoder.get().map(Self::Guarded),
            2 => decoder.get().map(Self::Exclusive),
            value => Err(DecodeError::Invalid {
                what: "createmode3",
                value,
            }),
        }
    }
}

impl Encode for CreateHow {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Unchecked(attributes) => {
                encoder.u32(0);
                encoder.put(attributes);
            }
            Self::Guarded(attributes) => {
                encoder.u32(1);
                encoder.put(attributes);
            }
            Self::Exclusive(verifier) => {
                encoder.u32(2);
                encoder.put(verifier);
            }
        }
    }
}

xdr_struct! {
    /// `CREATE3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Create<'a> {
        /// Where.
        pub location: Location<'a>,
        /// With what, and if it exists?
        pub how: CreateHow,
    }
}

xdr_struct! {
    /// `MKDIR3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Mkdir<'a> {
        /// Where.
        pub location: Location<'a>,
        /// With what attributes.
        pub attributes: SetAttributes,
    }
}

xdr_struct! {
    /// `SYMLINK3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Symlink<'a> {
        /// Where.
        pub location: Location<'a>,
        /// With what attributes.
        pub attributes: SetAttributes,
        /// Its text.
        pub target: Path<'a>,
    }
}

/// What MKNOD shall make (`mknoddata3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A character device.
    CharacterDevice {
        /// With what attributes.
        attributes: SetAttributes,
        /// Which device.
        device: DeviceNumber,
    },
    /// A block device.
    BlockDevice {
        /// With what attributes.
        attributes: SetAttributes,
        /// Which device.
        device: DeviceNumber,
    },
    /// A socket.
    Socket(SetAttributes),
    /// A named pipe.
    Fifo(SetAttributes),
    /// NF3REG, NF3DIR or NF3LNK, which have procedures of their own: the answer
    /// is NFS3ERR_BADTYPE.
    Other(FileType),
}

impl<'a> Decode<'a> for Special {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(match decoder.get()? {
            FileType::CharacterDevice => Self::CharacterDevice {
                attributes: decoder.get()?,
                device: decoder.get()?,
            },
            FileType::BlockDevice => Self::BlockDevice {
                attributes: decoder.get()?,
                device: decoder.get()?,
            },
            FileType::Socket => Self::Socket(decoder.get()?),
            FileType::Fifo => Self::Fifo(decoder.get()?),
            other @ (FileType::Regular | FileType::Directory | FileType::Symlink) => {
                Self::Other(other)
            }
        })
    }
}

impl Encode for Special {
    fn encode(&self, encoder: &mut Encoder) {
        let (file_type, attributes, device) = match self {
            Self::CharacterDevice { attributes, device } => {
                (FileType::CharacterDevice, Some(attributes), Some(device))
            }
            Self::BlockDevice { attributes, device } => {
                (FileType::BlockDevice, Some(attributes), Some(device))
            }
            Self::Socket(attributes) => (FileType::Socket, Some(attributes), None),
            Self::Fifo(attributes) => (FileType::Fifo, Some(attributes), None),
            Self::Other(file_type) => (*file_type, None, None),
        };
        encoder.put(&file_type);
        if let Some(attributes) = attributes {
            encoder.put(attributes);
        }
        if let Some(device) = device {
            encoder.put(device);
        }
    }
}

xdr_struct! {
    /// `MKNOD3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Mknod<'a> {
        /// Where.
        pub location: Location<'a>,
        /// What.
        pub what: Special,
    }
}

xdr_struct! {
    /// `RENAME3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Rename<'a> {
        /// From here,
        pub source: Location<'a>,
        /// to here.
        pub target: Location<'a>,
    }
}

xdr_struct! {
    /// `LINK3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Link<'a> {
        /// The object that gets another name.
        pub object: Handle<'a>,
        /// The name.
        pub location: Location<'a>,
    }
}

xdr_struct! {
    /// `READDIR3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Readdir<'a> {
        /// A directory.
        pub directory: Handle<'a>,
        /// Cookie of the last entry that the client has, 0 for none.
        pub cookie: u64,
        /// Verifier that came with the cookie, zeros for none.
        pub verifier: CookieVerifier,
        /// Largest `READDIR3resok` wanted.
        pub count_bytes: u32,
    }
}

xdr_struct! {
    /// `READDIRPLUS3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Readdirplus<'a> {
        /// A directory.
        pub directory: Handle<'a>,
        /// Cookie of the last entry that the client has, 0 for none.
        pub cookie: u64,
        /// Verifier that came with the cookie, zeros for none.
        pub verifier: CookieVerifier,
        /// Largest sum of fileids, names and cookies wanted.
        pub directory_count_bytes: u32,
        /// Largest `READDIRPLUS3resok` wanted.
        pub count_bytes: u32,
    }
}

xdr_struct! {
    /// `FSSTAT3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Fsstat<'a> {
        /// Any object of the file system.
        pub root: Handle<'a>,
    }
}

xdr_struct! {
    /// `FSINFO3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Fsinfo<'a> {
        /// Any object of the file system.
        pub root: Handle<'a>,
    }
}

xdr_struct! {
    /// `PATHCONF3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Pathconf<'a> {
        /// Any object of the file system.
        pub object: Handle<'a>,
    }
}

xdr_struct! {
    /// `COMMIT3args`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Commit<'a> {
        /// A file.
        pub file: Handle<'a>,
        /// First byte to make durable.
        pub offset: u64,
        /// How many; 0 for all behind the first.
        pub count_bytes: u32,
    }
}
