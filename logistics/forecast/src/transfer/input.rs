//! What the scheduler is told, and tells.

use std::time::Duration;

/// A depot, by its number in the list that the scheduler was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DepotId(pub usize);

/// A piece; pieces are started in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PieceId(pub u64);

/// One attempt to move a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(pub u64);

/// How transfers are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Connections at a time, at most.
    pub threads: usize,
    /// Bytes of pieces that are under way or wait for delivery, at most; the first of all that
    /// are missing may come on top.
    pub memory_bytes: u64,
    /// How long a connection may be without a byte before another source is taken.
    pub stall: Duration,
    /// How long a depot may be away before what only it has is lost.
    pub away: Duration,
    /// Whether idle threads fetch again what is slow.
    pub fetches_again: bool,
    /// Whether pieces are delivered in the order of their numbers, as of a stream. Else what only
    /// slow depots have may come first.
    pub in_order: bool,
}

/// What is known of a depot before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Depot {
    /// What a connection is forecast to carry, in bytes per second.
    pub rate: Option<f64>,
    /// Connections that it may be asked for at a time, at most; more are never tried.
    pub connections_max: usize,
    /// Whether it takes a request on a connection on which it still sends what was asked for
    /// before.
    pub reads_ahead: bool,
}

/// Bytes that are moved at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its place in the order.
    pub id: PieceId,
    /// How many bytes are moved, coding included.
    pub bytes: u64,
    /// Where they may come from or go to, best first; a depot may be there more than once.
    pub sources: Vec<DepotId>,
    /// Pieces with the same number are copies: each goes to another depot.
    pub spread: Option<u64>,
}

/// Why a task has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The depot serves no more connections now.
    Busy,
    /// No connection, or it broke; it may go better later.
    Broken,
    /// The depot does not have it (any more), or not what it should be, or does not take it.
    Missing,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// There is one more piece.
    Add(Piece),
    /// A task has moved so many bytes in all.
    Progress {
        /// Which.
        task: TaskId,
        /// So far.
        bytes: u64,
    },
    /// A task has moved its piece, and what came is right.
    Done {
        /// Which.
        task: TaskId,
    },
    /// A task has ended without.
    Failed {
        /// Which.
        task: TaskId,
        /// Why.
        failure: Failure,
    },
    /// The memory of a piece is free.
    Released {
        /// Which.
        piece: PieceId,
    },
    /// Time has passed.
    Timeout,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Begin to move a piece.
    Start {
        /// Who tells of it.
        task: TaskId,
        /// Which.
        piece: PieceId,
        /// From where, or to where: number in the piece's sources.
        source: usize,
        /// The task, of the same depot, on whose connection it is to be asked for now: its bytes
        /// come behind those of that task.
        behind: Option<TaskId>,
    },
    /// End a task; nothing more is told of it.
    Cancel {
        /// Which.
        task: TaskId,
    },
    /// A piece is there.
    Finished {
        /// Which.
        piece: PieceId,
        /// Who has brought it.
        task: TaskId,
    },
    /// No source has it.
    Lost {
        /// Which.
        piece: PieceId,
    },
}
