//! Watching: metrics, health, the past of the last minutes, and what guards all
//! of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::events::Events;
use crate::guard::Names;
use crate::health::{Condition, Health};
use crate::history::History;
use crate::serve::Control;
use crate::snapshot::Snapshot;
use crate::{families, process, text};

/// How long the data thread may take for a snapshot: it works through one turn
/// of its loop before it looks at orders.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(2);

/// How often a snapshot is taken for the history.
const HISTORY_INTERVAL: Duration = Duration::from_secs(1);

/// What the admin API keeps to watch the data thread.
pub struct Watch {
    control: Arc<dyn Control>,
    events: Arc<Events>,
    names: Names,
    history: Mutex<History>,
    has_started: AtomicBool,
}

/// Why there is no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// The system is stopping, or its queue of orders is full.
    Refused,
    /// Nothing came in time.
    Late,
}

impl Watch {
    /// Watches whom `control` leads to; `events` are its log's. Requests may name
    /// this port by address, and by `names`.
    #[must_use]
    pub fn new(control: Arc<dyn Control>, events: Arc<Events>, names: Vec<String>) -> Arc<Self> {
        Arc::new(Self {
            control,
            events,
            names: names.into(),
            history: Mutex::default(),
            has_started: AtomicBool::new(false),
        })
    }

    pub(crate) fn control(&self) -> Arc<dyn Control> {
        Arc::clone(&self.control)
    }

    pub(crate) fn names(&self) -> Names {
        Arc::clone(&self.names)
    }

    async fn snapshot(&self) -> Result<Snapshot, Silence> {
        let (reply, answer) = oneshot::channel();
        self.control.snapshot(reply);
        match timeout(SNAPSHOT_PATIENCE, answer).await {
            Ok(Ok(mut snapshot)) => {
                snapshot.process = process::figures();
                Ok(snapshot)
            }
            Ok(Err(_)) => Err(Silence::Refused),
            Err(_) => Err(Silence::Late),
        }
    }
}

impl Silence {
    fn words(self) -> String {
        match self {
            Self::Refused => "the system is stopping".to_owned(),
            Self::Late => format!(
                "the data thread has not answered for {} s",
                SNAPSHOT_PATIENCE.as_secs()
            ),
        }
    }
}

impl IntoResponse for Silence {
    fn into_response(self) -> Response {
        let error = Json(json!({"error": self.words()}));
        (StatusCode::SERVICE_UNAVAILABLE, error).into_response()
    }
}

/// Begins to write the history, once for all listeners.
pub(crate) fn start(watch: &Arc<Watch>) {
    if !watch.has_started.swap(true, Ordering::Relaxed) {
        tokio::spawn(sample(Arc::clone(watch)));
    }
}

/// Takes a snapshot a second, and tells what an administrator should know.
async fn sample(watch: Arc<Watch>) {
    let mut ticks = interval(HISTORY_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pauses = None;
    let mut was_silent = false;
    loop {
        ticks.tick().await;
        match watch.snapshot().await {
            Ok(snapshot) => {
                tell_overload(&snapshot, &mut pauses);
                if std::mem::take(&mut was_silent) {
                    tracing::warn!("the data thread answers again");
                }
                let history = watch.history.lock();
                history
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(snapshot);
            }
            Err(Silence::Late) if !was_silent => {
                was_silent = true;
                tracing::error!("{}", Silence::Late.words());
            }
            Err(_) => {}
        }
    }
}

/// Says that connections had to wait for room in the door since the last time.
fn tell_overload(snapshot: &Snapshot, pauses: &mut Option<u64>) {
    let door = &snapshot.door;
    let before = pauses.replace(door.pauses_total);
    let more = door.pauses_total - before.unwrap_or(door.pauses_total).min(door.pauses_total);
    let is_full = door.calls >= door.calls_max || door.held_bytes >= door.held_bytes_max;
    if more > 0 && is_full {
        tracing::warn!(
            pauses = more,
            paused = door.connections_paused,
            requests = door.calls,
            held_bytes = door.held_bytes,
            "overload: connections wait until there is room for their requests"
        );
    }
}

type Shared = State<Arc<Watch>>;

/// What a list is to begin behind.
#[derive(Deserialize)]
struct After<T> {
    after: Option<T>,
}

pub(crate) fn routes(watch: Arc<Watch>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/figures", get(figures))
        .route("/v1/history", get(history))
        .route("/v1/events", get(events))
        .route("/v1/slow", get(slow))
        .with_state(watch)
}

async fn health(State(watch): Shared) -> Response {
    let health = match watch.snapshot().await {
        Ok(snapshot) => Health::judge(&snapshot),
        Err(silence) => Health::unanswered(&silence.words()),
    };
    let status = match health.status {
        Condition::Ok | Condition::Degraded => StatusCode::OK,
        Condition::Failed => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(health)).into_response()
}

async fn metrics(State(watch): Shared) -> Response {
    match watch.snapshot().await {
        Ok(snapshot) => {
            let kind = [(header::CONTENT_TYPE, text::CONTENT_TYPE)];
            (kind, families::render(&snapshot)).into_response()
        }
        Err(silence) => silence.into_response(),
    }
}

async fn figures(State(watch): Shared) -> Result<Json<Snapshot>, Silence> {
    watch.snapshot().await.map(Json)
}

async fn history(State(watch): Shared, Query(list): Query<After<f64>>) -> Response {
    let history = watch.history.lock().unwrap_or_else(PoisonError::into_inner);
    Json(history.after(list.after.unwrap_or_default())).into_response()
}

async fn events(State(watch): Shared, Query(list): Query<After<u64>>) -> Response {
    Json(watch.events.after(list.after.unwrap_or_default())).into_response()
}

async fn slow(State(watch): Shared) -> Response {
    match watch.snapshot().await {
        Ok(snapshot) => Json(snapshot.slow).into_response(),
        Err(silence) => silence.into_response(),
    }
}
