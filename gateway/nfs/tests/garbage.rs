//! Damaged streams: whatever arrives, the door neither panics nor keeps
//! anything of it (invariants 8 and 9).

mod support;

use bytes::Bytes;
use crossdock_nfs::{NfsEffect, NfsInput};
use crossdock_nfs3::call::{
    Access, Create, CreateHow, Getattr, Link, Read, Readdirplus, Rename, Setattr, StableHow, Write,
};
use crossdock_nfs3::{Call, CookieVerifier, Location, Name, Path, SetAttributes, mount};
use crossdock_peer::{FileKind, SiteAnswer, SiteError};
use crossdock_types::Payload;
use support::*;

/// A small generator, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d);
        self.0 = self.0.wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

/// Calls of many kinds, one behind the other.
fn stream() -> Bytes {
    let (root, file) = (handle(ROOT), handle(FILE));
    let (directory, object) = (root.as_handle(), file.as_handle());
    let name = Name(b"name");
    let location = Location { directory, name };
    let attributes = SetAttributes::default();
    let calls = [
        Call::Getattr(Getattr { object }),
        Call::Setattr(Setattr {
            object,
            attributes,
            guard: None,
        }),
        Call::Lookup(location),
        Call::Access(Access { object, wanted: 63 }),
        Call::Read(Read {
            file: object,
            offset: 1,
            count_bytes: 100,
        }),
        Call::Write(Write {
            file: object,
            offset: 1,
            count_bytes: 5,
            stable: StableHow::Unstable,
            data: Payload::from(Bytes::from_static(b"bytes")),
        }),
        Call::Create(Create {
            location,
            how: CreateHow::Unchecked(attributes),
        }),
        Call::Rename(Rename {
            source: location,
            target: location,
        }),
        Call::Link(Link { object, location }),
        Call::Readdirplus(Readdirplus {
            directory,
            cookie: 0,
            verifier: CookieVerifier([0; 8]),
            directory_count_bytes: 1000,
            count_bytes: 4000,
        }),
    ];
    let mut records: Vec<Bytes> = (1..)
        .zip(&calls)
        .map(|(xid, call)| nfs(xid, call))
        .collect();
    let header = header(99, mount::PROGRAM, mount::VERSION, 1);
    records.push(record(&header, &mount::Call::Mnt(Path(b"/a/b"))));
    join(&records)
}

/// Answers everything that is asked, in any order, right or wrong.
fn answer_all(bench: &mut Bench, random: &mut Random) {
    loop {
        let is_call = |effect: &NfsEffect| matches!(effect, NfsEffect::Router(_));
        bench.effects.retain(is_call);
        if bench.effects.is_empty() {
            return;
        }
        let chosen = random.below(bench.effects.len());
        let NfsEffect::Router(call) = bench.effects.swap_remove(chosen) else {
            return;
        };
        let outcome = match random.below(3) {
            0 => Err(SiteError::NotFound),
            1 => Ok(SiteAnswer::Done),
            _ => Ok(SiteAnswer::Access { granted: 0 }),
        };
        bench.answer(call.id, outcome, cache(FILE, FileKind::Directory));
    }
}

/// Goal: streams with damaged bytes, cut anywhere, answered anyhow, leave
/// nothing behind once the connection is closed.
#[test]
fn damaged_streams_leave_nothing_behind() {
    let sound = stream();
    for seed in 0..3000 {
        let mut random = Random(seed);
        let mut bytes = sound.to_vec();
        for _ in 0..random.below(6) {
            let at = random.below(bytes.len());
            bytes[at] = u8::try_from(random.below(256)).expect("a byte");
        }
        let mut config = config();
        config.limits.calls_per_connection_max = 1 + random.below(12);
        let mut bench = Bench::new(config);
        bench.is_deaf = true;
        let mut rest = Bytes::from(bytes);
        while !rest.is_empty() {
            let length = (1 + random.below(300)).min(rest.len());
            bench.receive(rest.split_to(length));
            if random.below(3) == 0 {
                answer_all(&mut bench, &mut random);
            }
        }
        bench.input(NfsInput::Closed(CONN));
        answer_all(&mut bench, &mut random);
        let door = &bench.door;
        let left = (door.calls(), door.connections(), door.held_bytes());
        assert_eq!(left, (0, 0, 0), "seed {seed}");
    }
}

/// Goal: the same for datagrams.
#[test]
fn damaged_datagrams_leave_nothing_behind() {
    let sound = stream();
    for seed in 0..3000 {
        let mut random = Random(seed);
        let start = random.below(sound.len());
        let length = random.below(sound.len() - start);
        let mut bytes = sound.slice(start..start + length).to_vec();
        if bytes.len() > 8 {
            bytes[4..8].fill(0); // So that some are calls.
        }
        let mut bench = Bench::new(config());
        let client = address("127.0.0.1:700");
        bench.input(NfsInput::Datagram(client, Bytes::from(bytes)));
        answer_all(&mut bench, &mut random);
        assert_eq!(
            (bench.door.calls(), bench.door.held_bytes()),
            (0, 0),
            "seed {seed}"
        );
    }
}
