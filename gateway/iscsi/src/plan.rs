//! What a command needs: how many bytes it brings, which of the unit's it is about, and
//! whether it makes sense at all.

use std::ops::Range;

use crossdock_limits::{EXCHANGE_BYTES_MAX, ISCSI_TRANSFER_BYTES_MAX, MAPPED_BYTES_MAX};
use crossdock_peer::Lun;
use crossdock_scsi::{
    Access, AdditionalSense, BlockRange, ByteCheck, COPY_LIST_BYTES_MAX, Command, ModeForm,
    ReserveOutAction, Sense, SenseKey, TOKEN_LIST_BYTES_MAX,
};

use crate::copying::STRETCH_BYTES;

/// Bytes of WRITE SAME: written as zeros, or as what the block is.
pub(crate) const SAME_BYTES_MAX: u64 = 16 << 20;

/// Bytes of one UNMAP, and its descriptors: 2^20 of the smallest blocks, more than which libiscsi's
/// tests take for a mistake.
pub(crate) const UNMAP_BYTES_MAX: u64 = 512 << 20;
/// See above.
pub(crate) const UNMAP_DESCRIPTORS_MAX: u32 = 256;

/// Bytes of a list that a command brings.
const LIST_BYTES_MAX: u32 = 8192;

/// What is done once all data is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Read,
    Write,
    WriteVerify(ByteCheck),
    Verify(ByteCheck),
    OrWrite,
    CompareAndWrite,
    /// The same block everywhere; a block of zeros may become a hole.
    WriteSame {
        is_unmap: bool,
    },
    /// Zeros are written.
    Zero,
    /// Blocks become zeros, and give their space back.
    Free(Vec<Range<u64>>),
    Unmap,
    /// Which of the first blocks of the range have space is told.
    LbaStatus {
        allocation: u32,
    },
    PreFetch,
    Synchronize {
        is_immediate: bool,
    },
    /// Segments are copied, from units to units.
    ExtendedCopy,
    /// A token is made of blocks.
    PopulateToken {
        list_id: u32,
    },
    /// What a token stands for is copied here.
    WriteUsingToken {
        list_id: u32,
    },
    /// A copy of the session's is aborted.
    AbortCopy {
        list_id: u32,
    },
    ModeSelect(ModeForm),
    ReserveOut {
        action: ReserveOutAction,
        scope: u8,
        kind: u8,
    },
}

/// A command that is to be carried out.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// Bytes of the unit.
    pub(crate) range: Range<u64>,
    /// Bytes that the command brings.
    pub(crate) out_bytes: u64,
    /// It is answered when it is durable.
    pub(crate) is_forced: bool,
}

impl Planned {
    const fn of(plan: Plan, range: Range<u64>, out_bytes: u64) -> Self {
        Self {
            plan,
            range,
            out_bytes,
            is_forced: false,
        }
    }

    const fn forced(mut self, access: Access) -> Self {
        self.is_forced = access.is_forced;
        self
    }

    /// Bytes that are read for it, as far as they are in memory at the same time.
    pub(crate) const fn read_bytes(&self) -> u64 {
        match self.plan {
            Plan::ExtendedCopy | Plan::WriteUsingToken { .. } => STRETCH_BYTES,
            Plan::Read | Plan::Verify(_) | Plan::WriteVerify(_) | Plan::OrWrite => {
                self.range.end - self.range.start
            }
            _ => 0,
        }
    }

    /// Whether bytes of the unit may be others behind it; a copy judges its units itself.
    pub(crate) const fn is_change(&self) -> bool {
        !matches!(
            self.plan,
            Plan::Read
                | Plan::Verify(_)
                | Plan::PreFetch
                | Plan::LbaStatus { .. }
                | Plan::Synchronize { .. }
                | Plan::ExtendedCopy
                | Plan::PopulateToken { .. }
                | Plan::WriteUsingToken { .. }
                | Plan::AbortCopy { .. }
                | Plan::ModeSelect(_)
                | Plan::ReserveOut { .. }
        )
    }

    /// Whether it has to have all the bytes that it asks for: of others what is there is
    /// written.
    pub(crate) const fn takes_all(&self) -> bool {
        !matches!(self.plan, Plan::Write | Plan::WriteVerify(_))
    }
}

/// Plans a command of a unit's blocks, or one that brings a list; `None`: it is another one.
pub(crate) fn plan(lun: &Lun, command: &Command) -> Result<Option<Planned>, Sense> {
    let of = |plan, blocks, out_bytes| Ok(Some(Planned::of(plan, blocks, out_bytes)));
    match *command {
        Command::Read(blocks, access) => {
            let range = transfer(lun, blocks)?;
            Ok(Some(Planned::of(Plan::Read, range, 0).forced(access)))
        }
        Command::Write(blocks, access) => {
            let range = transfer(lun, blocks)?;
            let bytes = range.end - range.start;
            Ok(Some(Planned::of(Plan::Write, range, bytes).forced(access)))
        }
        Command::WriteVerify(_, ByteCheck::OneBlock) => Err(Sense::invalid_field(1, Some(2))),
        Command::WriteVerify(blocks, check) => {
            let range = transfer(lun, blocks)?;
            let bytes = range.end - range.start;
            let mut planned = Planned::of(Plan::WriteVerify(check), range, bytes);
            planned.is_forced = true; // What is verified is what the medium has.
            Ok(Some(planned))
        }
        Command::Verify(blocks, check) => {
            let range = transfer(lun, blocks)?;
            let out_bytes = match check {
                ByteCheck::Medium => 0,
                ByteCheck::Blocks => range.end - range.start,
                ByteCheck::OneBlock => lun.block_bytes.into(),
            };
            of(Plan::Verify(check), range, out_bytes)
        }
        Command::OrWrite(blocks, access) => {
            let range = transfer(lun, blocks)?;
            let bytes = range.end - range.start;
            Ok(Some(
                Planned::of(Plan::OrWrite, range, bytes).forced(access),
            ))
        }
        Command::CompareAndWrite(blocks, access) => {
            let range = bounded(lun, blocks, EXCHANGE_BYTES_MAX.into(), 13)?;
            let bytes = 2 * (range.end - range.start);
            let planned = Planned::of(Plan::CompareAndWrite, range, bytes);
            Ok(Some(planned.forced(access)))
        }
        Command::PreFetch { range: blocks, .. } => of(Plan::PreFetch, to_end(lun, blocks)?, 0),
        Command::SynchronizeCache {
            range: blocks,
            is_immediate,
        } => of(Plan::Synchronize { is_immediate }, to_end(lun, blocks)?, 0),
        Command::WriteSame {
            range: blocks,
            is_unmap,
            is_anchor,
            is_zero,
        } => write_same(lun, blocks, (is_unmap, is_anchor, is_zero)).map(Some),
        // All blocks of others have space.
        Command::GetLbaStatus { lba, allocation } if lun.is_thin => {
            let start = in_range(lun, BlockRange { lba, blocks: 1 })?.start;
            let end = (start / MAPPED_BYTES_MAX + 1) * MAPPED_BYTES_MAX;
            let range = start..end.min(lun.size_bytes);
            of(Plan::LbaStatus { allocation }, range, 0)
        }
        Command::Unmap { is_anchor, length } => {
            if is_anchor {
                return Err(Sense::invalid_field(1, Some(0)));
            }
            if !lun.is_thin {
                return Err(Sense::illegal(AdditionalSense::INVALID_OPCODE));
            }
            of(Plan::Unmap, 0..0, list(length, 7)?)
        }
        Command::ExtendedCopy { length } if length > COPY_LIST_BYTES_MAX => {
            Err(Sense::illegal(AdditionalSense::LIST_LENGTH))
        }
        Command::ExtendedCopy { length } => of(Plan::ExtendedCopy, 0..0, length.into()),
        Command::PopulateToken { length, .. } | Command::WriteUsingToken { length, .. }
            if length > TOKEN_LIST_BYTES_MAX =>
        {
            Err(Sense::illegal(AdditionalSense::LIST_LENGTH))
        }
        Command::PopulateToken { list_id, length } => {
            of(Plan::PopulateToken { list_id }, 0..0, length.into())
        }
        Command::WriteUsingToken { list_id, length } => {
            of(Plan::WriteUsingToken { list_id }, 0..0, length.into())
        }
        Command::AbortCopy { list_id } => of(Plan::AbortCopy { list_id }, 0..0, 0),
        Command::ModeSelect {
            form,
            is_standard,
            is_saved,
            length,
        } => {
            if !is_standard || is_saved {
                return Err(Sense::invalid_field(1, Some(if is_saved { 0 } else { 4 })));
            }
            of(Plan::ModeSelect(form), 0..0, list(length, 4)?)
        }
        Command::ReserveOut {
            action,
            scope,
            kind,
            length,
        } => {
            let plan = Plan::ReserveOut {
                action,
                scope,
                kind,
            };
            of(plan, 0..0, list(length, 5)?)
        }
        _ => Ok(None),
    }
}

fn list(length: u32, byte: u16) -> Result<u64, Sense> {
    match length <= LIST_BYTES_MAX {
        true => Ok(length.into()),
        false => Err(Sense::invalid_field(byte, None)),
    }
}

/// The bytes of blocks, if the unit has them.
pub(crate) fn in_range(lun: &Lun, blocks: BlockRange) -> Result<Range<u64>, Sense> {
    let block_bytes = u64::from(lun.block_bytes);
    let end = blocks
        .end()
        .filter(|end| *end <= lun.size_bytes / block_bytes);
    // A range without blocks has to begin where there is one.
    let is_beyond = blocks.lba >= lun.size_bytes / block_bytes;
    match end {
        Some(end) if !is_beyond => Ok(blocks.lba * block_bytes..end * block_bytes),
        _ => Err(Sense::illegal(AdditionalSense::OUT_OF_RANGE)),
    }
}

/// The same of a command with bounds of its own.
fn bounded(lun: &Lun, blocks: BlockRange, bytes_max: u64, byte: u16) -> Result<Range<u64>, Sense> {
    let range = in_range(lun, blocks)?;
    match range.end - range.start <= bytes_max {
        true => Ok(range),
        false => Err(Sense::invalid_field(byte, None)),
    }
}

fn transfer(lun: &Lun, blocks: BlockRange) -> Result<Range<u64>, Sense> {
    bounded(lun, blocks, ISCSI_TRANSFER_BYTES_MAX.into(), 2)
}

/// The same where no blocks stand for all up to the end.
fn to_end(lun: &Lun, blocks: BlockRange) -> Result<Range<u64>, Sense> {
    let range = in_range(lun, blocks)?;
    Ok(match blocks.blocks {
        0 => range.start..lun.size_bytes,
        _ => range,
    })
}

fn write_same(
    lun: &Lun,
    blocks: BlockRange,
    (is_unmap, is_anchor, is_zero): (bool, bool, bool),
) -> Result<Planned, Sense> {
    if is_anchor || (is_unmap && !lun.is_thin) {
        return Err(Sense::invalid_field(1, Some(if is_anchor { 4 } else { 3 })));
    }
    let range = in_range(lun, blocks)?;
    // WSNZ: no blocks do not stand for all of them.
    if range.is_empty() || range.end - range.start > SAME_BYTES_MAX {
        return Err(Sense::invalid_field(7, None));
    }
    Ok(match (is_zero, is_unmap) {
        (true, true) => Planned::of(Plan::Free(vec![range.clone()]), range, 0),
        (true, false) => Planned::of(Plan::Zero, range, 0),
        (false, _) => Planned::of(Plan::WriteSame { is_unmap }, range, lun.block_bytes.into()),
    })
}

/// What a unit without a place for writing says.
pub(crate) const fn write_protected(is_software: bool) -> Sense {
    let additional = match is_software {
        true => AdditionalSense::SOFTWARE_WRITE_PROTECTED,
        false => AdditionalSense::WRITE_PROTECTED,
    };
    Sense::new(SenseKey::DataProtect, additional)
}

#[cfg(test)]
mod tests {
    use crossdock_names::{FileId, FileRef};
    use crossdock_peer::{LunAccess, Reservations};

    use super::*;

    fn lun() -> Lun {
        Lun {
            id: 1,
            name: "a".to_owned(),
            file: FileRef {
                id: FileId(1),
                generation: 1,
            },
            size_bytes: 64 << 20,
            block_bytes: 512,
            is_thin: true,
            is_removable: false,
            has_write_cache: true,
            access: LunAccess::local(),
            reservations: Reservations::default(),
        }
    }

    const LAST: u64 = (64 << 20) / 512 - 1;

    fn blocks(lba: u64, blocks: u32) -> BlockRange {
        BlockRange { lba, blocks }
    }

    /// Goal: blocks that are not there are told from those that are too many, in every kind
    /// of command.
    #[test]
    fn ranges_are_checked() {
        let beyond = Sense::illegal(AdditionalSense::OUT_OF_RANGE);
        let access = Access::default();
        for wrong in [blocks(LAST, 2), blocks(LAST + 1, 0), blocks(u64::MAX, 1)] {
            for command in [
                Command::Read(wrong, access),
                Command::CompareAndWrite(wrong, access),
                Command::PreFetch {
                    range: wrong,
                    is_immediate: false,
                },
            ] {
                assert_eq!(plan(&lun(), &command).unwrap_err(), beyond, "{command:?}");
            }
        }
        let much = Command::Write(blocks(0, 8193), access);
        assert_eq!(
            plan(&lun(), &much).unwrap_err(),
            Sense::invalid_field(2, None)
        );
        let all = Command::Write(blocks(LAST, 1), access);
        let planned = plan(&lun(), &all).expect("a plan").expect("of blocks");
        assert_eq!(planned.range, (64 << 20) - 512..64 << 20);
        assert_eq!((planned.out_bytes, planned.is_change()), (512, true));
    }

    /// Goal: what only thin units have is not there of others.
    #[test]
    fn only_thin_units_are_unmapped() {
        let same = |is_unmap| Command::WriteSame {
            range: blocks(0, 8),
            is_unmap,
            is_anchor: false,
            is_zero: true,
        };
        let unmap = Command::Unmap {
            is_anchor: false,
            length: 24,
        };
        let thick = Lun {
            is_thin: false,
            ..lun()
        };
        assert!(plan(&lun(), &same(true)).is_ok() && plan(&lun(), &unmap).is_ok());
        assert!(plan(&thick, &same(true)).is_err() && plan(&thick, &unmap).is_err());
        assert!(plan(&thick, &same(false)).is_ok());
    }
}
