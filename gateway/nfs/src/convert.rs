//! Between NFS types and those of the sites.

use crossdock_names::{ExportId, FileHandle};
use crossdock_names::{HandleKeys, VolumeId};
use crossdock_nfs3::{self as nfs3, HandleBuffer, SetAttributes, SetTime, Status, Timestamp};
use crossdock_peer::{
    AttributeChanges, Attributes, BeforeAttributes, Device, FileKind, SiteError, TimeChange,
    WeakCache,
};
use crossdock_types::WallTime;

use crate::proofs::Proofs;

const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// What a client is told about a site's failure: the one place where this is decided.
pub(crate) const fn status(error: SiteError) -> Status {
    match error {
        SiteError::NotOwner => Status::Perm,
        SiteError::NotFound => Status::NoEnt,
        SiteError::Io => Status::Io,
        SiteError::AccessDenied => Status::Acces,
        SiteError::Exists => Status::Exist,
        SiteError::CrossDevice => Status::XDev,
        SiteError::NotDirectory => Status::NotDir,
        SiteError::IsDirectory => Status::IsDir,
        SiteError::Invalid => Status::Inval,
        SiteError::FileTooBig => Status::FBig,
        SiteError::NoSpace => Status::NoSpc,
        SiteError::Quota => Status::DQuot,
        SiteError::TooManyLinks => Status::MLink,
        SiteError::NameTooLong => Status::NameTooLong,
        SiteError::NotEmpty => Status::NotEmpty,
        SiteError::Stale => Status::Stale,
        SiteError::BadCookie => Status::BadCookie,
        SiteError::NotSync => Status::NotSync,
        SiteError::BadType => Status::BadType,
        SiteError::NotProven => Status::BadHandle,
        // The router deals with lost bytes and moves; what it could not settle
        // in time may be settled the next time.
        SiteError::Busy
        | SiteError::Lost { .. }
        | SiteError::Moved
        | SiteError::Unanswered
        | SiteError::Refused => Status::Jukebox,
    }
}

/// Makes what clients see of a volume through an export.
pub(crate) struct View<'a> {
    pub(crate) volume: VolumeId,
    pub(crate) keys: Option<&'a HandleKeys>,
    pub(crate) export: ExportId,
    /// For handles of format 2.
    pub(crate) proofs: Option<&'a Proofs>,
}

impl View<'_> {
    pub(crate) fn attributes(&self, attributes: &Attributes) -> nfs3::Attributes {
        nfs3::Attributes {
            file_type: file_type(attributes.kind),
            mode: attributes.mode,
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            size_bytes: attributes.size_bytes,
            used_bytes: attributes.used_bytes,
            device: nfs3::DeviceNumber {
                major: attributes.device.major,
                minor: attributes.device.minor,
            },
            fsid: self.volume.0,
            fileid: attributes.file.id.0,
            accessed: timestamp(attributes.accessed),
            modified: timestamp(attributes.modified),
            changed: timestamp(attributes.changed),
        }
    }

    pub(crate) fn after(&self, cache: &WeakCache) -> Option<nfs3::Attributes> {
        cache.after.as_ref().map(|after| self.attributes(after))
    }

    pub(crate) fn wcc(&self, cache: &WeakCache) -> nfs3::WccData {
        nfs3::WccData {
            before: cache.before.as_ref().map(before),
            after: self.after(cache),
        }
    }

    /// A file's handle; `None` if there is no proof for it, or no key.
    pub(crate) fn handle(
        &self,
        attributes: &Attributes,
        placement: crossdock_names::FileId,
        layout: crossdock_names::LayoutClass,
    ) -> Option<HandleBuffer> {
        if let Some(proofs) = self.proofs {
            let proof = proofs.find(self.export, attributes.file)?;
            return HandleBuffer::new(&proof.to_handle(self.volume));
        }
        HandleBuffer::new(&self.keys?.seal(&FileHandle {
            volume: self.volume,
            export: self.export,
            file: attributes.file,
            placement,
            layout,
        }))
    }

    /// What a client is told that needs a handle when there is none.
    pub(crate) const fn no_handle(&self) -> Status {
        match self.proofs {
            // There are more at once than are remembered: it is not so the next time.
            Some(_) => Status::Jukebox,
            None => Status::ServerFault,
        }
    }
}

const fn before(before: &BeforeAttributes) -> nfs3::WccAttributes {
    nfs3::WccAttributes {
        size_bytes: before.size_bytes,
        modified: timestamp(before.modified),
        changed: timestamp(before.changed),
    }
}

const fn file_type(kind: FileKind) -> nfs3::FileType {
    match kind {
        FileKind::Regular => nfs3::FileType::Regular,
        FileKind::Directory => nfs3::FileType::Directory,
        FileKind::Block => nfs3::FileType::BlockDevice,
        FileKind::Character => nfs3::FileType::CharacterDevice,
        FileKind::Symlink => nfs3::FileType::Symlink,
        FileKind::Socket => nfs3::FileType::Socket,
        FileKind::Fifo => nfs3::FileType::Fifo,
    }
}

/// NFS has 32 unsigned bits of seconds: what lies outside is the nearest that fits.
const fn timestamp(time: WallTime) -> Timestamp {
    let (seconds, nanoseconds) = time.parts();
    if seconds < 0 {
        return Timestamp {
            seconds: 0,
            nanoseconds: 0,
        };
    }
    #[expect(clippy::cast_possible_truncation, reason = "compared before")]
    let seconds = if seconds > u32::MAX as i64 {
        u32::MAX
    } else {
        seconds as u32
    };
    Timestamp {
        seconds,
        nanoseconds,
    }
}

/// A client's time.
///
/// # Errors
/// [`Status::Inval`] for a second of nanoseconds and more.
pub(crate) fn wall_time(time: Timestamp) -> Result<WallTime, Status> {
    if time.nanoseconds >= NANOS_PER_SECOND {
        return Err(Status::Inval);
    }
    Ok(WallTime::from_parts(
        i64::from(time.seconds),
        time.nanoseconds,
    ))
}

/// What a client wants to have changed.
///
/// # Errors
/// [`Status::FBig`], [`Status::Inval`] for values that no file can have.
pub(crate) fn changes(wanted: &SetAttributes) -> Result<AttributeChanges, Status> {
    const MODE_BITS: u32 = 0o7777;
    if wanted
        .size_bytes
        .is_some_and(|size| size > crossdock_limits::FILE_BYTES_MAX)
    {
        return Err(Status::FBig);
    }
    Ok(AttributeChanges {
        mode: wanted.mode.map(|mode| mode & MODE_BITS),
        uid: wanted.uid,
        gid: wanted.gid,
        size_bytes: wanted.size_bytes,
        accessed: time_change(wanted.accessed)?,
        modified: time_change(wanted.modified)?,
    })
}

fn time_change(time: SetTime) -> Result<TimeChange, Status> {
    Ok(match time {
        SetTime::Keep => TimeChange::Keep,
        SetTime::ServerTime => TimeChange::Now,
        SetTime::ClientTime(time) => TimeChange::To(wall_time(time)?),
    })
}

pub(crate) const fn device(number: nfs3::DeviceNumber) -> Device {
    Device {
        major: number.major,
        minor: number.minor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: times that NFS cannot carry become the nearest that it can.
    #[test]
    fn times_are_clamped_to_32_bits() {
        let shown = |time| {
            let stamp = timestamp(time);
            (stamp.seconds, stamp.nanoseconds)
        };
        assert_eq!(shown(WallTime(-1)), (0, 0));
        assert_eq!(shown(WallTime(1_500_000_001)), (1, 500_000_001));
        assert_eq!(shown(WallTime::from_parts(1 << 32, 7)), (u32::MAX, 7));
    }
}
