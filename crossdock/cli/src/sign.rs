//! `crossdock sign`: a URL that lets anybody read or write one file for some time; or one for
//! each piece of it, of the node that has the piece.

use std::ffi::OsString;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use crossdock_admin::{
    DoorStatus, PieceSigning, Signed, SignedPiece, SignedPieces, Signing, SigningMethod, Status,
};

use crate::client::{Method, call, parse};
use crate::commands::Remote;
use crate::config::{self, Size, Span};
use crate::format;
use crate::tokens::{Whom, volume_path};

#[derive(Args)]
pub(crate) struct SignArgs {
    /// The file, from the volume's root on; for PUT there need not be one yet.
    path: OsString,
    /// How long it holds, like 30m, 1h or 7d, which is the longest; of nodes 5m is
    /// [default: 1h, with --nodes 5m].
    #[arg(long = "for", value_name = "TIME")]
    span: Option<Span>,
    /// What it is for.
    #[arg(long, value_name = "METHOD", default_value = "GET", ignore_case = true)]
    method: MethodWord,
    /// How clients reach a gateway, like `https://files.example` [default: the HTTP door of
    /// the process that signs].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A URL for each piece of the file, of the node that has it: its bytes go straight to the
    /// client. Prints a line for each: where it begins in the file, how many bytes, who sends it,
    /// the URL. What a gateway sends is that range (curl -r) of the whole file.
    #[arg(long, conflicts_with = "method")]
    nodes: bool,
    /// With --nodes: the first byte that is wanted, like 1G [default: 0].
    #[arg(long, value_name = "BYTES", requires = "nodes")]
    offset: Option<Size>,
    /// With --nodes: how many bytes, at most 1G [default: to the file's end].
    #[arg(long, value_name = "BYTES", requires = "nodes")]
    length: Option<Size>,
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// In seconds: what was signed of the whole file may be a while on its way.
const FOR_DEFAULT: u64 = 3600;

/// The same of URLs at nodes, which cannot hold for longer.
const FOR_NODES_DEFAULT: u64 = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MethodWord {
    /// Reading: GET and HEAD.
    #[value(name = "GET")]
    Get,
    /// Writing the whole file.
    #[value(name = "PUT")]
    Put,
}

pub(crate) fn sign(args: &SignArgs) -> anyhow::Result<()> {
    if args.nodes {
        return sign_pieces(args);
    }
    let path = volume_path(&args.path)?;
    let base = base(args)?;
    let signing = Signing {
        method: match args.method {
            MethodWord::Get => SigningMethod::Get,
            MethodWord::Put => SigningMethod::Put,
        },
        path,
        seconds: args.span.map_or(FOR_DEFAULT, |span| span.0),
        uid: args.whom.uid.unwrap_or(0),
        gid: args.whom.gid.unwrap_or(0),
    };
    let method = signing.method;
    let body = serde_json::to_value(signing)?;
    let value = call(&args.remote, Method::Post(Some(body)), "/v1/sign")?;
    let Signed { target, expires } = parse(value)?;
    let url = format!("{base}{target}");
    if args.remote.json {
        return format::print_json(&serde_json::json!({
            "url": url,
            "method": method,
            "expires": expires,
        }));
    }
    Ok(format::print(&format!("{url}\n"))?)
}

fn sign_pieces(args: &SignArgs) -> anyhow::Result<()> {
    let signing = PieceSigning {
        path: volume_path(&args.path)?,
        offset_bytes: args.offset.map_or(0, |size| size.0),
        length_bytes: args.length.map(|size| size.0),
        seconds: args.span.map_or(FOR_NODES_DEFAULT, |span| span.0),
        uid: args.whom.uid.unwrap_or(0),
        gid: args.whom.gid.unwrap_or(0),
    };
    let body = serde_json::to_value(signing)?;
    let value = call(&args.remote, Method::Post(Some(body)), "/v1/sign/pieces")?;
    let signed: SignedPieces = parse(value)?;
    // Where gateways are need not be known if they send nothing.
    let whole = match signed.pieces.iter().all(|piece| piece.url.is_some()) {
        true => String::new(),
        false => format!("{}{}", base(args)?, signed.target),
    };
    if args.remote.json {
        let pieces = signed.pieces.iter().map(|piece| to_json(piece, &whole));
        return format::print_json(&serde_json::json!({
            "size": signed.size_bytes,
            "expires": signed.expires,
            "pieces": pieces.collect::<Vec<_>>(),
        }));
    }
    let lines: String = signed.pieces.iter().map(|it| line(it, &whole)).collect();
    Ok(format::print(&lines)?)
}

/// A piece, for programs: `range` is to be asked for where the URL is that of the whole file.
fn to_json(piece: &SignedPiece, whole: &str) -> serde_json::Value {
    let (offset, bytes) = (piece.offset_bytes, piece.length_bytes);
    match &piece.url {
        Some(url) => serde_json::json!({
            "offset": offset, "bytes": bytes, "node": piece.node, "url": url,
        }),
        None => serde_json::json!({
            "offset": offset, "bytes": bytes, "node": null, "url": whole,
            "range": format!("bytes={offset}-{}", offset + bytes.saturating_sub(1)),
        }),
    }
}

/// The same for people and scripts, of which no field has a space in it.
fn line(piece: &SignedPiece, whole: &str) -> String {
    let who = piece.node.map(|number| format!("node-{number}"));
    let who = who.as_deref().unwrap_or("gateway");
    let url = piece.url.as_deref().unwrap_or(whole);
    format!(
        "{} {} {who} {url}\n",
        piece.offset_bytes, piece.length_bytes
    )
}

/// How clients reach a gateway.
fn base(args: &SignArgs) -> anyhow::Result<String> {
    match &args.url {
        Some(url) => check_base(url),
        None => base_of(&parse::<Status>(call(&args.remote, Method::Get, "/v1/status")?)?.doors),
    }
}

/// What is to stand before the path.
fn check_base(url: &str) -> anyhow::Result<String> {
    let host = url.strip_prefix("http://");
    let host = host.or_else(|| url.strip_prefix("https://")).unwrap_or("");
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    if host.is_empty() || host.starts_with('/') || !host.bytes().all(is_plain) {
        return Err(config::usage(format!(
            "{url:?} is no way to a gateway; write like http://10.0.0.7:8080 or https://files.example"
        )));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// The door that the process itself has, over TLS if it has such a one.
fn base_of(doors: &[DoorStatus]) -> anyhow::Result<String> {
    let door = |name: &str| doors.iter().find(|door| door.name == name);
    let door = door("https").or_else(|| door("http")).context(
        "this process has no HTTP door; say with --url how clients reach one, like --url http://10.0.0.7:8080",
    )?;
    let DoorStatus { name, address } = door;
    if address.starts_with("0.0.0.0:") || address.starts_with("[::]:") {
        bail!(
            "the HTTP door listens at all addresses of its machine ({address}); say with --url which one clients use, like --url {name}://10.0.0.7:8080"
        );
    }
    Ok(format!("{name}://{address}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a URL leads to a gateway, and nothing of it is lost behind a `?` or `#`.
    #[test]
    fn bases_are_checked() {
        let base = |url| check_base(url).ok();
        assert_eq!(base("http://a:1/"), Some("http://a:1".to_owned()));
        assert_eq!(base("https://[::1]:1"), Some("https://[::1]:1".to_owned()));
        for wrong in [
            "",
            "a:1",
            "ftp://a",
            "http://",
            "http:///x",
            "http://a?b",
            "http://a#",
            "http://a b",
        ] {
            assert_eq!(base(wrong), None, "{wrong}");
        }
    }

    /// Goal: each piece says where it belongs and who sends it; what a gateway sends is a range
    /// of the whole file, which programs are told as they have to ask for it.
    #[test]
    fn pieces_say_who_sends_them() {
        let mut piece = SignedPiece {
            offset_bytes: 65_536,
            length_bytes: 10,
            node: Some(3),
            url: Some("http://n/o/1".to_owned()),
        };
        assert_eq!(line(&piece, "http://g/f"), "65536 10 node-3 http://n/o/1\n");
        assert_eq!(to_json(&piece, "http://g/f").get("range"), None);
        (piece.node, piece.url) = (None, None);
        assert_eq!(line(&piece, "http://g/f"), "65536 10 gateway http://g/f\n");
        let json = to_json(&piece, "http://g/f");
        assert_eq!(
            (&json["range"], &json["url"]),
            (&"bytes=65536-65545".into(), &"http://g/f".into())
        );
    }

    /// Goal: without --url it is the process's own door, if others can be told its address.
    #[test]
    fn the_own_door_is_the_default() {
        let door = |name: &str, address: &str| DoorStatus {
            name: name.to_owned(),
            address: address.to_owned(),
        };
        let nfs = door("nfs", "127.0.0.1:2049");
        let http = door("http", "127.0.0.1:8080");
        let https = door("https", "127.0.0.1:8443");
        let base = |doors: &[DoorStatus]| base_of(doors).map_err(|error| error.to_string());
        assert_eq!(
            base(&[nfs.clone(), http.clone()]),
            Ok("http://127.0.0.1:8080".to_owned())
        );
        assert_eq!(
            base(&[http, https]),
            Ok("https://127.0.0.1:8443".to_owned())
        );
        assert!(base(&[nfs]).is_err_and(|error| error.contains("--url")));
        for all in ["0.0.0.0:1", "[::]:1"] {
            assert!(base(&[door("http", all)]).is_err_and(|error| error.contains("--url")));
        }
    }
}
