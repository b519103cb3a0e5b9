//! Results of the procedures (RFC 1813 section 3.3).

use bytes::Bytes;
use crossdock_limits::PATH_DECODE_BYTES_MAX;
use crossdock_types::Payload;
use crossdock_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, xdr_struct};

use crate::attributes::{Attributes, Timestamp, WccData};
use crate::call::StableHow;
use crate::listing::{EntryList, EntryPlusList};
use crate::names::{CookieVerifier, HandleBuffer, WriteVerifier};
use crate::procedure::Procedure;
use crate::status::Status;

/// Bits of [`Fsinfo::properties`] (`FSF3_*`, RFC 1813 section 3.3.19).
pub mod properties {
    /// Hard links are supported.
    pub const LINK: u32 = 0x01;
    /// Symbolic links are supported.
    pub const SYMLINK: u32 = 0x02;
    /// PATHCONF is the same for all objects.
    pub const HOMOGENEOUS: u32 = 0x08;
    /// SETATTR can set times to the precision of [`Fsinfo::time_delta`](super::Fsinfo::time_delta).
    pub const CAN_SET_TIME: u32 = 0x10;
}

/// What became of a call: results, or a failure with its attributes.
pub type Outcome<T, A> = Result<T, Failure<A>>;

/// A procedure failed; `A` are the attributes that its failure still carries.
///
/// `?` makes one of a bare [`Status`] where there are no attributes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<A> {
    /// Why.
    pub status: Status,
    /// What a client's cache can still learn from it.
    pub attributes: A,
}

impl<A> Failure<A> {
    /// A failure with attributes.
    pub const fn new(status: Status, attributes: A) -> Self {
        Self { status, attributes }
    }
}

impl<A: Default> From<Status> for Failure<A> {
    fn from(status: Status) -> Self {
        Self::new(status, A::default())
    }
}

/// Defines [`Reply`] from the procedures with results: what success returns, and
/// what failure does.
macro_rules! replies {
    ($($procedure:ident($done:ty, $failed:ty),)*) => {
        /// The reply to a call of the procedure of the same name.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // The variants are the procedures, documented at `Procedure`.
        pub enum Reply {
            Null,
            $($procedure(Outcome<$done, $failed>),)*
        }

        impl Reply {
            /// A failure of any procedure, without attributes. NULL cannot fail.
            #[must_use]
            pub fn failure(procedure: Procedure, status: Status) -> Self {
                match procedure {
                    Procedure::Null => Self::Null,
                    $(Procedure::$procedure => Self::$procedure(Err(status.into())),)*
                }
            }

            /// Reads the results of `procedure`.
            ///
            /// # Errors
            /// They are not its results.
            pub fn decode(
                procedure: Procedure,
                decoder: &mut Decoder<'_>,
            ) -> Result<Self, DecodeError> {
                match procedure {
                    Procedure::Null => Ok(Self::Null),
                    $(Procedure::$procedure => decode_outcome(decoder).map(Self::$procedure),)*
                }
            }

            /// The procedure that is answered.
            #[must_use]
            pub const fn procedure(&self) -> Procedure {
                match self {
                    Self::Null => Procedure::Null,
                    $(Self::$procedure(_) => Procedure::$procedure,)*
                }
            }

            /// Why it failed, if it did.
            #[must_use]
            pub const fn status(&self) -> Option<Status> {
                match self {
                    $(Self::$procedure(Err(failure)) => Some(failure.status),)*
                    _ => None,
                }
            }
        }

        /// The results alone: the procedure is known from the call.
        impl Encode for Reply {
            fn encode(&self, encoder: &mut Encoder) {
                match self {
                    Self::Null => {}
                    $(Self::$procedure(outcome) => encode_outcome(outcome, encoder),)*
                }
            }
        }
    };
}

replies! {
    Getattr(Attributes, ()),
    Setattr(WccData, WccData),
    Lookup(Lookup, Option<Attributes>),
    Access(Access, Option<Attributes>),
    Readlink(Readlink, Option<Attributes>),
    Read(Read, Option<Attributes>),
    Write(Write, WccData),
    Create(Created, WccData),
    Mkdir(Created, WccData),
    Symlink(Created, WccData),
    Mknod(Created, WccData),
    Remove(WccData, WccData),
    Rmdir(WccData, WccData),
    Rename(Renamed, Renamed),
    Link(Linked, Linked),
    Readdir(Readdir, Option<Attributes>),
    Readdirplus(Readdirplus, Option<Attributes>),
    Fsstat(Fsstat, Option<Attributes>),
    Fsinfo(Fsinfo, Option<Attributes>),
    Pathconf(Pathconf, Option<Attributes>),
    Commit(Commit, WccData),
}

const NFS3_OK: u32 = 0;

fn encode_outcome<T: Encode, A: Encode>(outcome: &Outcome<T, A>, encoder: &mut Encoder) {
    match outcome {
        Ok(done) => {
            encoder.u32(NFS3_OK);
            encoder.put(done);
        }
        Err(failure) => {
            encoder.put(&failure.status);
            encoder.put(&failure.attributes);
        }
    }
}

fn decode_outcome<'a, T: Decode<'a>, A: Decode<'a>>(
    decoder: &mut Decoder<'a>,
) -> Result<Outcome<T, A>, DecodeError> {
    let mut ahead = decoder.clone();
    if ahead.u32()? == NFS3_OK {
        *decoder = ahead;
        return decoder.get().map(Ok);
    }
    Ok(Err(Failure::new(decoder.get()?, decoder.get()?)))
}

xdr_struct! {
    /// `LOOKUP3resok`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Lookup {
        /// What was found.
        pub object: HandleBuffer,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// Those of the directory.
        pub directory: Option<Attributes>,
    }
}

xdr_struct! {
    /// `ACCESS3resok`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Access {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// The bits of [`access`](crate::call::access) that are granted.
        pub granted: u32,
    }
}

/// `READLINK3resok`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readlink {
    /// Attributes of the link.
    pub attributes: Option<Attributes>,
    /// Its text.
    pub target: Bytes,
}

impl Encode for Readlink {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.put(&self.attributes);
        encoder.opaque(&self.target);
    }
}

impl<'a> Decode<'a> for Readlink {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            attributes: decoder.get()?,
            target: decoder.bytes(PATH_DECODE_BYTES_MAX)?,
        })
    }
}

/// `READ3resok`. Its `count` is the length of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Attributes of the file.
    pub attributes: Option<Attributes>,
    /// The file ends behind the data.
    pub is_end: bool,
    /// The bytes.
    pub data: Payload,
}

impl Encode for Read {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.put(&self.attributes);
        encoder.count(self.data.len());
        encoder.bool(self.is_end);
        encoder.put(&self.data);
    }
}

impl<'a> Decode<'a> for Read {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let attributes = decoder.get()?;
        let count = decoder.u32()?;
        let is_end = decoder.bool()?;
        let data: Payload = decoder.get()?;
        if usize::try_from(count) != Ok(data.len()) {
            return Err(DecodeError::Invalid {
                what: "count of the READ data",
                value: count,
            });
        }
        Ok(Self {
            attributes,
            is_end,
            data,
        })
    }
}

xdr_struct! {
    /// `WRITE3resok`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Write {
        /// Attributes of the file around the write.
        pub file: WccData,
        /// Bytes written.
        pub count_bytes: u32,
        /// How durable they are.
        pub committed: StableHow,
        /// Tells a later COMMIT whether they were lost.
        pub verifier: WriteVerifier,
    }
}

xdr_struct! {
    /// `CREATE3resok`, `MKDIR3resok`, `SYMLINK3resok`, `MKNOD3resok`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Created {
        /// What was made.
        pub object: Option<HandleBuffer>,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// Attributes of the directory around it.
        pub directory: WccData,
    }
}

xdr_struct! {
    /// `RENAME3resok`, `RENAME3resfail`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Renamed {
        /// Attributes of the directory of the old name.
        pub source: WccData,
        /// Those of the directory of the new name.
        pub target: WccData,
    }
}

xdr_struct! {
    /// `LINK3resok`, `LINK3resfail`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Linked {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// Those of the directory of the new name.
        pub directory: WccData,
    }
}

xdr_struct! {
    /// `READDIR3resok`; made by a [`ReaddirBuilder`](crate::ReaddirBuilder).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Readdir {
        /// Attributes of the directory.
        pub directory: Option<Attributes>,
        /// Goes with the cookies of the entries.
        pub verifier: CookieVerifier,
        /// The entries.
        pub entries: EntryList,
        /// There are no more behind them.
        pub is_end: bool,
    }
}

xdr_struct! {
    /// `READDIRPLUS3resok`; made by a [`ReaddirplusBuilder`](crate::ReaddirplusBuilder).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Readdirplus {
        /// Attributes of the directory.
        pub directory: Option<Attributes>,
        /// Goes with the cookies of the entries.
        pub verifier: CookieVerifier,
        /// The entries.
        pub entries: EntryPlusList,
        /// There are no more behind them.
        pub is_end: bool,
    }
}

xdr_struct! {
    /// `FSSTAT3resok`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Fsstat {
        /// Attributes of the root.
        pub attributes: Option<Attributes>,
        /// Size of the file system.
        pub total_bytes: u64,
        /// Free.
        pub free_bytes: u64,
        /// Free for this user.
        pub available_bytes: u64,
        /// Files that there can be.
        pub total_files: u64,
        /// Files that can still be made.
        pub free_files: u64,
        /// Files that this user can still make.
        pub available_files: u64,
        /// How long this stays true; 0 if nobody knows.
        pub invariant_seconds: u32,
    }
}

xdr_struct! {
    /// `FSINFO3resok`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Fsinfo {
        /// Attributes of the root.
        pub attributes: Option<Attributes>,
        /// `rtmax`: largest READ.
        pub read_bytes_max: u32,
        /// `rtpref`: best size of a READ.
        pub read_bytes_preferred: u32,
        /// `rtmult`: READs should be multiples of this.
        pub read_bytes_multiple: u32,
        /// `wtmax`: largest WRITE.
        pub write_bytes_max: u32,
        /// `wtpref`: best size of a WRITE.
        pub write_bytes_preferred: u32,
        /// `wtmult`: WRITEs should be multiples of this.
        pub write_bytes_multiple: u32,
        /// `dtpref`: best size of a READDIR.
        pub readdir_bytes_preferred: u32,
        /// Largest file.
        pub file_bytes_max: u64,
        /// Precision of times.
        pub time_delta: Timestamp,
        /// Bits of [`properties`].
        pub properties: u32,
    }
}

xdr_struct! {
    /// `PATHCONF3resok`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Pathconf {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// Most hard links of an object.
        pub links_max: u32,
        /// Longest name.
        pub name_bytes_max: u32,
        /// `no_trunc`: longer names are refused, not cut.
        pub long_names_refused: bool,
        /// Only the superuser may give files away.
        pub chown_restricted: bool,
        /// Names that differ only in case are the same.
        pub case_insensitive: bool,
        /// The case of names is kept.
        pub case_preserving: bool,
    }
}

xdr_struct! {
    /// `COMMIT3resok`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Commit {
        /// Attributes of the file around it.
        pub file: WccData,
        /// If it is that of the WRITEs, they are durable.
        pub verifier: WriteVerifier,
    }
}
