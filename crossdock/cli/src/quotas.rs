//! `crossdock quota`: how much directories of a running system may hold.

use std::str::FromStr;

use anyhow::bail;
use clap::{Args, Subcommand};
use crossdock_admin::{QuotaAnswer, QuotaSetting, QuotaStatus};
use crossdock_peer::QuotaChange;
use serde_json::Value;

use crate::client::{Method, at_path, call, parse};
use crate::commands::Remote;
use crate::config::Size;
use crate::{config, format};

#[derive(Subcommand)]
pub(crate) enum QuotaCommand {
    /// Limit what a directory and all below it may hold; what is not named stays.
    #[command(after_help = "Examples:\n  \
        crossdock quota set /home/anna --bytes 20G --files 100000\n  \
        crossdock quota set /home/anna --files none")]
    Set(SetArgs),
    /// Show all quotas, and what is used of them.
    #[command(after_help = "Example:\n  crossdock quota list --json")]
    List(Remote),
    /// Limit a directory no more; its files stay.
    #[command(after_help = "Example:\n  crossdock quota remove /home/anna")]
    Remove(RemoveArgs),
}

#[derive(Args)]
pub(crate) struct SetArgs {
    /// The directory, from the volume's root on, like /home/anna.
    path: String,
    /// Bytes, like 500M, 20G or 1T; `none`: as many as there is room for.
    #[arg(long, value_name = "SIZE")]
    bytes: Option<Limit<Size>>,
    /// Files, directories and links, the directory itself among them; `none`: as above.
    #[arg(long, value_name = "N")]
    files: Option<Limit<u64>>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct RemoveArgs {
    /// The directory, as `crossdock quota list` shows it.
    path: String,
    #[command(flatten)]
    remote: Remote,
}

/// A limit, or the word that takes it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit<T>(Option<T>);

impl<T: FromStr> FromStr for Limit<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        match text {
            "none" => Ok(Self(None)),
            text => text.parse().map(|limit| Self(Some(limit))),
        }
    }
}

impl QuotaCommand {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        match self {
            Self::Set(args) => args.remote.json,
            Self::List(remote) => remote.json,
            Self::Remove(args) => args.remote.json,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        match self {
            Self::Set(args) => set(args),
            Self::List(remote) => list(&remote),
            Self::Remove(args) => remove(&args),
        }
    }
}

fn set(args: SetArgs) -> anyhow::Result<()> {
    let limits = QuotaChange {
        bytes: args.bytes.map(|limit| limit.0.map(|size| size.0)),
        files: args.files.map(|limit| limit.0),
    };
    if limits == QuotaChange::default() {
        let what = "say how much: --bytes SIZE, --files N, or both".to_owned();
        return Err(config::usage(what));
    }
    let path = args.path;
    let body = serde_json::to_value(QuotaSetting { path, limits })?;
    let value = call(&args.remote, Method::Post(Some(body)), "/v1/quotas")?;
    tell(&args.remote, value, "limited")
}

fn list(remote: &Remote) -> anyhow::Result<()> {
    let value = call(remote, Method::Get, "/v1/quotas")?;
    if remote.json {
        return format::print_json(&value);
    }
    let quotas: Vec<QuotaStatus> = parse(value)?;
    let head = ["path", "used", "limit", "%", "files", "limit", "%"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(quotas.iter().map(|quota| {
        vec![
            quota.path.clone(),
            format::bytes(quota.used_bytes),
            limit(quota.bytes, format::bytes),
            limit(quota.percent_bytes, |percent| percent.to_string()),
            quota.used_files.to_string(),
            limit(quota.files, |files| files.to_string()),
            limit(quota.percent_files, |percent| percent.to_string()),
        ]
    }));
    Ok(format::print(&format::table(&rows))?)
}

fn remove(args: &RemoveArgs) -> anyhow::Result<()> {
    let quota = find(&args.remote, &args.path)?;
    let path = format!("/v1/quotas/{}", quota.id);
    let value = call(&args.remote, Method::Delete, &path)?;
    tell(&args.remote, value, "limited no more:")
}

/// The quota of the directory `path`.
fn find(remote: &Remote, path: &str) -> anyhow::Result<QuotaStatus> {
    let quotas: Vec<QuotaStatus> = parse(call(remote, Method::Get, "/v1/quotas")?)?;
    match at_path(quotas, path, |quota| &quota.path) {
        Some(quota) => Ok(quota),
        None => bail!("{path} has no quota; crossdock quota list shows what has"),
    }
}

fn tell(remote: &Remote, value: Value, done: &str) -> anyhow::Result<()> {
    if remote.json {
        return format::print_json(&value);
    }
    let QuotaAnswer { quota, notes } = parse(value)?;
    let mut text = format!(
        "{done} {}: {} of {}, {} of {} files\n",
        quota.path,
        format::bytes(quota.used_bytes),
        limit(quota.bytes, format::bytes),
        quota.used_files,
        limit(quota.files, |files| files.to_string()),
    );
    for note in notes {
        text += &format!("note: {note}\n");
    }
    Ok(format::print(&text)?)
}

fn limit(limit: Option<u64>, show: fn(u64) -> String) -> String {
    limit.map_or_else(|| "any".to_owned(), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a limit is a number, a size, or none; nothing else.
    #[test]
    fn limits_are_read() {
        let bytes = |text: &str| text.parse::<Limit<Size>>().map(|limit| limit.0);
        assert_eq!(
            bytes("2G").map(|size| size.map(|size| size.0)),
            Ok(Some(2 << 30))
        );
        assert_eq!(bytes("none").map(|size| size.is_none()), Ok(true));
        assert!(bytes("much").is_err());
        assert_eq!("7".parse(), Ok(Limit(Some(7u64))));
        assert!("-1".parse::<Limit<u64>>().is_err());
    }
}
