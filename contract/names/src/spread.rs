//! Mkdir switching: which site gets a new directory (Slice, section 3.3.1).

use serde::{Deserialize, Serialize};

use crate::{FileRef, SiteId, VolumeId};

/// How a volume's directories lie over its sites. A new directory goes to another
/// site than its parent's with a probability; its files follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Of a million new directories, how many; 0 = all names lie at one site.
    pub per_million: u32,
    /// Over how many sites, from site 0 on.
    pub sites: u16,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;

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
