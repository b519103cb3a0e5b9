//! exNodes: XML and JSON, what they make of ranges and blocks. Target and seeds.

use crossdock_exnode::{
    Coding, ExNode, ExNodeId, Extents, Reader, clear_bytes, read_json, read_xml, write_json,
    write_xml,
};

/// Mappings whose bytes are looked at.
const MAPPINGS_MAX: usize = 16;

/// Stored bytes that are made up for a mapping.
const STORED_BYTES_MAX: u64 = 1 << 16;

/// Extents that are looked at.
const EXTENTS_MAX: usize = 1000;

/// Reads an exNode; cuts it into extents, and decodes made-up bytes as what it says they are.
///
/// # Panics
/// If writing loses what was read, extents leave gaps, or bytes of the wrong number come out.
pub fn exnode(input: &[u8]) {
    if let Ok(exnode) = read_json(input) {
        check(&exnode);
    }
    let Ok(exnode) = read_xml(input) else {
        return;
    };
    // Decimals are cut when written: what was written once stays as it is.
    let once = xml(&exnode);
    let again = read_xml(&once[..]).expect("what was written");
    assert_eq!(xml(&again), once);
    let mut json = Vec::new();
    write_json(&again, &mut json).expect("memory");
    assert_eq!(read_json(&json[..]).expect("what was written"), again);
    check(&exnode);
}

fn xml(exnode: &ExNode) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_xml(exnode, &mut bytes).expect("memory");
    bytes
}

fn check(exnode: &ExNode) {
    let mut place = 0;
    for extent in Extents::new(exnode, 0..exnode.size(), |_| Some(0)).take(EXTENTS_MAX) {
        assert!(extent.range.start == place && extent.range.end > place);
        place = extent.range.end;
    }
    let reader = Reader {
        key: None,
        skips_md5: true,
    };
    for mapping in exnode.mappings.iter().take(MAPPINGS_MAX) {
        let Ok(coding) = Coding::of(mapping) else {
            continue;
        };
        let end = clear_bytes(mapping);
        let wanted = end / 2..end.min(end / 2 + 1);
        let Ok(covering) = coding.covering(mapping, wanted.clone()) else {
            continue;
        };
        assert!(covering.clear.start <= wanted.start && wanted.end <= covering.clear.end);
        let bytes = covering.stored.end - covering.stored.start;
        if bytes > STORED_BYTES_MAX {
            continue;
        }
        let stored = (0..bytes).map(|at| at.to_le_bytes()[0]).collect();
        let id = ExNodeId([0; 16]);
        if let Ok(clear) = coding.decode(mapping, &covering, stored, id, &reader) {
            let expected = covering.clear.end - covering.clear.start;
            assert_eq!(clear.len() as u64, expected);
        }
    }
}

pub(crate) fn exnode_seeds() -> Vec<Vec<u8>> {
    let mapping = |function: &str| {
        format!(
            "<exnode xmlns:e=\"http://loci.cs.utk.edu/exnode\">\
             <e:metadata name=\"filename\" type=\"string\">a&amp;b</e:metadata>\
             <e:metadata name=\"m\" type=\"meta\"><e:metadata name=\"d\" type=\"double\">0.5\
             </e:metadata></e:metadata><e:mapping>\
             <e:metadata name=\"exnode_offset\" type=\"integer\">10</e:metadata>\
             <e:metadata name=\"logical_length\" type=\"integer\">200</e:metadata>\
             <e:metadata name=\"alloc_offset\" type=\"integer\">0</e:metadata>\
             <e:metadata name=\"alloc_length\" type=\"integer\">400</e:metadata>\
             <e:metadata name=\"e2e_blocksize\" type=\"integer\">64</e:metadata>\
             {function}<e:read>ibp://d:6714/0#k/1/READ</e:read></e:mapping></exnode>"
        )
    };
    let size = "<e:argument name=\"blocksize\" type=\"integer\">97</e:argument>";
    let key = "<e:argument name=\"KEY\" type=\"string\">00112233445566778899aabbccddeeff\
               </e:argument>";
    let shards = [
        ("group_offset", 0),
        ("group_length", 1000),
        ("data_shards", 4),
        ("recovery_shards", 2),
        ("shard_length", 256),
        ("index", 1),
    ];
    let shard = shards.map(|(name, number)| {
        format!("<e:argument name=\"{name}\" type=\"integer\">{number}</e:argument>")
    });
    let documents = [
        mapping(""),
        mapping(&format!(
            "<e:function name=\"checksum\">{size}<e:function name=\"aes_encrypt\">{size}{key}\
             </e:function></e:function>"
        )),
        mapping(&format!(
            "<e:function name=\"des_encrypt\">{size}{key}<e:function name=\"xor_encrypt\">{key}\
             </e:function></e:function>"
        )),
        mapping(&format!(
            "<e:function name=\"blake3_checksum\">{size}<e:function name=\"zstd_compress\">{size}\
             <e:function name=\"reed_solomon\">{}</e:function></e:function></e:function>",
            shard.concat()
        )),
        mapping(&format!(
            "<e:function name=\"zlib_compress\">{size}</e:function>"
        )),
        "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>".to_owned(),
        r#"{"metadata": {"a": {"b": 0.5}}, "mappings": [{"exnode_offset": 0, "logical_length": 5,
           "alloc_offset": 0, "alloc_length": 38, "e2e_blocksize": 5, "function":
           {"name": "checksum", "arguments": {"blocksize": 38}}}]}"#
            .to_owned(),
    ];
    documents.into_iter().map(String::into_bytes).collect()
}
