//! From a path that an administrator says to what lies there, name by name, as a
//! client would ask; then what is to be done with it.

use bytes::Bytes;
use crossdock_limits::{EXPORT_PATH_BYTES_MAX, NAME_BYTES_MAX};
use crossdock_locks::Holdings;
use crossdock_names::FileRef;
use crossdock_peer::{
    Call, CallId, ExportRules, FileKind, PolicyRule, QuotaChange, SiteAnswer, SiteError,
    SiteOperation, SiteReply, SiteRequest,
};
use crossdock_router::RouterInput;
use crossdock_types::Time;

use crate::exports::ExportTicket;
use crate::host::Host;
use crate::luns::LunWork;
use crate::message::Message;
use crate::policy::PolicyTicket;
use crate::quotas::QuotaTicket;
use crate::sites::{PATIENCE, ROOT_SITE};

/// Calls of walks have this bit, those of the door never.
pub(crate) const WALK_BIT: u64 = 1 << 63;

/// Paths that are walked at a time.
pub(crate) const WALKS_MAX: usize = 16;

/// A path on its way to its directory.
pub(crate) struct Walk {
    pub(crate) path: String,
    pub(crate) goal: Goal,
    /// Names still to look up, the next one last.
    rest: Vec<Bytes>,
}

/// What is to be done with the directory, or the file.
pub(crate) enum Goal {
    Export(ExportRules),
    /// A rule, and its number.
    Policy(u32, PolicyRule),
    Quota(QuotaChange),
    /// Its site has been asked to change its quota.
    AskedQuota(FileRef),
    /// An order about a LUN, which asks for what it needs.
    Lun(Box<LunWork>),
    /// What the nodes have of it is put together.
    Defrag,
    /// The site has been asked to give up what some clients have.
    AskedRelease(Holdings),
}

/// Why there is no directory.
pub(crate) enum WalkError {
    NotFound,
    NotDirectory,
    Volume(SiteError),
}

impl Walk {
    /// The names of `path`, as [`names_of`] gives them.
    pub(crate) fn new(names: &[&str], goal: Goal) -> Self {
        let rest = names.iter().rev();
        Self {
            path: format!("/{}", names.join("/")),
            goal,
            rest: rest
                .map(|name| Bytes::copy_from_slice(name.as_bytes()))
                .collect(),
        }
    }

    /// Whether a directory is not what is wanted in this place.
    fn must_not_end_here(&self) -> bool {
        self.rest.is_empty() && matches!(self.goal, Goal::Defrag)
    }

    /// Whether something that is no directory is what the path leads to, and is wanted.
    fn may_end_at(&self, kind: FileKind) -> bool {
        let is_of_files = matches!(self.goal, Goal::Policy(..) | Goal::Defrag);
        self.rest.is_empty() && is_of_files && kind == FileKind::Regular
    }
}

impl Host {
    /// Whether the answer to `id` is for a walk.
    pub(crate) const fn is_of_walk(id: CallId) -> bool {
        id.0 & WALK_BIT != 0
    }

    /// Begins a walk, or what has to be asked without one.
    pub(crate) fn begin_walk(&mut self, now: Time, walk: Walk, from: FileRef) -> u64 {
        self.walks_total += 1;
        self.step_walk(now, self.walks_total, walk, from);
        self.walks_total
    }

    /// Goes on with a walk after an answer.
    pub(crate) fn take_walk(&mut self, now: Time, reply: SiteReply) {
        let number = reply.id.0 & !WALK_BIT;
        let Some(walk) = self.walks.remove(&number) else {
            return;
        };
        if let Goal::AskedQuota(directory) = walk.goal {
            return self.take_quota(number, &walk.path, directory, reply.outcome);
        }
        if let Goal::Lun(work) = walk.goal {
            return self.step_lun(now, number, work, reply);
        }
        if let Goal::AskedRelease(had) = walk.goal {
            return self.take_release(number, had, reply.outcome);
        }
        let error = match reply.outcome {
            Ok(SiteAnswer::Found { attributes, .. }) => {
                let is_directory = attributes.kind == FileKind::Directory;
                if (is_directory && !walk.must_not_end_here()) || walk.may_end_at(attributes.kind) {
                    return self.step_walk(now, number, walk, attributes.file);
                }
                WalkError::NotDirectory
            }
            Ok(_) => WalkError::Volume(SiteError::Io), // No answer to a look-up.
            Err(SiteError::NotFound | SiteError::Stale) => WalkError::NotFound,
            Err(SiteError::NotDirectory) => WalkError::NotDirectory,
            Err(error) => WalkError::Volume(error),
        };
        match walk.goal {
            Goal::Export(_) => self.fail_export(ExportTicket(number), walk.path, error),
            Goal::Policy(..) => self.fail_policy(PolicyTicket(number), walk.path, error),
            Goal::Defrag => self.fail_defrag_path(&walk.path, &error),
            _ => self.end_quota(QuotaTicket(number), Err((walk.path, error).into())),
        }
    }

    /// Asks a site on behalf of walk `number`.
    pub(crate) fn ask_for_walk(
        &mut self,
        now: Time,
        number: u64,
        walk: Walk,
        operation: SiteOperation,
    ) {
        self.walks.insert(number, walk);
        let call = Call {
            id: CallId(number | WALK_BIT),
            deadline: now + PATIENCE,
            request: SiteRequest::as_root(operation),
        };
        let input = RouterInput::Request(Box::new(call));
        self.queue.push_back(Message::Router(input));
    }

    fn step_walk(&mut self, now: Time, number: u64, mut walk: Walk, here: FileRef) {
        if let Some(name) = walk.rest.pop() {
            let directory = here;
            let operation = SiteOperation::Lookup { directory, name };
            return self.ask_for_walk(now, number, walk, operation);
        }
        match walk.goal {
            Goal::Export(rules) => {
                self.finish_export(now, ExportTicket(number), walk.path, rules, here);
            }
            Goal::Policy(id, rule) => {
                self.finish_policy(now, PolicyTicket(number), walk.path, (id, rule), here);
            }
            Goal::Defrag => self.finish_defrag_path(now, here),
            Goal::Quota(change) => {
                walk.goal = Goal::AskedQuota(here);
                let directory = here;
                let operation = SiteOperation::SetQuota { directory, change };
                self.ask_for_walk(now, number, walk, operation);
            }
            // Their walks have ended before.
            Goal::AskedQuota(_) | Goal::AskedRelease(_) | Goal::Lun(_) => {}
        }
    }
}

/// The names of a path from the volume's root on; or the path, cut short, and
/// what is wrong with it.
pub(crate) fn names_of(path: &str) -> Result<Vec<&str>, (String, &'static str)> {
    let refused = |why| Err((path.chars().take(EXPORT_PATH_BYTES_MAX).collect(), why));
    let Some(below) = path.strip_prefix('/') else {
        return refused(
            "it has to begin with /, which is the volume's root; files of this machine are not meant",
        );
    };
    if path.len() > EXPORT_PATH_BYTES_MAX {
        return refused("it is longer than 1024 bytes");
    }
    let names = below.split('/').filter(|name| !matches!(*name, "" | "."));
    let names: Vec<&str> = names.collect();
    if names.contains(&"..") {
        return refused("it contains `..`");
    }
    if names.iter().any(|name| name.contains('\0')) {
        return refused("it contains a NUL");
    }
    if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
        return refused("one of its names is longer than 255 bytes");
    }
    Ok(names)
}

/// Where walks begin.
pub(crate) fn volume_root() -> FileRef {
    FileRef::root_of(ROOT_SITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a path is brought into one form, and what can be none is refused
    /// with the reason.
    #[test]
    fn paths_are_checked() {
        assert_eq!(names_of("/"), Ok(vec![]));
        assert_eq!(names_of("//a/./b/"), Ok(vec!["a", "b"]));
        let long = format!("/{}", "x".repeat(256));
        let longer = "/x".repeat(600);
        let cases = [
            ("", "begin"),
            ("srv/data", "begin"),
            ("/a/../b", ".."),
            ("/a\0", "NUL"),
            (&long, "255"),
            (&longer, "1024"),
        ];
        for (path, word) in cases {
            let (_, why) = names_of(path).expect_err("no path");
            assert!(why.contains(word), "{why}");
        }
    }
}
