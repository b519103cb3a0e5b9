//! What an exNode says, whichever form it is written in.

use std::collections::BTreeMap;
use std::ops::Range;

use crossdock_limits::{EXNODE_ITEMS_MAX, EXNODE_MAPPINGS_MAX};
use thiserror::Error;

/// Named values, of a file, a mapping or a function. Sorted by name, as the historic tools
/// write them.
pub type Items = BTreeMap<String, Value>;

/// A value of metadata or of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text. The historic reader cannot read an empty one, so it is left out when written.
    Text(String),
    /// A signed number.
    Integer(i64),
    /// A finite number; six decimals of it survive as XML.
    Double(f64),
    /// More of them.
    Group(Items),
}

/// Tells one exNode from every other; blocks are bound to it when they are encrypted or
/// checksummed, so none can be put in the place of another file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExNodeId(pub [u8; 16]);

impl ExNodeId {
    /// As 32 hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// From 32 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        from_hex(text).map(Self)
    }
}

/// What was done to the bytes of a mapping; the inner ones were done before
/// (shared form of the historic library's functions).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Which, like `checksum`.
    pub name: String,
    /// What else is said of it.
    pub metadata: Items,
    /// Its arguments, like `blocksize`.
    pub arguments: Items,
    /// What was done before, the first one innermost.
    pub inner: Vec<Self>,
}

/// A part of the file, and where its bytes are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mapping {
    /// Where the part begins in the file, in bytes.
    pub exnode_offset: u64,
    /// Bytes of the file that it covers; 0 for one that only restores others.
    pub logical_length: u64,
    /// Where it begins in the allocation, in bytes.
    pub alloc_offset: u64,
    /// Bytes that it takes there.
    pub alloc_length: u64,
    /// Bytes of the file that are coded together; 0 if they are stored as they are.
    pub e2e_blocksize: u64,
    /// What else is said of it; none of the five above.
    pub metadata: Items,
    /// What was done to the bytes, the last thing outermost.
    pub function: Option<Function>,
    /// Capability that allows reading, as its text.
    pub read: Option<String>,
    /// Capability that allows writing.
    pub write: Option<String>,
    /// Capability that allows managing.
    pub manage: Option<String>,
}

/// A file in the network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExNode {
    /// What is said of the whole, like `filename`.
    pub metadata: Items,
    /// Its parts, in any order; they may overlap and leave holes.
    pub mappings: Vec<Mapping>,
}

/// What an exNode may not say.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Invalid {
    /// More mappings than are accepted.
    #[error("more than {EXNODE_MAPPINGS_MAX} mappings")]
    Mappings,
    /// More metadata, arguments or functions than are accepted.
    #[error("more than {EXNODE_ITEMS_MAX} items in one place")]
    Items,
    /// The mapping of that number ends beyond the largest file.
    #[error("mapping {0} ends beyond 2^63 bytes")]
    Range(usize),
}

impl Mapping {
    /// The bytes of the file that it covers.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.exnode_offset..self.exnode_offset.saturating_add(self.logical_length)
    }

    /// Any of its capabilities, for one who wants to know how it is: best the one to manage it, as
    /// ACCRE's depots probe with no other.
    #[must_use]
    pub fn any_capability(&self) -> Option<&str> {
        let all = [&self.manage, &self.read, &self.write];
        all.into_iter().flatten().map(String::as_str).next()
    }
}

impl ExNode {
    /// Key of the id in the metadata.
    const ID: &str = "crossdock_id";

    /// An exNode without mappings, in the form that the historic tools of LoRS 0.82 write.
    #[must_use]
    pub fn new(id: ExNodeId, filename: &str) -> Self {
        let mut metadata = Items::new();
        metadata.insert("Version".to_owned(), Value::Text("3.0".to_owned()));
        metadata.insert("lorsversion".to_owned(), Value::Double(0.82));
        metadata.insert(Self::ID.to_owned(), Value::Text(id.to_hex()));
        if !filename.is_empty() {
            metadata.insert("filename".to_owned(), Value::Text(filename.to_owned()));
        }
        Self {
            metadata,
            mappings: Vec::new(),
        }
    }

    /// Its id; the historic tools give none.
    #[must_use]
    pub fn id(&self) -> Option<ExNodeId> {
        match self.metadata.get(Self::ID) {
            Some(Value::Text(text)) => ExNodeId::from_hex(text),
            _ => None,
        }
    }

    /// The name of the file that was uploaded.
    #[must_use]
    pub fn filename(&self) -> Option<&str> {
        match self.metadata.get("filename") {
            Some(Value::Text(name)) if !name.is_empty() => Some(name),
            _ => None,
        }
    }

    /// Bytes of the file: up to the end of the last part.
    #[must_use]
    pub fn size(&self) -> u64 {
        let ends = self.mappings.iter().map(|mapping| mapping.range().end);
        ends.max().unwrap_or(0)
    }

    /// Checks what every form of it has to obey.
    ///
    /// # Errors
    /// The first thing that it may not say.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.mappings.len() > EXNODE_MAPPINGS_MAX {
            return Err(Invalid::Mappings);
        }
        check_items(&self.metadata)?;
        for (number, mapping) in self.mappings.iter().enumerate() {
            let is_in_range = |offset: u64, length: u64| {
                offset
                    .checked_add(length)
                    .is_some_and(|end| i64::try_from(end).is_ok())
            };
            if !is_in_range(mapping.exnode_offset, mapping.logical_length)
                || !is_in_range(mapping.alloc_offset, mapping.alloc_length)
                || i64::try_from(mapping.e2e_blocksize).is_err()
            {
                return Err(Invalid::Range(number));
            }
            check_items(&mapping.metadata)?;
            mapping.function.as_ref().map_or(Ok(()), check_function)?;
        }
        Ok(())
    }
}

fn check_items(items: &Items) -> Result<(), Invalid> {
    if items.len() > EXNODE_ITEMS_MAX {
        return Err(Invalid::Items);
    }
    for value in items.values() {
        if let Value::Group(items) = value {
            check_items(items)?;
        }
    }
    Ok(())
}

fn check_function(function: &Function) -> Result<(), Invalid> {
    if function.inner.len() > EXNODE_ITEMS_MAX {
        return Err(Invalid::Items);
    }
    check_items(&function.metadata)?;
    check_items(&function.arguments)?;
    function.inner.iter().try_for_each(check_function)
}

/// Lower-case hexadecimal digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As many bytes as are asked for, from twice as many hexadecimal digits.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}
