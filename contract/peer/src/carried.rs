//! Which messages carry bulk bytes. Between hosts these travel behind the
//! message, as they lie in memory.

use crossdock_types::Payload;

use crate::{NodeAnswer, NodeReply, NodeRequest, SiteAnswer, SiteOperation, SiteReply};

/// A message that may carry one payload.
pub trait Carries {
    /// The bytes, if messages of that kind carry some.
    fn payload(&self) -> Option<&Payload>;

    /// The same, to put them in or take them out.
    fn payload_mut(&mut self) -> Option<&mut Payload>;

    /// Where in its object or file the first byte goes; 0 for answers, which do
    /// not say it. Whoever receives the bytes makes its blocks blocks in memory.
    fn payload_offset_bytes(&self) -> u64;
}

impl Carries for NodeRequest {
    fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Write { payload, .. }
            | Self::Append { payload, .. }
            | Self::Repair { payload, .. }
            | Self::Exchange { payload, .. } => Some(payload),
            _ => None,
        }
    }

    fn payload_mut(&mut self) -> Option<&mut Payload> {
        match self {
            Self::Write { payload, .. }
            | Self::Append { payload, .. }
            | Self::Repair { payload, .. }
            | Self::Exchange { payload, .. } => Some(payload),
            _ => None,
        }
    }

    fn payload_offset_bytes(&self) -> u64 {
        match self {
            Self::Write { offset_bytes, .. }
            | Self::Append { offset_bytes, .. }
            | Self::Repair { offset_bytes, .. } => *offset_bytes,
            _ => 0,
        }
    }
}

impl Carries for SiteOperation {
    fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Write { payload, .. } | Self::Exchange { payload, .. } => Some(payload),
            _ => None,
        }
    }

    fn payload_mut(&mut self) -> Option<&mut Payload> {
        match self {
            Self::Write { payload, .. } | Self::Exchange { payload, .. } => Some(payload),
            _ => None,
        }
    }

    fn payload_offset_bytes(&self) -> u64 {
        match self {
            Self::Write { offset_bytes, .. } => *offset_bytes,
            _ => 0,
        }
    }
}

impl Carries for NodeReply {
    fn payload(&self) -> Option<&Payload> {
        match &self.outcome {
            Ok(NodeAnswer::Read { payload, .. }) => Some(payload),
            _ => None,
        }
    }

    fn payload_mut(&mut self) -> Option<&mut Payload> {
        match &mut self.outcome {
            Ok(NodeAnswer::Read { payload, .. }) => Some(payload),
            _ => None,
        }
    }

    fn payload_offset_bytes(&self) -> u64 {
        0
    }
}

impl Carries for SiteReply {
    fn payload(&self) -> Option<&Payload> {
        match &self.outcome {
            Ok(SiteAnswer::Read { payload, .. }) => Some(payload),
            _ => None,
        }
    }

    fn payload_mut(&mut self) -> Option<&mut Payload> {
        match &mut self.outcome {
            Ok(SiteAnswer::Read { payload, .. }) => Some(payload),
            _ => None,
        }
    }

    fn payload_offset_bytes(&self) -> u64 {
        0
    }
}
