//! The headers of a piece of a caught packet.

use crossdock_tunnel::tcp::{FIN, FLAGS, PSH, SEQUENCE};
use crossdock_tunnel::{Flow, HeaderError, sequence};

/// The headers, IP and TCP, of what begins `at_bytes` behind the beginning of the payload of
/// a packet with these headers; what ends the packet (FIN, PSH) belongs to the last piece
/// only. Lengths and checksums are set by who finishes it.
///
/// # Errors
/// [`HeaderError`]: they are no such headers.
pub(crate) fn headers_at(
    caught: &[u8],
    at_bytes: u32,
    is_last: bool,
) -> Result<Vec<u8>, HeaderError> {
    let ip_bytes = Flow::of(caught)?.ip_bytes;
    let mut headers = caught.to_vec();
    let tcp = &mut headers[ip_bytes..];
    let number = sequence(tcp).wrapping_add(at_bytes);
    tcp[SEQUENCE..SEQUENCE + 4].copy_from_slice(&number.to_be_bytes());
    if !is_last {
        tcp[FLAGS] &= !(FIN | PSH);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caught(ip: &[u8]) -> Vec<u8> {
        let mut headers = ip.to_vec();
        headers.extend([0; 20]);
        headers[ip.len() + 12] = 0x50;
        headers[ip.len() + SEQUENCE..ip.len() + SEQUENCE + 4]
            .copy_from_slice(&0xffff_fff0_u32.to_be_bytes());
        headers[ip.len() + FLAGS] = 0x10 | FIN | PSH;
        headers
    }

    /// Goal: sequence numbers go on, over their end as well, and only the last piece ends
    /// the stream.
    #[test]
    fn pieces_follow_each_other() {
        let mut ipv4 = [0; 24];
        ipv4[0] = 0x46;
        ipv4[9] = 6;
        let mut ipv6 = [0; 40];
        ipv6[0] = 0x60;
        ipv6[6] = 6;
        for ip in [&ipv4[..], &ipv6[..]] {
            let caught = caught(ip);
            let first = headers_at(&caught, 0, false).expect("headers");
            let second = headers_at(&caught, 0x20, true).expect("headers");
            assert_eq!(first[ip.len() + FLAGS], 0x10);
            assert_eq!(second[ip.len() + FLAGS], 0x10 | FIN | PSH);
            assert_eq!(first[ip.len() + 4..ip.len() + 8], [0xff, 0xff, 0xff, 0xf0]);
            assert_eq!(second[ip.len() + 4..ip.len() + 8], [0, 0, 0, 0x10]);
        }
    }

    /// Goal: what is too short, or no IP, has no pieces.
    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&[][..], &[0x45; 33], &[0x50; 60], &[0x60; 53]] {
            assert!(headers_at(bytes, 0, true).is_err());
        }
    }
}
