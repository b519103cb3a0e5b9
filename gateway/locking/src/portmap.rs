//! The portmapper's own door: where the programs of this server are. It
//! registers nobody else's.

use std::net::{IpAddr, SocketAddr};

use crossdock_nlm::portmap::{
    Arguments, BindProcedure, Binding, Mapping, PORTMAP_VERSION, PROGRAM, Procedure,
    RPCBIND_VERSIONS, Results, TCP, UDP, parse_universal_address, universal_address,
};
use crossdock_nlm::{lock, status};
use crossdock_rpc::AcceptStatus;
use crossdock_xdr::Decoder;

use crate::Encoded;

/// Where programs listen, over TCP and UDP alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// NFS, MOUNT, NLM and NSM: one address of each kind at most.
    pub nfs: Vec<SocketAddr>,
    /// The portmapper.
    pub portmap: Vec<SocketAddr>,
    /// Name of this machine, as clients are told it after a restart.
    pub host: Vec<u8>,
}

/// RPC programs of the NFS door, with their versions.
const NFS_PROGRAMS: [(u32, u32); 6] = [
    (100_003, 3),
    (100_005, 3),
    (lock::PROGRAM, 1),
    (lock::PROGRAM, 3),
    (lock::PROGRAM, 4),
    (status::PROGRAM, status::VERSION),
];

const OWNER: &[u8] = b"superuser";

/// Answers a call of the portmapper's program.
///
/// # Errors
/// Why it is not carried out.
pub fn answer_portmap(
    services: &Services,
    (program, version, procedure): (u32, u32, u32),
    decoder: &mut Decoder<'_>,
) -> Result<Encoded, AcceptStatus> {
    if program != PROGRAM {
        return Err(AcceptStatus::ProgramUnavailable);
    }
    if version == PORTMAP_VERSION {
        let procedure = Procedure::from_number(procedure);
        let procedure = procedure.ok_or(AcceptStatus::ProcedureUnavailable)?;
        let arguments = Arguments::decode(procedure, decoder);
        let arguments = arguments.map_err(|_| AcceptStatus::GarbageArguments)?;
        return Ok(services.answer(procedure, &arguments));
    }
    if !RPCBIND_VERSIONS.contains(&version) {
        let (low, high) = (PORTMAP_VERSION, 4);
        return Err(AcceptStatus::ProgramMismatch { low, high });
    }
    let procedure = BindProcedure::from_number(procedure);
    let procedure = procedure.filter(|p| *p != BindProcedure::GetVersionAddress || version == 4);
    let procedure = procedure.ok_or(AcceptStatus::ProcedureUnavailable)?;
    let arguments = Arguments::decode_bind(procedure, decoder);
    let arguments = arguments.map_err(|_| AcceptStatus::GarbageArguments)?;
    Ok(services.answer_bind(procedure, &arguments))
}

impl Services {
    /// Program, version and address of everything, once for each kind of address.
    fn all(&self) -> impl Iterator<Item = (u32, u32, SocketAddr)> {
        let portmap = self.portmap.iter().flat_map(|&address| {
            let versions = [PORTMAP_VERSION, 3, 4];
            versions.map(|version| (PROGRAM, version, address))
        });
        let nfs = self.nfs.iter().flat_map(|&address| {
            NFS_PROGRAMS.map(|(program, version)| (program, version, address))
        });
        portmap.chain(nfs)
    }

    /// Where a program is. Clients that ask for a version that is not there
    /// learn from the program which ones are (RFC 1833 section 3.2).
    fn find(&self, program: u32, version: u32, is_ipv6: bool) -> Option<SocketAddr> {
        let of_program = |exact: bool| {
            let mut all = self.all();
            all.find(|&(number, other, address)| {
                number == program && address.is_ipv6() == is_ipv6 && (!exact || other == version)
            })
        };
        let found = of_program(true).or_else(|| of_program(false))?;
        Some(found.2)
    }

    fn answer(&self, procedure: Procedure, arguments: &Arguments<'_>) -> Encoded {
        let results = match (procedure, arguments) {
            (Procedure::GetPort, Arguments::Mapping(asked)) => {
                let is_known = matches!(asked.protocol, TCP | UDP);
                let found = self.find(asked.program, asked.version, false);
                let found = found.filter(|_| is_known);
                Results::Port(found.map_or(0, |address| address.port().into()))
            }
            (Procedure::Dump, _) => Results::Mappings(
                self.all()
                    .filter(|(_, _, address)| address.is_ipv4())
                    .flat_map(|(program, version, address)| {
                        [TCP, UDP].map(|protocol| Mapping {
                            program,
                            version,
                            protocol,
                            port: address.port().into(),
                        })
                    })
                    .collect(),
            ),
            (Procedure::Set | Procedure::Unset, _) => Results::Done(false),
            _ => Results::Nothing,
        };
        Encoded::of(&results)
    }

    fn answer_bind(&self, procedure: BindProcedure, arguments: &Arguments<'_>) -> Encoded {
        match (procedure, arguments) {
            (
                BindProcedure::GetAddress | BindProcedure::GetVersionAddress,
                Arguments::Binding(asked),
            ) => {
                let is_ipv6 = match asked.network {
                    b"tcp" | b"udp" => Some(false),
                    b"tcp6" | b"udp6" => Some(true),
                    _ => None,
                };
                let found =
                    is_ipv6.and_then(|is_ipv6| self.find(asked.program, asked.version, is_ipv6));
                let is_exact = procedure == BindProcedure::GetVersionAddress;
                let found = found.filter(|_| !is_exact || self.has(asked.program, asked.version));
                let text = found.map(|found| universal_address(as_reached(found, asked.address)));
                let text = text.unwrap_or_default();
                Encoded::of(&Results::Address(text.as_bytes()))
            }
            (BindProcedure::Dump, _) => self.dump_bind(),
            (BindProcedure::Set | BindProcedure::Unset, _) => Encoded::of(&Results::Done(false)),
            _ => Encoded::default(),
        }
    }

    fn has(&self, program: u32, version: u32) -> bool {
        self.all().any(|(p, v, _)| (p, v) == (program, version))
    }

    fn dump_bind(&self) -> Encoded {
        let texts: Vec<_> = self
            .all()
            .flat_map(|(program, version, address)| {
                let networks: [&[u8]; 2] = if address.is_ipv6() {
                    [b"tcp6", b"udp6"]
                } else {
                    [b"tcp", b"udp"]
                };
                networks.map(|network| (program, version, network, universal_address(address)))
            })
            .collect();
        let bindings = texts
            .iter()
            .map(|(program, version, network, text)| Binding {
                program: *program,
                version: *version,
                network,
                address: text.as_bytes(),
                owner: OWNER,
            });
        Encoded::of(&Results::Bindings(bindings.collect()))
    }
}

/// A program that listens on all addresses is reached where its caller has
/// reached us.
fn as_reached(found: SocketAddr, reached: &[u8]) -> SocketAddr {
    let reached = parse_universal_address(reached).map(|address| address.ip());
    let is_good = |ip: &IpAddr| ip.is_ipv6() == found.is_ipv6() && !ip.is_unspecified();
    match reached.filter(is_good) {
        Some(ip) if found.ip().is_unspecified() => SocketAddr::new(ip, found.port()),
        _ => found,
    }
}
