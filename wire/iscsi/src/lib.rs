//! iSCSI (RFC 7143) as bytes and types: headers, whole PDUs with their digests, text keys.
//!
//! A [`PduReader`] cuts the bytes of a connection into [`Pdu`]s; [`Request::decode`] and
//! [`Response::decode`] say what their headers are. [`encode`] makes the bytes of one.
//! [`parse_text`] and [`encode_text`] read and write the keys of login and text phases.
//!
//! Both sides are here, for the target and for initiators of tests. Nothing here does I/O or
//! reads a clock, and nothing panics on bytes of a peer.

mod header;
mod initiator;
mod reader;
mod text;
mod writer;

pub use header::{
    AsyncMessage, BHS_BYTES, DataIn, DataOut, Head, LoginFlags, LoginRequest, LoginResponse,
    LogoutRequest, LogoutResponse, NO_TAG, NopIn, NopOut, ReadyToTransfer, Reject, RejectReason,
    Request, Response, ScsiCommand, ScsiResponse, Snack, Stage, TaskFunction, TaskRequest,
    TaskResponse, TextRequest, TextResponse, opcode,
};
pub use initiator::{Done, Initiator, InitiatorError, Said};
pub use reader::{Pdu, PduError, PduReader};
pub use text::{
    TEXT_BYTES_MAX, TextError, encode_binary, encode_text, parse_binary, parse_number, parse_text,
};
pub use writer::{Digests, encode};
