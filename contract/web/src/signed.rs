//! Signed URLs: one request that an administrator lets anybody make for some time.
//!
//! `PATH?expires=SECONDS&key=ID&signature=DIGITS`, or with `&as=UID:GID` before the
//! signature: who the request acts as, 0:0 if it is not said. The parameters may come in any
//! order, each once, and no other one with them. The signature is BLAKE3, keyed, as 64
//! hexadecimal digits, of:
//!
//! | bytes | name | meaning (big-endian) |
//! |---|---|---|
//! | 1 | format | 1 |
//! | 1 | method | 1: GET and HEAD; 2: PUT |
//! | 8 | expires | seconds since 1970; it holds before then |
//! | 4 | uid | as whom |
//! | 4 | gid | |
//! | 1 | slash | 1 if the path ends with `/` |
//! | 4 | names | how many there are in the path |
//! | 4 + n | each name | its length, its bytes (without escapes) |
//!
//! The key is BLAKE3's `derive_key` of the handle key of that number (contract/names),
//! which all gateways without a scope have.

use std::fmt;

use crossdock_names::HandleKey;

use crate::digits::{decimal, from_hex, hex};
use crate::query::{Query, has};
use crate::{Denial, Grant, Method, UrlPath};

const FORMAT: u8 = 1;

const CONTEXT: &str = "crossdock 2026 signed URLs of the HTTP door";

/// Keys that are valid at a time: the newest one, and the one before it.
const KEYS_MAX: usize = 2;

const PARAMETERS: [&str; 4] = ["expires", "key", "as", "signature"];

/// What a URL is signed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedMethod {
    /// Reading: GET and HEAD.
    Get = 1,
    /// Writing a whole file: PUT.
    Put = 2,
}

/// A request that is, or was, allowed by signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedUrl {
    /// What it does.
    pub method: SignedMethod,
    /// With what.
    pub path: UrlPath,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
    /// As which user it acts.
    pub uid: u32,
    /// As which group.
    pub gid: u32,
}

/// One key for signed URLs and its number.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// The number that URLs carry.
    pub id: u8,
    key: [u8; 32],
}

/// The keys that are valid now: the first signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningKeys(Vec<SigningKey>);

impl SigningKey {
    /// The one that follows from a key of handles.
    #[must_use]
    pub fn derive(handles: &HandleKey) -> Self {
        Self {
            id: handles.id,
            key: blake3::derive_key(CONTEXT, &handles.key),
        }
    }
}

impl fmt::Debug for SigningKey {
    /// Never shows the secret: inputs of machines are logged.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SigningKey({})", self.id)
    }
}

impl SigningKeys {
    /// One key.
    #[must_use]
    pub fn new(key: SigningKey) -> Self {
        Self(vec![key])
    }

    /// From now on that key signs; what the one before it has signed stays valid.
    pub fn add(&mut self, key: SigningKey) {
        self.0.retain(|known| known.id != key.id);
        self.0.insert(0, key);
        self.0.truncate(KEYS_MAX);
    }

    fn of(&self, id: u64) -> Option<&SigningKey> {
        self.0.iter().find(|key| u64::from(key.id) == id)
    }
}

impl SignedUrl {
    /// Path and query, signed with the first key.
    ///
    /// # Panics
    /// Never: there is at least one key.
    #[must_use]
    pub fn sign(&self, keys: &SigningKeys) -> String {
        let key = &keys.0[0];
        let (path, id, signature) = (self.path.encode(), key.id, self.signature(key));
        let signature = hex(signature.as_bytes());
        let whom = match (self.uid, self.gid) {
            (0, 0) => String::new(),
            (uid, gid) => format!("&as={uid}:{gid}"),
        };
        let expires = self.expires;
        format!("{path}?expires={expires}&key={id}{whom}&signature={signature}")
    }

    /// Whether a query claims to be signed.
    #[must_use]
    pub fn is_one(query: &[u8]) -> bool {
        has(query, "signature")
    }

    /// What a request of `method` for `path` with this query may do.
    ///
    /// # Errors
    /// [`Denial::Query`] if it is no signed one, [`Denial::Signature`] if no valid key has
    /// signed exactly this, [`Denial::Ended`] if one has, for an earlier time.
    pub fn verify(
        keys: &SigningKeys,
        method: Method,
        path: &UrlPath,
        query: &[u8],
        now_seconds: u64,
    ) -> Result<Grant, Denial> {
        let query = Query::parse(query, PARAMETERS).ok_or(Denial::Query)?;
        let number = |at| query.value(at).and_then(decimal).ok_or(Denial::Query);
        let (expires, id) = (number(0)?, number(1)?);
        let whom = query.value(2).map_or(Some((0, 0)), whom);
        let (uid, gid) = whom.ok_or(Denial::Query)?;
        let shown = query.value(3).and_then(from_hex).ok_or(Denial::Query)?;
        let method = method.signed().ok_or(Denial::Signature)?;
        let key = keys.of(id).ok_or(Denial::Signature)?;
        let path = path.clone();
        let url = Self {
            method,
            path,
            expires,
            uid,
            gid,
        };
        // Hashes of that crate compare in constant time.
        if url.signature(key) != blake3::Hash::from_bytes(shown) {
            return Err(Denial::Signature);
        }
        if now_seconds >= expires {
            return Err(Denial::Ended);
        }
        Ok(Grant { uid, gid })
    }

    fn signature(&self, key: &SigningKey) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&key.key);
        hasher.update(&[FORMAT, self.method as u8]);
        hasher.update(&self.expires.to_be_bytes());
        hasher.update(&self.uid.to_be_bytes());
        hasher.update(&self.gid.to_be_bytes());
        hasher.update(&[u8::from(self.path.ends_with_slash())]);
        let names = self.path.names();
        hasher.update(&length(names.len()));
        for name in names {
            hasher.update(&length(name.len()));
            hasher.update(name);
        }
        hasher.finalize()
    }
}

/// Paths are bounded far below where this saturates.
fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

fn whom(text: &[u8]) -> Option<(u32, u32)> {
    let at = text.iter().position(|&byte| byte == b':')?;
    let id = |digits| u32::try_from(decimal(digits)?).ok();
    Some((id(&text[..at])?, id(&text[at + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(id: u8, byte: u8) -> SigningKeys {
        let key = [byte; 32];
        SigningKeys::new(SigningKey::derive(&HandleKey { id, key }))
    }

    fn url(method: SignedMethod, path: &str) -> SignedUrl {
        SignedUrl {
            method,
            path: path.parse().expect("a path"),
            expires: 1000,
            uid: 0,
            gid: 0,
        }
    }

    fn verify(keys: &SigningKeys, method: Method, target: &str, now: u64) -> Result<Grant, Denial> {
        let (path, query) = target.split_once('?').expect("a query");
        let path = path.parse().expect("a path");
        SignedUrl::verify(keys, method, &path, query.as_bytes(), now)
    }

    const ROOT: Grant = Grant { uid: 0, gid: 0 };

    /// Goal: the layout is fixed: what was signed before an upgrade holds after it.
    #[test]
    fn signatures_stay_as_they_are() {
        let signed = url(SignedMethod::Get, "/a/b%20c").sign(&keys(3, 7));
        let (begin, signature) = signed.split_once("&signature=").expect("a signature");
        assert_eq!(begin, "/a/b%20c?expires=1000&key=3");
        let key = blake3::derive_key("crossdock 2026 signed URLs of the HTTP door", &[7; 32]);
        let message = [
            &[1, 1][..],
            &[0, 0, 0, 0, 0, 0, 3, 0xe8],
            &[0; 8],
            &[0],
            &[0, 0, 0, 2],
            &[0, 0, 0, 1],
            b"a",
            &[0, 0, 0, 3],
            b"b c",
        ]
        .concat();
        let expected = blake3::keyed_hash(&key, &message).to_hex();
        assert_eq!(signature, expected.as_str());
    }

    /// Goal: it holds for its method and path, however that is written, until it ends.
    #[test]
    fn a_signed_url_holds_for_what_was_signed() {
        let keys = keys(1, 5);
        let get = url(SignedMethod::Get, "/dir/file").sign(&keys);
        assert_eq!(verify(&keys, Method::Get, &get, 999), Ok(ROOT));
        assert_eq!(verify(&keys, Method::Get, &get, 1000), Err(Denial::Ended));
        for method in [Method::Put, Method::Delete] {
            assert_eq!(verify(&keys, method, &get, 0), Err(Denial::Signature));
        }
        let put = url(SignedMethod::Put, "/dir/file").sign(&keys);
        assert_eq!(verify(&keys, Method::Put, &put, 0), Ok(ROOT));
        for method in [Method::Get, Method::Delete] {
            assert_eq!(verify(&keys, method, &put, 0), Err(Denial::Signature));
        }
        let other_way = get.replace("/dir/file", "//dir/%66ile");
        assert_eq!(verify(&keys, Method::Get, &other_way, 0), Ok(ROOT));
        let order = get.replace("?expires=1000&key=1&", "?key=1&") + "&expires=1000";
        assert_eq!(verify(&keys, Method::Get, &order, 0), Ok(ROOT));
    }

    /// Goal: another path is another one: beside it, above, below, cut elsewhere.
    #[test]
    fn no_other_path_is_signed() {
        let keys = keys(1, 5);
        let signed = url(SignedMethod::Get, "/ab/c").sign(&keys);
        for path in [
            "/ab/c2", "/ab", "/ab/c/", "/ab/c/d", "/a/bc", "/abc", "/a/b/c", "/", "/AB/c",
        ] {
            let forged = signed.replace("/ab/c?", &format!("{path}?"));
            assert_eq!(
                verify(&keys, Method::Get, &forged, 0),
                Err(Denial::Signature),
                "{path}"
            );
        }
    }

    /// Goal: no bit of a signature, no time and nobody else is as good.
    #[test]
    fn forged_queries_are_refused() {
        let keys = keys(1, 5);
        let mut of_user = url(SignedMethod::Get, "/f");
        (of_user.uid, of_user.gid) = (1000, 100);
        let signed = of_user.sign(&keys);
        let grant = Grant {
            uid: 1000,
            gid: 100,
        };
        assert_eq!(verify(&keys, Method::Get, &signed, 0), Ok(grant));
        assert!(signed.contains("&as=1000:100&"), "{signed}");
        for (from, to) in [
            ("expires=1000", "expires=1001"),
            ("as=1000:100", "as=0:100"),
            ("as=1000:100", "as=1000:0"),
            ("&as=1000:100", ""),
            ("key=1", "key=2"),
            ("key=1", "key=257"),
        ] {
            let forged = signed.replace(from, to);
            assert_eq!(
                verify(&keys, Method::Get, &forged, 0),
                Err(Denial::Signature),
                "{to}"
            );
        }
        let at = signed.find("signature=").expect("one") + "signature=".len();
        for digit in at..signed.len() {
            let mut forged = signed.clone().into_bytes();
            forged[digit] = if forged[digit] == b'0' { b'1' } else { b'0' };
            let forged = String::from_utf8(forged).expect("digits");
            assert_eq!(
                verify(&keys, Method::Get, &forged, 0),
                Err(Denial::Signature),
                "{digit}"
            );
        }
        for (from, to) in [
            ("expires=1000", "expires=+1000"),
            ("expires=1000&", ""),
            ("key=1&", ""),
            ("key=1", "key=1&key=1"),
            ("key=1", "key=1&more=1"),
            ("as=1000:100", "as=1000"),
            ("as=1000:100", "as=4294967296:100"),
            ("signature=", "signature=0"),
        ] {
            let wrong = signed.replace(from, to);
            assert_eq!(
                verify(&keys, Method::Get, &wrong, 0),
                Err(Denial::Query),
                "{to}"
            );
        }
    }

    /// Goal: after a change of keys the ones before still verify, and no older ones.
    #[test]
    fn two_keys_can_be_valid_at_once() {
        let key = |id: u8| SigningKey::derive(&HandleKey { id, key: [id; 32] });
        let signed = |keys: &SigningKeys| url(SignedMethod::Get, "/f").sign(keys);
        let mut keys = SigningKeys::new(key(1));
        let first = signed(&keys);
        keys.add(key(2));
        keys.add(key(2));
        let second = signed(&keys);
        assert!(second.contains("key=2"));
        let check = |keys: &SigningKeys, url: &str| verify(keys, Method::Get, url, 0);
        assert_eq!(check(&keys, &first), Ok(ROOT));
        keys.add(key(3));
        assert_eq!(check(&keys, &second), Ok(ROOT));
        assert_eq!(check(&keys, &first), Err(Denial::Signature));
        assert_eq!(
            check(&self::keys(2, 9), &second),
            Err(Denial::Signature),
            "others' keys"
        );
        assert!(!format!("{keys:?}").contains(&format!("{:?}", keys.0[0].key)));
    }
}
