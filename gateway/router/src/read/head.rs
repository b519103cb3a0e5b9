//! The part of a READ that is the site's: it gives the bytes, or, where nodes may send them
//! themselves, tells where they lie in backing objects (SPIRAL section 2).

use crossdock_limits::INJECTED_PIECE_BYTES_MIN;
use crossdock_names::SMALL_FILE_THRESHOLD_BYTES;
use crossdock_peer::{
    BackingExtent, NodeAnswer, ReadVersion, SiteAnswer, SiteOperation, SiteReply, Transport,
    WeakCache,
};
use crossdock_types::Payload;

use super::{Bulk, Phase, ReadWork, io_error};
use crate::leases::Known;
use crate::part::{Outcome, PartRequest};
use crate::soft::Soft;
use crate::work::{Answer, Step, boundary};

/// Where the site told that bytes lie.
#[derive(Debug)]
pub(super) struct Located {
    extents: Vec<BackingExtent>,
    end_of_file: bool,
    subject: WeakCache,
}

impl Located {
    fn length_bytes(&self) -> u64 {
        let extents = self.extents.iter();
        extents.map(|extent| u64::from(extent.length_bytes)).sum()
    }
}

impl ReadWork {
    /// Asks for what lies below the threshold, or for where that is.
    pub(super) fn head(&self) -> Step {
        self.ask_head(self.may_locate(self.head_bytes()))
    }

    /// Whether the site's part is wanted, and has not been read yet.
    pub(super) fn lacks_head(&self) -> bool {
        (self.payload.len() as u64) < self.head_bytes()
    }

    /// Asks for what lies below the threshold, to be kept if a lease says still then that the
    /// file is as it is now.
    pub(super) fn head_under(&mut self, known: Option<&Known>) -> Step {
        self.head_under = known.map(|known| (known.lease, known.attributes.changed));
        self.phase = Phase::Head;
        self.head()
    }

    /// Keeps what was read below the threshold of a file that is read again and again.
    fn keep_head(&mut self, head: &Payload, soft: &mut Soft) {
        if let Some((lease, changed)) = self.head_under.take()
            && soft
                .leases
                .is_unchanged(soft.now, self.file, lease, changed)
        {
            let kept = (head.clone(), None);
            soft.hot.put(self.file, changed, self.start, kept);
        }
    }

    /// The head comes through the gateway.
    fn relay_head(&self) -> Step {
        self.ask_head(false)
    }

    fn head_bytes(&self) -> u64 {
        boundary(self.start, self.end) - self.start
    }

    fn ask_head(&self, may_locate: bool) -> Step {
        let (offset_bytes, length_bytes) = (self.start, self.head_bytes());
        let (file, patience_ms) = (self.file, self.patience_ms);
        self.site(match may_locate {
            true => SiteOperation::Locate {
                file,
                offset_bytes,
                length_bytes,
                patience_ms,
            },
            false => SiteOperation::Read {
                file,
                offset_bytes,
                length_bytes,
                patience_ms,
            },
        })
    }

    /// A datagram is one node's as a whole.
    fn may_locate(&self, length_bytes: u64) -> bool {
        let Bulk::For(flow) = self.bulk else {
            return false;
        };
        let is_all = self.end <= SMALL_FILE_THRESHOLD_BYTES;
        length_bytes >= INJECTED_PIECE_BYTES_MIN && (flow.transport == Transport::Tcp || is_all)
    }

    /// The site has answered.
    pub(super) fn after_head(&mut self, reply: SiteReply, soft: &mut Soft) -> Step {
        match reply.outcome {
            Ok(SiteAnswer::Read {
                payload,
                end_of_file,
            }) => self.has_head(payload, end_of_file, reply.subject, soft),
            Ok(SiteAnswer::Located {
                extents,
                end_of_file,
            }) => self.read_located(Located {
                extents,
                end_of_file,
                subject: reply.subject,
            }),
            _ => Step::Reply(reply.into()),
        }
    }

    fn read_located(&mut self, located: Located) -> Step {
        let Bulk::For(flow) = self.bulk else {
            return io_error();
        };
        if located.length_bytes() > self.head_bytes() {
            return io_error();
        }
        if flow.transport == Transport::Udp && located.extents.len() != 1 {
            return self.relay_head();
        }
        let parts = located.extents.iter().map(|extent| PartRequest::Read {
            object: extent.object,
            offset_bytes: extent.offset_bytes,
            length_bytes: extent.length_bytes.into(),
            version: ReadVersion::NotAfter(extent.version),
            patience_ms: self.patience_ms,
            capability: extent.capability,
            flow: (u64::from(extent.length_bytes) >= INJECTED_PIECE_BYTES_MIN).then_some(flow),
            state: None,
        });
        let parts = parts.collect();
        self.phase = Phase::Located(located);
        Step::Parts(parts)
    }

    /// Nodes have answered. What is not there any more as it was told, the site reads.
    pub(super) fn after_located(
        &mut self,
        located: Located,
        outcomes: Vec<Outcome>,
        soft: &mut Soft,
    ) -> Step {
        let mut head = Payload::new();
        for (extent, outcome) in located.extents.iter().zip(outcomes) {
            match outcome {
                Outcome::Node(Ok(NodeAnswer::Read { payload, .. }))
                    if payload.len() as u64 == u64::from(extent.length_bytes) =>
                {
                    head.append(payload);
                }
                _ => return self.relay_head(),
            }
        }
        self.has_head(head, located.end_of_file, located.subject, soft)
    }

    fn has_head(
        &mut self,
        head: Payload,
        end_of_file: bool,
        subject: WeakCache,
        soft: &mut Soft,
    ) -> Step {
        self.keep_head(&head, soft);
        let is_more_wanted = boundary(self.start, self.end) < self.end;
        // All of the head, and more is wanted.
        if !end_of_file && is_more_wanted && head.len() as u64 == self.head_bytes() {
            self.payload = head;
            return self.open(soft);
        }
        // The end of the file, or fewer bytes than asked: a short read is allowed, and the
        // client asks for the rest.
        let read = SiteAnswer::Read {
            payload: head,
            end_of_file,
        };
        Step::Reply(Answer::new(Ok(read), subject))
    }
}
