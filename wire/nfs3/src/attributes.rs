//! Attributes: read, set, and compared before and after.

use crossdock_xdr::{
    Decode, DecodeError, Decoder, Encode, Encoder, UNIT_BYTES, halves, xdr_enum, xdr_struct,
};

xdr_enum! {
    /// What an object is (`ftype3`, RFC 1813 section 2.6).
    pub enum FileType as "ftype3" {
        /// NF3REG: a file.
        Regular = 1,
        /// NF3DIR: a directory.
        Directory = 2,
        /// NF3BLK: a block device.
        BlockDevice = 3,
        /// NF3CHR: a character device.
        CharacterDevice = 4,
        /// NF3LNK: a symbolic link.
        Symlink = 5,
        /// NF3SOCK: a socket.
        Socket = 6,
        /// NF3FIFO: a named pipe.
        Fifo = 7,
    }
}

xdr_struct! {
    /// Number of a device (`specdata3`, RFC 1813 section 2.6).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DeviceNumber {
        /// Major number.
        pub major: u32,
        /// Minor number.
        pub minor: u32,
    }
}

xdr_struct! {
    /// A point in time since 1970 (`nfstime3`, RFC 1813 section 2.6).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Timestamp {
        /// Whole seconds.
        pub seconds: u32,
        /// Nanoseconds; a peer may send 10⁹ and more.
        pub nanoseconds: u32,
    }
}

/// What there is to know about an object (`fattr3`, RFC 1813 section 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub file_type: FileType,
    /// Permission bits, set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes of disk that it uses.
    pub used_bytes: u64,
    /// Device number, for devices.
    pub device: DeviceNumber,
    /// Identity of the file system.
    pub fsid: u64,
    /// Number of the object in it.
    pub fileid: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of the attributes.
    pub changed: Timestamp,
}

impl<'record> Decode<'record> for Attributes {
    fn decode(decoder: &mut Decoder<'record>) -> Result<Self, DecodeError> {
        Ok(Self {
            file_type: decoder.get()?,
            mode: decoder.get()?,
            links: decoder.get()?,
            uid: decoder.get()?,
            gid: decoder.get()?,
            size_bytes: decoder.get()?,
            used_bytes: decoder.get()?,
            device: decoder.get()?,
            fsid: decoder.get()?,
            fileid: decoder.get()?,
            accessed: decoder.get()?,
            modified: decoder.get()?,
            changed: decoder.get()?,
        })
    }
}

/// All at once: replies carry attributes more often than anything else.
impl Encode for Attributes {
    fn encode(&self, encoder: &mut Encoder) {
        let [size_high, size_low] = halves(self.size_bytes);
        let [used_high, used_low] = halves(self.used_bytes);
        let [fsid_high, fsid_low] = halves(self.fsid);
        let [fileid_high, fileid_low] = halves(self.fileid);
        let units: [u32; Self::ENCODED_BYTES / UNIT_BYTES] = [
            self.file_type.number(),
            self.mode,
            self.links,
            self.uid,
            self.gid,
            size_high,
            size_low,
            used_high,
            used_low,
            self.device.major,
            self.device.minor,
            fsid_high,
            fsid_low,
            fileid_high,
            fileid_low,
            self.accessed.seconds,
            self.accessed.nanoseconds,
            self.modified.seconds,
            self.modified.nanoseconds,
            self.changed.seconds,
            self.changed.nanoseconds,
        ];
        encoder.units(units);
    }
}

impl Attributes {
    /// Encoded size.
    pub const ENCODED_BYTES: usize = 84;

    /// The part that weak cache consistency compares.
    #[must_use]
    pub const fn wcc(&self) -> WccAttributes {
        WccAttributes {
            size_bytes: self.size_bytes,
            modified: self.modified,
            changed: self.changed,
        }
    }
}

/// A time to be set (`set_atime`, `set_mtime`, RFC 1813 section 2.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// DONT_CHANGE.
    #[default]
    Keep,
    /// SET_TO_SERVER_TIME.
    ServerTime,
    /// SET_TO_CLIENT_TIME.
    ClientTime(Timestamp),
}

impl<'a> Decode<'a> for SetTime {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match decoder.u32()? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::ServerTime),
            2 => decoder.get().map(Self::ClientTime),
            value => Err(DecodeError::Invalid {
                what: "time_how",
                value,
            }),
        }
    }
}

impl Encode for SetTime {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Keep => encoder.u32(0),
            Self::ServerTime => encoder.u32(1),
            Self::ClientTime(time) => {
                encoder.u32(2);
                encoder.put(time);
            }
        }
    }
}

xdr_struct! {
    /// Attributes to be set; what is `None` stays (`sattr3`, RFC 1813 section 2.6).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SetAttributes {
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Size in bytes.
        pub size_bytes: Option<u64>,
        /// Last access.
        pub accessed: SetTime,
        /// Last change of the content.
        pub modified: SetTime,
    }
}

xdr_struct! {
    /// Attributes before an operation (`wcc_attr`, RFC 1813 section 2.6).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WccAttributes {
        /// Size in bytes.
        pub size_bytes: u64,
        /// Last change of the content.
        pub modified: Timestamp,
        /// Last change of the attributes.
        pub changed: Timestamp,
    }
}

xdr_struct! {
    /// Attributes around an operation, by which a client sees whether its cache
    /// was right until then (`wcc_data`, RFC 1813 section 2.6).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WccData {
        /// Before; only if nobody could come in between.
        pub before: Option<WccAttributes>,
        /// After.
        pub after: Option<Attributes>,
    }
}
