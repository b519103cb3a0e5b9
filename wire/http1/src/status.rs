//! Status codes (RFC 9110 section 15; RFC 6585).

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal $reason:literal,)*) => {
        /// What became of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum Status {
            $($(#[$doc])* $name = $number,)*
        }

        impl Status {
            /// Every status there is here.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The reason phrase: for people, clients go by the number.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self {
                    $(Self::$name => $reason,)*
                }
            }
        }
    };
}

statuses! {
    /// The client may send the content (RFC 9110 section 15.2.1).
    Continue = 100 "Continue",
    /// Section 15.3.1.
    Ok = 200 "OK",
    /// Section 15.3.2.
    Created = 201 "Created",
    /// Section 15.3.3.
    Accepted = 202 "Accepted",
    /// Section 15.3.5.
    NoContent = 204 "No Content",
    /// Section 15.3.7.
    PartialContent = 206 "Partial Content",
    /// Section 15.4.2.
    MovedPermanently = 301 "Moved Permanently",
    /// Section 15.4.3.
    Found = 302 "Found",
    /// Section 15.4.4.
    SeeOther = 303 "See Other",
    /// Section 15.4.5.
    NotModified = 304 "Not Modified",
    /// Section 15.4.8.
    TemporaryRedirect = 307 "Temporary Redirect",
    /// Section 15.4.9.
    PermanentRedirect = 308 "Permanent Redirect",
    /// Section 15.5.1.
    BadRequest = 400 "Bad Request",
    /// Section 15.5.2.
    Unauthorized = 401 "Unauthorized",
    /// Section 15.5.4.
    Forbidden = 403 "Forbidden",
    /// Section 15.5.5.
    NotFound = 404 "Not Found",
    /// Section 15.5.6.
    MethodNotAllowed = 405 "Method Not Allowed",
    /// Section 15.5.7.
    NotAcceptable = 406 "Not Acceptable",
    /// Section 15.5.9.
    RequestTimeout = 408 "Request Timeout",
    /// Section 15.5.10.
    Conflict = 409 "Conflict",
    /// Section 15.5.11.
    Gone = 410 "Gone",
    /// Section 15.5.12.
    LengthRequired = 411 "Length Required",
    /// Section 15.5.13.
    PreconditionFailed = 412 "Precondition Failed",
    /// Section 15.5.14.
    ContentTooLarge = 413 "Content Too Large",
    /// Section 15.5.15.
    UriTooLong = 414 "URI Too Long",
    /// Section 15.5.16.
    UnsupportedMediaType = 415 "Unsupported Media Type",
    /// Section 15.5.17.
    RangeNotSatisfiable = 416 "Range Not Satisfiable",
    /// Section 15.5.18.
    ExpectationFailed = 417 "Expectation Failed",
    /// Section 15.5.20.
    MisdirectedRequest = 421 "Misdirected Request",
    /// RFC 6585 section 4.
    TooManyRequests = 429 "Too Many Requests",
    /// RFC 6585 section 5.
    HeaderFieldsTooLarge = 431 "Request Header Fields Too Large",
    /// RFC 9110 section 15.6.1.
    InternalServerError = 500 "Internal Server Error",
    /// Section 15.6.2.
    NotImplemented = 501 "Not Implemented",
    /// Section 15.6.3.
    BadGateway = 502 "Bad Gateway",
    /// Section 15.6.4.
    ServiceUnavailable = 503 "Service Unavailable",
    /// Section 15.6.5.
    GatewayTimeout = 504 "Gateway Timeout",
    /// Section 15.6.6.
    VersionNotSupported = 505 "HTTP Version Not Supported",
    /// RFC 4918 section 11.5.
    InsufficientStorage = 507 "Insufficient Storage",
}

impl Status {
    /// The three digits.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Whether a response with this status never has content (RFC 9110 section 6.4.1).
    #[must_use]
    pub const fn is_without_content(self) -> bool {
        matches!(self, Self::Continue | Self::NoContent | Self::NotModified)
    }
}
