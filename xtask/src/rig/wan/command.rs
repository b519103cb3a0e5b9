//! `cargo xtask rig wan up|down`: depots behind links, that stand until they are taken down.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{CLIENT, CLIENT_ADDRESS, Depot, Links, Serving, Wan};
use crate::paths::Paths;
use crate::process::run;
use crate::rig::Life;
use crate::rig::cluster::jail::Process;
use crate::rig::cluster::{self, state_file, switch};
use crate::{Usage, install};

/// What the rig of the command is called.
const NAME: &str = "wan";
/// Links of depots, if nobody says others, in Mbit/s: the ones of suite `ibp-wan`.
const DEPOTS_MBIT: [u32; 6] = [100, 50, 50, 20, 10, 5];
/// The client's.
const CLIENT_MBIT: u32 = 400;
/// Depots have addresses below the client's.
const DEPOTS_MAX: usize = 32;

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    depots_mbit: Vec<u32>,
    client_mbit: u32,
    flow_mbit: Option<u32>,
}

/// Carries `cargo xtask rig wan …` out.
pub(crate) fn command(paths: &Paths, words: &[&str]) -> Result<bool> {
    let folder = paths.target.join("rig").join(NAME);
    match words {
        ["up", flags @ ..] => {
            let options = Options::parse(flags)?;
            install::debian(&["iproute2", "nftables", "util-linux"])?;
            let mut build = crate::process::cargo();
            build.args(["build", "--release", "--bin", "crossdock"]);
            run(build.current_dir(&paths.root))?;
            if !install::is_root() {
                return as_root(&[&["up-built"], flags].concat());
            }
            up(paths, &folder, &options)
        }
        // What `up` calls through sudo.
        ["up-built", flags @ ..] => up(paths, &folder, &Options::parse(flags)?),
        ["down"] if !install::is_root() => as_root(words),
        ["down"] => down(&folder).map(|()| true),
        _ => Err(Usage(format!("cargo xtask rig {NAME} up|down")).into()),
    }
}

fn as_root(words: &[&str]) -> Result<bool> {
    let mut command = install::as_root("env");
    command.arg(std::env::current_exe()?).args(["rig", NAME]);
    run(command.args(words)).map(|()| true)
}

impl Options {
    fn parse(flags: &[&str]) -> Result<Self> {
        let mut options = Self {
            depots_mbit: DEPOTS_MBIT.to_vec(),
            client_mbit: CLIENT_MBIT,
            flow_mbit: None,
        };
        let mut flags = flags.iter();
        while let Some(&flag) = flags.next() {
            let value = flags.next().copied().unwrap_or_default();
            let wrong = || Usage(format!("rig {NAME} up: {flag} {value:?}?"));
            let mbit = |text: &str| match text.parse() {
                Ok(mbit) if mbit > 0 => Ok(mbit),
                _ => Err(wrong()),
            };
            match flag {
                "--depots" => {
                    let rates: Result<Vec<u32>, Usage> = value.split(',').map(mbit).collect();
                    options.depots_mbit = rates?;
                }
                "--client" => options.client_mbit = mbit(value)?,
                "--flow" => options.flow_mbit = Some(mbit(value)?),
                _ => return Err(wrong().into()),
            }
        }
        let count = options.depots_mbit.len();
        if count > DEPOTS_MAX {
            let text = format!("rig {NAME} up: {DEPOTS_MAX} depots at most, not {count}");
            return Err(Usage(text).into());
        }
        Ok(options)
    }
}

fn up(paths: &Paths, folder: &Path, options: &Options) -> Result<bool> {
    down(folder)?;
    let links = Links {
        flow_mbit: options.flow_mbit,
        ..Links::new(&options.depots_mbit, options.client_mbit)
    };
    // What is to be taken down is known before it is there.
    let count = options.depots_mbit.len();
    let hosts = (0..count).map(|it| format!("d{it}"));
    let names: Vec<String> = hosts
        .chain([CLIENT.to_owned()])
        .map(|host| switch::netns(NAME, &host))
        .collect();
    save(folder, &names, &[])?;
    let mut wan = match Wan::up(paths, NAME, folder, links, Life::Standing) {
        Ok(wan) => wan,
        Err(error) => {
            fs::remove_file(state_file(NAME))?; // It has gone by itself.
            return Err(error);
        }
    };
    save(folder, &names, &wan.depots)?;
    println!("{}", wan.line());
    wan.namespaces.are_kept = true;
    Ok(true)
}

fn save(folder: &Path, namespaces: &[String], depots: &[Depot]) -> Result<()> {
    let processes: Vec<Value> = depots
        .iter()
        .filter_map(Depot::standing)
        .map(Process::to_json)
        .collect();
    let state = json!({
        "folder": folder,
        "processes": processes,
        "namespaces": namespaces,
    });
    let file = state_file(NAME);
    fs::create_dir_all(file.parent().context("no folder")?)?;
    Ok(fs::write(file, serde_json::to_vec(&state)?)?)
}

/// Ends the processes of the rig and removes its namespaces and data, as far as they are there.
fn down(folder: &Path) -> Result<()> {
    if !cluster::end(NAME, folder)? {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(fs::remove_file(state_file(NAME))?)
}

impl Depot {
    fn standing(&self) -> Option<&Process> {
        match &self.serving {
            Some(Serving::Standing(process)) => Some(process),
            Some(Serving::OfXtask { .. }) | None => None,
        }
    }
}

impl Wan {
    /// The line of JSON that describes the rig, as of other rigs.
    fn line(&self) -> Value {
        let host = |name: &str, role: &str, address: &str, pids: Vec<u32>| {
            json!({
                "name": name, "role": role, "netns": switch::netns(&self.name, name),
                "addr": address, "pids": pids,
            })
        };
        let mut hosts: Vec<Value> = self
            .depots
            .iter()
            .map(|depot| {
                let pids = depot.standing().map(|process| process.pid);
                let address = depot.address.to_string();
                host(&depot.host, "node", &address, pids.into_iter().collect())
            })
            .collect();
        let client = CLIENT_ADDRESS.to_string();
        hosts.push(host(CLIENT, "client", &client, Vec::new()));
        hosts.push(host("switch", "switch", "", Vec::new()));
        json!({
            "hosts": hosts,
            "ibp": self.addresses(),
            "paths": { "data": self.folder, "program": self.binary },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: rates are read, and what makes no rig is wrong usage.
    #[test]
    fn options_are_read() {
        let options = Options::parse(&["--depots", "10,20", "--flow", "4"]).unwrap();
        assert_eq!(options.depots_mbit, [10, 20]);
        assert_eq!(
            (options.client_mbit, options.flow_mbit),
            (CLIENT_MBIT, Some(4))
        );
        let many = vec!["1"; DEPOTS_MAX + 1].join(",");
        for wrong in [
            &["--depots", "10,0"][..],
            &["--depots", &many],
            &["--client"],
            &["--client", "fast"],
            &["--rates", "5"],
        ] {
            let refused = Options::parse(wrong);
            assert!(refused.is_err_and(|error| error.is::<Usage>()), "{wrong:?}");
        }
    }
}
