//! Headers of calls and replies (RFC 5531 section 9).

use crossdock_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, xdr_enum};
use thiserror::Error;

use crate::auth::{Credential, Verifier};

/// The version of RPC that is spoken here.
pub const RPC_VERSION: u32 = 2;

const CALL: u32 = 0;
const REPLY: u32 = 1;

/// What precedes the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// The caller's number of this call; retransmissions carry the same.
    pub xid: u32,
    /// Program called.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of the program.
    pub procedure: u32,
    /// Who calls.
    pub credential: Credential<'a>,
    /// Proof of the credential.
    pub verifier: Verifier<'a>,
}

/// Why a record is not a call that can be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// Not even the caller's number and the word "call" are there.
    #[error("not an RPC call: {0}")]
    NotACall(DecodeError),
    /// It is a call, but must be answered with a refusal.
    #[error("RPC call {xid:#x} refused: {rejection:?}")]
    Refused {
        /// The caller's number.
        xid: u32,
        /// The refusal that RFC 5531 section 9 asks for.
        rejection: Rejection,
    },
    /// The header ends too early.
    #[error("RPC call {xid:#x} malformed: {error}")]
    Malformed {
        /// The caller's number.
        xid: u32,
        /// What is wrong with it.
        error: DecodeError,
    },
}

impl CallError {
    /// The answer to send, if the record deserves one.
    #[must_use]
    pub const fn reply(&self) -> Option<ReplyHeader<'static>> {
        match *self {
            Self::NotACall(_) => None,
            Self::Refused { xid, rejection } => Some(ReplyHeader::denied(xid, rejection)),
            Self::Malformed { xid, .. } => {
                Some(ReplyHeader::accepted(xid, AcceptStatus::GarbageArguments))
            }
        }
    }
}

impl<'a> CallHeader<'a> {
    /// Reads the header; the decoder then stands at the arguments.
    ///
    /// # Errors
    /// See [`CallError`], which knows the answer to give.
    pub fn decode(decoder: &mut Decoder<'a>) -> Result<Self, CallError> {
        let xid = decoder.u32().map_err(CallError::NotACall)?;
        match decoder.u32().map_err(CallError::NotACall)? {
            CALL => {}
            value => {
                let what = "RPC call";
                return Err(CallError::NotACall(DecodeError::Invalid { what, value }));
            }
        }
        let malformed = |error| CallError::Malformed { xid, error };
        let refused = |rejection| CallError::Refused { xid, rejection };
        if decoder.u32().map_err(malformed)? != RPC_VERSION {
            return Err(refused(Rejection::RpcMismatch {
                low: RPC_VERSION,
                high: RPC_VERSION,
            }));
        }
        let program = decoder.u32().map_err(malformed)?;
        let version = decoder.u32().map_err(malformed)?;
        let procedure = decoder.u32().map_err(malformed)?;
        let bad = |status| move |_| refused(Rejection::Auth(status));
        Ok(Self {
            xid,
            program,
            version,
            procedure,
            credential: decoder.get().map_err(bad(AuthStatus::BadCredential))?,
            verifier: decoder.get().map_err(bad(AuthStatus::BadVerifier))?,
        })
    }
}

impl Encode for CallHeader<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.xid);
        encoder.u32(CALL);
        encoder.u32(RPC_VERSION);
        encoder.u32(self.program);
        encoder.u32(self.version);
        encoder.u32(self.procedure);
        encoder.put(&self.credential);
        encoder.put(&self.verifier);
    }
}

/// What precedes the results of a reply, or is all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader<'a> {
    /// The number of the call that is answered.
    pub xid: u32,
    /// The answer.
    pub body: ReplyBody<'a>,
}

/// Whether the call was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyBody<'a> {
    /// MSG_ACCEPTED: it was, with this outcome.
    Accepted {
        /// Proof that the server is the right one.
        verifier: Verifier<'a>,
        /// What became of it.
        status: AcceptStatus,
    },
    /// MSG_DENIED: it was not.
    Denied(Rejection),
}

/// What became of an accepted call (`accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStatus {
    /// Carried out; the results follow.
    Success,
    /// No such program here.
    ProgramUnavailable,
    /// The program is here, in other versions.
    ProgramMismatch {
        /// Lowest version that is here.
        low: u32,
        /// Highest version that is here.
        high: u32,
    },
    /// The program has no such procedure.
    ProcedureUnavailable,
    /// The arguments cannot be decoded.
    GarbageArguments,
    /// The server failed on its own.
    SystemError,
}

/// Why a call was not taken (`reject_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The version of RPC is not spoken here.
    RpcMismatch {
        /// Lowest version that is.
        low: u32,
        /// Highest version that is.
        high: u32,
    },
    /// The caller is not believed.
    Auth(AuthStatus),
}

xdr_enum! {
    /// Why the caller is not believed (`auth_stat`, RFC 5531 section 9).
    pub enum AuthStatus as "auth_stat" {
        /// AUTH_OK: it is.
        Ok = 0,
        /// AUTH_BADCRED: the credential is malformed.
        BadCredential = 1,
        /// AUTH_REJECTEDCRED: the client must begin a new session.
        RejectedCredential = 2,
        /// AUTH_BADVERF: the verifier is malformed.
        BadVerifier = 3,
        /// AUTH_REJECTEDVERF: the verifier has expired or was replayed.
        RejectedVerifier = 4,
        /// AUTH_TOOWEAK: this flavour is not enough here.
        TooWeak = 5,
        /// AUTH_INVALIDRESP: the server's verifier is wrong.
        InvalidResponse = 6,
        /// AUTH_FAILED: some other reason.
        Failed = 7,
        /// AUTH_KERB_GENERIC: Kerberos failed.
        KerberosGeneric = 8,
        /// AUTH_TIMEEXPIRE: the credential has expired.
        TimeExpired = 9,
        /// AUTH_TKT_FILE: something is wrong with the ticket file.
        TicketFile = 10,
        /// AUTH_DECODE: the authenticator cannot be decoded.
        Decode = 11,
        /// AUTH_NET_ADDR: the ticket holds another network address.
        NetworkAddress = 12,
        /// RPCSEC_GSS_CREDPROBLEM: no credential for the user.
        GssCredential = 13,
        /// RPCSEC_GSS_CTXPROBLEM: the security context is not good.
        GssContext = 14,
    }
}

impl ReplyHeader<'_> {
    /// The call was carried out; its results follow.
    #[must_use]
    pub const fn success(xid: u32) -> Self {
        Self::accepted(xid, AcceptStatus::Success)
    }

    /// The call was taken, with this outcome.
    #[must_use]
    pub const fn accepted(xid: u32, status: AcceptStatus) -> Self {
        let verifier = Verifier::NONE;
        let body = ReplyBody::Accepted { verifier, status };
        Self { xid, body }
    }

    /// The call was not taken.
    #[must_use]
    pub const fn denied(xid: u32, rejection: Rejection) -> Self {
        let body = ReplyBody::Denied(rejection);
        Self { xid, body }
    }
}

impl Encode for ReplyHeader<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.xid);
        encoder.u32(REPLY);
        match &self.body {
            ReplyBody::Accepted { verifier, status } => {
                encoder.u32(0);
                encoder.put(verifier);
                encoder.put(status);
            }
            ReplyBody::Denied(rejection) => {
                encoder.u32(1);
                encoder.put(rejection);
            }
        }
    }
}

impl<'a> Decode<'a> for ReplyHeader<'a> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let xid = decoder.u32()?;
        let what = "RPC reply";
        match decoder.u32()? {
            REPLY => {}
            value => return Err(DecodeError::Invalid { what, value }),
        }
        let body = match decoder.u32()? {
            0 => ReplyBody::Accepted {
                verifier: decoder.get()?,
                status: decoder.get()?,
            },
            1 => ReplyBody::Denied(decoder.get()?),
            value => return Err(DecodeError::Invalid { what, value }),
        };
        Ok(Self { xid, body })
    }
}

impl Encode for AcceptStatus {
    fn encode(&self, encoder: &mut Encoder) {
        match *self {
            Self::Success => encoder.u32(0),
            Self::ProgramUnavailable => encoder.u32(1),
            Self::ProgramMismatch { low, high } => {
                encoder.u32(2);
                encoder.u32(low);
                encoder.u32(high);
            }
            Self::ProcedureUnavailable => encoder.u32(3),
            Self::GarbageArguments => encoder.u32(4),
            Self::SystemError => encoder.u32(5),
        }
    }
}

impl<'a> Decode<'a> for AcceptStatus {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let what = "accept_stat";
        match decoder.u32()? {
            0 => Ok(Self::Success),
            1 => Ok(Self::ProgramUnavailable),
            2 => Ok(Self::ProgramMismatch {
                low: decoder.u32()?,
                high: decoder.u32()?,
            }),
            3 => Ok(Self::ProcedureUnavailable),
            4 => Ok(Self::GarbageArguments),
            5 => Ok(Self::SystemError),
            value => Err(DecodeError::Invalid { what, value }),
        }
    }
}

impl Encode for Rejection {
    fn encode(&self, encoder: &mut Encoder) {
        match *self {
            Self::RpcMismatch { low, high } => {
                encoder.u32(0);
                encoder.u32(low);
                encoder.u32(high);
            }
            Self::Auth(status) => {
                encoder.u32(1);
                encoder.put(&status);
            }
        }
    }
}

impl<'a> Decode<'a> for Rejection {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let what = "reject_stat";
        match decoder.u32()? {
            0 => Ok(Self::RpcMismatch {
                low: decoder.u32()?,
                high: decoder.u32()?,
            }),
            1 => Ok(Self::Auth(decoder.get()?)),
            value => Err(DecodeError::Invalid { what, value }),
        }
    }
}
