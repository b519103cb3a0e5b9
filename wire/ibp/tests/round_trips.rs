//! Whatever can be said is read as it was written.

use std::num::NonZeroU64;

use crossdock_ibp::{
    Access, Capability, Command, Key, Limits, Manage, Reliability, Request, Resource, Space,
    Status, StatusQuery, StorageType, Totals, Version, Word, answer,
};
use proptest::prelude::*;

const NUMBER_MAX: u64 = i64::MAX as u64;

fn word() -> impl Strategy<Value = Word> {
    "[!-~]{1,40}".prop_map(|text| Word::new(&text).expect("visible"))
}

fn key() -> impl Strategy<Value = Key> {
    "[!-.0-~]{1,100}".prop_map(|text| Key::new(&text).expect("visible"))
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..=NUMBER_MAX, 0..2_u64, Just(NUMBER_MAX)]
}

fn wanted() -> impl Strategy<Value = Option<NonZeroU64>> {
    number().prop_map(NonZeroU64::new)
}

fn reliability() -> impl Strategy<Value = Reliability> {
    prop_oneof![Just(Reliability::Volatile), Just(Reliability::Stable)]
}

fn storage() -> impl Strategy<Value = StorageType> {
    (1..=4_i64).prop_map(|number| StorageType::of(number).expect("a type"))
}

fn capability() -> impl Strategy<Value = Capability> {
    let access = (0..3_usize).prop_map(|at| Access::ALL[at]);
    (key(), any::<u16>(), key(), key(), access).prop_map(
        |(host, port, key, attribute_key, access)| Capability {
            host,
            port,
            key,
            attribute_key,
            access,
        },
    )
}

fn manage() -> impl Strategy<Value = Manage> {
    let counted = prop_oneof![Just(Access::Read), Just(Access::Write)];
    prop_oneof![
        Just(Manage::Probe),
        counted.clone().prop_map(Manage::Increment),
        counted.prop_map(Manage::Decrement),
        number().prop_map(|size_bytes| Manage::Truncate { size_bytes }),
        (number(), any::<i64>(), reliability()).prop_map(|(size_bytes, seconds, reliability)| {
            Manage::Change {
                size_bytes,
                duration_seconds: seconds,
                reliability,
            }
        }),
    ]
}

fn transfer() -> impl Strategy<Value = Command> {
    let place = (key(), key(), number(), wanted());
    let limits = any::<[u32; 3]>();
    (0..4, place, capability(), limits).prop_map(|(which, place, target, limits)| {
        let (key, attribute_key, offset_bytes, size_bytes) = place;
        let [time_limit, target_time_limit, target_patience] = limits;
        let all_bytes = size_bytes.map_or(0, NonZeroU64::get);
        match which {
            0 => Command::Store {
                key,
                attribute_key,
                size_bytes: all_bytes,
                time_limit,
            },
            1 => Command::Write {
                key,
                attribute_key,
                offset_bytes,
                size_bytes: all_bytes,
                time_limit,
            },
            2 => Command::Load {
                key,
                attribute_key,
                offset_bytes,
                size_bytes,
                time_limit,
            },
            _ => Command::Send {
                key,
                target,
                attribute_key,
                offset_bytes,
                size_bytes,
                time_limit,
                target_time_limit,
                target_patience,
            },
        }
    })
}

fn query() -> impl Strategy<Value = StatusQuery> {
    prop_oneof![
        word().prop_map(|password| StatusQuery::Inquire { password }),
        word().prop_map(|password| StatusQuery::Change { password }),
        Just(StatusQuery::Resources),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let allocate = (
        word(),
        reliability(),
        storage(),
        any::<i64>(),
        number(),
        any::<u32>(),
    );
    let command = prop_oneof![
        allocate.prop_map(
            |(resource, reliability, storage, seconds, size, time_limit)| {
                Command::Allocate {
                    resource: Some(resource),
                    reliability,
                    storage,
                    duration_seconds: seconds,
                    size_bytes: size,
                    time_limit,
                }
            }
        ),
        transfer(),
        (key(), key(), manage(), any::<u32>()).prop_map(
            |(key, attribute_key, manage, time_limit)| Command::Manage {
                key,
                attribute_key,
                manage,
                time_limit,
            }
        ),
        (word(), query(), any::<u32>()).prop_map(|(resource, query, time_limit)| {
            Command::Status {
                resource: Some(resource).filter(|_| query != StatusQuery::Resources),
                query,
                time_limit,
            }
        }),
    ];
    let version = prop_oneof![Just(Version::V031), Just(Version::V040)];
    (version, command).prop_map(|(version, mut command)| {
        if let (
            Version::V031,
            Command::Allocate { resource, .. } | Command::Status { resource, .. },
        ) = (version, &mut command)
        {
            *resource = None;
        }
        Request { version, command }
    })
}

fn space() -> impl Strategy<Value = Space> {
    any::<[u64; 4]>().prop_map(|[configured, served, used, allocatable]| Space {
        configured_bytes: configured,
        served_bytes: served,
        used_bytes: used,
        allocatable_bytes: allocatable,
    })
}

fn seconds() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), number().prop_map(Some)]
}

fn status() -> impl Strategy<Value = Status> {
    let resource = (word(), any::<u32>(), space(), space(), seconds());
    let resource = resource.prop_map(|(id, kind, total, stable, duration_seconds_max)| Resource {
        id,
        kind,
        total,
        stable,
        duration_seconds_max,
    });
    let resources = proptest::collection::vec(resource, 0..4);
    let movers = proptest::collection::vec(any::<u32>(), 0..4);
    (word(), movers, resources).prop_map(|(version, data_movers, resources)| Status {
        version,
        data_movers,
        resources,
    })
}

proptest! {
    /// Goal: requests.
    #[test]
    fn requests(request in request()) {
        let line = request.to_string();
        prop_assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
        prop_assert_eq!(Request::parse(line.trim_end_matches('\n').as_bytes()), Ok(request));
    }

    /// Goal: capabilities, alone and in the answer to ALLOCATE.
    #[test]
    fn capabilities(read in capability(), write in capability(), manage in capability()) {
        prop_assert_eq!(read.to_string().parse(), Ok(read.clone()));
        let three = crossdock_ibp::Capabilities { read, write, manage };
        let line = answer::allocated(&three);
        prop_assert_eq!(answer::read_capabilities(line.trim_end().as_bytes()), Ok(three));
    }

    /// Goal: what a depot tells of itself.
    #[test]
    fn statuses(status in status(), four in any::<[u32; 4]>(), seconds in seconds()) {
        prop_assert_eq!(Status::parse(status.to_string().as_bytes()), Ok(status));
        let [stable_mib, stable_used_mib, volatile_mib, volatile_used_mib] = four.map(u64::from);
        let totals = Totals {
            stable_mib,
            stable_used_mib,
            volatile_mib,
            volatile_used_mib,
            duration_seconds_max: seconds,
        };
        prop_assert_eq!(Totals::parse(totals.to_string().trim_end().as_bytes()), Ok(totals));
        let limits = Limits { stable_mib, volatile_mib, duration_seconds_max: seconds };
        prop_assert_eq!(Limits::parse(limits.to_string().trim_end().as_bytes()), Ok(limits));
    }

    /// Goal: any bytes are read or refused; what is read is written as what means the same.
    #[test]
    fn any_bytes(line in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = answer::read_probe(&line);
        let _ = Status::parse(&line);
        if let Ok(request) = Request::parse(&line) {
            let again = request.to_string();
            prop_assert_eq!(Request::parse(again.trim_end().as_bytes()), Ok(request));
        }
    }
}
