//! The messages of etcd's version 3 API that we use, with the fields that we use.
//!
//! Names and field numbers are those of etcd's `rpc.proto` and `kv.proto`; a field
//! that is not here is skipped by the decoder and has its default when we send. No
//! generator, no copied files: docs/decisions/0018.

/// At which revision the answer was given.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResponseHeader {
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

/// A key with its value.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// Of the last change of this key.
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
}

/// Reads from `key` up to `range_end`, or `key` alone.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    /// 0: none.
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PutResponse {}

/// One step of a transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "request_op::Request", tags = "1, 2")]
    pub(crate) request: Option<request_op::Request>,
}

pub(crate) mod request_op {
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum Request {
        #[prost(message, tag = "1")]
        Range(super::RangeRequest),
        #[prost(message, tag = "2")]
        Put(super::PutRequest),
    }
}

/// What a step came to.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "response_op::Response", tags = "1, 2")]
    pub(crate) response: Option<response_op::Response>,
}

pub(crate) mod response_op {
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum Response {
        #[prost(message, tag = "1")]
        Range(super::RangeResponse),
        #[prost(message, tag = "2")]
        Put(super::PutResponse),
    }
}

/// A condition of a transaction: result 0 is "equal".
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    /// Part of a choice: sent also when it is 0, the revision of a key that is not there.
    #[prost(oneof = "compare::Target", tags = "6")]
    pub(crate) value: Option<compare::Target>,
}

pub(crate) mod compare {
    /// `CompareTarget::MOD`.
    pub(crate) const MOD: i32 = 2;

    #[derive(Clone, Copy, PartialEq, prost::Oneof)]
    pub(crate) enum Target {
        #[prost(int64, tag = "6")]
        ModRevision(i64),
    }
}

/// All of `success` if all of `compare` holds, else all of `failure`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantRequest {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    /// 0: the server chooses.
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// In seconds; the server may give more than was asked for.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseKeepAliveResponse {
    /// 0: there is no such lease any more.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

/// Of the choice in `WatchRequest` only its first.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    /// Not 0: what was asked for is forgotten up to here.
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

/// A change of one key: type 0 is a put, 1 a deletion.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Event {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    /// Of a deletion: key and revision only.
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

/// [`Event::kind`] of a deletion.
pub(crate) const EVENT_DELETE: i32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    /// Goal: the bytes are those of etcd's API, worked out by hand from its field
    /// numbers: a condition "not there yet" says its 0 explicitly, or etcd would
    /// compare nothing.
    #[test]
    fn a_condition_says_its_zero() {
        let compare = Compare {
            result: 0,
            target: compare::MOD,
            key: b"k".to_vec(),
            value: Some(compare::Target::ModRevision(0)),
        };
        assert_eq!(compare.encode_to_vec(), [0x10, 2, 0x1a, 1, b'k', 0x30, 0]);
    }

    /// Goal: fields that we do not know are skipped: a header with cluster, member
    /// and term, a key with creation revision, version and lease.
    #[test]
    fn unknown_fields_are_skipped() {
        let header = [0x08, 1, 0x10, 2, 0x18, 77, 0x20, 3];
        let kv = [
            0x0a, 1, b'k', 0x10, 5, 0x18, 6, 0x20, 7, 0x2a, 1, b'v', 0x30, 9,
        ];
        let mut bytes = vec![0x0a, 8];
        bytes.extend(header);
        bytes.extend([0x12, 14]);
        bytes.extend(kv);
        bytes.extend([0x20, 1]);
        let response = RangeResponse::decode(bytes.as_slice()).expect("a response");
        assert_eq!(response.header.expect("a header").revision, 77);
        let key_value = KeyValue {
            key: b"k".to_vec(),
            mod_revision: 6,
            value: b"v".to_vec(),
        };
        assert_eq!(response.kvs, [key_value]);
    }
}
