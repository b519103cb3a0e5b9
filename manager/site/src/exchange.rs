//! COMPARE AND WRITE below the threshold (docs/decisions/0049): bytes are compared and the write is
//! planned and logged in one step of the site, so nothing comes between. The record is that of a
//! write, and remembers the reply: a request that is sent again is not compared again.

use crossdock_directory::{Mutation, Wanted};
use crossdock_limits::EXCHANGE_BYTES_MAX;
use crossdock_peer::{Call, SiteAnswer, SiteError, SiteOperation, SiteRequest, Stability};
use crossdock_smallfile::{Comparison, Fetched, Plan, Sequence, Write};
use crossdock_types::{Time, WallTime};

use crate::commit::{After, Draft};
use crate::site::Site;
use crate::small::{Job, refusal};

/// What comes next for an exchange.
enum Next {
    /// The bytes are others.
    Differs(u64, Option<Sequence>),
    /// They are as expected: they are to be written, or the write needs something first.
    Write(Plan),
}

impl Site {
    /// Exchanges bytes, with what was fetched for it so far. Whatever has to be fetched or waited
    /// for first, it begins anew behind it.
    pub(crate) fn exchange_small(
        &mut self,
        now: Time,
        wall: WallTime,
        call: Call<SiteRequest>,
        fetched: &Fetched,
    ) {
        // An earlier sending may have been carried out since this one came.
        if self.answer_duplicate(wall, &call) {
            return;
        }
        let operation = &call.request.operation;
        let shape = self.shape(operation, None, true);
        let unchanged = self.shape(operation, None, false);
        let change = match self.plan_exchange(&call, fetched) {
            Err(error) => {
                if error == SiteError::Busy {
                    self.mark_small(now, wall); // Freed space may be all it takes.
                }
                return self.reply_content(&call, &unchanged, Err(error), After::default());
            }
            Ok(Next::Differs(at_bytes, after)) => {
                let answer = Ok(SiteAnswer::Differs { at_bytes });
                if let Some(key) = call.request.duplicate {
                    let directory = &self.state.directory;
                    let reply = unchanged.reply_with(call.id, directory, answer.clone());
                    self.refusals.note(wall, key, &reply);
                }
                let after = After::default().and_sequence(after);
                return self.reply_content(&call, &unchanged, answer, after);
            }
            Ok(Next::Write(Plan::Fetch { reads, ticket })) => {
                let job = Job::Change(call, fetched.clone());
                return self.start_reads(now, wall, job, reads, Some(ticket));
            }
            Ok(Next::Write(Plan::Wait(sequence))) => return self.park(sequence, call),
            // A stable write of some bytes has a record.
            Ok(Next::Write(Plan::Done { .. })) => return self.refuse(call.id, SiteError::Io),
            Ok(Next::Write(Plan::Change(change))) => change,
        };
        let SiteOperation::Exchange {
            file,
            offset_bytes,
            payload,
        } = &call.request.operation
        else {
            return;
        };
        let end = offset_bytes + payload.len() as u64 / 2;
        let cell = self.state.directory.cell(*file).ok();
        let cell = cell.map(|cell| cell.written(&call.request.caller, end, wall));
        let draft = Draft {
            mutations: cell.map(Mutation::PutCell).into_iter().collect(),
            small: Some(change),
            duplicate: call.request.duplicate.map(|key| (key, shape)),
            ..Draft::default()
        };
        let after = self.commit(now, wall, draft);
        self.reply_content(&call, &shape, Ok(SiteAnswer::Done), after);
    }

    fn plan_exchange(
        &mut self,
        call: &Call<SiteRequest>,
        fetched: &Fetched,
    ) -> Result<Next, SiteError> {
        let SiteOperation::Exchange {
            file,
            offset_bytes,
            payload,
        } = &call.request.operation
        else {
            return Err(SiteError::Invalid);
        };
        let length = payload.len() / 2;
        let is_too_long = length > EXCHANGE_BYTES_MAX as usize;
        if length == 0 || is_too_long || !payload.len().is_multiple_of(2) {
            return Err(SiteError::Invalid);
        }
        let cell = self.state.directory.cell(*file)?;
        cell.check_io(&call.request.caller, Wanted::Write)?;
        let end = offset_bytes.saturating_add(length as u64);
        self.state.directory.check_growth(cell, end)?;
        let expected = payload.slice(0, length).to_bytes();
        let small = &mut self.state.small;
        let compared = small.compare(file.id, *offset_bytes, &expected, fetched);
        match compared.map_err(|error| refusal(&error))? {
            Comparison::Equal => {}
            Comparison::Differs { at_bytes, after } => return Ok(Next::Differs(at_bytes, after)),
            Comparison::Fetch { reads, ticket } => {
                return Ok(Next::Write(Plan::Fetch { reads, ticket }));
            }
            Comparison::Wait(sequence) => return Ok(Next::Write(Plan::Wait(sequence))),
        }
        let write = Write {
            file: file.id,
            offset_bytes: *offset_bytes,
            payload: payload.slice(length, 2 * length),
            stability: Stability::Stable,
            version: self.next_version(),
        };
        let planned = self.state.small.plan_write(&write, fetched);
        planned.map(Next::Write).map_err(|error| refusal(&error))
    }
}
