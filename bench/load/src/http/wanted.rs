//! What is asked for: whole files or ranges of them, as often as their weights say.

use super::{Class, Place, Version, file_number};

/// Ranges begin behind so many bytes of a file: a server may keep those apart.
const HEAD_BYTES: u64 = 64 << 10;

/// Something that can be asked for.
pub(super) struct Wanted {
    /// By version of HTTP.
    requests: [Vec<u8>; 2],
    /// Of the file, by which its content is known.
    pub(super) number: u32,
    /// Where it begins there.
    pub(super) from: u64,
    pub(super) size: u64,
    pub(super) status: u16,
}

impl Wanted {
    pub(super) fn request(&self, version: Version) -> &[u8] {
        match version {
            Version::Old => &self.requests[0],
            Version::New => &self.requests[1],
        }
    }
}

/// All of it.
pub(super) struct Choice {
    all: Vec<Wanted>,
    /// The weights of all, each added to those before it.
    weights: Vec<f64>,
    random: u64,
}

impl Choice {
    pub(super) fn new(place: &Place, classes: &[Class]) -> Self {
        let mut choice = Self {
            all: Vec::new(),
            weights: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
        };
        for class in classes {
            let ranges = ranges(class);
            let weight = class.weight / count_as_f64(class.count * ranges.len());
            for name in (0..class.count).map(|number| class.name(number)) {
                for range in &ranges {
                    choice.add(place, &name, class.size, *range, weight);
                }
            }
        }
        choice
    }

    /// A file or, if it is said, a range of it: from where, and how many bytes.
    fn add(
        &mut self,
        place: &Place,
        name: &str,
        size: u64,
        range: Option<(u64, u64)>,
        weight: f64,
    ) {
        let field = range.map_or_else(String::new, |(from, bytes)| {
            format!("Range: bytes={from}-{}\r\n", from + bytes - 1)
        });
        let (from, size) = range.unwrap_or((0, size));
        let request = |version| place.request("GET", name, version, &field);
        self.all.push(Wanted {
            requests: [request(Version::Old), request(Version::New)],
            number: file_number(name),
            from,
            size,
            status: if range.is_some() { 206 } else { 200 },
        });
        let before = self.weights.last().copied().unwrap_or(0.0);
        self.weights.push(before + weight);
    }

    /// Any of them.
    pub(super) fn next(&mut self) -> usize {
        let part = self.random_part() * self.weights.last().copied().unwrap_or(1.0);
        let which = self.weights.partition_point(|&weight| weight <= part);
        which.min(self.all.len() - 1)
    }

    pub(super) fn get(&self, which: usize) -> &Wanted {
        &self.all[which]
    }

    /// Whether something is so that is in that part of cases.
    pub(super) fn happens(&mut self, part: f64) -> bool {
        self.random_part() < part
    }

    /// From 1 to `most`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not more than most"
    )]
    pub(super) fn up_to(&mut self, most: usize) -> usize {
        1 + ((self.random_part() * count_as_f64(most)) as usize).min(most - 1)
    }

    /// Evenly from 0 to 1 (xorshift).
    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
    fn random_part(&mut self) -> f64 {
        let random = &mut self.random;
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        (*random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Where each range begins and how long it is; nothing: the whole file.
fn ranges(class: &Class) -> Vec<Option<(u64, u64)>> {
    let Some(bytes) = class.range else {
        return vec![None];
    };
    let places = (class.size - HEAD_BYTES) / bytes;
    (0..places)
        .map(|place| Some((HEAD_BYTES + place * bytes, bytes)))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "some thousand")]
fn count_as_f64(count: usize) -> f64 {
    count as f64
}

/// Whether ranges of that size fit behind the head of a file.
pub(super) const fn has_ranges(size: u64, range: u64) -> bool {
    range > 0 && size >= HEAD_BYTES + range
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ranges cover what is behind the head, whole, and nothing else.
    #[test]
    fn ranges_are_behind_the_head() {
        let class: Class = "prefix=b,size=200000,range=65536".parse().unwrap();
        let both = [Some((65_536, 65_536)), Some((131_072, 65_536))];
        assert_eq!(ranges(&class), both);
        assert!("prefix=b,size=100000,range=65536".parse::<Class>().is_err());
    }
}
