//! On which managers the names of an ensemble lie, by `crossdock status --sites`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::call::{self, Call, CreateHow};
use crossdock_nfs3::{HandleBuffer, Location, Name, Reply, SetAttributes};
use crossdock_tests_crash::client::Client;

use crate::rig::cluster::{Cluster, Role};

/// Managers that have to have names.
const MANAGERS: usize = 3;

/// Directories that are made, each with a file: that a manager gets none of them by chance
/// happens once in millions of runs.
const DIRECTORIES: u32 = 48;

/// Where they are made.
const TOP: &str = "spread";

/// Files that lie at the sites of each manager, by the manager's address.
pub(super) type Shares = BTreeMap<String, u64>;

/// Makes directories and files, sees that every manager has some of them, and removes them.
///
/// # Errors
/// There are names on too few managers.
pub(super) fn spread(cluster: &Cluster<'_>, door: SocketAddr) -> Result<Shares> {
    let before = shares(cluster)?;
    make(door)?;
    let after = shares(cluster)?;
    remove(door)?;
    let grown = after
        .iter()
        .filter(|(manager, files)| before.get(*manager).is_none_or(|had| had < files));
    ensure!(
        grown.count() >= MANAGERS,
        "{DIRECTORIES} directories, each with a file, lie on too few managers: {before:?}, then {after:?}"
    );
    Ok(after)
}

/// What each manager says of the sites that it has.
fn shares(cluster: &Cluster<'_>) -> Result<Shares> {
    let mut shares = Shares::new();
    for host in cluster.of(Role::Manager) {
        let status = cluster.ask(&host.name, &["status", "--sites", "--json"])?;
        let sites = status["sites"].as_array().context("no list of sites")?;
        // Of those of others it knows no number.
        let own = sites.iter().filter_map(|site| {
            let files = site["files"].as_u64()?;
            Some((site["manager"].as_str()?, files))
        });
        for (manager, files) in own {
            *shares.entry(manager.to_owned()).or_default() += files;
        }
    }
    Ok(shares)
}

fn make(door: SocketAddr) -> Result<()> {
    let mut client = Client::connect(door)?;
    let root = client.root();
    let top = make_directory(&mut client, &root, TOP)?;
    for number in 0..DIRECTORIES {
        let directory = make_directory(&mut client, &top, &directory_name(number))?;
        let name = file_name(number);
        let create = Call::Create(call::Create {
            location: place(&directory, &name),
            how: CreateHow::Guarded(SetAttributes::default()),
        });
        let made = client.call(&create)?;
        ensure!(made.status().is_none(), "CREATE: {:?}", made.status());
    }
    Ok(())
}

fn remove(door: SocketAddr) -> Result<()> {
    let mut client = Client::connect(door)?;
    // Not calls that were sent before.
    client.count_from(client.next_xid() + (1 << 11));
    let root = client.root();
    let top = look(&mut client, &root, TOP)?;
    for number in 0..DIRECTORIES {
        let (name, file) = (directory_name(number), file_name(number));
        let directory = look(&mut client, &top, &name)?;
        expect(&mut client, &Call::Remove(place(&directory, &file)))?;
        expect(&mut client, &Call::Rmdir(place(&top, &name)))?;
    }
    expect(&mut client, &Call::Rmdir(place(&root, TOP)))
}

fn expect(client: &mut Client, call: &Call<'_>) -> Result<()> {
    let status = client.call(call)?.status();
    ensure!(status.is_none(), "{:?}: {status:?}", call.procedure());
    Ok(())
}

fn look(client: &mut Client, directory: &HandleBuffer, name: &str) -> Result<HandleBuffer> {
    match client.call(&Call::Lookup(place(directory, name)))? {
        Reply::Lookup(Ok(found)) => Ok(found.object),
        other => bail!("LOOKUP of {name}: {:?}", other.status()),
    }
}

fn directory_name(number: u32) -> String {
    format!("directory-{number}")
}

fn file_name(number: u32) -> String {
    format!("file-{number}")
}

fn make_directory(client: &mut Client, parent: &HandleBuffer, name: &str) -> Result<HandleBuffer> {
    let make = Call::Mkdir(call::Mkdir {
        location: place(parent, name),
        attributes: SetAttributes::default(),
    });
    match client.call(&make)? {
        Reply::Mkdir(Ok(made)) => made.object.context("MKDIR without a handle"),
        other => bail!("MKDIR: {:?}", other.status()),
    }
}

fn place<'a>(directory: &'a HandleBuffer, name: &'a str) -> Location<'a> {
    Location {
        directory: directory.as_handle(),
        name: Name(name.as_bytes()),
    }
}
