//! Data of writes that is received where a disk takes it: blocks of the unit are blocks in
//! memory, and nothing is copied.

use crossdock_iscsi_pdu::Request;
use crossdock_scsi::parse_cdb;
use crossdock_types::{FILL_BYTES_MIN, Fill, beside_block};

use crate::door::IscsiDoor;
use crate::message::{ConnId, IscsiEffect};
use crate::plan::plan;

impl IscsiDoor {
    /// All that has arrived is served: if it ends within the data of a write, the rest of that
    /// comes in one piece. It is no longer than the data of a PDU may be.
    pub(crate) fn begin_fill(&mut self, id: ConnId) {
        let connection = self.connections.get(&id);
        let missing_bytes = connection.map_or(0, |connection| connection.reader.missing_bytes());
        if missing_bytes < FILL_BYTES_MIN {
            return;
        }
        let place = self.place_of_data(id);
        let (Some(place), Some(connection)) = (place, self.connections.get_mut(&id)) else {
            return;
        };
        let fill = Fill {
            head: connection.reader.lend(),
            lead_bytes: beside_block(place),
            missing_bytes,
        };
        connection.filling_bytes = fill.whole_bytes();
        self.effects.push_back(IscsiEffect::Fill(id, fill));
    }

    /// Where in the unit's file the data belongs whose PDU has begun. If it turns out to be
    /// nobody's, nothing is lost but a place in memory.
    fn place_of_data(&self, id: ConnId) -> Option<u64> {
        let session = self.session_of(id)?;
        match Request::decode(self.connections.get(&id)?.reader.begun()?)? {
            Request::Data(data) => {
                let task = session.tasks.get(&data.task_tag.get())?;
                let start = self.tasks.get(task)?.planned.range.start;
                Some(start.wrapping_add(data.offset.get().into()))
            }
            Request::Command(command) => {
                let unit = self.units.get(&session.unit?)?;
                let command = parse_cdb(&command.cdb).ok()?;
                Some(plan(&unit.lun, &command).ok()??.range.start)
            }
            _ => None,
        }
    }
}
