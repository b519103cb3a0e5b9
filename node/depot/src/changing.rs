//! Commands without data: ALLOCATE, MANAGE, STATUS.

use crossdock_ibp::{
    Access, Capabilities, Capability, Command, ErrorCode, Key, Limits, MEBIBYTE, Manage, Probe,
    Reliability, Resource, Space, Status, StatusQuery, StorageType, Totals, Version, Word, answer,
};
use crossdock_names::Version as ObjectVersion;
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, Order, WriteContext};
use crossdock_types::Time;

use crate::clock::Millis;
use crate::connection::Doing;
use crate::depot::{Depot, RELEASED, REVOKED};
use crate::keys::RESOURCE;
use crate::ledger::{Allocation, DEPOT, object};
use crate::message::ConnId;
use crate::node::{After, Purpose, code_of};
use crate::record::Record;

/// What "VS:" of the status says: the protocol's version and ours.
const VERSION: &str = "1.4:0.1";

/// Largest allocation that any policy grants: its positions are offsets in an object.
const SIZE_BYTES_MAX: u64 = 1 << 42;

/// An allocation that is being made.
#[derive(Debug)]
pub(crate) struct Allocating {
    record: Record,
    /// Until when it waits for room.
    deadline: Time,
    /// The node is making it.
    is_making: bool,
}

/// A change of what is known of an allocation.
#[derive(Debug)]
pub(crate) struct Changing {
    pub(crate) number: u64,
    manage: Manage,
    /// The node is making it.
    is_making: bool,
}

/// Whether there is room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Here,
    /// When what is being removed is gone.
    Coming,
    None,
}

impl Allocating {
    /// When it waits no longer.
    pub(crate) fn due(&self) -> Option<Time> {
        (!self.is_making).then_some(self.deadline)
    }
}

impl Depot {
    pub(crate) fn begin_allocate(
        &mut self,
        now: Time,
        id: ConnId,
        command: Command,
    ) -> Result<(), ErrorCode> {
        let Command::Allocate {
            resource,
            reliability,
            storage,
            duration_seconds,
            size_bytes,
            time_limit,
        } = command
        else {
            return Err(ErrorCode::INTERNAL);
        };
        let connection = self.connections.get(&id);
        let client = connection.and_then(|connection| connection.ends);
        let allocators = &self.config.policy.allocators;
        let is_allowed = |ip| allocators.iter().any(|network| network.contains(ip));
        if client.is_none_or(|(client, _)| !is_allowed(client.ip())) {
            return Err(ErrorCode::INV_IP_ADDR);
        }
        check_resource(resource.as_ref())?;
        let end = self.end_of(now, duration_seconds)?;
        self.check_size(size_bytes)?;
        if self.ledger.len() >= self.config.allocations_max {
            return Err(ErrorCode::RSRC_UNAVAIL);
        }
        let mut secret = [0; 16];
        secret.copy_from_slice(&self.draw()[..16]);
        let record = Record {
            reliability,
            storage,
            read_count: 1,
            write_count: 1,
            size_bytes,
            start: 0,
            length_bytes: 0,
            end,
            secret,
        };
        let deadline = match time_limit {
            0 => now,
            seconds => self.deadline(now, seconds),
        };
        let allocating = Allocating {
            record,
            deadline,
            is_making: false,
        };
        self.set_doing(id, Doing::Allocate(Box::new(allocating)));
        Ok(())
    }

    /// When a lease of so many seconds from now on ends.
    pub(crate) fn end_of(&self, now: Time, duration_seconds: i64) -> Result<Millis, ErrorCode> {
        let clock = self.clock.as_ref().ok_or(ErrorCode::SERVER_RECOVERING)?;
        let seconds_max = self.config.policy.duration_seconds_max;
        match u64::try_from(duration_seconds).unwrap_or(0) {
            0 if seconds_max.is_none() => Ok(Millis::FOREVER),
            0 => Err(ErrorCode::LONG_DURATION),
            seconds if seconds_max.is_some_and(|max| seconds > max) => {
                Err(ErrorCode::LONG_DURATION)
            }
            seconds => Ok(clock.read(now).plus_seconds(seconds)),
        }
    }

    fn check_size(&self, size_bytes: u64) -> Result<(), ErrorCode> {
        let largest = self.config.policy.size_bytes_max.unwrap_or(u64::MAX);
        match size_bytes {
            0 => Err(ErrorCode::INV_PAR_SIZE),
            bytes if bytes > largest.min(SIZE_BYTES_MAX) => Err(ErrorCode::WOULD_EXCEED_POLICY),
            _ => Ok(()),
        }
    }

    /// Goes on with an allocation that waits for room.
    pub(crate) fn try_allocate(&mut self, now: Time, id: ConnId) -> bool {
        let connection = self.connections.get(&id);
        let Some(Doing::Allocate(allocating)) = connection.map(|it| &it.doing) else {
            return false;
        };
        if allocating.is_making {
            return false;
        }
        let (record, deadline) = (allocating.record, allocating.deadline);
        match self.room_for(now, record.reliability, record.size_bytes) {
            Room::Here => self.make(now, id, record),
            Room::None if now >= deadline => {
                self.end_command_with(now, id, ErrorCode::WOULD_EXCEED_LIMIT);
            }
            Room::None => self.wait_for_room(id),
            Room::Coming => self.wait_for_what_goes(now, id),
        }
        false
    }

    /// What goes for an allocation does not go in vain: it waits as long as the node may take.
    fn wait_for_what_goes(&mut self, now: Time, id: ConnId) {
        let due = now + self.config.patience;
        if let Some(Doing::Allocate(allocating)) = self.doing(id) {
            allocating.deadline = allocating.deadline.max(due);
        }
        self.wait_for_room(id);
    }

    fn wait_for_room(&mut self, id: ConnId) {
        if !self.waiting_for_room.contains(&id) {
            self.waiting_for_room.push(id);
        }
    }

    /// Whether so many bytes more can be promised. Volatile allocations go for stable ones.
    fn room_for(&mut self, now: Time, reliability: Reliability, bytes: u64) -> Room {
        let (total_max, stable_max) = self.granted();
        let promised = self.ledger.promised();
        let total = promised.total().saturating_add(bytes);
        if reliability == Reliability::Volatile {
            return match total <= total_max {
                true => Room::Here,
                false => Room::None,
            };
        }
        let stable = promised.stable.saturating_add(bytes);
        match total.saturating_sub(total_max) {
            _ if stable > stable_max => Room::None,
            0 => Room::Here,
            lacking => self.revoke(now, lacking),
        }
    }

    /// Takes volatile allocations back until so many bytes are free, or none if that is not
    /// enough.
    fn revoke(&mut self, now: Time, lacking_bytes: u64) -> Room {
        let mut lacking = lacking_bytes.saturating_sub(self.ledger.leaving_volatile());
        let mut revoked = Vec::new();
        for (number, record) in self.ledger.revocable() {
            if lacking == 0 {
                break;
            }
            lacking = lacking.saturating_sub(record.size_bytes);
            revoked.push(number);
        }
        if lacking > 0 {
            return Room::None;
        }
        for number in revoked {
            self.remove(now, number, REVOKED, None);
        }
        Room::Coming
    }

    /// Bytes that may be promised in all, and to stable allocations.
    fn granted(&self) -> (u64, u64) {
        let policy = &self.config.policy;
        let total = policy.total_bytes.unwrap_or(self.capacity_bytes / 2);
        (total, policy.stable_bytes.unwrap_or(total).min(total))
    }

    fn make(&mut self, now: Time, id: ConnId, record: Record) {
        let number = loop {
            let [a, b, c, d, e, f, g, h, ..] = self.draw();
            let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
            if number != DEPOT && !self.ledger.has(number) {
                break number;
            }
        };
        self.ledger.promise(number, record);
        if let Some(Doing::Allocate(allocating)) = self.doing(id) {
            allocating.is_making = true;
        }
        let request = NodeRequest::Create {
            object: object(number),
            reservation_bytes: record.reservation_bytes(),
            attributes: record.encode(),
            context: WriteContext::default(),
            order: Order::Given(FIRST),
        };
        self.ask(now, Purpose::Create(id, number), request);
    }

    pub(crate) fn created(
        &mut self,
        now: Time,
        id: ConnId,
        number: u64,
        outcome: Result<NodeAnswer, NodeError>,
    ) {
        let Some(Doing::Allocate(allocating)) = self.doing(id) else {
            // Its client is gone: nobody knows the keys.
            if outcome.is_ok() {
                let record = self.ledger.passing(number);
                if let Some(record) = record {
                    self.ledger.insert(number, Allocation::new(record, FIRST));
                    self.remove(now, number, RELEASED, None);
                }
            } else {
                self.ledger.forget(number);
            }
            return;
        };
        allocating.is_making = false;
        let record = allocating.record;
        match outcome {
            Ok(_) => {
                self.ledger.insert(number, Allocation::new(record, FIRST));
                if let Some(capabilities) = self.capabilities(id, number, &record) {
                    self.answer(id, answer::allocated(&capabilities));
                }
                self.finish(now, id);
            }
            Err(error) => {
                self.ledger.forget(number);
                // The disk is full, though so much might be promised.
                let makes_room = error == NodeError::NoSpace
                    && self.revoke(now, record.reservation_bytes().max(1)) == Room::Coming;
                match makes_room {
                    true => self.wait_for_what_goes(now, id),
                    false => self.end_command_with(now, id, code_of(&error)),
                }
            }
        }
    }

    /// What the client of a new allocation is given. The depot is where it was reached.
    fn capabilities(&self, id: ConnId, number: u64, record: &Record) -> Option<Capabilities> {
        let ring = self.ring.as_ref()?;
        let (_, local) = self.connections.get(&id)?.ends?;
        // Of an IPv4 client at an IPv6 socket it is the IPv4 address.
        let (address, port) = (local.ip().to_canonical(), local.port());
        let host = match &self.config.policy.host {
            Some(host) => host.clone(),
            None if address.is_ipv6() => format!("[{address}]"),
            None => address.to_string(),
        };
        let host = Key::new(&host).ok()?;
        let capability = |access| {
            let (key, attribute_key) = ring.make(number, &record.secret, access);
            Capability {
                host: host.clone(),
                port,
                key,
                attribute_key,
                access,
            }
        };
        Some(Capabilities {
            read: capability(Access::Read),
            write: capability(Access::Write),
            manage: capability(Access::Manage),
        })
    }

    pub(crate) fn begin_manage(
        &mut self,
        now: Time,
        id: ConnId,
        (key, attribute): (&Key, &Key),
        manage: Manage,
    ) -> Result<(), ErrorCode> {
        if let Some(shared) = self.shared(now, key, attribute)? {
            if manage != Manage::Probe {
                return Err(ErrorCode::INVALID_MANAGE_CAP);
            }
            self.probe_shared(now, id, &shared);
            return Ok(());
        }
        if manage == Manage::Probe {
            let (_, allocation) = self.find(key, attribute, None)?;
            let probe = self.probe(now, &allocation.record);
            self.answer(id, answer::probed(&probe));
            return Ok(());
        }
        let (number, _) = self.find(key, attribute, Some(Access::Manage))?;
        let changing = Changing {
            number,
            manage,
            is_making: false,
        };
        self.set_doing(id, Doing::Change(Box::new(changing)));
        Ok(())
    }

    fn probe(&self, now: Time, record: &Record) -> Probe {
        let left = match (record.end, &self.clock) {
            (Millis::FOREVER, _) | (_, None) => 0,
            (end, Some(clock)) => end.seconds_from(clock.read(now)),
        };
        Probe {
            read_count: record.read_count.into(),
            write_count: record.write_count.into(),
            size_bytes: record.length_bytes,
            size_bytes_max: record.size_bytes,
            duration_seconds: i64::try_from(left).unwrap_or(i64::MAX),
            reliability: record.reliability,
            storage: record.storage,
        }
    }

    /// Goes on with a change that waits for others.
    pub(crate) fn try_change(&mut self, now: Time, id: ConnId) -> bool {
        let Some(Doing::Change(changing)) = self.doing(id) else {
            return false;
        };
        if changing.is_making {
            return false;
        }
        let (number, manage) = (changing.number, changing.manage);
        let Some(allocation) = self.ledger.get_mut(number) else {
            self.end_command_with(now, id, ErrorCode::CAP_NOT_FOUND);
            return false;
        };
        // What is stored at the moment must not be cut, nor be placed by another size.
        let needs_all = matches!(manage, Manage::Truncate { .. } | Manage::Change { .. });
        if allocation.is_changing || needs_all && allocation.has_writer {
            allocation.wait(id);
            return false;
        }
        let record = allocation.record;
        match self.change(now, id, number, (record, manage)) {
            Ok(()) => {
                if let Some(Doing::Change(changing)) = self.doing(id) {
                    changing.is_making = true;
                }
            }
            Err(Some(code)) => self.end_command_with(now, id, code),
            Err(None) => self.wait_for_room(id),
        }
        false
    }

    /// Begins a change; an error without a code: it has to wait for room.
    fn change(
        &mut self,
        now: Time,
        id: ConnId,
        number: u64,
        (mut record, manage): (Record, Manage),
    ) -> Result<(), Option<ErrorCode>> {
        let before = record;
        let after = match manage {
            Manage::Probe => return Err(Some(ErrorCode::INTERNAL)),
            Manage::Increment(access) => {
                let count = record.count_mut(access);
                *count = count.checked_add(1).ok_or(ErrorCode::TOO_MANY_UNITS)?;
                After::Changed { before }
            }
            Manage::Decrement(access) => {
                let count = record.count_mut(access);
                *count = count.checked_sub(1).ok_or(ErrorCode::CAP_ACCESS_DENIED)?;
                if record.read_count == 0 {
                    self.remove(now, number, RELEASED, Some(id));
                    return Ok(());
                }
                After::Changed { before }
            }
            Manage::Truncate { size_bytes } => {
                if record.storage != StorageType::ByteArray {
                    return Err(Some(ErrorCode::TYPE_NOT_SUPPORTED));
                }
                if size_bytes > record.size_bytes {
                    return Err(Some(ErrorCode::WOULD_EXCEED_LIMIT));
                }
                record.length_bytes = size_bytes;
                if let Some(allocation) = self.ledger.get_mut(number) {
                    allocation.has_writer = true;
                }
                After::Cut { size_bytes }
            }
            Manage::Change {
                size_bytes,
                duration_seconds,
                reliability,
            } => {
                self.check_size(size_bytes)?;
                if size_bytes < record.length_bytes
                    || record.is_queue() && size_bytes != record.size_bytes
                {
                    return Err(Some(ErrorCode::WOULD_DAMAGE_DATA));
                }
                record.end = self.end_of(now, duration_seconds)?;
                record.size_bytes = size_bytes;
                record.reliability = reliability;
                self.make_room(now, &before, &record)?;
                // Promised at once: another one might be promised the same.
                self.ledger.update(number, record);
                After::Changed { before }
            }
        };
        self.record(now, number, record, after, Some(id));
        Ok(())
    }

    /// Room for what an allocation becomes, beyond what it has.
    fn make_room(
        &mut self,
        now: Time,
        before: &Record,
        record: &Record,
    ) -> Result<(), Option<ErrorCode>> {
        let grown = record.size_bytes.saturating_sub(before.size_bytes);
        let has_hardened = (before.reliability, record.reliability)
            == (Reliability::Volatile, Reliability::Stable);
        if has_hardened {
            // It counts for all already, but not for the stable ones.
            let (_, stable_max) = self.granted();
            let stable = self.ledger.promised().stable;
            if stable.saturating_add(record.size_bytes) > stable_max {
                return Err(Some(ErrorCode::WOULD_EXCEED_LIMIT));
            }
        }
        if grown == 0 {
            return Ok(());
        }
        // Of a volatile one that becomes stable this may revoke itself: it is not there then.
        match self.room_for(now, before.reliability, grown) {
            Room::Here => Ok(()),
            Room::Coming => Err(None),
            Room::None => Err(Some(ErrorCode::WOULD_EXCEED_LIMIT)),
        }
    }

    /// A change is made, or a removal.
    pub(crate) fn changed(
        &mut self,
        now: Time,
        by: Option<ConnId>,
        outcome: Result<(), ErrorCode>,
    ) {
        let Some(id) = by else { return };
        if !matches!(self.doing(id), Some(Doing::Change(_))) {
            return; // Its client is gone.
        }
        match outcome {
            Ok(()) => {
                self.answer(id, answer::done());
                self.finish(now, id);
            }
            Err(code) => self.end_command_with(now, id, code),
        }
    }

    pub(crate) fn begin_status(
        &mut self,
        id: ConnId,
        version: Version,
        resource: Option<&Word>,
        query: StatusQuery,
    ) -> Result<(), ErrorCode> {
        check_resource(resource)?;
        let is_new = version == Version::V040;
        match query {
            StatusQuery::Inquire { .. } => self.tell_status(id, is_new),
            StatusQuery::Resources => {
                let ids: Vec<Word> = Word::new(RESOURCE).into_iter().collect();
                self.answer(id, answer::resources(&ids));
            }
            StatusQuery::Change { password } => {
                if !self.is_password(id, &password) {
                    return Err(ErrorCode::WRONG_PASSWD);
                }
                self.set_doing(id, Doing::Limits(is_new));
                self.answer(id, answer::done());
            }
        }
        Ok(())
    }

    /// Without a password of its own a depot takes changes from its own machine alone.
    fn is_password(&self, id: ConnId, shown: &Word) -> bool {
        let equal = |wanted: &str| {
            crossdock_checksum::equal_in_constant_time(wanted.as_bytes(), shown.as_str().as_bytes())
        };
        match &self.config.policy.password {
            Some(password) => equal(password.as_str()),
            None => {
                let ends = self.connections.get(&id).and_then(|it| it.ends);
                let is_here = ends.is_some_and(|(peer, _)| peer.ip().to_canonical().is_loopback());
                is_here && equal("ibp")
            }
        }
    }

    /// Takes the line that follows STATUS CHANGE. What it says holds until the depot is
    /// configured again.
    pub(crate) fn take_limits(&mut self, now: Time, id: ConnId) -> bool {
        let Some(&mut Doing::Limits(is_new)) = self.doing(id) else {
            return false;
        };
        let Some(line) = self.take_line(now, id) else {
            return false;
        };
        match Limits::parse(&line) {
            Ok(limits) => {
                let bytes = |mib: u64| Some(mib.saturating_mul(MEBIBYTE));
                let policy = &mut self.config.policy;
                policy.total_bytes = bytes(limits.volatile_mib);
                policy.stable_bytes = bytes(limits.stable_mib);
                policy.duration_seconds_max = limits.duration_seconds_max;
                self.wake_for_room();
                self.tell_status(id, is_new);
                self.finish(now, id);
            }
            Err(code) => self.end_command_with(now, id, code),
        }
        true
    }

    fn tell_status(&mut self, id: ConnId, is_new: bool) {
        let (total_max, stable_max) = self.granted();
        let promised = self.ledger.promised();
        let duration_seconds_max = self.config.policy.duration_seconds_max;
        if !is_new {
            let totals = Totals {
                stable_mib: stable_max / MEBIBYTE,
                stable_used_mib: promised.stable / MEBIBYTE,
                volatile_mib: total_max / MEBIBYTE,
                volatile_used_mib: promised.total() / MEBIBYTE,
                duration_seconds_max,
            };
            return self.answer(id, totals.to_string());
        }
        let space = |configured: u64, used: u64| {
            let left = configured.saturating_sub(used);
            Space {
                configured_bytes: configured,
                served_bytes: configured.min(self.free_bytes.saturating_add(used)),
                used_bytes: used,
                allocatable_bytes: left.min(self.free_bytes),
            }
        };
        let words = Word::new(RESOURCE).ok().zip(Word::new(VERSION).ok());
        let Some((resource, version)) = words else {
            return;
        };
        let status = Status {
            version,
            data_movers: vec![1],
            resources: vec![Resource {
                id: resource,
                kind: 1,
                total: space(total_max, promised.total()),
                stable: space(stable_max, promised.stable),
                duration_seconds_max,
            }],
        };
        let text = status.to_string();
        self.answer(id, answer::follows(text.len() as u64));
        self.answer(id, text);
    }
}

/// The version of a new allocation.
const FIRST: ObjectVersion = ObjectVersion(1);

fn check_resource(resource: Option<&Word>) -> Result<(), ErrorCode> {
    match resource.is_none_or(|id| id.as_str() == RESOURCE) {
        true => Ok(()),
        false => Err(ErrorCode::UNKNOWN_RS),
    }
}
