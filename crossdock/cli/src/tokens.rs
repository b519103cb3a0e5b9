//! `crossdock token`: who may write, and read what is not for everybody, over HTTP.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use anyhow::bail;
use clap::{Args, Subcommand};
use crossdock_admin::{TokenAddition, TokenCreated, TokenStatus};
use crossdock_web::{TokenSecret, UrlPath};

use crate::client::{Method, call, parse};
use crate::commands::Remote;
use crate::config::{self, Span};
use crate::format;
use crate::identity::seconds;

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token: requests that show it read and write over HTTP. It is printed once.
    #[command(after_help = "Examples:\n  \
        crossdock token create --read --write --path /builds --name ci --uid 1000 --gid 1000\n  \
        crossdock token create --read --for 12h\n  \
        curl -H \"Authorization: Bearer $TOKEN\" -T build.tar http://127.0.0.1:8080/builds/build.tar")]
    Create(CreateArgs),
    /// Show all tokens, without their secrets.
    #[command(after_help = "Example:\n  crossdock token list --json")]
    List(Remote),
    /// Make a token of no use, from the next request on.
    #[command(after_help = "Examples:\n  crossdock token revoke ci\n  \
        crossdock token revoke 1a2b3c4d")]
    Revoke(RevokeArgs),
}

#[derive(Args)]
pub(crate) struct CreateArgs {
    /// Where it holds: at this path and below, whatever lies there then [default: /].
    #[arg(long, value_name = "DIR")]
    path: Option<OsString>,
    /// Let read, what is not for everybody too; so it is if nothing is said.
    #[arg(long)]
    read: bool,
    /// Let write: make, replace and remove. Say --read, too, if it is to read what is not
    /// for everybody.
    #[arg(long)]
    write: bool,
    /// How long it holds, like 30m, 12h or 30d.
    #[arg(long = "for", value_name = "TIME", default_value = "30d")]
    span: Span,
    /// What it is called, in the list and to revoke it [default: token- and its number].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    remote: Remote,
}

/// As whom a request acts.
#[derive(Args)]
pub(crate) struct Whom {
    /// User as whom its requests act, by the permissions of the files [default: 0, who may
    /// do everything].
    #[arg(long, value_name = "UID", requires = "gid")]
    pub(crate) uid: Option<u32>,
    /// Group as which they act [default: 0].
    #[arg(long, value_name = "GID", requires = "uid")]
    pub(crate) gid: Option<u32>,
}

#[derive(Args)]
pub(crate) struct RevokeArgs {
    /// The token's name or number, as `crossdock token list` shows them.
    token: String,
    #[command(flatten)]
    remote: Remote,
}

impl TokenCommand {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        match self {
            Self::Create(args) => args.remote.json,
            Self::List(remote) => remote.json,
            Self::Revoke(args) => args.remote.json,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        match self {
            Self::Create(args) => create(args),
            Self::List(remote) => list(&remote),
            Self::Revoke(args) => revoke(&args),
        }
    }
}

/// A path of the volume, as the command line has it.
pub(crate) fn volume_path(path: &OsString) -> anyhow::Result<UrlPath> {
    let shown = path.to_string_lossy();
    UrlPath::of_volume(path.as_bytes())
        .map_err(|error| config::usage(format!("{shown:?} is no path of the volume: {error}")))
}

fn create(args: CreateArgs) -> anyhow::Result<()> {
    let addition = TokenAddition {
        name: args.name,
        read: args.read || !args.write,
        write: args.write,
        path: args.path.as_ref().map(volume_path).transpose()?,
        uid: args.whom.uid.unwrap_or(0),
        gid: args.whom.gid.unwrap_or(0),
        seconds: args.span.0,
    };
    let body = serde_json::to_value(addition)?;
    let value = call(&args.remote, Method::Post(Some(body)), "/v1/tokens")?;
    if args.remote.json {
        return format::print_json(&value);
    }
    let TokenCreated { token, .. } = parse(value)?;
    // Alone on its line, for scripts.
    Ok(format::print(&format!("{token}\n"))?)
}

fn list(remote: &Remote) -> anyhow::Result<()> {
    let value = call(remote, Method::Get, "/v1/tokens")?;
    if remote.json {
        return format::print_json(&value);
    }
    let tokens: Vec<TokenStatus> = parse(value)?;
    let now = seconds();
    let head = ["name", "id", "may", "path", "as", "left"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(tokens.into_iter().map(|token| {
        let left = left(&token, now);
        vec![
            token.name,
            token.id,
            rights(token.read, token.write).to_owned(),
            token.path.to_string(),
            format!("{}:{}", token.uid, token.gid),
            left,
        ]
    }));
    Ok(format::print(&format::table(&rows))?)
}

fn revoke(args: &RevokeArgs) -> anyhow::Result<()> {
    if args.token.parse::<TokenSecret>().is_ok() {
        // It is not repeated: whoever reads this is not to have it.
        return Err(config::usage(
            "that is the whole token, with its secret: say its name or number, as crossdock token list shows them".to_owned(),
        ));
    }
    let tokens: Vec<TokenStatus> = parse(call(&args.remote, Method::Get, "/v1/tokens")?)?;
    let Some(token) = find(&tokens, &args.token) else {
        bail!(
            "there is no token {}; crossdock token list shows all",
            args.token
        );
    };
    let path = format!("/v1/tokens/{}", token.id);
    let value = call(&args.remote, Method::Delete, &path)?;
    if args.remote.json {
        return format::print_json(&value);
    }
    let TokenStatus { name, id, .. } = parse(value)?;
    Ok(format::print(&format!(
        "token {name} ({id}) is of no use any more\n"
    ))?)
}

/// By name or number: no name is a number.
fn find<'a>(tokens: &'a [TokenStatus], text: &str) -> Option<&'a TokenStatus> {
    let is_it = |token: &&TokenStatus| token.name == text || token.id.eq_ignore_ascii_case(text);
    tokens.iter().find(is_it)
}

const fn rights(read: bool, write: bool) -> &'static str {
    match (read, write) {
        (true, true) => "read, write",
        (false, true) => "write",
        (_, false) => "read",
    }
}

/// In the largest unit that fits.
fn left(token: &TokenStatus, now: u64) -> String {
    match token.expires.saturating_sub(now) {
        0 => "ended".to_owned(),
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, id: &str) -> TokenStatus {
        TokenStatus {
            id: id.to_owned(),
            name: name.to_owned(),
            read: true,
            write: false,
            path: UrlPath::root(),
            uid: 0,
            gid: 0,
            created: 0,
            expires: 100_000,
        }
    }

    /// Goal: a token is found by its name and by its number, and by nothing that is near.
    #[test]
    fn tokens_are_found_by_name_or_number() {
        let tokens = [token("ci", "0a0b0c0d"), token("ci2", "00000001")];
        let found = |text| find(&tokens, text).map(|token| token.name.as_str());
        assert_eq!(found("ci"), Some("ci"));
        assert_eq!(found("0A0B0C0D"), Some("ci"));
        assert_eq!(found("00000001"), Some("ci2"));
        for other in ["c", "CI", "1", "", "0a0b0c"] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    /// Goal: what is left is told in a unit that people read.
    #[test]
    fn what_is_left_is_told() {
        let left = |now| left(&token("a", "1"), now);
        assert_eq!(left(100_000), "ended");
        assert_eq!(left(99_990), "10 s");
        assert_eq!(left(99_000), "16 min");
        assert_eq!(left(10_000), "25 h");
        assert_eq!(left(0), "27 h");
    }
}
