//! What may happen to a host of a rig: its cable is cut, it hears or says nothing,
//! its process stands still or ends, its file system fills up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::process::Signal;

use super::{Cluster, switch};
use crate::process::run;

/// What does not pass a host's cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Anything.
    Both,
    /// What others send to the host.
    Hearing,
    /// What the host sends.
    Saying,
}

impl Cluster<'_> {
    /// Cuts the cable of a host.
    pub(crate) fn cut(&self, name: &str, cut: Cut) -> Result<()> {
        let (hook, by) = match cut {
            Cut::Both => {
                let switch = switch::netns(&self.name, "switch");
                return switch::ip(&format!("-n {switch} link set dev {name} down"));
            }
            Cut::Hearing => ("input", "iif"),
            Cut::Saying => ("output", "oif"),
        };
        let rules = [
            "add table inet cut",
            &format!(
                "add chain inet cut dropped {{ type filter hook {hook} priority 0; policy drop; }}"
            ),
            &format!("add rule inet cut dropped {by} lo accept"),
        ];
        self.filter(name, &rules.join("\n"))
    }

    /// Undoes it.
    pub(crate) fn mend(&self, name: &str, cut: Cut) -> Result<()> {
        if cut == Cut::Both {
            let switch = switch::netns(&self.name, "switch");
            return switch::ip(&format!("-n {switch} link set dev {name} up"));
        }
        self.filter(name, "delete table inet cut\n")
    }

    /// Gives a host's packet filter `rules`.
    pub(super) fn filter(&self, name: &str, rules: &str) -> Result<()> {
        let host = &self.hosts[self.index(name)?];
        switch::filter(&host.netns, rules)
    }

    /// Has a host's process stand still (SIGSTOP), or go on (SIGCONT).
    pub(crate) fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let process = self.hosts[self.index(name)?].process.as_ref();
        process
            .with_context(|| format!("{name} does not run"))?
            .signal(signal)
    }

    /// Has a node that does not run take no packets of gateways any more, once it is started.
    pub(crate) fn deafen(&mut self, name: &str) -> Result<()> {
        let at = self.index(name)?;
        self.hosts[at].is_deaf = true;
        Ok(())
    }

    /// Starts every member again that has ended, as a supervisor does; which. They
    /// may not serve yet.
    pub(crate) fn supervise(&mut self) -> Result<Vec<String>> {
        let ended = self.indices(|host| {
            let process = host.process.as_ref();
            process.is_some_and(|process| !process.is_running())
        });
        ended.iter().try_for_each(|&at| self.start(at))?;
        let names = ended.iter().map(|&at| self.hosts[at].name.clone());
        Ok(names.collect())
    }

    /// Leaves so many bytes free on the file system of a node; see
    /// [`Options::node_disk`](super::Options::node_disk).
    pub(crate) fn fill(&self, name: &str, free_bytes: u64) -> Result<()> {
        let disk = self.disk(name);
        let space = statvfs(&disk)?;
        let taken = (space.f_bavail * space.f_frsize).saturating_sub(free_bytes);
        let ballast = fs::File::create(disk.join("ballast"))?;
        fallocate(&ballast, FallocateFlags::empty(), 0, taken)
            .with_context(|| format!("{taken} bytes on the disk of {name}"))
    }

    /// Undoes it.
    pub(crate) fn unfill(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.disk(name).join("ballast"))?)
    }

    /// Where a node's file system of its own is mounted.
    pub(super) fn disk(&self, name: &str) -> PathBuf {
        self.folder.join("disks").join(name)
    }

    /// Makes it.
    pub(super) fn make_disk(&self, name: &str, size: &str) -> Result<()> {
        let disk = self.disk(name);
        let image = disk.with_extension("image");
        fs::create_dir_all(&disk)?;
        run(Command::new("truncate").args(["--size", size]).arg(&image))?;
        let quiet = ["-q", "-m", "0", "-E", "lazy_itable_init=0"];
        run(Command::new("mkfs.ext4").args(quiet).arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&disk))?;
        Ok(fs::create_dir(disk.join("data"))?)
    }
}

/// Unmounts and removes what [`Cluster::make_disk`] has made below `folder`.
pub(super) fn remove_disks(folder: &Path) -> Result<()> {
    let disks = folder.join("disks");
    if !disks.exists() {
        return Ok(());
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    for place in places.filter(|place| Path::new(place).starts_with(&disks)) {
        run(Command::new("umount").arg(place))?;
    }
    Ok(fs::remove_dir_all(disks)?)
}
