//! Requests of the [session](crate::session) as calls of etcd's gRPC API, and the
//! answers as the session wants them. Nothing is decided or repeated here.

use std::error::Error;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request as GrpcRequest, Status, Streaming};
use tonic_prost::ProstCodec;

use crossdock_names::HostId;

use crate::keys::{Keys, LEAVES, Subject};
use crate::proto::{self, compare, request_op, response_op};
use crate::session::{Entry, Event, Failure, Reply, Request};

/// How long a connection may take to come about.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// A way to one endpoint.
#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
    keys: Keys,
    host: HostId,
}

impl Client {
    /// Connects when the first call is made. Needs a runtime.
    pub(crate) fn new(endpoint: &Endpoint, keys: Keys, host: HostId) -> Self {
        let endpoint = endpoint.clone().connect_timeout(CONNECT_PATIENCE);
        Self {
            channel: endpoint.tcp_nodelay(true).connect_lazy(),
            keys,
            host,
        }
    }

    /// Carries a request out.
    pub(crate) async fn call(&self, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Read => self.read().await,
            Request::Swap { expected, value } => self.swap(expected, value).await,
            Request::Grant { ttl_seconds } => {
                let request = proto::LeaseGrantRequest {
                    ttl: ttl_seconds,
                    id: 0,
                };
                let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseGrant");
                let granted: proto::LeaseGrantResponse = self.unary(request, path).await?;
                Ok(Reply::Granted {
                    lease: granted.id,
                    ttl_seconds: granted.ttl,
                })
            }
            Request::Announce { lease } => self.announce(lease, Vec::new()).await,
            Request::KeepAlive { lease } => self.keep_alive(lease).await,
            Request::Leave { lease } => self.announce(lease, LEAVES.to_vec()).await,
        }
    }

    /// Watches all keys of the ensemble from a revision on. etcd ends the watch when
    /// its member has lost the others, because this one asks for it.
    pub(crate) async fn watch(&self, from: i64) -> Result<Watch, Failure> {
        let (key, range_end) = self.keys.all();
        let create = proto::WatchCreateRequest {
            key,
            range_end,
            start_revision: from,
        };
        let request = proto::WatchRequest {
            create: Some(create),
        };
        // The stream of requests stays open as long as the watch.
        let requests = tokio_stream::once(request).chain(tokio_stream::pending());
        let mut request = GrpcRequest::new(requests);
        let yes = MetadataValue::from_static("true");
        request.metadata_mut().insert("hasleader", yes);
        let mut grpc = self.ready().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let response = grpc.streaming(request, path, ProstCodec::default()).await;
        Ok(Watch {
            responses: response.map_err(failure)?.into_inner(),
            keys: self.keys.clone(),
        })
    }

    /// State and hosts of one moment: one transaction without a condition.
    async fn read(&self) -> Result<Reply, Failure> {
        let (key, range_end) = self.keys.hosts();
        let hosts = proto::RangeRequest { key, range_end };
        let request = proto::TxnRequest {
            success: vec![self.read_state(), op(request_op::Request::Range(hosts))],
            ..proto::TxnRequest::default()
        };
        let response = self.transact(request).await?;
        let revision = response.header.map_or(0, |header| header.revision);
        let mut ranges = response.responses.into_iter().map(into_kvs);
        let state = ranges.next().unwrap_or_default().into_iter().next();
        let hosts = ranges.next().unwrap_or_default().into_iter();
        let hosts = hosts.filter_map(|kv| match self.keys.parse(&kv.key)? {
            Subject::Host(host) if kv.value != LEAVES => Some(host),
            Subject::Host(_) | Subject::State => None,
        });
        Ok(Reply::Read {
            revision,
            state: state.map(entry),
            hosts: hosts.collect(),
        })
    }

    async fn swap(&self, expected: i64, value: Vec<u8>) -> Result<Reply, Failure> {
        let condition = proto::Compare {
            result: 0,
            target: compare::MOD,
            key: self.keys.state(),
            value: Some(compare::Target::ModRevision(expected)),
        };
        let put = proto::PutRequest {
            key: self.keys.state(),
            value,
            lease: 0,
        };
        let request = proto::TxnRequest {
            compare: vec![condition],
            success: vec![op(request_op::Request::Put(put))],
            failure: vec![self.read_state()],
        };
        let response = self.transact(request).await?;
        if response.succeeded {
            let revision = response.header.map_or(0, |header| header.revision);
            return Ok(Reply::Swapped { revision });
        }
        let mut ranges = response.responses.into_iter().flat_map(into_kvs);
        Ok(Reply::Differs {
            state: ranges.next().map(entry),
        })
    }

    async fn announce(&self, lease: i64, value: Vec<u8>) -> Result<Reply, Failure> {
        let put = proto::PutRequest {
            key: self.keys.host(self.host),
            value,
            lease,
        };
        let request = proto::TxnRequest {
            success: vec![op(request_op::Request::Put(put))],
            ..proto::TxnRequest::default()
        };
        let response = self.transact(request).await?;
        let revision = response.header.map_or(0, |header| header.revision);
        Ok(Reply::Announced { revision })
    }

    /// etcd takes keep-alives in a stream; ours has one of them.
    async fn keep_alive(&self, lease: i64) -> Result<Reply, Failure> {
        let requests = tokio_stream::once(proto::LeaseKeepAliveRequest { id: lease });
        let mut grpc = self.ready().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let codec = ProstCodec::<_, proto::LeaseKeepAliveResponse>::default();
        let response = grpc.streaming(GrpcRequest::new(requests), path, codec);
        let mut responses = response.await.map_err(failure)?.into_inner();
        match responses.message().await.map_err(failure)? {
            Some(alive) if alive.ttl > 0 => Ok(Reply::Alive),
            Some(_) => Err(Failure::LeaseGone),
            None => Err(Failure::Away("no answer to a sign of life".to_owned())),
        }
    }

    async fn transact(&self, request: proto::TxnRequest) -> Result<proto::TxnResponse, Failure> {
        let path = PathAndQuery::from_static("/etcdserverpb.KV/Txn");
        self.unary(request, path).await
    }

    async fn unary<Q, R>(&self, request: Q, path: PathAndQuery) -> Result<R, Failure>
    where
        Q: prost::Message + 'static,
        R: prost::Message + Default + 'static,
    {
        let mut grpc = self.ready().await?;
        let request = GrpcRequest::new(request);
        let response = grpc.unary(request, path, ProstCodec::default()).await;
        response.map(tonic::Response::into_inner).map_err(failure)
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Failure> {
        let mut grpc = Grpc::new(self.channel.clone());
        let ready = grpc.ready().await;
        ready.map_err(|error| Failure::Away(chain(&error.to_string(), &error)))?;
        Ok(grpc)
    }

    fn read_state(&self) -> proto::RequestOp {
        op(request_op::Request::Range(proto::RangeRequest {
            key: self.keys.state(),
            range_end: Vec::new(),
        }))
    }
}

/// What changes, as it changes.
pub(crate) struct Watch {
    responses: Streaming<proto::WatchResponse>,
    keys: Keys,
}

impl Watch {
    /// The next changes, in order; none when the watch has just begun.
    pub(crate) async fn next(&mut self) -> Result<Vec<Event>, Failure> {
        let message = self.responses.message().await.map_err(failure)?;
        let Some(response) = message else {
            return Err(Failure::Away("the watch has ended".to_owned()));
        };
        if response.compact_revision > 0 {
            return Err(Failure::Compacted);
        }
        if response.canceled {
            return Err(Failure::Away(response.cancel_reason));
        }
        let events = response.events.into_iter();
        Ok(events.filter_map(|event| self.convert(event)).collect())
    }

    fn convert(&self, event: proto::Event) -> Option<Event> {
        let kv = event.kv?;
        let is_gone = event.kind == proto::EVENT_DELETE;
        let revision = kv.mod_revision;
        Some(match self.keys.parse(&kv.key)? {
            Subject::State if is_gone => Event::StateGone,
            Subject::State => Event::State(entry(kv)),
            Subject::Host(host) if is_gone => Event::Gone { host, revision },
            Subject::Host(host) if kv.value == LEAVES => Event::Left(host),
            Subject::Host(host) => Event::Seen(host),
        })
    }
}

fn op(request: request_op::Request) -> proto::RequestOp {
    proto::RequestOp {
        request: Some(request),
    }
}

fn into_kvs(response: proto::ResponseOp) -> Vec<proto::KeyValue> {
    match response.response {
        Some(response_op::Response::Range(range)) => range.kvs,
        _ => Vec::new(),
    }
}

fn entry(kv: proto::KeyValue) -> Entry {
    Entry {
        revision: kv.mod_revision,
        value: kv.value,
    }
}

fn failure(status: Status) -> Failure {
    if status.code() == Code::NotFound && status.message().contains("lease not found") {
        return Failure::LeaseGone;
    }
    Failure::Away(chain(status.message(), &status))
}

/// What an error says, and its causes.
pub(crate) fn chain(what: &str, error: &dyn Error) -> String {
    let mut text = what.to_owned();
    let mut cause = error.source();
    while let Some(error) = cause {
        let says = error.to_string();
        // Some repeat what the one below them says.
        if !text.ends_with(&says) {
            text = format!("{text}: {says}");
        }
        cause = error.source();
    }
    text
}
