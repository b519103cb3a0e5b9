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
use std::fmt;
use std::path::{Path, PathBuf};

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
    /// What is of one node names none.
    #[error("{0:?} names a node; it is said beside it here")]
    NamesNode(String),
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

    /// What was said before, with what is said now. The sets are those of before, in their
    /// order, as they are said now if one has a disk of theirs; behind them come the new ones.
    #[must_use]
    pub fn continued(&self, said: &Self) -> Self {
        let shares = |one: &SetSpec, other: &SetSpec| {
            let mut disks = one.disks.iter();
            disks.any(|disk| other.disks.contains(disk))
        };
        let known = self.sets.iter().map(|set| {
            let mut said = said.sets.iter();
            said.find(|said| shares(said, set)).unwrap_or(set).clone()
        });
        let new = said.sets.iter();
        let new = new.filter(|said| !self.sets.iter().any(|set| shares(said, set)));
        let mut all = Self {
            sets: known.chain(new.cloned()).collect(),
            spares: said.spares.clone(),
        };
        for spare in &self.spares {
            if !all.disks().any(|disk| disk == spare) {
                all.spares.push(spare.clone());
            }
        }
        all
    }

    /// The same with other paths.
    ///
    /// # Errors
    /// Those of `path`.
    pub fn with_paths<E>(&self, path: impl Fn(&Path) -> Result<PathBuf, E>) -> Result<Self, E> {
        let all = |disks: &[PathBuf]| {
            disks
                .iter()
                .map(|disk| path(disk))
                .collect::<Result<Vec<PathBuf>, E>>()
        };
        let sets = self.sets.iter().map(|set| {
            Ok(SetSpec {
                kind: set.kind,
                disks: all(&set.disks)?,
            })
        });
        Ok(Self {
            sets: sets.collect::<Result<_, E>>()?,
            spares: all(&self.spares)?,
        })
    }
}

/// As [`parse_node`] reads it.
impl fmt::Display for NodeDisksSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |disks: &[PathBuf]| {
            let disks = disks.iter().map(|disk| disk.display().to_string());
            disks.collect::<Vec<_>>().join(",")
        };
        let sets = self.sets.iter();
        let mut parts: Vec<String> = sets
            .map(|set| format!("{}:{}", set.kind, list(&set.disks)))
            .collect();
        if !self.spares.is_empty() {
            parts.push(format!("spare:{}", list(&self.spares)));
        }
        formatter.write_str(&parts.join(";"))
    }
}

/// Reads a SPEC of one node, which names no node, and may have spares only.
///
/// # Errors
/// See [`SpecError`].
pub fn parse_node(spec: &str) -> Result<NodeDisksSpec, SpecError> {
    if let Some(named) = spec.split(';').find(|text| names_node(text)) {
        return Err(SpecError::NamesNode(named.to_owned()));
    }
    let mut nodes = parse_all(spec)?;
    Ok(nodes.remove(&0).unwrap_or_default())
}

/// Whether a set begins with the number of a node; paths may have what they like.
fn names_node(text: &str) -> bool {
    let head = text.split_once(':').map(|(head, _)| head);
    head.is_some_and(|head| head.contains('='))
}

/// Reads a SPEC: the disks of each node that it names.
///
/// # Errors
/// See [`SpecError`].
pub fn parse(spec: &str) -> Result<BTreeMap<u32, NodeDisksSpec>, SpecError> {
    let nodes = parse_all(spec)?;
    let lonely = nodes.iter().find(|(_, disks)| disks.sets.is_empty());
    match lonely {
        Some((&node, _)) => Err(SpecError::OnlySpares(node)),
        None => Ok(nodes),
    }
}

fn parse_all(spec: &str) -> Result<BTreeMap<u32, NodeDisksSpec>, SpecError> {
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

    /// Goal: what is of one node is read as it is written, and names none.
    #[test]
    fn of_one_node() {
        let text = "mirror:/a,/b;stripe:/c=d;spare:/e,/f";
        let node = parse_node(text).expect("good");
        assert_eq!(node.to_string(), text);
        assert_eq!(parse_node("spare:/a").map(|node| node.spares.len()), Ok(1));
        let named = parse_node("1=stripe:/a");
        assert!(matches!(named, Err(SpecError::NamesNode(_))));
        let moved = node.with_paths(|path| Ok::<_, ()>(Path::new("/new").join(path)));
        assert_eq!(moved.map(|node| node.to_string()), Ok(text.to_owned()));
    }

    /// Goal: sets that were added, and changed paths, are kept in the order of the first start;
    /// what is named anew comes behind.
    #[test]
    fn what_was_said_goes_on() {
        let continued = |before: &str, said: &str| {
            let (before, said) = (parse_node(before), parse_node(said));
            before
                .expect("good")
                .continued(&said.expect("good"))
                .to_string()
        };
        let before = "mirror:/a,/b;parity:/c,/d,/e;spare:/s";
        assert_eq!(continued(before, "mirror:/a,/b"), before);
        assert_eq!(
            continued(before, "stripe:/x;parity:/c,/d,/y;mirror:/a,/s"),
            "mirror:/a,/s;parity:/c,/d,/y;stripe:/x"
        );
    }
}
