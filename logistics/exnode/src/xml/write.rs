//! Writing, in the order and form of the historic tools.

use std::io::{self, Write};

use quick_xml::escape::escape;

use super::{FIELDS, NAMESPACE};
use crate::model::{ExNode, Function, Items, Mapping, Value};

/// Writes `exnode` as a document that the historic tools read. What is text and empty is left
/// out: their reader cannot read it.
///
/// # Errors
/// Those of `out`.
pub fn write_xml(exnode: &ExNode, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "<?xml version=\"1.0\"?>")?;
    writeln!(out, "<exnode xmlns:exnode=\"{NAMESPACE}\">")?;
    write_items(&exnode.metadata, "metadata", 1, out)?;
    for mapping in &exnode.mappings {
        write_mapping(mapping, out)?;
    }
    writeln!(out, "</exnode>")
}

fn write_mapping(mapping: &Mapping, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  <exnode:mapping>")?;
    // One sorted list, as it was before it was read.
    let numbers = [
        mapping.exnode_offset,
        mapping.logical_length,
        mapping.alloc_offset,
        mapping.alloc_length,
        mapping.e2e_blocksize,
    ];
    let mut items = mapping.metadata.clone();
    for (name, number) in FIELDS.into_iter().zip(numbers) {
        let number = i64::try_from(number).map_err(io::Error::other)?;
        items.insert(name.to_owned(), Value::Integer(number));
    }
    write_items(&items, "metadata", 2, out)?;
    if let Some(function) = &mapping.function {
        write_function(function, 2, out)?;
    }
    let capabilities = [
        ("read", &mapping.read),
        ("write", &mapping.write),
        ("manage", &mapping.manage),
    ];
    for (name, capability) in capabilities {
        if let Some(text) = capability {
            writeln!(out, "    <exnode:{name}>{}</exnode:{name}>", escape(text))?;
        }
    }
    writeln!(out, "  </exnode:mapping>")
}

fn write_function(function: &Function, depth: usize, out: &mut impl Write) -> io::Result<()> {
    let indent = "  ".repeat(depth);
    let name = escape(function.name.as_str());
    writeln!(out, "{indent}<exnode:function name=\"{name}\">")?;
    write_items(&function.metadata, "metadata", depth + 1, out)?;
    write_items(&function.arguments, "argument", depth + 1, out)?;
    for inner in &function.inner {
        write_function(inner, depth + 1, out)?;
    }
    writeln!(out, "{indent}</exnode:function>")
}

fn write_items(items: &Items, tag: &str, depth: usize, out: &mut impl Write) -> io::Result<()> {
    let indent = "  ".repeat(depth);
    for (name, value) in items {
        let (kind, text) = match value {
            Value::Text(text) if text.is_empty() => continue,
            Value::Text(text) => ("string", escape(text.as_str()).into_owned()),
            Value::Integer(number) => ("integer", number.to_string()),
            Value::Double(number) => ("double", format!("{number:.6}")),
            Value::Group(_) => ("meta", String::new()),
        };
        let name = escape(name.as_str());
        write!(
            out,
            "{indent}<exnode:{tag} name=\"{name}\" type=\"{kind}\">{text}"
        )?;
        if let Value::Group(inner) = value {
            writeln!(out)?;
            write_items(inner, "metadata", depth + 1, out)?;
            write!(out, "{indent}")?;
        }
        writeln!(out, "</exnode:{tag}>")?;
    }
    Ok(())
}
