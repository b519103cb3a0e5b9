//! What requests for a node's own objects are judged by.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_names::{HostId, MintingKey, NodeId};

use crate::object_url::Shown;
use crate::{Denial, ObjectUrl};

/// What a process with nodes knows of those who may sign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectGate {
    /// The nodes whose objects are served.
    pub nodes: BTreeSet<NodeId>,
    /// What live managers make capabilities with.
    pub minters: BTreeMap<HostId, MintingKey>,
    /// The live gateways that nobody has revoked.
    pub holders: BTreeSet<HostId>,
}

impl ObjectGate {
    /// What a request for `path` and `query` may read.
    ///
    /// # Errors
    /// [`Denial::Query`] if it is none of these URLs; [`Denial::Signature`] if it was not
    /// signed, for another node, or by a right that counts no more, as its gateway has been
    /// revoked, or gateway or manager have ended; [`Denial::Ended`] if it was for an earlier
    /// time.
    pub fn check(&self, path: &[u8], query: &[u8], now_seconds: u64) -> Result<ObjectUrl, Denial> {
        let shown = Shown::parse(path, query).ok_or(Denial::Query)?;
        let is_here = self.nodes.contains(&shown.url.node);
        let is_holder = self.holders.contains(&shown.right.holder);
        let key = self.minters.get(&shown.right.minter);
        let key = key.filter(|_| is_here && is_holder);
        let right = shown.right.mint(key.ok_or(Denial::Signature)?);
        if !shown.is_signed_by(&right) {
            return Err(Denial::Signature);
        }
        match now_seconds < shown.url.expires {
            true => Ok(shown.url),
            false => Err(Denial::Ended),
        }
    }
}

#[cfg(test)]
mod tests {
    use crossdock_names::{FileCapability, FileId, ObjectId, Rights, Scope, Version};
    use proptest::prelude::*;

    use super::*;
    use crate::FilePlace;

    const MANAGER: HostId = HostId(21);
    const GATEWAY: HostId = HostId(22);

    fn key() -> MintingKey {
        MintingKey([1; 32])
    }

    fn right() -> FileCapability {
        let right = FileCapability {
            rights: Rights::READ,
            minter: MANAGER,
            holder: GATEWAY,
            scope: Scope::Columns {
                placement: FileId(9),
                generation: 1,
            },
            expiry_seconds: 1200,
            mac: [0; 16],
        };
        right.mint(&key())
    }

    fn url() -> ObjectUrl {
        ObjectUrl {
            object: ObjectId::column(FileId(9), 1, 0, 2),
            node: NodeId(7),
            offset_bytes: 4096,
            length_bytes: 100,
            version: Version(3),
            expires: 1000,
            place: None,
        }
    }

    fn gate() -> ObjectGate {
        ObjectGate {
            nodes: [NodeId(6), NodeId(7)].into(),
            minters: [(MANAGER, key())].into(),
            holders: [GATEWAY].into(),
        }
    }

    fn check(gate: &ObjectGate, target: &str, now: u64) -> Result<ObjectUrl, Denial> {
        let (path, query) = target.split_once('?').expect("a query");
        gate.check(path.as_bytes(), query.as_bytes(), now)
    }

    /// Goal: it comes back as it was signed, at its node, until it ends.
    #[test]
    fn a_signed_object_is_read_where_it_lies() {
        let signed = url().sign(&right()).expect("the right");
        let begin = "/o/000000000000000000090000000100000000000000000002?node=0000000000000007&offset=4096&length=100&version=3&expires=1000&minter=0000000000000015&holder=0000000000000016&until=1200&signature=";
        assert!(signed.starts_with(begin), "{signed}");
        assert_eq!(check(&gate(), &signed, 999), Ok(url()));
        assert_eq!(check(&gate(), &signed, 1000), Err(Denial::Ended));
        let elsewhere = ObjectGate {
            nodes: [NodeId(6)].into(),
            ..gate()
        };
        assert_eq!(check(&elsewhere, &signed, 999), Err(Denial::Signature));
    }

    /// Goal: with the gateway that signed, or the manager that gave it the right, its URLs
    /// go; and another key of that manager makes another right.
    #[test]
    fn a_url_ends_with_whom_it_comes_from() {
        let signed = url().sign(&right()).expect("the right");
        let (mut revoked, mut replaced, mut restarted) = (gate(), gate(), gate());
        revoked.holders.clear();
        replaced.minters.clear();
        restarted.minters.insert(MANAGER, MintingKey([2; 32]));
        for gate in [revoked, replaced, restarted, ObjectGate::default()] {
            assert_eq!(check(&gate, &signed, 0), Err(Denial::Signature));
        }
    }

    /// Goal: a gateway signs what it has a right to read, for no longer than that.
    #[test]
    fn no_more_is_signed_than_the_right() {
        let more: [fn(&mut ObjectUrl); 3] = [
            |url| url.object = ObjectId::column(FileId(10), 1, 0, 2),
            |url| url.object = ObjectId::column(FileId(9), 2, 0, 2),
            |url| url.expires = 1201,
        ];
        for (number, change) in more.iter().enumerate() {
            let mut url = url();
            change(&mut url);
            assert_eq!(url.sign(&right()), None, "{number}");
        }
        let writes = FileCapability {
            rights: Rights::WRITE,
            ..right()
        };
        assert_eq!(url().sign(&writes), None);
    }

    /// Goal: nothing in it can be changed, and nothing comes with it.
    #[test]
    fn forged_objects_are_refused() {
        let signed = url().sign(&right()).expect("the right");
        for (from, to) in [
            ("0002?", "0003?"),
            ("/o/00000000000000000009", "/o/0000000000000000000a"),
            ("node=0000000000000007", "node=0000000000000006"),
            ("offset=4096", "offset=0"),
            ("length=100", "length=101"),
            ("version=3", "version=0"),
            ("expires=1000", "expires=1001"),
            ("minter=0000000000000015", "minter=0000000000000016"),
            ("until=1200", "until=1201"),
        ] {
            let forged = signed.replace(from, to);
            assert_ne!(forged, signed, "{to}");
            assert_eq!(check(&gate(), &forged, 0), Err(Denial::Signature), "{to}");
        }
        for (from, to) in [
            ("/o/", "/o//"),
            ("/o/", "/p/"),
            ("0002?", "?"),
            ("/o/0000", "/o/ffff"),
            ("offset=4096", "offset=18446744073709551615"),
            ("length=100", "length=0"),
            ("length=100", "length=-1"),
            ("version=3", "version=3&x=1"),
            ("node=0000000000000007", "node=7"),
            ("expires=1000", "expires=1201"),
        ] {
            let wrong = signed.replace(from, to);
            assert_eq!(check(&gate(), &wrong, 0), Err(Denial::Query), "{to}");
        }
    }

    /// Goal: a place in a file is signed, too, and is one.
    #[test]
    fn a_place_in_a_file_is_signed() {
        let placed = ObjectUrl {
            place: Some(FilePlace {
                offset_bytes: 70_000,
                size_bytes: 80_000,
            }),
            ..url()
        };
        let signed = placed.sign(&right()).expect("the right");
        assert_eq!(check(&gate(), &signed, 999), Ok(placed));
        let plain = signed.replace("&at=70000&size=80000", "");
        for forged in [signed.replace("at=70000", "at=70001"), plain] {
            assert_eq!(
                check(&gate(), &forged, 0),
                Err(Denial::Signature),
                "{forged}"
            );
        }
        for wrong in ["&at=70000", "&at=70000&size=70099", "&at=70000&size=x"] {
            let wrong = signed.replace("&at=70000&size=80000", wrong);
            assert_eq!(check(&gate(), &wrong, 0), Err(Denial::Query), "{wrong}");
        }
    }

    proptest! {
        /// Goal: no text from a client is more than refused.
        #[test]
        fn no_text_panics(path in "(/o/)?[0-9a-f]{0,50}", query in "[a-z0-9=&:]{0,80}") {
            let checked = gate().check(path.as_bytes(), query.as_bytes(), 0);
            prop_assert!(checked.is_err());
        }
    }
}
