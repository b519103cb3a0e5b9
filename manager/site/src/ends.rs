//! Files whose writer is gone with what it knew: how far they go their columns tell
//! (CONSISTENCY 5, docs/decisions/0027).
//!
//! Before anything is shown of such a file, or done with it, the columns are asked for
//! their ends; the file goes as far as the furthest. Then they are cut there under a new
//! truncate generation, so that nothing lands any more that is still on its way.

use std::collections::BTreeMap;

use crossdock_directory::Cell;
use crossdock_names::{FileId, ObjectId, SEGMENT_BYTES};
use crossdock_peer::{Caller, NodeAnswer, NodeError, NodeRequest};
use crossdock_types::{Time, WallTime};

use crate::calls::{Answered, Target};
use crate::commit::Draft;
use crate::intentions::Kind;
use crate::site::{Purpose, Site};

/// Files whose columns are being asked, by their serials.
pub(crate) type Asking = BTreeMap<u64, Ends>;

/// What the columns of a file have said.
#[derive(Debug)]
pub(crate) struct Ends {
    outstanding: usize,
    end_bytes: u64,
}

impl Site {
    /// Begins to find out how far a file goes whose writer is gone, unless that is under
    /// way; whether it has to be waited for.
    pub(crate) fn ask_ends(&mut self, now: Time, file: FileId) -> bool {
        let serial = file.serial();
        let cell = self.state.directory.cell_of(serial).cloned();
        let Some(cell) = cell.filter(|cell| cell.rare().segments > 0) else {
            self.leases.settled(serial); // Nothing can have been written.
            return false;
        };
        if self.asking.contains_key(&serial) || self.state.intentions.is_busy(file) {
            return true;
        }
        let rare = cell.rare();
        let first = u32::try_from(cell.size_bytes / SEGMENT_BYTES).unwrap_or(u32::MAX);
        let segments = first.min(rare.segments - 1)..rare.segments;
        let columns =
            segments.flat_map(|segment| (0..rare.columns).map(move |column| (segment, column)));
        let columns: Vec<(u32, u16)> = columns.collect();
        let ends = Ends {
            outstanding: columns.len(),
            end_bytes: 0,
        };
        self.asking.insert(serial, ends);
        for (segment, column) in columns {
            let object = ObjectId::column(file, cell.generation, segment, column);
            let purpose = Purpose::End {
                file,
                segment,
                column,
            };
            let request = NodeRequest::Stat { object };
            self.send(now, Target::Primary, request, purpose);
        }
        true
    }

    /// A column has said where it ends.
    pub(crate) fn end_answered(
        &mut self,
        now: Time,
        wall: WallTime,
        (file, segment, column): (FileId, u32, u16),
        answered: Answered<Purpose>,
    ) {
        let serial = file.serial();
        let column_end = match &answered.outcome {
            Ok(NodeAnswer::Stat(stat)) => stat.size_bytes,
            Err(NodeError::NoObject) => 0,
            _ => return self.calls.send_again(now, Target::Primary, answered),
        };
        let cell = self.state.directory.cell_of(serial);
        let (layout, columns) = cell.map_or_else(Default::default, |cell| {
            (cell.rare().layout, cell.rare().columns)
        });
        let Some(ends) = self.asking.get_mut(&serial) else {
            return;
        };
        let end = layout.file_end(column_end, segment, column, columns);
        ends.end_bytes = ends.end_bytes.max(end);
        ends.outstanding -= 1;
        if ends.outstanding > 0 {
            return;
        }
        let end_bytes = ends.end_bytes;
        self.asking.remove(&serial);
        self.leases.settled(serial);
        match self.state.directory.cell_of(serial).cloned() {
            Some(cell) => self.settle_end(now, wall, &cell, end_bytes),
            None => self.unblock(&[file]),
        }
    }

    /// The file goes as far as its columns; what comes late does not change that.
    fn settle_end(&mut self, now: Time, wall: WallTime, cell: &Cell, end_bytes: u64) {
        let mut cell = match end_bytes > cell.size_bytes {
            true => cell.written(&Caller::root(), end_bytes, wall),
            false => cell.clone(),
        };
        let generation = cell.rare().truncate_generation + 1;
        let truncate_generation = generation.max(self.generation_base());
        cell.change_rare(|rare| rare.truncate_generation = truncate_generation);
        let kind = Kind::Truncate {
            size_bytes: cell.size_bytes,
            truncate_generation,
            layout: cell.rare().layout,
        };
        let draft = Draft {
            declare: self.intention_for(&cell, kind).into_iter().collect(),
            mutations: vec![crossdock_directory::Mutation::PutCell(cell)],
            ..Draft::default()
        };
        self.commit(now, wall, draft);
    }
}
