//! What the door counts.

/// What has happened at the door since it was made, and how it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IscsiFigures {
    /// Commands that read, that write, others.
    pub commands_total: [u64; 3],
    /// Commands answered with GOOD, CHECK CONDITION, RESERVATION CONFLICT, BUSY or TASK SET
    /// FULL.
    pub responses_total: [u64; 4],
    /// Bytes of LUNs that were given to connections.
    pub sent_bytes: u64,
    /// Bytes that came with commands.
    pub received_bytes: u64,
    /// Bytes that copies have written: those that nodes gave to each other, and those that went
    /// through this gateway.
    pub copied_bytes: [u64; 2],
    /// Commands that task management or the end of a session has aborted.
    pub aborted_total: u64,
    /// Of these, reads that were withdrawn.
    pub withdrawn_total: u64,
    /// Logins that were refused.
    pub refused_logins_total: u64,
    /// PDUs that were refused, or ended their connection.
    pub rejected_total: u64,
    /// Connections there are.
    pub connections: usize,
    /// Sessions there are.
    pub sessions: usize,
    /// Commands in progress.
    pub tasks: usize,
    /// Bytes that they hold.
    pub held_bytes: usize,
}

impl IscsiFigures {
    pub(crate) fn response(&mut self, status: &crossdock_scsi::Status) {
        use crossdock_scsi::Status;
        let at = match status {
            Status::Good => 0,
            Status::CheckCondition => 1,
            Status::ReservationConflict => 2,
            Status::Busy | Status::TaskSetFull | Status::TaskAborted => 3,
        };
        self.responses_total[at] += 1;
    }
}
