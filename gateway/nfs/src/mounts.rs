//! Who has mounted what, as far as clients have said: for `showmount -a`, and
//! for nothing else. It is soft: lost with the process, bounded, and nobody is
//! let in or kept out by it.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use crossdock_names::ExportId;
use crossdock_nfs3::mount;

use crate::export::{Export, names};

/// Mounts that are remembered; of more, the oldest are forgotten.
const MOUNTS_MAX: usize = 1024;

/// The list of mounts, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    list: VecDeque<Mount>,
}

#[derive(Debug)]
struct Mount {
    host: IpAddr,
    path: Bytes,
    export: ExportId,
}

impl Mounts {
    /// `client` has got the handle of `path`.
    pub(crate) fn add(&mut self, client: SocketAddr, path: Bytes, export: ExportId) {
        self.remove(client, &path);
        if self.list.len() >= MOUNTS_MAX {
            self.list.pop_front();
        }
        let host = client.ip().to_canonical();
        self.list.push_back(Mount { host, path, export });
    }

    /// `client` has no more use for `path`.
    pub(crate) fn remove(&mut self, client: SocketAddr, path: &[u8]) {
        let host = client.ip().to_canonical();
        let is_it = |mount: &Mount| mount.host == host && names(&mount.path).eq(names(path));
        self.list.retain(|mount| !is_it(mount));
    }

    /// `client` has no more use for anything.
    pub(crate) fn remove_all(&mut self, client: SocketAddr) {
        let host = client.ip().to_canonical();
        self.list.retain(|mount| mount.host != host);
    }

    /// Only what is still exported can be mounted.
    pub(crate) fn keep_of(&mut self, exports: &[Export]) {
        let is_there = |mount: &Mount| exports.iter().any(|export| export.id == mount.export);
        self.list.retain(is_there);
    }

    /// What DUMP answers in about `room_bytes`.
    pub(crate) fn list(&self, room_bytes: usize) -> Vec<mount::Mount> {
        let all = self.list.iter().map(|mount| mount::Mount {
            host: Bytes::from(mount.host.to_string()),
            path: mount.path.clone(),
        });
        fitting(all, room_bytes, |mount| mount.host.len() + mount.path.len())
    }
}

/// XDR of a list's item beside its bytes, at most: two lengths with padding,
/// and the marks before and behind it.
const ITEM_BYTES: usize = 24;

/// As many of `items` as fit into `room_bytes`: a datagram has an end.
pub(crate) fn fitting<T>(
    items: impl Iterator<Item = T>,
    room_bytes: usize,
    bytes_of: impl Fn(&T) -> usize,
) -> Vec<T> {
    let mut room_bytes = room_bytes;
    let fits = |item: &T| {
        let bytes = bytes_of(item) + ITEM_BYTES;
        let is_in = bytes <= room_bytes;
        room_bytes = room_bytes.saturating_sub(bytes);
        is_in
    };
    items.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the list is bounded, the oldest mounts go first, and a reply takes
    /// what its transport carries.
    #[test]
    fn the_list_is_bounded() {
        let mut mounts = Mounts::default();
        let client = |number: u32| {
            let [_, _, high, low] = number.to_be_bytes();
            SocketAddr::from(([10, 0, high, low], 7))
        };
        for number in 0..=1024 {
            mounts.add(client(number), Bytes::from_static(b"/a"), ExportId(1));
        }
        let all = mounts.list(1 << 20);
        assert_eq!((all.len(), &all[0].host[..]), (1024, &b"10.0.0.1"[..]));
        assert_eq!(mounts.list(100).len(), 2);
    }
}
