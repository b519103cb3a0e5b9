//! The ensemble that this process is a part of: its registry, and who does what.

use crossdock_admin::{Command, DefragOrder, Refusal};
use crossdock_etcd::{Handle, Notice};
use crossdock_host::{Host, HostInput};
use crossdock_members::Change;
use crossdock_names::HostId;
use crossdock_net::{Receiver, now};
use crossdock_types::Time;
use tracing::{info, warn};

use super::Shell;
use super::addresses::Addresses;
use super::links::Links;
use crate::config::Part;
use crate::member::TTL;

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What connects this process with the others.
pub(crate) struct Ensemble {
    pub(crate) part: Part,
    pub(crate) links: Links,
    /// The virtual addresses of a gateway that takes some.
    pub(crate) addresses: Option<Addresses>,
    pub(crate) registry: Handle,
    pub(crate) notices: Receiver<Notice>,
}

impl Ensemble {
    /// Whether this process does what it was started for.
    pub(super) fn is_ready(&self, host: &Host) -> bool {
        match self.part {
            Part::Node { .. } | Part::Manager { .. } => host.is_ready(),
            Part::Gateway { .. } => host.is_ready() && host.reaches_root() && host.knows_handles(),
        }
    }

    /// The others need not wait for signs of life any more.
    pub(super) fn leave(self) {
        self.registry.leave();
    }
}

impl Shell {
    /// What the registry tells, and connections that were made meanwhile.
    pub(super) fn take_notices(&mut self) {
        let Some(ensemble) = &mut self.ensemble else {
            return;
        };
        ensemble.links.take_dialed(&mut self.driver);
        while let Some(ensemble) = &mut self.ensemble
            && let Some(notice) = ensemble.notices.try_receive()
        {
            match notice {
                Notice::State { revision, state } => {
                    ensemble.links.follow(&state);
                    self.give(HostInput::Registry { revision, state });
                    self.tell_lbone();
                }
                Notice::Expired(host) => self.take_expired(host),
                // Before now: a process that stood still counts from when it asked.
                Notice::Heard(at) => {
                    let age = at.elapsed();
                    let until = Time(now().0.saturating_sub(nanos(age))) + TTL;
                    self.give(HostInput::Heard(until));
                }
                Notice::Away(reason) => warn!(
                    %reason,
                    "etcd does not answer: what runs goes on, but nobody can be replaced"
                ),
                Notice::Back => info!("etcd answers again"),
            }
        }
    }

    fn take_expired(&mut self, host: HostId) {
        // Whoever hears of its own end lives; the others decide.
        if host != self.host.host_id() {
            self.give(HostInput::Expired(host));
        }
    }

    pub(super) fn propose(&mut self, change: Change) {
        if let Some(ensemble) = &self.ensemble {
            ensemble.registry.propose(change);
        }
    }

    /// Whether a command can be carried out by this process at all.
    ///
    /// # Errors
    /// Why not, and where else.
    pub(super) fn check_place(&self, command: &Command) -> Result<(), Refusal> {
        let Some(ensemble) = &self.ensemble else {
            return match command {
                Command::PlaceList | Command::Place(_) => Err(Refusal::Conflict(
                    "the nodes of an all-in-one are for good; those of an ensemble come and go (crossdock cluster init)".to_owned(),
                )),
                _ => Ok(()),
            };
        };
        let what = match (command, &ensemble.part) {
            (Command::Place(_), _) if !self.host.is_ready() => {
                "this process has not joined the ensemble yet; ask another one, or try again".to_owned()
            }
            (
                Command::Status
                | Command::AddressList
                | Command::AddressAdd(_)
                | Command::AddressRemove(_)
                | Command::GatewayList
                | Command::GatewayRevoke(_)
                | Command::GatewayRestore(_)
                | Command::GatewayScope(..)
                | Command::ExportList
                | Command::ExportAdd(_)
                | Command::ExportSet(..)
                | Command::ExportRemove(_)
                | Command::PolicyList
                | Command::PolicySet(_)
                | Command::PolicyRemove(_)
                | Command::LunList
                | Command::LunCreate(_)
                | Command::LunSet(..)
                | Command::LunRemove(_)
                | Command::DeliveryDecisions
                | Command::TokenList
                | Command::TokenAdd(_)
                | Command::TokenRemove(_)
                | Command::Sign(_)
                | Command::SignPieces(_)
                | Command::ShareFile(_)
                | Command::ImportFile(_)
                | Command::ImportStatus(_)
                | Command::PlaceList
                | Command::Place(_),
                _,
            )
            | (
                Command::ScrubStart
                | Command::ScrubStatus
                | Command::DiskList
                | Command::DiskOrder(_),
                Part::Node { .. },
            )
            | (
                Command::DefragStatus
                | Command::DefragOrder(
                    DefragOrder::Now | DefragOrder::Stop | DefragOrder::Schedule { .. },
                ),
                Part::Node { .. } | Part::Manager { .. },
            )
            | (
                Command::DefragOrder(DefragOrder::File { .. })
                | Command::FsckStart(_)
                | Command::FsckStatus,
                Part::Manager { .. },
            ) => return Ok(()),
            (Command::DefragStatus | Command::DefragOrder(_), _) => {
                "managers have files put together, at all nodes that have something of them: ask one's admin port (crossdock status lists them), or, without --file, a node's for that node alone".to_owned()
            }
            (
                Command::ScrubStart
                | Command::ScrubStatus
                | Command::DiskList
                | Command::DiskOrder(_),
                _,
            ) => {
                "this process has no storage node; ask a node's admin port".to_owned()
            }
            (Command::FsckStart(_) | Command::FsckStatus, _) => {
                "managers check the volume; ask one's admin port (crossdock status lists them)".to_owned()
            }
            (Command::NodeStop(_) | Command::NodeStart(_), _) => {
                "a node of an ensemble is a process of its own: stop it with SIGTERM, start it with crossdock node run".to_owned()
            }
            (
                Command::QuotaSet(_)
                | Command::QuotaRemove(_)
                | Command::QuotaList
                | Command::LockList
                | Command::LockRelease(_),
                _,
            ) => match self.host.root_manager() {
                Some((host, _)) if host == self.host.host_id() => return Ok(()),
                Some((_, Some(admin))) => {
                    format!("the manager of the root directory does that: say --admin {admin}")
                }
                Some((host, None)) => format!(
                    "the manager of the root directory does that, host {host}, which has no admin port"
                ),
                None => "no manager serves the root directory now; start one with crossdock manager run".to_owned(),
            },
        };
        Err(Refusal::Conflict(what))
    }
}
