//! Whose turn it is: tasks begin, and copies go on, as far as units and memory have room.

use crossdock_types::Time;

use crate::door::IscsiDoor;
use crate::task::TaskId;
use crate::unit::Unit;

impl IscsiDoor {
    /// Runs the tasks whose turn it is, as far as there is room for what they read.
    pub(crate) fn pump(&mut self, now: Time) {
        if self.is_pumping {
            self.is_pumped_again = true;
            return; // Who has begun goes on with it.
        }
        self.is_pumping = true;
        self.pump_units(now);
        // A copy may have left one unit for another.
        while std::mem::take(&mut self.is_pumped_again) {
            self.pump_units(now);
        }
        self.is_pumping = false;
        self.settle(now);
    }

    /// Answers those that wait for tasks to be over.
    pub(crate) fn settle(&mut self, now: Time) {
        if !self.managements.is_empty() {
            self.settle_managements(now);
        }
        if !self.fences.is_empty() {
            self.settle_fences(now);
        }
        if !self.obediences.is_empty() {
            self.settle_obediences();
        }
    }

    fn pump_units(&mut self, now: Time) {
        let mut next = self.units.keys().next().copied();
        while let Some(number) = next {
            while let Some(task) = self.units.get_mut(&number).and_then(Unit::next_step) {
                self.take_step(now, task);
            }
            while let Some(task) = self.next_task(number) {
                self.run(now, task);
            }
            next = number
                .checked_add(1)
                .and_then(|behind| self.units.range(behind..).next())
                .map(|(&number, _)| number);
        }
    }

    fn next_task(&mut self, number: u64) -> Option<TaskId> {
        let limits = self.config.limits;
        let (tasks, connections, held) = (&self.tasks, &self.connections, self.held_bytes);
        let unit = self.units.get_mut(&number)?;
        let may_run = |id: TaskId| {
            let Some(task) = tasks.get(&id) else {
                return true;
            };
            let connection = connections.get(&task.asked.connection);
            let unsent = connection.map_or(0, |connection| connection.unsent_bytes);
            let read_bytes = usize::try_from(task.planned.read_bytes()).unwrap_or(usize::MAX);
            let has_room = held.saturating_add(read_bytes) <= limits.held_bytes_max || held == 0;
            read_bytes == 0 || (has_room && unsent <= limits.unsent_bytes_max)
        };
        let id = unit.next(may_run)?;
        if let Some(task) = self.tasks.get_mut(&id) {
            let read_bytes = usize::try_from(task.planned.read_bytes()).unwrap_or_default();
            task.held_bytes += read_bytes;
            self.held_bytes += read_bytes;
        }
        Some(id)
    }
}
