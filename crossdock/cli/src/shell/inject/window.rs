//! When packets of a connection are not worth a node's work.

use crossdock_host::Window;
use crossdock_net::TcpInfo;

/// So few segments on their way at once that hardly one of them goes with another: the way over a
/// node adds to each, and another loss waits for a time-out as often as not (RFC 5681 section 3.2
/// wants three segments behind a lost one).
const SMALL_SEGMENTS: u32 = 4;
/// What a new connection may send at once (RFC 6928).
const USUAL_SEGMENTS: u32 = 10;
/// Recovery and loss (tcpi_ca_state).
const RECOVERY: u8 = 3;
/// One segment lost of so many leaves a window of 20 segments on the average, if losses say what
/// a window is (1.22 by the square root of their share, RFC 5681's sawtooth), and cuts what is sent
/// into packets as short if they do not. A node's sending costs the gateway more than its own then
/// (docs/performance.md, "Losses").
const OFTEN: u32 = 270;
/// And of so many one of 40.
const SELDOM: u32 = 1000;
/// Fewer are chance.
const LOSSES_MIN: u32 = 3;
/// Of as many segments the losses are counted, and at least half as many.
const RECENT_SEGMENTS: u32 = 4096;

/// What a connection has lost lately, and what nodes may send in it for that reason (SPIRAL
/// section 2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    window: Window,
    /// So far.
    lost_total: u32,
    sent_total: u32,
    /// Of the last segments.
    lost: u32,
    sent: u32,
}

impl Course {
    pub(super) const fn window(&self) -> Window {
        self.window
    }

    /// Looks again. Nodes send less from when something was lost and the congestion window has
    /// become small, or from when much is lost, until that is over.
    pub(super) fn note(&mut self, info: &TcpInfo) -> Window {
        self.count(info);
        let has_lost = info.congestion_state >= RECOVERY;
        let segments = info.congestion_window;
        let is_small = match self.window {
            Window::Small => has_lost || segments < USUAL_SEGMENTS,
            Window::Wide | Window::Short => has_lost && segments <= SMALL_SEGMENTS,
        };
        let is_short = match self.window {
            Window::Wide => self.lost >= LOSSES_MIN && self.is_lost_of(OFTEN),
            Window::Small | Window::Short => self.is_lost_of(SELDOM),
        };
        self.window = match (is_small, is_short) {
            (true, _) => Window::Small,
            (false, true) => Window::Short,
            (false, false) => Window::Wide,
        };
        self.window
    }

    /// What was sent again was lost, unless the client has it twice.
    fn count(&mut self, info: &TcpInfo) {
        let lost = info.resent_segments.saturating_sub(info.doubled_segments);
        self.lost += lost.saturating_sub(self.lost_total);
        self.sent += info.sent_segments.wrapping_sub(self.sent_total);
        (self.lost_total, self.sent_total) = (lost, info.sent_segments);
        while self.sent > RECENT_SEGMENTS {
            self.sent /= 2;
            self.lost /= 2;
        }
    }

    const fn is_lost_of(&self, segments: u32) -> bool {
        self.lost as u64 * segments as u64 >= self.sent as u64 && self.lost > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: neither a loss alone nor a small window alone is a reason; that it was so is, until
    /// both are over.
    #[test]
    fn both_begin_it_and_both_end_it() {
        for (congestion_state, congestion_window, from_wide, from_small) in [
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
            for (before, is_small) in [(Window::Wide, from_wide), (Window::Small, from_small)] {
                let mut course = Course {
                    window: before,
                    ..Course::default()
                };
                assert_eq!(course.note(&info) == Window::Small, is_small, "{info:?}");
            }
        }
    }

    /// Sends so many thousand segments of which every so-and-so-many-th is lost, looked at ten
    /// times in each thousand.
    fn send(course: &mut Course, info: &mut TcpInfo, thousands: u32, lost_of: u32) -> Window {
        for _ in 0..thousands * 10 {
            let before = info.sent_segments / lost_of;
            info.sent_segments += 100;
            info.resent_segments += info.sent_segments / lost_of - before;
            course.note(info);
        }
        course.window()
    }

    /// Goal: what is lost often makes a connection short, whatever its congestion control makes of
    /// it; what is lost seldom does not, and ends it; what came twice was not lost.
    #[test]
    fn frequent_losses_are_a_reason() {
        let mut course = Course::default();
        let mut info = TcpInfo {
            congestion_window: 500,
            ..TcpInfo::default()
        };
        assert_eq!(send(&mut course, &mut info, 20, 2000), Window::Wide);
        assert_eq!(send(&mut course, &mut info, 2, 100), Window::Short);
        assert_eq!(send(&mut course, &mut info, 5, 500), Window::Short);
        assert_eq!(send(&mut course, &mut info, 20, 2000), Window::Wide);
        let mut late = TcpInfo::default();
        let mut course = Course::default();
        late.sent_segments = 1000;
        late.resent_segments = 50;
        late.doubled_segments = 50;
        assert_eq!(course.note(&late), Window::Wide);
        late.resent_segments = 60;
        assert_eq!(course.note(&late), Window::Short);
    }
}
