//! Read capabilities of a file's bytes at the depots of the nodes that have them
//! (docs/decisions/0046).
//!
//! The way is that of signed URLs up to what each column has; then the file's first bytes are read,
//! which no node has under a capability, and the depots of all members are asked for theirs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossdock_members::DepotDoor;
use crossdock_names::{
    FileRef, Incarnation, NodeId, ObjectId, SMALL_FILE_THRESHOLD_BYTES, Version,
};
use crossdock_peer::{
    Attributes, Call, CallId, NodeAnswer, NodeError, NodeRequest, SiteError, SiteOperation,
};
use crossdock_types::{Payload, Time, WallTime};
use crossdock_web::UrlPath;

use super::cut::{Piece, merge};
use super::{ColumnsError, ColumnsOrder, ColumnsTicket, Goal, Opened, SIGN_BIT, Signing};
use crate::host::{Host, HostEffect};
use crate::message::{Message, Shown};
use crate::sites::PATIENCE;

/// Bytes of one capability at most: whoever loads less does not have to take all.
const SHARE_BYTES_MAX: u64 = 8 << 20;

/// Capabilities that are asked for at a time.
const ASKED_MAX: usize = 256;

/// What is to be shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareOrder {
    /// The file, from the volume's root on.
    pub path: UrlPath,
    /// First byte of what is wanted.
    pub offset_bytes: u64,
    /// How many bytes; all up to the file's end if nothing is said.
    pub length_bytes: Option<u64>,
    /// How long the capabilities are to hold, in seconds.
    pub seconds: u32,
    /// As which user the file is opened.
    pub uid: u32,
    /// As which group.
    pub gid: u32,
}

/// A part of a file, of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFile {
    /// The file's length.
    pub size_bytes: u64,
    /// When it was changed last: parts with the same are of one state.
    pub changed: WallTime,
    /// The bytes of the part that no node has.
    pub head: Payload,
    /// What comes behind them, in order and without gaps.
    pub pieces: Vec<SharedPiece>,
}

/// Bytes of a file, and who gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPiece {
    /// Where they begin in the file.
    pub offset_bytes: u64,
    /// How many.
    pub length_bytes: u64,
    /// One capability for each node that has them; none where they are zeros.
    pub shares: Vec<Share>,
}

/// A read capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Where the depot is.
    pub depot: DepotDoor,
    /// Its key.
    pub key: String,
    /// Its attribute key.
    pub attribute_key: String,
}

/// How far sharing has come.
#[derive(Default)]
pub(super) struct Sharing {
    seconds: u32,
    /// What gateways had not made durable is: what a crash loses must not have been shared.
    is_committed: bool,
    head: Option<Payload>,
    /// The file as it was when it was opened.
    before: Option<Attributes>,
    pieces: Vec<SharedPiece>,
    /// Those of them that are not zeros.
    in_columns: Vec<usize>,
    /// Capabilities to be asked for: of which piece, at which node, of which bytes.
    to_ask: VecDeque<(usize, NodeId, ObjectId, u64)>,
    waiting: BTreeSet<CallId>,
    /// Why one was not made.
    refused: Option<NodeError>,
}

/// Capabilities that are being made: of which order, and of which piece at which node.
pub(super) type ShareCalls = BTreeMap<CallId, (u64, usize, NodeId)>;

impl Host {
    /// Begins to make read capabilities of a file's bytes at depots:
    /// [`HostEffect::FileShared`], or [`HostEffect::ColumnsSigned`] with why not.
    ///
    /// # Errors
    /// Why not, as far as it can be seen at once.
    pub fn share_file(
        &mut self,
        now: Time,
        wall: WallTime,
        order: ShareOrder,
    ) -> Result<ColumnsTicket, ColumnsError> {
        let sharing = Sharing {
            seconds: order.seconds,
            ..Sharing::default()
        };
        let order = ColumnsOrder {
            path: order.path,
            offset_bytes: order.offset_bytes,
            length_bytes: order.length_bytes,
            seconds: order.seconds.into(),
            uid: order.uid,
            gid: order.gid,
            is_of_file: false,
        };
        let number = self.begin_columns(now, order, u64::MAX, Goal::Shares(Box::new(sharing)))?;
        self.pump(now, wall);
        Ok(ColumnsTicket(number))
    }

    /// Where clients reach the depot of a node, if others are told of it.
    #[must_use]
    pub fn node_depot(&self, node: NodeId) -> Option<&DepotDoor> {
        let number = self.node_number(node.0)?;
        if !self.registry.is_shared() {
            return self.role.depots.get(&number);
        }
        let host = self.table.hosts.nodes.get(&node)?;
        let record = self.registry.state().hosts.get(&host.0)?;
        record.depots.get(&number)
    }

    /// All depots of the volume's nodes that others are told of.
    pub fn depot_doors(&self) -> impl Iterator<Item = &DepotDoor> {
        let nodes = self.registry.state().nodes.iter();
        nodes.filter_map(|node| self.node_depot(NodeId(node.id)))
    }

    /// The first bytes of the file, or of what is wanted of it; what is asked of its site next.
    pub(super) fn read_head(signing: &Signing, opened: &Opened) -> Option<SiteOperation> {
        let offset_bytes = signing.order.offset_bytes;
        let end = SMALL_FILE_THRESHOLD_BYTES.min(opened.end_bytes(&signing.order));
        (offset_bytes < end).then_some(SiteOperation::Read {
            file: signing.file,
            offset_bytes,
            length_bytes: end - offset_bytes,
            patience_ms: 0,
        })
    }

    /// All columns have said what they have: the head is read, then depots are asked.
    pub(super) fn share_columns(&mut self, now: Time, number: u64, mut signing: Signing) {
        let Some(opened) = &signing.opened else {
            return;
        };
        let (head, offset_bytes) = (
            Self::read_head(&signing, opened),
            signing.order.offset_bytes,
        );
        let Goal::Shares(sharing) = &mut signing.goal else {
            return;
        };
        match head {
            Some(head) if sharing.head.is_none() => {
                self.ask_for_signing(now, number, signing, head);
            }
            head => {
                let behind = head.map_or(offset_bytes, |_| SMALL_FILE_THRESHOLD_BYTES);
                self.plan_shares(&mut signing, behind);
                self.signings.begun.insert(number, signing);
                self.ask_for_shares(now, number);
            }
        }
    }

    /// The head has come: it is of the same state as the columns if nothing has changed since the
    /// file was opened.
    pub(super) fn take_head(
        &mut self,
        now: Time,
        number: u64,
        mut signing: Signing,
        (payload, after): (Payload, Option<Attributes>),
    ) {
        let Goal::Shares(sharing) = &mut signing.goal else {
            return self.end_signing(number, Err(ColumnsError::Volume(SiteError::Io)));
        };
        let state = |of: &Option<Attributes>| of.as_ref().map(|it| (it.size_bytes, it.changed));
        if after.is_none() || state(&after) != state(&sharing.before) {
            return self.open_again(now, number, signing);
        }
        sharing.head = Some(payload);
        self.share_columns(now, number, signing);
    }

    /// What is wanted, from `behind` on, as pieces of which each lies in one column or nowhere.
    fn plan_shares(&self, signing: &mut Signing, behind: u64) {
        let (Some(opened), Goal::Shares(sharing)) = (&signing.opened, &mut signing.goal) else {
            return;
        };
        let pieces = opened.pieces.iter().filter(|it| it.offset_bytes >= behind);
        let known = pieces.flat_map(|piece| opened.as_long_as_it_is(piece));
        let cut = merge(known).into_iter().flat_map(short);
        for piece in cut {
            let place = sharing.pieces.len();
            sharing.pieces.push(SharedPiece {
                offset_bytes: piece.offset_bytes,
                length_bytes: piece.length_bytes,
                shares: Vec::new(),
            });
            if let Some((object, offset)) = piece.column {
                sharing.in_columns.push(place);
                let members = self.table.members_of(&object);
                let members = members.into_iter().flat_map(|set| set.members.iter());
                let known = members.filter(|&&node| self.node_depot(node).is_some());
                let asked = known.map(|&node| (place, node, object, offset));
                let before = sharing.to_ask.len();
                sharing.to_ask.extend(asked);
                if sharing.to_ask.len() == before {
                    sharing.refused.get_or_insert_with(|| NodeError::Invalid(
                        "no node that has the bytes has a depot that others are told of (--ibp)".into(),
                    ));
                }
            }
        }
    }

    fn ask_for_shares(&mut self, now: Time, number: u64) {
        let Some(mut signing) = self.signings.begun.remove(&number) else {
            return;
        };
        let (Some(opened), Goal::Shares(sharing)) = (&signing.opened, &mut signing.goal) else {
            return;
        };
        while sharing.waiting.len() < ASKED_MAX
            && let Some((place, node, object, offset_bytes)) = sharing.to_ask.pop_front()
        {
            let Some(version) = opened.version_of(&object) else {
                continue;
            };
            self.signings.calls_total += 1;
            let id = CallId(SIGN_BIT | self.signings.calls_total);
            self.signings.share_calls.insert(id, (number, place, node));
            sharing.waiting.insert(id);
            let call = Call {
                id,
                deadline: now + PATIENCE,
                request: NodeRequest::Share {
                    object,
                    offset_bytes,
                    length_bytes: sharing.pieces[place].length_bytes,
                    version,
                    seconds: sharing.seconds,
                },
            };
            let shown = Shown {
                capability: opened.layout.capability,
                flow: None,
            };
            self.queue.push_back(Message::Routed(node, call, shown));
        }
        if sharing.waiting.is_empty() {
            return self.end_sharing(now, number, signing);
        }
        self.signings.begun.insert(number, signing);
    }

    /// A depot has answered.
    pub(super) fn take_share(
        &mut self,
        now: Time,
        id: CallId,
        outcome: Result<NodeAnswer, NodeError>,
    ) {
        let Some((number, place, node)) = self.signings.share_calls.remove(&id) else {
            return;
        };
        let depot = self.node_depot(node).cloned();
        let Some(signing) = self.signings.begun.get_mut(&number) else {
            return;
        };
        let Goal::Shares(sharing) = &mut signing.goal else {
            return;
        };
        sharing.waiting.remove(&id);
        match (outcome, depot) {
            (Ok(NodeAnswer::Shared { key, attribute_key }), Some(depot)) => {
                if let Some(piece) = sharing.pieces.get_mut(place) {
                    piece.shares.push(Share {
                        depot,
                        key,
                        attribute_key,
                    });
                }
            }
            (Ok(_), _) => {}
            (Err(error), _) => _ = sharing.refused.get_or_insert(error),
        }
        self.ask_for_shares(now, number);
    }

    /// Every depot has answered: each piece needs one that has it.
    fn end_sharing(&mut self, now: Time, number: u64, mut signing: Signing) {
        let (Some(opened), Goal::Shares(sharing)) = (&signing.opened, &mut signing.goal) else {
            return;
        };
        let lacks = |&place: &usize| sharing.pieces[place].shares.is_empty();
        if sharing.in_columns.iter().any(lacks) {
            return match sharing.refused.take() {
                // It was changed meanwhile.
                Some(NodeError::VersionGone | NodeError::NoObject) => {
                    self.open_again(now, number, signing);
                }
                Some(error) => {
                    let error = ColumnsError::Depot(error.to_string());
                    self.end_signing(number, Err(error));
                }
                None => self.end_signing(number, Err(ColumnsError::Volume(SiteError::Io))),
            };
        }
        let shared = SharedFile {
            size_bytes: opened.size_bytes,
            changed: sharing.before.as_ref().map_or(WallTime(0), |it| it.changed),
            head: sharing.head.take().unwrap_or_default(),
            pieces: std::mem::take(&mut sharing.pieces),
        };
        let ticket = ColumnsTicket(number);
        let file = Box::new(shared);
        self.effects
            .push_back(HostEffect::FileShared { ticket, file });
    }
}

impl Sharing {
    /// What comes before the file is opened, once.
    pub(super) fn before_opening(&mut self, file: FileRef) -> Option<SiteOperation> {
        let is_committed = std::mem::replace(&mut self.is_committed, true);
        (!is_committed).then_some(SiteOperation::Commit {
            file,
            incarnation: Incarnation::default(),
        })
    }

    /// The file was opened.
    pub(super) fn begin(&mut self, before: Option<Attributes>) {
        *self = Self {
            seconds: self.seconds,
            is_committed: true,
            before,
            ..Self::default()
        };
    }
}

impl Opened {
    fn end_bytes(&self, order: &ColumnsOrder) -> u64 {
        let end = order.length_bytes.map_or(u64::MAX, |_| order.end_bytes());
        end.min(self.size_bytes)
    }

    fn version_of(&self, object: &ObjectId) -> Option<Version> {
        self.versions.get(object).map(|&(version, _)| version)
    }

    /// A piece up to the end of its column, and what is behind that: zeros.
    fn as_long_as_it_is(&self, piece: &Piece) -> impl Iterator<Item = Piece> + use<> {
        let end = piece.column.and_then(|(object, offset)| {
            let &(_, size) = self.versions.get(&object)?;
            Some(size.saturating_sub(offset).min(piece.length_bytes))
        });
        let here = end.unwrap_or(0);
        let there = Piece {
            length_bytes: here,
            ..*piece
        };
        let behind = Piece {
            offset_bytes: piece.offset_bytes + here,
            length_bytes: piece.length_bytes - here,
            column: None,
        };
        [there, behind].into_iter().filter(|it| it.length_bytes > 0)
    }
}

/// The same in parts of [`SHARE_BYTES_MAX`].
fn short(piece: Piece) -> impl Iterator<Item = Piece> {
    let starts = (0..piece.length_bytes).step_by(usize::try_from(SHARE_BYTES_MAX).unwrap_or(1));
    starts.map(move |start| Piece {
        offset_bytes: piece.offset_bytes + start,
        length_bytes: SHARE_BYTES_MAX.min(piece.length_bytes - start),
        column: piece
            .column
            .map(|(object, offset)| (object, offset + start)),
    })
}
