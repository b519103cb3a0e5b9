//! Replies: how they are built from the state after an operation, and how they
//! are remembered.
//!
//! A log record does not hold the reply but its [`Shape`]: which files it shows
//! and what they were before. Every file that it shows is put by the same
//! record, so the reply that a replay builds is the one that was sent.

use crossdock_directory::Directory;
use crossdock_log::{get_byte, put_varint};
use crossdock_names::{FileId, FileRef, LayoutClass};
use crossdock_peer::{
    Attributes, BeforeAttributes, CallId, Device, FileKind, SiteAnswer, SiteError, SiteReply,
    WeakCache,
};
use crossdock_types::WallTime;

use crate::coordinator::Decision;
use crate::record::{get_number, get_wall, put_wall};

/// What a reply shows.
///
/// Encoded: flags (1 byte: 1 = found, 2 = subject before, 4 = second, 8 =
/// second before), subject, then what the flags say; a file is id and
/// generation, "before" is size, mtime, ctime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) subject: FileRef,
    pub(crate) subject_before: Option<BeforeAttributes>,
    pub(crate) second: Option<FileRef>,
    pub(crate) second_before: Option<BeforeAttributes>,
    pub(crate) found: Option<FileRef>,
}

impl Shape {
    /// The reply as of the state now, and of what is decided of other sites' files:
    /// these tell it to nobody before they have done it.
    pub(crate) fn reply(
        &self,
        id: CallId,
        directory: &Directory,
        decision: Option<&Decision>,
    ) -> SiteReply {
        let elsewhere = |file: FileRef| decision?.attributes_of(file);
        let outcome = match (self.found, self.found.and_then(elsewhere)) {
            (None, _) => Ok(SiteAnswer::Done),
            (Some(file), Some(attributes)) => Ok(SiteAnswer::Found {
                attributes,
                layout: LayoutClass::STRIPED,
                placement: file.id,
            }),
            (Some(file), None) => found(directory, file),
        };
        let mut reply = self.reply_with(id, directory, outcome);
        let second = self.second.and_then(elsewhere);
        reply.second.after = reply.second.after.or(second);
        reply
    }

    /// The same with another outcome.
    pub(crate) fn reply_with(
        &self,
        id: CallId,
        directory: &Directory,
        outcome: Result<SiteAnswer, SiteError>,
    ) -> SiteReply {
        SiteReply {
            id,
            outcome,
            subject: weak_cache(directory, self.subject, self.subject_before),
            second: self.second.map_or_else(WeakCache::default, |second| {
                weak_cache(directory, second, self.second_before)
            }),
        }
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let flags = u8::from(self.found.is_some())
            | u8::from(self.subject_before.is_some()) << 1
            | u8::from(self.second.is_some()) << 2
            | u8::from(self.second_before.is_some()) << 3;
        bytes.push(flags);
        put_file(bytes, self.subject);
        for file in [self.found, self.second].into_iter().flatten() {
            put_file(bytes, file);
        }
        for before in [self.subject_before, self.second_before]
            .into_iter()
            .flatten()
        {
            put_before(bytes, before);
        }
    }

    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let flags = get_byte(bytes)?;
        let mut shape = Self {
            subject: get_file(bytes)?,
            subject_before: None,
            second: None,
            second_before: None,
            found: None,
        };
        if flags & 1 != 0 {
            shape.found = Some(get_file(bytes)?);
        }
        if flags & 4 != 0 {
            shape.second = Some(get_file(bytes)?);
        }
        if flags & 2 != 0 {
            shape.subject_before = Some(get_before(bytes)?);
        }
        if flags & 8 != 0 {
            shape.second_before = Some(get_before(bytes)?);
        }
        Some(shape)
    }
}

/// The answer that shows `file`.
pub(crate) fn found(directory: &Directory, file: FileRef) -> Result<SiteAnswer, SiteError> {
    let cell = directory.cell(file)?;
    Ok(SiteAnswer::Found {
        attributes: cell.attributes(directory.site()),
        // As of creation, when nobody knows how large it will be: a handle never changes.
        layout: LayoutClass::STRIPED,
        placement: file.id,
    })
}

/// What is told of `file` beside an answer.
pub(crate) fn weak_cache(
    directory: &Directory,
    file: FileRef,
    before: Option<BeforeAttributes>,
) -> WeakCache {
    let cell = directory.cell(file).ok();
    if cell.is_some_and(|cell| directory.is_split(cell)) {
        return WeakCache::default();
    }
    WeakCache {
        before,
        after: cell.map(|cell| cell.attributes(directory.site())),
    }
}

/// Encodes a reply whose outcome is [`SiteAnswer::Done`] or
/// [`SiteAnswer::Found`]; `None` for others, which need not be remembered.
///
/// Layout: outcome (1 byte: 0 done, 1 found with attributes, layout class,
/// placement), then before and after of subject and second, each behind a
/// byte 0 or 1. Every time is what it lies behind the one before it.
pub(crate) fn encode_reply(reply: &SiteReply) -> Option<Box<[u8]>> {
    let mut bytes = Vec::with_capacity(256);
    let mut times = Times::default();
    match &reply.outcome {
        Ok(SiteAnswer::Done) => bytes.push(0),
        Ok(SiteAnswer::Found {
            attributes,
            layout,
            placement,
        }) => {
            bytes.push(1);
            put_attributes(&mut bytes, &mut times, attributes);
            bytes.push(layout.0);
            put_varint(&mut bytes, placement.0);
        }
        _ => return None,
    }
    for cache in [&reply.subject, &reply.second] {
        bytes.push(cache.before.is_some().into());
        if let Some(before) = cache.before {
            put_varint(&mut bytes, before.size_bytes);
            times.put(&mut bytes, before.modified);
            times.put(&mut bytes, before.changed);
        }
        bytes.push(cache.after.is_some().into());
        if let Some(after) = &cache.after {
            put_attributes(&mut bytes, &mut times, after);
        }
    }
    Some(bytes.into())
}

/// The reply that [`encode_reply`] encoded, to the call `id`.
pub(crate) fn decode_reply(id: CallId, mut bytes: &[u8]) -> Option<SiteReply> {
    let bytes = &mut bytes;
    let mut times = Times::default();
    let answer = match get_byte(bytes)? {
        0 => SiteAnswer::Done,
        1 => SiteAnswer::Found {
            attributes: get_attributes(bytes, &mut times)?,
            layout: LayoutClass(get_byte(bytes)?),
            placement: FileId(get_number(bytes)?),
        },
        _ => return None,
    };
    Some(SiteReply {
        id,
        outcome: Ok(answer),
        subject: get_cache(bytes, &mut times)?,
        second: get_cache(bytes, &mut times)?,
    })
}

fn get_cache(bytes: &mut &[u8], times: &mut Times) -> Option<WeakCache> {
    let mut cache = WeakCache::default();
    if get_byte(bytes)? == 1 {
        cache.before = Some(BeforeAttributes {
            size_bytes: get_number(bytes)?,
            modified: times.get(bytes)?,
            changed: times.get(bytes)?,
        });
    }
    if get_byte(bytes)? == 1 {
        cache.after = Some(get_attributes(bytes, times)?);
    }
    Some(cache)
}

/// The time before, in a remembered reply: most are close to each other.
#[derive(Default)]
struct Times(WallTime);

impl Times {
    fn put(&mut self, bytes: &mut Vec<u8>, time: WallTime) {
        put_wall(bytes, WallTime(time.0.wrapping_sub(self.0.0)));
        self.0 = time;
    }

    fn get(&mut self, bytes: &mut &[u8]) -> Option<WallTime> {
        let behind = get_wall(bytes)?;
        self.0 = WallTime(self.0.0.wrapping_add(behind.0));
        Some(self.0)
    }
}

fn put_file(bytes: &mut Vec<u8>, file: FileRef) {
    put_varint(bytes, file.id.0);
    put_varint(bytes, file.generation.into());
}

fn get_file(bytes: &mut &[u8]) -> Option<FileRef> {
    Some(FileRef {
        id: FileId(get_number(bytes)?),
        generation: get_number(bytes)?,
    })
}

fn put_before(bytes: &mut Vec<u8>, before: BeforeAttributes) {
    put_varint(bytes, before.size_bytes);
    put_wall(bytes, before.modified);
    put_wall(bytes, before.changed);
}

fn get_before(bytes: &mut &[u8]) -> Option<BeforeAttributes> {
    Some(BeforeAttributes {
        size_bytes: get_number(bytes)?,
        modified: get_wall(bytes)?,
        changed: get_wall(bytes)?,
    })
}

fn put_attributes(bytes: &mut Vec<u8>, times: &mut Times, attributes: &Attributes) {
    put_file(bytes, attributes.file);
    bytes.push(attributes.kind as u8);
    for number in [
        attributes.mode,
        attributes.links,
        attributes.uid,
        attributes.gid,
        attributes.device.major,
        attributes.device.minor,
    ] {
        put_varint(bytes, number.into());
    }
    put_varint(bytes, attributes.size_bytes);
    put_varint(bytes, attributes.used_bytes);
    for time in [attributes.accessed, attributes.modified, attributes.changed] {
        times.put(bytes, time);
    }
}

fn get_attributes(bytes: &mut &[u8], times: &mut Times) -> Option<Attributes> {
    let file = get_file(bytes)?;
    let kind = FileKind::from_number(get_byte(bytes)?)?;
    let [mode, links, uid, gid, major, minor] = {
        let mut numbers = [0u32; 6];
        for number in &mut numbers {
            *number = get_number(bytes)?;
        }
        numbers
    };
    Some(Attributes {
        file,
        kind,
        mode,
        links,
        uid,
        gid,
        device: Device { major, minor },
        size_bytes: get_number(bytes)?,
        used_bytes: get_number(bytes)?,
        accessed: times.get(bytes)?,
        modified: times.get(bytes)?,
        changed: times.get(bytes)?,
    })
}
