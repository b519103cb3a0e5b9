#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

mod lors;

use super::*;
use crate::group::Code;

const ID: ExNodeId = ExNodeId([3; 16]);

fn place(offset: u64) -> Place {
    Place {
        id: ID,
        shard: 0,
        offset,
    }
}

fn key(digit: char) -> FileKey {
    FileKey::parse(&digit.to_string().repeat(64)).unwrap()
}

/// Not random, but never the same twice.
fn counter() -> impl FnMut(&mut [u8]) {
    let mut count = 0u64;
    move |bytes: &mut [u8]| {
        count += 1;
        let counted = count.to_be_bytes();
        for (byte, count) in bytes.iter_mut().zip(counted.iter().cycle()) {
            *byte = *count;
        }
    }
}

fn gcm() -> Step {
    Step::AesGcm(key('a').check(ID))
}

/// A mapping over `clear` at byte 1000 of the file, and what its allocation holds.
fn stored(steps: Vec<Step>, clear: &[u8], block: u64) -> (Mapping, Vec<u8>) {
    let coding = Coding::new(steps);
    let encoded = coding
        .encode(
            clear,
            block,
            place(1000),
            None,
            Some(&key('a')),
            &mut counter(),
        )
        .unwrap();
    let mapping = Mapping {
        exnode_offset: 1000,
        logical_length: clear.len() as u64,
        alloc_length: encoded.bytes.len() as u64,
        e2e_blocksize: encoded.e2e_blocksize,
        function: encoded.function,
        ..Mapping::default()
    };
    (mapping, encoded.bytes)
}

fn load(mapping: &Mapping, bytes: &[u8], wanted: Range<u64>) -> Result<Vec<u8>, CodingError> {
    let coding = Coding::of(mapping)?;
    let covering = coding.covering(mapping, wanted.clone())?;
    let stored = covering.stored.start as usize..covering.stored.end as usize;
    let key = key('a');
    let reader = Reader {
        key: Some(&key),
        skips_md5: false,
    };
    let clear = coding.decode(mapping, &covering, bytes[stored].to_vec(), ID, &reader)?;
    let from = (wanted.start - covering.clear.start) as usize;
    Ok(clear[from..from + (wanted.end - wanted.start) as usize].to_vec())
}

fn clear_text(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 % 251) as u8).collect()
}

/// Goal: what every combination of steps codes is decoded again, in parts and as a whole,
/// from what the exNode says alone; blocks of odd lengths too.
#[test]
fn every_combination_is_undone() {
    let all = [
        Step::Zstd,
        Step::Zlib,
        Step::AesCbc([9; 16]),
        gcm(),
        Step::Checksum,
        Step::Blake3,
    ];
    for mask in 0..1 << all.len() {
        let chosen = all.iter().enumerate().filter(|(n, _)| mask >> n & 1 == 1);
        let steps: Vec<_> = chosen.map(|(_, step)| step.clone()).collect();
        for (length, block) in [(1000, 300), (1, 300), (600, 300), (1000, 0)] {
            let clear = clear_text(length);
            let (mapping, bytes) = stored(steps.clone(), &clear, block);
            assert_eq!(Coding::of(&mapping).unwrap().steps, steps);
            let end = length as u64;
            for wanted in [0..end, end / 2..end, end / 3..end / 3 + 1] {
                let range = wanted.start as usize..wanted.end as usize;
                assert_eq!(
                    load(&mapping, &bytes, wanted).unwrap(),
                    clear[range],
                    "{steps:?}"
                );
            }
        }
    }
}

/// Goal: only the blocks that are wanted are loaded.
#[test]
fn only_wanted_blocks_are_loaded() {
    let (mapping, _) = stored(vec![Step::Blake3], &clear_text(1000), 300);
    let coding = Coding::of(&mapping).unwrap();
    let covering = coding.covering(&mapping, 350..650).unwrap();
    assert_eq!((covering.stored, covering.clear), (332..996, 300..900));
    let covering = coding.covering(&mapping, 999..1000).unwrap();
    assert_eq!((covering.stored, covering.clear), (996..1128, 900..1000));
}

/// Goal: every bit that changes on the way is noticed, by each of the checks.
#[test]
fn damage_is_noticed() {
    for steps in [vec![Step::Checksum], vec![Step::Blake3], vec![gcm()]] {
        let (mapping, bytes) = stored(steps.clone(), &clear_text(64), 0);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = load(&mapping, &damaged, 0..64);
            let is_case = steps == [Step::Checksum] && damaged.eq_ignore_ascii_case(&bytes);
            let is_colon = steps == [Step::Checksum] && bit / 8 == 32;
            assert!(
                is_case || is_colon && found.is_err() || found.is_err(),
                "bit {bit}"
            );
        }
    }
}

/// Goal: a depot that gives another block of the file, or the same of another file, is found
/// out; that blocks are in a place is no matter of trust.
#[test]
fn blocks_are_bound_to_their_place() {
    for step in [Step::Blake3, gcm()] {
        let (mapping, bytes) = stored(vec![step], &clear_text(600), 300);
        let half = bytes.len() / 2;
        let swapped = [&bytes[half..], &bytes[..half]].concat();
        let found = load(&mapping, &swapped, 0..600);
        assert!(matches!(
            found,
            Err(CodingError::Damaged { offset: 1000, .. })
        ));
        let elsewhere = Mapping {
            exnode_offset: 1300,
            ..mapping.clone()
        };
        assert!(load(&elsewhere, &bytes, 0..600).is_err());
    }
}

/// Goal: no key, and another key, are told from damage; a nonce comes once only, and nothing of
/// the key is in the exNode.
#[test]
fn keys_are_told_apart() {
    let (mapping, bytes) = stored(vec![gcm()], &clear_text(600), 300);
    assert_ne!(bytes[..12], bytes[328..340]);
    let coding = Coding::of(&mapping).unwrap();
    let covering = coding.covering(&mapping, 0..600).unwrap();
    let mut reader = Reader::default();
    let missing = coding.decode(&mapping, &covering, bytes.clone(), ID, &reader);
    assert_eq!(missing, Err(CodingError::KeyMissing));
    let other = key('b');
    reader.key = Some(&other);
    let wrong = coding.decode(&mapping, &covering, bytes.clone(), ID, &reader);
    assert_eq!(wrong, Err(CodingError::KeyWrong));
    assert_eq!(coding.check_key(ID, None), Err(CodingError::KeyMissing));
    assert_eq!(
        coding.check_key(ID, Some(&other)),
        Err(CodingError::KeyWrong)
    );
    assert_eq!(coding.check_key(ID, Some(&key('a'))), Ok(()));
    assert!(!format!("{mapping:?}").contains("aaaaaaaaaaaaaaaa"));
}

/// Goal: a file of a tool that computed other MD5s can be read by who insists.
#[test]
fn md5_can_be_passed_over() {
    let (mapping, mut bytes) = stored(vec![Step::Checksum], b"abc", 0);
    bytes[0] = b'!';
    assert!(load(&mapping, &bytes, 0..3).is_err());
    let coding = Coding::of(&mapping).unwrap();
    let covering = coding.covering(&mapping, 0..3).unwrap();
    let reader = Reader {
        key: None,
        skips_md5: true,
    };
    let clear = coding.decode(&mapping, &covering, bytes, ID, &reader);
    assert_eq!(clear.unwrap(), b"abc");
}

/// Goal: historic blocks are those of the description: MD5 of `abc` as `md5sum` has it, and an
/// AES block that is as long as what is in it and 16 more.
#[test]
fn historic_blocks_are_as_described() {
    let (mapping, bytes) = stored(vec![Step::Checksum], b"abc", 0);
    assert_eq!(bytes, b"900150983cd24fb0d6963f7d28e17f72:abc");
    let function = mapping.function.unwrap();
    assert_eq!(function.arguments["blocksize"], Value::Integer(36));
    let (mapping, bytes) = stored(vec![Step::AesCbc([9; 16])], &[5; 20], 0);
    assert_eq!((bytes.len(), mapping.alloc_length), (36, 36));
    let (_, bytes) = stored(vec![Step::Zlib], &[5; 2000], 100);
    assert_eq!(bytes[..13], *b"000000002000:");
}

/// Goal: what an exNode of elsewhere says is checked before it is believed.
#[test]
fn nonsense_is_refused() {
    let (mapping, _) = stored(vec![Step::Zlib], &clear_text(600), 0);
    let changed = |change: &dyn Fn(&mut Function)| {
        let mut mapping = mapping.clone();
        change(mapping.function.as_mut().unwrap());
        let coding = Coding::of(&mapping)?;
        coding.covering(&mapping, 0..1).map(|_| ())
    };
    assert_eq!(changed(&|_| {}), Ok(()));
    let size = |size| {
        move |function: &mut Function| {
            let blocksize = Value::Integer(size);
            function.arguments.insert("blocksize".to_owned(), blocksize);
        }
    };
    assert!(changed(&size(-1)).is_err());
    assert!(changed(&size(i64::MAX)).is_err());
    assert!(
        changed(&size(1 << 20)).is_err(),
        "more than the mapping holds"
    );
    assert!(changed(&|function| function.name = "rot13".to_owned()).is_err());
    let twins = |function: &mut Function| function.inner = vec![function.clone(); 2];
    assert!(changed(&twins).is_err());
    let huge = Mapping {
        logical_length: 1 << 40,
        alloc_length: 1 << 41,
        e2e_blocksize: 1 << 39,
        function: Coding::new(vec![Step::Checksum]).function(&[1], None),
        ..Mapping::default()
    };
    let coding = Coding::of(&huge).unwrap();
    assert_eq!(coding.covering(&huge, 0..1), Err(CodingError::Length));
}

/// Goal: a shard that restores others is coded and decoded as any mapping, and bound to its
/// number.
#[test]
fn recovery_shards_are_coded_too() {
    let group = Group::new(Code::ReedSolomon, 0..1000, 4, 2).unwrap();
    let shard = Shard { group, index: 1 };
    let clear = clear_text(256);
    let coding = Coding::new(vec![Step::Zstd, gcm()]);
    let place = Place {
        id: ID,
        shard: 2,
        offset: 0,
    };
    let encoded = coding
        .encode(
            &clear,
            0,
            place,
            Some(&shard),
            Some(&key('a')),
            &mut counter(),
        )
        .unwrap();
    let mut mapping = Mapping {
        alloc_length: encoded.bytes.len() as u64,
        function: encoded.function,
        e2e_blocksize: encoded.e2e_blocksize,
        ..Mapping::default()
    };
    assert_eq!(Shard::of(&mapping), Ok(Some(shard)));
    assert_eq!(load(&mapping, &encoded.bytes, 0..256).unwrap(), clear);
    let mut inner = mapping.function.as_mut().unwrap();
    while !inner.inner.is_empty() {
        inner = &mut inner.inner[0];
    }
    let index = Value::Integer(0);
    inner.arguments.insert("index".to_owned(), index);
    assert!(load(&mapping, &encoded.bytes, 0..256).is_err());
}
