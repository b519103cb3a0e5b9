//! Directories whose names are hashed: which of their parts an operation is about,
//! and what the parts show together (Slice, section 3.2.2).

use crossdock_names::{SiteId, Spread};

use crate::{Attributes, SiteOperation};

/// Bits of the counter in a cookie; the 16 bits of the site that gave it lie above.
pub const COOKIE_COUNTER_BITS: u32 = 46;

/// The site in whose part the entry with that cookie lies: it is the same for as long
/// as the entry is there, whichever manager serves the site.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "16 bits and those above")]
pub const fn site_of_cookie(cookie: u64) -> SiteId {
    SiteId((cookie >> COOKIE_COUNTER_BITS) as u16)
}

impl Attributes {
    /// Those of a directory whose parts have these attributes, its home's first, and
    /// whose entries have changed so often; `None` without any part.
    ///
    /// Its times are the latest of its parts', and a nanosecond more for each change of
    /// one of them: so every change shows, also one at a site whose clock is behind.
    #[must_use]
    pub fn of_parts(parts: impl IntoIterator<Item = (Self, u64)>) -> Option<Self> {
        let mut parts = parts.into_iter();
        let (mut whole, mut changes) = parts.next()?;
        for (part, more) in parts {
            whole.links += part.links.saturating_sub(2);
            whole.modified = whole.modified.max(part.modified);
            whole.changed = whole.changed.max(part.changed);
            changes += more;
        }
        let changes = i64::try_from(changes).unwrap_or(i64::MAX);
        for time in [&mut whole.modified, &mut whole.changed] {
            time.0 = time.0.saturating_add(changes);
        }
        Some(whole)
    }
}

impl SiteOperation {
    /// The same with the parts of directories in which its names lie, if the volume's
    /// names are hashed. A list is of one part anyway.
    #[must_use]
    pub fn placed(mut self, spread: &Spread) -> Self {
        if !spread.is_hashed {
            return self;
        }
        match &mut self {
            Self::Lookup { name, .. } if name[..] == *b"." => {}
            Self::Lookup { directory, name }
            | Self::Create {
                directory, name, ..
            }
            | Self::MakeDirectory {
                directory, name, ..
            }
            | Self::MakeSymlink {
                directory, name, ..
            }
            | Self::MakeNode {
                directory, name, ..
            }
            | Self::Remove { directory, name }
            | Self::RemoveDirectory { directory, name }
            | Self::Link {
                directory, name, ..
            } => *directory = spread.part_for(*directory, name),
            Self::Rename {
                from_directory,
                from_name,
                to_directory,
                to_name,
            } => {
                *from_directory = spread.part_for(*from_directory, from_name);
                *to_directory = spread.part_for(*to_directory, to_name);
            }
            _ => {}
        }
        self
    }
}
