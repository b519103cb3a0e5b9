//! Blocks that restore lost ones (the paper's conclusions: parity as in RAID, Reed–Solomon).
//!
//! A *group* is a range of the file, seen as `data_shards` shards of equal length (the last
//! ones filled up with zeros), and `recovery_shards` more that are computed from them. Any
//! `data_shards` of all restore the others. A recovery shard is a mapping of its own whose
//! innermost function says which; it covers no byte of the file (`logical_length` 0), so
//! that who does not know it does not take it for data. It is over the clear bytes: the data
//! may have any coding and any replicas, and the recovery shard is coded like any mapping.

use std::ops::Range;

use crossdock_limits::{EXNODE_BLOCK_BYTES_MAX, EXNODE_SHARDS_MAX};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use thiserror::Error;

use crate::model::{Function, Mapping, Value};

/// Shards have multiples of this many bytes: so much the code works on at once, and pieces of
/// shards of such lengths can be coded by themselves.
pub const SHARD_UNIT_BYTES: u64 = 64;

/// Which code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// One recovery shard: XOR of all.
    Parity,
    /// Reed–Solomon over GF(2^16), as the library reed-solomon-simd has it.
    ReedSolomon,
}

/// A range of the file that is coded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Which code.
    pub code: Code,
    /// Bytes of the file.
    pub range: Range<u64>,
    /// Shards that the range is cut into.
    pub data_shards: u32,
    /// Shards that restore others.
    pub recovery_shards: u32,
    /// Bytes of each.
    pub shard_bytes: u64,
}

/// One recovery shard of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The group.
    pub group: Group,
    /// Its number among the recovery shards.
    pub index: u32,
}

/// Why shards cannot be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GroupError {
    /// A function that says something that cannot be.
    #[error("function {name:?}: {why}")]
    Function {
        /// Which.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Fewer shards than are needed.
    #[error("{found} of {needed} shards are there")]
    TooFew {
        /// That are there.
        found: u32,
        /// That are needed.
        needed: u32,
    },
    /// Shards of different lengths, or of lengths that the code cannot work on.
    #[error("shards of wrong length")]
    Length,
}

impl Group {
    /// A group over `range`.
    ///
    /// # Errors
    /// If the range is empty or too long, or numbers of shards cannot be.
    pub fn new(
        code: Code,
        range: Range<u64>,
        data_shards: u32,
        recovery_shards: u32,
    ) -> Result<Self, GroupError> {
        let bytes = range.end.saturating_sub(range.start);
        let shard = bytes.div_ceil(u64::from(data_shards.max(1)));
        let group = Self {
            code,
            range,
            data_shards,
            recovery_shards,
            shard_bytes: shard.next_multiple_of(SHARD_UNIT_BYTES),
        };
        group.check()?;
        Ok(group)
    }

    /// Name of the function that says it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.code {
            Code::Parity => "parity",
            Code::ReedSolomon => "reed_solomon",
        }
    }

    /// Whether a function of this name makes a recovery shard.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        matches!(name, "parity" | "reed_solomon")
    }

    fn check(&self) -> Result<(), GroupError> {
        let wrong = |why| {
            Err(GroupError::Function {
                name: self.name().to_owned(),
                why,
            })
        };
        let shards = u64::from(self.data_shards) + u64::from(self.recovery_shards);
        if self.data_shards == 0 || self.recovery_shards == 0 {
            return wrong("no shards");
        }
        if shards > u64::from(EXNODE_SHARDS_MAX) {
            return wrong("too many shards");
        }
        if self.code == Code::Parity && self.recovery_shards != 1 {
            return wrong("parity is one shard");
        }
        if self.range.is_empty() {
            return wrong("an empty range");
        }
        let is_length = self.shard_bytes > 0
            && self.shard_bytes.is_multiple_of(SHARD_UNIT_BYTES)
            && self.shard_bytes <= EXNODE_BLOCK_BYTES_MAX;
        let bytes = self.range.end - self.range.start;
        if !is_length || self.shard_bytes.saturating_mul(u64::from(self.data_shards)) < bytes {
            return wrong("a shard length that does not fit the range");
        }
        Ok(())
    }

    /// Bytes of the file in the data shard of that number; fewer than its length at the end.
    #[must_use]
    pub fn data_range(&self, number: u32) -> Range<u64> {
        let start = self.range.start + u64::from(number) * self.shard_bytes;
        start.min(self.range.end)..(start + self.shard_bytes).min(self.range.end)
    }

    /// Recovery shards of the data shards, or of pieces of them that begin at the same
    /// multiple of [`SHARD_UNIT_BYTES`].
    ///
    /// # Errors
    /// If they are not as many or not as long as they have to be.
    pub fn encode(&self, data: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, GroupError> {
        let bytes = self.piece_bytes(data)?;
        if data.len() != self.data_shards as usize {
            return Err(GroupError::Length);
        }
        if self.code == Code::Parity {
            return Ok(vec![sum(data.iter(), bytes)]);
        }
        let (data_shards, recovery) = (self.data_shards as usize, self.recovery_shards as usize);
        let failed = |_| GroupError::Length;
        let mut encoder = ReedSolomonEncoder::new(data_shards, recovery, bytes).map_err(failed)?;
        for shard in data {
            encoder.add_original_shard(shard).map_err(failed)?;
        }
        let made = encoder.encode().map_err(failed)?;
        Ok(made.recovery_iter().map(<[u8]>::to_vec).collect())
    }

    /// All data shards, or pieces of them, from those that are there: first those of the data,
    /// then the recovery shards.
    ///
    /// # Errors
    /// If fewer than `data_shards` are there, or lengths are wrong.
    pub fn restore(&self, shards: Vec<Option<Vec<u8>>>) -> Result<Vec<Vec<u8>>, GroupError> {
        let (data, recovery) = (self.data_shards as usize, self.recovery_shards as usize);
        if shards.len() != data + recovery {
            return Err(GroupError::Length);
        }
        let found = shards.iter().flatten().count();
        if found < data {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            let needed = self.data_shards;
            return Err(GroupError::TooFew { found, needed });
        }
        let bytes = self.piece_bytes(shards.iter().flatten())?;
        if shards[..data].iter().all(Option::is_some) {
            return Ok(shards.into_iter().take(data).flatten().collect());
        }
        if self.code == Code::Parity {
            let lost = sum(shards.iter().flatten(), bytes);
            let data = shards.into_iter().take(data);
            return Ok(data
                .map(|shard| shard.unwrap_or_else(|| lost.clone()))
                .collect());
        }
        let failed = |_| GroupError::Length;
        let mut decoder = ReedSolomonDecoder::new(data, recovery, bytes).map_err(failed)?;
        for (number, shard) in shards.iter().enumerate() {
            match shard {
                Some(shard) if number < data => decoder.add_original_shard(number, shard),
                Some(shard) => decoder.add_recovery_shard(number - data, shard),
                None => Ok(()),
            }
            .map_err(failed)?;
        }
        let made = decoder.decode().map_err(failed)?;
        let whole = shards.into_iter().take(data).enumerate();
        whole
            .map(|(number, shard)| {
                let restored = || made.restored_original(number).map(<[u8]>::to_vec);
                shard.or_else(restored).ok_or(GroupError::Length)
            })
            .collect()
    }

    /// The one length of `shards`.
    fn piece_bytes<'a>(
        &self,
        shards: impl IntoIterator<Item = &'a Vec<u8>>,
    ) -> Result<usize, GroupError> {
        let mut shards = shards.into_iter().map(Vec::len);
        let bytes = shards.next().ok_or(GroupError::Length)?;
        let fits = bytes as u64 <= self.shard_bytes
            && bytes > 0
            && (bytes as u64).is_multiple_of(SHARD_UNIT_BYTES);
        (fits && shards.all(|other| other == bytes))
            .then_some(bytes)
            .ok_or(GroupError::Length)
    }
}

fn sum<'a>(shards: impl Iterator<Item = &'a Vec<u8>>, bytes: usize) -> Vec<u8> {
    let mut sum = vec![0; bytes];
    for shard in shards {
        for (sum, byte) in sum.iter_mut().zip(shard) {
            *sum ^= byte;
        }
    }
    sum
}

impl Shard {
    /// What the exNode says of the bytes that a mapping holds.
    #[must_use]
    pub fn function(&self) -> Function {
        let group = &self.group;
        let mut function = Function {
            name: group.name().to_owned(),
            ..Function::default()
        };
        let numbers = [
            ("group_offset", group.range.start),
            ("group_length", group.range.end - group.range.start),
            ("data_shards", u64::from(group.data_shards)),
            ("recovery_shards", u64::from(group.recovery_shards)),
            ("shard_length", group.shard_bytes),
            ("index", u64::from(self.index)),
        ];
        for (name, number) in numbers {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            let arguments = &mut function.arguments;
            arguments.insert(name.to_owned(), Value::Integer(number));
        }
        function
    }

    /// The recovery shard that a mapping holds; none if it holds a part of the file.
    ///
    /// # Errors
    /// If its function says something that cannot be.
    pub fn of(mapping: &Mapping) -> Result<Option<Self>, GroupError> {
        let mut next = mapping.function.as_ref();
        while let Some(function) = next {
            let code = match function.name.as_str() {
                "parity" => Code::Parity,
                "reed_solomon" => Code::ReedSolomon,
                _ => {
                    next = function.inner.first();
                    continue;
                }
            };
            return Self::parse(code, function).map(Some);
        }
        Ok(None)
    }

    fn parse(code: Code, function: &Function) -> Result<Self, GroupError> {
        let wrong = |why| GroupError::Function {
            name: function.name.clone(),
            why,
        };
        let number = |name: &str| match function.arguments.get(name) {
            Some(Value::Integer(number)) => {
                u64::try_from(*number).map_err(|_| wrong("a negative number"))
            }
            _ => Err(wrong("lacks a number that it needs")),
        };
        let small = |name: &str| {
            let number = number(name)?;
            u32::try_from(number).map_err(|_| wrong("too large a number"))
        };
        let start = number("group_offset")?;
        let end = start.checked_add(number("group_length")?);
        let group = Group {
            code,
            range: start..end.ok_or_else(|| wrong("a range that ends nowhere"))?,
            data_shards: small("data_shards")?,
            recovery_shards: small("recovery_shards")?,
            shard_bytes: number("shard_length")?,
        };
        group.check()?;
        let index = small("index")?;
        if index >= group.recovery_shards {
            return Err(wrong("an index beyond the shards"));
        }
        Ok(Self { group, index })
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Goal: whichever shards are lost, the rest restores the data as long as enough are
        /// left, and says so if not.
        #[test]
        fn any_enough_shards_restore_the_data(
            data_shards in 1u32..8,
            recovery in 1u32..5,
            parity: bool,
            units in 1usize..4,
            lost in proptest::collection::vec(any::<bool>(), 16),
            seed: u8,
        ) {
            let code = if parity { Code::Parity } else { Code::ReedSolomon };
            let recovery = if parity { 1 } else { recovery };
            let bytes = u64::from(data_shards) * units as u64 * SHARD_UNIT_BYTES;
            let group = Group::new(code, 0..bytes, data_shards, recovery).unwrap();
            let shard = |n: u32| -> Vec<u8> {
                let bytes = 0..units * SHARD_UNIT_BYTES as usize;
                bytes.map(|at| (at as u8).wrapping_mul(n as u8 + 3) ^ seed).collect()
            };
            let data: Vec<_> = (0..data_shards).map(shard).collect();
            let all = [data.clone(), group.encode(&data).unwrap()].concat();
            let kept: Vec<_> = all
                .into_iter()
                .zip(&lost)
                .map(|(shard, lost)| (!lost).then_some(shard))
                .collect();
            let left = kept.iter().flatten().count();
            match group.restore(kept) {
                Ok(found) => prop_assert_eq!(found, data),
                Err(error) => {
                    let found = left as u32;
                    let needed = data_shards;
                    prop_assert_eq!(error, GroupError::TooFew { found, needed });
                    prop_assert!(found < needed);
                }
            }
        }
    }

    /// Goal: pieces of shards that begin and end at a unit are coded like the whole.
    #[test]
    fn pieces_are_coded_like_the_whole() {
        let group = Group::new(Code::ReedSolomon, 0..1000, 3, 2).unwrap();
        let whole: Vec<Vec<u8>> = (0..3u8)
            .map(|n| {
                (0..384u16)
                    .map(|at| (at as u8).wrapping_mul(n + 5))
                    .collect()
            })
            .collect();
        let coded = group.encode(&whole).unwrap();
        let pieces: Vec<_> = whole.iter().map(|shard| shard[128..256].to_vec()).collect();
        let found = group.encode(&pieces).unwrap();
        let expected: Vec<_> = coded.iter().map(|shard| shard[128..256].to_vec()).collect();
        assert_eq!(found, expected);
    }

    /// Goal: the range is cut into shards that cover it, and a group that cannot be is none.
    #[test]
    fn groups_that_cannot_be_are_refused() {
        let group = Group::new(Code::ReedSolomon, 100..1000, 4, 2).unwrap();
        assert_eq!(group.shard_bytes, 256);
        let ranges: Vec<_> = (0..4).map(|n| group.data_range(n)).collect();
        assert_eq!(ranges, [100..356, 356..612, 612..868, 868..1000]);
        assert!(Group::new(Code::Parity, 0..100, 3, 2).is_err());
        assert!(Group::new(Code::ReedSolomon, 0..100, 200, 100).is_err());
        assert!(Group::new(Code::ReedSolomon, 5..5, 2, 1).is_err());
        let shard = Shard { group, index: 0 };
        for (name, value) in [
            ("shard_length", 65),
            ("shard_length", 64),
            ("shard_length", i64::MAX),
            ("data_shards", 0),
            ("data_shards", -1),
            ("group_length", i64::MAX),
            ("group_length", 0),
            ("index", 2),
        ] {
            let mut function = shard.function();
            function
                .arguments
                .insert(name.to_owned(), Value::Integer(value));
            let mapping = Mapping {
                function: Some(function),
                ..Mapping::default()
            };
            assert!(Shard::of(&mapping).is_err(), "{name} {value}");
        }
    }
}
