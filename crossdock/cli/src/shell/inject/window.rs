//! When packets of a connection are not worth a node's work.

use crossdock_net::TcpInfo;

/// So few segments on their way at once that hardly one of them goes with another: the way over a
/// node adds to each, and another loss waits for a time-out as often as not (RFC 5681 section 3.2
/// wants three segments behind a lost one).
const SMALL_SEGMENTS: u32 = 4;
/// What a new connection may send at once (RFC 6928).
const USUAL_SEGMENTS: u32 = 10;
/// Recovery and loss (tcpi_ca_state).
const RECOVERY: u8 = 3;

/// Whether the gateway sends itself (SPIRAL section 2): from when something was lost and the
/// congestion window has become small, until it has recovered from that.
pub(super) const fn is_narrow(was_narrow: bool, info: &TcpInfo) -> bool {
    let has_lost = info.congestion_state >= RECOVERY;
    match was_narrow {
        true => has_lost || info.congestion_window < USUAL_SEGMENTS,
        false => has_lost && info.congestion_window <= SMALL_SEGMENTS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: neither a loss alone nor a small window alone is a reason; that it was so is, until
    /// both are over.
    #[test]
    fn both_begin_it_and_both_end_it() {
        for (congestion_state, congestion_window, from_wide, from_narrow) in [
            (4, 1, true, true),
            (3, 4, true, true),
            (3, 5, false, true),
            (4, 20, false, true),
            (0, 1, false, true),
            (1, 9, false, true),
            (0, 10, false, false),
        ] {
            let info = TcpInfo {
                congestion_state,
                congestion_window,
                ..TcpInfo::default()
            };
            assert_eq!(is_narrow(false, &info), from_wide, "{info:?}");
            assert_eq!(is_narrow(true, &info), from_narrow, "{info:?}");
        }
    }
}
