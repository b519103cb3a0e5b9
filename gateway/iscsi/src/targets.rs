//! Text requests: which targets there are (SendTargets, RFC 7143 appendix C), and the few keys
//! that may be said again once a session is there.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_iscsi_pdu::{
    Head, NO_TAG, Pdu, RejectReason, TextRequest, TextResponse, encode_text, opcode, parse_text,
};
use crossdock_peer::Lun;
use crossdock_types::Payload;

use crate::connection::TextRest;
use crate::door::IscsiDoor;
use crate::message::{ConnId, Portals};

impl IscsiDoor {
    /// Answers a text request, or goes on with an answer that was too long for one PDU.
    pub(crate) fn serve_text(&mut self, id: ConnId, request: &TextRequest, pdu: &Pdu) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let tag = request.transfer_tag.get();
        let rest = connection.text.take();
        if tag != NO_TAG {
            return match rest.filter(|rest| rest.tag == tag) {
                Some(rest) => self.send_text(id, request, rest.rest),
                None => self.reject(id, RejectReason::Protocol, pdu),
            };
        }
        // Keys that go over several requests are none of those that may come here.
        if request.head.is_continued() || !request.head.is_final() {
            return self.reject(id, RejectReason::Negotiation, pdu);
        }
        let Ok(pairs) = parse_text(&pdu.data.to_bytes()) else {
            return self.reject(id, RejectReason::Protocol, pdu);
        };
        let mut answers = Vec::new();
        for (key, value) in pairs {
            match key.as_str() {
                "SendTargets" => answers.extend(self.targets(id, &value)),
                "MaxRecvDataSegmentLength" => answers.extend(self.take_length(id, &value)),
                "InitiatorAlias" => {}
                key if key.starts_with("X-") || key.starts_with("X#") => {
                    answers.push((key.to_owned(), "NotUnderstood".to_owned()));
                }
                // Nothing else may be negotiated anew.
                _ => answers.push((key, "Reject".to_owned())),
            }
        }
        let text = encode_text(answers.iter().map(|(key, value)| (&key[..], &value[..])));
        self.send_text(id, request, text);
    }

    fn take_length(&mut self, id: ConnId, value: &str) -> Option<(String, String)> {
        let mut parameters = self.session_of(id)?.parameters;
        let refused = parameters.take_data_length(value);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.their_data_bytes_max = parameters.their_data_bytes_max;
        }
        refused.map(|answer| ("MaxRecvDataSegmentLength".to_owned(), answer))
    }

    fn send_text(&mut self, id: ConnId, request: &TextRequest, mut text: Bytes) {
        self.texts_total = self.texts_total.wrapping_add(1) % NO_TAG;
        let tag = self.texts_total;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let part = text.split_to(text.len().min(connection.their_data_bytes_max));
        let goes_on = !text.is_empty();
        if goes_on {
            connection.text = Some(TextRest { tag, rest: text });
        }
        let numbers = self.numbers(id, true);
        let header = TextResponse {
            head: Head::new(opcode::TEXT_RESPONSE, if goes_on { 0x40 } else { 0x80 }),
            lun: request.lun,
            task_tag: request.task_tag,
            transfer_tag: if goes_on { tag } else { NO_TAG }.into(),
            stat_sn: numbers.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            ..TextResponse::default()
        };
        self.push(id, &header, Payload::from(part));
    }

    /// The targets that the initiator may use, with all their portals.
    fn targets(&self, id: ConnId, which: &str) -> Vec<(String, String)> {
        let (Some(connection), Some(session)) = (self.connections.get(&id), self.session_of(id))
        else {
            return Vec::new();
        };
        let initiator = &session.nexus.initiator;
        let is_meant = |lun: &&Lun| match (which, session.unit) {
            // Only who discovers is told of all.
            ("All", unit) => unit.is_none(),
            ("", unit) => unit == Some(lun.id),
            (name, None) => lun.target() == name,
            (name, Some(unit)) => unit == lun.id && lun.target() == name,
        };
        let may_use = |lun: &&Lun| lun.access.rule(initiator, connection.from()).is_some();
        let luns = self.luns.values().filter(is_meant).filter(may_use);
        let portals = self.portals.told_to(connection.local);
        let mut told = Vec::new();
        for lun in luns {
            told.push(("TargetName".to_owned(), lun.target()));
            let address = |(portal, port): &(SocketAddr, u16)| {
                ("TargetAddress".to_owned(), format!("{portal},{port}"))
            };
            told.extend(portals.iter().map(address));
        }
        told
    }

    /// Number of the port to which a connection has come.
    pub(crate) fn port_of(&self, id: ConnId) -> Option<u16> {
        let connection = self.connections.get(&id)?;
        Some(self.portals.port_at(connection.local))
    }
}

impl Portals {
    /// Number of the port that has this address of the machine.
    fn port_at(&self, local: Option<SocketAddr>) -> u16 {
        self.virtual_at(local).unwrap_or(self.port)
    }

    fn virtual_at(&self, local: Option<SocketAddr>) -> Option<u16> {
        let local = local?.ip().to_canonical();
        let mut virtual_ones = self.virtual_ones.iter();
        let found = virtual_ones.find(|(address, _)| address.ip() == local);
        found.map(|(_, port)| *port)
    }

    /// All portals of a target, for who has come to that address; this gateway's are the first.
    /// Who came to a virtual address is told these: they are what initiators know there.
    fn told_to(&self, local: Option<SocketAddr>) -> Vec<(SocketAddr, u16)> {
        if self.virtual_at(local).is_some() {
            return self.virtual_ones.clone();
        }
        let resolve = |portal: &SocketAddr| match local {
            _ if !portal.ip().is_unspecified() => Some(*portal),
            Some(local) => Some(SocketAddr::new(local.ip().to_canonical(), portal.port())),
            None => None,
        };
        let own = self.own.iter().filter_map(resolve);
        let own: BTreeSet<SocketAddr> = own.collect();
        let is_here = local.is_some_and(|local| local.ip().to_canonical().is_loopback());
        // The loopback of another machine leads nobody there.
        let is_usable = |(address, _): &&(SocketAddr, u16)| is_here || !address.ip().is_loopback();
        let others: BTreeSet<(SocketAddr, u16)> =
            self.others.iter().filter(is_usable).copied().collect();
        let own = own.into_iter().map(|address| (address, self.port));
        own.chain(others).collect()
    }

    /// Numbers of all ports of a target, in order.
    pub(crate) fn ports(&self) -> BTreeSet<u16> {
        let others = self.others.iter().chain(&self.virtual_ones);
        let others = others.map(|(_, port)| *port);
        others.chain([self.port]).collect()
    }
}
