//! The HTTP server on its control thread.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{delete, get, patch, post};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::guard::guard;
use crate::page;
use crate::snapshot::Snapshot;
use crate::watch::{self, Watch};
use crate::{
    AddressAddition, DefragOrder, DiskOrder, ExportAddition, ExportChange, FileImport, FileSharing,
    GatewayScope, LockRelease, LunChange, LunCreation, PieceSigning, Placing, PolicySetting,
    QuotaSetting, Signing, TokenAddition,
};

/// Longest request to import a file, in bytes: it has the exNode in it.
const IMPORT_BYTES_MAX: usize = 64 << 20;

/// What the data thread is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Tell [`crate::Status`].
    Status,
    /// Take a node down; its unstable bytes are lost.
    NodeStop(u32),
    /// Bring a node back.
    NodeStart(u32),
    /// Tell the nodes of the ensemble, as [`crate::PlaceStatus`]es.
    PlaceList,
    /// Change what belongs to nodes of the ensemble; tell a [`crate::PlaceStatus`].
    Place(Placing),
    /// Start a scrub of all nodes.
    ScrubStart,
    /// Tell [`crate::ScrubStatus`].
    ScrubStatus,
    /// Tell [`crate::DefragStatus`].
    DefragStatus,
    /// Begin to put together what lies apart, or say when; tell the same.
    DefragOrder(DefragOrder),
    /// Begin to check the volume, if that is not under way, and to mend what is found if
    /// that is said; tell a [`crate::FsckStatus`].
    FsckStart(bool),
    /// Tell a [`crate::FsckStatus`].
    FsckStatus,
    /// Tell all exports, as [`crate::ExportStatus`]es.
    ExportList,
    /// Export a directory; tell a [`crate::ExportAnswer`].
    ExportAdd(ExportAddition),
    /// Change the rules of an export; tell a [`crate::ExportAnswer`].
    ExportSet(u32, ExportChange),
    /// Export it no more; tell a [`crate::ExportAnswer`].
    ExportRemove(u32),
    /// Tell all virtual addresses, as [`crate::AddressStatus`]es.
    AddressList,
    /// Have one more; tell a [`crate::AddressStatus`].
    AddressAdd(AddressAddition),
    /// Have it no more; tell a [`crate::AddressStatus`].
    AddressRemove(IpAddr),
    /// Tell all gateways, as [`crate::GatewayStatus`]es.
    GatewayList,
    /// Nodes and managers refuse the gateway of that name; tell a
    /// [`crate::GatewayStatus`].
    GatewayRevoke(String),
    /// They let it in again; tell a [`crate::GatewayStatus`].
    GatewayRestore(String),
    /// It reaches what lies in these exports only; tell a [`crate::GatewayStatus`].
    GatewayScope(String, GatewayScope),
    /// Tell all rules of the policy, as [`crate::PolicyStatus`]es.
    PolicyList,
    /// Give something a rule; tell a [`crate::PolicyStatus`].
    PolicySet(PolicySetting),
    /// Take it away; tell a [`crate::PolicyStatus`].
    PolicyRemove(u32),
    /// Tell all LUNs, as [`crate::LunStatus`]es.
    LunList,
    /// Make a LUN; tell a [`crate::LunStatus`].
    LunCreate(LunCreation),
    /// Change the LUN of that name; tell a [`crate::LunStatus`].
    LunSet(String, LunChange),
    /// Remove it; tell a [`crate::LunStatus`].
    LunRemove(String),
    /// Tell the disk sets of all nodes.
    DiskList,
    /// Do something with disks; tell the same.
    DiskOrder(DiskOrder),
    /// Tell all quotas, as [`crate::QuotaStatus`]es.
    QuotaList,
    /// Set a quota; tell a [`crate::QuotaAnswer`].
    QuotaSet(QuotaSetting),
    /// Remove a quota; tell a [`crate::QuotaAnswer`].
    QuotaRemove(u64),
    /// Tell a [`crate::LockList`].
    LockList,
    /// Give up a client's locks; tell a [`crate::LockReleased`].
    LockRelease(LockRelease),
    /// Tell the last decisions of the delivery engine, each with what it saw.
    DeliveryDecisions,
    /// Tell all bearer tokens, as [`crate::TokenStatus`]es.
    TokenList,
    /// Make one; tell a [`crate::TokenCreated`].
    TokenAdd(TokenAddition),
    /// Revoke one; tell a [`crate::TokenStatus`].
    TokenRemove(u32),
    /// Sign a URL; tell a [`crate::Signed`].
    Sign(Signing),
    /// Sign URLs of a file's pieces at nodes; tell [`crate::SignedPieces`].
    SignPieces(PieceSigning),
    /// Have depots give a file's bytes; tell a [`crate::SharedFile`].
    ShareFile(FileSharing),
    /// Begin to fetch a file from depots; tell a [`crate::ImportStatus`].
    ImportFile(FileImport),
    /// Tell a [`crate::ImportStatus`].
    ImportStatus(u32),
}

/// Why a command was not carried out.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such thing: which, and what to do.
    #[error("{0}")]
    Unknown(String),
    /// What is asked for cannot be: why, and what to do.
    #[error("{0}")]
    Invalid(String),
    /// Not now: what is in the way, and what to do.
    #[error("{0}")]
    Conflict(String),
    /// The data thread is gone: the process is stopping.
    #[error("the system is stopping")]
    Stopping,
}

/// A command's answer.
pub type Answer = Result<Value, Refusal>;

/// The way from the control thread to the data thread.
pub trait Control: Send + Sync + 'static {
    /// Passes `command` on; the answer comes through `reply`.
    fn ask(&self, command: Command, reply: oneshot::Sender<Answer>);

    /// Asks for a [`Snapshot`]; none comes while the system is stopping.
    fn snapshot(&self, reply: oneshot::Sender<Snapshot>);
}

/// Serves the API on `listener` from a thread of its own, until the process ends.
///
/// # Errors
/// If the thread or its runtime cannot be started.
pub fn serve(listener: TcpListener, watch: Arc<Watch>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || {
            let served = runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                watch::start(&watch);
                axum::serve(listener, router(watch)).await
            });
            if let Err(error) = served {
                tracing::error!(%error, "the admin API has ended");
            }
        })?;
    Ok(())
}

type Shared = State<Arc<dyn Control>>;

fn router(watch: Arc<Watch>) -> Router {
    let control = watch.control();
    Router::new()
        .route(
            "/v1/status",
            get(|control: Shared| ask(control, Command::Status)),
        )
        .route(
            "/v1/nodes/{number}/stop",
            post(|control: Shared, Path(number): Path<u32>| {
                ask(control, Command::NodeStop(number))
            }),
        )
        .route(
            "/v1/nodes/{number}/start",
            post(|control: Shared, Path(number): Path<u32>| {
                ask(control, Command::NodeStart(number))
            }),
        )
        .merge(places())
        .route(
            "/v1/scrub",
            get(|control: Shared| ask(control, Command::ScrubStatus))
                .post(|control: Shared| ask(control, Command::ScrubStart)),
        )
        .route(
            "/v1/defrag",
            get(|control: Shared| ask(control, Command::DefragStatus)).post(
                |control: Shared, body: Body<DefragOrder>| {
                    ask_with(control, body, Command::DefragOrder)
                },
            ),
        )
        .route(
            "/v1/fsck",
            get(|control: Shared| ask(control, Command::FsckStatus))
                .post(|control: Shared| ask(control, Command::FsckStart(false))),
        )
        .route(
            "/v1/fsck/repair",
            post(|control: Shared| ask(control, Command::FsckStart(true))),
        )
        .route(
            "/v1/exports",
            get(|control: Shared| ask(control, Command::ExportList)).post(
                |control: Shared, body: Body<ExportAddition>| {
                    ask_with(control, body, Command::ExportAdd)
                },
            ),
        )
        .route(
            "/v1/exports/{id}",
            patch(
                |control: Shared, Path(id): Path<u32>, body: Body<ExportChange>| {
                    ask_with(control, body, move |change| Command::ExportSet(id, change))
                },
            )
            .delete(|control: Shared, Path(id): Path<u32>| ask(control, Command::ExportRemove(id))),
        )
        .route(
            "/v1/addresses",
            get(|control: Shared| ask(control, Command::AddressList)).post(
                |control: Shared, body: Body<AddressAddition>| {
                    ask_with(control, body, Command::AddressAdd)
                },
            ),
        )
        .route(
            "/v1/addresses/{address}",
            delete(|control: Shared, Path(address): Path<IpAddr>| {
                ask(control, Command::AddressRemove(address))
            }),
        )
        .route(
            "/v1/gateways",
            get(|control: Shared| ask(control, Command::GatewayList)),
        )
        .route(
            "/v1/gateways/{name}/revoke",
            post(|control: Shared, Path(name): Path<String>| {
                ask(control, Command::GatewayRevoke(name))
            }),
        )
        .route(
            "/v1/gateways/{name}/restore",
            post(|control: Shared, Path(name): Path<String>| {
                ask(control, Command::GatewayRestore(name))
            }),
        )
        .route(
            "/v1/gateways/{name}/scope",
            post(
                |control: Shared, Path(name): Path<String>, body: Body<GatewayScope>| {
                    ask_with(control, body, move |scope| {
                        Command::GatewayScope(name, scope)
                    })
                },
            ),
        )
        .route(
            "/v1/quotas",
            get(|control: Shared| ask(control, Command::QuotaList)).post(
                |control: Shared, body: Body<QuotaSetting>| {
                    ask_with(control, body, Command::QuotaSet)
                },
            ),
        )
        .route(
            "/v1/quotas/{id}",
            delete(|control: Shared, Path(id): Path<u64>| ask(control, Command::QuotaRemove(id))),
        )
        .route(
            "/v1/locks",
            get(|control: Shared| ask(control, Command::LockList)),
        )
        .route(
            "/v1/locks/release",
            post(|control: Shared, body: Body<LockRelease>| {
                ask_with(control, body, Command::LockRelease)
            }),
        )
        .route(
            "/v1/delivery/decisions",
            get(|control: Shared| ask(control, Command::DeliveryDecisions)),
        )
        .merge(luns())
        .merge(disks())
        .merge(policy())
        .merge(tokens())
        .with_state(control)
        .merge(watch::routes(Arc::clone(&watch)))
        .merge(page::routes())
        .layer(middleware::from_fn_with_state(watch.names(), guard))
}

/// Nodes of an ensemble that come and go.
fn places() -> Router<Arc<dyn Control>> {
    let of = |placing: fn(u32) -> Placing| {
        move |control: Shared, Path(number): Path<u32>| {
            ask(control, Command::Place(placing(number)))
        }
    };
    let retire = |control: Shared, Path(host): Path<String>| async move {
        match u64::from_str_radix(&host, 16) {
            Ok(host) => ask(control, Command::Place(Placing::Retire(host))).await,
            Err(_) => refuse(&Refusal::Invalid(format!(
                "{host} is no host: crossdock status lists them"
            ))),
        }
    };
    Router::new()
        .route("/v1/managers/{host}", delete(retire))
        .route(
            "/v1/nodes",
            get(|control: Shared| ask(control, Command::PlaceList))
                .post(|control: Shared| ask(control, Command::Place(Placing::Add))),
        )
        .route("/v1/nodes/{number}", delete(of(Placing::Remove)))
        .route("/v1/nodes/{number}/drain", post(of(Placing::Drain)))
        .route("/v1/nodes/{number}/undrain", post(of(Placing::Undrain)))
        .route("/v1/nodes/{number}/replace", post(of(Placing::Replace)))
}

/// What requests over HTTP are judged by.
fn tokens() -> Router<Arc<dyn Control>> {
    let revoke = |control: Shared, Path(id): Path<String>| async move {
        let hint = "a token's number has eight hexadecimal digits: crossdock token list shows them";
        ask_of(control, &id, Command::TokenRemove, hint).await
    };
    Router::new()
        .route(
            "/v1/tokens",
            get(|control: Shared| ask(control, Command::TokenList)).post(
                |control: Shared, body: Body<TokenAddition>| {
                    ask_with(control, body, Command::TokenAdd)
                },
            ),
        )
        .route("/v1/tokens/{id}", delete(revoke))
        .route(
            "/v1/sign",
            post(|control: Shared, body: Body<Signing>| ask_with(control, body, Command::Sign)),
        )
        .route(
            "/v1/sign/pieces",
            post(|control: Shared, body: Body<PieceSigning>| {
                ask_with(control, body, Command::SignPieces)
            }),
        )
        .route(
            "/v1/exnode",
            post(|control: Shared, body: Body<FileSharing>| {
                ask_with(control, body, Command::ShareFile)
            }),
        )
        .route(
            "/v1/exnode/import",
            post(|control: Shared, body: Body<FileImport>| {
                ask_with(control, body, Command::ImportFile)
            })
            .layer(DefaultBodyLimit::max(IMPORT_BYTES_MAX)),
        )
        .route(
            "/v1/exnode/import/{id}",
            get(|control: Shared, Path(id): Path<u32>| ask(control, Command::ImportStatus(id))),
        )
}

/// Files of the volume as disks.
fn luns() -> Router<Arc<dyn Control>> {
    Router::new()
        .route(
            "/v1/luns",
            get(|control: Shared| ask(control, Command::LunList)).post(
                |control: Shared, body: Body<LunCreation>| {
                    ask_with(control, body, Command::LunCreate)
                },
            ),
        )
        .route(
            "/v1/luns/{name}",
            patch(
                |control: Shared, Path(name): Path<String>, body: Body<LunChange>| {
                    ask_with(control, body, move |change| Command::LunSet(name, change))
                },
            )
            .delete(|control: Shared, Path(name): Path<String>| {
                ask(control, Command::LunRemove(name))
            }),
        )
}

/// The disks of nodes.
fn disks() -> Router<Arc<dyn Control>> {
    Router::new().route(
        "/v1/disks",
        get(|control: Shared| ask(control, Command::DiskList)).post(
            |control: Shared, body: Body<DiskOrder>| ask_with(control, body, Command::DiskOrder),
        ),
    )
}

/// Which way bytes go to clients.
fn policy() -> Router<Arc<dyn Control>> {
    let remove = |control: Shared, Path(id): Path<String>| async move {
        let hint = "a rule's number has eight hexadecimal digits: crossdock policy show lists them";
        ask_of(control, &id, Command::PolicyRemove, hint).await
    };
    Router::new()
        .route(
            "/v1/policy",
            get(|control: Shared| ask(control, Command::PolicyList)).post(
                |control: Shared, body: Body<PolicySetting>| {
                    ask_with(control, body, Command::PolicySet)
                },
            ),
        )
        .route("/v1/policy/{id}", delete(remove))
}

/// Asks about something whose number has eight hexadecimal digits.
async fn ask_of(
    control: Shared,
    id: &str,
    command: impl FnOnce(u32) -> Command,
    hint: &str,
) -> Response {
    match u32::from_str_radix(id, 16) {
        Ok(id) => ask(control, command(id)).await,
        Err(_) => refuse(&Refusal::Invalid(hint.to_owned())),
    }
}

type Body<T> = Result<Json<T>, JsonRejection>;

/// Asks what the body of a request says.
async fn ask_with<T>(
    control: Shared,
    body: Body<T>,
    command: impl FnOnce(T) -> Command,
) -> Response {
    match body {
        Ok(Json(body)) => ask(control, command(body)).await,
        Err(rejection) => refuse(&Refusal::Invalid(rejection.body_text())),
    }
}

async fn ask(State(control): Shared, command: Command) -> Response {
    let (reply, answer) = oneshot::channel();
    control.ask(command, reply);
    match answer.await.unwrap_or(Err(Refusal::Stopping)) {
        Ok(value) => Json(value).into_response(),
        Err(refusal) => refuse(&refusal),
    }
}

fn refuse(refusal: &Refusal) -> Response {
    let status = match refusal {
        Refusal::Unknown(_) => StatusCode::NOT_FOUND,
        Refusal::Invalid(_) => StatusCode::BAD_REQUEST,
        Refusal::Conflict(_) => StatusCode::CONFLICT,
        Refusal::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(json!({"error": refusal.to_string()}))).into_response()
}
