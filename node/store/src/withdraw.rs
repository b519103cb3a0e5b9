//! Reads that nobody waits for any more, or not soon: what is still before the disk
//! for them is withdrawn or moved behind (TPF section 3.3, EDRC).
//!
//! A disk read may have several readers: the one that asked for it, and those that
//! found it on its way ([`crate::under_way`]). It is withdrawn when the last of
//! them is gone, and moved behind only while all of them can wait. What was
//! fetched ahead for a stream is wanted as long as the stream goes on: it ends
//! with the last of its reads under way, if that is withdrawn, or when the gateway
//! that had it fetched says so.

use crossdock_disk::DiskToken;
use crossdock_names::ObjectId;
use crossdock_peer::CallId;
use crossdock_types::Time;

use crate::interface::StoreEffect;
use crate::read::{ReadWait, Reader};
use crate::store::{BLOCK, DiskUse, Store, busy};

impl Store {
    /// Nobody waits for the call any more. It is told to try again, as each call
    /// has one answer; unless it is no read, and under way.
    pub(crate) fn cancel(&mut self, call: CallId) {
        if self.cancel_waiting(call) {
            return self.refuse(call, busy());
        }
        let Some(number) = self.read_of(call) else {
            return;
        };
        let stream = self.reads.remove(&number).and_then(|wait| wait.stream);
        self.forget_reader(number);
        if let Some(stream) = stream {
            self.end_stream(stream);
        }
        self.refuse(call, busy());
    }

    /// Those are gone for whom a gateway has wanted some of these bytes.
    pub(crate) fn end_readers(&mut self, object: &ObjectId, range: (u64, u64)) {
        for stream in self.ahead.told_at(object, range) {
            self.end_stream(stream);
        }
    }

    /// Nobody wants the call's answer before `until`, or somebody does again.
    pub(crate) fn postpone(&mut self, call: CallId, until: Option<Time>) {
        let Some(number) = self.read_of(call) else {
            return;
        };
        if let Some(wait) = self.reads.get_mut(&number) {
            wait.postponed = until;
        }
        let mut tokens = self.under_way.waited_for_by(number);
        tokens.extend(self.requests_of(number).map(|(token, _)| token));
        for token in tokens {
            self.tell_how_urgent(token);
        }
    }

    /// Calls are cancelled and postponed rarely: looking at all beats a second map.
    fn read_of(&self, call: CallId) -> Option<u64> {
        let is_it = |wait: &ReadWait| wait.reader() == Reader::Client(call);
        let found = self.reads.iter().find(|(_, wait)| is_it(wait));
        found.map(|(&number, _)| number)
    }

    /// The requests for data that a read has made, and how many blocks each has.
    fn requests_of(&self, number: u64) -> impl Iterator<Item = (DiskToken, u64)> {
        let operations = self.operations.iter();
        operations.filter_map(move |(&token, operation)| match operation {
            DiskUse::DataRead { read, wanted } if *read == number => {
                let blocks = wanted.iter().map(|it| it.range.blocks).sum();
                Some((DiskToken(token), blocks))
            }
            // The first request for it is what others wait for.
            DiskUse::ReadOther(mending) if mending.fetched.read == number => {
                Some((mending.fetched.token, mending.fetched.range.blocks))
            }
            _ => None,
        })
    }

    /// The read is gone: what only it wanted of the disk is withdrawn.
    fn forget_reader(&mut self, number: u64) {
        let mut tokens = self.under_way.leave(number);
        tokens.extend(self.requests_of(number).map(|(token, _)| token));
        for token in tokens {
            if self.readers_of(token).next().is_some() {
                self.tell_how_urgent(token);
            } else {
                self.effects.push_back(StoreEffect::Withdraw(token));
            }
        }
    }

    /// A read of the stream is gone. If none of its reads is under way any more it
    /// has ended, and with it what is fetched ahead for it.
    fn end_stream(&mut self, stream: u64) {
        let is_its = |wait: &&ReadWait| wait.stream == Some(stream);
        let is_client = |wait: &ReadWait| matches!(wait.reader(), Reader::Client(_));
        if self.reads.values().filter(is_its).any(is_client) {
            return;
        }
        self.ahead.end(stream);
        let its = self.reads.iter().filter(|(_, wait)| is_its(wait));
        let its: Vec<u64> = its.map(|(&number, _)| number).collect();
        for number in its {
            self.reads.remove(&number);
            let blocks: u64 = self.requests_of(number).map(|(_, blocks)| blocks).sum();
            self.ahead.in_flight_bytes -= blocks * BLOCK;
            self.forget_reader(number);
        }
    }

    /// Who wants what a request for data fetches.
    fn readers_of(&self, token: DiskToken) -> impl Iterator<Item = &ReadWait> {
        let operation = self.operations.get(&token.0);
        let asked = operation.and_then(|operation| match operation {
            DiskUse::DataRead { read, wanted } => Some((*read, wanted)),
            _ => None,
        });
        let wanted = asked.into_iter().flat_map(|(_, wanted)| wanted);
        let others = wanted.flat_map(move |it| self.under_way.waiters(token, it.range.block));
        let all = asked.map(|(read, _)| read).into_iter();
        all.chain(others)
            .filter_map(|number| self.reads.get(&number))
    }

    /// Tells those before the disk when the first reader of a request wants it. What is
    /// fetched ahead has no say in it.
    fn tell_how_urgent(&mut self, token: DiskToken) {
        let readers = self.readers_of(token);
        let waiting = readers.filter(|wait| wait.reader() != Reader::Ahead);
        // Nothing is earlier than a time.
        let earliest = waiting.map(|wait| wait.postponed).min().flatten();
        self.effects.push_back(match earliest {
            Some(until) => StoreEffect::Postpone(token, until),
            None => StoreEffect::Resume(token),
        });
    }
}
