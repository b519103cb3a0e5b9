//! What the NFS door speaks beside NFS and MOUNT: locks (NLM), restarts (NSM),
//! and where programs listen (portmapper).
//!
//! | file | what |
//! |---|---|
//! | `lock.rs` | calls of NLM become operations of sites, answers become results |
//! | `status.rs` | the same for NSM: a client says that it has restarted |
//! | `portmap.rs` | answers of the portmapper's own door |
//! | `calls.rs` | calls to clients: a grant, our restart, results of messages |
//!
//! [`ClientCalls`] is a sans-io machine; the rest are functions. The NFS door
//! has the connections and passes on what comes.

mod calls;
mod lock;
mod portmap;
mod status;

use bytes::Bytes;
use crossdock_names::{FileRef, SiteId};
use crossdock_nlm::lock::Status;
use crossdock_rpc::AcceptStatus;
use crossdock_xdr::{Encode, Encoder};

pub use calls::{ClientAnswer, ClientCall, ClientCalls, is_reply};
pub use lock::{Finished, LockThen, Opened, begin_lock};
pub use portmap::{Services, answer_portmap};
pub use status::begin_status;

/// The root of the volume: what is asked about clients goes to its site.
pub const ROOT: FileRef = FileRef::root_of(SiteId(0));

/// What becomes of a call.
#[derive(Debug)]
pub enum Start {
    /// It is answered without anybody's help: with these results, which say this.
    Reply(Encoded, Status),
    /// It is not carried out.
    Refuse(AcceptStatus),
    /// Ask the site of the file; then [`LockThen::finish`].
    Ask(Box<crossdock_peer::SiteOperation>, LockThen),
}

/// Results of a call, encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded(pub Bytes);

impl Encoded {
    fn of(value: &impl Encode) -> Self {
        let mut encoder = Encoder::new();
        encoder.put(value);
        Self(encoder.into_bytes())
    }
}

impl Encode for Encoded {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.splice(self.0.clone());
    }
}
