//! Signed URLs of the columns of a file, at the nodes that have them (docs/decisions/0032).
//!
//! The path is looked up and the file opened as the user for whom the URLs are, so its site
//! judges; with its answer comes the right by which they are signed. Each column is looked
//! at, too: a URL is for the bytes as they are now. What no node has under a URL of its own
//! (what lies below the threshold, holes) the gateway has: it reads all of a file.

mod cut;
mod order;
mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use crossdock_http::{ConnId, HttpInput, Wanted};
use crossdock_names::{FileCapability, FileRef, NodeId, ObjectId, Rights, Version};
use crossdock_peer::{
    Call, CallId, Caller, FileKind, FileLayout, NodeAnswer, NodeReply, NodeRequest, ObjectStat,
    OpenFor, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest,
};
use crossdock_router::RouterInput;
use crossdock_server::CAPABILITY_SECONDS;
use crossdock_types::{Time, WallTime};
use crossdock_web::{FilePlace, ObjectUrl, SignedMethod, SignedUrl, UrlPath};

use self::cut::{Piece, merge, split};
use self::order::refusal;
pub use self::order::{ColumnsError, ColumnsOrder, NodePiece, SignedColumns, SignedPiece};
pub use self::shares::{Share, ShareOrder, SharedFile, SharedPiece};
use self::shares::{ShareCalls, Sharing};
use crate::host::{Host, HostEffect};
use crate::message::{Message, Shown};
use crate::sites::PATIENCE;
use crate::walks::{WALKS_MAX, volume_root};

/// Calls of what is signed have this bit, those of doors and of the router never.
const SIGN_BIT: u64 = 1 << 57;

/// How much of a file is signed at a time, in bytes: it may lie in 4096 pieces.
pub const SIGNED_PIECES_BYTES_MAX: u64 = 1 << 30;

/// Longest time for which URLs at nodes hold, in seconds: that of the right by which they are
/// signed.
pub const OBJECT_URL_SECONDS_MAX: u64 = CAPABILITY_SECONDS;

/// How long a client that is sent to a node may take to come there: it comes at once.
const REDIRECT_SECONDS: u64 = 60;

/// How often a file is opened again that is cut while its columns are looked at.
const REOPENS_MAX: u32 = 8;

/// Which [`Host::sign_columns`] an effect answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnsTicket(u64);

/// What is being signed.
#[derive(Default)]
pub(crate) struct Signings {
    begun: BTreeMap<u64, Signing>,
    total: u64,
    /// Those that are for clients of the HTTP door.
    located: BTreeMap<u64, ConnId>,
    /// Columns that are looked at, and for which of them.
    calls: BTreeMap<CallId, (u64, ObjectId)>,
    share_calls: ShareCalls,
    calls_total: u64,
}

impl Signings {
    /// When the next one is given up.
    pub(crate) fn due(&self) -> Option<Time> {
        self.begun.values().map(|signing| signing.due).min()
    }

    /// Whether an answer of a node is for one of them.
    pub(crate) const fn owns(id: CallId) -> bool {
        id.0 >> 57 == 1
    }
}

struct Signing {
    order: ColumnsOrder,
    goal: Goal,
    /// When it is to end; earlier if the right does.
    expires: u64,
    due: Time,
    /// Names still to look up, the next one last.
    rest: Vec<Bytes>,
    file: FileRef,
    opened: Option<Opened>,
    reopened: u32,
}

/// What is to come of it.
enum Goal {
    /// URLs, beside that of the whole file: its path and query, signed.
    Urls { target: String },
    /// Capabilities at depots.
    Shares(Box<Sharing>),
}

/// What the site has told, and the nodes so far.
struct Opened {
    layout: FileLayout,
    size_bytes: u64,
    pieces: Vec<Piece>,
    /// The newest version of each column that there is, and its length in bytes.
    versions: BTreeMap<ObjectId, (Version, u64)>,
    waiting: BTreeSet<ObjectId>,
}

impl Host {
    /// Begins to sign URLs of a file's columns; [`HostEffect::ColumnsSigned`] tells what came
    /// of it.
    ///
    /// # Errors
    /// Why not, as far as it can be seen at once.
    pub fn sign_columns(
        &mut self,
        now: Time,
        wall: WallTime,
        order: ColumnsOrder,
    ) -> Result<ColumnsTicket, ColumnsError> {
        let number = self.begin_signing(now, wall, order)?;
        self.pump(now, wall);
        Ok(ColumnsTicket(number))
    }

    /// The same for a client of the HTTP door, which is told where its range lies if that is at
    /// one node.
    pub(crate) fn locate(&mut self, now: Time, wall: WallTime, id: ConnId, wanted: Wanted) {
        let names = wanted.names.iter().map(AsRef::as_ref);
        let begun = UrlPath::of_names(names, false).ok().and_then(|path| {
            let order = ColumnsOrder {
                path,
                offset_bytes: wanted.range.start,
                length_bytes: Some(wanted.range.end - wanted.range.start),
                seconds: REDIRECT_SECONDS,
                uid: wanted.uid,
                gid: wanted.gid,
                is_of_file: true,
            };
            self.begin_signing(now, wall, order).ok()
        });
        match begun {
            Some(number) => _ = self.signings.located.insert(number, id),
            None => self.tell_located(id, None),
        }
    }

    fn tell_located(&mut self, id: ConnId, url: Option<String>) {
        let located = HttpInput::Located(id, url);
        self.queue.push_back(Message::Http(located));
    }

    fn begin_signing(
        &mut self,
        now: Time,
        wall: WallTime,
        order: ColumnsOrder,
    ) -> Result<u64, ColumnsError> {
        if !(1..=OBJECT_URL_SECONDS_MAX).contains(&order.seconds) {
            return Err(ColumnsError::Seconds(order.seconds));
        }
        let expires = seconds(wall).saturating_add(order.seconds);
        let target = self.sign(&SignedUrl {
            method: SignedMethod::Get,
            path: order.path.clone(),
            expires,
            uid: order.uid,
            gid: order.gid,
        });
        let target = target.map_err(ColumnsError::Sign)?;
        self.begin_columns(now, order, expires, Goal::Urls { target })
    }

    fn begin_columns(
        &mut self,
        now: Time,
        order: ColumnsOrder,
        expires: u64,
        goal: Goal,
    ) -> Result<u64, ColumnsError> {
        if self.signings.begun.len() >= WALKS_MAX {
            return Err(ColumnsError::Busy);
        }
        let names = order.path.names().iter().rev();
        let signing = Signing {
            goal,
            expires,
            due: now + PATIENCE,
            rest: names.map(|name| Bytes::copy_from_slice(name)).collect(),
            file: volume_root(),
            opened: None,
            reopened: 0,
            order,
        };
        if signing.rest.is_empty() {
            return Err(ColumnsError::NotFile(signing.order.path));
        }
        self.signings.total += 1;
        let number = self.signings.total;
        self.step_signing(now, number, signing);
        Ok(number)
    }

    /// Whether an answer of a site is for what is signed.
    pub(crate) const fn is_of_signing(id: CallId) -> bool {
        Signings::owns(id)
    }

    /// Asks a site for what comes next.
    fn step_signing(&mut self, now: Time, number: u64, mut signing: Signing) {
        let operation = match signing.rest.pop() {
            Some(name) => SiteOperation::Lookup {
                directory: signing.file,
                name,
            },
            None => signing.before_opening().unwrap_or(SiteOperation::Open {
                file: signing.file,
                purpose: OpenFor::Read {
                    offset_bytes: signing.order.offset_bytes,
                    end_bytes: signing.order.end_bytes(),
                },
                holder: None,
            }),
        };
        self.ask_for_signing(now, number, signing, operation);
    }

    fn ask_for_signing(
        &mut self,
        now: Time,
        number: u64,
        signing: Signing,
        operation: SiteOperation,
    ) {
        let call = Call {
            id: CallId(SIGN_BIT | number),
            deadline: now + PATIENCE,
            request: SiteRequest {
                caller: Caller {
                    uid: signing.order.uid,
                    gid: signing.order.gid,
                    groups: Arc::from([]),
                },
                duplicate: None,
                operation,
            },
        };
        self.signings.begun.insert(number, signing);
        let input = RouterInput::Request(Box::new(call));
        self.queue.push_back(Message::Router(input));
    }

    /// A site has answered.
    pub(crate) fn take_signing(&mut self, now: Time, mut reply: SiteReply) {
        let number = reply.id.0 & !SIGN_BIT;
        let Some(mut signing) = self.signings.begun.remove(&number) else {
            return;
        };
        // As an answer that leaves for another host; here it is the process's own right.
        if !self.registry.is_shared() {
            self.mint(self.host_id(), Rights::READ, &mut reply);
        }
        let after = reply.subject.after.take();
        let size_bytes = after.as_ref().map(|after| after.size_bytes);
        match reply.outcome {
            Ok(SiteAnswer::Found { attributes, .. }) => {
                let is_last = signing.rest.is_empty();
                signing.file = attributes.file;
                match attributes.kind {
                    FileKind::Regular if is_last => self.step_signing(now, number, signing),
                    FileKind::Directory if !is_last => self.step_signing(now, number, signing),
                    _ => {
                        let of = match is_last {
                            true => ColumnsError::NotFile,
                            false => ColumnsError::NotFound,
                        };
                        self.end_signing(number, Err(of(signing.order.path)));
                    }
                }
            }
            Ok(SiteAnswer::Opened { layout, .. }) => {
                let opened = Opened::new(&signing.order, layout, size_bytes.unwrap_or(0));
                match opened {
                    Ok(opened) => {
                        if let Goal::Shares(sharing) = &mut signing.goal {
                            sharing.begin(after);
                        }
                        signing.opened = Some(opened);
                        self.look_at_columns(now, number, signing);
                    }
                    Err(error) => self.end_signing(number, Err(error)),
                }
            }
            Ok(SiteAnswer::Committed) => self.step_signing(now, number, signing),
            Ok(SiteAnswer::Read { payload, .. }) => {
                self.take_head(now, number, signing, (payload, after));
            }
            Ok(_) => self.end_signing(number, Err(ColumnsError::Volume(SiteError::Io))),
            Err(error) => {
                let error = refusal(error, signing.order.path);
                self.end_signing(number, Err(error));
            }
        }
    }

    /// Asks the primary of each column for its version.
    fn look_at_columns(&mut self, now: Time, number: u64, mut signing: Signing) {
        if let Some(opened) = &mut signing.opened
            && let Some(right) = opened.layout.capability
        {
            for object in opened.columns() {
                let Some(node) = self.primary_of(&object) else {
                    continue; // The gateway waits for one.
                };
                opened.waiting.insert(object);
                self.signings.calls_total += 1;
                let id = CallId(SIGN_BIT | self.signings.calls_total);
                self.signings.calls.insert(id, (number, object));
                let call = Call {
                    id,
                    deadline: now + PATIENCE,
                    request: NodeRequest::Stat { object },
                };
                let shown = Shown {
                    capability: Some(right),
                    flow: None,
                };
                let message = Message::Routed(node, call, shown);
                self.queue.push_back(message);
            }
        }
        self.signings.begun.insert(number, signing);
        self.settle_signing(now, number);
    }

    /// A node has answered.
    pub(crate) fn take_column(&mut self, now: Time, reply: NodeReply) {
        let Some((number, object)) = self.signings.calls.remove(&reply.id) else {
            return self.take_share(now, reply.id, reply.outcome);
        };
        let Some(signing) = self.signings.begun.get_mut(&number) else {
            return;
        };
        if let Some(opened) = &mut signing.opened {
            opened.waiting.remove(&object);
            if let Ok(NodeAnswer::Stat(stat)) = reply.outcome {
                match opened.is_cut(&stat) {
                    // Where its bytes lie may have changed since it was opened.
                    true => signing.opened = None,
                    false => {
                        let found = (stat.version, stat.size_bytes);
                        opened.versions.insert(object, found);
                    }
                }
            }
        }
        self.settle_signing(now, number);
    }

    /// Signs, once all nodes have answered.
    fn settle_signing(&mut self, now: Time, number: u64) {
        let Some(signing) = self.signings.begun.remove(&number) else {
            return;
        };
        match &signing.opened {
            Some(opened) if !opened.waiting.is_empty() => {
                self.signings.begun.insert(number, signing);
            }
            Some(opened) => match &signing.goal {
                Goal::Urls { target } => {
                    let signed = self.sign_pieces(&signing, opened, target.clone());
                    self.end_signing(number, Ok(signed));
                }
                Goal::Shares(_) => self.share_columns(now, number, signing),
            },
            None => self.open_again(now, number, signing),
        }
    }

    /// The file has changed meanwhile.
    fn open_again(&mut self, now: Time, number: u64, mut signing: Signing) {
        if signing.reopened >= REOPENS_MAX {
            return self.end_signing(number, Err(ColumnsError::Volume(SiteError::Busy)));
        }
        signing.reopened += 1;
        signing.opened = None;
        self.forget_columns(number);
        self.step_signing(now, number, signing);
    }

    /// What nodes answer for it is not wanted any more.
    fn forget_columns(&mut self, number: u64) {
        self.signings.calls.retain(|_, (of, _)| *of != number);
        self.signings
            .share_calls
            .retain(|_, (of, ..)| *of != number);
    }

    fn sign_pieces(&self, signing: &Signing, opened: &Opened, target: String) -> SignedColumns {
        let right = opened.layout.capability;
        let until = right.map_or(u64::MAX, |right| right.expiry_seconds);
        let expires = signing.expires.min(until);
        let mut pieces: Vec<SignedPiece> = Vec::new();
        for piece in merge(opened.pieces.iter().map(|piece| opened.as_it_is(piece))) {
            let terms = (expires, signing.order.is_of_file);
            let at_node = right.and_then(|right| self.sign_piece(&piece, opened, terms, &right));
            match pieces.last_mut() {
                // The same URL, whose client wants one range.
                Some(last) if last.at_node.is_none() && at_node.is_none() => {
                    last.length_bytes += piece.length_bytes;
                }
                _ => pieces.push(SignedPiece {
                    offset_bytes: piece.offset_bytes,
                    length_bytes: piece.length_bytes,
                    at_node,
                }),
            }
        }
        SignedColumns {
            size_bytes: opened.size_bytes,
            expires,
            target,
            pieces,
        }
    }

    /// A piece at its node, if that has a door.
    fn sign_piece(
        &self,
        piece: &Piece,
        opened: &Opened,
        (expires, is_of_file): (u64, bool),
        right: &FileCapability,
    ) -> Option<NodePiece> {
        let (object, offset_bytes) = piece.column?;
        let node = self.primary_of(&object)?;
        let url = ObjectUrl {
            object,
            node,
            offset_bytes,
            length_bytes: piece.length_bytes,
            version: opened.versions.get(&object)?.0,
            expires,
            place: is_of_file.then_some(FilePlace {
                offset_bytes: piece.offset_bytes,
                size_bytes: opened.size_bytes,
            }),
        };
        Some(NodePiece {
            number: self.node_number(node.0)?,
            door: self.node_door(node)?,
            target: url.sign(right)?,
        })
    }

    fn primary_of(&self, object: &ObjectId) -> Option<NodeId> {
        self.table.members_of(object)?.members.first().copied()
    }

    /// Gives up what nobody has answered in time.
    pub(crate) fn expire_signings(&mut self, now: Time) {
        let late = self.signings.begun.iter();
        let late = late.filter(|(_, signing)| signing.due <= now);
        for number in late.map(|(&number, _)| number).collect::<Vec<_>>() {
            let error = ColumnsError::Volume(SiteError::Unanswered);
            self.end_signing(number, Err(error));
        }
    }

    fn end_signing(&mut self, number: u64, result: Result<SignedColumns, ColumnsError>) {
        self.signings.begun.remove(&number);
        self.forget_columns(number);
        if let Some(id) = self.signings.located.remove(&number) {
            return self.tell_located(id, result.ok().and_then(only_url));
        }
        let ticket = ColumnsTicket(number);
        self.effects
            .push_back(HostEffect::ColumnsSigned { ticket, result });
    }
}

impl Signing {
    /// What is asked of the file's site before it is opened, if anything is.
    fn before_opening(&mut self) -> Option<SiteOperation> {
        match &mut self.goal {
            Goal::Urls { .. } => None,
            Goal::Shares(sharing) => sharing.before_opening(self.file),
        }
    }
}

impl Opened {
    fn new(
        order: &ColumnsOrder,
        layout: FileLayout,
        size_bytes: u64,
    ) -> Result<Self, ColumnsError> {
        let end = order.length_bytes.map_or(size_bytes, |_| order.end_bytes());
        let range = order.offset_bytes..end.min(size_bytes);
        let length = range.end.saturating_sub(range.start);
        if length > SIGNED_PIECES_BYTES_MAX {
            return Err(ColumnsError::TooLong(length));
        }
        Ok(Self {
            pieces: split(&layout, range),
            layout,
            size_bytes,
            versions: BTreeMap::new(),
            waiting: BTreeSet::new(),
        })
    }

    fn columns(&self) -> BTreeSet<ObjectId> {
        let columns = self.pieces.iter().filter_map(|piece| piece.column);
        columns.map(|(object, _)| object).collect()
    }

    const fn is_cut(&self, stat: &ObjectStat) -> bool {
        stat.truncate_generation > self.layout.truncate_generation
    }

    /// A column that was never written to is not there: a hole.
    fn as_it_is(&self, piece: &Piece) -> Piece {
        let column = piece.column;
        Piece {
            column: column.filter(|(object, _)| self.versions.contains_key(object)),
            ..*piece
        }
    }
}

/// The URL of the node that has all that was signed, if one has.
fn only_url(signed: SignedColumns) -> Option<String> {
    match &signed.pieces[..] {
        [piece] => {
            let at_node = piece.at_node.as_ref()?;
            Some(format!("{}{}", at_node.door, at_node.target))
        }
        _ => None,
    }
}

fn seconds(wall: WallTime) -> u64 {
    u64::try_from(wall.parts().0).unwrap_or(0)
}
