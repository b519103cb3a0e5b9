//! XDR (RFC 4506): bytes to types and back.
