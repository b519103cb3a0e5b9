use std::fmt::Write;
use std::io::{self, BufReader, Cursor, Read};

use super::*;
use crate::model::{ExNode, ExNodeId, Function, Items, Mapping, Value};

/// As LoRS 0.82 writes it.
const HISTORIC: &str = r#"<?xml version="1.0"?>
<exnode xmlns:exnode="http://loci.cs.utk.edu/exnode">
  <exnode:metadata name="Version" type="string">3.0</exnode:metadata>
  <exnode:metadata name="filename" type="string">notes.txt</exnode:metadata>
  <exnode:metadata name="lorsversion" type="double">0.820000</exnode:metadata>
  <exnode:mapping>
    <exnode:metadata name="alloc_length" type="integer">233</exnode:metadata>
    <exnode:metadata name="alloc_offset" type="integer">0</exnode:metadata>
    <exnode:metadata name="e2e_blocksize" type="integer">200</exnode:metadata>
    <exnode:metadata name="exnode_offset" type="integer">0</exnode:metadata>
    <exnode:metadata name="logical_length" type="integer">200</exnode:metadata>
    <exnode:function name="checksum">
      <exnode:argument name="blocksize" type="integer">233</exnode:argument>
    </exnode:function>
    <exnode:read>ibp://depot.example.org:6714/0#IBP-abc/111/READ</exnode:read>
    <exnode:write>ibp://depot.example.org:6714/0#IBP-abc/222/WRITE</exnode:write>
    <exnode:manage>ibp://depot.example.org:6714/0#IBP-abc/333/MANAGE</exnode:manage>
  </exnode:mapping>
</exnode>
"#;

fn read(text: &str) -> Result<ExNode, XmlError> {
    read_xml(text.as_bytes())
}

fn written(exnode: &ExNode) -> String {
    let mut bytes = Vec::new();
    write_xml(exnode, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// A document with `inside` in its root.
fn document(inside: &str) -> String {
    format!("<exnode xmlns:exnode=\"{NAMESPACE}\">{inside}</exnode>")
}

/// Goal: what the historic tools write is read, and written again byte for byte.
#[test]
fn historic_document_survives_unchanged() {
    let exnode = read(HISTORIC).unwrap();
    assert_eq!((exnode.filename(), exnode.size()), (Some("notes.txt"), 200));
    let mapping = &exnode.mappings[0];
    assert_eq!((mapping.alloc_length, mapping.e2e_blocksize), (233, 200));
    assert_eq!(mapping.function.as_ref().unwrap().name, "checksum");
    assert_eq!(written(&exnode), HISTORIC);
}

/// Goal: metadata of any name and nested functions are kept; elements that are not known, and
/// those of other namespaces, are passed over; characters that XML needs itself survive.
#[test]
fn what_is_unknown_is_kept_or_passed_over() {
    let mut items = Items::new();
    items.insert("mode".to_owned(), Value::Text("a <&> \"b\"".to_owned()));
    let inner = Items::from([("x".to_owned(), Value::Integer(-5))]);
    items.insert("more".to_owned(), Value::Group(inner));
    let function = |name: &str, inner| Function {
        name: name.to_owned(),
        inner,
        metadata: items.clone(),
        arguments: items.clone(),
    };
    let mut exnode = ExNode::new(ExNodeId([7; 16]), "f");
    exnode.metadata.extend(items.clone());
    exnode.mappings.push(Mapping {
        metadata: items.clone(),
        function: Some(function(
            "a",
            vec![function("b", vec![]), function("c", vec![])],
        )),
        ..Mapping::default()
    });
    let text = written(&exnode);
    assert_eq!(read(&text).unwrap(), exnode);
    let more = text.replace(
        "<exnode:mapping>",
        "<other/><exnode:later a='1'>x<y/></exnode:later><exnode:mapping><metadata name='z'/>",
    );
    assert_eq!(read(&more).unwrap(), exnode);
}

/// Goal: an empty text, which the historic reader cannot read, is not written.
#[test]
fn empty_text_is_left_out() {
    let mut exnode = ExNode::default();
    let empty = Value::Text(String::new());
    exnode.metadata.insert("parent".to_owned(), empty);
    assert!(!written(&exnode).contains("parent"));
}

/// Goal: entities are refused before they grow.
#[test]
fn entity_bombs_are_refused() {
    let bomb = format!(
        "<!DOCTYPE x [<!ENTITY a \"aaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>{}",
        document("<exnode:metadata name='n' type='string'>&b;</exnode:metadata>")
    );
    assert!(matches!(read(&bomb), Err(XmlError::Meaning { .. })));
    let unknown = document("<exnode:metadata name='n' type='string'>&b;</exnode:metadata>");
    assert!(matches!(read(&unknown), Err(XmlError::Meaning { .. })));
    let known = document("<exnode:metadata name='n'>&lt;&#65;&amp;</exnode:metadata>");
    let known = read(&known).unwrap();
    assert_eq!(known.metadata["n"], Value::Text("<A&".to_owned()));
}

/// Goal: depth is bounded, of what is known and of what is passed over.
#[test]
fn depth_is_bounded() {
    for (open, close) in [
        ("<x>", "</x>"),
        (
            "<exnode:metadata name='n' type='meta'>",
            "</exnode:metadata>",
        ),
    ] {
        let nested = |depth| document(&(open.repeat(depth) + &close.repeat(depth)));
        read(&nested(20)).unwrap();
        let found = read(&nested(100_000));
        assert!(matches!(found, Err(XmlError::Limit { .. })), "{found:?}");
    }
    let nested = "<exnode:function name='f'>".repeat(100);
    let found = read(&document(&format!("<exnode:mapping>{nested}")));
    assert!(matches!(found, Err(XmlError::Limit { .. })));
}

/// Goal: tags, texts and lists without an end are given up early, whatever comes.
#[test]
fn endless_pieces_are_given_up() {
    for head in [
        "<exnode a='",
        "<exnode xmlns='x'><!--",
        "<exnode>",
        "<e",
        " ",
    ] {
        let endless = Cursor::new(head).chain(io::repeat(b'a'));
        let found = read_xml(BufReader::new(endless));
        assert!(
            matches!(found, Err(XmlError::Limit { .. })),
            "{head}: {found:?}"
        );
    }
    let item = |n: usize| format!("<exnode:metadata name='n{n}'>x</exnode:metadata>");
    let many: String = (0..1000).map(item).collect();
    assert!(matches!(
        read(&document(&many)),
        Err(XmlError::Limit { .. })
    ));
}

/// Goal: numbers that cannot be, parts that are missing and things said twice are errors.
#[test]
fn nonsense_is_refused() {
    let mapping = |fields: &[(&str, &str)]| {
        let mut text = String::from("<exnode:mapping>");
        for (name, value) in fields {
            let tag = "exnode:metadata";
            write!(text, "<{tag} name='{name}' type='integer'>{value}</{tag}>").unwrap();
        }
        document(&(text + "</exnode:mapping>"))
    };
    let good = FIELDS.map(|name| (name, "1"));
    read(&mapping(&good)).unwrap();
    for (at, wrong) in [(0, "-1"), (0, "9223372036854775808"), (1, "x"), (2, "")] {
        let mut fields = good;
        fields[at].1 = wrong;
        assert!(read(&mapping(&fields)).is_err(), "{fields:?}");
    }
    let mut fields = good;
    fields[0].1 = "9223372036854775807";
    assert!(matches!(read(&mapping(&fields)), Err(XmlError::Invalid(_))));
    assert!(read(&mapping(&good[1..])).is_err());
    assert!(read(&mapping(&[&good[..], &good[..1]].concat())).is_err());
    for text in [
        "",
        "x",
        "<exnode>",
        "<a/><b/>",
        "<a></b>",
        "<a b='1' b='2'/>",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
    let nan = document("<exnode:metadata name='n' type='double'>nan</exnode:metadata>");
    assert!(read(&nan).is_err());
}

/// A document of many small mappings that is made while it is read.
struct Many {
    left: usize,
    mapping: String,
    chunk: Cursor<String>,
}

impl Read for Many {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.chunk.read(into)?;
        if count > 0 || self.left == 0 {
            return Ok(count);
        }
        self.left -= 1;
        self.chunk = Cursor::new(self.mapping.clone());
        self.chunk.read(into)
    }
}

/// Goal: a million mappings are read; the next one is refused where it begins.
#[test]
fn a_million_mappings_are_read_and_no_more() {
    let root = format!("<exnode xmlns:e=\"{NAMESPACE}\">");
    let field = |name| format!("<e:metadata name='{name}' type='integer'>1</e:metadata>");
    let mapping = format!("<e:mapping>{}</e:mapping>", FIELDS.map(field).concat());
    let before = root.len() + 1_000_000 * mapping.len();
    let document = Many {
        left: 1_000_001,
        chunk: Cursor::new(root),
        mapping,
    };
    match read_xml(BufReader::new(document)) {
        Err(XmlError::Limit { at, .. }) => assert_eq!(at, (before + "<e:mapping>".len()) as u64),
        other => panic!("{:?}", other.map(|exnode| exnode.mappings.len())),
    }
}
