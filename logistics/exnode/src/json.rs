//! The exNode as JSON, for programs of today.
//!
//! ```json
//! {"metadata": {"filename": "notes.txt", "lorsversion": 0.82},
//!  "mappings": [{"exnode_offset": 0, "logical_length": 200, "alloc_offset": 0,
//!    "alloc_length": 233, "e2e_blocksize": 200,
//!    "function": {"name": "checksum", "arguments": {"blocksize": 233}},
//!    "read": "ibp://…"}]}
//! ```
//! Text, whole numbers, numbers with a point and objects are the four types of metadata.

use std::io::{self, Read, Write};

use crossdock_limits::EXNODE_DOCUMENT_BYTES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value as Json};
use thiserror::Error;

use crate::model::{ExNode, Function, Invalid, Items, Mapping, Value};

/// Why a document is no exNode.
#[derive(Debug, Error)]
pub enum JsonError {
    /// It is no JSON, or not in this form.
    #[error("not an exNode as JSON: {0}")]
    Form(#[from] serde_json::Error),
    /// A value that metadata cannot have: the name of the item.
    #[error("{0:?} is neither text, nor a number of 64 bits, nor an object")]
    Value(String),
    /// Its parts cannot be.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonExNode {
    #[serde(default)]
    metadata: Map<String, Json>,
    #[serde(default)]
    mappings: Vec<JsonMapping>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonMapping {
    exnode_offset: u64,
    logical_length: u64,
    alloc_offset: u64,
    alloc_length: u64,
    e2e_blocksize: u64,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    function: Option<JsonFunction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    write: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    manage: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonFunction {
    name: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    arguments: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inner: Vec<Self>,
}

/// Reads an exNode in this module's form.
///
/// # Errors
/// [`JsonError`]: why it is none.
pub fn read_json(document: impl Read) -> Result<ExNode, JsonError> {
    let bounded = document.take(EXNODE_DOCUMENT_BYTES_MAX);
    let JsonExNode { metadata, mappings } = serde_json::from_reader(bounded)?;
    let exnode = ExNode {
        metadata: items(metadata)?,
        mappings: mappings
            .into_iter()
            .map(mapping)
            .collect::<Result<_, _>>()?,
    };
    exnode.check()?;
    Ok(exnode)
}

/// Writes `exnode` in this module's form.
///
/// # Errors
/// Those of `out`.
pub fn write_json(exnode: &ExNode, out: &mut impl Write) -> io::Result<()> {
    let written = JsonExNode {
        metadata: json_items(&exnode.metadata),
        mappings: exnode.mappings.iter().map(json_mapping).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &written)?;
    writeln!(out)
}

fn mapping(json: JsonMapping) -> Result<Mapping, JsonError> {
    Ok(Mapping {
        exnode_offset: json.exnode_offset,
        logical_length: json.logical_length,
        alloc_offset: json.alloc_offset,
        alloc_length: json.alloc_length,
        e2e_blocksize: json.e2e_blocksize,
        metadata: items(json.metadata)?,
        function: json.function.map(function).transpose()?,
        read: json.read,
        write: json.write,
        manage: json.manage,
    })
}

fn json_mapping(mapping: &Mapping) -> JsonMapping {
    JsonMapping {
        exnode_offset: mapping.exnode_offset,
        logical_length: mapping.logical_length,
        alloc_offset: mapping.alloc_offset,
        alloc_length: mapping.alloc_length,
        e2e_blocksize: mapping.e2e_blocksize,
        metadata: json_items(&mapping.metadata),
        function: mapping.function.as_ref().map(json_function),
        read: mapping.read.clone(),
        write: mapping.write.clone(),
        manage: mapping.manage.clone(),
    }
}

fn function(json: JsonFunction) -> Result<Function, JsonError> {
    Ok(Function {
        name: json.name,
        metadata: items(json.metadata)?,
        arguments: items(json.arguments)?,
        inner: json
            .inner
            .into_iter()
            .map(function)
            .collect::<Result<_, _>>()?,
    })
}

fn json_function(function: &Function) -> JsonFunction {
    JsonFunction {
        name: function.name.clone(),
        metadata: json_items(&function.metadata),
        arguments: json_items(&function.arguments),
        inner: function.inner.iter().map(json_function).collect(),
    }
}

fn items(json: Map<String, Json>) -> Result<Items, JsonError> {
    let mut found = Items::new();
    for (name, value) in json {
        let value = match value {
            Json::String(text) => Value::Text(text),
            Json::Object(inner) => Value::Group(items(inner)?),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => Value::Integer(number),
                (None, Some(double)) if number.is_f64() => Value::Double(double),
                _ => return Err(JsonError::Value(name)),
            },
            _ => return Err(JsonError::Value(name)),
        };
        found.insert(name, value);
    }
    Ok(found)
}

fn json_items(items: &Items) -> Map<String, Json> {
    let json = |value: &Value| match value {
        Value::Text(text) => Json::String(text.clone()),
        Value::Integer(number) => Json::Number((*number).into()),
        Value::Double(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Group(inner) => Json::Object(json_items(inner)),
    };
    let entries = items.iter();
    entries
        .map(|(name, value)| (name.clone(), json(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what an exNode says survives as JSON, with its types; what is no exNode is refused
    /// with the place where it is wrong.
    #[test]
    fn json_says_the_same() {
        let inner = Items::from([("y".to_owned(), Value::Double(1.0))]);
        let items = Items::from([
            ("text".to_owned(), Value::Text(String::new())),
            ("number".to_owned(), Value::Integer(i64::MIN)),
            ("group".to_owned(), Value::Group(inner)),
        ]);
        let function = Function {
            name: "f".to_owned(),
            inner: vec![Function::default()],
            metadata: items.clone(),
            arguments: items.clone(),
        };
        let exnode = ExNode {
            metadata: items.clone(),
            mappings: vec![Mapping {
                logical_length: 5,
                metadata: items,
                function: Some(function),
                read: Some("ibp://d:1/k/1/READ".to_owned()),
                ..Mapping::default()
            }],
        };
        let mut bytes = Vec::new();
        write_json(&exnode, &mut bytes).unwrap();
        assert_eq!(read_json(&bytes[..]).unwrap(), exnode);
        for wrong in [
            r#"{"mappings": [{}]}"#,
            r#"{"metadata": {"a": null}}"#,
            r#"{"metadata": {"a": 18446744073709551615}}"#,
            r#"{"other": 1}"#,
            "[",
        ] {
            assert!(read_json(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
