//! What bytes of a file are at this moment, for those who write only if they are as expected.

use bytes::Bytes;
use crossdock_names::FileId;

use crate::machine::block_range;
use crate::overlay::end_of;
use crate::read::checked_range;
use crate::write::Job;
use crate::{BackingRead, Fetched, ReadTicket, Sequence, SmallFileError, SmallFiles};

/// How bytes compare with what somebody expects.
#[derive(Clone, Debug)]
pub enum Comparison {
    /// They are the same. A change that is [planned](SmallFiles::plan_write) and accepted in the
    /// same step has nothing before it that was not seen.
    Equal,
    /// They are not.
    Differs {
        /// The first byte of the range that is another one.
        at_bytes: u64,
        /// See [`ReadPlan::after`](crate::ReadPlan::after).
        after: Option<Sequence>,
    },
    /// Read these whole fragments, [add](Fetched::add) them, compare again with them, then give
    /// the ticket back.
    Fetch {
        /// What to read.
        reads: Vec<BackingRead>,
        /// Holds the fragments meanwhile.
        ticket: ReadTicket,
    },
    /// A change of the file is under way that may become void: compare again when it is
    /// [written](SmallFiles::written) or [void](SmallFiles::plan_void).
    Wait(Sequence),
}

impl SmallFiles {
    /// Compares bytes of a file, those in memory included, with `expected`, which is not empty.
    /// Beyond the file's end there are zeros.
    ///
    /// # Errors
    /// [`SmallFileError::BeyondThreshold`].
    pub fn compare(
        &mut self,
        file: FileId,
        offset_bytes: u64,
        expected: &Bytes,
        fetched: &Fetched,
    ) -> Result<Comparison, SmallFileError> {
        let serial = file.serial();
        let (start, end) = checked_range(offset_bytes, expected.len() as u64)?;
        if let Some(&busy) = self.busy.get(&serial) {
            return Ok(Comparison::Wait(Sequence(busy)));
        }
        let mut job = Job::over(serial, Vec::new());
        job.touch(start, end);
        let contents = match self.contents(&[job], fetched) {
            Ok(mut contents) => contents.remove(&serial).unwrap_or_default(),
            Err(reads) => {
                let ticket = self.begin_read();
                return Ok(Comparison::Fetch { reads, ticket });
            }
        };
        let blocks = contents
            .into_iter()
            .map(|(index, bytes)| (block_range(index).0, bytes));
        let mut found = vec![0; expected.len()];
        for (at, bytes) in blocks.chain(self.unstable.within(serial, start, end)) {
            let (from, to) = (at.max(start), end_of(at, &bytes).min(end));
            if from < to {
                let source = &bytes[(from - at) as usize..(to - at) as usize];
                found[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
            }
        }
        let mut pairs = found.iter().zip(expected.iter());
        Ok(
            match pairs.position(|(found, expected)| found != expected) {
                None => Comparison::Equal,
                Some(at) => Comparison::Differs {
                    at_bytes: at as u64,
                    after: self.unsettled(serial),
                },
            },
        )
    }
}
