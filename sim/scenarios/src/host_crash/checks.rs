//! What is held against a host that has just started, and against one that is
//! to be empty.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_names::{ObjectClass, ObjectId};
use crossdock_nfs3::{Call, Handle, Location, Name, Reply, Status, call};
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, ObjectStat, ReadVersion};

use super::acts::Act;
use super::driver::{Driver, Pending, Stop};
use super::model::{CELL_BYTES, CELLS_MAX, NameKey, name_of};

/// Bytes of a READ here.
const READ_BYTES: u32 = 256 << 10;

/// Bytes of an object that a tool reads at once.
const OBJECT_READ_BYTES: u64 = 512 << 10;

impl Driver<'_> {
    /// After a start: what was caught about names is sent again or looked up,
    /// everything is as the model says, and then the data that was caught is
    /// sent again, and lost replies come again.
    pub(super) fn verify_start(&mut self) -> Result<(), Stop> {
        let caught = std::mem::take(&mut self.memory.caught);
        let (names, data) = caught
            .into_iter()
            .partition(|pending: &Pending| !pending.act.names().is_empty());
        self.memory.caught = data;
        for pending in &self.memory.caught {
            pending.act.may_have_happened(&mut self.memory.model);
        }
        self.memory.caught_names.extend::<Vec<Pending>>(names);
        while let Some(pending) = self.memory.caught_names.pop() {
            if self.memory.random.coin() {
                self.resend(pending)?;
            } else {
                self.look_up(pending)?;
            }
        }
        self.verify_all()?;
        while let Some(pending) = self.memory.caught.pop() {
            if self.memory.random.coin() {
                self.resend(pending)?;
            } else {
                pending.act.unlock(&mut self.memory.model);
            }
        }
        for (client, record, reply) in self.memory.answered.clone() {
            let again = self.exchange(client, record)?;
            if again != reply {
                return Err(Stop::Violation(format!(
                    "a retransmission is answered {again:02x?}, not {reply:02x?}"
                )));
            }
        }
        Ok(())
    }

    /// Compares all names and all content with the model.
    pub(super) fn verify_all(&mut self) -> Result<(), Stop> {
        let directories = self.memory.model.directories.len();
        for directory in 0..directories {
            for number in 0..u8::MAX {
                let key = (directory, number);
                let known = self.memory.model.names.get(&key).copied();
                if known.is_none() && number >= 5 {
                    break;
                }
                let found = self.lookup(key)?;
                let expected = known.map(|file| self.memory.model.files[&file].handle);
                if found != expected {
                    return Err(Stop::Violation(format!(
                        "name {key:?} is {found:?}, should be {expected:?}"
                    )));
                }
                if let Some(file) = known {
                    self.verify_file(file)?;
                }
            }
        }
        Ok(())
    }

    /// Nobody sends it again: which names are there tells what became of it.
    fn look_up(&mut self, pending: Pending) -> Result<(), Stop> {
        let act = pending.act.clone();
        let mut found = Vec::new();
        for name in act.names() {
            match self.lookup(name) {
                Ok(handle) => found.push(handle),
                Err(stop) => {
                    self.memory.caught_names.push(pending);
                    return Err(stop);
                }
            }
        }
        act.unlock(&mut self.memory.model);
        let model = &mut self.memory.model;
        match (&act, found.as_slice()) {
            (Act::Create { name, is_directory }, &[Some(handle)]) => {
                act.created(model, *name, handle, *is_directory);
            }
            (Act::Remove { name }, [None]) => act.removed(model, *name),
            (Act::Rename { source, target }, [None, Some(_)]) => {
                act.renamed(model, *source, *target);
            }
            _ => {}
        }
        // What is wrong with the rest will show.
        Ok(())
    }

    fn lookup(&mut self, key: NameKey) -> Result<Option<crossdock_nfs3::HandleBuffer>, Stop> {
        let directory = self.memory.model.directories[key.0];
        let name = name_of(key);
        let call = Call::Lookup(Location {
            directory: directory.as_handle(),
            name: Name(&name),
        });
        match self.call(&call)? {
            Reply::Lookup(Ok(found)) => Ok(Some(found.object)),
            Reply::Lookup(Err(failure)) if failure.status == Status::NoEnt => Ok(None),
            other => Err(Stop::Violation(format!(
                "LOOKUP of {key:?}: {:?}",
                other.status()
            ))),
        }
    }

    fn verify_file(&mut self, number: usize) -> Result<(), Stop> {
        let file = &self.memory.model.files[&number];
        let (handle, is_directory) = (file.handle, file.is_directory);
        let object = handle.as_handle();
        let reply = self.call(&Call::Getattr(call::Getattr { object }))?;
        let Reply::Getattr(Ok(attributes)) = reply else {
            return Err(Stop::Violation(format!(
                "GETATTR of file {number}: {:?}",
                reply.status()
            )));
        };
        if is_directory {
            return Ok(());
        }
        let size = attributes.size_bytes;
        let (low, high) = self.memory.model.files[&number].sizes();
        if size < low || size > high {
            return Err(Stop::Violation(format!(
                "file {number} has {size} bytes, should have {low} to {high}"
            )));
        }
        let mut offset = 0;
        let end = CELLS_MAX as u64 * CELL_BYTES;
        while offset < end {
            let data = self.read(object, offset)?;
            let length = data.len() as u64;
            if length != size.saturating_sub(offset).min(u64::from(READ_BYTES)) {
                return Err(Stop::Violation(format!(
                    "file {number} of {size} bytes: {length} bytes from {offset}"
                )));
            }
            if let Some(file) = self.memory.model.files.get_mut(&number) {
                file.check(offset, &data, true)
                    .map_err(|what| Stop::Violation(format!("file {number}: {what}")))?;
            }
            offset += u64::from(READ_BYTES);
        }
        if let Some(file) = self.memory.model.files.get_mut(&number) {
            file.shows_size(size)
                .map_err(|what| Stop::Violation(format!("file {number}: {what}")))?;
        }
        Ok(())
    }

    fn read(&mut self, file: Handle<'_>, offset: u64) -> Result<bytes::Bytes, Stop> {
        let count_bytes = READ_BYTES;
        let reply = self.call(&Call::Read(call::Read {
            file,
            offset,
            count_bytes,
        }))?;
        match reply {
            Reply::Read(Ok(done)) => Ok(done.data.to_bytes()),
            other => Err(Stop::Violation(format!("READ: {:?}", other.status()))),
        }
    }

    /// Every column is on as many nodes as it should be, and the same on all.
    pub(super) fn verify_replicas(&mut self) -> Result<(), Stop> {
        let mut copies: BTreeMap<ObjectId, Vec<(u32, ObjectStat, Vec<u8>)>> = BTreeMap::new();
        for number in 0..self.shape.nodes {
            for object in self.list(number, ObjectClass::Column)? {
                let stat = self.stat(number, object)?;
                let bytes = self.content(number, object, stat.size_bytes)?;
                copies
                    .entry(object)
                    .or_default()
                    .push((number, stat, bytes));
            }
        }
        for (object, copies) in copies {
            let (_, first, bytes) = &copies[0];
            if copies.len() != self.shape.replicas as usize {
                let nodes: Vec<u32> = copies.iter().map(|copy| copy.0).collect();
                return Err(Stop::Violation(format!("{object} is on nodes {nodes:?}")));
            }
            for (number, stat, other) in &copies[1..] {
                let differing = bytes.iter().zip(other).position(|(a, b)| a != b);
                if differing.is_some()
                    || stat.size_bytes != first.size_bytes
                    || stat.truncate_generation != first.truncate_generation
                {
                    return Err(Stop::Violation(format!(
                        "replicas of {object} differ at {differing:?}: node {} {first:?}, node {number} {stat:?}",
                        copies[0].0
                    )));
                }
            }
        }
        Ok(())
    }

    /// Removes everything: no column is left, and no block that no object has.
    pub(super) fn verify_empty(&mut self) -> Result<(), Stop> {
        let names: Vec<NameKey> = self.memory.model.names.keys().copied().collect();
        for name in names {
            let act = Act::Remove { name };
            let procedure = act.procedure(&self.memory.model);
            let directory = self.memory.model.directories[name.0];
            let bytes = name_of(name);
            let location = Location {
                directory: directory.as_handle(),
                name: Name(&bytes),
            };
            let call = match procedure {
                crossdock_nfs3::Procedure::Rmdir => Call::Rmdir(location),
                _ => Call::Remove(location),
            };
            let reply = self.call(&call)?;
            if let Some(status) = reply.status() {
                return Err(Stop::Violation(format!(
                    "{name:?} is not removed: {status}"
                )));
            }
            act.removed(&mut self.memory.model, name);
        }
        self.settle(Duration::from_secs(30))?;
        for number in 0..self.shape.nodes {
            let columns = self.list(number, ObjectClass::Column)?;
            if !columns.is_empty() {
                return Err(Stop::Violation(format!(
                    "node {number} still has {columns:?}"
                )));
            }
            self.verify_space(number)?;
        }
        Ok(())
    }

    /// The blocks that are given out are those of the objects that there are:
    /// logs, checkpoints, and the backing objects of small files, where a site
    /// gives the room of removed files to later ones.
    fn verify_space(&mut self, number: u32) -> Result<(), Stop> {
        let mut held = 0;
        let mut sizes = Vec::new();
        for class in [
            ObjectClass::SiteLog,
            ObjectClass::Checkpoint,
            ObjectClass::SmallFiles,
        ] {
            for object in self.list(number, class)? {
                let stat = self.stat(number, object)?;
                held += stat.allocated_bytes;
                sizes.push((object, stat.size_bytes, stat.allocated_bytes));
            }
        }
        let nodes = self.rig.status().nodes;
        let node = nodes.iter().find(|node| node.number == number);
        let allocated = node.map_or(0, |node| node.store.allocated_bytes);
        if allocated != held {
            return Err(Stop::Violation(format!(
                "node {number} has given out {allocated} bytes, its objects have {held}: {sizes:?}"
            )));
        }
        Ok(())
    }

    pub(super) fn list(&mut self, number: u32, class: ObjectClass) -> Result<Vec<ObjectId>, Stop> {
        let request = NodeRequest::List {
            class,
            placement: None,
            after: None,
            limit: 4096,
        };
        match self.ask(number, request)? {
            Ok(NodeAnswer::List { objects, .. }) => Ok(objects),
            other => Err(Stop::Violation(format!("List: {other:?}"))),
        }
    }

    pub(super) fn stat(&mut self, number: u32, object: ObjectId) -> Result<ObjectStat, Stop> {
        match self.ask(number, NodeRequest::Stat { object })? {
            Ok(NodeAnswer::Stat(stat)) => Ok(stat),
            other => Err(Stop::Violation(format!("Stat: {other:?}"))),
        }
    }

    fn content(&mut self, number: u32, object: ObjectId, size_bytes: u64) -> Result<Vec<u8>, Stop> {
        let mut content = Vec::new();
        while (content.len() as u64) < size_bytes {
            let at = content.len() as u64;
            let request = NodeRequest::Read {
                object,
                offset_bytes: at,
                length_bytes: (size_bytes - at).min(OBJECT_READ_BYTES),
                version: ReadVersion::Current,
                patience_ms: 0,
            };
            match self.ask(number, request)? {
                Ok(NodeAnswer::Read { payload, .. }) if !payload.is_empty() => {
                    content.extend_from_slice(&payload.to_bytes());
                }
                other => return Err(Stop::Violation(format!("Read: {other:?}"))),
            }
        }
        Ok(content)
    }

    pub(super) fn ask(
        &mut self,
        number: u32,
        request: NodeRequest,
    ) -> Result<Result<NodeAnswer, NodeError>, Stop> {
        self.rig.ask_node(number, request)?;
        let deadline = self.rig.now + Duration::from_secs(60);
        loop {
            if let Some(answer) = self.rig.node_answer() {
                return Ok(answer);
            }
            if self.rig.now >= deadline {
                return Err(Stop::Violation(format!("node {number} does not answer")));
            }
            self.step(Some(deadline))?;
        }
    }
}
