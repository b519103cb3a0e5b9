//! Depots as they may be, a client's line, and a clock: the machine's tasks are carried out in
//! steps of 10 ms. A connection takes a round trip to open, and carries what TCP lets it: ten
//! segments in the first round trip, and twice as much in each one that follows.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_types::Time;

use super::super::{
    Depot, DepotId, Effect, Failure, Input, Piece, PieceId, Settings, TaskId, Transfer,
};

const STEP: Duration = Duration::from_millis(10);

/// Bytes that a new connection carries in its first round trip (RFC 6928).
const INITIAL_WINDOW: f64 = 14_480.0;

/// A connection that was idle for so long begins again (RFC 5681, 4.1).
const IDLE: Duration = Duration::from_millis(300);

/// How a depot behaves.
#[derive(Clone, Debug)]
pub(super) struct Behaviour {
    /// Bytes per second of one connection, and of all.
    pub(super) connection: f64,
    pub(super) line: f64,
    /// Bytes that go over a connection before its rate is kept.
    pub(super) burst: f64,
    /// Connections that it serves.
    pub(super) serves: usize,
    /// Whether more are refused; else they get nothing until there is room.
    pub(super) refuses: bool,
    /// From when on it is slower, and by which factor; at 0.0 it is dead.
    pub(super) changes: Option<(f64, f64)>,
    /// What is forecast of it.
    pub(super) forecast: Option<f64>,
    /// How long a request takes until its bytes begin to come, in seconds; over a new connection
    /// it takes twice as long.
    pub(super) round_trip: f64,
    /// Whether it takes requests ahead.
    pub(super) reads_ahead: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            connection: 1e6,
            line: 1e9,
            burst: 0.0,
            serves: 100,
            refuses: true,
            changes: None,
            forecast: None,
            round_trip: 0.0,
            reads_ahead: false,
        }
    }
}

/// What is under way.
#[derive(Clone, Copy, Debug)]
struct Moving {
    piece: PieceId,
    depot: DepotId,
    done: f64,
    asked: Time,
    behind: Option<TaskId>,
    connection: Connection,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    /// Round trips that its first byte takes.
    trips: f64,
    /// Bytes that it carries in a round trip.
    window: f64,
    /// Bytes that it has carried.
    carried: f64,
    used: Time,
}

impl Connection {
    fn new(now: Time) -> Self {
        Self {
            trips: 2.0,
            window: INITIAL_WINDOW,
            carried: 0.0,
            used: now,
        }
    }
}

pub(super) struct World {
    pub(super) depots: Vec<Behaviour>,
    /// Bytes per second of the client's line.
    pub(super) client: f64,
    pub(super) machine: Transfer,
    pub(super) sources: BTreeMap<PieceId, Vec<DepotId>>,
    pub(super) bytes: BTreeMap<PieceId, u64>,
    tasks: BTreeMap<TaskId, Moving>,
    /// Connections to each depot that nothing is asked for on.
    idle: Vec<Vec<Connection>>,
    pub(super) now: Time,
    pub(super) finished: Vec<(PieceId, DepotId)>,
    pub(super) lost: Vec<PieceId>,
    pub(super) memory_max: u64,
    pub(super) most: Vec<usize>,
}

impl World {
    pub(super) fn new(depots: Vec<Behaviour>, settings: Settings, connections_max: usize) -> Self {
        let known = depots.iter().map(|depot| Depot {
            rate: depot.forecast,
            connections_max,
            reads_ahead: depot.reads_ahead,
        });
        let known: Vec<Depot> = known.collect();
        Self {
            most: vec![0; depots.len()],
            idle: vec![Vec::new(); depots.len()],
            machine: Transfer::new(settings, &known),
            depots,
            client: f64::INFINITY,
            sources: BTreeMap::new(),
            bytes: BTreeMap::new(),
            tasks: BTreeMap::new(),
            now: Time::from_secs(1),
            finished: Vec::new(),
            lost: Vec::new(),
            memory_max: 0,
        }
    }

    pub(super) fn add(&mut self, number: u64, bytes: u64, sources: &[usize], spread: Option<u64>) {
        let id = PieceId(number);
        let sources: Vec<DepotId> = sources.iter().map(|&depot| DepotId(depot)).collect();
        self.sources.insert(id, sources.clone());
        self.bytes.insert(id, bytes);
        let piece = Piece {
            id,
            bytes,
            sources,
            spread,
        };
        self.tell(Input::Add(piece));
    }

    fn factor(&self, depot: DepotId) -> f64 {
        let since = (self.now - Time::from_secs(1)).as_secs_f64();
        match self.depots[depot.0].changes {
            Some((at, factor)) if since >= at => factor,
            _ => 1.0,
        }
    }

    /// Connections to a depot.
    fn of_depot(&self, depot: DepotId) -> usize {
        let has_turn = |task: &&Moving| task.depot == depot && !self.waits_behind(task);
        self.tasks.values().filter(has_turn).count()
    }

    /// Whether the bytes of another one come first on its connection.
    fn waits_behind(&self, task: &Moving) -> bool {
        task.behind.is_some_and(|it| self.tasks.contains_key(&it))
    }

    /// Bytes per second that a task gets, for the depot's and its connection's sake.
    fn rate(&self, id: TaskId) -> f64 {
        let task = &self.tasks[&id];
        let behaviour = &self.depots[task.depot.0];
        let trips = behaviour.round_trip * task.connection.trips;
        let on_its_way = (self.now - task.asked).as_secs_f64() < trips;
        if on_its_way || self.waits_behind(task) || self.is_beyond(id) {
            return 0.0;
        }
        let served = self.of_depot(task.depot).min(behaviour.serves);
        let window = task.connection.window / behaviour.round_trip;
        let line = behaviour.line / served as f64;
        let carried = match task.connection.carried < behaviour.burst {
            true => line,
            false => behaviour.connection.min(line),
        };
        (carried * self.factor(task.depot)).min(window)
    }

    /// Whether its depot serves others first, and no more than these.
    fn is_beyond(&self, id: TaskId) -> bool {
        let depot = self.tasks[&id].depot;
        let before = self.tasks.range(..id);
        let before = before.filter(|(_, task)| task.depot == depot && !self.waits_behind(task));
        before.count() >= self.depots[depot.0].serves
    }

    pub(super) fn tell(&mut self, input: Input) {
        self.machine.handle(self.now, input);
        while let Some(effect) = self.machine.poll_effect() {
            self.carry_out(effect);
        }
        let used = self.machine.memory_used;
        self.memory_max = self.memory_max.max(used);
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start {
                task,
                piece,
                source,
                behind,
            } => {
                let depot = self.sources[&piece][source];
                let connection = match behind {
                    Some(before) => {
                        assert!(self.depots[depot.0].reads_ahead);
                        assert_eq!(self.tasks[&before].depot, depot);
                        self.tasks[&before].connection
                    }
                    None => self.connect(depot),
                };
                let moving = Moving {
                    piece,
                    depot,
                    done: 0.0,
                    asked: self.now,
                    behind,
                    connection,
                };
                self.tasks.insert(task, moving);
                self.most[depot.0] = self.most[depot.0].max(self.of_depot(depot));
            }
            Effect::Cancel { task } => self.disconnect(task),
            Effect::Finished { piece, task } => {
                let moved = self.tasks.remove(&task).expect("a task under way");
                let (depot, connection) = (moved.depot, moved.connection);
                let next = self.tasks.values_mut().find(|it| it.behind == Some(task));
                let kept = Connection {
                    trips: 1.0,
                    used: self.now,
                    ..connection
                };
                match next {
                    Some(next) => next.connection = kept,
                    None => self.idle[depot.0].push(kept),
                }
                self.finished.push((piece, depot));
                self.machine.handle(self.now, Input::Released { piece });
            }
            Effect::Lost { piece } => self.lost.push(piece),
        }
    }

    /// The connection that was used last, or a new one.
    fn connect(&mut self, depot: DepotId) -> Connection {
        match self.idle[depot.0].pop() {
            Some(idle) if self.now - idle.used < IDLE => idle,
            Some(idle) => Connection {
                window: INITIAL_WINDOW,
                ..idle
            },
            None => Connection::new(self.now),
        }
    }

    /// A task goes with its connection; what is behind it is asked for over a new one.
    fn disconnect(&mut self, task: TaskId) {
        self.tasks.remove(&task);
        let next = self.tasks.values_mut().find(|it| it.behind == Some(task));
        if let Some(next) = next {
            next.asked = self.now;
            next.connection = Connection::new(self.now);
        }
    }

    /// Lets a moment pass.
    pub(super) fn step(&mut self) {
        self.now = self.now + STEP;
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        let all: f64 = ids.iter().map(|&id| self.rate(id)).sum();
        let share = (self.client / all.max(1.0)).min(1.0);
        for id in ids {
            let Some(&Moving { piece, depot, .. }) = self.tasks.get(&id) else {
                continue;
            };
            let has_turn = !self.waits_behind(&self.tasks[&id]);
            let refused = has_turn && self.is_beyond(id) && self.depots[depot.0].refuses;
            let failure = match self.factor(depot) == 0.0 {
                true => Some(Failure::Broken),
                false => refused.then_some(Failure::Busy),
            };
            if let Some(failure) = failure {
                self.tell(Input::Failed { task: id, failure });
                self.disconnect(id);
                continue;
            }
            let came = self.rate(id) * share * STEP.as_secs_f64();
            if came == 0.0 {
                continue;
            }
            let moving = self.tasks.get_mut(&id).expect("it is there");
            moving.done += came;
            moving.connection.window += came;
            moving.connection.carried += came;
            let done = moving.done;
            if done >= self.bytes[&piece] as f64 {
                self.tell(Input::Done { task: id });
            } else {
                self.tell(Input::Progress {
                    task: id,
                    bytes: done as u64,
                });
            }
        }
        let is_due = self.machine.poll_timeout().is_some_and(|at| at <= self.now);
        if is_due {
            self.tell(Input::Timeout);
        }
    }

    /// Until nothing is left; how long it took, in seconds.
    pub(super) fn run(&mut self) -> f64 {
        let start = self.now;
        while !self.machine.is_idle() {
            assert!(
                self.now - start < Duration::from_secs(3600),
                "it stands still"
            );
            self.step();
        }
        (self.now - start).as_secs_f64()
    }

    pub(super) fn share(&self, depot: usize) -> usize {
        let from = |finished: &&(PieceId, DepotId)| finished.1 == DepotId(depot);
        self.finished.iter().filter(from).count()
    }
}
