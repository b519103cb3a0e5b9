//! `crossdock cluster token`: what lets new processes into an ensemble that talks over TLS.

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use crossdock_host::GatewayError;
use crossdock_link::Role;
use crossdock_members::{Change, State, TokenRecord, TrustRecord};
use crossdock_names::HostId;
use crossdock_secure::{Fingerprint, Token};

use crate::config::{EnsembleFlags, Span};
use crate::identity::seconds;
use crate::{data, format, member};

/// What a process of an ensemble does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleWord {
    Node,
    Manager,
    Gateway,
}

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token: who has it gets a certificate.
    #[command(
        after_help = "Example:\n  crossdock cluster token create --etcd http://10.0.0.1:2379 --name pool --role node --for 1h"
    )]
    Create(CreateArgs),
    /// Show the tokens that hold, without their secrets.
    List(ListArgs),
    /// Make a token of no use. Certificates that it gave stay.
    #[command(
        after_help = "Example:\n  crossdock cluster token revoke 1a2b3c4d --etcd http://10.0.0.1:2379 --name pool"
    )]
    Revoke(RevokeArgs),
}

#[derive(Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    ensemble: EnsembleFlags,
    /// What who has it may become [default: anything].
    #[arg(long, value_name = "ROLE")]
    role: Option<RoleWord>,
    /// The name of the gateway that who has it may become, and no other one.
    #[arg(long, value_name = "NAME")]
    gateway_name: Option<String>,
    /// Scope that gateway to these exports, by path, from the start: crossdock gateway scope.
    #[arg(
        long,
        value_name = "PATHS",
        value_delimiter = ',',
        requires = "gateway_name"
    )]
    exports: Vec<String>,
    /// How long it holds, like 30m, 1h or 7d.
    #[arg(long = "for", value_name = "TIME", default_value = "1h")]
    span: Span,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    ensemble: EnsembleFlags,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct RevokeArgs {
    /// The token's number: the eight digits after `crossdock1-`.
    #[arg(value_parser = parse_id)]
    id: u32,
    #[command(flatten)]
    ensemble: EnsembleFlags,
}

fn parse_id(text: &str) -> Result<u32, String> {
    let is_id = text.len() == 8 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let id = is_id.then(|| u32::from_str_radix(text, 16).ok()).flatten();
    // The text is not repeated: somebody may have given the whole token.
    id.ok_or_else(|| "it has eight hexadecimal digits, as `token list` shows them".to_owned())
}

impl RoleWord {
    pub(crate) const fn role(self) -> Role {
        match self {
            Self::Node => Role::Node,
            Self::Manager => Role::Manager,
            Self::Gateway => Role::Gateway,
        }
    }
}

impl TokenCommand {
    pub(crate) const fn prints_json(&self) -> bool {
        match self {
            Self::Create(args) => args.json,
            Self::List(args) => args.json,
            Self::Revoke(_) => false,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        match self {
            Self::Create(args) => create(args),
            Self::List(args) => list(args),
            Self::Revoke(args) => revoke(args),
        }
    }
}

fn create(args: CreateArgs) -> anyhow::Result<()> {
    let ensemble = args.ensemble.settle()?;
    let registry = member::registry(&ensemble, HostId(data::random_u64()?))?;
    let (_, state) = crossdock_etcd::read(&registry)?;
    let trust = trust(&state)?;
    let made = seconds();
    let ends = made.saturating_add(args.span.0);
    let token = Token {
        id: u32::from_le_bytes(data::random_bytes()?),
        secret: data::random_bytes()?,
        authority: Fingerprint::of_pem(&trust.authority)?,
    };
    let role = match (&args.gateway_name, args.role) {
        (Some(_), None | Some(RoleWord::Gateway)) => Some(Role::Gateway),
        (Some(_), Some(_)) => {
            anyhow::bail!("--gateway-name makes a token for a gateway: leave --role out")
        }
        (None, role) => role.map(RoleWord::role),
    };
    if let Some(name) = args
        .gateway_name
        .clone()
        .filter(|_| !args.exports.is_empty())
    {
        // First: who has the token must find it there.
        let unknown = |path: &str| GatewayError::UnknownExport(path.to_owned());
        let exports = Some(state.export_numbers(&args.exports).map_err(unknown)?);
        crossdock_etcd::change(&registry, &Change::ScopeGateway { name, exports })?;
    }
    let record = TokenRecord {
        digest: Token::digest(&token.secret),
        role: role.map(|role| role as u8),
        gateway: args.gateway_name,
        made,
        ends,
    };
    let id = token.id;
    crossdock_etcd::change(&registry, &Change::AddToken { id, record })?;
    let text = token.reveal();
    if args.json {
        return format::print_json(&serde_json::json!({
            "id": format!("{id:08x}"),
            "token": text,
            "role": role.map(Role::word),
            "ends": ends,
        }));
    }
    // Alone on its line, for scripts; what it is goes to people.
    Ok(format::print(&format!("{text}\n"))?)
}

fn list(args: ListArgs) -> anyhow::Result<()> {
    let ensemble = args.ensemble.settle()?;
    let registry = member::registry(&ensemble, HostId(data::random_u64()?))?;
    let (_, state) = crossdock_etcd::read(&registry)?;
    let now = seconds();
    let tokens = trust(&state)?.tokens.iter();
    let tokens = tokens.filter(|(_, record)| record.ends > now);
    let role = |record: &TokenRecord| record.role.and_then(Role::from_number).map(Role::word);
    if args.json {
        let tokens: Vec<_> = tokens
            .map(|(id, record)| {
                serde_json::json!({
                    "id": format!("{id:08x}"),
                    "role": role(record),
                    "gateway": record.gateway,
                    "ends": record.ends,
                })
            })
            .collect();
        return format::print_json(&tokens);
    }
    let mut rows = vec![
        ["token", "for a", "minutes left"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(tokens.map(|(id, record)| {
        let minutes = (record.ends - now).div_ceil(60);
        let role = role(record).unwrap_or("process of any kind");
        let whom = match &record.gateway {
            Some(name) => format!("{role} called {name}"),
            None => role.to_owned(),
        };
        vec![format!("{id:08x}"), whom, minutes.to_string()]
    }));
    Ok(format::print(&format::table(&rows))?)
}

fn revoke(args: RevokeArgs) -> anyhow::Result<()> {
    let ensemble = args.ensemble.settle()?;
    let registry = member::registry(&ensemble, HostId(data::random_u64()?))?;
    let id = args.id;
    crossdock_etcd::change(&registry, &Change::RemoveToken { id })?;
    Ok(format::print(&format!(
        "token {id:08x} is of no use any more\n"
    ))?)
}

fn trust(state: &State) -> anyhow::Result<&TrustRecord> {
    state.trust.as_ref().context(
        "the ensemble talks in the clear: processes need no token; `crossdock cluster init --transport tls` makes one that talks over TLS",
    )
}
