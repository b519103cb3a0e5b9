//! The network status monitor, version 1 (Open Group C702 chapter 15).

use crossdock_xdr::{DecodeError, Decoder, Encode, Encoder, xdr_enum};

use crate::lock::string;

/// RPC program number.
pub const PROGRAM: u32 = 100_024;

/// Version of the program.
pub const VERSION: u32 = 1;

xdr_enum! {
    /// A procedure, by its number.
    pub enum Procedure as "NSM procedure" {
        /// Does nothing.
        Null = 0,
        /// Whether a host can be monitored, and the monitor's state.
        Stat = 1,
        /// Monitors a host.
        Mon = 2,
        /// Ends that.
        Unmon = 3,
        /// Ends it for all hosts.
        UnmonAll = 4,
        /// Acts as after a restart.
        SimuCrash = 5,
        /// A host has restarted.
        Notify = 6,
    }
}

xdr_enum! {
    /// Whether a host is monitored (`res`).
    pub enum Monitored as "sm res" {
        /// It is, or can be.
        Yes = 0,
        /// It is not.
        No = 1,
    }
}

/// Who monitors, and how it is told (`my_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Monitor<'a> {
    /// Its host.
    pub host: &'a [u8],
    /// RPC program to call.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Its procedure.
    pub procedure: u32,
}

/// A host's state (`stat_chge`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// Which host.
    pub host: &'a [u8],
    /// Its state number: odd while it is up.
    pub state: u32,
}

/// What a procedure is called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments<'a> {
    /// Of NULL and SIMU_CRASH.
    Nothing,
    /// Of STAT: which host.
    Stat(&'a [u8]),
    /// Of MON: which host, who asks, and what is said then.
    Mon(&'a [u8], Monitor<'a>, [u8; 16]),
    /// Of UNMON.
    Unmon(&'a [u8], Monitor<'a>),
    /// Of UNMON_ALL.
    UnmonAll(Monitor<'a>),
    /// Of NOTIFY.
    Notify(Change<'a>),
}

/// What a procedure answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// NULL, SIMU_CRASH, NOTIFY.
    Nothing,
    /// STAT and MON: whether it works, and the monitor's state number.
    Monitored(Monitored, u32),
    /// UNMON and UNMON_ALL: the monitor's state number.
    State(u32),
}

impl<'a> Arguments<'a> {
    /// Reads the arguments of `procedure`.
    ///
    /// # Errors
    /// They are not its arguments; answer GARBAGE_ARGS.
    pub fn decode(procedure: Procedure, decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(match procedure {
            Procedure::Null | Procedure::SimuCrash => Self::Nothing,
            Procedure::Stat => Self::Stat(string(decoder)?),
            Procedure::Mon => Self::Mon(string(decoder)?, monitor(decoder)?, decoder.array()?),
            Procedure::Unmon => Self::Unmon(string(decoder)?, monitor(decoder)?),
            Procedure::UnmonAll => Self::UnmonAll(monitor(decoder)?),
            Procedure::Notify => Self::Notify(Change {
                host: string(decoder)?,
                state: decoder.u32()?,
            }),
        })
    }
}

impl Encode for Arguments<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Nothing => {}
            Self::Stat(host) => encoder.opaque(host),
            Self::Mon(host, monitor, private) => {
                encoder.opaque(host);
                encoder.put(monitor);
                encoder.array(private);
            }
            Self::Unmon(host, monitor) => {
                encoder.opaque(host);
                encoder.put(monitor);
            }
            Self::UnmonAll(monitor) => encoder.put(monitor),
            Self::Notify(change) => {
                encoder.opaque(change.host);
                encoder.u32(change.state);
            }
        }
    }
}

impl Results {
    /// Reads the results of `procedure`.
    ///
    /// # Errors
    /// They are not its results.
    pub fn decode(procedure: Procedure, decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match procedure {
            Procedure::Null | Procedure::SimuCrash | Procedure::Notify => Self::Nothing,
            Procedure::Stat | Procedure::Mon => Self::Monitored(decoder.get()?, decoder.u32()?),
            Procedure::Unmon | Procedure::UnmonAll => Self::State(decoder.u32()?),
        })
    }
}

impl Encode for Results {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Nothing => {}
            Self::Monitored(monitored, state) => {
                encoder.put(monitored);
                encoder.u32(*state);
            }
            Self::State(state) => encoder.u32(*state),
        }
    }
}

impl Encode for Monitor<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(self.host);
        encoder.u32(self.program);
        encoder.u32(self.version);
        encoder.u32(self.procedure);
    }
}

fn monitor<'a>(decoder: &mut Decoder<'a>) -> Result<Monitor<'a>, DecodeError> {
    Ok(Monitor {
        host: string(decoder)?,
        program: decoder.u32()?,
        version: decoder.u32()?,
        procedure: decoder.u32()?,
    })
}
