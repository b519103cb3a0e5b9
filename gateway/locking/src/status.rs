//! NSM: a client says that it has restarted. Nobody is monitored here for
//! others: the door knows who has locks.

use std::net::IpAddr;

use bytes::Bytes;
use crossdock_nlm::lock::Status;
use crossdock_nlm::status::{Arguments, Monitored, Procedure, Results, VERSION};
use crossdock_peer::{ForgetWhat, LockClient};
use crossdock_rpc::AcceptStatus;
use crossdock_xdr::Decoder;

use crate::lock::forget;
use crate::{Encoded, Start};

/// Reads a call of NSM from `client`; `state` is our own state number.
pub fn begin_status(
    (version, procedure): (u32, u32),
    client: IpAddr,
    state: u32,
    decoder: &mut Decoder<'_>,
) -> Start {
    if version != VERSION {
        return Start::Refuse(AcceptStatus::ProgramMismatch {
            low: VERSION,
            high: VERSION,
        });
    }
    let Some(procedure) = Procedure::from_number(procedure) else {
        return Start::Refuse(AcceptStatus::ProcedureUnavailable);
    };
    let Ok(arguments) = Arguments::decode(procedure, decoder) else {
        return Start::Refuse(AcceptStatus::GarbageArguments);
    };
    let results = match arguments {
        Arguments::Notify(change) => {
            let client = LockClient {
                name: Bytes::copy_from_slice(change.host),
                address: client,
            };
            return forget(client, ForgetWhat::BeforeState(change.state));
        }
        Arguments::Nothing => Results::Nothing,
        Arguments::Stat(_) | Arguments::Mon(..) => Results::Monitored(Monitored::No, state),
        Arguments::Unmon(..) | Arguments::UnmonAll(_) => Results::State(state),
    };
    Start::Reply(Encoded::of(&results), Status::Granted)
}
