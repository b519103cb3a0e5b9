//! Reading.

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use crossdock_limits::{
    EXNODE_DEPTH_MAX, EXNODE_DOCUMENT_BYTES_MAX, EXNODE_ITEMS_MAX, EXNODE_MAPPINGS_MAX,
    EXNODE_TOKEN_BYTES_MAX,
};
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, NamespaceResolver, ResolveResult};
use quick_xml::reader::NsReader;

use super::{FIELDS, NAMESPACE, XmlError};
use crate::model::{ExNode, Function, Items, Mapping, Value};

/// Reads an exNode from a whole document.
///
/// # Errors
/// [`XmlError`]: where and why it is none, or more than is accepted.
pub fn read_xml(document: impl BufRead) -> Result<ExNode, XmlError> {
    let mut parser = Parser::new(document);
    let mut exnode = None;
    loop {
        match parser.next()? {
            Token::Open(_) if exnode.is_some() => return parser.meaning("more than one root"),
            Token::Open(_) => exnode = Some(parser.root()?),
            Token::End => break,
            Token::Text(text) if text.trim().is_empty() => {}
            Token::Text(_) | Token::Close => return parser.meaning("text outside of the root"),
        }
    }
    let Some(exnode) = exnode else {
        return parser.meaning("no root element");
    };
    exnode.check()?;
    Ok(exnode)
}

/// An element that begins.
struct Element {
    /// Its name, if it is of the namespace.
    name: Option<String>,
    /// Attributes `name` and `type`.
    item: Option<String>,
    kind: Option<String>,
}

enum Token {
    Open(Element),
    Close,
    Text(String),
    End,
}

struct Parser<R: BufRead> {
    reader: NsReader<Bounded<R>>,
    /// What the token at hand may still take of the document.
    allowance: Rc<Cell<usize>>,
    buffer: Vec<u8>,
    depth: usize,
    /// The element at hand was written as an empty one: its end comes next.
    is_empty: bool,
}

impl<R: BufRead> Parser<R> {
    fn new(document: R) -> Self {
        let allowance = Rc::new(Cell::new(0));
        let bounded = Bounded {
            document: document.take(EXNODE_DOCUMENT_BYTES_MAX),
            allowance: Rc::clone(&allowance),
        };
        Self {
            reader: NsReader::from_reader(bounded),
            allowance,
            buffer: Vec::new(),
            depth: 0,
            is_empty: false,
        }
    }

    fn next(&mut self) -> Result<Token, XmlError> {
        if std::mem::take(&mut self.is_empty) {
            self.depth -= 1;
            return Ok(Token::Close);
        }
        loop {
            self.buffer.clear();
            self.allowance.set(EXNODE_TOKEN_BYTES_MAX);
            let read = self.reader.read_event_into(&mut self.buffer);
            let at = self.reader.buffer_position();
            let event = read.map_err(|error| syntax(at, &error))?;
            let resolver = self.reader.resolver();
            let token = match event {
                Event::Start(start) => Token::Open(element(at, resolver, &start)?),
                Event::Empty(start) => {
                    self.is_empty = true;
                    Token::Open(element(at, resolver, &start)?)
                }
                Event::End(_) => Token::Close,
                Event::Text(text) => Token::Text(text.xml10_content().into_owned()),
                Event::CData(text) => Token::Text(text.xml10_content().into_owned()),
                Event::GeneralRef(reference) => Token::Text(resolve(at, &reference)?),
                Event::DocType(_) => {
                    let why = "a document type: entities are not accepted".to_owned();
                    return Err(XmlError::Meaning { at, why });
                }
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => continue,
                Event::Eof => Token::End,
            };
            match &token {
                Token::Open(_) => self.depth += 1,
                Token::Close => self.depth = self.depth.saturating_sub(1),
                Token::Text(_) | Token::End => {}
            }
            if self.depth > EXNODE_DEPTH_MAX {
                return self.limit("elements lie too deep in one another");
            }
            if matches!(token, Token::End) && self.depth > 0 {
                let why = "it ends within an element".to_owned();
                return Err(XmlError::Syntax { at, why });
            }
            return Ok(token);
        }
    }

    fn root(&mut self) -> Result<ExNode, XmlError> {
        let mut exnode = ExNode::default();
        while let Some(element) = self.child()? {
            match element.name.as_deref() {
                Some("metadata") => self.item(element, &mut exnode.metadata)?,
                Some("mapping") if exnode.mappings.len() == EXNODE_MAPPINGS_MAX => {
                    return self.limit("too many mappings");
                }
                Some("mapping") => {
                    let mapping = self.mapping()?;
                    exnode.mappings.push(mapping);
                }
                _ => self.skip()?,
            }
        }
        Ok(exnode)
    }

    fn mapping(&mut self) -> Result<Mapping, XmlError> {
        let mut mapping = Mapping::default();
        while let Some(element) = self.child()? {
            match element.name.as_deref() {
                Some("metadata") => self.item(element, &mut mapping.metadata)?,
                Some("function") if mapping.function.is_some() => {
                    return self.meaning("a mapping with two functions");
                }
                Some("function") => mapping.function = Some(self.function(element)?),
                Some("read") => mapping.read = self.capability()?,
                Some("write") => mapping.write = self.capability()?,
                Some("manage") => mapping.manage = self.capability()?,
                _ => self.skip()?,
            }
        }
        let [
            exnode_offset,
            logical_length,
            alloc_offset,
            alloc_length,
            e2e,
        ] = FIELDS;
        mapping.exnode_offset = self.field(&mut mapping.metadata, exnode_offset)?;
        mapping.logical_length = self.field(&mut mapping.metadata, logical_length)?;
        mapping.alloc_offset = self.field(&mut mapping.metadata, alloc_offset)?;
        mapping.alloc_length = self.field(&mut mapping.metadata, alloc_length)?;
        mapping.e2e_blocksize = self.field(&mut mapping.metadata, e2e)?;
        Ok(mapping)
    }

    /// Takes a number that belongs to a mapping out of its metadata.
    fn field(&self, items: &mut Items, name: &str) -> Result<u64, XmlError> {
        match items.remove(name) {
            Some(Value::Integer(value)) => match u64::try_from(value) {
                Ok(value) => Ok(value),
                Err(_) => self.meaning(&format!("{name} is negative: {value}")),
            },
            Some(_) => self.meaning(&format!("{name} is no integer")),
            None => self.meaning(&format!("a mapping without {name}")),
        }
    }

    fn function(&mut self, element: Element) -> Result<Function, XmlError> {
        let Some(name) = element.item else {
            return self.meaning("a function without a name");
        };
        let mut function = Function {
            name,
            ..Function::default()
        };
        while let Some(element) = self.child()? {
            match element.name.as_deref() {
                Some("metadata") => self.item(element, &mut function.metadata)?,
                Some("argument") => self.item(element, &mut function.arguments)?,
                Some("function") if function.inner.len() == EXNODE_ITEMS_MAX => {
                    return self.limit("too many functions in one");
                }
                Some("function") => {
                    let inner = self.function(element)?;
                    function.inner.push(inner);
                }
                _ => self.skip()?,
            }
        }
        Ok(function)
    }

    /// One `metadata` or `argument`, into `items`.
    fn item(&mut self, element: Element, items: &mut Items) -> Result<(), XmlError> {
        let Some(name) = element.item else {
            return self.meaning("an item without a name");
        };
        let kind = element.kind.unwrap_or_else(|| "string".to_owned());
        let value = if kind == "meta" {
            let mut inner = Items::new();
            while let Some(element) = self.child()? {
                match element.name.as_deref() {
                    Some("metadata" | "argument") => self.item(element, &mut inner)?,
                    _ => self.skip()?,
                }
            }
            Value::Group(inner)
        } else {
            let text = self.text()?;
            self.value(&name, &kind, text)?
        };
        if items.len() == EXNODE_ITEMS_MAX {
            return self.limit("too many items in one place");
        }
        if items.insert(name.clone(), value).is_some() {
            return self.meaning(&format!("two items named {name:?} in one place"));
        }
        Ok(())
    }

    fn value(&self, name: &str, kind: &str, text: String) -> Result<Value, XmlError> {
        let trimmed = text.trim();
        match kind {
            "string" => Ok(Value::Text(text)),
            "integer" => match trimmed.parse() {
                Ok(number) => Ok(Value::Integer(number)),
                Err(_) => self.meaning(&format!("{name:?} is no integer of 64 bits: {trimmed:?}")),
            },
            "double" => match trimmed.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Value::Double(number)),
                _ => self.meaning(&format!("{name:?} is no finite number: {trimmed:?}")),
            },
            other => self.meaning(&format!("{name:?} has an unknown type: {other:?}")),
        }
    }

    fn capability(&mut self) -> Result<Option<String>, XmlError> {
        let text = self.text()?;
        let text = text.trim();
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return self.meaning("a capability with blanks in it");
        }
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// The next element within the one at hand; none when that ends. Text is passed over.
    fn child(&mut self) -> Result<Option<Element>, XmlError> {
        loop {
            match self.next()? {
                Token::Open(element) => return Ok(Some(element)),
                Token::Close => return Ok(None),
                Token::Text(text) if text.trim().is_empty() => {}
                Token::Text(_) => return self.meaning("text where elements are expected"),
                Token::End => return self.meaning("it ends within an element"),
            }
        }
    }

    /// The text of the element at hand, to its end.
    fn text(&mut self) -> Result<String, XmlError> {
        let mut text = String::new();
        loop {
            match self.next()? {
                Token::Text(more) if text.len() + more.len() > EXNODE_TOKEN_BYTES_MAX => {
                    return self.limit("a text is too long");
                }
                Token::Text(more) => text.push_str(&more),
                Token::Close => return Ok(text),
                Token::Open(_) => return self.meaning("an element where text is expected"),
                Token::End => return self.meaning("it ends within an element"),
            }
        }
    }

    /// Passes over the rest of the element at hand.
    fn skip(&mut self) -> Result<(), XmlError> {
        let outside = self.depth - 1;
        while self.depth > outside {
            self.next()?;
        }
        Ok(())
    }

    fn meaning<T>(&self, why: &str) -> Result<T, XmlError> {
        let (at, why) = (self.reader.buffer_position(), why.to_owned());
        Err(XmlError::Meaning { at, why })
    }

    fn limit<T>(&self, why: &str) -> Result<T, XmlError> {
        let (at, why) = (self.reader.buffer_position(), why.to_owned());
        Err(XmlError::Limit { at, why })
    }
}

fn element(
    at: u64,
    resolver: &NamespaceResolver,
    start: &BytesStart<'_>,
) -> Result<Element, XmlError> {
    let (namespace, _) = resolver.resolve_element(start.name());
    let is_ours = namespace == ResolveResult::Bound(Namespace(NAMESPACE));
    let name = is_ours.then(|| start.local_name().as_ref().to_owned());
    let mut element = Element {
        name,
        item: None,
        kind: None,
    };
    let mut count = 0;
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| syntax(at, &error))?;
        let value = attribute.normalized_value(XmlVersion::Explicit1_0);
        let value = || value.map_err(|error| syntax(at, &error));
        match attribute.key.as_ref() {
            "name" => element.item = Some(value()?.into_owned()),
            "type" => element.kind = Some(value()?.into_owned()),
            _ => {}
        }
        count += 1;
        if count > EXNODE_ITEMS_MAX {
            let why = "too many attributes".to_owned();
            return Err(XmlError::Limit { at, why });
        }
    }
    Ok(element)
}

/// What a reference in a text stands for: a character, or one of the five names of XML.
fn resolve(at: u64, reference: &quick_xml::events::BytesRef<'_>) -> Result<String, XmlError> {
    let character = reference.resolve_char_ref();
    if let Some(character) = character.map_err(|error| syntax(at, &error))? {
        return Ok(character.to_string());
    }
    let name = reference.xml10_content();
    match quick_xml::escape::resolve_predefined_entity(&name) {
        Some(text) => Ok(text.to_owned()),
        None => {
            let why = format!("an entity that XML does not have: {name:?}");
            Err(XmlError::Meaning { at, why })
        }
    }
}

fn syntax(at: u64, error: &dyn std::error::Error) -> XmlError {
    let why = error.to_string();
    if why.contains(TOO_LONG) {
        return XmlError::Limit { at, why };
    }
    XmlError::Syntax { at, why }
}

/// What [`Bounded`] says of a token that does not end.
const TOO_LONG: &str = "a tag or text is too long";

/// A document of which one token may take so much only: the reader above collects a token
/// as a whole before it says anything about it.
struct Bounded<R> {
    document: io::Take<R>,
    allowance: Rc<Cell<usize>>,
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.allowance.get() == 0 {
            return Err(io::Error::other(TOO_LONG));
        }
        if self.document.limit() == 0 {
            return Err(io::Error::other(format!("{TOO_LONG}: the document")));
        }
        let bytes = self.document.fill_buf()?;
        Ok(&bytes[..bytes.len().min(self.allowance.get())])
    }

    fn consume(&mut self, count: usize) {
        self.allowance
            .set(self.allowance.get().saturating_sub(count));
        self.document.consume(count);
    }
}
