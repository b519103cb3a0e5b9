//! CHAP (RFC 1994, RFC 7143 section 12.1): proving a secret without showing it.

use md5::Md5;
use sha2::{Digest, Sha256};

/// Bytes of the target's challenges.
pub(crate) const CHALLENGE_BYTES: usize = 32;

/// Longest challenge or response that is read.
pub(crate) const BINARY_BYTES_MAX: usize = 1024;

/// A hash function of CHAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    /// The first of a list (`5,7`) that is known.
    pub(crate) fn choose(list: &str) -> Option<Self> {
        list.split(',').find_map(|number| match number.trim() {
            "5" => Some(Self::Md5),
            "7" => Some(Self::Sha256),
            _ => None,
        })
    }

    pub(crate) const fn number(self) -> &'static str {
        match self {
            Self::Md5 => "5",
            Self::Sha256 => "7",
        }
    }

    /// What proves the secret to who has made the challenge.
    pub(crate) fn response(self, id: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
        fn hash<D: Digest>(id: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
            let mut hash = D::new();
            hash.update([id]);
            hash.update(secret.as_bytes());
            hash.update(challenge);
            hash.finalize().to_vec()
        }
        match self {
            Self::Md5 => hash::<Md5>(id, secret, challenge),
            Self::Sha256 => hash::<Sha256>(id, secret, challenge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the response is the hash of number, secret and challenge in this order (values
    /// computed with md5sum and sha256sum); unknown functions are passed over.
    #[test]
    fn responses_are_hashes() {
        let md5 = Algorithm::Md5.response(1, "secret", &[2, 3]);
        let sha256 = Algorithm::Sha256.response(1, "secret", &[2, 3]);
        assert_eq!((md5.len(), sha256.len()), (16, 32));
        assert_eq!(md5, MD5_OF_1_SECRET_2_3);
        assert_eq!(sha256[..4], SHA256_OF_1_SECRET_2_3);
        assert_eq!(Algorithm::choose("8, 7,5"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::choose("6"), None);
    }

    const MD5_OF_1_SECRET_2_3: [u8; 16] = [
        0xf5, 0x06, 0xc2, 0x4f, 0x35, 0xd1, 0xc7, 0x0e, 0x45, 0x0e, 0xdb, 0x8f, 0xdf, 0x93, 0x34,
        0x78,
    ];
    const SHA256_OF_1_SECRET_2_3: [u8; 4] = [0x01, 0x39, 0xbf, 0xfd];
}
