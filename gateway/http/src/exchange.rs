//! A request that is being served.

use bytes::Bytes;
use crossdock_http1::{HttpVersion, Method, RequestHead};
use crossdock_names::FileRef;
use crossdock_peer::Caller;

use crate::access::Scope;
use crate::body::Body;
use crate::directory::Listing;
use crate::redirect::Locating;
use crate::remove::Removal;
use crate::stream::Stream;
use crate::upload::Upload;
use crate::walk::Walk;

/// A request and how far it has come.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) head: RequestHead,
    /// As whom the volume is asked.
    pub(crate) caller: Caller,
    /// To what the token or signature is bound.
    pub(crate) scope: Scope,
    /// The directories that its file lies in, from the inside out, where rules are of any.
    pub(crate) places: Vec<FileRef>,
    pub(crate) stage: Stage,
    pub(crate) body: Body,
    /// The client waits for being told that it may send the content.
    pub(crate) owes_continue: bool,
    /// The response is complete, as far as the door is concerned.
    pub(crate) is_answered: bool,
    /// Whether the connection serves another request behind it.
    pub(crate) keep_alive: bool,
    /// Bytes of its content that nobody wanted.
    pub(crate) dropped_bytes: u64,
    /// Whether it has been asked which node has its bytes.
    pub(crate) is_located: bool,
    /// How often it was begun anew, because the file changed meanwhile.
    pub(crate) restarts: u32,
}

/// What a request is doing.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Nothing more; what is left is its content.
    Ended,
    /// Finding what it is about.
    Walk(Box<Walk>),
    /// Whether a directory has a page of its own.
    Index(Box<IndexPage>),
    /// Whether the caller may read what it asks the head of.
    Access(Box<Stream>),
    /// Whether one node has all that is asked for.
    Locate(Box<Locating>),
    /// Sending a file.
    Stream(Box<Stream>),
    /// Gathering the names of a directory.
    List(Box<Listing>),
    /// Taking a file.
    Upload(Box<Upload>),
    /// Removing a name, or making a directory.
    Change(Box<Removal>),
}

/// A directory that may have an `index.html`.
#[derive(Debug)]
pub(crate) struct IndexPage {
    pub(crate) directory: crossdock_peer::Attributes,
}

impl Exchange {
    pub(crate) fn is_head(&self) -> bool {
        self.head.method == Method::Head
    }

    pub(crate) fn version(&self) -> HttpVersion {
        self.head.version
    }

    /// Whether the client has to go on sending.
    pub(crate) fn awaits_body(&self) -> bool {
        match &self.stage {
            Stage::Upload(upload) => !self.body.is_done() && !upload.is_full(),
            Stage::Ended => !self.body.is_done(),
            _ => false,
        }
    }

    /// Whether it is about to change a name: what comes of it is to be told.
    pub(crate) fn is_changing(&self) -> bool {
        match &self.stage {
            Stage::Change(_) => true,
            Stage::Upload(upload) => upload.is_taking_its_name(),
            _ => false,
        }
    }

    /// The names of the path.
    pub(crate) fn path(&self) -> &[Bytes] {
        &self.head.target.path
    }
}
