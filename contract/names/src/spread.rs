//! Where names lie: mkdir switching and name hashing (Slice, section 3.2.2).

use serde::{Deserialize, Serialize};

use crate::{FileId, FileRef, SiteId, VolumeId};

/// How a volume's names lie over its sites.
///
/// *Mkdir switching*: a new directory goes to another site than its parent's with a
/// probability; its files follow it.
///
/// *Name hashing*: every directory has a part at each site, and a name in it lies in
/// the part that a hash of the two says, together with the file that is made under
/// it. The part at the site that made the directory, its *home*, is what clients
/// know the directory by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Of a million new directories, how many; 0 = all names lie at one site.
    pub per_million: u32,
    /// Over how many sites, from site 0 on.
    pub sites: u16,
    /// Whether names are hashed; then the probability counts for nothing.
    #[serde(default)]
    pub is_hashed: bool,
}

/// Certainty.
const MILLION: u32 = 1_000_000;

impl Spread {
    /// With this probability, from 0 to 1, over that many sites.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped before"
    )]
    pub fn new(probability: f64, sites: u16) -> Self {
        let millions = probability.clamp(0.0, 1.0) * f64::from(MILLION);
        Self {
            per_million: millions.round() as u32,
            sites,
            is_hashed: false,
        }
    }

    /// All names are hashed over that many sites.
    #[must_use]
    pub const fn hashed(sites: u16) -> Self {
        Self {
            per_million: 0,
            sites,
            is_hashed: true,
        }
    }

    /// The part of a directory in which `name` lies, if names are hashed, else the
    /// directory. Nothing of the volume goes into it: who makes names that come
    /// together has them at one site, which is where they would be without hashing.
    #[must_use]
    pub fn part_for(&self, directory: FileRef, name: &[u8]) -> FileRef {
        if !self.is_hashed || self.sites == 0 {
            return directory;
        }
        let mut hash = mix(directory.id.0 ^ u64::from(directory.generation).rotate_left(32));
        for chunk in name.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = mix(hash ^ u64::from_le_bytes(word));
        }
        hash = mix(hash ^ name.len() as u64);
        #[expect(clippy::cast_possible_truncation, reason = "below the number of sites")]
        let site = (hash % u64::from(self.sites)) as u16;
        directory.part_at(SiteId(site))
    }

    /// All parts of a directory, the one at its home first; without hashing that is
    /// the directory.
    pub fn parts_of(self, directory: FileRef) -> impl Iterator<Item = FileRef> {
        let whole = if self.is_hashed {
            directory.whole()
        } else {
            directory
        };
        let others = 0..if self.is_hashed { self.sites } else { 0 };
        let others = others
            .map(SiteId)
            .filter(move |&site| site != whole.id.site());
        std::iter::once(whole).chain(others.map(move |site| whole.part_at(site)))
    }

    /// The directory that a request's one is a part of.
    #[must_use]
    pub const fn whole(&self, directory: FileRef) -> FileRef {
        if self.is_hashed {
            directory.whole()
        } else {
            directory
        }
    }

    /// The probability, from 0 to 1.
    #[must_use]
    pub fn probability(&self) -> f64 {
        f64::from(self.per_million) / f64::from(MILLION)
    }

    /// The site of the directory that is made in `parent` under `name`: a function
    /// of these and the volume, so that nobody needs to remember a throw.
    #[must_use]
    pub fn home(&self, volume: VolumeId, parent: FileRef, name: &[u8]) -> SiteId {
        if self.per_million == 0 || self.sites == 0 {
            return parent.id.site();
        }
        let mut hash = blake3::Hasher::new();
        hash.update(&volume.0.to_be_bytes());
        hash.update(&parent.id.0.to_be_bytes());
        hash.update(&parent.generation.to_be_bytes());
        hash.update(name);
        let hash = hash.finalize();
        let number = |at: usize| {
            let bytes = hash.as_bytes()[at..at + 4].iter();
            bytes.fold(0u32, |sum, &byte| sum << 8 | u32::from(byte))
        };
        if number(0) % MILLION >= self.per_million {
            return parent.id.site();
        }
        let site = number(4) % u32::from(self.sites);
        SiteId(u16::try_from(site).unwrap_or_default())
    }
}

impl FileRef {
    /// The part at `site` of the directory whose home this is: a number that no
    /// file of that site has, as all files are numbered by their own.
    const fn part_at(self, site: SiteId) -> Self {
        Self {
            id: FileId::numbered_by(self.id.site(), site, self.id.number()),
            generation: self.generation,
        }
    }

    /// The home of a directory of which this is a part.
    const fn whole(self) -> Self {
        Self {
            id: FileId::new(self.id.origin(), self.id.number()),
            generation: self.generation,
        }
    }
}

/// SplitMix64's finaliser.
const fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names of one directory lie evenly over its parts, every part is found
    /// again, leads back to the directory, and is no file of its site.
    #[test]
    fn names_are_hashed_evenly() {
        let spread = Spread::hashed(8);
        let directory = FileRef {
            id: FileId::new(SiteId(5), 77),
            generation: 1,
        };
        let parts: Vec<FileRef> = spread.parts_of(directory).collect();
        assert_eq!((parts.len(), parts[0]), (8, directory));
        let mut counts = [0; 8];
        for number in 0..8_000u32 {
            let name = format!("file-{number}");
            let part = spread.part_for(directory, name.as_bytes());
            let at = parts.iter().position(|own| *own == part).expect("a part");
            counts[at] += 1;
            assert_eq!(spread.whole(part), directory);
            assert_eq!(
                part.id.site() == part.id.origin(),
                part == directory,
                "a part that is not its home has a number of another site"
            );
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
        let switched = Spread::new(0.5, 8);
        assert_eq!(switched.part_for(directory, b"x"), directory);
        assert_eq!(switched.parts_of(directory).count(), 1);
    }

    /// Goal: the share of directories that go elsewhere is the probability, and
    /// those that do lie evenly; without one all stay.
    #[test]
    fn directories_are_spread_evenly() {
        let parent = FileRef {
            id: FileId::new(SiteId(7), 1),
            generation: 1,
        };
        let homes = |spread: Spread| {
            let names = (0..10_000u32).map(u32::to_be_bytes);
            names
                .map(|name| spread.home(VolumeId(5), parent, &name))
                .collect::<Vec<SiteId>>()
        };
        assert!(
            homes(Spread::default())
                .iter()
                .all(|&site| site == SiteId(7))
        );
        let quarter = homes(Spread::new(0.25, 16));
        let away = quarter.iter().filter(|&&site| site != SiteId(7)).count();
        assert!(
            (2100..2600).contains(&away),
            "{away} of 10,000 went elsewhere"
        );
        let all = homes(Spread::new(1.0, 16));
        for site in 0..16 {
            let there = all.iter().filter(|&&home| home == SiteId(site)).count();
            assert!((500..750).contains(&there), "site {site} has {there}");
        }
    }
}
