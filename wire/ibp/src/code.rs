//! Error codes.

use std::fmt;

/// Why a depot has refused or failed: a negative number. Every negative number is one, also
/// if it has no name here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(i32);

macro_rules! codes {
    ($($number:literal $name:ident $meaning:literal)*) => {
        impl ErrorCode {
            $(#[doc = $meaning]
            pub const $name: Self = Self(-$number);)*

            /// The protocol's name of it, if it has one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match -self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// What it means, in words.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match -self.0 {
                    $($number => $meaning,)*
                    _ => "unknown error",
                }
            }
        }
    };
}

codes! {
    1 GENERIC "something failed"
    2 SOCK_READ "reading from the connection failed"
    3 SOCK_WRITE "writing to the connection failed"
    4 CAP_NOT_FOUND "no such allocation"
    5 CAP_NOT_WRITE "not a write capability"
    6 CAP_NOT_READ "not a read capability"
    7 CAP_NOT_MANAGE "not a manage capability"
    8 INVALID_WRITE_CAP "wrong attribute key of a write capability"
    9 INVALID_READ_CAP "wrong attribute key of a read capability"
    10 INVALID_MANAGE_CAP "wrong attribute key of a manage capability"
    11 WRONG_CAP_FORMAT "malformed capability"
    12 CAP_ACCESS_DENIED "the capability does not allow this"
    13 CONNECTION "the other depot cannot be reached"
    14 FILE_OPEN "storage cannot be opened"
    15 FILE_READ "storage cannot be read"
    16 FILE_WRITE "storage cannot be written"
    17 FILE_ACCESS "storage cannot be used"
    18 FILE_SEEK_ERROR "no such place in storage"
    19 WOULD_EXCEED_LIMIT "more than there is room for"
    20 WOULD_DAMAGE_DATA "data would be lost"
    21 BAD_FORMAT "malformed request"
    22 TYPE_NOT_SUPPORTED "storage type is not supported"
    23 RSRC_UNAVAIL "resource is not available"
    24 INTERNAL "the depot failed"
    25 INVALID_CMD "no such command"
    26 WOULD_BLOCK "it would have to wait"
    27 PROT_VERS "no such protocol version"
    28 LONG_DURATION "longer than the depot allows"
    29 WRONG_PASSWD "wrong password"
    30 INVALID_PARAMETER "invalid parameter"
    31 INV_PAR_HOST "invalid host"
    32 INV_PAR_PORT "invalid port"
    33 INV_PAR_ATDR "invalid duration"
    34 INV_PAR_ATRL "invalid reliability"
    35 INV_PAR_ATTP "invalid storage type"
    36 INV_PAR_SIZE "invalid size"
    37 INV_PAR_PTR "invalid pointer"
    38 ALLOC_FAILED "out of memory"
    39 TOO_MANY_UNITS "too many units"
    40 SET_SOCK_ATTR "connection cannot be set up"
    41 GET_SOCK_ATTR "connection cannot be looked at"
    42 CLIENT_TIMEOUT "the client's time is over"
    43 UNKNOWN_FUNCTION "unknown function"
    44 INV_IP_ADDR "address is not allowed"
    45 WOULD_EXCEED_POLICY "more than the depot's policy allows"
    46 SERVER_TIMEOUT "the depot's time is over"
    47 SERVER_RECOVERING "the depot is recovering"
    48 CAP_DELETING "the allocation is being removed"
    49 UNKNOWN_RS "no such resource"
    50 INVALID_RID "invalid resource id"
    51 NFU_UNKNOWN "no such network function"
    52 NFU_DUP_PARA "parameter given twice"
    53 QUEUE_FULL "the depot is busy"
    54 CRT_AUTH_FAIL "authentication cannot begin"
    55 INVALID_CERT_FILE "invalid certificate"
    56 INVALID_PRIVATE_KEY_PASSWD "wrong password of a private key"
    57 INVALID_PRIVATE_KEY_FILE "invalid private key"
    58 AUTHENTICATION_REQ "authentication is required"
    59 AUTHEN_NOT_SUPPORT "authentication is not supported"
    60 AUTHENTICATION_FAILED "authentication failed"
    61 INVALID_HOST "no such host"
    62 CANT_CONNECT "cannot connect"
    63 CHKSUM "wrong checksum"
    64 CHKSUM_TYPE "unknown kind of checksum"
    65 CHKSUM_BLOCKSIZE "invalid block size of checksums"
    66 OUT_OF_SOCKETS "the depot has no connection left"
}

impl ErrorCode {
    /// The code with this number; `None` unless it is negative.
    #[must_use]
    pub const fn of(number: i32) -> Option<Self> {
        match number < 0 {
            true => Some(Self(number)),
            false => None,
        }
    }

    /// The number, as on the wire.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.meaning(), self.0)
    }
}

impl std::error::Error for ErrorCode {}
