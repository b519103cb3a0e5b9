//! Third-party transfer as the data thread sees it: whose packets are caught, and what the
//! host's machines are told of it.

use std::collections::BTreeMap;

use crossdock_admin::snapshot::TransferFigures;
use crossdock_net::{Event, now};

use super::Shell;
use super::inject::{InjectFigures, Why};

impl Shell {
    /// Packets may have been caught; the event again if it is somebody else's.
    pub(super) fn take_caught_event(&mut self, event: Event) -> Option<Event> {
        self.injector.take_event(event)
    }

    /// What is acknowledged of what nodes send, and whose packets they need not fill any
    /// more.
    pub(super) fn mind_injected(&mut self) {
        self.injector.look(&mut self.driver);
        for lost in self.injector.take_lost() {
            self.host.refill(now(), lost.ticket, lost.flow, lost.extent);
        }
        for (flow, window) in self.injector.take_windows() {
            self.host.note_window(flow, window);
        }
        for flow in self.injector.take_ended() {
            self.host.end_flow(flow);
        }
    }

    /// What went which way, and what this host has sent: its nodes, or a gateway where no node
    /// could.
    pub(super) fn transfer_figures(&self) -> TransferFigures {
        let mut all = TransferFigures::default();
        if let Some(figures) = self.injector.figures() {
            let relayed = self.relayed_bytes(figures);
            let (tunnels, connections) = self.injector.counts();
            all.is_gateway = true;
            all.injected_bytes = figures.injected_bytes;
            (all.hot_bytes, all.hot_served_bytes) = self.host.hot_bytes();
            (all.lent_bytes, all.borrowed_bytes) = self.host.lending_figures();
            all.redirected_bytes = self.host.http_figures().redirected_bytes;
            all.relayed_bytes = relayed;
            (all.tunnels, all.connections) = (tunnels as u64, connections as u64);
            all.packets = self.injector.packets();
            all.refilled_bytes = figures.refilled_bytes;
            all.reset_total = figures.reset;
            all.udp.injected = figures.datagrams.injected;
            all.udp.injected_bytes = figures.datagrams.injected_bytes;
            all.udp.relayed = figures.datagrams.relayed;
            all.udp.relayed_bytes = by_word(&figures.datagrams.relayed_bytes);
            all.udp.lost = figures.datagrams.lost;
        }
        if let Some(sent) = self.host.transfer_figures() {
            let inflator = sent.inflator;
            all.is_node = !all.is_gateway;
            all.sent_bytes = inflator.injected_bytes;
            all.sent_packets = inflator.sent;
            all.udp.sent = inflator.replies;
            all.udp.sent_bytes = inflator.replied_bytes;
            all.udp.sent_fragments = inflator.fragments;
            (all.held_bytes, all.pins) = (sent.held_bytes, sent.pins);
            let refused = [
                ("forged", inflator.forged),
                ("stale", inflator.stale),
                ("refused", inflator.refused),
                ("overflowed", inflator.overflowed),
                ("untold", inflator.untold),
                ("unfilled", inflator.unfilled),
                ("not_held", sent.full),
            ];
            all.refused = refused.map(|(why, count)| (why.to_owned(), count)).into();
        }
        all
    }

    /// Bytes that the gateway has sent itself, by why: the doors know what they have not asked
    /// nodes for.
    fn relayed_bytes(&self, figures: &InjectFigures) -> BTreeMap<String, u64> {
        let mut all = by_word(&figures.relayed_bytes);
        let (nfs, http) = self.host.relayed_bytes();
        let chosen = [
            ("short", nfs.short_bytes + http.short_bytes),
            ("hot", nfs.hot_bytes + http.hot_bytes),
            ("policy", nfs.by_rule_bytes + http.by_rule_bytes),
        ];
        for (why, bytes) in chosen {
            let here = all.entry(Why::Here.word().to_owned()).or_default();
            *here = here.saturating_sub(bytes);
            all.insert(why.to_owned(), bytes);
        }
        all
    }
}

fn by_word(relayed: &BTreeMap<Why, u64>) -> BTreeMap<String, u64> {
    let relayed = relayed.iter();
    relayed
        .map(|(why, &bytes)| (why.word().to_owned(), bytes))
        .collect()
}
