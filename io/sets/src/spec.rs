//! What `--disks` says: which disks form which set of which node.
//!
//! ```text
//! SPEC = SET { ";" SET }
//! SET  = [ NODE "=" ] KIND ":" PATH { "," PATH }
//! KIND = "stripe" | "mirror" | "parity" | "spare"
//! ```
//!
//! `NODE` is the number of a node, 0 if it is left away. Spares are of all sets of
//! their node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::geometry::Kind;

/// Disks of a node, spares included.
pub const DISKS_MAX: usize = 64;

/// The disks of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDisksSpec {
    /// Its sets, in the order in which they were named.
    pub sets: Vec<SetSpec>,
    /// Disks that take the place of one that fails.
    pub spares: Vec<PathBuf>,
}

/// One set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSpec {
    /// What it is.
    pub kind: Kind,
    /// Block devices or files, all there already.
    pub disks: Vec<PathBuf>,
}

/// What is wrong with a SPEC.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not of the form that it should have.
    #[error("{0:?} is not [NODE=]stripe|mirror|parity|spare:PATH,PATH…")]
    Form(String),
    /// Too few or too many disks for what it is.
    #[error("a {kind} set has {least} to {most} disks, not {found}")]
    Count {
        /// What was named.
        kind: Kind,
        /// The least.
        least: usize,
        /// The most.
        most: usize,
        /// How many were named.
        found: usize,
    },
    /// A disk cannot be in two places.
    #[error("{0} is named twice")]
    Twice(PathBuf),
    /// Spares alone hold nothing.
    #[error("node {0} has spares and no set")]
    OnlySpares(u32),
    /// More than a label tells of.
    #[error("node {node} has {found} disks, {DISKS_MAX} are the most")]
    TooMany {
        /// Which one.
        node: u32,
        /// How many were named.
        found: usize,
    },
}

impl NodeDisksSpec {
    /// All disks: those of the sets, then the spares.
    pub fn disks(&self) -> impl Iterator<Item = &PathBuf> {
        let members = self.sets.iter().flat_map(|set| &set.disks);
        members.chain(&self.spares)
    }
}

/// Reads a SPEC: the disks of each node that it names.
///
/// # Errors
/// See [`SpecError`].
pub fn parse(spec: &str) -> Result<BTreeMap<u32, NodeDisksSpec>, SpecError> {
    let mut nodes: BTreeMap<u32, NodeDisksSpec> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for text in spec.split(';') {
        let wrong = || SpecError::Form(text.to_owned());
        let (head, paths) = text.split_once(':').ok_or_else(wrong)?;
        let (node, kind) = match head.split_once('=') {
            Some((node, kind)) => (node.trim().parse().map_err(|_| wrong())?, kind),
            None => (0, head),
        };
        let disks: Vec<PathBuf> = paths.split(',').map(|path| path.trim().into()).collect();
        for disk in &disks {
            if disk.as_os_str().is_empty() {
                return Err(wrong());
            }
            if !seen.insert(disk.clone()) {
                return Err(SpecError::Twice(disk.clone()));
            }
        }
        let found = nodes.entry(node).or_default();
        let kind = match kind.trim() {
            "stripe" => Kind::Stripe,
            "mirror" => Kind::Mirror,
            "parity" => Kind::Parity,
            "spare" => {
                found.spares.extend(disks);
                continue;
            }
            _ => return Err(wrong()),
        };
        kind.check_members(disks.len())?;
        found.sets.push(SetSpec { kind, disks });
    }
    for (&node, disks) in &nodes {
        let found = disks.disks().count();
        if disks.sets.is_empty() {
            return Err(SpecError::OnlySpares(node));
        }
        if found > DISKS_MAX {
            return Err(SpecError::TooMany { node, found });
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the grammar of the manual, and that what it does not allow is refused.
    #[test]
    fn the_grammar() {
        let nodes = parse("mirror:/a,/b; parity:/c,/d,/e;spare:/f;1=stripe:/g").expect("good");
        assert_eq!(nodes.len(), 2);
        let first = &nodes[&0];
        assert_eq!(first.sets.len(), 2);
        assert_eq!(first.sets[0].kind, Kind::Mirror);
        assert_eq!(first.sets[1].disks[2], PathBuf::from("/e"));
        assert_eq!(first.spares, [PathBuf::from("/f")]);
        assert_eq!(nodes[&1].sets[0].kind, Kind::Stripe);
        assert_eq!(first.disks().count(), 6);

        for wrong in [
            "",
            "mirror",
            "raid:/a,/b",
            "x=mirror:/a,/b",
            "mirror:/a,,/b",
        ] {
            assert!(matches!(parse(wrong), Err(SpecError::Form(_))), "{wrong}");
        }
        let is_count = |spec| matches!(parse(spec), Err(SpecError::Count { .. }));
        assert!(is_count("mirror:/a"));
        assert!(is_count("parity:/a,/b"));
        assert!(matches!(parse("mirror:/a,/a"), Err(SpecError::Twice(_))));
        assert!(matches!(parse("spare:/a"), Err(SpecError::OnlySpares(0))));
    }
}
