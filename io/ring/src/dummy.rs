//! Dummy bytes: zeros that stand in a socket for bytes that somebody else sends. The ring
//! sends them by reference to memory that it has registered: nobody copies them.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::OnceLock;

use bytes::Bytes;

/// The memory that all dummy bytes of the process are: one huge page, if there are such.
const REGION_BYTES: usize = 2 << 20;

/// So many dummy bytes, in as few pieces as there can be.
pub fn dummy(length_bytes: usize) -> impl Iterator<Item = Bytes> {
    let whole = std::iter::repeat_n(REGION_BYTES, length_bytes / REGION_BYTES);
    let rest = Some(length_bytes % REGION_BYTES).filter(|&rest| rest > 0);
    whole
        .chain(rest)
        .map(|bytes| Bytes::from_static(&region()[..bytes]))
}

/// Whether a piece is one of them.
pub(crate) fn is_dummy(piece: &Bytes) -> bool {
    let known = REGION.get();
    known.is_some_and(|region| region.as_ptr_range().contains(&piece.as_ptr()))
}

static REGION: OnceLock<&'static [u8]> = OnceLock::new();

/// Never freed: the kernel may refer to it as long as there are sockets.
pub(crate) fn region() -> &'static [u8] {
    REGION.get_or_init(|| {
        let layout = Layout::from_size_align(REGION_BYTES, REGION_BYTES).expect("a power of two");
        // SAFETY: the layout has a size, and what is there is zeros from here on, as nobody
        // writes to it.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        // SAFETY: the range was just allocated. It is advice: without huge pages more of them
        // are referred to.
        unsafe { libc::madvise(start.cast(), REGION_BYTES, libc::MADV_HUGEPAGE) };
        // SAFETY: allocated, initialised, and leaked.
        unsafe { std::slice::from_raw_parts(start, REGION_BYTES) }
    })
}
